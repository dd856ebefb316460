//! Work of one task that waits for the disk and not for each other.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

/// Does `work` for every item, at most `at_once` at a time, and returns the results in the order of the items. The first
/// error ends it, when what was begun has ended.
pub async fn side_by_side<T, U, E>(
    items: Vec<T>,
    at_once: usize,
    work: impl AsyncFn(T) -> Result<U, E>,
) -> Result<Vec<U>, E> {
    let workers = items.len().min(at_once);
    let results: RefCell<Vec<Option<U>>> = RefCell::new(items.iter().map(|_| None).collect());
    let queue = RefCell::new(items.into_iter().enumerate());
    let failure = RefCell::new(None);
    let worker = async || {
        while failure.borrow().is_none() {
            let Some((at, item)) = queue.borrow_mut().next() else { return };
            match work(item).await {
                Ok(result) => results.borrow_mut()[at] = Some(result),
                Err(error) => {
                    failure.borrow_mut().get_or_insert(error);
                }
            }
        }
    };
    join_all((0..workers).map(|_| Box::pin(worker())).collect()).await;
    match failure.take() {
        Some(error) => Err(error),
        None => Ok(results.take().into_iter().map(|result| result.expect("every item was worked on")).collect()),
    }
}

/// Polls all of them whenever one is woken; there are few.
async fn join_all(mut futures: Vec<Pin<Box<impl Future<Output = ()>>>>) {
    poll_fn(|context| {
        futures.retain_mut(|future| future.as_mut().poll(context).is_pending());
        if futures.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use super::*;
    use crate::runtime::Runtime;
    use crate::runtime::simulated::SimulatedRuntime;

    #[test]
    fn results_come_in_the_order_of_the_items() {
        // However long each takes, and never more at a time than allowed.
        let runtime = SimulatedRuntime::new(1);
        let (running, most) = (Cell::new(0), Cell::new(0));
        let slow = async |item: u64| {
            running.set(running.get() + 1);
            most.set(running.get().max(most.get()));
            runtime.sleep(Duration::from_millis(10 - item % 10)).await;
            running.set(running.get() - 1);
            Ok::<_, ()>(item)
        };
        let items: Vec<u64> = (0..25).collect();
        assert_eq!(runtime.block_on(side_by_side(items.clone(), 4, slow)), Ok(items));
        assert_eq!(most.get(), 4);
    }

    #[test]
    fn the_first_error_ends_it() {
        // What was begun ends, nothing more begins.
        let runtime = SimulatedRuntime::new(1);
        let begun = Cell::new(0);
        let failing = async |item: u64| {
            begun.set(begun.get() + 1);
            runtime.sleep(Duration::from_millis(1)).await;
            if item == 1 { Err(item) } else { Ok(()) }
        };
        assert_eq!(runtime.block_on(side_by_side((0..100).collect(), 4, failing)), Err(1));
        assert!(begun.get() < 10, "{} begun", begun.get());
    }
}

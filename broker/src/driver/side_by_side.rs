//! Work that waits for the disk and not for each other: so many at a time, results in the order of the work.

use std::collections::VecDeque;
use std::future::Future;

use walser_storage::runtime::Runtime;
use walser_storage::runtime::channel::{Closed, OneshotReceiver, oneshot};

/// What is running.
pub struct SideBySide<R, T> {
    runtime: R,
    at_once: usize,
    running: VecDeque<OneshotReceiver<T>>,
}

impl<R: Runtime, T: 'static> SideBySide<R, T> {
    pub fn new(runtime: &R, at_once: usize) -> Self {
        Self { runtime: runtime.clone(), at_once, running: VecDeque::new() }
    }

    /// Starts `work`. When as much is running as may, the oldest is waited for first and its result returned.
    pub async fn start(&mut self, work: impl Future<Output = T> + 'static) -> Option<Result<T, Closed>> {
        let oldest = if self.running.len() >= self.at_once { self.next().await } else { None };
        let (sender, receiver) = oneshot();
        self.runtime.spawn(async move {
            // Dropped results are of those who have stopped asking.
            drop(sender.send(work.await));
        });
        self.running.push_back(receiver);
        oldest
    }

    /// The result of the oldest; an error when its task was given up. `None` when nothing runs.
    pub async fn next(&mut self) -> Option<Result<T, Closed>> {
        match self.running.pop_front() {
            Some(oldest) => Some(oldest.await),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::time::Duration;

    use walser_storage::runtime::simulated::SimulatedRuntime;

    use super::*;

    #[test]
    fn no_more_run_than_may_and_results_come_in_order() {
        // Rule: the bound holds, nothing is lost, and a slow one does not let a later one overtake it.
        let simulation = SimulatedRuntime::new(7);
        let (running, most) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let runtime = simulation.clone();
        let results = simulation.block_on(async move {
            let mut side_by_side = SideBySide::new(&runtime, 3);
            let mut results = Vec::new();
            for number in 0..10_u64 {
                let (running, most, runtime) = (Rc::clone(&running), Rc::clone(&most), runtime.clone());
                let work = async move {
                    running.set(running.get() + 1);
                    most.set(most.get().max(running.get()));
                    runtime.sleep(Duration::from_millis(10 - number)).await;
                    running.set(running.get() - 1);
                    (number, most.get())
                };
                results.extend(side_by_side.start(work).await);
            }
            while let Some(result) = side_by_side.next().await {
                results.push(result);
            }
            results.into_iter().map(Result::unwrap).collect::<Vec<_>>()
        });
        assert_eq!(results.iter().map(|(number, _)| *number).collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
        assert_eq!(results.iter().map(|(_, most)| *most).max(), Some(3));
    }
}

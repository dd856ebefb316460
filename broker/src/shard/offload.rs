//! Work too long for a shard, on helper threads.
//!
//! What a client sends decides how long some of it takes: a few kilobytes may decompress to as much as a batch may hold.
//! Such work leaves the shard, one job at a time, so that neither its time nor its memory adds up. Jobs wait in order of
//! arrival.

use std::cell::RefCell;

use walser_storage::runtime::channel::Semaphore;

use super::runtime;

/// Room for decompressed records that is kept between jobs. Touching memory for the first time costs more than
/// decompressing into it.
const ROOM_BYTES_KEPT: usize = 8 << 20;

/// A shard's jobs, and the memory they work in.
pub struct Offload {
    running: Semaphore,
    room: RefCell<Vec<u8>>,
}

impl Default for Offload {
    fn default() -> Self {
        Self { running: Semaphore::new(1), room: RefCell::default() }
    }
}

impl Offload {
    /// Runs `job` elsewhere when its turn has come. Its room holds anything.
    pub async fn run<T: Send + 'static>(&self, job: impl FnOnce(&mut Vec<u8>) -> T + Send + 'static) -> T {
        let _permit = self.running.acquire(1).await;
        let mut room = self.room.take();
        let (done, room) = runtime::offload(move || {
            let done = job(&mut room);
            (done, room)
        })
        .await;
        self.keep(room);
        done
    }

    /// Runs a short `job` here and now.
    pub fn run_here<T>(&self, job: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let mut room = self.room.take();
        let done = job(&mut room);
        self.keep(room);
        done
    }

    /// A large batch must not hold its memory for ever.
    fn keep(&self, room: Vec<u8>) {
        if room.capacity() <= ROOM_BYTES_KEPT && room.capacity() > self.room.borrow().capacity() {
            *self.room.borrow_mut() = room;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use walser_storage::runtime::Runtime;
    use walser_storage::runtime::channel::oneshot;
    use walser_storage::runtime::glommio::{GlommioRuntime, block_on};

    use super::*;

    #[test]
    fn jobs_run_elsewhere_one_at_a_time() {
        // Rule: a job runs on another thread, never two of a shard at once, and each gets its own answer.
        block_on(async {
            let offload = Rc::new(Offload::default());
            let running = Arc::new(AtomicUsize::new(0));
            let here = std::thread::current().id();
            let mut answers = Vec::new();
            for number in 0..20_usize {
                let (sender, receiver) = oneshot();
                let (offload, running) = (Rc::clone(&offload), Arc::clone(&running));
                GlommioRuntime::new().spawn(async move {
                    let answer = offload.run(move |room| {
                        assert_ne!(std::thread::current().id(), here);
                        assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                        room.clear();
                        room.resize(number, 1);
                        running.fetch_sub(1, Ordering::SeqCst);
                        room.len()
                    });
                    sender.send(answer.await).unwrap();
                });
                answers.push(receiver);
            }
            for (number, answer) in answers.into_iter().enumerate() {
                assert_eq!(answer.await, Ok(number));
            }
            assert!(offload.run_here(|room| room.capacity() > 0), "the room is kept");
        })
        .unwrap();
    }

    #[test]
    fn a_panic_comes_back_to_who_asked() {
        // Rule: a job that panics takes neither the helper thread nor the shard with it, and the next job runs.
        block_on(async {
            let offload = Offload::default();
            let job = std::panic::AssertUnwindSafe(offload.run(|_| panic!("as a bug would")));
            let outcome: Result<(), _> = futures_lite::FutureExt::catch_unwind(job).await;
            assert!(outcome.is_err());
            assert_eq!(offload.run(|_| 7).await, 7);
        })
        .unwrap();
    }
}

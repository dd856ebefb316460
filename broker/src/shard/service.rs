//! The one entry from connections into what a shard owns.
//!
//! A connection that panics is closed and counted; owned state that panics is half changed, so the process aborts and starts
//! again from its logs. This file is the border: every request passes [`guarded`] on its way in, on the owner's own thread
//! as well as through the mesh.
//!
//! [`ShardRequest`] and [`ShardReply`] are the whole list of what crosses: owned, `Send`, one message per owner shard and
//! request, never one per partition.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_lite::future::poll_once;
use walser_machine::fetch_session::{FetchContext, FetchedState, SessionAnswer, SessionError, SessionRequest};
use walser_machine::metadata::MetadataDelta;
use walser_machine::metadata::controller::{Command, Reply};
use walser_storage::runtime::channel::Closed;

use super::mesh::{Mesh, PendingReply, ReplyTo};
use super::placement::ShardId;
use super::runtime::{self, ShardRuntime};
use super::{Image, Shard};
use crate::driver::checkpoints::{LogEnd, LogOffsets};
use crate::driver::coordinator::{GroupAnswer, GroupQuery};
use crate::driver::partition::fetch::{FetchShard, FetchWait, Fetched};
use crate::driver::partition::offsets::{
    ActiveProducer, Answer, EpochQuery, FoundOffset, LogSize, OffsetQuery, StartQuery,
};
use crate::driver::partition::produce::{ProduceShard, Produced};
use crate::driver::partition::reconcile::{Boot, Homes};
use crate::driver::partition::{PartitionId, WaitId};
use crate::log_dirs::LogDirIndex;

/// What one executor asks of another.
#[derive(Debug)]
pub enum ShardRequest {
    /// Are you there?
    Ping,
    /// A new metadata image; answered when the shard has made itself match it.
    ApplyImage(ImageUpdate),
    Produce(ProduceShard),
    Fetch(FetchShard),
    /// Answered when there is enough to read, or the wait is over; reads nothing.
    WaitForData(FetchShard, FetchWait),
    /// Ends such a wait.
    CancelWait(WaitId),
    ListOffsets(Vec<OffsetQuery>),
    RaiseLogStarts(Vec<StartQuery>),
    EpochEnds(Vec<EpochQuery>),
    /// Where the answer goes, and the partition.
    DescribeProducers(Vec<(usize, PartitionId)>),
    DescribeLogDirs,
    /// What to read for a fetch that goes on with a session of this shard.
    BeginFetch(SessionRequest),
    /// What was read for it.
    FinishFetch(FetchContext, Vec<FetchedState>),
    CloseFetchSession(i32),
    /// What coordinators of groups are asked.
    Groups(Vec<GroupQuery>),
    /// A change of metadata; for the control executor.
    Control(Command),
    /// Where logs begin and up to where they are durable; for the control executor.
    NoteOffsets(Vec<LogOffsets>),
    /// What is noted of the ends of logs; for the control executor.
    NoteEnds(Vec<LogEnd>),
    /// Has replicas moved: where the answer goes, the replica, and its new directory.
    MoveReplicas(Vec<(usize, PartitionId, LogDirIndex)>),
    /// A log is about to be in a directory; for the control executor.
    NoteArrival(LogOffsets),
    /// A log is in the second directory and not any more in the first; for the control executor.
    NoteDeparture(PartitionId, LogDirIndex, LogDirIndex),
    /// Where replicas are on their way to, and where some are to be made; for the control executor.
    NoteWishes(Vec<Wish>),
}

/// In which directory a client wants a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// It is on its way there, or there.
    Move(PartitionId, LogDirIndex),
    /// By topic and index: there is none yet.
    Make(String, i32, LogDirIndex),
}

/// From one image to the next.
#[derive(Clone, Debug)]
pub struct ImageUpdate {
    pub image: Image,
    pub change: ImageChange,
    /// Of partitions that are new in this image.
    pub homes: Arc<Homes>,
}

/// How an image differs from the one before.
#[derive(Clone, Debug)]
pub enum ImageChange {
    /// There was none: what the last run left is opened.
    First(Arc<Boot>),
    Delta(Arc<MetadataDelta>),
}

/// The answers, one for each request.
#[derive(Debug)]
pub enum ShardReply {
    Pong,
    ImageApplied,
    Produced(Vec<Produced>),
    Fetched(Vec<Fetched>),
    DataWaited,
    WaitCancelled,
    OffsetsListed(Vec<Answer<FoundOffset>>),
    LogStartsRaised(Vec<Answer<LogOffsets>>),
    EpochEnds(Vec<Answer<(i32, i64)>>),
    Producers(Vec<Answer<Vec<ActiveProducer>>>),
    LogSizes(Vec<LogSize>),
    FetchBegun(Result<FetchContext, SessionError>),
    FetchFinished(SessionAnswer),
    FetchSessionClosed,
    GroupsAnswered(Vec<GroupAnswer>),
    /// `None`: the metadata log has failed, or the broker stops.
    Controlled(Option<Reply>),
    ReplicasMoved(Vec<Answer<()>>),
    WishesNoted,
    /// Directories whose offsets, or notes, are not on stable storage.
    OffsetsNoted(Vec<LogDirIndex>),
}

/// The mesh as the broker uses it.
pub type ShardMesh = Mesh<ShardRequest, ShardReply, ShardRuntime>;

/// Carries a request out on the shard that owns what it is about.
async fn serve(shard: Rc<Shard>, request: ShardRequest) -> ShardReply {
    match request {
        ShardRequest::Ping => ShardReply::Pong,
        ShardRequest::ApplyImage(update) => {
            shard.apply_image(update).await;
            ShardReply::ImageApplied
        }
        ShardRequest::Produce(request) => {
            let _awaited = shard.governor.await_foreground(request.sent_bytes());
            ShardReply::Produced(shard.partitions.produce(request).await)
        }
        ShardRequest::Fetch(request) => ShardReply::Fetched(shard.partitions.fetch(request).await),
        ShardRequest::WaitForData(request, wait) => {
            shard.partitions.wait_for_data(&request, wait).await;
            ShardReply::DataWaited
        }
        ShardRequest::CancelWait(id) => {
            shard.partitions.cancel_wait(id);
            ShardReply::WaitCancelled
        }
        ShardRequest::ListOffsets(queries) => ShardReply::OffsetsListed(shard.partitions.list_offsets(queries).await),
        ShardRequest::RaiseLogStarts(queries) => {
            ShardReply::LogStartsRaised(shard.partitions.raise_log_starts(queries).await)
        }
        ShardRequest::EpochEnds(queries) => ShardReply::EpochEnds(shard.partitions.epoch_ends(&queries)),
        ShardRequest::DescribeProducers(queries) => ShardReply::Producers(shard.partitions.active_producers(&queries)),
        ShardRequest::DescribeLogDirs => ShardReply::LogSizes(shard.partitions.log_sizes()),
        ShardRequest::BeginFetch(request) => ShardReply::FetchBegun(shard.begin_fetch(request)),
        ShardRequest::FinishFetch(context, states) => ShardReply::FetchFinished(shard.finish_fetch(&context, &states)),
        ShardRequest::CloseFetchSession(id) => {
            shard.fetch_sessions.borrow_mut().close(id);
            ShardReply::FetchSessionClosed
        }
        ShardRequest::Groups(queries) => ShardReply::GroupsAnswered(shard.coordinators.serve(queries).await),
        ShardRequest::MoveReplicas(moves) => ShardReply::ReplicasMoved(shard.partitions.move_replicas(moves).await),
        ShardRequest::Control(_)
        | ShardRequest::NoteOffsets(_)
        | ShardRequest::NoteEnds(_)
        | ShardRequest::NoteArrival(_)
        | ShardRequest::NoteDeparture(..)
        | ShardRequest::NoteWishes(_) => {
            unreachable!("this is the control executor's")
        }
    }
}

/// A request whose place in the owner's order is fixed.
pub enum Dispatched {
    /// Answered at once.
    Done(ShardReply),
    /// On this shard, not finished.
    Local(Pin<Box<dyn Future<Output = ShardReply>>>),
    /// On its way.
    Remote(PendingReply<ShardReply>),
}

impl Dispatched {
    /// The reply; [`Closed`] when the owner has stopped.
    pub async fn reply(self) -> Result<ShardReply, Closed> {
        match self {
            Self::Done(reply) => Ok(reply),
            Self::Local(serving) => Ok(serving.await),
            Self::Remote(pending) => pending.await,
        }
    }
}

impl Shard {
    /// Hands a request to the shard that owns what it is about. When this returns, nothing that is handed over later
    /// overtakes it; the reply is awaited separately. A local request that was begun is finished even if its reply is not
    /// awaited to the end.
    pub async fn dispatch(self: &Rc<Self>, owner: ShardId, request: ShardRequest) -> Dispatched {
        if owner != self.id {
            return Dispatched::Remote(self.mesh.request(owner, request).await);
        }
        let mut serving: Pin<Box<dyn Future<Output = ShardReply>>> = Box::pin(guarded(serve(Rc::clone(self), request)));
        match poll_once(&mut serving).await {
            Some(reply) => Dispatched::Done(reply),
            None => Dispatched::Local(finish_alone(serving)),
        }
    }
}

impl Shard {
    /// Has the cluster's state changed; answered when every shard has made itself match. `None`: it cannot be changed now.
    pub async fn control(self: &Rc<Self>, command: Command) -> Option<Reply> {
        let control = ShardId::new(self.placement.shard_count());
        match self.dispatch(control, ShardRequest::Control(command)).await.reply().await {
            Ok(ShardReply::Controlled(reply)) => reply,
            Ok(_) | Err(Closed) => None,
        }
    }

    /// Has offsets of logs kept for the next start; the directories in which they are not on stable storage.
    pub async fn note_offsets(self: &Rc<Self>, offsets: Vec<LogOffsets>) -> Vec<LogDirIndex> {
        self.note(ShardRequest::NoteOffsets(offsets)).await
    }

    /// Has notes on the ends of logs kept for the next start; the directories in which they are not on stable storage.
    pub async fn note_ends(self: &Rc<Self>, ends: Vec<LogEnd>) -> Vec<LogDirIndex> {
        self.note(ShardRequest::NoteEnds(ends)).await
    }

    /// Has the directory of `offsets` know the log that is about to be in it; true when that is on stable storage.
    pub async fn note_arrival(self: &Rc<Self>, offsets: LogOffsets) -> bool {
        self.note(ShardRequest::NoteArrival(offsets)).await.is_empty()
    }

    /// Has the directory `from` forget a log that is in another one.
    pub async fn note_departure(self: &Rc<Self>, id: PartitionId, from: LogDirIndex, to: LogDirIndex) {
        self.note(ShardRequest::NoteDeparture(id, from, to)).await;
    }

    /// Has the placing of partitions know what clients want.
    pub async fn note_wishes(self: &Rc<Self>, wishes: Vec<Wish>) {
        let control = ShardId::new(self.placement.shard_count());
        // A control executor that has stopped places nothing any more.
        drop(self.dispatch(control, ShardRequest::NoteWishes(wishes)).await.reply().await);
    }

    async fn note(self: &Rc<Self>, request: ShardRequest) -> Vec<LogDirIndex> {
        let control = ShardId::new(self.placement.shard_count());
        match self.dispatch(control, request).await.reply().await {
            Ok(ShardReply::OffsetsNoted(failed)) => failed,
            Ok(_) | Err(Closed) => self.partitions.settings.log_dirs.iter().map(|(dir, _)| dir).collect(),
        }
    }

    /// Ends a parked wait on `owner`; nobody waits for the answer.
    pub fn cancel_wait(self: &Rc<Self>, owner: ShardId, id: WaitId) {
        let shard = Rc::clone(self);
        runtime::spawn(async move {
            let dispatched = shard.dispatch(owner, ShardRequest::CancelWait(id)).await;
            // An owner that has stopped waits no more.
            drop(dispatched.reply().await);
        });
    }
}

/// Runs `serving` as a task of its own, so that a connection that goes away does not cut it in the middle.
fn finish_alone(serving: Pin<Box<dyn Future<Output = ShardReply>>>) -> Pin<Box<dyn Future<Output = ShardReply>>> {
    let (sender, receiver) = walser_storage::runtime::channel::oneshot();
    runtime::spawn(async move {
        // Who asked may be gone.
        drop(sender.send(serving.await));
    });
    Box::pin(async move { receiver.await.expect("the serving task answers, or the process ends") })
}

/// Serves what comes through the mesh; begun in order of arrival, finished in any.
pub fn serve_remote(
    shard: &Rc<Shard>,
    request: ShardRequest,
    reply_to: ReplyTo<ShardRequest, ShardReply, ShardRuntime>,
) {
    let mut serving: Pin<Box<dyn Future<Output = ShardReply>>> = Box::pin(guarded(serve(Rc::clone(shard), request)));
    let waker = std::task::Waker::noop();
    // The first step happens here and now, which is what keeps the order; the task polls again with its own waker.
    match serving.as_mut().poll(&mut Context::from_waker(waker)) {
        Poll::Ready(reply) => reply_to.send(reply),
        Poll::Pending => runtime::spawn(async move { reply_to.send(serving.await) }),
    }
}

struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!("owned state panicked under a request: aborting");
            std::process::abort();
        }
    }
}

/// Wraps a future that changes owned state: a panic inside aborts the process instead of unwinding into a connection.
pub fn guarded<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let mut future = Box::pin(future);
    std::future::poll_fn(move |context| {
        let _guard = AbortOnUnwind;
        future.as_mut().poll(context)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::*;

    const INSIDE: &str = "WALSER_TEST_PANIC_INSIDE_GUARD";

    #[test]
    fn a_panic_in_owned_state_ends_the_process() {
        // Rule: nobody catches what unwinds out of owned state; the process aborts at the border.
        if std::env::var_os(INSIDE).is_some() {
            let caught = std::panic::catch_unwind(|| {
                futures_lite::future::block_on(guarded(async { panic!("as a bug would") }));
            });
            // Reached only without the guard.
            std::process::exit(if caught.is_err() { 7 } else { 8 });
        }
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "shard::service::tests::a_panic_in_owned_state_ends_the_process"])
            .env(INSIDE, "1")
            .output()
            .unwrap();
        assert_eq!(child.status.signal(), Some(libc::SIGABRT), "{child:?}");
    }

    #[test]
    fn a_guard_lets_results_and_outside_panics_pass() {
        // Rule: the guard is quiet when nothing inside panics, also while something outside unwinds later.
        let value = futures_lite::future::block_on(guarded(async { 5 }));
        assert_eq!(value, 5);
        let outside = std::panic::catch_unwind(|| {
            let _finished = guarded(async {});
            std::panic::resume_unwind(Box::new("outside"));
        });
        assert!(outside.is_err());
    }
}

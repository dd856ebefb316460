//! The control executor: the last node of the mesh, not pinned, and the only writer of metadata.
//!
//! Slow work here never delays a shard, and a busy shard never delays what happens here.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use walser_storage::runtime::channel::Closed;

use super::ShardDisk;
use super::gate::{Gates, spawn_inside};
use super::mesh::ReplyTo;
use super::placement::ShardId;
use super::runtime::ShardRuntime;
use super::service::{ImageUpdate, ShardMesh, ShardReply, ShardRequest, Wish};
use super::watchdog::Pulse;
use crate::driver::checkpoints::DirCheckpoints;
use crate::driver::homes::Placing;
use crate::driver::metadata::CommandQueue;
use crate::log_dirs::{LogDirIndex, LogDirs};
use crate::metrics::Metrics;

/// What runs on the control executor.
pub struct Control {
    pub runtime: ShardRuntime,
    pub mesh: Rc<ShardMesh>,
    pub shard_count: u16,
    pub gates: Gates,
    pub commands: Rc<CommandQueue>,
    pub log_dirs: Arc<LogDirs>,
    /// There from before the first image to the clean stop.
    pub checkpoints: RefCell<Option<Rc<DirCheckpoints<ShardDisk>>>>,
    /// In which directory each partition is.
    pub placing: RefCell<Placing>,
    pub metrics: Arc<Metrics>,
    pub pulse: Arc<Pulse>,
}

impl Control {
    /// Hands an image to every shard; returns when each has made itself match it.
    ///
    /// # Errors
    /// When a shard has stopped.
    pub async fn publish(&self, update: &ImageUpdate) -> Result<(), Closed> {
        let mut pending = Vec::with_capacity(usize::from(self.shard_count));
        for shard in 0..self.shard_count {
            let request = ShardRequest::ApplyImage(update.clone());
            pending.push(self.mesh.request(ShardId::new(shard), request).await);
        }
        for reply in pending {
            reply.await?;
        }
        Ok(())
    }
}

type Reply = ReplyTo<ShardRequest, ShardReply, ShardRuntime>;

/// Has the checkpoints note something, and says in which directories they have not.
fn note(
    control: &Rc<Control>,
    reply_to: Reply,
    noting: impl AsyncFnOnce(Rc<DirCheckpoints<ShardDisk>>) -> Vec<LogDirIndex> + 'static,
) {
    // Taken away by a clean stop, which writes what the closed logs say.
    let Some(checkpoints) = control.checkpoints.borrow().clone() else {
        return reply_to.send(ShardReply::OffsetsNoted(control.log_dirs.iter().map(|(dir, _)| dir).collect()));
    };
    spawn_inside(&control.runtime, &control.gates.internals, async move {
        let failed = noting(checkpoints).await;
        reply_to.send(ShardReply::OffsetsNoted(failed));
    });
}

/// Serves what shards ask of the control plane.
pub fn serve(control: &Rc<Control>, request: ShardRequest, reply_to: Reply) {
    match request {
        ShardRequest::Ping => reply_to.send(ShardReply::Pong),
        ShardRequest::Control(command) => {
            let reply = control.commands.submit(command);
            spawn_inside(&control.runtime, &control.gates.internals, async move {
                let reply = reply.await.ok().and_then(Result::ok);
                reply_to.send(ShardReply::Controlled(reply));
            });
        }
        ShardRequest::NoteOffsets(offsets) => {
            note(control, reply_to, async move |checkpoints| checkpoints.note(offsets).await);
        }
        ShardRequest::NoteEnds(ends) => {
            note(control, reply_to, async move |checkpoints| checkpoints.note_ends(ends).await);
        }
        ShardRequest::NoteArrival(offsets) => {
            note(control, reply_to, async move |checkpoints| {
                let dir = offsets.dir;
                if checkpoints.note_arrival(offsets).await { Vec::new() } else { vec![dir] }
            });
        }
        ShardRequest::NoteDeparture(id, from, to) => {
            control.placing.borrow_mut().note_moved(id, to);
            note(control, reply_to, async move |checkpoints| {
                checkpoints.note_departure(id, from).await;
                Vec::new()
            });
        }
        ShardRequest::NoteWishes(wishes) => {
            let mut placing = control.placing.borrow_mut();
            for wish in wishes {
                match wish {
                    Wish::Move(id, to) => placing.note_copy(id, Some(to)),
                    Wish::Make(topic, index, dir) => placing.prefer(&topic, index, dir),
                }
            }
            drop(placing);
            reply_to.send(ShardReply::WishesNoted);
        }
        other @ (ShardRequest::ApplyImage(_)
        | ShardRequest::Produce(_)
        | ShardRequest::Fetch(_)
        | ShardRequest::WaitForData(..)
        | ShardRequest::CancelWait(_)
        | ShardRequest::ListOffsets(_)
        | ShardRequest::RaiseLogStarts(_)
        | ShardRequest::EpochEnds(_)
        | ShardRequest::DescribeProducers(_)
        | ShardRequest::DescribeLogDirs
        | ShardRequest::MoveReplicas(_)
        | ShardRequest::BeginFetch(_)
        | ShardRequest::FinishFetch(..)
        | ShardRequest::CloseFetchSession(_)
        | ShardRequest::Groups(_)) => {
            unreachable!("the control executor owns no partition and serves no client: {other:?}")
        }
    }
}

//! The only writer of metadata: takes commands in order, logs what the controller decides, and publishes what follows.
//!
//! A command is answered when its records are on stable storage and every shard has made itself match the image that holds
//! them, so a client that was answered finds its change whichever shard it asks. Commands that arrive while a group is being
//! flushed form the next group: each sees what those before it decided, and all of them share one flush.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use walser_machine::metadata::controller::{Command, ConfigRules, Controller, Reply};
use walser_machine::metadata::image::{ImageBuilder, ReplayError};
use walser_machine::metadata::{MetadataDelta, MetadataImage, MetadataRecord};
use walser_storage::disk::Disk;
use walser_storage::runtime::Runtime;
use walser_storage::runtime::channel::{Notify, OneshotReceiver, OneshotSender, oneshot};

use super::quorum::{Appended, Quorum, QuorumError};

/// Why a command was not carried out.
#[derive(Clone, Debug, thiserror::Error)]
pub enum MetadataError {
    /// The log did not take it: it is full for now, or has failed and takes nothing until the broker is started again.
    #[error("the metadata log failed: {0}")]
    Log(#[from] Arc<QuorumError>),
    #[error("the controller decided something that cannot be: {0}")]
    Replay(#[from] ReplayError),
    #[error("the broker stops")]
    Stopping,
}

/// Commands decided together: their records share one flush, and their images one publication.
const GROUP_COMMANDS_MAX: usize = 64;

/// A command and where its answer goes.
type Waiting = (Command, OneshotSender<Result<Reply, MetadataError>>);

/// Commands that wait for their turn. Bounded by what the mesh lets every shard have on its way.
#[derive(Default)]
pub struct CommandQueue {
    waiting: RefCell<VecDeque<Waiting>>,
    arrived: Notify,
    closed: Cell<bool>,
}

impl CommandQueue {
    /// The answer comes after those of all earlier commands. After [`Self::close`] there is none.
    pub fn submit(&self, command: Command) -> OneshotReceiver<Result<Reply, MetadataError>> {
        let (sender, receiver) = oneshot();
        if self.closed.get() {
            // The receiver may be gone already.
            drop(sender.send(Err(MetadataError::Stopping)));
            return receiver;
        }
        self.waiting.borrow_mut().push_back((command, sender));
        self.arrived.notify_all();
        receiver
    }

    /// Takes no more commands; those that wait are still carried out.
    pub fn close(&self) {
        self.closed.set(true);
        self.arrived.notify_all();
    }

    /// Commands in order, at least one; none: closed and empty.
    async fn next_group(&self) -> Vec<Waiting> {
        loop {
            let arrived = self.arrived.notified();
            let group: Vec<Waiting> = {
                let mut waiting = self.waiting.borrow_mut();
                let len = waiting.len().min(GROUP_COMMANDS_MAX);
                waiting.drain(..len).collect()
            };
            if !group.is_empty() || self.closed.get() {
                return group;
            }
            arrived.await;
        }
    }
}

/// The writer's state.
pub struct MetadataDriver<D: Disk, R: Runtime> {
    controller: Controller,
    rules: Box<dyn ConfigRules>,
    quorum: Quorum<D, R>,
    /// As of the last commit; what shards have, or are being given.
    image: Arc<MetadataImage>,
}

impl<D: Disk, R: Runtime> MetadataDriver<D, R> {
    /// `image`: what the log holds.
    pub fn new(
        controller: Controller,
        rules: Box<dyn ConfigRules>,
        quorum: Quorum<D, R>,
        image: Arc<MetadataImage>,
    ) -> Self {
        Self { controller, rules, quorum, image }
    }

    pub fn image(&self) -> &Arc<MetadataImage> {
        &self.image
    }

    /// Makes a new log this cluster's; one that has begun is only checked.
    pub async fn bootstrap(&mut self, cluster_id: &str) -> Result<(), MetadataError> {
        if self.image.cluster_id() == cluster_id {
            return Ok(());
        }
        let mut group = Group::begin(&self.image);
        // A log of another cluster refuses the record.
        group.append(&mut self.quorum, &[MetadataRecord::Cluster { cluster_id: cluster_id.to_owned() }])?;
        self.commit(group).await?;
        Ok(())
    }

    /// Carries out one command up to the new image; the caller publishes it. Used alone before there are shards.
    pub async fn carry_out(&mut self, command: Command) -> Result<(Reply, Option<MetadataDelta>), MetadataError> {
        let mut group = Group::begin(&self.image);
        let reply = self.decide(&mut group, command)?;
        let delta = self.commit(group).await?;
        Ok((reply, delta))
    }

    /// Takes commands until the queue is closed and empty, then closes the log. `publish` returns when every shard has made itself
    /// match; `false`: a shard has stopped.
    pub async fn run<P>(mut self, commands: Rc<CommandQueue>, publish: P)
    where
        P: AsyncFn(Arc<MetadataImage>, Arc<MetadataDelta>) -> bool,
    {
        loop {
            let waiting = commands.next_group().await;
            if waiting.is_empty() {
                break;
            }
            self.carry_out_group(waiting, &publish).await;
            self.quorum.snapshot_if_due(&self.image).await;
        }
        if let Err(error) = self.quorum.close(&self.image).await {
            tracing::warn!(%error, "the metadata log was not closed cleanly; the next start recovers it");
        }
    }

    async fn carry_out_group<P>(&mut self, waiting: Vec<Waiting>, publish: &P)
    where
        P: AsyncFn(Arc<MetadataImage>, Arc<MetadataDelta>) -> bool,
    {
        let mut group = Group::begin(&self.image);
        let decided: Vec<_> =
            waiting.into_iter().map(|(command, reply_to)| (self.decide(&mut group, command), reply_to)).collect();
        let committed = match self.commit(group).await {
            Ok(None) => Ok(()),
            Ok(Some(delta)) => {
                let is_published = publish(Arc::clone(&self.image), Arc::new(delta)).await;
                if is_published { Ok(()) } else { Err(MetadataError::Stopping) }
            }
            Err(error) => {
                tracing::error!(%error, "metadata not changed");
                Err(error)
            }
        };
        for (reply, reply_to) in decided {
            let outcome = match &committed {
                Ok(()) => reply,
                Err(error) => Err(error.clone()),
            };
            // Who asked may be gone.
            drop(reply_to.send(outcome));
        }
    }

    /// Answers a command against the commands before it, committed or not, and queues its records.
    fn decide(&mut self, group: &mut Group, command: Command) -> Result<Reply, MetadataError> {
        let (reply, records) = self.controller.handle(group.builder.image(), self.rules.as_ref(), command);
        if !records.is_empty() {
            group.append(&mut self.quorum, &records)?;
        }
        Ok(reply)
    }

    /// `None`: nothing was changed. After an error the image stands, and the log takes nothing more: what is on the disk is known
    /// only after a restart.
    async fn commit(&mut self, group: Group) -> Result<Option<MetadataDelta>, MetadataError> {
        let Some(last) = group.last else { return Ok(None) };
        self.quorum.committed(last).await.map_err(Arc::new)?;
        let (image, delta) = group.builder.finish();
        self.image = image;
        Ok(Some(delta))
    }
}

/// Records that are in the log's queue and not yet committed, applied to the last image.
struct Group {
    builder: ImageBuilder,
    last: Option<Appended>,
}

impl Group {
    fn begin(image: &MetadataImage) -> Self {
        Self { builder: ImageBuilder::new(image), last: None }
    }

    /// One batch, in the log and in the state, or in neither.
    fn append<D: Disk, R: Runtime>(
        &mut self,
        quorum: &mut Quorum<D, R>,
        records: &[MetadataRecord],
    ) -> Result<(), MetadataError> {
        // Tried on a copy first: what the log has once taken must be possible, and what it refuses must leave no trace.
        ImageBuilder::new(self.builder.image()).replay_batch(records)?;
        self.last = Some(quorum.append(self.builder.image().end_offset(), records).map_err(Arc::new)?);
        self.builder.replay_batch(records).expect("replayed on a copy a moment ago");
        Ok(())
    }
}

#[cfg(test)]
mod tests;

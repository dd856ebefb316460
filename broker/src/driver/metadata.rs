//! The only writer of metadata: takes commands in order, logs what the controller decides, and publishes what follows.
//!
//! A command is answered when its records are on stable storage and every shard has made itself match the image that holds
//! them, so a client that was answered finds its change whichever shard it asks.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use walser_machine::metadata::controller::{Command, ConfigRules, Controller, Reply};
use walser_machine::metadata::image::{ImageBuilder, ReplayError};
use walser_machine::metadata::{MetadataDelta, MetadataImage, MetadataRecord};
use walser_storage::disk::Disk;
use walser_storage::runtime::Runtime;
use walser_storage::runtime::channel::{Notify, OneshotReceiver, OneshotSender, oneshot};

use super::quorum::{Quorum, QuorumError};

/// Why a command was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum MetadataError {
    /// The log takes nothing any more: nothing can be changed until the broker is started again.
    #[error("the metadata log failed: {0}")]
    Log(#[from] QuorumError),
    #[error("the controller decided something that cannot be: {0}")]
    Replay(#[from] ReplayError),
    #[error("the broker stops")]
    Stopping,
}

/// Commands that wait for their turn. Bounded by what the mesh lets every shard have on its way.
#[derive(Default)]
pub struct CommandQueue {
    waiting: RefCell<VecDeque<(Command, OneshotSender<Result<Reply, MetadataError>>)>>,
    arrived: Notify,
}

impl CommandQueue {
    /// The answer comes after those of all earlier commands.
    pub fn submit(&self, command: Command) -> OneshotReceiver<Result<Reply, MetadataError>> {
        let (sender, receiver) = oneshot();
        self.waiting.borrow_mut().push_back((command, sender));
        self.arrived.notify_all();
        receiver
    }

    async fn next(&self) -> (Command, OneshotSender<Result<Reply, MetadataError>>) {
        loop {
            let arrived = self.arrived.notified();
            if let Some(next) = self.waiting.borrow_mut().pop_front() {
                return next;
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
        let records = vec![MetadataRecord::Cluster { cluster_id: cluster_id.to_owned() }];
        let mut builder = ImageBuilder::new(&self.image);
        // A log of another cluster refuses the record.
        builder.replay_batch(&records)?;
        self.quorum.append(&records).await?;
        self.image = builder.finish().0;
        Ok(())
    }

    /// Carries out one command up to the new image; the caller publishes it. Used alone before there are shards.
    pub async fn carry_out(&mut self, command: Command) -> Result<(Reply, Option<MetadataDelta>), MetadataError> {
        let (reply, records) = self.controller.handle(&self.image, self.rules.as_ref(), command);
        if records.is_empty() {
            return Ok((reply, None));
        }
        let mut builder = ImageBuilder::new(&self.image);
        builder.replay_batch(&records)?;
        self.quorum.append(&records).await?;
        let (image, delta) = builder.finish();
        self.image = image;
        self.quorum.snapshot_if_due(&self.image).await;
        Ok((reply, Some(delta)))
    }

    /// Takes commands until dropped. `publish` returns when every shard has made itself match.
    pub async fn run<P>(mut self, commands: Rc<CommandQueue>, publish: P)
    where
        P: AsyncFn(Arc<MetadataImage>, Arc<MetadataDelta>) -> bool,
    {
        loop {
            let (command, reply_to) = commands.next().await;
            let outcome = match self.carry_out(command).await {
                Ok((reply, None)) => Ok(reply),
                Ok((reply, Some(delta))) => {
                    let is_published = publish(Arc::clone(&self.image), Arc::new(delta)).await;
                    if is_published { Ok(reply) } else { Err(MetadataError::Stopping) }
                }
                Err(error) => {
                    tracing::error!(%error, "metadata not changed");
                    Err(error)
                }
            };
            // Who asked may be gone.
            drop(reply_to.send(outcome));
        }
    }
}

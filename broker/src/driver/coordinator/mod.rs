//! The group coordinators of one shard: one for each partition of `__consumer_offsets` that this shard owns.
//!
//! ```text
//! commands ──▶ machine ──Append──▶ log of the partition ──flushed──▶ machine ──Reply──▶ who asked
//!                 ▲  └──ResolveRegexes──▶ beside the shard ──┐
//!                 └── timers, images, ends of the log ◀──────┘
//! ```
//!
//! A command is handed to its machine at once, in the order in which it came, and so is what the machine wants done. A task per
//! coordinator ([`slot`]) loads it, wakes it when something is due or durable, and loads it anew when an append has failed.

mod load;
mod slot;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use futures_lite::future::poll_once;
use walser_machine::group::{Command, GroupSettings, Reply, ResolvedRegexes};
use walser_machine::metadata::{MetadataDelta, MetadataImage};
use walser_protocol::ErrorCode;
use walser_protocol::records::compression::Compression;
use walser_storage::disk::Disk;
use walser_storage::runtime::Runtime;
use walser_storage::runtime::channel::Gate;

use self::slot::{Asked, Slot};
use crate::driver::partition::{PartitionId, Partitions};

/// Where groups and their offsets are kept.
pub const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// One command of a request.
#[derive(Debug)]
pub struct GroupQuery {
    /// Where the answer goes.
    pub slot: usize,
    /// The partition of [`OFFSETS_TOPIC`] whose coordinator is asked.
    pub partition: PartitionId,
    pub command: Command,
}

/// The answer to one command, or why no coordinator gave one.
#[derive(Debug)]
pub struct GroupAnswer {
    pub slot: usize,
    pub outcome: Result<Reply, ErrorCode>,
}

/// What coordinators are told by the broker's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoordinatorSettings {
    pub groups: GroupSettings,
    /// `offsets.commit.timeout.ms`: how long an answer may wait for its records to be flushed.
    pub commit_timeout_ms: u64,
    /// `offsets.load.buffer.size`
    pub load_bytes: usize,
    /// `offsets.topic.compression.codec`
    pub compression: Compression,
}

/// Regular expressions to be held against the names of all topics.
#[derive(Clone, Debug)]
pub struct RegexJob {
    pub regexes: BTreeSet<Arc<str>>,
    pub image: Arc<MetadataImage>,
    pub wall_ms: i64,
}

/// What a job comes to; `None` when it failed.
pub type Resolving = Pin<Box<dyn Future<Output = Option<ResolvedRegexes>>>>;

/// Runs jobs beside the shard.
pub type Resolver = Box<dyn Fn(RegexJob) -> Resolving>;

/// What the coordinators of a shard share.
struct Shared<D: Disk, R: Runtime> {
    partitions: Rc<Partitions<D, R>>,
    /// What a stop waits for.
    tasks: Gate,
    resolver: Resolver,
    settings: RefCell<CoordinatorSettings>,
    image: RefCell<Arc<MetadataImage>>,
    next_request: Cell<u64>,
}

/// All coordinators of one shard.
pub struct Coordinators<D: Disk, R: Runtime> {
    shared: Rc<Shared<D, R>>,
    slots: RefCell<BTreeMap<PartitionId, Rc<Slot<D, R>>>>,
    stopping: Cell<bool>,
}

impl<D: Disk, R: Runtime> Coordinators<D, R> {
    pub fn new(
        partitions: Rc<Partitions<D, R>>,
        tasks: Gate,
        settings: CoordinatorSettings,
        resolver: Resolver,
    ) -> Self {
        let shared = Shared {
            partitions,
            tasks,
            resolver,
            settings: RefCell::new(settings),
            image: RefCell::default(),
            next_request: Cell::new(0),
        };
        Self { shared: Rc::new(shared), slots: RefCell::default(), stopping: Cell::new(false) }
    }

    /// Follows the shard's partitions, which match the image already: begins what this shard now leads, ends what it does not lead
    /// any more, and tells the others.
    pub async fn follow(&self, image: &Arc<MetadataImage>, delta: &MetadataDelta, settings: CoordinatorSettings) {
        *self.shared.image.borrow_mut() = Arc::clone(image);
        let has_new_settings = *self.shared.settings.borrow() != settings;
        *self.shared.settings.borrow_mut() = settings;
        if self.stopping.get() {
            return;
        }
        let wanted = self.wanted(image);
        let gone: Vec<_> = self.slots.borrow_mut().extract_if(.., |id, _| !wanted.contains(id)).collect();
        for (_, slot) in gone {
            slot.end();
        }
        let known: Vec<_> = self.slots.borrow().values().cloned().collect();
        for slot in known {
            slot.handle_image(image, delta, has_new_settings);
        }
        for id in wanted {
            if !self.slots.borrow().contains_key(&id) {
                self.begin(id).await;
            }
        }
    }

    /// Answers commands. Each has changed the state of its coordinator before the first wait.
    pub async fn serve(&self, queries: Vec<GroupQuery>) -> Vec<GroupAnswer> {
        let ask = |query: GroupQuery| (query.slot, self.ask(query.partition, query.command));
        let asked: Vec<(usize, Asked<R>)> = queries.into_iter().map(ask).collect();
        let mut answers = Vec::with_capacity(asked.len());
        for (slot, asked) in asked {
            answers.push(GroupAnswer { slot, outcome: asked.answer().await });
        }
        answers
    }

    /// Answers everybody who waits: another broker, or the next start, goes on with the groups.
    pub fn stop(&self) {
        self.stopping.set(true);
        for slot in std::mem::take(&mut *self.slots.borrow_mut()).into_values() {
            slot.end();
        }
    }

    fn ask(&self, id: PartitionId, command: Command) -> Asked<R> {
        let slot = self.slots.borrow().get(&id).cloned();
        match slot {
            Some(slot) => slot.ask(command),
            None => Asked::refused(ErrorCode::NotCoordinator),
        }
    }

    /// Partitions of the topic that this shard leads and has.
    fn wanted(&self, image: &MetadataImage) -> BTreeSet<PartitionId> {
        let Some(topic) = image.topic(OFFSETS_TOPIC) else { return BTreeSet::new() };
        let ids = (0..).zip(&topic.partitions).map(|(index, _)| PartitionId { topic_id: topic.topic_id, index });
        ids.filter(|id| self.shared.partitions.find(*id).is_some()).collect()
    }

    /// One without records is loaded when this returns.
    async fn begin(&self, id: PartitionId) {
        let Some(guard) = self.shared.tasks.enter() else { return };
        let slot = Rc::new(Slot::new(id, Rc::clone(&self.shared)));
        self.slots.borrow_mut().insert(id, Rc::clone(&slot));
        let mut running = Box::pin(async move {
            slot.run().await;
            drop(guard);
        });
        if poll_once(&mut running).await.is_none() {
            self.shared.partitions.runtime.spawn(running);
        }
    }
}

#[cfg(test)]
mod tests;

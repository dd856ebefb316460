//! Shards: one pinned executor per core, each the only owner of its partitions, connections, caches and timers.

pub mod boot;
pub mod control;
pub mod gate;
pub mod governor;
pub mod maintenance;
pub mod mesh;
pub mod offload;
pub mod placement;
pub mod runtime;
pub mod service;
pub mod start;
pub mod watchdog;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_lite::FutureExt;
use futures_lite::future::{or, poll_once};
use walser_machine::fetch_session::{
    FetchContext, FetchSessions, FetchedState, SessionAnswer, SessionError, SessionRequest,
};
use walser_machine::group::resolve_regexes;
use walser_machine::ids::BrokerId;
use walser_machine::ids::IdGenerator;
use walser_machine::metadata::records::ConfigResource;
use walser_machine::metadata::{MetadataDelta, MetadataImage};
use walser_protocol::records::compression::Compression;
pub use walser_storage::disk::glommio::GlommioDisk as ShardDisk;
use walser_storage::runtime::channel::{Notify, Semaphore};
use walser_storage::runtime::{Instant, Runtime};

use crate::config::broker::BrokerConfig;
use crate::config::group;
use crate::config::topic::TopicConfig;
use crate::config::view::BrokerView;
use crate::driver::coordinator::{CoordinatorSettings, Coordinators, OFFSETS_TOPIC, RegexJob, Resolving};
use crate::driver::partition::reconcile::Assignment;
use crate::driver::partition::{PartitionId, Partitions};
use crate::metrics::{Metrics, ShardMetrics};
use crate::net::RateLimitedLog;
use crate::net::admission::{Admission, MemoryUnits};
use crate::net::connection_limits::{ConnectionBounds, ConnectionLimits};
use crate::net::listener::{Connections, ListenerInfo};
use gate::Gates;
use governor::Governor;
use offload::Offload;
use placement::{Placement, ShardId};
use runtime::ShardRuntime;
use service::{ImageChange, ImageUpdate, ShardMesh};
use watchdog::Pulse;

/// The longest a task works before it gives way to the reactor, which waits for the slices of all tasks that are busy. Not
/// shorter, because a turn costs as much as a 64 KiB request.
pub const SLICE: Duration = Duration::from_micros(250);

/// What the shards take from the configuration, resolved against this machine.
#[derive(Clone, Debug)]
pub struct ShardSettings {
    pub config: Arc<BrokerConfig>,
    /// The core of each shard.
    pub cpus: Vec<usize>,
    /// Where each of the configuration's listeners is bound, in its order; port 0 takes a free one, the same for every shard.
    pub binds: Vec<SocketAddr>,
    /// What listeners on every interface advertise.
    pub local_host: String,
    /// Memory for recent batches of all shards together.
    pub tail_memory_bytes: usize,
    /// Memory for frames of all shards together, and as much for what fetches return.
    pub frame_memory_bytes: usize,
    /// Connections the machine has room for; `max.connections` counts below it.
    pub connections_max: usize,
    /// Files of segments that are kept open, of all shards together.
    pub open_files_max: usize,
    /// As much for one address; `max.connections.per.ip` and its overrides count below it.
    pub connections_per_ip_max: usize,
    /// Zero keeps idle connections.
    pub idle_max: Duration,
    /// An hour; see [`runtime`].
    pub preempt_timer: Duration,
    /// How long a clean stop waits for each of its steps.
    pub stop_wait: Duration,
    /// Where the shards count.
    pub metrics: Arc<Metrics>,
}

/// While memory is waited for: how often those who hold some are looked at.
const STALL_LOOK: Duration = Duration::from_millis(250);
/// Part of a shard's memory for what fetches return that one of them may take.
const RESPONSES_SHARE: usize = 16;
/// What one of them gets in any case, a batch of the usual size.
const RESPONSE_BYTES_MIN: usize = 1 << 20;
/// What a request's array element may come to once it is decoded, worked on and answered.
pub const REQUEST_ELEMENT_BYTES: usize = 512;

/// Below the second at which an idle shard looks, so that every look of such a shard walks.
const WALK_GAUGES_EVERY: Duration = Duration::from_millis(500);

/// The metadata as of one offset of the metadata log; shared by all shards, never changed.
pub type Image = Arc<MetadataImage>;

/// The partitions of a shard in a running broker.
pub type ShardPartitions = Partitions<ShardDisk, ShardRuntime>;

/// The coordinators of a shard in a running broker.
pub type ShardCoordinators = Coordinators<ShardDisk, ShardRuntime>;

/// One shard, as everything that runs on it sees it.
pub struct Shard {
    pub id: ShardId,
    pub settings: ShardSettings,
    pub placement: Placement,
    pub runtime: ShardRuntime,
    pub mesh: Rc<ShardMesh>,
    pub listeners: Vec<Rc<ListenerInfo>>,
    /// Memory for requests.
    pub admission: Admission,
    /// Memory for what fetches return, until it has been sent.
    pub replies: Admission,
    pub limits: Arc<ConnectionLimits>,
    pub connections: Connections,
    pub gates: Gates,
    pub governor: Governor<ShardRuntime>,
    pub pulse: Arc<Pulse>,
    pub metrics: Arc<ShardMetrics>,
    /// Clients' faults.
    pub refusal_log: RateLimitedLog,
    /// Connections that could not be taken.
    pub accept_log: RateLimitedLog,
    pub partitions: Rc<ShardPartitions>,
    pub coordinators: ShardCoordinators,
    pub fetch_sessions: RefCell<FetchSessions>,
    /// Held by the one request that is worked on between two turns; those that only append or read do without.
    pub pace: Semaphore,
    /// For work that a client can make long.
    pub offload: Rc<Offload>,
    waits: Cell<u64>,
    /// Of the image, by name; made when they are asked for.
    topic_configs: RefCell<BTreeMap<String, Rc<TopicConfig>>>,
    /// When connections that hold memory were last looked at.
    stall_looked: Cell<Instant>,
    /// Taken from each new image, since every fetch asks for it.
    fetch_bytes_max: Cell<usize>,
    /// When the gauges that cost a walk were set.
    gauges_published: Cell<Option<Instant>>,
    /// Ids for producers that this shard may give away.
    pub producer_ids: RefCell<std::ops::Range<i64>>,
    /// For members of groups that come without an id.
    pub member_ids: RefCell<IdGenerator>,
    image: RefCell<Option<Image>>,
    image_changed: Notify,
    stopping: Cell<bool>,
    stop_began: Notify,
}

impl Shard {
    /// What the broker was started with.
    pub fn config(&self) -> &BrokerConfig {
        &self.settings.config
    }

    /// The newest image this shard has made itself match.
    ///
    /// # Panics
    /// Before the first image, when nothing is served yet.
    pub fn image(&self) -> Image {
        self.image.borrow().clone().expect("connections come after the first image")
    }

    /// Makes the shard match a new image, then shows it.
    pub async fn apply_image(&self, update: ImageUpdate) {
        let ImageUpdate { image, change, homes } = update;
        let assignment = ImageAssignment { shard: self, image: &image };
        match &change {
            ImageChange::First(boot) => self.partitions.open_all(&image, boot, &homes, &assignment).await,
            ImageChange::Delta(delta) => self.partitions.apply(&image, delta, &homes, &assignment).await,
        }
        let view = self.broker_view(&image);
        self.limits.set_bounds(ConnectionBounds::of(&view));
        self.fetch_bytes_max.set(usize::try_from(view.integer("fetch.max.bytes")).unwrap_or(usize::MAX));
        self.topic_configs.borrow_mut().clear();
        let settings = coordinator_settings(&view, &self.resolve_topic(&image, OFFSETS_TOPIC));
        let none = MetadataDelta::default();
        let delta = match &change {
            ImageChange::First(_) => &none,
            ImageChange::Delta(delta) => delta,
        };
        self.coordinators.follow(&image, delta, settings).await;
        *self.image.borrow_mut() = Some(image);
        self.image_changed.notify_all();
    }

    /// This broker.
    pub fn node_id(&self) -> BrokerId {
        BrokerId::from_wire(self.settings.config.node_id).expect("node.id is not negative")
    }

    /// The broker's configs as they count now.
    pub fn broker_view<'a>(&'a self, image: &'a MetadataImage) -> BrokerView<'a> {
        BrokerView {
            config: &self.settings.config,
            own: image.configs(&ConfigResource::Broker(self.node_id())),
            cluster: image.configs(&ConfigResource::DefaultBroker),
        }
    }

    /// The configs of a topic as they count now.
    pub fn topic_config(&self, topic: &str) -> Rc<TopicConfig> {
        if let Some(config) = self.topic_configs.borrow().get(topic) {
            return Rc::clone(config);
        }
        let image = self.image();
        let config = Rc::new(self.resolve_topic(&image, topic));
        self.topic_configs.borrow_mut().insert(topic.to_owned(), Rc::clone(&config));
        config
    }

    fn resolve_topic(&self, image: &MetadataImage, topic: &str) -> TopicConfig {
        TopicConfig::resolve(image.topic_configs(topic), &self.broker_view(image))
    }

    /// The shard that owns a partition.
    pub fn owner(&self, partition: PartitionId) -> ShardId {
        self.placement.owner(*partition.topic_id.get().as_bytes(), partition.index)
    }

    /// Begins a fetch in a session of this shard, or in none.
    pub fn begin_fetch(&self, request: SessionRequest) -> Result<FetchContext, SessionError> {
        self.fetch_sessions.borrow_mut().begin(request, self.runtime.now().since_start())
    }

    /// What a fetch tells that was begun here.
    pub fn finish_fetch(&self, context: &FetchContext, states: &[FetchedState]) -> SessionAnswer {
        self.fetch_sessions.borrow_mut().finish(context, states, self.runtime.now().since_start())
    }

    /// `fetch.max.bytes`: no response carries more, but for a single larger batch.
    pub fn fetch_bytes_max(&self) -> usize {
        self.fetch_bytes_max.get()
    }

    /// The largest request: `socket.request.max.bytes`, and no more than there is memory for frames.
    pub fn request_bytes_max(&self) -> usize {
        self.config().request_bytes_max.min(self.settings.frame_memory_bytes)
    }

    /// What one response may carry of records, but for a single larger batch: several have to fit.
    pub fn response_bytes_max(&self) -> usize {
        let share = self.settings.frame_memory_bytes / usize::from(self.placement.shard_count()) / RESPONSES_SHARE;
        share.max(RESPONSE_BYTES_MIN)
    }

    /// What the records of one batch may take in memory.
    pub fn decompressed_bytes_max(&self) -> usize {
        self.partitions.settings.decompressed_bytes_max
    }

    /// Array elements of one request, all told: what becomes of each may take this many bytes.
    pub fn request_elements_max(&self) -> usize {
        self.settings.frame_memory_bytes / usize::from(self.placement.shard_count()) / REQUEST_ELEMENT_BYTES
    }

    /// Units of one of the budgets. While they have to be waited for, connections that hold some and make no progress are
    /// closed.
    pub async fn wait_for_memory(&self, acquire: impl Future<Output = MemoryUnits>) -> MemoryUnits {
        let mut acquire = pin!(acquire);
        if let Some(units) = poll_once(&mut acquire).await {
            return units;
        }
        loop {
            let granted = async { Some((&mut acquire).await) };
            let look = async {
                self.runtime.sleep(STALL_LOOK).await;
                None
            };
            if let Some(units) = or(granted, look).await {
                return units;
            }
            // Many may wait here at once.
            let now = self.runtime.now();
            if now.saturating_since(self.stall_looked.get()) >= STALL_LOOK {
                self.stall_looked.set(now);
                self.connections.close_stalled(now);
            }
        }
    }

    /// A number no other wait of this shard has.
    pub fn next_wait(&self) -> u64 {
        self.waits.replace(self.waits.get() + 1)
    }

    /// Waits for the first image.
    pub async fn wait_image(&self) {
        loop {
            let changed = self.image_changed.notified();
            if self.image.borrow().is_some() {
                return;
            }
            changed.await;
        }
    }

    /// Whether a clean stop has begun.
    pub fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    /// Ready when a clean stop begins: what only waits is answered now.
    pub async fn stopping(&self) {
        while !self.stopping.get() {
            self.stop_began.notified().await;
        }
    }

    /// Shows what is kept elsewhere to whoever reads the metrics. The watchdog's bell makes every shard come here once a
    /// second, also when it is idle.
    fn publish_gauges(&self) {
        self.metrics.guard_rescues.set(self.mesh.rescues());
        self.metrics.stalls.set(self.pulse.stalls());
        self.metrics.frame_memory_used.set((self.admission.used() + self.replies.used()) as u64);
        let waiting = self.admission.waiting_count() + self.replies.waiting_count();
        self.metrics.frame_memory_waiting.set(waiting as u64);
        self.metrics.fetch_sessions.set(self.fetch_sessions.borrow().len() as u64);
        let now = self.runtime.now();
        if self.gauges_published.get().is_none_or(|last| now.saturating_since(last) >= WALK_GAUGES_EVERY) {
            self.gauges_published.set(Some(now));
            self.partitions.publish_gauges();
        }
    }

    fn begin_stop(&self) {
        self.stopping.set(true);
        self.partitions.stop_waiting();
        self.coordinators.stop();
        self.stop_began.notify_all();
    }
}

/// What the configs say about groups, given those of their topic.
pub(super) fn coordinator_settings(view: &BrokerView<'_>, offsets_topic: &TopicConfig) -> CoordinatorSettings {
    CoordinatorSettings {
        groups: group::group_settings(view, offsets_topic.max_message_bytes),
        commit_timeout_ms: view.integer("offsets.commit.timeout.ms").unsigned_abs(),
        load_bytes: usize::try_from(view.integer("offsets.load.buffer.size")).unwrap_or(usize::MAX),
        compression: group::offsets_compression(view).unwrap_or(Compression::NONE),
    }
}

/// Holds regular expressions against topics on a helper thread; there may be very many of either.
pub(super) fn resolve_elsewhere(offload: &Rc<Offload>, job: RegexJob) -> Resolving {
    let offload = Rc::clone(offload);
    Box::pin(async move {
        let resolving = offload.run(move |_| resolve_regexes(&job.regexes, &job.image, job.wall_ms, &|_| true));
        AssertUnwindSafe(resolving).catch_unwind().await.ok()
    })
}

/// Who owns what, and configs, by one image.
struct ImageAssignment<'a> {
    shard: &'a Shard,
    image: &'a MetadataImage,
}

impl Assignment for ImageAssignment<'_> {
    fn owns(&self, id: PartitionId) -> bool {
        self.shard.owner(id) == self.shard.id
    }

    fn topic_config(&self, topic: &str) -> TopicConfig {
        self.shard.resolve_topic(self.image, topic)
    }
}

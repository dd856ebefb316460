//! Shards: one pinned executor per core, each the only owner of its partitions, connections, caches and timers.

pub mod control;
pub mod gate;
pub mod governor;
pub mod mesh;
pub mod placement;
pub mod runtime;
pub mod service;
pub mod start;
pub mod watchdog;

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use walser_storage::runtime::channel::Notify;

use crate::config::BrokerConfig;
use crate::metrics::{Metrics, ShardMetrics};
use crate::net::RateLimitedLog;
use crate::net::admission::Admission;
use crate::net::connection_limits::ConnectionLimits;
use crate::net::listener::{Connections, ListenerInfo};
use gate::Gates;
use governor::Governor;
use placement::{Placement, ShardId};
use runtime::ShardRuntime;
use service::ShardMesh;
use watchdog::Pulse;

/// The longest a task works before it gives way to the reactor.
pub const SLICE: Duration = Duration::from_micros(100);

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
    /// Memory for frames and replies of all shards together.
    pub frame_memory_bytes: usize,
    /// `max.connections` of the process.
    pub connections_max: usize,
    /// `max.connections.per.ip`.
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

/// The metadata as of one offset of the metadata log; shared by all shards, never changed.
pub type Image = Arc<MetadataImage>;

/// Stands in until the metadata machine provides it.
#[derive(Debug, Default)]
pub struct MetadataImage;

/// One shard, as everything that runs on it sees it.
pub struct Shard {
    pub id: ShardId,
    pub settings: ShardSettings,
    pub placement: Placement,
    pub runtime: ShardRuntime,
    pub mesh: Rc<ShardMesh>,
    pub listeners: Vec<Rc<ListenerInfo>>,
    pub admission: Admission,
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

    /// Takes over a new image.
    pub fn set_image(&self, image: Image) {
        *self.image.borrow_mut() = Some(image);
        self.image_changed.notify_all();
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
        self.metrics.frame_memory_used.set(self.admission.used() as u64);
        self.metrics.frame_memory_waiting.set(self.admission.waiting_count() as u64);
    }

    fn begin_stop(&self) {
        self.stopping.set(true);
        self.stop_began.notify_all();
    }
}

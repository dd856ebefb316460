//! The whole of the broker's executors: started together, stopped in order.
//!
//! A stop goes in steps, each done by every shard before any begins the next, because a connection of one shard needs the
//! partitions of another: no new connections; what was asked is answered and connections close; drivers commit and close
//! their logs; the mesh goes quiet and the executors end. Every step has a deadline.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use futures_lite::future::or;

use super::boot::{ControlParts, run_control};
use super::gate::{Gates, spawn_inside, wait_empty_until};
use super::governor::Governor;
use super::maintenance;
use super::mesh::{Mesh, MeshLinks, links};
use super::offload::Offload;
use super::placement::{Placement, ShardId};
use super::runtime::{self, ExecutorSettings, ExecutorThread, Listener, ListenerStop, ShardRuntime};
use super::service::{self, ShardReply, ShardRequest};
use super::watchdog::{Pulse, Watchdog, Watched};
use super::{Shard, ShardDisk, ShardSettings, coordinator_settings, resolve_elsewhere};
use crate::config::Endpoint;
use crate::config::broker::BrokerConfig;
use crate::config::topic::TopicConfig;
use crate::config::view::BrokerView;
use crate::driver::boot::BootError;
use crate::driver::coordinator::Coordinators;
use crate::driver::partition::reconcile::ClosedLog;
use crate::driver::partition::{JournalSettings, PartitionSettings, Partitions};
use crate::log_dirs::{LogDir, LogDirIndex, LogDirs};
use crate::net::RateLimitedLog;
use crate::net::admission::Admission;
use crate::net::connection_limits::ConnectionLimits;
use crate::net::listener::{self, Connections, ListenerInfo};
use walser_machine::fetch_session::FetchSessions;
use walser_machine::ids::IdGenerator;
use walser_storage::data_dir::{DataDir, DataDirError, DirLock, create_durably};
use walser_storage::runtime::Runtime;
use walser_storage::runtime::channel::{Notify, Semaphore};

/// How long connections that did not end by themselves get to notice that they were cut.
pub(super) const CUT_WAIT: Duration = Duration::from_secs(1);
/// How long all logs of a shard together may take to close: thousands of them on a slow disk take a while.
const CLOSE_WAIT: Duration = Duration::from_secs(60);
/// Part of the memory for frames that the records of one batch may take while they are looked at.
const DECOMPRESSED_SHARE: usize = 4;
/// Part of the memory for frames that the partitions of a shard's fetch sessions may take.
const SESSIONS_SHARE: usize = 8;
/// What a partition in a fetch session takes, roughly.
const SESSION_PARTITION_BYTES: usize = 256;
/// Part of the memory for recent batches that those may take which are in no segment yet.
const STAGED_SHARE: usize = 2;
const STAGED_BYTES_MIN: usize = 4 << 20;
/// Less than the write-ahead log queues.
const STAGED_BYTES_MAX: usize = 32 << 20;
/// A journal below this would do little but let go of its records.
const JOURNAL_BYTES_MIN: u64 = 8 << 20;
/// Connection ids of a shard begin at its index times this, so that they are unique in the process.
const CONNECTION_IDS_PER_SHARD: u64 = 1 << 48;

/// Why the broker did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot listen on {address}: {source}")]
    Bind { address: SocketAddr, source: io::Error },
    #[error("cannot listen: {0}")]
    Listen(io::Error),
    #[error("cannot start executor {name}: {source}")]
    Executor { name: String, source: io::Error },
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    #[error("cannot make the data directory {}: {source}", path.display())]
    DataDir { path: PathBuf, source: io::Error },
    #[error("data directories {} and {} are the same: name it once", path.display(), other.display())]
    SameDirectory { path: PathBuf, other: PathBuf },
    #[error(transparent)]
    Boot(#[from] BootError),
    #[error("an executor ended while the broker started")]
    Ended,
}

/// Steps of a clean stop.
#[derive(Debug)]
pub(super) enum StopStep {
    /// Accept nothing, answer what was asked, close connections.
    Connections,
    /// Commit and close what is owned.
    Drivers,
    /// Note where the logs end, and that all is done; for the control executor.
    Seal(Vec<ClosedLog>, BTreeSet<LogDirIndex>),
    /// End.
    Exit,
}

/// What a node says when it has done a step.
pub(super) struct StepDone {
    /// Logs that were closed in this step.
    closed: Vec<ClosedLog>,
    /// Directories in which not all that were to be were closed.
    unclean: BTreeSet<LogDirIndex>,
    stopped: Stopped,
}

impl StepDone {
    pub(super) const fn nothing_closed(stopped: Stopped) -> Self {
        Self { closed: Vec::new(), unclean: BTreeSet::new(), stopped }
    }
}

/// The other side of a shard's main task, on the thread that starts and stops the broker.
struct NodeHandle {
    thread: ExecutorThread,
    steps: flume::Sender<StopStep>,
    done: mpsc::Receiver<StepDone>,
}

/// A broker that serves.
pub struct RunningBroker {
    shards: Vec<NodeHandle>,
    control: NodeHandle,
    watchdog: Watchdog,
    listeners: Vec<ListenerInfo>,
    log_dirs: Arc<LogDirs>,
    /// Held until every executor has ended.
    _locks: Vec<DirLock>,
}

impl Stopped {
    fn and(self, other: Self) -> Self {
        if self == Self::Clean { other } else { self }
    }
}

/// Whether a clean stop was clean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    Clean,
    /// Something did not end in time and was cut.
    Late,
}

struct ShardParts {
    id: ShardId,
    settings: ShardSettings,
    placement: Placement,
    links: MeshLinks<ShardRequest, ShardReply>,
    limits: Arc<ConnectionLimits>,
    pulse: Arc<Pulse>,
    sockets: Vec<(socket2::Socket, ListenerInfo)>,
    ready: mpsc::Sender<Result<(), StartError>>,
    steps: flume::Receiver<StopStep>,
    done: mpsc::Sender<StepDone>,
    log_dirs: Arc<LogDirs>,
}

impl RunningBroker {
    /// Starts every executor; returns when every shard serves.
    ///
    /// # Errors
    /// What was missing; nothing is left behind but executors that end by themselves.
    pub fn start(settings: &ShardSettings) -> Result<Self, StartError> {
        let shard_count = u16::try_from(settings.cpus.len()).expect("the configuration bounds the shards");
        let (log_dirs, locks) = take_log_dirs(&settings.config)?;
        let (mut sockets, listeners) = bind_all(settings)?;
        let mut links = links(shard_count + 1);
        let control_links = links.pop().expect("one for the control executor");
        let limits = Arc::new(ConnectionLimits::new(settings.connections_max, settings.connections_per_ip_max));
        let (ready, all_ready) = mpsc::channel();
        let mut watched = Vec::new();
        let mut shards = Vec::new();
        for (index, links) in (0..shard_count).zip(links) {
            let pulse = Arc::new(Pulse::default());
            let name = format!("shard-{index}");
            watched.push(Watched { name: name.clone(), pulse: Arc::clone(&pulse), bell: links.bell() });
            let (steps, step_receiver) = flume::bounded(1);
            let (done, done_receiver) = mpsc::channel();
            let parts = ShardParts {
                id: ShardId::new(index),
                settings: settings.clone(),
                placement: Placement::new(shard_count),
                links,
                limits: Arc::clone(&limits),
                pulse,
                sockets: sockets.pop().expect("one set for each shard"),
                ready: ready.clone(),
                steps: step_receiver,
                done,
                log_dirs: Arc::clone(&log_dirs),
            };
            let cpu = Some(settings.cpus[usize::from(index)]);
            let thread = start_executor(settings, name, cpu, move || run_shard(parts))?;
            shards.push(NodeHandle { thread, steps, done: done_receiver });
        }
        let pulse = Arc::new(Pulse::default());
        watched.push(Watched { name: "control".into(), pulse: Arc::clone(&pulse), bell: control_links.bell() });
        let (steps, step_receiver) = flume::bounded(1);
        let (done, done_receiver) = mpsc::channel();
        let config = Arc::clone(&settings.config);
        let parts = ControlParts {
            log_dirs: Arc::clone(&log_dirs),
            config,
            metrics: Arc::clone(&settings.metrics),
            listeners: listeners.clone(),
            shard_count,
            ready,
            links: control_links,
            pulse,
            steps: step_receiver,
            done,
        };
        let thread = start_executor(settings, "control".into(), None, move || run_control(parts))?;
        let control = NodeHandle { thread, steps, done: done_receiver };
        let watchdog = Watchdog::start(watched).map_err(StartError::Thread)?;
        // Every shard and the control executor; one that ends without a word has said why in the log.
        for _ in 0..=shard_count {
            all_ready.recv().map_err(|_| StartError::Ended)??;
        }
        Ok(Self { shards, control, watchdog, listeners, log_dirs, _locks: locks })
    }

    /// Where it listens, with the ports that were taken.
    pub fn listeners(&self) -> &[ListenerInfo] {
        &self.listeners
    }

    /// Stops in order; returns when every executor has ended.
    pub fn stop(self) -> Stopped {
        let cut = step_all(&self.shards, || StopStep::Connections).stopped;
        let all_dirs = || self.log_dirs.iter().map(|(dir, _)| dir).collect();
        let StepDone { closed, unclean, stopped: late } = step_all(&self.shards, || StopStep::Drivers);
        // Nobody knows what was left undone.
        let unclean = if late == Stopped::Clean { unclean } else { all_dirs() };
        let control = std::slice::from_ref(&self.control);
        let unsealed = step_all(control, || StopStep::Seal(closed.clone(), unclean.clone())).stopped;
        let stopped = if unclean.is_empty() { cut.and(unsealed) } else { Stopped::Late };
        self.watchdog.stop();
        for node in self.shards.iter().chain([&self.control]) {
            node.steps.send(StopStep::Exit).ok();
        }
        for node in self.shards.into_iter().chain([self.control]) {
            node.thread.join();
        }
        stopped
    }
}

/// Has every node do a step, all at the same time, and waits for all of them.
fn step_all(nodes: &[NodeHandle], step: impl Fn() -> StopStep) -> StepDone {
    for node in nodes {
        // One that has ended is found out below.
        node.steps.send(step()).ok();
    }
    let mut all = StepDone::nothing_closed(Stopped::Clean);
    for node in nodes {
        match node.done.recv() {
            Ok(done) => {
                all.closed.extend(done.closed);
                all.unclean.extend(done.unclean);
                all.stopped = all.stopped.and(done.stopped);
            }
            Err(mpsc::RecvError) => all.stopped = Stopped::Late,
        }
    }
    all
}

/// Makes and locks the data directories. One that the disk refuses is offline, unless it is to hold the metadata log.
fn take_log_dirs(config: &BrokerConfig) -> Result<(Arc<LogDirs>, Vec<DirLock>), StartError> {
    let absolute =
        |path: &PathBuf| std::path::absolute(path).map_err(|source| StartError::DataDir { path: path.clone(), source });
    let paths = config.log_dirs.iter().map(absolute).collect::<Result<Vec<_>, _>>()?;
    let metadata_path = absolute(&config.metadata_log_dir)?;
    // A reserve looks at the file system of its directory.
    let made: Vec<_> = paths.iter().map(|path| create_durably(path)).collect();
    create_durably(&metadata_path).map_err(|source| StartError::DataDir { path: metadata_path.clone(), source })?;
    check_different(&paths)?;
    let bytes = BrokerView::fixed(config).integer("walser.disk.reserve.bytes");
    let log_dirs = LogDirs::new(&paths, &metadata_path, u64::try_from(bytes).unwrap_or(0));
    let lock = |path: &Path| DirLock::acquire(path).map_err(|error| StartError::Boot(error.into()));
    let mut locks = vec![lock(&metadata_path)?];
    for ((index, log_dir), made) in log_dirs.iter().zip(made) {
        if log_dirs.metadata_index() != Some(index) {
            locks.extend(lock_or_offline(log_dir, made)?);
        }
    }
    Ok((Arc::new(log_dirs), locks))
}

fn lock_or_offline(log_dir: &LogDir, made: io::Result<()>) -> Result<Option<DirLock>, StartError> {
    if let Err(error) = made {
        log_dir.take_offline(&error.to_string());
        return Ok(None);
    }
    match DirLock::acquire(log_dir.path()) {
        Ok(lock) => Ok(Some(lock)),
        Err(DataDirError::Disk(error)) => {
            log_dir.take_offline(&error.to_string());
            Ok(None)
        }
        Err(error) => Err(StartError::Boot(error.into())),
    }
}

/// Two names of one directory would have two logs in each other's way.
fn check_different(paths: &[PathBuf]) -> Result<(), StartError> {
    let mut known: Vec<(PathBuf, &PathBuf)> = Vec::new();
    for path in paths {
        // One that cannot be found is offline.
        let Ok(real) = path.canonicalize() else { continue };
        if let Some((_, other)) = known.iter().find(|(known, _)| *known == real) {
            return Err(StartError::SameDirectory { path: path.clone(), other: (*other).clone() });
        }
        known.push((real, path));
    }
    Ok(())
}

fn start_executor<M, F>(
    settings: &ShardSettings,
    name: String,
    cpu: Option<usize>,
    main: M,
) -> Result<ExecutorThread, StartError>
where
    M: FnOnce() -> F + Send + 'static,
    F: Future<Output = ()> + 'static,
{
    let executor = ExecutorSettings {
        name: name.clone(),
        cpu,
        preempt_timer: settings.preempt_timer,
        spin_before_park: settings.config.spin,
    };
    ExecutorThread::start(executor, main).map_err(|source| StartError::Executor { name, source })
}

type ShardSockets = Vec<(socket2::Socket, ListenerInfo)>;

/// One socket per listener and shard, all on the same port; none listens yet.
fn bind_all(settings: &ShardSettings) -> Result<(Vec<ShardSockets>, Vec<ListenerInfo>), StartError> {
    let mut by_listener = Vec::new();
    let mut bound = Vec::new();
    for (endpoint, bind) in settings.config.listeners.iter().zip(&settings.binds) {
        let (sockets, address) =
            bind_listener(*bind, settings.cpus.len()).map_err(|source| StartError::Bind { address: *bind, source })?;
        bound.push((Endpoint { port: address.port(), ..endpoint.clone() }, address));
        by_listener.push(sockets);
    }
    let endpoints: Vec<Endpoint> = bound.iter().map(|(endpoint, _)| endpoint.clone()).collect();
    let advertised = settings.config.advertise(&endpoints, &settings.local_host);
    let listeners: Vec<ListenerInfo> = advertised
        .into_iter()
        .zip(bound)
        .map(|(advertised, (endpoint, bound))| ListenerInfo { name: endpoint.listener, bound, advertised })
        .collect();
    let mut by_shard: Vec<ShardSockets> = settings.cpus.iter().map(|_| Vec::new()).collect();
    for (sockets, info) in by_listener.into_iter().zip(&listeners) {
        for (shard, socket) in by_shard.iter_mut().zip(sockets) {
            shard.push((socket, info.clone()));
        }
    }
    Ok((by_shard, listeners))
}

/// The sockets of one listener, one for each shard, and the address they share.
fn bind_listener(mut address: SocketAddr, shard_count: usize) -> io::Result<(Vec<socket2::Socket>, SocketAddr)> {
    listener::probe(address)?;
    let mut sockets = Vec::with_capacity(shard_count);
    for _ in 0..shard_count {
        let socket = listener::bind(address)?;
        // The first one may have been given a free port.
        address = socket.local_addr()?.as_socket().expect("bound to an IP address");
        sockets.push(socket);
    }
    Ok((sockets, address))
}

async fn run_shard(mut parts: ShardParts) {
    let sockets = std::mem::take(&mut parts.sockets);
    let listeners = sockets.iter().map(|(_, info)| Rc::new(info.clone())).collect();
    let (ready, steps, done) = (parts.ready.clone(), parts.steps.clone(), parts.done.clone());
    let shard = make_shard(parts, listeners);
    start_internals(&shard);
    shard.wait_image().await;
    let mut stops = match listen_all(&shard, sockets) {
        Ok(stops) => Some(stops),
        Err(error) => {
            drop(ready.send(Err(StartError::Listen(error))));
            return;
        }
    };
    drop(ready.send(Ok(())));
    while let Ok(step) = steps.recv_async().await {
        let closed = match step {
            StopStep::Connections => {
                stop_connections(&shard, stops.take().unwrap_or_default()).await;
                StepDone::nothing_closed(Stopped::Clean)
            }
            StopStep::Drivers => stop_drivers(&shard).await,
            StopStep::Seal(..) => StepDone::nothing_closed(Stopped::Clean),
            StopStep::Exit => break,
        };
        done.send(closed).ok();
    }
    shard.mesh.close();
    shard.gates.end_internals(&shard.runtime).await;
}

fn make_shard(parts: ShardParts, listeners: Vec<Rc<ListenerInfo>>) -> Rc<Shard> {
    let runtime = ShardRuntime::new();
    let shard_count = usize::from(parts.placement.shard_count());
    let metrics = parts.settings.metrics.shard(parts.id.index());
    let data_dirs = parts.log_dirs.iter().map(|(_, log_dir)| open_dir(log_dir)).collect();
    let partitions = Partitions::new(
        runtime,
        PartitionSettings {
            data_dirs,
            log_dirs: Arc::clone(&parts.log_dirs),
            node_id: parts.settings.config.node_id,
            decompressed_bytes_max: parts.settings.frame_memory_bytes / DECOMPRESSED_SHARE,
            tail_bytes_max: parts.settings.tail_memory_bytes / shard_count,
            open_files_max: parts.settings.open_files_max / shard_count,
            journal: journal_settings(&parts, shard_count),
            metrics: Arc::clone(&metrics),
        },
    );
    let view = BrokerView::fixed(&parts.settings.config);
    let (gates, offload) = (Gates::new(), Rc::new(Offload::default()));
    let resolving = Rc::clone(&offload);
    let coordinators = Coordinators::new(
        Rc::clone(&partitions),
        gates.drivers.clone(),
        // The first image brings those that count.
        coordinator_settings(&view, &TopicConfig::resolve(&BTreeMap::new(), &view)),
        Box::new(move |job| resolve_elsewhere(&resolving, job)),
    );
    let session_slots = view.integer("max.incremental.fetch.session.cache.slots");
    let session_slots = usize::try_from(session_slots).unwrap_or(0).div_ceil(shard_count);
    let session_ids = parts.placement.session_ids().of(parts.id.number());
    let session_partitions = parts.settings.frame_memory_bytes / shard_count / SESSIONS_SHARE / SESSION_PARTITION_BYTES;
    let sessions = FetchSessions::new(session_slots, session_partitions, session_ids, session_seed(parts.id));
    Rc::new(Shard {
        partitions,
        fetch_sessions: RefCell::new(sessions),
        pace: Semaphore::new(1),
        offload,
        coordinators,
        member_ids: RefCell::new(IdGenerator::from_seed(member_seed(parts.id))),
        waits: Cell::new(0),
        topic_configs: RefCell::default(),
        stall_looked: Cell::new(runtime.now()),
        // The first image brings it, and nothing is served before.
        fetch_bytes_max: Cell::new(0),
        gauges_published: Cell::new(None),
        producer_ids: RefCell::new(0..0),
        id: parts.id,
        admission: Admission::new(parts.settings.frame_memory_bytes / shard_count),
        replies: Admission::new(parts.settings.frame_memory_bytes / shard_count),
        connections: Connections::new(parts.settings.idle_max, parts.id.index() as u64 * CONNECTION_IDS_PER_SHARD),
        metrics,
        settings: parts.settings,
        placement: parts.placement,
        mesh: Mesh::new(parts.links, runtime),
        listeners,
        limits: parts.limits,
        gates,
        governor: Governor::new(runtime),
        runtime,
        pulse: parts.pulse,
        refusal_log: RateLimitedLog::default(),
        accept_log: RateLimitedLog::default(),
        image: RefCell::new(None),
        image_changed: Notify::new(),
        stopping: Cell::new(false),
        stop_began: Notify::new(),
    })
}

/// A directory with a disk of its own for one executor, so that it waits for no other.
pub(super) fn open_dir(log_dir: &LogDir) -> DataDir<ShardDisk> {
    DataDir::at(ShardDisk::with_reserve(Arc::clone(log_dir.reserve())), log_dir.path())
}

/// Of one directory.
fn journal_settings(parts: &ShardParts, shard_count: usize) -> JournalSettings {
    let view = BrokerView::fixed(&parts.settings.config);
    let number = |name| u64::try_from(view.integer(name)).unwrap_or(0);
    let dir_count = parts.log_dirs.len();
    let staged_bytes = parts.settings.tail_memory_bytes / shard_count / dir_count / STAGED_SHARE;
    JournalSettings {
        number: parts.id.index(),
        shard_count: parts.placement.shard_count(),
        live_bytes_max: (number("walser.journal.bytes") / (shard_count * dir_count) as u64).max(JOURNAL_BYTES_MIN),
        staged_bytes_max: staged_bytes.clamp(STAGED_BYTES_MIN, STAGED_BYTES_MAX),
        batch_bytes_max: usize::try_from(number("walser.journal.batch.max.bytes")).unwrap_or(usize::MAX),
    }
}

/// Mesh, timer and reaper; they end with the executor.
fn start_internals(shard: &Rc<Shard>) {
    let (serving, turning) = (Rc::clone(shard), Rc::clone(shard));
    let receiving = Rc::clone(&shard.mesh).run(
        move |request, reply_to| service::serve_remote(&serving, request, reply_to),
        move || {
            turning.pulse.note_turn();
            turning.publish_gauges();
        },
    );
    spawn_inside(&shard.runtime, &shard.gates.internals, receiving);
    spawn_inside(&shard.runtime, &shard.gates.internals, Rc::clone(&shard.mesh).run_guard());
    let timer = Rc::clone(&shard.partitions.timer).run();
    let internals = shard.gates.internals.clone();
    let timing = async move { or(timer, internals.closing()).await };
    spawn_inside(&shard.runtime, &shard.gates.internals, timing);
    spawn_inside(&shard.runtime, &shard.gates.drivers, maintenance::note_offsets(Rc::clone(shard)));
    spawn_inside(&shard.runtime, &shard.gates.drivers, maintenance::tend_ends(Rc::clone(shard)));
    spawn_inside(&shard.runtime, &shard.gates.drivers, maintenance::apply_retention(Rc::clone(shard)));
    spawn_inside(&shard.runtime, &shard.gates.drivers, maintenance::compact(Rc::clone(shard)));
    spawn_inside(&shard.runtime, &shard.gates.drivers, maintenance::move_replicas(Rc::clone(shard)));
    let reaping = Rc::clone(shard);
    let reaper = async move { or(reaping.connections.run_reaper(&reaping.runtime), reaping.stopping()).await };
    spawn_inside(&shard.runtime, &shard.gates.internals, reaper);
}

fn listen_all(shard: &Rc<Shard>, sockets: ShardSockets) -> io::Result<Vec<ListenerStop>> {
    let mut stops = Vec::new();
    for ((socket, _), info) in sockets.into_iter().zip(&shard.listeners) {
        listener::listen(&socket, shard.config().socket_backlog)?;
        stops.push(ListenerStop::of(&socket));
        let listener = Listener::adopt(socket)?;
        let guard = shard.gates.listeners.enter().expect("just made");
        runtime::spawn(listener::accept(Rc::clone(shard), listener, Rc::clone(info), guard));
    }
    Ok(stops)
}

/// Closes every log, within the deadline of a step.
async fn stop_drivers(shard: &Rc<Shard>) -> StepDone {
    shard.gates.drivers.close();
    wait_empty_until(&shard.runtime, &shard.gates.drivers, shard.settings.stop_wait).await;
    let closing = async {
        let (closed, unclean) = shard.partitions.close_all().await;
        StepDone { closed, unclean, stopped: Stopped::Clean }
    };
    let late = async {
        shard.runtime.sleep(CLOSE_WAIT).await;
        tracing::warn!(shard = %shard.id, "logs not closed in time; the next start recovers them");
        StepDone::nothing_closed(Stopped::Late)
    };
    or(closing, late).await
}

/// Ids of members must not be those of another start, nor of another shard.
fn member_seed(shard: ShardId) -> [u8; 32] {
    let mut seed = [0; 32];
    if let Err(error) = getrandom::fill(&mut seed) {
        tracing::warn!(%error, "ids of group members are not random");
        let now_ms = ShardRuntime::new().wall_clock_ms();
        seed[..8].copy_from_slice(&now_ms.to_le_bytes());
        seed[8..10].copy_from_slice(&shard.number().to_le_bytes());
    }
    seed
}

/// Hard to guess from outside; the same ids on two shards do no harm.
fn session_seed(shard: ShardId) -> u64 {
    let mut seed = [0; 8];
    // Without random numbers ids can be guessed, which lets a client disturb another's session and read nothing.
    if let Err(error) = getrandom::fill(&mut seed) {
        tracing::warn!(%error, "fetch session ids are not random");
    }
    u64::from_le_bytes(seed) ^ shard.index() as u64
}

async fn stop_connections(shard: &Rc<Shard>, stops: Vec<ListenerStop>) {
    shard.begin_stop();
    for stop in stops {
        stop.stop();
    }
    shard.gates.listeners.close();
    wait_empty_until(&shard.runtime, &shard.gates.listeners, CUT_WAIT).await;
    shard.connections.stop_reading();
    shard.gates.connections.close();
    if wait_empty_until(&shard.runtime, &shard.gates.connections, shard.settings.stop_wait).await {
        return;
    }
    tracing::warn!(shard = %shard.id, connections = shard.connections.count(), "connections cut: they did not end in time");
    shard.connections.close_all();
    wait_empty_until(&shard.runtime, &shard.gates.connections, CUT_WAIT).await;
}

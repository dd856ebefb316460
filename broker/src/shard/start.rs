//! The whole of the broker's executors: started together, stopped in order.
//!
//! A stop goes in steps, each done by every shard before any begins the next, because a connection of one shard needs the
//! partitions of another: no new connections; what was asked is answered and connections close; drivers commit and close
//! their logs; the mesh goes quiet and the executors end. Every step has a deadline.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use futures_lite::future::or;

use super::control::{self, Control};
use super::gate::{Gates, spawn_inside, wait_empty_until};
use super::governor::Governor;
use super::maintenance;
use super::mesh::{Mesh, MeshLinks, links};
use super::offload::Offload;
use super::placement::{Placement, ShardId};
use super::runtime::{self, ExecutorSettings, ExecutorThread, Listener, ListenerStop, ShardRuntime};
use super::service::{self, ImageChange, ImageUpdate, ShardReply, ShardRequest};
use super::watchdog::{Pulse, Watchdog, Watched};
use super::{Shard, ShardDisk, ShardSettings};
use crate::config::Endpoint;
use crate::config::broker::BrokerConfig;
use crate::config::view::BrokerView;
use crate::driver::boot::{self, BootError};
use crate::driver::checkpoints::Checkpoints;
use crate::driver::partition::reconcile::ClosedLog;
use crate::driver::partition::{JournalSettings, PartitionSettings, Partitions};
use crate::metrics::Metrics;
use crate::net::RateLimitedLog;
use crate::net::admission::Admission;
use crate::net::connection_limits::ConnectionLimits;
use crate::net::listener::{self, Connections, ListenerInfo};
use walser_machine::fetch_session::FetchSessions;
use walser_storage::data_dir::{DataDir, DirLock, create_durably};
use walser_storage::disk::Disk;
use walser_storage::disk::reserve::Reserve;
use walser_storage::runtime::Runtime;
use walser_storage::runtime::channel::{Notify, Semaphore};

/// How long connections that did not end by themselves get to notice that they were cut.
const CUT_WAIT: Duration = Duration::from_secs(1);
/// How long all logs of a shard together may take to close: thousands of them on a slow disk take a while.
const CLOSE_WAIT: Duration = Duration::from_secs(60);
/// Between two attempts to make the reserve whole.
const RESERVE_WAIT: Duration = Duration::from_secs(1);
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
    #[error(transparent)]
    Boot(#[from] BootError),
    #[error("an executor ended while the broker started")]
    Ended,
}

/// Steps of a clean stop.
#[derive(Debug)]
enum StopStep {
    /// Accept nothing, answer what was asked, close connections.
    Connections,
    /// Commit and close what is owned.
    Drivers,
    /// Note where the logs end, and that all is done; for the control executor.
    Seal(Vec<ClosedLog>, Stopped),
    /// End.
    Exit,
}

/// What a node says when it has done a step.
struct StepDone {
    /// Logs that were closed in this step.
    closed: Vec<ClosedLog>,
    stopped: Stopped,
}

impl StepDone {
    const NOTHING_CLOSED: Self = Self { closed: Vec::new(), stopped: Stopped::Clean };
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
    /// Held until every executor has ended.
    _lock: DirLock,
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
    reserve: Arc<Reserve>,
}

struct ControlParts {
    reserve: Arc<Reserve>,
    config: Arc<BrokerConfig>,
    metrics: Arc<Metrics>,
    listeners: Vec<ListenerInfo>,
    shard_count: u16,
    ready: mpsc::Sender<Result<(), StartError>>,
    links: MeshLinks<ShardRequest, ShardReply>,
    pulse: Arc<Pulse>,
    steps: flume::Receiver<StopStep>,
    done: mpsc::Sender<StepDone>,
}

impl RunningBroker {
    /// Starts every executor; returns when every shard serves.
    ///
    /// # Errors
    /// What was missing; nothing is left behind but executors that end by themselves.
    pub fn start(settings: &ShardSettings) -> Result<Self, StartError> {
        let shard_count = u16::try_from(settings.cpus.len()).expect("the configuration bounds the shards");
        let lock = lock_data_dir(&settings.config.data_dir)?;
        let reserve = Arc::new(make_reserve(&settings.config));
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
                reserve: Arc::clone(&reserve),
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
            reserve,
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
        Ok(Self { shards, control, watchdog, listeners, _lock: lock })
    }

    /// Where it listens, with the ports that were taken.
    pub fn listeners(&self) -> &[ListenerInfo] {
        &self.listeners
    }

    /// Stops in order; returns when every executor has ended.
    pub fn stop(self) -> Stopped {
        let (_, cut) = step_all(&self.shards, || StopStep::Connections);
        let (closed, late) = step_all(&self.shards, || StopStep::Drivers);
        let control = std::slice::from_ref(&self.control);
        let (_, unsealed) = step_all(control, || StopStep::Seal(closed.clone(), late));
        let stopped = cut.and(late).and(unsealed);
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
fn step_all(nodes: &[NodeHandle], step: impl Fn() -> StopStep) -> (Vec<ClosedLog>, Stopped) {
    for node in nodes {
        // One that has ended is found out below.
        node.steps.send(step()).ok();
    }
    let mut closed = Vec::new();
    let mut stopped = Stopped::Clean;
    for node in nodes {
        match node.done.recv() {
            Ok(done) => {
                closed.extend(done.closed);
                stopped = stopped.and(done.stopped);
            }
            Err(mpsc::RecvError) => stopped = Stopped::Late,
        }
    }
    (closed, stopped)
}

/// Makes the data directory and locks it.
fn lock_data_dir(data_dir: &Path) -> Result<DirLock, StartError> {
    create_durably(data_dir).map_err(|source| StartError::DataDir { path: data_dir.to_path_buf(), source })?;
    DirLock::acquire(data_dir).map_err(|error| StartError::Boot(error.into()))
}

/// What the data directory keeps back for a full disk; made when the broker serves.
fn make_reserve(config: &BrokerConfig) -> Reserve {
    let bytes = BrokerView::fixed(config).integer("walser.disk.reserve.bytes");
    Reserve::new(&config.data_dir, u64::try_from(bytes).unwrap_or(0))
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
                StepDone::NOTHING_CLOSED
            }
            StopStep::Drivers => stop_drivers(&shard).await,
            StopStep::Seal(..) => StepDone::NOTHING_CLOSED,
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
    let disk = || ShardDisk::with_reserve(Arc::clone(&parts.reserve));
    let partitions = Partitions::new(
        disk(),
        runtime,
        PartitionSettings {
            data_dir: DataDir::at(disk(), &parts.settings.config.data_dir),
            node_id: parts.settings.config.node_id,
            decompressed_bytes_max: parts.settings.frame_memory_bytes / DECOMPRESSED_SHARE,
            tail_bytes_max: parts.settings.tail_memory_bytes / shard_count,
            open_files_max: parts.settings.open_files_max / shard_count,
            journal: journal_settings(&parts, shard_count),
            metrics: Arc::clone(&metrics),
        },
    );
    let view = BrokerView::fixed(&parts.settings.config);
    let session_slots = view.integer("max.incremental.fetch.session.cache.slots");
    let session_slots = usize::try_from(session_slots).unwrap_or(0).div_ceil(shard_count);
    let session_ids = parts.placement.session_ids().of(parts.id.number());
    let session_partitions = parts.settings.frame_memory_bytes / shard_count / SESSIONS_SHARE / SESSION_PARTITION_BYTES;
    let sessions = FetchSessions::new(session_slots, session_partitions, session_ids, session_seed(parts.id));
    Rc::new(Shard {
        partitions,
        fetch_sessions: RefCell::new(sessions),
        pace: Semaphore::new(1),
        offload: Offload::default(),
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
        gates: Gates::new(),
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

fn journal_settings(parts: &ShardParts, shard_count: usize) -> JournalSettings {
    let view = BrokerView::fixed(&parts.settings.config);
    let number = |name| u64::try_from(view.integer(name)).unwrap_or(0);
    let staged_bytes = parts.settings.tail_memory_bytes / shard_count / STAGED_SHARE;
    JournalSettings {
        number: parts.id.index(),
        shard_count: parts.placement.shard_count(),
        live_bytes_max: (number("walser.journal.bytes") / shard_count as u64).max(JOURNAL_BYTES_MIN),
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
        let (closed, is_clean) = shard.partitions.close_all().await;
        StepDone { closed, stopped: if is_clean { Stopped::Clean } else { Stopped::Late } }
    };
    let late = async {
        shard.runtime.sleep(CLOSE_WAIT).await;
        tracing::warn!(shard = %shard.id, "logs not closed in time; the next start recovers them");
        StepDone { closed: Vec::new(), stopped: Stopped::Late }
    };
    or(closing, late).await
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

async fn run_control(parts: ControlParts) {
    let runtime = ShardRuntime::new();
    let disk = ShardDisk::with_reserve(parts.reserve);
    let mesh = Mesh::new(parts.links, runtime);
    let control = Rc::new(Control {
        runtime,
        mesh: Rc::clone(&mesh),
        shard_count: parts.shard_count,
        gates: Gates::new(),
        commands: Rc::default(),
        checkpoints: RefCell::default(),
        pulse: parts.pulse,
    });
    let (serving, pulse) = (Rc::clone(&control), Arc::clone(&control.pulse));
    // The watchdog's bell has it come here once a second.
    let (short, mend) = (disk.clone(), Rc::new(Notify::new()));
    let ring = Rc::clone(&mend);
    let turned = move || {
        pulse.note_turn();
        if short.is_short() {
            ring.notify_one();
        }
    };
    let receiving = Rc::clone(&mesh).run(move |request, reply_to| control::serve(&serving, request, reply_to), turned);
    spawn_inside(&control.runtime, &control.gates.internals, receiving);
    spawn_inside(&control.runtime, &control.gates.internals, Rc::clone(&mesh).run_guard());
    let data_dir = match boot(&control, &disk, &parts.config, &parts.listeners, &parts.metrics).await {
        Ok(data_dir) => data_dir,
        Err(error) => {
            drop(parts.ready.send(Err(error)));
            return;
        }
    };
    drop(parts.ready.send(Ok(())));
    spawn_inside(&control.runtime, &control.gates.internals, keep_reserve(Rc::clone(&control), disk, mend));
    while let Ok(step) = parts.steps.recv_async().await {
        let mut stopped = Stopped::Clean;
        match step {
            StopStep::Connections | StopStep::Drivers => {}
            StopStep::Seal(closed, logs) => {
                control.commands.close();
                control.gates.drivers.close();
                wait_empty_until(&control.runtime, &control.gates.drivers, CUT_WAIT).await;
                let checkpoints = control.checkpoints.take();
                let mut ends = BTreeMap::new();
                if let Some(checkpoints) = checkpoints {
                    checkpoints.end().await;
                    ends = checkpoints.ends();
                }
                if let Err(error) = boot::seal(&data_dir, &closed, ends, logs == Stopped::Clean).await {
                    tracing::error!(%error, "the stop is not noted as clean; the next start recovers");
                    stopped = Stopped::Late;
                }
            }
            StopStep::Exit => break,
        }
        parts.done.send(StepDone { closed: Vec::new(), stopped }).ok();
    }
    mesh.close();
    control.gates.end_internals(&control.runtime).await;
}

/// Makes what is kept back for a full disk, and makes it whole again when it was given up.
async fn keep_reserve(control: Rc<Control>, disk: ShardDisk, mend: Rc<Notify>) {
    let keep = async {
        loop {
            let was_short = disk.is_short();
            match disk.make_reserve().await {
                Ok(()) if was_short => tracing::info!("the reserve is whole again: appends are taken"),
                Ok(()) => {}
                Err(error) if was_short => tracing::debug!(%error, "no room for the reserve yet"),
                Err(error) => tracing::warn!(%error, "no room for the reserve: appends are refused until there is"),
            }
            // Not more often than the disk could have changed.
            control.runtime.sleep(RESERVE_WAIT).await;
            if !disk.is_short() {
                mend.notified().await;
            }
        }
    };
    or(keep, control.gates.internals.closing()).await;
}

/// Reads what the last run left and gives every shard its first image.
async fn boot(
    control: &Rc<Control>,
    disk: &ShardDisk,
    config: &Arc<BrokerConfig>,
    listeners: &[ListenerInfo],
    metrics: &Metrics,
) -> Result<DataDir<ShardDisk>, StartError> {
    let data_dir = DataDir::open(disk.clone(), &config.data_dir).await.map_err(BootError::from)?;
    let meta = boot::identify(&data_dir, config.node_id).await?;
    let metadata = boot::metadata(&data_dir, control.runtime, config, listeners, &meta).await?;
    let image = Arc::clone(metadata.image());
    let mut found = data_dir.list_partitions().await.map_err(BootError::from)?;
    boot::settle(&data_dir, &found, &image, config.node_id).await?;
    // From now on a crash counts as one.
    let is_clean = data_dir.take_clean_mark().await.map_err(BootError::from)?;
    let ends = data_dir.read_log_ends().await.map_err(BootError::from)?;
    let (runtime, node_id) = (&control.runtime, config.node_id);
    let settled = boot::settle_journals(&data_dir, runtime, &image, node_id, &ends, is_clean).await?;
    metrics.journal_damage.set(settled.damage_count);
    let mut made = settled.made;
    // Where another topic's directory had the name, what the checkpoints say is of that one.
    made.retain(|dir| found.binary_search_by(|known| known.dir_name.cmp(&dir.dir_name)).is_err());
    found.extend(made);
    let opened = Checkpoints::open(data_dir.clone(), Arc::clone(&image), &found, ends).await;
    let checkpoints = opened.map_err(BootError::from)?;
    let left = boot::read(&checkpoints, is_clean);
    control.checkpoints.replace(Some(Rc::clone(&checkpoints)));
    let update = ImageUpdate { image, change: ImageChange::First(Arc::new(left)) };
    if control.publish(&update).await.is_err() {
        return Err(StartError::Ended);
    }
    let (commands, publisher) = (Rc::clone(&control.commands), Rc::clone(control));
    let writer = metadata.run(commands, async move |image, delta| {
        if let Err(error) = checkpoints.follow(&image, &delta).await {
            // The next start finds out by the ids of the directories.
            tracing::warn!(%error, "offsets of deleted topics are still in the checkpoints");
        }
        publisher.publish(&ImageUpdate { image, change: ImageChange::Delta(delta) }).await.is_ok()
    });
    spawn_inside(&control.runtime, &control.gates.drivers, writer);
    Ok(data_dir)
}

//! Accepting, and the connections of one shard.
//!
//! Every shard listens on every address with a socket of its own; the kernel deals connections out. Accepting is a task of
//! its own that is never raced with anything. When descriptors run out it pauses instead of spinning, and the process-wide
//! limits leave enough of them for files.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use walser_storage::runtime::channel::{GateGuard, Notify};
use walser_storage::runtime::{Instant, Runtime};

use super::connection::{self, ConnectionInfo};
use crate::config::Endpoint;
use crate::shard::runtime::{self, Listener, Stream};
use crate::shard::{SLICE, Shard};

/// Pause after the process ran out of descriptors or the kernel out of memory.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);
/// Pause after any other failed accept.
const FAILED_PAUSE: Duration = Duration::from_millis(1);
/// How long an address may be taken at a start before that is an error, and how often it is tried meanwhile.
const TAKEN_WAIT: Duration = Duration::from_secs(2);
const TAKEN_PAUSE: Duration = Duration::from_millis(20);
/// A connection that holds memory others wait for is closed after this long without progress.
const STALLED_WAIT: Duration = Duration::from_secs(2);
/// A frame that others wait for has to come at least this fast, once [`STALLED_WAIT`] has passed.
const FRAME_BYTES_PER_SECOND_MIN: u64 = 64 << 10;

/// One configured listener, the same on every shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerInfo {
    /// Kafka's name of it, such as `PLAINTEXT`.
    pub name: String,
    /// Where it is bound; the port is never 0.
    pub bound: SocketAddr,
    /// What clients that came through it are told.
    pub advertised: Endpoint,
}

/// Binds a socket of one shard without listening yet, so that no client is let in before the shard serves.
///
/// # Errors
/// When the address is taken or not ours.
pub fn bind(address: SocketAddr) -> io::Result<socket2::Socket> {
    let socket = unbound(address)?;
    socket.set_reuse_port(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Fails when anybody listens on the address: a bind that shares the port would not notice, and take half of the other's
/// clients. A broker that was killed does so for some moments more, until the kernel has taken down the rings that hold its
/// sockets; who starts the next one at once should not have to try again.
///
/// # Errors
/// When the address is taken or not ours.
#[expect(clippy::disallowed_methods, reason = "before any shard exists, never on one")]
pub fn probe(address: SocketAddr) -> io::Result<()> {
    if address.port() == 0 {
        return Ok(());
    }
    let mut attempts = TAKEN_WAIT.as_millis() / TAKEN_PAUSE.as_millis();
    loop {
        let socket = unbound(address)?;
        match socket.bind(&address.into()).and_then(|()| socket.listen(1)) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && attempts > 0 => {
                attempts -= 1;
                std::thread::sleep(TAKEN_PAUSE);
            }
            outcome => return outcome,
        }
    }
}

/// Lets clients in; `backlog` is `socket.listen.backlog.size`, which the kernel caps.
///
/// # Errors
/// What the kernel refused.
pub fn listen(socket: &socket2::Socket, backlog: i32) -> io::Result<()> {
    socket.listen(backlog)
}

fn unbound(address: SocketAddr) -> io::Result<socket2::Socket> {
    let socket = socket2::Socket::new(
        socket2::Domain::for_address(address),
        socket2::Type::STREAM,
        Some(socket2::Protocol::TCP),
    )?;
    // A restart must not wait for the last run's connections to be forgotten.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // "::" takes IPv4 clients too, whatever the system's default is.
        socket.set_only_v6(false)?;
    }
    Ok(socket)
}

/// Accepts until the socket is shut down.
pub async fn accept(shard: Rc<Shard>, listener: Listener, info: Rc<ListenerInfo>, guard: GateGuard) {
    let mut slice_began = shard.runtime.now();
    loop {
        match listener.accept().await {
            Ok(stream) => start_connection(&shard, stream, &info),
            Err(_) if shard.is_stopping() => break,
            Err(error) => {
                let exhausted = is_exhausted(&error);
                if exhausted {
                    shard.metrics.accept_pauses.increment();
                }
                if let Some(left_out) = shard.accept_log.admit(shard.runtime.now()) {
                    tracing::warn!(listener = info.name, left_out, "accept failed: {error}");
                }
                runtime::sleep(if exhausted { EXHAUSTED_PAUSE } else { FAILED_PAUSE }).await;
            }
        }
        if shard.runtime.now().saturating_since(slice_began) > SLICE {
            runtime::turn().await;
            slice_began = shard.runtime.now();
        }
    }
    drop(guard);
}

fn is_exhausted(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}

fn start_connection(shard: &Rc<Shard>, stream: Stream, listener: &Rc<ListenerInfo>) {
    // Dropping the stream closes it.
    let Some(slot) = shard.limits.admit(stream.peer().ip()) else {
        shard.metrics.connections_over_limit.increment();
        if let Some(left_out) = shard.accept_log.admit(shard.runtime.now()) {
            tracing::warn!(peer = %stream.peer(), left_out, "connection refused: too many connections");
        }
        return;
    };
    let Some(guard) = shard.gates.connections.enter() else { return };
    let config = shard.config();
    let buffers = (config.socket_send_buffer_bytes, config.socket_receive_buffer_bytes);
    if let Err(error) = stream.set_buffers(buffers.0.unwrap_or(0), buffers.1.unwrap_or(0)) {
        tracing::debug!(peer = %stream.peer(), "socket buffers not set: {error}");
    }
    shard.metrics.connections_opened.increment();
    let info = shard.connections.add(stream, Rc::clone(listener), shard.runtime.now());
    let shard = Rc::clone(shard);
    runtime::spawn(async move {
        let id = info.id;
        connection::serve(Rc::clone(&shard), info, guard).await;
        shard.connections.remove(id);
        shard.metrics.connections_closed.increment();
        drop(slot);
    });
}

/// The open connections of one shard, and which of them are looked at when.
pub struct Connections {
    open: RefCell<BTreeMap<u64, Rc<ConnectionInfo>>>,
    /// When a connection may have been idle too long; looked up again when its time has come.
    due: RefCell<BinaryHeap<Reverse<(Instant, u64)>>>,
    added: Notify,
    next_id: Cell<u64>,
    idle_max: Duration,
    reaped: Cell<u64>,
}

impl Connections {
    /// `idle_max` of zero keeps idle connections for ever. Ids begin at `first_id`.
    pub fn new(idle_max: Duration, first_id: u64) -> Self {
        Self {
            open: RefCell::default(),
            due: RefCell::default(),
            added: Notify::new(),
            next_id: Cell::new(first_id),
            idle_max,
            reaped: Cell::new(0),
        }
    }

    /// Open connections.
    pub fn count(&self) -> usize {
        self.open.borrow().len()
    }

    /// Connections closed because they were idle or stalled.
    pub fn reaped(&self) -> u64 {
        self.reaped.get()
    }

    fn add(&self, stream: Stream, listener: Rc<ListenerInfo>, now: Instant) -> Rc<ConnectionInfo> {
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        let info = Rc::new(ConnectionInfo::new(id, stream, listener, now));
        self.open.borrow_mut().insert(id, Rc::clone(&info));
        if !self.idle_max.is_zero() {
            self.due.borrow_mut().push(Reverse((now.saturating_add(self.idle_max), id)));
            self.added.notify_one();
        }
        info
    }

    fn remove(&self, id: u64) {
        self.open.borrow_mut().remove(&id);
    }

    /// Lets every connection finish what it was asked and read nothing more.
    pub fn stop_reading(&self) {
        for info in self.open.borrow().values() {
            info.stop_reading();
        }
    }

    /// Closes every connection at once.
    pub fn close_all(&self) {
        for info in self.open.borrow().values() {
            info.close();
        }
    }

    /// Closes connections that hold memory others wait for and do not get on.
    pub fn close_stalled(&self, now: Instant) {
        for info in self.open.borrow().values() {
            if info.is_stalled(now, STALLED_WAIT, FRAME_BYTES_PER_SECOND_MIN) {
                self.reap(info, "holds memory others wait for");
            }
        }
    }

    fn reap(&self, info: &ConnectionInfo, why: &str) {
        self.reaped.set(self.reaped.get() + 1);
        tracing::debug!(peer = %info.peer, "connection closed: {why}");
        info.close();
    }

    /// Closes idle connections; sleeps until the next one can be due.
    pub async fn run_reaper<R: Runtime>(&self, runtime: &R) {
        loop {
            let next = self.due.borrow().peek().map(|Reverse((due, _))| *due);
            let Some(due) = next else {
                self.added.notified().await;
                continue;
            };
            let now = runtime.now();
            if due > now {
                runtime.sleep(due.saturating_since(now)).await;
                continue;
            }
            let Some(Reverse((_, id))) = self.due.borrow_mut().pop() else { continue };
            let info = self.open.borrow().get(&id).cloned();
            let Some(info) = info else { continue };
            let due = info.last_progress().saturating_add(self.idle_max);
            if due <= now {
                self.reap(&info, "idle");
            } else {
                self.due.borrow_mut().push(Reverse((due, id)));
            }
        }
    }
}

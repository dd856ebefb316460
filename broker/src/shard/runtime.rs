//! The executor of a shard: the only file of the broker that names it.
//!
//! One executor per core, pinned, and one unpinned for the control plane. Everything else in the broker spawns, sleeps,
//! takes turns and talks to sockets through this file and [`walser_storage::runtime::Runtime`].
//!
//! Three habits of the executor shape what is here. It sleeps on runnable tasks when its preemption timer is short, so
//! that timer is an hour and long work awaits a reactor turn by itself. It closes no task when it ends, so tasks are kept
//! by gates. An accept that is raced with something else may lose a connection, so accepting has a task of its own.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::mpsc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use futures_lite::io::{AsyncRead, AsyncWrite};
use glommio::net::{TcpListener, TcpStream};
use glommio::{LocalExecutorBuilder, Placement, PoolPlacement};
use walser_storage::runtime::Runtime;
/// The executor of the thread it is used on.
pub use walser_storage::runtime::glommio::GlommioRuntime as ShardRuntime;
use walser_storage::runtime::glommio::guarded;

/// Submission entries of one ring. Measured at 1000 connections: 128 costs a third more CPU per request, 4096 is no better.
const RING_DEPTH: usize = 1024;
/// Registered memory of one executor; touching it is part of the start, so it stays small.
const IO_MEMORY_BYTES: usize = 4 << 20;
/// Threads for the file operations that the ring cannot do.
const BLOCKING_THREADS: usize = 2;
/// Writes and flushes of one executor that the kernel works at side by side where they would block.
const HELPERS_MAX: u32 = 16;
/// Handed to one send. The kernel copies it, and on one machine receives it, too, before anything else is done.
pub const SEND_BYTES_MAX: usize = 256 << 10;
/// Segments handed to one send; the kernel takes 1024, but 64 already fill a socket buffer.
const SEND_SEGMENTS_MAX: usize = 64;
/// Small requests are received here, whatever connection they come from: a connection that waits holds no buffer.
pub const SCRATCH_BYTES: usize = 64 << 10;

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice());
}

/// How one executor is made.
#[derive(Clone, Debug)]
pub struct ExecutorSettings {
    /// Name of the thread.
    pub name: String,
    /// The core it is pinned to; `None` floats.
    pub cpu: Option<usize>,
    /// An hour, but in the test that proves that a short one stalls shards.
    pub preempt_timer: Duration,
    /// How long it spins before it sleeps; only sensible on cores that nothing else uses.
    pub spin_before_park: Duration,
}

/// An executor on its own thread.
#[derive(Debug)]
pub struct ExecutorThread {
    thread: std::thread::JoinHandle<()>,
}

impl ExecutorThread {
    /// Starts the thread and its ring, then runs `main` on it to its end. A panic that nobody caught aborts the process:
    /// the thread owns state that may be half changed.
    ///
    /// # Errors
    /// What the kernel refused: the ring, its memory, the core, the thread.
    pub fn start<M, F>(settings: ExecutorSettings, main: M) -> io::Result<Self>
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future<Output = ()> + 'static,
    {
        let (report, made) = mpsc::sync_channel::<io::Result<()>>(1);
        let name = settings.name.clone();
        let thread = std::thread::Builder::new().name(settings.name.clone()).spawn(move || {
            let run = catch_unwind(AssertUnwindSafe(|| {
                let executor = match builder(&settings).make() {
                    Ok(executor) => executor,
                    Err(error) => return drop(report.send(Err(io::Error::from(error)))),
                };
                if let Err(error) = widen_helpers() {
                    tracing::warn!(thread = settings.name, %error, "flushes wait for each other");
                }
                drop(report.send(Ok(())));
                executor.run(async move { main().await });
            }));
            if run.is_err() {
                tracing::error!(thread = name, "a task that owns state panicked: aborting");
                std::process::abort();
            }
        })?;
        made.recv().unwrap_or_else(|_| Err(io::Error::other("the executor's thread ended before it began")))?;
        Ok(Self { thread })
    }

    /// Waits until `main` has returned.
    pub fn join(self) {
        // A panic has aborted the process already.
        drop(self.thread.join());
    }
}

/// Lets the kernel flush several files of this thread at a time. By itself it takes the length of the thread's first ring for
/// how many helpers the thread may have, and glommio's first one is a probe of one entry: a flush of a segment that hangs would
/// keep the journal's waiting.
#[expect(unsafe_code, reason = "the executor's ring is its own, and the setting is the thread's")]
fn widen_helpers() -> io::Result<()> {
    // Of <linux/io_uring.h>.
    const PARAMS_BYTES: usize = 120;
    const REGISTER_IOWQ_MAX_WORKERS: libc::c_long = 19;
    let mut params = [0_u64; PARAMS_BYTES / size_of::<u64>()];
    // SAFETY: the kernel reads and writes no more than the parameters' fixed size, all of which is there and zeroed.
    let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, 4 as libc::c_long, params.as_mut_ptr()) };
    let ring = i32::try_from(ring).ok().filter(|ring| *ring >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the call has just made it, and nobody else knows it.
    let ring = unsafe { OwnedFd::from_raw_fd(ring) };
    // Those for files; 0 leaves those for all else as they are.
    let mut workers = [HELPERS_MAX, 0];
    let count = workers.len() as libc::c_long;
    let descriptor = libc::c_long::from(ring.as_raw_fd());
    // SAFETY: two numbers are what this request reads and writes, and they outlive the call.
    let done = unsafe {
        libc::syscall(libc::SYS_io_uring_register, descriptor, REGISTER_IOWQ_MAX_WORKERS, workers.as_mut_ptr(), count)
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn builder(settings: &ExecutorSettings) -> LocalExecutorBuilder {
    let placement = settings.cpu.map_or(Placement::Unbound, Placement::Fixed);
    let builder = LocalExecutorBuilder::new(placement)
        .name(&settings.name)
        .ring_depth(RING_DEPTH)
        .io_memory(IO_MEMORY_BYTES)
        .preempt_timer(settings.preempt_timer)
        .blocking_thread_pool_placement(PoolPlacement::Unbound(BLOCKING_THREADS));
    if settings.spin_before_park.is_zero() || settings.cpu.is_none() {
        return builder;
    }
    builder.spin_before_park(settings.spin_before_park)
}

/// Starts a task on this thread's executor and lets it run to its end.
pub fn spawn(task: impl Future<Output = ()> + 'static) {
    ShardRuntime::new().spawn(task);
}

/// Waits at least `wait`.
pub async fn sleep(wait: Duration) {
    ShardRuntime::new().sleep(wait).await;
}

/// Gives way to sockets, disk, timers and every other task. Only a real timer reaches the reactor: a yield does not.
pub async fn turn() {
    ShardRuntime::new().turn().await;
}

/// Runs `job`, which may take long, on one of the executor's helper threads.
pub async fn offload<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> T {
    let done = glommio::executor().spawn_blocking(move || catch_unwind(AssertUnwindSafe(job)));
    match guarded(done).await {
        Ok(done) => done,
        // The helper thread goes on; who asked deals with it.
        Err(panic) => resume_unwind(panic),
    }
}

/// A listening socket of one shard.
#[derive(Debug)]
pub struct Listener {
    inner: TcpListener,
}

impl Listener {
    /// Takes over a socket that is bound and listens.
    pub fn adopt(socket: socket2::Socket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        // SAFETY: the descriptor comes out of a socket that gives up its ownership here, and nobody else has it.
        #[expect(unsafe_code, reason = "the executor has no safe way to take a socket over")]
        let inner = unsafe { TcpListener::from_raw_fd(socket.into_raw_fd()) };
        Ok(Self { inner })
    }

    /// The next connection. Never race this future with another one.
    pub async fn accept(&self) -> io::Result<Stream> {
        let accepted = self.inner.shared_accept().await.map_err(io::Error::from)?;
        Stream::adopt(accepted.bind_to_executor())
    }

    /// The bound address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr().map_err(io::Error::from)
    }
}

/// What ends a [`Listener`]'s accept from outside its task.
#[derive(Clone, Copy, Debug)]
pub struct ListenerStop {
    descriptor: RawFd,
}

impl ListenerStop {
    /// The socket must outlive the value: it is kept by the task that accepts until that has ended.
    pub fn of(socket: &socket2::Socket) -> Self {
        Self { descriptor: socket.as_raw_fd() }
    }

    /// Makes the pending accept fail. Connections the kernel had queued are reset.
    pub fn stop(self) {
        nix::sys::socket::shutdown(self.descriptor, nix::sys::socket::Shutdown::Both).ok();
    }
}

/// A connection: one task may read while another writes.
#[derive(Debug)]
pub struct Stream {
    inner: RefCell<TcpStream>,
    peer: SocketAddr,
}

impl Stream {
    fn adopt(inner: TcpStream) -> io::Result<Self> {
        set_close_on_exec(&inner)?;
        inner.set_nodelay(true).map_err(io::Error::from)?;
        let peer = inner.peer_addr().map_err(io::Error::from)?;
        Ok(Self { inner: RefCell::new(inner), peer })
    }

    /// Opens a connection to another broker.
    pub async fn connect(address: SocketAddr) -> io::Result<Self> {
        Self::adopt(TcpStream::connect(address).await.map_err(io::Error::from)?)
    }

    /// The other end.
    pub const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Sets the kernel's buffers; 0 leaves the kernel's choice.
    pub fn set_buffers(&self, send_bytes: usize, receive_bytes: usize) -> io::Result<()> {
        let stream = self.inner.borrow();
        // SAFETY: the stream outlives this borrow of its descriptor.
        #[expect(unsafe_code, reason = "the executor's stream does not implement AsFd")]
        let descriptor = unsafe { BorrowedFd::borrow_raw(stream.as_raw_fd()) };
        let socket = socket2::SockRef::from(&descriptor);
        if send_bytes > 0 {
            socket.set_send_buffer_size(send_bytes)?;
        }
        if receive_bytes > 0 {
            socket.set_recv_buffer_size(receive_bytes)?;
        }
        Ok(())
    }

    /// Receives what is there, at most `bytes_max` and [`SCRATCH_BYTES`], and appends it to `buffer`, which is allocated only
    /// then. `waited` is set when nothing was there at first. 0 is the end of the stream.
    pub async fn receive(&self, buffer: &mut BytesMut, bytes_max: usize, waited: &mut bool) -> io::Result<usize> {
        poll_fn(|context| {
            SCRATCH.with_borrow_mut(|scratch| {
                let room = &mut scratch[..bytes_max.min(SCRATCH_BYTES)];
                let Poll::Ready(received) = self.poll_read(context, room) else {
                    *waited = true;
                    return Poll::Pending;
                };
                let count = received?;
                buffer.extend_from_slice(&room[..count]);
                Poll::Ready(Ok(count))
            })
        })
        .await
    }

    /// Bytes that have come and were not received yet; 0 when the socket cannot say.
    pub fn received_bytes(&self) -> usize {
        self.ask_socket(libc::FIONREAD)
    }

    /// Bytes sent that the client's machine has not confirmed; 0 when the socket cannot say.
    pub fn unconfirmed_bytes(&self) -> usize {
        self.ask_socket(libc::TIOCOUTQ)
    }

    /// For requests that answer with one number.
    fn ask_socket(&self, request: libc::Ioctl) -> usize {
        let mut count: libc::c_int = 0;
        // SAFETY: the descriptor is the stream's, which outlives the call, and the requests given here write one int.
        #[expect(unsafe_code, reason = "no library wraps these requests without one")]
        let outcome = unsafe { libc::ioctl(self.inner.borrow().as_raw_fd(), request, &raw mut count) };
        if outcome == 0 { usize::try_from(count).unwrap_or(0) } else { 0 }
    }

    /// Receives straight into the reserved rest of `buffer`, at most `bytes_max`. 0 is the end of the stream.
    pub async fn receive_in_place(&self, buffer: &mut BytesMut, bytes_max: usize) -> io::Result<usize> {
        poll_fn(|context| {
            let spare = buffer.spare_capacity_mut();
            let len = spare.len().min(bytes_max);
            // SAFETY: the bytes lie inside the spare capacity, and the stream only hands the range to recv(2), which
            // writes it and reads nothing.
            #[expect(unsafe_code, reason = "zeroing every frame before it is received costs a pass over memory")]
            let room = unsafe { std::slice::from_raw_parts_mut(spare.as_mut_ptr().cast::<u8>(), len) };
            let Poll::Ready(received) = self.poll_read(context, room) else { return Poll::Pending };
            let count = received?;
            assert!(count <= len);
            // SAFETY: recv(2) has written `count` bytes behind the old length.
            #[expect(unsafe_code, reason = "the bytes were written by the kernel")]
            unsafe {
                buffer.set_len(buffer.len() + count);
            }
            Poll::Ready(Ok(count))
        })
        .await
    }

    /// Sends as much as the socket takes at once, at most [`SEND_BYTES_MAX`], and removes it from the front of `segments`,
    /// which must not be empty.
    pub async fn send(&self, segments: &mut VecDeque<Bytes>) -> io::Result<usize> {
        let sent = poll_fn(|context| {
            let mut slices = [IoSlice::new(&[]); SEND_SEGMENTS_MAX];
            let (mut count, mut room) = (0, SEND_BYTES_MAX);
            for (slice, segment) in slices.iter_mut().zip(segments.iter()) {
                if room == 0 {
                    break;
                }
                let piece = &segment[..segment.len().min(room)];
                *slice = IoSlice::new(piece);
                (count, room) = (count + 1, room - piece.len());
            }
            let mut stream = self.inner.borrow_mut();
            Pin::new(&mut *stream).poll_write_vectored(context, &slices[..count])
        })
        .await?;
        if sent == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        drop_front(segments, sent);
        Ok(sent)
    }

    /// Ends the connection in the given directions; a task that waits on it sees the end.
    pub fn shutdown(&self, how: Shutdown) {
        let how = match how {
            Shutdown::Read => nix::sys::socket::Shutdown::Read,
            Shutdown::Write => nix::sys::socket::Shutdown::Write,
            Shutdown::Both => nix::sys::socket::Shutdown::Both,
        };
        // Fails only when the peer was faster.
        nix::sys::socket::shutdown(self.inner.borrow().as_raw_fd(), how).ok();
    }

    fn poll_read(&self, context: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut stream = self.inner.borrow_mut();
        Pin::new(&mut *stream).poll_read(context, room)
    }
}

fn drop_front(segments: &mut VecDeque<Bytes>, mut sent: usize) {
    while sent > 0 {
        let Some(front) = segments.front_mut() else { return };
        if front.len() > sent {
            front.advance(sent);
            return;
        }
        sent -= front.len();
        segments.pop_front();
    }
    while segments.front().is_some_and(Bytes::is_empty) {
        segments.pop_front();
    }
}

/// The kernel does not pass the flag on from the listener, and the executor's fast path does not set it.
fn set_close_on_exec(stream: &TcpStream) -> io::Result<()> {
    use nix::fcntl::{FcntlArg, FdFlag, fcntl};
    // SAFETY: the stream outlives this borrow of its descriptor.
    #[expect(unsafe_code, reason = "the executor's stream does not implement AsFd")]
    let descriptor = unsafe { BorrowedFd::borrow_raw(stream.as_raw_fd()) };
    fcntl(descriptor.as_fd(), FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    Ok(())
}

/// Cores this process may run on, in ascending order.
///
/// # Errors
/// What the kernel says; it does not on Linux.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    let set = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0))?;
    Ok((0..nix::sched::CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).collect())
}

//! One connection: bytes to frames, frames to handlers, answers back in order.
//!
//! Two tasks share it. The reader parses as many frames as are there and starts their handlers in order; the writer sends
//! finished replies, all that are ready at once. The reader holds no buffer while it waits: small requests are received
//! into memory that all connections of the shard share, and only large frames get a reservation of their own, after their
//! memory has been granted.
//!
//! A panic in either task, or in a handler, closes this connection and is counted; owned state is behind
//! [`crate::shard::service`], where a panic aborts.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::{Shutdown, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use futures_lite::FutureExt;
use futures_lite::future::{or, poll_once};
use walser_storage::runtime::channel::{GateGuard, Notify};
use walser_storage::runtime::{Instant, Runtime};

use super::admission::MemoryUnits;
use super::listener::ListenerInfo;
use super::response_queue::{ResponseQueue, SlotId};
use crate::handler::dispatch::{self, Ordering};
use crate::handler::{CloseReason, HandlerOutcome};
use crate::shard::runtime::{self, SCRATCH_BYTES, SEND_BYTES_MAX, Stream};
use crate::shard::watchdog::Doing;
use crate::shard::{SLICE, Shard};

/// The size prefix of a frame.
const PREFIX_BYTES: usize = 4;
/// Frames above this are received in place instead of through the shared buffer.
const IN_PLACE_BYTES_MIN: usize = 16 << 10;
/// What is received through the shared buffer when the last frame was large: enough for a small request, little to copy.
const PROBE_BYTES: usize = 4 << 10;
/// How long replies of a connection whose client has closed its end may still leave.
const DRAIN_WAIT: Duration = Duration::from_secs(1);

/// What a connection is, as its handlers and the reaper see it.
pub struct ConnectionInfo {
    /// Unique in the process while it runs.
    pub id: u64,
    pub peer: SocketAddr,
    pub listener: Rc<ListenerInfo>,
    stream: Stream,
    queue: ResponseQueue,
    last_progress: Cell<Instant>,
    /// The frame that is being received in place.
    receiving: Cell<Option<Receiving>>,
    /// What the client had not confirmed when somebody last looked.
    unconfirmed_bytes: Cell<usize>,
    /// Clients send the same id with every request.
    client_id: RefCell<Option<Rc<str>>>,
    closed: Cell<bool>,
    closing: Notify,
}

impl ConnectionInfo {
    /// A connection that has just been accepted.
    pub fn new(id: u64, stream: Stream, listener: Rc<ListenerInfo>, now: Instant) -> Self {
        Self {
            id,
            peer: stream.peer(),
            listener,
            stream,
            queue: ResponseQueue::default(),
            last_progress: Cell::new(now),
            receiving: Cell::new(None),
            unconfirmed_bytes: Cell::new(usize::MAX),
            client_id: RefCell::new(None),
            closed: Cell::new(false),
            closing: Notify::new(),
        }
    }

    /// When bytes last went in or out.
    pub fn last_progress(&self) -> Instant {
        self.last_progress.get()
    }

    /// Whether it holds memory and, since `grace`, gets on too slowly for others to wait.
    pub fn is_stalled(&self, now: Instant, grace: Duration, bytes_per_second_min: u64) -> bool {
        let receiving = self.receiving.get();
        if receiving.is_none() && !self.queue.has_unsent() {
            return false;
        }
        // A socket takes nothing until a good part of its buffer is free: a slow client gets on without it.
        let unconfirmed = self.stream.unconfirmed_bytes();
        if unconfirmed < self.unconfirmed_bytes.replace(unconfirmed) {
            self.last_progress.set(now);
        }
        if now.saturating_since(self.last_progress.get()) > grace {
            return true;
        }
        receiving.is_some_and(|receiving| {
            let taken = now.saturating_since(receiving.began);
            taken > grace && (receiving.bytes as u64) < bytes_per_second_min.saturating_mul(taken.as_secs())
        })
    }

    /// Shares the id's text as long as it stays the same.
    pub fn client_id(&self, sent: Option<&str>) -> Option<Rc<str>> {
        let mut known = self.client_id.borrow_mut();
        if known.as_deref() != sent {
            *known = sent.map(Rc::from);
        }
        known.clone()
    }

    /// Ready when the client has gone: what only waits for it may stop.
    pub async fn closed(&self) {
        while !self.closed.get() {
            self.closing.notified().await;
        }
    }

    /// Nobody will see what is still answered.
    pub fn is_broken(&self) -> bool {
        self.queue.is_broken()
    }

    /// Ends both directions at once.
    pub fn close(&self) {
        self.stream.shutdown(Shutdown::Both);
        self.mark_closed();
    }

    /// Reads no further; what was asked is still answered.
    pub fn stop_reading(&self) {
        self.stream.shutdown(Shutdown::Read);
    }

    fn mark_closed(&self) {
        self.closed.set(true);
        self.closing.notify_all();
    }
}

/// Progress of a large frame.
#[derive(Clone, Copy, Debug)]
struct Receiving {
    began: Instant,
    bytes: usize,
}

/// Why the reader has ended.
enum ReadEnd {
    /// The client closed its end, or the broker stops.
    EndOfStream,
    /// The socket failed, or the writer did.
    Broken,
    /// The client is thrown out.
    Refused(CloseReason),
}

/// Serves a connection to its end.
pub async fn serve(shard: Rc<Shard>, info: Rc<ConnectionInfo>, guard: GateGuard) {
    let connection = Rc::new(Connection { shard, info, _guard: guard, written: Notify::new() });
    let writer = Rc::clone(&connection);
    runtime::spawn(async move { writer.write().await });
    let end = AssertUnwindSafe(connection.read()).catch_unwind().await;
    let drained = match end {
        Ok(ReadEnd::EndOfStream) => connection.drain().await,
        Ok(ReadEnd::Broken) => false,
        Ok(ReadEnd::Refused(reason)) => {
            connection.log_refusal(&reason);
            connection.drain().await
        }
        Err(_) => {
            connection.note_panic();
            false
        }
    };
    if !drained {
        connection.info.queue.break_off();
    }
    connection.info.close();
}

struct Connection {
    shard: Rc<Shard>,
    info: Rc<ConnectionInfo>,
    /// Shutdown waits until the last task of the connection has let go.
    _guard: GateGuard,
    /// The writer has ended.
    written: Notify,
}

impl Connection {
    async fn read(self: &Rc<Self>) -> ReadEnd {
        let mut buffer = BytesMut::new();
        let mut last_frame_bytes = 0;
        let mut slice_began = self.shard.runtime.now();
        loop {
            while let Some(frame_bytes) = match self.frame_bytes(&buffer) {
                Ok(frame_bytes) => frame_bytes,
                Err(reason) => return ReadEnd::Refused(reason),
            } {
                let mut units = self.acquire(buffer.len(), frame_bytes).await;
                if let Err(end) = self.complete_frame(&mut buffer, frame_bytes).await {
                    return end;
                }
                units.note_received();
                last_frame_bytes = frame_bytes;
                // A frame that is alone in the buffer takes it over, which spares the count of its users.
                let mut frame = if buffer.len() == frame_bytes {
                    std::mem::take(&mut buffer)
                } else {
                    buffer.split_to(frame_bytes)
                };
                frame.advance(PREFIX_BYTES);
                // What has come behind the frame is held while the request waits for its turn.
                let behind = (!buffer.is_empty()).then(|| self.shard.admission.charge(buffer.len()));
                if let Err(end) = self.start_request(frame, units).await {
                    return end;
                }
                drop(behind);
                let now = self.shard.runtime.now();
                if now.saturating_since(slice_began) > SLICE {
                    // A client that always has a next frame must not keep others from their sockets.
                    runtime::turn().await;
                    slice_began = self.shard.runtime.now();
                }
            }
            if buffer.is_empty() {
                // Keeps no memory while it waits.
                buffer = BytesMut::new();
            }
            let bytes_max = if self.shard.admission.is_short(SCRATCH_BYTES) {
                // What comes without its size being known is not charged.
                PREFIX_BYTES - buffer.len()
            } else if last_frame_bytes > IN_PLACE_BYTES_MIN {
                PROBE_BYTES
            } else {
                SCRATCH_BYTES
            };
            let mut waited = false;
            match self.info.stream.receive(&mut buffer, bytes_max, &mut waited).await {
                Ok(0) => return ReadEnd::EndOfStream,
                Ok(_) => {
                    let now = self.shard.runtime.now();
                    self.info.last_progress.set(now);
                    if waited {
                        slice_began = now;
                    }
                }
                Err(_) => return ReadEnd::Broken,
            }
        }
    }

    /// Size of the next frame with its prefix, once it is known; the frame need not be there yet.
    fn frame_bytes(&self, buffer: &[u8]) -> Result<Option<usize>, CloseReason> {
        let Some(prefix) = buffer.first_chunk::<PREFIX_BYTES>() else { return Ok(None) };
        let len = i32::from_be_bytes(*prefix);
        let len_max = self.shard.request_bytes_max();
        match usize::try_from(len) {
            Ok(len) if len <= len_max => Ok(Some(len + PREFIX_BYTES)),
            _ => Err(CloseReason::FrameSize { len: len.into(), len_max }),
        }
    }

    /// Receives the rest of a frame in place.
    async fn complete_frame(&self, buffer: &mut BytesMut, frame_bytes: usize) -> Result<(), ReadEnd> {
        if buffer.len() >= frame_bytes {
            return Ok(());
        }
        let began = self.shard.runtime.now();
        self.info.receiving.set(Some(Receiving { began, bytes: 0 }));
        buffer.reserve(frame_bytes - buffer.len());
        while buffer.len() < frame_bytes {
            let missing = frame_bytes - buffer.len();
            match self.info.stream.receive_in_place(buffer, missing).await {
                Ok(0) => return Err(ReadEnd::EndOfStream),
                Ok(_) => {
                    self.info.last_progress.set(self.shard.runtime.now());
                    self.info.receiving.set(Some(Receiving { began, bytes: buffer.len() }));
                }
                Err(_) => return Err(ReadEnd::Broken),
            }
        }
        self.info.receiving.set(None);
        Ok(())
    }

    /// Memory for a frame of which `here` bytes have been received.
    async fn acquire(&self, here: usize, frame_bytes: usize) -> MemoryUnits {
        let admission = &self.shard.admission;
        let missing = frame_bytes.saturating_sub(here);
        // When memory is short, a small frame that waits in the socket must not be taken for one that never ends.
        let is_whole = missing == 0
            || (frame_bytes <= SCRATCH_BYTES
                && admission.is_short(SCRATCH_BYTES)
                && self.info.stream.received_bytes() >= missing);
        if is_whole {
            return self.shard.wait_for_memory(admission.acquire(frame_bytes)).await;
        }
        self.shard.wait_for_memory(admission.acquire_receiving(frame_bytes)).await
    }

    async fn start_request(self: &Rc<Self>, bytes: BytesMut, units: MemoryUnits) -> Result<(), ReadEnd> {
        if !self.info.queue.wait_room().await {
            return Err(ReadEnd::Broken);
        }
        self.shard.metrics.received_bytes.add(bytes.len() as u64);
        let request = dispatch::parse(&self.shard, &self.info, bytes, units).map_err(ReadEnd::Refused)?;
        self.shard.governor.note_foreground();
        if request.ordering() == Ordering::Barrier && !self.info.queue.wait_answered().await {
            return Err(ReadEnd::Broken);
        }
        if request.ordering() == Ordering::Barrier {
            // How long its reply is shows when it is there, so it has to wait while others' leave no room.
            drop(self.shard.wait_for_memory(self.shard.replies.acquire(0)).await);
        }
        self.shard.metrics.count_request(request.api_key());
        self.shard.pulse.set_doing(Doing::Request(request.api_key().code()));
        let slot = self.info.queue.open_slot();
        match request.ordering() {
            Ordering::Barrier => {
                let outcome = self.run_paced(request.start()).await;
                self.settle(slot, outcome).map_err(ReadEnd::Refused)
            }
            Ordering::Pipelined => {
                let order = request.order();
                let mut handling = request.start();
                if let Some(outcome) = poll_once(&mut handling).await {
                    return self.settle(slot, outcome).map_err(ReadEnd::Refused);
                }
                let finished = Rc::clone(&order);
                let connection = Rc::clone(self);
                runtime::spawn(async move {
                    connection.finish_request(slot, handling).await;
                    finished.set_fixed();
                });
                order.wait_fixed().await;
                Ok(())
            }
        }
    }

    /// However many connections ask for much at once, one of them is served between two turns of the reactor.
    async fn run_paced(&self, mut handling: Pin<Box<dyn Future<Output = HandlerOutcome>>>) -> HandlerOutcome {
        let permit = self.shard.pace.acquire(1).await;
        let began = self.shard.runtime.now();
        let outcome = poll_once(&mut handling).await;
        if self.shard.runtime.now().saturating_since(began) > SLICE {
            runtime::turn().await;
        }
        drop(permit);
        match outcome {
            Some(outcome) => outcome,
            None => handling.await,
        }
    }

    async fn finish_request(&self, slot: SlotId, handling: Pin<Box<dyn Future<Output = HandlerOutcome>>>) {
        match AssertUnwindSafe(handling).catch_unwind().await {
            Ok(outcome) => {
                if let Err(reason) = self.settle(slot, outcome) {
                    self.log_refusal(&reason);
                    self.break_off();
                }
            }
            Err(_) => {
                self.note_panic();
                self.break_off();
            }
        }
    }

    fn settle(&self, slot: SlotId, outcome: HandlerOutcome) -> Result<(), CloseReason> {
        match outcome {
            HandlerOutcome::Reply(reply) => self.info.queue.fill_slot(slot, Some(reply)),
            HandlerOutcome::NoReply => self.info.queue.fill_slot(slot, None),
            HandlerOutcome::Close(reason) => {
                self.info.queue.fill_slot(slot, None);
                return Err(reason);
            }
        }
        Ok(())
    }

    async fn write(&self) {
        if AssertUnwindSafe(self.send_batches()).catch_unwind().await.is_err() {
            self.note_panic();
            self.break_off();
        }
        self.written.notify_all();
        self.written.notify_one();
    }

    async fn send_batches(&self) {
        while let Some(mut batch) = self.info.queue.next_batch().await {
            while !batch.segments.is_empty() {
                if self.info.stream.send(&mut batch.segments).await.is_err() {
                    self.break_off();
                    return;
                }
                self.info.last_progress.set(self.shard.runtime.now());
                if batch.len_bytes > SEND_BYTES_MAX {
                    self.shard.governor.next_piece().await;
                }
            }
            self.shard.metrics.sent_bytes.add(batch.len_bytes as u64);
            self.info.queue.batch_sent(batch.len_bytes);
        }
    }

    /// Lets what was asked be answered and sent; false when that took too long.
    async fn drain(&self) -> bool {
        self.info.mark_closed();
        self.info.queue.end();
        let wait = if self.shard.is_stopping() { self.shard.settings.stop_wait } else { DRAIN_WAIT };
        let sent = async {
            self.written.notified().await;
            true
        };
        let late = async {
            runtime::sleep(wait).await;
            false
        };
        or(sent, late).await
    }

    /// Nothing more can be sent; wakes the reader.
    fn break_off(&self) {
        self.info.queue.break_off();
        self.info.close();
    }

    fn log_refusal(&self, reason: &CloseReason) {
        self.shard.metrics.connections_refused.increment();
        if let Some(left_out) = self.shard.refusal_log.admit(self.shard.runtime.now()) {
            tracing::warn!(peer = %self.info.peer, listener = self.info.listener.name, left_out, "connection closed: {reason}");
        }
    }

    fn note_panic(&self) {
        self.shard.metrics.connection_panics.increment();
        tracing::error!(peer = %self.info.peer, "a connection's task panicked: connection closed");
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::sync::Arc;

    use super::*;
    use crate::config::BrokerConfig;
    use crate::shard::ShardSettings;
    use crate::shard::start::{RunningBroker, Stopped};

    /// What comes back until the end of the stream.
    fn ask(broker: &RunningBroker, api_keys: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(broker.listeners()[0].bound).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        for (correlation_id, api_key) in (0..).zip(api_keys) {
            stream.write_all(&[0, 0, 0, 10, 0, *api_key, 0, 0, 0, 0, 0, correlation_id, 0xff, 0xff]).unwrap();
        }
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap_or_default();
        answer
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test outside of the shards may remove its files")]
    fn a_panic_closes_one_connection() {
        // Rule: a bug in a handler closes the connection it was asked on, is counted, and nobody else notices.
        const API_VERSIONS: u8 = 18;
        const PANIC_AT_ONCE: u8 = 17;
        const PANIC_LATER: u8 = 36;
        let folder = std::env::temp_dir().join(format!("walser-panic-{}", std::process::id()));
        let config = BrokerConfig::from_pairs(&[
            ("listeners", "PLAINTEXT://127.0.0.1:0"),
            ("log.dirs", folder.to_str().unwrap()),
        ]);
        let mut settings = ShardSettings::new(Arc::new(config.unwrap())).unwrap();
        settings.cpus.truncate(1);
        let broker = RunningBroker::start(&settings).unwrap();
        for faulty in [PANIC_AT_ONCE, PANIC_LATER] {
            assert_eq!(ask(&broker, &[faulty]), [0; 0]);
            assert!(!ask(&broker, &[API_VERSIONS]).is_empty());
        }
        assert_eq!(settings.metrics.shard(0).connection_panics.value(), 2);
        assert_eq!(broker.stop(), Stopped::Clean);
        std::fs::remove_dir_all(folder).ok();
    }
}

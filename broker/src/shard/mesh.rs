//! What crosses from one executor to another: bounded lanes between every pair, with guarded delivery.
//!
//! A *node* is a shard or, as the last one, the control executor. Every ordered pair of nodes has one lane that carries the
//! requests of the first and its replies to the second, in order. A node has one receiving task that drains all its lanes,
//! and that task never waits for room: what does not fit into a lane stays in the sender's outbox and follows as soon as the
//! receiver has made room, so two full lanes cannot wait for each other. Only requests wait, for room in the outbox.
//!
//! **Waking.** A node's receiver has a doorbell. The first message after the receiver has looked rings it, the others ride
//! along, so a wake-up is paid once per batch.
//!
//! **Guard.** The executor can go to sleep on a wake-up that came at the wrong moment. So each lane counts what was sent and
//! what was *taken*; while something is untaken, its sender wakes up every millisecond, and what has been untaken since the
//! last time is nudged again and counted as a rescue. Taken, not answered: a long poll keeps no guard ticking.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use walser_storage::runtime::Runtime;
use walser_storage::runtime::channel::{Closed, Notify, OneshotReceiver, OneshotSender, oneshot};

use super::placement::ShardId;

/// Messages in one lane; more wait at the sender.
const LANE_MESSAGES_MAX: usize = 1024;
/// Requests that may wait at the sender for one lane before the next one has to wait itself. Replies are not counted: there
/// are no more of them than requests that the other side has sent.
const OUTBOX_REQUESTS_MAX: usize = 1024;
/// How long a message may be untaken before its receiver is woken again.
const GUARD_WAIT: Duration = Duration::from_millis(1);
/// Messages handled before the receiver lets other tasks run.
const MESSAGES_PER_VISIT_MAX: usize = 64;

/// A request or the reply to one.
enum Envelope<Q, A> {
    Request { call: u64, request: Q },
    Reply { call: u64, reply: A },
}

struct Lane<Q, A> {
    sender: flume::Sender<Envelope<Q, A>>,
    receiver: flume::Receiver<Envelope<Q, A>>,
    /// Messages the receiver has taken out.
    taken: AtomicU64,
    /// The sender's outbox is not empty: ring it when there is room.
    sender_waits: AtomicBool,
}

#[derive(Default)]
struct Doorbell {
    /// Rung and not yet answered.
    rung: AtomicBool,
    receiver: OnceLock<Waker>,
}

impl Doorbell {
    fn ring(&self) {
        if !self.rung.swap(true, Ordering::SeqCst) {
            self.nudge();
        }
    }

    /// Wakes the receiver whatever it is doing; this also reaches an executor that sleeps on a task it has to run.
    fn nudge(&self) {
        self.rung.store(true, Ordering::SeqCst);
        if let Some(receiver) = self.receiver.get() {
            receiver.wake_by_ref();
        }
    }
}

/// Wakes a node from any thread: the watchdog's way to ask whether it still runs.
#[derive(Clone)]
pub struct NodeBell(Arc<Doorbell>);

impl NodeBell {
    /// The node's receiver looks at its lanes, whatever it was woken for.
    pub fn nudge(&self) {
        self.0.nudge();
    }
}

/// One node's ends of all lanes, on their way to its thread.
pub struct MeshLinks<Q, A> {
    own: ShardId,
    /// By the node at the other end; the entry of the node itself is never used.
    outbound: Vec<Arc<Lane<Q, A>>>,
    inbound: Vec<Arc<Lane<Q, A>>>,
    doorbells: Vec<Arc<Doorbell>>,
}

impl<Q, A> MeshLinks<Q, A> {
    /// What wakes this node.
    pub fn bell(&self) -> NodeBell {
        NodeBell(Arc::clone(&self.doorbells[self.own.index()]))
    }
}

/// Lanes between `node_count` nodes, one item per node.
pub fn links<Q, A>(node_count: u16) -> Vec<MeshLinks<Q, A>> {
    let nodes = usize::from(node_count);
    let lanes: Vec<Arc<Lane<Q, A>>> = (0..nodes * nodes)
        .map(|_| {
            let (sender, receiver) = flume::bounded(LANE_MESSAGES_MAX);
            Arc::new(Lane { sender, receiver, taken: AtomicU64::new(0), sender_waits: AtomicBool::new(false) })
        })
        .collect();
    let doorbells: Vec<_> = (0..nodes).map(|_| Arc::new(Doorbell::default())).collect();
    let lane = |from: usize, to: usize| Arc::clone(&lanes[from * nodes + to]);
    (0..node_count)
        .map(|own| MeshLinks {
            own: ShardId::new(own),
            outbound: (0..nodes).map(|to| lane(usize::from(own), to)).collect(),
            inbound: (0..nodes).map(|from| lane(from, usize::from(own))).collect(),
            doorbells: doorbells.clone(),
        })
        .collect()
}

struct Outbound<Q, A> {
    lane: Arc<Lane<Q, A>>,
    outbox: RefCell<VecDeque<Envelope<Q, A>>>,
    outbox_requests: Cell<usize>,
    /// Messages put into the lane.
    sent: Cell<u64>,
    /// `sent` when the guard looked last.
    sent_at_guard: Cell<u64>,
    room: Notify,
}

impl<Q, A> Outbound<Q, A> {
    /// Moves as much of the outbox into the lane as fits; true if something moved.
    fn flush(&self) -> bool {
        let mut outbox = self.outbox.borrow_mut();
        let mut moved = false;
        while let Some(envelope) = outbox.pop_front() {
            let is_request = matches!(envelope, Envelope::Request { .. });
            match self.lane.sender.try_send(envelope) {
                Ok(()) => {
                    moved = true;
                    self.sent.set(self.sent.get() + 1);
                    if is_request {
                        self.outbox_requests.set(self.outbox_requests.get() - 1);
                    }
                }
                Err(flume::TrySendError::Full(envelope) | flume::TrySendError::Disconnected(envelope)) => {
                    outbox.push_front(envelope);
                    self.lane.sender_waits.store(true, Ordering::SeqCst);
                    // The receiver may have made room between the attempt and the flag.
                    if self.lane.sender.is_full() {
                        break;
                    }
                }
            }
        }
        if outbox.is_empty() {
            self.lane.sender_waits.store(false, Ordering::SeqCst);
        }
        drop(outbox);
        if moved && self.outbox_requests.get() < OUTBOX_REQUESTS_MAX {
            self.room.notify_all();
        }
        moved
    }

    fn untaken(&self) -> bool {
        self.lane.taken.load(Ordering::Acquire) < self.sent.get()
    }
}

/// Calls that wait for their replies, found by number without hashing.
struct Calls<A> {
    slots: Vec<(u32, Option<OneshotSender<A>>)>,
    free: Vec<u32>,
}

impl<A> Calls<A> {
    fn open(&mut self) -> (u64, OneshotReceiver<A>) {
        let (sender, receiver) = oneshot();
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            u32::try_from(self.slots.len() - 1).expect("fewer calls than numbers")
        });
        let slot = &mut self.slots[index as usize];
        slot.1 = Some(sender);
        (u64::from(slot.0) << 32 | u64::from(index), receiver)
    }

    fn close(&mut self, call: u64) -> OneshotSender<A> {
        let index = (call & u64::from(u32::MAX)) as u32;
        let slot = &mut self.slots[index as usize];
        assert_eq!(u64::from(slot.0), call >> 32, "a call is answered once");
        slot.0 = slot.0.wrapping_add(1);
        self.free.push(index);
        slot.1.take().expect("a call is answered once")
    }
}

/// A node's end of the mesh, on its own thread.
pub struct Mesh<Q, A, R> {
    own: ShardId,
    runtime: R,
    outbound: Vec<Outbound<Q, A>>,
    inbound: Vec<Arc<Lane<Q, A>>>,
    doorbells: Vec<Arc<Doorbell>>,
    calls: RefCell<Calls<A>>,
    guard_wanted: Notify,
    guard_armed: Cell<bool>,
    rescues: Cell<u64>,
    closed: Cell<bool>,
}

/// The future of a reply.
pub struct PendingReply<A>(OneshotReceiver<A>);

impl<A> Future for PendingReply<A> {
    type Output = Result<A, Closed>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context)
    }
}

/// Where a request's answer goes.
pub struct ReplyTo<Q, A, R> {
    mesh: Rc<Mesh<Q, A, R>>,
    from: ShardId,
    call: u64,
}

impl<Q: Send + 'static, A: Send + 'static, R: Runtime> ReplyTo<Q, A, R> {
    /// Who asked.
    pub const fn from(&self) -> ShardId {
        self.from
    }

    /// Answers; never waits.
    pub fn send(self, reply: A) {
        let lane = &self.mesh.outbound[self.from.index()];
        lane.outbox.borrow_mut().push_back(Envelope::Reply { call: self.call, reply });
        self.mesh.push(self.from);
    }
}

impl<Q: Send + 'static, A: Send + 'static, R: Runtime> Mesh<Q, A, R> {
    /// Takes the node's ends over; [`Mesh::run`] and [`Mesh::run_guard`] have to be started on the same executor.
    pub fn new(links: MeshLinks<Q, A>, runtime: R) -> Rc<Self> {
        let outbound = links
            .outbound
            .into_iter()
            .map(|lane| Outbound {
                lane,
                outbox: RefCell::default(),
                outbox_requests: Cell::new(0),
                sent: Cell::new(0),
                sent_at_guard: Cell::new(0),
                room: Notify::new(),
            })
            .collect();
        Rc::new(Self {
            own: links.own,
            runtime,
            outbound,
            inbound: links.inbound,
            doorbells: links.doorbells,
            calls: RefCell::new(Calls { slots: Vec::new(), free: Vec::new() }),
            guard_wanted: Notify::new(),
            guard_armed: Cell::new(false),
            rescues: Cell::new(0),
            closed: Cell::new(false),
        })
    }

    /// The node itself.
    pub const fn own(&self) -> ShardId {
        self.own
    }

    /// The control executor, which comes after the last shard.
    pub fn control(&self) -> ShardId {
        ShardId::new(u16::try_from(self.outbound.len() - 1).expect("built from a u16"))
    }

    /// How often a guard found a message that its receiver had not been woken for.
    pub fn rescues(&self) -> u64 {
        self.rescues.get()
    }

    /// Sends a request. When this returns, the request's place among all requests to `to` is fixed; what it returns is the
    /// future of the reply. It waits only when the lane and its outbox are full.
    ///
    /// # Panics
    /// When `to` is this node: what it owns needs no lane.
    pub async fn request(&self, to: ShardId, request: Q) -> PendingReply<A> {
        assert_ne!(to, self.own, "a node does not send to itself");
        let outbound = &self.outbound[to.index()];
        while outbound.outbox_requests.get() >= OUTBOX_REQUESTS_MAX {
            outbound.room.notified().await;
        }
        let (call, reply) = self.calls.borrow_mut().open();
        outbound.outbox_requests.set(outbound.outbox_requests.get() + 1);
        outbound.outbox.borrow_mut().push_back(Envelope::Request { call, request });
        self.push(to);
        PendingReply(reply)
    }

    fn push(&self, to: ShardId) {
        let outbound = &self.outbound[to.index()];
        if outbound.flush() {
            self.doorbells[to.index()].ring();
            self.arm_guard();
        }
    }

    fn arm_guard(&self) {
        if !self.guard_armed.replace(true) {
            self.guard_wanted.notify_one();
        }
    }

    /// Ends [`Mesh::run`], once everything that came has been taken, and [`Mesh::run_guard`].
    pub fn close(&self) {
        self.closed.set(true);
        self.guard_wanted.notify_one();
        self.doorbells[self.own.index()].nudge();
    }

    /// Drains the node's lanes until [`Mesh::close`]. Requests are given to `handle`, which must not block: it starts what
    /// takes longer and answers later. `note_turn` is called whenever the receiver has looked.
    pub async fn run(self: Rc<Self>, mut handle: impl FnMut(Q, ReplyTo<Q, A, R>), note_turn: impl Fn()) {
        let own = Arc::clone(&self.doorbells[self.own.index()]);
        let mut visit_began = self.runtime.now();
        loop {
            poll_fn(|context| {
                // The task is the same for its whole life, and so is its waker.
                own.receiver.get_or_init(|| context.waker().clone());
                if own.rung.swap(false, Ordering::SeqCst) || self.has_inbound() {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            })
            .await;
            note_turn();
            let handled = self.drain(&mut handle);
            self.flush_outboxes();
            if self.closed.get() && handled == 0 {
                return;
            }
            if handled >= MESSAGES_PER_VISIT_MAX {
                // A peer that sends without pause must not keep this executor from its sockets and disks.
                if self.runtime.now().saturating_since(visit_began) > super::SLICE {
                    self.runtime.turn().await;
                    visit_began = self.runtime.now();
                } else {
                    futures_lite::future::yield_now().await;
                }
            } else {
                visit_began = self.runtime.now();
            }
        }
    }

    fn has_inbound(&self) -> bool {
        self.inbound.iter().any(|lane| !lane.receiver.is_empty())
    }

    fn drain(self: &Rc<Self>, handle: &mut impl FnMut(Q, ReplyTo<Q, A, R>)) -> usize {
        let mut handled = 0;
        for (from, lane) in self.inbound.iter().enumerate() {
            let mut taken = 0;
            while taken < MESSAGES_PER_VISIT_MAX
                && let Ok(envelope) = lane.receiver.try_recv()
            {
                taken += 1;
                lane.taken.fetch_add(1, Ordering::Release);
                match envelope {
                    Envelope::Request { call, request } => {
                        let from = ShardId::new(u16::try_from(from).expect("built from a u16"));
                        handle(request, ReplyTo { mesh: Rc::clone(self), from, call });
                    }
                    Envelope::Reply { call, reply } => {
                        let waiter = self.calls.borrow_mut().close(call);
                        // Who asked may have gone; what was done stays done.
                        drop(waiter.send(reply));
                    }
                }
            }
            if taken > 0 && lane.sender_waits.load(Ordering::SeqCst) {
                self.doorbells[from].ring();
            }
            handled += taken;
        }
        handled
    }

    fn flush_outboxes(&self) {
        for (to, outbound) in self.outbound.iter().enumerate() {
            if outbound.lane.sender_waits.load(Ordering::SeqCst) && outbound.flush() {
                self.doorbells[to].ring();
                self.arm_guard();
            }
        }
    }

    /// Keeps watch over what was sent and not taken, until [`Mesh::close`].
    pub async fn run_guard(self: Rc<Self>) {
        while !self.closed.get() {
            if !self.guard_armed.get() {
                self.guard_wanted.notified().await;
                continue;
            }
            for outbound in &self.outbound {
                outbound.sent_at_guard.set(outbound.sent.get());
            }
            self.runtime.sleep(GUARD_WAIT).await;
            for (to, outbound) in self.outbound.iter().enumerate() {
                if outbound.lane.taken.load(Ordering::Acquire) < outbound.sent_at_guard.get() {
                    self.rescues.set(self.rescues.get() + 1);
                    self.doorbells[to].nudge();
                }
            }
            // What came in may have been taken from a lane without waking who waits for it here.
            if self.has_inbound() {
                self.doorbells[self.own.index()].nudge();
            }
            self.guard_armed.set(self.outbound.iter().any(Outbound::untaken));
        }
    }
}

#[cfg(test)]
mod tests;

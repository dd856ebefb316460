//! One coordinator from its loading to its end.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use futures_lite::future::or;
use walser_machine::group::{Command, Effect, EncodedRecord, GroupCoordinator, Now, Reply, RequestId, append_error};
use walser_machine::metadata::{MetadataDelta, MetadataImage};
use walser_protocol::ErrorCode;
use walser_protocol::records::builder::{BatchBuilder, BatchOptions, NewRecord};
use walser_storage::disk::Disk;
use walser_storage::runtime::channel::{Notify, OneshotReceiver, OneshotSender, oneshot};
use walser_storage::runtime::{Instant, Runtime};
use walser_storage::validate::ValidBatch;

use super::{RegexJob, Shared};
use crate::driver::partition::internal::{InternalAppend, InternalPlace};
use crate::driver::partition::{PartitionId, Waiter};
use crate::driver::timer::Timer;
use crate::error::Refusal;

/// After a failure a coordinator is loaded anew, the first time so long afterwards; twice as long each time, while the failures
/// follow each other.
const RELOAD_WAIT_MIN: Duration = Duration::from_millis(500);
const RELOAD_WAIT_MAX: Duration = Duration::from_secs(30);

type Outcome = Result<Reply, ErrorCode>;

/// One coordinator, or the place of one that is between two lives.
pub(super) struct Slot<D: Disk, R: Runtime> {
    pub(super) id: PartitionId,
    pub(super) shared: Rc<Shared<D, R>>,
    /// `None` before it is loaded the first time, and after a failure.
    machine: RefCell<Option<GroupCoordinator>>,
    /// How often it has been loaded: what a wait finds in another life is not what it began with.
    life: Cell<u64>,
    waiting: RefCell<BTreeMap<RequestId, OneshotSender<Outcome>>>,
    /// The append that waits for its turn. What the machine wants done comes behind it.
    blocked: RefCell<Option<InternalPlace<D, R>>>,
    /// An append is waiting for its turn.
    is_blocked: Cell<bool>,
    /// When the task wakes by itself.
    armed_ms: Cell<Option<u64>>,
    /// There is something for the task to look at.
    changed: Notify,
    ended: Cell<bool>,
}

/// A command whose coordinator has it.
pub(super) enum Asked<R> {
    Refused(ErrorCode),
    Waits {
        receiver: OneshotReceiver<Outcome>,
        /// For what is answered as soon as its records are flushed.
        deadline: Option<(Rc<Timer<R>>, Instant)>,
    },
}

impl<R: Runtime> Asked<R> {
    pub(super) fn refused(error: ErrorCode) -> Self {
        Self::Refused(error)
    }

    pub(super) async fn answer(self) -> Outcome {
        let (receiver, deadline) = match self {
            Self::Refused(error) => return Err(error),
            Self::Waits { receiver, deadline } => (receiver, deadline),
        };
        // A coordinator that ends answers everybody; a channel that is closed all the same has no other explanation.
        let answered = async { receiver.await.unwrap_or(Err(ErrorCode::NotCoordinator)) };
        let Some((timer, deadline)) = deadline else { return answered.await };
        let late = async {
            timer.at(deadline).await;
            Err(append_error(ErrorCode::RequestTimedOut))
        };
        or(answered, late).await
    }
}

/// The coordinator has ended, or is in another life.
pub(super) struct Gone;

impl<D: Disk, R: Runtime> Slot<D, R> {
    pub(super) fn new(id: PartitionId, shared: Rc<Shared<D, R>>) -> Self {
        Self {
            id,
            shared,
            machine: RefCell::default(),
            life: Cell::new(0),
            waiting: RefCell::default(),
            blocked: RefCell::default(),
            is_blocked: Cell::new(false),
            armed_ms: Cell::new(None),
            changed: Notify::new(),
            ended: Cell::new(false),
        }
    }

    /// Loads, serves, and begins anew after a failure, until [`Self::end`].
    pub(super) async fn run(self: Rc<Self>) {
        let mut wait = RELOAD_WAIT_MIN;
        while !self.ended.get() {
            let began = self.shared.partitions.runtime.now();
            self.begin_life();
            match self.load().await {
                Ok(()) => self.serve_life().await,
                Err(error) if !self.ended.get() => {
                    tracing::warn!(partition = self.id.index, %error, "group coordinator not loaded; tried again");
                    self.fail(ErrorCode::NotCoordinator);
                }
                Err(_) => {}
            }
            if self.ended.get() {
                return;
            }
            let lasted = self.shared.partitions.runtime.now().saturating_since(began);
            wait = if lasted > RELOAD_WAIT_MAX { RELOAD_WAIT_MIN } else { (wait * 2).min(RELOAD_WAIT_MAX) };
            let ended = async {
                while !self.ended.get() {
                    self.changed.notified().await;
                }
            };
            or(self.shared.partitions.timer.after(wait), ended).await;
        }
    }

    /// Hands a command over. It is carried out in part when this returns.
    pub(super) fn ask(self: &Rc<Self>, command: Command) -> Asked<R> {
        // JoinGroup and SyncGroup wait for other members, which the group bounds.
        let waits_for_others = matches!(command, Command::JoinGroup(_) | Command::SyncGroup(_));
        let now = self.now();
        let request = RequestId(self.shared.next_request.replace(self.shared.next_request.get() + 1));
        {
            let mut machine = self.machine.borrow_mut();
            let Some(machine) = machine.as_mut() else {
                return Asked::refused(ErrorCode::CoordinatorLoadInProgress);
            };
            machine.handle(now, request, command);
        }
        let (sender, receiver) = oneshot();
        self.waiting.borrow_mut().insert(request, sender);
        self.carry_out();
        let timeout = Duration::from_millis(self.shared.settings.borrow().commit_timeout_ms);
        let deadline = (!waits_for_others).then(|| {
            let timer = Rc::clone(&self.shared.partitions.timer);
            (timer, self.shared.partitions.runtime.now().saturating_add(timeout))
        });
        Asked::Waits { receiver, deadline }
    }

    pub(super) fn handle_image(
        self: &Rc<Self>,
        image: &Arc<MetadataImage>,
        delta: &MetadataDelta,
        has_new_settings: bool,
    ) {
        let now = self.now();
        if let Some(machine) = self.machine.borrow_mut().as_mut() {
            if has_new_settings {
                machine.update_settings(self.shared.settings.borrow().groups.clone());
            }
            machine.handle_image(now, Arc::clone(image), delta);
        }
        self.carry_out();
    }

    /// Answers everybody who waits; the task ends.
    pub(super) fn end(&self) {
        self.ended.set(true);
        self.fail(ErrorCode::NotCoordinator);
    }

    pub(super) fn now(&self) -> Now {
        let runtime = &self.shared.partitions.runtime;
        let timer_ms = u64::try_from(runtime.now().since_start().as_millis()).unwrap_or(u64::MAX);
        Now { timer_ms, wall_ms: runtime.wall_clock_ms() }
    }

    pub(super) fn life(&self) -> u64 {
        self.life.get()
    }

    /// The machine, unless it is not that of `life` any more.
    pub(super) fn with_machine<T>(&self, life: u64, look: impl FnOnce(&mut GroupCoordinator) -> T) -> Result<T, Gone> {
        let mut machine = self.machine.borrow_mut();
        match machine.as_mut() {
            Some(machine) if self.life.get() == life => Ok(look(machine)),
            Some(_) | None => Err(Gone),
        }
    }

    /// Does what the machine wants done, up to an append that has to wait, and has the task wake for its next deadline.
    pub(super) fn carry_out(self: &Rc<Self>) {
        while !self.is_blocked.get() {
            let effect = self.machine.borrow_mut().as_mut().and_then(GroupCoordinator::poll_effect);
            match effect {
                Some(Effect::Append { base_offset, timestamp_ms, records }) => {
                    self.append(base_offset, timestamp_ms, &records);
                }
                Some(Effect::Reply { request, reply }) => self.answer(request, Ok(reply)),
                Some(Effect::ResolveRegexes { group_id, regexes, .. }) => self.resolve_regexes(group_id, regexes),
                None => break,
            }
        }
        let deadline_ms = self.machine.borrow().as_ref().and_then(GroupCoordinator::next_deadline_ms);
        if let Some(deadline_ms) = deadline_ms
            && self.armed_ms.get().is_none_or(|armed_ms| deadline_ms < armed_ms)
        {
            self.changed.notify_all();
        }
    }

    fn begin_life(&self) {
        let settings = self.shared.settings.borrow().groups.clone();
        let image = Arc::clone(&self.shared.image.borrow());
        let machine = GroupCoordinator::new(settings, image, self.now());
        self.life.set(self.life.get() + 1);
        *self.machine.borrow_mut() = Some(machine);
    }

    /// Until the coordinator fails or ends.
    async fn serve_life(self: &Rc<Self>) {
        let life = self.life.get();
        let Some(partition) = self.shared.partitions.find(self.id) else {
            return self.fail(ErrorCode::NotCoordinator);
        };
        let waiter = Rc::new(Waiter::default());
        let _interest = partition.watch(&waiter);
        drop(partition);
        loop {
            let changed = self.changed.notified();
            if self.look(life).is_err() {
                return;
            }
            let blocked = self.blocked.borrow_mut().take();
            if let Some(place) = blocked {
                self.append_in_turn(life, place).await;
                continue;
            }
            let Ok(deadline_ms) = self.with_machine(life, |machine| machine.next_deadline_ms()) else { return };
            self.armed_ms.set(deadline_ms);
            let due = async {
                match deadline_ms {
                    Some(deadline_ms) => {
                        self.shared.partitions.timer.at(Instant::from_start(Duration::from_millis(deadline_ms))).await;
                    }
                    None => std::future::pending().await,
                }
            };
            let moved = async {
                waiter.next().await;
            };
            or(or(changed, moved), due).await;
        }
    }

    /// Lets the machine know how far its records are durable, and what time it is.
    fn look(self: &Rc<Self>, life: u64) -> Result<(), Gone> {
        let partition = match self.shared.partitions.leader(self.id) {
            Ok(partition) if partition.log.offline().is_none() => partition,
            Ok(_) => {
                self.fail(append_error(ErrorCode::KafkaStorageError));
                return Err(Gone);
            }
            Err(error) => {
                self.fail(append_error(error));
                return Err(Gone);
            }
        };
        let (now, committed_end_offset) = (self.now(), partition.high_watermark());
        self.with_machine(life, |machine| {
            machine.handle_committed(committed_end_offset);
            if machine.next_deadline_ms().is_some_and(|deadline_ms| deadline_ms <= now.timer_ms) {
                machine.tick(now);
            }
        })?;
        self.carry_out();
        self.with_machine(life, |_| ())
    }

    fn append(self: &Rc<Self>, base_offset: i64, timestamp_ms: i64, records: &[EncodedRecord]) {
        let batch = match self.batch(base_offset, timestamp_ms, records) {
            Ok(batch) => batch,
            Err(error) => {
                tracing::error!(partition = self.id.index, error, "records of groups do not fit into a batch");
                return self.fail(ErrorCode::UnknownServerError);
            }
        };
        match self.shared.partitions.append_internal(self.id, batch) {
            Ok(InternalAppend::Done) => {}
            Ok(InternalAppend::Waits(place)) => {
                self.is_blocked.set(true);
                *self.blocked.borrow_mut() = Some(place);
                self.changed.notify_all();
            }
            Err(error) => self.append_failed(error),
        }
    }

    async fn append_in_turn(self: &Rc<Self>, life: u64, place: InternalPlace<D, R>) {
        let mut appending = pin!(self.shared.partitions.append_internal_in_turn(self.id, place));
        let appended = loop {
            let changed = self.changed.notified();
            if self.with_machine(life, |_| ()).is_err() {
                // It was not appended, and is not wanted any more.
                return;
            }
            let appended = async { Some((&mut appending).await) };
            let looked = async {
                changed.await;
                None
            };
            if let Some(appended) = or(appended, looked).await {
                break appended;
            }
        };
        match appended {
            Ok(()) => {
                self.is_blocked.set(false);
                self.carry_out();
            }
            Err(error) => self.append_failed(error),
        }
    }

    fn append_failed(&self, error: ErrorCode) {
        tracing::warn!(partition = self.id.index, %error, "records of groups not appended; their coordinator is loaded anew");
        self.fail(append_error(error));
    }

    fn batch(&self, base_offset: i64, timestamp: i64, records: &[EncodedRecord]) -> Result<ValidBatch, String> {
        let compression = self.shared.settings.borrow().compression;
        let mut builder = BatchBuilder::new(BatchOptions { base_offset, compression, ..BatchOptions::default() });
        for record in records {
            let record = NewRecord { timestamp, key: Some(&record.key), value: record.value.as_deref(), headers: &[] };
            builder.append(&record).map_err(|error| error.to_string())?;
        }
        let bytes = builder.build().map_err(|error| error.to_string())?;
        ValidBatch::from_trusted(BytesMut::from(&bytes[..])).map_err(|error| error.to_string())
    }

    fn answer(&self, request: RequestId, outcome: Outcome) {
        let Some(sender) = self.waiting.borrow_mut().remove(&request) else { return };
        // Who asked may have given up.
        drop(sender.send(outcome));
    }

    fn resolve_regexes(self: &Rc<Self>, group_id: Arc<str>, regexes: std::collections::BTreeSet<Arc<str>>) {
        let Some(guard) = self.shared.tasks.enter() else { return };
        let job = RegexJob { regexes, image: Arc::clone(&self.shared.image.borrow()), wall_ms: self.now().wall_ms };
        let resolving = (self.shared.resolver)(job);
        let (slot, life) = (Rc::clone(self), self.life.get());
        self.shared.partitions.runtime.spawn(async move {
            let resolved = resolving.await;
            let now = slot.now();
            let told = slot.with_machine(life, |machine| machine.handle_regexes_resolved(now, &group_id, resolved));
            if told.is_ok() {
                slot.carry_out();
            }
            drop(guard);
        });
    }

    /// Gives the machine up and tells everybody who waits. Unless the coordinator has ended its log is loaded anew, for the state was
    /// ahead of it.
    fn fail(&self, error: ErrorCode) {
        self.is_blocked.set(false);
        self.blocked.borrow_mut().take();
        self.armed_ms.set(None);
        let machine = self.machine.borrow_mut().take();
        for (request, reply) in machine.into_iter().flat_map(|machine| machine.unload(error)) {
            self.answer(request, Ok(reply));
        }
        // Every command has its one reply; whoever is left has given up.
        self.waiting.borrow_mut().clear();
        self.changed.notify_all();
    }
}

/// Why a log could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoadError {
    #[error("{}", .0.name())]
    Partition(ErrorCode),
    #[error("{}: {}", .0.code.name(), .0.message.as_deref().unwrap_or_default())]
    Refused(Refusal),
    #[error("a batch of the log cannot be read: {0}")]
    Batch(String),
    #[error("the coordinator has ended")]
    Gone,
}

impl From<Gone> for LoadError {
    fn from(Gone: Gone) -> Self {
        Self::Gone
    }
}

//! The leader of one partition: what it accepts, how far it is committed, and who is told.
//!
//! Inputs: appends and flushes of the own log, fetches of followers, changes of the in-sync set, the open transactions' lowest
//! offset, timeouts, the end of the leadership. Effects, in the order in which they must happen: the high watermark
//! moves, produce requests are answered, fetches are woken.
//!
//! Invariants, checked by [`Leader::verify`]:
//! - log start <= high watermark <= flushed end of every in-sync replica; own flushed end <= own log end;
//! - the high watermark of one leadership never goes back, nor does what was acknowledged;
//! - last stable offset = min(first unstable offset, high watermark);
//! - no waiter waits for what has been reached already.
//!
//! | waiter asks for | completes when |
//! | --- | --- |
//! | acks=1 | the own flushed end has reached the append's end |
//! | acks=all | the high watermark has, and the in-sync set is still large enough, else "not enough replicas after append" |
//! | either | its timeout comes, the leadership ends or the log fails: with that error; the append may still survive |
//!
//! Offsets named `*_end` are exclusive. "Flushed" stands for the topic's durability level: what
//! `walser.durability=written` or `memory` promises less than a flush reports its level here as flushed.

use std::collections::{BTreeMap, VecDeque};

use thiserror::Error;

use crate::ids::{BrokerId, LeaderEpoch};

/// Names one waiting produce request of this partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(pub u64);

/// What a producer waits for. acks=0 waits for nothing and never comes here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequiredAcks {
    Leader,
    All,
}

/// What the driver has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Consumers may read up to here; the number is for the checkpoint and for followers too.
    AdvanceHighWatermark(i64),
    CompleteProduce {
        waiter: WaiterId,
        result: Result<(), ProduceFailure>,
    },
    /// More can be read, or the same has another meaning: whoever waits on this partition looks again. For consumers that
    /// read committed or not, and for followers.
    WakeFetches,
}

/// Why a produce request that was appended is not answered with success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ProduceFailure {
    #[error("{in_sync} replicas are in sync after the append, {required} are required")]
    NotEnoughReplicasAfterAppend { in_sync: usize, required: usize },
    #[error("the append was not committed in time")]
    TimedOut,
    #[error("the leadership ended before the append was committed")]
    NotLeader,
    #[error("the log failed before the append was flushed")]
    Storage,
}

/// Why an append is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AppendRefusal {
    #[error("{in_sync} replicas are in sync, {required} are required")]
    NotEnoughReplicas { in_sync: usize, required: usize },
    #[error("the log has failed")]
    Storage,
    #[error("the leadership has ended")]
    NotLeader,
}

/// The epoch in a request is not that of the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EpochMismatch {
    /// The client's metadata are old.
    #[error("leader epoch {given} is older than {current}")]
    Fenced { given: i32, current: LeaderEpoch },
    /// The client knows a leadership this broker has not heard of yet.
    #[error("leader epoch {given} is newer than {current}")]
    Unknown { given: i32, current: LeaderEpoch },
}

/// `given`: the current leader epoch of a request; -1 asks for no check (KIP-320).
pub fn verify_leader_epoch(current: LeaderEpoch, given: i32) -> Result<(), EpochMismatch> {
    match given {
        -1 => Ok(()),
        given if given < current.get() => Err(EpochMismatch::Fenced { given, current }),
        given if given > current.get() => Err(EpochMismatch::Unknown { given, current }),
        _ => Ok(()),
    }
}

/// Who counts for the high watermark, as of one partition epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InSyncReplicas {
    pub partition_epoch: i32,
    /// The leader among them.
    pub replicas: Vec<BrokerId>,
}

/// What a leadership begins with.
#[derive(Clone, Debug)]
pub struct LeaderStart {
    pub broker_id: BrokerId,
    pub leader_epoch: LeaderEpoch,
    pub in_sync: InSyncReplicas,
    /// `min.insync.replicas` of the topic.
    pub min_in_sync_replicas: usize,
    pub log_start: i64,
    pub log_end: i64,
    /// How much of the log is flushed; after a restart all that was recovered.
    pub flushed_end: i64,
    /// The last one known, from the checkpoint.
    pub high_watermark: i64,
}

/// The machine; one per leadership, dropped with it.
#[derive(Debug)]
pub struct Leader {
    broker_id: BrokerId,
    leader_epoch: LeaderEpoch,
    partition_epoch: i32,
    min_in_sync_replicas: usize,
    log_start: i64,
    log_end: i64,
    /// Flushed end of every in-sync replica, the own one included.
    in_sync: BTreeMap<BrokerId, i64>,
    /// Log ends of followers that are not in sync; they may become so.
    catching_up: BTreeMap<BrokerId, i64>,
    high_watermark: i64,
    /// Where the first open transaction begins.
    first_unstable: Option<i64>,
    state: State,
    /// Sorted by the end they wait for, because appends only go up; per kind of acks.
    waiting_for_leader: VecDeque<Waiter>,
    waiting_for_all: VecDeque<Waiter>,
    effects: VecDeque<Effect>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Leading,
    Failed,
    Resigned,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    id: WaiterId,
    end: i64,
}

impl Leader {
    /// With nobody else in sync the high watermark is at once what is flushed.
    pub fn new(start: LeaderStart) -> Self {
        let LeaderStart { broker_id, in_sync, log_start, log_end, flushed_end, .. } = start;
        assert!(flushed_end <= log_end, "flushed to {flushed_end} of {log_end}");
        assert!(in_sync.replicas.contains(&broker_id), "a leader is in sync with itself");
        // Followers are known only when they fetch; until then they hold the high watermark where it was.
        let replica_end = |id: BrokerId| if id == broker_id { flushed_end } else { log_start.min(flushed_end) };
        let mut leader = Self {
            broker_id,
            leader_epoch: start.leader_epoch,
            partition_epoch: in_sync.partition_epoch,
            min_in_sync_replicas: start.min_in_sync_replicas,
            log_start,
            log_end,
            in_sync: in_sync.replicas.iter().map(|id| (*id, replica_end(*id))).collect(),
            catching_up: BTreeMap::new(),
            high_watermark: start.high_watermark.clamp(log_start.min(flushed_end), flushed_end),
            first_unstable: None,
            state: State::Leading,
            waiting_for_leader: VecDeque::new(),
            waiting_for_all: VecDeque::new(),
            effects: VecDeque::new(),
        };
        leader.advance_high_watermark();
        leader
    }

    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.leader_epoch
    }

    pub fn high_watermark(&self) -> i64 {
        self.high_watermark
    }

    /// What consumers that read committed data may read.
    pub fn last_stable_offset(&self) -> i64 {
        self.first_unstable.map_or(self.high_watermark, |first| first.min(self.high_watermark))
    }

    pub fn log_start(&self) -> i64 {
        self.log_start
    }

    pub fn log_end(&self) -> i64 {
        self.log_end
    }

    pub fn in_sync_replicas(&self) -> impl Iterator<Item = BrokerId> {
        self.in_sync.keys().copied()
    }

    /// Whether an append may begin. Only acks=all cares how many replicas are in sync.
    pub fn verify_append(&self, acks: Option<RequiredAcks>) -> Result<(), AppendRefusal> {
        match self.state {
            State::Leading => {}
            State::Failed => return Err(AppendRefusal::Storage),
            State::Resigned => return Err(AppendRefusal::NotLeader),
        }
        let (in_sync, required) = (self.in_sync.len(), self.min_in_sync_replicas);
        if acks == Some(RequiredAcks::All) && in_sync < required {
            return Err(AppendRefusal::NotEnoughReplicas { in_sync, required });
        }
        Ok(())
    }

    /// The own log has grown to `log_end`; followers may have the records already, consumers not.
    pub fn handle_appended(&mut self, log_end: i64) {
        assert!(log_end >= self.log_end, "the log of a leader only grows");
        if log_end == self.log_end {
            return;
        }
        self.log_end = log_end;
        if self.in_sync.len() > 1 || !self.catching_up.is_empty() {
            self.effects.push_back(Effect::WakeFetches);
        }
    }

    /// A produce request waits until `end` is safe. Completes at once when it is.
    pub fn handle_waiting(&mut self, waiter: WaiterId, end: i64, acks: RequiredAcks) {
        assert!(end <= self.log_end, "waiting for {end}, the log ends at {}", self.log_end);
        match self.state {
            State::Leading => {}
            State::Failed => return self.complete(waiter, Err(ProduceFailure::Storage)),
            State::Resigned => return self.complete(waiter, Err(ProduceFailure::NotLeader)),
        }
        let queue = match acks {
            RequiredAcks::Leader => &mut self.waiting_for_leader,
            RequiredAcks::All => &mut self.waiting_for_all,
        };
        // A duplicate of an earlier batch waits for that batch's end, which may be below the ends that wait already.
        let position = queue.partition_point(|known| known.end <= end);
        queue.insert(position, Waiter { id: waiter, end });
        self.complete_reached();
    }

    /// The own log is flushed up to `flushed_end`.
    pub fn handle_flushed(&mut self, flushed_end: i64) {
        assert!(flushed_end <= self.log_end, "flushed to {flushed_end}, the log ends at {}", self.log_end);
        if self.state != State::Leading {
            return;
        }
        if let Some(known) = self.in_sync.get_mut(&self.broker_id) {
            *known = (*known).max(flushed_end);
        }
        self.advance_high_watermark();
        self.complete_reached();
    }

    /// A follower asks for what comes at `fetch_offset`, so it has everything below, flushed. Ends above the own log are of another
    /// leadership and are ignored.
    pub fn handle_replica_fetched(&mut self, replica: BrokerId, fetch_offset: i64) {
        if self.state != State::Leading || fetch_offset > self.log_end || replica == self.broker_id {
            return;
        }
        match self.in_sync.get_mut(&replica) {
            Some(known) => *known = (*known).max(fetch_offset),
            None => {
                let known = self.catching_up.entry(replica).or_insert(fetch_offset);
                *known = (*known).max(fetch_offset);
                return;
            }
        }
        self.advance_high_watermark();
        self.complete_reached();
    }

    /// The controller has changed who is in sync. Older partition epochs than the known one are ignored.
    pub fn handle_in_sync_changed(&mut self, in_sync: &InSyncReplicas) {
        if self.state != State::Leading || in_sync.partition_epoch <= self.partition_epoch {
            return;
        }
        assert!(in_sync.replicas.contains(&self.broker_id), "a leader is in sync with itself");
        self.partition_epoch = in_sync.partition_epoch;
        let before = std::mem::take(&mut self.in_sync);
        for id in &in_sync.replicas {
            let known = before.get(id).or_else(|| self.catching_up.get(id)).copied();
            self.in_sync.insert(*id, known.unwrap_or(self.log_start));
            self.catching_up.remove(id);
        }
        for (id, end) in before {
            if !self.in_sync.contains_key(&id) {
                self.catching_up.insert(id, end);
            }
        }
        self.advance_high_watermark();
        self.complete_reached();
    }

    pub fn handle_min_in_sync_replicas(&mut self, min_in_sync_replicas: usize) {
        self.min_in_sync_replicas = min_in_sync_replicas;
    }

    /// `first_unstable`: where the first open transaction begins; `None`: none is open.
    pub fn handle_first_unstable(&mut self, first_unstable: Option<i64>) {
        let before = self.last_stable_offset();
        self.first_unstable = first_unstable;
        if self.last_stable_offset() > before {
            self.effects.push_back(Effect::WakeFetches);
        }
    }

    /// Records below `log_start` are gone: retention, or a client that deleted them, at most up to the high watermark.
    pub fn handle_log_start(&mut self, log_start: i64) {
        assert!(log_start <= self.high_watermark, "{log_start} is above the high watermark");
        if log_start > self.log_start {
            self.log_start = log_start;
            self.effects.push_back(Effect::WakeFetches);
        }
    }

    /// Its time is over. It may have completed already.
    pub fn handle_timeout(&mut self, waiter: WaiterId) {
        for queue in [&mut self.waiting_for_leader, &mut self.waiting_for_all] {
            if let Some(position) = queue.iter().position(|known| known.id == waiter) {
                queue.remove(position);
                self.effects.push_back(Effect::CompleteProduce { waiter, result: Err(ProduceFailure::TimedOut) });
                return;
            }
        }
    }

    /// A write or a flush has failed: what was not flushed may be lost, and no later flush says otherwise. What consumers can see
    /// stays visible; nothing is accepted any more.
    pub fn handle_failed(&mut self) {
        if self.state == State::Leading {
            self.state = State::Failed;
            self.fail_waiters(ProduceFailure::Storage);
        }
    }

    /// Somebody else leads, or nobody, or the topic is gone.
    pub fn handle_resigned(&mut self) {
        if self.state != State::Resigned {
            self.state = State::Resigned;
            self.fail_waiters(ProduceFailure::NotLeader);
        }
    }

    /// What to do next; `None`: nothing.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Walks the whole state.
    ///
    /// # Panics
    /// When an invariant does not hold.
    pub fn verify(&self) {
        assert!(self.log_start <= self.high_watermark || self.high_watermark == self.own_flushed_end());
        assert!(self.own_flushed_end() <= self.log_end);
        assert!(self.last_stable_offset() <= self.high_watermark);
        assert!(self.waiting_for_leader.iter().all(|waiter| waiter.end > self.own_flushed_end()));
        assert!(self.waiting_for_all.iter().all(|waiter| waiter.end > self.high_watermark));
        assert!(self.state == State::Leading || self.waiting_for_leader.len() + self.waiting_for_all.len() == 0);
    }

    fn own_flushed_end(&self) -> i64 {
        self.in_sync.get(&self.broker_id).copied().unwrap_or(self.log_start)
    }

    fn advance_high_watermark(&mut self) {
        let Some(slowest) = self.in_sync.values().min().copied() else { return };
        if slowest <= self.high_watermark {
            return;
        }
        self.high_watermark = slowest;
        self.effects.push_back(Effect::AdvanceHighWatermark(slowest));
        self.effects.push_back(Effect::WakeFetches);
    }

    fn complete_reached(&mut self) {
        let own = self.own_flushed_end();
        while let Some(id) = pop_reached(&mut self.waiting_for_leader, own) {
            self.complete(id, Ok(()));
        }
        let (in_sync, required) = (self.in_sync.len(), self.min_in_sync_replicas);
        let result = if in_sync < required {
            Err(ProduceFailure::NotEnoughReplicasAfterAppend { in_sync, required })
        } else {
            Ok(())
        };
        let committed = self.high_watermark;
        while let Some(id) = pop_reached(&mut self.waiting_for_all, committed) {
            self.complete(id, result);
        }
    }

    fn fail_waiters(&mut self, failure: ProduceFailure) {
        let waiters = std::mem::take(&mut self.waiting_for_leader).into_iter();
        let waiters: Vec<Waiter> = waiters.chain(std::mem::take(&mut self.waiting_for_all)).collect();
        for waiter in waiters {
            self.complete(waiter.id, Err(failure));
        }
        self.effects.push_back(Effect::WakeFetches);
    }

    fn complete(&mut self, waiter: WaiterId, result: Result<(), ProduceFailure>) {
        self.effects.push_back(Effect::CompleteProduce { waiter, result });
    }
}

/// The first waiter, if what it waits for has been reached.
fn pop_reached(queue: &mut VecDeque<Waiter>, reached: i64) -> Option<WaiterId> {
    let first = queue.front().copied().filter(|waiter| waiter.end <= reached)?;
    queue.pop_front();
    Some(first.id)
}

#[cfg(test)]
mod tests;

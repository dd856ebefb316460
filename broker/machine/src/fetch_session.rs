//! Incremental fetch sessions (KIP-227): what a consumer fetches is remembered, so that its requests and the answers carry
//! only what changed.
//!
//! One cache per shard, for sessions that connections of that shard began; the id of a session says which shard that was
//! ([`IdRanges`]), for a client may come back on another. Inputs: [`FetchSessions::begin`] when a request has been
//! decoded, [`FetchSessions::finish`] when its partitions have been read. Invariants: the session epoch of a session is the
//! one its next request must carry; a partition is answered when it has data, an error or moved offsets; a partition that
//! gave data to an incremental request goes to the back of the line, so that a busy one cannot starve the others.
//!
//! | request epoch | session id | result |
//! |---|---|---|
//! | -1 | any | no session; one of that id is closed |
//! | 0 | any | a new session where there is room; one of that id is closed |
//! | n | known, epoch n expected | incremental |
//! | n | known, other epoch | `InvalidFetchSessionEpoch` |
//! | n | unknown | `FetchSessionIdNotFound` |

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use crate::ids::Uuid;

/// A session younger than this, or used within it, is not evicted.
const EVICTION_AGE: Duration = Duration::from_secs(120);
/// The session epoch of a request without a session.
pub const FINAL_EPOCH: i32 = -1;
/// The session epoch of a request that wants a new session.
pub const INITIAL_EPOCH: i32 = 0;
/// What a response without a session carries.
pub const NO_SESSION: i32 = 0;

/// A topic as the request names it: by id from version 13 on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TopicKey {
    Name(Arc<str>),
    Id(Uuid),
}

/// A partition as the request names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FetchKey {
    pub topic: TopicKey,
    pub partition_index: i32,
}

/// What is wanted of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchWish {
    pub fetch_offset: i64,
    pub partition_max_bytes: i32,
    pub current_leader_epoch: i32,
    pub last_fetched_epoch: i32,
}

/// The session part of a request.
#[derive(Clone, Debug)]
pub struct SessionRequest {
    pub session_id: i32,
    pub session_epoch: i32,
    pub uses_topic_ids: bool,
    /// In the order of the request.
    pub partitions: Vec<(FetchKey, FetchWish)>,
    pub forgotten: Vec<FetchKey>,
}

impl SessionRequest {
    /// Begins a session or goes without one; one that it names is closed.
    pub fn is_full(&self) -> bool {
        self.session_epoch == FINAL_EPOCH || self.session_epoch == INITIAL_EPOCH
    }
}

/// What was read of one partition, as far as sessions care.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedState {
    pub has_records: bool,
    pub high_watermark: i64,
    pub log_start_offset: i64,
    /// An error, a diverging epoch or a preferred replica: always told.
    pub must_respond: bool,
    pub is_error: bool,
    /// Where the topic goes by id and is known: its name.
    pub topic_name: Option<Arc<str>>,
}

/// Why an incremental request is refused as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionError {
    IdNotFound,
    InvalidEpoch,
    /// The session was made with names and is used with ids, or the reverse.
    TopicIdError,
}

/// What kind of answer a request gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Sessionless,
    Full { uses_topic_ids: bool },
    Incremental { session_id: i32 },
}

/// A request in the works.
#[derive(Clone, Debug)]
pub struct FetchContext {
    kind: Kind,
    /// What to read, in this order, which is that of the answer and of a session that begins.
    pub partitions: Vec<(FetchKey, FetchWish)>,
    /// Of an incremental request, for each partition: the name under which the session has once known the id of its topic.
    /// A topic that is gone since is told otherwise than an id nobody knows.
    pub known_as: Vec<Option<Arc<str>>>,
}

impl FetchContext {
    /// The session that the request goes on with.
    pub fn session_id(&self) -> Option<i32> {
        match self.kind {
            Kind::Incremental { session_id } => Some(session_id),
            Kind::Sessionless | Kind::Full { .. } => None,
        }
    }
}

/// The ids of sessions dealt to several caches, in ranges of equal length.
#[derive(Clone, Copy, Debug)]
pub struct IdRanges {
    caches: i32,
}

impl IdRanges {
    /// # Panics
    /// When there is no cache.
    pub fn new(caches: u16) -> Self {
        assert!(caches > 0, "at least one cache");
        Self { caches: i32::from(caches) }
    }

    /// What the cache at `place` may give away.
    pub fn of(self, place: u16) -> RangeInclusive<i32> {
        let first = 1 + i32::from(place) * self.width();
        first..=first - 1 + self.width()
    }

    /// The cache that may have given this id away; `None` when none has.
    pub fn place_of(self, session_id: i32) -> Option<u16> {
        let place = session_id.checked_sub(1).filter(|left| *left >= 0)? / self.width();
        u16::try_from(place).ok().filter(|_| place < self.caches)
    }

    fn width(self) -> i32 {
        i32::MAX / self.caches
    }
}

/// Which partitions go into the response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionAnswer {
    /// [`NO_SESSION`] where there is none.
    pub session_id: i32,
    /// One for each partition of the context, in its order.
    pub include: Vec<bool>,
}

struct CachedPartition {
    key: FetchKey,
    wish: FetchWish,
    /// As last told; -1 when nothing was, or after an error.
    high_watermark: i64,
    log_start_offset: i64,
    known_as: Option<Arc<str>>,
}

struct Session {
    /// What the next request must carry.
    next_epoch: i32,
    uses_topic_ids: bool,
    created_at: Duration,
    used_at: Duration,
    /// By place in line.
    partitions: BTreeMap<u64, CachedPartition>,
    places: BTreeMap<FetchKey, u64>,
    next_place: u64,
}

impl Session {
    fn put(&mut self, key: FetchKey, wish: FetchWish) {
        if let Some(cached) = self.places.get(&key).and_then(|place| self.partitions.get_mut(place)) {
            cached.wish = wish;
            return;
        }
        let place = self.take_place();
        self.places.insert(key.clone(), place);
        let fresh = CachedPartition { key, wish, high_watermark: -1, log_start_offset: -1, known_as: None };
        self.partitions.insert(place, fresh);
    }

    fn forget(&mut self, key: &FetchKey) {
        if let Some(place) = self.places.remove(key) {
            self.partitions.remove(&place);
        }
    }

    fn take_place(&mut self) -> u64 {
        self.next_place += 1;
        self.next_place
    }

    /// Whether the partition must be told, and notes that it was.
    fn note(&mut self, key: &FetchKey, fetched: &FetchedState) -> bool {
        let Some(cached) = self.places.get(key).and_then(|place| self.partitions.get_mut(place)) else {
            return fetched.must_respond || fetched.has_records;
        };
        if cached.known_as.is_none() {
            cached.known_as.clone_from(&fetched.topic_name);
        }
        let has_moved = cached.high_watermark != fetched.high_watermark
            || cached.log_start_offset != fetched.log_start_offset
            || fetched.has_records
            || fetched.must_respond;
        if has_moved {
            // After an error the next good answer is told whatever its offsets are.
            cached.high_watermark = if fetched.is_error { -1 } else { fetched.high_watermark };
            cached.log_start_offset = fetched.log_start_offset;
        }
        has_moved
    }

    /// To the end of the line.
    fn move_back(&mut self, key: &FetchKey) {
        if let Some(cached) = self.places.get(key).and_then(|place| self.partitions.remove(place)) {
            let place = self.take_place();
            self.places.insert(key.clone(), place);
            self.partitions.insert(place, cached);
        }
    }
}

/// The sessions of one shard.
pub struct FetchSessions {
    slots_max: usize,
    /// What this cache may give away.
    ids: RangeInclusive<i32>,
    partitions_max: usize,
    /// Of all sessions together.
    partition_count: usize,
    sessions: BTreeMap<i32, Session>,
    /// State of the generator of session ids.
    id_state: u64,
}

impl FetchSessions {
    /// `slots_max`: this shard's part of `max.incremental.fetch.session.cache.slots`. `partitions_max`: what all sessions
    /// together may remember, which Kafka does not bound. `seed` makes ids hard to guess. There are never as many sessions as
    /// ids, so that a free one is found soon.
    pub fn new(slots_max: usize, partitions_max: usize, ids: RangeInclusive<i32>, seed: u64) -> Self {
        let half = usize::try_from(ids.end().saturating_sub(*ids.start()) / 2).unwrap_or(0);
        let slots_max = slots_max.min(half);
        Self { slots_max, ids, partitions_max, partition_count: 0, sessions: BTreeMap::new(), id_state: seed }
    }

    /// Sessions at present.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Ends a session, if it is there.
    pub fn close(&mut self, session_id: i32) {
        if let Some(session) = self.sessions.remove(&session_id) {
            self.partition_count -= session.partitions.len();
        }
    }

    /// Finds out what to read for a request. `now`: time since an arbitrary start.
    pub fn begin(&mut self, request: SessionRequest, now: Duration) -> Result<FetchContext, SessionError> {
        let is_full = request.is_full();
        let SessionRequest { session_id, session_epoch, uses_topic_ids, partitions, forgotten } = request;
        if is_full {
            self.close(session_id);
            let kind = if session_epoch == INITIAL_EPOCH { Kind::Full { uses_topic_ids } } else { Kind::Sessionless };
            return Ok(FetchContext { kind, partitions, known_as: Vec::new() });
        }
        let session = self.sessions.get_mut(&session_id).ok_or(SessionError::IdNotFound)?;
        if session.next_epoch != session_epoch {
            return Err(SessionError::InvalidEpoch);
        }
        if session.uses_topic_ids != uses_topic_ids {
            return Err(SessionError::TopicIdError);
        }
        let before = session.partitions.len();
        for (key, wish) in &partitions {
            session.put(key.clone(), *wish);
        }
        for key in &forgotten {
            session.forget(key);
        }
        session.used_at = now;
        let (is_empty, after) = (session.partitions.is_empty(), session.partitions.len());
        self.partition_count = self.partition_count - before + after;
        if is_empty {
            self.close(session_id);
            // What was asked for and forgotten at once is answered all the same.
            return Ok(FetchContext { kind: Kind::Sessionless, partitions, known_as: Vec::new() });
        }
        if self.partition_count > self.partitions_max {
            // The client begins again, and goes without a session when there is no room for it.
            self.close(session_id);
            return Err(SessionError::IdNotFound);
        }
        let session = self.sessions.get_mut(&session_id).ok_or(SessionError::IdNotFound)?;
        session.next_epoch = next_epoch(session_epoch);
        let partitions = session.partitions.values().map(|cached| (cached.key.clone(), cached.wish)).collect();
        let known_as = session.partitions.values().map(|cached| cached.known_as.clone()).collect();
        Ok(FetchContext { kind: Kind::Incremental { session_id }, partitions, known_as })
    }

    /// Decides what the response carries. `fetched`: one for each partition of the context, in its order.
    pub fn finish(&mut self, context: &FetchContext, fetched: &[FetchedState], now: Duration) -> SessionAnswer {
        assert_eq!(context.partitions.len(), fetched.len(), "every partition was read");
        match context.kind {
            Kind::Sessionless => SessionAnswer { session_id: NO_SESSION, include: vec![true; fetched.len()] },
            Kind::Full { uses_topic_ids } => {
                let session_id = self.create(context, fetched, uses_topic_ids, now).unwrap_or(NO_SESSION);
                SessionAnswer { session_id, include: vec![true; fetched.len()] }
            }
            Kind::Incremental { session_id } => {
                let Some(session) = self.sessions.get_mut(&session_id) else {
                    // Closed meanwhile by a later request: what was read is still an answer.
                    return SessionAnswer { session_id, include: vec![true; fetched.len()] };
                };
                let mut include = Vec::with_capacity(fetched.len());
                for ((key, _), state) in context.partitions.iter().zip(fetched) {
                    include.push(session.note(key, state));
                    if state.has_records {
                        session.move_back(key);
                    }
                }
                SessionAnswer { session_id, include }
            }
        }
    }

    fn create(
        &mut self,
        context: &FetchContext,
        fetched: &[FetchedState],
        uses_topic_ids: bool,
        now: Duration,
    ) -> Option<i32> {
        // One without partitions is one too: its next request may bring some.
        if !self.make_room(context.partitions.len(), now) {
            return None;
        }
        let mut session = Session {
            next_epoch: 1,
            uses_topic_ids,
            created_at: now,
            used_at: now,
            partitions: BTreeMap::new(),
            places: BTreeMap::new(),
            next_place: 0,
        };
        // All in the order of the answer: who gave data in it comes first again.
        for ((key, wish), state) in context.partitions.iter().zip(fetched) {
            session.put(key.clone(), *wish);
            session.note(key, state);
        }
        let session_id = self.new_id();
        self.partition_count += session.partitions.len();
        self.sessions.insert(session_id, session);
        Some(session_id)
    }

    /// Evicts one session when there are too many: one not used for long, or one smaller than the newcomer that is not
    /// young any more.
    fn make_room(&mut self, newcomer_partitions: usize, now: Duration) -> bool {
        let fits = |count: usize| count.saturating_add(newcomer_partitions) <= self.partitions_max;
        if self.sessions.len() < self.slots_max && fits(self.partition_count) {
            return true;
        }
        let idle = self
            .sessions
            .iter()
            .filter(|(_, session)| now.saturating_sub(session.used_at) >= EVICTION_AGE)
            .min_by_key(|(_, session)| session.used_at);
        let smaller = || {
            self.sessions
                .iter()
                .filter(|(_, session)| {
                    now.saturating_sub(session.created_at) >= EVICTION_AGE
                        && session.partitions.len() < newcomer_partitions
                })
                .min_by_key(|(_, session)| session.partitions.len())
        };
        let Some((&session_id, evicted)) = idle.or_else(smaller) else { return false };
        if !fits(self.partition_count - evicted.partitions.len()) {
            return false;
        }
        self.close(session_id);
        true
    }

    /// Not in use.
    fn new_id(&mut self) -> i32 {
        let (first, count) = (*self.ids.start(), self.ids.end() - self.ids.start() + 1);
        loop {
            self.id_state =
                self.id_state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let id = first + i32::try_from(self.id_state >> 33).unwrap_or(0) % count;
            if !self.sessions.contains_key(&id) {
                return id;
            }
        }
    }
}

/// Wraps to 1: 0 and -1 mean something else.
fn next_epoch(epoch: i32) -> i32 {
    epoch.checked_add(1).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(1000);

    fn cache(slots_max: usize) -> FetchSessions {
        FetchSessions::new(slots_max, 1000, IdRanges::new(1).of(0), 1)
    }

    fn key(partition_index: i32) -> FetchKey {
        FetchKey { topic: TopicKey::Name("t".into()), partition_index }
    }

    fn wish(fetch_offset: i64) -> FetchWish {
        FetchWish { fetch_offset, partition_max_bytes: 100, current_leader_epoch: -1, last_fetched_epoch: -1 }
    }

    fn request(session_id: i32, session_epoch: i32, partitions: &[(i32, i64)]) -> SessionRequest {
        let partitions = partitions.iter().map(|(index, offset)| (key(*index), wish(*offset))).collect();
        SessionRequest { session_id, session_epoch, uses_topic_ids: false, partitions, forgotten: Vec::new() }
    }

    fn quiet(high_watermark: i64) -> FetchedState {
        FetchedState {
            has_records: false,
            high_watermark,
            log_start_offset: 0,
            must_respond: false,
            is_error: false,
            topic_name: None,
        }
    }

    fn created(sessions: &mut FetchSessions, partitions: &[(i32, i64)]) -> i32 {
        let context = sessions.begin(request(0, 0, partitions), START).expect("a full request");
        let answer = sessions.finish(&context, &vec![quiet(5); partitions.len()], START);
        assert_ne!(answer.session_id, NO_SESSION);
        answer.session_id
    }

    fn indexes(context: &FetchContext) -> Vec<i32> {
        context.partitions.iter().map(|(key, _)| key.partition_index).collect()
    }

    /// An incremental answer tells a partition only when it has data, an error, or moved offsets.
    #[test]
    fn unchanged_partitions_are_left_out() {
        let mut sessions = cache(10);
        let id = created(&mut sessions, &[(0, 5), (1, 5), (2, 5)]);
        let context = sessions.begin(request(id, 1, &[]), START).expect("epoch 1 follows");
        assert_eq!(indexes(&context), [0, 1, 2]);
        let error = FetchedState { must_respond: true, is_error: true, ..quiet(5) };
        let answer = sessions.finish(&context, &[quiet(5), quiet(6), error], START);
        assert_eq!(answer, SessionAnswer { session_id: id, include: vec![false, true, true] });
        let context = sessions.begin(request(id, 2, &[]), START).expect("epoch 2 follows");
        let answer = sessions.finish(&context, &[quiet(5), quiet(6), quiet(5)], START);
        assert_eq!(answer.include, [false, false, true], "after an error the next answer is told");
    }

    /// What gave data goes to the back; what is put again keeps its place; what is forgotten is gone.
    #[test]
    fn order_is_fair() {
        let mut sessions = cache(10);
        let id = created(&mut sessions, &[(0, 5), (1, 5), (2, 5)]);
        let context = sessions.begin(request(id, 1, &[]), START).expect("incremental");
        let data = FetchedState { has_records: true, ..quiet(9) };
        sessions.finish(&context, &[data, quiet(5), quiet(5)], START);
        let mut next = request(id, 2, &[(0, 9), (3, 0)]);
        next.forgotten.push(key(1));
        let context = sessions.begin(next, START).expect("incremental");
        assert_eq!(indexes(&context), [2, 0, 3]);
        assert_eq!(context.partitions[1].1, wish(9));
    }

    /// The answer that begins a session moves nobody.
    #[test]
    fn a_session_begins_in_the_order_of_its_answer() {
        let mut sessions = cache(10);
        let context = sessions.begin(request(0, 0, &[(2, 0), (0, 5), (1, 5)]), START).expect("a full request");
        let data = FetchedState { has_records: true, ..quiet(9) };
        let id = sessions.finish(&context, &[data, quiet(5), quiet(5)], START).session_id;
        let context = sessions.begin(request(id, 1, &[]), START).expect("incremental");
        assert_eq!(indexes(&context), [2, 0, 1]);
    }

    /// Epochs and ids that do not fit are refused; -1 and 0 close a session; the epoch wraps to 1.
    #[test]
    fn epochs_and_ids() {
        let mut sessions = cache(10);
        let id = created(&mut sessions, &[(0, 5)]);
        assert_eq!(sessions.begin(request(id, 2, &[]), START).map(drop), Err(SessionError::InvalidEpoch));
        assert_eq!(sessions.begin(request(id ^ 1, 1, &[]), START).map(drop), Err(SessionError::IdNotFound));
        let mut ids = request(id, 1, &[]);
        ids.uses_topic_ids = true;
        assert_eq!(sessions.begin(ids, START).map(drop), Err(SessionError::TopicIdError));
        sessions.begin(request(id, FINAL_EPOCH, &[(0, 5)]), START).expect("closes");
        assert!(sessions.is_empty());
        assert_eq!(next_epoch(i32::MAX), 1);
    }

    /// A session without partitions ends, and its request is answered without one.
    #[test]
    fn an_empty_session_ends() {
        let mut sessions = cache(10);
        let id = created(&mut sessions, &[(0, 5)]);
        let mut last = request(id, 1, &[]);
        last.forgotten.push(key(0));
        let context = sessions.begin(last, START).expect("incremental");
        assert_eq!(sessions.finish(&context, &[], START).session_id, NO_SESSION);
        assert!(sessions.is_empty());
        let id = created(&mut sessions, &[(0, 5)]);
        let mut last = request(id, 1, &[(0, 7)]);
        last.forgotten.push(key(0));
        assert_eq!(indexes(&sessions.begin(last, START).expect("incremental")), [0]);
        assert!(sessions.is_empty());
    }

    /// What all sessions remember together is bounded: there is no session beyond it, and one that grows beyond it ends.
    #[test]
    fn partitions_are_bounded() {
        let mut sessions = FetchSessions::new(10, 3, IdRanges::new(1).of(0), 1);
        let id = created(&mut sessions, &[(0, 5), (1, 5)]);
        let context = sessions.begin(request(0, 0, &[(0, 5), (1, 5)]), START).expect("full");
        assert_eq!(sessions.finish(&context, &[quiet(5), quiet(5)], START).session_id, NO_SESSION);
        let context = sessions.begin(request(id, 1, &[(2, 5)]), START).expect("three fit");
        sessions.finish(&context, &[quiet(5), quiet(5), quiet(5)], START);
        assert_eq!(sessions.begin(request(id, 2, &[(3, 5)]), START).map(drop), Err(SessionError::IdNotFound));
        assert!(sessions.is_empty());
        created(&mut sessions, &[(0, 5), (1, 5), (2, 5)]);
    }

    /// A full cache gives no session until one is idle for long, or small and not young.
    #[test]
    fn eviction() {
        let mut sessions = cache(1);
        created(&mut sessions, &[(0, 5)]);
        let context = sessions.begin(request(0, 0, &[(0, 5), (1, 5)]), START).expect("full");
        assert_eq!(sessions.finish(&context, &[quiet(5), quiet(5)], START).session_id, NO_SESSION);
        let later = START + EVICTION_AGE;
        assert_ne!(sessions.finish(&context, &[quiet(5), quiet(5)], later).session_id, NO_SESSION);
        assert_eq!(sessions.len(), 1);
    }

    /// Every id leads back to the cache that gave it away, and no other number to any.
    #[test]
    fn ids_say_whose_they_are() {
        for caches in [1, 2, 3, 64] {
            let ranges = IdRanges::new(caches);
            for place in 0..caches {
                let mut sessions = FetchSessions::new(10, 1000, ranges.of(place), u64::from(place));
                for _ in 0..5 {
                    assert_eq!(ranges.place_of(created(&mut sessions, &[(0, 5)])), Some(place));
                }
                assert_eq!(ranges.place_of(*ranges.of(place).start()), Some(place));
                assert_eq!(ranges.place_of(*ranges.of(place).end()), Some(place));
            }
            for nobodys in [NO_SESSION, -1, i32::MIN] {
                assert_eq!(ranges.place_of(nobodys), None);
            }
        }
        assert_eq!(IdRanges::new(2).place_of(i32::MAX), None);
    }

    /// A session remembers what it has known a topic as, and one without partitions takes them up later.
    #[test]
    fn a_session_begins_empty_and_remembers() {
        let mut sessions = cache(10);
        let id = created(&mut sessions, &[]);
        let context = sessions.begin(request(id, 1, &[(0, 5), (1, 5)]), START).expect("incremental");
        assert_eq!((context.session_id(), &context.known_as[..]), (Some(id), &[None, None][..]));
        let known = FetchedState { topic_name: Some("t".into()), ..quiet(5) };
        let unknown = FetchedState { must_respond: true, is_error: true, ..quiet(-1) };
        sessions.finish(&context, &[known, unknown.clone()], START);
        for epoch in [2, 3] {
            let context = sessions.begin(request(id, epoch, &[]), START).expect("incremental");
            assert_eq!(context.known_as, [Some("t".into()), None]);
            sessions.finish(&context, &[unknown.clone(), unknown.clone()], START);
        }
    }
}

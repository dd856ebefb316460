//! What both brokers hold, as far as the generator has to know it to ask sensible questions.

use std::collections::BTreeMap;
use std::ops::Range;

use walser_protocol::Uuid;

/// The two brokers; everything that differs between them by nature is kept as a pair.
pub type Pair<T> = [T; 2];

#[derive(Clone, Debug)]
pub struct Topic {
    pub name: &'static str,
    pub partition_count: i32,
    pub ids: Pair<Uuid>,
}

/// Sessions beyond this many would be evicted by one broker and not by the other, so no more are opened.
pub const SESSIONS_MAX: usize = 100;

#[derive(Clone, Debug)]
pub struct Session {
    pub ids: Pair<i32>,
    pub next_epoch: i32,
    /// The version of the request that opened it.
    pub version: i16,
}

#[derive(Debug, Default)]
pub struct World {
    pub topics: Vec<Topic>,
    /// Those that brokers make for themselves.
    pub internal: Vec<Topic>,
    /// Ids of topics that are no more.
    pub deleted: Vec<Pair<Uuid>>,
    pub producers: Vec<Pair<i64>>,
    /// The next sequence of a producer (by its index) in a partition of a topic (by its id on the first broker).
    pub sequences: BTreeMap<(usize, Uuid, i32), i32>,
    pub sessions: Vec<Session>,
    pub cluster_ids: Pair<String>,
    pub ports: Pair<u16>,
    /// Timestamps of records are near this.
    pub base_timestamp: i64,
    /// Times that a broker's clock may show during the run.
    pub clock: Range<i64>,
}

impl World {
    pub fn topic(&self, name: &str) -> Option<&Topic> {
        self.topics.iter().find(|topic| topic.name == name)
    }

    /// Replaces what is only named differently on the two brokers by one name for both; `None` when the text is no such thing.
    pub fn common_name(&self, side: usize, text: &str) -> Option<String> {
        let named: Uuid = text.parse().ok()?;
        let id = |ids: &Pair<Uuid>| ids[side] == named;
        if let Some(topic) = self.topics.iter().chain(&self.internal).find(|topic| id(&topic.ids)) {
            return Some(format!("id of {}", topic.name));
        }
        self.deleted.iter().position(id).map(|index| format!("id of deleted topic {index}"))
    }
}

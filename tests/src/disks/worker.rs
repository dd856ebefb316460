//! A producer and a consumer of one partition that remember what was acknowledged.

use walser_protocol::ErrorCode;

use crate::raw_client::RawClient;
use crate::topic::{self, Fetched};

/// Producers' patience with one request.
const TIMEOUT_MS: i32 = 30_000;

/// One partition, and every batch of it that was acknowledged: offset, and what its one record holds.
pub struct Worker {
    pub topic: String,
    pub partition: i32,
    acked: Vec<(i64, Vec<u8>)>,
    next: u64,
}

impl Worker {
    pub fn new(topic: &str, partition: i32) -> Self {
        Self { topic: topic.to_owned(), partition, acked: Vec::new(), next: 0 }
    }

    pub fn acked_count(&self) -> usize {
        self.acked.len()
    }

    /// The value of the next record: different from all others, and hard to compress.
    fn value(&mut self, value_bytes: usize) -> Vec<u8> {
        self.next += 1;
        let mut prng = crate::lossy_fs::prng::Prng::new(self.next ^ u64::from(self.partition.unsigned_abs()) << 32);
        let mut value = self.next.to_be_bytes().to_vec();
        while value.len() < value_bytes {
            value.extend_from_slice(&prng.draw().to_be_bytes());
        }
        value
    }

    /// One record with acks=all.
    ///
    /// # Errors
    /// What the broker answered.
    ///
    /// # Panics
    /// When it did not answer.
    pub fn produce(&mut self, client: &mut RawClient, value_bytes: usize) -> Result<i64, ErrorCode> {
        let value = self.value(value_bytes);
        let answer = topic::try_produce(client, &self.topic, self.partition, [&value], TIMEOUT_MS);
        let offset = answer.unwrap_or_else(|error| panic!("{}-{}: {error}", self.topic, self.partition))?;
        self.acked.push((offset, value));
        Ok(offset)
    }

    /// Produces until an answer is an error.
    pub fn produce_until_refused(&mut self, client: &mut RawClient, value_bytes: usize) -> ErrorCode {
        loop {
            if let Err(code) = self.produce(client, value_bytes) {
                return code;
            }
        }
    }

    /// Reads the partition from its log start on; everything acknowledged at or above it is there, where it was acknowledged.
    ///
    /// # Panics
    /// With what is missing.
    pub fn check(&self, client: &mut RawClient) {
        let (name, partition) = (&self.topic, self.partition);
        let context = |error: String| -> String { format!("{name}-{partition}: {error}") };
        let earliest = |client: &mut RawClient| {
            topic::offset(client, name, partition, topic::EARLIEST).map_err(context).expect("an offset")
        };
        let mut at = earliest(client);
        let mut acked = self.acked.iter().peekable();
        while acked.next_if(|(offset, _)| *offset < at).is_some() {}
        while let Some((wanted, _)) = acked.peek() {
            let fetched = topic::fetch(client, name, partition, at).expect("an answer");
            if fetched == Err(ErrorCode::OffsetOutOfRange) {
                // Retention may have passed by meanwhile; what is above the new log start is still there.
                let start = earliest(client);
                assert!(start > at, "{name}-{partition}: {at} is out of range, and {start} is the log start");
                at = start;
                while acked.next_if(|(offset, _)| *offset < at).is_some() {}
                continue;
            }
            let Fetched { records, .. } = fetched.unwrap_or_else(|code| panic!("{name}-{partition} at {at}: {code:?}"));
            let Some((last, _)) = records.last() else {
                panic!("{name}-{partition}: nothing at {at}, {wanted} was acknowledged")
            };
            let next = last + 1;
            for (offset, value) in records {
                if let Some((_, want)) = acked.next_if(|(acked, _)| *acked == offset) {
                    assert!(value == *want, "{name}-{partition}: offset {offset} holds something else");
                }
            }
            at = next;
            let passed = acked.peek().is_some_and(|(offset, _)| *offset < at);
            assert!(!passed, "{name}-{partition}: an acknowledged record below {at} is missing");
        }
    }
}

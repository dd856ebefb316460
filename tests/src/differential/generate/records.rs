//! Produce, the ids and sequences of its producers, and DeleteRecords.

use walser_protocol::ApiKey;
use walser_protocol::messages::delete_records::{DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic};
use walser_protocol::messages::init_producer_id::InitProducerIdRequest;
use walser_protocol::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use walser_protocol::records::batch::{BatchMut, NO_TIMESTAMP};
use walser_protocol::records::builder::{BatchBuilder, BatchOptions, NewRecord};
use walser_protocol::records::compression::{Compression, CompressionType};
use walser_protocol::records::record::Header;

use super::{Case, Effect, Expect, Request};

/// Bytes of the batch header up to where its CRC lies, and of the magic before it.
const CRC_AT: usize = 17;
const MAGIC_AT: usize = 16;
const LENGTH_AT: usize = 8;
const ATTRIBUTES_AT: usize = 21;
const RECORD_COUNT_AT: usize = 57;
const RECORDS_AT: usize = 61;
const LAST_OFFSET_DELTA_AT: usize = 23;

impl Case<'_> {
    pub(super) fn produce(&mut self) -> Option<Request> {
        let acks = *self.rng.pick(&[-1, -1, -1, -1, 1, 1, 1, 0, 2, -2]);
        let by_id = self.version >= 13;
        let mut topic_data = Vec::new();
        // A topic or partition that comes twice makes Kafka answer by what its maps do with it; clients never do that.
        let mut seen = Vec::new();
        for _ in 0..=self.rng.below(2) {
            let (name, topic_id) = self.topic_both();
            let sent = if by_id { ("", topic_id) } else { (name, walser_protocol::Uuid::ZERO) };
            if seen.contains(&sent) {
                continue;
            }
            seen.push(sent);
            let mut partition_data: Vec<PartitionProduceData<'_>> = Vec::new();
            for _ in 0..=self.rng.below(2) {
                let index = self.partition();
                if partition_data.iter().all(|data| data.index != index) {
                    let records = self.records(name, topic_id, index);
                    partition_data.push(PartitionProduceData { index, records });
                }
            }
            topic_data.push(TopicProduceData { name: sent.0, topic_id: sent.1, partition_data });
        }
        if acks == 0 {
            // An error ends the connection, and which of several came first is not to be seen.
            self.effects.clear();
            self.expect = Expect::Silence;
        }
        let request = ProduceRequest { transactional_id: None, acks, timeout_ms: 100_000, topic_data };
        self.finish(ApiKey::Produce, &request)
    }

    fn records(
        &mut self,
        topic: &'static str,
        topic_id: walser_protocol::Uuid,
        partition: i32,
    ) -> Option<&'static [u8]> {
        let bytes = match self.rng.below(40) {
            // Null is left out: Kafka fails on it within itself and never answers.
            0 | 1 => Vec::new(),
            2 => vec![0; 20],
            3 => vec![0xff; 100],
            4 => {
                let mut two = self.batch(topic, topic_id, partition);
                two.extend(self.batch(topic, topic_id, partition));
                two
            }
            _ => {
                let mut batch = self.batch(topic, topic_id, partition);
                if self.rng.chance(15) {
                    self.spoil(&mut batch);
                }
                batch
            }
        };
        Some(Box::leak(bytes.into_boxed_slice()))
    }

    /// A batch that is well-formed, if not always acceptable.
    fn batch(&mut self, topic: &'static str, topic_id: walser_protocol::Uuid, partition: i32) -> Vec<u8> {
        let codecs = [
            CompressionType::None,
            CompressionType::None,
            CompressionType::None,
            CompressionType::Gzip,
            CompressionType::Snappy,
            CompressionType::Lz4,
            CompressionType::Zstd,
        ];
        let mut codec = *self.rng.pick(&codecs);
        if codec == CompressionType::Zstd && self.version < 7 && self.rng.chance(70) {
            codec = CompressionType::None;
        }
        let count = *self.rng.pick(&[1, 1, 1, 2, 3, 10, 50]);
        let mut options = BatchOptions { compression: Compression::new(codec), ..BatchOptions::default() };
        if self.rng.chance(30) {
            self.with_producer(&mut options, topic, topic_id, partition, count);
        }
        let timestamp = match self.rng.below(20) {
            0 => NO_TIMESTAMP,
            // Old, and young enough for every topic's retention.
            1 => self.world.base_timestamp - 5 * 86_400_000,
            2 => self.world.base_timestamp + 10 * 86_400_000,
            _ => self.world.base_timestamp + self.rng.between(0, 60_000),
        };
        let mut builder = BatchBuilder::new(options);
        for index in 0..count {
            let key = format!("key-{}", self.rng.below(100));
            let value =
                vec![b'a' + u8::try_from(index % 26).unwrap_or(0); usize::try_from(self.rng.below(200)).unwrap_or(0)];
            let headers = [Header { key: b"h", value: Some(b"1") }, Header { key: b"", value: None }];
            let record = NewRecord {
                timestamp: if timestamp < 0 {
                    timestamp
                } else {
                    timestamp + i64::from(index) * self.rng.between(0, 3)
                },
                key: if self.rng.chance(20) { None } else { Some(key.as_bytes()) },
                value: if self.rng.chance(10) { None } else { Some(&value) },
                headers: if self.rng.chance(30) { &headers } else { &[] },
            };
            builder.append(&record).expect("records of a few hundred bytes fit into a batch");
        }
        builder.build().expect("a batch of a few kilobytes is built")
    }

    /// Producer id, epoch and sequence: mostly the ones that come next.
    fn with_producer(
        &mut self,
        options: &mut BatchOptions,
        topic: &'static str,
        topic_id: walser_protocol::Uuid,
        partition: i32,
        count: i32,
    ) {
        if self.world.producers.is_empty() {
            return;
        }
        let producer = usize::try_from(self.rng.below(self.world.producers.len().min(6) as u64)).unwrap_or(0);
        // Both sides have to remember under the same key.
        let key = self.world.topic(topic).filter(|known| known.ids[self.side] == topic_id).map(|known| known.ids[0]);
        let next = key.and_then(|id| self.world.sequences.get(&(producer, id, partition)).copied());
        options.producer_id = self.world.producers[producer][self.side];
        options.producer_epoch = *self.rng.pick(&[0, 0, 0, 0, 0, 0, 0, 0, 1, -1]);
        let wanted = next.unwrap_or(0);
        options.base_sequence = match self.rng.below(12) {
            // Sent again, a gap, far behind, and not at all.
            0 | 1 => (wanted - count).max(0),
            2 => wanted + 5,
            3 => (wanted - 1000).max(0),
            4 => -1,
            5 => i32::MAX,
            _ => wanted,
        };
        if let Some(topic) = key
            && options.base_sequence == wanted
            && options.producer_epoch == 0
        {
            self.effects.push(Effect::Sequence { producer, topic, partition, next: wanted + count });
        }
    }

    /// Breaks one thing that the broker has to notice.
    fn spoil(&mut self, batch: &mut Vec<u8>) {
        match self.rng.below(9) {
            0 => batch[CRC_AT] ^= 0x55,
            1 => batch[MAGIC_AT] = u8::try_from(self.rng.below(5)).unwrap_or(0),
            2 => batch.truncate(batch.len() / 2),
            3 => batch.truncate(30),
            4 => batch[LENGTH_AT + 3] = batch[LENGTH_AT + 3].wrapping_add(1),
            5 => batch.extend([1, 2, 3]),
            6 => patch(batch, RECORD_COUNT_AT, i32::try_from(self.rng.below(1000)).unwrap_or(0)),
            7 => patch(batch, LAST_OFFSET_DELTA_AT, i32::try_from(self.rng.below(1000)).unwrap_or(0)),
            _ => self.flip(batch),
        }
    }

    /// A bit of the records, with the CRC made to fit. Which one is chosen with care, for of offset deltas that do not count
    /// up Kafka makes what it likes, and it takes any negative length for null: no client sends either.
    fn flip(&mut self, batch: &mut [u8]) {
        let codec = batch[ATTRIBUTES_AT + 1] & 7;
        let plain = codec == CompressionType::None.id();
        let at = match self.rng.below(4) {
            // The length, attributes and timestamp of the first record, or what the compressed stream is known by.
            0 | 1 => RECORDS_AT + usize::try_from(self.rng.below(3)).unwrap_or(0),
            // A letter of a value.
            _ if plain => match batch.windows(3).position(|three| three == b"aaa") {
                Some(run) => run + 1,
                None => RECORDS_AT,
            },
            // Only this one has a checksum of its own.
            _ if codec == CompressionType::Gzip.id() => {
                RECORDS_AT + usize::try_from(self.rng.below((batch.len() - RECORDS_AT) as u64)).unwrap_or(0)
            }
            _ => RECORDS_AT,
        };
        batch[at] ^= 0x10;
        recompute(batch);
    }

    pub(super) fn init_producer_id(&mut self) -> Option<Request> {
        let mut request = InitProducerIdRequest { transaction_timeout_ms: 60_000, ..InitProducerIdRequest::default() };
        request.transactional_id = if self.rng.chance(10) { Some("") } else { None };
        if self.rng.chance(20) {
            request.transaction_timeout_ms = *self.rng.pick(&[0, -1, i32::MAX]);
        }
        if self.version >= 3 && self.rng.chance(30) {
            request.producer_id = *self.rng.pick(&[0, 123_456, -1, -2]);
            request.producer_epoch = *self.rng.pick(&[0, 3, -1]);
        }
        self.effects.push(Effect::Producer);
        self.finish(ApiKey::InitProducerId, &request)
    }
}

impl Case<'_> {
    pub(super) fn delete_records(&mut self) -> Option<Request> {
        // A partition or a topic may well come twice: the last offset named is the one that counts.
        let topics = self.some(|case| {
            let partitions = case.some(|case| {
                let partition_index = case.partition();
                DeleteRecordsPartition { partition_index, offset: case.log_start() }
            });
            DeleteRecordsTopic { name: case.topic_name(), partitions }
        });
        self.effects.push(Effect::LogStarts);
        let timeout_ms = *self.rng.pick(&[30_000, 30_000, 90_000, 60_000]);
        self.finish(ApiKey::DeleteRecords, &DeleteRecordsRequest { topics, timeout_ms })
    }

    /// Mostly low, so that records are left to read; -1 is the high watermark.
    fn log_start(&mut self) -> i64 {
        match self.rng.below(16) {
            0 => -1,
            1 => -2,
            2 => i64::MIN,
            3 => i64::MAX,
            4 => 1_000_000,
            5 | 6 => 0,
            _ => self.rng.between(1, 12),
        }
    }
}

fn patch(batch: &mut [u8], at: usize, value: i32) {
    batch[at..at + 4].copy_from_slice(&value.to_be_bytes());
    recompute(batch);
}

fn recompute(batch: &mut [u8]) {
    if let Ok((mut batch, _)) = BatchMut::parse(batch) {
        batch.recompute_crc();
    }
}

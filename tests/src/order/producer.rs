//! A connection that keeps five requests in flight: most of them batches, and a metadata request now and then.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};

use walser_protocol::ApiKey;
use walser_protocol::messages::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use walser_protocol::messages::metadata::MetadataRequest;
use walser_protocol::messages::produce::{PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData};
use walser_protocol::records::builder::{BatchBuilder, BatchOptions, NewRecord};

use super::consumer::Stamp;
use super::{IN_FLIGHT, PARTITIONS, TOPIC};
use crate::crash::load::stamped;
use crate::lossy_fs::prng::Prng;
use crate::raw_client::RawClient;

const PRODUCE_VERSION: i16 = 9;
const METADATA_VERSION: i16 = 8;
/// One request in so many asks for metadata, which nothing behind it may overtake.
const METADATA_EVERY: u64 = 16;
const RECORDS_MAX: u64 = 20;

/// What a produce request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acks {
    None,
    Leader,
    All,
}

/// A batch as it was sent.
#[derive(Clone, Copy, Debug)]
struct Batch {
    partition: i32,
    first: u64,
    records: u32,
}

#[derive(Clone, Copy, Debug)]
enum Sent {
    Batch(Batch),
    Metadata,
}

/// An acknowledged batch and where it is.
type Acked = (Batch, i64);

pub struct Producer {
    client: RawClient,
    number: u16,
    acks: Acks,
    /// Id and epoch of an idempotent one, and its next sequence in each partition.
    identity: Option<(i64, i16)>,
    sequences: BTreeMap<i32, i32>,
    next_record: u64,
    open: VecDeque<(i32, Sent)>,
    acked: Vec<Acked>,
    prng: Prng,
    pub requests: u64,
}

impl Producer {
    pub fn connect(address: &str, number: u16, is_idempotent: bool, acks: Acks, seed: u64) -> Result<Self, String> {
        let mut client = RawClient::connect(address).map_err(|error| error.to_string())?;
        let identity = if is_idempotent { Some(init(&mut client)?) } else { None };
        Ok(Self {
            client,
            number,
            acks,
            identity,
            sequences: BTreeMap::new(),
            next_record: 0,
            open: VecDeque::new(),
            acked: Vec::new(),
            prng: Prng::new(seed ^ u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15)),
            requests: 0,
        })
    }

    pub fn number(&self) -> u16 {
        self.number
    }

    /// Records, acknowledged or not.
    pub fn sent(&self) -> u64 {
        self.next_record
    }

    /// Sends until told to stop, then takes what is still to be answered.
    pub fn run(&mut self, stop: &AtomicBool) -> Result<(), String> {
        while !stop.load(Ordering::Relaxed) {
            self.requests += 1;
            if self.requests.is_multiple_of(METADATA_EVERY) {
                let request = MetadataRequest { topics: Some(Vec::new()), ..MetadataRequest::default() };
                let sent = self.client.send(ApiKey::Metadata, METADATA_VERSION, &request);
                self.open.push_back((sent.map_err(|error| self.explain(&error))?, Sent::Metadata));
            } else {
                self.send_batch()?;
            }
            if self.open.len() >= IN_FLIGHT {
                self.take_answer()?;
            }
        }
        // Without acknowledgements this answer says that all before it were worked on.
        let sent = self.client.send(ApiKey::Metadata, METADATA_VERSION, &MetadataRequest::default());
        self.open.push_back((sent.map_err(|error| self.explain(&error))?, Sent::Metadata));
        while !self.open.is_empty() {
            self.take_answer()?;
        }
        Ok(())
    }

    fn explain(&self, error: &dyn std::fmt::Display) -> String {
        format!("producer {}: {error}", self.number)
    }

    fn send_batch(&mut self) -> Result<(), String> {
        let partition = i32::try_from(self.prng.below(PARTITIONS.unsigned_abs().into())).unwrap_or(0);
        let records = 1 + u32::try_from(self.prng.below(RECORDS_MAX)).unwrap_or(0);
        let batch = Batch { partition, first: self.next_record, records };
        self.next_record += u64::from(records);
        let sequence = self.sequences.entry(partition).or_insert(0);
        let (producer_id, producer_epoch) = self.identity.unwrap_or((-1, -1));
        let base_sequence = if self.identity.is_some() { *sequence } else { -1 };
        *sequence = sequence.wrapping_add_unsigned(records) & i32::MAX;
        let options = BatchOptions { producer_id, producer_epoch, base_sequence, ..BatchOptions::default() };
        let mut builder = BatchBuilder::new(options);
        for number in batch.first..self.next_record {
            let value = stamped(self.number, number);
            let record = NewRecord { timestamp: 1, key: None, value: Some(&value), headers: &[] };
            builder.append(&record).map_err(|error| error.to_string())?;
        }
        let bytes = builder.build().map_err(|error| error.to_string())?;
        let request = ProduceRequest {
            transactional_id: None,
            acks: match self.acks {
                Acks::None => 0,
                Acks::Leader => 1,
                Acks::All => -1,
            },
            timeout_ms: 120_000,
            topic_data: vec![TopicProduceData {
                name: TOPIC,
                partition_data: vec![PartitionProduceData { index: partition, records: Some(&bytes) }],
                ..TopicProduceData::default()
            }],
        };
        let sent = self.client.send(ApiKey::Produce, PRODUCE_VERSION, &request);
        let correlation_id = sent.map_err(|error| self.explain(&error))?;
        if self.acks != Acks::None {
            self.open.push_back((correlation_id, Sent::Batch(batch)));
        }
        Ok(())
    }

    /// The next answer is the one to the oldest open request: the client refuses any other.
    fn take_answer(&mut self) -> Result<(), String> {
        let Some((correlation_id, sent)) = self.open.pop_front() else { return Ok(()) };
        let (key, version) = match sent {
            Sent::Metadata => (ApiKey::Metadata, METADATA_VERSION),
            Sent::Batch(_) => (ApiKey::Produce, PRODUCE_VERSION),
        };
        let response = self.client.receive(key, version, correlation_id).map_err(|error| self.explain(&error))?;
        let Sent::Batch(batch) = sent else { return Ok(()) };
        let response =
            ProduceResponse::decode(&mut response.reader(), version).map_err(|error| self.explain(&error))?;
        let answer = response.responses.first().and_then(|topic| topic.partition_responses.first());
        match answer {
            Some(answer) if answer.error_code == 0 => self.acked.push((batch, answer.base_offset)),
            answer => return Err(format!("producer {}: {batch:?} was answered {answer:?}", self.number)),
        }
        Ok(())
    }

    /// Every acknowledged batch of a partition stands where its acknowledgement said; how many those are.
    pub fn verify(&self, partition: i32, found: &[Stamp]) -> Result<u64, String> {
        let mut batches = 0;
        for (batch, base_offset) in self.acked.iter().filter(|(batch, _)| batch.partition == partition) {
            for step in 0..u64::from(batch.records) {
                let want = Stamp { producer: self.number, number: batch.first + step };
                let offset = u64::try_from(*base_offset).unwrap_or(u64::MAX).saturating_add(step);
                let got = usize::try_from(offset).ok().and_then(|offset| found.get(offset));
                if got != Some(&want) {
                    return Err(format!("partition {partition}, offset {offset}: {got:?} instead of {want:?}"));
                }
            }
            batches += 1;
        }
        Ok(batches)
    }
}

fn init(client: &mut RawClient) -> Result<(i64, i16), String> {
    let request = InitProducerIdRequest { transactional_id: None, ..InitProducerIdRequest::default() };
    let response = client.call(ApiKey::InitProducerId, 4, &request).map_err(|error| error.to_string())?;
    let response = InitProducerIdResponse::decode(&mut response.reader(), 4).map_err(|error| error.to_string())?;
    match response.error_code {
        0 => Ok((response.producer_id, response.producer_epoch)),
        code => Err(format!("InitProducerId: error {code}")),
    }
}

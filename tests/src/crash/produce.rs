//! One producer of one partition: several requests in flight, each remembered until it is answered.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

use walser_protocol::messages::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use walser_protocol::messages::produce::{PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData};
use walser_protocol::records::builder::{BatchBuilder, BatchOptions, NewRecord};
use walser_protocol::{ApiKey, ErrorCode};

use super::load::{Load, stamped_to};
use crate::lossy_fs::prng::Prng;
use crate::raw_client::{ClientError, RawClient};

/// As many as an idempotent producer may have.
pub const IN_FLIGHT_MAX: usize = 5;
/// What brokers take by default, `message.max.bytes`.
pub const BATCH_BYTES_MAX: usize = (1 << 20) + 12;
/// More than a batch and a record take beside the values.
const BATCH_OVERHEAD_BYTES: usize = 100;
const RECORD_OVERHEAD_BYTES: usize = 40;
const RECORDS_MAX: u64 = 40;
const PRODUCE_VERSION: i16 = 9;
/// The broker's own patience; longer than any test.
const TIMEOUT_MS: i32 = 120_000;

/// How a stream produces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// What is not acknowledged is given up: it may be there or not.
    Plain,
    /// What is not acknowledged is sent again after the crash: it is there once, in order.
    Idempotent,
}

/// A batch the broker said it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acked {
    pub base_offset: i64,
    pub first: u64,
    pub records: u32,
}

/// A batch that was sent, or is to be sent again.
#[derive(Clone, Copy, Debug)]
struct Batch {
    first: u64,
    records: u32,
    base_sequence: i32,
    /// Of the request that carries it at present.
    correlation_id: i32,
}

/// A producer of one partition that outlives the broker.
pub struct Stream {
    pub id: u16,
    pub kind: StreamKind,
    pub load: Load,
    pub partition: i32,
    pub acked: Vec<Acked>,
    /// Number of the next record that was never sent.
    next_record: u64,
    next_sequence: i32,
    producer: Option<(i64, i16)>,
    /// Sent and not answered, oldest first.
    open: VecDeque<Batch>,
    prng: Prng,
}

impl Stream {
    pub fn new(id: u16, kind: StreamKind, load: Load, partition: i32, seed: u64) -> Self {
        Self {
            id,
            kind,
            load,
            partition,
            acked: Vec::new(),
            next_record: 0,
            next_sequence: 0,
            producer: None,
            open: VecDeque::new(),
            prng: Prng::new(seed ^ u64::from(id).wrapping_mul(0x9E37_79B9)),
        }
    }

    /// Records that were ever sent.
    pub fn sent(&self) -> u64 {
        self.next_record
    }

    /// Produces until the connection breaks, `stop` is set or it is enough for a round, then collects what is still answered.
    /// The first acknowledgement is told to `first_acked`.
    ///
    /// # Errors
    /// Only for what is no crash: an answer that refuses a batch.
    pub fn run(&mut self, address: &str, stop: &AtomicBool, first_acked: Sender<()>) -> Result<(), String> {
        let Ok(mut client) = RawClient::connect(address) else { return Ok(()) };
        if self.kind == StreamKind::Idempotent && self.producer.is_none() && self.init_producer(&mut client).is_err() {
            return Ok(());
        }
        let mut first_acked = Some(first_acked);
        let mut resend: VecDeque<Batch> = std::mem::take(&mut self.open);
        if self.kind == StreamKind::Plain {
            resend.clear();
        }
        let mut sent_bytes = 0;
        loop {
            let is_stopping = stop.load(Ordering::Relaxed) || sent_bytes >= self.load.round_bytes_max;
            if (is_stopping && resend.is_empty()) || self.open.len() >= IN_FLIGHT_MAX {
                match self.take_answer(&mut client) {
                    Ok(true) => {
                        // Who has heard of another stream's does not listen any more.
                        first_acked.take().map(|first_acked| first_acked.send(()).ok());
                        continue;
                    }
                    Ok(false) => break,
                    Err(refused) => return Err(refused),
                }
            }
            let batch = resend.pop_front().unwrap_or_else(|| self.new_batch());
            let bytes = self.build(batch);
            sent_bytes += bytes.len() as u64;
            let sent = self.send(&mut client, &bytes);
            self.open.push_back(Batch { correlation_id: sent.as_ref().copied().unwrap_or(0), ..batch });
            if sent.is_err() {
                break;
            }
        }
        // Whatever was to be sent again and has not been comes before what is newer.
        self.open.extend(resend);
        Ok(())
    }

    fn init_producer(&mut self, client: &mut RawClient) -> Result<(), ClientError> {
        let request = InitProducerIdRequest { transactional_id: None, ..InitProducerIdRequest::default() };
        let response = client.call(ApiKey::InitProducerId, 4, &request)?;
        let response = InitProducerIdResponse::decode(&mut response.reader(), 4)?;
        if response.error_code != 0 {
            return Err(std::io::Error::other(format!("InitProducerId: error {}", response.error_code)).into());
        }
        self.producer = Some((response.producer_id, response.producer_epoch));
        Ok(())
    }

    fn new_batch(&mut self) -> Batch {
        let (first, wanted) = (self.next_record, 1 + self.prng.below(RECORDS_MAX));
        let mut left_bytes = BATCH_BYTES_MAX - BATCH_OVERHEAD_BYTES;
        let fits = |number: &u64| {
            let left = left_bytes.checked_sub(self.load.value_bytes(*number) + RECORD_OVERHEAD_BYTES);
            left_bytes = left.unwrap_or(0);
            left.is_some()
        };
        let records = (first..first + wanted).take_while(fits).fold(0, |records, _| records + 1);
        let batch = Batch { first, records, base_sequence: self.next_sequence, correlation_id: 0 };
        self.next_record += u64::from(records);
        self.next_sequence = self.next_sequence.wrapping_add_unsigned(records) & i32::MAX;
        batch
    }

    /// The same bytes each time, but for the time.
    fn build(&self, batch: Batch) -> Vec<u8> {
        let (producer_id, producer_epoch) = self.producer.unwrap_or((-1, -1));
        let base_sequence = if self.producer.is_some() { batch.base_sequence } else { -1 };
        let options = BatchOptions { producer_id, producer_epoch, base_sequence, ..BatchOptions::default() };
        let mut builder = BatchBuilder::new(options);
        for number in batch.first..batch.first + u64::from(batch.records) {
            let key = self.load.key(number).map(u64::to_be_bytes);
            let value = stamped_to(self.id, number, self.load.value_bytes(number));
            let key = key.as_ref().map(<[u8; 8]>::as_slice);
            let record = NewRecord { timestamp: now_ms(), key, value: Some(&value), headers: &[] };
            builder.append(&record).expect("a record that fits");
        }
        builder.build().expect("a batch that fits")
    }

    fn send(&self, client: &mut RawClient, batch: &[u8]) -> Result<i32, ClientError> {
        let request = ProduceRequest {
            transactional_id: None,
            acks: -1,
            timeout_ms: TIMEOUT_MS,
            topic_data: vec![TopicProduceData {
                name: self.load.topic,
                partition_data: vec![PartitionProduceData { index: self.partition, records: Some(batch) }],
                ..TopicProduceData::default()
            }],
        };
        client.send(ApiKey::Produce, PRODUCE_VERSION, &request)
    }

    /// Takes the answer to the oldest open batch; false when there is none to come.
    fn take_answer(&mut self, client: &mut RawClient) -> Result<bool, String> {
        let Some(batch) = self.open.front() else { return Ok(false) };
        let Ok(response) = client.receive(ApiKey::Produce, PRODUCE_VERSION, batch.correlation_id) else {
            return Ok(false);
        };
        let response = ProduceResponse::decode(&mut response.reader(), PRODUCE_VERSION)
            .map_err(|error| format!("stream {}: {error}", self.id))?;
        let answer = response.responses.first().and_then(|topic| topic.partition_responses.first());
        let answer = answer.ok_or_else(|| format!("stream {}: an empty answer", self.id))?;
        match ErrorCode::from_wire(answer.error_code) {
            Some(ErrorCode::None) => {}
            // The power is cut, or the broker ends: as good as no answer.
            Some(ErrorCode::KafkaStorageError | ErrorCode::NotLeaderOrFollower) => return Ok(false),
            code => {
                let batch = self.open.front();
                return Err(format!("stream {}: {code:?} {:?} for {batch:?}", self.id, answer.error_message));
            }
        }
        let Some(batch) = self.open.pop_front() else { return Ok(false) };
        self.acked.push(Acked { base_offset: answer.base_offset, first: batch.first, records: batch.records });
        Ok(true)
    }
}

/// Producers are forgotten by the age of their records, so these have to be young.
fn now_ms() -> i64 {
    let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX)
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{} (stream {})", self.load.topic, self.partition, self.id)
    }
}

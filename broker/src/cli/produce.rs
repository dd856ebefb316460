//! `walser produce`: records from standard input or the command line, to any Kafka-compatible broker.

use std::collections::BTreeMap;
use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use serde_json::json;
use walser_protocol::messages::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use walser_protocol::messages::produce::{
    PartitionProduceData, PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceData,
};
use walser_protocol::records::batch::{NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, sequence_add};
use walser_protocol::records::builder::{BatchBuilder, BatchOptions, NewRecord};
use walser_protocol::records::compression::{Compression, CompressionType};
use walser_protocol::records::record::Header;
use walser_protocol::{ApiKey, ErrorCode};

use super::client::{Client, ConnectArgs, Retry, TopicMetadata};
use super::error::CliError;
use super::output::json_line;
use crate::driver::clock;

/// The last version that names topics by name.
const PRODUCE_VERSION: i16 = 12;
/// A batch is sent when it has grown to this, or when no record has come for [`LINGER`].
const BATCH_BYTES: usize = 256 * 1024;
const LINGER: Duration = Duration::from_millis(5);
/// Lines read ahead of the network.
const LINES_AHEAD: usize = 1024;
/// A line longer than this is no record.
const LINE_BYTES_MAX: u64 = 256 << 20;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  echo hello | walser produce greetings
  walser produce orders -k 42 -v '{\"total\": 3}' -H source=web
  walser produce orders -K : -z zstd --idempotent < orders.txt")]
pub struct Args {
    #[command(flatten)]
    connect: ConnectArgs,
    /// Topic to write to
    #[arg(value_name = "TOPIC", required_unless_present = "topic_option")]
    topic: Option<String>,
    /// Topic to write to, as an option
    #[arg(short = 't', long = "topic", value_name = "TOPIC", conflicts_with = "topic")]
    topic_option: Option<String>,
    /// Partition to write to [default: by the hash of the key, else in turn]
    #[arg(short, long, value_name = "NUMBER")]
    partition: Option<i32>,
    /// Key of every record
    #[arg(short, long)]
    key: Option<String>,
    /// Value of the one record to write, instead of lines from standard input
    #[arg(short, long, value_name = "TEXT")]
    value: Option<String>,
    /// What stands between key and value of a line
    #[arg(short = 'K', long, value_name = "TEXT", conflicts_with_all = ["key", "value"])]
    key_separator: Option<String>,
    /// Header of every record, may be given several times
    #[arg(short = 'H', long = "header", value_name = "NAME=VALUE")]
    headers: Vec<String>,
    /// Write null for an empty value or key: a tombstone
    #[arg(short = 'Z', long)]
    null_on_empty: bool,
    /// Milliseconds since 1970 [default: now]
    #[arg(long, value_name = "MS")]
    timestamp: Option<i64>,
    /// Codec: none, gzip, snappy, lz4 or zstd
    #[arg(short = 'z', long, value_name = "CODEC", default_value = "none", value_parser = parse_codec)]
    compression: CompressionType,
    /// Level of the codec [default: the codec's own]
    #[arg(long, value_name = "LEVEL", allow_hyphen_values = true)]
    compression_level: Option<i32>,
    /// What to wait for: 0 nothing, 1 the leader, all in-sync replicas
    #[arg(long, value_name = "0|1|all", default_value = "all", value_parser = parse_acks, allow_hyphen_values = true)]
    acks: i16,
    /// Let the broker drop what a retry would write twice
    #[arg(long)]
    idempotent: bool,
    /// Print where each batch went, one JSON object a line
    #[arg(long)]
    json: bool,
}

fn parse_codec(text: &str) -> Result<CompressionType, String> {
    CompressionType::from_name(text).ok_or_else(|| "one of none, gzip, snappy, lz4, zstd".to_owned())
}

fn parse_acks(text: &str) -> Result<i16, String> {
    match text {
        "0" => Ok(0),
        "1" => Ok(1),
        "all" | "-1" => Ok(-1),
        _ => Err("one of 0, 1, all".to_owned()),
    }
}

pub fn run(args: &Args) -> Result<(), CliError> {
    if args.idempotent && args.acks != -1 {
        return Err(CliError::Usage("--idempotent needs --acks all".to_owned()));
    }
    let started = clock::monotonic();
    let mut producer = Producer::start(args)?;
    if let Some(value) = &args.value {
        producer.append(args.key.as_deref().map(str::as_bytes), value.as_bytes())?;
    } else {
        produce_lines(&mut producer, args)?;
    }
    producer.flush()?;
    if io::stderr().is_terminal() && !args.json {
        let seconds = clock::monotonic().saturating_since(started).as_secs_f64();
        eprintln!("{} records to {} in {seconds:.3} s", producer.acknowledged, producer.topic.name);
    }
    Ok(())
}

/// Sends what has come whenever standard input pauses, so that a slow pipe is not held back.
fn produce_lines(producer: &mut Producer<'_>, args: &Args) -> Result<(), CliError> {
    let (sender, lines) = sync_channel(LINES_AHEAD);
    // Ends with standard input, or with the process.
    std::thread::spawn(move || read_lines(&sender));
    while let Some(line) = next_line(&lines, producer)? {
        let line = line.map_err(|source| CliError::Read { path: "standard input".to_owned(), source })?;
        match &args.key_separator {
            Some(separator) => {
                let (key, value) = split_key(&line, separator.as_bytes());
                producer.append(key, value)?;
            }
            None => producer.append(args.key.as_deref().map(str::as_bytes), &line)?,
        }
    }
    Ok(())
}

type Line = io::Result<Vec<u8>>;

fn next_line(lines: &Receiver<Line>, producer: &mut Producer<'_>) -> Result<Option<Line>, CliError> {
    if producer.has_pending() {
        match lines.recv_timeout(LINGER) {
            Ok(line) => return Ok(Some(line)),
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) => producer.flush()?,
        }
    }
    Ok(lines.recv().ok())
}

fn read_lines(sender: &SyncSender<Line>) {
    let mut input = io::stdin().lock();
    loop {
        let mut line = Vec::new();
        let read = Read::by_ref(&mut input).take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        let sent = match read {
            Ok(0) => return,
            Ok(_) if line.len() as u64 == LINE_BYTES_MAX && line.last() != Some(&b'\n') => {
                sender.send(Err(io::Error::new(io::ErrorKind::InvalidData, "a line is longer than 256 MiB")))
            }
            Ok(_) => {
                if line.last() == Some(&b'\n') {
                    line.pop();
                }
                sender.send(Ok(line))
            }
            Err(error) => sender.send(Err(error)),
        };
        if sent.is_err() {
            return;
        }
    }
}

/// A line without the separator is a value without a key.
fn split_key<'a>(line: &'a [u8], separator: &[u8]) -> (Option<&'a [u8]>, &'a [u8]) {
    let found = line.windows(separator.len().max(1)).position(|window| window == separator);
    match found {
        Some(position) => (Some(&line[..position]), &line[position + separator.len()..]),
        None => (None, line),
    }
}

/// A batch that is built and not yet acknowledged.
struct Batch {
    partition: i32,
    bytes: Vec<u8>,
    record_count: i32,
}

struct Producer<'a> {
    args: &'a Args,
    client: Client,
    topic: TopicMetadata,
    compression: Compression,
    headers: Vec<Header<'a>>,
    producer_id: i64,
    producer_epoch: i16,
    next_sequences: BTreeMap<i32, i32>,
    pending: BTreeMap<i32, BatchBuilder>,
    /// Where records without a key go until the next batch is full.
    sticky_index: usize,
    acknowledged: u64,
}

impl<'a> Producer<'a> {
    fn start(args: &'a Args) -> Result<Self, CliError> {
        let name = args.topic.as_deref().or(args.topic_option.as_deref()).unwrap_or_default();
        let mut headers = Vec::new();
        for header in &args.headers {
            let (key, value) =
                header.split_once('=').ok_or_else(|| CliError::Usage(format!("'{header}' is not NAME=VALUE")))?;
            headers.push(Header { key: key.as_bytes(), value: Some(value.as_bytes()) });
        }
        let compression = match args.compression_level {
            None => Compression::new(args.compression),
            Some(level) => Compression::with_level(args.compression, level)
                .map_err(|error| CliError::Usage(format!("--compression-level: {error}")))?,
        };
        let mut client = Client::connect(&args.connect)?;
        let topic = client.topic(name, true)?;
        if let Some(partition) = args.partition {
            topic.leader(partition)?;
        }
        let mut producer = Self {
            args,
            client,
            topic,
            compression,
            headers,
            producer_id: NO_PRODUCER_ID,
            producer_epoch: NO_PRODUCER_EPOCH,
            next_sequences: BTreeMap::new(),
            pending: BTreeMap::new(),
            sticky_index: clock::wall_clock_ms().unsigned_abs() as usize,
            acknowledged: 0,
        };
        if args.idempotent {
            producer.init_producer_id()?;
        }
        Ok(producer)
    }

    fn init_producer_id(&mut self) -> Result<(), CliError> {
        let mut retry = Retry::new(&self.args.connect, "asking for a producer id".to_owned());
        loop {
            let request = InitProducerIdRequest {
                transactional_id: None,
                transaction_timeout_ms: i32::MAX,
                ..Default::default()
            };
            let answer = self.client.request_any(ApiKey::InitProducerId, 4, &request).and_then(|response| {
                let answer = response.decode(InitProducerIdResponse::decode)?;
                CliError::check(answer.error_code, || "producer id".to_owned(), None).map(|()| answer)
            });
            match answer {
                Ok(answer) => {
                    (self.producer_id, self.producer_epoch) = (answer.producer_id, answer.producer_epoch);
                    return Ok(());
                }
                Err(error) if error.is_retriable() => retry.after(error)?,
                Err(error) => return Err(error),
            }
            self.client.disconnect();
        }
    }

    fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    fn append(&mut self, key: Option<&[u8]>, value: &[u8]) -> Result<(), CliError> {
        let null_if_empty = |bytes: &&[u8]| !(self.args.null_on_empty && bytes.is_empty());
        let record = NewRecord {
            timestamp: self.args.timestamp.unwrap_or_else(clock::wall_clock_ms),
            key: key.filter(null_if_empty),
            value: Some(value).filter(null_if_empty),
            headers: &self.headers,
        };
        let partition = self.partition_of(record.key)?;
        let options = BatchOptions {
            compression: self.compression,
            producer_id: self.producer_id,
            producer_epoch: self.producer_epoch,
            base_sequence: match self.producer_id {
                NO_PRODUCER_ID => NO_SEQUENCE,
                _ => self.next_sequences.get(&partition).copied().unwrap_or(0),
            },
            ..BatchOptions::default()
        };
        let builder = self.pending.entry(partition).or_insert_with(|| BatchBuilder::new(options));
        builder.append(&record)?;
        if builder.uncompressed_len() >= BATCH_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// The choice of Kafka's own clients: the hash of the key, else one partition at a time.
    fn partition_of(&self, key: Option<&[u8]>) -> Result<i32, CliError> {
        if let Some(partition) = self.args.partition {
            return Ok(partition);
        }
        let partitions = &self.topic.partitions;
        let index = match key {
            Some(key) => (murmur2(key) & 0x7fff_ffff) as usize,
            None => self.sticky_index,
        };
        let chosen = index.checked_rem(partitions.len()).and_then(|index| partitions.get(index));
        let code = ErrorCode::UnknownTopicOrPartition.code();
        let none = || CliError::Kafka { subject: self.topic.name.clone(), code, message: None };
        chosen.map(|partition| partition.index).ok_or_else(none)
    }

    /// Sends all that is pending and waits for the acknowledgements.
    fn flush(&mut self) -> Result<(), CliError> {
        let mut batches = Vec::new();
        for (partition, builder) in std::mem::take(&mut self.pending) {
            let record_count = builder.record_count();
            batches.push(Batch { partition, bytes: builder.build()?, record_count });
            let next = self.next_sequences.entry(partition).or_insert(0);
            *next = sequence_add(*next, record_count);
        }
        self.sticky_index = self.sticky_index.wrapping_add(1);
        let mut retry = Retry::new(&self.args.connect, format!("writing to {}", self.topic.name));
        while !batches.is_empty() {
            let (left, last_error) = self.send(batches)?;
            batches = left;
            if let Some(error) = last_error {
                retry.after(error)?;
                self.client.disconnect();
                let name = self.topic.name.clone();
                self.topic = self.client.topic(&name, true)?;
            }
        }
        Ok(())
    }

    /// Sends each leader its batches. What failed in a way that may pass comes back, with the reason.
    fn send(&mut self, batches: Vec<Batch>) -> Result<(Vec<Batch>, Option<CliError>), CliError> {
        let mut by_leader: BTreeMap<i32, Vec<Batch>> = BTreeMap::new();
        for batch in batches {
            by_leader.entry(self.topic.leader(batch.partition)?).or_default().push(batch);
        }
        let (mut left, mut last_error) = (Vec::new(), None);
        for (leader_id, batches) in by_leader {
            match self.send_to(leader_id, &batches) {
                Ok(failures) => {
                    for batch in batches {
                        match failures.iter().find(|failure| failure.partition == batch.partition) {
                            None => self.acknowledged += u64::from(batch.record_count.unsigned_abs()),
                            Some(_) => left.push(batch),
                        }
                    }
                    last_error = failures.into_iter().next().map(|failure| failure.error).or(last_error);
                }
                Err(error) if error.is_retriable() => {
                    left.extend(batches);
                    last_error = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        Ok((left, last_error))
    }

    fn send_to(&mut self, leader_id: i32, batches: &[Batch]) -> Result<Vec<Failure>, CliError> {
        let request = ProduceRequest {
            transactional_id: None,
            acks: self.args.acks,
            timeout_ms: self.args.connect.timeout_ms(),
            topic_data: vec![TopicProduceData {
                name: &self.topic.name,
                partition_data: batches
                    .iter()
                    .map(|batch| PartitionProduceData { index: batch.partition, records: Some(&batch.bytes) })
                    .collect(),
                ..TopicProduceData::default()
            }],
        };
        let connection = self.client.node(leader_id)?;
        let version = connection.version(ApiKey::Produce, PRODUCE_VERSION)?;
        let sent = connection.send(ApiKey::Produce, version, &request)?;
        if self.args.acks == 0 {
            return Ok(Vec::new());
        }
        let response = connection.receive(sent)?;
        let answer = response.decode(ProduceResponse::decode)?;
        let mut failures = Vec::new();
        for partition in answer.responses.iter().flat_map(|topic| &topic.partition_responses) {
            match self.check(partition) {
                Ok(()) => self.print(partition, batches)?,
                Err(error) if error.is_retriable() => {
                    failures.push(Failure { partition: partition.index, error });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(failures)
    }

    fn check(&self, partition: &PartitionProduceResponse<'_>) -> Result<(), CliError> {
        // The broker has the batch already: an earlier try was written, and its answer lost.
        if self.args.idempotent && partition.error_code == ErrorCode::DuplicateSequenceNumber.code() {
            return Ok(());
        }
        let record = partition.record_errors.first().and_then(|record| record.batch_index_error_message);
        let subject = || format!("{}-{}", self.topic.name, partition.index);
        CliError::check(partition.error_code, subject, partition.error_message.or(record))
    }

    fn print(&self, partition: &PartitionProduceResponse<'_>, batches: &[Batch]) -> Result<(), CliError> {
        if !self.args.json {
            return Ok(());
        }
        let batch = batches.iter().find(|batch| batch.partition == partition.index);
        let mut out = io::stdout().lock();
        json_line(
            &mut out,
            &json!({
                "topic": self.topic.name,
                "partition": partition.index,
                "base_offset": partition.base_offset,
                "records": batch.map_or(0, |batch| batch.record_count),
                "bytes": batch.map_or(0, |batch| batch.bytes.len()),
            }),
        )?;
        out.flush()?;
        Ok(())
    }
}

/// A partition whose batch may go through later.
struct Failure {
    partition: i32,
    error: CliError,
}

/// MurmurHash2 with the seed Kafka's clients use: the same key goes to the same partition whoever writes it.
fn murmur2(key: &[u8]) -> u32 {
    const MULTIPLIER: u32 = 0x5bd1_e995;
    let mut hash = 0x9747_b28c ^ (key.len() as u32);
    let (words, tail) = key.as_chunks::<4>();
    for word in words {
        let mut word = u32::from_le_bytes(*word).wrapping_mul(MULTIPLIER);
        word ^= word >> 24;
        hash = hash.wrapping_mul(MULTIPLIER) ^ word.wrapping_mul(MULTIPLIER);
    }
    if !tail.is_empty() {
        let last = tail.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
        hash = (hash ^ last).wrapping_mul(MULTIPLIER);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(MULTIPLIER);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_hash_as_in_kafkas_clients() {
        // Rule: the values of the Java client, so that records of one key share a partition whoever wrote them.
        for (key, want) in [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key.as_bytes()) as i32, want, "{key}");
        }
    }

    #[test]
    fn lines_split_at_the_first_separator() {
        // Rule: a separator of any length, an empty key, no separator at all.
        for (line, separator, key, value) in [
            ("a:b:c", ":", Some("a"), "b:c"),
            (":b", ":", Some(""), "b"),
            ("a=>b", "=>", Some("a"), "b"),
            ("ab", ":", None, "ab"),
            ("", ":", None, ""),
        ] {
            let want = (key.map(str::as_bytes), value.as_bytes());
            assert_eq!(split_key(line.as_bytes(), separator.as_bytes()), want, "{line}");
        }
    }
}

//! `walser consume`: records of a topic to standard output, from any Kafka-compatible broker, without a group.

mod format;
mod position;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufWriter, StdoutLock, Write};
use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use walser_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData};
use walser_protocol::records::batch::{BatchError, BatchView, Batches};
use walser_protocol::records::control::ControlRecord;
use walser_protocol::records::record::{Records, records_slice};
use walser_protocol::{ApiKey, ErrorCode};

use self::format::{Format, Place};
use self::position::StartAt;
use super::client::{Client, ConnectArgs, Response, Retry, TopicMetadata};
use super::error::CliError;

/// The last version that names topics by name.
const FETCH_VERSION: i16 = 12;
const FETCH_WAIT_MS: i32 = 500;
const FETCH_BYTES: i32 = 50 << 20;
const PARTITION_BYTES: i32 = 1 << 20;
/// What the records of one batch may decompress to.
const DECOMPRESSED_BYTES_MAX: usize = 1 << 30;
const READ_COMMITTED: i8 = 1;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Where to begin (-o): beginning, end, an offset, -N for the last N of each partition, @MS for a timestamp in ms.

Format (-f): %t topic  %p partition  %o offset  %T timestamp in ms  %k key  %K its length or -1
             %s value  %S its length or -1  %h headers  %% percent   and \\n \\r \\t \\0 \\\\ \\xNN

Examples:
  walser consume greetings -e
  walser consume orders -o -10 -e -f '%p:%o %k=%s\\n'
  walser consume orders -p 0 -o @1767225600000 -c 5 --json")]
pub struct Args {
    #[command(flatten)]
    connect: ConnectArgs,
    /// Topic to read
    #[arg(value_name = "TOPIC", required_unless_present = "topic_option")]
    topic: Option<String>,
    /// Topic to read, as an option
    #[arg(short = 't', long = "topic", value_name = "TOPIC", conflicts_with = "topic")]
    topic_option: Option<String>,
    /// Partition to read, may be given several times [default: all]
    #[arg(short, long = "partition", value_name = "NUMBER", value_delimiter = ',')]
    partitions: Vec<i32>,
    /// Where to begin
    #[arg(short, long, value_name = "OFFSET", default_value = "beginning", allow_hyphen_values = true)]
    offset: StartAt,
    /// Stop after this many records
    #[arg(short, long, value_name = "NUMBER")]
    count: Option<u64>,
    /// Stop when the end of every partition is reached
    #[arg(short = 'e', long)]
    exit: bool,
    /// How to print a record [default: the value and a new line]
    #[arg(short, long, value_name = "TEXT", conflicts_with = "json")]
    format: Option<String>,
    /// Print one JSON object per record and line
    #[arg(long, short = 'J')]
    json: bool,
    /// What to print for a null key or value in a format
    #[arg(long, value_name = "TEXT", default_value = "")]
    null: String,
    /// Leave out records of transactions that are open or were aborted
    #[arg(long)]
    read_committed: bool,
}

pub fn run(args: &Args) -> Result<(), CliError> {
    let mut consumer = Consumer::start(args)?;
    let ended = consumer.consume();
    // What was read before an error is not lost with it.
    consumer.out.flush()?;
    ended
}

/// What a partition has given so far.
struct Partition {
    next_offset: i64,
    /// Everything up to the end that the broker named has been read.
    at_end: bool,
}

struct Consumer<'a> {
    args: &'a Args,
    client: Client,
    topic: TopicMetadata,
    partitions: BTreeMap<i32, Partition>,
    format: Format,
    /// Records still wanted.
    left: u64,
    out: BufWriter<StdoutLock<'static>>,
    scratch: Vec<u8>,
}

impl<'a> Consumer<'a> {
    fn start(args: &'a Args) -> Result<Self, CliError> {
        let name = args.topic.as_deref().or(args.topic_option.as_deref()).unwrap_or_default();
        let format = match &args.format {
            _ if args.json => Format::Json,
            Some(text) => Format::parse(text, &args.null)?,
            None => Format::parse("%s\\n", &args.null)?,
        };
        let mut client = Client::connect(&args.connect)?;
        let topic = client.topic(name, false)?;
        let wanted: Vec<i32> = match args.partitions.as_slice() {
            [] => topic.partitions.iter().map(|partition| partition.index).collect(),
            some => some.to_vec(),
        };
        let isolation_level = if args.read_committed { READ_COMMITTED } else { 0 };
        let offsets = args.offset.resolve(&mut client, &topic, &wanted, isolation_level)?;
        let partition = |next_offset| Partition { next_offset, at_end: false };
        Ok(Self {
            args,
            client,
            topic,
            partitions: offsets.into_iter().map(|(index, offset)| (index, partition(offset))).collect(),
            format,
            left: args.count.unwrap_or(u64::MAX),
            out: BufWriter::with_capacity(64 * 1024, std::io::stdout().lock()),
            scratch: Vec::new(),
        })
    }

    fn consume(&mut self) -> Result<(), CliError> {
        let mut retry = self.retry();
        while self.left > 0 && !(self.args.exit && self.partitions.values().all(|partition| partition.at_end)) {
            match self.poll() {
                Ok(()) => retry = self.retry(),
                Err(error) if error.is_retriable() => {
                    self.out.flush()?;
                    retry.after(error)?;
                    self.client.disconnect();
                    let name = self.topic.name.clone();
                    self.topic = self.client.topic(&name, false)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn retry(&self) -> Retry {
        Retry::new(&self.args.connect, format!("reading {}", self.topic.name))
    }

    /// One fetch from every leader, all of them under way at once.
    fn poll(&mut self) -> Result<(), CliError> {
        let mut by_leader: BTreeMap<i32, Vec<FetchPartition>> = BTreeMap::new();
        for (index, partition) in &self.partitions {
            if self.args.exit && partition.at_end {
                continue;
            }
            let leader_id = self.topic.leader(*index)?;
            by_leader.entry(leader_id).or_default().push(FetchPartition {
                partition: *index,
                current_leader_epoch: -1,
                fetch_offset: partition.next_offset,
                partition_max_bytes: PARTITION_BYTES,
                ..FetchPartition::default()
            });
        }
        let mut under_way = Vec::new();
        for (leader_id, partitions) in by_leader {
            let request = FetchRequest {
                replica_id: -1,
                max_wait_ms: FETCH_WAIT_MS,
                min_bytes: 1,
                max_bytes: FETCH_BYTES,
                isolation_level: if self.args.read_committed { READ_COMMITTED } else { 0 },
                session_id: 0,
                session_epoch: -1,
                topics: vec![FetchTopic { topic: &self.topic.name, partitions, ..FetchTopic::default() }],
                ..FetchRequest::default()
            };
            let connection = self.client.node(leader_id)?;
            let version = connection.version(ApiKey::Fetch, FETCH_VERSION)?;
            under_way.push((leader_id, connection.send(ApiKey::Fetch, version, &request)?));
        }
        for (leader_id, sent) in under_way {
            let response = self.client.node(leader_id)?.receive(sent)?;
            self.handle_response(&response)?;
        }
        // Whoever reads a pipe sees records as they come.
        self.out.flush()?;
        ensure_reader()
    }

    fn handle_response(&mut self, response: &Response) -> Result<(), CliError> {
        let answer = response.decode(FetchResponse::decode)?;
        CliError::check(answer.error_code, || format!("fetch of {}", self.topic.name), None)?;
        for partition in answer.responses.iter().flat_map(|topic| &topic.partitions) {
            self.handle_partition(partition)?;
        }
        Ok(())
    }

    fn handle_partition(&mut self, data: &PartitionData<'_>) -> Result<(), CliError> {
        let index = data.partition_index;
        let Some(partition) = self.partitions.get(&index) else { return Ok(()) };
        let next_offset = partition.next_offset;
        let mut message = None;
        if data.error_code == ErrorCode::OffsetOutOfRange.code() {
            let (start, end) = position::range(&mut self.client, &self.topic, index)?;
            message =
                Some(format!("offset {next_offset} is not in the log, which begins at {start} and ends at {end}"));
        }
        CliError::check(data.error_code, || format!("{}-{index}", self.topic.name), message.as_deref())?;
        let records = data.records.and_then(walser_protocol::types::Records::as_whole).unwrap_or_default();
        let mut aborted = Aborted::new(data);
        for batch in Batches::new(records) {
            let batch = match batch {
                Ok(batch) => batch,
                // Brokers cut an answer at its size, not between batches.
                Err(BatchError::Truncated { .. }) => break,
                Err(error) => return Err(self.damaged(index, next_offset, error.into())),
            };
            if self.left == 0 {
                return Ok(());
            }
            self.handle_batch(index, &batch, &mut aborted)?;
        }
        let end = if self.args.read_committed { data.last_stable_offset } else { data.high_watermark };
        if let Some(partition) = self.partitions.get_mut(&index) {
            partition.at_end = partition.next_offset >= end;
        }
        Ok(())
    }

    fn handle_batch(&mut self, index: i32, batch: &BatchView<'_>, aborted: &mut Aborted) -> Result<(), CliError> {
        let base_offset = batch.base_offset();
        batch.verify_crc().map_err(|error| self.damaged(index, base_offset, error.into()))?;
        let mut scratch = std::mem::take(&mut self.scratch);
        let handled = self.handle_records(index, batch, aborted, &mut scratch);
        self.scratch = scratch;
        if let Some(partition) = self.partitions.get_mut(&index) {
            partition.next_offset = partition.next_offset.max(batch.next_offset());
        }
        handled
    }

    fn handle_records(
        &mut self,
        index: i32,
        batch: &BatchView<'_>,
        aborted: &mut Aborted,
        scratch: &mut Vec<u8>,
    ) -> Result<(), CliError> {
        let base_offset = batch.base_offset();
        let records = records_slice(batch, scratch, DECOMPRESSED_BYTES_MAX)
            .map_err(|error| self.damaged(index, base_offset, error))?;
        let hidden = self.args.read_committed && aborted.hides(batch);
        let wanted_from = self.partitions.get(&index).map_or(0, |partition| partition.next_offset);
        for record in Records::new(batch.header(), records) {
            let record = record.map_err(|error| self.damaged(index, base_offset, error))?;
            if batch.is_control() {
                aborted.handle_marker(batch, ControlRecord::parse(&record));
                continue;
            }
            if hidden || record.offset < wanted_from {
                continue;
            }
            if self.left == 0 {
                break;
            }
            self.left -= 1;
            let place = Place { topic: &self.topic.name, partition: index, timestamp_type: batch.timestamp_type() };
            self.format.write(&mut self.out, place, &record)?;
        }
        Ok(())
    }

    fn damaged(&self, partition: i32, offset: i64, source: walser_protocol::records::record::RecordError) -> CliError {
        CliError::Record { topic: self.topic.name.clone(), partition, offset, source }
    }
}

/// Standard output may be a pipe that nobody reads any more; without a record to write that would never be noticed.
fn ensure_reader() -> Result<(), CliError> {
    let stdout = std::io::stdout();
    let mut polled = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
    let ready = poll(&mut polled, PollTimeout::ZERO).map_err(std::io::Error::from)?;
    let gone = polled[0].revents().is_some_and(|events| events.contains(PollFlags::POLLERR));
    if ready > 0 && gone { Err(CliError::Output(std::io::ErrorKind::BrokenPipe.into())) } else { Ok(()) }
}

/// The aborted transactions of one answer: which producers' records are to be left out, and until when.
struct Aborted {
    /// By first offset, the last one first.
    to_come: Vec<(i64, i64)>,
    producers: BTreeSet<i64>,
}

impl Aborted {
    fn new(data: &PartitionData<'_>) -> Self {
        let listed = data.aborted_transactions.iter().flatten();
        let mut to_come: Vec<_> =
            listed.map(|transaction| (transaction.first_offset, transaction.producer_id)).collect();
        to_come.sort_unstable_by(|one, other| other.cmp(one));
        Self { to_come, producers: BTreeSet::new() }
    }

    fn hides(&mut self, batch: &BatchView<'_>) -> bool {
        while let Some((first_offset, producer_id)) = self.to_come.last().copied()
            && first_offset <= batch.last_offset()
        {
            self.to_come.pop();
            self.producers.insert(producer_id);
        }
        batch.is_transactional() && !batch.is_control() && self.producers.contains(&batch.producer_id())
    }

    fn handle_marker(&mut self, batch: &BatchView<'_>, marker: Option<ControlRecord>) {
        if matches!(marker, Some(ControlRecord::Abort { .. })) {
            self.producers.remove(&batch.producer_id());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use walser_protocol::messages::fetch::AbortedTransaction;
    use walser_protocol::records::builder::{BatchBuilder, BatchOptions, NewRecord};

    fn batch(base_offset: i64, producer_id: i64, transactional: bool) -> Vec<u8> {
        let options = BatchOptions { base_offset, producer_id, transactional, ..BatchOptions::default() };
        let mut builder = BatchBuilder::new(options);
        builder.append(&NewRecord::default()).unwrap();
        builder.build().unwrap()
    }

    #[test]
    fn aborted_records_are_hidden_up_to_their_marker() {
        // Rule: a producer's records are hidden from the transaction's first offset to its abort marker, nobody else's.
        let aborted_transactions = Some(vec![
            AbortedTransaction { producer_id: 7, first_offset: 20 },
            AbortedTransaction { producer_id: 7, first_offset: 5 },
            AbortedTransaction { producer_id: 8, first_offset: 6 },
        ]);
        let mut aborted = Aborted::new(&PartitionData { aborted_transactions, ..PartitionData::default() });
        let mut hidden = |offset, producer_id, transactional, marker: Option<ControlRecord>| {
            let bytes = batch(offset, producer_id, transactional);
            let batch = BatchView::parse_exact(&bytes).unwrap();
            let hidden = aborted.hides(&batch);
            aborted.handle_marker(&batch, marker);
            hidden
        };
        let abort = Some(ControlRecord::Abort { coordinator_epoch: 0 });
        assert!(!hidden(4, 7, true, None), "before the transaction");
        assert!(hidden(5, 7, true, None), "its first record");
        assert!(!hidden(6, 9, true, None), "another producer");
        assert!(!hidden(7, 7, false, None), "no transaction");
        assert!(hidden(8, 8, true, None), "a second aborted producer");
        assert!(hidden(9, 7, true, abort), "the last one, then the marker");
        assert!(!hidden(10, 7, true, None), "a later transaction that was committed");
        assert!(hidden(11, 8, true, None), "the other's marker is still to come");
        assert!(hidden(20, 7, true, None), "aborted again");
    }
}

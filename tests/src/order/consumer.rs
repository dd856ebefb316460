//! A connection that fetches its part of the partitions, five requests in flight.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};

use walser_protocol::ApiKey;
use walser_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic};
use walser_protocol::records::batch::BatchView;
use walser_protocol::records::record::{Records, records_slice};

use super::{IN_FLIGHT, PARTITIONS, TOPIC};
use crate::crash::load::stamp;
use crate::raw_client::RawClient;

const FETCH_VERSION: i16 = 11;
const FETCH_BYTES_MAX: i32 = 1 << 20;
const RECORDS_BYTES_MAX: usize = 16 << 20;
/// Long enough that a fetch with nothing to read is parked, short enough to get on.
const WAIT_MS: i32 = 20;

/// Whose record it is, and which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub producer: u16,
    pub number: u64,
}

pub struct Consumer {
    found: BTreeMap<i32, Vec<Stamp>>,
    pub requests: u64,
}

impl Consumer {
    /// Reads every `of`th partition.
    pub fn new(number: i32, of: i32) -> Self {
        let mine = (0..PARTITIONS).filter(|partition| partition % of == number);
        Self { found: mine.map(|partition| (partition, Vec::new())).collect(), requests: 0 }
    }

    pub fn partitions(&self) -> impl Iterator<Item = (i32, &[Stamp])> {
        self.found.iter().map(|(partition, found)| (*partition, found.as_slice()))
    }

    pub fn records(&self) -> u64 {
        self.found.values().map(|found| found.len() as u64).sum()
    }

    /// Fetches all partitions together and by turns single ones, until told to stop. What comes twice, because it was asked
    /// for twice, has to be the same.
    pub fn run(&mut self, address: &str, stop: &AtomicBool) -> Result<(), String> {
        let mut client = RawClient::connect(address).map_err(|error| error.to_string())?;
        let mine: Vec<i32> = self.found.keys().copied().collect();
        let mut open = VecDeque::new();
        for turn in 0.. {
            let is_stopping = stop.load(Ordering::Relaxed);
            if !is_stopping {
                let asked = match mine.get(turn % (mine.len() * 2)) {
                    Some(one) => std::slice::from_ref(one),
                    None => mine.as_slice(),
                };
                self.requests += 1;
                open.push_back(self.send(&mut client, asked)?);
            }
            if open.len() >= IN_FLIGHT || is_stopping {
                let Some(correlation_id) = open.pop_front() else { break };
                self.receive(&mut client, correlation_id)?;
            }
        }
        Ok(())
    }

    /// Reads on until nothing comes any more.
    pub fn read_to_end(&mut self, address: &str) -> Result<(), String> {
        let mut client = RawClient::connect(address).map_err(|error| error.to_string())?;
        let mine: Vec<i32> = self.found.keys().copied().collect();
        loop {
            let correlation_id = self.send(&mut client, &mine)?;
            if self.receive(&mut client, correlation_id)? == 0 {
                return Ok(());
            }
        }
    }

    fn send(&self, client: &mut RawClient, partitions: &[i32]) -> Result<i32, String> {
        let wishes = partitions.iter().map(|partition| FetchPartition {
            partition: *partition,
            fetch_offset: self.found.get(partition).map_or(0, |found| found.len() as i64),
            partition_max_bytes: FETCH_BYTES_MAX,
            ..FetchPartition::default()
        });
        let request = FetchRequest {
            max_wait_ms: WAIT_MS,
            min_bytes: 1,
            max_bytes: FETCH_BYTES_MAX,
            session_epoch: -1,
            topics: vec![FetchTopic { topic: TOPIC, partitions: wishes.collect(), ..FetchTopic::default() }],
            ..FetchRequest::default()
        };
        client.send(ApiKey::Fetch, FETCH_VERSION, &request).map_err(|error| format!("consumer: {error}"))
    }

    /// Takes an answer; how many records in it are new.
    fn receive(&mut self, client: &mut RawClient, correlation_id: i32) -> Result<usize, String> {
        let response = client
            .receive(ApiKey::Fetch, FETCH_VERSION, correlation_id)
            .map_err(|error| format!("consumer: {error}"))?;
        let response =
            FetchResponse::decode(&mut response.reader(), FETCH_VERSION).map_err(|error| error.to_string())?;
        let mut new = 0;
        for data in response.responses.iter().flat_map(|topic| &topic.partitions) {
            if data.error_code != 0 {
                return Err(format!("partition {}: fetch error {}", data.partition_index, data.error_code));
            }
            let found = self.found.get_mut(&data.partition_index).ok_or("a partition that was not asked for")?;
            let mut left = data.records.and_then(|records| records.as_whole()).unwrap_or_default();
            while !left.is_empty() {
                let (batch, rest) = BatchView::parse(left).map_err(|error| error.to_string())?;
                batch.verify_crc().map_err(|error| error.to_string())?;
                new += take_batch(&batch, found)
                    .map_err(|error| format!("partition {}: {error}", data.partition_index))?;
                left = rest;
            }
        }
        Ok(new)
    }
}

fn take_batch(batch: &BatchView<'_>, found: &mut Vec<Stamp>) -> Result<usize, String> {
    let mut scratch = Vec::new();
    let mut new = 0;
    let records = records_slice(batch, &mut scratch, RECORDS_BYTES_MAX).map_err(|error| error.to_string())?;
    for record in Records::new(batch.header(), records) {
        let record = record.map_err(|error| error.to_string())?;
        let (producer, number) = stamp(record.value.unwrap_or_default())?;
        let stamp = Stamp { producer, number };
        let offset = usize::try_from(record.offset).map_err(|error| error.to_string())?;
        match found.get(offset) {
            Some(known) if *known == stamp => {}
            Some(known) => return Err(format!("offset {offset} held {known:?}, now {stamp:?}")),
            None if offset == found.len() => {
                found.push(stamp);
                new += 1;
            }
            None => return Err(format!("offset {offset} follows {} records", found.len())),
        }
    }
    Ok(new)
}

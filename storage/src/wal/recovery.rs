//! What a start makes of the files it finds.
//!
//! All files are read in the order of their generations, and the records in them must form one chain of sequences without
//! a gap. Where a file's chain breaks, the next file may go on with the very sequence that is missing: then the break was
//! the end of what had been written. If no file goes on, the break is either the torn tail of a commit nobody was told
//! about, or damage to one that was acknowledged. The two are told apart by the highest `durable_through` of any record
//! that verifies, before or behind the break: at or below it everything was acknowledged, so it is [`WalError::Corrupt`].
//! Above it the replay ends there.
//!
//! The damage of the very last commit cannot be told from a torn one, unless the log was closed: closing writes a mark. Nor
//! can that of the commits before it, where everything behind them is damaged, too.
//! Records behind a break stay in their file, so that file is never written again under its generation.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use bytes::{Buf, Bytes, BytesMut};

use super::record::{self, FileIdentity, HEADER_BYTES, Header, Kind, Verdict};
use super::ring::{LiveFile, Name, SpareFile, parse_name};
use super::{Recovered, TornTail, WalError};
use crate::disk::{BLOCK_BYTES, Disk, File, OpenMode};
use crate::limits::{WAL_READ_STEP_BYTES, WAL_ZERO_STEP_BYTES};
use crate::runtime::Runtime;

const BLOCK: u64 = BLOCK_BYTES as u64;

pub(super) struct Outcome {
    pub recovered: Recovered,
    /// Where records stand of which nothing says that a flush has covered them.
    pub unproven: Vec<(PathBuf, Range<u64>)>,
    pub live: Vec<LiveFile>,
    /// Under the name of a log file, with no record that counts.
    pub empty: Vec<SpareFile>,
    pub spares: Vec<SpareFile>,
    pub next_generation: u64,
    pub durable_through: u64,
}

/// Where the chain of sequences broke and nothing has gone on yet.
struct Break {
    path: PathBuf,
    position: u64,
    /// Something stands there; otherwise it was merely the end.
    torn: bool,
}

struct Chain {
    /// `None` before the first record.
    expected: Option<u64>,
    first_sequence: Option<u64>,
    durable_through: u64,
    broken: Option<Break>,
    /// The last records, as far as they are behind `durable_through`.
    unproven: VecDeque<Unproven>,
}

struct Unproven {
    sequence: u64,
    /// Of the files that are read, in their order.
    file: usize,
    bytes: Range<u64>,
}

/// Reads a log that nobody goes on with, as [`super::Wal::open`] does, and makes nothing. When it fails, what `replay` was
/// given must not be acted upon.
pub async fn read_all<D: Disk, R: Runtime>(
    disk: &D,
    runtime: &R,
    dir: &Path,
    replay: impl FnMut(u64, Bytes),
) -> Result<Recovered, WalError> {
    Ok(recover(disk, runtime, dir, replay).await?.recovered)
}

/// Reads the whole directory; `replay` gets each record in order.
pub(super) async fn recover<D: Disk, R: Runtime>(
    disk: &D,
    runtime: &R,
    dir: &Path,
    mut replay: impl FnMut(u64, Bytes),
) -> Result<Outcome, WalError> {
    let Listing { logs, spares, unfinished } = read_directory(disk, dir).await?;
    for path in unfinished {
        disk.remove_file(&path).await.map_err(|error| WalError::io("removing", &path, error))?;
    }
    let unproven = VecDeque::new();
    let mut chain = Chain { expected: None, first_sequence: None, durable_through: 0, broken: None, unproven };
    let (mut live, mut empty) = (Vec::new(), Vec::new());
    let next_generation = logs.last().map_or(1, |log| log.identity.generation + 1);
    let paths: Vec<PathBuf> = logs.iter().map(|log| log.path.clone()).collect();
    for (number, log) in logs.into_iter().enumerate() {
        let path = log.path;
        let file = disk.open(&path, OpenMode::ReadWrite).await.map_err(|e| WalError::io("opening", &path, e))?;
        let before = chain.expected;
        let mut reader = Reader::new(runtime, &file, &path, log.identity, log.len_bytes);
        reader.replay(number, &mut chain, &mut replay).await?;
        // What a killed process wrote and never flushed is visible; acting upon it promises that it stays.
        file.sync_data().await.map_err(|error| WalError::io("flushing", &path, error))?;
        match chain.expected {
            Some(expected) if before != chain.expected => {
                live.push(LiveFile { path, len_bytes: log.len_bytes, last_sequence: expected - 1 });
            }
            Some(_) | None => empty.push(SpareFile { path, len_bytes: log.len_bytes }),
        }
    }
    let next_sequence = chain.expected.unwrap_or(1);
    let torn_tail = chain.finish(next_sequence)?;
    let first_sequence = chain.first_sequence.unwrap_or(next_sequence);
    let recovered = Recovered { first_sequence, next_sequence, torn_tail };
    let unproven = chain.unproven.into_iter().map(|record| (paths[record.file].clone(), record.bytes)).collect();
    Ok(Outcome { recovered, unproven, live, empty, spares, next_generation, durable_through: next_sequence - 1 })
}

/// Writes records once more and flushes them, before anything is said to follow them: where the flush that should have covered
/// them failed, they may be read and yet not be on the disk, whatever later flushes say.
pub(super) async fn settle<D: Disk>(disk: &D, unproven: &[(PathBuf, Range<u64>)]) -> Result<(), WalError> {
    for in_one_file in unproven.chunk_by(|(one, _), (next, _)| one == next) {
        let (Some((path, first)), Some((_, last))) = (in_one_file.first(), in_one_file.last()) else { continue };
        let file = disk.open(path, OpenMode::ReadWrite).await.map_err(|e| WalError::io("opening", path, e))?;
        let (mut position, end) = (first.start / BLOCK * BLOCK, last.end.next_multiple_of(BLOCK));
        while position < end {
            let step = usize::try_from(end - position).unwrap_or(usize::MAX).min(WAL_ZERO_STEP_BYTES);
            let found = file.read_at(position, step).await.map_err(|e| WalError::io("reading", path, e))?;
            let mut buffer = file.allocate(step);
            buffer[..found.len()].copy_from_slice(&found);
            buffer[found.len()..].fill(0);
            file.write_at(buffer, position).await.map_err(|e| WalError::io("writing", path, e))?;
            position += step as u64;
        }
        file.sync_data().await.map_err(|e| WalError::io("flushing", path, e))?;
    }
    Ok(())
}

pub(super) struct FoundLog {
    pub path: PathBuf,
    pub identity: FileIdentity,
    pub len_bytes: u64,
}

pub(super) struct Listing {
    /// By generation.
    pub logs: Vec<FoundLog>,
    pub spares: Vec<SpareFile>,
    /// Left half-made by a crash.
    pub unfinished: Vec<PathBuf>,
}

pub(super) async fn read_directory<D: Disk>(disk: &D, dir: &Path) -> Result<Listing, WalError> {
    let entries = disk.list_dir(dir).await.map_err(|error| WalError::io("listing", dir, error))?;
    let (mut logs, mut spares, mut unfinished) = (Vec::<FoundLog>::new(), Vec::new(), Vec::new());
    for entry in entries.into_iter().filter(|entry| !entry.is_dir) {
        let path = dir.join(&entry.name);
        match parse_name(&entry.name) {
            Name::Log(identity) => logs.push(FoundLog { path, identity, len_bytes: entry.len_bytes }),
            Name::Spare => spares.push(SpareFile { path, len_bytes: entry.len_bytes / BLOCK * BLOCK }),
            Name::Unfinished => unfinished.push(path),
            Name::Foreign => tracing::warn!(path = %path.display(), "not a file of the write-ahead log; left alone"),
        }
    }
    logs.sort_by_key(|log| log.identity);
    let twice = logs.windows(2).find(|pair| pair[0].identity.generation == pair[1].identity.generation);
    match twice {
        Some(pair) => Err(WalError::GenerationTwice {
            generation: pair[0].identity.generation,
            first: pair[0].path.clone(),
            second: pair[1].path.clone(),
        }),
        None => Ok(Listing { logs, spares, unfinished }),
    }
}

impl Chain {
    /// Whether the record continues the chain, which it then does.
    fn accept(&mut self, header: Header) -> bool {
        let continues = match self.expected {
            Some(expected) => expected == header.sequence,
            // Files without a record are freed before older ones that have some, so a break before the first record of
            // all is damage, but for the very first commit.
            None => self.broken.is_none() || header.sequence == 1,
        };
        if !continues {
            return false;
        }
        self.first_sequence.get_or_insert(header.sequence);
        self.durable_through = self.durable_through.max(header.durable_through);
        self.broken = None;
        let step = match header.kind {
            Kind::Data => 1,
            Kind::Mark => 0,
        };
        self.expected = Some(header.sequence.saturating_add(step));
        true
    }

    /// Notes where an accepted record stands, until it is known to be durable.
    fn note_place(&mut self, sequence: u64, file: usize, bytes: Range<u64>) {
        self.unproven.push_back(Unproven { sequence, file, bytes });
        while self.unproven.front().is_some_and(|record| record.sequence <= self.durable_through) {
            self.unproven.pop_front();
        }
    }

    /// The first break stands until a later file goes on.
    fn break_at(&mut self, path: &Path, position: u64, torn: bool) {
        self.broken.get_or_insert_with(|| Break { path: path.to_owned(), position, torn });
    }

    fn finish(&self, next_sequence: u64) -> Result<Option<TornTail>, WalError> {
        match &self.broken {
            Some(broken) if next_sequence <= self.durable_through => Err(WalError::Corrupt {
                path: broken.path.clone(),
                position: broken.position,
                sequence: next_sequence,
                durable_through: self.durable_through,
            }),
            Some(broken) if broken.torn => Ok(Some(TornTail { path: broken.path.clone(), position: broken.position })),
            Some(_) | None => Ok(None),
        }
    }
}

pub(super) struct Reader<'a, F, R> {
    runtime: &'a R,
    file: &'a F,
    path: &'a Path,
    identity: FileIdentity,
    len: u64,
    /// Blocks that the disk does not give are zeros, and noted; otherwise they end the reading.
    pub skips_unreadable: bool,
    pub unreadable: Vec<Unreadable>,
}

/// A block that the disk does not give.
pub(super) struct Unreadable {
    pub position: u64,
    pub error: io::Error,
}

/// A stretch of the file in memory.
pub(super) struct Window {
    start: u64,
    bytes: BytesMut,
}

impl Window {
    pub fn new() -> Self {
        Self { start: 0, bytes: BytesMut::new() }
    }

    /// The next position from `position` on where a record may begin, as far as it is in memory: else the first behind that.
    pub fn next_candidate(&self, position: u64) -> u64 {
        let skipped = usize::try_from(position.saturating_sub(self.start)).unwrap_or(usize::MAX);
        let ahead = self.bytes.get(skipped..).unwrap_or_default();
        let (chunks, _) = ahead.as_chunks::<{ record::ALIGN_BYTES }>();
        let at = chunks.iter().position(|chunk| chunk.starts_with(&record::MAGIC)).unwrap_or(chunks.len());
        position + (at * record::ALIGN_BYTES) as u64
    }
}

impl<'a, F: File, R: Runtime> Reader<'a, F, R> {
    pub fn new(runtime: &'a R, file: &'a F, path: &'a Path, identity: FileIdentity, len: u64) -> Self {
        Self { runtime, file, path, identity, len, skips_unreadable: false, unreadable: Vec::new() }
    }

    async fn replay(
        &mut self,
        file: usize,
        chain: &mut Chain,
        replay: &mut impl FnMut(u64, Bytes),
    ) -> Result<(), WalError> {
        let mut window = Window::new();
        let mut position = 0;
        let torn = loop {
            match self.read_record(&mut window, position).await? {
                Found::Record(header, payload) => {
                    if !chain.accept(header) {
                        break true;
                    }
                    let start = position;
                    position += record::encoded_len(header.payload_len) as u64;
                    if header.kind == Kind::Data {
                        chain.note_place(header.sequence, file, start..position);
                        replay(header.sequence, payload);
                    }
                }
                // Behind the last record of a commit: the next commit starts with a block.
                Found::NoRecord if !position.is_multiple_of(BLOCK) => position = position.next_multiple_of(BLOCK),
                Found::NoRecord => break false,
                Found::Bad => break true,
                Found::End => return Ok(()),
            }
        };
        chain.break_at(self.path, position, torn);
        self.look_behind(chain, window, position).await
    }

    /// Looks for records from a break on, which tell what had been acknowledged. They may stand anywhere: the first of their
    /// commit may be damaged, too.
    async fn look_behind(&mut self, chain: &mut Chain, mut window: Window, mut position: u64) -> Result<(), WalError> {
        loop {
            position = match self.read_record(&mut window, position).await? {
                Found::Record(header, _) => {
                    chain.durable_through = chain.durable_through.max(header.durable_through);
                    position + record::encoded_len(header.payload_len) as u64
                }
                Found::NoRecord | Found::Bad => window.next_candidate(position + record::ALIGN_BYTES as u64),
                Found::End => return Ok(()),
            };
        }
    }

    pub async fn read_record(&mut self, window: &mut Window, position: u64) -> Result<Found, WalError> {
        if position.saturating_add(HEADER_BYTES as u64) > self.len {
            return Ok(Found::End);
        }
        let header = self.fill(window, position, HEADER_BYTES).await?;
        let Some(unverified) = record::parse(header, self.identity) else { return Ok(Found::NoRecord) };
        let whole_len = HEADER_BYTES + unverified.payload_len;
        if position.saturating_add(whole_len as u64) > self.len {
            return Ok(Found::Bad);
        }
        let whole = self.fill(window, position, whole_len).await?;
        match record::verify(unverified, self.identity, whole) {
            Verdict::Valid(header) => Ok(Found::Record(header, Bytes::copy_from_slice(&whole[HEADER_BYTES..]))),
            Verdict::Newer(found) => {
                Err(WalError::NewerFormat { path: self.path.to_owned(), found, known: record::FORMAT })
            }
            Verdict::Bad => Ok(Found::Bad),
        }
    }

    /// `len_bytes` from `position`, fewer if the file has become shorter. Positions only go forward.
    pub async fn fill<'w>(
        &mut self,
        window: &'w mut Window,
        position: u64,
        len_bytes: usize,
    ) -> Result<&'w [u8], WalError> {
        let ahead = usize::try_from(position - window.start).unwrap_or(usize::MAX);
        if ahead >= window.bytes.len() {
            window.bytes.clear();
            window.start = position;
        } else {
            window.bytes.advance(ahead);
            window.start = position;
        }
        while window.bytes.len() < len_bytes {
            let at = window.start + window.bytes.len() as u64;
            let step = WAL_READ_STEP_BYTES - usize::try_from(at % BLOCK).expect("below a block");
            let read = self.read(at, step).await?;
            if read.is_empty() {
                break;
            }
            window.bytes.extend_from_slice(&read);
            self.runtime.turn().await;
        }
        Ok(&window.bytes[..len_bytes.min(window.bytes.len())])
    }

    async fn read(&mut self, at: u64, step: usize) -> Result<Bytes, WalError> {
        let error = match self.file.read_at(at, step).await {
            Ok(read) => return Ok(read),
            Err(error) => WalError::io("reading", self.path, error),
        };
        if !self.skips_unreadable {
            return Err(error);
        }
        let mut read = BytesMut::with_capacity(step);
        while read.len() < step {
            let position = at + read.len() as u64;
            let block_left = (position / BLOCK + 1) * BLOCK - position;
            let left = usize::try_from(block_left.min(self.len.saturating_sub(position))).expect("within a block");
            if left == 0 {
                break;
            }
            match self.file.read_at(position, left).await {
                Ok(bytes) if bytes.is_empty() => break,
                Ok(bytes) => read.extend_from_slice(&bytes),
                Err(error) => {
                    self.unreadable.push(Unreadable { position, error });
                    read.resize(read.len() + left, 0);
                }
            }
        }
        Ok(read.freeze())
    }
}

pub(super) enum Found {
    Record(Header, Bytes),
    /// Nothing that looks like one.
    NoRecord,
    /// Looks like one but does not verify.
    Bad,
    /// No record fits before the end of the file.
    End,
}

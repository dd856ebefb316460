//! The metadata log of one node: what the controller decided, on stable storage, in order.
//!
//! ```text
//! <data-dir>/quorum/wal/…                         entries: offset (8 bytes, big-endian), then one batch of records
//! <data-dir>/quorum/<end offset>.snapshot         the state after all batches below that offset
//! ```
//!
//! A snapshot:
//!
//! | bytes | |
//! | --- | --- |
//! | 8 | `WALSRSNP` |
//! | 2 | format version, [`SNAPSHOT_FORMAT`] |
//! | 8 | end offset: the batches the snapshot stands for are those below it |
//! | 4 | CRC-32C of everything behind it |
//! | per batch | length (4 bytes), then the batch |
//!
//! Integers are big-endian. The log is let go of only when the snapshot that replaces it, its name included, is on stable
//! storage, and entries below the newest snapshot's offset that are still there at a start are skipped. So at every moment
//! the newest snapshot and the entries from its offset on are the whole state; a start that finds a gap between them, or
//! anything newer than this program knows, refuses.

pub mod inspect;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use walser_machine::metadata::format::{FormatError, decode_batch, encode_batch};
use walser_machine::metadata::image::{ImageBuilder, ReplayError, UnsupportedFeature};
use walser_machine::metadata::{MetadataImage, MetadataRecord};
use walser_protocol::EncodeError;
use walser_protocol::records::crc::crc32c;
use walser_storage::checkpoint::{TEMPORARY_SUFFIX, read_file, replace_file};
use walser_storage::disk::Disk;
use walser_storage::error::DiskError;
use walser_storage::runtime::Runtime;
use walser_storage::wal::{Recovered, Wal, WalError, WalOptions};

/// Raised when an older program could misread what a newer one writes.
const SNAPSHOT_FORMAT: u16 = 1;
const SNAPSHOT_MAGIC: &[u8; 8] = b"WALSRSNP";
const SNAPSHOT_HEADER_BYTES: usize = 22;
const SNAPSHOT_SUFFIX: &str = ".snapshot";
/// Records encoded before giving way.
const SNAPSHOT_BATCH_RECORDS: usize = 512;
const ENTRY_HEADER_BYTES: usize = 8;
const WAL_DIR: &str = "wal";

/// Pre-written at every start, so small: the metadata of a run are rarely more.
const FIRST_FILE_BYTES: u64 = 256 << 10;
const FILE_BYTES: u64 = 4 << 20;
const SPARE_FILES_MAX: usize = 1;
/// Every start begins a file, however little it writes, and reads all there are: more than this are worth a snapshot.
const FILES_AT_START_MAX: usize = 8;

/// What decides how the log is kept.
#[derive(Clone, Debug)]
pub struct QuorumOptions {
    /// Its parent exists and is durable.
    pub dir: PathBuf,
    /// Random, new at every start.
    pub salt_seed: u64,
    /// `metadata.log.max.record.bytes.between.snapshots`.
    pub snapshot_after_bytes: u64,
    /// Highest level of every feature this program serves; more in the log stops the start.
    pub features: BTreeMap<String, i16>,
}

/// Why the metadata log cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum QuorumError {
    #[error(transparent)]
    Wal(#[from] WalError),
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error("metadata log, offset {offset}: {source}")]
    Entry { offset: u64, source: FormatError },
    #[error("metadata log, offset {offset}: {source}")]
    Replay { offset: u64, source: ReplayError },
    #[error("an entry of {len} bytes in the metadata log is too short to be one")]
    EntryTooShort { len: usize },
    #[error("the metadata log goes on at offset {found}, but everything from {expected} on is needed")]
    Gap { expected: u64, found: u64 },
    #[error("{} is damaged: {reason}", path.display())]
    SnapshotDamaged { path: PathBuf, reason: SnapshotDamage },
    #[error("{} has format {found}; this version of walser reads up to {SNAPSHOT_FORMAT}", path.display())]
    SnapshotNewer { path: PathBuf, found: u16 },
    #[error("{}: {source}", path.display())]
    SnapshotFormat { path: PathBuf, source: FormatError },
    #[error(transparent)]
    Feature(#[from] UnsupportedFeature),
    #[error("a record cannot be written: {0}")]
    Encode(#[from] EncodeError),
}

/// What is wrong with a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotDamage {
    #[error("it does not begin like one")]
    NoHeader,
    #[error("its checksum does not match")]
    Checksum,
    #[error("it ends in the middle of a batch")]
    Truncated,
    #[error("its name and its content disagree about the offset")]
    OtherOffset,
    #[error("its records contradict each other")]
    Contradiction,
}

/// Where an appended batch stands in the log, for [`Quorum::committed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Appended(u64);

/// The log, open for its one writer.
pub struct Quorum<D: Disk, R: Runtime> {
    disk: D,
    runtime: R,
    dir: PathBuf,
    wal: Wal<D, R>,
    snapshot_after_bytes: u64,
    /// Offset of the newest snapshot; 0 when there is none.
    snapshot_end_offset: u64,
    /// Entries since the newest snapshot.
    bytes_since_snapshot: u64,
    /// Files the start read; 0 once a snapshot replaced them or could not be written.
    files_at_start: usize,
    /// The last entry appended.
    last_appended: Appended,
}

impl<D: Disk, R: Runtime> Quorum<D, R> {
    /// Reads the newest snapshot and what follows it.
    pub async fn open(disk: D, runtime: R, options: QuorumOptions) -> Result<(Self, Arc<MetadataImage>), QuorumError> {
        let dir = options.dir;
        make_dir(&disk, &dir).await?;
        let snapshots = list_snapshots(&disk, &dir).await?;
        let mut replay = Replay::new(MetadataImage::default());
        if let Some(&end_offset) = snapshots.last() {
            replay = Replay::new(read_snapshot(&disk, &runtime, &dir, end_offset).await?);
        }
        // Only now: a snapshot that cannot be read is a reason to keep every older one.
        remove_snapshots(&disk, &dir, &snapshots[..snapshots.len().saturating_sub(1)]).await?;
        let wal_options = WalOptions {
            dir: dir.join(WAL_DIR),
            first_file_bytes: FIRST_FILE_BYTES,
            file_bytes: FILE_BYTES,
            spares_max: SPARE_FILES_MAX,
            salt_seed: options.salt_seed,
        };
        let (wal, recovered) =
            Wal::open(disk.clone(), runtime.clone(), wal_options, |sequence, entry| replay.take(sequence, &entry))
                .await?;
        report(&recovered);
        let Replay { builder, bytes, failure, needed_from, .. } = replay;
        if let Some(failure) = failure {
            // What was read must not be acted upon, and nothing may be written behind it.
            wal.close().await.ok();
            return Err(failure);
        }
        let image = builder.finish().0;
        image.verify_features(&options.features)?;
        // What the last run had no time to remove.
        wal.truncate_before(needed_from);
        let quorum = Self {
            disk,
            runtime,
            dir,
            snapshot_after_bytes: options.snapshot_after_bytes,
            snapshot_end_offset: snapshots.last().copied().unwrap_or(0),
            bytes_since_snapshot: bytes,
            files_at_start: wal.live_files(),
            last_appended: Appended(wal.durable_through()),
            wal,
        };
        Ok((quorum, image))
    }

    /// Queues one batch behind the image with this end offset. It is on stable storage once [`Self::committed`] says so; after
    /// an error here it is not in the log and never will be.
    pub fn append(&mut self, end_offset: u64, records: &[MetadataRecord]) -> Result<Appended, QuorumError> {
        let batch = encode_batch(records)?;
        let mut entry = BytesMut::with_capacity(ENTRY_HEADER_BYTES + batch.len());
        entry.put_u64(end_offset);
        entry.extend_from_slice(&batch);
        let len = entry.len() as u64;
        self.last_appended = Appended(self.wal.append(entry.freeze())?);
        self.bytes_since_snapshot += len;
        Ok(self.last_appended)
    }

    /// Returns when everything up to `appended` is on stable storage. After an error the log takes nothing more until a restart,
    /// which finds out what is there.
    pub async fn committed(&self, appended: Appended) -> Result<(), QuorumError> {
        Ok(self.wal.committed(appended.0).await?)
    }

    /// Shortens the log when it has grown. `image`: everything appended so far, committed. A snapshot that cannot be written
    /// is reported and tried again; the log then only stays longer.
    pub async fn snapshot_if_due(&mut self, image: &MetadataImage) {
        let due = self.bytes_since_snapshot >= self.snapshot_after_bytes || self.files_at_start > FILES_AT_START_MAX;
        if !due {
            return;
        }
        if let Err(error) = self.snapshot(image).await {
            tracing::warn!(%error, "no snapshot of the metadata; the log goes on growing");
            // Not at every command: a full disk does not get better by trying.
            self.bytes_since_snapshot = self.snapshot_after_bytes / 2;
            self.files_at_start = 0;
        }
    }

    /// Writes what is queued and closes. `image`: everything that was committed; a short log makes the next start quick.
    pub async fn close(&mut self, image: &MetadataImage) -> Result<(), QuorumError> {
        let due = self.bytes_since_snapshot >= FIRST_FILE_BYTES || self.files_at_start > FILES_AT_START_MAX;
        let snapshot = if due { self.snapshot(image).await } else { Ok(()) };
        self.wal.close().await?;
        snapshot
    }

    async fn snapshot(&mut self, image: &MetadataImage) -> Result<(), QuorumError> {
        let last = self.last_appended;
        self.committed(last).await?;
        let end_offset = image.end_offset();
        let path = snapshot_path(&self.dir, end_offset);
        let content = encode_snapshot(&self.runtime, image).await?;
        replace_file(&self.disk, &path, &content).await?;
        self.wal.truncate_before(last.0 + 1);
        if self.snapshot_end_offset != end_offset && self.snapshot_end_offset > 0 {
            remove_snapshots(&self.disk, &self.dir, &[self.snapshot_end_offset]).await?;
        }
        self.snapshot_end_offset = end_offset;
        self.bytes_since_snapshot = 0;
        self.files_at_start = 0;
        Ok(())
    }
}

/// Takes entries in order; after a failure it takes nothing more.
struct Replay {
    builder: ImageBuilder,
    end_offset: u64,
    /// Sequence behind the last entry that the snapshot stands for.
    needed_from: u64,
    bytes: u64,
    failure: Option<QuorumError>,
}

impl Replay {
    fn new(image: MetadataImage) -> Self {
        Self {
            end_offset: image.end_offset(),
            builder: ImageBuilder::new(&image),
            needed_from: 0,
            bytes: 0,
            failure: None,
        }
    }

    fn take(&mut self, sequence: u64, entry: &Bytes) {
        if self.failure.is_none() {
            self.failure = self.apply(sequence, entry).err();
        }
    }

    fn apply(&mut self, sequence: u64, entry: &Bytes) -> Result<(), QuorumError> {
        let Some((offset, batch)) = entry.split_first_chunk::<ENTRY_HEADER_BYTES>() else {
            return Err(QuorumError::EntryTooShort { len: entry.len() });
        };
        let offset = u64::from_be_bytes(*offset);
        if offset < self.end_offset {
            self.needed_from = sequence + 1;
            return Ok(());
        }
        if offset > self.end_offset {
            return Err(QuorumError::Gap { expected: self.end_offset, found: offset });
        }
        let records = decode_batch(batch).map_err(|source| QuorumError::Entry { offset, source })?;
        self.builder.replay_batch(&records).map_err(|source| QuorumError::Replay { offset, source })?;
        self.end_offset += 1;
        self.bytes += entry.len() as u64;
        Ok(())
    }
}

fn report(recovered: &Recovered) {
    if let Some(torn) = &recovered.torn_tail {
        let path = torn.path.display();
        tracing::info!(%path, position = torn.position, "metadata log: the end of a commit nobody was told about dropped");
    }
}

async fn make_dir<D: Disk>(disk: &D, dir: &Path) -> Result<(), QuorumError> {
    disk.create_dir_all(dir).await.map_err(|error| DiskError::new("create directory", dir, error))?;
    let parent = dir.parent().unwrap_or(Path::new("."));
    disk.sync_dir(parent).await.map_err(|error| DiskError::new("sync directory", parent, error))?;
    Ok(())
}

fn snapshot_path(dir: &Path, end_offset: u64) -> PathBuf {
    dir.join(format!("{end_offset:020}{SNAPSHOT_SUFFIX}"))
}

/// End offsets of the snapshots, ascending. What a crash left half written is removed.
async fn list_snapshots<D: Disk>(disk: &D, dir: &Path) -> Result<Vec<u64>, QuorumError> {
    let entries = disk.list_dir(dir).await.map_err(|error| DiskError::new("list", dir, error))?;
    let mut snapshots = Vec::new();
    for entry in entries.iter().filter(|entry| !entry.is_dir) {
        if entry.name.ends_with(TEMPORARY_SUFFIX) {
            let path = dir.join(&entry.name);
            disk.remove_file(&path).await.map_err(|error| DiskError::new("remove", path, error))?;
        } else if let Some(offset) = entry.name.strip_suffix(SNAPSHOT_SUFFIX).and_then(|name| name.parse().ok()) {
            snapshots.push(offset);
        }
    }
    snapshots.sort_unstable();
    Ok(snapshots)
}

async fn remove_snapshots<D: Disk>(disk: &D, dir: &Path, end_offsets: &[u64]) -> Result<(), QuorumError> {
    for end_offset in end_offsets {
        let path = snapshot_path(dir, *end_offset);
        disk.remove_file(&path).await.map_err(|error| DiskError::new("remove", path, error))?;
    }
    Ok(())
}

async fn encode_snapshot<R: Runtime>(runtime: &R, image: &MetadataImage) -> Result<Vec<u8>, QuorumError> {
    let mut body = Vec::new();
    for records in image.to_records().chunks(SNAPSHOT_BATCH_RECORDS) {
        let batch = encode_batch(records)?;
        body.put_u32(u32::try_from(batch.len()).expect("512 records are less than 4 GiB"));
        body.extend_from_slice(&batch);
        runtime.turn().await;
    }
    let mut content = Vec::with_capacity(SNAPSHOT_HEADER_BYTES + body.len());
    content.extend_from_slice(SNAPSHOT_MAGIC);
    content.put_u16(SNAPSHOT_FORMAT);
    content.put_u64(image.end_offset());
    content.put_u32(crc32c(&body));
    content.extend_from_slice(&body);
    Ok(content)
}

async fn read_snapshot<D: Disk, R: Runtime>(
    disk: &D,
    runtime: &R,
    dir: &Path,
    end_offset: u64,
) -> Result<MetadataImage, QuorumError> {
    let path = snapshot_path(dir, end_offset);
    let damaged = |reason| QuorumError::SnapshotDamaged { path: path.clone(), reason };
    let content = read_file(disk, &path).await?.unwrap_or_default();
    let mut body = snapshot_body(&path, &content, end_offset)?;
    let mut records = Vec::new();
    while !body.is_empty() {
        let (len, rest) = body.split_first_chunk::<4>().ok_or_else(|| damaged(SnapshotDamage::Truncated))?;
        let len = u32::from_be_bytes(*len) as usize;
        let (batch, rest) = rest.split_at_checked(len).ok_or_else(|| damaged(SnapshotDamage::Truncated))?;
        let batch = decode_batch(batch).map_err(|source| QuorumError::SnapshotFormat { path: path.clone(), source })?;
        records.extend(batch);
        body = rest;
        runtime.turn().await;
    }
    let mut builder = ImageBuilder::new(&MetadataImage::default());
    if let Err(error) = builder.replay_snapshot(&records, end_offset) {
        tracing::error!(%error, path = %path.display(), "a snapshot of the metadata contradicts itself");
        return Err(damaged(SnapshotDamage::Contradiction));
    }
    Ok(builder.image().clone())
}

/// What stands behind the header, checked.
fn snapshot_body<'a>(path: &Path, content: &'a [u8], end_offset: u64) -> Result<&'a [u8], QuorumError> {
    let damaged = |reason| QuorumError::SnapshotDamaged { path: path.to_owned(), reason };
    let Some((header, body)) = content.split_first_chunk::<SNAPSHOT_HEADER_BYTES>() else {
        return Err(damaged(SnapshotDamage::NoHeader));
    };
    let [m0, m1, m2, m3, m4, m5, m6, m7, f0, f1, offset @ .., c0, c1, c2, c3] = *header;
    if [m0, m1, m2, m3, m4, m5, m6, m7] != *SNAPSHOT_MAGIC {
        return Err(damaged(SnapshotDamage::NoHeader));
    }
    let found = u16::from_be_bytes([f0, f1]);
    if found > SNAPSHOT_FORMAT {
        return Err(QuorumError::SnapshotNewer { path: path.to_owned(), found });
    }
    if u32::from_be_bytes([c0, c1, c2, c3]) != crc32c(body) {
        return Err(damaged(SnapshotDamage::Checksum));
    }
    if u64::from_be_bytes(offset) != end_offset {
        return Err(damaged(SnapshotDamage::OtherOffset));
    }
    Ok(body)
}

#[cfg(test)]
mod tests;

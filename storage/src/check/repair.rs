//! Mending a partition.
//!
//! | what is bad | what is done |
//! | --- | --- |
//! | batches that do not verify, with good ones behind them or not | their bytes go into `<segment>.log.<position>.damaged`, an empty batch takes their offsets |
//! | the end of the log is missing | an empty batch takes the offsets that had been acknowledged |
//! | an index | written anew |
//! | a producer snapshot | removed: producers are found again in the log |
//! | the leader epochs | written anew from the batches; a batch whose epoch is not that of a file which is good gets that one |
//! | the mark of a damaged journal | removed, when all the rest is durable |
//!
//! An offset that somebody may have read a record at is never given to another one; to a consumer what is lost looks like
//! records that compaction took. A segment is written under another name and takes its place when it is durable, with what
//! was put aside. So after a crash in the middle the same can be done again.

use std::path::{Path, PathBuf};

use bytes::{Bytes, BytesMut};
use walser_protocol::records::batch::{BatchHeader, BatchView};
use walser_protocol::records::builder::{BatchBuilder, BatchOptions};

use super::partition::{DAMAGED_SUFFIX, PartitionReport, SegmentRepair, WrongEpoch};
use super::segment::Bad;
use super::{Finding, check_again};
use crate::checkpoint::{self, TEMPORARY_SUFFIX, sync_dir};
use crate::data_dir::DataDir;
use crate::data_dir::log_ends::LOG_ENDS_FILE;
use crate::disk::{BLOCK_BYTES, Disk, File, OpenMode};
use crate::error::DiskError;
use crate::leader_epoch::{LEADER_EPOCH_FILE, LeaderEpochs};
use crate::log::{DamageMark, remove_if_there};
use crate::runtime::Runtime;
use crate::segment::{INDEX_SUFFIX, LOG_SUFFIX, Segment, TIME_INDEX_SUFFIX, file_path};

/// Written at once.
const WRITE_BYTES: usize = 1 << 20;
const _: () = assert!(WRITE_BYTES.is_multiple_of(BLOCK_BYTES));
/// As Kafka's default, which decides nothing but the size of the index.
const INDEX_INTERVAL_BYTES: u32 = 4096;

/// What a repair has cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    pub first_offset: i64,
    /// Inclusive. `None`: how much is lost behind `first_offset` is not known.
    pub last_offset: Option<i64>,
    /// Where what is left of it was put.
    pub aside: Option<PathBuf>,
}

/// What was done about one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    pub losses: Vec<Loss>,
    /// What is made anew and costs nothing.
    pub rebuilt: Vec<PathBuf>,
}

/// Why a partition stays as it is.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    #[error("the disk does not give all bytes of {}: copy what it gives to a good disk first", path.display())]
    Unreadable { path: PathBuf },
    #[error("{} is to end at offset {end_offset}, which no segment of it can", path.display())]
    TooFar { path: PathBuf, end_offset: i64 },
    #[error("{} still has damage after the repair: {reason}", path.display())]
    StillDamaged { path: PathBuf, reason: String },
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Mends a partition as a check found it, when no journal holds anything for it any more and [`forget_ends`] was called.
///
/// # Errors
/// When it cannot be mended; what was done until then is no harm.
pub async fn repair_partition<D: Disk, R: Runtime>(
    data_dir: &DataDir<D>,
    runtime: &R,
    report: PartitionReport,
) -> Result<Repaired, RepairError> {
    let dir = report.dir.clone();
    let mut repaired = repair_once(data_dir, runtime, report).await?;
    let mut again = check_again(data_dir, runtime, &dir).await?;
    if again.findings.iter().any(Finding::is_damage) {
        // What could not be seen before: batches whose leader epoch is wrong, while the file of them was bad.
        let Repaired { losses, rebuilt } = repair_once(data_dir, runtime, again).await?;
        repaired.losses.extend(losses);
        repaired.rebuilt.extend(rebuilt);
        again = check_again(data_dir, runtime, &dir).await?;
    }
    match again.findings.iter().find(|finding| finding.is_damage()) {
        Some(Finding { path, reason, .. }) => {
            Err(RepairError::StillDamaged { path: path.clone(), reason: reason.clone() })
        }
        None => Ok(repaired),
    }
}

async fn repair_once<D: Disk, R: Runtime>(
    data_dir: &DataDir<D>,
    runtime: &R,
    report: PartitionReport,
) -> Result<Repaired, RepairError> {
    let PartitionReport { dir, repair, end_offset, start_offset, .. } = report;
    let (disk, path) = (data_dir.disk(), data_dir.path().join(&dir.dir_name));
    if repair.has_unreadable {
        return Err(RepairError::Unreadable { path });
    }
    let mut repaired = Repaired::default();
    for wrong in &repair.wrong_epochs {
        let file = file_path(&path, wrong.base_offset, LOG_SUFFIX);
        set_epoch(disk, &file, wrong).await?;
        repaired.rebuilt.push(file);
    }
    let mut segments = repair.segments;
    if segments.is_empty() && end_offset < repair.end_offset && repair.mark.is_some() && is_empty(disk, &path).await? {
        // Everything of the log was in the journal alone.
        let end = start_offset..repair.end_offset;
        segments.push(SegmentRepair {
            base_offset: start_offset,
            bad: Vec::new(),
            end,
            data_bytes: 0,
            has_bad_index: false,
        });
    }
    for segment in &segments {
        let rewrite = Rewrite { disk, runtime, dir: &path, segment, epochs: &repair.known_epochs };
        rewrite.run(&mut repaired).await?;
    }
    for file in repair.remove {
        disk.remove_file(&file).await.map_err(|e| DiskError::new("remove", &file, e))?;
        repaired.rebuilt.push(file);
    }
    if let Some(epochs) = repair.epochs {
        let file = path.join(LEADER_EPOCH_FILE);
        checkpoint::replace_file(disk, &file, epochs.encode().as_bytes()).await?;
        repaired.rebuilt.push(file);
    }
    sync_dir(disk, &path).await?;
    if let Some(mark) = repair.mark {
        if mark.end_offset.is_none() {
            let first_offset = end_offset.max(repair.end_offset);
            repaired.losses.push(Loss { first_offset, last_offset: None, aside: None });
        }
        DamageMark::remove(disk, &path).await?;
    }
    Ok(repaired)
}

/// What is noted of the ends of logs is not true any more of a log that is repaired.
pub async fn forget_ends<D: Disk>(data_dir: &DataDir<D>) -> Result<(), DiskError> {
    remove_if_there(data_dir.disk(), &data_dir.path().join(LOG_ENDS_FILE)).await?;
    sync_dir(data_dir.disk(), data_dir.path()).await
}

/// Writes the four bytes anew, which no checksum covers.
async fn set_epoch<D: Disk>(disk: &D, path: &Path, wrong: &WrongEpoch) -> Result<(), DiskError> {
    const EPOCH_AT: u64 = 12;
    let failed = |operation| move |e| DiskError::new(operation, path, e);
    let file = disk.open(path, OpenMode::ReadWrite).await.map_err(failed("open"))?;
    let (position, len_bytes) = (wrong.position + EPOCH_AT, file.len_bytes().await.map_err(failed("measure"))?);
    let start = position / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
    let at = usize::try_from(position - start).expect("within a block");
    // They may lie in two blocks.
    let mut buffer = file.allocate(at + size_of::<i32>());
    let found = file.read_at(start, buffer.len()).await.map_err(failed("read"))?;
    buffer[..found.len()].copy_from_slice(&found);
    buffer[found.len()..].fill(0);
    buffer[at..at + size_of::<i32>()].copy_from_slice(&wrong.epoch.to_be_bytes());
    file.write_at(buffer, start).await.map_err(failed("write"))?;
    file.truncate(len_bytes).await.map_err(failed("truncate"))?;
    file.sync_data().await.map_err(failed("sync"))
}

async fn is_empty<D: Disk>(disk: &D, dir: &Path) -> Result<bool, DiskError> {
    let entries = disk.list_dir(dir).await.map_err(|e| DiskError::new("list", dir, e))?;
    Ok(!entries.iter().any(|entry| entry.name.ends_with(".log")))
}

/// One segment, written anew.
struct Rewrite<'a, D, R> {
    disk: &'a D,
    runtime: &'a R,
    dir: &'a Path,
    segment: &'a SegmentRepair,
    epochs: &'a LeaderEpochs,
}

/// The segment's new file, and the indexes of what is in it.
struct Output<F> {
    file: F,
    path: PathBuf,
    pending: BytesMut,
    position: u64,
    shadow: Segment<F>,
    epochs: LeaderEpochs,
    /// Of the last batch.
    leader_epoch: i32,
}

impl<D: Disk, R: Runtime> Rewrite<'_, D, R> {
    async fn run(&self, repaired: &mut Repaired) -> Result<(), RepairError> {
        let path = file_path(self.dir, self.segment.base_offset, LOG_SUFFIX);
        if i32::try_from(self.segment.end.end - self.segment.base_offset).is_err() {
            return Err(RepairError::TooFar { path, end_offset: self.segment.end.end });
        }
        let source =
            self.disk.open(&path, OpenMode::CreateOrOpen).await.map_err(|e| DiskError::new("open", &path, e))?;
        let is_rewritten = self.segment.is_rewritten();
        let mut temporary = path.clone().into_os_string();
        temporary.push(TEMPORARY_SUFFIX);
        let temporary = PathBuf::from(temporary);
        let file = if is_rewritten { self.create(&temporary).await? } else { source.clone() };
        let shadow = Segment::new(self.dir, self.segment.base_offset, 0);
        let mut output = Output {
            file,
            path: temporary,
            pending: BytesMut::new(),
            position: 0,
            shadow,
            epochs: self.epochs.clone(),
            leader_epoch: 0,
        };
        let mut losses = Vec::new();
        let mut position = 0;
        for bad in &self.segment.bad {
            self.copy(&source, position..bad.start, is_rewritten, &mut output).await?;
            let aside = self.put_aside(&source, &path, bad).await?;
            let end = bad.next_offset.unwrap_or(self.segment.end.end);
            let is_unknown = bad.next_offset.is_none() && end <= bad.offset && aside.is_some();
            match output.fill(bad.offset, end, aside.clone()) {
                Some(loss) => losses.push(loss),
                None if is_unknown => losses.push(Loss { first_offset: bad.offset, last_offset: None, aside }),
                None => {}
            }
            position = bad.end;
        }
        if self.segment.bad.last().is_none_or(|bad| bad.next_offset.is_some()) {
            self.copy(&source, position..self.segment.data_bytes, is_rewritten, &mut output).await?;
            losses.extend(output.fill(output.shadow.end_offset(), self.segment.end.end, None));
        }
        drop(source);
        if is_rewritten {
            output.finish().await?;
            // They are about the old file. Where there are none they are built anew.
            for suffix in [INDEX_SUFFIX, TIME_INDEX_SUFFIX] {
                remove_if_there(self.disk, &file_path(self.dir, self.segment.base_offset, suffix)).await?;
            }
            sync_dir(self.disk, self.dir).await?;
            let renamed = self.disk.rename(&output.path, &path).await;
            renamed.map_err(|e| DiskError::new("rename", &output.path, e))?;
        }
        output.shadow.complete_time_index();
        let (offset, time) = {
            let indexes = output.shadow.indexes.borrow();
            (indexes.offset.encode(), indexes.time.encode())
        };
        for (suffix, content) in [(INDEX_SUFFIX, offset), (TIME_INDEX_SUFFIX, time)] {
            let path = file_path(self.dir, self.segment.base_offset, suffix);
            checkpoint::write_file(self.disk, &path, &content).await?;
            repaired.rebuilt.push(path);
        }
        sync_dir(self.disk, self.dir).await?;
        repaired.losses.extend(losses);
        Ok(())
    }

    async fn create(&self, path: &Path) -> Result<D::File, DiskError> {
        let failed = |operation| move |e| DiskError::new(operation, path, e);
        let file = self.disk.open(path, OpenMode::CreateOrOpen).await.map_err(failed("create"))?;
        file.truncate(0).await.map_err(failed("truncate"))?;
        Ok(file)
    }

    /// Good batches.
    async fn copy(
        &self,
        source: &D::File,
        range: std::ops::Range<u64>,
        is_rewritten: bool,
        output: &mut Output<D::File>,
    ) -> Result<(), DiskError> {
        let mut position = range.start;
        while position < range.end {
            let read = |len| async move { source.read_at(position, len).await };
            let failed = |e| DiskError::new("read", source.path(), e);
            let len = usize::try_from(range.end - position).unwrap_or(usize::MAX).min(4 * WRITE_BYTES);
            let mut bytes = read(len).await.map_err(failed)?;
            if let Some(total) = first_len(&bytes).filter(|total| *total > bytes.len()) {
                bytes = read(total).await.map_err(failed)?;
            }
            let mut taken = 0;
            while let Ok((batch, _)) = BatchView::parse(&bytes[taken..]) {
                output.note(batch.header(), batch.total_len() as u64);
                taken += batch.total_len();
            }
            if taken == 0 {
                return Err(failed(std::io::ErrorKind::InvalidData.into()));
            }
            if is_rewritten {
                output.write(&bytes[..taken]).await?;
            }
            position += taken as u64;
            self.runtime.turn().await;
        }
        Ok(())
    }

    /// Keeps the bytes of a bad stretch, unless they are zeros; where.
    async fn put_aside(&self, source: &D::File, path: &Path, bad: &Bad) -> Result<Option<PathBuf>, DiskError> {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}{DAMAGED_SUFFIX}", bad.start));
        let aside = PathBuf::from(name);
        let mut target = None;
        let mut position = bad.start;
        while position < bad.end {
            let len = usize::try_from(bad.end - position).unwrap_or(usize::MAX).min(WRITE_BYTES);
            let bytes = source.read_at(position, len).await.map_err(|e| DiskError::new("read", path, e))?;
            if bytes.is_empty() {
                break;
            }
            if target.is_none() && bytes.iter().any(|byte| *byte != 0) {
                target = Some(self.create(&aside).await?);
            }
            if let Some(file) = &target {
                let mut buffer = file.allocate(bytes.len());
                buffer[..bytes.len()].copy_from_slice(&bytes);
                buffer[bytes.len()..].fill(0);
                let written = file.write_at(buffer, position - bad.start).await;
                written.map_err(|e| DiskError::new("write", &aside, e))?;
            }
            position += bytes.len() as u64;
            self.runtime.turn().await;
        }
        let Some(file) = target else { return Ok(None) };
        let failed = |operation| {
            let aside = aside.clone();
            move |e| DiskError::new(operation, aside, e)
        };
        file.truncate(position - bad.start).await.map_err(failed("truncate"))?;
        file.sync_data().await.map_err(failed("sync"))?;
        Ok(Some(aside))
    }
}

/// What the first batch says its length is.
fn first_len(bytes: &Bytes) -> Option<usize> {
    walser_protocol::records::batch::batch_total_len(bytes).ok()
}

impl<F: File> Output<F> {
    fn note(&mut self, header: &BatchHeader, total: u64) {
        self.shadow.note_batch(header, total, INDEX_INTERVAL_BYTES);
        self.leader_epoch = header.partition_leader_epoch;
    }

    /// An empty batch for the offsets from `first_offset` to below `end_offset`.
    fn fill(&mut self, first_offset: i64, end_offset: i64, aside: Option<PathBuf>) -> Option<Loss> {
        if first_offset >= end_offset {
            return None;
        }
        let options = BatchOptions {
            base_offset: first_offset,
            partition_leader_epoch: self.epochs.epoch_at(first_offset).unwrap_or(self.leader_epoch),
            ..BatchOptions::default()
        };
        let mut builder = BatchBuilder::new(options);
        builder.extend_to(end_offset - 1).expect("within a segment");
        let bytes = builder.build().expect("an empty batch is small");
        let header = BatchHeader::read(&bytes).expect("just built");
        self.note(&header, bytes.len() as u64);
        self.pending.extend_from_slice(&bytes);
        Some(Loss { first_offset, last_offset: Some(end_offset - 1), aside })
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), DiskError> {
        self.pending.extend_from_slice(bytes);
        while self.pending.len() >= WRITE_BYTES {
            let full = self.pending.split_to(WRITE_BYTES);
            self.write_blocks(&full).await?;
        }
        Ok(())
    }

    async fn write_blocks(&mut self, bytes: &[u8]) -> Result<(), DiskError> {
        let mut buffer = self.file.allocate(bytes.len());
        buffer[..bytes.len()].copy_from_slice(bytes);
        buffer[bytes.len()..].fill(0);
        let written = self.file.write_at(buffer, self.position).await;
        written.map_err(|e| DiskError::new("write", &self.path, e))?;
        self.position += bytes.len() as u64;
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), DiskError> {
        let rest = self.pending.split();
        for chunk in rest.chunks(WRITE_BYTES) {
            self.write_blocks(chunk).await?;
        }
        let path = &self.path;
        let failed = |operation| move |e| DiskError::new(operation, path, e);
        self.file.truncate(self.position).await.map_err(failed("truncate"))?;
        self.file.sync_data().await.map_err(failed("sync"))
    }
}

//! Opening a log: what a clean stop left is trusted, what a crash left is looked at.
//!
//! After a clean stop the log ends at the recovery point and no segment is opened. Otherwise, and where the recovery point
//! is missing or says less than the files and notes do, every segment from the recovery point on is scanned: each batch's CRC, the order of offsets, indexes, epochs and producers built anew. Of the
//! segment that a [note](super::known_end) speaks of only what lies behind the place that is noted, and when the file ends
//! there it is not opened. What is scanned is written again before it counts (`settle`). Where the batches end before the
//! files do, or before where it is known that they once ended, there are two cases (`proof`): an append that was never
//! acknowledged is cut off, and said so; where the bytes may have been acknowledged nothing is cut, and the log is served
//! up to there and takes no appends.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use walser_protocol::records::batch::BatchHeader;

use crate::cache::tail::TailBudget;
use crate::checkpoint::{self, TEMPORARY_SUFFIX, sync_dir};
use crate::disk::{DirEntry, Disk, File, OpenMode};
use crate::error::{Corruption, DiskError, LogOffline, OpenError, ReadError};
use crate::journal::JournalHandle;
use crate::leader_epoch::{LEADER_EPOCH_FILE, LeaderEpochs};
use crate::open_files::{Files, OpenFile, OpenFiles};
use crate::producer_state::ProducerStates;
use crate::runtime::Runtime;
use crate::segment::reader::{Scanner, Source};
use crate::segment::{
    CLEANED_INDEX_SUFFIX, CLEANED_LOG_SUFFIX, CLEANED_TIME_INDEX_SUFFIX, FoundSegment, INDEX_SUFFIX, LOG_SUFFIX,
    SNAPSHOT_SUFFIX, SWAP_LOG_SUFFIX, Segment, TIME_INDEX_SUFFIX, file_path, parse_file_name,
};

use super::commit::Unsynced;
use super::damage::{DAMAGE_FILE, DamageMark};
use super::known_end::KnownEnd;
use super::proof::{Proof, missing};
use super::read::Pace;
use super::rest::Notes;
use super::retention::DELETED_SUFFIX;
use super::seal::ToSeal;
use super::settle::Settler;
use super::{Health, Log, LogConfig, State};

/// What opening a log needs.
pub struct OpenLog<D: Disk, R: Runtime> {
    pub disk: D,
    pub runtime: R,
    /// Which files of the shard's logs are open.
    pub open_files: Rc<OpenFiles<D::File>>,
    pub budget: Rc<TailBudget>,
    /// What makes small appends durable; without one the log commits for itself.
    pub journal: Option<JournalHandle<D, R>>,
    /// The partition's directory; it exists.
    pub dir: PathBuf,
    /// What is in it, where that was listed just now.
    pub entries: Option<Vec<DirEntry>>,
    /// What was noted of its end.
    pub known_end: Option<Rc<KnownEnd>>,
    pub config: Rc<LogConfig>,
    /// The data directory was left by a clean stop.
    pub is_clean: bool,
    /// What was found is not flushed, for the sake of many other logs: [`RecoveryReport::needs_sync`].
    pub defers_sync: bool,
    /// From `recovery-point-offset-checkpoint`; `None` when it does not name this log.
    pub recovery_point: Option<i64>,
    /// From `log-start-offset-checkpoint`.
    pub log_start_offset: Option<i64>,
    /// From `cleaner-offset-checkpoint`: up to where the log was compacted.
    pub first_dirty_offset: Option<i64>,
    pub now_ms: i64,
}

/// What opening a log found.
#[derive(Clone, Debug, Default)]
pub struct RecoveryReport {
    /// The log is not to be used before [`Disk::sync_all`]: it may have what only a killed process knew of.
    pub needs_sync: bool,
    /// Bytes of batches that were checked; 0 when everything was trusted.
    pub scanned_bytes: u64,
    /// An unacknowledged end that was cut off.
    pub cut: Option<Cut>,
    /// Why the log takes no appends.
    pub corruption: Option<Corruption>,
}

/// Bytes cut off the end of a log.
#[derive(Clone, Debug)]
pub struct Cut {
    /// Where they began, and why they were no batches.
    pub at: Corruption,
    pub bytes: u64,
}

/// What lies in a partition's directory.
#[derive(Default)]
struct FoundFiles {
    segments: BTreeMap<i64, FoundSegment>,
    snapshots: BTreeSet<i64>,
    /// Base offsets of segments that were taking the place of others.
    swaps: Vec<i64>,
    /// Left over by a crash, or without a segment.
    useless: Vec<String>,
    has_epochs: bool,
    is_marked: bool,
}

/// Everything of a log that is found before there is one.
struct Recovered<F> {
    segments: BTreeMap<i64, Rc<Segment<F>>>,
    to_seal: VecDeque<Rc<ToSeal<F>>>,
    epochs: LeaderEpochs,
    saved_epochs: LeaderEpochs,
    producers: ProducerStates,
    log_end_offset: i64,
    mark: Option<DamageMark>,
    report: RecoveryReport,
    is_dir_durable: bool,
}

impl<D: Disk, R: Runtime> Log<D, R> {
    /// Opens what is in the directory; an empty directory is an empty log.
    pub async fn open(mut open: OpenLog<D, R>) -> Result<(Self, RecoveryReport), OpenError> {
        let (mut files, mark) = open.find().await?;
        if !files.swaps.is_empty() {
            let segments: Vec<i64> = files.segments.keys().copied().collect();
            for &base_offset in &files.swaps {
                open.finish_found_swap(base_offset, &segments).await?;
            }
            files = find_files(&open.disk, &open.dir).await?;
        }
        remove_files(&open.disk, &open.dir, &files.useless).await?;
        let first_offset = files.segments.keys().next().copied();
        let log_start_offset = open.log_start_offset.unwrap_or(0).max(first_offset.unwrap_or(0));
        let found: Vec<FoundSegment> = files.segments.values().copied().collect();
        let trusted_to = open.trusted_to(&found);
        let mut recovered = Recovered {
            segments: BTreeMap::new(),
            to_seal: VecDeque::new(),
            saved_epochs: LeaderEpochs::default(),
            epochs: LeaderEpochs::default(),
            producers: ProducerStates::default(),
            // Offsets are not given twice, even when every file is gone.
            log_end_offset: first_offset.unwrap_or(open.recovery_point.unwrap_or(0).max(log_start_offset)),
            mark,
            report: RecoveryReport::default(),
            is_dir_durable: false,
        };
        let scan_from = recovered.take_trusted(&open, &found, trusted_to);
        let known = open.usable_note(recovered.mark.as_ref(), &found[scan_from..], recovered.log_end_offset);
        let snapshot_at = match &known {
            Some(known) => {
                (recovered.producers, recovered.epochs) = (known.producers.clone(), known.epochs.clone());
                if known.epochs_are_saved {
                    recovered.saved_epochs = known.epochs.clone();
                }
                files.snapshots.contains(&known.end_offset).then_some(known.end_offset)
            }
            None => {
                if files.has_epochs {
                    recovered.epochs = read_epochs(&open.disk, &open.dir).await?;
                    recovered.saved_epochs = recovered.epochs.clone();
                }
                recovered.load_producers(&open, &files.snapshots).await?
            }
        };
        let is_untouched = files.segments.is_empty() && files.snapshots.is_empty();
        let has_nothing_new = known.as_ref().is_some_and(|known| known.is_all_of(&found[scan_from..]));
        if !open.is_clean && !is_untouched && !has_nothing_new {
            // A killed process may have made files whose names are not durable yet. Without a segment there is nothing to
            // lose, and the first one's file has the directory synced.
            recovered.report.needs_sync = open.defers_sync;
            if !open.defers_sync {
                sync_dir(&open.disk, &open.dir).await?;
            }
        }
        if let Some(known) = known.as_ref().filter(|_| has_nothing_new) {
            recovered.take_known(&open, known);
        } else {
            recovered.scan(&open, &found[scan_from..], known.as_deref()).await?;
        }
        // A snapshot of what was cut off would be believed once the log has grown past it again.
        for &offset in files.snapshots.range(recovered.log_end_offset.saturating_add(1)..) {
            remove_if_there(&open.disk, &file_path(&open.dir, offset, SNAPSHOT_SUFFIX)).await?;
        }
        recovered.log_end_offset = recovered.log_end_offset.max(log_start_offset);
        recovered.settle_mark(&open).await?;
        let is_clean =
            open.is_clean && recovered.report.scanned_bytes == 0 && snapshot_at == Some(recovered.log_end_offset);
        // The first segment's file comes after both.
        recovered.is_dir_durable = first_offset.is_some();
        let notes = open.known_end.as_ref().map(|found| Notes::found(found, known.is_some())).unwrap_or_default();
        Ok(open.finish(recovered, log_start_offset, files.snapshots, is_clean, notes))
    }
}

impl<D: Disk, R: Runtime> OpenLog<D, R> {
    pub(super) fn files(&self) -> Files<D> {
        Files { disk: self.disk.clone(), open: Rc::clone(&self.open_files) }
    }

    /// What lies in the directory. A log that is marked is none that was left clean.
    async fn find(&mut self) -> Result<(FoundFiles, Option<DamageMark>), DiskError> {
        let files = match &self.entries {
            Some(entries) => sort_files(entries),
            None => find_files(&self.disk, &self.dir).await?,
        };
        let mark = if files.is_marked { DamageMark::read(&self.disk, &self.dir).await? } else { None };
        self.is_clean &= mark.is_none();
        Ok((files, mark))
    }

    /// Exclusive: the batches below need no look.
    fn trusted_to(&self, found: &[FoundSegment]) -> i64 {
        let noted = self.known_end.as_ref().map(|known| known.base_offset);
        match self.clean_end(found) {
            Some(_) => i64::MAX,
            None => self.recovery_point.max(noted).unwrap_or(0),
        }
    }

    /// Where the last of the segments ends, if it is trusted.
    fn clean_end(&self, found: &[FoundSegment]) -> Option<i64> {
        let last = found.last().filter(|_| self.is_clean)?;
        let noted = self.known_end.as_ref().map(|known| known.end_offset);
        clean_end(self.recovery_point, noted, (last.base_offset, last.log_bytes))
    }

    /// The note, where it speaks of the first segment that is to be looked at; of a clean log, of its very end. After a
    /// clean stop somebody else may have had the directory, and says so in the recovery point.
    /// Of a log that may have lost something everything is looked at.
    fn usable_note(
        &self,
        mark: Option<&DamageMark>,
        untrusted: &[FoundSegment],
        trusted_end_offset: i64,
    ) -> Option<Rc<KnownEnd>> {
        let known = self.known_end.as_ref().filter(|_| mark.is_none())?;
        let is_usable = match untrusted.first() {
            Some(first) => known.base_offset == first.base_offset && known.position <= first.log_bytes,
            None => known.end_offset == trusted_end_offset,
        };
        is_usable.then(|| Rc::clone(known))
    }

    /// Exclusive: what lies below was on stable storage once.
    pub(super) fn durable_to(&self) -> i64 {
        let noted = self.known_end.as_ref().map_or(0, |known| known.end_offset);
        self.recovery_point.unwrap_or(0).max(noted)
    }

    fn finish(
        self,
        recovered: Recovered<D::File>,
        log_start_offset: i64,
        snapshots: BTreeSet<i64>,
        is_clean: bool,
        notes: Notes,
    ) -> (Log<D, R>, RecoveryReport) {
        let Recovered {
            mut segments,
            to_seal,
            mut epochs,
            saved_epochs,
            mut producers,
            log_end_offset,
            report,
            is_dir_durable,
            mark: _,
        } = recovered;
        if segments.is_empty() {
            let segment = Rc::new(Segment::new(&self.dir, log_end_offset, self.now_ms));
            segments.insert(log_end_offset, segment);
        }
        epochs.truncate_from_end(log_end_offset.saturating_add(1));
        epochs.truncate_from_start(log_start_offset);
        producers.expire(self.now_ms, self.config.producer_id_expiration_ms);
        let health = match &report.corruption {
            Some(corruption) => Health::Offline(LogOffline::Corrupt(corruption.clone())),
            None => Health::Good,
        };
        let active = segments.last_key_value().map_or(log_end_offset, |(base_offset, _)| *base_offset);
        let unfinished = to_seal.front().map_or(active, |next| next.segment.base_offset());
        let state = State {
            config: self.config,
            segments,
            log_start_offset,
            log_end_offset,
            epochs,
            epochs_changed: 0,
            has_new_epoch: false,
            saved_epochs,
            producers,
            staged: VecDeque::new(),
            staged_bytes: 0,
            staged_in_file_bytes: 0,
            is_dir_durable,
            unsynced: Unsynced::default(),
            flush_to: 0,
            direct_end_offset: 0,
            loose_end_offset: 0,
            is_write_back_due: false,
            leaving: None,
            held_pin: None,
            appended_at: None,
            to_seal,
            health,
            is_committing: false,
            is_sealing: false,
            is_closing: false,
            is_flush_timer_armed: false,
            recovery_point: if is_clean { log_end_offset } else { unfinished },
            snapshots: snapshots.into_iter().filter(|&offset| offset <= log_end_offset).collect(),
            clean_at: is_clean.then_some(log_end_offset),
            first_dirty_offset: self.first_dirty_offset.filter(|&offset| offset <= log_end_offset).unwrap_or(0),
            is_compacting_over: false,
            swap: None,
            removing: None,
            notes,
            is_rest_due: false,
            // A file that has more than its data is cut when the log is idle.
            rested_at: if report.needs_sync { -1 } else { log_end_offset },
            exchanges: 0,
            uses: 0,
        };
        let files = Files { disk: self.disk, open: self.open_files };
        let log = Log::from_parts(files, self.runtime, self.dir, self.budget, self.journal, state);
        log.start_seal();
        (log, report)
    }
}

impl<F: File> Recovered<F> {
    /// Takes segments that end at or below `trusted_to` as they are; how many those were.
    fn take_trusted<D: Disk<File = F>, R: Runtime>(
        &mut self,
        open: &OpenLog<D, R>,
        found: &[FoundSegment],
        trusted_to: i64,
    ) -> usize {
        for (at, segment) in found.iter().enumerate() {
            let end_offset = match found.get(at + 1) {
                Some(next) => next.base_offset,
                // Only a clean stop lets the last segment be trusted, and then its end is known.
                None => match open.clean_end(found) {
                    Some(end_offset) => end_offset,
                    None => return at,
                },
            };
            if end_offset > trusted_to {
                return at;
            }
            let trusted = Segment::existing(segment, &open.dir, end_offset, open.now_ms);
            if found.len() > at + 1 {
                trusted.mark_sealed();
            }
            self.segments.insert(segment.base_offset, Rc::new(trusted));
            self.log_end_offset = self.log_end_offset.max(end_offset);
        }
        found.len()
    }

    /// Producer state at the end of the trusted segments: the latest snapshot that can be read, and what follows it. The
    /// offset of that snapshot.
    async fn load_producers<D: Disk<File = F>, R: Runtime>(
        &mut self,
        open: &OpenLog<D, R>,
        snapshots: &BTreeSet<i64>,
    ) -> Result<Option<i64>, OpenError> {
        let mut snapshot_at = None;
        for &offset in snapshots.range(..=self.log_end_offset).rev() {
            let path = file_path(&open.dir, offset, SNAPSHOT_SUFFIX);
            let Some(bytes) = checkpoint::read_file(&open.disk, &path).await? else { continue };
            match ProducerStates::decode_snapshot(&bytes) {
                Ok(producers) => {
                    self.producers = producers;
                    snapshot_at = Some(offset);
                    break;
                }
                Err(error) => tracing::warn!(path = %path.display(), %error, "producer snapshot not used"),
            }
        }
        let replay_from = snapshot_at.unwrap_or(i64::MIN);
        let segments: Vec<_> = self.segments.values().filter(|s| s.end_offset() > replay_from).cloned().collect();
        for segment in segments {
            self.replay_producers(open, &segment, replay_from).await?;
        }
        Ok(snapshot_at)
    }

    async fn replay_producers<D: Disk<File = F>, R: Runtime>(
        &mut self,
        open: &OpenLog<D, R>,
        segment: &Segment<F>,
        replay_from: i64,
    ) -> Result<(), OpenError> {
        if segment.written_bytes() == 0 {
            return Ok(());
        }
        let file = segment.file(&open.files(), OpenMode::ReadWrite).await?;
        let mut scanner = Scanner::new(segment, &file, 0, usize::MAX);
        let mut pace = Pace::new(&open.runtime);
        loop {
            let (header, total) = match scanner.peek().await {
                Ok(Some(next)) => next,
                Ok(None) => return Ok(()),
                Err(error) => return Err(open_error(error)),
            };
            if header.base_offset >= replay_from {
                let bytes = if header.attributes.is_control() {
                    scanner.bytes(total).await.map_err(open_error)?
                } else {
                    bytes::Bytes::new()
                };
                note_producer(&mut self.producers, &header, &bytes);
            }
            scanner.advance(&header, total);
            pace.step().await;
        }
    }

    /// The last segment has what was noted of it, and no more.
    fn take_known<D: Disk<File = F>, R: Runtime>(&mut self, open: &OpenLog<D, R>, known: &KnownEnd) {
        if !self.segments.contains_key(&known.base_offset) {
            let segment = Segment::known(known, &open.dir, open.now_ms);
            self.log_end_offset = self.log_end_offset.max(known.end_offset);
            self.segments.insert(known.base_offset, Rc::new(segment));
        }
    }

    /// Checks every batch of the segments that are not trusted, but for those in the first one that `known` speaks of.
    async fn scan<D: Disk<File = F>, R: Runtime>(
        &mut self,
        open: &OpenLog<D, R>,
        found: &[FoundSegment],
        known: Option<&KnownEnd>,
    ) -> Result<(), OpenError> {
        for (at, segment) in found.iter().enumerate() {
            let later = &found[at + 1..];
            let known = known.filter(|_| at == 0);
            let (scanned, file, bad) = self.scan_segment(open, segment, known).await?;
            let bad = bad.or_else(|| missing(&scanned, later, open.durable_to()));
            if let Some(bad) = bad {
                let mark = self.mark.clone();
                let proof = Proof { found: segment, later, bad: &bad, mark: mark.as_ref() };
                if proof.was_acknowledged(open, &*file).await? {
                    tracing::error!(%bad, "damage in the middle of a log: served up to there, no appends");
                    file.sync_data().await.map_err(|e| DiskError::new("sync", scanned.path(), e))?;
                    self.report.corruption = Some(bad);
                } else {
                    self.cut(&proof, &scanned, &*file).await?;
                }
                self.take_scanned(scanned, None);
                return Ok(());
            }
            if later.is_empty() && open.defers_sync {
                // Behind the data are zeros, which stay until the log is idle.
                self.report.needs_sync = true;
            } else if later.is_empty() {
                cut_file(&*file, &scanned).await?;
            } else {
                file.sync_data().await.map_err(|e| DiskError::new("sync", scanned.path(), e))?;
            }
            self.take_scanned(scanned, later.first());
        }
        Ok(())
    }

    /// A marked log that has all it should have is one like others again.
    async fn settle_mark<D: Disk<File = F>, R: Runtime>(&mut self, open: &OpenLog<D, R>) -> Result<(), DiskError> {
        let Some(mark) = self.mark.as_ref().filter(|_| self.report.corruption.is_none()) else { return Ok(()) };
        if mark.covers(self.log_end_offset) {
            self.report.corruption = Some(mark.corruption(self.log_end_offset));
            return Ok(());
        }
        DamageMark::remove(&open.disk, &open.dir).await
    }

    fn take_scanned(&mut self, segment: Segment<F>, next: Option<&FoundSegment>) {
        let segment = Rc::new(segment);
        self.log_end_offset = self.log_end_offset.max(segment.end_offset());
        self.segments.insert(segment.base_offset(), Rc::clone(&segment));
        if let Some(next) = next {
            segment.seal();
            let snapshot = self.producers.encode_snapshot();
            self.to_seal.push_back(Rc::new(ToSeal { segment, end_offset: next.base_offset, snapshot }));
        }
    }

    /// The segment up to the first bad batch, and what is bad about that one.
    async fn scan_segment<D: Disk<File = F>, R: Runtime>(
        &mut self,
        open: &OpenLog<D, R>,
        found: &FoundSegment,
        known: Option<&KnownEnd>,
    ) -> Result<(Segment<F>, OpenFile<F>, Option<Corruption>), OpenError> {
        let segment = match known {
            Some(known) => Segment::known(known, &open.dir, open.now_ms),
            None => Segment::new(&open.dir, found.base_offset, open.now_ms),
        };
        segment.note_name_durable();
        self.log_end_offset = self.log_end_offset.max(segment.end_offset());
        let known_bytes = segment.appended_bytes();
        let file = segment.file(&open.files(), OpenMode::ReadWrite).await?;
        let mut scanner = Scanner::new(&segment, &file, known_bytes, usize::MAX)
            .with_limit(found.log_bytes)
            .with_expected_offset(segment.end_offset());
        let mut pace = Pace::new(&open.runtime);
        let mut settler = Settler::default();
        let bad = loop {
            match next_checked(&mut scanner).await {
                Ok(Some((header, bytes))) => {
                    segment.note_batch(&header, bytes.len() as u64, open.config.index_interval_bytes);
                    self.note_scanned(&header, &bytes);
                    scanner.advance(&header, bytes.len());
                    settler.take(&open.disk, &segment, &file, bytes).await?;
                    pace.step().await;
                }
                Ok(None) => break None,
                Err(ReadError::Corrupt(bad)) => break Some(bad),
                Err(error) => return Err(open_error(error)),
            }
        };
        settler.finish(&open.disk, &segment, &file, found.log_bytes).await?;
        // Zeros behind the data are where the next batch would go.
        let rest = scanner.position();
        let is_zeros =
            is_zeros(&*file, rest, found.log_bytes).await.map_err(|e| DiskError::new("read", segment.path(), e))?;
        segment.set_written_bytes(segment.appended_bytes());
        self.report.scanned_bytes += segment.written_bytes() - known_bytes;
        Ok((segment, file, bad.filter(|_| !is_zeros)))
    }

    fn note_scanned(&mut self, header: &BatchHeader, bytes: &[u8]) {
        let (epoch, base_offset) = (header.partition_leader_epoch, header.base_offset);
        // Compaction may have taken the first batch of an epoch that the file knows. And the file may know epochs by batches that
        // are lost, so that they began elsewhere.
        let is_new = self.epochs.latest().is_none_or(|latest| latest.epoch < epoch);
        if is_new || self.epochs.entries().iter().any(|known| known.epoch == epoch && known.start_offset > base_offset)
        {
            self.epochs.assign(epoch, base_offset);
        }
        if header.base_offset >= self.log_end_offset {
            note_producer(&mut self.producers, header, bytes);
        }
    }

    /// Cuts an end off that was never acknowledged, which is in the last segment.
    async fn cut(&mut self, proof: &Proof<'_>, scanned: &Segment<F>, file: &F) -> Result<(), OpenError> {
        cut_file(file, scanned).await?;
        let bytes = proof.bytes_behind();
        tracing::warn!(at = %proof.bad, bytes, "unacknowledged end of a log cut off");
        self.report.cut = Some(Cut { at: proof.bad.clone(), bytes });
        Ok(())
    }
}

/// Where a log that was stopped cleanly ends, if its recovery point tells: a clean stop has left the last segment finished,
/// and the log's end in the checkpoint. The checkpoint may be gone, or older than what was `noted` of the end, and one in
/// front of what the `last` segment, base offset and bytes, holds is no end.
pub(crate) fn clean_end(recovery_point: Option<i64>, noted: Option<i64>, last: (i64, u64)) -> Option<i64> {
    let (base_offset, bytes) = last;
    let is_end = |end: &i64| if bytes > 0 { *end > base_offset } else { *end >= base_offset };
    recovery_point.filter(|end| is_end(end) && noted.is_none_or(|noted| noted <= *end))
}

pub(super) async fn next_checked<F: File, S: Source>(
    scanner: &mut Scanner<'_, F, S>,
) -> Result<Option<(BatchHeader, bytes::Bytes)>, ReadError> {
    let Some((header, total)) = scanner.peek().await? else { return Ok(None) };
    let bytes = scanner.checked_bytes(&header, total, true).await?;
    Ok(Some((header, bytes)))
}

async fn is_zeros<F: File>(file: &F, mut position: u64, limit: u64) -> std::io::Result<bool> {
    const WINDOW_BYTES: u64 = 1 << 20;
    while position < limit {
        let bytes = file.read_at(position, WINDOW_BYTES.min(limit - position) as usize).await?;
        if bytes.is_empty() {
            break;
        }
        if bytes.iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
        position += bytes.len() as u64;
    }
    Ok(true)
}

/// What is behind the data goes, and stays away: otherwise it could look like batches once more are written before it.
async fn cut_file<F: File>(file: &F, segment: &Segment<F>) -> Result<(), DiskError> {
    let failed = |operation| move |e| DiskError::new(operation, segment.path(), e);
    file.truncate(segment.written_bytes()).await.map_err(failed("truncate"))?;
    file.sync_data().await.map_err(failed("sync"))
}

fn note_producer(producers: &mut ProducerStates, header: &BatchHeader, bytes: &[u8]) {
    if header.attributes.is_control() {
        if let Some(marker) = super::lookup::end_marker(bytes) {
            producers.note_marker(&marker, header.base_offset);
        }
    } else {
        producers.note_batch(header, header.base_offset);
    }
}

pub(super) fn open_error(error: ReadError) -> OpenError {
    match error {
        ReadError::Corrupt(corruption) => OpenError::Corrupt(corruption),
        ReadError::Disk(error) => OpenError::Disk(error),
        ReadError::OffsetOutOfRange { .. } => unreachable!("a scan asks for no offset"),
    }
}

async fn read_epochs<D: Disk>(disk: &D, dir: &Path) -> Result<LeaderEpochs, OpenError> {
    let path = dir.join(LEADER_EPOCH_FILE);
    let Some(bytes) = checkpoint::read_file(disk, &path).await? else { return Ok(LeaderEpochs::default()) };
    Ok(LeaderEpochs::decode(&bytes).unwrap_or_else(|error| {
        tracing::warn!(path = %path.display(), %error, "leader epochs not used");
        LeaderEpochs::default()
    }))
}

async fn find_files<D: Disk>(disk: &D, dir: &Path) -> Result<FoundFiles, DiskError> {
    let entries = disk.list_dir(dir).await.map_err(|e| DiskError::new("list", dir, e))?;
    Ok(sort_files(&entries))
}

fn sort_files(entries: &[DirEntry]) -> FoundFiles {
    let mut files = FoundFiles::default();
    let mut indexes = Vec::new();
    for entry in entries.iter().filter(|entry| !entry.is_dir) {
        match parse_file_name(&entry.name) {
            Some((base_offset, LOG_SUFFIX)) => {
                let found =
                    FoundSegment { base_offset, log_bytes: entry.len_bytes, index_bytes: 0, time_index_bytes: 0 };
                files.segments.insert(base_offset, found);
            }
            Some((base_offset, SNAPSHOT_SUFFIX)) => {
                files.snapshots.insert(base_offset);
            }
            Some((base_offset, INDEX_SUFFIX | TIME_INDEX_SUFFIX)) => indexes.push((base_offset, entry)),
            Some((base_offset, SWAP_LOG_SUFFIX)) => files.swaps.push(base_offset),
            Some((_, CLEANED_LOG_SUFFIX | CLEANED_INDEX_SUFFIX | CLEANED_TIME_INDEX_SUFFIX)) => {
                files.useless.push(entry.name.clone())
            }
            _ if entry.name == LEADER_EPOCH_FILE => files.has_epochs = true,
            _ if entry.name == DAMAGE_FILE => files.is_marked = true,
            _ if entry.name.ends_with(TEMPORARY_SUFFIX) || entry.name.ends_with(DELETED_SUFFIX) => {
                files.useless.push(entry.name.clone())
            }
            _ => {}
        }
    }
    for (base_offset, entry) in indexes {
        match files.segments.get_mut(&base_offset) {
            Some(segment) if entry.name.ends_with(TIME_INDEX_SUFFIX) => segment.time_index_bytes = entry.len_bytes,
            Some(segment) => segment.index_bytes = entry.len_bytes,
            None => files.useless.push(entry.name.clone()),
        }
    }
    files
}

async fn remove_files<D: Disk>(disk: &D, dir: &Path, names: &[String]) -> Result<(), DiskError> {
    for name in names {
        remove_if_there(disk, &dir.join(name)).await?;
    }
    Ok(())
}

pub(crate) async fn remove_if_there<D: Disk>(disk: &D, path: &Path) -> Result<(), DiskError> {
    unless_gone(path, disk.remove_file(path).await)
}

/// A file that was to be removed may be gone already.
pub(super) fn unless_gone(path: &Path, removed: std::io::Result<()>) -> Result<(), DiskError> {
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(DiskError::new("remove", path, error)),
        _ => Ok(()),
    }
}

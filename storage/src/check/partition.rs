//! One partition's directory.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use walser_protocol::records::batch::BatchHeader;

use super::indexes::IndexWalk;
use super::overlay::Overlaid;
use super::segment::{Bad, Scanned, Visitor, scan};
use super::{Event, Finding, FromJournal, Known};
use crate::checkpoint::{self, TEMPORARY_SUFFIX};
use crate::data_dir::DataDir;
use crate::data_dir::log_ends::LOG_ENDS_FILE;
use crate::data_dir::partition::FoundDir;
use crate::disk::{DirEntry, Disk, OpenMode};
use crate::error::{Corruption, DiskError};
use crate::index::offset::OffsetIndex;
use crate::index::time::TimeIndex;
use crate::journal::replay::{Content, Run, fill_front};
use crate::leader_epoch::{LEADER_EPOCH_FILE, LeaderEpochs};
use crate::log::{DAMAGE_FILE, DELETED_SUFFIX, DamageMark, GROUP_BYTES_MAX, clean_end};
use crate::producer_state::ProducerStates;
use crate::runtime::Runtime;
use crate::segment::reader::last_offset;
use crate::segment::{
    INDEX_SUFFIX, LOG_SUFFIX, SNAPSHOT_SUFFIX, Segment, TIME_INDEX_SUFFIX, file_path, parse_file_name,
};

/// Ending of what a repair has put beside a segment.
pub(crate) const DAMAGED_SUFFIX: &str = ".damaged";

/// What a partition's directory holds, and what of it can be mended.
#[derive(Clone, Debug)]
pub struct PartitionReport {
    pub dir: FoundDir,
    pub findings: Vec<Finding>,
    pub batches: u64,
    pub bytes: u64,
    /// Of the first segment, or where there is none of the log.
    pub start_offset: i64,
    /// Behind the last good batch.
    pub end_offset: i64,
    pub(super) repair: Repair,
}

/// What would mend it.
#[derive(Clone, Debug, Default)]
pub(super) struct Repair {
    pub segments: Vec<SegmentRepair>,
    /// Files that are bad and made anew, or not needed.
    pub remove: Vec<PathBuf>,
    pub epochs: Option<LeaderEpochs>,
    /// As the file has them, or the batches.
    pub known_epochs: LeaderEpochs,
    /// Batches with a leader epoch that is none of theirs, which no checksum covers.
    pub wrong_epochs: Vec<WrongEpoch>,
    pub mark: Option<DamageMark>,
    /// What the log's end is to be at least.
    pub end_offset: i64,
    pub has_unreadable: bool,
}

/// A batch that says another leader epoch than the log's file of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WrongEpoch {
    /// Of the segment.
    pub base_offset: i64,
    pub position: u64,
    pub offset: i64,
    pub epoch: i32,
}

/// More of them are no damage to batches.
const WRONG_EPOCHS_MAX: usize = 1000;

/// A segment whose file or whose indexes are to be written anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SegmentRepair {
    pub base_offset: i64,
    pub bad: Vec<Bad>,
    /// Behind the last good batch, and where the segment has to end: the same where nothing is missing.
    pub end: Range<i64>,
    pub data_bytes: u64,
    pub has_bad_index: bool,
}

impl SegmentRepair {
    pub fn is_rewritten(&self) -> bool {
        !self.bad.is_empty() || !self.end.is_empty()
    }
}

/// The files of a partition, by what their names say.
#[derive(Default)]
struct Files {
    segments: BTreeMap<i64, u64>,
    indexes: BTreeMap<(i64, &'static str), u64>,
    snapshots: Vec<i64>,
    others: Vec<String>,
}

/// Takes batches of one segment.
struct Walk<'a> {
    indexes: IndexWalk,
    /// Behind the last batch.
    position: u64,
    /// Position and end offset that are noted, until a batch ends there.
    noted: Option<(u64, i64)>,
    epochs: &'a mut EpochWalk,
    observe: &'a dyn Fn(Event<'_>),
}

/// Leader epochs as batches have them, and as the file does.
struct EpochWalk {
    filed: Option<LeaderEpochs>,
    found: LeaderEpochs,
    /// The file is only held against what is below it.
    trusted_to: i64,
    log_start_offset: i64,
    /// Of the segment that is read.
    base_offset: i64,
    wrong: Vec<WrongEpoch>,
    is_file_bad: bool,
}

impl Visitor for Walk<'_> {
    fn visit(&mut self, position: u64, header: &BatchHeader, bytes: &Bytes) {
        self.indexes.visit(position, header, position != self.position);
        self.position = position + bytes.len() as u64;
        let end = (self.position, last_offset(header) + 1);
        self.noted = self.noted.filter(|noted| *noted != end);
        self.epochs.visit(position, header);
    }

    fn read(&mut self, bytes: u64) {
        (self.observe)(Event::Read(bytes));
    }
}

impl EpochWalk {
    fn visit(&mut self, position: u64, header: &BatchHeader) {
        let (epoch, offset) = (header.partition_leader_epoch, header.base_offset);
        // They never fall: one that does shows that the one before was none.
        while let Some(latest) = self.found.latest().filter(|latest| latest.epoch > epoch) {
            self.found.truncate_from_end(latest.start_offset);
        }
        if self.found.latest().is_none_or(|latest| latest.epoch < epoch) {
            self.found.assign(epoch, offset);
        }
        let is_judged = offset >= self.log_start_offset && offset < self.trusted_to;
        let filed = self.filed.as_ref().filter(|_| is_judged).and_then(|filed| filed.epoch_at(offset));
        if let Some(filed) = filed.filter(|filed| *filed != epoch && self.wrong.len() < WRONG_EPOCHS_MAX) {
            self.wrong.push(WrongEpoch { base_offset: self.base_offset, position, offset, epoch: filed });
        }
    }
}

/// A segment as it was found.
struct FoundSegment {
    scanned: Scanned,
    /// Where the next one begins.
    next_base: Option<i64>,
    /// Where the last good batch ends.
    good_end: u64,
    has_bad_index: bool,
}

/// Checks one partition.
pub(super) async fn check<D: Disk, R: Runtime>(
    data_dir: &DataDir<D>,
    runtime: &R,
    dir: &FoundDir,
    known: Known,
    journal: FromJournal,
    observe: &dyn Fn(Event<'_>),
) -> Result<PartitionReport, DiskError> {
    let (disk, path) = (data_dir.disk(), data_dir.path().join(&dir.dir_name));
    let entries = disk.list_dir(&path).await.map_err(|e| DiskError::new("list", &path, e))?;
    let files = Files::sort(&entries);
    let noted = DamageMark::read(disk, &path).await?;
    let is_marked = noted.is_some();
    let mark = match (journal.mark, noted) {
        (Some(coming), Some(noted)) => Some(coming.and(&noted)),
        (coming, noted) => noted.or(coming),
    };
    let known = Known { is_clean: known.is_clean && mark.is_none(), ..known };
    let mut checker = Checker {
        disk,
        runtime,
        name: dir.dir_name.clone(),
        path,
        known,
        trusted_to: known.trusted_to(&files),
        mark,
        is_marked,
        has_swap: false,
        findings: Vec::new(),
        repair: Repair::default(),
        observe,
    };
    checker.check_id(dir);
    checker.note_others(&files);
    checker.check_snapshots(&files).await?;
    let mut epochs = checker.read_epochs(&entries).await?;
    let segments = checker.scan_all(&files, journal.runs, &mut epochs).await?;
    checker.check_epochs(epochs);
    let start_offset = segments.first().map_or(known.log_start_offset.unwrap_or(0), |first| first.scanned.base_offset);
    let end_offset = checker.judge(&segments);
    let (batches, bytes) =
        (segments.iter().map(|s| s.scanned.batches).sum(), segments.iter().map(|s| s.good_end).sum());
    let Checker { findings, repair, .. } = checker;
    Ok(PartitionReport { dir: dir.clone(), findings, batches, bytes, start_offset, end_offset, repair })
}

impl Known {
    /// As a start decides it, exclusive: below it a start looks at nothing.
    fn trusted_to(&self, files: &Files) -> i64 {
        let noted_end = self.noted.map(|noted| noted.end_offset);
        let last = files.segments.last_key_value().filter(|_| self.is_clean);
        let end =
            last.and_then(|(base_offset, bytes)| clean_end(self.recovery_point, noted_end, (*base_offset, *bytes)));
        match end {
            Some(_) => i64::MAX,
            None => self.recovery_point.max(self.noted.map(|noted| noted.base_offset)).unwrap_or(0),
        }
    }
}

impl Files {
    fn sort(entries: &[DirEntry]) -> Self {
        let mut files = Self::default();
        for entry in entries.iter().filter(|entry| !entry.is_dir) {
            match parse_file_name(&entry.name) {
                Some((base_offset, LOG_SUFFIX)) => {
                    files.segments.insert(base_offset, entry.len_bytes);
                }
                Some((base_offset, INDEX_SUFFIX)) => {
                    files.indexes.insert((base_offset, INDEX_SUFFIX), entry.len_bytes);
                }
                Some((base_offset, TIME_INDEX_SUFFIX)) => {
                    files.indexes.insert((base_offset, TIME_INDEX_SUFFIX), entry.len_bytes);
                }
                Some((offset, SNAPSHOT_SUFFIX)) => files.snapshots.push(offset),
                Some(_) | None => files.others.push(entry.name.clone()),
            }
        }
        files
    }
}

struct Checker<'a, D, R> {
    disk: &'a D,
    runtime: &'a R,
    name: String,
    path: PathBuf,
    known: Known,
    trusted_to: i64,
    mark: Option<DamageMark>,
    /// The mark is there, and not only to come at the next start.
    is_marked: bool,
    /// A compacted segment takes the place of others, of which some may be gone.
    has_swap: bool,
    findings: Vec<Finding>,
    repair: Repair,
    observe: &'a dyn Fn(Event<'_>),
}

impl<D: Disk, R: Runtime> Checker<'_, D, R> {
    fn add(&mut self, finding: Finding) {
        self.findings.push(Finding { partition: Some(self.name.clone()), ..finding });
    }

    fn check_id(&mut self, dir: &FoundDir) {
        if dir.topic_id.is_none() {
            let path = self.path.join(crate::data_dir::partition::PARTITION_METADATA_FILE);
            self.add(Finding::note(&path, "no topic id", "it gets that of the topic with its name, if there is one"));
        }
    }

    fn note_others(&mut self, files: &Files) {
        for name in &files.others {
            let path = self.path.join(name);
            if name.ends_with(DAMAGED_SUFFIX) {
                self.add(Finding::note(&path, "what a repair has put aside", "nothing: it is yours to remove"));
            } else if name.ends_with(TEMPORARY_SUFFIX) || name.ends_with(DELETED_SUFFIX) || name.ends_with(".cleaned") {
                self.add(Finding::note(&path, "left by a crash", "it is removed"));
            } else if name.ends_with(".swap") {
                self.has_swap = true;
                self.add(Finding::note(&path, "a compacted segment on its way", "it takes its place"));
            }
        }
        for &(base_offset, suffix) in files.indexes.keys() {
            if !files.segments.contains_key(&base_offset) {
                let path = file_path(&self.path, base_offset, suffix);
                self.add(Finding::note(&path, "an index without a segment", "it is removed"));
            }
        }
    }

    async fn check_snapshots(&mut self, files: &Files) -> Result<(), DiskError> {
        for &offset in &files.snapshots {
            let path = file_path(&self.path, offset, SNAPSHOT_SUFFIX);
            let Some(bytes) = checkpoint::read_file(self.disk, &path).await? else { continue };
            if let Err(error) = ProducerStates::decode_snapshot(&bytes) {
                let consequence = "it is not used: producers are found again in the log";
                self.add(Finding::damage(&path, error.to_string(), consequence));
                self.repair.remove.push(path);
            }
        }
        Ok(())
    }

    async fn read_epochs(&mut self, entries: &[DirEntry]) -> Result<EpochWalk, DiskError> {
        let path = self.path.join(LEADER_EPOCH_FILE);
        let mut walk = EpochWalk {
            filed: None,
            found: LeaderEpochs::default(),
            trusted_to: self.trusted_to,
            log_start_offset: self.known.log_start_offset.unwrap_or(0),
            base_offset: 0,
            wrong: Vec::new(),
            is_file_bad: false,
        };
        if !entries.iter().any(|entry| entry.name == LEADER_EPOCH_FILE) {
            return Ok(walk);
        }
        let bytes = checkpoint::read_file(self.disk, &path).await?.unwrap_or_default();
        match LeaderEpochs::decode(&bytes) {
            Ok(filed) => walk.filed = Some(filed),
            Err(error) => {
                let consequence = "it is not used: epochs are found again in the batches that are read at the start";
                self.add(Finding::damage(&path, error.to_string(), consequence));
                walk.is_file_bad = true;
            }
        }
        Ok(walk)
    }

    fn check_epochs(&mut self, walk: EpochWalk) {
        if walk.is_file_bad {
            self.repair.epochs = Some(walk.found.clone());
        }
        self.repair.known_epochs = walk.filed.unwrap_or(walk.found);
        for wrong in &walk.wrong {
            let path = file_path(&self.path, wrong.base_offset, LOG_SUFFIX);
            let reason =
                format!("the batch has another leader epoch than {LEADER_EPOCH_FILE}, which says {}", wrong.epoch);
            let mut finding = Finding::damage(&path, reason, "a larger one may keep appends out");
            (finding.position, finding.offset) = (Some(wrong.position), Some(wrong.offset));
            self.add(finding);
        }
        self.repair.wrong_epochs = walk.wrong;
    }

    /// Whether a start takes the segment that ends at `next_base`, or is the last one, as it is.
    fn is_trusted(&self, next_base: Option<i64>) -> bool {
        next_base.unwrap_or(i64::MAX) <= self.trusted_to
    }

    /// Exclusive: below it everything was on stable storage once.
    fn durable_to(&self) -> i64 {
        let noted = self.known.noted.map(|noted| noted.end_offset);
        if self.known.is_clean { i64::MAX } else { self.known.recovery_point.max(noted).unwrap_or(0) }
    }

    async fn scan_all(
        &mut self,
        files: &Files,
        mut runs: BTreeMap<i64, Vec<Run>>,
        epochs: &mut EpochWalk,
    ) -> Result<Vec<FoundSegment>, DiskError> {
        // Records of segments below the last file are void, see `journal::replay`.
        if let Some(last) = files.segments.keys().next_back() {
            runs = runs.split_off(last);
        } else if self.mark.is_some() {
            let begins_at = self.known.recovery_point.max(self.known.log_start_offset).unwrap_or(0);
            fill_front(&mut runs, begins_at);
        }
        let mut bases: Vec<i64> = files.segments.keys().chain(runs.keys()).copied().collect();
        bases.sort_unstable();
        bases.dedup();
        let mut segments = Vec::with_capacity(bases.len());
        for (at, &base_offset) in bases.iter().enumerate() {
            let next_base = bases.get(at + 1).copied();
            let content = Content::new(self.runtime, runs.remove(&base_offset).unwrap_or_default()).await;
            let file_bytes = files.segments.get(&base_offset).copied();
            let found = self.scan_one(files, base_offset, next_base, (file_bytes, content), epochs).await?;
            segments.push(found);
        }
        Ok(segments)
    }

    async fn scan_one(
        &mut self,
        files: &Files,
        base_offset: i64,
        next_base: Option<i64>,
        (file_bytes, content): (Option<u64>, Content),
        epochs: &mut EpochWalk,
    ) -> Result<FoundSegment, DiskError> {
        let path = file_path(&self.path, base_offset, LOG_SUFFIX);
        let file = match file_bytes {
            Some(_) => Some(self.disk.open(&path, OpenMode::Read).await.map_err(|e| DiskError::new("open", &path, e))?),
            None => None,
        };
        let file = Overlaid::new(path, file, file_bytes.unwrap_or(0), content);
        let len_bytes = file.end();
        let segment = Segment::new(&self.path, base_offset, 0);
        let is_trusted = self.is_trusted(next_base);
        let (indexes, mut has_bad_index) = if is_trusted {
            self.read_indexes(files, base_offset, len_bytes, next_base.unwrap_or(i64::MAX)).await?
        } else {
            (IndexWalk::default(), false)
        };
        epochs.base_offset = base_offset;
        let noted = self.known.noted.filter(|noted| noted.base_offset == base_offset && noted.position > 0);
        let noted = noted.map(|noted| (noted.position, noted.end_offset));
        let mut walk = Walk { indexes, position: 0, noted, epochs, observe: self.observe };
        let limit = next_base.unwrap_or(i64::MAX);
        let mut scanned = scan(self.runtime, &segment, &file, len_bytes, limit, &mut walk).await;
        let good_end = walk.position;
        // Where the segment is bad itself, or too short, that is said elsewhere.
        if let Some((position, offset)) =
            walk.noted.filter(|(position, _)| scanned.bad.is_empty() && *position <= good_end)
        {
            let path = self.path.with_file_name(LOG_ENDS_FILE);
            let reason =
                format!("it says that a batch of {} ends at byte {position} with offset {}", self.name, offset - 1);
            self.add(Finding::damage(&path, reason, "it is believed: the log may be damaged further"));
        }
        let wrong =
            [(INDEX_SUFFIX, walk.indexes.wrong_offsets.take()), (TIME_INDEX_SUFFIX, walk.indexes.wrong_times.take())];
        for (suffix, wrong) in wrong {
            let Some(reason) = wrong else { continue };
            has_bad_index = true;
            let consequence = "it is believed: reads may miss records";
            self.add(Finding::damage(&file_path(&self.path, base_offset, suffix), reason, consequence));
        }
        if let Some(start) =
            scanned.zeros_from.filter(|_| is_trusted && next_base.is_none_or(|next| next == scanned.end_offset))
        {
            let offset = scanned.end_offset;
            let reason = "zeros stand behind the last batch of a finished segment".to_owned();
            let end = len_bytes;
            scanned.bad.push(Bad { start, end, offset, next_offset: Some(offset), reason, is_unreadable: false });
        }
        Ok(FoundSegment { scanned, next_base, good_end, has_bad_index })
    }

    /// Of a segment that is finished. Whether one of them is bad by itself.
    async fn read_indexes(
        &mut self,
        files: &Files,
        base_offset: i64,
        data_bytes: u64,
        end_offset: i64,
    ) -> Result<(IndexWalk, bool), DiskError> {
        let mut has_bad = false;
        let (mut offset, mut time) = (None, None);
        for suffix in [INDEX_SUFFIX, TIME_INDEX_SUFFIX] {
            let path = file_path(&self.path, base_offset, suffix);
            if !files.indexes.contains_key(&(base_offset, suffix)) {
                if data_bytes > 0 {
                    self.add(Finding::note(&path, "missing", "it is built anew whenever it is needed"));
                }
                continue;
            }
            let bytes = checkpoint::read_file(self.disk, &path).await?.unwrap_or_default();
            let decoded = if suffix == INDEX_SUFFIX {
                OffsetIndex::decode(base_offset, &bytes, data_bytes).map(|index| offset = Some(index))
            } else {
                TimeIndex::decode(base_offset, &bytes, end_offset).map(|index| time = Some(index))
            };
            if let Err(error) = decoded {
                has_bad = true;
                let consequence = "it is built anew whenever it is needed";
                self.add(Finding::damage(&path, error.to_string(), consequence));
            }
        }
        Ok((IndexWalk::new(offset.as_ref(), time.as_ref()), has_bad))
    }

    /// Says what is bad about the segments, and plans what mends it; where the log ends.
    fn judge(&mut self, segments: &[FoundSegment]) -> i64 {
        // High watermarks would do, too, but what their file says may be about an older topic of that name.
        let marked_end = self.mark.as_ref().and_then(|mark| mark.end_offset);
        let noted_end = self.known.noted.map(|noted| noted.end_offset);
        let wanted_end = self.known.recovery_point.max(marked_end).max(noted_end).unwrap_or(0);
        let mut end_offset = segments.first().map_or(wanted_end, |first| first.scanned.base_offset);
        for (at, segment) in segments.iter().enumerate() {
            let later = &segments[at + 1..];
            let scanned = &segment.scanned;
            let mut repair = SegmentRepair {
                base_offset: scanned.base_offset,
                bad: Vec::new(),
                end: scanned.end_offset..scanned.end_offset,
                data_bytes: segment.good_end,
                has_bad_index: segment.has_bad_index,
            };
            for bad in &scanned.bad {
                // Behind something bad that is mended, what is bad is mended, too.
                let is_first = self.repair.segments.is_empty() && repair.bad.is_empty();
                if is_first && !self.was_acknowledged(bad.offset, segment, bad.start, later) {
                    self.note_torn(segment, bad);
                    return bad.offset;
                }
                self.add_bad(segment, bad, wanted_end);
                repair.bad.push(bad.clone());
            }
            self.judge_end(segment, wanted_end, &mut repair);
            end_offset = scanned.end_offset;
            if repair.is_rewritten() || repair.has_bad_index {
                self.repair.segments.push(repair);
            }
        }
        self.judge_log_end(segments, end_offset, wanted_end);
        end_offset
    }

    /// Whether a segment reaches to the next one.
    fn judge_end(&mut self, segment: &FoundSegment, wanted_end: i64, repair: &mut SegmentRepair) {
        let scanned = &segment.scanned;
        let is_bad_at_end = scanned.bad.last().is_some_and(|bad| bad.next_offset.is_none());
        match segment.next_base {
            Some(next) if scanned.end_offset < next && !is_bad_at_end && !self.has_swap => {
                let bad = self.missing(segment, format!("batches up to offset {next} are missing"));
                self.add_bad(segment, &bad, wanted_end);
                repair.end.end = next;
            }
            Some(next) if is_bad_at_end => repair.end.end = next.max(scanned.end_offset),
            None if scanned.end_offset < wanted_end => repair.end.end = wanted_end,
            Some(_) | None => {}
        }
    }

    fn missing(&self, segment: &FoundSegment, reason: String) -> Bad {
        let (start, offset) = (segment.good_end, segment.scanned.end_offset);
        Bad { start, end: start, offset, next_offset: segment.next_base, reason, is_unreadable: false }
    }

    fn judge_log_end(&mut self, segments: &[FoundSegment], end_offset: i64, wanted_end: i64) {
        self.repair.end_offset = wanted_end;
        let is_bad_at_end =
            segments.last().and_then(|last| last.scanned.bad.last()).is_some_and(|bad| bad.next_offset.is_none());
        let end_offset = end_offset.max(self.known.log_start_offset.unwrap_or(0));
        if let Some(mark) = self.mark.take() {
            let path = if self.is_marked { self.path.join(DAMAGE_FILE) } else { mark.path.clone() };
            if mark.covers(end_offset) {
                let Corruption { reason, offset, .. } = mark.corruption(end_offset);
                let mut finding = Finding::damage(&path, reason, "the log takes no appends");
                finding.offset = Some(offset);
                self.add(finding);
            } else if self.is_marked {
                let reason = "it may have lost something with a damaged journal, and has not";
                self.add(Finding::note(&path, reason, "the mark goes, and the log serves"));
            }
            self.repair.mark = Some(mark);
        } else if end_offset < wanted_end && !is_bad_at_end {
            let path = segments.last().map_or(self.path.clone(), |last| last.scanned.path.clone());
            let reason = format!("the log ends at offset {end_offset}, and was on stable storage up to {wanted_end}");
            let consequence = match self.is_trusted(None) {
                true => format!("the log goes on at offset {wanted_end}"),
                false => format!("the log serves what is below offset {end_offset}, and takes no appends"),
            };
            let mut finding = Finding::damage(&path, reason, consequence);
            finding.offset = Some(end_offset);
            finding.position = segments.last().map(|last| last.good_end);
            self.add(finding);
        }
    }

    /// As a start decides it: see `log::proof`.
    fn was_acknowledged(&self, offset: i64, segment: &FoundSegment, position: u64, later: &[FoundSegment]) -> bool {
        let is_marked = self.mark.as_ref().is_some_and(|mark| mark.covers(offset));
        if offset < self.durable_to() || is_marked || !later.is_empty() {
            return true;
        }
        segment.good_end.saturating_sub(position) > GROUP_BYTES_MAX as u64
    }

    fn note_torn(&mut self, segment: &FoundSegment, bad: &Bad) {
        let bytes = segment.scanned.len_bytes.saturating_sub(bad.start);
        let reason = format!("an end that was never acknowledged: {}", bad.reason);
        let mut finding = Finding::note(&segment.scanned.path, reason, format!("{bytes} bytes are cut off"));
        (finding.position, finding.offset) = (Some(bad.start), Some(bad.offset));
        self.add(finding);
    }

    fn add_bad(&mut self, segment: &FoundSegment, bad: &Bad, wanted_end: i64) {
        self.repair.has_unreadable |= bad.is_unreadable;
        let path: &Path = &segment.scanned.path;
        let is_noted = self.mark.is_none() && self.known.noted.is_some_and(|noted| bad.offset < noted.end_offset);
        let is_looked_at = !self.is_trusted(segment.next_base) && !is_noted;
        let consequence = match is_looked_at {
            true => format!("the log serves what is below offset {}, and takes no appends", bad.offset),
            false => format!("reads at offset {} fail with CORRUPT_MESSAGE", bad.offset),
        };
        let end = bad.next_offset.or(segment.next_base).unwrap_or(wanted_end);
        let mut reason = bad.reason.clone();
        if end > bad.offset {
            reason.push_str(&format!(" (offsets {} to {})", bad.offset, end - 1));
        }
        let corruption = Corruption { path: path.to_owned(), position: bad.start, offset: bad.offset, reason };
        self.add(Finding::corrupt(&corruption, consequence));
    }
}

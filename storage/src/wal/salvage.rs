//! What can be read of a log that is damaged, and what cannot. Changes nothing.
//!
//! Records are looked for everywhere, also behind those that do not verify: a record's checksum covers the salt of its
//! file, so that nothing else passes for one. What is found in each file are stretches of records without a gap in their
//! sequences. Held together, the gaps between stretches are what is lost, where they begin at or below the highest
//! `durable_through`: all of that had been acknowledged. The first gap above it is the torn tail, and ends the log. A block
//! that the disk does not give is never taken for a torn one.

use std::ops::Range;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::record::{self, Kind};
use super::recovery::{Found, FoundLog, Reader, Unreadable, Window, read_directory};
use super::{Recovered, TornTail, WalError};
use crate::disk::{BLOCK_BYTES, Disk, File, OpenMode};
use crate::runtime::Runtime;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Records that had been acknowledged and cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    pub path: PathBuf,
    /// Where what should be there is not.
    pub position: u64,
    /// At least the first of them had been acknowledged.
    pub sequences: Range<u64>,
    pub reason: String,
}

/// What is left of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Salvaged {
    pub recovered: Recovered,
    /// In order; empty where nothing is damaged.
    pub lost: Vec<Lost>,
    pub records: u64,
    pub files: usize,
}

/// Reads the whole directory; `replay` gets what there is of it in order, gaps or not.
///
/// # Errors
/// When a file cannot be opened, or is not for this version: what `replay` was given must not be acted upon then.
pub async fn salvage<D: Disk, R: Runtime>(
    disk: &D,
    runtime: &R,
    dir: &Path,
    mut replay: impl FnMut(u64, Bytes),
) -> Result<Salvaged, WalError> {
    let logs = read_directory(disk, dir).await?.logs;
    let mut surveys = Vec::with_capacity(logs.len());
    for log in &logs {
        surveys.push(walk(disk, runtime, log, |_, _| {}).await?);
    }
    let plan = plan(&surveys);
    let mut records = 0;
    for (log, counts) in logs.iter().zip(&plan.counts) {
        if counts.is_empty() {
            continue;
        }
        let take = |sequence, payload| {
            if counts.contains(&sequence) {
                records += 1;
                replay(sequence, payload);
            }
        };
        walk(disk, runtime, log, take).await?;
    }
    Ok(Salvaged { recovered: plan.recovered, lost: plan.lost, records, files: logs.len() })
}

/// Why there is no record.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Trouble {
    /// Nothing that looks like one.
    Nothing,
    /// Looks like one and does not verify.
    Bad,
    Unreadable(String),
}

/// Records without a gap between them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stretch {
    sequences: Range<u64>,
    position: u64,
    /// What stands before it in its file, where something does.
    trouble: Option<(u64, Trouble)>,
}

/// What was found in one file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Survey {
    path: PathBuf,
    stretches: Vec<Stretch>,
    /// Where the last stretch ends, and what comes then; `None` at the end of the file.
    tail: Option<(u64, Trouble)>,
    durable_through: u64,
}

async fn walk<D: Disk, R: Runtime>(
    disk: &D,
    runtime: &R,
    log: &FoundLog,
    mut take: impl FnMut(u64, Bytes),
) -> Result<Survey, WalError> {
    let path = &log.path;
    let file = disk.open(path, OpenMode::Read).await.map_err(|e| WalError::io("opening", path, e))?;
    let mut reader = Reader::new(runtime, &file, path, log.identity, log.len_bytes);
    reader.skips_unreadable = true;
    let mut survey = Survey { path: path.clone(), stretches: Vec::new(), tail: None, durable_through: 0 };
    let (mut window, mut position) = (Window::new(), 0);
    loop {
        let trouble = match reader.read_record(&mut window, position).await? {
            Found::Record(header, payload) => {
                survey.durable_through = survey.durable_through.max(header.durable_through);
                let is_data = header.kind == Kind::Data;
                survey.note(position, header.sequence, u64::from(is_data));
                if is_data {
                    take(header.sequence, payload);
                }
                position += record::encoded_len(header.payload_len) as u64;
                continue;
            }
            Found::End => return Ok(survey),
            // Behind the last record of a commit: the next commit starts with a block.
            Found::NoRecord if survey.tail.is_none() && reader.is_padding(&mut window, position).await? => {
                position = position.next_multiple_of(BLOCK);
                continue;
            }
            Found::NoRecord => Trouble::Nothing,
            Found::Bad => Trouble::Bad,
        };
        if survey.tail.is_none() {
            let trouble = reader.unreadable_at(position).map_or(trouble, Trouble::Unreadable);
            survey.tail = Some((position, trouble));
        }
        position = window.next_candidate(position + record::ALIGN_BYTES as u64);
    }
}

impl<F: File, R: Runtime> Reader<'_, F, R> {
    /// Zeros up to the next block, inside of one.
    async fn is_padding(&mut self, window: &mut Window, position: u64) -> Result<bool, WalError> {
        let left = usize::try_from(position.next_multiple_of(BLOCK) - position).expect("less than a block");
        let rest = self.fill(window, position, left).await?;
        let is_zeros = rest.iter().all(|byte| *byte == 0);
        Ok(left > 0 && is_zeros && self.unreadable_at(position).is_none())
    }

    fn unreadable_at(&self, position: u64) -> Option<String> {
        let block = |block: &&Unreadable| block.position / BLOCK == position / BLOCK;
        self.unreadable.iter().find(block).map(|block| block.error.to_string())
    }
}

impl Survey {
    fn note(&mut self, position: u64, sequence: u64, step: u64) {
        let trouble = self.tail.take();
        let end = sequence.saturating_add(step);
        match self.stretches.last_mut() {
            Some(last) if last.sequences.end == sequence && !matches!(&trouble, Some((_, Trouble::Unreadable(_)))) => {
                last.sequences.end = end;
            }
            Some(_) | None => self.stretches.push(Stretch { sequences: sequence..end, position, trouble }),
        }
    }

    fn first_sequence(&self) -> Option<u64> {
        self.stretches.first().map(|stretch| stretch.sequences.start)
    }
}

struct Plan {
    recovered: Recovered,
    lost: Vec<Lost>,
    /// By file: the sequences that count.
    counts: Vec<Range<u64>>,
}

/// A gap between two stretches, or behind the last one.
struct Gap<'a> {
    path: &'a Path,
    position: u64,
    sequences: Range<u64>,
    trouble: Trouble,
}

fn plan(surveys: &[Survey]) -> Plan {
    let durable_through = surveys.iter().map(|survey| survey.durable_through).max().unwrap_or(0);
    let limits = limits(surveys);
    let (mut gaps, mut expected, mut first_sequence) = (Vec::<Gap<'_>>::new(), None, None);
    let mut broken: Option<(&Path, u64, Trouble)> = None;
    for (survey, &limit) in surveys.iter().zip(&limits) {
        for stretch in survey.stretches.iter().filter(|stretch| stretch.sequences.start < limit) {
            let here = stretch.trouble.clone().map(|(position, trouble)| (survey.path.as_path(), position, trouble));
            broken = broken.or(here);
            let start = stretch.sequences.start;
            // Without a record before, it may be the first: freed files leave nothing behind, and damaged ones do.
            let wanted = expected.unwrap_or(if broken.is_some() { 1 } else { start });
            if start > wanted {
                let (path, position, trouble) =
                    broken.take().unwrap_or((&survey.path, stretch.position, Trouble::Nothing));
                gaps.push(Gap { path, position, sequences: wanted..start, trouble });
            }
            broken = None;
            first_sequence.get_or_insert(start);
            expected = Some(stretch.sequences.end.min(limit).max(wanted));
        }
        let tail = survey.tail.clone().map(|(position, trouble)| (survey.path.as_path(), position, trouble));
        broken = broken.or(tail);
    }
    let next_sequence = expected.unwrap_or(1);
    let is_unreadable = |trouble: &Trouble| matches!(trouble, Trouble::Unreadable(_));
    let mut torn_tail = None;
    if let Some((path, position, trouble)) = broken {
        if next_sequence <= durable_through || is_unreadable(&trouble) {
            let sequences = next_sequence..durable_through.max(next_sequence) + 1;
            gaps.push(Gap { path, position, sequences, trouble });
        } else if trouble == Trouble::Bad {
            torn_tail = Some(TornTail { path: path.to_owned(), position });
        }
    }
    let is_torn = |gap: &Gap<'_>| gap.sequences.start > durable_through && !is_unreadable(&gap.trouble);
    let mut end = next_sequence;
    if let Some(at) = gaps.iter().position(is_torn) {
        let gap = gaps.drain(at..).next().expect("just found");
        torn_tail = Some(TornTail { path: gap.path.to_owned(), position: gap.position });
        end = gap.sequences.start;
    }
    let counts = surveys.iter().zip(limits).map(|(survey, limit)| {
        let start = survey.first_sequence().unwrap_or(0);
        start..limit.min(end).max(start)
    });
    let recovered = Recovered { first_sequence: first_sequence.unwrap_or(end), next_sequence: end, torn_tail };
    Plan { recovered, counts: counts.collect(), lost: gaps.into_iter().map(Gap::into_lost).collect() }
}

/// By file: from which sequence on a later file has the records that count. What a torn commit left behind the end of a
/// file stays there when the next start goes on in another one.
fn limits(surveys: &[Survey]) -> Vec<u64> {
    let mut limit = u64::MAX;
    let mut limits: Vec<u64> = surveys
        .iter()
        .rev()
        .map(|survey| {
            let before = limit;
            limit = limit.min(survey.first_sequence().unwrap_or(u64::MAX));
            before
        })
        .collect();
    limits.reverse();
    limits
}

impl Gap<'_> {
    fn into_lost(self) -> Lost {
        let reason = match self.trouble {
            Trouble::Nothing => "no record stands where one was acknowledged".to_owned(),
            Trouble::Bad => "a record that was acknowledged does not match its checksum".to_owned(),
            Trouble::Unreadable(error) => format!("the disk does not give what stands there: {error}"),
        };
        Lost { path: self.path.to_owned(), position: self.position, sequences: self.sequences, reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survey(name: &str, durable_through: u64, stretches: &[Range<u64>], tail: Option<Trouble>) -> Survey {
        let stretch = |(at, sequences): (usize, &Range<u64>)| Stretch {
            sequences: sequences.clone(),
            position: sequences.start * 100,
            trouble: (at > 0).then(|| (sequences.start * 100 - 50, Trouble::Bad)),
        };
        let stretches = stretches.iter().enumerate().map(stretch).collect();
        Survey { path: name.into(), stretches, tail: tail.map(|trouble| (7, trouble)), durable_through }
    }

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "lists of ranges, some with one")]
    fn gaps_are_lost_where_they_were_acknowledged() {
        // Rule: a gap at or below the highest durable_through is lost records; the first one above it ends the log.
        let nothing = || Some(Trouble::Nothing);
        let unreadable = || Some(Trouble::Unreadable("EIO".to_owned()));
        for (case, surveys, want_lost, want_counts, want_torn) in [
            (
                "whole",
                vec![survey("a", 8, &[1..5], None), survey("b", 8, &[5..10], nothing())],
                vec![],
                vec![1..5, 5..10],
                false,
            ),
            ("one gap", vec![survey("a", 8, &[1..3, 6..10], nothing())], vec![3..6], vec![1..10], false),
            ("torn", vec![survey("a", 2, &[1..3, 6..10], nothing())], vec![], vec![1..3], true),
            ("torn end", vec![survey("a", 2, &[1..3], Some(Trouble::Bad))], vec![], vec![1..3], true),
            ("gap, then torn", vec![survey("a", 7, &[1..3, 6..9, 12..14], nothing())], vec![3..6], vec![1..9], true),
            ("at the end, and closed", vec![survey("a", 5, &[1..3], nothing())], vec![3..6], vec![1..3], false),
            (
                "a file is gone",
                vec![survey("a", 3, &[1..3], None), survey("c", 8, &[6..9], nothing())],
                vec![3..6],
                vec![1..6, 6..9],
                false,
            ),
            ("begins late", vec![survey("b", 8, &[4..9], nothing())], vec![], vec![4..9], false),
            (
                "begins with damage",
                vec![survey("a", 0, &[], Some(Trouble::Bad)), survey("b", 8, &[4..9], nothing())],
                vec![1..4],
                vec![0..4, 4..9],
                false,
            ),
            (
                "replaced",
                vec![survey("a", 2, &[1..3, 5..6], nothing()), survey("b", 5, &[3..8], nothing())],
                vec![],
                vec![1..3, 3..8],
                false,
            ),
            ("unreadable end", vec![survey("a", 1, &[1..3], unreadable())], vec![3..4], vec![1..3], false),
            ("nothing", vec![survey("a", 0, &[], nothing())], vec![], vec![0..1], false),
        ] {
            let found = plan(&surveys);
            let lost: Vec<_> = found.lost.iter().map(|lost| lost.sequences.clone()).collect();
            assert_eq!(lost, want_lost, "{case}");
            assert_eq!(found.counts, want_counts, "{case}");
            assert_eq!(found.recovered.torn_tail.is_some(), want_torn, "{case}");
        }
    }
}

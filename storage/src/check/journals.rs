//! The journals: what they hold for logs, and what of them cannot be read.

use std::collections::BTreeMap;

use super::{Checkpoints, Event, Finding, Report, Topics};
use crate::data_dir::DataDir;
use crate::data_dir::log_ends::is_noted;
use crate::disk::Disk;
use crate::error::DiskError;
use crate::journal::replay::{LogKey, Run, damaged_folders, read_journals};
use crate::log::DamageMark;
use crate::runtime::Runtime;

/// Records of all journals, by log and segment.
#[derive(Default)]
pub(super) struct Journals {
    pub logs: BTreeMap<LogKey, BTreeMap<i64, Vec<Run>>>,
    /// Of logs that a start would mark.
    pub marks: BTreeMap<LogKey, DamageMark>,
}

pub(super) async fn read<D: Disk, R: Runtime>(
    data_dir: &DataDir<D>,
    runtime: &R,
    checkpoints: &Checkpoints,
    topics: &Topics<'_>,
    report: &mut Report,
    observe: &dyn Fn(Event<'_>),
) -> Result<Journals, DiskError> {
    let mut journals = Journals::default();
    for folder in damaged_folders(data_dir).await? {
        let reason = "a damaged journal, put aside; what could be read of it is in the logs";
        report.add(Finding::note(&folder, reason, "nothing: it is yours to remove"), observe);
    }
    if checkpoints.is_clean {
        // A clean stop has put everything into the logs; what a crash in removing them left is not looked at.
        return Ok(journals);
    }
    let is_settled = |topic_id, partition, sequence| is_noted(&checkpoints.ends, topic_id, partition, sequence);
    for journal in read_journals(data_dir, runtime, &is_settled, topics.behind).await? {
        report.journals += 1;
        let content = match journal.found {
            Ok(content) => content,
            Err(error) => {
                let finding = Finding::damage(&journal.folder, error.to_string(), "the broker does not start");
                report.add(finding, observe);
                continue;
            }
        };
        for (key, mark) in content.marks {
            journals.marks.insert(key, mark);
        }
        for lost in &content.lost {
            let (first, last) = (lost.sequences.start, lost.sequences.end - 1);
            let records = if first == last { format!("record {first}") } else { format!("records {first} to {last}") };
            let mut finding = Finding::damage(
                &lost.path,
                format!("{} ({records})", lost.reason),
                "what can be read is put into the logs; those that may have lost something take no appends",
            );
            finding.position = Some(lost.position);
            report.add(finding, observe);
        }
        if content.has_torn_tail {
            let reason = "it ends in the middle of a commit that nobody was told about";
            report.add(Finding::note(&journal.folder, reason, "that end is dropped"), observe);
        }
        for (key, segments) in content.logs {
            let records = segments.values().map(|runs| runs.len() as u64).sum::<u64>();
            if topics.known.is_some_and(|known| !known.contains(&key.0)) {
                let reason = format!("{records} records of topic {}, which was deleted", key.0);
                report.add(Finding::note(&journal.folder, reason, "they are dropped"), observe);
                continue;
            }
            report.journal_records += records;
            if let Some(earlier) = journals.logs.insert(key, segments) {
                let reason = format!("partition {} of topic {} is in another journal, too", key.1, key.0);
                report.add(
                    Finding::damage(&journal.folder, reason, "the later journal is replayed over the other"),
                    observe,
                );
                drop(earlier);
            }
        }
    }
    Ok(journals)
}

//! Which logs the unreadable part of a journal may have cost something.
//!
//! It does not say whose records were in it. But from time to time the journal notes all logs that need it ([`Roll`]). So of
//! a lost stretch and the first roll behind it:
//!
//! 1. A log that is not in the roll had all its bytes in segments: it lost nothing.
//! 2. Nor did one whose first record that it needs is behind the stretch.
//! 3. Any other may have lost something. The roll says where it ended, and everything below that had been journalled or
//!    flushed. If it reaches that far without a hole after the replay, it lost nothing.
//!
//! Behind the last roll, which is the last second, every log of the shard is concerned. Of one with a batch behind the
//! stretch the end of that batch says as much as a roll.

use std::collections::BTreeMap;

use walser_protocol::types::Uuid;

use super::super::record::Roll;
use crate::wal::Lost;

/// Topic id and partition.
pub(crate) type LogKey = (Uuid, i32);

/// What of a journal's own records tells about logs.
#[derive(Clone, Debug, Default)]
pub(super) struct Evidence {
    /// By their sequences, in order.
    pub rolls: Vec<(u64, Roll)>,
    /// Sequence and end of the last batch of each log.
    pub last_batches: BTreeMap<LogKey, (u64, i64)>,
}

/// Logs that may have lost something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Concerned {
    /// Where each ended at least, and which stretch concerns it.
    pub known: BTreeMap<LogKey, (i64, usize)>,
    /// The first stretch that concerns all logs behind the journal, and the sequence behind it and its like.
    pub all: Option<(usize, u64)>,
}

impl Evidence {
    pub fn shard_count(&self) -> Option<u16> {
        self.rolls.first().map(|(_, roll)| roll.shard_count)
    }

    pub fn concerned(&self, lost: &[Lost]) -> Concerned {
        let mut concerned = Concerned::default();
        for (at, lost) in lost.iter().enumerate() {
            let behind = lost.sequences.end;
            let Some((_, roll)) = self.rolls.iter().find(|(_, roll)| roll.as_of >= behind) else {
                let (first, _) = concerned.all.unwrap_or((at, 0));
                concerned.all = Some((first, behind));
                continue;
            };
            for standing in roll.standings.iter().filter(|standing| standing.needs_from < behind) {
                let key = (standing.topic_id, standing.partition);
                let known = concerned.known.entry(key).or_insert((standing.end_offset, at));
                known.0 = known.0.max(standing.end_offset);
            }
        }
        concerned
    }

    /// Of a log that is concerned because all are: where it ended at least. `None` when nothing is known.
    pub fn end_offset(&self, key: LogKey, behind: u64) -> Option<i64> {
        self.last_batches.get(&key).filter(|(sequence, _)| *sequence >= behind).map(|(_, end_offset)| *end_offset)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::record::Standing;
    use super::*;

    fn key(number: u8) -> LogKey {
        (Uuid::from_bytes([number; 16]), 0)
    }

    fn roll(as_of: u64, standings: &[(u8, u64, i64)]) -> (u64, Roll) {
        let standing = |&(number, needs_from, end_offset): &(u8, u64, i64)| Standing {
            topic_id: key(number).0,
            partition: 0,
            needs_from,
            end_offset,
        };
        let standings = standings.iter().map(standing).collect();
        (as_of + 1, Roll { shard_count: 2, as_of, standings })
    }

    fn lost(sequences: std::ops::Range<u64>) -> Lost {
        Lost { path: "a".into(), position: 0, sequences, reason: String::new() }
    }

    #[test]
    fn only_logs_that_needed_the_lost_records_are_concerned() {
        // Rule: the first roll behind a lost stretch says who is; without one all are.
        let rolls = vec![
            roll(10, &[(1, 1, 100), (2, 9, 50)]),
            roll(20, &[(1, 15, 130), (2, 9, 50), (3, 18, 7)]),
            roll(30, &[]),
        ];
        let evidence = Evidence { rolls, last_batches: BTreeMap::from([(key(5), (42, 99)), (key(6), (39, 4))]) };
        for (case, lost, known, all) in [
            ("before the first roll", vec![lost(3..5)], vec![(1, (100, 0))], None),
            ("all that need it", vec![lost(8..10)], vec![(1, (100, 0)), (2, (50, 0))], None),
            ("the roll was called before its end", vec![lost(9..11)], vec![(2, (50, 0))], None),
            ("some need it", vec![lost(12..14)], vec![(2, (50, 0))], None),
            ("none needs it any more", vec![lost(21..25)], vec![], None),
            ("two stretches", vec![lost(3..5), lost(14..19)], vec![(1, (130, 0)), (2, (50, 1)), (3, (7, 1))], None),
            ("behind the last roll", vec![lost(35..40)], vec![], Some((0, 40))),
            ("two behind it", vec![lost(3..4), lost(31..33), lost(40..42)], vec![(1, (100, 0))], Some((1, 42))),
        ] {
            let known = known.into_iter().map(|(number, known)| (key(number), known)).collect();
            assert_eq!(evidence.concerned(&lost), Concerned { known, all }, "{case}");
        }
        assert_eq!(evidence.end_offset(key(5), 40), Some(99));
        assert_eq!(evidence.end_offset(key(6), 40), None, "its batch was before the stretch");
        assert_eq!(evidence.end_offset(key(7), 40), None);
    }
}

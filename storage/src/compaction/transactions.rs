//! Transactions as a cleaning meets them: aborted data goes, and a marker stays until all data of its transaction is gone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use walser_protocol::records::batch::BatchHeader;
use walser_protocol::records::control::ControlRecord;

/// A transaction that an abort marker has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    pub producer_id: i64,
    pub first_offset: i64,
    /// Of the marker.
    pub last_offset: i64,
}

/// Finds the aborted transactions in a walk over all batches and markers of a log.
#[derive(Debug, Default)]
pub struct AbortedSearch {
    open: BTreeMap<i64, i64>,
    found: Vec<AbortedTransaction>,
}

impl AbortedSearch {
    /// A data batch.
    pub fn note_batch(&mut self, header: &BatchHeader) {
        if header.attributes.is_transactional() {
            self.open.entry(header.producer_id).or_insert(header.base_offset);
        }
    }

    /// A control batch with its record; `None` when it has none any more.
    pub fn note_marker(&mut self, header: &BatchHeader, record: Option<ControlRecord>) {
        let producer_id = header.producer_id;
        match record {
            Some(ControlRecord::Abort { .. }) => {
                if let Some(first_offset) = self.open.remove(&producer_id) {
                    let last_offset = header.base_offset;
                    self.found.push(AbortedTransaction { producer_id, first_offset, last_offset });
                }
            }
            Some(ControlRecord::Commit { .. }) | None => drop(self.open.remove(&producer_id)),
            Some(ControlRecord::Other { .. }) => {}
        }
    }

    /// In ascending order of first offset.
    pub fn finish(mut self) -> Vec<AbortedTransaction> {
        self.found.sort_by_key(|aborted| aborted.first_offset);
        self.found
    }
}

/// The transactions that are open where a walk over the log is.
#[derive(Clone, Debug, Default)]
pub struct Transactions {
    /// That the walk has not come to, in ascending order of first offset.
    ahead: VecDeque<AbortedTransaction>,
    /// Producers in an aborted transaction, and whether a batch of it was met.
    aborted: BTreeMap<i64, bool>,
    /// Producers in a transaction that is not aborted, of which a batch was met.
    committed: BTreeSet<i64>,
}

impl Transactions {
    /// For a walk that begins at `from_offset`. `aborted`: in ascending order of first offset.
    pub fn new(aborted: &[AbortedTransaction], from_offset: i64) -> Self {
        // Of those that ended before, no marker would be met, and what their producers wrote later would count as aborted.
        let ahead = aborted.iter().filter(|aborted| aborted.last_offset >= from_offset).copied().collect();
        Self { ahead, ..Self::default() }
    }

    /// True when the data batch is part of an aborted transaction, so that none of its records counts.
    pub fn note_batch(&mut self, header: &BatchHeader) -> bool {
        self.advance(header);
        if !header.attributes.is_transactional() {
            return false;
        }
        if let Some(is_met) = self.aborted.get_mut(&header.producer_id) {
            *is_met = true;
            return true;
        }
        self.committed.insert(header.producer_id);
        false
    }

    /// True when the control batch is not needed any more: no batch of its transaction was met, or it is empty already.
    pub fn note_marker(&mut self, header: &BatchHeader, record: Option<ControlRecord>) -> bool {
        self.advance(header);
        match record {
            Some(ControlRecord::Abort { .. }) => !self.aborted.remove(&header.producer_id).unwrap_or(false),
            Some(ControlRecord::Commit { .. }) => !self.committed.remove(&header.producer_id),
            Some(ControlRecord::Other { .. }) => false,
            None => true,
        }
    }

    fn advance(&mut self, header: &BatchHeader) {
        let last_offset = header.base_offset.saturating_add(i64::from(header.last_offset_delta));
        while let Some(next) = self.ahead.front().filter(|next| next.first_offset <= last_offset) {
            self.aborted.entry(next.producer_id).or_insert(false);
            self.ahead.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use walser_protocol::records::batch::BatchAttributes;

    use super::*;

    const ABORT: Option<ControlRecord> = Some(ControlRecord::Abort { coordinator_epoch: 1 });
    const COMMIT: Option<ControlRecord> = Some(ControlRecord::Commit { coordinator_epoch: 1 });

    fn header(base_offset: i64, producer_id: i64, is_transactional: bool) -> BatchHeader {
        BatchHeader {
            base_offset,
            batch_length: 0,
            partition_leader_epoch: 0,
            magic: 2,
            crc: 0,
            attributes: BatchAttributes::default().with_transactional(is_transactional),
            last_offset_delta: 0,
            base_timestamp: 0,
            max_timestamp: 0,
            producer_id,
            producer_epoch: 0,
            base_sequence: 0,
            record_count: 1,
        }
    }

    #[test]
    fn aborted_data_goes_and_its_marker_after_it() {
        // Rule: a batch counts unless its transaction ends with an abort, and a marker is free only in a walk that meets no
        // batch of its transaction.
        enum Step {
            Data(i64, i64, bool),
            Marker(i64, i64, Option<ControlRecord>),
        }
        use Step::{Data, Marker};
        // Producer 1 aborts, commits, aborts with nothing left; 2 commits; 3 writes outside of transactions.
        let walk = [
            (Data(0, 1, true), true),
            (Data(1, 2, true), false),
            (Data(2, 3, false), false),
            (Data(3, 1, true), true),
            (Marker(4, 1, ABORT), false),
            (Data(5, 1, true), false),
            (Marker(6, 2, COMMIT), false),
            (Marker(7, 1, COMMIT), false),
            (Marker(8, 1, ABORT), true),
            (Marker(9, 2, COMMIT), true),
            (Marker(10, 2, None), true),
            (Marker(11, 2, Some(ControlRecord::Other { record_type: 5 })), false),
        ];
        let mut search = AbortedSearch::default();
        for (step, _) in &walk {
            match *step {
                Data(offset, producer, transactional) => search.note_batch(&header(offset, producer, transactional)),
                Marker(offset, producer, record) => search.note_marker(&header(offset, producer, true), record),
            }
        }
        let aborted = search.finish();
        assert_eq!(aborted, [AbortedTransaction { producer_id: 1, first_offset: 0, last_offset: 4 }]);
        let mut later = Transactions::new(&aborted, 5);
        assert!(!later.note_batch(&header(5, 1, true)), "what ended before the walk is over");
        let mut transactions = Transactions::new(&aborted, 0);
        for (at, (step, want)) in walk.into_iter().enumerate() {
            let got = match step {
                Data(offset, producer, transactional) => {
                    transactions.note_batch(&header(offset, producer, transactional))
                }
                Marker(offset, producer, record) => transactions.note_marker(&header(offset, producer, true), record),
            };
            assert_eq!(got, want, "step {at}");
        }
    }
}

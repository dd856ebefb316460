//! Control batches: the markers that end a transaction on a partition.
//!
//! ```text
//! key    version 2 | type 2                  type: 0 abort, 1 commit; more of them in the metadata log
//! value  version 2 | coordinator epoch 4     of abort and commit
//! ```

use super::batch::NO_SEQUENCE;
use super::builder::{BatchBuilder, BatchOptions, BuildError, NewRecord};
use super::record::Record;

/// What a control record says. Types that do not concern a topic's partition are kept as their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlRecord {
    Abort { coordinator_epoch: i32 },
    Commit { coordinator_epoch: i32 },
    Other { record_type: i16 },
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionResult {
    Abort,
    Commit,
}

const ABORT: i16 = 0;
const COMMIT: i16 = 1;
/// The version written; newer ones only add fields behind those known.
const VERSION: i16 = 0;

impl ControlRecord {
    /// Reads a record of a control batch; `None` when it is not one by the table above.
    pub fn parse(record: &Record<'_>) -> Option<Self> {
        let (version, record_type) = record.key?.split_first_chunk::<2>()?;
        let record_type = i16::from_be_bytes(*record_type.first_chunk()?);
        if i16::from_be_bytes(*version) < 0 {
            return None;
        }
        if record_type != ABORT && record_type != COMMIT {
            return Some(Self::Other { record_type });
        }
        let (version, epoch) = record.value?.split_first_chunk::<2>()?;
        if i16::from_be_bytes(*version) < 0 {
            return None;
        }
        let coordinator_epoch = i32::from_be_bytes(*epoch.first_chunk()?);
        Some(if record_type == COMMIT { Self::Commit { coordinator_epoch } } else { Self::Abort { coordinator_epoch } })
    }
}

/// A marker to be written on one partition.
#[derive(Clone, Copy, Debug)]
pub struct EndTransactionMarker {
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub result: TransactionResult,
    pub coordinator_epoch: i32,
    pub timestamp: i64,
    /// Assigned later by the leader where it is not known yet.
    pub base_offset: i64,
    pub partition_leader_epoch: i32,
}

impl EndTransactionMarker {
    /// The control batch, of one record.
    pub fn build(&self) -> Result<Vec<u8>, BuildError> {
        let record_type = match self.result {
            TransactionResult::Abort => ABORT,
            TransactionResult::Commit => COMMIT,
        };
        let key = [VERSION.to_be_bytes(), record_type.to_be_bytes()].concat();
        let value = [VERSION.to_be_bytes().as_slice(), &self.coordinator_epoch.to_be_bytes()].concat();
        let mut builder = BatchBuilder::new(BatchOptions {
            base_offset: self.base_offset,
            partition_leader_epoch: self.partition_leader_epoch,
            producer_id: self.producer_id,
            producer_epoch: self.producer_epoch,
            base_sequence: NO_SEQUENCE,
            transactional: true,
            control: true,
            ..BatchOptions::default()
        });
        builder.append(&NewRecord { timestamp: self.timestamp, key: Some(&key), value: Some(&value), headers: &[] })?;
        builder.build()
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::records::batch::BatchView;
    use crate::records::record::{Headers, Records};

    fn marker(result: TransactionResult) -> Vec<u8> {
        let marker = EndTransactionMarker {
            producer_id: 4000,
            producer_epoch: 7,
            result,
            coordinator_epoch: 12,
            timestamp: 1_700_000_000_000,
            base_offset: 5,
            partition_leader_epoch: 3,
        };
        marker.build().unwrap()
    }

    #[test]
    fn markers_read_back() {
        // Rule: a marker is one record in a transactional control batch without a sequence.
        for (result, want) in [
            (TransactionResult::Abort, ControlRecord::Abort { coordinator_epoch: 12 }),
            (TransactionResult::Commit, ControlRecord::Commit { coordinator_epoch: 12 }),
        ] {
            let bytes = marker(result);
            let batch = BatchView::parse_exact(&bytes).unwrap();
            batch.verify_crc().unwrap();
            assert!(batch.is_control() && batch.is_transactional());
            assert_eq!((batch.producer_id(), batch.producer_epoch(), batch.base_sequence()), (4000, 7, NO_SEQUENCE));
            assert_eq!((batch.base_offset(), batch.last_offset(), batch.record_count()), (5, 5, 1));
            // One marker is 78 bytes: 61 of header, 7 of record fields, 4 of key, 6 of value.
            assert_eq!(batch.total_len(), 78);
            let records: Vec<_> = Records::new(batch.header(), batch.records_bytes()).map(Result::unwrap).collect();
            assert_eq!(ControlRecord::parse(&records[0]), Some(want));
        }
    }

    #[test]
    fn short_or_foreign_control_records_are_no_markers() {
        // Rule: a control record is believed only as far as its bytes go.
        let record = |key, value| Record {
            attributes: 0,
            offset_delta: 0,
            offset: 0,
            timestamp: 0,
            key,
            value,
            headers: Headers::default(),
            encoded_len: 0,
        };
        let value: &[u8] = &[0, 0, 0, 0, 0, 1];
        for (key, value, want) in [
            (None, Some(value), None),
            (Some(&[0, 0, 0][..]), Some(value), None),
            (Some(&[0, 0, 0, 1][..]), None, None),
            (Some(&[0, 0, 0, 1][..]), Some(&value[..5]), None),
            (Some(&[0xff, 0xff, 0, 1][..]), Some(value), None),
            (Some(&[0, 0, 0, 1][..]), Some(value), Some(ControlRecord::Commit { coordinator_epoch: 1 })),
            (Some(&[0, 1, 0, 0, 9][..]), Some(value), Some(ControlRecord::Abort { coordinator_epoch: 1 })),
            (Some(&[0, 0, 0, 2][..]), None, Some(ControlRecord::Other { record_type: 2 })),
        ] {
            assert_eq!(ControlRecord::parse(&record(key, value)), want, "{key:?} {value:?}");
        }
    }
}

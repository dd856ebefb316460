//! Index files held against the batches they are about.

use walser_protocol::records::batch::BatchHeader;

use crate::index::offset::OffsetIndex;
use crate::index::time::TimeIndex;
use crate::segment::reader::last_offset;

/// Entries that are still to be met, in the order of the batches.
#[derive(Default)]
pub(super) struct IndexWalk {
    offsets: std::collections::VecDeque<(i64, u32)>,
    times: std::collections::VecDeque<(i64, i64)>,
    /// What of each index is wrong first.
    pub wrong_offsets: Option<String>,
    pub wrong_times: Option<String>,
}

impl IndexWalk {
    pub fn new(offset: Option<&OffsetIndex>, time: Option<&TimeIndex>) -> Self {
        Self {
            offsets: offset.into_iter().flat_map(OffsetIndex::entries).collect(),
            times: time.into_iter().flat_map(TimeIndex::entries).map(|entry| (entry.offset, entry.timestamp)).collect(),
            ..Self::default()
        }
    }

    /// The batches are good and come in order; entries about what lies between them are about something bad.
    pub fn visit(&mut self, position: u64, header: &BatchHeader, is_after_bad: bool) {
        let last = last_offset(header);
        while let Some(&(offset, at)) = self.offsets.front().filter(|(_, at)| u64::from(*at) <= position) {
            self.offsets.pop_front();
            let is_right = u64::from(at) == position && offset == last;
            if !is_right && !is_after_bad {
                let wrong = || format!("it has offset {offset} at byte {at}, where no batch ends with it begins");
                self.wrong_offsets.get_or_insert_with(wrong);
            }
        }
        while let Some(&(offset, timestamp)) = self.times.front().filter(|(offset, _)| *offset <= last) {
            self.times.pop_front();
            let is_right = offset >= header.base_offset && timestamp == header.max_timestamp;
            if !is_right && !is_after_bad {
                let wrong = || format!("it has timestamp {timestamp} at offset {offset}, whose batch has another one");
                self.wrong_times.get_or_insert_with(wrong);
            }
        }
    }
}

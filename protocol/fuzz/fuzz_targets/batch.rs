//! Record batches: every getter, iteration, validation, the leader's patches, and the checksum after them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use walser_protocol::records::batch::{BatchMut, Batches};
use walser_protocol::records::control::ControlRecord;
use walser_protocol::records::record::{Records, records_slice};

const LIMIT: usize = 1 << 20;

fuzz_target!(|data: &[u8]| {
    let mut scratch = Vec::new();
    for batch in Batches::new(data).flatten() {
        assert!(batch.total_len() <= data.len());
        std::hint::black_box((
            batch.last_offset(),
            batch.next_offset(),
            batch.last_sequence(),
            batch.verify_crc().is_ok(),
        ));
        let header = *batch.header();
        let Ok(bytes) = records_slice(&batch, &mut scratch, LIMIT) else { continue };
        assert!(bytes.len() <= LIMIT.max(data.len()));
        for record in Records::new(&header, bytes).flatten() {
            std::hint::black_box((ControlRecord::parse(&record).is_some(), format!("{record:?}").len()));
        }
    }
    let mut copy = data.to_vec();
    if let Ok((mut batch, _)) = BatchMut::parse(&mut copy) {
        // The patches keep a good checksum good; that of the input is hardly ever.
        batch.recompute_crc();
        batch.set_base_offset(7);
        batch.set_partition_leader_epoch(3);
        batch.set_log_append_time(1);
        let view = batch.view().expect("it parsed before");
        assert!(view.verify_crc().is_ok());
        assert_eq!((view.base_offset(), view.partition_leader_epoch(), view.max_timestamp()), (7, 3, 1));
    }
});

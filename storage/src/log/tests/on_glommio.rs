use std::path::PathBuf;

use super::*;
use crate::disk::glommio::GlommioDisk;
use crate::runtime::glommio::{GlommioRuntime, block_on};

type RealLog = Log<GlommioDisk, GlommioRuntime>;

fn opening(dir: PathBuf, is_clean: bool, recovery_point: Option<i64>) -> OpenLog<GlommioDisk, GlommioRuntime> {
    OpenLog {
        disk: GlommioDisk::new(),
        runtime: GlommioRuntime::new(),
        open_files: OpenFiles::new(1),
        budget: TailBudget::new(64 << 10),
        journal: None,
        dir,
        entries: None,
        defers_sync: false,
        known_end: None,
        config: LogConfig { segment_bytes: 1 << 20, ..LogConfig::default() }.into(),
        is_clean,
        recovery_point,
        log_start_offset: None,
        first_dirty_offset: None,
        now_ms: NOW,
    }
}

async fn append_many(log: &RealLog, count: i64) {
    for at in 0..count {
        let new = batch(3, 3000, NOW + at, None);
        let appended = log.append_as_leader(Append { batch: new, leader_epoch: 0, now_ms: NOW }).expect("in memory");
        if at % 20 == 0 {
            log.durable(appended.end_offset()).await.expect("a disk that works");
        }
    }
    log.flush().await.expect("a disk that works");
}

async fn check_all(log: &RealLog, batches: i64) {
    assert_eq!(log.log_end_offset(), batches * 3);
    for offset in (0..batches * 3).step_by(97) {
        let request = ReadRequest { offset, upper_bound: i64::MAX, max_bytes: 100_000, min_one_batch: true };
        let read = log.read(request).await.expect("a disk that works");
        let first = BatchView::parse(&read.slices[0]).expect("a batch").0;
        assert!((first.base_offset()..=first.last_offset()).contains(&offset));
        first.verify_crc().expect("the bytes that were written");
    }
    let found = log.offset_for_timestamp(NOW + 300, i64::MAX).await.expect("a disk that works");
    assert_eq!(found.map(|found| found.offset), Some(298 * 3 + 2));
}

#[test]
fn real_files_hold_a_log() {
    // What holds on the simulated disk holds on a real one: roll, cold reads, recovery without and with a clean stop.
    let dir = std::env::temp_dir().join(format!("walser-log-{}", std::process::id()));
    let path = dir.clone();
    let run = block_on(async move {
        GlommioDisk::new().create_dir_all(&path).await.expect("a temporary directory");
        let (log, _) = Log::open(opening(path.clone(), false, None)).await.expect("an empty directory");
        append_many(&log, 400).await;
        assert!(log.segment_count() > 3);
        check_all(&log, 400).await;
        drop(log);
        let (log, report) = Log::open(opening(path.clone(), false, None)).await.expect("recovers");
        assert!(report.corruption.is_none() && report.cut.is_none(), "{report:?}");
        check_all(&log, 400).await;
        let closed = log.close().await.expect("closes");
        drop(log);
        let clean = opening(path.clone(), true, Some(closed.log_end_offset));
        let (log, report) = Log::open(clean).await.expect("opens");
        assert_eq!(report.scanned_bytes, 0);
        check_all(&log, 400).await;
    });
    #[expect(clippy::disallowed_methods, reason = "the executor is gone")]
    let removed = std::fs::remove_dir_all(&dir);
    match run {
        Err(error) => eprintln!("not run here: no executor: {error}"),
        Ok(()) => removed.expect("the test's own directory"),
    }
}

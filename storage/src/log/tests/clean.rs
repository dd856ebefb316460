//! What a clean stop has left, and how much of it is believed when a part of it is gone.

use super::*;
use crate::log::known_end::KnownEnd;

/// What a stop has left of a log.
struct Stopped {
    world: World,
    model: Model,
    end_offset: i64,
    /// Base offset of the last segment.
    last_base: i64,
    note: Rc<KnownEnd>,
}

/// A log with `count` batches, some of which fill a segment.
fn stopped(count: i64) -> Stopped {
    let world = World::new(1);
    let mut model = Model::default();
    let (end_offset, last_base, note) = world.runtime.block_on(async {
        let (log, _) = world.open(false, None).await;
        for at in 0..count {
            append(&log, &mut model, batch(2, 2000, NOW + at, None)).expect("no fault");
        }
        let closed = log.close().await.expect("no fault");
        let note = log.next_note().await.expect("no fault").expect("there is something to note");
        let last_base = log.inner.state.borrow().active().base_offset();
        (closed.log_end_offset, last_base, KnownEnd::decode(&note).expect("a note"))
    });
    assert_eq!((end_offset, note.end_offset, note.base_offset), (2 * count, end_offset, last_base));
    Stopped { world, model, end_offset, last_base, note: Rc::new(note) }
}

#[test]
fn a_log_ends_where_its_last_segment_does() {
    // Rule: a clean stop may leave no recovery point, or an old one; then the base of the last segment is not taken for its
    // end. Everything is there, and no offset is given twice.
    for count in [2, 3, 7, 11] {
        let base = stopped(count).last_base;
        for (recovery_point, is_noted) in [
            (None, false),
            (None, true),
            (Some(0), false),
            (Some(0), true),
            (Some(base), false),
            (Some(base), true),
            (Some(base + 1), true),
        ] {
            let case = format!("{count} batches, recovery point {recovery_point:?}, noted: {is_noted}");
            let Stopped { world, mut model, end_offset, note, .. } = stopped(count);
            world.runtime.block_on(async {
                let known_end = is_noted.then_some(note);
                let open = OpenLog { known_end, ..world.opening(true, recovery_point) };
                let (log, report) = Log::open(open).await.expect("no fault");
                assert!(report.cut.is_none() && report.corruption.is_none(), "{case}: {report:?}");
                assert_eq!(log.log_end_offset(), end_offset, "{case}");
                let appended = append(&log, &mut model, batch(1, 10, NOW, None)).expect("it serves");
                assert_eq!(appended.base_offset, end_offset, "{case}");
                log.durable(appended.end_offset()).await.expect("no fault");
                assert_eq!(read_all(&log, 0).await, model.batches, "{case}");
            });
        }
    }
}

#[test]
fn what_a_clean_stop_says_is_trusted() {
    // Rule: with the recovery point at the end that was noted nothing is read; a clean log may be empty.
    for (count, recovery_point) in [(0, 0), (2, 4), (7, 14)] {
        let (world, note) = if count == 0 {
            (World::new(1), None)
        } else {
            let stopped = stopped(count);
            (stopped.world, Some(stopped.note))
        };
        world.runtime.block_on(async {
            let open = OpenLog { known_end: note, ..world.opening(true, Some(recovery_point)) };
            let (log, report) = Log::open(open).await.expect("no fault");
            assert_eq!((report.scanned_bytes, log.log_end_offset()), (0, recovery_point));
        });
    }
}

#[test]
fn nothing_is_cut_off_a_log_that_was_stopped_cleanly() {
    // Rule: a clean stop leaves no torn end. What is bad there had been acknowledged: the log keeps it and takes no appends.
    for count in [2, 7] {
        let Stopped { world, model, last_base, .. } = stopped(count);
        let path = crate::segment::file_path(Path::new(DIR), last_base, crate::segment::LOG_SUFFIX);
        let len_bytes = world.disk.peek(&path).expect("it is there").len();
        world.disk.flip_bit(&path, len_bytes as u64 - 5, 1).expect("it is there");
        world.runtime.block_on(async {
            let (log, report) = world.open(true, None).await;
            let (last, whole) = model.batches.split_last().expect("some");
            assert_eq!(report.corruption.as_ref().map(|bad| bad.offset), Some(last.0), "{report:?}");
            assert!(report.cut.is_none(), "{report:?}");
            assert_eq!(read_all(&log, 0).await, whole);
        });
        assert_eq!(world.disk.peek(&path).expect("it is there").len(), len_bytes);
    }
}

//! What of a log may be compacted, whether that is worth it, and which segments become one.

use std::ops::Range;

use super::CompactionConfig;

/// What is known of a segment that takes no more batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentFacts {
    pub base_offset: i64,
    pub bytes: u64,
    pub offset_index_bytes: usize,
    pub time_index_bytes: usize,
    /// Of its records, or when it was begun where they have none. Only asked for with a lag.
    pub youngest_ms: i64,
    /// Largest timestamp of its first batch; `None` where that has none. Only asked for with a largest lag.
    pub first_batch_ms: Option<i64>,
}

/// Where a log stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogBounds {
    pub log_start_offset: i64,
    /// Everything below was compacted before.
    pub first_dirty_offset: i64,
    /// Exclusive: nothing at or above is compacted. At most the last stable offset.
    pub stable_end_offset: i64,
    /// Base offset of the segment that is appended to.
    pub active_base_offset: i64,
}

/// What a pass over a log would do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Where keys are mapped from.
    pub first_dirty_offset: i64,
    /// Exclusive: up to where they are mapped, if there is room; the start of a segment.
    pub end_offset: i64,
    pub clean_bytes: u64,
    pub dirty_bytes: u64,
    /// By how much the oldest dirty record has passed the largest lag; 0 when it has not.
    pub overdue_ms: i64,
}

impl Plan {
    /// The part of its bytes that is dirty, of what may be compacted.
    pub fn dirty_ratio(&self) -> f64 {
        let bytes = self.clean_bytes + self.dirty_bytes;
        if bytes == 0 { 0.0 } else { self.dirty_bytes as f64 / bytes as f64 }
    }

    /// Whether a pass is worth it.
    pub fn is_due(&self, config: &CompactionConfig) -> bool {
        let is_overdue = self.overdue_ms > 0 && self.dirty_bytes > 0;
        config.by_policy && (is_overdue || self.dirty_ratio() > config.min_dirty_ratio)
    }
}

/// `segments`: all but the active one, in order.
pub fn plan_pass(segments: &[SegmentFacts], bounds: LogBounds, config: &CompactionConfig, now_ms: i64) -> Plan {
    let first_dirty_offset = bounds.first_dirty_offset.max(bounds.log_start_offset);
    let dirty = &segments[containing(segments, first_dirty_offset)..];
    let too_young = dirty
        .iter()
        .filter(|_| config.min_lag_ms > 0)
        .find(|segment| segment.youngest_ms > now_ms.saturating_sub(config.min_lag_ms));
    let limit = bounds
        .stable_end_offset
        .min(bounds.active_base_offset)
        .min(too_young.map_or(i64::MAX, |segment| segment.base_offset))
        .max(first_dirty_offset);
    // A segment is compacted as a whole or not at all.
    let end = if limit >= bounds.active_base_offset { segments.len() } else { containing(segments, limit) };
    let end_offset = segments.get(end).map_or(bounds.active_base_offset, |segment| segment.base_offset);
    let bytes = |part: &[SegmentFacts]| part.iter().map(|segment| segment.bytes).sum();
    let clean = segments.partition_point(|segment| segment.base_offset < first_dirty_offset);
    let dirty_from = containing(segments, first_dirty_offset.min(end_offset)).min(end);
    let oldest_ms = dirty.iter().filter_map(|segment| segment.first_batch_ms).filter(|ms| *ms > 0).min();
    let clean_until_ms = now_ms.saturating_sub(config.max_lag_ms.max(0));
    Plan {
        first_dirty_offset,
        end_offset,
        clean_bytes: bytes(&segments[..clean]),
        dirty_bytes: if first_dirty_offset < end_offset { bytes(&segments[dirty_from..end]) } else { 0 },
        overdue_ms: oldest_ms.map_or(0, |oldest_ms| clean_until_ms.saturating_sub(oldest_ms).max(0)),
    }
}

/// Index of the segment that holds `offset`, or would; 0 below all of them.
fn containing(segments: &[SegmentFacts], offset: i64) -> usize {
    segments.partition_point(|segment| segment.base_offset <= offset).saturating_sub(1)
}

/// How large a segment may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupLimits {
    pub segment_bytes: u64,
    pub index_bytes: usize,
    /// Exclusive end of the last segment.
    pub end_offset: i64,
}

/// Which segments are written into one, so that compaction does not leave ever smaller ones: neighbours, as long as they
/// would fit together if nothing of them went.
pub fn group_segments(segments: &[SegmentFacts], limits: GroupLimits) -> Vec<Range<usize>> {
    let mut groups: Vec<Range<usize>> = Vec::new();
    for at in 0..segments.len() {
        match groups.last_mut() {
            Some(group) if fits(segments, group, limits) => group.end += 1,
            _ => groups.push(at..at + 1),
        }
    }
    groups
}

/// Whether the segment behind `group` may join it.
fn fits(segments: &[SegmentFacts], group: &Range<usize>, limits: GroupLimits) -> bool {
    let joined = &segments[group.start..=group.end];
    let end_offset = segments.get(group.end + 1).map_or(limits.end_offset, |next| next.base_offset);
    joined.iter().map(|segment| segment.bytes).sum::<u64>() <= limits.segment_bytes
        && joined.iter().map(|segment| segment.offset_index_bytes).sum::<usize>() <= limits.index_bytes
        && joined.iter().map(|segment| segment.time_index_bytes).sum::<usize>() <= limits.index_bytes
        && end_offset - 1 - joined[0].base_offset <= i64::from(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten offsets and 100 bytes each, a record every millisecond from 1,000 on.
    fn segments(count: i64) -> Vec<SegmentFacts> {
        let facts = |at: i64| SegmentFacts {
            base_offset: at * 10,
            bytes: 100,
            offset_index_bytes: 8,
            time_index_bytes: 12,
            youngest_ms: 1000 + at * 10 + 9,
            first_batch_ms: Some(1000 + at * 10),
        };
        (0..count).map(facts).collect()
    }

    #[test]
    fn a_pass_ends_below_what_must_not_be_touched() {
        // Rule: never the active segment, nothing that is not stable, nothing younger than the least lag; whole segments.
        let all =
            LogBounds { log_start_offset: 0, first_dirty_offset: 0, stable_end_offset: 55, active_base_offset: 50 };
        let config = CompactionConfig { by_policy: true, ..CompactionConfig::default() };
        let lag = |min_lag_ms| CompactionConfig { min_lag_ms, ..config };
        for (case, bounds, config, (from, to, clean, dirty)) in [
            ("everything is dirty", all, config, (0, 50, 0, 500)),
            ("half of it is", LogBounds { first_dirty_offset: 20, ..all }, config, (20, 50, 200, 300)),
            ("from inside a segment", LogBounds { first_dirty_offset: 25, ..all }, config, (25, 50, 300, 300)),
            ("the log start counts", LogBounds { log_start_offset: 30, ..all }, config, (30, 50, 300, 200)),
            ("unstable", LogBounds { stable_end_offset: 35, ..all }, config, (0, 30, 0, 300)),
            ("stable to a boundary", LogBounds { stable_end_offset: 40, ..all }, config, (0, 40, 0, 400)),
            ("unstable from the start", LogBounds { stable_end_offset: 5, ..all }, config, (0, 0, 0, 0)),
            ("young ones", all, lag(1050 - 1025), (0, 20, 0, 200)),
            ("all are young", all, lag(1000), (0, 0, 0, 0)),
            ("all is clean", LogBounds { first_dirty_offset: 50, ..all }, config, (50, 50, 500, 0)),
            (
                "unstable below what is clean",
                LogBounds { first_dirty_offset: 40, stable_end_offset: 20, ..all },
                config,
                (40, 40, 400, 0),
            ),
        ] {
            let plan = plan_pass(&segments(5), bounds, &config, 1050);
            let got = (plan.first_dirty_offset, plan.end_offset, plan.clean_bytes, plan.dirty_bytes);
            assert_eq!(got, (from, to, clean, dirty), "{case}");
        }
        let empty = plan_pass(&[], LogBounds { active_base_offset: 0, stable_end_offset: 9, ..all }, &config, 1050);
        assert_eq!((empty.end_offset, empty.dirty_bytes, empty.is_due(&config)), (0, 0, false));
    }

    #[test]
    fn a_pass_is_due_by_ratio_or_by_age() {
        // Rule: more than the ratio is dirty, or a dirty record has passed the largest lag and there is something to do.
        let bounds =
            LogBounds { log_start_offset: 0, first_dirty_offset: 30, stable_end_offset: 50, active_base_offset: 50 };
        let config = |min_dirty_ratio, max_lag_ms| CompactionConfig {
            by_policy: true,
            min_dirty_ratio,
            max_lag_ms,
            ..CompactionConfig::default()
        };
        for (case, bounds, config, want) in [
            ("0.4 of it", bounds, config(0.39, i64::MAX), true),
            ("not more than the ratio", bounds, config(0.4, i64::MAX), false),
            ("old", bounds, config(0.5, 19), true),
            ("not old enough", bounds, config(0.5, 20), false),
            ("old and nothing to do", LogBounds { first_dirty_offset: 50, ..bounds }, config(0.5, 1), false),
            ("no ratio is enough for nothing", LogBounds { first_dirty_offset: 50, ..bounds }, config(0.0, 1), false),
            ("another policy", bounds, CompactionConfig { by_policy: false, ..config(0.1, 1) }, false),
        ] {
            assert_eq!(plan_pass(&segments(5), bounds, &config, 1050).is_due(&config), want, "{case}");
        }
    }

    #[test]
    fn neighbours_become_one_while_they_fit() {
        // Rule: bytes, both indexes and the range of offsets of a group stay within what a segment may have.
        let limits = GroupLimits { segment_bytes: 1 << 20, index_bytes: 1 << 20, end_offset: 50 };
        let mut large = segments(5);
        large[1].bytes = 5000;
        let mut far = segments(5);
        (far[3].base_offset, far[4].base_offset) = (1 << 31, (1 << 31) + 10);
        let whole = std::iter::once(0..5).collect();
        for (case, segments, limits, want) in [
            ("all", segments(5), limits, whole),
            ("bytes", segments(5), GroupLimits { segment_bytes: 200, ..limits }, vec![0..2, 2..4, 4..5]),
            ("offset index", segments(5), GroupLimits { index_bytes: 35, ..limits }, vec![0..2, 2..4, 4..5]),
            ("a large one", large, GroupLimits { segment_bytes: 300, ..limits }, vec![0..1, 1..2, 2..5]),
            ("offsets", far, GroupLimits { end_offset: (1 << 31) + 20, ..limits }, vec![0..3, 3..5]),
            ("none", Vec::new(), limits, Vec::new()),
        ] {
            assert_eq!(group_segments(&segments, limits), want, "{case}");
        }
    }
}

//! What every group needs while it handles an input.

use std::sync::Arc;

use super::command::RequestId;
use super::consumer::TimerKind;
use super::output::{AppendRefused, Output};
use super::record::GroupRecord;
use super::reply::Reply;
use super::settings::GroupSettings;
use crate::timing_wheel::{TimerId, TimingWheel};

/// Time, as the driver sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Of a clock that only goes forward; what timeouts count by.
    pub timer_ms: u64,
    /// Milliseconds since 1970, for timestamps that outlive the process; may jump.
    pub wall_ms: i64,
}

/// What falls due in a coordinator. Whoever started a timer keeps its id and cancels it, so that none is ever out of date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    /// Time to look for expired offsets.
    OffsetExpiration,
    /// A classic member, pending ones included, has not been heard of.
    ClassicSession { group_id: Arc<str>, member_id: Arc<str> },
    /// The join phase of a classic group ends.
    ClassicJoin { group_id: Arc<str> },
    /// Members of a classic group have not fetched their assignments.
    ClassicSync { group_id: Arc<str> },
    /// A member of a consumer group has let something pass.
    Consumer { group_id: Arc<str>, member_id: Arc<str>, kind: TimerKind },
}

/// Settings, time, timers and outputs, lent to a group for one input.
#[derive(Debug)]
pub(super) struct Context<'c> {
    pub(super) now: Now,
    pub(super) settings: &'c GroupSettings,
    pub(super) timers: &'c mut TimingWheel<Timer>,
    pub(super) output: &'c mut Output,
}

impl Context<'_> {
    /// Starts the timer kept in `slot` anew.
    pub(super) fn schedule(&mut self, slot: &mut Option<TimerId>, delay_ms: i32, timer: Timer) {
        self.cancel(slot);
        let delay_ms = u64::try_from(delay_ms).unwrap_or(0);
        *slot = Some(self.timers.insert(self.now.timer_ms.saturating_add(delay_ms), timer));
    }

    pub(super) fn cancel(&mut self, slot: &mut Option<TimerId>) {
        if let Some(id) = slot.take() {
            self.timers.cancel(id);
        }
    }

    /// Logs records that the state already reflects: the images of classic groups.
    pub(super) fn append_image(&mut self, record: GroupRecord) -> Result<(), AppendRefused> {
        self.output.append(self.now.wall_ms, self.settings.max_message_bytes, &[record]).map(drop)
    }

    pub(super) fn reply(&mut self, request: RequestId, reply: Reply) {
        self.output.reply(request, reply);
    }
}

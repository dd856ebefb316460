//! What a coordinator wants done, in order, and the replies it holds back until their records are durable.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use thiserror::Error;
use walser_protocol::{EncodeError, ErrorCode};

use super::command::RequestId;
use super::record::{EncodedRecord, GroupRecord};
use super::reply::Reply;

/// Of a batch without records, as the log has it.
const BATCH_HEADER_BYTES: usize = 61;

/// What the driver does for a coordinator, in the order in which [`super::GroupCoordinator::poll_effect`] gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// One batch for the coordinator's partition. Its first record must get `base_offset`; if it cannot, or the append
    /// fails, the coordinator is unloaded, for its state is ahead of its log.
    Append { base_offset: i64, timestamp_ms: i64, records: Vec<EncodedRecord> },
    /// The reply to a command; there is exactly one per command.
    Reply { request: RequestId, reply: Reply },
    /// Regular expressions to be held against the names of all topics, away from the shard, by [`super::resolve_regexes`]; the
    /// result goes to [`super::GroupCoordinator::handle_regexes_resolved`]. Topics that the client behind `request` may not
    /// describe are left out.
    ResolveRegexes { request: RequestId, group_id: Arc<str>, regexes: BTreeSet<Arc<str>> },
}

/// Records that no batch of the log can hold. Nothing has been changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AppendRefused {
    #[error("the records need {bytes} bytes, a batch may have {max}")]
    TooLarge { bytes: usize, max: usize },
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

impl From<AppendRefused> for ErrorCode {
    /// What Kafka makes of MESSAGE_TOO_LARGE: the client can do nothing about the coordinator's log.
    fn from(refused: AppendRefused) -> Self {
        match refused {
            AppendRefused::TooLarge { .. } | AppendRefused::Encode(_) => Self::UnknownServerError,
        }
    }
}

/// Effects to be carried out, replies to be held.
#[derive(Clone, Debug, Default)]
pub(super) struct Output {
    effects: VecDeque<Effect>,
    /// Of the input being handled. They leave together, when all its records are durable.
    fresh: Vec<(RequestId, Reply)>,
    /// In order of the offset they wait for.
    held: VecDeque<Held>,
    /// Where the next record goes.
    log_end_offset: i64,
    /// Every record below is durable.
    committed_end_offset: i64,
}

#[derive(Clone, Debug)]
struct Held {
    /// Leaves when everything below is durable.
    end_offset: i64,
    request: RequestId,
    reply: Reply,
}

impl Output {
    /// The log as it was loaded: all of it is durable.
    pub(super) fn begin_at(&mut self, log_end_offset: i64) {
        self.log_end_offset = log_end_offset;
        self.committed_end_offset = log_end_offset;
    }

    /// Somebody else has written there.
    pub(super) fn pass_over(&mut self, record_offset: i64) {
        self.log_end_offset = self.log_end_offset.max(record_offset.saturating_add(1));
    }

    /// One batch. Gives the offset of its first record.
    pub(super) fn append(
        &mut self,
        timestamp_ms: i64,
        bytes_max: usize,
        records: &[GroupRecord],
    ) -> Result<i64, AppendRefused> {
        let base_offset = self.log_end_offset;
        if records.is_empty() {
            return Ok(base_offset);
        }
        let records = records.iter().map(GroupRecord::encode).collect::<Result<Vec<_>, _>>()?;
        let bytes = BATCH_HEADER_BYTES + records.iter().map(EncodedRecord::batch_bytes_max).sum::<usize>();
        if bytes > bytes_max {
            return Err(AppendRefused::TooLarge { bytes, max: bytes_max });
        }
        self.log_end_offset += i64::try_from(records.len()).unwrap_or(i64::MAX);
        self.effects.push_back(Effect::Append { base_offset, timestamp_ms, records });
        Ok(base_offset)
    }

    pub(super) fn resolve_regexes(&mut self, request: RequestId, group_id: Arc<str>, regexes: BTreeSet<Arc<str>>) {
        self.effects.push_back(Effect::ResolveRegexes { request, group_id, regexes });
    }

    pub(super) fn reply(&mut self, request: RequestId, reply: Reply) {
        self.fresh.push((request, reply));
    }

    /// Ends an input: its replies wait for every record there is now, also of earlier inputs, for they may tell of them.
    pub(super) fn release(&mut self) {
        for (request, reply) in self.fresh.drain(..) {
            if self.committed_end_offset >= self.log_end_offset {
                self.effects.push_back(Effect::Reply { request, reply });
            } else {
                self.held.push_back(Held { end_offset: self.log_end_offset, request, reply });
            }
        }
    }

    /// Every record below `end_offset` is durable.
    pub(super) fn commit(&mut self, end_offset: i64) {
        self.committed_end_offset = self.committed_end_offset.max(end_offset);
        while self.held.front().is_some_and(|held| held.end_offset <= self.committed_end_offset) {
            let Some(held) = self.held.pop_front() else { return };
            self.effects.push_back(Effect::Reply { request: held.request, reply: held.reply });
        }
    }

    pub(super) fn poll(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Everything not yet sent: what is durable as it is, what is not with the error.
    pub(super) fn fail(self, error: ErrorCode) -> Vec<(RequestId, Reply)> {
        let sendable = self.effects.into_iter().filter_map(|effect| match effect {
            Effect::Reply { request, reply } => Some((request, reply)),
            Effect::Append { .. } | Effect::ResolveRegexes { .. } => None,
        });
        let held = self.held.into_iter().map(|held| (held.request, held.reply));
        sendable.chain(held.chain(self.fresh).map(|(request, reply)| (request, reply.failed(error)))).collect()
    }
}

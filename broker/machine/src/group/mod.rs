//! Group coordination: one [`GroupCoordinator`] per partition of `__consumer_offsets`.
//!
//! ```text
//! command, now ──GroupCoordinator::handle──▶ Append(records) ──▶ log ──committed──▶ handle_committed ──▶ Reply
//!                       │ ▲                                                                  (held until then)
//!                       ▼ └── replay: records change the state, at once and again when the log is loaded
//! ```
//!
//! The driver owns the partition. It feeds a new coordinator every record of the log ([`GroupCoordinator::replay_encoded`],
//! [`GroupCoordinator::replay_end_transaction`]) and says when that was all ([`GroupCoordinator::finish_loading`]). From then on it passes
//! commands, ticks and metadata in, and carries out, in order, what [`GroupCoordinator::poll_effect`] gives:
//!
//! - [`Effect::Append`]: the records have already changed the state, so they must get exactly the offsets they were given, in the
//!   order of the effects. Nobody else writes to the partition but transaction markers, which the driver hands in too.
//! - [`Effect::Reply`]: everything the reply may tell of is committed.
//! - [`Effect::ResolveRegexes`]: [`resolve_regexes`] is run beside the shard, with the names of all topics and with what the client
//!   of that request may describe; what it gives goes to [`GroupCoordinator::handle_regexes_resolved`].
//!
//! When the partition is given up, or an append fails, [`GroupCoordinator::unload`] answers everybody who waits; after a failed append the
//! log is loaded anew, for the state is ahead of it.
//!
//! Invariants: every command gets exactly one reply; no reply leaves before every record it may tell of is committed; replaying the
//! log gives the offsets, the consumer groups and, of classic groups that are stable or empty, the groups of the live coordinator.
//!
//! | module | decides |
//! | --- | --- |
//! | [`command`], [`reply`] | what is asked and answered |
//! | [`record`] | the bytes of `__consumer_offsets` |
//! | [`assignor`] | who of a consumer group gets which partitions |
//! | `classic` | JoinGroup, SyncGroup, Heartbeat, LeaveGroup, DescribeGroups, ListGroups |
//! | `consumer` | groups of KIP-848 |
//! | `offsets` | OffsetCommit, OffsetFetch, OffsetDelete, DeleteGroups, expiry |
//! | `coordinator` | inputs, replay, timers |
//! | `output` | which replies wait for which records |
//! | `state` | a group of either protocol |

pub mod assignor;
mod classic;
pub mod command;
mod consumer;
mod context;
mod coordinator;
mod offsets;
mod output;
pub mod record;
pub mod reply;
pub mod settings;
mod state;

pub use command::{Command, RequestId};
pub use consumer::regex::{InvalidRegex, ResolvedRegexes, TopicRegex, resolve as resolve_regexes};
pub use consumer::request::{
    ConsumerGroupDescribe, ConsumerGroupHeartbeat, ConsumerGroupHeartbeatReply, DescribedConsumerGroup,
    DescribedConsumerMember, NamedTopicPartitions,
};
pub use context::Now;
pub use coordinator::{GroupCoordinator, append_error};
pub use output::{AppendRefused, Effect};
pub use record::{EncodedRecord, GroupRecord, RecordError};
pub use reply::Reply;
pub use settings::GroupSettings;

/// Protocol type of groups whose members are consumers of topics.
pub const CONSUMER_PROTOCOL_TYPE: &str = "consumer";

#[cfg(test)]
mod harness;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

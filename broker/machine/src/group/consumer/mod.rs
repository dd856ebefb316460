//! Groups of the consumer protocol (KIP-848): the coordinator assigns partitions, and each member is brought to its assignment
//! on its own, by heartbeats, without stopping the others.
//!
//! ```text
//! heartbeat ──▶ subscription changed? ──▶ group epoch + 1 ──▶ target assignment ──▶ the member's next step ──▶ answer
//!                                                                                    give up, then get
//! ```
//!
//! Three epochs: the group's counts changes of members, subscriptions and topics; the target assignment has that of the group
//! it was computed for; a member has that of the target it has reached.
//!
//! | module | |
//! | --- | --- |
//! | `coordinate` | finds the group, logs what was decided, keeps timers |
//! | [`group`] | the state, changed by replay alone |
//! | [`member`] | a member's subscription and its current assignment |
//! | [`heartbeat`] | joining, heartbeats, resolved regular expressions |
//! | [`leave`] | leaving, timeouts, removal |
//! | [`classic`] | members that speak the classic protocol |
//! | [`convert`] | a classic group becomes a consumer group, and the reverse |
//! | [`reconcile`] | a member's step towards its target |
//! | [`target`] | the target assignment |
//! | [`regex`] | subscriptions by regular expression |
//! | [`topics`] | topics, and the hash that says whether they changed |
//! | [`offsets`] | who may commit and fetch offsets |
//! | [`describe`] | ConsumerGroupDescribe |
//! | [`records`] | what is logged |

pub mod classic;
pub mod convert;
mod coordinate;
pub mod describe;
mod embedded;
pub mod error;
pub mod group;
pub mod heartbeat;
pub mod leave;
pub mod member;
pub mod offsets;
pub mod plan;
pub mod reconcile;
pub mod records;
pub mod regex;
pub mod request;
mod target;
pub mod topics;

pub use group::{ConsumerGroup, Replayed};
pub use plan::TimerKind;
pub use records::Change;
pub use topics::Topics;

#[cfg(test)]
mod tests;

//! One partition as its replicas see it: who leads, what is committed, who waits for it.

pub mod leader;

pub use leader::{
    AppendRefusal, Effect, EpochMismatch, InSyncReplicas, Leader, LeaderStart, ProduceFailure, RequiredAcks, WaiterId,
    verify_leader_epoch,
};

//! Drivers own one machine each and carry its effects out.

pub mod boot;
pub mod checkpoints;
pub mod clock;
pub mod coordinator;
pub mod homes;
pub mod metadata;
pub mod partition;
pub mod quorum;
mod side_by_side;
#[cfg(test)]
mod testing;
pub mod timer;

//! Drivers own one machine each and carry its effects out.

pub mod boot;
pub mod clock;
pub mod metadata;
pub mod partition;
pub mod quorum;
pub mod timer;

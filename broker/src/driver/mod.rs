//! Drivers own one machine each and carry its effects out.

pub mod boot;
pub mod clock;
pub mod partition;

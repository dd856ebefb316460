//! Drivers own one machine each and carry its effects out.

pub mod clock;

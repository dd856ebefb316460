//! walser-protocol

pub mod records;

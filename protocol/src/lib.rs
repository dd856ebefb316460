//! walser-protocol

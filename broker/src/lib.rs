//! walser-broker

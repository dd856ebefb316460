//! walser-machine

//! walser-tests

//! walser-bench

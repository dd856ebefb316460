//! Two shards, 64 partitions, many connections: nothing overtakes.

use std::time::Duration;

use walser_tests::order::run;
use walser_tests::process::TempDir;

/// `WALSER_ORDER_SECONDS`, or a few.
fn run_time() -> Duration {
    let seconds = std::env::var("WALSER_ORDER_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(5))
}

#[test]
fn replies_and_appends_keep_the_order_of_requests() {
    // Rule: per connection replies come in order, per partition appends stand in order, and both shards do the work.
    let dir = TempDir::new("order").expect("a directory");
    let report = run(dir.path(), 1, run_time()).unwrap_or_else(|error| panic!("{error}"));
    println!("{report:?}");
    assert!(report.batches > 0 && report.records_read > 0, "{report:?}");
}

//! More partitions than files may be open.

use walser_tests::many::{Cost, Ends, fetch_all, list_ends, produce_all, topics};
use walser_tests::process::{BrokerOptions, TempDir};
use walser_tests::topic;

/// The least a broker starts with.
const DESCRIPTORS_MAX: u32 = 512;
const PARTITIONS: usize = 600;

#[test]
fn more_partitions_than_descriptors_are_written_and_read() {
    // Rule: files are closed for others and opened again, while producers and consumers notice nothing; also after kill -9.
    let dir = TempDir::new("many").expect("a directory");
    let options = BrokerOptions::new(dir.path()).set("walser.shards", "2").limit_descriptors(DESCRIPTORS_MAX);
    let broker = options.start().expect("it starts");
    let mut client = topic::connect(broker.address()).expect("the broker is there");
    let topics = topics(PARTITIONS);
    for (name, partitions) in &topics {
        let partitions = i32::try_from(*partitions).expect("few");
        topic::create(&mut client, name, partitions, &[]).expect("made");
    }
    let mut ends = Ends::default();
    // The second kind goes straight into segments.
    for batch_bytes in [300, 40_000, 300, 40_000] {
        produce_all(&mut client, &topics, batch_bytes, &mut ends).expect("written");
    }
    fetch_all(&mut client, &topics, &ends).expect("read");
    let cost = Cost::of(&broker).expect("running");
    assert!(cost.descriptors < 200, "{cost:?}");

    let broker = broker.kill().expect("it dies").start().expect("it starts again");
    let mut client = topic::connect(broker.address()).expect("the broker is there");
    list_ends(&mut client, &topics, &ends).expect("all there");
    fetch_all(&mut client, &topics, &ends).expect("read");
    let cost = Cost::of(&broker).expect("running");
    assert!(cost.descriptors < 200, "{cost:?}");
    produce_all(&mut client, &topics, 300, &mut ends).expect("written");
}

//! A disk that fills up and is given room again, without anybody touching the broker.

use std::path::Path;

use walser_protocol::ErrorCode;

use super::worker::Worker;
use super::{Observed, wait_for};
use crate::process::BrokerOptions;
use crate::raw_client::RawClient;
use crate::topic;

const MIB: usize = 1 << 20;

/// Settings of a broker on a disk of some hundred MiB: small journals, and an eye on retention.
pub fn options(data_dir: &Path) -> BrokerOptions {
    BrokerOptions::new(data_dir)
        .set("walser.journal.bytes", "33554432")
        .set("log.retention.check.interval.ms", "200")
        .set("log.initial.task.delay.ms", "0")
        .set("log.segment.bytes", "4194304")
        .set("log.segment.delete.delay.ms", "0")
}

/// Fills the disk twice. Writers are refused with what they try again; readers read; first a deletion, then retention makes
/// room, and the writers go on by themselves. A restart finds everything that was acknowledged.
///
/// # Panics
/// When anything of it does not hold.
pub fn fill_and_free(data_dir: &Path, log: &Path) {
    let observed = Observed::start(&options(data_dir), log).unwrap_or_else(|error| panic!("{error}"));
    let mut client = topic::connect(observed.address()).expect("connected");
    let mut create = |name: &str| topic::create(&mut client, name, 1, &[]).expect("made");
    create("goes");
    create("stays");
    create("small");
    create("shrinks");
    let mut goes = Worker::new("goes", 0);
    let mut workers = ["stays", "small", "shrinks"].map(|name| Worker::new(name, 0));
    for _ in 0..40 {
        goes.produce(&mut client, MIB / 2).expect("there is room");
        workers[2].produce(&mut client, MIB / 2).expect("there is room");
        workers[1].produce(&mut client, 1000).expect("there is room");
    }
    fill(&mut client, &mut workers[0], MIB / 2);
    fill(&mut client, &mut workers[1], 20_000);
    for worker in workers.iter().chain([&goes]) {
        worker.check(&mut client);
    }
    topic::delete(&mut client, "goes").expect("deleted on a full disk");
    resume(&mut client, &mut workers, &observed);

    fill(&mut client, &mut workers[0], MIB / 2);
    fill(&mut client, &mut workers[1], 1000);
    topic::alter_config(&mut client, "shrinks", "retention.bytes", "1000000").expect("altered on a full disk");
    resume(&mut client, &mut workers, &observed);
    wait_for("a disk that is full no longer", || {
        let names = ["walser_disk_short", "walser_journal_stalled", "walser_logs_without_room"];
        names.iter().all(|name| observed.metric(name, None) == 0.0).then_some(())
    });
    assert_eq!(observed.metric("walser_partitions_offline", None), 0.0, "a full disk takes nothing offline");
    for worker in &workers {
        worker.check(&mut client);
    }
    observed.broker.kill().expect("it dies");
    let again = Observed::start(&options(data_dir), log).unwrap_or_else(|error| panic!("{error}"));
    let mut client = topic::connect(again.address()).expect("connected");
    for worker in &mut workers {
        worker.check(&mut client);
        worker.produce(&mut client, 1000).expect("it goes on");
    }
}

/// Writes until the disk takes no more of this size.
fn fill(client: &mut RawClient, worker: &mut Worker, value_bytes: usize) {
    let mut refusals = 0;
    // A log that was refused once may find a little room the next time.
    while refusals < 3 {
        let code = worker.produce_until_refused(client, value_bytes);
        assert!(is_tried_again(code), "{}: {code:?}", worker.topic);
        refusals += 1;
    }
}

/// What Kafka's producers try again.
fn is_tried_again(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::KafkaStorageError | ErrorCode::RequestTimedOut)
}

fn resume(client: &mut RawClient, workers: &mut [Worker], observed: &Observed) {
    for worker in workers {
        for value_bytes in [1000, MIB / 2, 1000] {
            wait_for("a writer that goes on", || match worker.produce(client, value_bytes) {
                Ok(offset) => Some(offset),
                Err(code) => {
                    assert!(is_tried_again(code), "{}: {code:?}\n{}", worker.topic, observed.log());
                    None
                }
            });
        }
    }
}

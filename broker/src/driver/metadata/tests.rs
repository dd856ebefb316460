use std::collections::BTreeMap;

use walser_machine::ids::{BrokerId, IdGenerator, Uuid};
use walser_machine::metadata::controller::{
    ConfigRejection, ControllerSettings, CreatableTopic, CreateTopics, RegisterBroker,
};
use walser_machine::metadata::records::ConfigResource;
use walser_storage::disk::simulated::{Operation, SimulatedDisk};
use walser_storage::runtime::simulated::SimulatedRuntime;

use super::super::quorum::QuorumOptions;
use super::*;

struct AllowAll;

impl ConfigRules for AllowAll {
    fn is_list(&self, _: &ConfigResource, _: &str) -> bool {
        false
    }

    fn is_known(&self, _: &ConfigResource, _: &str) -> bool {
        true
    }

    fn is_cordoned(&self, _: &MetadataImage, _: BrokerId) -> bool {
        false
    }

    fn default_value(&self, _: &ConfigResource, _: &str) -> Option<String> {
        None
    }

    fn validate(
        &self,
        _: &MetadataImage,
        _: &ConfigResource,
        _: &BTreeMap<String, String>,
    ) -> Result<(), ConfigRejection> {
        Ok(())
    }
}

type Driver = MetadataDriver<SimulatedDisk, SimulatedRuntime>;

async fn open(disk: &SimulatedDisk, runtime: &SimulatedRuntime, incarnation: u8) -> Driver {
    let options = QuorumOptions {
        dir: "/data/quorum".into(),
        salt_seed: u64::from(incarnation),
        snapshot_after_bytes: 2000,
        features: BTreeMap::new(),
    };
    let (quorum, image) = Quorum::open(disk.clone(), runtime.clone(), options).await.unwrap();
    let broker_id = BrokerId::from_wire(1).unwrap();
    let settings = ControllerSettings {
        node_id: broker_id,
        num_partitions: 2,
        default_replication_factor: 1,
        delete_topic_enable: true,
    };
    let controller = Controller::new(settings, IdGenerator::from_seed([incarnation; 32]));
    let mut driver = MetadataDriver::new(controller, Box::new(AllowAll), quorum, image);
    driver.bootstrap("cluster").await.unwrap();
    let registration = RegisterBroker {
        broker_id,
        incarnation_id: Uuid::from_bytes([incarnation; 16]),
        endpoints: Vec::new(),
        rack: None,
        features: Vec::new(),
        directories: Vec::new(),
    };
    driver.carry_out(Command::RegisterBroker(registration)).await.unwrap();
    driver
}

fn disk(runtime: &SimulatedRuntime) -> SimulatedDisk {
    let disk = SimulatedDisk::new(runtime);
    runtime.block_on(async {
        disk.create_dir_all(std::path::Path::new("/data")).await.unwrap();
        disk.sync_dir(std::path::Path::new("/")).await.unwrap();
    });
    disk
}

fn create(name: &str) -> Command {
    let topics = vec![CreatableTopic::with_defaults(name)];
    Command::CreateTopics(CreateTopics { topics, validate_only: false })
}

fn is_created(outcome: &Result<Reply, MetadataError>) -> bool {
    matches!(outcome, Ok(Reply::CreateTopics(results)) if results.iter().all(|result| result.result.is_ok()))
}

#[test]
fn a_reply_comes_after_the_publication_of_its_image() {
    // Rule: whoever was answered finds the change on every shard; commands that wait together are published together.
    let runtime = SimulatedRuntime::new(1);
    let disk = disk(&runtime);
    runtime.block_on(async {
        let driver = open(&disk, &runtime, 1).await;
        let queue = Rc::new(CommandQueue::default());
        let published: Rc<RefCell<Vec<Arc<MetadataImage>>>> = Rc::default();
        let replies: Vec<_> = (0..10).map(|serial| queue.submit(create(&format!("topic-{serial}")))).collect();
        let images = published.clone();
        runtime.spawn(driver.run(queue.clone(), async move |image, delta| {
            assert!(!delta.topics_created.is_empty());
            images.borrow_mut().push(image);
            true
        }));
        for (serial, reply) in replies.into_iter().enumerate() {
            assert!(is_created(&reply.await.unwrap()));
            let newest = published.borrow().last().cloned().expect("published before the reply");
            assert!(newest.topic(&format!("topic-{serial}")).is_some());
        }
        assert_eq!(published.borrow().len(), 1, "one group, one publication");
        let again = queue.submit(create("topic-3")).await.unwrap();
        assert!(!is_created(&again), "the name is taken");
        queue.close();
        assert!(matches!(queue.submit(create("late")).await.unwrap(), Err(MetadataError::Stopping)));
    });
}

#[test]
fn commands_of_one_group_see_each_other() {
    // Rule: of two commands for one name that are flushed together the second one finds the first.
    let runtime = SimulatedRuntime::new(2);
    let disk = disk(&runtime);
    runtime.block_on(async {
        let driver = open(&disk, &runtime, 1).await;
        let queue = Rc::new(CommandQueue::default());
        let (first, second) = (queue.submit(create("a")), queue.submit(create("a")));
        runtime.spawn(driver.run(queue.clone(), async |_, _| true));
        assert!(is_created(&first.await.unwrap()));
        assert!(!is_created(&second.await.unwrap()));
    });
}

#[test]
fn an_acknowledged_change_survives_a_power_cut_at_any_disk_operation() {
    // Rule: a topic whose creation was answered is there after the cut, with the same id; one that was not answered is there whole or
    // not at all.
    for cut_at in 1..400 {
        let runtime = SimulatedRuntime::new(first_seed() + cut_at);
        let disk = disk(&runtime);
        disk.cut_power_at(cut_at);
        let mut acknowledged = Vec::new();
        let finished =
            runtime.block_on_unless(work(&disk, &runtime, &mut acknowledged), || disk.has_lost_power()).is_ok();
        runtime.crash();
        let after = disk.crash(&runtime);
        runtime.block_on(async {
            let driver = open(&after, &runtime, 9).await;
            for (name, topic_id) in &acknowledged {
                let topic = driver.image().topic(name);
                let topic = topic.unwrap_or_else(|| panic!("cut at {cut_at}: {name} was acknowledged and is gone"));
                assert_eq!(topic.topic_id, *topic_id, "cut at {cut_at}");
            }
            for topic in driver.image().topics() {
                assert_eq!(topic.partitions.len(), 2, "cut at {cut_at}: {} is half made", topic.name);
            }
        });
        if finished {
            assert_eq!(acknowledged.len(), 30);
            return;
        }
    }
    panic!("the work has more disk operations than were cut");
}

/// `WALSER_FIRST_SEED`, or 0.
fn first_seed() -> u64 {
    std::env::var("WALSER_FIRST_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

async fn work(
    disk: &SimulatedDisk,
    runtime: &SimulatedRuntime,
    acknowledged: &mut Vec<(String, walser_machine::ids::TopicId)>,
) {
    let driver = open(disk, runtime, 1).await;
    let queue = Rc::new(CommandQueue::default());
    runtime.spawn(driver.run(queue.clone(), async |_, _| true));
    for serial in 0..30 {
        let name = format!("topic-{serial}");
        let Ok(Reply::CreateTopics(results)) = queue.submit(create(&name)).await.unwrap() else { panic!("refused") };
        acknowledged.push((name, results[0].result.as_ref().unwrap().topic_id));
    }
    queue.close();
}

#[test]
fn a_failed_flush_changes_nothing_and_says_so() {
    // Rule: a command whose records were not flushed is refused, is published nowhere, and so are all later ones.
    let runtime = SimulatedRuntime::new(3);
    let disk = disk(&runtime);
    runtime.block_on(async {
        let driver = open(&disk, &runtime, 1).await;
        let queue = Rc::new(CommandQueue::default());
        let published: Rc<Cell<usize>> = Rc::default();
        let count = published.clone();
        runtime.spawn(driver.run(queue.clone(), async move |_, _| {
            count.set(count.get() + 1);
            true
        }));
        disk.fail_nth(Operation::SyncData, "wal", 1, libc::EIO);
        for name in ["a", "b"] {
            assert!(matches!(queue.submit(create(name)).await.unwrap(), Err(MetadataError::Log(_))), "{name}");
        }
        assert_eq!(published.get(), 0);
    });
}

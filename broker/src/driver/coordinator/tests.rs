use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use walser_machine::group::command::{
    CommittedPartition, CommittedTopic, GroupProtocol, JoinGroup, OffsetCommit, OffsetFetch,
};
use walser_machine::group::{ConsumerGroupHeartbeat, resolve_regexes};
use walser_machine::ids::TopicId;
use walser_machine::metadata::image::ImageBuilder;
use walser_machine::metadata::records::MetadataRecord;
use walser_protocol::records::builder::BatchOptions;
use walser_protocol::types::Uuid;
use walser_storage::compaction::throttle::Throttle;
use walser_storage::data_dir::DataDir;
use walser_storage::disk::simulated::{Operation, SimulatedDisk};
use walser_storage::log::Append;
use walser_storage::runtime::simulated::SimulatedRuntime;
use walser_storage::validate::ValidBatch;

use super::*;
use crate::config::broker::BrokerConfig;
use crate::config::topic::TopicConfig;
use crate::config::view::BrokerView;
use crate::driver::boot::settle_all;
use crate::driver::homes::Placing;
use crate::driver::partition::moves::{MoveNotes, MoveSettings};
use crate::driver::partition::reconcile::{Assignment, Boot, DirBoot};
use crate::driver::testing::{log_dirs, partition_record, partition_settings};
use crate::log_dirs::LogDirIndex;

const NODE: i32 = 1;
const DIRS: [&str; 2] = ["/a", "/b"];
const TOPIC: &str = "orders";
const NO_HOMES: &crate::driver::partition::reconcile::Homes = &BTreeMap::new();

struct EveryPartition;

impl Assignment for EveryPartition {
    fn owns(&self, _: PartitionId) -> bool {
        true
    }

    fn topic_config(&self, _: &str) -> TopicConfig {
        let given = BrokerConfig::from_pairs(&[]).unwrap();
        TopicConfig::resolve(&BTreeMap::new(), &BrokerView::fixed(&given))
    }
}

/// What outlives a crash: two directories on one disk, and the topic of groups, of one partition.
struct World {
    runtime: SimulatedRuntime,
    disk: SimulatedDisk,
    image: Arc<MetadataImage>,
    id: PartitionId,
}

/// A broker that runs.
struct Life {
    partitions: Rc<Partitions<SimulatedDisk, SimulatedRuntime>>,
    coordinators: Rc<Coordinators<SimulatedDisk, SimulatedRuntime>>,
    id: PartitionId,
}

fn topic_records(number: u8, name: &str) -> [MetadataRecord; 2] {
    let topic_id = TopicId::from_wire(Uuid::from_bytes([number; 16])).unwrap();
    [MetadataRecord::Topic { topic_id, name: name.into() }, partition_record(topic_id, 0, NODE)]
}

impl World {
    fn new(seed: u64) -> Self {
        let runtime = SimulatedRuntime::new(seed);
        let disk = SimulatedDisk::new(&runtime);
        runtime.block_on(async {
            // As a start leaves a data directory.
            for dir in DIRS.map(Path::new) {
                disk.create_dir_all(&dir.join("journal")).await.unwrap();
                disk.sync_dir(dir).await.unwrap();
            }
            disk.sync_dir(Path::new("/")).await.unwrap();
        });
        let mut builder = ImageBuilder::new(&MetadataImage::default());
        let records = [topic_records(7, OFFSETS_TOPIC), topic_records(9, TOPIC)];
        builder.replay_batch(records.as_flattened()).unwrap();
        let image = Arc::new(builder.image().clone());
        let topic_id = image.topic(OFFSETS_TOPIC).unwrap().topic_id;
        Self { runtime, disk, image, id: PartitionId { topic_id, index: 0 } }
    }

    /// As the broker starts.
    async fn start(&self) -> Life {
        let log_dirs = Arc::new(log_dirs(&DIRS, DIRS[0]));
        let data_dirs: Vec<_> = DIRS.iter().map(|dir| DataDir::at(self.disk.clone(), *dir)).collect();
        let dirs = log_dirs.iter().map(|(index, _)| index).zip(data_dirs.clone()).collect();
        let settled = settle_all(&log_dirs, dirs, &self.runtime, &self.image, NODE).await.unwrap();
        let mut placing = Placing::new(NODE, DIRS.len(), settled.homes, &settled.moves);
        let homeless = placing.homeless(&self.image);
        placing.place(homeless, &log_dirs, &[]);
        let dirs = settled.online.into_values();
        let left = dirs
            .map(|dir| DirBoot { is_clean: dir.is_clean, ..crate::driver::boot::read(&dir.checkpoints, dir.is_clean) });
        let boot = Boot { is_start: true, dirs: left.collect(), moves: settled.moves, held: settled.held };
        let settings = partition_settings(data_dirs, log_dirs, NODE);
        let partitions = Partitions::new(self.runtime.clone(), settings);
        self.runtime.spawn(Rc::clone(&partitions.timer).run());
        partitions.open_all(&self.image, &boot, placing.homes(), &EveryPartition).await;
        let resolver = |job: RegexJob| -> Resolving {
            Box::pin(async move { Some(resolve_regexes(&job.regexes, &job.image, job.wall_ms, &|_| true)) })
        };
        let coordinators =
            Coordinators::new(Rc::clone(&partitions), Gate::new(), settings_of_groups(), Box::new(resolver));
        coordinators.follow(&self.image, &MetadataDelta::default(), settings_of_groups()).await;
        Life { partitions, coordinators: Rc::new(coordinators), id: self.id }
    }
}

fn settings_of_groups() -> CoordinatorSettings {
    CoordinatorSettings {
        groups: GroupSettings::default(),
        commit_timeout_ms: 5_000,
        load_bytes: 64 << 10,
        compression: Compression::NONE,
    }
}

impl Life {
    async fn ask(&self, command: Command) -> Result<Reply, ErrorCode> {
        let query = GroupQuery { slot: 0, partition: self.id, command };
        self.coordinators.serve(vec![query]).await.remove(0).outcome
    }

    async fn commit(&self, group_id: &str, offset: i64) -> ErrorCode {
        match self.ask(Command::OffsetCommit(commit(group_id, offset))).await {
            Ok(Reply::OffsetCommit(reply)) => reply.topics[0].partitions[0].error,
            Ok(other) => panic!("{other:?}"),
            Err(error) => error,
        }
    }

    /// -1 where nothing was committed.
    async fn committed(&self, group_id: &str) -> Result<i64, ErrorCode> {
        let fetch = OffsetFetch {
            group_id: group_id.to_owned(),
            member_id: None,
            member_epoch: -1,
            topics: None,
            require_stable: false,
        };
        let Reply::OffsetFetch(reply) = self.ask(Command::OffsetFetch(fetch)).await? else { panic!("another reply") };
        if reply.error.is_error() {
            return Err(reply.error);
        }
        Ok(reply.topics.first().map_or(-1, |topic| topic.partitions[0].committed_offset))
    }

    async fn committed_once_loaded(&self, group_id: &str) -> i64 {
        loop {
            match self.committed(group_id).await {
                Ok(offset) => return offset,
                Err(ErrorCode::CoordinatorLoadInProgress) => {
                    self.partitions.runtime.sleep(Duration::from_millis(10)).await;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// As somebody else who writes to the topic.
    fn append(&self, bytes: &[u8]) {
        let batch = ValidBatch::from_trusted(BytesMut::from(bytes)).unwrap();
        let now_ms = self.partitions.runtime.wall_clock_ms();
        self.partitions.find(self.id).unwrap().log.append_as_leader(Append { batch, leader_epoch: 0, now_ms }).unwrap();
    }
}

fn commit(group_id: &str, offset: i64) -> OffsetCommit {
    let partition = CommittedPartition {
        partition_index: 0,
        committed_offset: offset,
        committed_leader_epoch: -1,
        committed_metadata: None,
    };
    OffsetCommit {
        api_version: 9,
        group_id: group_id.to_owned(),
        generation_id_or_member_epoch: -1,
        member_id: String::new(),
        group_instance_id: None,
        retention_time_ms: None,
        topics: vec![CommittedTopic { name: TOPIC.to_owned(), topic_id: Uuid::ZERO, partitions: vec![partition] }],
    }
}

fn join(group_id: &str) -> Command {
    Command::JoinGroup(JoinGroup {
        api_version: 3,
        group_id: group_id.to_owned(),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 60_000,
        member_id: String::new(),
        group_instance_id: None,
        protocol_type: "consumer".to_owned(),
        protocols: vec![GroupProtocol { name: "range".to_owned(), metadata: Bytes::from_static(b"\0\0") }],
        client_id: "test".to_owned(),
        client_host: "/127.0.0.1".to_owned(),
        member_uuid: Uuid::from_bytes([3; 16]),
    })
}

/// Commits by several groups at a time; what was acknowledged last, by group.
async fn commit_on(life: &Life, acked: &RefCell<BTreeMap<String, i64>>, offsets: Range<i64>) {
    let group = async |group_id: &str| {
        for offset in offsets.clone() {
            if life.commit(group_id, offset).await == ErrorCode::None {
                acked.borrow_mut().insert(group_id.to_owned(), offset);
            }
        }
    };
    let both = futures_lite::future::zip(group("one"), group("two"));
    futures_lite::future::zip(both, group("three")).await;
}

#[test]
fn what_is_acknowledged_survives_a_power_cut_at_every_operation() {
    // Rule: whenever the power goes, also while the partition changes its directory, a group has what it was told is committed, or
    // something later; and the coordinator goes on.
    for seed in 0..3 {
        let cuts = (1..).take_while(|cut_at| !survives(seed, *cut_at)).count();
        assert!(cuts > 40, "commits and a move are many operations");
    }
}

/// True when the power went only after all was done.
fn survives(seed: u64, cut_at: u64) -> bool {
    let case = format!("seed {seed}, cut at {cut_at}");
    let mut world = World::new(seed);
    let life = world.runtime.clone().block_on(world.start());
    world.disk.cut_power_at(cut_at);
    let (disk, acked) = (world.disk.clone(), RefCell::default());
    let working = async {
        commit_on(&life, &acked, 0..4).await;
        life.partitions.move_replica(world.id, LogDirIndex::new(1)).await.unwrap();
        futures_lite::future::zip(move_all(&life), commit_on(&life, &acked, 4..10)).await;
    };
    let is_done = world.runtime.block_on_unless(working, || disk.has_lost_power()).is_ok();
    world.runtime.crash();
    drop(life);
    world.disk = world.disk.crash(&world.runtime);
    world.runtime.clone().block_on(async {
        let life = world.start().await;
        for (group_id, acked) in acked.take() {
            let committed = life.committed_once_loaded(&group_id).await;
            assert!(committed >= acked, "{case}: {group_id} was told {acked} and has {committed}");
        }
        life.committed_once_loaded("one").await;
        assert_eq!(life.commit("one", 100).await, ErrorCode::None, "{case}");
        assert_eq!(life.committed("one").await, Ok(100), "{case}");
    });
    is_done
}

async fn move_all(life: &Life) {
    let throttle = Throttle::new(f64::INFINITY);
    let settings = MoveSettings { throttle: &throttle, unbound: &throttle };
    let notes = MoveNotes { arrival: async |_| true, departure: async |_, _, _| {} };
    while let Some(wait) = life.partitions.move_next(&settings, &async || {}, &notes).await {
        life.partitions.runtime.sleep(wait).await;
    }
}

#[test]
fn a_state_ahead_of_its_log_is_loaded_anew() {
    // Rule: where somebody else has written to the partition, an append is not made at another offset: who waits is told so, and the
    // coordinator begins again with what the log says, theirs included.
    let world = World::new(1);
    world.runtime.clone().block_on(async {
        let life = world.start().await;
        assert_eq!(life.commit("mine", 5).await, ErrorCode::None);
        life.append(&load::tests::batch(&BatchOptions::default(), "theirs", 7));
        assert_eq!(life.commit("mine", 6).await, ErrorCode::NotCoordinator);
        assert_eq!(life.committed("mine").await, Err(ErrorCode::CoordinatorLoadInProgress));
        assert_eq!(life.committed_once_loaded("mine").await, 5);
        assert_eq!(life.committed("theirs").await, Ok(7));
        assert_eq!(life.commit("mine", 8).await, ErrorCode::None);
        assert_eq!(life.committed("mine").await, Ok(8));
    });
}

#[test]
fn a_failed_flush_answers_who_waits() {
    // Rule: an answer whose records could not be flushed is an error, and as long as the log takes nothing so is every other that needs
    // records.
    let world = World::new(3);
    world.runtime.clone().block_on(async {
        let life = world.start().await;
        assert_eq!(life.commit("group", 1).await, ErrorCode::None);
        world.disk.fail_nth(Operation::SyncData, "journal", 1, libc::EIO);
        let failed = life.commit("group", 2).await;
        assert_eq!(failed, ErrorCode::NotCoordinator);
        world.runtime.sleep(Duration::from_secs(1)).await;
        let later = life.commit("group", 3).await;
        assert!(matches!(later, ErrorCode::NotCoordinator | ErrorCode::CoordinatorLoadInProgress), "{later}");
    });
}

#[test]
fn a_flush_that_takes_long_is_bounded() {
    // Rule: what only waits for its records to be flushed is answered after offsets.commit.timeout.ms, whatever the disk does.
    let world = World::new(4);
    world.runtime.clone().block_on(async {
        let life = world.start().await;
        assert_eq!(life.commit("group", 1).await, ErrorCode::None);
        // Full: what is appended waits for room.
        world.disk.set_capacity(world.disk.used_bytes());
        let began = world.runtime.now();
        let mut offset = 2;
        let error = loop {
            let error = life.commit("group", offset).await;
            if error.is_error() {
                break error;
            }
            offset += 1;
        };
        assert!(matches!(error, ErrorCode::CoordinatorNotAvailable | ErrorCode::NotCoordinator), "{error}");
        assert!(world.runtime.now().saturating_since(began) < Duration::from_secs(60));
    });
}

#[test]
fn members_wait_for_each_other() {
    // Rule: a join is answered when the group's delay is over, by the shard's own timer.
    let world = World::new(5);
    world.runtime.clone().block_on(async {
        let life = world.start().await;
        let began = world.runtime.now();
        let Ok(Reply::JoinGroup(reply)) = life.ask(join("group")).await else { panic!("no answer") };
        assert_eq!((reply.error, reply.generation_id), (ErrorCode::None, 1));
        let took = world.runtime.now().saturating_since(began);
        assert!((Duration::from_secs(3)..Duration::from_secs(4)).contains(&took), "{took:?}");
    });
}

#[test]
fn nobody_waits_for_a_coordinator_that_has_ended() {
    // Rule: a stop, and the end of the topic, answer whoever waits, and whoever comes later.
    for is_stop in [true, false] {
        let world = World::new(6);
        world.runtime.clone().block_on(async {
            let life = world.start().await;
            let waiting = life.ask(join("group"));
            let ending = async {
                world.runtime.sleep(Duration::from_millis(100)).await;
                if is_stop {
                    life.coordinators.stop();
                } else {
                    let mut builder = ImageBuilder::new(&world.image);
                    builder.replay_batch(&[MetadataRecord::RemoveTopic { topic_id: world.id.topic_id }]).unwrap();
                    let (image, delta) = builder.finish();
                    life.partitions.apply(&image, &delta, NO_HOMES, &EveryPartition).await;
                    life.coordinators.follow(&image, &delta, settings_of_groups()).await;
                }
            };
            let (answer, ()) = futures_lite::future::zip(waiting, ending).await;
            let Ok(Reply::JoinGroup(reply)) = answer else { panic!("{answer:?}") };
            assert_eq!(reply.error, ErrorCode::NotCoordinator, "stop: {is_stop}");
            assert_eq!(life.commit("group", 1).await, ErrorCode::NotCoordinator, "stop: {is_stop}");
        });
    }
}

#[test]
fn regular_expressions_come_back() {
    // Rule: what a member's expression stands for is found beside the coordinator, and then assigned.
    let world = World::new(7);
    world.runtime.clone().block_on(async {
        let life = world.start().await;
        let heartbeat = |member_epoch| {
            let is_first = member_epoch == 0;
            Command::ConsumerGroupHeartbeat(ConsumerGroupHeartbeat {
                api_version: 1,
                group_id: "group".to_owned(),
                member_id: "member".to_owned(),
                member_epoch,
                rebalance_timeout_ms: if is_first { 60_000 } else { -1 },
                subscribed_topic_regex: is_first.then(|| "ord.*".to_owned()),
                topic_partitions: is_first.then(Vec::new),
                ..ConsumerGroupHeartbeat::default()
            })
        };
        let (mut epoch, mut assigned) = (0, 0);
        for _ in 0..100 {
            let Ok(Reply::ConsumerGroupHeartbeat(reply)) = life.ask(heartbeat(epoch)).await else {
                panic!("no answer")
            };
            assert_eq!(reply.error, ErrorCode::None, "{reply:?}");
            epoch = reply.member_epoch;
            assigned = reply.assignment.map_or(assigned, |topics| topics.len());
            if assigned > 0 {
                break;
            }
            world.runtime.sleep(Duration::from_millis(500)).await;
        }
        assert_eq!(assigned, 1);
    });
}

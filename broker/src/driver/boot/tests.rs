use std::path::Path;

use walser_machine::ids::{LeaderEpoch, TopicId};
use walser_machine::metadata::image::ImageBuilder;
use walser_machine::metadata::records::{MetadataRecord, PartitionRecord};
use walser_storage::data_dir::log_ends::LogEnds;
use walser_storage::disk::simulated::SimulatedDisk;
use walser_storage::journal::record::{Piece, SegmentBytes};
use walser_storage::journal::{JOURNAL_DIR, folder};
use walser_storage::log::DamageMark;
use walser_storage::runtime::simulated::SimulatedRuntime;
use walser_storage::wal::{Wal, WalOptions};

use super::*;

const NODE: i32 = 1;
const DATA: &str = "/data";

/// Topic "a" with partition 0 here and partition 1 on another node.
fn image(topic_id: TopicId) -> MetadataImage {
    let partition = |partition_index, node| {
        let node = BrokerId::from_wire(node).unwrap();
        MetadataRecord::Partition(PartitionRecord {
            topic_id,
            partition_index,
            replicas: vec![node],
            in_sync_replicas: vec![node],
            leader: Some(node),
            leader_epoch: LeaderEpoch::ZERO,
            partition_epoch: 0,
            directories: vec![DirectoryId::UNASSIGNED],
        })
    };
    let topic = MetadataRecord::Topic { topic_id, name: "a".into() };
    let mut builder = ImageBuilder::new(&MetadataImage::default());
    builder.replay_batch(&[topic, partition(0, NODE), partition(1, 2)]).unwrap();
    builder.image().clone()
}

/// One byte at the start of each log.
async fn write_journal(disk: &SimulatedDisk, runtime: &SimulatedRuntime, logs: &[(Uuid, i32)]) {
    let dir = folder(Path::new(DATA), 3);
    let options = WalOptions { dir, first_file_bytes: 64 << 10, file_bytes: 64 << 10, spares_max: 0, salt_seed: 1 };
    let (wal, _) = Wal::open(disk.clone(), runtime.clone(), options, |_, _| {}).await.unwrap();
    for &(topic_id, partition) in logs {
        let head = SegmentBytes { topic_id, partition, base_offset: 0, position: 0 }.encode_head(Piece::Batch);
        wal.append_committed([&head[..], b"x"].concat().into()).await.unwrap();
    }
    wal.close().await.unwrap();
}

#[test]
fn journals_are_replayed_after_a_crash_only_and_gone_in_any_case() {
    // Rule: after a crash a journal puts its bytes into the partitions that the metadata has on this node, and into no
    // others; after a clean stop into none. Then it is gone.
    for is_clean in [false, true] {
        let runtime = SimulatedRuntime::new(1);
        let disk = SimulatedDisk::new(&runtime);
        let topic_id = Uuid::from_bytes([7; 16]);
        let image = image(TopicId::from_wire(topic_id).unwrap());
        runtime.block_on(async {
            disk.create_dir_all(&Path::new(DATA).join(JOURNAL_DIR)).await.unwrap();
            let other = Uuid::from_bytes([9; 16]);
            write_journal(&disk, &runtime, &[(topic_id, 0), (topic_id, 1), (topic_id, 2), (other, 0)]).await;
            let data_dir = DataDir::at(disk.clone(), DATA);
            let settled = settle_journals(&data_dir, &runtime, &image, NODE, &LogEnds::new(), is_clean).await;
            let made = settled.unwrap().made;
            let found = data_dir.list_partitions().await.unwrap();
            assert_eq!(made, found);
            let names: Vec<&str> = found.iter().map(|dir| dir.dir_name.as_str()).collect();
            assert_eq!(names, if is_clean { &[][..] } else { &["a-0"] });
            assert!(disk.list_dir(&Path::new(DATA).join(JOURNAL_DIR)).await.unwrap().is_empty());
        });
    }
}

#[test]
fn a_damaged_journal_costs_what_is_behind_it() {
    // Rule: the start goes on; what was in the journal alone is marked, the folder is kept under another name.
    let runtime = SimulatedRuntime::new(1);
    let disk = SimulatedDisk::new(&runtime);
    let data_dir = DataDir::at(disk.clone(), DATA);
    let topic_id = Uuid::from_bytes([7; 16]);
    let image = image(TopicId::from_wire(topic_id).unwrap());
    runtime.block_on(async {
        disk.create_dir_all(&Path::new(DATA).join(JOURNAL_DIR)).await.unwrap();
        write_journal(&disk, &runtime, &[(topic_id, 0); 3]).await;
        let dir = folder(Path::new(DATA), 3);
        let entries = disk.list_dir(&dir).await.unwrap();
        disk.flip_bit(&dir.join(&entries[0].name), 50, 1).unwrap();
        let settled = settle_journals(&data_dir, &runtime, &image, NODE, &LogEnds::new(), false).await.unwrap();
        assert_eq!(settled.damage_count, 1);
        let mark = DamageMark::read(&disk, &data_dir.partition_path("a", 0)).await.unwrap();
        assert!(mark.is_some_and(|mark| mark.end_offset.is_none() && mark.path.starts_with(&dir)));
        let left = disk.list_dir(&Path::new(DATA).join(JOURNAL_DIR)).await.unwrap();
        assert_eq!(left.iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>(), ["3.damaged"]);
        let settled = settle_journals(&data_dir, &runtime, &image, NODE, &LogEnds::new(), false).await.unwrap();
        assert_eq!((settled.damage_count, settled.made.len()), (0, 0), "once");
    });
}

#[test]
fn a_journal_serves_the_logs_of_its_shard() {
    // Rule: whose logs are behind a journal follows from the shards of the run that wrote it; without them it may be any.
    let partitions: std::collections::BTreeSet<i32> = (0..6).collect();
    let known = BTreeMap::from([(Uuid::from_bytes([7; 16]), KnownTopic { name: "a".into(), partitions })]);
    let behind = |journal, shard_count| logs_behind(&known, JournalOwner { journal, shard_count });
    let mut all: Vec<_> = (0..3).flat_map(|journal| behind(journal, Some(3))).collect();
    all.sort();
    assert_eq!(all, behind(0, None));
    assert_eq!((all.len(), behind(1, Some(3)).len(), behind(1, Some(1)).len()), (6, 2, 0));
}

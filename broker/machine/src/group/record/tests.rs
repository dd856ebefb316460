use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::group::harness::unhex;

const TOPIC_ID: Uuid = Uuid::from_bytes([7; 16]);

fn commit(value: Option<OffsetCommitValue>) -> GroupRecord {
    GroupRecord::OffsetCommit { group_id: "g".to_owned(), topic: "t".to_owned(), partition_index: 3, value }
}

fn committed(expire_timestamp_ms: Option<i64>, topic_id: Uuid, leader_epoch: i32) -> OffsetCommitValue {
    OffsetCommitValue {
        offset: 42,
        leader_epoch,
        metadata: "m".to_owned(),
        commit_timestamp_ms: 1000,
        expire_timestamp_ms,
        topic_id,
    }
}

fn group(members: Vec<MemberMetadata>) -> GroupRecord {
    let value = GroupMetadataValue {
        protocol_type: "consumer".to_owned(),
        generation_id: 2,
        protocol_name: Some("range".to_owned()),
        leader: Some("a".to_owned()),
        current_state_timestamp_ms: 9,
        members,
    };
    GroupRecord::GroupMetadata { group_id: "g".to_owned(), value: Some(value) }
}

fn member() -> MemberMetadata {
    MemberMetadata {
        member_id: "a".to_owned(),
        group_instance_id: Some("i".to_owned()),
        client_id: "c".to_owned(),
        client_host: "/127.0.0.1".to_owned(),
        rebalance_timeout_ms: 300_000,
        session_timeout_ms: 10_000,
        subscription: Bytes::from_static(b"s"),
        assignment: Bytes::from_static(b"x"),
    }
}

fn consumer_records() -> Vec<GroupRecord> {
    let group_id = || "g".to_owned();
    let member_id = || "m".to_owned();
    let owned =
        |assignment_epochs| TopicPartitionEpochs { topic_id: TOPIC_ID, partitions: vec![0, 2], assignment_epochs };
    let member = ConsumerGroupMemberValue {
        instance_id: None,
        rack_id: Some("r".to_owned()),
        client_id: "c".to_owned(),
        client_host: "/::1".to_owned(),
        subscribed_topic_names: vec!["t".to_owned(), "u".to_owned()],
        subscribed_topic_regex: Some("t.*".to_owned()),
        rebalance_timeout_ms: 5,
        server_assignor: Some("uniform".to_owned()),
        classic: Some(ClassicMemberMetadata {
            session_timeout_ms: 6,
            supported_protocols: vec![("range".to_owned(), Bytes::from_static(b"b"))],
        }),
    };
    let current = CurrentAssignmentValue {
        member_epoch: 4,
        previous_member_epoch: 3,
        state: 1,
        assigned_partitions: vec![owned(Some(vec![3, 4]))],
        partitions_pending_revocation: vec![owned(None)],
    };
    vec![
        GroupRecord::ConsumerGroupMetadata {
            group_id: group_id(),
            value: Some(ConsumerGroupMetadataValue { epoch: 4, metadata_hash: -5 }),
        },
        GroupRecord::ConsumerGroupMetadata { group_id: group_id(), value: None },
        GroupRecord::ConsumerGroupPartitionMetadata { group_id: group_id(), present: false },
        GroupRecord::ConsumerGroupMemberMetadata { group_id: group_id(), member_id: member_id(), value: Some(member) },
        GroupRecord::ConsumerGroupMemberMetadata { group_id: group_id(), member_id: member_id(), value: None },
        GroupRecord::ConsumerGroupTargetAssignmentMetadata {
            group_id: group_id(),
            value: Some(TargetAssignmentMetadataValue { assignment_epoch: 4, assignment_timestamp_ms: 12 }),
        },
        GroupRecord::ConsumerGroupTargetAssignmentMember {
            group_id: group_id(),
            member_id: member_id(),
            value: Some(vec![TopicPartitions { topic_id: TOPIC_ID, partitions: vec![1] }]),
        },
        GroupRecord::ConsumerGroupCurrentMemberAssignment {
            group_id: group_id(),
            member_id: member_id(),
            value: Some(current),
        },
        GroupRecord::ConsumerGroupRegularExpression {
            group_id: group_id(),
            regular_expression: "t.*".to_owned(),
            value: Some(RegularExpressionValue { topics: vec!["t".to_owned()], version: 8, timestamp_ms: 77 }),
        },
    ]
}

fn decoded(record: &EncodedRecord) -> Option<GroupRecord> {
    GroupRecord::decode(Some(&record.key), record.value.as_deref()).expect("what was encoded can be decoded")
}

#[test]
fn records_survive_the_log() {
    // Rule: decode(encode(record)) is the record, of every kind, tombstones included.
    let mut records = consumer_records();
    records.push(commit(None));
    records.push(commit(Some(committed(None, TOPIC_ID, 5))));
    records.push(group(vec![member()]));
    records.push(GroupRecord::GroupMetadata { group_id: "g".to_owned(), value: None });
    for record in records {
        let encoded = record.encode().expect("no text is too long");
        assert_eq!(decoded(&encoded), Some(record));
    }
}

#[test]
fn versions_are_those_kafka_writes() {
    // Rule: the bytes of a commit are version 4 with the topic id, of an expiring one version 1 without it and without
    // the leader epoch; those of a classic group version 3.
    let encoded = commit(Some(committed(None, TOPIC_ID, 5))).encode().expect("encodes");
    assert_eq!(&encoded.key[..], b"\0\x01\0\x01g\0\x01t\0\0\0\x03");
    let mut want = b"\0\x04\0\0\0\0\0\0\0\x2a\0\0\0\x05\x02m\0\0\0\0\0\0\x03\xe8\x01\0\x10".to_vec();
    want.extend([7; 16]);
    assert_eq!(encoded.value.as_deref(), Some(&want[..]));

    let expiring = commit(Some(committed(Some(2000), TOPIC_ID, 5))).encode().expect("encodes");
    let want = b"\0\x01\0\0\0\0\0\0\0\x2a\0\x01m\0\0\0\0\0\0\x03\xe8\0\0\0\0\0\0\x07\xd0";
    assert_eq!(expiring.value.as_deref(), Some(&want[..]));
    assert_eq!(decoded(&expiring), Some(commit(Some(committed(Some(2000), Uuid::ZERO, -1)))));

    let classic = group(vec![member()]).encode().expect("encodes");
    assert_eq!(&classic.key[..], b"\0\x02\0\x01g");
    assert_eq!(classic.value.as_deref().map(|value| &value[..2]), Some(&b"\0\x03"[..]));
}

#[test]
fn records_of_kafka_are_read_and_written_again_byte_by_byte() {
    // Rule: Kafka 4.4.0 wrote these into __consumer_offsets: a commit of version 9, one of version 3 that names its retention, and a
    // group of one static member. What is read from them is written as they are.
    let records = [
        (
            "00010005672d622d310005746f70696300000002",
            "0004000000000000000800000000036d64000001a22f2390850100102eadd7eb60a24a759824a6c07cfc22c7",
        ),
        (
            "00010007672d632d31313900056f7468657200000001",
            "0001000000000000000700026d64000001a22f240928000001a2344a6528",
        ),
        (
            "00020007672d632d313332",
            concat!(
                "00030007636f6e6e65637400000001000572616e6765002b696e73742d302d65333732396337612d323964652d346239342d",
                "383138312d663133616561653435653862000001a22f24177d00000001002b696e73742d302d65333732396337612d323964",
                "652d346239342d383138312d6631336165616534356538620006696e73742d300008636c69656e742d30000a2f3132372e30",
                "2e302e310000ea6000004e20000000150001000000010005746f706963ffffffff00000000000000020005",
            ),
        ),
    ];
    for (key, value) in records {
        let encoded = EncodedRecord { key: unhex(key).into(), value: Some(unhex(value).into()) };
        let record = decoded(&encoded).expect("a known kind");
        assert_eq!(record.encode().as_ref(), Ok(&encoded), "{record:?}");
    }
}

#[test]
fn old_records_are_read() {
    // Rule: keys of type 0 and values of every older version are read; what they lack is unknown.
    let key = b"\0\0\0\x01g\0\x01t\0\0\0\x03";
    let value = b"\0\0\0\0\0\0\0\0\0\x2a\0\x01m\0\0\0\0\0\0\x03\xe8";
    let record = GroupRecord::decode(Some(key), Some(value));
    assert_eq!(record, Ok(Some(commit(Some(committed(None, Uuid::ZERO, -1))))));
    let empty = b"\0\0\0\x08consumer\0\0\0\x02\xff\xff\xff\xff\0\0\0\0";
    let Ok(Some(GroupRecord::GroupMetadata { value: Some(value), .. })) =
        GroupRecord::decode(Some(b"\0\x02\0\x01g"), Some(empty))
    else {
        panic!("version 0 of a classic group");
    };
    assert_eq!((value.generation_id, value.current_state_timestamp_ms), (2, -1));
}

#[test]
fn unknown_kinds_are_passed_over() {
    // Rule: kinds of share and streams groups and of newer brokers are no error; a record without a key is one.
    for record_type in [9_i16, 10, 15, 17, 23, 99, -1] {
        assert_eq!(GroupRecord::decode(Some(&record_type.to_be_bytes()), Some(b"\0\0")), Ok(None), "{record_type}");
    }
    assert_eq!(GroupRecord::decode(None, None), Err(RecordError::NoKey));
}

proptest! {
    #[test]
    fn any_bytes_decode_or_err(
        record_type in 0_i16..20,
        key in proptest::collection::vec(any::<u8>(), 0..40),
        value in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..80)),
    ) {
        // Rule: no bytes on a disk can panic the coordinator.
        let key = [&record_type.to_be_bytes()[..], &key].concat();
        drop(GroupRecord::decode(Some(&key), value.as_deref()));
    }

    #[test]
    fn damaged_records_decode_or_err(which in 0_usize..9, at in 0_usize..64, byte in any::<u8>()) {
        // Rule: one wrong byte in a real record cannot panic the coordinator either.
        let encoded = consumer_records()[which].encode().expect("encodes");
        let mut value = encoded.value.unwrap_or_default().to_vec();
        if let Some(place) = value.get_mut(at) {
            *place = byte;
        }
        drop(GroupRecord::decode(Some(&encoded.key), Some(&value)));
    }
}

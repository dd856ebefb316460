use proptest::prelude::*;

use super::*;

fn broker(raw: i32) -> BrokerId {
    BrokerId::from_wire(raw).unwrap()
}

fn in_sync(partition_epoch: i32, replicas: &[i32]) -> InSyncReplicas {
    InSyncReplicas { partition_epoch, replicas: replicas.iter().copied().map(broker).collect() }
}

fn leader(replicas: &[i32], min_in_sync_replicas: usize) -> Leader {
    Leader::new(LeaderStart {
        broker_id: broker(1),
        leader_epoch: LeaderEpoch::from_wire(5).unwrap(),
        in_sync: in_sync(0, replicas),
        min_in_sync_replicas,
        log_start: 0,
        log_end: 0,
        flushed_end: 0,
        high_watermark: 0,
    })
}

fn effects(leader: &mut Leader) -> Vec<Effect> {
    leader.verify();
    std::iter::from_fn(|| leader.poll_effect()).collect()
}

fn done(waiter: u64) -> Effect {
    Effect::CompleteProduce { waiter: WaiterId(waiter), result: Ok(()) }
}

fn failed(waiter: u64, failure: ProduceFailure) -> Effect {
    Effect::CompleteProduce { waiter: WaiterId(waiter), result: Err(failure) }
}

#[test]
fn epochs_of_requests_are_compared_with_the_leaders() {
    // Rule: older is fenced, newer is unknown, -1 is not checked (KIP-320).
    let current = LeaderEpoch::from_wire(5).unwrap();
    for (given, want) in [
        (-1, Ok(())),
        (5, Ok(())),
        (4, Err(EpochMismatch::Fenced { given: 4, current })),
        (6, Err(EpochMismatch::Unknown { given: 6, current })),
        (-2, Err(EpochMismatch::Fenced { given: -2, current })),
    ] {
        assert_eq!(verify_leader_epoch(current, given), want, "{given}");
    }
}

#[test]
fn alone_a_flush_commits() {
    // Rule: with an in-sync set of one the flush moves the high watermark, then answers, then wakes; an append does neither.
    let mut leader = leader(&[1], 1);
    leader.handle_appended(10);
    leader.handle_waiting(WaiterId(1), 5, RequiredAcks::Leader);
    leader.handle_waiting(WaiterId(2), 10, RequiredAcks::All);
    assert_eq!(effects(&mut leader), []);
    leader.handle_flushed(5);
    assert_eq!(effects(&mut leader), [Effect::AdvanceHighWatermark(5), Effect::WakeFetches, done(1)]);
    leader.handle_flushed(10);
    assert_eq!(effects(&mut leader), [Effect::AdvanceHighWatermark(10), Effect::WakeFetches, done(2)]);
    leader.handle_waiting(WaiterId(3), 10, RequiredAcks::All);
    assert_eq!(effects(&mut leader), [done(3)]);
}

#[test]
fn followers_hold_the_high_watermark_but_not_acks_of_the_leader() {
    // Rule: the high watermark is the least flushed end of the in-sync set.
    let mut leader = leader(&[1, 2], 2);
    leader.handle_appended(10);
    leader.handle_waiting(WaiterId(1), 10, RequiredAcks::Leader);
    leader.handle_waiting(WaiterId(2), 10, RequiredAcks::All);
    leader.handle_flushed(10);
    assert_eq!(effects(&mut leader), [Effect::WakeFetches, done(1)]);
    leader.handle_replica_fetched(broker(3), 10);
    leader.handle_replica_fetched(broker(2), 99);
    leader.handle_replica_fetched(broker(2), 4);
    assert_eq!(effects(&mut leader), [Effect::AdvanceHighWatermark(4), Effect::WakeFetches]);
    leader.handle_replica_fetched(broker(2), 10);
    assert_eq!(effects(&mut leader), [Effect::AdvanceHighWatermark(10), Effect::WakeFetches, done(2)]);
}

#[test]
fn a_shrunken_set_commits_but_says_so() {
    // Rule: acks=all appended with enough replicas and committed with too few answers "after append"; new ones are refused.
    let mut leader = leader(&[1, 2], 2);
    assert_eq!(leader.verify_append(Some(RequiredAcks::All)), Ok(()));
    leader.handle_appended(10);
    leader.handle_waiting(WaiterId(1), 10, RequiredAcks::All);
    leader.handle_flushed(10);
    effects(&mut leader);
    leader.handle_in_sync_changed(&in_sync(1, &[1]));
    let shortage = ProduceFailure::NotEnoughReplicasAfterAppend { in_sync: 1, required: 2 };
    assert_eq!(effects(&mut leader), [Effect::AdvanceHighWatermark(10), Effect::WakeFetches, failed(1, shortage)]);
    let refusal = AppendRefusal::NotEnoughReplicas { in_sync: 1, required: 2 };
    assert_eq!(leader.verify_append(Some(RequiredAcks::All)), Err(refusal));
    assert_eq!(leader.verify_append(Some(RequiredAcks::Leader)), Ok(()));
    leader.handle_in_sync_changed(&in_sync(1, &[1, 2]));
    assert_eq!(leader.in_sync_replicas().count(), 1, "the same partition epoch again is old news");
}

#[test]
fn a_follower_that_joins_brings_its_position() {
    // Rule: a replica that caught up before it joined does not hold the high watermark back.
    let mut leader = leader(&[1], 1);
    leader.handle_appended(10);
    leader.handle_flushed(10);
    leader.handle_replica_fetched(broker(2), 10);
    leader.handle_in_sync_changed(&in_sync(1, &[1, 2]));
    leader.handle_appended(12);
    leader.handle_flushed(12);
    assert_eq!(leader.high_watermark(), 10);
    leader.handle_replica_fetched(broker(2), 12);
    assert_eq!(leader.high_watermark(), 12);
}

#[test]
fn a_failed_log_answers_everybody_and_stays_readable() {
    // Rule: after a failed flush nothing is acknowledged and the high watermark stands, whatever flush succeeds later.
    let mut leader = leader(&[1], 1);
    leader.handle_appended(10);
    leader.handle_flushed(4);
    leader.handle_waiting(WaiterId(1), 10, RequiredAcks::All);
    effects(&mut leader);
    leader.handle_failed();
    assert_eq!(effects(&mut leader), [failed(1, ProduceFailure::Storage), Effect::WakeFetches]);
    leader.handle_flushed(10);
    leader.handle_waiting(WaiterId(2), 10, RequiredAcks::Leader);
    assert_eq!(effects(&mut leader), [failed(2, ProduceFailure::Storage)]);
    assert_eq!(leader.high_watermark(), 4);
    assert_eq!(leader.verify_append(None), Err(AppendRefusal::Storage));
    leader.handle_resigned();
    assert_eq!(leader.verify_append(None), Err(AppendRefusal::NotLeader));
}

#[test]
fn timeouts_and_resignation_answer_once() {
    // Rule: every waiter is answered exactly once, by whatever comes first.
    let mut leader = leader(&[1], 1);
    leader.handle_appended(10);
    leader.handle_waiting(WaiterId(1), 5, RequiredAcks::Leader);
    leader.handle_waiting(WaiterId(2), 10, RequiredAcks::All);
    leader.handle_timeout(WaiterId(1));
    leader.handle_timeout(WaiterId(1));
    assert_eq!(effects(&mut leader), [failed(1, ProduceFailure::TimedOut)]);
    leader.handle_resigned();
    assert_eq!(effects(&mut leader), [failed(2, ProduceFailure::NotLeader), Effect::WakeFetches]);
    leader.handle_timeout(WaiterId(2));
    leader.handle_resigned();
    assert_eq!(effects(&mut leader), []);
}

#[test]
fn open_transactions_hold_the_last_stable_offset() {
    // Rule: last stable offset = min(first open transaction, high watermark); its move wakes fetches.
    let mut leader = leader(&[1], 1);
    leader.handle_appended(10);
    leader.handle_flushed(10);
    effects(&mut leader);
    leader.handle_first_unstable(Some(3));
    assert_eq!((leader.last_stable_offset(), effects(&mut leader)), (3, vec![]));
    leader.handle_first_unstable(Some(20));
    assert_eq!((leader.last_stable_offset(), effects(&mut leader)), (10, vec![Effect::WakeFetches]));
    leader.handle_first_unstable(None);
    assert_eq!((leader.last_stable_offset(), effects(&mut leader)), (10, vec![]));
}

#[derive(Clone, Debug)]
enum Step {
    Append(i64),
    Flush(i64),
    Wait { back: i64, all: bool },
    Fetch { replica: i32, back: i64 },
    Replicas(Vec<i32>),
    Timeout(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1i64..5).prop_map(Step::Append),
        (0i64..6).prop_map(Step::Flush),
        (0i64..6, any::<bool>()).prop_map(|(back, all)| Step::Wait { back, all }),
        (2i32..4, -2i64..6).prop_map(|(replica, back)| Step::Fetch { replica, back }),
        prop_oneof![Just(vec![1]), Just(vec![1, 2]), Just(vec![1, 2, 3])].prop_map(Step::Replicas),
        (0u64..20).prop_map(Step::Timeout),
    ]
}

proptest! {
    #[test]
    fn nothing_is_acknowledged_before_it_is_safe(steps in proptest::collection::vec(step(), 0..100)) {
        // Rule: an answer never precedes the flush (acks=1) or the high watermark (acks=all), and there is one for each waiter.
        let mut leader = leader(&[1], 1);
        let (mut flushed, mut epoch, mut known_watermark) = (0, 0, 0);
        let mut open: BTreeMap<WaiterId, (i64, bool)> = BTreeMap::new();
        for (serial, step) in (0u64..).zip(steps) {
            match step {
                Step::Append(count) => leader.handle_appended(leader.log_end() + count),
                Step::Flush(back) => {
                    flushed = flushed.max(leader.log_end() - back);
                    leader.handle_flushed(flushed);
                }
                Step::Wait { back, all } => {
                    let end = (leader.log_end() - back).max(0);
                    open.insert(WaiterId(serial), (end, all));
                    let acks = if all { RequiredAcks::All } else { RequiredAcks::Leader };
                    leader.handle_waiting(WaiterId(serial), end, acks);
                }
                Step::Fetch { replica, back } => leader.handle_replica_fetched(broker(replica), leader.log_end() - back),
                Step::Replicas(replicas) => {
                    epoch += 1;
                    leader.handle_in_sync_changed(&in_sync(epoch, &replicas));
                }
                Step::Timeout(waiter) => leader.handle_timeout(WaiterId(waiter)),
            }
            prop_assert!(leader.high_watermark() >= known_watermark);
            prop_assert!(leader.high_watermark() <= flushed);
            known_watermark = leader.high_watermark();
            for effect in effects(&mut leader) {
                if let Effect::CompleteProduce { waiter, result } = effect {
                    let (end, all) = open.remove(&waiter).expect("answered once");
                    if result.is_ok() {
                        let safe = if all { known_watermark } else { flushed };
                        prop_assert!(end <= safe);
                    }
                }
            }
        }
        leader.handle_resigned();
        for effect in effects(&mut leader) {
            if let Effect::CompleteProduce { waiter, .. } = effect {
                open.remove(&waiter);
            }
        }
        prop_assert!(open.is_empty());
    }
}

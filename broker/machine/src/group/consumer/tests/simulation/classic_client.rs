//! A client of the classic protocol, with a cooperative assignor: it gives up only what it is not assigned any more.

use super::*;

impl World {
    /// One request and what follows from its answer; a join is followed by a sync.
    pub(super) fn classic_round(&mut self, index: usize, is_lossy: bool) {
        let Some(session) = &self.clients[index].session else { return };
        if session.is_full {
            return self.classic_join(index, is_lossy);
        }
        let client = &self.clients[index];
        let heartbeat = Heartbeat {
            group_id: GROUP.to_owned(),
            generation_id: session.epoch,
            member_id: client.member_id.clone(),
            group_instance_id: client.instance_id.clone(),
        };
        if is_lossy && self.one_in(8) {
            return;
        }
        let verdict = self.bench.classic_heartbeat(&heartbeat);
        if is_lossy && self.one_in(8) {
            return;
        }
        if let Err(error) = verdict {
            self.classic_refused(index, &error);
        }
    }

    fn classic_join(&mut self, index: usize, is_lossy: bool) {
        let join = self.join_request(index);
        if is_lossy && self.one_in(8) {
            return;
        }
        let joined = self.bench.classic_join(&join);
        if is_lossy && self.one_in(8) {
            return;
        }
        let reply = match joined {
            Ok(reply) => reply,
            Err(error) => return self.classic_refused(index, &error),
        };
        let client = &mut self.clients[index];
        client.member_id.clone_from(&reply.member_id);
        let Some(session) = &mut client.session else { return };
        session.epoch = reply.generation_id;
        let sync = SyncGroup {
            group_instance_id: client.instance_id.clone(),
            ..harness::sync(reply.generation_id, &reply.member_id, &[])
        };
        if is_lossy && self.one_in(8) {
            return;
        }
        let synced = self.bench.classic_sync(&sync);
        if is_lossy && self.one_in(8) {
            return;
        }
        match synced {
            Ok(reply) => {
                let read = embedded::read_assignment(&reply.assignment, &self.bench.topics);
                let assigned: BTreeSet<(TopicId, i32)> = read.expect("an assignment").0.partitions().collect();
                let Some(session) = &mut self.clients[index].session else { return };
                // What it gives up it says by joining again.
                session.is_full = session.owned.iter().any(|partition| !assigned.contains(partition));
                session.owned = assigned;
                session.is_expelled = false;
            }
            Err(error) => self.classic_refused(index, &error),
        }
    }

    fn join_request(&mut self, index: usize) -> JoinGroup {
        let member_uuid = self.random.uuid();
        let topics = &self.bench.topics;
        if let Some(session) = &mut self.clients[index].session {
            // Topics have names in this protocol: one that is gone cannot be told of, and is not read.
            session.owned.retain(|(topic_id, _)| topics.name(*topic_id).is_some());
        }
        let client = &self.clients[index];
        let session = client.session.as_ref().expect("it runs");
        let mut owned: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
        for (topic_id, partition_index) in &session.owned {
            if let Some(name) = topics.name(*topic_id) {
                owned.entry(name).or_default().push(*partition_index);
            }
        }
        let names: Vec<&str> = client.subscription.iter().map(String::as_str).collect();
        // A static member that starts does not know its id, and is given one.
        let is_new = client.instance_id.is_some() && session.epoch == 0;
        JoinGroup {
            member_id: if is_new { String::new() } else { client.member_id.clone() },
            group_instance_id: client.instance_id.clone(),
            protocols: vec![harness::protocol("range", &subscription(&names, &owned))],
            member_uuid,
            ..harness::join(1)
        }
    }

    fn classic_refused(&mut self, index: usize, error: &ConsumerGroupError) {
        let client = &mut self.clients[index];
        let Some(session) = &mut client.session else { return };
        let error = ErrorCode::from(error);
        if error == ErrorCode::RebalanceInProgress {
            session.is_full = true;
        } else if [ErrorCode::UnknownMemberId, ErrorCode::IllegalGeneration].contains(&error) {
            *session = Session { is_full: true, ..Session::default() };
        } else {
            assert_eq!(error, ErrorCode::FencedInstanceId);
            client.session = None;
        }
    }
}

/// Version 1 of the blob, with what the member has.
pub(in super::super) fn subscription(topics: &[&str], owned: &BTreeMap<&str, Vec<i32>>) -> Vec<u8> {
    let count = |count: usize| i32::try_from(count).expect("few").to_be_bytes();
    let text = |blob: &mut Vec<u8>, text: &str| {
        blob.extend(i16::try_from(text.len()).expect("short").to_be_bytes());
        blob.extend(text.as_bytes());
    };
    let mut blob = vec![0, 1];
    blob.extend(count(topics.len()));
    topics.iter().for_each(|topic| text(&mut blob, topic));
    blob.extend((-1_i32).to_be_bytes());
    blob.extend(count(owned.len()));
    for (topic, partitions) in owned {
        text(&mut blob, topic);
        blob.extend(count(partitions.len()));
        partitions.iter().for_each(|index| blob.extend(index.to_be_bytes()));
    }
    blob
}

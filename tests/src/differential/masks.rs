//! What may differ between two brokers, field by field, and why.

use super::tree::Tree;
use super::world::World;

/// More than this many masks would hide more than they excuse.
pub const MASKS_MAX: usize = 50;

/// What a mask does to the two values of a field before they are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing of it is compared.
    Ignore,
    /// Compared: whether it is null.
    Presence,
    /// Compared: that there is a message wherever the oracle has one. An empty one is none.
    Message,
    /// Nothing of it is compared where the oracle says that it has failed within itself; the tested broker says something.
    OracleFails,
    /// Compared: the topic that the id names.
    TopicId,
    /// Compared: which of the ids given out it is.
    ProducerId,
    /// Compared: which of the sessions opened it is.
    SessionId,
    /// Compared: what stands before the UUID, where there is one at its end.
    MemberId,
    /// Compared: that it is the broker's own.
    OwnPort,
    OwnClusterId,
    /// Compared: that both are times of this run.
    Clock,
    /// A list compared without regard to order; sorted by these fields.
    Unordered(&'static [&'static str]),
    /// A list of which the oracle may have more; elements are told apart by this field.
    MoreInOracle(&'static str),
    /// A list of which the tested broker may have more, when the name of the element begins so.
    OwnElements(&'static str),
}

#[derive(Clone, Debug)]
pub struct Mask {
    /// Field names from the key's name on, `[]` for elements of a list. `*.x` is a field x anywhere.
    pub path: &'static str,
    pub kind: Kind,
    pub reason: &'static str,
    /// How often two values differed, or might have by their order, and were taken as equal.
    pub hits: u64,
}

const fn mask(path: &'static str, kind: Kind, reason: &'static str) -> Mask {
    Mask { path, kind, reason, hits: 0 }
}

pub fn all() -> Vec<Mask> {
    let hash_order = "they come in the order of a hash map";
    let own_affair = "a fact about each cluster's metadata log or its one voter";
    let masks = vec![
        mask("*.topic_id", Kind::TopicId, "topic ids are random (KIP-516)"),
        mask("*.producer_id", Kind::ProducerId, "ids come from blocks handed out by each cluster on its own (KIP-360)"),
        mask("JoinGroup.member_id", Kind::MemberId, "the broker chooses them (KIP-394)"),
        mask("Fetch.session_id", Kind::SessionId, "session ids are random (KIP-227)"),
        mask("*.port", Kind::OwnPort, "each broker listens on a port of its own"),
        mask("*.cluster_id", Kind::OwnClusterId, "cluster ids are random (KIP-78)"),
        mask("*error_message", Kind::Message, "messages are for people and worded by each broker itself"),
        mask("*.documentation", Kind::Presence, "each broker documents its settings in its own words (KIP-569)"),
        mask("ApiVersions.api_keys", Kind::MoreInOracle("api_key"), "keys that are not served are not named"),
        mask("ApiVersions.supported_features", Kind::MoreInOracle("name"), "of keys that are not served (KIP-584)"),
        mask("ApiVersions.finalized_features", Kind::MoreInOracle("name"), "of keys that are not served (KIP-584)"),
        mask("ApiVersions.finalized_features_epoch", Kind::Ignore, own_affair),
        mask("*.configs", Kind::OwnElements("walser."), "settings that only this broker has"),
        mask("*.configs", Kind::Unordered(&["name"]), hash_order),
        mask("Metadata.topics", Kind::Unordered(&["name", "topic_id"]), hash_order),
        mask("CreateTopics.topics", Kind::Unordered(&["name", "error_code"]), hash_order),
        mask(
            "DeleteTopics.responses",
            Kind::Unordered(&["name", "topic_id", "error_code"]),
            "shuffled by Kafka, lest anybody rely on an order",
        ),
        mask("DeleteRecords.topics", Kind::Unordered(&["name"]), hash_order),
        mask("DeleteRecords.topics[].partitions", Kind::Unordered(&["partition_index"]), hash_order),
        mask("CreatePartitions.results", Kind::Unordered(&["name", "error_code"]), hash_order),
        mask("Produce.responses", Kind::Unordered(&["name", "topic_id"]), hash_order),
        mask("Produce.responses[].partition_responses", Kind::Unordered(&["index"]), hash_order),
        mask("ListOffsets.topics", Kind::Unordered(&["name"]), hash_order),
        mask("ListOffsets.topics[].partitions", Kind::Unordered(&["partition_index", "error_code"]), hash_order),
        mask("AlterReplicaLogDirs.results", Kind::Unordered(&["topic_name"]), hash_order),
        mask("AlterReplicaLogDirs.results[].partitions", Kind::Unordered(&["partition_index"]), hash_order),
        mask("DescribeLogDirs.results[].log_dir", Kind::Ignore, "each broker has a directory of its own"),
        mask("*.usable_bytes", Kind::Ignore, "what the disk says at the moment it is asked (KIP-827)"),
        mask("DescribeLogDirs.results[].topics", Kind::Unordered(&["name"]), hash_order),
        mask("DescribeLogDirs.results[].topics[].partitions", Kind::Unordered(&["partition_index"]), hash_order),
        mask("DescribeQuorum.topics[].partitions[].high_watermark", Kind::Ignore, own_affair),
        mask("DescribeQuorum.topics[].partitions[].current_voters", Kind::Ignore, own_affair),
        mask(
            "DescribeQuorum.nodes[].listeners",
            Kind::Ignore,
            "the controller's listener is each broker's own affair (KIP-853)",
        ),
        mask("OffsetFetch.topics", Kind::Unordered(&["name"]), hash_order),
        mask("OffsetFetch.topics[].partitions", Kind::Unordered(&["partition_index"]), hash_order),
        mask("OffsetFetch.groups[].topics", Kind::Unordered(&["name", "topic_id"]), hash_order),
        mask("OffsetFetch.groups[].topics[].partitions", Kind::Unordered(&["partition_index"]), hash_order),
        mask("OffsetDelete.topics", Kind::Unordered(&["name"]), hash_order),
        mask("*.groups", Kind::Unordered(&["group_id"]), hash_order),
        mask("DeleteGroups.results", Kind::Unordered(&["group_id"]), hash_order),
        mask("ListConfigResources.config_resources", Kind::Unordered(&["resource_type", "resource_name"]), hash_order),
        mask("*.active_producers", Kind::Unordered(&["producer_id"]), hash_order),
        mask("*.log_append_time_ms", Kind::Clock, "the broker's clock at the append (KIP-32)"),
        mask("*timestamp", Kind::Clock, "the broker's clock at the append (KIP-32)"),
        mask(
            "Produce.responses[].partition_responses[].error_code",
            Kind::OracleFails,
            "what it cannot decompress or write anew Kafka takes for a failure of its own",
        ),
    ];
    assert!(masks.len() <= MASKS_MAX);
    masks
}

/// Masks both trees in place, so that what is left different is a difference.
pub fn apply(masks: &mut [Mask], world: &World, key: &str, oracle: &mut Tree, tested: &mut Tree) {
    at(masks, world, key, oracle, tested);
}

fn at(masks: &mut [Mask], world: &World, path: &str, oracle: &mut Tree, tested: &mut Tree) {
    for mask in masks.iter_mut().filter(|mask| matches(mask.path, path)) {
        // Whether two lists in no order come in the same one is chance: what could have differed has needed its mask.
        let could_differ = matches!((mask.kind, &*oracle), (Kind::Unordered(_), Tree::List(list)) if list.len() > 1);
        let covered = oracle != tested && cover(mask.kind, world, oracle, tested);
        if covered || could_differ {
            mask.hits += 1;
        }
    }
    match (oracle, tested) {
        (Tree::List(these), Tree::List(those)) => {
            let path = format!("{path}[]");
            for (this, that) in these.iter_mut().zip(those) {
                at(masks, world, &path, this, that);
            }
        }
        (Tree::Fields(these), Tree::Fields(those)) => {
            for ((name, this), (_, that)) in these.iter_mut().zip(those) {
                at(masks, world, &format!("{path}.{name}"), this, that);
            }
        }
        _ => {}
    }
}

fn matches(mask: &str, path: &str) -> bool {
    match mask.strip_prefix('*') {
        Some(suffix) => path.ends_with(suffix),
        None => mask == path,
    }
}

/// True when the mask has made two different values alike, or has taken away what it is there to take away.
fn cover(kind: Kind, world: &World, oracle: &mut Tree, tested: &mut Tree) -> bool {
    match (kind, oracle, tested) {
        (Kind::Ignore, oracle, tested) => {
            *oracle = Tree::value("masked");
            *tested = Tree::value("masked");
            true
        }
        (Kind::Unordered(fields), Tree::List(these), Tree::List(those)) => sort(fields, world, these, those),
        (Kind::MoreInOracle(field), Tree::List(these), Tree::List(those)) => {
            let before = these.len();
            these.retain(|this| those.iter().any(|that| that.field(field) == this.field(field)));
            before != these.len()
        }
        (Kind::OwnElements(prefix), Tree::List(_), Tree::List(those)) => {
            let (before, prefix) = (those.len(), format!("\"{prefix}"));
            those.retain(|that| !matches!(that.field("name"), Some(Tree::Value(name)) if name.starts_with(&prefix)));
            before != those.len()
        }
        (Kind::Message, oracle, tested) => {
            let said = |tree: &Tree| !matches!(tree, Tree::Value(text) if text == "null" || text == "\"\"");
            let alike = said(tested) || !said(oracle);
            if alike {
                *tested = oracle.clone();
            }
            alike
        }
        (Kind::OracleFails, Tree::Value(this), Tree::Value(that)) => {
            let covered = this == "-1" && that != "0";
            if covered {
                that.clone_from(this);
            }
            covered
        }
        (_, Tree::Value(this), Tree::Value(that)) => {
            let names = (common(kind, world, 0, this), common(kind, world, 1, that));
            let (Some(one), Some(other)) = names else { return false };
            let alike = one == other;
            (*this, *that) = (one, other);
            alike
        }
        _ => false,
    }
}

/// The value in terms that both brokers share; `None` when it has none.
fn common(kind: Kind, world: &World, side: usize, text: &str) -> Option<String> {
    match kind {
        Kind::TopicId => world.common_name(side, text),
        Kind::Presence => (text != "null").then(|| "present".to_owned()),
        Kind::OwnPort => (text == world.ports[side].to_string()).then(|| "own port".to_owned()),
        Kind::OwnClusterId => (text == format!("{:?}", world.cluster_ids[side])).then(|| "own cluster".to_owned()),
        Kind::ProducerId => {
            let index = world.producers.iter().position(|ids| ids[side].to_string() == text)?;
            Some(format!("producer {index}"))
        }
        Kind::MemberId => {
            let (prefix, uuid) = text.trim_end_matches('"').split_at_checked(text.len().checked_sub(1 + 36)?)?;
            uuid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-').then(|| prefix.to_owned())
        }
        Kind::SessionId => {
            let index = world.sessions.iter().position(|session| session.ids[side].to_string() == text)?;
            Some(format!("session {index}"))
        }
        Kind::Clock => {
            let time: i64 = text.parse().ok()?;
            // Records of the run are older than its start by design.
            (world.clock.contains(&time)).then(|| "clock".to_owned())
        }
        Kind::Ignore
        | Kind::Message
        | Kind::OracleFails
        | Kind::Unordered(_)
        | Kind::MoreInOracle(_)
        | Kind::OwnElements(_) => None,
    }
}

fn sort(fields: &[&str], world: &World, these: &mut [Tree], those: &mut [Tree]) -> bool {
    let key = |side: usize, element: &Tree| -> Vec<Option<Tree>> {
        let field = |name: &&str| match element.field(name) {
            // Ids sort by what they name, or two orders would come of it.
            Some(Tree::Value(text)) => {
                let kind = match *name {
                    "producer_id" => Kind::ProducerId,
                    "topic_id" => Kind::TopicId,
                    _ => return Some(Tree::value(text)),
                };
                let shared = common(kind, world, side, text);
                Some(Tree::Value(shared.unwrap_or_else(|| text.clone())))
            }
            other => other.cloned(),
        };
        fields.iter().map(field).collect()
    };
    let keys = |side: usize, list: &[Tree]| list.iter().map(|element| key(side, element)).collect::<Vec<_>>();
    let before = keys(0, these) != keys(1, those);
    these.sort_by_cached_key(|element| key(0, element));
    those.sort_by_cached_key(|element| key(1, element));
    before && keys(0, these) == keys(1, those)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_covers_its_field_and_counts() {
        // Rule: what a mask names is taken as equal and counted, all else still differs, and a mask without need stays at 0.
        let mut masks =
            vec![mask("*.error_message", Kind::Message, "words"), mask("T.list", Kind::Unordered(&["name"]), "order")];
        let world = World::default();
        let mut oracle =
            Tree::from_debug(r#"T { error_message: Some("a"), list: [E { name: "x" }, E { name: "y" }], n: 1 }"#);
        let mut tested =
            Tree::from_debug(r#"T { error_message: Some("b"), list: [E { name: "y" }, E { name: "x" }], n: 2 }"#);
        apply(&mut masks, &world, "T", &mut oracle, &mut tested);
        let mut differences = Vec::new();
        oracle.differences(&tested, "T", &mut differences);
        assert_eq!(differences, ["T.n: 1 / 2"]);
        assert_eq!(masks.iter().map(|mask| mask.hits).collect::<Vec<_>>(), [1, 1]);
        let mut null = Tree::from_debug("T { error_message: None, list: [], n: 1 }");
        apply(&mut masks, &world, "T", &mut oracle, &mut null);
        assert_ne!(oracle.field("error_message"), null.field("error_message"));
    }
}

//! API keys, their versions and headers, and the one table of what this broker serves.

include!(concat!(env!("OUT_DIR"), "/api_table.rs"));

/// What the schema says about one API key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiSpec {
    pub name: &'static str,
    pub version_min: i16,
    pub version_max: i16,
    /// First version with compact lengths and tagged fields.
    pub flexible_from: Option<i16>,
}

impl ApiSpec {
    const fn new(name: &'static str, version_min: i16, version_max: i16, flexible_from: Option<i16>) -> Self {
        Self { name, version_min, version_max, flexible_from }
    }
}

impl ApiKey {
    pub const fn name(self) -> &'static str {
        self.spec().name
    }

    /// The number on the wire.
    pub const fn code(self) -> i16 {
        self as i16
    }

    pub const fn is_flexible(self, version: i16) -> bool {
        match self.spec().flexible_from {
            Some(from) => version >= from,
            None => false,
        }
    }

    /// 2 when the version is flexible, else 1.
    pub const fn request_header_version(self, version: i16) -> i16 {
        if self.is_flexible(version) { 2 } else { 1 }
    }

    /// 1 when the version is flexible, else 0. ApiVersions stays at 0: who asks for it does not know our versions yet.
    pub const fn response_header_version(self, version: i16) -> i16 {
        if self.is_flexible(version) && !matches!(self, Self::ApiVersions) { 1 } else { 0 }
    }

    /// The versions this broker answers, `None` when it does not serve the key.
    pub fn served(self) -> Option<ServedApi> {
        SERVED.iter().find(|served| served.key == self).copied()
    }
}

impl std::fmt::Display for ApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A row of [`SERVED`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServedApi {
    pub key: ApiKey,
    /// Least version that is answered.
    pub version_min: i16,
    pub version_max: i16,
    /// Least version that ApiVersions names.
    pub advertised_min: i16,
}

impl ServedApi {
    /// The schema's whole range.
    const fn whole(key: ApiKey) -> Self {
        let spec = key.spec();
        Self { key, version_min: spec.version_min, version_max: spec.version_max, advertised_min: spec.version_min }
    }

    const fn up_to(key: ApiKey, version_max: i16) -> Self {
        Self { version_max, ..Self::whole(key) }
    }

    const fn advertised_from(key: ApiKey, advertised_min: i16) -> Self {
        Self { advertised_min, ..Self::whole(key) }
    }

    pub const fn answers(&self, version: i16) -> bool {
        self.version_min <= version && version <= self.version_max
    }
}

/// What ApiVersions answers, in the order of the keys. A key that is not here closes the connection.
pub const SERVED: &[ServedApi] = &[
    // librdkafka up to 2.x picks message format and compression by the minimum (KAFKA-18659): 0 is named, 0-2 are refused.
    ServedApi::advertised_from(ApiKey::Produce, 0),
    ServedApi::whole(ApiKey::Fetch),
    ServedApi::whole(ApiKey::ListOffsets),
    ServedApi::whole(ApiKey::Metadata),
    ServedApi::whole(ApiKey::OffsetCommit),
    ServedApi::whole(ApiKey::OffsetFetch),
    ServedApi::whole(ApiKey::FindCoordinator),
    ServedApi::whole(ApiKey::JoinGroup),
    ServedApi::whole(ApiKey::Heartbeat),
    ServedApi::whole(ApiKey::LeaveGroup),
    ServedApi::whole(ApiKey::SyncGroup),
    ServedApi::whole(ApiKey::DescribeGroups),
    ServedApi::whole(ApiKey::ListGroups),
    ServedApi::whole(ApiKey::ApiVersions),
    ServedApi::whole(ApiKey::CreateTopics),
    ServedApi::whole(ApiKey::DeleteTopics),
    ServedApi::whole(ApiKey::DeleteRecords),
    // Version 6 is two-phase commit (KIP-939), unfinished in Kafka 4.4 too.
    ServedApi::up_to(ApiKey::InitProducerId, 5),
    ServedApi::whole(ApiKey::OffsetForLeaderEpoch),
    ServedApi::whole(ApiKey::DescribeConfigs),
    ServedApi::whole(ApiKey::AlterConfigs),
    ServedApi::whole(ApiKey::AlterReplicaLogDirs),
    ServedApi::whole(ApiKey::DescribeLogDirs),
    ServedApi::whole(ApiKey::CreatePartitions),
    ServedApi::whole(ApiKey::DeleteGroups),
    ServedApi::whole(ApiKey::IncrementalAlterConfigs),
    ServedApi::whole(ApiKey::OffsetDelete),
    ServedApi::whole(ApiKey::DescribeQuorum),
    ServedApi::whole(ApiKey::DescribeCluster),
    ServedApi::whole(ApiKey::DescribeProducers),
    ServedApi::whole(ApiKey::ConsumerGroupHeartbeat),
    ServedApi::whole(ApiKey::ConsumerGroupDescribe),
    ServedApi::whole(ApiKey::ListConfigResources),
    ServedApi::whole(ApiKey::DescribeTopicPartitions),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_live_key_is_known() {
        // Rule: 91 keys, 0 to 94 without the four of the ZooKeeper era.
        let numbers: Vec<i16> = ApiKey::ALL.iter().map(|key| key.code()).collect();
        let want: Vec<i16> = (0..=94).filter(|number| !(4..=7).contains(number)).collect();
        assert_eq!(numbers, want);
        assert!(ApiKey::ALL.iter().all(|key| ApiKey::from_wire(key.code()) == Some(*key)));
        assert_eq!(ApiKey::from_wire(5), None);
    }

    #[test]
    fn what_is_served_has_a_schema() {
        // Rule: no row of the table leaves the schema's range or the order of the keys.
        for served in SERVED {
            let spec = served.key.spec();
            assert!(served.version_min >= spec.version_min, "{}", spec.name);
            assert!(served.version_max <= spec.version_max, "{}", spec.name);
        }
        assert!(SERVED.is_sorted_by_key(|served| served.key));
    }

    #[test]
    fn headers_follow_flexibility() {
        // Rule: flexible versions use header 2 and 1, the others 1 and 0, ApiVersions always 0.
        assert_eq!(ApiKey::Produce.request_header_version(8), 1);
        assert_eq!(ApiKey::Produce.request_header_version(9), 2);
        assert_eq!(ApiKey::Produce.response_header_version(9), 1);
        assert_eq!(ApiKey::ApiVersions.request_header_version(3), 2);
        assert_eq!(ApiKey::ApiVersions.response_header_version(5), 0);
        assert_eq!(ApiKey::SaslHandshake.response_header_version(1), 0);
    }
}

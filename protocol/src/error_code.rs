//! Kafka's error codes: number, name, whether a client retries on it, and what it says in our words.

macro_rules! error_codes {
    ($($number:literal $variant:ident $name:literal $retriable:literal $meaning:literal;)*) => {
        /// A code as it stands in responses. The discriminant is the number on the wire.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(i16)]
        pub enum ErrorCode {
            $(#[doc = $meaning] $variant = $number,)*
        }

        impl ErrorCode {
            /// Every code, in the order of its number.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// `None` for a number that has no meaning yet.
            pub const fn from_wire(raw: i16) -> Option<Self> {
                Some(match raw {
                    $($number => Self::$variant,)*
                    _ => return None,
                })
            }

            /// Kafka's name, as in its documentation.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Whether the same request may succeed later.
            pub const fn is_retriable(self) -> bool {
                match self { $(Self::$variant => $retriable,)* }
            }

            /// One clause, lower case, without a full stop.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)* }
            }
        }
    };
}

impl ErrorCode {
    /// The number on the wire.
    pub const fn code(self) -> i16 {
        self as i16
    }

    pub const fn is_error(self) -> bool {
        self.code() != 0
    }
}

impl From<ErrorCode> for i16 {
    fn from(code: ErrorCode) -> Self {
        code.code()
    }
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({}): {}", self.name(), self.code(), self.meaning())
    }
}

error_codes! {
    -1 UnknownServerError "UNKNOWN_SERVER_ERROR" false "the broker failed in a way it did not foresee";
    0 None "NONE" false "no error";
    1 OffsetOutOfRange "OFFSET_OUT_OF_RANGE" false "the offset is outside the partition's range";
    2 CorruptMessage "CORRUPT_MESSAGE" true "the checksum does not match or the batch is malformed";
    3 UnknownTopicOrPartition "UNKNOWN_TOPIC_OR_PARTITION" true "this broker does not have the topic or partition";
    4 InvalidFetchSize "INVALID_FETCH_SIZE" false "the fetch size makes no sense";
    5 LeaderNotAvailable "LEADER_NOT_AVAILABLE" true "the partition has no leader right now";
    6 NotLeaderOrFollower "NOT_LEADER_OR_FOLLOWER" true "this broker is neither leader nor follower of the partition";
    7 RequestTimedOut "REQUEST_TIMED_OUT" true "the request was not done within its timeout";
    8 BrokerNotAvailable "BROKER_NOT_AVAILABLE" false "the broker is not available";
    9 ReplicaNotAvailable "REPLICA_NOT_AVAILABLE" true "the replica is not available here";
    10 MessageTooLarge "MESSAGE_TOO_LARGE" false "the batch is larger than the topic allows";
    11 StaleControllerEpoch "STALE_CONTROLLER_EPOCH" false "the controller epoch is old";
    12 OffsetMetadataTooLarge "OFFSET_METADATA_TOO_LARGE" false "the metadata string of an offset is too long";
    13 NetworkException "NETWORK_EXCEPTION" true "the connection broke before the answer";
    14 CoordinatorLoadInProgress "COORDINATOR_LOAD_IN_PROGRESS" true "the coordinator is still loading its state";
    15 CoordinatorNotAvailable "COORDINATOR_NOT_AVAILABLE" true "no coordinator is available";
    16 NotCoordinator "NOT_COORDINATOR" true "this broker is not the coordinator";
    17 InvalidTopicException "INVALID_TOPIC_EXCEPTION" false "the topic name is not legal";
    18 RecordListTooLarge "RECORD_LIST_TOO_LARGE" false "the batch is larger than a segment";
    19 NotEnoughReplicas "NOT_ENOUGH_REPLICAS" true "fewer replicas in sync than required";
    20 NotEnoughReplicasAfterAppend "NOT_ENOUGH_REPLICAS_AFTER_APPEND" true "written, but to fewer replicas than required";
    21 InvalidRequiredAcks "INVALID_REQUIRED_ACKS" false "acks is not one of -1, 0, 1";
    22 IllegalGeneration "ILLEGAL_GENERATION" false "the generation is not the group's";
    23 InconsistentGroupProtocol "INCONSISTENT_GROUP_PROTOCOL" false "the member's protocols do not fit the group's";
    24 InvalidGroupId "INVALID_GROUP_ID" false "the group id is not legal";
    25 UnknownMemberId "UNKNOWN_MEMBER_ID" false "the group does not know the member";
    26 InvalidSessionTimeout "INVALID_SESSION_TIMEOUT" false "the session timeout is outside the allowed range";
    27 RebalanceInProgress "REBALANCE_IN_PROGRESS" false "the group is rebalancing";
    28 InvalidCommitOffsetSize "INVALID_COMMIT_OFFSET_SIZE" false "the commit would be too large";
    29 TopicAuthorizationFailed "TOPIC_AUTHORIZATION_FAILED" false "not authorised for the topic";
    30 GroupAuthorizationFailed "GROUP_AUTHORIZATION_FAILED" false "not authorised for the group";
    31 ClusterAuthorizationFailed "CLUSTER_AUTHORIZATION_FAILED" false "not authorised for the cluster";
    32 InvalidTimestamp "INVALID_TIMESTAMP" false "the timestamp is out of the accepted range";
    33 UnsupportedSaslMechanism "UNSUPPORTED_SASL_MECHANISM" false "the SASL mechanism is not enabled";
    34 IllegalSaslState "ILLEGAL_SASL_STATE" false "the SASL exchange is not at this step";
    35 UnsupportedVersion "UNSUPPORTED_VERSION" false "the version of the request is not supported";
    36 TopicAlreadyExists "TOPIC_ALREADY_EXISTS" false "the topic exists already";
    37 InvalidPartitions "INVALID_PARTITIONS" false "the number of partitions is not acceptable";
    38 InvalidReplicationFactor "INVALID_REPLICATION_FACTOR" false "the replication factor is not acceptable";
    39 InvalidReplicaAssignment "INVALID_REPLICA_ASSIGNMENT" false "the replica assignment is not acceptable";
    40 InvalidConfig "INVALID_CONFIG" false "a config value is not acceptable";
    41 NotController "NOT_CONTROLLER" true "this node is not the controller";
    42 InvalidRequest "INVALID_REQUEST" false "the request contradicts itself or breaks a rule";
    43 UnsupportedForMessageFormat "UNSUPPORTED_FOR_MESSAGE_FORMAT" false "the message format on disk does not support it";
    44 PolicyViolation "POLICY_VIOLATION" false "a policy of the operator forbids it";
    45 OutOfOrderSequenceNumber "OUT_OF_ORDER_SEQUENCE_NUMBER" false "the sequence number does not follow the last one";
    46 DuplicateSequenceNumber "DUPLICATE_SEQUENCE_NUMBER" false "the sequence number was seen already";
    47 InvalidProducerEpoch "INVALID_PRODUCER_EPOCH" false "the producer epoch is old";
    48 InvalidTxnState "INVALID_TXN_STATE" false "the transaction is not in a state that allows it";
    49 InvalidProducerIdMapping "INVALID_PRODUCER_ID_MAPPING" false "the producer id does not belong to the transactional id";
    50 InvalidTransactionTimeout "INVALID_TRANSACTION_TIMEOUT" false "the transaction timeout is above the allowed maximum";
    51 ConcurrentTransactions "CONCURRENT_TRANSACTIONS" true "another change of the same transaction is under way";
    52 TransactionCoordinatorFenced "TRANSACTION_COORDINATOR_FENCED" false "the marker comes from an old transaction coordinator";
    53 TransactionalIdAuthorizationFailed "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" false "not authorised for the transactional id";
    54 SecurityDisabled "SECURITY_DISABLED" false "security is switched off here";
    55 OperationNotAttempted "OPERATION_NOT_ATTEMPTED" false "not tried, because an earlier part failed";
    56 KafkaStorageError "KAFKA_STORAGE_ERROR" true "the disk failed under the log";
    57 LogDirNotFound "LOG_DIR_NOT_FOUND" false "the log directory is not there";
    58 SaslAuthenticationFailed "SASL_AUTHENTICATION_FAILED" false "authentication failed";
    59 UnknownProducerId "UNKNOWN_PRODUCER_ID" false "the producer id has no state here";
    60 ReassignmentInProgress "REASSIGNMENT_IN_PROGRESS" false "the partition is being reassigned";
    61 DelegationTokenAuthDisabled "DELEGATION_TOKEN_AUTH_DISABLED" false "delegation tokens are switched off";
    62 DelegationTokenNotFound "DELEGATION_TOKEN_NOT_FOUND" false "the delegation token is not known";
    63 DelegationTokenOwnerMismatch "DELEGATION_TOKEN_OWNER_MISMATCH" false "the token belongs to somebody else";
    64 DelegationTokenRequestNotAllowed "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" false "token requests are not allowed on this connection";
    65 DelegationTokenAuthorizationFailed "DELEGATION_TOKEN_AUTHORIZATION_FAILED" false "not authorised for the delegation token";
    66 DelegationTokenExpired "DELEGATION_TOKEN_EXPIRED" false "the delegation token has expired";
    67 InvalidPrincipalType "INVALID_PRINCIPAL_TYPE" false "the principal type is not supported";
    68 NonEmptyGroup "NON_EMPTY_GROUP" false "the group is not empty";
    69 GroupIdNotFound "GROUP_ID_NOT_FOUND" false "the group does not exist";
    70 FetchSessionIdNotFound "FETCH_SESSION_ID_NOT_FOUND" true "the fetch session is not known";
    71 InvalidFetchSessionEpoch "INVALID_FETCH_SESSION_EPOCH" true "the fetch session epoch is not the next one";
    72 ListenerNotFound "LISTENER_NOT_FOUND" true "the leader has no listener of this name";
    73 TopicDeletionDisabled "TOPIC_DELETION_DISABLED" false "topic deletion is switched off";
    74 FencedLeaderEpoch "FENCED_LEADER_EPOCH" true "the leader epoch is old";
    75 UnknownLeaderEpoch "UNKNOWN_LEADER_EPOCH" true "the leader epoch is newer than this broker's";
    76 UnsupportedCompressionType "UNSUPPORTED_COMPRESSION_TYPE" false "the compression type is not supported here";
    77 StaleBrokerEpoch "STALE_BROKER_EPOCH" false "the broker epoch is old";
    78 OffsetNotAvailable "OFFSET_NOT_AVAILABLE" true "the offset is not known yet, soon after an election";
    79 MemberIdRequired "MEMBER_ID_REQUIRED" false "join again with the member id given";
    80 PreferredLeaderNotAvailable "PREFERRED_LEADER_NOT_AVAILABLE" true "the preferred leader is not available";
    81 GroupMaxSizeReached "GROUP_MAX_SIZE_REACHED" false "the group is full";
    82 FencedInstanceId "FENCED_INSTANCE_ID" false "another member took over the group instance id";
    83 EligibleLeadersNotAvailable "ELIGIBLE_LEADERS_NOT_AVAILABLE" true "no eligible leader is available";
    84 ElectionNotNeeded "ELECTION_NOT_NEEDED" true "the leader is already the wanted one";
    85 NoReassignmentInProgress "NO_REASSIGNMENT_IN_PROGRESS" false "no reassignment is under way";
    86 GroupSubscribedToTopic "GROUP_SUBSCRIBED_TO_TOPIC" false "the group is subscribed to the topic";
    87 InvalidRecord "INVALID_RECORD" false "a record breaks a rule of the topic";
    88 UnstableOffsetCommit "UNSTABLE_OFFSET_COMMIT" true "a transaction has offsets pending for the group";
    89 ThrottlingQuotaExceeded "THROTTLING_QUOTA_EXCEEDED" true "throttled by quota";
    90 ProducerFenced "PRODUCER_FENCED" false "a newer producer took over the transactional id";
    91 ResourceNotFound "RESOURCE_NOT_FOUND" false "the resource is not there";
    92 DuplicateResource "DUPLICATE_RESOURCE" false "the resource is there already";
    93 UnacceptableCredential "UNACCEPTABLE_CREDENTIAL" false "the credential is too weak or malformed";
    94 InconsistentVoterSet "INCONSISTENT_VOTER_SET" false "the voter sets differ";
    95 InvalidUpdateVersion "INVALID_UPDATE_VERSION" false "the version to update to is not valid";
    96 FeatureUpdateFailed "FEATURE_UPDATE_FAILED" false "the features could not be updated";
    97 PrincipalDeserializationFailure "PRINCIPAL_DESERIALIZATION_FAILURE" false "the forwarded principal cannot be read";
    98 SnapshotNotFound "SNAPSHOT_NOT_FOUND" false "the snapshot is not there";
    99 PositionOutOfRange "POSITION_OUT_OF_RANGE" false "the position is outside the snapshot";
    100 UnknownTopicId "UNKNOWN_TOPIC_ID" true "no topic with this id here";
    101 DuplicateBrokerRegistration "DUPLICATE_BROKER_REGISTRATION" false "the broker id is in use";
    102 BrokerIdNotRegistered "BROKER_ID_NOT_REGISTERED" false "no broker with this id is registered";
    103 InconsistentTopicId "INCONSISTENT_TOPIC_ID" true "the topic id is not that of the log";
    104 InconsistentClusterId "INCONSISTENT_CLUSTER_ID" false "the cluster id is not this cluster's";
    105 TransactionalIdNotFound "TRANSACTIONAL_ID_NOT_FOUND" false "no transactional id of this name";
    106 FetchSessionTopicIdError "FETCH_SESSION_TOPIC_ID_ERROR" true "the session and the request disagree about topic ids";
    107 IneligibleReplica "INELIGIBLE_REPLICA" false "the replica may not join the in-sync set";
    108 NewLeaderElected "NEW_LEADER_ELECTED" false "the leader changed while the request ran";
    109 OffsetMovedToTieredStorage "OFFSET_MOVED_TO_TIERED_STORAGE" false "the offset is in tiered storage only";
    110 FencedMemberEpoch "FENCED_MEMBER_EPOCH" false "the member epoch is old";
    111 UnreleasedInstanceId "UNRELEASED_INSTANCE_ID" false "the group instance id is still in use";
    112 UnsupportedAssignor "UNSUPPORTED_ASSIGNOR" false "the assignor is not supported";
    113 StaleMemberEpoch "STALE_MEMBER_EPOCH" false "the member epoch is behind; heartbeat first";
    114 MismatchedEndpointType "MISMATCHED_ENDPOINT_TYPE" false "the request went to the wrong kind of endpoint";
    115 UnsupportedEndpointType "UNSUPPORTED_ENDPOINT_TYPE" false "this kind of endpoint is not known";
    116 UnknownControllerId "UNKNOWN_CONTROLLER_ID" false "no controller with this id";
    117 UnknownSubscriptionId "UNKNOWN_SUBSCRIPTION_ID" false "the telemetry subscription is out of date";
    118 TelemetryTooLarge "TELEMETRY_TOO_LARGE" false "the telemetry payload is too large";
    119 InvalidRegistration "INVALID_REGISTRATION" false "the registration is not valid";
    120 TransactionAbortable "TRANSACTION_ABORTABLE" false "abort the transaction and begin anew";
    121 InvalidRecordState "INVALID_RECORD_STATE" false "the record is not in a state that allows it";
    122 ShareSessionNotFound "SHARE_SESSION_NOT_FOUND" true "the share session is not known";
    123 InvalidShareSessionEpoch "INVALID_SHARE_SESSION_EPOCH" true "the share session epoch is not the next one";
    124 FencedStateEpoch "FENCED_STATE_EPOCH" false "the share state epoch is old";
    125 InvalidVoterKey "INVALID_VOTER_KEY" false "the voter key does not match";
    126 DuplicateVoter "DUPLICATE_VOTER" false "the voter is in the set already";
    127 VoterNotFound "VOTER_NOT_FOUND" false "the voter is not in the set";
    128 InvalidRegularExpression "INVALID_REGULAR_EXPRESSION" false "the regular expression cannot be compiled";
    129 RebootstrapRequired "REBOOTSTRAP_REQUIRED" false "the client must bootstrap anew";
    130 StreamsInvalidTopology "STREAMS_INVALID_TOPOLOGY" false "the topology is not valid";
    131 StreamsInvalidTopologyEpoch "STREAMS_INVALID_TOPOLOGY_EPOCH" false "the topology epoch is not valid";
    132 StreamsTopologyFenced "STREAMS_TOPOLOGY_FENCED" false "a newer topology is in force";
    133 ShareSessionLimitReached "SHARE_SESSION_LIMIT_REACHED" true "no room for another share session";
    134 GroupDeletionFailed "GROUP_DELETION_FAILED" false "the group could not be deleted";
    135 StreamsTopologyDescriptionUpdateFailed "STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED" false "the topology description was not stored";
    136 ControllerIdNotRegistered "CONTROLLER_ID_NOT_REGISTERED" false "no controller with this id is registered";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_contiguous_and_round_trip() {
        // Rule: every code from -1 to 136 is known, under its own number.
        let numbers: Vec<i16> = ErrorCode::ALL.iter().map(|code| code.code()).collect();
        assert_eq!(numbers, (-1..=136).collect::<Vec<i16>>());
        assert!(ErrorCode::ALL.iter().all(|code| ErrorCode::from_wire(code.code()) == Some(*code)));
        assert_eq!(ErrorCode::from_wire(137), None);
    }
}

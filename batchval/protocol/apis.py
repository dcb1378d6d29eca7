"""Every API of Kafka 4.4.0: its number, its versions, and whose answers name hosts.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

__all__ = ["APIS", "Api", "ApiKey"]


class ApiKey(IntEnum):
    """The numbers of the APIs (ApiKeys). api_keys.pxd has some of them for native code."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE = 93
    UNREGISTER_CONTROLLER = 94


class Api(NamedTuple):
    """One API. ``addresses_from``: the first version whose response holds hosts and ports (None: none does)."""

    key: int
    name: str
    min_version: int
    max_version: int
    flexible_from: int
    latest_version_unstable: bool
    listeners: tuple[str, ...]
    addresses_from: int | None

    def is_flexible(self, version: int) -> bool:
        """Return whether header and body of this version have compact lengths and tagged fields."""
        return version >= self.flexible_from


APIS: dict[int, Api] = {
    api.key: api
    for api in (
        Api(0, "Produce", 3, 13, 9, False, ("broker",), 10),
        Api(1, "Fetch", 4, 18, 12, False, ("broker", "controller"), 16),
        Api(2, "ListOffsets", 1, 11, 6, False, ("broker",), None),
        Api(3, "Metadata", 0, 13, 9, False, ("broker",), 0),
        Api(8, "OffsetCommit", 2, 10, 8, False, ("broker",), None),
        Api(9, "OffsetFetch", 1, 10, 6, False, ("broker",), None),
        Api(10, "FindCoordinator", 0, 6, 3, False, ("broker",), 0),
        Api(11, "JoinGroup", 0, 9, 6, False, ("broker",), None),
        Api(12, "Heartbeat", 0, 4, 4, False, ("broker",), None),
        Api(13, "LeaveGroup", 0, 5, 4, False, ("broker",), None),
        Api(14, "SyncGroup", 0, 5, 4, False, ("broker",), None),
        Api(15, "DescribeGroups", 0, 6, 5, False, ("broker",), None),
        Api(16, "ListGroups", 0, 5, 3, False, ("broker",), None),
        Api(17, "SaslHandshake", 0, 1, 32768, False, ("broker", "controller"), None),
        Api(18, "ApiVersions", 0, 5, 3, False, ("broker", "controller"), None),
        Api(19, "CreateTopics", 2, 7, 5, False, ("broker", "controller"), None),
        Api(20, "DeleteTopics", 1, 6, 4, False, ("broker", "controller"), None),
        Api(21, "DeleteRecords", 0, 2, 2, False, ("broker",), None),
        Api(22, "InitProducerId", 0, 6, 2, True, ("broker",), None),
        Api(23, "OffsetForLeaderEpoch", 2, 4, 4, False, ("broker",), None),
        Api(24, "AddPartitionsToTxn", 0, 5, 3, False, ("broker",), None),
        Api(25, "AddOffsetsToTxn", 0, 4, 3, False, ("broker",), None),
        Api(26, "EndTxn", 0, 5, 3, False, ("broker",), None),
        Api(27, "WriteTxnMarkers", 1, 2, 1, False, ("broker",), None),
        Api(28, "TxnOffsetCommit", 0, 6, 3, False, ("broker",), None),
        Api(29, "DescribeAcls", 1, 3, 2, False, ("broker", "controller"), None),
        Api(30, "CreateAcls", 1, 3, 2, False, ("broker", "controller"), None),
        Api(31, "DeleteAcls", 1, 3, 2, False, ("broker", "controller"), None),
        Api(32, "DescribeConfigs", 1, 4, 4, False, ("broker", "controller"), None),
        Api(33, "AlterConfigs", 0, 2, 2, False, ("broker", "controller"), None),
        Api(34, "AlterReplicaLogDirs", 1, 2, 2, False, ("broker",), None),
        Api(35, "DescribeLogDirs", 1, 5, 2, False, ("broker",), None),
        Api(36, "SaslAuthenticate", 0, 2, 2, False, ("broker", "controller"), None),
        Api(37, "CreatePartitions", 0, 3, 2, False, ("broker", "controller"), None),
        Api(38, "CreateDelegationToken", 1, 3, 2, False, ("broker", "controller"), None),
        Api(39, "RenewDelegationToken", 1, 2, 2, False, ("broker", "controller"), None),
        Api(40, "ExpireDelegationToken", 1, 2, 2, False, ("broker", "controller"), None),
        Api(41, "DescribeDelegationToken", 1, 3, 2, False, ("broker", "controller"), None),
        Api(42, "DeleteGroups", 0, 3, 2, False, ("broker",), None),
        Api(43, "ElectLeaders", 0, 2, 2, False, ("broker", "controller"), None),
        Api(44, "IncrementalAlterConfigs", 0, 1, 1, False, ("broker", "controller"), None),
        Api(45, "AlterPartitionReassignments", 0, 1, 0, False, ("broker", "controller"), None),
        Api(46, "ListPartitionReassignments", 0, 0, 0, False, ("broker", "controller"), None),
        Api(47, "OffsetDelete", 0, 0, 32768, False, ("broker",), None),
        Api(48, "DescribeClientQuotas", 0, 1, 1, False, ("broker",), None),
        Api(49, "AlterClientQuotas", 0, 1, 1, False, ("broker", "controller"), None),
        Api(50, "DescribeUserScramCredentials", 0, 0, 0, False, ("broker", "controller"), None),
        Api(51, "AlterUserScramCredentials", 0, 0, 0, False, ("broker", "controller"), None),
        Api(52, "Vote", 0, 2, 0, False, ("controller",), 1),
        Api(53, "BeginQuorumEpoch", 0, 1, 1, False, ("controller",), 1),
        Api(54, "EndQuorumEpoch", 0, 1, 1, False, ("controller",), 1),
        Api(55, "DescribeQuorum", 0, 2, 0, False, ("broker", "controller"), 2),
        Api(56, "AlterPartition", 2, 3, 0, False, ("controller",), None),
        Api(57, "UpdateFeatures", 0, 2, 0, False, ("broker", "controller"), None),
        Api(58, "Envelope", 0, 0, 0, False, ("controller",), None),
        Api(59, "FetchSnapshot", 0, 1, 0, False, ("controller",), 1),
        Api(60, "DescribeCluster", 0, 2, 0, False, ("broker", "controller"), 0),
        Api(61, "DescribeProducers", 0, 0, 0, False, ("broker",), None),
        Api(62, "BrokerRegistration", 0, 4, 0, False, ("controller",), None),
        Api(63, "BrokerHeartbeat", 0, 2, 0, False, ("controller",), None),
        Api(64, "UnregisterBroker", 0, 0, 0, False, ("broker", "controller"), None),
        Api(65, "DescribeTransactions", 0, 0, 0, False, ("broker",), None),
        Api(66, "ListTransactions", 0, 2, 0, False, ("broker",), None),
        Api(67, "AllocateProducerIds", 0, 0, 0, False, ("controller",), None),
        Api(68, "ConsumerGroupHeartbeat", 0, 1, 0, False, ("broker",), None),
        Api(69, "ConsumerGroupDescribe", 0, 1, 0, False, ("broker",), None),
        Api(70, "ControllerRegistration", 0, 0, 0, False, ("controller",), None),
        Api(71, "GetTelemetrySubscriptions", 0, 0, 0, False, ("broker",), None),
        Api(72, "PushTelemetry", 0, 0, 0, False, ("broker",), None),
        Api(73, "AssignReplicasToDirs", 0, 0, 0, False, ("controller",), None),
        Api(74, "ListConfigResources", 0, 1, 0, False, ("broker",), None),
        Api(75, "DescribeTopicPartitions", 0, 0, 0, False, ("broker",), None),
        Api(76, "ShareGroupHeartbeat", 1, 1, 0, False, ("broker",), None),
        Api(77, "ShareGroupDescribe", 1, 1, 0, False, ("broker",), None),
        Api(78, "ShareFetch", 1, 2, 0, False, ("broker",), 1),
        Api(79, "ShareAcknowledge", 1, 2, 0, False, ("broker",), 1),
        Api(80, "AddRaftVoter", 0, 1, 0, False, ("controller", "broker"), None),
        Api(81, "RemoveRaftVoter", 0, 0, 0, False, ("controller", "broker"), None),
        Api(82, "UpdateRaftVoter", 0, 0, 0, False, ("controller",), 0),
        Api(83, "InitializeShareGroupState", 0, 0, 0, False, ("broker",), None),
        Api(84, "ReadShareGroupState", 0, 0, 0, False, ("broker",), None),
        Api(85, "WriteShareGroupState", 0, 1, 0, False, ("broker",), None),
        Api(86, "DeleteShareGroupState", 0, 0, 0, False, ("broker",), None),
        Api(87, "ReadShareGroupStateSummary", 0, 1, 0, False, ("broker",), None),
        Api(88, "StreamsGroupHeartbeat", 0, 1, 0, False, ("broker",), 0),
        Api(89, "StreamsGroupDescribe", 0, 1, 0, False, ("broker",), 0),
        Api(90, "DescribeShareGroupOffsets", 0, 1, 0, False, ("broker",), None),
        Api(91, "AlterShareGroupOffsets", 0, 0, 0, False, ("broker",), None),
        Api(92, "DeleteShareGroupOffsets", 0, 0, 0, False, ("broker",), None),
        Api(93, "StreamsGroupTopologyDescriptionUpdate", 0, 0, 0, False, ("broker",), None),
        Api(94, "UnregisterController", 0, 0, 0, False, ("broker", "controller"), None),
    )
}

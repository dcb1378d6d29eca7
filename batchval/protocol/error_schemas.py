"""The requests and responses of every API that a gate may deny, from version 0 on.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
``batchval.protocol.field_schema`` has the grammar.
"""

from __future__ import annotations

from typing import Final

__all__ = ["MESSAGES"]

#: The name of each message, and its fields.
MESSAGES: Final = """
FetchRequest ClusterId:string@12-18?#0=null ReplicaId:int32@0-14=-1 ReplicaState:struct@15-18#1 {
    ReplicaId:int32=-1 ReplicaEpoch:int64=-1 } MaxWaitMs:int32 MinBytes:int32
    MaxBytes:int32@3-18=0x7fffffff IsolationLevel:int8@4-18 SessionId:int32@7-18
    SessionEpoch:int32@7-18=-1 Topics:[]struct { Topic:string@0-12 TopicId:uuid@13-18
    Partitions:[]struct { Partition:int32 CurrentLeaderEpoch:int32@9-18=-1 FetchOffset:int64
    LastFetchedEpoch:int32@12-18=-1 LogStartOffset:int64@5-18=-1 PartitionMaxBytes:int32
    ReplicaDirectoryId:uuid@17-18#0 HighWatermark:int64@18-18#1=9223372036854775807 } }
    ForgottenTopicsData:[]struct@7-18 { Topic:string@7-12 TopicId:uuid@13-18 Partitions:[]int32 }
    RackId:string@11-18
FetchResponse ThrottleTimeMs:int32@1-18 ErrorCode:int16@7-18 SessionId:int32@7-18 Responses:[]struct
    { Topic:string@0-12 TopicId:uuid@13-18 Partitions:[]struct { PartitionIndex:int32
    ErrorCode:int16 HighWatermark:int64 LastStableOffset:int64@4-18=-1 LogStartOffset:int64@5-18=-1
    DivergingEpoch:struct@12-18#0 { Epoch:int32=-1 EndOffset:int64=-1 } CurrentLeader:struct@12-18#1
    { LeaderId:int32=-1 LeaderEpoch:int32=-1 } SnapshotId:struct@12-18#2 { EndOffset:int64=-1
    Epoch:int32=-1 } AbortedTransactions:[]struct@4-18? { ProducerId:int64 FirstOffset:int64 }
    PreferredReadReplica:int32@11-18=-1 Records:records? } } NodeEndpoints:[]struct@16-18#0 {
    NodeId:int32 Host:string Port:int32 Rack:string?=null }
ListOffsetsRequest ReplicaId:int32 IsolationLevel:int8@2-11 Topics:[]struct { Name:string
    Partitions:[]struct { PartitionIndex:int32 CurrentLeaderEpoch:int32@4-11=-1 Timestamp:int64 } }
    TimeoutMs:int32@10-11
ListOffsetsResponse ThrottleTimeMs:int32@2-11 Topics:[]struct { Name:string Partitions:[]struct {
    PartitionIndex:int32 ErrorCode:int16 Timestamp:int64@1-11=-1 Offset:int64@1-11=-1
    LeaderEpoch:int32@4-11=-1 } }
OffsetCommitRequest GroupId:string GenerationIdOrMemberEpoch:int32@1-10=-1 MemberId:string@1-10
    GroupInstanceId:string@7-10?=null RetentionTimeMs:int64@2-4=-1 Topics:[]struct { Name:string@0-9
    TopicId:uuid@10-10 Partitions:[]struct { PartitionIndex:int32 CommittedOffset:int64
    CommittedLeaderEpoch:int32@6-10=-1 CommittedMetadata:string? } }
OffsetCommitResponse ThrottleTimeMs:int32@3-10 Topics:[]struct { Name:string@0-9 TopicId:uuid@10-10
    Partitions:[]struct { PartitionIndex:int32 ErrorCode:int16 } }
OffsetFetchRequest GroupId:string@0-7 Topics:[]struct@0-7?2-7 { Name:string PartitionIndexes:[]int32
    } Groups:[]struct@8-10 { GroupId:string MemberId:string@9-10?=null MemberEpoch:int32@9-10=-1
    Topics:[]struct? { Name:string@8-9 TopicId:uuid@10-10 PartitionIndexes:[]int32 } }
    RequireStable:bool@7-10
OffsetFetchResponse ThrottleTimeMs:int32@3-10 Topics:[]struct@0-7 { Name:string Partitions:[]struct
    { PartitionIndex:int32 CommittedOffset:int64 CommittedLeaderEpoch:int32@5-7=-1 Metadata:string?
    ErrorCode:int16 } } ErrorCode:int16@2-7 Groups:[]struct@8-10 { GroupId:string Topics:[]struct {
    Name:string@8-9 TopicId:uuid@10-10 Partitions:[]struct { PartitionIndex:int32
    CommittedOffset:int64 CommittedLeaderEpoch:int32=-1 Metadata:string? ErrorCode:int16 } }
    ErrorCode:int16 }
FindCoordinatorRequest Key:string@0-3 KeyType:int8@1-6 CoordinatorKeys:[]string@4-6
FindCoordinatorResponse ThrottleTimeMs:int32@1-6 ErrorCode:int16@0-3 ErrorMessage:string@1-3?
    NodeId:int32@0-3 Host:string@0-3 Port:int32@0-3 Coordinators:[]struct@4-6 { Key:string
    NodeId:int32 Host:string Port:int32 ErrorCode:int16 ErrorMessage:string? }
JoinGroupRequest GroupId:string SessionTimeoutMs:int32 RebalanceTimeoutMs:int32@1-9=-1
    MemberId:string GroupInstanceId:string@5-9?=null ProtocolType:string Protocols:[]struct {
    Name:string Metadata:bytes } Reason:string@8-9?=null
JoinGroupResponse ThrottleTimeMs:int32@2-9 ErrorCode:int16 GenerationId:int32=-1
    ProtocolType:string@7-9?=null ProtocolName:string?7-9 Leader:string SkipAssignment:bool@9-9
    MemberId:string Members:[]struct { MemberId:string GroupInstanceId:string@5-9?=null
    Metadata:bytes }
HeartbeatRequest GroupId:string GenerationId:int32 MemberId:string GroupInstanceId:string@3-4?=null
HeartbeatResponse ThrottleTimeMs:int32@1-4 ErrorCode:int16
LeaveGroupRequest GroupId:string MemberId:string@0-2 Members:[]struct@3-5 { MemberId:string
    GroupInstanceId:string?=null Reason:string@5-5?=null }
LeaveGroupResponse ThrottleTimeMs:int32@1-5 ErrorCode:int16 Members:[]struct@3-5 { MemberId:string
    GroupInstanceId:string? ErrorCode:int16 }
SyncGroupRequest GroupId:string GenerationId:int32 MemberId:string GroupInstanceId:string@3-5?=null
    ProtocolType:string@5-5?=null ProtocolName:string@5-5?=null Assignments:[]struct {
    MemberId:string Assignment:bytes }
SyncGroupResponse ThrottleTimeMs:int32@1-5 ErrorCode:int16 ProtocolType:string@5-5?=null
    ProtocolName:string@5-5?=null Assignment:bytes
DescribeGroupsRequest Groups:[]string IncludeAuthorizedOperations:bool@3-6
DescribeGroupsResponse ThrottleTimeMs:int32@1-6 Groups:[]struct { ErrorCode:int16
    ErrorMessage:string@6-6?=null GroupId:string GroupState:string ProtocolType:string
    ProtocolData:string Members:[]struct { MemberId:string GroupInstanceId:string@4-6?=null
    ClientId:string ClientHost:string MemberMetadata:bytes MemberAssignment:bytes }
    AuthorizedOperations:int32@3-6=-2147483648 }
ListGroupsRequest StatesFilter:[]string@4-5 TypesFilter:[]string@5-5
ListGroupsResponse ThrottleTimeMs:int32@1-5 ErrorCode:int16 Groups:[]struct { GroupId:string
    ProtocolType:string GroupState:string@4-5 GroupType:string@5-5 }
CreateTopicsRequest Topics:[]struct { Name:string NumPartitions:int32 ReplicationFactor:int16
    Assignments:[]struct { PartitionIndex:int32 BrokerIds:[]int32 } Configs:[]struct { Name:string
    Value:string? } } timeoutMs:int32=60000 validateOnly:bool@1-7
CreateTopicsResponse ThrottleTimeMs:int32@2-7 Topics:[]struct { Name:string TopicId:uuid@7-7
    ErrorCode:int16 ErrorMessage:string@1-7? TopicConfigErrorCode:int16@5-7#0
    NumPartitions:int32@5-7=-1 ReplicationFactor:int16@5-7=-1 Configs:[]struct@5-7? { Name:string
    Value:string? ReadOnly:bool ConfigSource:int8=-1 IsSensitive:bool } }
DeleteTopicsRequest Topics:[]struct@6-6 { Name:string?=null TopicId:uuid } TopicNames:[]string@0-5
    TimeoutMs:int32
DeleteTopicsResponse ThrottleTimeMs:int32@1-6 Responses:[]struct { Name:string?6-6 TopicId:uuid@6-6
    ErrorCode:int16 ErrorMessage:string@5-6?=null }
DeleteRecordsRequest Topics:[]struct { Name:string Partitions:[]struct { PartitionIndex:int32
    Offset:int64 } } TimeoutMs:int32
DeleteRecordsResponse ThrottleTimeMs:int32 Topics:[]struct { Name:string Partitions:[]struct {
    PartitionIndex:int32 LowWatermark:int64 ErrorCode:int16 } }
InitProducerIdRequest TransactionalId:string? TransactionTimeoutMs:int32 ProducerId:int64@3-6=-1
    ProducerEpoch:int16@3-6=-1 Enable2Pc:bool@6-6 KeepPreparedTxn:bool@6-6
InitProducerIdResponse ThrottleTimeMs:int32 ErrorCode:int16 ProducerId:int64=-1 ProducerEpoch:int16
    OngoingTxnProducerId:int64@6-6=-1 OngoingTxnProducerEpoch:int16@6-6=-1
OffsetForLeaderEpochRequest ReplicaId:int32@3-4=-2 Topics:[]struct { Topic:string
    Partitions:[]struct { Partition:int32 CurrentLeaderEpoch:int32@2-4=-1 LeaderEpoch:int32 } }
OffsetForLeaderEpochResponse ThrottleTimeMs:int32@2-4 Topics:[]struct { Topic:string
    Partitions:[]struct { ErrorCode:int16 Partition:int32 LeaderEpoch:int32@1-4=-1
    EndOffset:int64=-1 } }
AddPartitionsToTxnRequest Transactions:[]struct@4-5 { TransactionalId:string ProducerId:int64
    ProducerEpoch:int16 VerifyOnly:bool=False Topics:[]struct { Name:string Partitions:[]int32 } }
    V3AndBelowTransactionalId:string@0-3 V3AndBelowProducerId:int64@0-3
    V3AndBelowProducerEpoch:int16@0-3 V3AndBelowTopics:[]struct@0-3 { Name:string Partitions:[]int32
    }
AddPartitionsToTxnResponse ThrottleTimeMs:int32 ErrorCode:int16@4-5
    ResultsByTransaction:[]struct@4-5 { TransactionalId:string TopicResults:[]struct { Name:string
    ResultsByPartition:[]struct { PartitionIndex:int32 PartitionErrorCode:int16 } } }
    ResultsByTopicV3AndBelow:[]struct@0-3 { Name:string ResultsByPartition:[]struct {
    PartitionIndex:int32 PartitionErrorCode:int16 } }
AddOffsetsToTxnRequest TransactionalId:string ProducerId:int64 ProducerEpoch:int16 GroupId:string
AddOffsetsToTxnResponse ThrottleTimeMs:int32 ErrorCode:int16
EndTxnRequest TransactionalId:string ProducerId:int64 ProducerEpoch:int16 Committed:bool
EndTxnResponse ThrottleTimeMs:int32 ErrorCode:int16 ProducerId:int64@5-5=-1
    ProducerEpoch:int16@5-5=-1
WriteTxnMarkersRequest Markers:[]struct { ProducerId:int64 ProducerEpoch:int16
    TransactionResult:bool Topics:[]struct { Name:string PartitionIndexes:[]int32 }
    CoordinatorEpoch:int32 TransactionVersion:int8@2-2 }
WriteTxnMarkersResponse Markers:[]struct { ProducerId:int64 Topics:[]struct { Name:string
    Partitions:[]struct { PartitionIndex:int32 ErrorCode:int16 } } }
TxnOffsetCommitRequest TransactionalId:string GroupId:string ProducerId:int64 ProducerEpoch:int16
    GenerationIdOrMemberEpoch:int32@3-6=-1 MemberId:string@3-6 GroupInstanceId:string@3-6?=null
    Topics:[]struct { Name:string@0-5 TopicId:uuid@6-6 Partitions:[]struct { PartitionIndex:int32
    CommittedOffset:int64 CommittedLeaderEpoch:int32@2-6=-1 CommittedMetadata:string? } }
TxnOffsetCommitResponse ThrottleTimeMs:int32 Topics:[]struct { Name:string@0-5 TopicId:uuid@6-6
    Partitions:[]struct { PartitionIndex:int32 ErrorCode:int16 } }
DescribeAclsRequest ResourceTypeFilter:int8 ResourceNameFilter:string? PatternTypeFilter:int8@1-3=3
    PrincipalFilter:string? HostFilter:string? Operation:int8 PermissionType:int8
DescribeAclsResponse ThrottleTimeMs:int32 ErrorCode:int16 ErrorMessage:string? Resources:[]struct {
    ResourceType:int8 ResourceName:string PatternType:int8@1-3=3 Acls:[]struct { Principal:string
    Host:string Operation:int8 PermissionType:int8 } }
CreateAclsRequest Creations:[]struct { ResourceType:int8 ResourceName:string
    ResourcePatternType:int8@1-3=3 Principal:string Host:string Operation:int8 PermissionType:int8 }
CreateAclsResponse ThrottleTimeMs:int32 Results:[]struct { ErrorCode:int16 ErrorMessage:string? }
DeleteAclsRequest Filters:[]struct { ResourceTypeFilter:int8 ResourceNameFilter:string?
    PatternTypeFilter:int8@1-3=3 PrincipalFilter:string? HostFilter:string? Operation:int8
    PermissionType:int8 }
DeleteAclsResponse ThrottleTimeMs:int32 FilterResults:[]struct { ErrorCode:int16
    ErrorMessage:string? MatchingAcls:[]struct { ErrorCode:int16 ErrorMessage:string?
    ResourceType:int8 ResourceName:string PatternType:int8@1-3=3 Principal:string Host:string
    Operation:int8 PermissionType:int8 } }
DescribeConfigsRequest Resources:[]struct { ResourceType:int8 ResourceName:string
    ConfigurationKeys:[]string? } IncludeSynonyms:bool@1-4 IncludeDocumentation:bool@3-4
DescribeConfigsResponse ThrottleTimeMs:int32 Results:[]struct { ErrorCode:int16 ErrorMessage:string?
    ResourceType:int8 ResourceName:string Configs:[]struct { Name:string Value:string? ReadOnly:bool
    ConfigSource:int8@1-4=-1 IsSensitive:bool Synonyms:[]struct@1-4 { Name:string Value:string?
    Source:int8 } ConfigType:int8@3-4 Documentation:string@3-4? } }
AlterConfigsRequest Resources:[]struct { ResourceType:int8 ResourceName:string Configs:[]struct {
    Name:string Value:string? } } ValidateOnly:bool
AlterConfigsResponse ThrottleTimeMs:int32 Responses:[]struct { ErrorCode:int16 ErrorMessage:string?
    ResourceType:int8 ResourceName:string }
AlterReplicaLogDirsRequest Dirs:[]struct { Path:string Topics:[]struct { Name:string
    Partitions:[]int32 } }
AlterReplicaLogDirsResponse ThrottleTimeMs:int32 Results:[]struct { TopicName:string
    Partitions:[]struct { PartitionIndex:int32 ErrorCode:int16 } }
DescribeLogDirsRequest Topics:[]struct? { Topic:string Partitions:[]int32 }
DescribeLogDirsResponse ThrottleTimeMs:int32 ErrorCode:int16@3-5 Results:[]struct { ErrorCode:int16
    LogDir:string Topics:[]struct { Name:string Partitions:[]struct { PartitionIndex:int32
    PartitionSize:int64 OffsetLag:int64 IsFutureKey:bool } } TotalBytes:int64@4-5=-1
    UsableBytes:int64@4-5=-1 IsCordoned:bool@5-5=False }
CreatePartitionsRequest Topics:[]struct { Name:string Count:int32 Assignments:[]struct? {
    BrokerIds:[]int32 } } TimeoutMs:int32 ValidateOnly:bool
CreatePartitionsResponse ThrottleTimeMs:int32 Results:[]struct { Name:string ErrorCode:int16
    ErrorMessage:string?=null }
CreateDelegationTokenRequest OwnerPrincipalType:string@3-3? OwnerPrincipalName:string@3-3?
    Renewers:[]struct { PrincipalType:string PrincipalName:string } MaxLifetimeMs:int64
CreateDelegationTokenResponse ErrorCode:int16 PrincipalType:string PrincipalName:string
    TokenRequesterPrincipalType:string@3-3 TokenRequesterPrincipalName:string@3-3
    IssueTimestampMs:int64 ExpiryTimestampMs:int64 MaxTimestampMs:int64 TokenId:string Hmac:bytes
    ThrottleTimeMs:int32
RenewDelegationTokenRequest Hmac:bytes RenewPeriodMs:int64
RenewDelegationTokenResponse ErrorCode:int16 ExpiryTimestampMs:int64 ThrottleTimeMs:int32
ExpireDelegationTokenRequest Hmac:bytes ExpiryTimePeriodMs:int64
ExpireDelegationTokenResponse ErrorCode:int16 ExpiryTimestampMs:int64 ThrottleTimeMs:int32
DescribeDelegationTokenRequest Owners:[]struct? { PrincipalType:string PrincipalName:string }
DescribeDelegationTokenResponse ErrorCode:int16 Tokens:[]struct { PrincipalType:string
    PrincipalName:string TokenRequesterPrincipalType:string@3-3
    TokenRequesterPrincipalName:string@3-3 IssueTimestamp:int64 ExpiryTimestamp:int64
    MaxTimestamp:int64 TokenId:string Hmac:bytes Renewers:[]struct { PrincipalType:string
    PrincipalName:string } } ThrottleTimeMs:int32
DeleteGroupsRequest GroupsNames:[]string
DeleteGroupsResponse ThrottleTimeMs:int32 Results:[]struct { GroupId:string ErrorCode:int16
    ErrorMessage:string@3-3?=null }
ElectLeadersRequest ElectionType:int8@1-2 TopicPartitions:[]struct? { Topic:string
    Partitions:[]int32 } TimeoutMs:int32=60000
ElectLeadersResponse ThrottleTimeMs:int32 ErrorCode:int16@1-2 ReplicaElectionResults:[]struct {
    Topic:string PartitionResult:[]struct { PartitionId:int32 ErrorCode:int16 ErrorMessage:string? }
    }
IncrementalAlterConfigsRequest Resources:[]struct { ResourceType:int8 ResourceName:string
    Configs:[]struct { Name:string ConfigOperation:int8 Value:string? } } ValidateOnly:bool
IncrementalAlterConfigsResponse ThrottleTimeMs:int32 Responses:[]struct { ErrorCode:int16
    ErrorMessage:string? ResourceType:int8 ResourceName:string }
AlterPartitionReassignmentsRequest TimeoutMs:int32=60000 AllowReplicationFactorChange:bool@1-1=true
    Topics:[]struct { Name:string Partitions:[]struct { PartitionIndex:int32 Replicas:[]int32?=null
    } }
AlterPartitionReassignmentsResponse ThrottleTimeMs:int32 AllowReplicationFactorChange:bool@1-1=true
    ErrorCode:int16 ErrorMessage:string? Responses:[]struct { Name:string Partitions:[]struct {
    PartitionIndex:int32 ErrorCode:int16 ErrorMessage:string? } }
ListPartitionReassignmentsRequest TimeoutMs:int32=60000 Topics:[]struct?=null { Name:string
    PartitionIndexes:[]int32 }
ListPartitionReassignmentsResponse ThrottleTimeMs:int32 ErrorCode:int16 ErrorMessage:string?
    Topics:[]struct { Name:string Partitions:[]struct { PartitionIndex:int32 Replicas:[]int32
    AddingReplicas:[]int32 RemovingReplicas:[]int32 } }
OffsetDeleteRequest GroupId:string Topics:[]struct { Name:string Partitions:[]struct {
    PartitionIndex:int32 } }
OffsetDeleteResponse ErrorCode:int16 ThrottleTimeMs:int32 Topics:[]struct { Name:string
    Partitions:[]struct { PartitionIndex:int32 ErrorCode:int16 } }
DescribeClientQuotasRequest Components:[]struct { EntityType:string MatchType:int8 Match:string? }
    Strict:bool
DescribeClientQuotasResponse ThrottleTimeMs:int32 ErrorCode:int16 ErrorMessage:string?
    Entries:[]struct? { Entity:[]struct { EntityType:string EntityName:string? } Values:[]struct {
    Key:string Value:float64 } }
AlterClientQuotasRequest Entries:[]struct { Entity:[]struct { EntityType:string EntityName:string? }
    Ops:[]struct { Key:string Value:float64 Remove:bool } } ValidateOnly:bool
AlterClientQuotasResponse ThrottleTimeMs:int32 Entries:[]struct { ErrorCode:int16
    ErrorMessage:string? Entity:[]struct { EntityType:string EntityName:string? } }
DescribeUserScramCredentialsRequest Users:[]struct? { Name:string }
DescribeUserScramCredentialsResponse ThrottleTimeMs:int32 ErrorCode:int16 ErrorMessage:string?
    Results:[]struct { User:string ErrorCode:int16 ErrorMessage:string? CredentialInfos:[]struct {
    Mechanism:int8 Iterations:int32 } }
AlterUserScramCredentialsRequest Deletions:[]struct { Name:string Mechanism:int8 }
    Upsertions:[]struct { Name:string Mechanism:int8 Iterations:int32 Salt:bytes
    SaltedPassword:bytes }
AlterUserScramCredentialsResponse ThrottleTimeMs:int32 Results:[]struct { User:string
    ErrorCode:int16 ErrorMessage:string? }
DescribeQuorumRequest Topics:[]struct { TopicName:string Partitions:[]struct { PartitionIndex:int32
    } }
DescribeQuorumResponse ErrorCode:int16 ErrorMessage:string@2-2? Topics:[]struct { TopicName:string
    Partitions:[]struct { PartitionIndex:int32 ErrorCode:int16 ErrorMessage:string@2-2?
    LeaderId:int32 LeaderEpoch:int32 HighWatermark:int64 CurrentVoters:[]struct { ReplicaId:int32
    ReplicaDirectoryId:uuid@2-2 LogEndOffset:int64 LastFetchTimestamp:int64@1-2=-1
    LastCaughtUpTimestamp:int64@1-2=-1 } Observers:[]struct { ReplicaId:int32
    ReplicaDirectoryId:uuid@2-2 LogEndOffset:int64 LastFetchTimestamp:int64@1-2=-1
    LastCaughtUpTimestamp:int64@1-2=-1 } } } Nodes:[]struct@2-2 { NodeId:int32 Listeners:[]struct {
    Name:string Host:string Port:uint16 } }
UpdateFeaturesRequest timeoutMs:int32=60000 FeatureUpdates:[]struct { Feature:string
    MaxVersionLevel:int16 AllowDowngrade:bool@0-0 UpgradeType:int8@1-2=1 }
    ValidateOnly:bool@1-2=False
UpdateFeaturesResponse ThrottleTimeMs:int32 ErrorCode:int16 ErrorMessage:string?
    Results:[]struct@0-1 { Feature:string ErrorCode:int16 ErrorMessage:string? }
DescribeClusterRequest IncludeClusterAuthorizedOperations:bool EndpointType:int8@1-2=1
    IncludeFencedBrokers:bool@2-2
DescribeClusterResponse ThrottleTimeMs:int32 ErrorCode:int16 ErrorMessage:string?=null
    EndpointType:int8@1-2=1 ClusterId:string ControllerId:int32=-1 Brokers:[]struct { BrokerId:int32
    Host:string Port:int32 Rack:string?=null IsFenced:bool@2-2 }
    ClusterAuthorizedOperations:int32=-2147483648
DescribeProducersRequest Topics:[]struct { Name:string PartitionIndexes:[]int32 }
DescribeProducersResponse ThrottleTimeMs:int32 Topics:[]struct { Name:string Partitions:[]struct {
    PartitionIndex:int32 ErrorCode:int16 ErrorMessage:string?=null ActiveProducers:[]struct {
    ProducerId:int64 ProducerEpoch:int32 LastSequence:int32=-1 LastTimestamp:int64=-1
    CoordinatorEpoch:int32 CurrentTxnStartOffset:int64=-1 } } }
UnregisterBrokerRequest BrokerId:int32
UnregisterBrokerResponse ThrottleTimeMs:int32 ErrorCode:int16 ErrorMessage:string?
DescribeTransactionsRequest TransactionalIds:[]string
DescribeTransactionsResponse ThrottleTimeMs:int32 TransactionStates:[]struct { ErrorCode:int16
    TransactionalId:string TransactionState:string TransactionTimeoutMs:int32
    TransactionStartTimeMs:int64 ProducerId:int64 ProducerEpoch:int16 Topics:[]struct { Topic:string
    Partitions:[]int32 } }
ListTransactionsRequest StateFilters:[]string ProducerIdFilters:[]int64 DurationFilter:int64@1-2=-1
    TransactionalIdPattern:string@2-2?=null
ListTransactionsResponse ThrottleTimeMs:int32 ErrorCode:int16 UnknownStateFilters:[]string
    TransactionStates:[]struct { TransactionalId:string ProducerId:int64 TransactionState:string }
ConsumerGroupHeartbeatRequest GroupId:string MemberId:string MemberEpoch:int32
    InstanceId:string?=null RackId:string?=null RebalanceTimeoutMs:int32=-1
    SubscribedTopicNames:[]string?=null SubscribedTopicRegex:string@1-1?=null
    ServerAssignor:string?=null TopicPartitions:[]struct?=null { TopicId:uuid Partitions:[]int32 }
ConsumerGroupHeartbeatResponse ThrottleTimeMs:int32 ErrorCode:int16 ErrorMessage:string?=null
    MemberId:string?=null MemberEpoch:int32 HeartbeatIntervalMs:int32 Assignment:struct?=null {
    TopicPartitions:[]struct { TopicId:uuid Partitions:[]int32 } }
ConsumerGroupDescribeRequest GroupIds:[]string IncludeAuthorizedOperations:bool
ConsumerGroupDescribeResponse ThrottleTimeMs:int32 Groups:[]struct { ErrorCode:int16
    ErrorMessage:string?=null GroupId:string GroupState:string GroupEpoch:int32
    AssignmentEpoch:int32 AssignorName:string Members:[]struct { MemberId:string
    InstanceId:string?=null RackId:string?=null MemberEpoch:int32 ClientId:string ClientHost:string
    SubscribedTopicNames:[]string SubscribedTopicRegex:string?=null Assignment:struct {
    TopicPartitions:[]struct { TopicId:uuid TopicName:string Partitions:[]int32 } }
    TargetAssignment:struct { TopicPartitions:[]struct { TopicId:uuid TopicName:string
    Partitions:[]int32 } } MemberType:int8@1-1=-1 } AuthorizedOperations:int32=-2147483648 }
GetTelemetrySubscriptionsRequest ClientInstanceId:uuid
GetTelemetrySubscriptionsResponse ThrottleTimeMs:int32 ErrorCode:int16 ClientInstanceId:uuid
    SubscriptionId:int32 AcceptedCompressionTypes:[]int8 PushIntervalMs:int32
    TelemetryMaxBytes:int32 DeltaTemporality:bool RequestedMetrics:[]string
PushTelemetryRequest ClientInstanceId:uuid SubscriptionId:int32 Terminating:bool
    CompressionType:int8 Metrics:bytes
PushTelemetryResponse ThrottleTimeMs:int32 ErrorCode:int16
ListConfigResourcesRequest ResourceTypes:[]int8@1-1
ListConfigResourcesResponse ThrottleTimeMs:int32 ErrorCode:int16 ConfigResources:[]struct {
    ResourceName:string ResourceType:int8@1-1=16 }
DescribeTopicPartitionsRequest Topics:[]struct { Name:string } ResponsePartitionLimit:int32=2000
    Cursor:struct?=null { TopicName:string PartitionIndex:int32 }
DescribeTopicPartitionsResponse ThrottleTimeMs:int32 Topics:[]struct { ErrorCode:int16 Name:string?
    TopicId:uuid IsInternal:bool Partitions:[]struct { ErrorCode:int16 PartitionIndex:int32
    LeaderId:int32 LeaderEpoch:int32=-1 ReplicaNodes:[]int32 IsrNodes:[]int32
    EligibleLeaderReplicas:[]int32?=null LastKnownElr:[]int32?=null OfflineReplicas:[]int32 }
    TopicAuthorizedOperations:int32=-2147483648 } NextCursor:struct?=null { TopicName:string
    PartitionIndex:int32 }
ShareGroupHeartbeatRequest GroupId:string MemberId:string MemberEpoch:int32 RackId:string?=null
    SubscribedTopicNames:[]string?=null
ShareGroupHeartbeatResponse ThrottleTimeMs:int32 ErrorCode:int16 ErrorMessage:string?=null
    MemberId:string?=null MemberEpoch:int32 HeartbeatIntervalMs:int32 Assignment:struct?=null {
    TopicPartitions:[]struct { TopicId:uuid Partitions:[]int32 } }
ShareGroupDescribeRequest GroupIds:[]string IncludeAuthorizedOperations:bool
ShareGroupDescribeResponse ThrottleTimeMs:int32 Groups:[]struct { ErrorCode:int16
    ErrorMessage:string?=null GroupId:string GroupState:string GroupEpoch:int32
    AssignmentEpoch:int32 AssignorName:string Members:[]struct { MemberId:string RackId:string?=null
    MemberEpoch:int32 ClientId:string ClientHost:string SubscribedTopicNames:[]string
    Assignment:struct { TopicPartitions:[]struct { TopicId:uuid TopicName:string Partitions:[]int32
    } } } AuthorizedOperations:int32=-2147483648 }
ShareFetchRequest GroupId:string?=null MemberId:string? ShareSessionEpoch:int32 MaxWaitMs:int32
    MinBytes:int32 MaxBytes:int32=0x7fffffff MaxRecords:int32@1-2 BatchSize:int32@1-2
    ShareAcquireMode:int8@2-2 IsRenewAck:bool@2-2 Topics:[]struct { TopicId:uuid Partitions:[]struct
    { PartitionIndex:int32 PartitionMaxBytes:int32@0-0 AcknowledgementBatches:[]struct {
    FirstOffset:int64 LastOffset:int64 AcknowledgeTypes:[]int8 } } } ForgottenTopicsData:[]struct {
    TopicId:uuid Partitions:[]int32 }
ShareFetchResponse ThrottleTimeMs:int32 ErrorCode:int16 ErrorMessage:string?=null
    AcquisitionLockTimeoutMs:int32@1-2 Responses:[]struct { TopicId:uuid Partitions:[]struct {
    PartitionIndex:int32 ErrorCode:int16 ErrorMessage:string?=null AcknowledgeErrorCode:int16
    AcknowledgeErrorMessage:string?=null CurrentLeader:struct { LeaderId:int32 LeaderEpoch:int32 }
    Records:records?0-0 AcquiredRecords:[]struct { FirstOffset:int64 LastOffset:int64
    DeliveryCount:int16 } } } NodeEndpoints:[]struct { NodeId:int32 Host:string Port:int32
    Rack:string?=null }
ShareAcknowledgeRequest GroupId:string?=null MemberId:string? ShareSessionEpoch:int32
    IsRenewAck:bool@2-2 Topics:[]struct { TopicId:uuid Partitions:[]struct { PartitionIndex:int32
    AcknowledgementBatches:[]struct { FirstOffset:int64 LastOffset:int64 AcknowledgeTypes:[]int8 } }
    }
ShareAcknowledgeResponse ThrottleTimeMs:int32 ErrorCode:int16 ErrorMessage:string?=null
    AcquisitionLockTimeoutMs:int32@2-2 Responses:[]struct { TopicId:uuid Partitions:[]struct {
    PartitionIndex:int32 ErrorCode:int16 ErrorMessage:string?=null CurrentLeader:struct {
    LeaderId:int32 LeaderEpoch:int32 } } } NodeEndpoints:[]struct { NodeId:int32 Host:string
    Port:int32 Rack:string?=null }
AddRaftVoterRequest ClusterId:string? TimeoutMs:int32 VoterId:int32 VoterDirectoryId:uuid
    Listeners:[]struct { Name:string Host:string Port:uint16 } AckWhenCommitted:bool@1-1=true
AddRaftVoterResponse ThrottleTimeMs:int32 ErrorCode:int16 ErrorMessage:string?
RemoveRaftVoterRequest ClusterId:string? VoterId:int32 VoterDirectoryId:uuid
RemoveRaftVoterResponse ThrottleTimeMs:int32 ErrorCode:int16 ErrorMessage:string?
InitializeShareGroupStateRequest GroupId:string Topics:[]struct { TopicId:uuid Partitions:[]struct {
    Partition:int32 StateEpoch:int32 StartOffset:int64 } }
InitializeShareGroupStateResponse Results:[]struct { TopicId:uuid Partitions:[]struct {
    Partition:int32 ErrorCode:int16 ErrorMessage:string?=null } }
ReadShareGroupStateRequest GroupId:string Topics:[]struct { TopicId:uuid Partitions:[]struct {
    Partition:int32 LeaderEpoch:int32 } }
ReadShareGroupStateResponse Results:[]struct { TopicId:uuid Partitions:[]struct { Partition:int32
    ErrorCode:int16 ErrorMessage:string?=null StateEpoch:int32 StartOffset:int64
    StateBatches:[]struct { FirstOffset:int64 LastOffset:int64 DeliveryState:int8
    DeliveryCount:int16 } } }
WriteShareGroupStateRequest GroupId:string Topics:[]struct { TopicId:uuid Partitions:[]struct {
    Partition:int32 StateEpoch:int32 LeaderEpoch:int32 StartOffset:int64
    DeliveryCompleteCount:int32@1-1=-1 StateBatches:[]struct { FirstOffset:int64 LastOffset:int64
    DeliveryState:int8 DeliveryCount:int16 } } }
WriteShareGroupStateResponse Results:[]struct { TopicId:uuid Partitions:[]struct { Partition:int32
    ErrorCode:int16 ErrorMessage:string?=null } }
DeleteShareGroupStateRequest GroupId:string Topics:[]struct { TopicId:uuid Partitions:[]struct {
    Partition:int32 } }
DeleteShareGroupStateResponse Results:[]struct { TopicId:uuid Partitions:[]struct { Partition:int32
    ErrorCode:int16 ErrorMessage:string?=null } }
ReadShareGroupStateSummaryRequest GroupId:string Topics:[]struct { TopicId:uuid Partitions:[]struct
    { Partition:int32 LeaderEpoch:int32 } }
ReadShareGroupStateSummaryResponse Results:[]struct { TopicId:uuid Partitions:[]struct {
    Partition:int32 ErrorCode:int16 ErrorMessage:string?=null StateEpoch:int32 LeaderEpoch:int32
    StartOffset:int64 DeliveryCompleteCount:int32@1-1=-1 } }
StreamsGroupHeartbeatRequest GroupId:string MemberId:string MemberEpoch:int32
    EndpointInformationEpoch:int32 InstanceId:string?=null RackId:string?=null
    RebalanceTimeoutMs:int32=-1 Topology:struct?=null { Epoch:int32 Subtopologies:[]struct {
    SubtopologyId:string SourceTopics:[]string SourceTopicRegex:[]string
    StateChangelogTopics:[]struct { Name:string Partitions:int32 ReplicationFactor:int16
    TopicConfigs:[]struct { Key:string Value:string } } RepartitionSinkTopics:[]string
    RepartitionSourceTopics:[]struct { Name:string Partitions:int32 ReplicationFactor:int16
    TopicConfigs:[]struct { Key:string Value:string } } CopartitionGroups:[]struct {
    SourceTopics:[]int16 SourceTopicRegex:[]int16 RepartitionSourceTopics:[]int16 } } }
    ActiveTasks:[]struct?=null { SubtopologyId:string Partitions:[]int32 }
    StandbyTasks:[]struct?=null { SubtopologyId:string Partitions:[]int32 }
    WarmupTasks:[]struct?=null { SubtopologyId:string Partitions:[]int32 } ProcessId:string?=null
    UserEndpoint:struct?=null { Host:string Port:uint16 } ClientTags:[]struct?=null { Key:string
    Value:string } TaskOffsets:[]struct?=null { SubtopologyId:string Partition:int32 Offset:int64 }
    TaskEndOffsets:[]struct?=null { SubtopologyId:string Partition:int32 Offset:int64 }
    ShutdownApplication:bool=False
StreamsGroupHeartbeatResponse ThrottleTimeMs:int32 ErrorCode:int16 ErrorMessage:string?=null
    MemberId:string MemberEpoch:int32 HeartbeatIntervalMs:int32
    AcceptableRecoveryLagLegacy:int32@0-0 TaskOffsetIntervalMs:int32
    AcceptableRecoveryLag:int64@1-1=-1 Status:[]struct? { StatusCode:int8 StatusDetail:string }
    ActiveTasks:[]struct?=null { SubtopologyId:string Partitions:[]int32 }
    StandbyTasks:[]struct?=null { SubtopologyId:string Partitions:[]int32 }
    WarmupTasks:[]struct?=null { SubtopologyId:string Partitions:[]int32 }
    TopologyDescriptionRequired:bool@1-1 EndpointInformationEpoch:int32
    PartitionsByUserEndpoint:[]struct?=null { UserEndpoint:struct { Host:string Port:uint16 }
    ActivePartitions:[]struct { Topic:string Partitions:[]int32 } StandbyPartitions:[]struct {
    Topic:string Partitions:[]int32 } }
StreamsGroupDescribeRequest GroupIds:[]string IncludeAuthorizedOperations:bool
    IncludeTopologyDescription:bool@1-1
StreamsGroupDescribeResponse ThrottleTimeMs:int32 Groups:[]struct { ErrorCode:int16
    ErrorMessage:string?=null GroupId:string GroupState:string GroupEpoch:int32
    AssignmentEpoch:int32 Topology:struct?=null { Epoch:int32 Subtopologies:[]struct?=null {
    SubtopologyId:string SourceTopics:[]string RepartitionSinkTopics:[]string
    StateChangelogTopics:[]struct { Name:string Partitions:int32 ReplicationFactor:int16
    TopicConfigs:[]struct { Key:string Value:string } } RepartitionSourceTopics:[]struct {
    Name:string Partitions:int32 ReplicationFactor:int16 TopicConfigs:[]struct { Key:string
    Value:string } } } } Members:[]struct { MemberId:string MemberEpoch:int32
    InstanceId:string?=null RackId:string?=null ClientId:string ClientHost:string
    TopologyEpoch:int32 ProcessId:string UserEndpoint:struct?=null { Host:string Port:uint16 }
    ClientTags:[]struct { Key:string Value:string } TaskOffsets:[]struct { SubtopologyId:string
    Partition:int32 Offset:int64 } TaskEndOffsets:[]struct { SubtopologyId:string Partition:int32
    Offset:int64 } Assignment:struct { ActiveTasks:[]struct { SubtopologyId:string
    Partitions:[]int32 } StandbyTasks:[]struct { SubtopologyId:string Partitions:[]int32 }
    WarmupTasks:[]struct { SubtopologyId:string Partitions:[]int32 } } TargetAssignment:struct {
    ActiveTasks:[]struct { SubtopologyId:string Partitions:[]int32 } StandbyTasks:[]struct {
    SubtopologyId:string Partitions:[]int32 } WarmupTasks:[]struct { SubtopologyId:string
    Partitions:[]int32 } } IsClassic:bool } AuthorizedOperations:int32=-2147483648
    TopologyDescription:struct@1-1?=null { Subtopologies:[]struct@1-1 { SubtopologyId:string@1-1
    Nodes:[]struct@1-1 { Name:string@1-1 NodeType:int8@1-1 SourceTopics:[]string@1-1
    SinkTopic:string@1-1?=null Stores:[]string@1-1 Successors:[]string@1-1 } }
    GlobalStores:[]struct@1-1 { Source:struct@1-1 { Name:string@1-1 NodeType:int8@1-1
    SourceTopics:[]string@1-1 SinkTopic:string@1-1?=null Stores:[]string@1-1 Successors:[]string@1-1
    } Processor:struct@1-1 { Name:string@1-1 NodeType:int8@1-1 SourceTopics:[]string@1-1
    SinkTopic:string@1-1?=null Stores:[]string@1-1 Successors:[]string@1-1 } } }
    TopologyDescriptionStatus:int8@1-1 AssignorName:string@1-1?=null }
DescribeShareGroupOffsetsRequest Groups:[]struct { GroupId:string Topics:[]struct? {
    TopicName:string Partitions:[]int32 } }
DescribeShareGroupOffsetsResponse ThrottleTimeMs:int32 Groups:[]struct { GroupId:string
    Topics:[]struct { TopicName:string TopicId:uuid Partitions:[]struct { PartitionIndex:int32
    StartOffset:int64 LeaderEpoch:int32 Lag:int64@1-1=-1 ErrorCode:int16 ErrorMessage:string?=null }
    } ErrorCode:int16 ErrorMessage:string?=null }
AlterShareGroupOffsetsRequest GroupId:string Topics:[]struct { TopicName:string Partitions:[]struct
    { PartitionIndex:int32 StartOffset:int64 } }
AlterShareGroupOffsetsResponse ThrottleTimeMs:int32 ErrorCode:int16 ErrorMessage:string?=null
    Responses:[]struct { TopicName:string TopicId:uuid Partitions:[]struct { PartitionIndex:int32
    ErrorCode:int16 ErrorMessage:string?=null } }
DeleteShareGroupOffsetsRequest GroupId:string Topics:[]struct { TopicName:string }
DeleteShareGroupOffsetsResponse ThrottleTimeMs:int32 ErrorCode:int16 ErrorMessage:string?=null
    Responses:[]struct { TopicName:string TopicId:uuid ErrorCode:int16 ErrorMessage:string?=null }
StreamsGroupTopologyDescriptionUpdateRequest GroupId:string MemberId:string TopologyEpoch:int32
    TopologyDescription:struct { Subtopologies:[]struct { SubtopologyId:string Nodes:[]struct {
    Name:string NodeType:int8 SourceTopics:[]string SinkTopic:string?=null Stores:[]string
    Successors:[]string } } GlobalStores:[]struct { Source:struct { Name:string NodeType:int8
    SourceTopics:[]string SinkTopic:string?=null Stores:[]string Successors:[]string }
    Processor:struct { Name:string NodeType:int8 SourceTopics:[]string SinkTopic:string?=null
    Stores:[]string Successors:[]string } } }
StreamsGroupTopologyDescriptionUpdateResponse ThrottleTimeMs:int32 ErrorCode:int16
    ErrorMessage:string?=null
UnregisterControllerRequest ControllerId:int32
UnregisterControllerResponse ThrottleTimeMs:int32 ErrorCode:int16 ErrorMessage:string?
"""

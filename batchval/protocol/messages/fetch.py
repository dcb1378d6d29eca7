"""Fetch: request (API key 1) and response, versions 4 to 18.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from typing import ClassVar

from batchval.protocol.message import Records, Request, Response, Struct
from batchval.protocol.message_class import field, message_class
from batchval.protocol.primitives import ZERO_UUID

__all__ = [
    "AbortedTransaction", "EpochEndOffset", "FetchLeaderIdAndEpoch", "FetchNodeEndpoint",
    "FetchPartition", "FetchRequest", "FetchResponse", "FetchTopic", "FetchableTopicResponse",
    "ForgottenTopic", "PartitionData", "ReplicaState", "SnapshotId",
]


@message_class
class EpochEndOffset(Struct):
    """Of FetchResponse, versions 12 to 18."""

    epoch: int = field("int32", default=-1)
    end_offset: int = field("int64", default=-1)


@message_class
class FetchLeaderIdAndEpoch(Struct):
    """Of FetchResponse, versions 12 to 18."""

    leader_id: int = field("int32", default=-1)
    leader_epoch: int = field("int32", default=-1)


@message_class
class SnapshotId(Struct):
    """Of FetchResponse, versions 12 to 18."""

    end_offset: int = field("int64", default=-1)
    epoch: int = field("int32", default=-1)


@message_class
class AbortedTransaction(Struct):
    """Of FetchResponse, versions 4 to 18."""

    producer_id: int = field("int64", default=0)
    first_offset: int = field("int64", default=0)


@message_class
class PartitionData(Struct):
    """Of FetchResponse, versions 4 to 18."""

    partition_index: int = field("int32", default=0)
    error_code: int = field("int16", default=0)
    high_watermark: int = field("int64", default=0)
    last_stable_offset: int = field("int64", default=-1)
    log_start_offset: int = field("int64@5-", default=-1)
    diverging_epoch: EpochEndOffset = field("EpochEndOffset@12-#0", factory=EpochEndOffset)
    current_leader: FetchLeaderIdAndEpoch = field("FetchLeaderIdAndEpoch@12-#1", factory=FetchLeaderIdAndEpoch)
    snapshot_id: SnapshotId = field("SnapshotId@12-#2", factory=SnapshotId)
    aborted_transactions: list[AbortedTransaction] | None = field("[]AbortedTransaction?", factory=list)
    preferred_read_replica: int = field("int32@11-!", default=-1)
    records: Records | None = field("records?", default=b"")


@message_class
class FetchableTopicResponse(Struct):
    """Of FetchResponse, versions 4 to 18."""

    topic: str = field("string@-12", default="")
    topic_id: bytes = field("uuid@13-", default=ZERO_UUID)
    partitions: list[PartitionData] = field("[]PartitionData", factory=list)


@message_class
class FetchNodeEndpoint(Struct):
    """Of FetchResponse, versions 16 to 18."""

    node_id: int = field("int32", default=0)
    host: str = field("string", default="")
    port: int = field("int32", default=0)
    rack: str | None = field("string?", default=None)


@message_class
class FetchResponse(Response):
    """Versions 4 to 18."""

    api_key: ClassVar[int] = 1

    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16@7-", default=0)
    session_id: int = field("int32@7-!", default=0)
    responses: list[FetchableTopicResponse] = field("[]FetchableTopicResponse", factory=list)
    node_endpoints: list[FetchNodeEndpoint] = field("[]FetchNodeEndpoint@16-#0", factory=list)


@message_class
class ReplicaState(Struct):
    """Of FetchRequest, versions 15 to 18."""

    replica_id: int = field("int32", default=-1)
    replica_epoch: int = field("int64", default=-1)


@message_class
class FetchPartition(Struct):
    """Of FetchRequest, versions 4 to 18."""

    partition: int = field("int32", default=0)
    current_leader_epoch: int = field("int32@9-", default=-1)
    fetch_offset: int = field("int64", default=0)
    last_fetched_epoch: int = field("int32@12-!", default=-1)
    log_start_offset: int = field("int64@5-", default=-1)
    partition_max_bytes: int = field("int32", default=0)
    replica_directory_id: bytes = field("uuid@17-#0", default=ZERO_UUID)
    high_watermark: int = field("int64@18-#1", default=9223372036854775807)


@message_class
class FetchTopic(Struct):
    """Of FetchRequest, versions 4 to 18."""

    topic: str = field("string@-12", default="")
    topic_id: bytes = field("uuid@13-", default=ZERO_UUID)
    partitions: list[FetchPartition] = field("[]FetchPartition", factory=list)


@message_class
class ForgottenTopic(Struct):
    """Of FetchRequest, versions 7 to 18."""

    topic: str = field("string@-12", default="")
    topic_id: bytes = field("uuid@13-", default=ZERO_UUID)
    partitions: list[int] = field("[]int32", factory=list)


@message_class
class FetchRequest(Request[FetchResponse]):
    """Versions 4 to 18."""

    api_key: ClassVar[int] = 1
    response_class: ClassVar[type[FetchResponse]] = FetchResponse

    cluster_id: str | None = field("string@12-?#0", default=None)
    replica_id: int = field("int32@-14!", default=-1)
    replica_state: ReplicaState = field("ReplicaState@15-#1", factory=ReplicaState)
    max_wait_ms: int = field("int32", default=0)
    min_bytes: int = field("int32", default=0)
    max_bytes: int = field("int32", default=2147483647)
    isolation_level: int = field("int8", default=0)
    session_id: int = field("int32@7-", default=0)
    session_epoch: int = field("int32@7-", default=-1)
    topics: list[FetchTopic] = field("[]FetchTopic", factory=list)
    forgotten_topics_data: list[ForgottenTopic] = field("[]ForgottenTopic@7-!", factory=list)
    rack_id: str = field("string@11-", default="")

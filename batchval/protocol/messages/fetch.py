"""Fetch: request (API key 1) and response, versions 4 to 18.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Self

from batchval.protocol.message import Records, Request, Response, Tags, absent
from batchval.protocol.message_class import message_class
from batchval.protocol.primitives import ZERO_UUID, Reader, Writer

__all__ = [
    "AbortedTransaction",
    "EpochEndOffset",
    "FetchLeaderIdAndEpoch",
    "FetchNodeEndpoint",
    "FetchPartition",
    "FetchRequest",
    "FetchResponse",
    "FetchTopic",
    "FetchableTopicResponse",
    "ForgottenTopic",
    "PartitionData",
    "ReplicaState",
    "SnapshotId",
]


@message_class
class EpochEndOffset:
    """Of FetchResponse, versions 12 to 18."""

    epoch: int = -1
    end_offset: int = -1
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.epoch = r.int32()
        self.end_offset = r.int64()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int32(self.epoch)
        w.int64(self.end_offset)
        w.tags(self.unknown_tagged_fields)


@message_class
class FetchLeaderIdAndEpoch:
    """Of FetchResponse, versions 12 to 18."""

    leader_id: int = -1
    leader_epoch: int = -1
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.leader_id = r.int32()
        self.leader_epoch = r.int32()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int32(self.leader_id)
        w.int32(self.leader_epoch)
        w.tags(self.unknown_tagged_fields)


@message_class
class SnapshotId:
    """Of FetchResponse, versions 12 to 18."""

    end_offset: int = -1
    epoch: int = -1
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.end_offset = r.int64()
        self.epoch = r.int32()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int64(self.end_offset)
        w.int32(self.epoch)
        w.tags(self.unknown_tagged_fields)


@message_class
class AbortedTransaction:
    """Of FetchResponse, versions 4 to 18."""

    producer_id: int = 0
    first_offset: int = 0
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.producer_id = r.int64()
        self.first_offset = r.int64()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int64(self.producer_id)
        w.int64(self.first_offset)
        w.tags(self.unknown_tagged_fields)


@message_class
class PartitionData:
    """Of FetchResponse, versions 4 to 18."""

    partition_index: int = 0
    error_code: int = 0
    high_watermark: int = 0
    last_stable_offset: int = -1
    log_start_offset: int = -1
    diverging_epoch: EpochEndOffset = field(default_factory=EpochEndOffset)
    current_leader: FetchLeaderIdAndEpoch = field(default_factory=FetchLeaderIdAndEpoch)
    snapshot_id: SnapshotId = field(default_factory=SnapshotId)
    aborted_transactions: list[AbortedTransaction] | None = field(default_factory=list)
    preferred_read_replica: int = -1
    records: Records | None = b""
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.partition_index = r.int32()
        self.error_code = r.int16()
        self.high_watermark = r.int64()
        self.last_stable_offset = r.int64()
        if version >= 5:
            self.log_start_offset = r.int64()
        n = r.nullable_count()
        self.aborted_transactions = None if n < 0 else [AbortedTransaction.read(r, version) for _ in range(n)]
        if version >= 11:
            self.preferred_read_replica = r.int32()
        self.records = r.nullable_records()
        if version >= 12:
            unknown = []
            for _ in range(r.tag_count()):
                tag, end = r.open_tag()
                if tag == 0:
                    self.diverging_epoch = EpochEndOffset.read(r, version)
                elif tag == 1:
                    self.current_leader = FetchLeaderIdAndEpoch.read(r, version)
                elif tag == 2:
                    self.snapshot_id = SnapshotId.read(r, version)
                else:
                    unknown.append((tag, r.rest()))
                r.close_tag(end)
            self.unknown_tagged_fields = tuple(unknown)
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int32(self.partition_index)
        w.int16(self.error_code)
        w.int64(self.high_watermark)
        w.int64(self.last_stable_offset)
        if version >= 5:
            w.int64(self.log_start_offset)
        w.nullable_structs(self.aborted_transactions, version)
        if version >= 11:
            w.int32(self.preferred_read_replica)
        elif self.preferred_read_replica != -1:
            raise absent("PreferredReadReplica", version)
        w.nullable_records(self.records)
        tags = list(self.unknown_tagged_fields)
        if version >= 12 and self.diverging_epoch != EpochEndOffset():
            t = Writer(flexible=True)
            self.diverging_epoch.write(t, version)
            tags.append((0, t.getvalue()))
        if version >= 12 and self.current_leader != FetchLeaderIdAndEpoch():
            t = Writer(flexible=True)
            self.current_leader.write(t, version)
            tags.append((1, t.getvalue()))
        if version >= 12 and self.snapshot_id != SnapshotId():
            t = Writer(flexible=True)
            self.snapshot_id.write(t, version)
            tags.append((2, t.getvalue()))
        w.tags(tags)


@message_class
class FetchableTopicResponse:
    """Of FetchResponse, versions 4 to 18."""

    topic: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: list[PartitionData] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        if version <= 12:
            self.topic = r.string()
        if version >= 13:
            self.topic_id = r.uuid()
        self.partitions = [PartitionData.read(r, version) for _ in range(r.count())]
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        if version <= 12:
            w.string(self.topic)
        if version >= 13:
            w.uuid(self.topic_id)
        w.structs(self.partitions, version)
        w.tags(self.unknown_tagged_fields)


@message_class
class FetchNodeEndpoint:
    """Of FetchResponse, versions 16 to 18."""

    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.node_id = r.int32()
        self.host = r.string()
        self.port = r.int32()
        self.rack = r.nullable_string()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int32(self.node_id)
        w.string(self.host)
        w.int32(self.port)
        w.nullable_string(self.rack)
        w.tags(self.unknown_tagged_fields)


@message_class
class FetchResponse(Response):
    """Versions 4 to 18."""

    api_key: ClassVar[int] = 1

    throttle_time_ms: int = 0
    error_code: int = 0
    session_id: int = 0
    responses: list[FetchableTopicResponse] = field(default_factory=list)
    node_endpoints: list[FetchNodeEndpoint] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.throttle_time_ms = r.int32()
        if version >= 7:
            self.error_code = r.int16()
            self.session_id = r.int32()
        self.responses = [FetchableTopicResponse.read(r, version) for _ in range(r.count())]
        if version >= 12:
            unknown = []
            for _ in range(r.tag_count()):
                tag, end = r.open_tag()
                if tag == 0 and version >= 16:
                    self.node_endpoints = [FetchNodeEndpoint.read(r, version) for _ in range(r.count())]
                else:
                    unknown.append((tag, r.rest()))
                r.close_tag(end)
            self.unknown_tagged_fields = tuple(unknown)
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int32(self.throttle_time_ms)
        if version >= 7:
            w.int16(self.error_code)
            w.int32(self.session_id)
        elif self.session_id != 0:
            raise absent("SessionId", version)
        w.structs(self.responses, version)
        tags = list(self.unknown_tagged_fields)
        if version >= 16 and self.node_endpoints:
            t = Writer(flexible=True)
            t.structs(self.node_endpoints, version)
            tags.append((0, t.getvalue()))
        w.tags(tags)


@message_class
class ReplicaState:
    """Of FetchRequest, versions 15 to 18."""

    replica_id: int = -1
    replica_epoch: int = -1
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.replica_id = r.int32()
        self.replica_epoch = r.int64()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int32(self.replica_id)
        w.int64(self.replica_epoch)
        w.tags(self.unknown_tagged_fields)


@message_class
class FetchPartition:
    """Of FetchRequest, versions 4 to 18."""

    partition: int = 0
    current_leader_epoch: int = -1
    fetch_offset: int = 0
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    partition_max_bytes: int = 0
    replica_directory_id: bytes = ZERO_UUID
    high_watermark: int = 9223372036854775807
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.partition = r.int32()
        if version >= 9:
            self.current_leader_epoch = r.int32()
        self.fetch_offset = r.int64()
        if version >= 12:
            self.last_fetched_epoch = r.int32()
        if version >= 5:
            self.log_start_offset = r.int64()
        self.partition_max_bytes = r.int32()
        if version >= 12:
            unknown = []
            for _ in range(r.tag_count()):
                tag, end = r.open_tag()
                if tag == 0 and version >= 17:
                    self.replica_directory_id = r.uuid()
                elif tag == 1 and version >= 18:
                    self.high_watermark = r.int64()
                else:
                    unknown.append((tag, r.rest()))
                r.close_tag(end)
            self.unknown_tagged_fields = tuple(unknown)
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int32(self.partition)
        if version >= 9:
            w.int32(self.current_leader_epoch)
        w.int64(self.fetch_offset)
        if version >= 12:
            w.int32(self.last_fetched_epoch)
        elif self.last_fetched_epoch != -1:
            raise absent("LastFetchedEpoch", version)
        if version >= 5:
            w.int64(self.log_start_offset)
        w.int32(self.partition_max_bytes)
        tags = list(self.unknown_tagged_fields)
        if version >= 17 and self.replica_directory_id != ZERO_UUID:
            t = Writer(flexible=True)
            t.uuid(self.replica_directory_id)
            tags.append((0, t.getvalue()))
        if version >= 18 and self.high_watermark != 9223372036854775807:
            t = Writer(flexible=True)
            t.int64(self.high_watermark)
            tags.append((1, t.getvalue()))
        w.tags(tags)


@message_class
class FetchTopic:
    """Of FetchRequest, versions 4 to 18."""

    topic: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: list[FetchPartition] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        if version <= 12:
            self.topic = r.string()
        if version >= 13:
            self.topic_id = r.uuid()
        self.partitions = [FetchPartition.read(r, version) for _ in range(r.count())]
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        if version <= 12:
            w.string(self.topic)
        if version >= 13:
            w.uuid(self.topic_id)
        w.structs(self.partitions, version)
        w.tags(self.unknown_tagged_fields)


@message_class
class ForgottenTopic:
    """Of FetchRequest, versions 7 to 18."""

    topic: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: list[int] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        if version <= 12:
            self.topic = r.string()
        if version >= 13:
            self.topic_id = r.uuid()
        self.partitions = r.int32_array()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        if version <= 12:
            w.string(self.topic)
        if version >= 13:
            w.uuid(self.topic_id)
        w.int32_array(self.partitions)
        w.tags(self.unknown_tagged_fields)


@message_class
class FetchRequest(Request[FetchResponse]):
    """Versions 4 to 18."""

    api_key: ClassVar[int] = 1
    response_class: ClassVar[type[FetchResponse]] = FetchResponse

    cluster_id: str | None = None
    replica_id: int = -1
    replica_state: ReplicaState = field(default_factory=ReplicaState)
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 2147483647
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1
    topics: list[FetchTopic] = field(default_factory=list)
    forgotten_topics_data: list[ForgottenTopic] = field(default_factory=list)
    rack_id: str = ""
    unknown_tagged_fields: Tags = ()
    api_version: int = field(kw_only=True)

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls(api_version=version)
        if version <= 14:
            self.replica_id = r.int32()
        self.max_wait_ms = r.int32()
        self.min_bytes = r.int32()
        self.max_bytes = r.int32()
        self.isolation_level = r.int8()
        if version >= 7:
            self.session_id = r.int32()
            self.session_epoch = r.int32()
        self.topics = [FetchTopic.read(r, version) for _ in range(r.count())]
        if version >= 7:
            self.forgotten_topics_data = [ForgottenTopic.read(r, version) for _ in range(r.count())]
        if version >= 11:
            self.rack_id = r.string()
        if version >= 12:
            unknown = []
            for _ in range(r.tag_count()):
                tag, end = r.open_tag()
                if tag == 0:
                    self.cluster_id = r.nullable_string()
                elif tag == 1 and version >= 15:
                    self.replica_state = ReplicaState.read(r, version)
                else:
                    unknown.append((tag, r.rest()))
                r.close_tag(end)
            self.unknown_tagged_fields = tuple(unknown)
        return self

    def write(self, w: Writer, version: int) -> None:
        if version <= 14:
            w.int32(self.replica_id)
        elif self.replica_id != -1:
            raise absent("ReplicaId", version)
        w.int32(self.max_wait_ms)
        w.int32(self.min_bytes)
        w.int32(self.max_bytes)
        w.int8(self.isolation_level)
        if version >= 7:
            w.int32(self.session_id)
            w.int32(self.session_epoch)
        w.structs(self.topics, version)
        if version >= 7:
            w.structs(self.forgotten_topics_data, version)
        elif self.forgotten_topics_data:
            raise absent("ForgottenTopicsData", version)
        if version >= 11:
            w.string(self.rack_id)
        tags = list(self.unknown_tagged_fields)
        if version >= 12 and self.cluster_id is not None:
            t = Writer(flexible=True)
            t.nullable_string(self.cluster_id)
            tags.append((0, t.getvalue()))
        if version >= 15 and self.replica_state != ReplicaState():
            t = Writer(flexible=True)
            self.replica_state.write(t, version)
            tags.append((1, t.getvalue()))
        w.tags(tags)

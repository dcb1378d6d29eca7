"""ShareFetch: request (API key 78) and response, versions 1 to 2.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Self

from batchval.protocol.message import Records, Request, Response, Tags, absent
from batchval.protocol.message_class import message_class
from batchval.protocol.primitives import ZERO_UUID, Reader, Writer

__all__ = [
    "AcknowledgementBatch",
    "AcquiredRecords",
    "FetchPartition",
    "FetchTopic",
    "ForgottenTopic",
    "PartitionData",
    "ShareFetchLeaderIdAndEpoch",
    "ShareFetchNodeEndpoint",
    "ShareFetchRequest",
    "ShareFetchResponse",
    "ShareFetchableTopicResponse",
]


@message_class
class ShareFetchLeaderIdAndEpoch:
    """Of ShareFetchResponse, versions 1 to 2."""

    leader_id: int = 0
    leader_epoch: int = 0
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
class AcquiredRecords:
    """Of ShareFetchResponse, versions 1 to 2."""

    first_offset: int = 0
    last_offset: int = 0
    delivery_count: int = 0
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.first_offset = r.int64()
        self.last_offset = r.int64()
        self.delivery_count = r.int16()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int64(self.first_offset)
        w.int64(self.last_offset)
        w.int16(self.delivery_count)
        w.tags(self.unknown_tagged_fields)


@message_class
class PartitionData:
    """Of ShareFetchResponse, versions 1 to 2."""

    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = None
    acknowledge_error_code: int = 0
    acknowledge_error_message: str | None = None
    current_leader: ShareFetchLeaderIdAndEpoch = field(default_factory=ShareFetchLeaderIdAndEpoch)
    records: Records = b""
    acquired_records: list[AcquiredRecords] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.partition_index = r.int32()
        self.error_code = r.int16()
        self.error_message = r.nullable_string()
        self.acknowledge_error_code = r.int16()
        self.acknowledge_error_message = r.nullable_string()
        self.current_leader = ShareFetchLeaderIdAndEpoch.read(r, version)
        self.records = r.records()
        self.acquired_records = [AcquiredRecords.read(r, version) for _ in range(r.count())]
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int32(self.partition_index)
        w.int16(self.error_code)
        w.nullable_string(self.error_message)
        w.int16(self.acknowledge_error_code)
        w.nullable_string(self.acknowledge_error_message)
        self.current_leader.write(w, version)
        w.records(self.records)
        w.structs(self.acquired_records, version)
        w.tags(self.unknown_tagged_fields)


@message_class
class ShareFetchableTopicResponse:
    """Of ShareFetchResponse, versions 1 to 2."""

    topic_id: bytes = ZERO_UUID
    partitions: list[PartitionData] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.topic_id = r.uuid()
        self.partitions = [PartitionData.read(r, version) for _ in range(r.count())]
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.uuid(self.topic_id)
        w.structs(self.partitions, version)
        w.tags(self.unknown_tagged_fields)


@message_class
class ShareFetchNodeEndpoint:
    """Of ShareFetchResponse, versions 1 to 2."""

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
class ShareFetchResponse(Response):
    """Versions 1 to 2."""

    api_key: ClassVar[int] = 78

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: int = 0
    responses: list[ShareFetchableTopicResponse] = field(default_factory=list)
    node_endpoints: list[ShareFetchNodeEndpoint] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.throttle_time_ms = r.int32()
        self.error_code = r.int16()
        self.error_message = r.nullable_string()
        self.acquisition_lock_timeout_ms = r.int32()
        self.responses = [ShareFetchableTopicResponse.read(r, version) for _ in range(r.count())]
        self.node_endpoints = [ShareFetchNodeEndpoint.read(r, version) for _ in range(r.count())]
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int32(self.throttle_time_ms)
        w.int16(self.error_code)
        w.nullable_string(self.error_message)
        w.int32(self.acquisition_lock_timeout_ms)
        w.structs(self.responses, version)
        w.structs(self.node_endpoints, version)
        w.tags(self.unknown_tagged_fields)


@message_class
class AcknowledgementBatch:
    """Of ShareFetchRequest, versions 1 to 2."""

    first_offset: int = 0
    last_offset: int = 0
    acknowledge_types: list[int] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.first_offset = r.int64()
        self.last_offset = r.int64()
        self.acknowledge_types = [r.int8() for _ in range(r.count())]
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int64(self.first_offset)
        w.int64(self.last_offset)
        w.count(len(self.acknowledge_types))
        for one in self.acknowledge_types:
            w.int8(one)
        w.tags(self.unknown_tagged_fields)


@message_class
class FetchPartition:
    """Of ShareFetchRequest, versions 1 to 2."""

    partition_index: int = 0
    acknowledgement_batches: list[AcknowledgementBatch] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.partition_index = r.int32()
        self.acknowledgement_batches = [AcknowledgementBatch.read(r, version) for _ in range(r.count())]
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int32(self.partition_index)
        w.structs(self.acknowledgement_batches, version)
        w.tags(self.unknown_tagged_fields)


@message_class
class FetchTopic:
    """Of ShareFetchRequest, versions 1 to 2."""

    topic_id: bytes = ZERO_UUID
    partitions: list[FetchPartition] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.topic_id = r.uuid()
        self.partitions = [FetchPartition.read(r, version) for _ in range(r.count())]
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.uuid(self.topic_id)
        w.structs(self.partitions, version)
        w.tags(self.unknown_tagged_fields)


@message_class
class ForgottenTopic:
    """Of ShareFetchRequest, versions 1 to 2."""

    topic_id: bytes = ZERO_UUID
    partitions: list[int] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.topic_id = r.uuid()
        self.partitions = r.int32_array()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.uuid(self.topic_id)
        w.int32_array(self.partitions)
        w.tags(self.unknown_tagged_fields)


@message_class
class ShareFetchRequest(Request[ShareFetchResponse]):
    """Versions 1 to 2."""

    api_key: ClassVar[int] = 78
    response_class: ClassVar[type[ShareFetchResponse]] = ShareFetchResponse

    group_id: str | None = None
    member_id: str | None = ""
    share_session_epoch: int = 0
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 2147483647
    max_records: int = 0
    batch_size: int = 0
    share_acquire_mode: int = 0
    is_renew_ack: bool = False
    topics: list[FetchTopic] = field(default_factory=list)
    forgotten_topics_data: list[ForgottenTopic] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()
    api_version: int = field(kw_only=True)

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls(api_version=version)
        self.group_id = r.nullable_string()
        self.member_id = r.nullable_string()
        self.share_session_epoch = r.int32()
        self.max_wait_ms = r.int32()
        self.min_bytes = r.int32()
        self.max_bytes = r.int32()
        self.max_records = r.int32()
        self.batch_size = r.int32()
        if version >= 2:
            self.share_acquire_mode = r.int8()
            self.is_renew_ack = r.boolean()
        self.topics = [FetchTopic.read(r, version) for _ in range(r.count())]
        self.forgotten_topics_data = [ForgottenTopic.read(r, version) for _ in range(r.count())]
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.nullable_string(self.group_id)
        w.nullable_string(self.member_id)
        w.int32(self.share_session_epoch)
        w.int32(self.max_wait_ms)
        w.int32(self.min_bytes)
        w.int32(self.max_bytes)
        w.int32(self.max_records)
        w.int32(self.batch_size)
        if version >= 2:
            w.int8(self.share_acquire_mode)
            w.boolean(self.is_renew_ack)
        elif self.is_renew_ack:
            raise absent("IsRenewAck", version)
        w.structs(self.topics, version)
        w.structs(self.forgotten_topics_data, version)
        w.tags(self.unknown_tagged_fields)

"""ShareAcknowledge: request (API key 79) and response, versions 1 to 2.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Self

from batchval.protocol.message import Request, Response, Tags, absent
from batchval.protocol.message_class import message_class
from batchval.protocol.primitives import ZERO_UUID, Reader, Writer

__all__ = [
    "AcknowledgePartition",
    "AcknowledgeTopic",
    "AcknowledgementBatch",
    "PartitionData",
    "ShareAcknowledgeLeaderIdAndEpoch",
    "ShareAcknowledgeNodeEndpoint",
    "ShareAcknowledgeRequest",
    "ShareAcknowledgeResponse",
    "ShareAcknowledgeTopicResponse",
]


@message_class
class ShareAcknowledgeLeaderIdAndEpoch:
    """Of ShareAcknowledgeResponse, versions 1 to 2."""

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
class PartitionData:
    """Of ShareAcknowledgeResponse, versions 1 to 2."""

    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = None
    current_leader: ShareAcknowledgeLeaderIdAndEpoch = field(default_factory=ShareAcknowledgeLeaderIdAndEpoch)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.partition_index = r.int32()
        self.error_code = r.int16()
        self.error_message = r.nullable_string()
        self.current_leader = ShareAcknowledgeLeaderIdAndEpoch.read(r, version)
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int32(self.partition_index)
        w.int16(self.error_code)
        w.nullable_string(self.error_message)
        self.current_leader.write(w, version)
        w.tags(self.unknown_tagged_fields)


@message_class
class ShareAcknowledgeTopicResponse:
    """Of ShareAcknowledgeResponse, versions 1 to 2."""

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
class ShareAcknowledgeNodeEndpoint:
    """Of ShareAcknowledgeResponse, versions 1 to 2."""

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
class ShareAcknowledgeResponse(Response):
    """Versions 1 to 2."""

    api_key: ClassVar[int] = 79

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: int = 0
    responses: list[ShareAcknowledgeTopicResponse] = field(default_factory=list)
    node_endpoints: list[ShareAcknowledgeNodeEndpoint] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.throttle_time_ms = r.int32()
        self.error_code = r.int16()
        self.error_message = r.nullable_string()
        if version >= 2:
            self.acquisition_lock_timeout_ms = r.int32()
        self.responses = [ShareAcknowledgeTopicResponse.read(r, version) for _ in range(r.count())]
        self.node_endpoints = [ShareAcknowledgeNodeEndpoint.read(r, version) for _ in range(r.count())]
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int32(self.throttle_time_ms)
        w.int16(self.error_code)
        w.nullable_string(self.error_message)
        if version >= 2:
            w.int32(self.acquisition_lock_timeout_ms)
        w.structs(self.responses, version)
        w.structs(self.node_endpoints, version)
        w.tags(self.unknown_tagged_fields)


@message_class
class AcknowledgementBatch:
    """Of ShareAcknowledgeRequest, versions 1 to 2."""

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
class AcknowledgePartition:
    """Of ShareAcknowledgeRequest, versions 1 to 2."""

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
class AcknowledgeTopic:
    """Of ShareAcknowledgeRequest, versions 1 to 2."""

    topic_id: bytes = ZERO_UUID
    partitions: list[AcknowledgePartition] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.topic_id = r.uuid()
        self.partitions = [AcknowledgePartition.read(r, version) for _ in range(r.count())]
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.uuid(self.topic_id)
        w.structs(self.partitions, version)
        w.tags(self.unknown_tagged_fields)


@message_class
class ShareAcknowledgeRequest(Request[ShareAcknowledgeResponse]):
    """Versions 1 to 2."""

    api_key: ClassVar[int] = 79
    response_class: ClassVar[type[ShareAcknowledgeResponse]] = ShareAcknowledgeResponse

    group_id: str | None = None
    member_id: str | None = ""
    share_session_epoch: int = 0
    is_renew_ack: bool = False
    topics: list[AcknowledgeTopic] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()
    api_version: int = field(kw_only=True)

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls(api_version=version)
        self.group_id = r.nullable_string()
        self.member_id = r.nullable_string()
        self.share_session_epoch = r.int32()
        if version >= 2:
            self.is_renew_ack = r.boolean()
        self.topics = [AcknowledgeTopic.read(r, version) for _ in range(r.count())]
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.nullable_string(self.group_id)
        w.nullable_string(self.member_id)
        w.int32(self.share_session_epoch)
        if version >= 2:
            w.boolean(self.is_renew_ack)
        elif self.is_renew_ack:
            raise absent("IsRenewAck", version)
        w.structs(self.topics, version)
        w.tags(self.unknown_tagged_fields)

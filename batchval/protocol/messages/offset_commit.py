"""OffsetCommit: request (API key 8) and response, versions 2 to 10.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Self

from batchval.protocol.message import Request, Response, Tags, absent
from batchval.protocol.message_class import message_class
from batchval.protocol.primitives import ZERO_UUID, Reader, Writer

__all__ = [
    "OffsetCommitRequest",
    "OffsetCommitRequestPartition",
    "OffsetCommitRequestTopic",
    "OffsetCommitResponse",
    "OffsetCommitResponsePartition",
    "OffsetCommitResponseTopic",
]


@message_class
class OffsetCommitResponsePartition:
    """Of OffsetCommitResponse, versions 2 to 10."""

    partition_index: int = 0
    error_code: int = 0
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.partition_index = r.int32()
        self.error_code = r.int16()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int32(self.partition_index)
        w.int16(self.error_code)
        w.tags(self.unknown_tagged_fields)


@message_class
class OffsetCommitResponseTopic:
    """Of OffsetCommitResponse, versions 2 to 10."""

    name: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: list[OffsetCommitResponsePartition] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        if version <= 9:
            self.name = r.string()
        if version >= 10:
            self.topic_id = r.uuid()
        self.partitions = [OffsetCommitResponsePartition.read(r, version) for _ in range(r.count())]
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        if version <= 9:
            w.string(self.name)
        if version >= 10:
            w.uuid(self.topic_id)
        w.structs(self.partitions, version)
        w.tags(self.unknown_tagged_fields)


@message_class
class OffsetCommitResponse(Response):
    """Versions 2 to 10."""

    api_key: ClassVar[int] = 8

    throttle_time_ms: int = 0
    topics: list[OffsetCommitResponseTopic] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        if version >= 3:
            self.throttle_time_ms = r.int32()
        self.topics = [OffsetCommitResponseTopic.read(r, version) for _ in range(r.count())]
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        if version >= 3:
            w.int32(self.throttle_time_ms)
        w.structs(self.topics, version)
        w.tags(self.unknown_tagged_fields)


@message_class
class OffsetCommitRequestPartition:
    """Of OffsetCommitRequest, versions 2 to 10."""

    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    committed_metadata: str | None = ""
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.partition_index = r.int32()
        self.committed_offset = r.int64()
        if version >= 6:
            self.committed_leader_epoch = r.int32()
        self.committed_metadata = r.nullable_string()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int32(self.partition_index)
        w.int64(self.committed_offset)
        if version >= 6:
            w.int32(self.committed_leader_epoch)
        w.nullable_string(self.committed_metadata)
        w.tags(self.unknown_tagged_fields)


@message_class
class OffsetCommitRequestTopic:
    """Of OffsetCommitRequest, versions 2 to 10."""

    name: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: list[OffsetCommitRequestPartition] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        if version <= 9:
            self.name = r.string()
        if version >= 10:
            self.topic_id = r.uuid()
        self.partitions = [OffsetCommitRequestPartition.read(r, version) for _ in range(r.count())]
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        if version <= 9:
            w.string(self.name)
        if version >= 10:
            w.uuid(self.topic_id)
        w.structs(self.partitions, version)
        w.tags(self.unknown_tagged_fields)


@message_class
class OffsetCommitRequest(Request[OffsetCommitResponse]):
    """Versions 2 to 10."""

    api_key: ClassVar[int] = 8
    response_class: ClassVar[type[OffsetCommitResponse]] = OffsetCommitResponse

    group_id: str = ""
    generation_id_or_member_epoch: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    retention_time_ms: int = -1
    topics: list[OffsetCommitRequestTopic] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()
    api_version: int = field(kw_only=True)

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls(api_version=version)
        self.group_id = r.string()
        self.generation_id_or_member_epoch = r.int32()
        self.member_id = r.string()
        if version >= 7:
            self.group_instance_id = r.nullable_string()
        if version <= 4:
            self.retention_time_ms = r.int64()
        self.topics = [OffsetCommitRequestTopic.read(r, version) for _ in range(r.count())]
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.string(self.group_id)
        w.int32(self.generation_id_or_member_epoch)
        w.string(self.member_id)
        if version >= 7:
            w.nullable_string(self.group_instance_id)
        elif self.group_instance_id is not None:
            raise absent("GroupInstanceId", version)
        if version <= 4:
            w.int64(self.retention_time_ms)
        w.structs(self.topics, version)
        w.tags(self.unknown_tagged_fields)

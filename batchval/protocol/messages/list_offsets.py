"""ListOffsets: request (API key 2) and response, versions 1 to 11.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Self

from batchval.protocol.message import Request, Response, Tags, absent
from batchval.protocol.message_class import message_class
from batchval.protocol.primitives import Reader, Writer

__all__ = [
    "ListOffsetsPartition",
    "ListOffsetsPartitionResponse",
    "ListOffsetsRequest",
    "ListOffsetsResponse",
    "ListOffsetsTopic",
    "ListOffsetsTopicResponse",
]


@message_class
class ListOffsetsPartitionResponse:
    """Of ListOffsetsResponse, versions 1 to 11."""

    partition_index: int = 0
    error_code: int = 0
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.partition_index = r.int32()
        self.error_code = r.int16()
        self.timestamp = r.int64()
        self.offset = r.int64()
        if version >= 4:
            self.leader_epoch = r.int32()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int32(self.partition_index)
        w.int16(self.error_code)
        w.int64(self.timestamp)
        w.int64(self.offset)
        if version >= 4:
            w.int32(self.leader_epoch)
        elif self.leader_epoch != -1:
            raise absent("LeaderEpoch", version)
        w.tags(self.unknown_tagged_fields)


@message_class
class ListOffsetsTopicResponse:
    """Of ListOffsetsResponse, versions 1 to 11."""

    name: str = ""
    partitions: list[ListOffsetsPartitionResponse] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.name = r.string()
        self.partitions = [ListOffsetsPartitionResponse.read(r, version) for _ in range(r.count())]
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.string(self.name)
        w.structs(self.partitions, version)
        w.tags(self.unknown_tagged_fields)


@message_class
class ListOffsetsResponse(Response):
    """Versions 1 to 11."""

    api_key: ClassVar[int] = 2

    throttle_time_ms: int = 0
    topics: list[ListOffsetsTopicResponse] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        if version >= 2:
            self.throttle_time_ms = r.int32()
        self.topics = [ListOffsetsTopicResponse.read(r, version) for _ in range(r.count())]
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        if version >= 2:
            w.int32(self.throttle_time_ms)
        w.structs(self.topics, version)
        w.tags(self.unknown_tagged_fields)


@message_class
class ListOffsetsPartition:
    """Of ListOffsetsRequest, versions 1 to 11."""

    partition_index: int = 0
    current_leader_epoch: int = -1
    timestamp: int = 0
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.partition_index = r.int32()
        if version >= 4:
            self.current_leader_epoch = r.int32()
        self.timestamp = r.int64()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int32(self.partition_index)
        if version >= 4:
            w.int32(self.current_leader_epoch)
        w.int64(self.timestamp)
        w.tags(self.unknown_tagged_fields)


@message_class
class ListOffsetsTopic:
    """Of ListOffsetsRequest, versions 1 to 11."""

    name: str = ""
    partitions: list[ListOffsetsPartition] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.name = r.string()
        self.partitions = [ListOffsetsPartition.read(r, version) for _ in range(r.count())]
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.string(self.name)
        w.structs(self.partitions, version)
        w.tags(self.unknown_tagged_fields)


@message_class
class ListOffsetsRequest(Request[ListOffsetsResponse]):
    """Versions 1 to 11."""

    api_key: ClassVar[int] = 2
    response_class: ClassVar[type[ListOffsetsResponse]] = ListOffsetsResponse

    replica_id: int = 0
    isolation_level: int = 0
    topics: list[ListOffsetsTopic] = field(default_factory=list)
    timeout_ms: int = 0
    unknown_tagged_fields: Tags = ()
    api_version: int = field(kw_only=True)

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls(api_version=version)
        self.replica_id = r.int32()
        if version >= 2:
            self.isolation_level = r.int8()
        self.topics = [ListOffsetsTopic.read(r, version) for _ in range(r.count())]
        if version >= 10:
            self.timeout_ms = r.int32()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int32(self.replica_id)
        if version >= 2:
            w.int8(self.isolation_level)
        elif self.isolation_level != 0:
            raise absent("IsolationLevel", version)
        w.structs(self.topics, version)
        if version >= 10:
            w.int32(self.timeout_ms)
        w.tags(self.unknown_tagged_fields)

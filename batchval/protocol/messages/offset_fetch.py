"""OffsetFetch: request (API key 9) and response, versions 1 to 10.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Self

from batchval.protocol.message import Request, Response, Tags, absent
from batchval.protocol.message_class import message_class
from batchval.protocol.primitives import ZERO_UUID, Reader, Writer

__all__ = [
    "OffsetFetchRequest",
    "OffsetFetchRequestGroup",
    "OffsetFetchRequestTopic",
    "OffsetFetchRequestTopics",
    "OffsetFetchResponse",
    "OffsetFetchResponseGroup",
    "OffsetFetchResponsePartition",
    "OffsetFetchResponsePartitions",
    "OffsetFetchResponseTopic",
    "OffsetFetchResponseTopics",
]


@message_class
class OffsetFetchResponsePartition:
    """Of OffsetFetchResponse, versions 1 to 7."""

    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    metadata: str | None = ""
    error_code: int = 0
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.partition_index = r.int32()
        self.committed_offset = r.int64()
        if version >= 5:
            self.committed_leader_epoch = r.int32()
        self.metadata = r.nullable_string()
        self.error_code = r.int16()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int32(self.partition_index)
        w.int64(self.committed_offset)
        if version >= 5:
            w.int32(self.committed_leader_epoch)
        w.nullable_string(self.metadata)
        w.int16(self.error_code)
        w.tags(self.unknown_tagged_fields)


@message_class
class OffsetFetchResponseTopic:
    """Of OffsetFetchResponse, versions 1 to 7."""

    name: str = ""
    partitions: list[OffsetFetchResponsePartition] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.name = r.string()
        self.partitions = [OffsetFetchResponsePartition.read(r, version) for _ in range(r.count())]
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.string(self.name)
        w.structs(self.partitions, version)
        w.tags(self.unknown_tagged_fields)


@message_class
class OffsetFetchResponsePartitions:
    """Of OffsetFetchResponse, versions 8 to 10."""

    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    metadata: str | None = ""
    error_code: int = 0
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.partition_index = r.int32()
        self.committed_offset = r.int64()
        self.committed_leader_epoch = r.int32()
        self.metadata = r.nullable_string()
        self.error_code = r.int16()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int32(self.partition_index)
        w.int64(self.committed_offset)
        w.int32(self.committed_leader_epoch)
        w.nullable_string(self.metadata)
        w.int16(self.error_code)
        w.tags(self.unknown_tagged_fields)


@message_class
class OffsetFetchResponseTopics:
    """Of OffsetFetchResponse, versions 8 to 10."""

    name: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: list[OffsetFetchResponsePartitions] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        if version <= 9:
            self.name = r.string()
        if version >= 10:
            self.topic_id = r.uuid()
        self.partitions = [OffsetFetchResponsePartitions.read(r, version) for _ in range(r.count())]
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
class OffsetFetchResponseGroup:
    """Of OffsetFetchResponse, versions 8 to 10."""

    group_id: str = ""
    topics: list[OffsetFetchResponseTopics] = field(default_factory=list)
    error_code: int = 0
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.group_id = r.string()
        self.topics = [OffsetFetchResponseTopics.read(r, version) for _ in range(r.count())]
        self.error_code = r.int16()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.string(self.group_id)
        w.structs(self.topics, version)
        w.int16(self.error_code)
        w.tags(self.unknown_tagged_fields)


@message_class
class OffsetFetchResponse(Response):
    """Versions 1 to 10."""

    api_key: ClassVar[int] = 9

    throttle_time_ms: int = 0
    topics: list[OffsetFetchResponseTopic] = field(default_factory=list)
    error_code: int = 0
    groups: list[OffsetFetchResponseGroup] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        if version >= 3:
            self.throttle_time_ms = r.int32()
        if version <= 7:
            self.topics = [OffsetFetchResponseTopic.read(r, version) for _ in range(r.count())]
        if 2 <= version <= 7:
            self.error_code = r.int16()
        if version >= 8:
            self.groups = [OffsetFetchResponseGroup.read(r, version) for _ in range(r.count())]
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        if version >= 3:
            w.int32(self.throttle_time_ms)
        if version <= 7:
            w.structs(self.topics, version)
        elif self.topics:
            raise absent("Topics", version)
        if 2 <= version <= 7:
            w.int16(self.error_code)
        if version >= 8:
            w.structs(self.groups, version)
        elif self.groups:
            raise absent("Groups", version)
        w.tags(self.unknown_tagged_fields)


@message_class
class OffsetFetchRequestTopic:
    """Of OffsetFetchRequest, versions 1 to 7."""

    name: str = ""
    partition_indexes: list[int] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.name = r.string()
        self.partition_indexes = r.int32_array()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.string(self.name)
        w.int32_array(self.partition_indexes)
        w.tags(self.unknown_tagged_fields)


@message_class
class OffsetFetchRequestTopics:
    """Of OffsetFetchRequest, versions 8 to 10."""

    name: str = ""
    topic_id: bytes = ZERO_UUID
    partition_indexes: list[int] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        if version <= 9:
            self.name = r.string()
        if version >= 10:
            self.topic_id = r.uuid()
        self.partition_indexes = r.int32_array()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        if version <= 9:
            w.string(self.name)
        if version >= 10:
            w.uuid(self.topic_id)
        w.int32_array(self.partition_indexes)
        w.tags(self.unknown_tagged_fields)


@message_class
class OffsetFetchRequestGroup:
    """Of OffsetFetchRequest, versions 8 to 10."""

    group_id: str = ""
    member_id: str | None = None
    member_epoch: int = -1
    topics: list[OffsetFetchRequestTopics] | None = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.group_id = r.string()
        if version >= 9:
            self.member_id = r.nullable_string()
            self.member_epoch = r.int32()
        n = r.nullable_count()
        self.topics = None if n < 0 else [OffsetFetchRequestTopics.read(r, version) for _ in range(n)]
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.string(self.group_id)
        if version >= 9:
            w.nullable_string(self.member_id)
            w.int32(self.member_epoch)
        w.nullable_structs(self.topics, version)
        w.tags(self.unknown_tagged_fields)


@message_class
class OffsetFetchRequest(Request[OffsetFetchResponse]):
    """Versions 1 to 10."""

    api_key: ClassVar[int] = 9
    response_class: ClassVar[type[OffsetFetchResponse]] = OffsetFetchResponse

    group_id: str = ""
    topics: list[OffsetFetchRequestTopic] | None = field(default_factory=list)
    groups: list[OffsetFetchRequestGroup] = field(default_factory=list)
    require_stable: bool = False
    unknown_tagged_fields: Tags = ()
    api_version: int = field(kw_only=True)

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls(api_version=version)
        if version <= 7:
            self.group_id = r.string()
            n = r.nullable_count() if version >= 2 else r.count()
            self.topics = None if n < 0 else [OffsetFetchRequestTopic.read(r, version) for _ in range(n)]
        if version >= 8:
            self.groups = [OffsetFetchRequestGroup.read(r, version) for _ in range(r.count())]
        if version >= 7:
            self.require_stable = r.boolean()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        if version <= 7:
            w.string(self.group_id)
            if self.topics is None and not version >= 2:
                raise absent("Topics null", version)
            w.nullable_structs(self.topics, version)
        elif self.group_id:
            raise absent("GroupId", version)
        elif self.topics:
            raise absent("Topics", version)
        if version >= 8:
            w.structs(self.groups, version)
        elif self.groups:
            raise absent("Groups", version)
        if version >= 7:
            w.boolean(self.require_stable)
        elif self.require_stable:
            raise absent("RequireStable", version)
        w.tags(self.unknown_tagged_fields)

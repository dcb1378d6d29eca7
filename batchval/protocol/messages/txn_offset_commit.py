"""TxnOffsetCommit: request (API key 28) and response, versions 0 to 6.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Self

from batchval.protocol.message import Request, Response, Tags, absent
from batchval.protocol.message_class import message_class
from batchval.protocol.primitives import ZERO_UUID, Reader, Writer

__all__ = [
    "TxnOffsetCommitRequest",
    "TxnOffsetCommitRequestPartition",
    "TxnOffsetCommitRequestTopic",
    "TxnOffsetCommitResponse",
    "TxnOffsetCommitResponsePartition",
    "TxnOffsetCommitResponseTopic",
]


@message_class
class TxnOffsetCommitResponsePartition:
    """Of TxnOffsetCommitResponse, versions 0 to 6."""

    partition_index: int = 0
    error_code: int = 0
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.partition_index = r.int32()
        self.error_code = r.int16()
        if version >= 3:
            self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int32(self.partition_index)
        w.int16(self.error_code)
        if version >= 3:
            w.tags(self.unknown_tagged_fields)
        elif self.unknown_tagged_fields:
            raise absent("a tagged field", version)


@message_class
class TxnOffsetCommitResponseTopic:
    """Of TxnOffsetCommitResponse, versions 0 to 6."""

    name: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: list[TxnOffsetCommitResponsePartition] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        if version <= 5:
            self.name = r.string()
        if version >= 6:
            self.topic_id = r.uuid()
        self.partitions = [TxnOffsetCommitResponsePartition.read(r, version) for _ in range(r.count())]
        if version >= 3:
            self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        if version <= 5:
            w.string(self.name)
        if version >= 6:
            w.uuid(self.topic_id)
        w.count(len(self.partitions))
        for partition in self.partitions:
            partition.write(w, version)
        if version >= 3:
            w.tags(self.unknown_tagged_fields)
        elif self.unknown_tagged_fields:
            raise absent("a tagged field", version)


@message_class
class TxnOffsetCommitResponse(Response):
    """Versions 0 to 6."""

    api_key: ClassVar[int] = 28
    min_version: ClassVar[int] = 0
    max_version: ClassVar[int] = 6
    flexible_from: ClassVar[int] = 3

    throttle_time_ms: int = 0
    topics: list[TxnOffsetCommitResponseTopic] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.throttle_time_ms = r.int32()
        self.topics = [TxnOffsetCommitResponseTopic.read(r, version) for _ in range(r.count())]
        if version >= 3:
            self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int32(self.throttle_time_ms)
        w.count(len(self.topics))
        for topic in self.topics:
            topic.write(w, version)
        if version >= 3:
            w.tags(self.unknown_tagged_fields)
        elif self.unknown_tagged_fields:
            raise absent("a tagged field", version)


@message_class
class TxnOffsetCommitRequestPartition:
    """Of TxnOffsetCommitRequest, versions 0 to 6."""

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
        if version >= 2:
            self.committed_leader_epoch = r.int32()
        self.committed_metadata = r.nullable_string()
        if version >= 3:
            self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int32(self.partition_index)
        w.int64(self.committed_offset)
        if version >= 2:
            w.int32(self.committed_leader_epoch)
        w.nullable_string(self.committed_metadata)
        if version >= 3:
            w.tags(self.unknown_tagged_fields)
        elif self.unknown_tagged_fields:
            raise absent("a tagged field", version)


@message_class
class TxnOffsetCommitRequestTopic:
    """Of TxnOffsetCommitRequest, versions 0 to 6."""

    name: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: list[TxnOffsetCommitRequestPartition] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        if version <= 5:
            self.name = r.string()
        if version >= 6:
            self.topic_id = r.uuid()
        self.partitions = [TxnOffsetCommitRequestPartition.read(r, version) for _ in range(r.count())]
        if version >= 3:
            self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        if version <= 5:
            w.string(self.name)
        if version >= 6:
            w.uuid(self.topic_id)
        w.count(len(self.partitions))
        for partition in self.partitions:
            partition.write(w, version)
        if version >= 3:
            w.tags(self.unknown_tagged_fields)
        elif self.unknown_tagged_fields:
            raise absent("a tagged field", version)


@message_class
class TxnOffsetCommitRequest(Request[TxnOffsetCommitResponse]):
    """Versions 0 to 6."""

    api_key: ClassVar[int] = 28
    min_version: ClassVar[int] = 0
    max_version: ClassVar[int] = 6
    flexible_from: ClassVar[int] = 3
    response_class: ClassVar[type[TxnOffsetCommitResponse]] = TxnOffsetCommitResponse

    transactional_id: str = ""
    group_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    generation_id_or_member_epoch: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    topics: list[TxnOffsetCommitRequestTopic] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()
    api_version: int = field(kw_only=True)

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls(api_version=version)
        self.transactional_id = r.string()
        self.group_id = r.string()
        self.producer_id = r.int64()
        self.producer_epoch = r.int16()
        if version >= 3:
            self.generation_id_or_member_epoch = r.int32()
        if version >= 3:
            self.member_id = r.string()
        if version >= 3:
            self.group_instance_id = r.nullable_string()
        self.topics = [TxnOffsetCommitRequestTopic.read(r, version) for _ in range(r.count())]
        if version >= 3:
            self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.string(self.transactional_id)
        w.string(self.group_id)
        w.int64(self.producer_id)
        w.int16(self.producer_epoch)
        if version >= 3:
            w.int32(self.generation_id_or_member_epoch)
        elif self.generation_id_or_member_epoch != -1:
            raise absent("GenerationIdOrMemberEpoch", version)
        if version >= 3:
            w.string(self.member_id)
        elif self.member_id:
            raise absent("MemberId", version)
        if version >= 3:
            w.nullable_string(self.group_instance_id)
        elif self.group_instance_id is not None:
            raise absent("GroupInstanceId", version)
        w.count(len(self.topics))
        for topic in self.topics:
            topic.write(w, version)
        if version >= 3:
            w.tags(self.unknown_tagged_fields)
        elif self.unknown_tagged_fields:
            raise absent("a tagged field", version)

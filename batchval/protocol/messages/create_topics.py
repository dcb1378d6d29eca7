"""CreateTopics: request (API key 19) and response, versions 2 to 7.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Self

from batchval.protocol.message import Request, Response, Tags
from batchval.protocol.message_class import message_class
from batchval.protocol.primitives import ZERO_UUID, Reader, Writer

__all__ = [
    "CreatableReplicaAssignment",
    "CreatableTopic",
    "CreatableTopicConfig",
    "CreatableTopicConfigs",
    "CreatableTopicResult",
    "CreateTopicsRequest",
    "CreateTopicsResponse",
]


@message_class
class CreatableTopicConfigs:
    """Of CreateTopicsResponse, versions 5 to 7."""

    name: str = ""
    value: str | None = ""
    read_only: bool = False
    config_source: int = -1
    is_sensitive: bool = False
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.name = r.string()
        self.value = r.nullable_string()
        self.read_only = r.boolean()
        self.config_source = r.int8()
        self.is_sensitive = r.boolean()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.string(self.name)
        w.nullable_string(self.value)
        w.boolean(self.read_only)
        w.int8(self.config_source)
        w.boolean(self.is_sensitive)
        w.tags(self.unknown_tagged_fields)


@message_class
class CreatableTopicResult:
    """Of CreateTopicsResponse, versions 2 to 7."""

    name: str = ""
    topic_id: bytes = ZERO_UUID
    error_code: int = 0
    error_message: str | None = ""
    topic_config_error_code: int = 0
    num_partitions: int = -1
    replication_factor: int = -1
    configs: list[CreatableTopicConfigs] | None = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.name = r.string()
        if version >= 7:
            self.topic_id = r.uuid()
        self.error_code = r.int16()
        self.error_message = r.nullable_string()
        if version >= 5:
            self.num_partitions = r.int32()
            self.replication_factor = r.int16()
            n = r.nullable_count()
            self.configs = None if n < 0 else [CreatableTopicConfigs.read(r, version) for _ in range(n)]
        if version >= 5:
            unknown = []
            for _ in range(r.tag_count()):
                tag, end = r.open_tag()
                if tag == 0:
                    self.topic_config_error_code = r.int16()
                else:
                    unknown.append((tag, r.rest()))
                r.close_tag(end)
            self.unknown_tagged_fields = tuple(unknown)
        return self

    def write(self, w: Writer, version: int) -> None:
        w.string(self.name)
        if version >= 7:
            w.uuid(self.topic_id)
        w.int16(self.error_code)
        w.nullable_string(self.error_message)
        if version >= 5:
            w.int32(self.num_partitions)
            w.int16(self.replication_factor)
            w.nullable_structs(self.configs, version)
        tags = list(self.unknown_tagged_fields)
        if version >= 5 and self.topic_config_error_code != 0:
            t = Writer(flexible=True)
            t.int16(self.topic_config_error_code)
            tags.append((0, t.getvalue()))
        w.tags(tags)


@message_class
class CreateTopicsResponse(Response):
    """Versions 2 to 7."""

    api_key: ClassVar[int] = 19

    throttle_time_ms: int = 0
    topics: list[CreatableTopicResult] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.throttle_time_ms = r.int32()
        self.topics = [CreatableTopicResult.read(r, version) for _ in range(r.count())]
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int32(self.throttle_time_ms)
        w.structs(self.topics, version)
        w.tags(self.unknown_tagged_fields)


@message_class
class CreatableReplicaAssignment:
    """Of CreateTopicsRequest, versions 2 to 7."""

    partition_index: int = 0
    broker_ids: list[int] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.partition_index = r.int32()
        self.broker_ids = r.int32_array()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int32(self.partition_index)
        w.int32_array(self.broker_ids)
        w.tags(self.unknown_tagged_fields)


@message_class
class CreatableTopicConfig:
    """Of CreateTopicsRequest, versions 2 to 7."""

    name: str = ""
    value: str | None = ""
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.name = r.string()
        self.value = r.nullable_string()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.string(self.name)
        w.nullable_string(self.value)
        w.tags(self.unknown_tagged_fields)


@message_class
class CreatableTopic:
    """Of CreateTopicsRequest, versions 2 to 7."""

    name: str = ""
    num_partitions: int = 0
    replication_factor: int = 0
    assignments: list[CreatableReplicaAssignment] = field(default_factory=list)
    configs: list[CreatableTopicConfig] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.name = r.string()
        self.num_partitions = r.int32()
        self.replication_factor = r.int16()
        self.assignments = [CreatableReplicaAssignment.read(r, version) for _ in range(r.count())]
        self.configs = [CreatableTopicConfig.read(r, version) for _ in range(r.count())]
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.string(self.name)
        w.int32(self.num_partitions)
        w.int16(self.replication_factor)
        w.structs(self.assignments, version)
        w.structs(self.configs, version)
        w.tags(self.unknown_tagged_fields)


@message_class
class CreateTopicsRequest(Request[CreateTopicsResponse]):
    """Versions 2 to 7."""

    api_key: ClassVar[int] = 19
    response_class: ClassVar[type[CreateTopicsResponse]] = CreateTopicsResponse

    topics: list[CreatableTopic] = field(default_factory=list)
    timeout_ms: int = 60000
    validate_only: bool = False
    unknown_tagged_fields: Tags = ()
    api_version: int = field(kw_only=True)

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls(api_version=version)
        self.topics = [CreatableTopic.read(r, version) for _ in range(r.count())]
        self.timeout_ms = r.int32()
        self.validate_only = r.boolean()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.structs(self.topics, version)
        w.int32(self.timeout_ms)
        w.boolean(self.validate_only)
        w.tags(self.unknown_tagged_fields)

"""Metadata: request (API key 3) and response, versions 0 to 13.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Self

from batchval.protocol.message import Request, Response, Tags, absent
from batchval.protocol.message_class import message_class
from batchval.protocol.primitives import ZERO_UUID, Reader, Writer

__all__ = [
    "MetadataRequest",
    "MetadataRequestTopic",
    "MetadataResponse",
    "MetadataResponseBroker",
    "MetadataResponsePartition",
    "MetadataResponseTopic",
]


@message_class
class MetadataResponseBroker:
    """Of MetadataResponse, versions 0 to 13."""

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
        if version >= 1:
            self.rack = r.nullable_string()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int32(self.node_id)
        w.string(self.host)
        w.int32(self.port)
        if version >= 1:
            w.nullable_string(self.rack)
        w.tags(self.unknown_tagged_fields)


@message_class
class MetadataResponsePartition:
    """Of MetadataResponse, versions 0 to 13."""

    error_code: int = 0
    partition_index: int = 0
    leader_id: int = 0
    leader_epoch: int = -1
    replica_nodes: list[int] = field(default_factory=list)
    isr_nodes: list[int] = field(default_factory=list)
    offline_replicas: list[int] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.error_code = r.int16()
        self.partition_index = r.int32()
        self.leader_id = r.int32()
        if version >= 7:
            self.leader_epoch = r.int32()
        self.replica_nodes = r.int32_array()
        self.isr_nodes = r.int32_array()
        if version >= 5:
            self.offline_replicas = r.int32_array()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int16(self.error_code)
        w.int32(self.partition_index)
        w.int32(self.leader_id)
        if version >= 7:
            w.int32(self.leader_epoch)
        w.int32_array(self.replica_nodes)
        w.int32_array(self.isr_nodes)
        if version >= 5:
            w.int32_array(self.offline_replicas)
        w.tags(self.unknown_tagged_fields)


@message_class
class MetadataResponseTopic:
    """Of MetadataResponse, versions 0 to 13."""

    error_code: int = 0
    name: str | None = ""
    topic_id: bytes = ZERO_UUID
    is_internal: bool = False
    partitions: list[MetadataResponsePartition] = field(default_factory=list)
    topic_authorized_operations: int = -2147483648
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.error_code = r.int16()
        self.name = r.nullable_string() if version >= 12 else r.string()
        if version >= 10:
            self.topic_id = r.uuid()
        if version >= 1:
            self.is_internal = r.boolean()
        self.partitions = [MetadataResponsePartition.read(r, version) for _ in range(r.count())]
        if version >= 8:
            self.topic_authorized_operations = r.int32()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int16(self.error_code)
        (w.nullable_string if version >= 12 else w.string)(self.name)
        if version >= 10:
            w.uuid(self.topic_id)
        if version >= 1:
            w.boolean(self.is_internal)
        w.structs(self.partitions, version)
        if version >= 8:
            w.int32(self.topic_authorized_operations)
        elif self.topic_authorized_operations != -2147483648:
            raise absent("TopicAuthorizedOperations", version)
        w.tags(self.unknown_tagged_fields)


@message_class
class MetadataResponse(Response):
    """Versions 0 to 13."""

    api_key: ClassVar[int] = 3

    throttle_time_ms: int = 0
    brokers: list[MetadataResponseBroker] = field(default_factory=list)
    cluster_id: str | None = None
    controller_id: int = -1
    topics: list[MetadataResponseTopic] = field(default_factory=list)
    cluster_authorized_operations: int = -2147483648
    error_code: int = 0
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        if version >= 3:
            self.throttle_time_ms = r.int32()
        self.brokers = [MetadataResponseBroker.read(r, version) for _ in range(r.count())]
        if version >= 2:
            self.cluster_id = r.nullable_string()
        if version >= 1:
            self.controller_id = r.int32()
        self.topics = [MetadataResponseTopic.read(r, version) for _ in range(r.count())]
        if 8 <= version <= 10:
            self.cluster_authorized_operations = r.int32()
        if version >= 13:
            self.error_code = r.int16()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        if version >= 3:
            w.int32(self.throttle_time_ms)
        w.structs(self.brokers, version)
        if version >= 2:
            w.nullable_string(self.cluster_id)
        if version >= 1:
            w.int32(self.controller_id)
        w.structs(self.topics, version)
        if 8 <= version <= 10:
            w.int32(self.cluster_authorized_operations)
        elif self.cluster_authorized_operations != -2147483648:
            raise absent("ClusterAuthorizedOperations", version)
        if version >= 13:
            w.int16(self.error_code)
        w.tags(self.unknown_tagged_fields)


@message_class
class MetadataRequestTopic:
    """Of MetadataRequest, versions 0 to 13."""

    topic_id: bytes = ZERO_UUID
    name: str | None = ""
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        if version >= 10:
            self.topic_id = r.uuid()
        self.name = r.nullable_string() if version >= 10 else r.string()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        if version >= 10:
            w.uuid(self.topic_id)
        (w.nullable_string if version >= 10 else w.string)(self.name)
        w.tags(self.unknown_tagged_fields)


@message_class
class MetadataRequest(Request[MetadataResponse]):
    """Versions 0 to 13."""

    api_key: ClassVar[int] = 3
    response_class: ClassVar[type[MetadataResponse]] = MetadataResponse

    topics: list[MetadataRequestTopic] | None = field(default_factory=list)
    allow_auto_topic_creation: bool = True
    include_cluster_authorized_operations: bool = False
    include_topic_authorized_operations: bool = False
    unknown_tagged_fields: Tags = ()
    api_version: int = field(kw_only=True)

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls(api_version=version)
        n = r.nullable_count() if version >= 1 else r.count()
        self.topics = None if n < 0 else [MetadataRequestTopic.read(r, version) for _ in range(n)]
        if version >= 4:
            self.allow_auto_topic_creation = r.boolean()
        if 8 <= version <= 10:
            self.include_cluster_authorized_operations = r.boolean()
        if version >= 8:
            self.include_topic_authorized_operations = r.boolean()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        if self.topics is None and not version >= 1:
            raise absent("Topics null", version)
        w.nullable_structs(self.topics, version)
        if version >= 4:
            w.boolean(self.allow_auto_topic_creation)
        elif not self.allow_auto_topic_creation:
            raise absent("AllowAutoTopicCreation", version)
        if 8 <= version <= 10:
            w.boolean(self.include_cluster_authorized_operations)
        elif self.include_cluster_authorized_operations:
            raise absent("IncludeClusterAuthorizedOperations", version)
        if version >= 8:
            w.boolean(self.include_topic_authorized_operations)
        elif self.include_topic_authorized_operations:
            raise absent("IncludeTopicAuthorizedOperations", version)
        w.tags(self.unknown_tagged_fields)

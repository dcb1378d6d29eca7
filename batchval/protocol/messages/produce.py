"""Produce: request (API key 0) and response, versions 3 to 13.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Self

from batchval.protocol.message import Records, Request, Response, Tags
from batchval.protocol.message_class import message_class
from batchval.protocol.primitives import ZERO_UUID, Reader, Writer

__all__ = [
    "BatchIndexAndErrorMessage",
    "PartitionProduceData",
    "PartitionProduceResponse",
    "ProduceLeaderIdAndEpoch",
    "ProduceNodeEndpoint",
    "ProduceRequest",
    "ProduceResponse",
    "TopicProduceData",
    "TopicProduceResponse",
]


@message_class
class BatchIndexAndErrorMessage:
    """Of ProduceResponse, versions 8 to 13."""

    batch_index: int = 0
    batch_index_error_message: str | None = None
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.batch_index = r.int32()
        self.batch_index_error_message = r.nullable_string()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int32(self.batch_index)
        w.nullable_string(self.batch_index_error_message)
        w.tags(self.unknown_tagged_fields)


@message_class
class ProduceLeaderIdAndEpoch:
    """Of ProduceResponse, versions 10 to 13."""

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
class PartitionProduceResponse:
    """Of ProduceResponse, versions 3 to 13."""

    index: int = 0
    error_code: int = 0
    base_offset: int = 0
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: list[BatchIndexAndErrorMessage] = field(default_factory=list)
    error_message: str | None = None
    current_leader: ProduceLeaderIdAndEpoch = field(default_factory=ProduceLeaderIdAndEpoch)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.index = r.int32()
        self.error_code = r.int16()
        self.base_offset = r.int64()
        self.log_append_time_ms = r.int64()
        if version >= 5:
            self.log_start_offset = r.int64()
        if version >= 8:
            self.record_errors = [BatchIndexAndErrorMessage.read(r, version) for _ in range(r.count())]
            self.error_message = r.nullable_string()
        if version >= 9:
            unknown = []
            for _ in range(r.tag_count()):
                tag, end = r.open_tag()
                if tag == 0 and version >= 10:
                    self.current_leader = ProduceLeaderIdAndEpoch.read(r, version)
                else:
                    unknown.append((tag, r.rest()))
                r.close_tag(end)
            self.unknown_tagged_fields = tuple(unknown)
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int32(self.index)
        w.int16(self.error_code)
        w.int64(self.base_offset)
        w.int64(self.log_append_time_ms)
        if version >= 5:
            w.int64(self.log_start_offset)
        if version >= 8:
            w.structs(self.record_errors, version)
            w.nullable_string(self.error_message)
        tags = list(self.unknown_tagged_fields)
        if version >= 10 and self.current_leader != ProduceLeaderIdAndEpoch():
            t = Writer(flexible=True)
            self.current_leader.write(t, version)
            tags.append((0, t.getvalue()))
        w.tags(tags)


@message_class
class TopicProduceResponse:
    """Of ProduceResponse, versions 3 to 13."""

    name: str = ""
    topic_id: bytes = ZERO_UUID
    partition_responses: list[PartitionProduceResponse] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        if version <= 12:
            self.name = r.string()
        if version >= 13:
            self.topic_id = r.uuid()
        self.partition_responses = [PartitionProduceResponse.read(r, version) for _ in range(r.count())]
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        if version <= 12:
            w.string(self.name)
        if version >= 13:
            w.uuid(self.topic_id)
        w.structs(self.partition_responses, version)
        w.tags(self.unknown_tagged_fields)


@message_class
class ProduceNodeEndpoint:
    """Of ProduceResponse, versions 10 to 13."""

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
class ProduceResponse(Response):
    """Versions 3 to 13."""

    api_key: ClassVar[int] = 0

    responses: list[TopicProduceResponse] = field(default_factory=list)
    throttle_time_ms: int = 0
    node_endpoints: list[ProduceNodeEndpoint] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.responses = [TopicProduceResponse.read(r, version) for _ in range(r.count())]
        self.throttle_time_ms = r.int32()
        if version >= 9:
            unknown = []
            for _ in range(r.tag_count()):
                tag, end = r.open_tag()
                if tag == 0 and version >= 10:
                    self.node_endpoints = [ProduceNodeEndpoint.read(r, version) for _ in range(r.count())]
                else:
                    unknown.append((tag, r.rest()))
                r.close_tag(end)
            self.unknown_tagged_fields = tuple(unknown)
        return self

    def write(self, w: Writer, version: int) -> None:
        w.structs(self.responses, version)
        w.int32(self.throttle_time_ms)
        tags = list(self.unknown_tagged_fields)
        if version >= 10 and self.node_endpoints:
            t = Writer(flexible=True)
            t.structs(self.node_endpoints, version)
            tags.append((0, t.getvalue()))
        w.tags(tags)


@message_class
class PartitionProduceData:
    """Of ProduceRequest, versions 3 to 13."""

    index: int = 0
    records: Records | None = b""
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.index = r.int32()
        self.records = r.nullable_records()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int32(self.index)
        w.nullable_records(self.records)
        w.tags(self.unknown_tagged_fields)


@message_class
class TopicProduceData:
    """Of ProduceRequest, versions 3 to 13."""

    name: str = ""
    topic_id: bytes = ZERO_UUID
    partition_data: list[PartitionProduceData] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        if version <= 12:
            self.name = r.string()
        if version >= 13:
            self.topic_id = r.uuid()
        self.partition_data = [PartitionProduceData.read(r, version) for _ in range(r.count())]
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        if version <= 12:
            w.string(self.name)
        if version >= 13:
            w.uuid(self.topic_id)
        w.structs(self.partition_data, version)
        w.tags(self.unknown_tagged_fields)


@message_class
class ProduceRequest(Request[ProduceResponse]):
    """Versions 3 to 13."""

    api_key: ClassVar[int] = 0
    response_class: ClassVar[type[ProduceResponse]] = ProduceResponse

    transactional_id: str | None = None
    acks: int = 0
    timeout_ms: int = 0
    topic_data: list[TopicProduceData] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()
    api_version: int = field(kw_only=True)

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls(api_version=version)
        self.transactional_id = r.nullable_string()
        self.acks = r.int16()
        self.timeout_ms = r.int32()
        self.topic_data = [TopicProduceData.read(r, version) for _ in range(r.count())]
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.nullable_string(self.transactional_id)
        w.int16(self.acks)
        w.int32(self.timeout_ms)
        w.structs(self.topic_data, version)
        w.tags(self.unknown_tagged_fields)

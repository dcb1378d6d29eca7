"""DescribeCluster: request (API key 60) and response, versions 0 to 2.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Self

from batchval.protocol.message import Request, Response, Tags, absent
from batchval.protocol.message_class import message_class
from batchval.protocol.primitives import Reader, Writer

__all__ = ["DescribeClusterBroker", "DescribeClusterRequest", "DescribeClusterResponse"]


@message_class
class DescribeClusterBroker:
    """Of DescribeClusterResponse, versions 0 to 2."""

    broker_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None
    is_fenced: bool = False
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.broker_id = r.int32()
        self.host = r.string()
        self.port = r.int32()
        self.rack = r.nullable_string()
        if version >= 2:
            self.is_fenced = r.boolean()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int32(self.broker_id)
        w.string(self.host)
        w.int32(self.port)
        w.nullable_string(self.rack)
        if version >= 2:
            w.boolean(self.is_fenced)
        elif self.is_fenced:
            raise absent("IsFenced", version)
        w.tags(self.unknown_tagged_fields)


@message_class
class DescribeClusterResponse(Response):
    """Versions 0 to 2."""

    api_key: ClassVar[int] = 60

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    endpoint_type: int = 1
    cluster_id: str = ""
    controller_id: int = -1
    brokers: list[DescribeClusterBroker] = field(default_factory=list)
    cluster_authorized_operations: int = -2147483648
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.throttle_time_ms = r.int32()
        self.error_code = r.int16()
        self.error_message = r.nullable_string()
        if version >= 1:
            self.endpoint_type = r.int8()
        self.cluster_id = r.string()
        self.controller_id = r.int32()
        self.brokers = [DescribeClusterBroker.read(r, version) for _ in range(r.count())]
        self.cluster_authorized_operations = r.int32()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int32(self.throttle_time_ms)
        w.int16(self.error_code)
        w.nullable_string(self.error_message)
        if version >= 1:
            w.int8(self.endpoint_type)
        elif self.endpoint_type != 1:
            raise absent("EndpointType", version)
        w.string(self.cluster_id)
        w.int32(self.controller_id)
        w.structs(self.brokers, version)
        w.int32(self.cluster_authorized_operations)
        w.tags(self.unknown_tagged_fields)


@message_class
class DescribeClusterRequest(Request[DescribeClusterResponse]):
    """Versions 0 to 2."""

    api_key: ClassVar[int] = 60
    response_class: ClassVar[type[DescribeClusterResponse]] = DescribeClusterResponse

    include_cluster_authorized_operations: bool = False
    endpoint_type: int = 1
    include_fenced_brokers: bool = False
    unknown_tagged_fields: Tags = ()
    api_version: int = field(kw_only=True)

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls(api_version=version)
        self.include_cluster_authorized_operations = r.boolean()
        if version >= 1:
            self.endpoint_type = r.int8()
        if version >= 2:
            self.include_fenced_brokers = r.boolean()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.boolean(self.include_cluster_authorized_operations)
        if version >= 1:
            w.int8(self.endpoint_type)
        elif self.endpoint_type != 1:
            raise absent("EndpointType", version)
        if version >= 2:
            w.boolean(self.include_fenced_brokers)
        elif self.include_fenced_brokers:
            raise absent("IncludeFencedBrokers", version)
        w.tags(self.unknown_tagged_fields)

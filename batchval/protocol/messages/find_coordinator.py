"""FindCoordinator: request (API key 10) and response, versions 0 to 6.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Self

from batchval.protocol.message import Request, Response, Tags, absent
from batchval.protocol.message_class import message_class
from batchval.protocol.primitives import Reader, Writer

__all__ = ["Coordinator", "FindCoordinatorRequest", "FindCoordinatorResponse"]


@message_class
class Coordinator:
    """Of FindCoordinatorResponse, versions 4 to 6."""

    key: str = ""
    node_id: int = 0
    host: str = ""
    port: int = 0
    error_code: int = 0
    error_message: str | None = ""
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.key = r.string()
        self.node_id = r.int32()
        self.host = r.string()
        self.port = r.int32()
        self.error_code = r.int16()
        self.error_message = r.nullable_string()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.string(self.key)
        w.int32(self.node_id)
        w.string(self.host)
        w.int32(self.port)
        w.int16(self.error_code)
        w.nullable_string(self.error_message)
        w.tags(self.unknown_tagged_fields)


@message_class
class FindCoordinatorResponse(Response):
    """Versions 0 to 6."""

    api_key: ClassVar[int] = 10

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    node_id: int = 0
    host: str = ""
    port: int = 0
    coordinators: list[Coordinator] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        if version >= 1:
            self.throttle_time_ms = r.int32()
        if version <= 3:
            self.error_code = r.int16()
        if 1 <= version <= 3:
            self.error_message = r.nullable_string()
        if version <= 3:
            self.node_id = r.int32()
            self.host = r.string()
            self.port = r.int32()
        if version >= 4:
            self.coordinators = [Coordinator.read(r, version) for _ in range(r.count())]
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        if version >= 1:
            w.int32(self.throttle_time_ms)
        if version <= 3:
            w.int16(self.error_code)
        elif self.error_code != 0:
            raise absent("ErrorCode", version)
        if 1 <= version <= 3:
            w.nullable_string(self.error_message)
        if version <= 3:
            w.int32(self.node_id)
            w.string(self.host)
            w.int32(self.port)
        elif self.node_id != 0:
            raise absent("NodeId", version)
        elif self.host:
            raise absent("Host", version)
        elif self.port != 0:
            raise absent("Port", version)
        if version >= 4:
            w.structs(self.coordinators, version)
        elif self.coordinators:
            raise absent("Coordinators", version)
        w.tags(self.unknown_tagged_fields)


@message_class
class FindCoordinatorRequest(Request[FindCoordinatorResponse]):
    """Versions 0 to 6."""

    api_key: ClassVar[int] = 10
    response_class: ClassVar[type[FindCoordinatorResponse]] = FindCoordinatorResponse

    key: str = ""
    key_type: int = 0
    coordinator_keys: list[str] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()
    api_version: int = field(kw_only=True)

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls(api_version=version)
        if version <= 3:
            self.key = r.string()
        if version >= 1:
            self.key_type = r.int8()
        if version >= 4:
            self.coordinator_keys = [r.string() for _ in range(r.count())]
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        if version <= 3:
            w.string(self.key)
        elif self.key:
            raise absent("Key", version)
        if version >= 1:
            w.int8(self.key_type)
        elif self.key_type != 0:
            raise absent("KeyType", version)
        if version >= 4:
            w.count(len(self.coordinator_keys))
            for one in self.coordinator_keys:
                w.string(one)
        elif self.coordinator_keys:
            raise absent("CoordinatorKeys", version)
        w.tags(self.unknown_tagged_fields)

"""Heartbeat: request (API key 12) and response, versions 0 to 4.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Self

from batchval.protocol.message import Request, Response, Tags, absent
from batchval.protocol.message_class import message_class
from batchval.protocol.primitives import Reader, Writer

__all__ = ["HeartbeatRequest", "HeartbeatResponse"]


@message_class
class HeartbeatResponse(Response):
    """Versions 0 to 4."""

    api_key: ClassVar[int] = 12

    throttle_time_ms: int = 0
    error_code: int = 0
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        if version >= 1:
            self.throttle_time_ms = r.int32()
        self.error_code = r.int16()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        if version >= 1:
            w.int32(self.throttle_time_ms)
        w.int16(self.error_code)
        w.tags(self.unknown_tagged_fields)


@message_class
class HeartbeatRequest(Request[HeartbeatResponse]):
    """Versions 0 to 4."""

    api_key: ClassVar[int] = 12
    response_class: ClassVar[type[HeartbeatResponse]] = HeartbeatResponse

    group_id: str = ""
    generation_id: int = 0
    member_id: str = ""
    group_instance_id: str | None = None
    unknown_tagged_fields: Tags = ()
    api_version: int = field(kw_only=True)

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls(api_version=version)
        self.group_id = r.string()
        self.generation_id = r.int32()
        self.member_id = r.string()
        if version >= 3:
            self.group_instance_id = r.nullable_string()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.string(self.group_id)
        w.int32(self.generation_id)
        w.string(self.member_id)
        if version >= 3:
            w.nullable_string(self.group_instance_id)
        elif self.group_instance_id is not None:
            raise absent("GroupInstanceId", version)
        w.tags(self.unknown_tagged_fields)

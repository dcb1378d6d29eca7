"""SyncGroup: request (API key 14) and response, versions 0 to 5.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Self

from batchval.protocol.message import Request, Response, Tags, absent
from batchval.protocol.message_class import message_class
from batchval.protocol.primitives import Reader, Writer

__all__ = ["SyncGroupRequest", "SyncGroupRequestAssignment", "SyncGroupResponse"]


@message_class
class SyncGroupResponse(Response):
    """Versions 0 to 5."""

    api_key: ClassVar[int] = 14

    throttle_time_ms: int = 0
    error_code: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        if version >= 1:
            self.throttle_time_ms = r.int32()
        self.error_code = r.int16()
        if version >= 5:
            self.protocol_type = r.nullable_string()
            self.protocol_name = r.nullable_string()
        self.assignment = r.data()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        if version >= 1:
            w.int32(self.throttle_time_ms)
        w.int16(self.error_code)
        if version >= 5:
            w.nullable_string(self.protocol_type)
            w.nullable_string(self.protocol_name)
        w.data(self.assignment)
        w.tags(self.unknown_tagged_fields)


@message_class
class SyncGroupRequestAssignment:
    """Of SyncGroupRequest, versions 0 to 5."""

    member_id: str = ""
    assignment: bytes = b""
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.member_id = r.string()
        self.assignment = r.data()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.string(self.member_id)
        w.data(self.assignment)
        w.tags(self.unknown_tagged_fields)


@message_class
class SyncGroupRequest(Request[SyncGroupResponse]):
    """Versions 0 to 5."""

    api_key: ClassVar[int] = 14
    response_class: ClassVar[type[SyncGroupResponse]] = SyncGroupResponse

    group_id: str = ""
    generation_id: int = 0
    member_id: str = ""
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: list[SyncGroupRequestAssignment] = field(default_factory=list)
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
        if version >= 5:
            self.protocol_type = r.nullable_string()
            self.protocol_name = r.nullable_string()
        self.assignments = [SyncGroupRequestAssignment.read(r, version) for _ in range(r.count())]
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
        if version >= 5:
            w.nullable_string(self.protocol_type)
            w.nullable_string(self.protocol_name)
        w.structs(self.assignments, version)
        w.tags(self.unknown_tagged_fields)

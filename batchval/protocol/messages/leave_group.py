"""LeaveGroup: request (API key 13) and response, versions 0 to 5.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Self

from batchval.protocol.message import Request, Response, Tags, absent
from batchval.protocol.message_class import message_class
from batchval.protocol.primitives import Reader, Writer

__all__ = ["LeaveGroupRequest", "LeaveGroupResponse", "MemberIdentity", "MemberResponse"]


@message_class
class MemberResponse:
    """Of LeaveGroupResponse, versions 3 to 5."""

    member_id: str = ""
    group_instance_id: str | None = ""
    error_code: int = 0
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.member_id = r.string()
        self.group_instance_id = r.nullable_string()
        self.error_code = r.int16()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.string(self.member_id)
        w.nullable_string(self.group_instance_id)
        w.int16(self.error_code)
        w.tags(self.unknown_tagged_fields)


@message_class
class LeaveGroupResponse(Response):
    """Versions 0 to 5."""

    api_key: ClassVar[int] = 13

    throttle_time_ms: int = 0
    error_code: int = 0
    members: list[MemberResponse] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        if version >= 1:
            self.throttle_time_ms = r.int32()
        self.error_code = r.int16()
        if version >= 3:
            self.members = [MemberResponse.read(r, version) for _ in range(r.count())]
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        if version >= 1:
            w.int32(self.throttle_time_ms)
        w.int16(self.error_code)
        if version >= 3:
            w.structs(self.members, version)
        elif self.members:
            raise absent("Members", version)
        w.tags(self.unknown_tagged_fields)


@message_class
class MemberIdentity:
    """Of LeaveGroupRequest, versions 3 to 5."""

    member_id: str = ""
    group_instance_id: str | None = None
    reason: str | None = None
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.member_id = r.string()
        self.group_instance_id = r.nullable_string()
        if version >= 5:
            self.reason = r.nullable_string()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.string(self.member_id)
        w.nullable_string(self.group_instance_id)
        if version >= 5:
            w.nullable_string(self.reason)
        w.tags(self.unknown_tagged_fields)


@message_class
class LeaveGroupRequest(Request[LeaveGroupResponse]):
    """Versions 0 to 5."""

    api_key: ClassVar[int] = 13
    response_class: ClassVar[type[LeaveGroupResponse]] = LeaveGroupResponse

    group_id: str = ""
    member_id: str = ""
    members: list[MemberIdentity] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()
    api_version: int = field(kw_only=True)

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls(api_version=version)
        self.group_id = r.string()
        if version <= 2:
            self.member_id = r.string()
        if version >= 3:
            self.members = [MemberIdentity.read(r, version) for _ in range(r.count())]
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.string(self.group_id)
        if version <= 2:
            w.string(self.member_id)
        elif self.member_id:
            raise absent("MemberId", version)
        if version >= 3:
            w.structs(self.members, version)
        elif self.members:
            raise absent("Members", version)
        w.tags(self.unknown_tagged_fields)

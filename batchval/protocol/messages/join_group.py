"""JoinGroup: request (API key 11) and response, versions 0 to 9.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Self

from batchval.protocol.message import Request, Response, Tags, absent
from batchval.protocol.message_class import message_class
from batchval.protocol.primitives import Reader, Writer

__all__ = ["JoinGroupRequest", "JoinGroupRequestProtocol", "JoinGroupResponse", "JoinGroupResponseMember"]


@message_class
class JoinGroupResponseMember:
    """Of JoinGroupResponse, versions 0 to 9."""

    member_id: str = ""
    group_instance_id: str | None = None
    metadata: bytes = b""
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.member_id = r.string()
        if version >= 5:
            self.group_instance_id = r.nullable_string()
        self.metadata = r.data()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.string(self.member_id)
        if version >= 5:
            w.nullable_string(self.group_instance_id)
        w.data(self.metadata)
        w.tags(self.unknown_tagged_fields)


@message_class
class JoinGroupResponse(Response):
    """Versions 0 to 9."""

    api_key: ClassVar[int] = 11

    throttle_time_ms: int = 0
    error_code: int = 0
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = ""
    leader: str = ""
    skip_assignment: bool = False
    member_id: str = ""
    members: list[JoinGroupResponseMember] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        if version >= 2:
            self.throttle_time_ms = r.int32()
        self.error_code = r.int16()
        self.generation_id = r.int32()
        if version >= 7:
            self.protocol_type = r.nullable_string()
        self.protocol_name = r.nullable_string() if version >= 7 else r.string()
        self.leader = r.string()
        if version >= 9:
            self.skip_assignment = r.boolean()
        self.member_id = r.string()
        self.members = [JoinGroupResponseMember.read(r, version) for _ in range(r.count())]
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        if version >= 2:
            w.int32(self.throttle_time_ms)
        w.int16(self.error_code)
        w.int32(self.generation_id)
        if version >= 7:
            w.nullable_string(self.protocol_type)
        (w.nullable_string if version >= 7 else w.string)(self.protocol_name)
        w.string(self.leader)
        if version >= 9:
            w.boolean(self.skip_assignment)
        elif self.skip_assignment:
            raise absent("SkipAssignment", version)
        w.string(self.member_id)
        w.structs(self.members, version)
        w.tags(self.unknown_tagged_fields)


@message_class
class JoinGroupRequestProtocol:
    """Of JoinGroupRequest, versions 0 to 9."""

    name: str = ""
    metadata: bytes = b""
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.name = r.string()
        self.metadata = r.data()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.string(self.name)
        w.data(self.metadata)
        w.tags(self.unknown_tagged_fields)


@message_class
class JoinGroupRequest(Request[JoinGroupResponse]):
    """Versions 0 to 9."""

    api_key: ClassVar[int] = 11
    response_class: ClassVar[type[JoinGroupResponse]] = JoinGroupResponse

    group_id: str = ""
    session_timeout_ms: int = 0
    rebalance_timeout_ms: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    protocol_type: str = ""
    protocols: list[JoinGroupRequestProtocol] = field(default_factory=list)
    reason: str | None = None
    unknown_tagged_fields: Tags = ()
    api_version: int = field(kw_only=True)

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls(api_version=version)
        self.group_id = r.string()
        self.session_timeout_ms = r.int32()
        if version >= 1:
            self.rebalance_timeout_ms = r.int32()
        self.member_id = r.string()
        if version >= 5:
            self.group_instance_id = r.nullable_string()
        self.protocol_type = r.string()
        self.protocols = [JoinGroupRequestProtocol.read(r, version) for _ in range(r.count())]
        if version >= 8:
            self.reason = r.nullable_string()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.string(self.group_id)
        w.int32(self.session_timeout_ms)
        if version >= 1:
            w.int32(self.rebalance_timeout_ms)
        w.string(self.member_id)
        if version >= 5:
            w.nullable_string(self.group_instance_id)
        elif self.group_instance_id is not None:
            raise absent("GroupInstanceId", version)
        w.string(self.protocol_type)
        w.structs(self.protocols, version)
        if version >= 8:
            w.nullable_string(self.reason)
        w.tags(self.unknown_tagged_fields)

"""LeaveGroup: request (API key 13) and response, versions 0 to 5.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from typing import ClassVar

from batchval.protocol.message import Request, Response, Struct
from batchval.protocol.message_class import field, message_class

__all__ = ["LeaveGroupRequest", "LeaveGroupResponse", "MemberIdentity", "MemberResponse"]


@message_class
class MemberResponse(Struct):
    """Of LeaveGroupResponse, versions 3 to 5."""

    member_id: str = field("string", default="")
    group_instance_id: str | None = field("string?", default="")
    error_code: int = field("int16", default=0)


@message_class
class LeaveGroupResponse(Response):
    """Versions 0 to 5."""

    api_key: ClassVar[int] = 13

    throttle_time_ms: int = field("int32@1-", default=0)
    error_code: int = field("int16", default=0)
    members: list[MemberResponse] = field("[]MemberResponse@3-!", factory=list)


@message_class
class MemberIdentity(Struct):
    """Of LeaveGroupRequest, versions 3 to 5."""

    member_id: str = field("string", default="")
    group_instance_id: str | None = field("string?", default=None)
    reason: str | None = field("string@5-?", default=None)


@message_class
class LeaveGroupRequest(Request[LeaveGroupResponse]):
    """Versions 0 to 5."""

    api_key: ClassVar[int] = 13
    response_class: ClassVar[type[LeaveGroupResponse]] = LeaveGroupResponse

    group_id: str = field("string", default="")
    member_id: str = field("string@-2!", default="")
    members: list[MemberIdentity] = field("[]MemberIdentity@3-!", factory=list)

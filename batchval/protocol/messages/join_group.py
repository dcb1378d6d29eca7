"""JoinGroup: request (API key 11) and response, versions 0 to 9.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from typing import ClassVar

from batchval.protocol.message import Request, Response, Struct
from batchval.protocol.message_class import field, message_class

__all__ = ["JoinGroupRequest", "JoinGroupRequestProtocol", "JoinGroupResponse", "JoinGroupResponseMember"]


@message_class
class JoinGroupResponseMember(Struct):
    """Of JoinGroupResponse, versions 0 to 9."""

    member_id: str = field("string", default="")
    group_instance_id: str | None = field("string@5-?", default=None)
    metadata: bytes = field("bytes", default=b"")


@message_class
class JoinGroupResponse(Response):
    """Versions 0 to 9."""

    api_key: ClassVar[int] = 11

    throttle_time_ms: int = field("int32@2-", default=0)
    error_code: int = field("int16", default=0)
    generation_id: int = field("int32", default=-1)
    protocol_type: str | None = field("string@7-?", default=None)
    protocol_name: str | None = field("string?7-", default="")
    leader: str = field("string", default="")
    skip_assignment: bool = field("bool@9-!", default=False)
    member_id: str = field("string", default="")
    members: list[JoinGroupResponseMember] = field("[]JoinGroupResponseMember", factory=list)


@message_class
class JoinGroupRequestProtocol(Struct):
    """Of JoinGroupRequest, versions 0 to 9."""

    name: str = field("string", default="")
    metadata: bytes = field("bytes", default=b"")


@message_class
class JoinGroupRequest(Request[JoinGroupResponse]):
    """Versions 0 to 9."""

    api_key: ClassVar[int] = 11
    response_class: ClassVar[type[JoinGroupResponse]] = JoinGroupResponse

    group_id: str = field("string", default="")
    session_timeout_ms: int = field("int32", default=0)
    rebalance_timeout_ms: int = field("int32@1-", default=-1)
    member_id: str = field("string", default="")
    group_instance_id: str | None = field("string@5-?!", default=None)
    protocol_type: str = field("string", default="")
    protocols: list[JoinGroupRequestProtocol] = field("[]JoinGroupRequestProtocol", factory=list)
    reason: str | None = field("string@8-?", default=None)

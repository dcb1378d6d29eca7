"""SyncGroup: request (API key 14) and response, versions 0 to 5.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from typing import ClassVar

from batchval.protocol.message import Request, Response, Struct
from batchval.protocol.message_class import field, message_class

__all__ = ["SyncGroupRequest", "SyncGroupRequestAssignment", "SyncGroupResponse"]


@message_class
class SyncGroupResponse(Response):
    """Versions 0 to 5."""

    api_key: ClassVar[int] = 14

    throttle_time_ms: int = field("int32@1-", default=0)
    error_code: int = field("int16", default=0)
    protocol_type: str | None = field("string@5-?", default=None)
    protocol_name: str | None = field("string@5-?", default=None)
    assignment: bytes = field("bytes", default=b"")


@message_class
class SyncGroupRequestAssignment(Struct):
    """Of SyncGroupRequest, versions 0 to 5."""

    member_id: str = field("string", default="")
    assignment: bytes = field("bytes", default=b"")


@message_class
class SyncGroupRequest(Request[SyncGroupResponse]):
    """Versions 0 to 5."""

    api_key: ClassVar[int] = 14
    response_class: ClassVar[type[SyncGroupResponse]] = SyncGroupResponse

    group_id: str = field("string", default="")
    generation_id: int = field("int32", default=0)
    member_id: str = field("string", default="")
    group_instance_id: str | None = field("string@3-?!", default=None)
    protocol_type: str | None = field("string@5-?", default=None)
    protocol_name: str | None = field("string@5-?", default=None)
    assignments: list[SyncGroupRequestAssignment] = field("[]SyncGroupRequestAssignment", factory=list)

"""Heartbeat: request (API key 12) and response, versions 0 to 4.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from typing import ClassVar

from batchval.protocol.message import Request, Response
from batchval.protocol.message_class import field, message_class

__all__ = ["HeartbeatRequest", "HeartbeatResponse"]


@message_class
class HeartbeatResponse(Response):
    """Versions 0 to 4."""

    api_key: ClassVar[int] = 12

    throttle_time_ms: int = field("int32@1-", default=0)
    error_code: int = field("int16", default=0)


@message_class
class HeartbeatRequest(Request[HeartbeatResponse]):
    """Versions 0 to 4."""

    api_key: ClassVar[int] = 12
    response_class: ClassVar[type[HeartbeatResponse]] = HeartbeatResponse

    group_id: str = field("string", default="")
    generation_id: int = field("int32", default=0)
    member_id: str = field("string", default="")
    group_instance_id: str | None = field("string@3-?!", default=None)

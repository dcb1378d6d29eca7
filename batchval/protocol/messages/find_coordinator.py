"""FindCoordinator: request (API key 10) and response, versions 0 to 6.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from typing import ClassVar

from batchval.protocol.message import Request, Response, Struct
from batchval.protocol.message_class import field, message_class

__all__ = ["Coordinator", "FindCoordinatorRequest", "FindCoordinatorResponse"]


@message_class
class Coordinator(Struct):
    """Of FindCoordinatorResponse, versions 4 to 6."""

    key: str = field("string", default="")
    node_id: int = field("int32", default=0)
    host: str = field("string", default="")
    port: int = field("int32", default=0)
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string?", default="")


@message_class
class FindCoordinatorResponse(Response):
    """Versions 0 to 6."""

    api_key: ClassVar[int] = 10

    throttle_time_ms: int = field("int32@1-", default=0)
    error_code: int = field("int16@-3!", default=0)
    error_message: str | None = field("string@1-3?", default="")
    node_id: int = field("int32@-3!", default=0)
    host: str = field("string@-3!", default="")
    port: int = field("int32@-3!", default=0)
    coordinators: list[Coordinator] = field("[]Coordinator@4-!", factory=list)


@message_class
class FindCoordinatorRequest(Request[FindCoordinatorResponse]):
    """Versions 0 to 6."""

    api_key: ClassVar[int] = 10
    response_class: ClassVar[type[FindCoordinatorResponse]] = FindCoordinatorResponse

    key: str = field("string@-3!", default="")
    key_type: int = field("int8@1-!", default=0)
    coordinator_keys: list[str] = field("[]string@4-!", factory=list)

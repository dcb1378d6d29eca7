"""SaslAuthenticate: request (API key 36) and response, versions 0 to 2.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from typing import ClassVar

from batchval.protocol.message import Request, Response
from batchval.protocol.message_class import field, message_class

__all__ = ["SaslAuthenticateRequest", "SaslAuthenticateResponse"]


@message_class
class SaslAuthenticateResponse(Response):
    """Versions 0 to 2."""

    api_key: ClassVar[int] = 36

    error_code: int = field("int16", default=0)
    error_message: str | None = field("string?", default="")
    auth_bytes: bytes = field("bytes", default=b"")
    session_lifetime_ms: int = field("int64@1-", default=0)


@message_class
class SaslAuthenticateRequest(Request[SaslAuthenticateResponse]):
    """Versions 0 to 2."""

    api_key: ClassVar[int] = 36
    response_class: ClassVar[type[SaslAuthenticateResponse]] = SaslAuthenticateResponse

    auth_bytes: bytes = field("bytes", default=b"")

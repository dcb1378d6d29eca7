"""SaslHandshake: request (API key 17) and response, versions 0 to 1.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from typing import ClassVar

from batchval.protocol.message import Request, Response
from batchval.protocol.message_class import field, message_class

__all__ = ["SaslHandshakeRequest", "SaslHandshakeResponse"]


@message_class
class SaslHandshakeResponse(Response):
    """Versions 0 to 1."""

    api_key: ClassVar[int] = 17

    error_code: int = field("int16", default=0)
    mechanisms: list[str] = field("[]string", factory=list)


@message_class
class SaslHandshakeRequest(Request[SaslHandshakeResponse]):
    """Versions 0 to 1."""

    api_key: ClassVar[int] = 17
    response_class: ClassVar[type[SaslHandshakeResponse]] = SaslHandshakeResponse

    mechanism: str = field("string", default="")

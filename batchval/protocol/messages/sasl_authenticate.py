"""SaslAuthenticate: request (API key 36) and response, versions 0 to 2.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Self

from batchval.protocol.message import Request, Response, Tags
from batchval.protocol.message_class import message_class
from batchval.protocol.primitives import Reader, Writer

__all__ = ["SaslAuthenticateRequest", "SaslAuthenticateResponse"]


@message_class
class SaslAuthenticateResponse(Response):
    """Versions 0 to 2."""

    api_key: ClassVar[int] = 36

    error_code: int = 0
    error_message: str | None = ""
    auth_bytes: bytes = b""
    session_lifetime_ms: int = 0
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.error_code = r.int16()
        self.error_message = r.nullable_string()
        self.auth_bytes = r.data()
        if version >= 1:
            self.session_lifetime_ms = r.int64()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int16(self.error_code)
        w.nullable_string(self.error_message)
        w.data(self.auth_bytes)
        if version >= 1:
            w.int64(self.session_lifetime_ms)
        w.tags(self.unknown_tagged_fields)


@message_class
class SaslAuthenticateRequest(Request[SaslAuthenticateResponse]):
    """Versions 0 to 2."""

    api_key: ClassVar[int] = 36
    response_class: ClassVar[type[SaslAuthenticateResponse]] = SaslAuthenticateResponse

    auth_bytes: bytes = b""
    unknown_tagged_fields: Tags = ()
    api_version: int = field(kw_only=True)

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls(api_version=version)
        self.auth_bytes = r.data()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.data(self.auth_bytes)
        w.tags(self.unknown_tagged_fields)

"""SaslAuthenticate: request (API key 36) and response, versions 0 to 2.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Self

from batchval.protocol.message import Request, Response, Tags, absent
from batchval.protocol.message_class import message_class
from batchval.protocol.primitives import Reader, Writer

__all__ = ["SaslAuthenticateRequest", "SaslAuthenticateResponse"]


@message_class
class SaslAuthenticateResponse(Response):
    """Versions 0 to 2."""

    api_key: ClassVar[int] = 36
    min_version: ClassVar[int] = 0
    max_version: ClassVar[int] = 2
    flexible_from: ClassVar[int] = 2

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
        if version >= 2:
            self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int16(self.error_code)
        w.nullable_string(self.error_message)
        w.data(self.auth_bytes)
        if version >= 1:
            w.int64(self.session_lifetime_ms)
        if version >= 2:
            w.tags(self.unknown_tagged_fields)
        elif self.unknown_tagged_fields:
            raise absent("a tagged field", version)


@message_class
class SaslAuthenticateRequest(Request[SaslAuthenticateResponse]):
    """Versions 0 to 2."""

    api_key: ClassVar[int] = 36
    min_version: ClassVar[int] = 0
    max_version: ClassVar[int] = 2
    flexible_from: ClassVar[int] = 2
    response_class: ClassVar[type[SaslAuthenticateResponse]] = SaslAuthenticateResponse

    auth_bytes: bytes = b""
    unknown_tagged_fields: Tags = ()
    api_version: int = field(kw_only=True)

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls(api_version=version)
        self.auth_bytes = r.data()
        if version >= 2:
            self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.data(self.auth_bytes)
        if version >= 2:
            w.tags(self.unknown_tagged_fields)
        elif self.unknown_tagged_fields:
            raise absent("a tagged field", version)

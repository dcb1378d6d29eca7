"""SaslHandshake: request (API key 17) and response, versions 0 to 1.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Self

from batchval.protocol.message import Request, Response, Tags
from batchval.protocol.message_class import message_class
from batchval.protocol.primitives import Reader, Writer

__all__ = ["SaslHandshakeRequest", "SaslHandshakeResponse"]


@message_class
class SaslHandshakeResponse(Response):
    """Versions 0 to 1."""

    api_key: ClassVar[int] = 17

    error_code: int = 0
    mechanisms: list[str] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.error_code = r.int16()
        self.mechanisms = [r.string() for _ in range(r.count())]
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int16(self.error_code)
        w.count(len(self.mechanisms))
        for one in self.mechanisms:
            w.string(one)
        w.tags(self.unknown_tagged_fields)


@message_class
class SaslHandshakeRequest(Request[SaslHandshakeResponse]):
    """Versions 0 to 1."""

    api_key: ClassVar[int] = 17
    response_class: ClassVar[type[SaslHandshakeResponse]] = SaslHandshakeResponse

    mechanism: str = ""
    unknown_tagged_fields: Tags = ()
    api_version: int = field(kw_only=True)

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls(api_version=version)
        self.mechanism = r.string()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.string(self.mechanism)
        w.tags(self.unknown_tagged_fields)

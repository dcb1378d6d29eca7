"""SaslHandshake: request (API key 17) and response, versions 0 to 1.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Self

from batchval.protocol.message import Request, Response, Tags, absent
from batchval.protocol.message_class import message_class
from batchval.protocol.primitives import Reader, Writer

__all__ = ["SaslHandshakeRequest", "SaslHandshakeResponse"]


@message_class
class SaslHandshakeResponse(Response):
    """Versions 0 to 1."""

    api_key: ClassVar[int] = 17
    min_version: ClassVar[int] = 0
    max_version: ClassVar[int] = 1
    flexible_from: ClassVar[int] = 32768

    error_code: int = 0
    mechanisms: list[str] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.error_code = r.int16()
        self.mechanisms = [r.string() for _ in range(r.count())]
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int16(self.error_code)
        w.count(len(self.mechanisms))
        for mechanism in self.mechanisms:
            w.string(mechanism)
        if self.unknown_tagged_fields:
            raise absent("a tagged field", version)


@message_class
class SaslHandshakeRequest(Request[SaslHandshakeResponse]):
    """Versions 0 to 1."""

    api_key: ClassVar[int] = 17
    min_version: ClassVar[int] = 0
    max_version: ClassVar[int] = 1
    flexible_from: ClassVar[int] = 32768
    response_class: ClassVar[type[SaslHandshakeResponse]] = SaslHandshakeResponse

    mechanism: str = ""
    unknown_tagged_fields: Tags = ()
    api_version: int = field(kw_only=True)

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls(api_version=version)
        self.mechanism = r.string()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.string(self.mechanism)
        if self.unknown_tagged_fields:
            raise absent("a tagged field", version)

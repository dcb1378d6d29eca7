"""EndTxn: request (API key 26) and response, versions 0 to 5.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Self

from batchval.protocol.message import Request, Response, Tags
from batchval.protocol.message_class import message_class
from batchval.protocol.primitives import Reader, Writer

__all__ = ["EndTxnRequest", "EndTxnResponse"]


@message_class
class EndTxnResponse(Response):
    """Versions 0 to 5."""

    api_key: ClassVar[int] = 26

    throttle_time_ms: int = 0
    error_code: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.throttle_time_ms = r.int32()
        self.error_code = r.int16()
        if version >= 5:
            self.producer_id = r.int64()
            self.producer_epoch = r.int16()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int32(self.throttle_time_ms)
        w.int16(self.error_code)
        if version >= 5:
            w.int64(self.producer_id)
            w.int16(self.producer_epoch)
        w.tags(self.unknown_tagged_fields)


@message_class
class EndTxnRequest(Request[EndTxnResponse]):
    """Versions 0 to 5."""

    api_key: ClassVar[int] = 26
    response_class: ClassVar[type[EndTxnResponse]] = EndTxnResponse

    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    committed: bool = False
    unknown_tagged_fields: Tags = ()
    api_version: int = field(kw_only=True)

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls(api_version=version)
        self.transactional_id = r.string()
        self.producer_id = r.int64()
        self.producer_epoch = r.int16()
        self.committed = r.boolean()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.string(self.transactional_id)
        w.int64(self.producer_id)
        w.int16(self.producer_epoch)
        w.boolean(self.committed)
        w.tags(self.unknown_tagged_fields)

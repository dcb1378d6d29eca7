"""AddOffsetsToTxn: request (API key 25) and response, versions 0 to 4.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Self

from batchval.protocol.message import Request, Response, Tags, absent
from batchval.protocol.message_class import message_class
from batchval.protocol.primitives import Reader, Writer

__all__ = ["AddOffsetsToTxnRequest", "AddOffsetsToTxnResponse"]


@message_class
class AddOffsetsToTxnResponse(Response):
    """Versions 0 to 4."""

    api_key: ClassVar[int] = 25
    min_version: ClassVar[int] = 0
    max_version: ClassVar[int] = 4
    flexible_from: ClassVar[int] = 3

    throttle_time_ms: int = 0
    error_code: int = 0
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.throttle_time_ms = r.int32()
        self.error_code = r.int16()
        if version >= 3:
            self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int32(self.throttle_time_ms)
        w.int16(self.error_code)
        if version >= 3:
            w.tags(self.unknown_tagged_fields)
        elif self.unknown_tagged_fields:
            raise absent("a tagged field", version)


@message_class
class AddOffsetsToTxnRequest(Request[AddOffsetsToTxnResponse]):
    """Versions 0 to 4."""

    api_key: ClassVar[int] = 25
    min_version: ClassVar[int] = 0
    max_version: ClassVar[int] = 4
    flexible_from: ClassVar[int] = 3
    response_class: ClassVar[type[AddOffsetsToTxnResponse]] = AddOffsetsToTxnResponse

    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    group_id: str = ""
    unknown_tagged_fields: Tags = ()
    api_version: int = field(kw_only=True)

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls(api_version=version)
        self.transactional_id = r.string()
        self.producer_id = r.int64()
        self.producer_epoch = r.int16()
        self.group_id = r.string()
        if version >= 3:
            self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.string(self.transactional_id)
        w.int64(self.producer_id)
        w.int16(self.producer_epoch)
        w.string(self.group_id)
        if version >= 3:
            w.tags(self.unknown_tagged_fields)
        elif self.unknown_tagged_fields:
            raise absent("a tagged field", version)

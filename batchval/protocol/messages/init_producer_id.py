"""InitProducerId: request (API key 22) and response, versions 0 to 6.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Self

from batchval.protocol.message import Request, Response, Tags, absent
from batchval.protocol.message_class import message_class
from batchval.protocol.primitives import Reader, Writer

__all__ = ["InitProducerIdRequest", "InitProducerIdResponse"]


@message_class
class InitProducerIdResponse(Response):
    """Versions 0 to 6."""

    api_key: ClassVar[int] = 22

    throttle_time_ms: int = 0
    error_code: int = 0
    producer_id: int = -1
    producer_epoch: int = 0
    ongoing_txn_producer_id: int = -1
    ongoing_txn_producer_epoch: int = -1
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.throttle_time_ms = r.int32()
        self.error_code = r.int16()
        self.producer_id = r.int64()
        self.producer_epoch = r.int16()
        if version >= 6:
            self.ongoing_txn_producer_id = r.int64()
            self.ongoing_txn_producer_epoch = r.int16()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int32(self.throttle_time_ms)
        w.int16(self.error_code)
        w.int64(self.producer_id)
        w.int16(self.producer_epoch)
        if version >= 6:
            w.int64(self.ongoing_txn_producer_id)
            w.int16(self.ongoing_txn_producer_epoch)
        elif self.ongoing_txn_producer_id != -1:
            raise absent("OngoingTxnProducerId", version)
        elif self.ongoing_txn_producer_epoch != -1:
            raise absent("OngoingTxnProducerEpoch", version)
        w.tags(self.unknown_tagged_fields)


@message_class
class InitProducerIdRequest(Request[InitProducerIdResponse]):
    """Versions 0 to 6."""

    api_key: ClassVar[int] = 22
    response_class: ClassVar[type[InitProducerIdResponse]] = InitProducerIdResponse

    transactional_id: str | None = ""
    transaction_timeout_ms: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    enable2_pc: bool = False
    keep_prepared_txn: bool = False
    unknown_tagged_fields: Tags = ()
    api_version: int = field(kw_only=True)

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls(api_version=version)
        self.transactional_id = r.nullable_string()
        self.transaction_timeout_ms = r.int32()
        if version >= 3:
            self.producer_id = r.int64()
            self.producer_epoch = r.int16()
        if version >= 6:
            self.enable2_pc = r.boolean()
            self.keep_prepared_txn = r.boolean()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.nullable_string(self.transactional_id)
        w.int32(self.transaction_timeout_ms)
        if version >= 3:
            w.int64(self.producer_id)
            w.int16(self.producer_epoch)
        elif self.producer_id != -1:
            raise absent("ProducerId", version)
        elif self.producer_epoch != -1:
            raise absent("ProducerEpoch", version)
        if version >= 6:
            w.boolean(self.enable2_pc)
            w.boolean(self.keep_prepared_txn)
        elif self.enable2_pc:
            raise absent("Enable2Pc", version)
        elif self.keep_prepared_txn:
            raise absent("KeepPreparedTxn", version)
        w.tags(self.unknown_tagged_fields)

"""InitProducerId: request (API key 22) and response, versions 0 to 6.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from typing import ClassVar

from batchval.protocol.message import Request, Response
from batchval.protocol.message_class import field, message_class

__all__ = ["InitProducerIdRequest", "InitProducerIdResponse"]


@message_class
class InitProducerIdResponse(Response):
    """Versions 0 to 6."""

    api_key: ClassVar[int] = 22

    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16", default=0)
    producer_id: int = field("int64", default=-1)
    producer_epoch: int = field("int16", default=0)
    ongoing_txn_producer_id: int = field("int64@6-!", default=-1)
    ongoing_txn_producer_epoch: int = field("int16@6-!", default=-1)


@message_class
class InitProducerIdRequest(Request[InitProducerIdResponse]):
    """Versions 0 to 6."""

    api_key: ClassVar[int] = 22
    response_class: ClassVar[type[InitProducerIdResponse]] = InitProducerIdResponse

    transactional_id: str | None = field("string?", default="")
    transaction_timeout_ms: int = field("int32", default=0)
    producer_id: int = field("int64@3-!", default=-1)
    producer_epoch: int = field("int16@3-!", default=-1)
    enable2_pc: bool = field("bool@6-!", default=False)
    keep_prepared_txn: bool = field("bool@6-!", default=False)

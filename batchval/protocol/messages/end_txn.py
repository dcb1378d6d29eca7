"""EndTxn: request (API key 26) and response, versions 0 to 5.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from typing import ClassVar

from batchval.protocol.message import Request, Response
from batchval.protocol.message_class import field, message_class

__all__ = ["EndTxnRequest", "EndTxnResponse"]


@message_class
class EndTxnResponse(Response):
    """Versions 0 to 5."""

    api_key: ClassVar[int] = 26

    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16", default=0)
    producer_id: int = field("int64@5-", default=-1)
    producer_epoch: int = field("int16@5-", default=-1)


@message_class
class EndTxnRequest(Request[EndTxnResponse]):
    """Versions 0 to 5."""

    api_key: ClassVar[int] = 26
    response_class: ClassVar[type[EndTxnResponse]] = EndTxnResponse

    transactional_id: str = field("string", default="")
    producer_id: int = field("int64", default=0)
    producer_epoch: int = field("int16", default=0)
    committed: bool = field("bool", default=False)

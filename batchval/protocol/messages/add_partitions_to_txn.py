"""AddPartitionsToTxn: request (API key 24) and response, versions 0 to 5.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from typing import ClassVar

from batchval.protocol.message import Request, Response, Struct
from batchval.protocol.message_class import field, message_class

__all__ = [
    "AddPartitionsToTxnPartitionResult", "AddPartitionsToTxnRequest", "AddPartitionsToTxnResponse",
    "AddPartitionsToTxnResult", "AddPartitionsToTxnTopic", "AddPartitionsToTxnTopicResult",
    "AddPartitionsToTxnTransaction",
]


@message_class
class AddPartitionsToTxnPartitionResult(Struct):
    """Of AddPartitionsToTxnResponse, versions 0 to 5."""

    partition_index: int = field("int32", default=0)
    partition_error_code: int = field("int16", default=0)


@message_class
class AddPartitionsToTxnTopicResult(Struct):
    """Of AddPartitionsToTxnResponse, versions 0 to 5."""

    name: str = field("string", default="")
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field(
        "[]AddPartitionsToTxnPartitionResult", factory=list
    )


@message_class
class AddPartitionsToTxnResult(Struct):
    """Of AddPartitionsToTxnResponse, versions 4 to 5."""

    transactional_id: str = field("string", default="")
    topic_results: list[AddPartitionsToTxnTopicResult] = field("[]AddPartitionsToTxnTopicResult", factory=list)


@message_class
class AddPartitionsToTxnResponse(Response):
    """Versions 0 to 5."""

    api_key: ClassVar[int] = 24

    throttle_time_ms: int = field("int32", default=0)
    error_code: int = field("int16@4-", default=0)
    results_by_transaction: list[AddPartitionsToTxnResult] = field("[]AddPartitionsToTxnResult@4-!", factory=list)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(
        "[]AddPartitionsToTxnTopicResult@-3!", factory=list
    )


@message_class
class AddPartitionsToTxnTopic(Struct):
    """Of AddPartitionsToTxnRequest, versions 0 to 5."""

    name: str = field("string", default="")
    partitions: list[int] = field("[]int32", factory=list)


@message_class
class AddPartitionsToTxnTransaction(Struct):
    """Of AddPartitionsToTxnRequest, versions 4 to 5."""

    transactional_id: str = field("string", default="")
    producer_id: int = field("int64", default=0)
    producer_epoch: int = field("int16", default=0)
    verify_only: bool = field("bool", default=False)
    topics: list[AddPartitionsToTxnTopic] = field("[]AddPartitionsToTxnTopic", factory=list)


@message_class
class AddPartitionsToTxnRequest(Request[AddPartitionsToTxnResponse]):
    """Versions 0 to 5."""

    api_key: ClassVar[int] = 24
    response_class: ClassVar[type[AddPartitionsToTxnResponse]] = AddPartitionsToTxnResponse

    transactions: list[AddPartitionsToTxnTransaction] = field("[]AddPartitionsToTxnTransaction@4-!", factory=list)
    v3_and_below_transactional_id: str = field("string@-3!", default="")
    v3_and_below_producer_id: int = field("int64@-3!", default=0)
    v3_and_below_producer_epoch: int = field("int16@-3!", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field("[]AddPartitionsToTxnTopic@-3!", factory=list)

"""Produce: request (API key 0) and response, versions 3 to 13.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from typing import ClassVar

from batchval.protocol.message import Records, Request, Response, Struct
from batchval.protocol.message_class import field, message_class
from batchval.protocol.primitives import ZERO_UUID

__all__ = [
    "BatchIndexAndErrorMessage", "PartitionProduceData", "PartitionProduceResponse",
    "ProduceLeaderIdAndEpoch", "ProduceNodeEndpoint", "ProduceRequest", "ProduceResponse",
    "TopicProduceData", "TopicProduceResponse",
]


@message_class
class BatchIndexAndErrorMessage(Struct):
    """Of ProduceResponse, versions 8 to 13."""

    batch_index: int = field("int32", default=0)
    batch_index_error_message: str | None = field("string?", default=None)


@message_class
class ProduceLeaderIdAndEpoch(Struct):
    """Of ProduceResponse, versions 10 to 13."""

    leader_id: int = field("int32", default=-1)
    leader_epoch: int = field("int32", default=-1)


@message_class
class PartitionProduceResponse(Struct):
    """Of ProduceResponse, versions 3 to 13."""

    index: int = field("int32", default=0)
    error_code: int = field("int16", default=0)
    base_offset: int = field("int64", default=0)
    log_append_time_ms: int = field("int64", default=-1)
    log_start_offset: int = field("int64@5-", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = field("[]BatchIndexAndErrorMessage@8-", factory=list)
    error_message: str | None = field("string@8-?", default=None)
    current_leader: ProduceLeaderIdAndEpoch = field("ProduceLeaderIdAndEpoch@10-#0", factory=ProduceLeaderIdAndEpoch)


@message_class
class TopicProduceResponse(Struct):
    """Of ProduceResponse, versions 3 to 13."""

    name: str = field("string@-12", default="")
    topic_id: bytes = field("uuid@13-", default=ZERO_UUID)
    partition_responses: list[PartitionProduceResponse] = field("[]PartitionProduceResponse", factory=list)


@message_class
class ProduceNodeEndpoint(Struct):
    """Of ProduceResponse, versions 10 to 13."""

    node_id: int = field("int32", default=0)
    host: str = field("string", default="")
    port: int = field("int32", default=0)
    rack: str | None = field("string?", default=None)


@message_class
class ProduceResponse(Response):
    """Versions 3 to 13."""

    api_key: ClassVar[int] = 0

    responses: list[TopicProduceResponse] = field("[]TopicProduceResponse", factory=list)
    throttle_time_ms: int = field("int32", default=0)
    node_endpoints: list[ProduceNodeEndpoint] = field("[]ProduceNodeEndpoint@10-#0", factory=list)


@message_class
class PartitionProduceData(Struct):
    """Of ProduceRequest, versions 3 to 13."""

    index: int = field("int32", default=0)
    records: Records | None = field("records?", default=b"")


@message_class
class TopicProduceData(Struct):
    """Of ProduceRequest, versions 3 to 13."""

    name: str = field("string@-12", default="")
    topic_id: bytes = field("uuid@13-", default=ZERO_UUID)
    partition_data: list[PartitionProduceData] = field("[]PartitionProduceData", factory=list)


@message_class
class ProduceRequest(Request[ProduceResponse]):
    """Versions 3 to 13."""

    api_key: ClassVar[int] = 0
    response_class: ClassVar[type[ProduceResponse]] = ProduceResponse

    transactional_id: str | None = field("string?", default=None)
    acks: int = field("int16", default=0)
    timeout_ms: int = field("int32", default=0)
    topic_data: list[TopicProduceData] = field("[]TopicProduceData", factory=list)

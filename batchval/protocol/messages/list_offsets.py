"""ListOffsets: request (API key 2) and response, versions 1 to 11.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from typing import ClassVar

from batchval.protocol.message import Request, Response, Struct
from batchval.protocol.message_class import field, message_class

__all__ = [
    "ListOffsetsPartition", "ListOffsetsPartitionResponse", "ListOffsetsRequest",
    "ListOffsetsResponse", "ListOffsetsTopic", "ListOffsetsTopicResponse",
]


@message_class
class ListOffsetsPartitionResponse(Struct):
    """Of ListOffsetsResponse, versions 1 to 11."""

    partition_index: int = field("int32", default=0)
    error_code: int = field("int16", default=0)
    timestamp: int = field("int64", default=-1)
    offset: int = field("int64", default=-1)
    leader_epoch: int = field("int32@4-!", default=-1)


@message_class
class ListOffsetsTopicResponse(Struct):
    """Of ListOffsetsResponse, versions 1 to 11."""

    name: str = field("string", default="")
    partitions: list[ListOffsetsPartitionResponse] = field("[]ListOffsetsPartitionResponse", factory=list)


@message_class
class ListOffsetsResponse(Response):
    """Versions 1 to 11."""

    api_key: ClassVar[int] = 2

    throttle_time_ms: int = field("int32@2-", default=0)
    topics: list[ListOffsetsTopicResponse] = field("[]ListOffsetsTopicResponse", factory=list)


@message_class
class ListOffsetsPartition(Struct):
    """Of ListOffsetsRequest, versions 1 to 11."""

    partition_index: int = field("int32", default=0)
    current_leader_epoch: int = field("int32@4-", default=-1)
    timestamp: int = field("int64", default=0)


@message_class
class ListOffsetsTopic(Struct):
    """Of ListOffsetsRequest, versions 1 to 11."""

    name: str = field("string", default="")
    partitions: list[ListOffsetsPartition] = field("[]ListOffsetsPartition", factory=list)


@message_class
class ListOffsetsRequest(Request[ListOffsetsResponse]):
    """Versions 1 to 11."""

    api_key: ClassVar[int] = 2
    response_class: ClassVar[type[ListOffsetsResponse]] = ListOffsetsResponse

    replica_id: int = field("int32", default=0)
    isolation_level: int = field("int8@2-!", default=0)
    topics: list[ListOffsetsTopic] = field("[]ListOffsetsTopic", factory=list)
    timeout_ms: int = field("int32@10-", default=0)

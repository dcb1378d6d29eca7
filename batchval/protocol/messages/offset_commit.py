"""OffsetCommit: request (API key 8) and response, versions 2 to 10.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from typing import ClassVar

from batchval.protocol.message import Request, Response, Struct
from batchval.protocol.message_class import field, message_class
from batchval.protocol.primitives import ZERO_UUID

__all__ = [
    "OffsetCommitRequest", "OffsetCommitRequestPartition", "OffsetCommitRequestTopic",
    "OffsetCommitResponse", "OffsetCommitResponsePartition", "OffsetCommitResponseTopic",
]


@message_class
class OffsetCommitResponsePartition(Struct):
    """Of OffsetCommitResponse, versions 2 to 10."""

    partition_index: int = field("int32", default=0)
    error_code: int = field("int16", default=0)


@message_class
class OffsetCommitResponseTopic(Struct):
    """Of OffsetCommitResponse, versions 2 to 10."""

    name: str = field("string@-9", default="")
    topic_id: bytes = field("uuid@10-", default=ZERO_UUID)
    partitions: list[OffsetCommitResponsePartition] = field("[]OffsetCommitResponsePartition", factory=list)


@message_class
class OffsetCommitResponse(Response):
    """Versions 2 to 10."""

    api_key: ClassVar[int] = 8

    throttle_time_ms: int = field("int32@3-", default=0)
    topics: list[OffsetCommitResponseTopic] = field("[]OffsetCommitResponseTopic", factory=list)


@message_class
class OffsetCommitRequestPartition(Struct):
    """Of OffsetCommitRequest, versions 2 to 10."""

    partition_index: int = field("int32", default=0)
    committed_offset: int = field("int64", default=0)
    committed_leader_epoch: int = field("int32@6-", default=-1)
    committed_metadata: str | None = field("string?", default="")


@message_class
class OffsetCommitRequestTopic(Struct):
    """Of OffsetCommitRequest, versions 2 to 10."""

    name: str = field("string@-9", default="")
    topic_id: bytes = field("uuid@10-", default=ZERO_UUID)
    partitions: list[OffsetCommitRequestPartition] = field("[]OffsetCommitRequestPartition", factory=list)


@message_class
class OffsetCommitRequest(Request[OffsetCommitResponse]):
    """Versions 2 to 10."""

    api_key: ClassVar[int] = 8
    response_class: ClassVar[type[OffsetCommitResponse]] = OffsetCommitResponse

    group_id: str = field("string", default="")
    generation_id_or_member_epoch: int = field("int32", default=-1)
    member_id: str = field("string", default="")
    group_instance_id: str | None = field("string@7-?!", default=None)
    retention_time_ms: int = field("int64@-4", default=-1)
    topics: list[OffsetCommitRequestTopic] = field("[]OffsetCommitRequestTopic", factory=list)

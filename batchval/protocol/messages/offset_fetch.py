"""OffsetFetch: request (API key 9) and response, versions 1 to 10.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from typing import ClassVar

from batchval.protocol.message import Request, Response, Struct
from batchval.protocol.message_class import field, message_class
from batchval.protocol.primitives import ZERO_UUID

__all__ = [
    "OffsetFetchRequest", "OffsetFetchRequestGroup", "OffsetFetchRequestTopic",
    "OffsetFetchRequestTopics", "OffsetFetchResponse", "OffsetFetchResponseGroup",
    "OffsetFetchResponsePartition", "OffsetFetchResponsePartitions", "OffsetFetchResponseTopic",
    "OffsetFetchResponseTopics",
]


@message_class
class OffsetFetchResponsePartition(Struct):
    """Of OffsetFetchResponse, versions 1 to 7."""

    partition_index: int = field("int32", default=0)
    committed_offset: int = field("int64", default=0)
    committed_leader_epoch: int = field("int32@5-", default=-1)
    metadata: str | None = field("string?", default="")
    error_code: int = field("int16", default=0)


@message_class
class OffsetFetchResponseTopic(Struct):
    """Of OffsetFetchResponse, versions 1 to 7."""

    name: str = field("string", default="")
    partitions: list[OffsetFetchResponsePartition] = field("[]OffsetFetchResponsePartition", factory=list)


@message_class
class OffsetFetchResponsePartitions(Struct):
    """Of OffsetFetchResponse, versions 8 to 10."""

    partition_index: int = field("int32", default=0)
    committed_offset: int = field("int64", default=0)
    committed_leader_epoch: int = field("int32", default=-1)
    metadata: str | None = field("string?", default="")
    error_code: int = field("int16", default=0)


@message_class
class OffsetFetchResponseTopics(Struct):
    """Of OffsetFetchResponse, versions 8 to 10."""

    name: str = field("string@-9", default="")
    topic_id: bytes = field("uuid@10-", default=ZERO_UUID)
    partitions: list[OffsetFetchResponsePartitions] = field("[]OffsetFetchResponsePartitions", factory=list)


@message_class
class OffsetFetchResponseGroup(Struct):
    """Of OffsetFetchResponse, versions 8 to 10."""

    group_id: str = field("string", default="")
    topics: list[OffsetFetchResponseTopics] = field("[]OffsetFetchResponseTopics", factory=list)
    error_code: int = field("int16", default=0)


@message_class
class OffsetFetchResponse(Response):
    """Versions 1 to 10."""

    api_key: ClassVar[int] = 9

    throttle_time_ms: int = field("int32@3-", default=0)
    topics: list[OffsetFetchResponseTopic] = field("[]OffsetFetchResponseTopic@-7!", factory=list)
    error_code: int = field("int16@2-7", default=0)
    groups: list[OffsetFetchResponseGroup] = field("[]OffsetFetchResponseGroup@8-!", factory=list)


@message_class
class OffsetFetchRequestTopic(Struct):
    """Of OffsetFetchRequest, versions 1 to 7."""

    name: str = field("string", default="")
    partition_indexes: list[int] = field("[]int32", factory=list)


@message_class
class OffsetFetchRequestTopics(Struct):
    """Of OffsetFetchRequest, versions 8 to 10."""

    name: str = field("string@-9", default="")
    topic_id: bytes = field("uuid@10-", default=ZERO_UUID)
    partition_indexes: list[int] = field("[]int32", factory=list)


@message_class
class OffsetFetchRequestGroup(Struct):
    """Of OffsetFetchRequest, versions 8 to 10."""

    group_id: str = field("string", default="")
    member_id: str | None = field("string@9-?", default=None)
    member_epoch: int = field("int32@9-", default=-1)
    topics: list[OffsetFetchRequestTopics] | None = field("[]OffsetFetchRequestTopics?", factory=list)


@message_class
class OffsetFetchRequest(Request[OffsetFetchResponse]):
    """Versions 1 to 10."""

    api_key: ClassVar[int] = 9
    response_class: ClassVar[type[OffsetFetchResponse]] = OffsetFetchResponse

    group_id: str = field("string@-7!", default="")
    topics: list[OffsetFetchRequestTopic] | None = field("[]OffsetFetchRequestTopic@-7?2-7!", factory=list)
    groups: list[OffsetFetchRequestGroup] = field("[]OffsetFetchRequestGroup@8-!", factory=list)
    require_stable: bool = field("bool@7-!", default=False)

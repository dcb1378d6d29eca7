"""Metadata: request (API key 3) and response, versions 0 to 13.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from typing import ClassVar

from batchval.protocol.message import Request, Response, Struct
from batchval.protocol.message_class import field, message_class
from batchval.protocol.primitives import ZERO_UUID

__all__ = [
    "MetadataRequest", "MetadataRequestTopic", "MetadataResponse", "MetadataResponseBroker",
    "MetadataResponsePartition", "MetadataResponseTopic",
]


@message_class
class MetadataResponseBroker(Struct):
    """Of MetadataResponse, versions 0 to 13."""

    node_id: int = field("int32", default=0)
    host: str = field("string", default="")
    port: int = field("int32", default=0)
    rack: str | None = field("string@1-?", default=None)


@message_class
class MetadataResponsePartition(Struct):
    """Of MetadataResponse, versions 0 to 13."""

    error_code: int = field("int16", default=0)
    partition_index: int = field("int32", default=0)
    leader_id: int = field("int32", default=0)
    leader_epoch: int = field("int32@7-", default=-1)
    replica_nodes: list[int] = field("[]int32", factory=list)
    isr_nodes: list[int] = field("[]int32", factory=list)
    offline_replicas: list[int] = field("[]int32@5-", factory=list)


@message_class
class MetadataResponseTopic(Struct):
    """Of MetadataResponse, versions 0 to 13."""

    error_code: int = field("int16", default=0)
    name: str | None = field("string?12-", default="")
    topic_id: bytes = field("uuid@10-", default=ZERO_UUID)
    is_internal: bool = field("bool@1-", default=False)
    partitions: list[MetadataResponsePartition] = field("[]MetadataResponsePartition", factory=list)
    topic_authorized_operations: int = field("int32@8-!", default=-2147483648)


@message_class
class MetadataResponse(Response):
    """Versions 0 to 13."""

    api_key: ClassVar[int] = 3

    throttle_time_ms: int = field("int32@3-", default=0)
    brokers: list[MetadataResponseBroker] = field("[]MetadataResponseBroker", factory=list)
    cluster_id: str | None = field("string@2-?", default=None)
    controller_id: int = field("int32@1-", default=-1)
    topics: list[MetadataResponseTopic] = field("[]MetadataResponseTopic", factory=list)
    cluster_authorized_operations: int = field("int32@8-10!", default=-2147483648)
    error_code: int = field("int16@13-", default=0)


@message_class
class MetadataRequestTopic(Struct):
    """Of MetadataRequest, versions 0 to 13."""

    topic_id: bytes = field("uuid@10-", default=ZERO_UUID)
    name: str | None = field("string?10-", default="")


@message_class
class MetadataRequest(Request[MetadataResponse]):
    """Versions 0 to 13."""

    api_key: ClassVar[int] = 3
    response_class: ClassVar[type[MetadataResponse]] = MetadataResponse

    topics: list[MetadataRequestTopic] | None = field("[]MetadataRequestTopic?1-", factory=list)
    allow_auto_topic_creation: bool = field("bool@4-!", default=True)
    include_cluster_authorized_operations: bool = field("bool@8-10!", default=False)
    include_topic_authorized_operations: bool = field("bool@8-!", default=False)

"""CreateTopics: request (API key 19) and response, versions 2 to 7.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from typing import ClassVar

from batchval.protocol.message import Request, Response, Struct
from batchval.protocol.message_class import field, message_class
from batchval.protocol.primitives import ZERO_UUID

__all__ = [
    "CreatableReplicaAssignment", "CreatableTopic", "CreatableTopicConfig", "CreatableTopicConfigs",
    "CreatableTopicResult", "CreateTopicsRequest", "CreateTopicsResponse",
]


@message_class
class CreatableTopicConfigs(Struct):
    """Of CreateTopicsResponse, versions 5 to 7."""

    name: str = field("string", default="")
    value: str | None = field("string?", default="")
    read_only: bool = field("bool", default=False)
    config_source: int = field("int8", default=-1)
    is_sensitive: bool = field("bool", default=False)


@message_class
class CreatableTopicResult(Struct):
    """Of CreateTopicsResponse, versions 2 to 7."""

    name: str = field("string", default="")
    topic_id: bytes = field("uuid@7-", default=ZERO_UUID)
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string?", default="")
    topic_config_error_code: int = field("int16@5-#0", default=0)
    num_partitions: int = field("int32@5-", default=-1)
    replication_factor: int = field("int16@5-", default=-1)
    configs: list[CreatableTopicConfigs] | None = field("[]CreatableTopicConfigs@5-?", factory=list)


@message_class
class CreateTopicsResponse(Response):
    """Versions 2 to 7."""

    api_key: ClassVar[int] = 19

    throttle_time_ms: int = field("int32", default=0)
    topics: list[CreatableTopicResult] = field("[]CreatableTopicResult", factory=list)


@message_class
class CreatableReplicaAssignment(Struct):
    """Of CreateTopicsRequest, versions 2 to 7."""

    partition_index: int = field("int32", default=0)
    broker_ids: list[int] = field("[]int32", factory=list)


@message_class
class CreatableTopicConfig(Struct):
    """Of CreateTopicsRequest, versions 2 to 7."""

    name: str = field("string", default="")
    value: str | None = field("string?", default="")


@message_class
class CreatableTopic(Struct):
    """Of CreateTopicsRequest, versions 2 to 7."""

    name: str = field("string", default="")
    num_partitions: int = field("int32", default=0)
    replication_factor: int = field("int16", default=0)
    assignments: list[CreatableReplicaAssignment] = field("[]CreatableReplicaAssignment", factory=list)
    configs: list[CreatableTopicConfig] = field("[]CreatableTopicConfig", factory=list)


@message_class
class CreateTopicsRequest(Request[CreateTopicsResponse]):
    """Versions 2 to 7."""

    api_key: ClassVar[int] = 19
    response_class: ClassVar[type[CreateTopicsResponse]] = CreateTopicsResponse

    topics: list[CreatableTopic] = field("[]CreatableTopic", factory=list)
    timeout_ms: int = field("int32", default=60000)
    validate_only: bool = field("bool", default=False)

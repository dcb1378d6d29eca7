"""DescribeConfigs: request (API key 32) and response, versions 1 to 4.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from typing import ClassVar

from batchval.protocol.message import Request, Response, Struct
from batchval.protocol.message_class import field, message_class

__all__ = [
    "DescribeConfigsRequest", "DescribeConfigsResource", "DescribeConfigsResourceResult",
    "DescribeConfigsResponse", "DescribeConfigsResult", "DescribeConfigsSynonym",
]


@message_class
class DescribeConfigsSynonym(Struct):
    """Of DescribeConfigsResponse, versions 1 to 4."""

    name: str = field("string", default="")
    value: str | None = field("string?", default="")
    source: int = field("int8", default=0)


@message_class
class DescribeConfigsResourceResult(Struct):
    """Of DescribeConfigsResponse, versions 1 to 4."""

    name: str = field("string", default="")
    value: str | None = field("string?", default="")
    read_only: bool = field("bool", default=False)
    config_source: int = field("int8", default=-1)
    is_sensitive: bool = field("bool", default=False)
    synonyms: list[DescribeConfigsSynonym] = field("[]DescribeConfigsSynonym", factory=list)
    config_type: int = field("int8@3-", default=0)
    documentation: str | None = field("string@3-?", default="")


@message_class
class DescribeConfigsResult(Struct):
    """Of DescribeConfigsResponse, versions 1 to 4."""

    error_code: int = field("int16", default=0)
    error_message: str | None = field("string?", default="")
    resource_type: int = field("int8", default=0)
    resource_name: str = field("string", default="")
    configs: list[DescribeConfigsResourceResult] = field("[]DescribeConfigsResourceResult", factory=list)


@message_class
class DescribeConfigsResponse(Response):
    """Versions 1 to 4."""

    api_key: ClassVar[int] = 32

    throttle_time_ms: int = field("int32", default=0)
    results: list[DescribeConfigsResult] = field("[]DescribeConfigsResult", factory=list)


@message_class
class DescribeConfigsResource(Struct):
    """Of DescribeConfigsRequest, versions 1 to 4."""

    resource_type: int = field("int8", default=0)
    resource_name: str = field("string", default="")
    configuration_keys: list[str] | None = field("[]string?", factory=list)


@message_class
class DescribeConfigsRequest(Request[DescribeConfigsResponse]):
    """Versions 1 to 4."""

    api_key: ClassVar[int] = 32
    response_class: ClassVar[type[DescribeConfigsResponse]] = DescribeConfigsResponse

    resources: list[DescribeConfigsResource] = field("[]DescribeConfigsResource", factory=list)
    include_synonyms: bool = field("bool", default=False)
    include_documentation: bool = field("bool@3-!", default=False)

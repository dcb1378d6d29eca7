"""ApiVersions: request (API key 18) and response, versions 0 to 5.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from typing import ClassVar

from batchval.protocol.message import Request, Response, Struct
from batchval.protocol.message_class import field, message_class

__all__ = ["ApiVersion", "ApiVersionsRequest", "ApiVersionsResponse", "FinalizedFeatureKey", "SupportedFeatureKey"]


@message_class
class ApiVersion(Struct):
    """Of ApiVersionsResponse, versions 0 to 5."""

    api_key: int = field("int16", default=0)
    min_version: int = field("int16", default=0)
    max_version: int = field("int16", default=0)


@message_class
class SupportedFeatureKey(Struct):
    """Of ApiVersionsResponse, versions 3 to 5."""

    name: str = field("string", default="")
    min_version: int = field("int16", default=0)
    max_version: int = field("int16", default=0)


@message_class
class FinalizedFeatureKey(Struct):
    """Of ApiVersionsResponse, versions 3 to 5."""

    name: str = field("string", default="")
    max_version_level: int = field("int16", default=0)
    min_version_level: int = field("int16", default=0)


@message_class
class ApiVersionsResponse(Response):
    """Versions 0 to 5."""

    api_key: ClassVar[int] = 18

    error_code: int = field("int16", default=0)
    api_keys: list[ApiVersion] = field("[]ApiVersion", factory=list)
    throttle_time_ms: int = field("int32@1-", default=0)
    supported_features: list[SupportedFeatureKey] = field("[]SupportedFeatureKey@3-#0", factory=list)
    finalized_features_epoch: int = field("int64@3-#1", default=-1)
    finalized_features: list[FinalizedFeatureKey] = field("[]FinalizedFeatureKey@3-#2", factory=list)
    zk_migration_ready: bool = field("bool@3-#3", default=False)


@message_class
class ApiVersionsRequest(Request[ApiVersionsResponse]):
    """Versions 0 to 5."""

    api_key: ClassVar[int] = 18
    response_class: ClassVar[type[ApiVersionsResponse]] = ApiVersionsResponse

    client_software_name: str = field("string@3-", default="")
    client_software_version: str = field("string@3-", default="")
    cluster_id: str | None = field("string@5-?", default=None)
    node_id: int = field("int32@5-", default=-1)

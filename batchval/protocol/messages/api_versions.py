"""ApiVersions: request (API key 18) and response, versions 0 to 5.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Self

from batchval.protocol.message import Request, Response, Tags
from batchval.protocol.message_class import message_class
from batchval.protocol.primitives import Reader, Writer

__all__ = ["ApiVersion", "ApiVersionsRequest", "ApiVersionsResponse", "FinalizedFeatureKey", "SupportedFeatureKey"]


@message_class
class ApiVersion:
    """Of ApiVersionsResponse, versions 0 to 5."""

    api_key: int = 0
    min_version: int = 0
    max_version: int = 0
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.api_key = r.int16()
        self.min_version = r.int16()
        self.max_version = r.int16()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int16(self.api_key)
        w.int16(self.min_version)
        w.int16(self.max_version)
        w.tags(self.unknown_tagged_fields)


@message_class
class SupportedFeatureKey:
    """Of ApiVersionsResponse, versions 3 to 5."""

    name: str = ""
    min_version: int = 0
    max_version: int = 0
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.name = r.string()
        self.min_version = r.int16()
        self.max_version = r.int16()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.string(self.name)
        w.int16(self.min_version)
        w.int16(self.max_version)
        w.tags(self.unknown_tagged_fields)


@message_class
class FinalizedFeatureKey:
    """Of ApiVersionsResponse, versions 3 to 5."""

    name: str = ""
    max_version_level: int = 0
    min_version_level: int = 0
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.name = r.string()
        self.max_version_level = r.int16()
        self.min_version_level = r.int16()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.string(self.name)
        w.int16(self.max_version_level)
        w.int16(self.min_version_level)
        w.tags(self.unknown_tagged_fields)


@message_class
class ApiVersionsResponse(Response):
    """Versions 0 to 5."""

    api_key: ClassVar[int] = 18

    error_code: int = 0
    api_keys: list[ApiVersion] = field(default_factory=list)
    throttle_time_ms: int = 0
    supported_features: list[SupportedFeatureKey] = field(default_factory=list)
    finalized_features_epoch: int = -1
    finalized_features: list[FinalizedFeatureKey] = field(default_factory=list)
    zk_migration_ready: bool = False
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.error_code = r.int16()
        self.api_keys = [ApiVersion.read(r, version) for _ in range(r.count())]
        if version >= 1:
            self.throttle_time_ms = r.int32()
        if version >= 3:
            unknown = []
            for _ in range(r.tag_count()):
                tag, end = r.open_tag()
                if tag == 0:
                    self.supported_features = [SupportedFeatureKey.read(r, version) for _ in range(r.count())]
                elif tag == 1:
                    self.finalized_features_epoch = r.int64()
                elif tag == 2:
                    self.finalized_features = [FinalizedFeatureKey.read(r, version) for _ in range(r.count())]
                elif tag == 3:
                    self.zk_migration_ready = r.boolean()
                else:
                    unknown.append((tag, r.rest()))
                r.close_tag(end)
            self.unknown_tagged_fields = tuple(unknown)
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int16(self.error_code)
        w.structs(self.api_keys, version)
        if version >= 1:
            w.int32(self.throttle_time_ms)
        tags = list(self.unknown_tagged_fields)
        if version >= 3 and self.supported_features:
            t = Writer(flexible=True)
            t.structs(self.supported_features, version)
            tags.append((0, t.getvalue()))
        if version >= 3 and self.finalized_features_epoch != -1:
            t = Writer(flexible=True)
            t.int64(self.finalized_features_epoch)
            tags.append((1, t.getvalue()))
        if version >= 3 and self.finalized_features:
            t = Writer(flexible=True)
            t.structs(self.finalized_features, version)
            tags.append((2, t.getvalue()))
        if version >= 3 and self.zk_migration_ready:
            t = Writer(flexible=True)
            t.boolean(self.zk_migration_ready)
            tags.append((3, t.getvalue()))
        w.tags(tags)


@message_class
class ApiVersionsRequest(Request[ApiVersionsResponse]):
    """Versions 0 to 5."""

    api_key: ClassVar[int] = 18
    response_class: ClassVar[type[ApiVersionsResponse]] = ApiVersionsResponse

    client_software_name: str = ""
    client_software_version: str = ""
    cluster_id: str | None = None
    node_id: int = -1
    unknown_tagged_fields: Tags = ()
    api_version: int = field(kw_only=True)

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls(api_version=version)
        if version >= 3:
            self.client_software_name = r.string()
            self.client_software_version = r.string()
        if version >= 5:
            self.cluster_id = r.nullable_string()
            self.node_id = r.int32()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        if version >= 3:
            w.string(self.client_software_name)
            w.string(self.client_software_version)
        if version >= 5:
            w.nullable_string(self.cluster_id)
            w.int32(self.node_id)
        w.tags(self.unknown_tagged_fields)

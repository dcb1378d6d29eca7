"""DescribeConfigs: request (API key 32) and response, versions 1 to 4.

Generated from Kafka 4.4.0's message definitions by tools/generate_protocol.py; do not edit.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Self

from batchval.protocol.message import Request, Response, Tags, absent
from batchval.protocol.message_class import message_class
from batchval.protocol.primitives import Reader, Writer

__all__ = [
    "DescribeConfigsRequest",
    "DescribeConfigsResource",
    "DescribeConfigsResourceResult",
    "DescribeConfigsResponse",
    "DescribeConfigsResult",
    "DescribeConfigsSynonym",
]


@message_class
class DescribeConfigsSynonym:
    """Of DescribeConfigsResponse, versions 1 to 4."""

    name: str = ""
    value: str | None = ""
    source: int = 0
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.name = r.string()
        self.value = r.nullable_string()
        self.source = r.int8()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.string(self.name)
        w.nullable_string(self.value)
        w.int8(self.source)
        w.tags(self.unknown_tagged_fields)


@message_class
class DescribeConfigsResourceResult:
    """Of DescribeConfigsResponse, versions 1 to 4."""

    name: str = ""
    value: str | None = ""
    read_only: bool = False
    config_source: int = -1
    is_sensitive: bool = False
    synonyms: list[DescribeConfigsSynonym] = field(default_factory=list)
    config_type: int = 0
    documentation: str | None = ""
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.name = r.string()
        self.value = r.nullable_string()
        self.read_only = r.boolean()
        self.config_source = r.int8()
        self.is_sensitive = r.boolean()
        self.synonyms = [DescribeConfigsSynonym.read(r, version) for _ in range(r.count())]
        if version >= 3:
            self.config_type = r.int8()
            self.documentation = r.nullable_string()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.string(self.name)
        w.nullable_string(self.value)
        w.boolean(self.read_only)
        w.int8(self.config_source)
        w.boolean(self.is_sensitive)
        w.structs(self.synonyms, version)
        if version >= 3:
            w.int8(self.config_type)
            w.nullable_string(self.documentation)
        w.tags(self.unknown_tagged_fields)


@message_class
class DescribeConfigsResult:
    """Of DescribeConfigsResponse, versions 1 to 4."""

    error_code: int = 0
    error_message: str | None = ""
    resource_type: int = 0
    resource_name: str = ""
    configs: list[DescribeConfigsResourceResult] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.error_code = r.int16()
        self.error_message = r.nullable_string()
        self.resource_type = r.int8()
        self.resource_name = r.string()
        self.configs = [DescribeConfigsResourceResult.read(r, version) for _ in range(r.count())]
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int16(self.error_code)
        w.nullable_string(self.error_message)
        w.int8(self.resource_type)
        w.string(self.resource_name)
        w.structs(self.configs, version)
        w.tags(self.unknown_tagged_fields)


@message_class
class DescribeConfigsResponse(Response):
    """Versions 1 to 4."""

    api_key: ClassVar[int] = 32

    throttle_time_ms: int = 0
    results: list[DescribeConfigsResult] = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.throttle_time_ms = r.int32()
        self.results = [DescribeConfigsResult.read(r, version) for _ in range(r.count())]
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int32(self.throttle_time_ms)
        w.structs(self.results, version)
        w.tags(self.unknown_tagged_fields)


@message_class
class DescribeConfigsResource:
    """Of DescribeConfigsRequest, versions 1 to 4."""

    resource_type: int = 0
    resource_name: str = ""
    configuration_keys: list[str] | None = field(default_factory=list)
    unknown_tagged_fields: Tags = ()

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls()
        self.resource_type = r.int8()
        self.resource_name = r.string()
        n = r.nullable_count()
        self.configuration_keys = None if n < 0 else [r.string() for _ in range(n)]
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.int8(self.resource_type)
        w.string(self.resource_name)
        w.count(-1 if self.configuration_keys is None else len(self.configuration_keys))
        for one in self.configuration_keys or ():
            w.string(one)
        w.tags(self.unknown_tagged_fields)


@message_class
class DescribeConfigsRequest(Request[DescribeConfigsResponse]):
    """Versions 1 to 4."""

    api_key: ClassVar[int] = 32
    response_class: ClassVar[type[DescribeConfigsResponse]] = DescribeConfigsResponse

    resources: list[DescribeConfigsResource] = field(default_factory=list)
    include_synonyms: bool = False
    include_documentation: bool = False
    unknown_tagged_fields: Tags = ()
    api_version: int = field(kw_only=True)

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        self = cls(api_version=version)
        self.resources = [DescribeConfigsResource.read(r, version) for _ in range(r.count())]
        self.include_synonyms = r.boolean()
        if version >= 3:
            self.include_documentation = r.boolean()
        self.unknown_tagged_fields = r.unknown_tags()
        return self

    def write(self, w: Writer, version: int) -> None:
        w.structs(self.resources, version)
        w.boolean(self.include_synonyms)
        if version >= 3:
            w.boolean(self.include_documentation)
        elif self.include_documentation:
            raise absent("IncludeDocumentation", version)
        w.tags(self.unknown_tagged_fields)

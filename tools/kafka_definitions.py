"""Kafka's message definitions: the files ``common/message/*.json`` inside the kafka-clients jar, as
objects.

The jar is the one that the real broker of ``tests/system/interop`` runs on, fetched by Maven once.
The files are JSON with lines of comments. A definition has, for each field, the versions in which
it exists, may be null, or is tagged.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

LAST = 32767
FIXED = {
    "bool": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "float64": 8, "uuid": 16,
}  # fmt: skip
_COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)


@dataclass(frozen=True)
class Versions:
    """From one version to another, both in it."""

    first: int
    last: int

    @classmethod
    def of(cls, text: str | None) -> Versions | None:
        """Parse a range of versions; return None for "none"."""
        if text is None or text == "none":
            return None
        first, plus, last = text.partition("-")
        if plus:
            return cls(int(first), int(last))
        return cls(int(text.rstrip("+")), LAST if text.endswith("+") else int(text))

    def within(self, other: Versions) -> Versions | None:
        first, last = max(self.first, other.first), min(self.last, other.last)
        return Versions(first, last) if first <= last else None

    def condition(self, span: Versions) -> str:
        """Return the condition on ``version``, which lies in the span; empty if none is needed."""
        low, high = self.first > span.first, self.last < span.last
        if low and high and self.first == self.last:
            return f"version == {self.first}"
        if low and high:
            return f"{self.first} <= version <= {self.last}"
        return f"version >= {self.first}" if low else f"version <= {self.last}" if high else ""


@dataclass
class Field:
    """One field of a struct."""

    kafka_name: str
    type: str  # of the element, where it is an array
    array: bool
    versions: Versions
    nullable: Versions | None
    tagged: Versions | None
    tag: int
    default: str | None
    ignorable: bool
    struct: Struct | None

    @cached_property
    def name(self) -> str:
        return snake(self.kafka_name)


@dataclass
class Struct:
    name: str
    fields: list[Field]
    span: Versions  # the versions in which it can occur


@dataclass
class Definition:
    """One file: a request, a response or a header."""

    name: str
    key: int
    valid: Versions
    flexible: Versions | None
    unstable: bool
    listeners: list[str]
    root: Struct
    structs: list[Struct] = field(default_factory=list)  # those below the root, inner ones first


def snake(name: str) -> str:
    """Convert TimeoutMs to timeout_ms."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


class Definitions:
    """Definitions of one version of Kafka, by name."""

    def __init__(self, version: str, files: dict[str, dict[str, Any]]) -> None:
        self.version = version
        self._files = files

    @classmethod
    def in_jar(cls, jar: Path) -> Self:
        """Read all definitions of a jar."""
        files = {}
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if name.startswith("common/message/") and name.endswith(".json"):
                    found = json.loads(_COMMENT.sub("", archive.read(name).decode()))
                    files[found["name"]] = found
        if not files:
            raise SystemExit(f"{jar}: no common/message/*.json in it")
        return cls(re.sub(r".*kafka-clients-(.*)\.jar", r"\1", jar.name), files)

    def dumped(self, names: Iterable[str]) -> str:
        """Return definitions as JSON, one a line, without their comments."""
        lines = ",\n".join(json.dumps(_without_comments(self._files[name])) for name in names)
        return f'{{"version": "{self.version}", "files": [\n{lines}\n]}}\n'

    @cached_property
    def apis(self) -> list[Definition]:
        """Return the requests of all APIs by key, without those that have no valid version."""
        requests = [f for f in self._files.values() if f["type"] == "request"]
        valid = [f for f in requests if f["validVersions"] != "none"]
        return [self.load(f["name"]) for f in sorted(valid, key=lambda f: f["apiKey"])]

    def load(self, name: str, oldest: int | None = None) -> Definition:
        """Return a message's definition, from version ``oldest`` on where Kafka has removed it."""
        raw = self._files[name]
        valid = Versions.of(raw["validVersions"])
        if valid is None:
            raise SystemExit(f"{name}: no valid versions")
        if oldest is not None:
            valid = Versions(oldest, valid.last)
        common = {one["name"]: one for one in raw.get("commonStructs", ())}
        structs: dict[str, Struct] = {}
        root = Struct(raw["name"], _fields(raw, valid, common, structs, valid), valid)
        return Definition(
            name=raw["name"],
            key=raw.get("apiKey", -1),
            valid=valid,
            flexible=Versions.of(raw.get("flexibleVersions")),
            unstable=bool(raw.get("latestVersionUnstable", False)),
            listeners=raw.get("listeners", []),
            root=root,
            structs=list(structs.values()),
        )


def _without_comments(raw: Any) -> Any:
    if isinstance(raw, dict):
        return {key: _without_comments(value) for key, value in raw.items() if key != "about"}
    return [_without_comments(one) for one in raw] if isinstance(raw, list) else raw


def _fields(
    raw: dict[str, Any],
    span: Versions,
    common: dict[str, Any],
    structs: dict[str, Struct],
    valid: Versions,
) -> list[Field]:
    found = []
    for one in raw["fields"]:
        versions = Versions.of(one["versions"])
        here = versions and versions.within(span)
        if versions is None or here is None:
            continue
        if "flexibleVersions" in one and raw["name"] != "RequestHeader":
            raise SystemExit(f"{one['name']}: flexible versions of its own")
        kind = one["type"].removeprefix("[]")
        struct = None
        if kind[0].isupper():
            inner = one if "fields" in one else common[kind]
            inner_span = valid if kind in common else here
            if kind not in structs:
                below = _fields(inner | {"name": kind}, inner_span, common, structs, valid)
                structs[kind] = Struct(kind, below, inner_span)
            elif kind not in common:
                raise SystemExit(f"{kind} is defined twice")
            struct = structs[kind]
        default = one.get("default")
        found.append(
            Field(
                kafka_name=one["name"],
                type=kind,
                array=one["type"].startswith("[]"),
                versions=here,
                nullable=(n := Versions.of(one.get("nullableVersions"))) and n.within(here),
                tagged=(t := Versions.of(one.get("taggedVersions"))) and t.within(here),
                tag=one.get("tag", -1),
                default=None if default is None else str(default),
                ignorable=bool(one.get("ignorable", False)),
                struct=struct,
            )
        )
    return found


def jar() -> Path:
    """Return the path of the kafka-clients jar in the test broker's class path."""
    from tests.system.interop.kafka_broker import classpath

    return next(
        Path(one) for one in classpath().split(":") if re.search(r"kafka-clients-[\d.]+\.jar$", one)
    )

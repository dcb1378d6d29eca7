"""Messages read and written by Kafka's definitions, as kafka-python has them.

They have the versions that Kafka 4 removed. Versions without compact lengths alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from kafka.protocol.schemas.load_json import load_json

from batchval.protocol.apis import APIS
from batchval.protocol.primitives import Reader, Writer
from tests.unit.protocol.values import Inventor

__all__ = ["definition", "invent", "read"]

KINDS = {
    "bool": "boolean",
    "int8": "int8",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
    "string": "string",
    "bytes": "data",
    "records": "records",
}


def holds(versions: str, version: int) -> bool:
    if versions.lower() == "none":
        return False
    first, dash, last = versions.partition("-")
    if versions.endswith("+"):
        return version >= int(versions[:-1])
    return int(first) <= version <= int(last if dash else first)


def fields_of(
    fields: list[dict[str, Any]], version: int
) -> Iterator[tuple[str, str, bool, list[dict[str, Any]] | None]]:
    """Yield name, type, whether it may be null, and the fields of a struct."""
    for field in fields:
        if holds(field["versions"], version) and "tag" not in field:
            nullable = holds(field.get("nullableVersions", "none"), version)
            yield field["name"], field["type"], nullable, field.get("fields")


@cache
def definition(key: int, side: str) -> list[dict[str, Any]]:
    loaded = load_json(APIS[key].name + side)
    shared = {one["name"]: one["fields"] for one in loaded.get("commonStructs", [])}
    return [_with_shared(field, shared) for field in loaded["fields"]]


def _with_shared(field: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    inner = field.get("fields") or shared.get(field["type"].removeprefix("[]"))
    return field | {"fields": [_with_shared(one, shared) for one in inner]} if inner else field


def invent(
    fields: list[dict[str, Any]], version: int, inventor: Inventor, w: Writer
) -> dict[str, Any]:
    """Write a random message; return its fields."""
    found: dict[str, Any] = {}
    for name, kind, nullable, inner in fields_of(fields, version):
        prefix = "nullable_" if nullable and kind in ("string", "bytes", "records") else ""
        if kind.startswith("[]"):
            count = (
                -1 if nullable and inventor.random.random() < 0.2 else inventor.random.randrange(4)
            )
            w.count(count)
            found[name] = (
                None
                if count < 0
                else [_one(kind[2:], inner, version, inventor, w) for _ in range(count)]
            )
        elif inner:
            found[name] = invent(inner, version, inventor, w)
        else:
            found[name] = getattr(inventor, prefix + KINDS[kind])()
            getattr(w, prefix + KINDS[kind])(found[name])
    return found


def _one(
    kind: str, inner: list[dict[str, Any]] | None, version: int, inventor: Inventor, w: Writer
) -> Any:
    if inner:
        return invent(inner, version, inventor, w)
    value = getattr(inventor, KINDS[kind])()
    getattr(w, KINDS[kind])(value)
    return value


def read(fields: list[dict[str, Any]], version: int, r: Reader) -> dict[str, Any]:
    """Read a message's fields."""
    found: dict[str, Any] = {}
    for name, kind, nullable, inner in fields_of(fields, version):
        prefix = "nullable_" if nullable and kind in ("string", "bytes", "records") else ""
        if kind.startswith("[]"):
            count = r.nullable_count()
            one = getattr(r, KINDS[kind[2:]]) if not inner else None
            found[name] = (
                None
                if count < 0
                else [one() if one else read(inner or [], version, r) for _ in range(count)]
            )
        elif inner:
            found[name] = read(inner, version, r)
        else:
            found[name] = getattr(r, prefix + KINDS[kind])()
    return found

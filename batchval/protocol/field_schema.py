"""Messages of Kafka read and written by a description of their fields.

    message  = name field ...
    field    = name ":" ["[]"] type ["@" versions] ["?" [versions]] ["#" tag ["+" versions]]
               ["=" default] [ "{" field ... "}" ]
    versions = first "-" [last]

``@`` has the versions that have the field (without it: all), ``?`` those in which it may be null
(without versions: all that have it), ``#`` its tag and the versions in which it is a tagged field.
A struct has its fields in braces. A value is what ``Reader`` returns; of a struct, a dict by
Kafka's names; of an array, a list. This is slower than ``messages``, and has every API in less
code: it is for requests that are answered with an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from batchval.protocol.error_schemas import MESSAGES
from batchval.protocol.errors import ProtocolError
from batchval.protocol.message_class import holds
from batchval.protocol.primitives import ZERO_UUID, Reader, Writer

__all__ = ["Shape", "read", "shape_of", "write"]

_FIELD: Final = re.compile(
    r"(?P<name>\w+):(?P<array>\[\])?(?P<type>\w+)(?:@(?P<versions>\d+-\d*))?"
    r"(?P<nullable>\?(?:\d+-\d*)?)?(?:#(?P<tag>\d+)(?:\+(?P<tagged>\d+-\d*))?)?(?:=(?P<default>\S+))?"
)
_METHODS: Final = {"bool": "boolean", "bytes": "data"}
_MAY_BE_NULL: Final = frozenset({"string", "bytes", "records"})
_ZEROS: Final[dict[str, Any]] = {
    "string": "",
    "bytes": b"",
    "records": b"",
    "uuid": ZERO_UUID,
    "bool": False,
}
#: Versions whose fields Kafka 4 has forgotten; Kafka 3.9 has them.
_OLD: Final = {
    ("ListOffsetsRequest", 0): (
        "ReplicaId:int32 Topics:[]struct { Name:string "
        "Partitions:[]struct { PartitionIndex:int32 Timestamp:int64 MaxNumOffsets:int32 } }"
    ),
    ("ListOffsetsResponse", 0): (
        "Topics:[]struct { Name:string "
        "Partitions:[]struct { PartitionIndex:int32 ErrorCode:int16 OldStyleOffsets:[]int64 } }"
    ),
    ("OffsetCommitRequest", 1): (
        "GroupId:string GenerationIdOrMemberEpoch:int32 MemberId:string "
        "Topics:[]struct { Name:string "
        "Partitions:[]struct { PartitionIndex:int32 CommittedOffset:int64 "
        "CommitTimestamp:int64 CommittedMetadata:string? } }"
    ),
}


class Shape(NamedTuple):
    """One field at one version. ``method`` reads and writes one element; "" for a struct."""

    name: str
    method: str
    array: bool
    nullable: bool
    tag: int | None
    default: Any
    fields: tuple[Shape, ...]


@cache
def _messages() -> dict[str, str]:
    """Return the fields of each message by its name."""
    whole = MESSAGES.replace("\n    ", " ")
    return {
        name: fields for name, _, fields in (line.partition(" ") for line in whole.splitlines())
    }


@cache
def shape_of(message: str, version: int) -> tuple[Shape, ...]:
    """Return the fields of a message, for example ``CreateTopicsRequest``, at one version."""
    text = _OLD.get((message, version)) or _messages()[message]
    return _fields(iter(text.split()), version)


def _fields(tokens: Iterator[str], version: int) -> tuple[Shape, ...]:
    """Return the fields up to a closing brace or the end."""
    found = []
    for token in tokens:
        if token == "}":
            break
        match = _FIELD.fullmatch(token)
        assert match is not None, token
        fields: tuple[Shape, ...] = ()
        if match["type"] == "struct":
            brace = next(tokens)
            assert brace == "{", token
            fields = _fields(tokens, version)
        if holds(match["versions"], version):
            found.append(_shape(match, version, fields))
    return tuple(found)


def _shape(match: re.Match[str], version: int, fields: tuple[Shape, ...]) -> Shape:
    kind, is_array = match["type"], match["array"] is not None
    nullable = match["nullable"] is not None and holds(match["nullable"][1:], version)
    tagged = match["tag"] is not None and holds(match["tagged"], version)
    method = "" if kind == "struct" else _METHODS.get(kind, kind)
    if nullable and not is_array and kind in _MAY_BE_NULL:
        method = f"nullable_{method}"
    default = _default(match["default"], kind, is_array, nullable)
    return Shape(
        match["name"],
        method,
        is_array,
        nullable,
        int(match["tag"]) if tagged else None,
        default,
        fields,
    )


def _default(text: str | None, kind: str, is_array: bool, nullable: bool) -> Any:
    if text == "null" and nullable:
        return None
    if is_array:
        return ()
    if kind == "struct":
        return {}
    if kind in _ZEROS:
        return True if text == "true" else _ZEROS[kind] if text in (None, "null") else text
    if kind == "float64":
        return float(text or 0)
    return int(text or "0", 0)


# ---- values --------------------------------------------------------------------------------------


def read(shapes: tuple[Shape, ...], r: Reader) -> dict[str, Any]:
    """Read a struct; its tagged fields are passed over. ProtocolError."""
    values = {shape.name: _read(shape, r) for shape in shapes if shape.tag is None}
    r.unknown_tags()
    return values


def _read(shape: Shape, r: Reader) -> Any:
    if shape.array:
        count = r.nullable_count() if shape.nullable else r.count()
        if count < 0:
            return None
        if shape.method:
            element = getattr(r, shape.method)
            return [element() for _ in range(count)]
        return [read(shape.fields, r) for _ in range(count)]
    if shape.method:
        return getattr(r, shape.method)()
    if shape.nullable and r.int8() < 0:
        return None
    return read(shape.fields, r)


def write(shapes: tuple[Shape, ...], w: Writer, values: Mapping[str, Any]) -> None:
    """Write a struct. A field that ``values`` does not have gets its default; tagged fields are
    left out.
    """
    for shape in shapes:
        if shape.tag is None:
            _write(shape, w, values.get(shape.name, shape.default))
    w.tags(())


def _write(shape: Shape, w: Writer, value: Any) -> None:
    if value is None and not shape.nullable:
        raise ProtocolError(f"{shape.name} cannot be null in this version")
    if shape.array:
        w.count(-1 if value is None else len(value))
        for element in value or ():
            _write_one(shape, w, element)
    elif shape.method or not shape.nullable:
        _write_one(shape, w, value)
    else:
        w.int8(-1 if value is None else 1)
        if value is not None:
            _write_one(shape, w, value)


def _write_one(shape: Shape, w: Writer, value: Any) -> None:
    if shape.method:
        getattr(w, shape.method)(value)
    else:
        write(shape.fields, w, value)

"""Write a Python module for each Kafka API: a class for each struct, with its fields' layouts."""

from __future__ import annotations

import keyword
import textwrap
from collections.abc import Iterable, Iterator
from copy import deepcopy

from tools.kafka_definitions import Definition, Field, Struct, Versions

TYPES = {
    "bool": "bool", "float64": "float", "string": "str", "bytes": "bytes", "records": "Records", "uuid": "bytes",
}  # fmt: skip
_WIDTH = 120
_RESERVED = {"field", "layout", "read", "write", "unknown_tagged_fields"}
_RESERVED_IN_ROOTS = {
    "encode",
    "decode",
    "parse",
    "api_key",
    "api_version",
    "check_version",
    "expects_response",
}


#: structs that Kafka defines in several APIs, differently: their classes begin with the API's name
_OF_SEVERAL = {"LeaderIdAndEpoch", "NodeEndpoint"}


def _named(definition: Definition, api: str) -> Definition:
    """Return a copy of a definition in which no struct has the name of another API's."""
    copied = deepcopy(definition)
    for struct in (*copied.structs, copied.root):
        struct.name = f"{api}{struct.name}" if struct.name in _OF_SEVERAL else struct.name
        for field in struct.fields:
            if field.struct and field.type in _OF_SEVERAL:
                field.type = f"{api}{field.type}"
    return copied


def module(api: str, request: Definition, response: Definition, version: str) -> str:
    """Return the text of one API's module."""
    request, response = _named(request, api), _named(response, api)
    names = [s.name for d in (request, response) for s in (*d.structs, d.root)]
    if len(set(names)) != len(names):
        raise SystemExit(f"{api}: a struct's name is used twice")
    body = [*_definition(response, None), *_definition(request, response)]
    text = "\n".join(body)
    shared = ["Request", "Response"]
    shared += [n for n in ("Records", "Struct") if f"{n}" in text]
    lines = [
        f'"""{api}: request (API key {request.key}) and response, versions {_span(request.valid)}.',
        "",
        f"Generated from Kafka {version}'s message definitions by tools/generate_protocol.py; do not edit.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from typing import ClassVar",
        "",
        f"from batchval.protocol.message import {', '.join(sorted(shared))}",
        "from batchval.protocol.message_class import field, message_class",
        *(["from batchval.protocol.primitives import ZERO_UUID"] if "ZERO_UUID" in text else []),
        "",
        *listed(names),
    ]
    return "\n".join(lines) + "\n" + text + "\n"


def listed(names: Iterable[str]) -> list[str]:
    """Return the lines of ``__all__``."""
    text = ", ".join(f'"{name}"' for name in sorted(names))
    if len(text) < _WIDTH - len("__all__ = []"):
        return [f"__all__ = [{text}]"]
    lines = textwrap.wrap(f"{text},", 100, initial_indent=" " * 4, subsequent_indent=" " * 4)
    return ["__all__ = [", *lines, "]"]


def _span(versions: Versions) -> str:
    return f"{versions.first} to {versions.last}"


def _definition(of: Definition, response: Definition | None) -> Iterator[str]:
    for struct in of.structs:
        yield from ("", "", "@message_class", f"class {struct.name}(Struct):")
        yield f'    """Of {of.name}, versions {_span(struct.span)}."""'
        yield from _struct(struct)
    yield from ("", "", "@message_class")
    base = "Response" if response is None else f"Request[{response.name}]"
    yield from (f"class {of.root.name}({base}):", f'    """Versions {_span(of.valid)}."""', "")
    yield f"    api_key: ClassVar[int] = {of.key}"
    if response is not None:
        yield f"    response_class: ClassVar[type[{response.name}]] = {response.name}"
    if reserved := {field.name for field in of.root.fields} & _RESERVED_IN_ROOTS:
        raise SystemExit(f"{of.name}: {reserved} are reserved names of generated classes")
    yield from _struct(of.root)


def _attribute(field: Field) -> str:
    if keyword.iskeyword(field.name) or field.name in _RESERVED:
        raise SystemExit(f"{field.name} is a reserved name")
    return field.name


def _type(field: Field) -> str:
    one = field.type if field.struct else TYPES.get(field.type, "int")
    one = f"list[{one}]" if field.array else one
    return f"{one} | None" if field.nullable else one


def _default(field: Field) -> str:
    """Return the default as an expression."""
    if field.default == "null":
        return "None"
    if field.array:
        return "[]"
    if field.struct:
        return f"{field.type}()"
    match field.type:
        case "bool":
            return "True" if (field.default or "").lower() == "true" else "False"
        case "string":
            return f'"{field.default or ""}"'
        case "bytes" | "records":
            return 'b""'
        case "uuid":
            return "ZERO_UUID"
        case "float64":
            return repr(float(field.default or 0))
    return str(int(field.default or "0", 0))


def _declared(field: Field, span: Versions) -> str:
    default = _default(field)
    if default != "None" and (field.array or field.struct):
        default = f"factory={'list' if field.array else field.type}"
    else:
        default = f"default={default}"
    head, content = f"{_attribute(field)}: {_type(field)}", f'"{_layout(field, span)}", {default}'
    line = f"    {head} = field({content})"
    return line if len(line) <= _WIDTH else f"    {head} = field(\n        {content}\n    )"


def _layout(field: Field, span: Versions) -> str:
    """Return the text that batchval.protocol.structs reads."""
    if field.nullable and field.struct and not field.array:
        raise SystemExit(f"{field.name}: a struct that may be null")
    if field.tagged and field.tagged != field.versions:
        raise SystemExit(f"{field.name} is tagged in some of its versions only")
    text = f"{'[]' * field.array}{field.type}"
    text += f"@{_range(field.versions, span)}" if field.versions != span else ""
    if field.nullable:
        text += "?" if field.nullable == field.versions else f"?{_range(field.nullable, span)}"
    if field.tagged:
        return f"{text}#{field.tag}"
    if field.versions == span or field.ignorable:
        return text
    if "".join(word.capitalize() for word in field.name.split("_")) != field.kafka_name:
        raise SystemExit(f"{field.kafka_name}: an error would not have this name")
    return f"{text}!"


def _range(versions: Versions, span: Versions) -> str:
    """Return versions, without the ends that the struct has, too."""
    first = str(versions.first) if versions.first > span.first else ""
    return f"{first}-{versions.last if versions.last < span.last else ''}"


def _struct(struct: Struct) -> Iterator[str]:
    yield ""
    yield from (_declared(field, struct.span) for field in struct.fields)

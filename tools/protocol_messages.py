"""Write a Python module for each Kafka API: a class with ``read`` and ``write`` for each struct."""

from __future__ import annotations

import keyword
from collections.abc import Iterator
from copy import deepcopy
from itertools import groupby

from tools.kafka_definitions import Definition, Field, Struct, Versions

TYPES = {
    "bool": "bool", "float64": "float", "string": "str", "bytes": "bytes", "records": "Records", "uuid": "bytes",
}  # fmt: skip
METHODS = {"bool": "boolean", "bytes": "data"}
_WIDTH = 108  # of a line inside a condition of a method
_RESERVED = {"field", "read", "write", "unknown_tagged_fields"}
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
    primitives = ["Reader", "Writer"] + (["ZERO_UUID"] if "ZERO_UUID" in text else [])
    shared = ["Request", "Response", "Tags"] + [n for n in ("Records", "absent") if f"{n}" in text]
    lines = [
        f'"""{api}: request (API key {request.key}) and response, versions {_span(request.valid)}.',
        "",
        f"Generated from Kafka {version}'s message definitions by tools/generate_protocol.py; do not edit.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        *(["from dataclasses import field"] if "field(" in text else []),
        "from typing import ClassVar, Self",
        "",
        f"from batchval.protocol.message import {', '.join(sorted(shared, key=_isort))}",
        "from batchval.protocol.message_class import message_class",
        f"from batchval.protocol.primitives import {', '.join(sorted(primitives, key=_isort))}",
        "",
        f"__all__ = [{', '.join(chr(34) + n + chr(34) for n in sorted(names))}]",
    ]
    if len(lines[-1]) > 120:
        lines[-1:] = ["__all__ = [", *(f'    "{n}",' for n in sorted(names)), "]"]
    return "\n".join(lines) + "\n" + text + "\n"


def _isort(name: str) -> tuple[int, str]:
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


def _span(versions: Versions) -> str:
    return f"{versions.first} to {versions.last}"


def _definition(of: Definition, response: Definition | None) -> Iterator[str]:
    for struct in of.structs:
        yield from ("", "", "@message_class", f"class {struct.name}:")
        yield f'    """Of {of.name}, versions {_span(struct.span)}."""'
        yield from _struct(struct, of)
    yield from ("", "", "@message_class")
    base = "Response" if response is None else f"Request[{response.name}]"
    yield from (f"class {of.root.name}({base}):", f'    """Versions {_span(of.valid)}."""', "")
    yield f"    api_key: ClassVar[int] = {of.key}"
    if response is not None:
        yield f"    response_class: ClassVar[type[{response.name}]] = {response.name}"
    if reserved := {field.name for field in of.root.fields} & _RESERVED_IN_ROOTS:
        raise SystemExit(f"{of.name}: {reserved} are reserved names of generated classes")
    yield from _struct(of.root, of, is_request=response is not None)


def _attribute(field: Field) -> str:
    if keyword.iskeyword(field.name) or field.name in _RESERVED:
        raise SystemExit(f"{field.name} is a reserved name")
    return field.name


def _type(field: Field) -> str:
    one = field.type if field.struct else TYPES.get(field.type, "int")
    one = f"list[{one}]" if field.array else one
    return f"{one} | None" if field.nullable else one


def _default(field: Field) -> str:
    """Return the default as an expression (for a list or struct, a new one)."""
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


def _declared(field: Field) -> str:
    default = _default(field)
    if field.array and default == "[]":
        default = "field(default_factory=list)"
    elif field.struct and default != "None":
        default = f"field(default_factory={field.type})"
    return f"    {_attribute(field)}: {_type(field)} = {default}"


def _is_other(field: Field) -> str:
    """Return the condition that the value differs from the default."""
    default, name = _default(field), f"self.{field.name}"
    if default == "None":
        return f"{name} is not None"
    if default in ("[]", '""', 'b""', "False"):
        return name
    return f"not {name}" if default == "True" else f"{name} != {default}"


def _struct(struct: Struct, of: Definition, is_request: bool = False) -> Iterator[str]:
    yield ""
    yield from map(_declared, struct.fields)
    yield "    unknown_tagged_fields: Tags = ()"
    if is_request:
        yield "    api_version: int = field(kw_only=True)"
    signature = "def read(cls, r: Reader, version: int) -> Self:"
    made = "cls(api_version=version)" if is_request else "cls()"
    yield from ("", "    @classmethod", f"    {signature}", f"        self = {made}")
    # Reader and Writer pass over tagged fields in versions that are not flexible
    flexible = (of.flexible and of.flexible.within(struct.span)) or struct.span
    for condition, fields in _by_condition(struct):
        yield from _under(condition, [line for field in fields for line in _reading(field)])
    yield from _under(*_reading_tags(struct, flexible))
    yield "        return self"
    yield from ("", "    def write(self, w: Writer, version: int) -> None:")
    for condition, fields in _by_condition(struct):
        lines = [line for field in fields for line in _writing(field, f"self.{field.name}", "w")]
        yield from _under(condition, lines)
        for field in fields:
            if condition and not field.ignorable:
                yield f"        elif {_is_other(field)}:"
                yield f'            raise absent("{field.kafka_name}", version)'
    yield from _under("", list(_writing_tags(struct)))


def _plain(struct: Struct) -> list[Field]:
    """Return the fields that are untagged in some version."""
    for field in struct.fields:
        if field.tagged and field.tagged != field.versions:
            raise SystemExit(f"{field.name} is tagged in some of its versions only")
    return [field for field in struct.fields if not field.tagged]


def _by_condition(struct: Struct) -> Iterator[tuple[str, list[Field]]]:
    """Yield the fields in order, those together that follow each other in the same versions."""
    for condition, fields in groupby(
        _plain(struct), key=lambda field: field.versions.condition(struct.span)
    ):
        yield condition, list(fields)


def _under(condition: str, lines: list[str]) -> Iterator[str]:
    if condition:
        yield f"        if {condition}:"
    yield from (f"        {'    ' if condition else ''}{line}" for line in lines)


def _nullable(field: Field, plain: str, nullable: str) -> str:
    """Return one of two expressions, chosen by version."""
    if field.nullable is None:
        return plain
    condition = field.nullable.condition(field.versions)
    return f"{nullable} if {condition} else {plain}" if condition else nullable


def _reading(field: Field) -> Iterator[str]:
    target = f"self.{field.name}"
    if not field.array:
        if field.struct:
            if field.nullable:
                raise SystemExit(f"{field.name}: a struct that may be null")
            yield f"{target} = {field.type}.read(r, version)"
            return
        method = METHODS.get(field.type, field.type)
        yield f"{target} = " + _nullable(field, f"r.{method}()", f"r.nullable_{method}()")
        return
    if field.type == "int32" and not field.nullable:
        yield f"{target} = r.int32_array()"
        return
    one = (
        f"{field.type}.read(r, version)"
        if field.struct
        else f"r.{METHODS.get(field.type, field.type)}()"
    )
    if field.nullable:
        yield f"n = {_nullable(field, 'r.count()', 'r.nullable_count()')}"
        yield f"{target} = None if n < 0 else [{one} for _ in range(n)]"
        return
    line = f"{target} = [{one} for _ in range(r.count())]"
    if len(line) <= _WIDTH:
        yield line
    else:
        yield from (f"{target} = [", f"    {one} for _ in range(r.count())", "]")


def _writing(field: Field, value: str, writer: str) -> Iterator[str]:
    if not field.array:
        if field.struct:
            yield f"{value}.write({writer}, version)"
            return
        method = METHODS.get(field.type, field.type)
        condition = field.nullable.condition(field.versions) if field.nullable else ""
        if condition:
            yield f"({writer}.nullable_{method} if {condition} else {writer}.{method})({value})"
        else:
            yield f"{writer}.{'nullable_' if field.nullable else ''}{method}({value})"
        return
    condition = field.nullable.condition(field.versions) if field.nullable else ""
    if condition:
        yield f"if {value} is None and not {condition}:"
        yield f'    raise absent("{field.kafka_name} null", version)'
    if field.struct:
        yield f"{writer}.{'nullable_' if field.nullable else ''}structs({value}, version)"
    elif field.type == "int32" and not field.nullable:
        yield f"{writer}.int32_array({value})"
    else:
        yield f"{writer}.count({f'-1 if {value} is None else ' * bool(field.nullable)}len({value}))"
        yield f"for one in {value}{' or ()' * bool(field.nullable)}:"
        yield f"    {writer}.{METHODS.get(field.type, field.type)}(one)"


def _tagged(struct: Struct) -> list[Field]:
    return sorted((field for field in struct.fields if field.tagged), key=lambda field: field.tag)


def _reading_tags(struct: Struct, flexible: Versions) -> tuple[str, list[str]]:
    """Return the versions that have tagged fields, as a condition where fields are known, and the
    lines that read them.
    """
    if not _tagged(struct):
        return "", ["self.unknown_tagged_fields = r.unknown_tags()"]
    return flexible.condition(struct.span), list(_reading_known_tags(struct, flexible))


def _reading_known_tags(struct: Struct, flexible: Versions) -> Iterator[str]:
    yield "unknown = []"
    yield "for _ in range(r.tag_count()):"
    yield "    tag, end = r.open_tag()"
    word = "if"
    for field in _tagged(struct):
        condition = field.versions.condition(flexible)
        yield f"    {word} tag == {field.tag}{' and ' + condition if condition else ''}:"
        yield from (f"        {line}" for line in _reading(field))
        word = "elif"
    yield from ("    else:", "        unknown.append((tag, r.rest()))", "    r.close_tag(end)")
    yield "self.unknown_tagged_fields = tuple(unknown)"


def _writing_tags(struct: Struct) -> Iterator[str]:
    known = _tagged(struct)
    if not known:
        yield "w.tags(self.unknown_tagged_fields)"
        return
    yield "tags = list(self.unknown_tagged_fields)"
    for field in known:
        condition = field.versions.condition(struct.span)
        yield f"if {condition + ' and ' if condition else ''}{_is_other(field)}:"
        yield "    t = Writer(flexible=True)"
        yield from (f"    {line}" for line in _writing(field, f"self.{field.name}", "t"))
        yield f"    tags.append(({field.tag}, t.getvalue()))"
    yield "w.tags(tags)"

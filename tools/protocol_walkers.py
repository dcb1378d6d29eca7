"""Write the Cython walkers: one pass over a message, with the positions of chosen fields in rows of
int32.

The tables of a walk have the names of its structs. For each chosen field a table has these columns:

    value   a number's value             column FIELD
    at      where the field starts       column FIELD_AT
    slice   a string's or bytes' place   columns FIELD and FIELD_SIZE (-1: null, or not in this version)

and for the struct: start, end, tags (where the tagged fields start), parent (row in the table of
the outer struct), tag_at (where the size of the tagged field around it stands) and tag_end (the end
of this field); both are -1 without one. Structs without a chosen field have no table. The walk ends
after the last struct that can have one.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from tools.kafka_definitions import FIXED, Definition, Definitions, Field, Struct, Versions, snake


@dataclass
class Table:
    """Rows of one struct's (or of several structs' like) fields: names with ``, `` between them."""

    name: str
    of: str
    wanted: str

    @property
    def structs(self) -> list[str]:
        return self.of.split(", ")

    @property
    def columns(self) -> list[str]:
        return self.wanted.split(", ")


@dataclass
class Walk:
    """One message: its tables, and whether it is read to its end.

    ``oldest``: the first version that is walked, where that is one which Kafka has removed.
    """

    message: str
    tables: tuple[Table, ...]
    whole: bool = False
    oldest: int | None = None


_NODE = "NodeId value, Host at, Host slice, Port at, tag_at, tag_end"

WALKS = [
    Walk(
        "ProduceRequest",
        (
            Table(
                "root",
                "ProduceRequest",
                "TransactionalId slice, Acks value, TimeoutMs value, TopicData at, tags",
            ),
            Table(
                "topic",
                "TopicProduceData",
                "start, Name slice, TopicId at, PartitionData at, tags, end",
            ),
            Table(
                "partition",
                "PartitionProduceData",
                "parent, start, Index value, Records slice, tags, end",
            ),
        ),
        whole=True,
        oldest=0,
    ),
    Walk(
        "ProduceResponse",
        (
            Table(
                "root", "ProduceResponse", "Responses at, ThrottleTimeMs at, ThrottleTimeMs value"
            ),
            Table(
                "topic",
                "TopicProduceResponse",
                "start, Name slice, PartitionResponses at, tags, end",
            ),
            Table(
                "partition",
                "PartitionProduceResponse",
                "parent, start, Index value, ErrorCode value, ErrorCode at, BaseOffset at, "
                "LogAppendTimeMs at, end",
            ),
            Table("node", "NodeEndpoint", _NODE),
        ),
        whole=True,
    ),
    Walk("MetadataResponse", (Table("node", "MetadataResponseBroker", _NODE),)),
    Walk(
        "FindCoordinatorResponse", (Table("node", "FindCoordinatorResponse, Coordinator", _NODE),)
    ),
    Walk(
        "DescribeClusterResponse",
        (Table("node", "DescribeClusterBroker", _NODE.replace("NodeId", "BrokerId")),),
    ),
    *(
        Walk(f"{api}Response", (Table("node", "NodeEndpoint", _NODE),))
        for api in ("Fetch", "ShareFetch", "ShareAcknowledge")
    ),
]

_READERS = {"int8": "read_int8", "bool": "read_int8", "int16": "read_int16", "int32": "read_int32"}
_OWN = ("parent", "start", "tags", "end", "tag_at", "tag_end")


def _columns(table: Table) -> list[str]:
    found = []
    for column in table.columns:
        name, _, mode = column.partition(" ")
        name = "NodeId" if name == "BrokerId" else name
        base = snake(name).upper()
        if column in _OWN:
            found.append(column.upper())
        elif mode == "slice":
            found += [base, f"{base}_SIZE"]
        else:
            found.append(base if mode == "value" else f"{base}_AT")
    return found


def _kind(field: Field) -> str:
    return "string" if field.type == "string" else "bytes"


def _skipped(field: Field, nullable: str) -> str:
    """Return what passes over one value that is not a struct."""
    if field.type in FIXED:
        return f"skip(c, {FIXED[field.type]})"
    return f"skip_{_kind(field)}(c, {nullable})"


class _Walker:
    """The functions of one walk."""

    def __init__(self, walk: Walk, definition: Definition) -> None:
        self.walk, self.definition = walk, definition
        self.message = snake(walk.message)
        self.flexible = definition.flexible
        self.table_of = {struct: table for table in walk.tables for struct in table.structs}

    def constants(self) -> Iterator[str]:
        for table in self.walk.tables:
            if table.name != "node":  # the same for all: in the head
                yield from self.rows_of(table, f"{self.walk.message}'s {table.name} table")
                yield ""

    def rows_of(self, table: Table, what: str) -> Iterator[str]:
        """Yield an enumeration of a table's columns, and how many there are."""
        yield f"cdef enum:  # rows of {what}"
        names = _columns(table)
        yield from (f"    {self._column(table, name)} = {n}" for n, name in enumerate(names))
        yield f"    {self._column(table, 'COLUMNS')} = {len(names)}"

    def _column(self, table: Table, column: str) -> str:
        own = f"{self.message.upper()}_{table.name.upper()}"
        return f"{'NODE' if table.name == 'node' else own}_{column}"

    def declaration(self) -> str:
        return f"cdef void locate_{self.message}(Cursor *c, int version, Tables *t) noexcept nogil"

    def _relevant(self, field: Field) -> bool:
        """Return whether the field contains a requested one."""
        return bool(field.struct) and self._holds(field.struct)  # type: ignore[arg-type]

    def _holds(self, struct: Struct) -> bool:
        return struct.name in self.table_of or any(self._relevant(field) for field in struct.fields)

    def functions(self) -> Iterator[str]:
        for struct in self.definition.structs:
            if not self._whole_skip(struct):
                yield from self._function(struct)
        valid = self.definition.valid
        yield self.declaration() + ":"
        yield f'    """{self.walk.message}, versions {valid.first} to {valid.last}; the cursor stands at the body."""'
        checks = [
            f"    if version < {valid.first} or version > {valid.last}:",
            "        fail(c, NOT_THIS_VERSION)",
            "        return",
        ]
        first = min(field.versions.first for field in self._root_fields())
        if not self.walk.whole and first > valid.first:
            checks += [f"    if version < {first}:", "        return"]
        yield from self._body(self.definition.root, checks)
        # bytes after the end of an answer are ignored
        if self.walk.whole and self.walk.message.endswith("Request"):
            yield "    if c.at != c.end:"
            yield "        fail(c, TRAILING_BYTES)"
        yield from ("", "")

    def reachable(self) -> list[str]:
        """Return the functions that the walk calls, each before its first use."""
        parts = [part.strip("\n") for part in "\n".join(self.functions()).split("\n\n\n")]
        parts[-1:-1] = ["\n".join(self.tagged_arrays()).strip("\n")]
        parts = [part for part in parts if part]
        kept = parts[-1:]
        for part in reversed(parts[:-1]):
            name = part.partition("(")[0].split()[-1]
            if any(f" {name}(c" in other for other in kept):
                kept.insert(0, part)
        return kept

    def _root_fields(self) -> list[Field]:
        root = self.definition.root
        asked = (
            {column.partition(" ")[0] for column in self.table_of[root.name].columns}
            if root.name in self.table_of
            else set()
        )
        return [
            field for field in root.fields if self._relevant(field) or field.kafka_name in asked
        ]

    def _whole_skip(self, struct: Struct) -> bool:
        """Return whether a tagged field can be skipped by its size alone."""
        users = [
            f
            for s in (*self.definition.structs, self.definition.root)
            for f in s.fields
            if f.struct is struct
        ]
        return all(field.tagged and not self._relevant(field) for field in users)

    def _name(self, struct: Struct) -> str:
        return f"{self.message}_{snake(struct.name)}"

    def _takes_parent(self, struct: Struct) -> bool:
        return struct.name in self.table_of and "parent" in self.table_of[struct.name].columns

    def _function(self, struct: Struct) -> Iterator[str]:
        arguments = "Cursor *c, int version, Tables *t"
        arguments += ", int32_t parent" if self._takes_parent(struct) else ""
        yield f"cdef void {self._name(struct)}({arguments}) noexcept nogil:"
        yield from self._body(struct)
        yield from ("", "")

    def _body(self, struct: Struct, checks: Sequence[str] = ()) -> Iterator[str]:
        lines = list(self._fields(struct))
        text = "\n".join(lines)
        if "range(n)" in text:
            yield "    cdef int64_t _i, n"
        if "open_tag" in text:
            yield "    cdef int64_t tag, size_at"
            yield "    cdef const uint8_t *outer"
        if struct.name in self.table_of:
            yield "    cdef int32_t *row"
        yield from checks
        yield from lines

    def _fields(self, struct: Struct) -> Iterator[str]:
        table = self.table_of.get(struct.name)
        own = set(table.columns) if table else set()
        is_partial = struct is self.definition.root and not self.walk.whole
        reads_tags = not is_partial or any(field.tagged for field in self._root_fields())
        new_row = []
        if table:
            number = self.walk.tables.index(table)
            new_row = [f"row = new_row(&t.tables[{number}], {self._column(table, 'COLUMNS')}, c)"]
            new_row += ["if row is NULL:", "    return"]
            for column, value in (
                ("start", "<int32_t>position(c)"),
                ("parent", "parent"),
                ("tag_at", "t.tag_at"),
                ("tag_end", "t.tag_end"),
            ):
                if column in own:
                    new_row.append(f"row[{self._column(table, column.upper())}] = {value}")
        if not is_partial:
            yield from (f"    {line}" for line in new_row)
            new_row = []
        fields = [field for field in struct.fields if not field.tagged]
        if not reads_tags:  # no field after the last requested one is read
            fields = fields[: max(fields.index(field) for field in self._root_fields()) + 1]
        for condition, together in groupby(
            fields, key=lambda field: field.versions.condition(struct.span)
        ):
            group = list(together)
            lines = [line for field in group for line in self._field(field, table)]
            if new_row and table and any(self._captures(table, field) for field in group):
                lines, new_row = new_row + lines, []
            if condition:
                yield f"    if {condition}:"
            yield from (f"    {'    ' if condition else ''}{line}" for line in lines)
        if not reads_tags and fields[-1] is not struct.fields[-1]:
            return
        if table and "tags" in own:
            yield f"    row[{self._column(table, 'TAGS')}] = <int32_t>position(c)"
        flexible = self.flexible and self.flexible.within(struct.span)
        if flexible and reads_tags:
            yield from self._tags(struct, flexible)
        if table and "end" in own:
            yield f"    row[{self._column(table, 'END')}] = <int32_t>position(c)"

    @staticmethod
    def _captures(table: Table, field: Field) -> list[str]:
        return [
            mode
            for name, _, mode in (column.partition(" ") for column in table.columns)
            if name == field.kafka_name
        ]

    def _field(self, field: Field, table: Table | None) -> Iterator[str]:
        modes = self._captures(table, field) if table else []
        name = snake("NodeId" if field.kafka_name == "BrokerId" else field.kafka_name).upper()
        column = self._column(table, name) if table else ""
        if "at" in modes:
            yield f"row[{column}_AT] = <int32_t>position(c)"
        if "value" in modes:
            yield f"row[{column}] = {_READERS[field.type]}(c)"
        elif "slice" in modes:
            yield f"find_{_kind(field)}(c, &row[{column}], {self._nullable(field)})"
        else:
            yield from self._skip(field, table)

    @staticmethod
    def _nullable(field: Field) -> str:
        """Return the condition on which the field may be null."""
        if field.nullable is None:
            return "False"
        return field.nullable.condition(field.versions) or "True"

    def _skip(self, field: Field, table: Table | None) -> Iterator[str]:
        nullable = self._nullable(field)
        if field.array:
            yield "n = read_count(c)"
            if nullable == "False":
                yield "not_null(c, n)"
            elif nullable != "True" and field.struct:
                yield f"if not ({nullable}):\n            not_null(c, n)"
            if field.type in FIXED:
                yield f"skip(c, max(n, 0) * {FIXED[field.type]})"
                return
            yield "for _i in range(n):"
            one = self._call(field.struct, table) if field.struct else _skipped(field, "False")
            yield f"    {one}"
            yield "    if c.wrong:"
            yield "        return"
        elif field.struct:
            yield self._call(field.struct, table)
        else:
            yield _skipped(field, nullable)

    def _call(self, struct: Struct, table: Table | None) -> str:
        extra = ""
        if self._takes_parent(struct):
            if table is None:
                raise SystemExit(f"{struct.name} has a parent that has no table")
            number = self.walk.tables.index(table)
            extra = f", <int32_t>t.tables[{number}].count - 1"
        return f"{self._name(struct)}(c, version, t{extra})"

    def _tags(self, struct: Struct, flexible: Versions) -> Iterator[str]:
        known = [field for field in struct.fields if field.tagged and self._relevant(field)]
        if not known:
            yield "    skip_tags(c)"  # none where the version is not flexible
            return
        condition = flexible.condition(struct.span)
        indent = "    "
        if condition:
            yield f"    if {condition}:"
            indent = "        "
        yield f"{indent}n = read_uvarint(c)"
        yield f"{indent}for _i in range(n):"
        yield f"{indent}    outer = open_tag(c, &tag, &size_at)"
        word = "if"
        for field in known:
            asked = field.versions.condition(flexible)
            yield f"{indent}    {word} tag == {field.tag}{' and ' + asked if asked else ''}:"
            yield f"{indent}        t.tag_at = <int32_t>size_at"
            yield f"{indent}        t.tag_end = <int32_t>position(c)"
            yield f"{indent}        {self._tagged_call(field)}(c, version, t)"
            yield f"{indent}        t.tag_at = t.tag_end = -1"
            word = "elif"
        yield f"{indent}    else:"
        yield f"{indent}        c.at = c.end"
        yield f"{indent}    close_tag(c, outer)"
        yield f"{indent}    if c.wrong:"
        yield f"{indent}        return"

    def _tagged_call(self, field: Field) -> str:
        return f"{self.message}_{field.name}"

    def tagged_arrays(self) -> Iterator[str]:
        """Yield functions for arrays in tagged fields."""
        for struct in (*self.definition.structs, self.definition.root):
            for field in struct.fields:
                if field.tagged and self._relevant(field) and field.struct:
                    yield f"cdef void {self._tagged_call(field)}(Cursor *c, int version, Tables *t) noexcept nogil:"
                    yield "    cdef int64_t _i, n = read_count(c)"
                    yield "    not_null(c, n)"
                    yield "    for _i in range(n):"
                    yield f"        {self._call(field.struct, None)}"
                    yield "        if c.wrong:"
                    yield "            return"
                    yield from ("", "")


#: of cursor.pxd
_CURSOR = """
    TRAILING_BYTES Cursor NOT_THIS_VERSION close_tag fail find_bytes find_string not_null open_tag
    position read_count read_int16 read_int32 read_uvarint skip skip_bytes skip_string skip_tags
"""

HEAD = '''"""{what}

Generated from Kafka {version}'s message definitions by tools/generate_protocol.py; do not edit.
"""
'''


def _shared(functions: Iterable[str]) -> Iterator[str]:
    """Yield the functions; those of equal content once, by the name of the first of them."""
    names: dict[str, str] = {}
    renamed: dict[str, str] = {}
    for function in functions:
        text = re.sub(r"\w+(?=\()", lambda found: renamed.get(found[0], found[0]), function)
        name = text.partition("(")[0].split()[-1]
        content = text.removeprefix(f"cdef void {name}")
        if content in names:
            renamed[name] = names[content]
        else:
            names[content] = name
            yield text


def files(definitions: Definitions) -> dict[str, str]:
    """Return the text of positions.pxd and positions.pyx."""
    walkers = [_Walker(walk, definitions.load(walk.message, walk.oldest)) for walk in WALKS]
    pxd = HEAD.format(
        what="Walkers: where the fields stand that a gate needs.", version=definitions.version
    )
    pxd += "\nfrom batchval.protocol.cursor cimport Cursor\nfrom batchval.protocol.walkers.tables cimport Tables\n\n"
    (node,) = WALKS[2].tables
    pxd += "\n".join(walkers[2].rows_of(node, "every node table")) + "\n\n"
    pxd += "".join(
        "\n".join(walker.constants()) + "\n" for walker in walkers if len(walker.walk.tables) > 1
    )
    pxd += "".join(f"{walker.declaration()}\n" for walker in walkers)
    pyx = HEAD.format(
        what="Walkers: each message once over, its positions into the rows of positions.pxd.",
        version=definitions.version,
    )
    text = "\n\n\n".join(_shared(part for walker in walkers for part in walker.reachable()))
    used = [name for name in _CURSOR.split() if re.search(rf"\b{name}\b", text)]
    names = textwrap.fill(
        f"{', '.join(used)},", 100, initial_indent="    ", subsequent_indent="    "
    )
    pyx += "\nfrom libc.stdint cimport int32_t, int64_t, uint8_t\n\n"
    pyx += f"from batchval.protocol.cursor cimport (\n{names}\n)\n"
    pyx += "from batchval.protocol.walkers.tables cimport Tables, new_row\n\n\n"
    return {"positions.pxd": pxd.rstrip() + "\n", "positions.pyx": pyx + text.rstrip() + "\n"}

"""Write the layout of Fetch answers for what reads them without whole messages.

walkers/fetch_layout.pxd, for answers that are read while they come:

    parts   the fields up to an array or a partition's records, which a walker reads at once when
            their bytes are there
    steps   (kind, argument) rows for a walker that keeps no bytes: see fetch_tail.pyx

raised_fetch.py, for answers of the version that requests of removed versions are raised to.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from tools.kafka_definitions import FIXED, Definitions, Field, Struct, Versions, snake
from tools.protocol_walkers import HEAD

#: versions that clients of batchval speak
_PARTS = Versions(4, 12)
_READERS = {"int16": "read_int16", "int32": "read_int32", "int64": "read_int64"}


@dataclass
class Part:
    """One part of a struct: its name, and the fields that a walker wants to know."""

    name: str
    wanted: tuple[str, ...] = ()


#: {struct: its parts, in order}
_FETCH = {
    "FetchResponse": (Part("head", ("ThrottleTimeMs", "ErrorCode")),),
    "FetchableTopicResponse": (Part("topic", ("Topic",)),),
    "PartitionData": (
        Part("partition", ("PartitionIndex", "ErrorCode", "HighWatermark")),
        Part("records_size"),
    ),
    "AbortedTransaction": (Part("aborted"),),
}
#: answers that are walked step by step, and from which version on: it may name addresses (KIP-951)
_STEPS = {"FetchResponse": 16, "ShareFetchResponse": 1}
_TAIL = "NodeEndpoint"


def _cut(fields: Sequence[Field]) -> Iterator[list[Field]]:
    """Yield the fields of each part: it ends with an array of structs, or with records."""
    part: list[Field] = []
    for field in fields:
        part.append(field)
        if field.array or field.type == "records":
            yield part
            part = []
    if part:
        yield part


def _plain(struct: Struct, span: Versions) -> list[Field]:
    """Return the fields that are there in some version of the span and not tagged."""
    return [f for f in struct.fields if not f.tagged and f.versions.within(span)]


def _condition(field: Field, span: Versions) -> str:
    here = field.versions.within(span)
    assert here is not None
    return here.condition(span)


def _described(fields: Sequence[Field], span: Versions) -> str:
    """Return the bytes of a part for a docstring: ``int32 session_id (from 7)``."""
    words = []
    for field in fields:
        kind = "" if field.array else f"{field.type} " if field.type != "records" else "size of "
        condition = _condition(field, span)
        count = f"count of {field.name}" if field.array else field.name
        since = condition.replace("version >= ", "from ")
        words.append(f"{kind}{count}" + (f" ({since})" if since else ""))
    return ", ".join(words)


def _skips(fields: Sequence[Field], name: str) -> Iterator[str]:
    """Yield what passes over fields that nobody wants; those of fixed size together."""
    sizes = [FIXED.get(field.type) for field in fields]
    if None in sizes:
        raise SystemExit(f"{name}: a field that no walker of a part can skip")
    yield f"skip(c, {sum(filter(None, sizes))})"


def _reads(part: Part, fields: Sequence[Field], name: str) -> Iterator[str]:
    def is_skipped(field: Field) -> bool:
        return not field.array and field.type != "records" and field.kafka_name not in part.wanted

    for skipped, together in groupby(fields, is_skipped):
        group = list(together)
        if skipped:
            yield from _skips(group, name)
            continue
        for field in group:
            if field.array:
                yield f"p.{field.name} = count_up_to(c, most)"
                if field.nullable is None:
                    yield f"not_null(c, p.{field.name})"
            elif field.type == "string":
                if field.nullable is not None:
                    raise SystemExit(f"{name}: {field.name} may be null")
                yield f"p.{field.name}_size = string_length(c)"
                yield f"not_null(c, p.{field.name}_size)"
                yield f"p.{field.name} = NULL"
                yield "if not c.wrong:"
                yield f"    p.{field.name} = take(c, p.{field.name}_size)"
            elif field.type == "records":
                if field.nullable is None:
                    raise SystemExit(f"{name}: {field.name} may not be null")
                yield "return stated_size(c)"
            else:
                yield f"p.{field.name} = {_READERS[field.type]}(c)"


def _members(part: Part, fields: Sequence[Field]) -> Iterator[str]:
    for field in fields:
        if field.array:
            yield f"int64_t {field.name}  # how many; -1: null"
        elif field.kafka_name in part.wanted and field.type == "string":
            yield f"const uint8_t *{field.name}"
            yield f"int64_t {field.name}_size"
        elif field.kafka_name in part.wanted:
            yield f"{'int64_t' if field.type == 'int64' else 'int32_t'} {field.name}"


def _part(part: Part, fields: Sequence[Field], *, is_whole: bool) -> Iterator[str]:
    """Yield the lines of a part: its struct, and the function that reads it."""
    span, name, kind = _PARTS, f"fetch_{part.name}", f"Fetched{part.name.title()}"
    members = list(_members(part, fields))
    if members:
        yield f"cdef struct {kind}:"
        yield from (f"    {member}" for member in members)
        yield from ("", "")
    arguments = "Cursor *c, int version"
    arguments += ", int64_t most" if fields[-1].array else ""
    arguments += f", {kind} *p" if members else ""
    returned = "int64_t" if fields[-1].type == "records" else "void"
    verb = "read" if members or returned == "int64_t" else "skip"
    head = f"cdef inline {returned} {verb}_{name}({arguments}) noexcept nogil:"
    before, _, last = head.rpartition(", ")
    yield head if len(head) <= 100 else f"{before},\n{' ' * 8}{last}"
    says = textwrap.fill(
        f'"""{verb.title()} {_described(fields, span)}.',
        100,
        initial_indent="    ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    yield f'{says}\n    """' if "\n" in says else f'{says}"""'
    for condition, together in groupby(fields, lambda field: _condition(field, span)):
        group = list(together)
        lines = list(_reads(part, group, name))
        if condition:
            yield from (
                f"    p.{field.name} = 0" for field in group if field.kafka_name in part.wanted
            )
            yield f"    if {condition}:"
        yield from (f"    {'    ' if condition else ''}{line}" for line in lines)
    if is_whole:
        yield "    skip_tags(c)"
    yield from ("", "")


def _parts(definitions: Definitions) -> Iterator[str]:
    definition = definitions.load("FetchResponse")
    structs = {struct.name: struct for struct in (definition.root, *definition.structs)}
    for name, parts in _FETCH.items():
        found = list(_cut(_plain(structs[name], _PARTS)))
        if len(found) != len(parts):
            raise SystemExit(f"{name} has {len(found)} parts, and {len(parts)} have names")
        for part, fields in zip(parts, found, strict=True):
            is_whole = not (fields[-1].array or fields[-1].type == "records")
            yield from _part(part, fields, is_whole=is_whole)


def _rows(struct: Struct, span: Versions, *, is_root: bool = False) -> Iterator[tuple[str, int]]:
    """Yield the steps over a struct: those of fixed size one by one."""
    for field in _plain(struct, span):
        if _condition(field, span):
            raise SystemExit(f"{field.kafka_name} is not in all versions of {span}")
        nullable = int(field.nullable is not None)
        if field.struct is not None and field.struct.name == _TAIL:
            break
        if field.array and field.struct is not None:
            yield "ARRAY", nullable
            yield from _rows(field.struct, span)
            yield "END", 0
        elif field.struct is not None:
            yield from _rows(field.struct, span)
        elif field.type in FIXED and not field.array:
            yield "BYTES", FIXED[field.type]
        elif field.type in ("string", "records") and not field.array:
            yield field.type.upper(), nullable
        else:
            raise SystemExit(f"{field.kafka_name}: no step passes over it")
    yield ("TAIL" if is_root else "TAGS"), 0


def _steps(definitions: Definitions) -> Iterator[str]:
    for name, first in _STEPS.items():
        definition = definitions.load(name)
        span = Versions(first, definition.valid.last)
        rows = [("LENGTH", 0), ("BYTES", FIXED["int32"]), ("TAGS", 0)]  # and ResponseHeader
        rows += _rows(definition.root, span, is_root=True)
        yield f"cdef inline list {snake(name)}_steps():"
        versions = f"{span.first} to {span.last}"
        yield f'    """Return the steps over {name} {versions}, length and header first."""'
        yield "    return ["
        for kind, together in groupby(rows, lambda row: row[0]):
            group = list(together)
            if kind == "BYTES":
                group = [(kind, sum(size for _, size in group))]
            yield from (f"        ({one}, {argument})," for one, argument in group)
        yield "    ]"
        yield from ("", "")


_KINDS = """cdef enum:  # kinds of steps
    LENGTH   # of the frame
    BYTES    # ``argument`` of them
    STRING   # uvarint length + 1; ``argument``: whether it may be null
    RECORDS  # the same, any size
    ARRAY    # uvarint count + 1; ``argument``: whether it may be null
    END      # of an element
    TAGS     # uvarint count, then (uvarint tag, uvarint size, bytes) each
    TAIL     # what may name addresses, up to the end of the frame
"""


def file(definitions: Definitions) -> str:
    """Return the text of fetch_layout.pxd."""
    text = HEAD.format(
        what="The layout of Fetch answers, for walkers that read them while they come.",
        version=definitions.version,
    ).replace(
        "\n\nGenerated",
        f"""

Versions {_PARTS.first} to {_PARTS.last} are read in parts, up to an array or a partition's records:

    answer     head, topics, tagged fields
    topic      topic, partitions, tagged fields
    partition  partition, an aborted for each aborted transaction, records_size, the records,
               tagged fields

``most`` is how many elements an array may have, -1: as many as bytes are left. ``fetch_tail`` walks
later versions in steps.

Generated""",
        1,
    )
    text += """
from libc.stdint cimport int32_t, int64_t, uint8_t

from batchval.protocol.cursor cimport (
    Cursor, count_up_to, not_null, read_int16, read_int32, read_int64, skip, skip_tags, stated_size,
    string_length, take,
)

"""
    text += f"{_KINDS}\n\n" + "\n".join([*_parts(definitions), *_steps(definitions)])
    return text.rstrip() + "\n"


#: the version that requests of the versions that Kafka 4 removed are raised to
_RAISED = Versions(10, 10)


def _statements(struct: Struct, wanted: Sequence[str]) -> Iterator[str]:
    """Yield the statements that read a struct of version 10, up to an array that holds others."""
    for field in _plain(struct, _RAISED):
        if field.array and field.struct is not None and field.nullable is None:
            return
        if field.array and field.struct is not None:
            inner = ", ".join(f"r.{one.type}()" for one in _plain(field.struct, _RAISED))
            yield f"{field.name} = ["
            yield f"    ({inner}) for _ in range(max(r.nullable_count(), 0))"
            yield "]"
        elif field.type == "records":
            yield f"{field.name} = r.nullable_records()"
        elif field.kafka_name in wanted:
            yield f"{field.name} = r.{field.type}()"
        else:
            yield f"r.{field.type}()  # {field.name}"


def raised(definitions: Definitions) -> str:
    """Return the text of raised_fetch.py."""
    definition = definitions.load("FetchResponse")
    if definition.flexible is None or definition.flexible.within(_RAISED):
        raise SystemExit("FetchResponse 10 is flexible")
    structs = {struct.name: struct for struct in (definition.root, *definition.structs)}
    head, topic, partition = (
        [f"{' ' * indent}{line}" for line in _statements(structs[name], _FETCH[name][0].wanted)]
        for name, indent in (
            ("FetchResponse", 4),
            ("FetchableTopicResponse", 8),
            ("PartitionData", 12),
        )
    )
    made = (
        *("topic", "partition_index", "error_code", "high_watermark"),
        *("aborted_transactions", "records"),
    )
    lines = [
        "def read_partitions(",
        "    r: Reader,",
        "    make: Callable[[str, int, int, int, list[tuple[int, int]], memoryview | None], T],",
        ") -> tuple[int, int, list[tuple[str, int]], list[T]]:",
        '    """Return throttle_time_ms, error_code, (topic, number of its partitions), and what is made',
        "    of each partition, in order.",
        '    """',
        *head,
        "    answer_error = error_code",
        "    topics = []",
        "    partitions = []",
        "    for _ in range(r.count()):",
        *topic,
        "        count = r.count()",
        "        topics.append((topic, count))",
        "        for _ in range(count):",
        *partition,
        "            partitions.append(",
        "                make(",
        *(f"                    {name}," for name in made),
        "                )",
        "            )",
        "    return throttle_time_ms, answer_error, topics, partitions",
    ]
    text = HEAD.format(
        what="Fetch answers of version 10, to which requests of removed versions are raised.",
        version=definitions.version,
    )
    text += """
from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from batchval.protocol.primitives import Reader

__all__ = ["read_partitions"]

T = TypeVar("T")


"""
    return text + "\n".join(lines) + "\n"

"""Sentences about records that break record rules: the value that was found, and what is allowed.

``which`` is a position among the rule's parts in RecordRules: in ``schema_ids``,
``required_headers`` or ``forbidden_headers``. ``kind`` is that of
batchval.core.records.compiled_rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from batchval.core.format.reasons import BROKEN_RULES, count_of_broken
from batchval.record_rules import RecordRules, SchemaIds
from batchval.rules import Rule, by_number, number_of

__all__ = ["KINDS", "broken_rule", "broken_rules", "rejection"]

#: In the order of the enumeration in compiled_rules.pxd, which starts at 1 (a test compares them).
KINDS: Final = (
    "NUMBER_NOT_ALLOWED",
    "GUID_NOT_ALLOWED",
    "TOO_SHORT",
    "WRONG_MAGIC",
    "NO_HEADER",
    "NULL_HEADER",
    "WRONG_HEADER_SIZE",
    "WRONG_HEADER_VERSION",
    "UNREADABLE",
)
_UNREADABLE: Final = 1 + KINDS.index("UNREADABLE")
_NUMBERS: Final = f"{number_of('R1')} to {number_of(list(BROKEN_RULES)[-1])}"
_SHOWN_IDS: Final = 2
_SIGN: Final = 1 << 64


def rejection(errors: Sequence[tuple[int, str]], count: int, by_timestamp: bool) -> str:
    """Return Kafka's sentence about a batch of which ``count`` records were refused.

    ``errors``: (index, message) of the first ones. ``by_timestamp``: the error is
    INVALID_TIMESTAMP. Source: LogValidator.processRecordErrors, ProduceResponse.RecordError.
    """
    if by_timestamp:
        return "One or more records have been rejected due to invalid timestamp"
    text = f"One or more records have been rejected due to {count} record errors in total"
    if not errors:
        return text
    shown = (f"RecordError(batchIndex={i}, message='{message}')" for i, message in errors[:3])
    return f"{text}, and only showing the first three errors at most: [{', '.join(shown)}]"


def broken_rules(record: int, message: str, count: int) -> str:
    """Return the reason of a refused batch: the first of its records, and how many there are."""
    return f"record {record}: {message}{count_of_broken(count)}"


def broken_rule(
    rules: RecordRules, rule: int, which: int, kind: int, first: int, second: int
) -> str:
    """Return what is wrong with one record, and what is allowed.

    ``rule`` is a number of batchval.rules, ``first`` and ``second`` what was found. Raises
    ValueError and IndexError where the numbers are not those of these rules.
    """
    name = by_number(rule)
    if name is Rule.R1:
        return _schema_id(rules.schema_ids[which], KINDS[kind - 1], first, second)
    if name is None or name.id not in BROKEN_RULES:
        raise ValueError(f"rule number {rule} is not a record rule: expected {_NUMBERS}")
    text = BROKEN_RULES[name.id]
    if kind == _UNREADABLE:
        field = "key" if text.startswith("key ") else "value"
        return f"{field} cannot be read: it runs past the end of the message"
    names = {Rule.R5: rules.required_headers, Rule.R6: rules.forbidden_headers}.get(name)
    return text.format(a=first, rules=rules, header=names[which] if names is not None else None)


def _schema_id(schema: SchemaIds, kind: str, first: int, second: int) -> str:
    place = f"header {schema.header!r}" if schema.place == "header" else schema.place
    if kind == "NUMBER_NOT_ALLOWED":
        return f"{place} has schema id {first}, {_allowed(schema)}"
    if kind == "GUID_NOT_ALLOWED":
        return f"{place} has schema GUID {UUID(int=(first % _SIGN) * _SIGN + second % _SIGN)}, {_allowed(schema)}"
    if kind == "TOO_SHORT":
        return f"{place} has {first} bytes, a magic byte and a schema id take 5"
    if kind == "WRONG_MAGIC":
        return f"{place} starts with byte {first}, the magic byte of a schema id is 0"
    if kind == "NO_HEADER":
        return f"{place} is missing, it holds the schema id of the {schema.of}"
    if kind == "NULL_HEADER":
        return f"{place} is null, it holds the schema id of the {schema.of}"
    if kind == "WRONG_HEADER_SIZE":
        return f"{place} has {first} bytes, a schema id takes 4, 5, 8 or 17"
    if kind == "WRONG_HEADER_VERSION":
        expected = "1" if second == 17 else "0"
        return f"{place} of {second} bytes starts with byte {first}, expected version {expected}"
    return f"{place} cannot be read: it runs past the end of the message"


def _allowed(schema: SchemaIds) -> str:
    words = [*map(str, sorted(schema.ids or ())), *sorted(schema.guids or ())]
    if not words:
        return "none is allowed"
    if len(words) == 1:
        return f"allowed is {words[0]}"
    shown = words[:_SHOWN_IDS]
    if len(words) == _SHOWN_IDS:
        return f"allowed are {' and '.join(words)}"
    return f"allowed are {', '.join(shown)} and {len(words) - len(shown)} more"

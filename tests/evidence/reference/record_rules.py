"""Record rules asked one record at a time, in Python: slow, by the words of RecordRules alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

from batchval.record_rules import RecordRules, SchemaIds

__all__ = ["Parts", "broken_rule", "broken_rules"]

#: key, value and headers of a record
Parts = tuple[bytes | None, bytes | None, Sequence[tuple[bytes, bytes | None]]]


def broken_rules(rules: RecordRules, records: Iterable[Parts]) -> list[tuple[int, str]]:
    """Return (index, id of the rule) of each record that breaks one."""
    found = ((index, broken_rule(rules, parts)) for index, parts in enumerate(records))
    return [(index, rule) for index, rule in found if rule is not None]


def broken_rule(rules: RecordRules, parts: Parts) -> str | None:
    """Return the lowest rule that one record breaks, None where it breaks none."""
    key, value, headers = parts
    names = [name for name, _ in headers]
    if not all(_has_id(schema, parts) for schema in rules.schema_ids):
        return "R1"
    if key is not None and rules.max_key_bytes is not None and len(key) > rules.max_key_bytes:
        return "R2"
    if (
        value is not None
        and rules.max_value_bytes is not None
        and len(value) > rules.max_value_bytes
    ):
        return "R3"
    if rules.max_headers is not None and len(headers) > rules.max_headers:
        return "R4"
    if any(name.encode() not in names for name in rules.required_headers):
        return "R5"
    if any(name.encode() in names for name in rules.forbidden_headers):
        return "R6"
    if value is None and rules.tombstones == "refuse":
        return "R7"
    return "R8" if key is not None and rules.utf8_keys and not _is_utf8(key) else None


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _has_id(schema: SchemaIds, parts: Parts) -> bool:
    key, value, headers = parts
    if (key if schema.of == "key" else value) is None:
        return True
    if schema.place != "header":
        field = (key if schema.place == "key" else value) or b""
        return (
            len(field) >= 5
            and field[0] == 0
            and _allowed(schema, int.from_bytes(field[1:5], "big", signed=True))
        )
    held = [content for name, content in headers if name == schema.header.encode()]
    if not held or held[-1] is None:
        return False
    content = held[-1]
    if len(content) in (4, 8):
        return _allowed(schema, int.from_bytes(content, "big", signed=True))
    if len(content) == 5 and content[0] == 0:
        return _allowed(schema, int.from_bytes(content[1:], "big", signed=True))
    if len(content) == 17 and content[0] == 1:
        return schema.any_allowed or str(UUID(bytes=content[1:])) in (schema.guids or ())
    return False


def _allowed(schema: SchemaIds, number: int) -> bool:
    return schema.any_allowed or number in (schema.ids or ())

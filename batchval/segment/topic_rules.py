"""Record rules of many topics: a JSON object of topic patterns and their rules, first match first.

{"orders-*": {"schema_id": {"ids": [1, 2]}}, "*": {"max_key_bytes": 100}}
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from batchval.errors import ArgumentTypeError, ArgumentValueError, BatchvalError, shown_value
from batchval.named_files import read_whole
from batchval.record_rules import RecordRules
from batchval.segment.file_formats import START_SIZE, json_fault, not_json_reason

__all__ = [
    "TopicRules",
    "is_json",
    "parse_topic_rules",
    "read_topic_rules",
    "rules_digest",
    "rules_of",
]

#: (pattern, rules), of which the first that matches counts
TopicRules: TypeAlias = tuple[tuple[str, RecordRules], ...]


def read_topic_rules(value: str) -> TopicRules:
    """Return the rules of an option: a JSON object, or the name of a file that holds one.

    Raises BatchvalError for a file that cannot be read and for wrong rules.
    """
    if not value.strip():
        raise BatchvalError(
            "the value is empty: expected a JSON object, or the name of a file that holds one"
        )
    if is_json(value):
        return parse_topic_rules(value)
    try:
        data = read_whole(Path(value))
    except OSError as error:
        raise BatchvalError(f"cannot read {value}: {error.strerror}") from None
    except ValueError as error:  # a name that no file can have
        raise BatchvalError(f"cannot read {shown_value(value)}: {error}") from None
    foreign = not_json_reason(Path(value), data[:START_SIZE])
    if foreign is not None:
        raise BatchvalError(f"{value}: {foreign}")
    try:
        return parse_topic_rules(data.decode())
    except UnicodeDecodeError:
        raise BatchvalError(f"{value} is not UTF-8: expected JSON") from None
    except BatchvalError as error:
        raise BatchvalError(f"{value}: {error}") from None


def is_json(value: str) -> bool:
    """Return whether an option's value is a JSON object, and not the name of a file."""
    return value.lstrip().startswith("{")


def parse_topic_rules(text: str) -> TopicRules:
    """Return the rules of a JSON text. Raises ArgumentTypeError and ArgumentValueError, which name
    the pattern and the key.
    """
    try:
        found = json.loads(text, object_pairs_hook=_without_doubles)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ArgumentValueError(f"record rules are {json_fault(error)}") from None
    except BatchvalError:
        raise
    except ValueError:  # Python reads no int of more than 4,300 digits
        raise ArgumentValueError("record rules have a number of more than 4,300 digits") from None
    if not isinstance(found, Mapping):
        raise ArgumentTypeError(
            f"record rules must be an object of topic patterns, not {shown_value(found)}"
        )
    rules = []
    for pattern, mapping in found.items():
        try:
            rules.append((pattern, RecordRules.from_mapping(mapping)))
        except BatchvalError as error:
            raise type(error)(f"record rules of {shown_value(pattern)}: {error}") from None
    return tuple(rules)


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ArgumentValueError(f"record rules have the key {shown_value(key)} twice")
        found[key] = value
    return found


def rules_of(rules: TopicRules, topic: str) -> RecordRules | None:
    """Return the rules of a topic. An empty name, of a file without one, matches ``*`` alone."""
    for pattern, found in rules:
        if fnmatch.fnmatchcase(topic, pattern):
            return found
    return None


def rules_digest(rules: TopicRules) -> str:
    """Return a digest by which two runs see that they asked the same; empty without rules."""
    if not rules:
        return ""
    text = json.dumps([[pattern, found.to_mapping()] for pattern, found in rules], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()

"""Record rules of many topics: a JSON object of topic patterns and their rules, first match first.

{"orders-*": {"schema_id": {"ids": [1, 2]}}, "*": {"max_key_bytes": 100}}
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
from collections.abc import Mapping
from typing import Any, TypeAlias

from batchval.errors import ArgumentTypeError, ArgumentValueError, BatchvalError, shown_value
from batchval.record_rules import RecordRules

__all__ = ["TopicRules", "parse_topic_rules", "rules_of", "rules_word"]

#: (pattern, rules), of which the first that matches counts
TopicRules: TypeAlias = tuple[tuple[str, RecordRules], ...]


def parse_topic_rules(text: str) -> TopicRules:
    """Return the rules of a JSON text. Raises ArgumentTypeError and ArgumentValueError, which name
    the pattern and the key.
    """
    try:
        found = json.loads(text, object_pairs_hook=_without_doubles)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ArgumentValueError(f"record rules are not JSON: {error}") from None
    if not isinstance(found, Mapping):
        raise ArgumentTypeError(f"record rules must be an object of topic patterns, not {shown_value(found)}")
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


def rules_word(rules: TopicRules) -> str:
    """Return a digest by which two runs see that they asked the same; empty without rules."""
    if not rules:
        return ""
    text = json.dumps([[pattern, found.to_mapping()] for pattern, found in rules], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()

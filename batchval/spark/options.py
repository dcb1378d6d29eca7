"""Values of ``.option(name, value)``: names in any case, values as text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, cast

from batchval.audit.arrow_rows import column_names
from batchval.errors import BatchvalError
from batchval.kafka_versions import Release, release_of
from batchval.segment.options import Options
from batchval.segment.topic_rules import TopicRules, read_topic_rules
from batchval.segment.trust import checked_rate
from batchval.types import MAX_SEED

__all__ = [
    "CHECK_OPTIONS",
    "FINDING_OPTIONS",
    "MAX_LONG",
    "RECORD_RULES",
    "SEGMENT_OPTIONS",
    "count",
    "flag",
    "known",
    "milliseconds",
    "one_of",
    "paths",
    "row_options",
    "size",
    "topics",
]

#: ``--record-rules`` of ``batchval check``
RECORD_RULES: Final = "recordRules"
#: Options of validation, for all sources of batches.
CHECK_OPTIONS: Final = (
    "deep",
    "mode",
    "kafkaVersion",
    "acceptClaimsHeader",
    "maxDecompressedBytes",
    "trustClaims",
    "seed",
    RECORD_RULES,
)
#: of ``kafka-segments``, in batches and streams
SEGMENT_OPTIONS: Final = (
    "path",
    "paths",
    "rows",
    "columns",
    "splitBytes",
    "topics",
    *CHECK_OPTIONS,
)
#: what matters between batches only
BETWEEN_OPTIONS: Final = ("cleanupPolicy", "producerIdExpirationMs")
#: of ``kafka-findings``
FINDING_OPTIONS: Final = (
    *("path", "paths", "splitBytes", "topics"),
    *CHECK_OPTIONS,
    *BETWEEN_OPTIONS,
)

#: more digits are more than any option takes, and Python reads no number of 4,300
_NUMBER = re.compile(r"\s*([0-9]{1,19})\s*")
_SIZE = re.compile(r"([0-9]{1,19})\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
#: of Java, where Spark keeps what a micro-batch may read
MAX_LONG: Final = (1 << 63) - 1
_UNITS: Final = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}

SparkOptions = Mapping[str, str]  # Spark's, which takes keys in any case


def known(passed: SparkOptions, names: tuple[str, ...], format_name: str) -> None:
    """Raise BatchvalError for an unknown option: misspelt, it would change the audit silently."""
    lower = {name.lower() for name in names}
    between = {name.lower() for name in BETWEEN_OPTIONS}
    for name in passed:
        if name.lower() in between - lower:
            raise BatchvalError(
                f"{format_name} has no option {name!r}: it matters between batches, "
                "whose findings are those of format kafka-findings"
            )
        if name.lower() not in lower:
            raise BatchvalError(
                f"unknown option {name!r} of {format_name}: expected {', '.join(names)}"
            )


def one_of(passed: SparkOptions, name: str, words: tuple[str, ...]) -> str:
    """Return one of the allowed values; the first where the option is missing."""
    word = passed.get(name, words[0]).strip().lower()
    if word not in words:
        raise BatchvalError(
            f"option {name} is {passed[name]!r}: expected {', '.join(words[:-1])} or {words[-1]}"
        )
    return word


def flag(passed: SparkOptions, name: str) -> bool:
    """Return a ``true`` or ``false`` option; false where it is missing."""
    return one_of(passed, name, ("false", "true")) == "true"


def size(passed: SparkOptions, name: str, default: int, least: int = 1) -> int:
    """Return a size in bytes: ``268435456``, ``256m``, ``256MiB`` (powers of 1,024)."""
    text = passed.get(name)
    if text is None:
        return default
    found = _SIZE.fullmatch(text.strip())
    number = int(found[1]) << _UNITS[found[2].lower()] if found else -1
    if not least <= number < 1 << 62:
        raise BatchvalError(
            f"option {name} is {text!r}: expected a number of bytes such as 256m, at least {least}"
        )
    return number


def _whole(passed: SparkOptions, name: str, allowed: range, expected: str) -> int | None:
    """Return the option as a number of decimal digits; None if it is not set."""
    text = passed.get(name)
    if text is None:
        return None
    found = _NUMBER.fullmatch(text)
    number = int(found[1]) if found else -1
    if number not in allowed:
        raise BatchvalError(f"option {name} is {text!r}: expected {expected}")
    return number


def count(passed: SparkOptions, name: str, default: int) -> int:
    """Return a number of offsets, at least 1. Raises BatchvalError."""
    expected = "a whole number of offsets, at least 1"
    number = _whole(passed, name, range(1, MAX_LONG + 1), expected)
    return default if number is None else number


def milliseconds(passed: SparkOptions, name: str, default: int) -> int:
    """Return milliseconds, at least 1: ``86400000``. Raises BatchvalError."""
    expected = "milliseconds, from 1 to 2147483647"
    number = _whole(passed, name, range(1, 1 << 31), expected)
    return default if number is None else number


def seed(passed: SparkOptions) -> int | None:
    """Return the option ``seed``; None for a random one. Raises BatchvalError."""
    expected = f"a whole number from 0 to {MAX_SEED}"
    return _whole(passed, "seed", range(MAX_SEED + 1), expected)


def rate(passed: SparkOptions, name: str) -> float | None:
    """Return a rate above 0 and at most 1; None without the option. Raises BatchvalError."""
    text = passed.get(name)
    if text is None:
        return None
    try:
        return checked_rate(text)
    except BatchvalError as error:
        raise BatchvalError(f"option {name}: {error}") from None


def record_rules(passed: SparkOptions) -> TopicRules:
    """Return the rules of the option ``recordRules``; empty without it. A file is read now.

    Raises BatchvalError for rules that are wrong, or that no record would be asked.
    """
    text = passed.get(RECORD_RULES)
    if text is None:
        return ()
    if not flag(passed, "deep"):
        raise BatchvalError(
            f"option {RECORD_RULES} needs deep=true: record rules apply to each record"
        )
    try:
        return read_topic_rules(text)
    except BatchvalError as error:
        raise BatchvalError(f"option {RECORD_RULES}: {error}") from None


def topics(passed: SparkOptions, name: str = "topics") -> tuple[str, ...] | None:
    """Return the names of a comma-separated option; None where it is missing: all topics."""
    text = passed.get(name)
    if text is None:
        return None
    names = tuple(dict.fromkeys(one.strip() for one in text.split(",") if one.strip()))
    if not names:
        raise BatchvalError(f"option {name} is {text!r}: expected a comma-separated list of names")
    return names


def paths(passed: SparkOptions) -> tuple[str, ...]:
    """Return the paths of ``load(path)`` or ``load([path, …])``."""
    found = [passed["path"]] if passed.get("path") else []
    found += json.loads(passed.get("paths") or "[]")
    if not found:
        raise BatchvalError(
            "the path is missing: expected load(PATH), a folder of topic-partition "
            "folders or a URI of one"
        )
    return tuple(found)


def _release(passed: SparkOptions, default: Release) -> Release:
    text = passed.get("kafkaVersion")
    if text is None:
        return default
    try:
        return release_of(text)
    except BatchvalError as error:
        expected = str(error).removeprefix("kafka_version ")
        raise BatchvalError(f"option kafkaVersion {expected}") from None


def row_options(passed: SparkOptions) -> Options:
    """Return the options of ``batchval.audit.arrow_rows``; those of a stream are ignored."""
    plain = Options()
    return Options(
        rows=cast(Any, one_of(passed, "rows", ("all", "bad", "none"))),
        columns=column_names(topics(passed, "columns") or ("default",)),
        split_bytes=size(passed, "splitBytes", plain.split_bytes),
        deep=flag(passed, "deep"),
        mode=cast(Any, one_of(passed, "mode", ("strict", "kafka"))),
        kafka_version=_release(passed, plain.release),
        cleanup_policy=one_of(passed, "cleanupPolicy", ("auto", "delete", "compact")),
        producer_id_expiration_ms=milliseconds(
            passed, "producerIdExpirationMs", plain.producer_id_expiration_ms
        ),
        accept_claims_header=flag(passed, "acceptClaimsHeader"),
        topics=topics(passed),
        max_decompressed_bytes=size(passed, "maxDecompressedBytes", plain.max_decompressed_bytes),
        trust_claims=rate(passed, "trustClaims"),
        seed=seed(passed),
        record_rules=record_rules(passed),
    )

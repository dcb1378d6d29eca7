"""What ``.option(name, value)`` says: names in any case, values as text; a wrong one is refused by
its name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, cast

from batchval.audit.arrow_rows import column_names
from batchval.errors import BatchvalError
from batchval.kafka_versions import DEFAULT_KAFKA_VERSION, KAFKA_VERSIONS
from batchval.segment.options import Options
from batchval.segment.topic_rules import TopicRules, read_topic_rules
from batchval.segment.trust import checked_rate
from batchval.types import LARGEST_SEED

__all__ = [
    "CHECK_OPTIONS",
    "FINDING_OPTIONS",
    "RECORD_RULES",
    "SEGMENT_OPTIONS",
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
#: How batches are judged, wherever they come from.
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

#: The first is the default.
_VERSIONS: Final = tuple(sorted(KAFKA_VERSIONS, key=DEFAULT_KAFKA_VERSION.__ne__))
_SIZE = re.compile(r"(\d+)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_UNITS: Final = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}

Given = Mapping[str, str]  # Spark's, which takes keys in any case


def known(given: Given, names: tuple[str, ...], format_name: str) -> None:
    """BatchvalError for an option that nobody reads: a slip of the pen must not change what is
    audited in silence.
    """
    lower = {name.lower() for name in names}
    between = {name.lower() for name in BETWEEN_OPTIONS}
    for name in given:
        if name.lower() in between - lower:
            raise BatchvalError(
                f"{format_name} has no option {name!r}: it matters between batches, "
                "whose findings are those of format kafka-findings"
            )
        if name.lower() not in lower:
            raise BatchvalError(f"{format_name} has no option {name!r}: it has {', '.join(names)}")


def one_of(given: Given, name: str, words: tuple[str, ...]) -> str:
    """One of the words; the first where nothing is said."""
    word = given.get(name, words[0]).strip().lower()
    if word not in words:
        raise BatchvalError(
            f"option {name} is {given[name]!r}: {', '.join(words[:-1])} or {words[-1]} is possible"
        )
    return word


def flag(given: Given, name: str) -> bool:
    """``true`` or ``false``; false where nothing is said."""
    return one_of(given, name, ("false", "true")) == "true"


def size(given: Given, name: str, default: int, least: int = 1) -> int:
    """Bytes: ``268435456``, ``256m``, ``256MiB`` (powers of 1,024)."""
    text = given.get(name)
    if text is None:
        return default
    found = _SIZE.fullmatch(text.strip())
    number = int(found[1]) << _UNITS[found[2].lower()] if found else -1
    if not least <= number < 1 << 62:
        raise BatchvalError(
            f"option {name} is {text!r}: a number of bytes such as 256m, at least {least}, is possible"
        )
    return number


def milliseconds(given: Given, name: str, default: int) -> int:
    """Milliseconds, at least 1: ``86400000``."""
    text = given.get(name, str(default)).strip()
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) < 1 << 31:
        raise BatchvalError(
            f"option {name} is {given[name]!r}: expected milliseconds, from 1 to 2147483647"
        )
    return int(text)


def seed(given: Given) -> int | None:
    """Return the option ``seed``; None for a random one. Raises BatchvalError."""
    text = given.get("seed")
    if text is None:
        return None
    if not text.strip().isascii() or not text.strip().isdigit() or int(text) > LARGEST_SEED:
        raise BatchvalError(
            f"option seed is {text!r}: expected a whole number from 0 to {LARGEST_SEED}"
        )
    return int(text)


def rate(given: Given, name: str) -> float | None:
    """Return a rate above 0 and at most 1; None without the option. Raises BatchvalError."""
    text = given.get(name)
    if text is None:
        return None
    try:
        return checked_rate(text)
    except BatchvalError as error:
        raise BatchvalError(f"option {name}: {error}") from None


def record_rules(given: Given) -> TopicRules:
    """Return the rules of the option ``recordRules``; empty without it. A file is read now.

    Raises BatchvalError for rules that are wrong, or that no record would be asked.
    """
    text = given.get(RECORD_RULES)
    if text is None:
        return ()
    if not flag(given, "deep"):
        raise BatchvalError(
            f"option {RECORD_RULES} needs deep true: record rules are asked of each record"
        )
    try:
        return read_topic_rules(text)
    except BatchvalError as error:
        raise BatchvalError(f"option {RECORD_RULES}: {error}") from None


def topics(given: Given, name: str = "topics") -> tuple[str, ...] | None:
    """Names with commas between them; None where nothing is said: all."""
    text = given.get(name)
    if text is None:
        return None
    names = tuple(dict.fromkeys(one.strip() for one in text.split(",") if one.strip()))
    if not names:
        raise BatchvalError(
            f"option {name} is {text!r}: names of topics with commas between them are possible"
        )
    return names


def paths(given: Given) -> tuple[str, ...]:
    """Of ``load(path)`` or ``load([path, …])``."""
    found = [given["path"]] if given.get("path") else []
    found += json.loads(given.get("paths") or "[]")
    if not found:
        raise BatchvalError(
            "no path is given: load(PATH), a folder of topic-partition folders or a URI of one"
        )
    return tuple(found)


def row_options(given: Given) -> Options:
    """What ``batchval.audit.arrow_rows`` is told. Options of others, such as those of a stream, are
    left alone.
    """
    plain = Options()
    return Options(
        rows=cast(Any, one_of(given, "rows", ("all", "bad", "none"))),
        columns=column_names(topics(given, "columns") or ("default",)),
        split_bytes=size(given, "splitBytes", plain.split_bytes),
        deep=flag(given, "deep"),
        mode=cast(Any, one_of(given, "mode", ("strict", "kafka"))),
        kafka_version=cast(Any, one_of(given, "kafkaVersion", _VERSIONS)),
        cleanup_policy=one_of(given, "cleanupPolicy", ("auto", "delete", "compact")),
        producer_id_expiration_ms=milliseconds(
            given, "producerIdExpirationMs", plain.producer_id_expiration_ms
        ),
        accept_claims_header=flag(given, "acceptClaimsHeader"),
        topics=topics(given),
        max_decompressed_bytes=size(given, "maxDecompressedBytes", plain.max_decompressed_bytes),
        trust_claims=rate(given, "trustClaims"),
        seed=seed(given),
        record_rules=record_rules(given),
    )

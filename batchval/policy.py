"""A topic's policy: the configuration that Kafka's LogValidator is built with, and the use of
claims.

Names are Kafka's topic configuration keys with dots as underscores; YAML and ``from_kafka_config``
use the dots.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Final, Literal, TypeAlias, cast, get_args

from batchval.errors import ArgumentTypeError, ArgumentValueError, shown_value
from batchval.kafka_versions import DEFAULT_KAFKA_VERSION, Release, find_release
from batchval.record_rules import RecordRules
from batchval.types import TimestampTypeName

__all__ = [
    "KAFKA_TOPIC_KEYS",
    "OLDER_TIMESTAMP_KEY",
    "OLDER_TOPIC_KEYS",
    "ClaimsPolicy",
    "ClaimsWord",
    "CleanupPolicyName",
    "TargetCompressionName",
    "TopicPolicy",
    "nearest",
]

_LONG_MAX = 2**63 - 1
_INT_MAX = 2**31 - 1
_WHOLE_NUMBER = re.compile(r"\s*[+-]?[0-9]{1,19}\s*")

#: Kafka's own defaults (TopicConfig, LogConfig; 4.4.0).
DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
DEFAULT_MAX_DECOMPRESSED_MESSAGE_BYTES = 2_147_483_639
DEFAULT_MESSAGE_TIMESTAMP_AFTER_MAX_MS = 3_600_000

TargetCompressionName: TypeAlias = Literal[
    "producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"
]
#: A policy keeps ``delete,compact`` as ``compact,delete``.
CleanupPolicyName: TypeAlias = Literal["delete", "compact", "compact,delete", "delete,compact", ""]
COMPRESSION_TYPES: Final[tuple[str, ...]] = get_args(TargetCompressionName)
TIMESTAMP_TYPES: Final[tuple[str, ...]] = get_args(TimestampTypeName)
CLEANUP_POLICIES: Final[tuple[str, ...]] = get_args(CleanupPolicyName)

#: Kafka's defaults (CompressionType, 4.4.0). -1 is zlib's own default, which is 6.
DEFAULT_COMPRESSION_GZIP_LEVEL = -1
DEFAULT_COMPRESSION_LZ4_LEVEL = 9
DEFAULT_COMPRESSION_ZSTD_LEVEL = 3

#: The least and the greatest value of each number, and one more value that Kafka takes.
_RANGES: Final[dict[str, tuple[int, int, int | None]]] = {
    "message_timestamp_before_max_ms": (0, _LONG_MAX, None),
    "message_timestamp_after_max_ms": (0, _LONG_MAX, None),
    "max_message_bytes": (0, _INT_MAX, None),
    "max_decompressed_message_bytes": (0, _INT_MAX, None),
    "compression_gzip_level": (1, 9, DEFAULT_COMPRESSION_GZIP_LEVEL),
    "compression_lz4_level": (1, 17, None),
    "compression_zstd_level": (-131_072, 22, None),
}

#: One bound for past and future, replaced in Kafka 3.6 by one key for each (KIP-937).
OLDER_TIMESTAMP_KEY: Final = "message.timestamp.difference.max.ms"

#: Every topic configuration key of Kafka 4.4.0: LogConfig.configNames().
#: tests/evidence/conformance/test_topic_keys.py compares this with what Kafka answers.
KAFKA_TOPIC_KEYS: Final = frozenset(
    {
        "cleanup.policy",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "delete.retention.ms",
        "errors.deadletterqueue.group.enable",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "follower.replication.throttled.replicas",
        "index.interval.bytes",
        "internal.segment.bytes",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "max.compaction.lag.ms",
        "max.decompressed.message.bytes",
        "max.message.bytes",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.type",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "preallocate",
        "remote.copy.lag.bytes",
        "remote.copy.lag.ms",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "unclean.leader.election.enable",
    }
)
#: Keys that Kafka had from 2.8 to 3.9 and 4.0 removed (KIP-724, KIP-937).
OLDER_TOPIC_KEYS: Final = frozenset(
    ("message.downconversion.enable", "message.format.version", OLDER_TIMESTAMP_KEY)
)
_OWN_KEYS = frozenset(("accept.claims.header",))
_KNOWN_KEYS = KAFKA_TOPIC_KEYS | OLDER_TOPIC_KEYS | _OWN_KEYS
#: The longest key: comparing takes time that grows with the square of the length.
_COMPARED_CHARACTERS = 80


@dataclass(frozen=True, slots=True, repr=False)
class TopicPolicy:
    """The rules of one topic. Immutable, hashable; the defaults are Kafka's.

    Times are milliseconds, sizes are bytes.

    ``compression_type`` is the target codec: ``producer`` keeps the batch's own, ``uncompressed``
    is Kafka's word for none. ``cleanup_policy`` with ``compact`` in it makes keys mandatory (rule
    35).
    ``max_decompressed_message_bytes`` bounds the body of one compressed record (KAFKA 4.4.0); what
    bounds a whole batch is the validator's ``max_decompressed_bytes``. ``accept_claims_header``
    admits batches of magic 3, which no stock broker does. The levels apply where
    ``compression_type`` names their codec: gzip 1 to 9 or -1 (zlib's default), lz4 1 to 17, zstd
    -131072 to 22. ``record_rules`` are the owner's own rules for single records; Kafka has no
    configuration key for them.
    """

    message_timestamp_before_max_ms: int = _LONG_MAX
    message_timestamp_after_max_ms: int = DEFAULT_MESSAGE_TIMESTAMP_AFTER_MAX_MS
    message_timestamp_type: TimestampTypeName = "CreateTime"
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    max_decompressed_message_bytes: int = DEFAULT_MAX_DECOMPRESSED_MESSAGE_BYTES
    compression_type: TargetCompressionName = "producer"
    cleanup_policy: CleanupPolicyName = "delete"
    accept_claims_header: bool = False
    compression_gzip_level: int = DEFAULT_COMPRESSION_GZIP_LEVEL
    compression_lz4_level: int = DEFAULT_COMPRESSION_LZ4_LEVEL
    compression_zstd_level: int = DEFAULT_COMPRESSION_ZSTD_LEVEL
    record_rules: RecordRules | None = None

    def __post_init__(self) -> None:
        for name in _RANGES:
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise _out_of_range(name, name, value)
            _check_range(name, name, value)
        for name, words in (
            ("message_timestamp_type", TIMESTAMP_TYPES),
            ("compression_type", COMPRESSION_TYPES),
        ):
            if getattr(self, name) not in words:
                value = shown_value(getattr(self, name))
                raise ArgumentValueError(f"{name} must be one of {', '.join(words)}, not {value}")
        cleanup = ",".join(sorted(part.strip() for part in str(self.cleanup_policy).split(",")))
        if cleanup not in CLEANUP_POLICIES:
            value = shown_value(self.cleanup_policy)
            raise ArgumentValueError(f"cleanup_policy must be delete, compact or both, not {value}")
        object.__setattr__(self, "cleanup_policy", cleanup)
        if not isinstance(self.accept_claims_header, bool):
            value = shown_value(self.accept_claims_header)
            raise ArgumentValueError(f"accept_claims_header must be true or false, not {value}")
        if self.record_rules is not None and not isinstance(self.record_rules, RecordRules):
            value = shown_value(self.record_rules)
            raise ArgumentTypeError(f"record_rules must be a RecordRules or None, not {value}")

    def __repr__(self) -> str:
        """Show the fields that differ from Kafka's defaults."""
        shown = [
            f"{f.name}={getattr(self, f.name)!r}"
            for f in fields(self)
            if getattr(self, f.name) != f.default
        ]
        return f"TopicPolicy({', '.join(shown)})"

    @property
    def is_compacted(self) -> bool:
        """Return True where the cleaner may drop records by key, so that each needs one."""
        return "compact" in self.cleanup_policy

    @property
    def compression_level(self) -> int | None:
        """Return the level at which a batch is compressed anew. None: the codec's default.

        As in Kafka, a level counts where ``compression_type`` names its codec: with ``producer`` a
        batch that is built anew gets the default (LogConfig.getCompression, targetCompression).
        """
        if self.compression_type == "gzip":
            return self.compression_gzip_level
        if self.compression_type == "lz4":
            return self.compression_lz4_level
        return self.compression_zstd_level if self.compression_type == "zstd" else None

    @classmethod
    def from_kafka_config(
        cls,
        config: Mapping[str, object],
        *,
        allow_unknown: bool = False,
        kafka_version: str | Release = DEFAULT_KAFKA_VERSION,
    ) -> TopicPolicy:
        """Return the policy of a topic's configuration, for example ``{"max.message.bytes":
        "2097152"}``.

        Values may be strings, as DescribeConfigs answers them; None stands for a key that is not
        set. Keys of Kafka that do not concern batches (``retention.ms``) are accepted and have no
        effect.
        ``message.timestamp.difference.max.ms`` (Kafka before 4.0) bounds past and future, except a
        side whose own key has a value below Long.MAX_VALUE (LogConfig of Kafka 3.6 to 3.9).

        ``allow_unknown`` ignores keys that Kafka does not have, for example a vendor's own.
        A key that ``config`` does not set has the default of ``kafka_version``.
        ``message.format.version``, which Kafka followed before 3.0, is ``to_magic`` of
        ``validate``.

        Raises ArgumentValueError for an unknown key, which the message names together with the
        known key that is nearest, and for a value of the wrong kind or out of range.
        """
        if not isinstance(config, Mapping):
            raise ArgumentTypeError(
                f"config must be a mapping of keys to values, not {type(config).__name__}"
            )
        if not allow_unknown:
            _check_keys(config)
        version = find_release(kafka_version).row
        values: dict[str, object] = {}
        for field in fields(cls):
            if field.name == "record_rules":  # not a key of Kafka
                continue
            key = field.name.replace("_", ".")
            value = config.get(key)
            if value is None:
                continue
            if field.name in _RANGES:
                values[field.name] = _whole_number(key, field.name, value)
            elif isinstance(field.default, bool):
                word = str(value).strip().lower()
                if word not in ("true", "false"):
                    raise ArgumentValueError(
                        f"{key} must be true or false, not {shown_value(value)}"
                    )
                values[field.name] = word == "true"
            else:
                values[field.name] = str(value).strip()
        difference = config.get(OLDER_TIMESTAMP_KEY)
        if difference is not None:
            for name in ("message_timestamp_before_max_ms", "message_timestamp_after_max_ms"):
                bound = _whole_number(OLDER_TIMESTAMP_KEY, name, difference)
                if values.get(name, _LONG_MAX) == _LONG_MAX:
                    values[name] = bound
        values.setdefault("message_timestamp_after_max_ms", version.message_timestamp_after_max_ms)
        return cls(**values)  # type: ignore[arg-type]


def _whole_number(key: str, name: str, value: object) -> int:
    """Return the value of a key as a number within the range of the field ``name``."""
    if not isinstance(value, int) or isinstance(value, bool):
        text = str(value)
        if not _WHOLE_NUMBER.fullmatch(text):  # int() would take 1_000 too
            raise _out_of_range(key, name, value)
        value = int(text)
    _check_range(key, name, value)
    return value


def _check_range(key: str, name: str, value: int) -> None:
    low, high, other = _RANGES[name]
    if not low <= value <= high and value != other:
        raise _out_of_range(key, name, value)


def _out_of_range(key: str, name: str, value: object) -> ArgumentValueError:
    low, high, other = _RANGES[name]
    also = "" if other is None else f", or {other}"
    return ArgumentValueError(
        f"{key} must be a whole number from {low} to {high}{also}, not {shown_value(value)}"
    )


def _check_keys(config: Mapping[str, object]) -> None:
    unknown = [key for key in config if key not in _KNOWN_KEYS]
    if not unknown:
        return
    found = ", ".join(map(_unknown, unknown))
    raise ArgumentValueError(
        f"unknown topic configuration {'key' if len(unknown) == 1 else 'keys'}: {found}"
    )


def _unknown(key: object) -> str:
    word = key if isinstance(key, str) else shown_value(key)
    return f"{shown_value(key)} (nearest known key: {nearest(word, _KNOWN_KEYS)})"


def nearest(key: str, known: Iterable[str]) -> str:
    """Return the known key that resembles ``key`` most. Dots, underscores and hyphens are alike."""
    spelled = {_spelling(name): name for name in sorted(known)}
    word = _spelling(key[:_COMPARED_CHARACTERS])
    return spelled[difflib.get_close_matches(word, spelled, n=1, cutoff=0.0)[0]]


def _spelling(key: str) -> str:
    return key.lower().replace("_", ".").replace("-", ".")


ClaimsWord: TypeAlias = Literal["ignore", "verify", "audit", "trust"]
_CLAIMS_WORDS: Final[tuple[str, ...]] = get_args(ClaimsWord)


@dataclass(frozen=True, slots=True)
class ClaimsPolicy:
    """The use of the claims that a sender attaches to its batches.

    ``ignore``  they are not read; every batch is validated as without them
    ``verify``  every batch is decompressed and its claims are compared: this measures honesty and
                saves nothing
    ``audit``   they are believed but for a sample, ``rate`` of a sender's batches, and its first
                batches, all of them
    ``trust``   they are believed
    """

    word: ClaimsWord = "ignore"
    rate: float | None = None

    def __post_init__(self) -> None:
        if self.word not in _CLAIMS_WORDS:
            raise ArgumentValueError(
                f"a claims policy must be one of {', '.join(_CLAIMS_WORDS)}, not {self.word!r}"
            )
        if self.word == "audit":
            if not isinstance(self.rate, int | float) or not 0 < self.rate <= 1:
                allowed = "a rate above 0 and at most 1"
                raise ArgumentValueError(
                    f"audit needs {allowed}, not {self.rate!r}: for 0 use trust"
                )
        elif self.rate is not None:
            raise ArgumentValueError(f"{self.word} cannot have a rate: only audit has one")

    @classmethod
    def parse(cls, text: str) -> ClaimsPolicy:
        """Return the policy of ``ignore``, ``verify``, ``audit:0.01`` or ``trust``."""
        name, colon, rate = text.partition(":")
        word = cast(ClaimsWord, name)  # checked by the class
        if not colon:
            return cls(word)
        try:
            number = float(rate)
        except ValueError:
            raise ArgumentValueError(
                f"the rate of an audit must be a number such as 0.01, not {rate!r}"
            ) from None
        return cls(word, number)

    def __str__(self) -> str:
        return self.word if self.rate is None else f"{self.word}:{self.rate:g}"

"""What a topic allows: the configuration that Kafka's LogValidator is built with; and what claims are worth.

Names are Kafka's topic configuration keys with dots as underscores; YAML and ``from_kafka_config`` use the dots.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields

from batchval.errors import BatchvalError
from batchval.kafka_versions import DEFAULT_KAFKA_VERSION
from batchval.kafka_versions import kafka_version as find_kafka_version

__all__ = ["ClaimsPolicy", "TopicPolicy"]

_LONG_MAX = 2**63 - 1
_INT_MAX = 2**31 - 1
_WHOLE_NUMBER = re.compile(r"\s*[+-]?[0-9]{1,19}\s*")

#: Kafka's own defaults (TopicConfig, LogConfig; 4.4.0).
DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
DEFAULT_MAX_DECOMPRESSED_MESSAGE_BYTES = 2_147_483_639
DEFAULT_MESSAGE_TIMESTAMP_AFTER_MAX_MS = 3_600_000

COMPRESSION_TYPES = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
CLEANUP_POLICIES = ("delete", "compact", "compact,delete", "")


@dataclass(frozen=True, slots=True)
class TopicPolicy:
    """The rules of one topic. Immutable, hashable; the defaults are Kafka's.

    Times are milliseconds, sizes are bytes.

    ``compression_type`` is the target codec: ``producer`` keeps the batch's own, ``uncompressed`` is Kafka's word
    for none. ``cleanup_policy`` with ``compact`` in it makes keys mandatory (rule 35).
    ``max_decompressed_message_bytes`` bounds the body of one compressed record (KAFKA 4.4.0); what bounds a whole
    batch is the validator's ``max_decompressed_bytes``. ``accept_claims_header`` admits batches of magic 3, which
    no stock broker does.
    """

    message_timestamp_before_max_ms: int = _LONG_MAX
    message_timestamp_after_max_ms: int = DEFAULT_MESSAGE_TIMESTAMP_AFTER_MAX_MS
    message_timestamp_type: str = "CreateTime"
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    max_decompressed_message_bytes: int = DEFAULT_MAX_DECOMPRESSED_MESSAGE_BYTES
    compression_type: str = "producer"
    cleanup_policy: str = "delete"
    accept_claims_header: bool = False

    def __post_init__(self) -> None:
        for name, top in (
            ("message_timestamp_before_max_ms", _LONG_MAX),
            ("message_timestamp_after_max_ms", _LONG_MAX),
            ("max_message_bytes", _INT_MAX),
            ("max_decompressed_message_bytes", _INT_MAX),
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= top:
                raise BatchvalError(f"{name} must be a whole number from 0 to {top}, not {value!r}")
        for name, words in (("message_timestamp_type", TIMESTAMP_TYPES), ("compression_type", COMPRESSION_TYPES)):
            if getattr(self, name) not in words:
                raise BatchvalError(f"{name} must be one of {', '.join(words)}, not {getattr(self, name)!r}")
        cleanup = ",".join(sorted(part.strip() for part in str(self.cleanup_policy).split(",")))
        if cleanup not in CLEANUP_POLICIES:
            raise BatchvalError(f"cleanup_policy must be delete, compact or both, not {self.cleanup_policy!r}")
        object.__setattr__(self, "cleanup_policy", cleanup)
        if not isinstance(self.accept_claims_header, bool):
            raise BatchvalError(f"accept_claims_header must be true or false, not {self.accept_claims_header!r}")

    @property
    def is_compacted(self) -> bool:
        """True where the cleaner may drop records by key, so that each needs one."""
        return "compact" in self.cleanup_policy

    @classmethod
    def from_kafka_config(
        cls, config: Mapping[str, object], *, kafka_version: str = DEFAULT_KAFKA_VERSION
    ) -> TopicPolicy:
        """A policy from a topic's configuration (``max.message.bytes=…``); keys it does not know are passed over.

        What the configuration leaves out has the default of ``kafka_version``.
        Values may be strings, as DescribeConfigs answers them. A value of the wrong kind raises BatchvalError.
        """
        version = find_kafka_version(kafka_version)
        values: dict[str, object] = {"message_timestamp_after_max_ms": version.message_timestamp_after_max_ms}
        for field in fields(cls):
            key = field.name.replace("_", ".")
            given = config.get(key)
            if given is None:
                continue
            if isinstance(field.default, bool):
                word = str(given).lower()
                if word not in ("true", "false"):
                    raise BatchvalError(f"{key} must be true or false, not {given!r}")
                values[field.name] = word == "true"
            elif isinstance(field.default, int):
                if not _WHOLE_NUMBER.fullmatch(str(given)):  # int() would take 1_000 too
                    raise BatchvalError(f"{key} must be a whole number, not {given!r}")
                values[field.name] = int(str(given))
            else:
                values[field.name] = str(given)
        return cls(**values)  # type: ignore[arg-type]


_CLAIMS_WORDS = ("ignore", "verify", "audit", "trust")


@dataclass(frozen=True, slots=True)
class ClaimsPolicy:
    """What to make of the claims that a sender attaches to its batches.

    ``ignore``  they are not read; every batch takes the way it would take without them
    ``verify``  every batch is decompressed and its claims are compared: this measures honesty and saves nothing
    ``audit``   they are believed but for a sample, ``rate`` of a sender's batches, and its first batches, all of them
    ``trust``   they are believed
    """

    word: str = "ignore"
    rate: float | None = None

    def __post_init__(self) -> None:
        if self.word not in _CLAIMS_WORDS:
            raise BatchvalError(f"a claims policy is one of {', '.join(_CLAIMS_WORDS)}, not {self.word!r}")
        if self.word == "audit":
            if not isinstance(self.rate, int | float) or not 0 < self.rate <= 1:
                raise BatchvalError(f"audit needs a rate above 0 and at most 1, not {self.rate!r} (0 is called trust)")
        elif self.rate is not None:
            raise BatchvalError(f"only audit has a rate, {self.word} has none")

    @classmethod
    def parse(cls, text: str) -> ClaimsPolicy:
        """From ``ignore``, ``verify``, ``audit:0.01`` or ``trust``."""
        word, colon, rate = text.partition(":")
        if not colon:
            return cls(word)
        try:
            number = float(rate)
        except ValueError:
            raise BatchvalError(f"the rate of an audit is a number such as 0.01, not {rate!r}") from None
        return cls(word, number)

    def __str__(self) -> str:
        return self.word if self.rate is None else f"{self.word}:{self.rate:g}"

"""Options of a check or an audit: how segments are read and validated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from batchval.core.batches.columns import BatchColumns
from batchval.core.batches.continuity import PRODUCER_ID_EXPIRATION_MS
from batchval.core.batches.validator import LogValidator
from batchval.errors import BatchvalError
from batchval.kafka_versions import DEFAULT_KAFKA_VERSION, Release, find_release, release_of
from batchval.policy import TopicPolicy
from batchval.segment.topic_rules import TopicRules, rules_of
from batchval.segment.trust import checked_rate, checked_seed, new_seed, sample_key
from batchval.types import DEFAULT_MAX_DECOMPRESSED_BYTES

__all__ = ["ClaimsJudge", "Options", "Profile", "Replica", "validator_of"]

Profile: TypeAlias = Literal["produce", "log"]
#: (validator, whole batches, now_ms) -> their rows
ClaimsJudge: TypeAlias = Callable[[LogValidator, memoryview, int], BatchColumns]


class Replica(NamedTuple):
    """The log folder of one broker, or one partition's folder, by a name."""

    name: str
    path: str


@dataclass(frozen=True)
class Options:
    """Options for reading and validating segments.

    ``rows``            which batches have a row in an audit's batches/
    ``columns``         columns of those rows: default, all or names (batchval.audit.arrow_rows)
    ``split_bytes``     about a task's share of a segment
    ``deep``            open compressed batches, and look at every record
    ``cleanup_policy``  auto, delete or compact: which gaps are legal
    ``producer_id_expiration_ms``  after which Kafka forgets a producer, and any sequence may follow
    ``topics``          names or patterns; None for all
    ``extras``          extras of strict mode that are only reported, by their ids
    ``replicas``        whose partitions are compared with each other; their names are those of
                        brokers in findings

    ``trust_claims``    take batches by the claims in their payload, and verify this share of them
    ``seed``            draws which; None: a random one, if ``trust_claims`` is set

    ``record_rules``    (topic pattern, RecordRules), of which the first that matches counts; they
                        are asked of compressed records with ``deep`` alone

    ``policy``          the topic's configuration; its record rules and accept_claims_header also
                        apply to segments

    ``now_ms``          the time of the run, milliseconds since the epoch; None: the clock.
                        Timestamps of segments are not checked against it, those of other files are

    Of files that are not segments, such as recorded produce requests:

    ``profile``         None: log for .log files, produce for others
    ``judge_claims``    checks the claims of produce batches; at rest claims are always verified
    """

    rows: Literal["all", "bad", "none"] = "all"
    columns: tuple[str, ...] = ("default",)
    split_bytes: int = 256 << 20
    deep: bool = False
    mode: Literal["strict", "kafka"] = "strict"
    kafka_version: str | Release = DEFAULT_KAFKA_VERSION
    cleanup_policy: str = "auto"
    producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS
    accept_claims_header: bool = False
    topics: tuple[str, ...] | None = None
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
    extras: Mapping[str, str] = field(default_factory=dict)
    replicas: tuple[Replica, ...] = ()
    trust_claims: float | None = None
    seed: int | None = None
    record_rules: TopicRules = ()
    profile: Profile | None = None
    policy: TopicPolicy | None = None
    now_ms: int | None = None
    judge_claims: ClaimsJudge | None = None

    def __post_init__(self) -> None:
        # here, so that the workers of one run do not warn again
        object.__setattr__(self, "kafka_version", release_of(self.kafka_version))
        if self.trust_claims is None:
            if self.seed is not None:
                raise BatchvalError(
                    f"seed {self.seed} needs trust_claims: it draws the batches to verify"
                )
            return
        object.__setattr__(self, "trust_claims", checked_rate(self.trust_claims))
        if self.mode == "kafka":
            raise BatchvalError(
                "trust_claims cannot be combined with mode kafka, which does not read claims"
            )
        # drawn here, so that all workers of one run verify the same batches
        seed = new_seed() if self.seed is None else checked_seed(self.seed)
        object.__setattr__(self, "seed", seed)

    @property
    def release(self) -> Release:
        """Return the release of ``kafka_version``."""
        return find_release(self.kafka_version)

    @property
    def sample(self) -> tuple[float, bytes] | None:
        """Return ``trust_claims`` of LogValidator.check_batches."""
        if self.trust_claims is None or self.seed is None:
            return None
        return self.trust_claims, sample_key(self.seed)

    @property
    def readings(self) -> int:
        """Return how often each byte is read: replicas are read again to compare them."""
        return 2 if self.replicas else 1

    @property
    def reads_claims(self) -> bool:
        """Return whether batches of magic 3 are read as batches."""
        return self.accept_claims_header or (
            self.policy is not None and self.policy.accept_claims_header
        )

    def profile_of(self, path: Path) -> Profile:
        """Return the profile of a file."""
        return self.profile or ("log" if path.suffix == ".log" else "produce")


def validator_of(options: Options, profile: Profile = "log", *, topic: str = "") -> LogValidator:
    """Return the validator of these options for a topic. Raises BatchvalError for options that do
    not fit together."""
    policy = options.policy or TopicPolicy(accept_claims_header=options.accept_claims_header)
    rules = rules_of(options.record_rules, topic)
    if rules is not None:
        policy = replace(policy, record_rules=rules)
    return LogValidator(
        policy,
        mode=options.mode,
        profile=profile,
        extras=dict(options.extras),
        max_decompressed_bytes=None if options.mode == "kafka" else options.max_decompressed_bytes,
        kafka_version=options.release,
    )

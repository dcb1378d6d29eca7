"""Compare the core's answer with the reference validator's, for one buffer under one configuration.

Three stages in kafka mode, each alone, compared on everything that Kafka answers; then what strict
mode promises: accepted by strict means accepted by kafka with the same result, and strict never
answers UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, NamedTuple

from batchval.core.batches.validator import LogValidator
from batchval.policy import TopicPolicy
from batchval.record_rules import RecordRules, SchemaIds
from tests.evidence.hostile import mutator
from tests.evidence.hostile.buffers import buffer_of
from tests.evidence.hostile.seeds import NOW
from tests.evidence.reference import reference
from tests.evidence.reference.kafka_model import batches, builder, java, lz4_stream

__all__ = ["DEFAULTS", "Setup", "compare", "setups", "strict_invariants"]

# The reference's checksums are plain Python and took a third of a run. These are the mutator's, not
# the core's.
for _module in (java, batches, builder):
    _module.crc32c = mutator.crc32c  # type: ignore[attr-defined]
lz4_stream.xxh32 = mutator.xxh32

DEFAULTS: dict[str, Any] = {
    "now": 0,
    "first_offset": 0,
    "leader_epoch": 0,
    "origin": "CLIENT",
    "source": "auto",
    "target": "producer",
    "compact": False,
    "to_magic": 2,
    "ts_type": "CreateTime",
    "before_max_ms": 2**63 - 1,
    "after_max_ms": 3_600_000,
    "max_message_bytes": 1_048_588,
    "max_record_body": 2_147_483_639,
    "produce_version": 9,
}
_FACTS = (
    "append_time",
    "next_offset",
    "max_timestamp",
    "size_maybe_changed",
    "in_place",
    "converted",
)
STRICT_LIMIT = 1 << 20
#: each is asked something of most records
RULES = RecordRules(
    schema_id=(
        SchemaIds(),
        SchemaIds("key", frozenset(range(100))),
        SchemaIds("header", header="h"),
    ),
    max_key_bytes=3,
    max_value_bytes=10,
    max_headers=1,
    required_headers=("a", "header"),
    forbidden_headers=("b", "k"),
    tombstones="refuse",
    utf8_keys=True,
)
#: asked of records that have no headers in the walk's short loop
PLAIN_RULES = RecordRules(
    schema_id=SchemaIds(), max_key_bytes=3, max_value_bytes=10, utf8_keys=True
)


class Setup(NamedTuple):
    """A configuration in the corpus' words, and the validators for it."""

    cfg: dict[str, Any]
    policy: TopicPolicy
    kafka: LogValidator
    strict: LogValidator
    ruled: tuple[LogValidator, ...]

    @classmethod
    def of(cls, cfg: dict[str, Any]) -> Setup:
        cfg = {**DEFAULTS, **cfg}
        policy = TopicPolicy(
            message_timestamp_before_max_ms=cfg["before_max_ms"],
            message_timestamp_after_max_ms=cfg["after_max_ms"],
            message_timestamp_type=cfg["ts_type"],
            max_message_bytes=cfg["max_message_bytes"],
            max_decompressed_message_bytes=cfg["max_record_body"],
            compression_type=cfg["target"],
            cleanup_policy="compact" if cfg["compact"] else "delete",
        )
        strict = LogValidator(policy, max_decompressed_bytes=STRICT_LIMIT)
        ruled = tuple(
            strict.with_policy(replace(policy, record_rules=rules))
            for rules in (RULES, PLAIN_RULES)
        )
        return cls(cfg, policy, LogValidator(policy, mode="kafka"), strict, ruled)


def setups(seed: int, count: int = 200) -> list[Setup]:
    """Return random configurations; a third of them are Kafka's defaults except for the clock."""
    rng = random.Random(seed)
    pick = rng.choice
    found = []
    for i in range(count):
        cfg: dict[str, Any] = {"now": pick([NOW, NOW, NOW + 500, 0, 1000, -3])}
        if i % 3:
            cfg |= {
                "first_offset": pick([0, 0, 1, 1000, 2**31, 2**62, 2**63 - 1, 2**63 - 3]),
                "leader_epoch": pick([0, 0, 4, 7, -1, 2**31 - 1]),
                "origin": pick(["CLIENT"] * 7 + ["COORDINATOR", "REPLICATION", "RAFT_LEADER"]),
                "target": pick(
                    ["producer"] * 4 + ["uncompressed", "gzip", "snappy", "lz4", "zstd"]
                ),
                "compact": rng.random() < 0.25,
                "to_magic": pick([2, 2, 2, 2, 2, 1, 0]),
                "ts_type": pick(["CreateTime"] * 3 + ["LogAppendTime"]),
                "before_max_ms": pick([2**63 - 1, 2**63 - 1, 0, 1000, 3_600_000]),
                "after_max_ms": pick([3_600_000, 2**63 - 1, 0, 5000]),
                "max_message_bytes": pick([1_048_588] * 4 + [120, 300]),
                "max_record_body": pick([2_147_483_639] * 4 + [20, 150]),
                "produce_version": pick([9, 9, 9, 6, 3]),
            }
        found.append(Setup.of(cfg))
    return found


def _outcome(what: str, ours: Any, theirs: reference.Answer) -> list[str]:
    code = 0 if ours.ok else int(ours.error_code)
    if ours.ok != theirs.ok or code != theirs.error_code:
        expected = f"reference {theirs.error_code} {theirs.rule} {theirs.cause or ''}"
        return [f"{what}: {code} {ours.rule} ({ours.reason}), {expected}"]
    indexes = [index for index, _ in ours.record_errors]
    if indexes != [index for index, _ in theirs.record_errors]:
        return [f"{what}: record_errors {indexes}, reference {theirs.record_errors}"]
    return []


def _validated(setup: Setup, ours: Any, theirs: reference.Answer) -> list[str]:
    found = [
        f"validate: {name} {getattr(ours, name)}, reference {getattr(theirs, name)}"
        for name in _FACTS
        if getattr(ours, name) != getattr(theirs, name)
    ]
    if ours.stats.temporary_memory_bytes != theirs.temp_bytes:
        found.append(
            f"validate: temp_bytes {ours.stats.temporary_memory_bytes}, reference {theirs.temp_bytes}"
        )
    assert theirs.output is not None
    if ours.output != theirs.output:
        target = setup.cfg["target"]
        codec = theirs.source.kafka_name if target == "producer" and theirs.source else target
        if not theirs.size_maybe_changed or codec in ("none", "uncompressed"):
            found.append("validate: other output bytes")
        elif reference.logical_sha256(ours.output) != reference.logical_sha256(theirs.output):
            found.append("validate: other records in the output")
    return found


def compare(setup: Setup, data: bytes) -> list[str]:
    """Return differences between core and reference in kafka mode."""
    cfg = setup.cfg
    buffer = buffer_of(data)
    request = reference.request(data, produce_version=cfg["produce_version"])
    found = _outcome(
        "request",
        setup.kafka.check_request(buffer, produce_version=cfg["produce_version"]),
        request,
    )
    ours = setup.kafka.analyze(buffer, origin=cfg["origin"], leader_epoch=cfg["leader_epoch"])
    theirs = reference.analyze(
        data,
        origin=cfg["origin"],
        leader_epoch=cfg["leader_epoch"],
        max_message_bytes=cfg["max_message_bytes"],
    )
    found += _outcome("analyze", ours, theirs)
    if (
        theirs.ok
        and ours.ok
        and (ours.valid_bytes != theirs.valid_bytes or ours.source != theirs.source)
    ):
        found.append(
            f"analyze: {ours.valid_bytes} bytes {ours.source}, reference {theirs.valid_bytes} {theirs.source}"
        )
    if theirs.ok and theirs.source is not None:
        found += _compare_validate(
            setup,
            data[: theirs.valid_bytes] if theirs.valid_bytes else data,
            theirs.source.kafka_name,
        )
    return found + _compare_append(setup, data)


def _compare_append(setup: Setup, data: bytes) -> list[str]:
    """Compare ``check``, which decides most batches without calling each stage."""
    ours = setup.kafka.check(buffer_of(data), **_arguments(setup.cfg))
    theirs = reference.check(data, setup.policy, mode="kafka", **_arguments(setup.cfg))
    found = _outcome("check", ours, theirs)
    if found or not theirs.ok or not theirs.valid_bytes:
        return found
    names = (
        (*_FACTS, "records_count", "path", "meters")
        if theirs.path
        else ("next_offset", "max_timestamp", "in_place")
    )
    found = [
        f"check: {name} {getattr(ours, name)}, reference {getattr(theirs, name)}"
        for name in names
        if getattr(ours, name) != getattr(theirs, name)
    ]
    if theirs.path and theirs.in_place and ours.stats.temporary_memory_bytes != theirs.temp_bytes:
        found.append(
            f"check: temp_bytes {ours.stats.temporary_memory_bytes}, reference {theirs.temp_bytes}"
        )
    return found


def _compare_validate(setup: Setup, data: bytes, source: str) -> list[str]:
    cfg = setup.cfg
    ours = setup.kafka.validate_messages_and_assign_offsets(
        buffer_of(data),
        now_ms=cfg["now"],
        source=source,
        first_offset=cfg["first_offset"],
        leader_epoch=cfg["leader_epoch"],
        origin=cfg["origin"],
        to_magic=cfg["to_magic"],
    )
    theirs = reference.validate(
        data,
        source=source,
        now=cfg["now"],
        first_offset=cfg["first_offset"],
        leader_epoch=cfg["leader_epoch"],
        origin=cfg["origin"],
        target=cfg["target"],
        compact=cfg["compact"],
        to_magic=cfg["to_magic"],
        ts_type=cfg["ts_type"],
        before_max_ms=cfg["before_max_ms"],
        after_max_ms=cfg["after_max_ms"],
        max_record_body=cfg["max_record_body"],
    )
    found = _outcome("validate", ours, theirs)
    # of a batch that fails in its stream, Kafka's meters depend on which chunk was read; nobody
    # answers with them
    if (ours.ok or ours.record_errors) and ours.meters != theirs.meters:
        found.append(f"validate: meters {ours.meters}, reference {theirs.meters}")
    if not found and ours.ok:
        found = _validated(setup, ours, theirs)
    return found


def compare_strict(setup: Setup, data: bytes) -> list[str]:
    """Return differences between core and reference over all checks in strict mode."""
    cfg = setup.cfg
    ours = setup.strict.check(buffer_of(data), **_arguments(cfg))
    theirs = reference.check(
        data,
        setup.policy,
        now_ms=cfg["now"],
        origin=cfg["origin"],
        produce_version=cfg["produce_version"],
        leader_epoch=cfg["leader_epoch"],
        to_magic=cfg["to_magic"],
        first_offset=cfg["first_offset"],
        max_decompressed_bytes=STRICT_LIMIT,
    )
    return _outcome("strict", ours, theirs) + _compare_ruled(setup, data, ours)


def _compare_ruled(setup: Setup, data: bytes, plain: Any) -> list[str]:
    """Record rules change no refusal, and refuse what is accepted without them by rules of their
    own.
    """
    found = []
    for validator in setup.ruled:
        ruled = validator.check(buffer_of(data), **_arguments(setup.cfg))
        if plain.ok:
            if not ruled.ok and (ruled.rule.id[0] != "R" or not ruled.record_errors):
                found.append(f"record rules: {ruled}, without them {plain}")
        elif (ruled.rule, ruled.reason, ruled.record_errors) != (
            plain.rule,
            plain.reason,
            plain.record_errors,
        ):
            found.append(f"record rules: {ruled}, without them {plain}")
    return found


def _arguments(cfg: dict[str, Any]) -> dict[str, Any]:
    return {
        "now_ms": cfg["now"],
        "origin": cfg["origin"],
        "produce_version": cfg["produce_version"],
        "leader_epoch": cfg["leader_epoch"],
        "to_magic": cfg["to_magic"],
        "first_offset": cfg["first_offset"],
    }


def strict_invariants(setup: Setup, data: bytes) -> list[str]:
    """Return violations of what strict mode promises, and of the state after a refusal."""
    arguments = _arguments(setup.cfg)
    found = []
    strict = setup.strict.check(buffer_of(data), **arguments)
    if int(strict.error_code) == -1:
        found.append(f"strict answers -1: {strict}")
    kafka = setup.kafka.check(buffer_of(data), **arguments)
    if strict.ok:
        if not kafka.ok:
            found.append(f"strict accepts what kafka refuses: {kafka}")
        for name in (*_FACTS, "records_count", "path", "valid_bytes", "source"):
            if getattr(strict, name) != getattr(kafka, name):
                found.append(f"strict {name} {getattr(strict, name)}, kafka {getattr(kafka, name)}")
    changed = bytearray(data)
    written = setup.kafka.validate(changed, in_place=True, **arguments)
    if not written.ok and changed != data:
        found.append("a refused buffer was written to")
    if (
        kafka.ok and not written.ok and written.rule is not None and written.rule.number != 40
    ):  # only a rebuilt batch's size
        found.append(f"validate refuses what check accepts: {written}")
    if written.ok:
        copied = setup.kafka.validate(buffer_of(data), **arguments)
        if not copied.ok or bytes(written.output) != copied.output:
            found.append("in place and copied outputs differ")
    return found

"""Whole produce requests: what the first batch of one partition does to the others."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from batchval.core import claims
from batchval.core.batches.validator import LogValidator
from batchval.errors import BatchvalError
from batchval.policy import TopicPolicy
from tests.support.batches import LZ4, NOW, batch, message, records

KAFKA = LogValidator(mode="kafka")
STRICT = LogValidator()
GOOD = batch(records(3))
TRANSACTIONAL = batch(records(2), attributes=16, producer_id=4, producer_epoch=0, base_sequence=0)


def sized(size: int) -> bytes:
    return GOOD[:8] + struct.pack(">i", size) + GOOD[12:]


SMALL, OVERFLOWING = sized(13), sized(2**31 - 12)
MAGIC_3 = GOOD[:16] + b"\x03" + GOOD[17:]
WRONG_CRC = GOOD[:-1] + b"?"
UNKNOWN_CODEC = batch(records(2), attributes=5)


def codes(validator: LogValidator, *partitions: bytes | None, **kw: Any) -> list[int]:
    return [
        int(r.error_code) for r in validator.check_produce_request(partitions, now_ms=NOW, **kw)
    ]


@pytest.mark.parametrize(("bad", "rule", "in_kafka", "in_strict"), [
    (SMALL, "2", 2, 2),
    (OVERFLOWING, "3", -1, 87),
    (MAGIC_3, "4", 2, 2),
    (GOOD + OVERFLOWING, "3", -1, 87),
])  # fmt: skip
@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_partition_fails_all(
    bad: bytes, rule: str, in_kafka: int, in_strict: int, place: int
) -> None:
    partitions = [GOOD, WRONG_CRC, GOOD]
    partitions[place] = bad
    results = KAFKA.check_produce_request(partitions, now_ms=NOW)
    assert [(r.rule.id, int(r.error_code)) for r in results] == [(rule, in_kafka)] * 3
    assert [r.position for r in results] == [0 if i == place else None for i in range(3)]
    others = {r.reason for i, r in enumerate(results) if i != place}
    assert others == {f"partition {place} fails the whole request: {results[place].reason}"}
    assert codes(STRICT, *partitions) == [in_strict] * 3
    refused = KAFKA.scan_produce_request(partitions)
    assert refused is not None
    assert [int(r.error_code) for r in refused] == [in_kafka] * 3


def test_what_is_a_partitions_own() -> None:
    legacy = message(1)
    partitions = (
        GOOD,
        WRONG_CRC,
        None,
        b"",
        legacy,
        GOOD + SMALL,
        GOOD + MAGIC_3,
        GOOD + GOOD,
        GOOD[:40],
    )
    assert KAFKA.scan_produce_request(partitions) is None
    assert codes(KAFKA, *partitions) == [0, 2, 87, 87, 87, 2, 2, 87, 87]
    assert KAFKA.scan_produce_request([]) is None
    assert KAFKA.check_produce_request([], now_ms=NOW) == []


def test_the_first_look_ends_at_a_transactional_batch() -> None:
    assert codes(KAFKA, TRANSACTIONAL, SMALL, GOOD) == [0, 2, 0]
    assert codes(KAFKA, SMALL, TRANSACTIONAL, GOOD) == [2, 2, 2]
    assert codes(KAFKA, TRANSACTIONAL, OVERFLOWING, GOOD) == [-1, -1, -1]


def test_a_codec_that_does_not_exist_fails_old_requests_alone() -> None:
    assert codes(KAFKA, GOOD, UNKNOWN_CODEC, produce_version=6) == [-1, -1]
    assert codes(KAFKA, GOOD, UNKNOWN_CODEC, produce_version=7) == [0, -1]
    assert codes(STRICT, GOOD, UNKNOWN_CODEC, produce_version=6) == [76, 76]


def test_policies_and_claims_are_each_partitions_own() -> None:
    compacted, plain = TopicPolicy(cleanup_policy="compact"), TopicPolicy()
    no_keys = batch(records(2, key=None))
    assert codes(STRICT, no_keys, no_keys, policies=[compacted, plain]) == [87, 0]
    assert codes(STRICT, no_keys, no_keys, policies=compacted) == [87, 87]
    data = batch(records(3), codec=LZ4)
    facts = claims.compute(data)
    assert facts is not None
    admitting = TopicPolicy(accept_claims_header=True)
    carried = claims.attach(data)
    assert codes(STRICT, GOOD, carried, policies=[plain, admitting]) == [0, 0]
    assert codes(STRICT, GOOD, carried) == [2, 2]
    tag = claims.to_tag(facts, int.from_bytes(data[17:21], "big"))
    results = STRICT.check_produce_request([GOOD, data], now_ms=NOW, claims=[None, (tag, "trust")])
    assert [r.claims for r in results] == [None, "trusted"]


@pytest.mark.parametrize("wrong", [{"policies": [TopicPolicy()]}, {"claims": [None]}])
def test_a_list_of_another_length_is_a_callers_mistake(wrong: dict[str, Any]) -> None:
    with pytest.raises(BatchvalError):
        STRICT.check_produce_request([GOOD, GOOD], now_ms=NOW, **wrong)

"""Test findings between neighbouring batches: L2 to L5, fed in one piece or in many."""

from __future__ import annotations

import pickle
import random
from typing import Any

import numpy as np
import pytest

from batchval.core.batches.columns import scan_batches
from batchval.core.batches.continuity import PRODUCER_ID_EXPIRATION_MS, Continuity, Finding
from batchval.core.batches.validator import LogValidator
from batchval.policy import TopicPolicy
from batchval.rules import Rule
from tests.support.batches import GZIP, NOW, batch, message, records, wrapper
from tests.support.seeds import seeds


def at(base: int, count: int = 1, **fields_set: Any) -> bytes:
    return batch(records(count), base_offset=base, **fields_set)


def produced(
    base: int, sequence: int, count: int = 1, epoch: int = 0, producer: int = 9, **fields_set: Any
) -> bytes:
    return at(
        base,
        count,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        **fields_set,
    )


def found(*parts: bytes, compacted: bool = False) -> list[tuple[str, int]]:
    """(rule, index of the batch); the same whether the segment is fed whole or batch by batch."""
    starts = [sum(map(len, parts[:i])) for i in range(len(parts))]
    data = b"".join(parts)
    once = Continuity(compacted=compacted)
    whole = list(once.feed(scan_batches(data)))
    pieces: list[Finding] = []
    many = Continuity(compacted=compacted)
    for start, part in zip(starts, parts, strict=True):
        pieces += many.feed(scan_batches(data[: start + len(part)], start))
    assert pieces == whole
    assert (many.last_offset, many.leader_epoch) == (once.last_offset, once.leader_epoch)
    for finding in whole:
        assert finding.reason
        assert finding.offset == scan_batches(data, finding.position)["base_offset"][0]
    return [(finding.rule.id, starts.index(finding.position)) for finding in whole]


def test_a_log_in_order() -> None:
    assert found(at(0, 3), at(3), at(4, 2)) == []
    assert found(at(1000)) == []  # a log may start anywhere
    assert found() == []


@pytest.mark.parametrize(
    ("second", "rule"),
    [
        (0, "L2"),
        (1, "L2"),
        (2, "L2"),
        (3, None),
        (4, "L3"),
        (2**62, "L3"),
        (-1, "L2"),
        (-(2**63), "L2"),
    ],
)
def test_offsets_of_the_next_batch(second: int, rule: str | None) -> None:
    assert found(at(0, 3), at(second)) == ([(rule, 1)] if rule else [])
    compacted = found(at(0, 3), at(second), compacted=True)
    assert compacted == ([("L2", 1)] if rule == "L2" else [])


def test_offsets_are_compared_with_the_batch_before_alone() -> None:
    assert found(at(5), at(3), at(4), at(6)) == [("L2", 1), ("L3", 3)]


def test_the_least_offset_there_is() -> None:
    assert found(at(2**63 - 2, 2), at(0)) == [("L2", 1)]


def test_messages_know_their_last_offset_alone() -> None:
    """So a gap before one may be its own records."""
    assert (
        found(
            message(1, offset=3), wrapper([message(1, offset=i) for i in range(3)], GZIP, offset=6)
        )
        == []
    )
    assert found(message(1, offset=6), message(1, offset=6)) == [("L2", 1)]
    assert found(message(0, offset=6), message(0, offset=5)) == [("L2", 1)]
    assert found(message(1, offset=6), at(9)) == [("L3", 1)]
    assert found(message(1, offset=6), at(7)) == []


@pytest.mark.parametrize(
    ("epochs", "where"), [((1, 1, 2, 5), []), ((3, 2, 3), [1]), ((3, -1, 2), [2]), ((-1, 0), [])]
)
def test_leader_epochs(epochs: tuple[int, ...], where: list[int]) -> None:
    parts = [at(i, partition_leader_epoch=epoch) for i, epoch in enumerate(epochs)]
    assert found(*parts) == [("L4", i) for i in where]
    assert found(*parts, compacted=True) == [("L4", i) for i in where]


def test_sequences() -> None:
    assert found(produced(0, 0, 3), produced(3, 3), produced(4, 4)) == []
    assert found(produced(0, 0, 3), produced(3, 4)) == [("L5", 1)]
    assert found(produced(0, 0, 3), produced(3, 2)) == [("L5", 1)]
    assert found(produced(0, 0, 3), produced(3, 4), produced(4, 5)) == [("L5", 1)]  # reported once
    assert found(produced(0, 7)) == []  # the first that is seen
    assert found(produced(0, 0, 3), produced(3, 4), compacted=True) == []


def test_sequences_wrap_to_zero() -> None:
    assert found(produced(0, 2**31 - 2, 2), produced(2, 0)) == []
    assert found(produced(0, 2**31 - 1, 2), produced(2, 1)) == []
    assert found(produced(0, 2**31 - 1), produced(1, 2**31 - 1)) == [("L5", 1)]


def test_each_producer_has_its_own() -> None:
    assert (
        found(
            produced(0, 0), produced(1, 0, producer=10), produced(2, 1), produced(3, 1, producer=10)
        )
        == []
    )
    assert found(produced(0, 0), produced(1, 5, producer=10), produced(2, 5)) == [("L5", 2)]
    assert found(produced(0, 0), at(1), produced(2, 1)) == []  # others do not disturb


def test_a_new_epoch_starts_anywhere() -> None:
    assert found(produced(0, 0), produced(1, 0, epoch=1), produced(2, 1, epoch=1)) == []
    assert found(produced(0, 0), produced(1, 0, epoch=1), produced(2, 2, epoch=1)) == [("L5", 2)]


def test_markers_carry_no_sequence() -> None:
    marker = at(1, attributes=32 | 16, producer_id=9, producer_epoch=0)
    assert found(produced(0, 0), marker, produced(2, 1)) == []
    numbered = at(1, attributes=32 | 16, producer_id=9, producer_epoch=0, base_sequence=77)
    assert found(produced(0, 0), numbered, produced(2, 1)) == []


def test_kafka_forgets_a_producer_after_a_day() -> None:
    day = PRODUCER_ID_EXPIRATION_MS
    for later, expected in ((0, [("L5", 1)]), (day, [("L5", 1)]), (day + 1, [])):
        parts = produced(0, 0), produced(1, 50, base_timestamp=NOW + later)
        assert found(*parts) == expected


def test_the_time_after_which_a_producer_is_forgotten_is_an_option() -> None:
    parts = produced(0, 0), produced(1, 50, base_timestamp=NOW + 11)
    both = scan_batches(b"".join(parts))
    for expiration, expected in ((10, []), (11, [Rule.L5])):
        state = Continuity(producer_id_expiration_ms=expiration)
        assert [finding.rule for finding in state.feed(both)] == expected
        first, second = (Continuity(producer_id_expiration_ms=expiration) for _ in parts)
        assert [*first.feed(scan_batches(parts[0])), *second.feed(scan_batches(parts[1]))] == []
        joined = pickle.loads(pickle.dumps(first))
        assert [finding.rule for finding in joined.join(second)] == expected


def test_what_is_damaged_is_not_reported_as_a_gap() -> None:
    """A wrong checksum is a finding of its own; nothing in that batch is believed."""
    bad = at(1, crc=1)
    assert found(at(0), bad, at(2)) == []
    assert found(at(0), at(77, crc=1), at(2)) == []
    assert found(at(0), bad, at(9)) == []
    assert found(at(5), bad, at(3)) == [("L2", 2)]
    assert found(produced(0, 0), bad, produced(2, 9)) == []
    assert found(produced(0, 0), bad, produced(2, 9), produced(3, 12)) == [("L5", 3)]
    assert found(bad, bad) == []
    assert found(bad, at(5), at(7)) == [("L3", 2)]


def test_damaged_from_outside() -> None:
    follow = Continuity()
    assert list(follow.feed(scan_batches(at(0)))) == []
    follow.damaged()
    assert list(follow.feed(scan_batches(at(9)))) == []
    assert [finding.rule for finding in follow.feed(scan_batches(at(11)))] == [Rule.L3]


def test_a_reported_gap_takes_what_was_known_of_producers() -> None:
    """A missing segment is one finding, not one for each producer that went on in it."""
    assert found(produced(0, 0), produced(1, 1), produced(9, 9), produced(10, 10)) == [("L3", 2)]
    assert found(produced(0, 0), produced(9, 9), produced(10, 12)) == [("L3", 1), ("L5", 2)]


def _any_log(rng: random.Random) -> list[bytes]:
    """Batches of few producers, most of them in order, each kind of fault now and then."""
    parts, offset, sequences = [], 0, dict.fromkeys(range(3), 0)
    for _ in range(rng.randrange(1, 14)):
        offset = max(0, offset + (rng.choice([-2, 1, 5]) if rng.random() < 0.1 else 0))
        producer = rng.randrange(3)
        sequence = sequences[producer] + (rng.randrange(3) if rng.random() < 0.15 else 0)
        count = rng.randrange(1, 4)
        parts.append(
            batch(
                records(count),
                base_offset=offset,
                partition_leader_epoch=rng.choice([-1, 5, 5, 5, 4 + (rng.random() < 0.9)]),
                attributes=32 if rng.random() < 0.1 else 0,
                **({"crc": 1} if rng.random() < 0.06 else {}),
                **(
                    {}
                    if rng.random() < 0.2
                    else {"producer_id": producer, "base_sequence": sequence}
                ),  # type: ignore[arg-type]
                producer_epoch=int(rng.random() < 0.05),
                base_timestamp=NOW
                + (rng.randrange(2) * 2 * PRODUCER_ID_EXPIRATION_MS if rng.random() < 0.1 else 0),
            )
        )
        if rng.random() < 0.03:
            parts[-1] = message(1, offset=offset)
        offset += count
        sequences[producer] = sequence + count
    return parts


@pytest.mark.parametrize("seed", seeds(400))
def test_pieces_that_are_joined_in_any_order_are_the_whole(seed: int) -> None:
    rng = random.Random(seed)
    parts = _any_log(rng)
    starts = [sum(map(len, parts[:i])) for i in range(len(parts))]
    data, compacted = b"".join(parts), seed % 4 == 3
    damaged = {i for i in range(len(parts)) if rng.random() < 0.05}
    whole, expected, pieces, found = Continuity(compacted=compacted), [], [], []
    for i, (start, part) in enumerate(zip(starts, parts, strict=True)):
        piece = Continuity(compacted=compacted)
        for follow, into in ((whole, expected), (piece, found)):
            if i in damaged:
                follow.damaged()
            into.extend(follow.feed(scan_batches(data[: start + len(part)], start)))
        pieces.append(pickle.loads(pickle.dumps(piece)))
    once = Continuity(compacted=compacted)
    if 0 in damaged:
        once.damaged()
    assert list(once.feed(scan_batches(data), breaks=sorted(damaged - {0}))) == expected
    assert (once.last_offset, once.after_damage) == (whole.last_offset, whole.after_damage)
    assert np.array_equal(once.producers, whole.producers)
    while len(pieces) > 1:
        i = rng.randrange(len(pieces) - 1)
        found += pieces[i].join(pieces.pop(i + 1))
    assert sorted(found, key=str) == sorted(expected, key=str)
    (joined,) = pieces
    assert (joined.last_offset, joined.leader_epoch) == (whole.last_offset, whole.leader_epoch)
    assert joined.after_damage == whole.after_damage
    assert np.array_equal(joined.producers, whole.producers)


def test_findings_come_in_order_of_position_and_rule() -> None:
    parts = (
        at(5, partition_leader_epoch=4),
        produced(6, 0),
        produced(3, 5, partition_leader_epoch=1),
    )
    assert found(*parts) == [("L2", 2), ("L4", 2), ("L5", 2)]


def test_the_validators_log_profile_asks_them_too() -> None:
    data = at(0, 3) + at(2)
    result = LogValidator(profile="log").check(data)
    assert (result.rule, result.position) == (Rule.L2, len(at(0, 3)))
    assert result.error_code.name == "KAFKA_STORAGE_ERROR"
    assert result.reason == "base offset is 2, but the batch before ends at 2"
    gap = at(0) + at(5)
    assert LogValidator(profile="log").check(gap).rule is Rule.L3
    assert LogValidator(TopicPolicy(cleanup_policy="compact"), profile="log").check(gap).ok
    # what is wrong with an earlier batch itself comes first
    assert LogValidator(profile="log").check(at(0, crc=1) + data).rule is Rule.CRC_MISMATCH
    assert LogValidator(profile="log").check(data + at(3, crc=1)).rule is Rule.L2


@pytest.mark.parametrize(
    ("tail", "rule", "reason"),
    [
        (b"\1" * 11, "L1", "11 bytes of a batch that is not whole"),
        (bytes(40), "L1", "40 zero bytes to the end"),
        (bytes(40) + b"\1", "2", "an impossible batch size, 41 bytes before the end"),
        (batch(magic=9), "4", f"an unknown magic, {len(batch())} bytes before the end"),
    ],
)
def test_how_a_stretch_may_end(tail: bytes, rule: str, reason: str) -> None:
    data = at(0, 2)
    result = LogValidator(profile="log").check(data + tail)
    assert (result.rule and result.rule.id, result.reason, result.position) == (
        rule,
        reason,
        len(data),
    )
    assert result.error_code.name == "CORRUPT_MESSAGE"
    good = LogValidator(profile="log").check(data)
    assert (good.ok, good.records_count, good.valid_bytes, good.path) == (
        True,
        2,
        len(data),
        "full",
    )

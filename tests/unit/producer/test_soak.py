"""The soak for a second. ``python -m tests.unit.producer.soak`` runs longer."""

from __future__ import annotations

import random

from batchval.core.convert.builder import BatchBuilder
from batchval.errors import ErrorCode
from tests.unit.producer.log_model import PartitionLog
from tests.unit.producer.soak import soak

SEED, BATCHES = 12, 1_000


def test_a_soak() -> None:
    jitter = random.getstate()
    report, found, faults = soak(BATCHES, SEED)
    assert random.getstate() == jitter
    assert (found.lost, found.reordered, found.wrong_offsets, found.duplicates) == (0, 0, 0, 0)
    assert (report.timed_out, report.other_errors) == (0, 0)
    assert min(report.delivered, report.refused, report.splits, report.retries) > 0
    assert report.without_offset > 0, "no batch was doubted"
    assert {"kill", "truncated", "silent", "cut before", "cut after"} <= set(faults)


def test_a_soak_in_which_batches_time_out() -> None:
    """All is settled nevertheless (the soak sees to that), and what is reported is true."""
    report, found, _ = soak(600, SEED, 1_010)
    assert report.timed_out > 0
    assert (found.lost, found.reordered, found.wrong_offsets) == (0, 0, 0)


def test_the_same_seed_does_the_same() -> None:
    assert soak(150, SEED) == soak(150, SEED)


def batch(ids: list[int], sequence: int, epoch: int = 0) -> bytes:
    builder = BatchBuilder(1_000)
    for number in ids:
        builder.append(None, number.to_bytes(8), (), 0)
    builder.finish()
    builder.seal(1, epoch, sequence)
    return bytes(builder.view())


def test_the_log_checks_sequences_as_kafka_does() -> None:
    log = PartitionLog()
    for n in range(6):
        code, entry = log.append(batch([n + 10], n))
        assert (code, entry and entry.offset) == (ErrorCode.NONE, n)
    assert log.append(batch([11], 1))[1] is log.entries[1]
    assert log.append(batch([10], 0))[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "the sixth last"
    log.remember_the_last_alone()
    assert log.append(batch([14], 4))[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append(batch([15], 5))[1] is log.entries[5]
    assert log.append(batch([16], 1, 1))[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append(batch([16], 0, 1))[0] == ErrorCode.NONE
    assert log.append(batch([18], 6, 0))[0] == ErrorCode.INVALID_PRODUCER_EPOCH
    log.truncate(3)
    assert log.append(batch([13], 3))[0] == ErrorCode.NONE
    log.lose_state()
    assert log.append(batch([19], 70))[0] == ErrorCode.NONE, "any sequence"


def test_the_soak_finds_what_is_wrong() -> None:
    log = PartitionLog()
    for n, number in enumerate([0, 2, 3]):
        entry = log.append(batch([number], n))[1]
        assert entry is not None
        log.acknowledge(entry)
    log.reported([0], 0)
    log.reported([2], -1)
    assert (log.found.lost, log.found.wrong_offsets) == (0, 0)
    log.reported([3], 1)
    assert log.found.wrong_offsets == 1
    log.append(batch([1], 3))
    assert log.found.reordered == 1
    log.reported([1], -1)
    assert log.found.lost == 1, "stored, but not acknowledged by the leader"
    log.append(batch([1], 0, 1))
    assert (log.found.duplicates, log.found.duplicates_state_lost) == (1, 0)
    log.lose_state()
    log.append(batch([1], 4))
    assert (log.found.duplicates, log.found.duplicates_state_lost) == (1, 1)
    log.truncate(2)
    assert log.found.acknowledged_then_truncated == 1
    assert log.finish([0, 2, 3]).lost == 1
    assert log.finish([0, 2, 4]).lost == 2

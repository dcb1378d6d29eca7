"""A receiver hands over whole batches as they were sent, however the bytes come, and asks for what
follows.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batchval.core.fetched import walk_fetched
from batchval.errors import BatchvalError
from batchval.fetch.receive_memory import ReceivedRecords, kept_bytes
from batchval.fetch.receiver import Receiver
from batchval.protocol.messages.fetch import AbortedTransaction, PartitionData
from tests.support.batches import batch, records
from tests.unit.fetch.test_receive import (
    ABORTED,
    DAMAGED,
    REFUSED,
    VERSIONS,
    Answers,
    answer,
    asked,
    asking,
    blocks,
    data_of,
    fed,
)

MIB = 1 << 20


def giving(version: int = 12, offset: int = 0, **settings: Any) -> Receiver:
    """Of t-0, its first request sent."""
    return asking(version, offset, decode="blocks", **settings)


def feed(receiver: Receiver, data: bytes, correlation_id: int = 1, version: int = 12) -> None:
    """An answer for t-0."""
    assert fed(
        receiver, answer({("t", 0): PartitionData(0, 0, 99, records=data)}, version, correlation_id)
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_every_cut(version: int) -> None:
    data = data_of(5)
    parts = {
        ("t", 0): PartitionData(0, 0, 99, 99, records=data[:-3]),
        ("t", 7): PartitionData(7, 0, 99, 99, records=data),  # not asked for
        ("s", 1): PartitionData(1, 0, 77, 77, records=None),
        ("t", 2): PartitionData(2, 0, 12, 12, records=data),
    }
    frame = answer(parts, version)
    found = walk_fetched(data[:-3], 1, "headers")
    for cut in range(1, len(frame)):
        receiver = Receiver(version, decode="blocks")
        slots = [receiver.add("t", 0, 1), receiver.add("s", 1, 5), receiver.add("t", 2, 0)]
        receiver.request()
        assert fed(receiver, frame, iter([cut, len(frame)]))
        assert blocks(receiver) == [
            (slots[0], data[: found.end], 1, 8, 99),
            (slots[2], data, 0, 12, 12),
        ]
        assert blocks(receiver) == []
        assert receiver.counted().wire_bytes == found.end + len(data)
        assert receiver.positions() == [(slots[0], 8, 99), (slots[1], 5, 77), (slots[2], 12, 12)]
        assert receiver.returned() == []


def test_a_block_is_there_before_its_answer_is_whole() -> None:
    receiver = Receiver(12, decode="blocks")
    for index in range(2):
        receiver.add("t", index, 0)
    receiver.request()
    parts: Answers = {
        ("t", index): PartitionData(index, 0, 9, records=data_of(9)) for index in range(2)
    }
    frame = answer(parts, 12)
    assert not receiver.feed(frame[:-5])
    assert blocks(receiver) == [(0, data_of(9), 0, 12, 9)]
    assert receiver.request() is None
    assert receiver.feed(frame[-5:])
    assert blocks(receiver) == [(1, data_of(9), 0, 12, 9)]


def test_an_answer_that_ends_within_its_first_batch_gives_nothing_and_moves_nothing() -> None:
    receiver = giving()
    feed(receiver, data_of(9)[:50])
    assert receiver.blocks() == []
    assert asked(receiver, 12) == {("t", 0): 0}


def test_batches_below_the_position_give_nothing() -> None:
    """Return the partition: the caller asks again, but not without a pause."""
    receiver = giving(offset=12)
    feed(receiver, data_of(9))
    assert receiver.blocks() == []
    assert asked(receiver, 12) == {}
    assert receiver.returned() == [(0, DAMAGED, 12)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"crc": 1},
        {"records_count": -1},
        {"last_offset_delta": -5},
        {"magic": 7},
        {"batch_length": 3},
    ],
    ids=str,
)
def test_what_is_whole_before_damage_comes_and_the_partition_is_returned(wrong: Any) -> None:
    receiver = giving(check_crcs=True)
    feed(receiver, data_of(1) + batch(records(1), base_offset=12, **wrong) + data_of(1, 13))
    assert blocks(receiver) == [(0, data_of(1), 0, 12, 99)]
    assert receiver.returned() == [(0, DAMAGED, 12)]
    assert receiver.request() is None


def test_damage_at_the_beginning_gives_nothing() -> None:
    receiver = giving(check_crcs=True)
    feed(receiver, batch(records(1), crc=1) + data_of(1, 1))
    assert receiver.blocks() == []
    assert receiver.returned() == [(0, DAMAGED, 0)]


def test_what_is_unusual_is_returned_with_its_position() -> None:
    receiver = Receiver(12, isolation=1, decode="blocks")
    slots = [receiver.add("t", index, 0) for index in range(4)]
    receiver.request()
    parts: Answers = {
        ("t", 0): PartitionData(0, 6, records=data_of(1)),
        ("t", 2): PartitionData(
            2, 0, 9, aborted_transactions=[AbortedTransaction(1, 0)], records=data_of(1)
        ),
        ("t", 3): PartitionData(3, 0, 9, aborted_transactions=[], records=data_of(1)),
    }
    assert fed(receiver, answer(parts, 12))
    assert receiver.returned() == [(slots[0], 6, 0), (slots[2], ABORTED, 0)]
    assert blocks(receiver) == [(slots[3], data_of(1), 0, 12, 9)]
    assert asked(receiver, 12) == {("t", 1): 0, ("t", 3): 12}
    assert fed(receiver, answer({}, 12, 2, error_code=-1))
    assert receiver.returned() == [(slots[1], REFUSED, 0), (slots[3], REFUSED, 12)]


def test_nothing_is_asked_while_two_blocks_of_a_partition_wait() -> None:
    receiver = giving()
    feed(receiver, data_of(1))
    assert asked(receiver, 12) == {("t", 0): 12}
    feed(receiver, data_of(1, 12), 2)
    receiver.add("t", 1, 0)
    assert receiver.request() is None
    assert [offset for _, _, offset, _, _ in receiver.blocks()] == [0, 12]
    assert receiver.request() is None  # taken, but not used
    assert receiver.used(0)
    assert not receiver.used(0)
    assert asked(receiver, 12) == {("t", 1): 0, ("t", 0): 24}


def test_nobody_has_to_be_woken_while_an_answer_is_awaited() -> None:
    receiver = Receiver(12, decode="blocks")
    receiver.add("t", 0, 0, -1, 1)
    assert receiver.request() is not None
    feed(receiver, data_of(1))
    receiver.pause(0, True)
    receiver.add("t", 1, 0)
    assert asked(receiver, 12) == {("t", 1): 0}
    assert not receiver.used(0)


def test_a_paused_partition_holds_no_other_back() -> None:
    receiver = Receiver(12, decode="blocks")
    receiver.add("t", 0, 0, -1, 2)
    receiver.add("t", 1, 0)
    assert receiver.request() is None
    receiver.pause(0, True)
    assert asked(receiver, 12) == {("t", 1): 0}


@pytest.mark.parametrize("change", ["seek", "drop"])
def test_blocks_that_were_not_taken_are_dropped_with_their_position(change: str) -> None:
    receiver = Receiver(12, decode="blocks")
    for index in range(2):
        receiver.add("t", index, 0)
    receiver.request()
    parts: Answers = {
        ("t", index): PartitionData(index, 0, 9, records=data_of(1)) for index in range(2)
    }
    assert fed(receiver, answer(parts, 12))
    receiver.request()
    parts = {("t", index): PartitionData(index, 0, 9, records=data_of(1, 12)) for index in range(2)}
    assert fed(receiver, answer(parts, 12, 2))
    if change == "drop":
        assert receiver.drop(0) == 0
    else:
        receiver.seek(0, 7)
    assert [(slot, offset) for slot, _, offset, _, _ in receiver.blocks()] == [(1, 0), (1, 12)]


def address(view: memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).ctypes.data)


def test_memory_that_was_let_go_is_used_again_by_whatever_thread() -> None:
    data = data_of(30_000)
    receiver = giving()
    feed(receiver, data)
    first = [records for _, records, *_ in receiver.blocks()]
    place = address(first[0])
    receiver.used(0)
    thread = threading.Thread(target=first.clear)
    thread.start()
    thread.join()
    assert kept_bytes() >= len(data)
    other = giving()
    feed(other, data)
    ((_, view, *_),) = other.blocks()
    assert address(view) == place
    assert view == data


def test_a_block_outlives_its_receiver_and_cannot_be_written() -> None:
    data = data_of(30_000)
    receiver = giving()
    feed(receiver, data)
    ((_, view, *_),) = receiver.blocks()
    part = view[100:200]
    del receiver
    gc.collect()
    feed(giving(), data_of(30_001))
    assert view == data
    del view
    feed(giving(), data_of(30_001))
    assert part == data[100:200]
    assert part.readonly
    with pytest.raises(TypeError):
        part[0] = 1


@pytest.mark.long
def test_what_is_kept_has_a_limit_and_fits() -> None:
    views = []
    for n in range(20):
        receiver = giving()
        feed(receiver, data_of(n + 100_000))
        views += receiver.blocks()
    views.clear()
    assert 8 * MIB < kept_bytes() <= 16 * MIB
    receiver = giving()
    feed(receiver, data_of(1))
    before = kept_bytes()
    views += receiver.blocks()
    views.clear()
    assert kept_bytes() == before  # small ones are malloc's


def resident() -> int:
    """The bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.alone
@pytest.mark.skipif(sys.platform != "linux", reason="/proc/self/statm exists on Linux only")
def test_ten_thousand_blocks_leave_no_memory() -> None:
    receiver, held, before = giving(), deque[memoryview](maxlen=5), 0
    frames = [
        answer({("t", 0): PartitionData(0, records=data_of(size))}, 12)
        for size in (10, 3_000, 40_000)
    ]
    for number in range(1, 10_001):
        frame = bytearray(frames[number % 3])
        frame[4:8] = number.to_bytes(4, "big")
        assert receiver.feed(frame)
        held += [records for _, records, *_ in receiver.blocks()]
        receiver.seek(0, 0)
        assert receiver.request() is not None
        if number == 500:
            before = resident()
    assert resident() - before < 4 * MIB


def test_receivers_alone_make_records() -> None:
    with pytest.raises(BufferError, match="a Receiver makes"):
        memoryview(ReceivedRecords())
    with pytest.raises(BatchvalError, match="slot 7"):
        Receiver(12, decode="blocks").used(7)

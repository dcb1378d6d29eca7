"""Test the counts of perf roundtrip: the records that a group has read, and their contents."""

from __future__ import annotations

import random

import numpy as np
import pytest

from batchval.perf.roundtrip import GroupCheck, Numbers
from batchval.perf.roundtrip_record import (
    HEADER,
    HEADER_BYTES,
    SizedLetters,
    heads_of,
    with_headers,
)

RUN = b"\0run\0\xff8\0"


def headers(*pairs: tuple[int, int]) -> np.ndarray:
    """(producer, number) each."""
    found = np.zeros(len(pairs), HEADER)
    found["producer"] = [producer for producer, _ in pairs]
    found["number"] = [number for _, number in pairs]
    return found


def test_a_header_comes_back_with_the_size_of_its_value() -> None:
    numbers = np.array([7, 8, 2**40], np.int64)
    instants = np.array([1, -2, 2**62], np.int64)
    values = with_headers(RUN, 3, numbers, instants, [b"x" * 28, b"y" * 100, b"z" * 29])
    assert [len(value) for value in values] == [28, 100, 29]
    assert values[1].endswith(b"y" * 72)
    raw, sizes = heads_of(RUN, values)
    found = np.frombuffer(raw, HEADER)
    assert found["producer"].tolist() == [3, 3, 3]
    assert found["number"].tolist() == numbers.tolist()
    assert found["intended"].tolist() == instants.tolist()
    assert sizes == [28, 100, 29]


def test_values_of_others_are_left_out() -> None:
    (ours,) = with_headers(RUN, 0, np.array([5]), np.array([6]), b"." * 40)
    (other,) = with_headers(b"another!", 0, np.array([5]), np.array([6]), b"." * 40)
    assert heads_of(RUN, [None, b"", ours[: HEADER_BYTES - 1], other, ours]) == (
        ours[:HEADER_BYTES],
        [40],
    )
    assert heads_of(RUN, []) == (b"", [])


@pytest.mark.parametrize("many", [False, True])
def test_sizes_by_turns(many: bool) -> None:
    letters = SizedLetters([100, 28, 100, 5000], many=many, seed=1)
    values = [value for first in (0, 3) for value in letters.values(first, 3)]
    assert [len(value) for value in values if isinstance(value, bytes)] == [
        100,
        28,
        100,
        5000,
        100,
        28,
    ]
    assert letters.largest == 5000
    one = SizedLetters([64], many=many).values(5, 2)
    assert one if many else isinstance(one, bytes)


def test_numbers_as_a_set_has_them() -> None:
    chance = random.Random(1)
    numbers, model = Numbers(), set[int]()
    for _ in range(300):
        part = [chance.randrange(9000) for _ in range(chance.randrange(1, 200))]
        is_new = numbers.add(np.array(part, np.int64))
        for number, new in zip(part, is_new.tolist(), strict=True):
            assert new == (number not in model)
            model.add(number)
    assert numbers.count == len(model)
    numbers.add(np.arange(4096))
    model |= set(range(4096))
    wanted = np.arange(0, 12_000, 3)
    assert numbers.having(wanted) == len(model & set(wanted.tolist()))
    assert numbers.having(np.empty(0, np.int64)) == 0


def test_blocks_that_are_full_take_no_memory() -> None:
    numbers = Numbers()
    for first in range(0, 4096 * 50, 64):
        assert numbers.add(np.arange(first, first + 64)).all()
    assert not numbers._open
    assert not numbers.add(np.array([17, 4096 * 49])).any()


def test_in_order_with_gaps() -> None:
    check = GroupCheck(2)
    assert check.add(0, headers((0, 0), (1, 0), (0, 2))).all()
    assert check.add(1, headers((0, 1), (1, 5))).all()
    assert check.add(0, headers((0, 3), (1, 4))).all()
    assert (check.read, check.doubled, check.reordered, check.foreign) == (7, 0, 0, 0)


def test_doubled_is_not_reordered() -> None:
    check = GroupCheck(1)
    assert check.add(0, headers((0, 0), (0, 5), (0, 5), (0, 3))).tolist() == [
        True,
        True,
        False,
        True,
    ]
    assert (check.doubled, check.reordered) == (1, 1)
    assert check.add(0, headers((0, 5), (0, 4), (0, 6))).tolist() == [False, True, True]
    assert (check.doubled, check.reordered, check.read) == (2, 2, 5)
    assert check.add(1, headers((0, 1))).all()  # another partition has an order of its own
    assert (check.doubled, check.reordered, check.foreign) == (2, 2, 0)


def test_lost_are_those_that_were_acknowledged_and_not_read() -> None:
    check = GroupCheck(2)
    check.add(0, headers((0, 0), (0, 1), (1, 0), (1, 2)), foreign=3)
    nothing = [np.empty(0, np.int64), np.empty(0, np.int64)]
    assert (check.lost(4, nothing), check.lost(6, nothing), check.foreign) == (0, 2, 3)
    # number 2 of producer 1 was stored though its request failed, number 9 was not
    assert check.lost(3, [nothing[0], np.array([2, 9])]) == 0
    assert check.lost(4, [nothing[0], np.array([2, 9])]) == 1

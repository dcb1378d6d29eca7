"""Transactions of a partition, read in one piece or in many, and compared with the .txnindex."""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchval.core.batches.columns import scan_batches
from batchval.segment.index import check_transaction_index
from batchval.segment.transactions import (
    LATE_TRANSACTION_BUFFER_MS,
    TRANSACTION_MAX_TIMEOUT_MS,
    AbortedRange,
    Transactions,
    marker_kinds,
)
from tests.support.batches import GZIP, NOW, batch, message, record, records

CONTROL, TRANSACTIONAL, LOG_APPEND_TIME = 32, 16, 8
ABORT, COMMIT = 0, 1
LIMIT = TRANSACTION_MAX_TIMEOUT_MS + LATE_TRANSACTION_BUFFER_MS


def data(base: int, producer: int = 7, count: int = 1, attributes: int = 0, **fields: Any) -> bytes:
    header = {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0, **fields}
    return batch(records(count), base_offset=base, attributes=TRANSACTIONAL | attributes, **header)


def feed(state: Transactions, stretch: bytes, base: int = 0, breaks: Sequence[int] = ()) -> None:
    columns = scan_batches(stretch)
    state.feed(columns, marker_kinds(columns, memoryview(stretch)), base, breaks=breaks)


def plain(base: int, **fields: Any) -> bytes:
    return batch(records(1), base_offset=base, **fields)


def marker(
    base: int, kind: int, producer: int = 7, *, key: bytes | None = None, value: bytes = bytes(6),
    codec: int = 0, **fields: Any,
) -> bytes:  # fmt: skip
    key = struct.pack(">hh", 0, kind) if key is None else key
    attributes = fields.pop("attributes", TRANSACTIONAL | CONTROL)
    return batch(
        fields.pop("parts", [record(key=key, value=value)]), codec=codec, base_offset=base,
        attributes=attributes, producer_id=producer, producer_epoch=0, **fields,
    )  # fmt: skip


def read(*parts: bytes) -> Transactions:
    """All in one stretch."""
    whole = b"".join(parts)
    state = Transactions()
    feed(state, whole)
    return state


def ranges(state: Transactions) -> list[tuple[int, int, int, int]]:
    return [one[:4] for one in state.aborted()]


def counts(state: Transactions) -> tuple[int, int, int]:
    return state.committed_count, state.aborted_count, state.markers_without_data


# ---- transactions --------------------------------------------------------------------------------


def test_a_committed_and_an_aborted_transaction() -> None:
    state = read(data(0, count=3), data(3), marker(4, COMMIT), data(5), marker(6, ABORT), plain(7))
    assert ranges(state) == [(7, 5, 6, 7)]
    assert counts(state) == (1, 1, 0)
    assert (state.open, state.first_unstable_offset, state.last_stable_offset) == ([], None, 8)
    before = data(0, count=3), data(3), marker(4, COMMIT), data(5)
    assert state.aborted()[0].position == sum(map(len, before))


def test_an_empty_state() -> None:
    state = Transactions()
    feed(state, b"")
    assert (state.open, state.aborted(), state.last_stable_offset) == ([], [], None)
    assert state.hanging() == []


def test_the_last_stable_offset_of_an_abort_is_the_oldest_open_transaction() -> None:
    state = read(data(0, 1), data(1, 2), data(2, 3), marker(3, ABORT, 2), marker(4, ABORT, 1))
    assert ranges(state) == [(2, 1, 3, 0), (1, 0, 4, 2)]
    assert [one.producer_id for one in state.open] == [3]
    assert (state.first_unstable_offset, state.last_stable_offset) == (2, 2)


def test_the_next_transaction_of_another_producer() -> None:
    state = read(data(0), marker(1, ABORT), data(2), data(3, 8), marker(4, ABORT), plain(5))
    assert [one.next_first_offset for one in state.aborted()] == [3, -1]


def test_markers_without_data_are_counted() -> None:
    state = read(marker(0, ABORT), marker(1, COMMIT), data(2), marker(3, ABORT), marker(4, ABORT))
    assert counts(state) == (0, 1, 3)
    assert [one.first_offset for one in state.aborted()] == [-1, 2, -1]


def test_epochs_do_not_matter() -> None:
    state = read(
        data(0, producer_epoch=3), data(1, producer_epoch=4), data(2, producer_epoch=4),
        marker(3, ABORT), data(4, producer_epoch=5),
    )  # fmt: skip
    assert ranges(state) == [(7, 0, 3, 4)]
    (found,) = state.open
    assert (found.producer_epoch, found.first_offset) == (5, 4)


def test_an_open_transaction() -> None:
    before = plain(0)
    state = read(
        before,
        data(1, count=2, max_timestamp=NOW + 5, producer_epoch=2),
        data(3, max_timestamp=NOW + 9, producer_epoch=3),
    )
    (found,) = state.open
    assert found == (7, 3, 1, 3, 0, len(before), NOW + 5, NOW + 9, -1, True)


@pytest.mark.parametrize(
    "part",
    [
        marker(1, 2),
        marker(1, 5),
        marker(1, ABORT, producer=-1),
        marker(1, ABORT, parts=[]),
        plain(1, producer_id=7, attributes=0),
        plain(1, producer_id=-1, attributes=TRANSACTIONAL),
    ],
)
def test_batches_without_a_marker(part: bytes) -> None:
    state = read(data(0), part)
    assert counts(state) == (0, 0, 0)
    assert [(one.first_offset, one.is_certain) for one in state.open] == [(0, True)]


@pytest.mark.parametrize(
    "part",
    [
        marker(1, ABORT, key=b""),
        marker(1, ABORT, key=b"\0\0\0"),
        marker(1, ABORT, key=b"\xff\xff\0\0"),
        marker(1, ABORT, value=bytes(5)),
        marker(1, ABORT, value=b"\xff\xff\0\0\0\0"),
        marker(1, ABORT, parts=[b"\xff" * 17]),
        marker(1, ABORT, parts=[b"\x20"]),
        marker(1, ABORT, codec=GZIP),
    ],
)
def test_a_marker_that_cannot_be_read_makes_the_rest_uncertain(part: bytes) -> None:
    state = read(data(0), part, data(2, 8))
    assert counts(state) == (0, 0, 0)
    assert [(one.first_offset, one.is_certain) for one in state.open] == [(0, False), (2, True)]
    assert state.certain_from == 2


def test_markers_of_other_sizes_are_read() -> None:
    state = read(
        data(0), marker(1, ABORT, value=bytes(9)), data(2),
        marker(3, COMMIT, parts=[record(key=struct.pack(">hhi", 1, COMMIT, 9), value=bytes(6))]),
        data(4),
        marker(5, ABORT, parts=[record(1, key=bytes(4), value=bytes(6), timestamp_delta=900)]),
    )  # fmt: skip
    assert counts(state) == (1, 2, 0)


def test_what_is_damaged_is_not_believed() -> None:
    state = read(data(0), marker(1, ABORT, crc=1), data(2, 8))
    assert counts(state) == (0, 0, 0)
    assert [(one.first_offset, one.is_certain) for one in state.open] == [(0, False), (2, True)]
    state = read(data(0), plain(1, crc=1))
    assert [one.is_certain for one in state.open] == [False]


def test_damage_between_stretches() -> None:
    state = read(data(0))
    state.damaged()
    assert not state.open[0].is_certain
    state.join(read(data(1, 8), marker(2, ABORT)))
    assert state.aborted()[0].certain_from == 1
    assert [one.is_certain for one in state.open] == [True]


def test_gaps_make_what_is_before_them_uncertain() -> None:
    state = read(data(0), data(5, 8), marker(6, ABORT), message(1, offset=9), data(10, 9))
    assert state.aborted()[0].certain_from == 5
    # only the last offset of a message of magic 1 is known: nothing need be missing before it
    assert [(one.first_offset, one.is_certain) for one in state.open] == [(5, True), (10, True)]
    assert not read(data(0), data(5, 8)).open[0].is_certain


def test_offsets_at_both_ends() -> None:
    state = read(data(2**63 - 2), marker(2**63 - 1, ABORT))
    assert ranges(state) == [(7, 2**63 - 2, 2**63 - 1, 2**63 - 1)]
    assert read(data(-(2**63)), data(2**63 - 1), data(-(2**63))).certain_from == 2**63 - 1


# ---- split independence --------------------------------------------------------------------------


class Kafka(NamedTuple):
    """ProducerStateManager, one batch at a time."""

    open: list[tuple[int, int, int]]  # producer, first, last
    aborted: list[tuple[int, int, int, int]]
    counts: tuple[int, int, int]


def as_kafka_does(log: list[tuple[int, int, int, str]]) -> Kafka:
    """``log``: base offset, last offset, producer, what."""
    ongoing: dict[int, tuple[int, int]] = {}
    aborted, committed, empty, ended = [], 0, 0, 0
    for base, last, producer, what in log:
        if what == "data":
            ongoing[producer] = (ongoing.get(producer, (base, 0))[0], last)
        elif what in {"abort", "commit"}:
            first, _ = ongoing.pop(producer, (None, 0))
            empty += first is None
            committed += first is not None and what == "commit"
            ended += first is not None and what == "abort"
            if what == "abort":
                stable = min((one for one, _ in ongoing.values()), default=last + 1)
                aborted.append((producer, -1 if first is None else first, last, stable))
    found = sorted((first, producer, last) for producer, (first, last) in ongoing.items())
    return Kafka(
        [(producer, first, last) for first, producer, last in found],
        aborted,
        (committed, ended, empty),
    )


#: What a batch of a generated log is.
KINDS = ("data", "data", "data", "abort", "abort", "commit", "plain", "kraft", "bad")


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[bytes], list[tuple[int, int, int, str]]]:
    """Batches with what a reader should make of them; what is damaged is left out of the latter."""
    chosen = st.tuples(
        st.sampled_from(KINDS),
        st.sampled_from([7, 8, 9]),
        st.integers(1, 3),
        st.sampled_from([0, 0, 0, 0, 0, 0, 0, 3]),
        st.integers(0, 50),
    )
    parts, log, offset = [], [], draw(st.sampled_from([0, 1000]))
    for what, producer, size, gap, time in draw(st.lists(chosen, min_size=1, max_size=30)):
        offset += gap
        count = 1 if what in {"abort", "commit", "kraft"} else size
        fields: dict[str, Any] = {"max_timestamp": NOW + time}
        if what in {"abort", "commit", "kraft"}:
            kind = {"abort": ABORT, "commit": COMMIT, "kraft": 2}[what]
            parts.append(marker(offset, kind, producer, **fields))
        elif what == "plain":
            parts.append(batch(records(count), base_offset=offset, **fields))
        else:
            bits = LOG_APPEND_TIME if time % 7 == 0 else 0
            crc = {"crc": 1} if what == "bad" else {}
            fields |= {"producer_epoch": time % 3, **crc}
            parts.append(data(offset, producer, count, bits, **fields))
        if what != "bad":
            log.append((offset, offset + count - 1, producer, what))
        offset += count
    return parts, log


def everything(state: Transactions) -> tuple[Any, ...]:
    return (
        state.open, state.aborted(), counts(state), state.first_unstable_offset, state.last_offset,
        state.last_stable_offset, state.certain_from, state.after_damage, state.newest_timestamp,
        state.newest_broker_timestamp, state.hanging(NOW + 2 * LIMIT),
        state.hanging(margin_ms=-10**9),
    )  # fmt: skip


def pieces_of(parts: list[bytes], cuts: list[int]) -> list[tuple[int, bytes]]:
    """Where each stretch begins, and its bytes."""
    edges = sorted({0, len(parts), *(cut % (len(parts) + 1) for cut in cuts)})
    found = []
    for start, stop in pairwise(edges):
        found.append((sum(map(len, parts[:start])), b"".join(parts[start:stop])))
    return found


@given(logs(), st.lists(st.integers(0, 40), max_size=12), st.randoms(use_true_random=False))
def test_any_pieces_joined_in_any_order_are_the_whole(
    log: tuple[list[bytes], list[tuple[int, int, int, str]]], cuts: list[int], rng: Any
) -> None:
    parts, what = log
    expected = as_kafka_does(what)
    whole = read(*parts)
    assert ranges(whole) == expected.aborted
    found = [(one.producer_id, one.first_offset, one.last_offset) for one in whole.open]
    assert found == expected.open
    assert counts(whole) == expected.counts
    fed, states = Transactions(), []
    for base, stretch in pieces_of(parts, cuts):
        feed(fed, stretch, base)
        states.append(Transactions())
        feed(states[-1], stretch, base)
        kept = json.dumps(pickle.loads(pickle.dumps(states[-1])).to_json())
        states[-1] = Transactions.from_json(json.loads(kept))
    assert everything(fed) == everything(whole)
    while len(states) > 1:
        i = rng.randrange(len(states) - 1)
        later = states.pop(i + 1)
        before = everything(later)
        states[i].join(later)
        assert everything(later) == before
    assert everything(states[0]) == everything(whole)


@given(logs(), st.lists(st.integers(0, 40), min_size=1, max_size=6))
def test_damage_between_pieces_is_the_same_in_any_order(
    log: tuple[list[bytes], list[tuple[int, int, int, str]]], cuts: list[int]
) -> None:
    pieces = pieces_of(log[0], cuts)
    fed, states = Transactions(), []
    for i, (base, stretch) in enumerate(pieces):
        states.append(Transactions())
        for state in (fed, states[-1]):
            if i % 2:
                state.damaged()
            feed(state, stretch, base)
    whole, breaks, rows = b"".join(log[0]), [], 0
    for i, (_, stretch) in enumerate(pieces):
        if i % 2:
            breaks.append(rows)
        rows += len(scan_batches(stretch))
    once = Transactions()
    feed(once, whole, breaks=breaks)
    assert everything(once) == everything(fed)
    joined = states.pop()
    while states:
        before = states.pop()
        before.join(joined)
        joined = before
    assert everything(joined) == everything(fed)


def test_aborts_of_one_producer_wait_for_another() -> None:
    state = read(data(0), marker(1, ABORT))
    for i in range(2, 40, 2):
        state.join(read(data(i), marker(i + 1, ABORT)))
    assert {one.next_first_offset for one in state.aborted()} == {-1}
    state.join(read(data(40), data(41, 8)))
    assert {one.next_first_offset for one in state.aborted()} == {41}


# ---- hanging transactions ------------------------------------------------------------------------


def test_a_hanging_transaction_by_clients_clocks_is_not_certain() -> None:
    state = read(data(0, max_timestamp=NOW), plain(1, max_timestamp=NOW + LIMIT))
    assert state.hanging() == []
    state = read(data(0, max_timestamp=NOW), plain(1, max_timestamp=NOW + LIMIT + 1))
    (found,) = state.hanging(transaction_max_timeout_ms=TRANSACTION_MAX_TIMEOUT_MS)
    assert (found.age_ms, found.is_certain, found.rule) == (LIMIT + 1, False, "L16")
    assert state.hanging(NOW + 5) == []
    assert len(state.hanging(NOW + 5, transaction_max_timeout_ms=0, margin_ms=4)) == 1


def test_a_hanging_transaction_by_brokers_clocks() -> None:
    log = (
        data(0, max_timestamp=1), marker(1, COMMIT, 8, max_timestamp=NOW),
        data(2, max_timestamp=2), marker(3, COMMIT, 8, max_timestamp=NOW + LIMIT + 1),
    )  # fmt: skip
    (found,) = read(*log).hanging()
    assert (found.age_ms, found.is_certain) == (LIMIT + 1, False)  # the limit is assumed
    (found,) = read(*log).hanging(transaction_max_timeout_ms=TRANSACTION_MAX_TIMEOUT_MS)
    assert found.is_certain
    assert read(*log).hanging(transaction_max_timeout_ms=TRANSACTION_MAX_TIMEOUT_MS + 1) == []
    (found,) = read(*log, plain(9)).hanging(transaction_max_timeout_ms=TRANSACTION_MAX_TIMEOUT_MS)
    assert not found.is_certain  # the marker may be in the gap


def test_a_young_transaction_with_old_timestamps() -> None:
    """A client copies old data in a transaction; the markers around it tell that it is young."""
    log = data(0, max_timestamp=NOW - 10**9), marker(1, COMMIT, 8, max_timestamp=NOW), plain(2)
    assert read(*log).hanging() == []


def test_log_append_time_is_a_brokers_clock() -> None:
    log = (
        data(0, attributes=LOG_APPEND_TIME, max_timestamp=NOW),
        plain(1, attributes=LOG_APPEND_TIME, max_timestamp=NOW + 10 * LIMIT),
    )
    (found,) = read(*log).hanging(transaction_max_timeout_ms=TRANSACTION_MAX_TIMEOUT_MS)
    assert (found.age_ms, found.is_certain) == (10 * LIMIT, True)


# ---- the transaction index -----------------------------------------------------------------------

GOOD = AbortedRange(7, 10, 15, 16, 18, -1, 0, 100)


def compared(
    *entries: tuple[int, int, int, int],
    one: AbortedRange = GOOD,
    **fields: Any,
) -> tuple[str, bool] | None:
    found = check_transaction_index([one], entries, segment=0, **fields)
    assert all((fault.differences, fault.rule) == (1, "L10") for fault in found)
    return (found[0].kind, found[0].is_certain) if found else None


def test_an_index_that_is_right() -> None:
    assert compared((7, 10, 15, 16)) is None
    assert compared((7, 10, 15, 18)) is None  # a follower's
    assert check_transaction_index([], None, segment=0) == []
    assert check_transaction_index([], [], segment=0) == []


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        ((6, 10, 15, 16), "differs"),
        ((7, 11, 15, 16), "differs"),
        ((7, 2, 15, 16), "differs"),
        ((7, 10, 15, 17), "differs"),
        ((7, 10, 15, 9), "differs"),
        ((7, 10, 15, 2**40), "differs"),
    ],
)
def test_an_index_that_differs(entry: tuple[int, int, int, int], kind: str) -> None:
    assert compared(entry) == (kind, True)
    assert compared(entry, is_cleaned=True) in {(kind, False), None}


def test_a_missing_entry() -> None:
    (fault,) = check_transaction_index([GOOD], None, segment=5)
    assert (fault.kind, fault.is_certain, fault.position) == ("missing", True, 100)
    assert fault.segment == 5
    assert "does not exist" in fault.reason
    assert compared() == ("missing", True)
    assert compared(one=GOOD._replace(certain_from=10)) == ("missing", True)
    assert compared(one=GOOD._replace(certain_from=11)) == ("missing", False)
    assert compared(log_start=11) == ("missing", False)
    assert compared(log_start=16) is None
    assert compared(one=GOOD._replace(first_offset=-1)) is None


def test_faults_of_a_segment_are_one() -> None:
    more = [GOOD, GOOD._replace(first_offset=20, last_offset=25, last_stable_offset=26)]
    (fault,) = check_transaction_index(more, [(7, 10, 14, 16)], segment=0)
    assert (fault.kind, fault.differences, fault.is_certain) == ("extra", 3, True)
    (fault,) = check_transaction_index(more, [(7, 10, 14, 16)], segment=0, certain_from=15)
    assert (fault.kind, fault.differences, fault.last_offset) == ("missing", 3, 15)


def test_an_entry_without_a_marker() -> None:
    good = (7, 10, 15, 16)
    assert compared(good, (7, 16, 17, 18)) == ("extra", True)
    assert compared(good, good) == ("extra", True)
    assert compared(good, (7, 16, 17, 18), certain_from=18) == ("extra", False)
    assert compared(good, (7, 16, 17, 18), end=17) is None
    assert compared(good, (7, 1, 2, 3), log_start=5) is None


def test_a_transaction_that_began_below_the_log_start() -> None:
    below = GOOD._replace(first_offset=-1)
    assert compared((7, 3, 15, 16), one=below, log_start=5) is None
    assert compared((7, 6, 15, 16), one=below, log_start=5) == ("differs", True)
    assert compared((7, 3, 15, 16), one=below) == ("differs", True)
    assert compared((7, 3, 15, 16), log_start=5) is None  # more of its batches were there
    assert compared((7, 10, 15, 3), log_start=5) is None  # another transaction was open from there
    assert compared((7, 3, 15, 16), one=below._replace(certain_from=5)) is None


def test_a_cleaned_segment() -> None:
    for entry in ((7, 3, 15, 16), (7, 10, 15, 2), (7, 10, 15, 16)):
        assert compared(entry, is_cleaned=True) is None
        assert compared(entry, one=GOOD._replace(first_offset=-1), is_cleaned=True) is None
    assert compared(is_cleaned=True) == ("missing", False)
    assert compared((7, 11, 15, 16), is_cleaned=True) == ("differs", False)

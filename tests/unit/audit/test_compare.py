"""Test the comparison of two audits: losses, lags, duplicates and moves by partition and hour."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchval.audit.compare_audits import Comparison, compare
from tests.unit.audit.outputs import HOUR, SUMMARY, hour

Counts = dict[tuple[str, int, int | None], int]


def summary(counts: Counts) -> pa.Table:
    """Return a table of (topic, partition, hours after HOUR or None) -> records."""
    rows: list[dict[str, Any]] = []
    for (topic, partition, after), records in counts.items():
        at = None if after is None else HOUR + 3600 * after
        stamp = None if at is None else at * 1000 + 1_800_000
        rows += hour(topic, partition, at, {"none": (1, records, 100)}, max_timestamp=stamp)
    return pa.Table.from_pylist(rows, SUMMARY)


def of(first: Counts, second: Counts) -> Comparison:
    return compare(summary(first), summary(second))


def found(comparison: Comparison) -> list[tuple[str, int, int | None, str, int]]:
    return [
        (
            d.topic,
            d.partition,
            None if d.hour is None else (d.hour - HOUR) // 3600,
            d.kind,
            d.records,
        )
        for d in comparison.differences
    ]


BASE: Counts = {("a", 0, 0): 10, ("a", 0, 1): 20, ("a", 0, 2): 30, ("a", 1, 0): 5, ("b", 0, 0): 7}


def test_equal_audits_do_not_differ() -> None:
    same = of(BASE, BASE)
    assert (same.differs, same.differences) == (False, [])
    assert same.table() == "2 topics, 72 records and 72: no difference\n"
    assert list(same.rows())[-1]["differs"] is False


def test_fewer_is_lost_where_later_ones_came() -> None:
    comparison = of(BASE, BASE | {("a", 0, 0): 8})
    assert found(comparison) == [("a", 0, 0, "lost", 2)]
    assert comparison.differs
    assert vars(comparison.topics["a"]) == {
        "partitions": 2, "first": 65, "second": 63, "lost": 2, "behind": 0, "duplicated": 0, "moved": 0, "lag_ms": 0
    }  # fmt: skip
    assert not comparison.topics["b"].differs


def test_fewer_at_the_end() -> None:
    shorter = {key: count for key, count in BASE.items() if key != ("a", 0, 2)} | {("a", 0, 1): 19}
    comparison = of(BASE, shorter)
    assert found(comparison) == [("a", 0, 1, "behind", 1), ("a", 0, 2, "behind", 30)]
    assert comparison.topics["a"].lag_ms == 3_600_000
    assert "lag 1.0 h" in comparison.table()


def test_more_is_duplicated() -> None:
    assert found(of(BASE, BASE | {("a", 1, 0): 6})) == [("a", 1, 0, "duplicated", 1)]
    assert found(of(BASE, BASE | {("c", 3, 9): 1})) == [("c", 3, 9, "duplicated", 1)]


def test_a_partition_that_never_came_is_lost() -> None:
    comparison = of(BASE, {key: count for key, count in BASE.items() if key[:2] != ("a", 0)})
    assert found(comparison) == [
        ("a", 0, 0, "lost", 10),
        ("a", 0, 1, "lost", 20),
        ("a", 0, 2, "lost", 30),
    ]
    assert comparison.topics["a"].lag_ms == 0


def test_records_of_other_batches_move_to_the_next_hour() -> None:
    comparison = of(BASE, BASE | {("a", 0, 0): 7, ("a", 0, 1): 24})
    assert found(comparison) == [
        ("a", 0, 0, "moved", 3),
        ("a", 0, 1, "moved", 3),
        ("a", 0, 1, "duplicated", 1),
    ]
    assert comparison.topics["a"].moved == 3
    only_moved = of(BASE, BASE | {("a", 0, 0): 7, ("a", 0, 1): 23})
    assert not only_moved.differs
    assert only_moved.table() == "2 topics, 72 records and 72: 3 moved\n"


def test_hours_that_are_not_neighbours_do_not_cancel() -> None:
    assert found(of(BASE, BASE | {("a", 0, 0): 7, ("a", 0, 2): 33})) == [
        ("a", 0, 0, "lost", 3),
        ("a", 0, 2, "duplicated", 3),
    ]
    # nor does an hour of one partition with that of another
    assert Counter(
        kind for *_, kind, _ in found(of(BASE, BASE | {("a", 0, 1): 19, ("a", 1, 0): 6}))
    ) == {
        "lost": 1,
        "duplicated": 1,
    }


def test_what_has_no_timestamp_is_compared_too() -> None:
    both = of({("a", 0, None): 4}, {("a", 0, None): 4})
    assert not both.differs
    comparison = of({("a", 0, None): 4, ("a", 0, 0): 1}, {("a", 0, 0): 1})
    assert found(comparison) == [("a", 0, None, "lost", 4)]
    assert next(comparison.rows()) == {
        "type": "difference", "topic": "a", "partition": 0, "hour": None,
        "first": 4, "second": 0, "kind": "lost", "records": 4,
    }  # fmt: skip
    assert "no timestamp" in comparison.table()


def test_an_empty_side() -> None:
    assert found(of({}, {("a", 0, 0): 1})) == [("a", 0, 0, "duplicated", 1)]
    assert found(of({("a", 0, 0): 1}, {})) == [("a", 0, 0, "lost", 1)]
    assert of({}, {}).table() == "0 topics, 0 records and 0: no difference\n"


def test_rows_of_several_files_are_one() -> None:
    twice = summary({("a", 0, 0): 3})
    assert not compare(pa.concat_tables([twice, twice]), summary({("a", 0, 0): 6})).differs


def test_a_name_cannot_colour_the_terminal() -> None:
    comparison = of({("\x1b[31m", 0, 0): 1}, {})
    assert "\x1b" not in comparison.table()
    assert "\\x1b[31m" in comparison.table()


KEYS = st.tuples(st.sampled_from("ab"), st.integers(0, 1), st.one_of(st.none(), st.integers(0, 4)))
COUNTS = st.dictionaries(KEYS, st.integers(1, 50), max_size=12)


@pytest.mark.long
@given(COUNTS, COUNTS)
def test_differences_explain_the_sums(first: Counts, second: Counts) -> None:
    comparison = of(first, second)
    for topic, pair in comparison.topics.items():
        assert pair.first == sum(count for key, count in first.items() if key[0] == topic)
        assert pair.second - pair.first == pair.duplicated - pair.lost - pair.behind
        assert min(pair.lost, pair.behind, pair.duplicated, pair.moved) >= 0
    assert {key[0] for key in first} | {key[0] for key in second} == set(comparison.topics)
    assert comparison.differs or not any(kind != "moved" for *_, kind, _ in found(comparison))
    swapped = of(second, first)
    missing = sum(pair.lost + pair.behind for pair in comparison.topics.values())
    assert missing == sum(pair.duplicated for pair in swapped.topics.values())


@pytest.mark.parametrize("count", [1, 250])
def test_a_long_list_is_cut(count: int) -> None:
    comparison = of({("a", i, 0): 1 for i in range(count)}, {})
    text = comparison.table()
    assert ("more hours that differ" in text) == (count > 200)
    assert len(list(comparison.rows())) == count + 2

"""Comparison of two audits: records by topic, partition and hour, as Uber's Chaperone counts them
at each tier.

The first audit is of where records come from, the second of where they should be too (a mirror, a
copy, the same logs later). For each partition and hour there are more, fewer, or as many records:

* ``lost``: fewer, and the copy has later ones.
* ``behind``: fewer, from the copy's last hour on: they may yet come.
* ``duplicated``: more.
* ``moved``: a copy makes other batches, and a batch is counted in the hour of its max timestamp, so
  records move to a neighbouring hour. Where one hour has fewer and a neighbour more, as many as
  both say are moved. No difference.

Lag is by how much a partition's highest timestamp in the copy is below that in the source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from rich.table import Table
from rich.text import Text

from batchval.audit.totals import hour_words
from batchval.report.tables import plain_table, render
from batchval.report.units import human_seconds, plural, printable

__all__ = ["Comparison", "Difference", "Pair", "compare"]

_NO_HOUR = -(2**63)  # a join matches no nulls
_HOUR_S = 3600
_SHOWN = 200


class Difference(NamedTuple):
    """An hour of a partition with different numbers of records. ``hour`` in seconds, None for no
    timestamp.
    """

    topic: str
    partition: int
    hour: int | None
    first: int
    second: int
    #: one of ``lost``, ``behind``, ``duplicated`` and ``moved``
    kind: str
    records: int


@dataclass
class Pair:
    """A topic in both audits."""

    partitions: int = 0
    first: int = 0
    second: int = 0
    lost: int = 0
    behind: int = 0
    duplicated: int = 0
    moved: int = 0
    lag_ms: int = 0  # of its worst partition

    @property
    def differs(self) -> bool:
        return bool(self.lost or self.behind or self.duplicated)


@dataclass
class Comparison:
    """The totals of each topic, and the hours that differ."""

    topics: dict[str, Pair] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)

    @property
    def differs(self) -> bool:
        return any(pair.differs for pair in self.topics.values())

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a dict for each difference, one for each topic, and at the end the sums."""
        for found in self.differences:
            yield {"type": "difference"} | found._asdict() | {"hour": _iso(found.hour)}
        for topic, pair in self.topics.items():
            yield {"type": "topic", "topic": topic} | vars(pair)
        yield {
            "type": "summary",
            "topics": len(self.topics),
            "differs": self.differs,
        } | self._sums()

    def _sums(self) -> dict[str, int]:
        names = ("first", "second", "lost", "behind", "duplicated", "moved")
        sums = {name: sum(getattr(pair, name) for pair in self.topics.values()) for name in names}
        return sums | {"lag_ms": max((pair.lag_ms for pair in self.topics.values()), default=0)}

    def table(self) -> str:
        """Return a text for people: the topics that differ, the first differing hours, the
        totals.
        """
        parts = []
        if topics := {
            name: pair for name, pair in self.topics.items() if pair.differs or pair.lag_ms
        }:
            parts.append(render(_topics_table(topics)))
        shown = [found for found in self.differences if found.kind != "moved"]
        if shown:
            parts.append(render(_hours_table(shown[:_SHOWN])))
        if len(shown) > _SHOWN:
            parts.append(
                f"and {plural(len(shown) - _SHOWN, 'more hour')} that differ: --json has all\n"
            )
        sums = self._sums()
        words = [
            f"{sums[kind]:,} {kind}"
            for kind in ("lost", "behind", "duplicated", "moved")
            if sums[kind]
        ]
        words += [f"lag {human_seconds(sums['lag_ms'] / 1000)}"] if sums["lag_ms"] else []
        records = f"{plural(sums['first'], 'record')} and {sums['second']:,}"
        parts.append(
            f"{plural(len(self.topics), 'topic')}, {records}: {', '.join(words) or 'no difference'}\n"
        )
        return "\n".join(parts)


def _iso(hour: int | None) -> str | None:
    return None if hour is None else hour_words(hour).replace(" ", "T") + "Z"


def _topics_table(topics: dict[str, Pair]) -> Table:
    table = plain_table()
    table.add_column("topic", overflow="fold")
    for head in ("partitions", "first", "second", "lost", "behind", "duplicated", "moved", "lag"):
        table.add_column(head, justify="right", no_wrap=True)
    for name, pair in topics.items():
        counts = (
            pair.partitions,
            pair.first,
            pair.second,
            pair.lost,
            pair.behind,
            pair.duplicated,
            pair.moved,
        )
        lag = human_seconds(pair.lag_ms / 1000) if pair.lag_ms else ""
        table.add_row(*map(Text, (printable(name), *(f"{count:,}" for count in counts), lag)))
    return table


def _hours_table(differences: Iterable[Difference]) -> Table:
    table = plain_table()
    table.add_column("topic", overflow="fold")
    table.add_column("partition", justify="right", no_wrap=True)
    table.add_column("hour (UTC)", no_wrap=True)
    for head in ("first", "second"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("difference", no_wrap=True)
    for found in differences:
        counts = (f"{found.first:,}", f"{found.second:,}", f"{found.records:,} {found.kind}")
        words = (printable(found.topic), f"{found.partition}", hour_words(found.hour), *counts)
        table.add_row(*map(Text, words))
    return table


def compare(first: pa.Table, second: pa.Table) -> Comparison:
    """Compare two summary/ tables: topics and partitions of either. A missing one has 0 records."""
    answer = Comparison()
    joined = _by_hour(first, "first").join(
        _by_hour(second, "second"),
        ["topic", "partition", "hour"],
        join_type="full outer",
        use_threads=False,
    )
    for name in ("first", "second"):
        joined = joined.set_column(
            joined.column_names.index(name), name, pc.fill_null(joined[name], 0)
        )
    for row in _by_topic(joined):
        answer.topics[row["topic"]] = Pair(
            row["partition_count_distinct"], row["first_sum"], row["second_sum"]
        )
    newest = _newest(first), _newest(second)
    for key, stamp in newest[0].items():
        # without any batch everything is missing, and no timestamp shows the lag
        if stamp is not None and (other := newest[1].get(key)) is not None:
            pair = answer.topics[key[0]]
            pair.lag_ms = max(pair.lag_ms, stamp - other)
    differing = joined.filter(pc.not_equal(joined["first"], joined["second"]))
    order = [(name, "ascending") for name in ("topic", "partition", "hour")]
    partition: list[dict[str, Any]] = []
    for row in [*differing.sort_by(order).to_pylist(), None]:
        if partition and (row is None or (row["topic"], row["partition"]) != _key(partition[0])):
            _add_differences(answer, partition, newest[1].get(_key(partition[0])))
            partition = []
        if row is not None:
            partition.append(row)
    return answer


def _key(row: dict[str, Any]) -> tuple[str, int]:
    return row["topic"], row["partition"]


def _by_hour(summary: pa.Table, name: str) -> pa.Table:
    hours = pc.fill_null(summary["hour"].cast(pa.timestamp("s", "UTC")).cast(pa.int64()), _NO_HOUR)
    table = pa.table(
        [summary["topic"], summary["partition"], hours, summary["records"]],
        ["topic", "partition", "hour", name],
    )
    return (
        table.group_by(["topic", "partition", "hour"], use_threads=False)
        .aggregate([(name, "sum")])
        .rename_columns(["topic", "partition", "hour", name])
    )


def _by_topic(joined: pa.Table) -> list[dict[str, Any]]:
    sums = [("partition", "count_distinct"), ("first", "sum"), ("second", "sum")]
    grouped = joined.group_by("topic", use_threads=False).aggregate(sums)
    rows: list[dict[str, Any]] = grouped.sort_by("topic").to_pylist()
    return rows


def _newest(summary: pa.Table) -> dict[tuple[str, int], int | None]:
    """Return each partition's highest timestamp in milliseconds, None where it has no timestamp."""
    keys = ["topic", "partition"]
    stamps = summary.select(keys).append_column(
        "max_timestamp", summary["max_timestamp"].cast(pa.int64())
    )
    grouped = stamps.group_by(keys, use_threads=False).aggregate([("max_timestamp", "max")])
    return {_key(row): row["max_timestamp_max"] for row in grouped.to_pylist()}


def _add_differences(answer: Comparison, rows: list[dict[str, Any]], newest: int | None) -> None:
    """Add the differing hours of one partition in order. ``newest`` is the copy's highest
    timestamp.
    """
    left = [row["first"] - row["second"] for row in rows]  # above 0: fewer in the second
    moved = [0] * len(rows)
    for i in range(1, len(rows)):
        neighbours = rows[i]["hour"] - rows[i - 1]["hour"] == _HOUR_S
        if neighbours and left[i - 1] * left[i] < 0:
            both = min(abs(left[i - 1]), abs(left[i]))
            for at in (i - 1, i):
                left[at] -= both if left[at] > 0 else -both
                moved[at] += both
    pair = answer.topics[rows[0]["topic"]]
    pair.moved += sum(moved) // 2
    last = _NO_HOUR if newest is None else newest // 1000 // _HOUR_S * _HOUR_S
    for row, fewer, away in zip(rows, left, moved, strict=True):
        hour = None if row["hour"] == _NO_HOUR else row["hour"]
        place = (row["topic"], row["partition"], hour, row["first"], row["second"])
        if away:
            answer.differences.append(Difference(*place, "moved", away))
        if fewer < 0:
            answer.differences.append(Difference(*place, "duplicated", -fewer))
            pair.duplicated += -fewer
        elif fewer > 0 and newest is not None and hour is not None and hour >= last:
            answer.differences.append(Difference(*place, "behind", fewer))
            pair.behind += fewer
        elif fewer > 0:
            answer.differences.append(Difference(*place, "lost", fewer))
            pair.lost += fewer

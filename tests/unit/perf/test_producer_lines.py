"""The lines of Kafka's producer tool, in its words and order."""

from __future__ import annotations

from array import array

import pytest

from batchval.perf.histogram import Histogram
from batchval.perf.producer_lines import (
    Window,
    fixed,
    in_flight_line,
    interval_line,
    latency_line,
    second_line,
    total_line,
)
from tests.unit.perf.producer_parser import parse, parse_line

#: as Apache Kafka 4.3.1 printed them
KAFKAS = """\
8416 records sent, 8407.6 records/sec (8.02 MB/sec), 1845.5 ms avg latency, 2214.0 ms max latency.
200000 records sent, 16969.285593 records/sec (16.18 MB/sec), 1728.91 ms avg latency, 3711.00 ms max latency, \
1468 ms 50th, 3348 ms 95th, 3652 ms 99th, 3706 ms 99.9th.
150000 steady state records sent, 16969.285593 records/sec (16.18 MB/sec), 1728.91 ms avg latency, 3711.00 ms max \
latency, 1468 ms 50th, 3348 ms 95th, 3652 ms 99th, 3706 ms 99.9th.
"""


def histogram() -> Histogram:
    made = Histogram()
    made.record_many(array("q", range(1, 1001)))
    made.record(1_234_567)
    return made


def test_the_parser_reads_kafkas_own_lines() -> None:
    interval, total, steady = parse(KAFKAS, "ms", strict=True)
    assert (interval.kind, interval.records, interval.rate, interval.avg) == (
        "interval",
        8416,
        8407.6,
        1845.5,
    )
    assert (total.kind, total.percentiles) == (
        "total",
        {"50th": 1468, "95th": 3348, "99th": 3652, "99.9th": 3706},
    )
    assert (steady.kind, steady.records, steady.max) == ("steady", 150_000, 3711)
    with pytest.raises(AssertionError):
        parse(KAFKAS.replace("8407.6", "8407.61"), "ms")


def test_lines_with_microseconds() -> None:
    window = Window(8416, 8416 * 1000, 1_001_000_000, 15_531_728, 2_214_007)
    line = interval_line(window)
    assert (
        line
        == "8416 records sent, 8407.6 records/sec (8.02 MB/sec), 1.846 ms avg latency, 2214.007 ms max latency."
    )
    assert parse_line(line) is not None
    line = total_line(histogram(), 1001 * 1000, 2_000_000_000)
    assert line == (
        "1001 records sent, 500.500000 records/sec (0.48 MB/sec), 1.733 ms avg latency, 1234.567 ms max latency, "
        "0.501 ms 50th, 0.951 ms 95th, 0.991 ms 99th, 1.000 ms 99.9th."
    )
    steady = total_line(histogram(), 1001 * 1000, 2_000_000_000, steady_state=True)
    assert steady == line.replace(" records sent", " steady state records sent")
    parsed = parse_line(steady)
    assert parsed is not None
    assert parsed.kind == "steady"


def test_kafkas_old_integers() -> None:
    window = Window(8416, 8416 * 1000, 1_001_000_000, 15_531_728_000, 2_214_907)
    line = interval_line(window, "ms")
    assert (
        line
        == "8416 records sent, 8407.6 records/sec (8.02 MB/sec), 1845.5 ms avg latency, 2214.0 ms max latency."
    )
    line = total_line(histogram(), 1001 * 1000, 2_000_000_000, "ms")
    assert line == (
        "1001 records sent, 500.500000 records/sec (0.48 MB/sec), 1.73 ms avg latency, 1234.00 ms max latency, "
        "0 ms 50th, 0 ms 95th, 0 ms 99th, 1 ms 99.9th."
    )
    assert parse_line(line, "ms") is not None


def test_nothing_sent_is_a_line_too() -> None:
    for unit in ("us", "ms"):
        parsed = parse(
            "\n".join(
                [interval_line(Window(0, 0, 0, 0, 0), unit), total_line(Histogram(), 0, 0, unit)]
            ),
            unit,
        )
        assert [(line.kind, line.records, line.rate, line.max) for line in parsed] == [
            ("interval", 0, 0, 0),
            ("total", 0, 0, 0),
        ]


def test_the_other_figures() -> None:
    line = second_line(histogram(), 1 << 20, 1 << 19, 1_000_000_000)
    assert line.split("; ") == [
        "latency: 75 % 0.751, standard deviation 38.982 (ms)",
        "values 1.00 MiB/s, on the wire 0.50 MiB/s",
    ]
    assert second_line(histogram(), 1 << 20, None, 1_000_000_000).endswith(
        "on the wire not counted"
    )
    line = latency_line("latency from the send", histogram())
    assert line.startswith("latency from the send: average 1.733, 50 % 0.501, 95 % 0.951, ")
    assert line.endswith(" 99 % 0.991, 99.9 % 1.000, highest 1234.567 (ms)")
    assert (
        in_flight_line({2: 5, 1: 3}, 8)
        == "highest in flight: broker 1 3, broker 2 5; over all brokers 8"
    )
    assert in_flight_line({}, 0, sampled=True) == (
        "highest in flight: none; over all brokers 0 (seen every 200 ms)"
    )


def test_halves_round_up_as_in_java() -> None:
    assert [fixed(0.125, 2), fixed(2.5, 0), fixed(1e22, 1), fixed(0.15, 1)] == [
        "0.13",
        "3",
        "1" + "0" * 22 + ".0",
        "0.2",
    ]

"""Dates and numbers as Java writes them (golden/JavaFormats.java), rows as Kafka's parsers read
them.
"""

from __future__ import annotations

import time
import zoneinfo
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchval.errors import ArgumentValueError
from batchval.perf import consumer_lines
from tests.unit.perf.kafka_parser import parse_consumer

GOLDEN = [
    line.split("\t")
    for line in (Path(__file__).parent / "golden/java_formats.tsv").read_text().splitlines()
]
UTC = zoneinfo.ZoneInfo("UTC")
START = 1_795_177_423_430  # 2026-11-20 12:23:43:430 UTC


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Rows have the times of the machine's time zone."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def test_dates_are_those_of_java() -> None:
    lines = [line for line in GOLDEN if line[0] != "F"]
    assert len(lines) == 162  # three zones, six instants, nine patterns
    for zone, at, pattern, text in lines:
        assert consumer_lines.date_text(int(at), pattern, zoneinfo.ZoneInfo(zone)) == text, (
            zone,
            at,
        )


@pytest.mark.parametrize(
    ("pattern", "complaint"),
    [
        ("yyyy bb", "letter b is not known: the letters are y M L d D E u a H k K h m s S Z X"),
        ("YYYY", "letter Y is not known"),  # weeks, eras and names of zones need tables
        ("z", "letter z is not known"),
        ("HH:mm 'today", "the quote at 6 has no end"),
        ("'''", "the quote at 2 has no end"),
        ("XXXX", "at most three X in a row, not 4"),
    ],
)
def test_what_is_no_pattern(pattern: str, complaint: str) -> None:
    with pytest.raises(ArgumentValueError) as error:
        consumer_lines.check_date_format(pattern)
    assert complaint in str(error.value)


def test_iso_dates_have_their_offset() -> None:
    assert (
        consumer_lines.date_text(START, consumer_lines.ISO_DATES, UTC)
        == "2026-11-20T12:23:43.430+00:00"
    )
    kolkata = zoneinfo.ZoneInfo("Asia/Kolkata")
    assert (
        consumer_lines.date_text(-1, consumer_lines.ISO_DATES, kolkata)
        == "1970-01-01T05:29:59.999+05:30"
    )


def test_numbers_are_those_of_java() -> None:
    numbers = [line for line in GOLDEN if line[0] == "F"]
    assert len(numbers) == 18
    for _, value, text in numbers:
        assert consumer_lines.fixed4(float(value.replace("Infinity", "inf"))) == text, value


def test_headers_are_byte_exact() -> None:
    assert consumer_lines.SUMMARY_HEADER == (
        "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
        "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
    )
    assert consumer_lines.DETAILED_HEADER == (
        "time, threadId, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
        "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
    )


def test_messages_are_byte_exact() -> None:
    assert consumer_lines.threads_warning(10, 3) == (
        "Warning: numThreads 10 is bigger than numPartition 3, set numThread to numPartition"
    )
    warning, advice = consumer_lines.timeout_warning(10_000).split(" You ")
    assert warning.partition(": timeout ")[0] == (
        "WARNING: Exiting before consuming the expected number of records"
    )
    assert warning.endswith(": timeout (10000 ms) exceeded.")
    assert advice == "can use the --timeout option to increase the timeout."
    assert consumer_lines.INTERVAL_MESSAGE == "Reporting interval must be greater than 0."


def test_the_row_that_kafkas_tool_printed() -> None:
    """Its line of a run of 4.3.1, from the same measurements."""
    run = consumer_lines.Summary(START, START + 2791, 2791, 200_000_000, 200_000, 762, 2029)
    line = consumer_lines.summary_row(run)
    assert line == (
        "2026-11-20 12:23:43:430, 2026-11-20 12:23:46:221, "
        "190.7349, 68.3393, 200000, 71658.9036, 762, 2029, 94.0044, 98570.7245"
    )
    read = parse_consumer(f"{consumer_lines.SUMMARY_HEADER}\n{line}\n")
    assert read == [
        {
            "start.time": "2026-11-20 12:23:43:430",
            "end.time": "2026-11-20 12:23:46:221",
            "data.consumed.in.MB": 190.7349,
            "MB.sec": 68.3393,
            "data.consumed.in.nMsg": 200000,
            "nMsg.sec": 71658.9036,
            "rebalance.time.ms": 762,
            "fetch.time.ms": 2029,
            "fetch.MB.sec": 94.0044,
            "fetch.nMsg.sec": 98570.7245,
        }
    ]


def test_amounts_of_an_interval_are_cumulative_and_rates_are_its_own() -> None:
    part = consumer_lines.Interval(START, 3, 3 << 20, 3000, 1 << 20, 1000, 2000, 1000)
    assert consumer_lines.detailed_row(part) == (
        "2026-11-20 12:23:43:430, 3, 3.0000, 0.5000, 3000, 500.0000, 1000, 1000, 1.0000, 1000.0000"
    )


@pytest.mark.parametrize("rebalance_ms", [2000, 2500])
def test_no_fetch_time_no_rate(rebalance_ms: int) -> None:
    part = consumer_lines.Interval(START, 0, 1 << 20, 1000, 1 << 20, 1000, 2000, rebalance_ms)
    line = consumer_lines.detailed_row(part)
    assert line.endswith(f", {rebalance_ms}, {2000 - rebalance_ms}, 0.0000, 0.0000")
    assert ", 0.5000, 1000, 500.0000, " in line


def test_no_time_no_rate_in_the_summary() -> None:
    line = consumer_lines.summary_row(consumer_lines.Summary(START, START, 0, 0, 0, 0, 0))
    assert line.endswith("0.0000, 0.0000, 0, 0.0000, 0, 0, 0.0000, 0.0000")


def test_a_run_of_absurd_size_is_written_out() -> None:
    run = consumer_lines.Summary(START, START + 1000, 1000, 1 << 80, 1 << 70, 0, 1000)
    assert parse_consumer(f"{consumer_lines.SUMMARY_HEADER}\n{consumer_lines.summary_row(run)}\n")[
        0
    ]["data.consumed.in.nMsg"] == (1 << 70)

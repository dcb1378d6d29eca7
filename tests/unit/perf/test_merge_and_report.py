"""Results added, compared, and drawn."""

from __future__ import annotations

import html.parser
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from batchval.cli import cli
from batchval.cli.exit import UNREADABLE, exit_code_of
from batchval.perf.histogram import Histogram
from batchval.perf.result_report import page, percentile_chart
from batchval.perf.results import (
    NotAResult,
    Result,
    ResultError,
    figures,
    latencies_us,
    merge,
    throughput,
)


def produced(seed: int, records: int = 5_000, *, client: str = "batchval", **totals: Any) -> Result:
    rng = random.Random(seed)
    histogram = Histogram()
    for _ in range(records):
        histogram.record(int(rng.lognormvariate(7 + seed / 10, 0.6)))
    each = records // 5
    known = {
        "records": records,
        "failed": seed,
        "bytes": records * 1000,
        "wire_bytes": records * 1010,
        "elapsed_ns": (5 + seed) * 10**9,
        "highest_in_flight": {"1": 4, "2": seed},
        "highest_in_flight_total": 4 + seed,
        "errors": {"TIMED_OUT": seed},
        "steady_state": None,
    }
    intervals = [
        {"t_ms": 1000.0 * (i + 1), "records": each, "bytes": each * 1000, "max_us": seed * 100}
        for i in range(5)
    ]
    settings = {"num_records": records, "acks": -1}
    return Result("produce", client, settings, known | totals, intervals, histogram, None)


def consumed(seed: int) -> Result:
    totals = {
        "records": 1000 * seed,
        "bytes": 1 << 20,
        "elapsed_ns": 2 * 10**9,
        "rebalance_ms": 100 * seed,
        "fetch_ms": 2000,
        "start_ms": 10 + seed,
        "end_ms": 2010 + seed,
    }
    return Result("consume", "librdkafka", {"threads": 4}, totals, [], None)


def test_histograms_are_added_exactly() -> None:
    parts = [produced(seed) for seed in (1, 2, 3)]
    merged = merge(parts)
    whole = Histogram()
    for seed in (1, 2, 3):
        rng = random.Random(seed)
        for _ in range(5_000):
            whole.record(int(rng.lognormvariate(7 + seed / 10, 0.6)))
    assert merged.histogram == whole
    assert merged.histogram is not None
    assert (merged.histogram.count, merged.histogram.sum, merged.histogram.max) == (
        whole.count,
        whole.sum,
        whole.max,
    )
    again = Result.from_json(json.loads(json.dumps(merged.to_json())))
    assert again.histogram == whole


def test_totals_are_sums_and_the_time_is_the_longest() -> None:
    totals = merge([produced(1), produced(2)]).totals
    assert totals == {
        "records": 10_000,
        "failed": 3,
        "bytes": 10_000_000,
        "wire_bytes": 10_100_000,
        "elapsed_ns": 7 * 10**9,
        "highest_in_flight": {"1": 4, "2": 2},
        "highest_in_flight_total": 11,
        "errors": {"TIMED_OUT": 3},
        "steady_state": None,
    }


def test_what_one_run_did_not_count_is_not_known_of_all() -> None:
    assert merge([produced(1), produced(2, wire_bytes=None)]).totals["wire_bytes"] is None


def test_the_steady_states_are_added_if_all_have_one() -> None:
    steady = {"records": 10, "elapsed_ns": 5}
    both = merge(
        [
            produced(1, steady_state=steady),
            produced(2, steady_state={"records": 7, "elapsed_ns": 9}),
        ]
    )
    assert both.totals["steady_state"] == {"records": 17, "elapsed_ns": 9, "histogram": None}
    assert merge([produced(1, steady_state=steady), produced(2)]).totals["steady_state"] is None


def test_latencies_are_those_of_the_added_histograms() -> None:
    """Averages and percentiles are not sums; of the steady state neither."""
    parts = [produced(seed) for seed in (1, 2)]
    for part in parts:
        assert part.histogram is not None
        steady = {
            "records": 5_000,
            "bytes": 5_000_000,
            "elapsed_ns": 10**9,
            "histogram": part.histogram.to_json(),
        }
        part.totals |= latencies_us(part.histogram) | {
            "steady_state": steady | latencies_us(part.histogram)
        }
    merged = merge(parts)
    assert merged.histogram is not None
    expected = latencies_us(merged.histogram)
    assert {name: merged.totals[name] for name in expected} == expected
    assert {name: merged.totals["steady_state"][name] for name in expected} == expected
    assert Histogram.from_json(merged.totals["steady_state"]["histogram"]) == merged.histogram
    parts[1].totals["steady_state"]["histogram"] = None
    assert merge(parts).totals["steady_state"]["avg_us"] is None
    parts[1].totals["steady_state"]["histogram"] = {"no": "histogram"}
    with pytest.raises(ResultError):
        merge(parts)


def test_intervals_of_the_same_time_are_added() -> None:
    assert merge([produced(1), produced(2)]).intervals[0] == {
        "t_ms": 1000.0,
        "records": 2000,
        "bytes": 2_000_000,
        "max_us": 200,
    }


def test_settings_that_differ_are_all_reported() -> None:
    merged = merge([produced(1), produced(2, 6_000, client="librdkafka")])
    assert merged.settings == {"merged": 2, "num_records": [5_000, 6_000], "acks": -1}
    assert merged.client == "batchval + librdkafka"


def test_consumers_are_merged_too() -> None:
    totals = merge([consumed(1), consumed(3)]).totals
    assert (totals["records"], totals["rebalance_ms"], totals["start_ms"], totals["end_ms"]) == (
        4000,
        200,
        11,
        2013,
    )
    assert totals["fetch_ms"] == 2000


def test_producers_and_consumers_are_not_merged() -> None:
    with pytest.raises(ResultError, match="cannot be merged"):
        merge([produced(1), consumed(1)])


def test_the_command(tmp_path: Path) -> None:
    for seed in (1, 2):
        produced(seed).write(tmp_path / f"{seed}.json")
    a, b, out = (str(tmp_path / name) for name in ("1.json", "2.json", "sum.json"))
    done = CliRunner().invoke(cli, ["perf", "merge", "--json", a, b])
    assert done.exit_code == 0
    assert json.loads(done.output)["schema_version"] == 1
    assert Result.from_json(json.loads(done.output)).totals["records"] == 10_000
    done = CliRunner().invoke(cli, ["perf", "merge", a, b, "--output", out], standalone_mode=False)
    assert done.output.startswith("10000 records sent, 1428.571429 records/sec (1.36 MB/sec), ")
    assert Result.read(out).histogram == merge([produced(1), produced(2)]).histogram
    assert CliRunner().invoke(cli, ["perf", "merge", a, a]).exit_code == 2


def test_compare_prints_the_spread(tmp_path: Path) -> None:
    for name, us in (("a", 1001), ("b", 1002)):
        result = produced(1, 0)
        assert result.histogram is not None
        result.histogram.record(us)
        result.write(tmp_path / f"{name}.json")
    files = [str(tmp_path / "a.json"), str(tmp_path / "b.json")]
    done = CliRunner().invoke(cli, ["perf", "compare", *files], standalone_mode=False)
    assert re.search(
        r"^ms 99\.9th +1\.001 +1\.002 +0\.1 % +0 to 0\.2 %$", done.output, re.MULTILINE
    ), done.output
    page_file = tmp_path / "page.html"
    done = CliRunner().invoke(
        cli,
        ["perf", "compare", *files, "--json", "--report", str(page_file)],
        standalone_mode=False,
    )
    (pair,) = json.loads(done.output)["compared"]
    assert pair["figures"]["ms 50th"]["exact_high"] == pytest.approx(1.0025 / 1.0005 - 1)
    assert page_file.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "the file is empty"),
        ("{", r"not JSON \(line 1, column 2\)"),
        ("a,b\n", r"not JSON \(line 1, column 1\)"),
        ("{}\n{}", r"more than one document \(line 2, column 1\)"),
        ("[" * 100_000, "nested too deep"),
        ("\x1f\x8b\x08", "it looks like gzip data"),
        ("PAR1", "it looks like a Parquet file"),
        ("\0" * 11 + "\x31" + "\0" * 4 + "\2", "it looks like a segment of Kafka"),
        ("\0\1", "not text in UTF-8"),
        ("{}", "not the result of a perf run: expected a file that --output"),
        ('{"schema_version": 1, "type": "finding"}', "it is a 'finding' document"),
        ('{"batchval_perf": 99}', "version 99"),
    ],
)
def test_a_file_without_a_result_is_named(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "x.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(NotAResult, match=complaint) as raised:
        CliRunner().invoke(
            cli,
            ["perf", "merge", str(tmp_path / "x.json")],
            catch_exceptions=False,
            standalone_mode=False,
        )
    assert exit_code_of(raised.value) == UNREADABLE


class Reader(html.parser.HTMLParser):
    """Tags, what they point at, and whether they close."""

    VOID = frozenset({"meta", "link", "line", "path", "br", "img"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.links += [
            value or "" for name, value in attrs if name in {"src", "href", "xlink:href", "action"}
        ]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def test_the_page_is_whole_and_fetches_nothing() -> None:
    text = page([("one", produced(1)), ("two <script>alert(1)</script>", produced(3))])
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    assert reader.links == []
    assert "script" not in reader.seen
    assert "url(" not in text
    assert "@import" not in text
    assert reader.seen.count("svg") == 2
    assert len(re.findall(r'<path class="run[01]"', text)) == 4
    for name, figure in figures(produced(3)).items():
        assert f"<td>{figure}</td>" in text, name


def test_a_consumers_page_has_no_latencies() -> None:
    text = page([("one", consumed(1))])
    assert "Latency by percentile" not in text
    assert "<td>fetch.nMsg.sec</td><td>500.0000</td>" in text


def test_a_curve_goes_as_far_as_its_count_speaks() -> None:
    chart = percentile_chart(
        [("many", produced(1, 20_000).histogram, None), ("few", produced(1, 10).histogram, None)]
    )
    assert chart is not None
    many, few = (
        max(float(x) for x in re.findall(r"[ML](\d+\.\d)", curve.path)) for curve in chart.curves
    )
    assert few < many / 2
    assert many == pytest.approx(chart.right, abs=0.1)
    ys = [float(y) for y in re.findall(r"[ML]\d+\.\d (\d+\.\d)", chart.curves[0].path)]
    assert ys == sorted(ys, reverse=True)  # up, the further right
    assert all(chart.top <= y <= chart.bottom for y in ys)


def test_throughput_is_of_each_interval() -> None:
    result = produced(1)
    result.intervals = [
        {"t_ms": 500.0, "records": 100, "bytes": 1},
        {"t_ms": 1500.0, "records": 100, "bytes": 1},
    ]
    assert throughput(result) == [(0.5, 200.0), (1.5, 100.0)]
    result.intervals.append({"t_ms": 1550, "records": 47, "bytes": 0})
    assert throughput(result) == [(0.5, 200.0), (1.55, 140.0)]
    result.intervals.append({"t_ms": 2000, "records": 45, "bytes": 0})
    assert throughput(result)[-2:] == [(1.55, 47 / 0.05), (2.0, 100.0)]

"""``batchval perf compare``: which latencies are compared, and what the spread is of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from batchval.cli import cli
from batchval.perf import results
from batchval.perf.histogram import Histogram
from batchval.perf.tally import Tally


def kept(path: Path, us: int, *, late_us: int | None = None) -> str:
    """Return a result's file: latencies of ``us``, from the intended time ``late_us`` more."""
    tally = Tally(
        scheduled=late_us is not None,
        acked=100,
        value_bytes=1000,
        begin_ns=1,
        end_ns=10**9 + 1,
        sent=100,
    )
    tally.latencies.record_repeated(us, 100)
    tally.wire.record_repeated(us - 50, 10)
    if late_us is not None:
        tally.intended.record_repeated(us + late_us, 100)
    intended = tally.intended if tally.scheduled else None
    made = results.Result(
        "produce", "batchval", {}, tally.as_json(), [], tally.latencies, intended, tally.wire
    )
    made.write(path)
    return str(path)


def compared(*words: str) -> Result:
    return CliRunner().invoke(cli, ["perf", "compare", *words])


def test_latencies_from_the_intended_time_are_compared(tmp_path: Path) -> None:
    a, b = (
        kept(tmp_path / "a.json", 1000, late_us=500),
        kept(tmp_path / "b.json", 1000, late_us=2000),
    )
    done = compared(a, b)
    title, heading, *lines = done.output.splitlines()
    assert title == "a to b; latencies from the intended time"
    assert heading.endswith("spread, rounding only")
    assert any(line.split()[:5] == ["ms", "50th", "1.500", "3.000", "100"] for line in lines)
    found = json.loads(compared(a, b, "--json").output)["compared"][0]
    assert (found["latency_from"], found["spread_of"], found["runs"]) == (
        ["intended"] * 2,
        "rounding",
        [1, 1],
    )


def test_other_latencies_are_not_compared_unseen(tmp_path: Path) -> None:
    a, b = kept(tmp_path / "a.json", 1000), kept(tmp_path / "b.json", 1000, late_us=2000)
    title = compared(a, b).output.splitlines()[0]
    assert title.startswith(
        "a to b; latencies from the send, compared with those from the intended"
    )
    assert title.endswith(": they measure different things")
    alike = compared(a, kept(tmp_path / "c.json", 2000)).output
    assert alike.startswith("a to c; latencies from the send\n")


def test_several_runs_a_side(tmp_path: Path) -> None:
    before = [
        kept(tmp_path / f"before-{n}.json", us, late_us=0)
        for n, us in enumerate((1000, 1200, 1100))
    ]
    after = [kept(tmp_path / f"after-{n}.json", us, late_us=0) for n, us in enumerate((1150, 1050))]
    page = tmp_path / "page.html"
    done = compared("--from", *before, "--to", *after, "--report", str(page))
    assert done.exit_code == 0, done.output
    title, heading, *lines = done.output.splitlines()
    assert (
        title
        == "before-0, before-1, before-2 to after-0, after-1; latencies from the intended time"
    )
    assert heading.endswith("spread, 3 by 2 runs")
    (median,) = [line for line in lines if line.startswith("ms 50th")]
    assert median.split() == ["ms", "50th", "1.100", "1.100", "0", "%", "-13", "to", "15", "%"]
    text = page.read_text("utf-8")
    assert "<th>spread, 3 by 2 runs</th>" in text
    assert text.count("<th>before-1</th>") == 2
    each = compared("--from", before[0], "--from", before[1], "--from", before[2], "--to", *after)
    assert each.output == done.output
    found = json.loads(compared("--from", *before, "--to", *after, "--json").output)["compared"][0]
    assert (found["runs"], found["spread_of"]) == ([3, 2], "runs")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "got 0 results: expected at least two"),
        (("a.json",), "got 1 results: expected at least two"),
        (("--from", "a.json"), "--from and --to go together"),
        (("--to", "a.json", "b.json"), "--from and --to go together"),
        (
            ("c.json", "--from", "a.json", "--to", "b.json"),
            "c.json is on neither side: put it after --from or --to",
        ),
    ],
)
def test_usage(words: tuple[str, ...], message: str) -> None:
    done = compared(*words)
    assert done.exit_code == 2
    assert message in done.output


def test_merged_results_have_the_latencies_of_the_merged_histograms(tmp_path: Path) -> None:
    files = [kept(tmp_path / f"{n}.json", us, late_us=500) for n, us in enumerate((1000, 3000))]
    merged = results.merge([results.Result.read(file) for file in files])
    totals = merged.totals
    assert (totals["latency_from"], totals["avg_us"], totals["max_us"]) == ("intended", 2500, 3500)
    assert totals["from_send"]["avg_us"] == 2000
    assert (totals["on_the_wire"]["avg_us"], totals["on_the_wire"]["requests"]) == (1950, 20)
    assert merged.histogram_wire is not None
    assert merged.histogram_wire.count == 20
    mixed = results.merge(
        [results.Result.read(file) for file in (files[0], kept(tmp_path / "s.json", 5000))]
    )
    assert (mixed.totals["latency_from"], mixed.totals["avg_us"]) == ("send", 3000)
    assert mixed.headline == mixed.histogram


def test_what_would_overflow_is_refused_in_words(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    kept(file, 1000)
    found = json.loads(file.read_text())
    huge = Histogram()
    huge.record_repeated(60_000_000, 153_000_000_000)
    file.write_text(json.dumps(found | {"histogram": huge.to_json()}))
    other = tmp_path / "b.json"
    other.write_text(file.read_text())
    done = CliRunner().invoke(cli, ["perf", "merge", str(file), str(other)])
    assert done.exit_code != 0
    assert "153 billion latencies of a minute" in (done.output or str(done.exception))

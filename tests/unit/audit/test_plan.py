"""Test the plan of an audit: its arithmetic from measured costs, which a reader can follow."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchval.audit import costs
from batchval.audit.plan import Assumptions, PlanError, parse_rate, plan

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("1GB/s", 1e9),
        ("10PB/day", 1e16 / 86_400),
        ("10 PB per day", 1e16 / 86_400),
        ("500MiB/s", 500 * 2**20),
        ("1.5TiB/h", 1.5 * 2**40 / 3600),
        ("3kB/min", 50),
        ("7B/s", 7),
    ],
)
def test_rates(text: str, rate: float) -> None:
    assert parse_rate(text) == pytest.approx(rate)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "fast",
        "1GB",
        "GB/s",
        "-1GB/s",
        "0GB/s",
        "1Gb/s",
        "1e9B/s",
        "1GB/s/s",
        "9" * 400 + "EB/s",
    ],
)
def test_invalid_rates(text: str) -> None:
    with pytest.raises(PlanError) as caught:
        parse_rate(text)
    assert "\n" not in str(caught.value)


def test_ten_petabytes_a_day() -> None:
    answer = plan(parse_rate("10PB/day"))
    a_task, a_gb = costs.engine("spark", "bad", False) or (0.0, 0.0)
    gb = 1e16 / 86_400 / 1e9
    assert answer.cpu_s_a_gb == pytest.approx(a_gb + a_task * 1e9 / (256 << 20))
    assert answer.executors_cpu == math.ceil(gb * answer.cpu_s_a_gb / (16 * 0.6))
    assert answer.executors_network == math.ceil(gb * 8 / (25 * 0.7)) == 53
    assert answer.tasks_a_day == math.ceil(1e16 / (256 << 20)) == 37_252_903
    assert (answer.jobs_a_day, answer.brokers_network) == (373, 159)
    zstd = next(row for row in answer.by_codec if row.codec == "zstd")
    measured = costs.measured("kafka", "zstd"), costs.measured("claims", "zstd")
    assert measured[0] is not None
    assert measured[1] is not None
    assert zstd.brokers == math.ceil(gb * measured[0][0] / 9.6)
    assert zstd.brokers_claims == math.ceil(gb * measured[1][0] / 9.6) < zstd.brokers / 10
    none = answer.by_codec[0]
    assert (none.codec, none.brokers) == ("none", none.brokers_claims)


def test_what_is_assumed_is_printed() -> None:
    assumed = Assumptions(
        cores=32, utilisation=0.5, network_gbit=100, rows="all", deep=True, replication_factor=2
    )
    text = plan(1e9, assumed).text()
    for words in (
        "32 cores, 50% of them used",
        "100 Gbit/s each",
        "rows=all, every record",
        "2 copies",
        "256 MiB",
    ):
        assert words in text
    assert costs.measured_on() in text
    assert costs.engines_measured_on() in text
    assert text.endswith("\n")
    assert text.startswith("1 GB/s, 0.0864 PB a day, 8 Gbit/s\n")


def test_json_has_all() -> None:
    answer = plan(1e9)
    found = json.loads(json.dumps(answer.json()))
    assert (
        found["assumptions"] == vars(Assumptions()) if hasattr(Assumptions(), "__dict__") else True
    )
    assert found["executors"] == answer.executors
    assert len(found["by_codec"]) == 5
    assert found["limit"] in {"CPU", "network"}


def test_the_higher_of_cpu_and_network() -> None:
    thin = plan(1e12, Assumptions(network_gbit=1))
    assert (thin.limit, thin.executors) == ("network", thin.executors_network)
    slow = plan(1e12, Assumptions(deep=True, rows="all", network_gbit=1000, cores=1))
    assert (slow.limit, slow.executors) == ("CPU", slow.executors_cpu)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"cores": 0}, "cores is 0: expected a number above 0"),
        ({"utilisation": 0.0}, "utilisation is 0.0: expected a number above 0 and at most 1"),
        ({"network_utilisation": 1.5}, "network utilisation is 1.5: expected a number above 0 and"),
        ({"network_gbit": -1.0}, "network gbit is -1.0: expected a number above 0"),
        ({"readers": -1}, "readers is -1: expected 0 or more"),
        ({"split_bytes": 0}, "split bytes is 0: expected a number above 0"),
    ],
)
def test_assumptions_that_cannot_be(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(PlanError, match=re.escape(message)):
        Assumptions(**wrong)  # type: ignore[arg-type]


def test_what_was_not_measured_is_not_planned() -> None:
    with pytest.raises(PlanError, match="rows=none, deep was not measured"):
        plan(1e9, Assumptions(rows="none", deep=True))


@given(
    st.floats(1, 1e15),
    st.floats(1, 1e3),
    st.sampled_from(["local", "spark"]),
    st.sampled_from(["none", "bad", "all"]),
)
def test_more_bytes_never_need_less(rate: float, factor: float, engine: str, rows: str) -> None:
    assumed = Assumptions(engine=engine, rows=rows)  # type: ignore[arg-type]
    less, more = plan(rate, assumed), plan(rate * factor, assumed)
    assert 1 <= less.executors <= more.executors
    assert all(a.brokers <= b.brokers for a, b in zip(less.by_codec, more.by_codec, strict=True))
    assert less.jobs_a_day <= more.jobs_a_day


def test_the_costs_of_engines_are_those_of_the_kept_bench() -> None:
    kept = json.loads((ROOT / "bench" / "results" / "audit-engines.json").read_text("utf-8"))
    for name, ways in kept["engines"].items():
        for way, found in ways.items():
            rows, _, deep = way.partition(", ")
            assert costs.engine(name, rows, bool(deep)) == (
                found["cpu_s_a_task"],
                found["cpu_s_a_gb"],
            )
    assert costs.engine("local", "none", True) is None

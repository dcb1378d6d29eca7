"""The examples of KAFKA-7722, to the digit."""

from __future__ import annotations

import pytest

from batchval.perf.compare_results import (
    CompareError,
    between,
    change,
    percent,
    rows,
    spread,
    spread_of,
)


@pytest.mark.parametrize(
    ("a", "b", "shown", "exact"),
    [
        ("2", "3", "0 to 100 %", 1.3333),
        ("1.1", "1.2", "0 to 20 %", 1.25 / 1.05 - 1),
        ("1.01", "1.02", "0 to 2 %", 1.025 / 1.005 - 1),
        ("1.001", "1.002", "0 to 0.2 %", 1.0025 / 1.0005 - 1),
    ],
)
def test_the_examples_of_the_proposal(a: str, b: str, shown: str, exact: float) -> None:
    found = change(a, b)
    assert spread(found) == shown
    assert found.exact_low == 0
    assert found.as_json()["exact_high"] == pytest.approx(exact, abs=1e-4)


def test_the_bound_of_2_to_3_is_133_per_cent() -> None:
    assert percent(change("2", "3").exact_high) == "133 %"


@pytest.mark.parametrize(
    ("a", "b", "shown"),
    [
        ("3", "2", "-70 to 0 %"),  # -66.7
        ("3", "7", "100 to 170 %"),  # 166.7
        ("1.5", "1.5", "-7 to 7 %"),  # 6.67
        ("10.0", "10.0", "-1 to 1 %"),
        ("100", "203", "100 to 110 %"),
    ],
)
def test_a_bound_of_rounding_is_rounded_outwards(a: str, b: str, shown: str) -> None:
    assert spread(change(a, b)) == shown


def test_more_than_a_unit_apart_the_least_change_is_above_none() -> None:
    found = change("2", "5")  # 4.5 - 2.5 and 5.5 - 1.5 of 2
    assert (found.low, found.high) == (1, 2)


def test_a_gain() -> None:
    found = change("3", "2")
    assert found.as_json() == {
        "a": "3",
        "b": "2",
        "change": pytest.approx(-1 / 3),
        "spread_low": pytest.approx(-2 / 3),
        "spread_high": 0,
        "exact_low": pytest.approx(1.5 / 3.5 - 1),
        "exact_high": 0,
    }


def test_places_may_differ() -> None:
    found = change("1", "1.50")
    data = found.as_json()
    assert (data["spread_low"], data["spread_high"]) == pytest.approx((-0.005, 1.005))


def test_trailing_zeros_say_how_exact_a_figure_is() -> None:
    assert change("1.10", "1.20").as_json()["spread_high"] == pytest.approx(0.1 / 1.1 + 0.01 / 1.1)


def test_nothing_is_a_share_of_nothing() -> None:
    found = change("0.000", "1.000")
    assert found.change is None
    assert found.exact_high is None
    assert percent(found.high) == "–"


def test_an_a_that_may_be_none_has_no_upper_bound() -> None:
    assert change("0.1e1", "2").exact_high is not None
    assert change("0.5", "1").exact_high is not None


@pytest.mark.parametrize("text", ["", "fast", "NaN", "Infinity", "-1"])
def test_no_figure(text: str) -> None:
    with pytest.raises(CompareError):
        change(text, "1")


def test_the_spread_of_several_runs_is_that_of_all_pairs() -> None:
    """1.0 to 1.2 on one side, 1.1 to 1.3 on the other: rounding leaves half of 0.1 open."""
    found = between(["1.0", "1.2", "1.1"], ["1.1", "1.3", "1.2"])
    assert (str(found.a), str(found.b)) == ("1.1", "1.2")
    assert percent(found.change) == "9.1 %"
    assert found.low == change("1.2", "1.1").low
    assert found.high == change("1.0", "1.3").high
    assert spread(found) == "-17 to 40 %"


def test_figures_that_all_runs_have_are_compared_in_any_order_of_runs() -> None:
    a, b = [{"x": "1.0", "y": "5"}, {"x": "3.0"}], [{"x": "2.0"}, {"x": "4.0"}]
    assert rows(a, b) == rows(a[::-1], b[::-1])
    assert [name for name, _ in rows(a, b)] == ["x"]
    assert str(rows(a, b)[0][1].a) == "2.0"


def test_one_run_a_side_shows_rounding_alone() -> None:
    assert between(["2"], ["3"]) == change("2", "3")
    assert spread_of(1, 1) == "spread, rounding only"
    assert spread_of(3, 2) == "spread, 3 by 2 runs"


def test_a_spread_from_nothing_is_unknown() -> None:
    found = between(["0", "2"], ["1", "3"])
    assert (found.low, found.high, found.exact_low) == (None, None, None)
    assert spread(found) == "–"
    assert between(["0", "0"], ["1", "3"]).change is None

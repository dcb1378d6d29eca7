"""The JSON of a run."""

from __future__ import annotations

import json
from array import array
from pathlib import Path

import pytest

from batchval.perf.histogram import Histogram
from batchval.perf.results import Result, ResultError


def result() -> Result:
    histogram = Histogram()
    histogram.record_many(array("q", [1, 2, 3000]))
    return Result(
        "produce",
        "batchval",
        {"acks": -1},
        {"records": 3, "bytes": 9, "elapsed_ns": 5},
        [{"t_ms": 5000, "records": 3}],
        histogram,
    )


def test_there_and_back(tmp_path: Path) -> None:
    result().write(tmp_path / "a.json")
    again = Result.read(tmp_path / "a.json")
    assert again.to_json() == result().to_json() | {"date": again.date}
    assert again.histogram == result().histogram
    assert again.histogram_intended is None
    assert again.machine["cores"] > 0
    assert again.versions["python"].startswith("3.")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"batchval_perf": 2}, "version 2"),
        ({"kind": "other"}, "known are produce, consume, roundtrip"),
        ({"settings": []}, "without settings"),
        ({"histogram": {"unit": "us"}}, "not a histogram"),
        ({"histogram": 3}, "not a histogram"),
    ],
)
def test_data_without_a_result_is_refused(
    tmp_path: Path, change: dict[str, object], words: str
) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(result().to_json() | change), "utf-8")
    with pytest.raises(ResultError, match=words) as caught:
        Result.read(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "3", "\udcff"])
def test_nor_is_any_other_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ResultError):
        Result.read(path)

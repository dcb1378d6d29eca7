"""Options of the benches: help, wrong values, and which runs may be saved. Nothing is measured."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bench import __main__ as runner
from bench import pages, runs
from bench.pages import __main__ as all_pages
from bench.validation import compare
from bench.validation import run as run_bench

PARTIAL = [
    "validation --quick",
    "validation --only codec=lz4",
    "validation --peers native",
    "claims --rounds 1",
    "broker --rounds 1",
    "proxy --kroxylicious a --kafka-proxy b --codecs zstd",
    "proxy --kroxylicious a",
    "pipelining --link tun --cells one",
    "pipelining --link relay",
    "perf-produce --records 10",
    "spark --large-mib 1",
    "dump-log --gib 1",
    "audit-engines --rounds 2",
]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore what the runner and the modules of benches set."""
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))


def options_of(name: str, monkeypatch: pytest.MonkeyPatch) -> list[argparse.Action]:
    """Return the options of a bench."""
    found: list[argparse.Action] = []

    def stop(parser: argparse.ArgumentParser, *_: object) -> None:
        found.extend(parser._actions)
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(argparse.ArgumentParser, "parse_args", stop)
        patched.setattr(argparse.ArgumentParser, "parse_known_args", stop)
        with pytest.raises(SystemExit):
            all_pages.main([]) if name == "pages" else runner.main([name])
    return found


@pytest.mark.parametrize("name", [*runner.BENCHES, "pages"])
def test_each_option_has_a_sentence_of_help(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = options_of(name, monkeypatch)
    texts = {option.dest: option.help or "" for option in options if option.dest != "help"}
    assert texts
    wrong = [name for name, text in texts.items() if not (text[:1].isupper() and text[-1:] == ".")]
    assert wrong == []


@pytest.mark.parametrize("words", PARTIAL)
def test_a_part_of_a_run_is_not_saved(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        runner.main([*words.split(), "--write"])
    assert ended.value.code == 2
    assert "--write needs " in capsys.readouterr().err


def test_more_than_the_defaults_is_a_whole_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs.pages, "check_commit", lambda machine: None)
    made = runs.parser("", rounds=3)
    runs.add_codecs(made, ("lz4", "zstd"))
    words = ["--write", "--rounds", "4", "--codecs", "zstd,lz4"]
    assert runs.parse(made, words, whole=("rounds", "codecs")).codecs == ("zstd", "lz4")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("workers --rounds x", "invalid number 'x': expected a whole number of at least 1"),
        ("workers --rounds 0", "invalid number '0': expected a whole number of at least 1"),
        ("at-rest --rate 5", "invalid --rate 5: expected a number from 0 to 1"),
    ],
)
def test_a_wrong_value_is_named(
    words: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        runner.main(words.split())
    assert expected in capsys.readouterr().err


def test_cells_and_peers_that_do_not_exist_are_named() -> None:
    selects = "--only codec=nosuch selects no cell: codec is one of none, gzip, "
    with pytest.raises(SystemExit, match=selects):
        run_bench.arguments(["--only", "codec=nosuch"])
    with pytest.raises(SystemExit, match="unknown peers: nosuch: expected kafka, native, "):
        run_bench.Bench(run_bench.arguments(["--peers", "nosuch"]))


def test_a_baseline_without_a_result_is_named(tmp_path: Path) -> None:
    baseline = tmp_path / "baseline"
    for text in ("{", "[]", '{"rows": []}'):
        baseline.write_text(text)
        with pytest.raises(SystemExit, match="is not the JSON of a result"):
            compare.main(["--baseline", str(baseline)])


def test_a_saved_row_is_one_line_and_says_the_same() -> None:
    rows = [{"name": f"row {n}", "ns": 1 / 3, "rounds": [1.0] * 5} for n in range(20)]
    text = pages.compact({"machine": {"cores": 2}, "rows": rows, "notes": []})
    assert len(text.splitlines()) == 1 + 1 + 1 + len(rows) + 1 + 1 + 1
    read = json.loads(text)
    assert read == {"machine": {"cores": 2}, "rows": rows, "notes": []}


def test_ways_take_turns_and_the_order_alternates() -> None:
    order: list[str] = []

    def way(name: str) -> Callable[[], int]:
        return lambda: order.append(name) or len(order)

    found = runs.in_turns({name: way(name) for name in "ab"}, 2, warm_ups=1)
    assert "".join(order) == "ba" + "ab" + "ba"
    assert found == {"a": [3, 6], "b": [4, 5]}


def test_the_interval_is_that_of_a_median() -> None:
    # of 30 values the 10th and the 21st, of 20 the 6th and the 15th: P(X <= 9) is 0.021 of 30
    assert runs.interval([float(n) for n in range(30, 0, -1)]) == (10, 21)
    assert runs.interval([float(n) for n in range(1, 21)]) == (6, 15)
    assert runs.interval([2.0, 1.0, 3.0]) == (1, 3)


def test_a_process_that_ends_is_an_answer_with_an_error() -> None:
    code = "print(input()); import sys; sys.exit('no more')"
    child = runs.Child([sys.executable, "-c", code])
    assert child.ask(a=1) == {"a": 1}
    assert child.ask(a=2) == {"error": "process ended with 1: no more"}
    child.stop()

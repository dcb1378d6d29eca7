"""Options of the benches: help, wrong values, and which runs may be saved. Nothing is measured."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

import pytest

from bench import __main__ as runner
from bench import pages, runs
from bench.pages import __main__ as all_pages
from bench.pipelining import table
from bench.validation import compare
from bench.validation import run as run_bench

PARTIAL = [
    "validation --peers native",
    "claims --rounds 1",
    "broker --rounds 1",
    "broker-validator --ms 1",
    "producer-cost --records 10",
    "proxy --kroxylicious a --kafka-proxy b --codecs zstd",
    "proxy --kroxylicious a",
    "ingress --codecs lz4",
    "pipelining --link tun --cells one",
    "pipelining --link tun --report-only --fresh",
    "one-connection --link tun --caps 1",
    "one-connection --link tun --rtt 140",
    "perf-produce --records 10",
    "perf-cost --rounds 1",
    "perf-accuracy --seconds 1",
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
    runs.add_codecs(made, ("lz4", "zstd", "gzip"), ("lz4", "zstd"))
    words = ["--write", "--rounds", "4", "--codecs", "gzip,zstd,lz4"]
    assert runs.parse(made, words, whole=("rounds", "codecs")).codecs == ("gzip", "zstd", "lz4")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("ingress --rounds x", "invalid number 'x': expected a whole number of at least 1"),
        ("ingress --rounds 0", "invalid number '0': expected a whole number of at least 1"),
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


def test_samples_of_another_commit_or_link_are_not_of_a_table(tmp_path: Path) -> None:
    words = ["--out", str(tmp_path / "table"), "--rtt", "1", "--link"]
    options, relayed = (table.arguments([*words, link]) for link in ("tun", "relay"))
    path = table.samples_file(options)
    assert len({path, *map(table.samples_file, [relayed, table.arguments(["--quick"])])}) == 3
    commit = runs.describe()["commit"]
    path.write_text(json.dumps([{"commit": commit}]))
    assert table.kept(options) == [{"commit": commit}]
    assert table.kept(relayed) == []
    path.write_text(json.dumps([{"commit": commit}, {"commit": "0123abc"}, {}]))
    with pytest.raises(SystemExit, match=r"is of another commit \(0123abc, None\): --fresh"):
        table.kept(options)

"""Rules of one's own, without a gate: what a rule may return, and how it is found."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import numpy as np
import pytest

from batchval import custom_rules
from batchval.core.batches.record_columns import record_columns
from batchval.custom_rules import MAX_FINDINGS, CustomRule, CustomRuleError, RecordFinding
from batchval.errors import ArgumentValueError
from tests.support.batches import batch, record


def of_values(*values: bytes) -> bytes:
    return batch(record(i, b"k", value) for i, value in enumerate(values))


COLUMNS = record_columns(of_values(b"one", b"two", b"three"))


def found(function):
    return CustomRule("r", function).check(COLUMNS)


@pytest.mark.parametrize("nothing", [None, [], (), iter(()), np.zeros(3, bool)])
def test_nothing_is_wrong(nothing):
    assert found(lambda _: nothing) == []


def test_rows_and_their_texts():
    long_values = found(
        lambda columns: (
            (row, f"{len(columns.value(row))} bytes")
            for row in range(len(columns))
            if len(columns.value(row)) > 3
        )
    )
    assert long_values == [RecordFinding(2, "5 bytes")]
    assert found(lambda columns: columns["value_length"] > 3) == [
        RecordFinding(2, "custom rule r refuses this record")
    ]


def test_a_row_counts_once_and_its_text_is_bounded_and_escaped():
    texts = found(
        lambda _: [(1, "a\nb\x00\ud800"), (1, "again"), (np.int64(2), "x" * 500), (0, "")]
    )
    assert texts == [
        RecordFinding(1, "a\\nb\\x00\\ud800"),
        RecordFinding(2, "x" * 197 + "..."),
        RecordFinding(0, "custom rule r"),
    ]


def test_no_more_findings_are_taken_than_are_kept():
    def endless(columns):
        while True:
            yield 0, "again"

    assert found(endless) == [RecordFinding(0, "again")]
    columns = record_columns(of_values(*[b"v"] * (MAX_FINDINGS + 5)))
    rule = CustomRule("r", lambda columns: np.ones(len(columns), bool))
    assert len(rule.check(columns)) == MAX_FINDINGS


class Worse(Exception):
    def __str__(self) -> str:
        raise ValueError


def raising(error):
    def function(_):
        raise error

    return function


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda _: 7, "returned 7"),
        (lambda _: "text", "returned 'text'"),
        (lambda _: [1], "returned 1: expected (row, text) pairs"),
        (lambda _: [(True, "x")], "(row, text) pairs"),
        (lambda _: [(0, b"x")], "(row, text) pairs"),
        (lambda _: [(3, "x")], "row 3: there are rows 0 to 2"),
        (lambda _: [(-1, "x")], "row -1"),
        (lambda _: np.zeros(2, bool), "array of bool with shape (2,): expected 3 of bool"),
        (lambda _: np.zeros(3, int), "array of int64"),
        (raising(ValueError("no\nline")), "failed: ValueError: no line"),
        (raising(SystemExit(3)), "failed: SystemExit: 3"),
        (raising(Worse()), "failed: Worse"),
        (lambda _: ((1 // 0, "x") for _ in "a"), "failed: ZeroDivisionError"),
    ],
)
def test_what_a_rule_may_not_do(function, text):
    with pytest.raises(CustomRuleError) as error:
        found(function)
    assert text in str(error.value)
    assert "\n" not in str(error.value)


def test_a_rule_by_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "shop_rules.py").write_text(
        "class Rules:\n    def empty(columns): return columns['value_length'] == 0\n"
        "async def later(c): ...\ndef two(a, b): ...\n"
    )
    (tmp_path / "broken_rules.py").write_text("import no_such_module_at_all\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "shop_rules", raising=False)
    rule = CustomRule.load("shop_rules:Rules.empty")
    assert rule.check_batches(of_values(b"", b"x")) == [
        RecordFinding(0, "custom rule shop_rules:Rules.empty refuses this record")
    ]
    for name, text in {
        "shop_rules:none": "has no none",
        "shop_rules:Rules": "must be a function of the records, not the class Rules",
        "shop_rules:__name__": "must be a function of the records, not str",
        "shop_rules:later": "coroutine",
        "shop_rules:two": "must take one argument",
        "broken_rules:x": "cannot be imported: ModuleNotFoundError",
        "no_such_module_at_all:x": "cannot be imported: ModuleNotFoundError",
        "shop rules:x": "expected module:function",
        ":x": "expected module:function",
        "nothing": "entry point of the group batchval.record_rules",
    }.items():
        with pytest.raises(ArgumentValueError) as error:
            CustomRule.load(name)
        assert text in str(error.value), name


def test_a_rule_by_its_entry_point(monkeypatch: pytest.MonkeyPatch):
    points = EntryPoints([EntryPoint("own", f"{__name__}:refuses_all", custom_rules.GROUP)])
    monkeypatch.setattr(custom_rules, "entry_points", lambda group: points.select(group=group))
    monkeypatch.setitem(sys.modules, __name__, sys.modules[refuses_all.__module__])
    assert [one.row for one in CustomRule.load("own").check(COLUMNS)] == [0, 1, 2]
    with pytest.raises(ArgumentValueError, match=r"\(own\)"):
        CustomRule.load("other")


def refuses_all(columns):
    return np.ones(len(columns), bool)

"""batchval-fixtures: the cases are what make_cases.py makes, and fit their schema."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from batchval.rules import EXTRAS
from fixtures import batchval_fixtures, make_cases

ROOT = Path(__file__).resolve().parents[3]
PROFILES = batchval_fixtures.PROFILES
_TYPES = {"object": dict, "string": str, "boolean": bool, "integer": int, "null": type(None)}


def schema(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        (batchval_fixtures.ROOT / "schema" / f"{name}.json").read_text("utf-8")
    )
    return found


def fits(value: object, form: dict[str, Any]) -> bool:
    """Return whether a value has the form of a JSON Schema, as far as ours use the language."""
    kinds = form.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(type(value) is _TYPES[kind] for kind in kinds):
        return False
    if ("const" in form and value != form["const"]) or (
        "enum" in form and value not in form["enum"]
    ):
        return False
    if "oneOf" in form and sum(fits(value, one) for one in form["oneOf"]) != 1:
        return False
    if not isinstance(value, dict):
        return True
    known = form.get("properties", {})
    return (
        set(form.get("required", ())) <= set(value)
        and (form.get("additionalProperties", True) or set(value) <= set(known))
        and all(fits(value[name], one) for name, one in known.items() if name in value)
    )


def lines(profile: str) -> list[dict[str, Any]]:
    text = (batchval_fixtures.ROOT / "cases" / f"{profile}.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_make_cases_reproduces_the_committed_files(tmp_path: Path) -> None:
    make_cases.write(tmp_path)
    for profile in PROFILES:
        made = (tmp_path / f"{profile}.jsonl").read_bytes()
        assert made == (batchval_fixtures.ROOT / "cases" / f"{profile}.jsonl").read_bytes()


@pytest.mark.parametrize("profile", PROFILES)
def test_cases_have_the_form_of_the_schema(profile: str) -> None:
    form, documents = schema("case"), lines(profile)
    assert [document["id"] for document in documents if not fits(document, form)] == []
    assert len({document["id"] for document in documents}) == len(documents)
    broker = profile == "broker"
    for document in documents:
        assert ("topic" in document, "append" in document) == (broker, broker)
        assert ("error" in document["expect"]) == (broker and not document["expect"]["accept"])


def test_the_schema_of_verdicts() -> None:
    form = schema("verdict")
    assert fits({"id": "a", "accept": True, "records": 2}, form)
    assert fits({"id": "a", "skip": "the library has no API for magic 0"}, form)
    assert not fits({"id": "a"}, form)
    assert not fits({"id": "a", "accept": True, "skip": ""}, form)
    assert not fits({"id": "a", "accept": "yes"}, form)


def verdicts_by_rule(profile: str) -> dict[str | None, set[bool]]:
    verdicts: dict[str | None, set[bool]] = {}
    for case in batchval_fixtures.cases(profile):
        verdicts.setdefault(case.rule, set()).add(case.accept)
    return verdicts


def test_every_rule_of_readers_has_a_case_that_obeys_and_one_that_breaks() -> None:
    both = {rule: {True, False} for rule in make_cases.READER_RULES}
    assert both | {None: {True}} == verdicts_by_rule("reader")


#: rules of readers that no accepted append of the cases is about
NEVER_OBEYED = {"21", "30", "32", "33", "34"}
#: rules 1 and 11 refuse nothing, and Kafka accepts the batches that break extras but for S6 and S9
NEVER_BROKEN = {None, "1", "11", *(rule.id for rule in EXTRAS)} - {"S6", "S9"}


def test_other_rules_of_brokers_have_a_case_that_obeys_and_one_that_breaks() -> None:
    verdicts = verdicts_by_rule("broker")
    assert {rule for rule, found in verdicts.items() if found == {False}} == NEVER_OBEYED
    assert {rule for rule, found in verdicts.items() if found == {True}} == NEVER_BROKEN


def test_readers_refuse_the_golden_batches_that_were_broken() -> None:
    """Compare with what the generator broke: the verdicts themselves come from batchval."""
    golden = {
        f"reader/{line['id']}": line["rule"]["broken"]
        for path in (ROOT / "fixtures" / "golden").glob("*/cases.jsonl")
        for line in map(json.loads, path.read_text("utf-8").splitlines())
    }
    found = {case.id: case.accept for case in batchval_fixtures.cases("reader")}
    compared = golden.keys() & found.keys()
    assert len(compared) > 30
    assert [name for name in compared if found[name] == golden[name]] == []


def test_the_module_reads_cases() -> None:
    (first, *_) = batchval_fixtures.cases("broker", rules=["14"])
    (document, *_) = [one for one in lines("broker") if one["rule"] == "14"]
    assert first.document == document
    (*_, last) = batchval_fixtures.cases("broker", rules="14")
    assert last.rule == "14"
    assert first.batch == base64.b64decode(document["batch"])
    assert set(document) - set(first.question) == {"expect", "note"}
    with pytest.raises(ValueError, match="invalid profile 'both': expected one of broker, reader"):
        next(batchval_fixtures.cases("both"))
    with pytest.raises(ValueError, match="no case of profile reader is about rule 13, 99"):
        next(batchval_fixtures.cases("reader", rules=["99", "13", "14"]))
    with pytest.raises(TypeError, match=r"rules is \[14\]: expected ids as strings"):
        next(batchval_fixtures.cases("reader", rules=[14]))  # type: ignore[list-item]
    with pytest.raises(ValueError, match="rules is empty"):
        next(batchval_fixtures.cases("reader", rules=[]))
    with pytest.raises(ValueError, match="schema is 2"):
        batchval_fixtures.Case.from_document(document | {"schema": 2})


def test_the_page_has_the_figures() -> None:
    page = (ROOT / "fixtures" / "README.md").read_text("utf-8")
    figures = re.search(r"Over (\d+) cases for brokers, over (\d+) for readers", page)
    assert figures is not None
    for figure, profile in zip(figures.groups(), PROFILES, strict=True):
        assert 0.8 * len(lines(profile)) < int(figure) < len(lines(profile))
    assert f"\n{batchval_fixtures.__version__}.\n" in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (None, "a.py::test_a: kafka_case needs @pytest.mark.kafka_cases"),
        ([], "missing 1 required positional argument: 'profile'"),
        (["reader", ["99"]], "no case of profile reader is about"),
        (["both"], "invalid profile 'both'"),
    ],
)
def test_a_wrong_mark_is_an_error_of_usage(
    monkeypatch: pytest.MonkeyPatch, arguments: list[Any] | None, message: str
) -> None:
    monkeypatch.syspath_prepend(ROOT / "fixtures")
    plugin = import_module("batchval_fixtures.pytest_plugin")
    mark = None if arguments is None else SimpleNamespace(args=arguments, kwargs={})
    definition = SimpleNamespace(nodeid="a.py::test_a", get_closest_marker=lambda name: mark)
    with pytest.raises(pytest.UsageError, match=re.escape(message)):
        plugin.pytest_generate_tests(
            SimpleNamespace(fixturenames=["kafka_case"], definition=definition)
        )


def test_the_plugin_runs_a_test_for_each_case() -> None:
    """batchval itself reaches each verdict."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "batchval_fixtures.pytest_plugin",
        "-p",
        "no:cacheprovider",
    ]
    path = os.pathsep.join(map(str, (ROOT / "fixtures", ROOT)))
    ran = subprocess.run(
        [*command, "-p", "no:xdist", "tests/system/kit/installed.py"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"{sum(len(lines(profile)) for profile in PROFILES)} passed" in ran.stdout, (
        ran.stdout + ran.stderr
    )

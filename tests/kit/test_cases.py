"""batchval-fixtures: the cases are what make_cases.py makes, and fit their schema."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fixtures import batchval_fixtures, make_cases

ROOT = Path(__file__).resolve().parents[2]
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


@pytest.mark.parametrize("profile", PROFILES)
def test_every_rule_has_a_case_that_obeys_and_one_that_breaks(profile: str) -> None:
    verdicts: dict[str | None, set[bool]] = {}
    for case in batchval_fixtures.cases(profile):
        verdicts.setdefault(case.rule, set()).add(case.accept)
    if profile == "reader":
        assert {rule: {True, False} for rule in make_cases.READER_RULES} | {
            None: {True}
        } == verdicts
    assert verdicts[None] == {True}


def test_the_module_reads_cases() -> None:
    (first, *_) = batchval_fixtures.cases("broker", rules=["14"])
    (document, *_) = [one for one in lines("broker") if one["rule"] == "14"]
    assert first.document == document
    assert first.batch == base64.b64decode(document["batch"])
    assert set(document) - set(first.question) == {"expect", "note"}
    with pytest.raises(ValueError, match="invalid profile 'both': expected one of broker, reader"):
        next(batchval_fixtures.cases("both"))
    with pytest.raises(ValueError, match="no case of profile reader is about rule 13, 99"):
        next(batchval_fixtures.cases("reader", rules=["99", "13", "14"]))
    with pytest.raises(ValueError, match="schema is 2"):
        batchval_fixtures.Case.from_document(document | {"schema": 2})


def test_the_page_has_the_figures() -> None:
    page = (ROOT / "fixtures" / "README.md").read_text("utf-8")
    figures = re.search(r"(\d+) cases for brokers, (\d+) for readers", page)
    assert figures is not None
    assert [int(figure) for figure in figures.groups()] == [
        len(lines(profile)) for profile in PROFILES
    ]
    assert f"\n{batchval_fixtures.__version__}.\n" in page


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
        [*command, "-p", "no:xdist", "tests/kit/installed.py"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"{sum(len(lines(profile)) for profile in PROFILES)} passed" in ran.stdout, (
        ran.stdout + ran.stderr
    )

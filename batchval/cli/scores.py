"""The score of a runner: its verdicts compared with those of the cases, counted by rule.

Reads the cases of ``batchval-fixtures`` or files of the same form (``fixtures/README.md``).
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from stat import S_ISREG
from typing import Any

from batchval.cli.runner import Document, Failure, Runner
from batchval.errors import BatchvalError
from batchval.rules import Rule
from batchval.segment.foreign import START_SIZE, json_of_line, not_json_reason

__all__ = [
    "CasesError",
    "Outcome",
    "RuleScore",
    "Score",
    "installed_cases",
    "page",
    "read",
    "run",
    "table",
]

OUTCOMES = ("right", "wrong", "failed", "skipped")
_NUMBERS = {rule.id: rule.number for rule in Rule}
_SLUGS = {rule.id: rule.slug for rule in Rule}
_TEMPLATE = Path(__file__).with_name("scores.html.j2")
#: places in the colours of charts: green, red, orange, grey
_COLOURS = (2, 6, 1, 5)


class CasesError(BatchvalError):
    """No cases were found, or a line is not a case."""


def installed_cases() -> Path:
    """Return the folder of cases of the package batchval-fixtures. Raises CasesError without it."""
    if find_spec("batchval_fixtures") is None:
        raise CasesError("--exec needs cases: name a PATH, or pip install batchval-fixtures")
    folder: Path = import_module("batchval_fixtures").ROOT / "cases"
    return folder


def read(paths: Iterable[Path], profile: str) -> list[Document]:
    """Return the cases of a profile in files, and in .jsonl files of folders.

    Raises:
        CasesError: a file cannot be read, a line is not a case, or an id is there twice.
    """
    found: dict[str, Document] = {}
    for path in paths:
        for file in sorted(path.rglob("*.jsonl")) if path.is_dir() else [path]:
            for case in _lines(file):
                if case["profile"] == profile and found.setdefault(case["id"], case) is not case:
                    raise CasesError(f"{file}: two cases have the id {case['id']!r}")
    if not found:
        raise CasesError(f"no case of profile {profile} in {', '.join(map(str, paths))}")
    return list(found.values())


def _lines(file: Path) -> Iterator[Document]:
    try:
        if not S_ISREG(file.stat().st_mode):
            raise CasesError(f"{file}: not a regular file")
        with file.open("rb") as lines:
            if foreign := not_json_reason(file, lines.read(START_SIZE)):
                raise CasesError(f"{file}: {foreign}")
            lines.seek(0)
            for number, line in enumerate(lines, 1):
                try:
                    yield _case(json_of_line(line))
                except ValueError as error:
                    raise CasesError(f"{file}:{number}: not a case: {error}") from None
    except OSError as error:
        raise CasesError(f"{file}: {error.strerror or error}") from None


def _case(case: object) -> Document:
    """Return a case of version 1. ValueError names the field that is wrong."""
    if not isinstance(case, dict):
        raise ValueError("expected an object")
    if "batch_hex" in case and "schema" not in case:
        raise ValueError("this is a case for batchval itself: leave out --exec")
    if case.get("schema") != 1:
        raise ValueError(f"schema is {case.get('schema')!r}, expected 1")
    expect = case.get("expect")
    if not isinstance(expect, dict) or not isinstance(expect.get("accept"), bool):
        raise ValueError("expect.accept must be true or false")
    for name in ("id", "profile", "batch"):
        if not _is_text(case.get(name)):
            raise ValueError(f"{name} must be a string")
    for name, holder in (("rule", case), ("error", expect)):
        if holder.get(name) is not None and not _is_text(holder[name]):
            raise ValueError(f"{name} must be a string or null")
    try:
        base64.b64decode(case["batch"], validate=True)
    except ValueError:
        raise ValueError("batch is not base64") from None
    return case


def _is_text(value: object) -> bool:
    """Return whether a value is a string that can be written: JSON may hold half a surrogate
    pair.
    """
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


@dataclass(frozen=True, slots=True)
class Outcome:
    """One case: ``right``, ``wrong``, ``failed`` (no verdict) or ``skipped`` by the runner."""

    case_id: str
    rule: str | None
    outcome: str
    expected: str
    got: str


def _verdict_text(verdict: Document, profile: str, *, with_records: bool) -> str:
    """Return a verdict as text: what is compared."""
    if verdict["accept"]:
        records = verdict.get("records") if with_records else None
        return "accept" if records is None else f"accept, {records} records"
    return f"refuse, {verdict.get('error')}" if profile == "broker" else "refuse"


def _outcome(case: Document, verdict: Document | Failure) -> Outcome:
    expect, rule, profile = case["expect"], case.get("rule"), case["profile"]
    if isinstance(verdict, Failure):
        return Outcome(
            case["id"],
            rule,
            "failed",
            _verdict_text(expect, profile, with_records=True),
            str(verdict),
        )
    if verdict.get("accept") is None:
        return Outcome(
            case["id"],
            rule,
            "skipped",
            _verdict_text(expect, profile, with_records=True),
            verdict["skip"],
        )
    # records are compared where both count them
    both = expect.get("records") is not None and verdict.get("records") is not None
    expected, got = (_verdict_text(one, profile, with_records=both) for one in (expect, verdict))
    return Outcome(case["id"], rule, "right" if expected == got else "wrong", expected, got)


@dataclass(slots=True)
class RuleScore:
    """Cases of one rule, by outcome."""

    right: int = 0
    wrong: int = 0
    failed: int = 0
    skipped: int = 0

    @property
    def cases(self) -> int:
        """All of them."""
        return self.right + self.wrong + self.failed + self.skipped


@dataclass(slots=True)
class Score:
    """The score of one runner in one profile."""

    profile: str
    rules: dict[str | None, RuleScore] = field(default_factory=dict)
    total: RuleScore = field(default_factory=RuleScore)
    #: those that are not right
    outcomes: list[Outcome] = field(default_factory=list)
    #: cases that there are, where the run ended before all were asked
    planned: int | None = None

    def add(self, outcome: Outcome) -> None:
        """Count a case."""
        for score in (self.rules.setdefault(outcome.rule, RuleScore()), self.total):
            setattr(score, outcome.outcome, getattr(score, outcome.outcome) + 1)
        if outcome.outcome != "right":
            self.outcomes.append(outcome)

    def rows(self) -> list[tuple[str, str, RuleScore]]:
        """Return id, slug and score of each rule in their order. The first row has those without
        a rule.
        """
        by_number = sorted(self.rules, key=lambda rule: (_NUMBERS.get(rule or "", 0), rule or ""))
        return [
            (rule or "none", _SLUGS.get(rule or "", ""), self.rules[rule]) for rule in by_number
        ]

    def documents(self) -> Iterator[dict[str, Any]]:
        """Yield what --json prints: a document for each rule, then the summary."""
        for rule, slug, score in self.rows():
            yield {
                "type": "rule",
                "rule": rule,
                "slug": slug,
                "cases": score.cases,
                **asdict(score),
            }
        yield {
            "type": "score",
            "profile": self.profile,
            "cases": self.total.cases,
            **asdict(self.total),
        }

    def __str__(self) -> str:
        one = self.total
        right = f"{one.right} of {one.cases} right"
        if self.planned is not None:
            right = f"{one.right} right of {one.cases} asked ({self.planned} cases)"
        return f"{right}, {one.wrong} wrong, {one.failed} failed, {one.skipped} skipped"


def run(runner: Runner, cases: list[Document], score: Score) -> Iterator[Outcome]:
    """Ask the runner about each case, count and yield the outcomes. Raises RunnerStopped."""
    by_id = {case["id"]: case for case in cases}
    questions = [
        {key: case[key] for key in case if key not in ("expect", "note")} for case in cases
    ]
    score.planned = len(cases)
    for name, verdict in runner.ask(questions):
        outcome = _outcome(by_id[name], verdict)
        score.add(outcome)
        yield outcome
    score.planned = None


def table(score: Score) -> str:
    """Return a table of the rules. Ends a line."""
    from batchval.report.tables import plain_table, render

    shown = plain_table()
    shown.add_column("rule", no_wrap=True)
    shown.add_column("name", no_wrap=True)
    for name in ("cases", *OUTCOMES):
        shown.add_column(name, justify="right")
    for rule, slug, one in score.rows():
        numbers = (one.cases, one.right, one.wrong, one.failed, one.skipped)
        shown.add_row(
            rule, slug, *map(str, numbers), style="yellow" if one.wrong or one.failed else None
        )
    return render(shown)


def page(score: Score, command: str, faults: list[str], stopped: str | None = None) -> str:
    """Return the score as one self-contained HTML page. Raises CasesError without jinja2.

    ``stopped``: why the run ended before all cases were asked.
    """
    from batchval.report.charts import stacked
    from batchval.report.pages import render
    from batchval.report.units import printable

    columns = [(rule, [getattr(one, name) for name in OUTCOMES]) for rule, _, one in score.rows()]
    chart = stacked(
        "Cases by rule", "rule", "cases", columns, list(zip(_COLOURS, OUTCOMES, strict=True))
    )
    try:
        return render(
            _TEMPLATE,
            title=f"batchval conformance, profile {score.profile}",
            subtitle=f"{printable(command)}: {score}",
            stopped=stopped,
            chart=chart,
            rows=score.rows(),
            outcomes=score.outcomes,
            faults=faults,
        )
    except ModuleNotFoundError as error:
        raise CasesError(f"--page needs {error.name}: pip install 'batchval[audit]'") from None

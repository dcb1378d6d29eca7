"""A runner: a program that judges cases for another implementation, one JSON line each way, and its
score: its verdicts compared with those of the cases, counted by rule.

``Runner.ask`` writes one case a line and reads one verdict a line, with up to WINDOW cases under
way. A runner that ends, stays silent or writes another line is stopped and started again.
The cases that were under way are then asked one at a time. A line that answers none of them counts
for a case only if a new process writes it at its first case. A second verdict on a case is a fault
of the runner, and is skipped.

The cases are those of ``batchval-fixtures``, or files of the same form (``fixtures/README.md``).
"""

from __future__ import annotations

import base64
import json
import os
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from stat import S_ISREG
from typing import Any

from batchval.errors import BatchvalError
from batchval.rules import Rule
from batchval.segment.file_formats import START_SIZE, json_of_line, not_json_reason

__all__ = [
    "CasesError",
    "Failure",
    "Outcome",
    "RuleScore",
    "Runner",
    "RunnerStopped",
    "Score",
    "installed_cases",
    "page",
    "read",
    "run",
    "table",
]

#: cases under way
WINDOW = 16
#: failures without a verdict between them, after which no other case is asked
MAX_FAILURES = 5
_MAX_LINE_BYTES = 1 << 20
_KEPT_STDERR = 2000
_END_SECONDS = 5.0

Document = dict[str, Any]


class Failure(str):
    """Why a case has no verdict."""

    __slots__ = ()


class RunnerStopped(BatchvalError):
    """The runner cannot be started, or failed MAX_FAILURES times without a verdict."""


class _Fault(Exception):
    """The process cannot be used any more. The text says why."""


class _BadLine(_Fault):
    """The process wrote a line that answers no case."""


class _Process:
    """A started runner with its three pipes, none of which blocks."""

    def __init__(self, command: Sequence[str]) -> None:
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            raise RunnerStopped(f"cannot start {command[0]!r}: {error.strerror or error}") from None
        self._unsent = bytearray()
        self._received = bytearray()
        self._stderr = bytearray()
        self._selector = selectors.DefaultSelector()
        for file in (self._process.stdout, self._process.stderr):
            assert file is not None
            os.set_blocking(file.fileno(), False)
            self._selector.register(file, selectors.EVENT_READ)
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)

    @property
    def stderr(self) -> str:
        """The end of what the process wrote to standard error."""
        return self._stderr.decode("utf-8", "replace").strip()

    def send(self, line: bytes) -> None:
        """Queue a line; ``receive`` writes it."""
        if not self._unsent:
            stdin: Any = self._process.stdin
            self._selector.register(stdin, selectors.EVENT_WRITE)
        self._unsent += line

    def receive(self, end: float) -> list[bytes]:
        """Return the lines that have come, none after ``end`` (monotonic). Raises _Fault."""
        while b"\n" not in self._received:
            if len(self._received) > _MAX_LINE_BYTES:
                raise _BadLine(f"a line of more than {_MAX_LINE_BYTES:,} bytes")
            left = end - time.monotonic()
            if left <= 0:
                return []
            for key, _ in self._selector.select(left):
                self._exchange(key.fileobj)
        *lines, rest = self._received.split(b"\n")
        self._received = rest
        return [bytes(line) for line in lines]

    def _exchange(self, file: Any) -> None:
        if file is self._process.stdin:
            self._write()
        elif file is self._process.stderr:
            self._read_stderr()
        else:
            data = file.read(1 << 16)
            if data == b"":
                raise _Fault(self._ending() + self._cut_line())
            self._received += data or b""

    def _write(self) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        try:
            written = stdin.write(self._unsent[: 1 << 16]) or 0
        except BrokenPipeError:
            written = len(self._unsent)  # the end of standard output says why
        del self._unsent[:written]
        if not self._unsent:
            self._selector.unregister(stdin)

    def _read_stderr(self) -> None:
        stderr = self._process.stderr
        assert stderr is not None
        data = stderr.read(1 << 16)
        if data == b"":
            self._selector.unregister(stderr)
        self._stderr += data or b""
        del self._stderr[:-_KEPT_STDERR]

    def _ending(self) -> str:
        """Return how the process ended: its standard output is closed."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        with suppress(KeyError, ValueError):
            self._read_stderr()
        code = self._process.returncode
        if code is None:
            return "closed its standard output"
        if code < 0:
            with suppress(ValueError):  # a real-time signal has no name
                return f"ended by {signal.Signals(-code).name}"
            return f"ended by signal {-code}"
        return f"ended with exit status {code}"

    def silence(self) -> str:
        """Return what else is known of a process that has not written a line in time."""
        if self._process.poll() is not None:
            return f": {self._ending()}, and another process keeps its standard output open"
        return self._cut_line() or " (a runner must flush each line)"

    def _cut_line(self) -> str:
        """Return a sentence about received bytes that no end of line follows, or nothing."""
        return f": the line {_shown(self._received)!r} has no end" if self._received else ""

    def last_lines(self) -> list[bytes]:
        """Close standard input and return the next lines, if any come."""
        self._close_stdin()
        with suppress(_Fault):
            return self.receive(time.monotonic() + _END_SECONDS)
        return []

    def _close_stdin(self) -> None:
        stdin: Any = self._process.stdin
        with suppress(KeyError, ValueError):
            self._selector.unregister(stdin)
        with suppress(OSError):
            stdin.close()

    def close(self, patience: float = 0) -> None:
        """Close standard input, wait, and kill the process and its children."""
        self._close_stdin()
        with suppress(subprocess.TimeoutExpired):
            if patience:
                self._process.wait(patience)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._selector.close()
        for file in (self._process.stdout, self._process.stderr):
            file.close()  # type: ignore[union-attr]


class Runner:
    """Asks a command for verdicts. ``stderr`` is the end of what a failed process wrote there.

    ``timeout``: seconds of silence, with a case under way, after which a process has failed.
    ``faults``: what was wrong outside any case, for example an answer to no case, once each.
    """

    def __init__(self, command: Sequence[str], timeout: float) -> None:
        self._command = command
        self._timeout = timeout
        self._process: _Process | None = None
        self._failures = 0
        self._answered: set[str] = set()
        self._is_new = True  # the process has not answered yet
        self.faults: list[str] = []
        self.stderr = ""

    def ask(self, questions: Iterable[Document]) -> Iterator[tuple[str, Document | Failure]]:
        """Yield the id of each question with its verdict, or why there is none.

        Raises:
            RunnerStopped: the command cannot be started, or does not answer any more.
        """
        queue, alone = deque(questions), deque[Document]()
        under_way: dict[str, Document] = {}
        try:
            while queue or alone:
                try:
                    yield from self._exchange(alone or queue, under_way, 1 if alone else WINDOW)
                except _Fault as fault:
                    self._stop()
                    if isinstance(fault, _BadLine) and not (self._is_new and len(under_way) == 1):
                        self._add_fault(fault)
                        alone.extendleft(reversed(under_way.values()))
                    elif len(under_way) > 1:
                        alone.extend(under_way.values())
                    else:
                        yield next(iter(under_way)), Failure(fault)
                        self._failures += 1
                    under_way.clear()
                    if self._failures >= MAX_FAILURES:
                        raise RunnerStopped(
                            f"the runner failed {MAX_FAILURES} times in a row: {fault}"
                        ) from None
            self._read_last_lines()
        finally:
            if self._process is not None:
                self._process.close(0 if under_way else _END_SECONDS)
                self._process = None

    def _add_fault(self, fault: object) -> None:
        if str(fault) not in self.faults:
            self.faults.append(str(fault))

    def _read_last_lines(self) -> None:
        """Note what comes after the last verdict: each such line is a fault."""
        for line in self._process.last_lines() if self._process else ():
            try:
                self._verdict(line, {})
            except _BadLine as fault:
                self._add_fault(fault)

    def _stop(self) -> None:
        assert self._process is not None
        self.stderr = self._process.stderr
        self._process.close()
        self._process = None

    def _exchange(
        self, source: deque[Document], under_way: dict[str, Document], window: int
    ) -> Iterator[tuple[str, Document | Failure]]:
        """Ask what the source holds, with at most ``window`` cases under way. Raises _Fault."""
        if self._process is None:
            self._process, self._is_new = _Process(self._command), True
        end = time.monotonic() + self._timeout
        while source or under_way:
            while source and len(under_way) < window:
                question = source.popleft()
                under_way[question["id"]] = question
                self._process.send(json.dumps(question).encode() + b"\n")
            lines = self._process.receive(end)
            if not lines:
                silence = self._process.silence()
                raise _Fault(f"no verdict within {self._timeout:g} s{silence}")
            for line in lines:
                found = self._verdict(line, under_way)
                if found is not None:
                    del under_way[found[0]]
                    self._answered.add(found[0])
                    self._failures, self._is_new = 0, False
                    yield found
                    end = time.monotonic() + self._timeout

    def _verdict(
        self, line: bytes, under_way: dict[str, Document]
    ) -> tuple[str, Document | Failure] | None:
        """Return the case that a line answers and its verdict, None for a second verdict.

        Raises:
            _BadLine: the line answers no case that was asked.
        """
        shown = _shown(line)
        try:
            document = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _BadLine(f"{_kind_of_line(line, error)}: {shown!r}") from None
        if not isinstance(document, dict) or not isinstance(document.get("id"), str):
            raise _BadLine(f"a line without an id: {shown!r}")
        name = document["id"]
        if name in self._answered:
            self._add_fault(f"a second verdict for the id {name[:80]!r}")
            return None
        if name not in under_way:
            raise _BadLine(f"a verdict for the id {name[:80]!r}, which was not asked")
        return name, _usable(document, shown)


def _shown(line: bytes | bytearray) -> str:
    return line[:80].decode("utf-8", "backslashreplace")


def _kind_of_line(line: bytes, error: Exception) -> str:
    """Return what a line is from which json.loads reads no document."""
    if not line.strip():
        return "an empty line"
    if isinstance(error, UnicodeDecodeError):
        return "a line that is not UTF-8"
    if isinstance(error, RecursionError):
        return "a line that is nested too deep"
    return "a line that is not JSON"


def _usable(document: Document, shown: str) -> Document | Failure:
    """Return a document that is a verdict, or a failure that names the field and shows the line."""
    records = document.get("records")
    if isinstance(records, float) and records.is_integer():
        document["records"] = int(records)  # JSON has one type of numbers
    fault = _fault_of(document)
    if fault is not None:
        return Failure(f"not a verdict, {fault}: {shown!r}")
    for name in ("error", "skip"):
        if isinstance(document.get(name), str):  # JSON may hold half a surrogate pair
            document[name] = document[name].encode("utf-8", "backslashreplace").decode()
    return document


def _fault_of(document: Document) -> str | None:
    """Return which field makes a document unusable as a verdict, None if it is usable."""
    accept, skip = document.get("accept"), document.get("skip")
    if accept is None and skip is None:
        return "accept and skip are missing"
    if accept is not None and skip is not None:
        return "it has accept and skip"
    if skip is not None:
        return None if isinstance(skip, str) else "skip must be a string"
    if not isinstance(accept, bool):
        return "accept must be true or false"
    if not isinstance(document.get("error"), str | None):
        return "error must be a string"
    if not (document.get("records") is None or type(document["records"]) is int):
        return "records must be an integer"
    return None


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

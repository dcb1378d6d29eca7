"""Score the implementations that have a runner, and write the table of who accepts what.

    python -m conformance.scores [--only NAME | --write]

Builds each runner that needs a build (Go, Maven), asks it about the cases of batchval-fixtures, and
prints its score. --write writes ``docs/reports/conformance-scores.md``.
"""

from __future__ import annotations

import argparse
import datetime
import subprocess
import sys
import textwrap
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from batchval.cli.runner import OUTCOMES, RuleScore, Runner, Score, read, run
from tests.support.fetching import maven
from tests.support.go import built
from tests.system.interop.kafka_java import find_java

ROOT = Path(__file__).resolve().parents[1]
RUNNERS = ROOT / "conformance" / "runners"
CASES = ROOT / "fixtures" / "batchval_fixtures" / "cases"
REPORT = ROOT / "docs" / "reports" / "conformance-scores.md"
TIMEOUT = 10.0  # seconds without a verdict
#: Codecs of the Python readers. Without one they refuse its batches.
LIBRARIES = ("cramjam", "lz4", "xxhash", "zstandard", "snappy")
HEAD = """# Conformance scores

Who accepts what: each implementation was asked about the cases of
[batchval-fixtures](../../fixtures/README.md) by its
[runner](../../conformance/README.md). A case of the profile `reader` is wrong where a decoder
accepts a batch that breaks a rule, or refuses one that obeys all. The rules with a number are
Kafka's. The rules S3 and S5 are stricter than Kafka's own consumer: a wrong answer there is not a
fault. A case is failed where the implementation aborted or did not answer any more.

Of the cases of librdkafka that are failed, six abort. Four of these, run by hand, end in its own
assertions: `rd_slice_narrow_copy` and `rd_slice_init_full` of rdbuf.c. In the five others, all
gzip, librdkafka reports neither a record nor an error. Two of them had no verdict after 40 s; a
stack trace of one shows the broker thread in `rd_gz_decompress`, in a call of `inflate`.

In the profile `broker` LogValidator alone is asked, with ProduceRequest.validateRecords and the
checksum. UnifiedLog is not asked, so rules that it asks (10, 12, 13, 40 and 43 to 47) count as
wrong; appends of followers do not reach LogValidator and are skipped.

This page is generated: `python -m conformance.scores --write`.
"""
MAX_RULES_NAMED = 3  # of each implementation that the page names


@dataclass(frozen=True)
class Implementation:
    """An implementation, and how its runner is started."""

    name: str
    version: str
    language: str
    profile: str
    command: Callable[[], list[str]]


def _python(*words: str) -> Callable[[], list[str]]:
    def command() -> list[str]:
        for module in LIBRARIES:
            if find_spec(module) is None:
                raise SystemExit(f"{module} is missing, and changes the score: run make build")
        return [sys.executable, str(RUNNERS / words[0]), *words[1:]]

    return command


def _go(folder: str) -> Callable[[], list[str]]:
    return lambda: [str(built(RUNNERS / folder))]


def _java() -> list[str]:
    """Build the jar and return the command."""
    jar = RUNNERS / "kafka_java" / "target" / "kafka-java.jar"
    java = find_java()
    done = maven("package", java=Path(java), cwd=RUNNERS / "kafka_java")
    if done.returncode:
        raise SystemExit(f"mvn package failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return [java, "-jar", str(jar)]


IMPLEMENTATIONS = (
    Implementation("kafka-clients", "4.4.0", "Java", "reader", _java),
    Implementation("franz-go", "1.22.2", "Go", "reader", _go("franz_go")),
    Implementation("sarama", "1.61.1", "Go", "reader", _go("sarama")),
    Implementation("librdkafka", "2.16.0", "C", "reader", _python("librdkafka_reader.py")),
    Implementation(
        "kafka-python", "3.0.12", "Python", "reader", _python("python_reader.py", "kafka-python")
    ),
    Implementation(
        "aiokafka", "0.14.0", "Python", "reader", _python("python_reader.py", "aiokafka")
    ),
    Implementation("LogValidator", "4.4.0", "Java", "broker", _java),
)


def scored(one: Implementation) -> dict[str, Any]:
    """Return the score of an implementation as the report holds it."""
    score = Score(one.profile)
    deque(run(Runner(one.command(), TIMEOUT), read([CASES], one.profile), score), maxlen=0)
    about = {
        "name": one.name,
        "version": one.version,
        "language": one.language,
        "profile": one.profile,
    }
    rules = [
        {"rule": rule, "slug": slug, **asdict(numbers)} for rule, slug, numbers in score.rows()
    ]
    return {**about, "rules": rules, **asdict(score.total)}


def _sums(one: dict[str, Any], strict: bool) -> str:
    """Return "right of cases" of the S rules, or of Kafka's rules and the sound batches."""
    chosen = [rule for rule in one["rules"] if rule["rule"].startswith("S") == strict]
    sums = RuleScore(**{name: sum(rule[name] for rule in chosen) for name in OUTCOMES})
    return f"{sums.right} of {sums.cases}"


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |\n"


def _notes(report: dict[str, Any]) -> str:
    """Return the section that names the rules with the most answers that are not right."""
    text = "\n## Rules with the most wrong answers\n\n"
    for one in report["scores"]:
        missed = [(rule["wrong"] + rule["failed"], rule) for rule in one["rules"]]
        missed.sort(key=lambda pair: -pair[0])
        parts = [
            f"{rule['rule']} {rule['slug']} ({count} of {sum(rule[name] for name in OUTCOMES)})"
            for count, rule in missed[:MAX_RULES_NAMED]
            if count
        ]
        line = f"* {one['name']}: {'; '.join(parts) or 'none'}."
        text += textwrap.fill(line, 100, subsequent_indent="  ", break_on_hyphens=False) + "\n"
    return text


def page(report: dict[str, Any]) -> str:
    """Return the page of a report."""
    text = f"{HEAD}\n{report['date']}, commit {report['commit']}.\n\n"
    text += _row("implementation", "language", "profile", *OUTCOMES, "Kafka's rules", "S rules")
    text += _row(*["---"] * 9)
    for one in report["scores"]:
        numbers = [one[name] for name in OUTCOMES]
        sums = [_sums(one, strict) for strict in (False, True)]
        text += _row(
            f"{one['name']} {one['version']}", one["language"], one["profile"], *numbers, *sums
        )
    text += _notes(report)
    readers = [one for one in report["scores"] if one["profile"] == "reader"]
    text += "\n## Readers by rule\n\nRight answers; `none` are batches that break no rule.\n\n"
    text += _row("rule", "name", "cases", *(one["name"] for one in readers))
    text += _row(*["---"] * (3 + len(readers)))
    for rows in zip(*(one["rules"] for one in readers), strict=True):
        cases = sum(rows[0][name] for name in OUTCOMES)
        text += _row(rows[0]["rule"], rows[0]["slug"], cases, *(row["right"] for row in rows))
    return text


def main() -> None:
    """Score the implementations."""
    parser = argparse.ArgumentParser(description="Score the implementations that have a runner.")
    parser.add_argument("--only", metavar="NAME", help="Name of one implementation.")
    parser.add_argument("--write", action="store_true", help="Write the report and its page.")
    options = parser.parse_args()
    if options.only and options.write:
        parser.error("--write cannot be combined with --only: the report has one commit for all")
    if options.only not in (None, *(one.name for one in IMPLEMENTATIONS)):
        names = ", ".join(one.name for one in IMPLEMENTATIONS)
        parser.error(f"invalid --only {options.only!r}: expected one of {names}")
    scores = []
    for one in IMPLEMENTATIONS:
        if options.only in (None, one.name):
            scores.append(scored(one))
            numbers = ", ".join(f"{scores[-1][name]} {name}" for name in OUTCOMES)
            print(f"{one.name} {one.version}, {one.profile}: {numbers}", flush=True)
    if options.write:
        commit = subprocess.run(
            ["git", "rev-parse", "--short=8", "HEAD"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        report = {"date": today, "commit": commit, "scores": scores}
        REPORT.write_text(page(report), "utf-8")


if __name__ == "__main__":
    main()

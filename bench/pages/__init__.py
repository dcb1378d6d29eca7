"""Pages of docs/benchmarks, rendered from measured results, and sections of docs/reports.

A bench measures, and saves what the pages show as JSON in bench/results: `save`. The modules of
this package read nothing but that JSON:

    validation claims broker_claims proxy ...        one page each: TITLE, ABOUT, SOURCES, render
    index                                            docs/benchmarks/README.md
    reports                                          sections of docs/reports
    headline, bars                                   the rows and the chart of the project's README
    audit_costs                                      batchval/audit/costs.json, by its own command

``python -m bench.pages`` writes all of it again (`__main__`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results"
DOCS = ROOT / "docs" / "benchmarks"
REPORTS = ROOT / "docs" / "reports"

#: characters of a line in bench/results that is not divided
MAX_ROW = 500

Result = dict[str, Any]


def read(name: str) -> Result:
    """Return the saved result of that name."""
    result: Result = json.loads((RESULTS / f"{name}.json").read_text("utf-8"))
    return result


def check_commit(machine: dict[str, Any]) -> None:
    """Raise SystemExit if the sources that are measured are in no commit."""
    commit = machine["commit"]
    if "with changes" in commit or commit == "?":
        raise SystemExit(f"cannot save a result of commit {commit!r}: commit batchval/ first")


def compact(value: Any, indent: int = 0) -> str:
    """Return JSON in which a row of a table is a line, so that a difference shows whole rows.

    What is longer than MAX_ROW has a line for each of its parts.
    """
    line = json.dumps(value, ensure_ascii=False)
    if len(line) <= MAX_ROW or not isinstance(value, dict | list | tuple):
        return line
    if isinstance(value, dict):
        parts = [
            f"{json.dumps(key, ensure_ascii=False)}: {compact(each, indent + 1)}"
            for key, each in value.items()
        ]
    else:
        parts = [compact(each, indent + 1) for each in value]
    begin, end = "{}" if isinstance(value, dict) else "[]"
    inner, outer = "\n" + " " * (indent + 1), "\n" + " " * indent
    return f"{begin}{inner}{f',{inner}'.join(parts)}{outer}{end}"


def save(name: str, result: Result) -> None:
    """Save a result, and write the pages anew. Raises SystemExit if it has no commit.

    A result holds what the pages read. All samples of a run are in the file that --out names.
    """
    from bench.pages import __main__ as pages

    check_commit(result["machine"])
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.json").write_text(compact(result) + "\n", "utf-8")
    pages.write(pages.documents())

"""Measure hostile clients of a gate, and print a table: ``python -m tests.evidence.hostile_gate``.

    --only TEXT       attacks whose name contains it; may be repeated
    --checkout DIR    the built checkout whose gate runs; default: this one
    --tries N         measure an attack that is above a ceiling so often, and keep the best (3)
    --json FILE       also save every figure
    --write           save in bench/results (a whole run of this checkout's commit)

Exits with 1 if a figure is above its ceiling (ceilings.py).
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

from bench import pages, runs
from tests.evidence.hostile_gate import measure, unread_answers
from tests.evidence.hostile_gate.attacks import ATTACKS
from tests.evidence.hostile_gate.ceilings import broken, shares
from tests.evidence.hostile_gate.gate_under_test import ROOT
from tests.evidence.hostile_gate.measure import Found, best_of, shown
from tests.evidence.hostile_gate.page import kept, table_of


def measured(name: str, tries: int, checkout: Path) -> Found:
    """Measure one attack; an error of the harness or of the gate is a figure, too."""
    one = (
        unread_answers.measured
        if name == unread_answers.NAME
        else partial(measure.measured, ATTACKS[name])
    )
    try:
        found = best_of(partial(one, checkout), tries)
    except (RuntimeError, EOFError, OSError) as error:
        return {"attack": name, "error": f"{type(error).__name__}: {error}"}
    return found | {"shares": shares(found), "broken": broken(found)}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--checkout", type=Path, default=ROOT)
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(argv)
    names = [
        name
        for name in (*ATTACKS, unread_answers.NAME)
        if not options.only or any(t in name for t in options.only)
    ]
    if options.write and (options.only or options.checkout != ROOT):
        parser.error("--write needs a whole run of this checkout: without --only and --checkout")
    result: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "attacks": [],
    }
    if options.write:
        result["machine"] = machine_of()
        pages.check_commit(result["machine"])
    for name in names:
        found = measured(name, options.tries, options.checkout)
        result["attacks"].append(found)
        print(
            f"# {found['error']}" if "error" in found else shown(found), file=sys.stderr, flush=True
        )
    print(table_of(result["attacks"]))
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    if options.write:
        attacks = [kept(found) for found in result["attacks"]]
        pages.save("hostile", result | {"attacks": attacks})
    above = [
        found["attack"] for found in result["attacks"] if found.get("error") or found["broken"]
    ]
    print(f"hostile gate: {len(names)} attacks, {len(above)} above a ceiling")
    return int(bool(above))


def machine_of() -> dict[str, Any]:
    """Return what the bench runs on, as the other benches have it."""
    return runs.describe()


if __name__ == "__main__":
    sys.exit(main())

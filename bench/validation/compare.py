"""Measure again, and compare the ratios with a saved baseline: exit code 1 if one got worse.

    python -m bench compare [--baseline FILE] [--new FILE] [options of python -m bench validation]

A ratio is worse when it has lost more than both runs' spreads together, and at least
``--tolerance`` (10 %): ratios of one run carry from machine to machine better than times, but not
perfectly.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from bench import pages, runs
from bench.validation import report

BASELINE = pages.RESULTS / "validation.json"


def loss(old: dict[str, Any], new: dict[str, Any]) -> float | None:
    """Return the loss of the new value as a share of the old one; negative is better.

    None for what is not a ratio.
    """
    if old["group"] == report.CALLS:
        return float(new["value"] - old["value"])
    if old["group"] == report.SMALL:
        return None
    return float(old["value"] / new["value"]) - 1


def compare(
    old: list[dict[str, Any]], new: list[dict[str, Any]], tolerance: float
) -> list[tuple[dict[str, Any], dict[str, Any], float, bool]]:
    """Return both rows of each ratio, what was lost, and whether that is beyond the spreads."""
    before = {(row["group"], row["name"]): row for row in old}
    found = []
    for row in new:
        was = before.get((row["group"], row["name"]))
        if was is not None and (lost := loss(was, row)) is not None:
            spreads = was.get("spread", 0.0) + row.get("spread", 0.0)
            found.append((was, row, lost, lost > max(tolerance, spreads)))
    return found


def read(path: Path) -> dict[str, Any]:
    """Return a result. Raises SystemExit if the file has none."""
    try:
        result: dict[str, Any] = json.loads(path.read_text())
        result["rows"], result["machine"]["commit"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise SystemExit(f"{path} is not the JSON of a result: {error!r}") from error
    return result


def main(argv: list[str] | None = None) -> int:
    parser = runs.parser(__doc__, quick="", is_saved=False)
    add = parser.add_argument
    add("--baseline", type=Path, default=BASELINE, help="A saved result.")
    add("--new", type=Path, help="A result to compare (default: measure now).")
    add("--tolerance", type=float, default=0.10, help="Least loss that counts (default: 0.10).")
    options, others = parser.parse_known_args(argv)
    if not options.baseline.exists():
        runs.tell(
            f"no baseline at {options.baseline}: python -m bench validation --write saves one"
        )
        return 2
    old = read(options.baseline)
    if options.new is not None:
        new = read(options.new)
    else:
        from bench.validation import run

        new, _ = run.Bench(run.arguments(others)).run()
    found = compare(old["rows"], new["rows"], options.tolerance)
    if not found:
        runs.tell("nothing to compare: no row is in both")
        return 2
    print(
        f"baseline {old['machine']['commit']} of {old['machine']['date'][:10]}, now {new['machine']['commit']}"
    )
    worse = 0
    for was, now, lost, regressed in found:
        worse += regressed
        if regressed or lost < -options.tolerance:
            word = "WORSE " if regressed else "better"
            spreads = f"spreads {was.get('spread', 0):.0%}, {now.get('spread', 0):.0%}"
            figures = f"{was['value']:.3f} -> {now['value']:.3f} ({lost:+.0%}; {spreads})"
            print(f"{word} {now['group']}: {now['name']}: {figures}")
    print(f"{len(found)} rows compared, {worse} worse beyond the spread")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())

"""The command: see the package's docstring."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import tools.trial as package
from tools import dist
from tools.trial.plan import Row, attempt
from tools.trial.systems import systems


def table(rows: list[Row]) -> str:
    """Return the rows as a table in Markdown."""
    lines = ["| CPython | platform | system | ran | result |", "|---|---|---|---|---|"]
    for one in rows:
        cells = (one.version, one.platform, one.system, ", ".join(one.ran), one.result)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit code."""
    every = systems()
    parser = argparse.ArgumentParser(
        prog="python -m tools.trial",
        description=package.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only", action="append", choices=every, help="Try this system only; may be repeated."
    )
    parser.add_argument(
        "--wheels",
        type=Path,
        default=dist.OUT / "wheels",
        help="Folder of the wheels (default: dist/wheels).",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        help="Number of compilers at once (default: all cores).",
    )
    options = parser.parse_args(arguments)
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        print("trial: root on Linux is needed: chroot and namespaces", file=sys.stderr)
        return 1
    rows = []
    for name in options.only or every:
        with dist.step(name):
            rows.append(attempt(every[name], options.wheels.resolve(), options.jobs))
    print(table(rows))
    return int(not all(one.passed for one in rows))


if __name__ == "__main__":
    sys.exit(main())

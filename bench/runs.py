"""Run a bench: its options, its peers in turns, what it ran on, and where its result goes.

A bench declares its sides and how one of them is measured. This module has the rest:

    parser, parse            --rounds, --quick, --write, --out, and when a result may be saved
    program                  the command of a module of bench/ in a process of its own
    describe, head           processor, versions, commit, date: the head of every result
    ratios, spread, verdict  figures of rounds
    finish                   print, write build/bench, save bench/results
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import pages
from bench.pages import text as page_text

ROOT = pages.ROOT
BUILD = ROOT / "build" / "bench"  # git ignores it
VERDICTS = MET, NOISE, MISSED = "met", "noise", "missed"
PACKAGES = ["aiokafka", "kafka-python", "crc32c", "google-crc32c"]
PACKAGES += ["lz4", "zstandard", "python-snappy", "numpy"]
GO_MOD = ROOT / "bench" / "validation" / "go" / "go.mod"


# ---- options -------------------------------------------------------------------------------------


def parser(
    doc: str | None,
    *,
    rounds: int | None = None,
    quick: str = "one short round: a look, no result",
    out: str = "",
    is_saved: bool = True,
    is_json: bool = False,
) -> argparse.ArgumentParser:
    """Return a parser with the options that this bench shares with others.

    ``rounds`` is the default of --rounds, ``out`` that of --out below build/bench. A bench has
    neither option without its default, --quick without its help, --write if it is not saved, or
    --json unless it is asked for.
    """
    made = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = made.add_argument
    if rounds:
        add("--rounds", type=positive, default=rounds, help=f"Rounds (default: {rounds}).")
    if quick:
        add("--quick", action="store_true", help=f"Measure {quick}.")
    if out:
        add("--out", type=Path, default=BUILD / out, help="Output file without its suffix.")
    if is_saved:
        saves = "Save the result in bench/results, and render the pages from it."
        add("--write", action="store_true", help=saves)
    if is_json:
        add("--json", action="store_true", help="Print JSON instead of the table.")
    return made


def look(doc: str | None) -> argparse.ArgumentParser:
    """Return the parser of a bench whose result is printed, and not saved."""
    return parser(doc, quick="", is_saved=False, is_json=True)


def parse(
    made: argparse.ArgumentParser,
    argv: list[str] | None,
    needs: Callable[[argparse.Namespace], str] = lambda options: "",
    whole: Sequence[str] = (),
) -> argparse.Namespace:
    """Return the options. ``needs`` returns what a run lacks that is to be saved.

    Such a run has at least the defaults of the options in ``whole``. Raises SystemExit if it is
    short, lacks something, or measures sources without commit.
    """
    options = made.parse_args(argv)
    if getattr(options, "write", False):
        if getattr(options, "quick", False):
            made.error("--write needs a whole run: without --quick")
        if lacking := needs(options) or _partial(made, options, whole):
            made.error(f"--write needs {lacking}")
        pages.check_commit(describe())
    return options


def _partial(
    made: argparse.ArgumentParser, options: argparse.Namespace, whole: Sequence[str]
) -> str:
    """Return the options whose numbers or names are fewer than by default; an empty string if none
    are.
    """

    def is_partial(name: str) -> bool:
        found, default = getattr(options, name), made.get_default(name)
        if isinstance(default, str):
            found, default = found.split(","), default.split(",")
        return bool(set(default) - set(found) if isinstance(default, Sequence) else found < default)

    partial = ["--" + name.replace("_", "-") for name in whole if is_partial(name)]
    return f"a whole run: at least the default of {', '.join(partial)}" if partial else ""


def positive(text: str) -> int:
    """Return a number of at least 1, as an option's type."""
    if not text.isdecimal() or (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(
            f"invalid number {text!r}: expected a whole number of at least 1"
        )
    return number


def add_codecs(
    made: argparse.ArgumentParser, allowed: Sequence[str], default: Sequence[str] = ()
) -> None:
    """Add --codecs, which takes some of these names."""
    default = tuple(default or allowed)
    text = f"Codecs, with commas (default: {','.join(default)})."
    made.add_argument("--codecs", type=names(allowed, "codec"), default=default, help=text)


def again(
    doc: str | None,
    name: str,
    assess: Callable[[dict[str, Any]], dict[str, Any]],
    text: Callable[[dict[str, Any]], str],
) -> int:
    """Evaluate the samples of a run again: the main of a module with this ``assess``."""
    made = parser(doc, quick="")
    made.add_argument("samples", type=Path, metavar="FILE", help="JSON of the samples of a run.")
    options = parse(made, None)
    found = assess(json.loads(options.samples.read_text()))
    finish(options, name, found, text(found))
    return 0


def names(allowed: Sequence[str], what: str) -> Callable[[str], tuple[str, ...]]:
    """Return the type of an option that takes some of these names, with commas."""

    def names_of(text: str) -> tuple[str, ...]:
        found = tuple(name for name in text.split(",") if name)
        for name in found:
            if name not in allowed:
                expected = ", ".join(allowed)
                raise argparse.ArgumentTypeError(f"invalid {what} {name!r}: expected {expected}")
        if not found:
            raise argparse.ArgumentTypeError(f"no {what}: expected {', '.join(allowed)}")
        return found

    return names_of


# ---- processes -----------------------------------------------------------------------------------


def program(name: str, *words: object) -> list[str]:
    """Return the command that runs a module of bench/ from the root, for example claims.paced."""
    return [sys.executable, "-m", f"bench.{name}", *map(str, words)]


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process, all threads, ended ones too."""
    return time.clock_gettime((~pid << 3) | 2)  # MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED)


def tell(line: str) -> None:
    """Print a line of progress."""
    print(line, file=sys.stderr, flush=True)


def load() -> float:
    """Return the load average of the last minute."""
    return os.getloadavg()[0]


# ---- figures of rounds ---------------------------------------------------------------------------


def ratios(above: Sequence[float | None], below: Sequence[float | None]) -> list[float]:
    """Return the ratios of the rounds in which both have a figure."""
    return [a / b for a, b in zip(above, below, strict=False) if a is not None and b is not None]


def spread(values: Sequence[float]) -> float:
    """Return half the distance from the lowest to the highest, as a share of the median."""
    if len(values) < 2 or not statistics.median(values):
        return 0.0
    return (max(values) - min(values)) / 2 / abs(statistics.median(values))


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % confidence interval of the median; of few values, all of them.

    Order statistics of the binomial distribution.
    """
    ordered, n = sorted(values), len(values)
    below, tail = 0, 0.5**n
    while below < n // 2 and tail + math.comb(n, below + 1) * 0.5**n <= 0.025:
        below += 1
        tail += math.comb(n, below) * 0.5**n
    return ordered[below], ordered[-1 - below]


def verdict(value: float, target: float | None, better: str, spread: float) -> str:
    """Return ``met``, ``missed``, or ``noise`` where no more than the spread is lacking.

    An empty string without a target. ``better`` is higher or lower.
    """
    if target is None:
        return ""
    if value >= target if better == "higher" else value <= target:
        return MET
    if target == 0 or value == 0:
        return MISSED
    lacking = target / value - 1 if better == "higher" else value / target - 1
    return NOISE if lacking <= spread else MISSED


# ---- results -------------------------------------------------------------------------------------


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    except OSError:
        return ""
    return done.stdout.strip()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _commit() -> str:
    changed = _output("git", "status", "--porcelain", "--untracked-files=no", "--", "batchval")
    commit = _output("git", "rev-parse", "--short", "HEAD") or "?"
    return f"{commit} with changes" if changed else commit


def describe() -> dict[str, Any]:
    """Return what a bench runs on: processor, system, versions, commit."""
    from batchval import compression
    from batchval.core import crc32c

    modules = (line.split() for line in GO_MOD.read_text().splitlines())
    return {
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "python": platform.python_version(),
        "compiler": _output(os.environ.get("CC", "cc"), "--version").partition("\n")[0],
        "commit": _commit(),
        "codecs": compression.describe(),
        "crc32c": crc32c.kernel(),
        "packages": {name: _version(name) for name in PACKAGES},
        "franz-go": next((w[1] for w in modules if w[:1] == ["github.com/twmb/franz-go"]), "?"),
    }


def now() -> str:
    """Return the date and time of a result."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def head() -> dict[str, Any]:
    """Return the head of a result: the date and the machine."""
    return {"date": now(), "machine": describe()}


def source(found: dict[str, Any]) -> str:
    """Return the day, the commit and the processor of a result."""
    machine = found["machine"]
    return f"{found['date'][:10]}, commit {machine['commit']}, {machine['processor']}"


def shown(value: object) -> str:
    """Return a value as a table has it: None is ``-``, large floats have no decimals."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def columns(*rows: Sequence[object], names: int = 1) -> str:
    """Return a table as text, columns by their widest value. The first ``names`` are flush left."""
    texts = [[shown(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    lines = []
    for row in texts:
        cells = [
            text.ljust(width) if n < names else text.rjust(width)
            for n, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def goals(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return the internal goals as Markdown; columns without a value are left out."""
    bold = {MISSED: f"**{MISSED}**", "not measured": "**not measured**"}
    table = page_text.table(headings, [[bold.get(cell, cell) for cell in row] for row in rows])
    return f"## Internal goals\n\n{table}\n"


def write(out: Path, found: dict[str, Any], text: str) -> None:
    """Write OUT.json, all that was measured, and OUT.md, as people read it."""
    out.parent.mkdir(parents=True, exist_ok=True)
    out.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
    out.with_suffix(".md").write_text(text)


def finish(options: argparse.Namespace, name: str, found: dict[str, Any], text: str) -> None:
    """Print a result, write it where --out says, and save it under its name with --write."""
    if getattr(options, "out", None):
        write(options.out, found, text)
    print(json.dumps(found, indent=1) if getattr(options, "json", False) else text)
    if getattr(options, "write", False):
        pages.save(name, found)

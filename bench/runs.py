"""Run a bench: its options, its ways in turns, what it ran on, and where its result goes.

A bench declares its ways and how one of them is measured. This module has the rest:

    parser, parse      --rounds, --quick, --write, --out, and when a result may be saved
    in_turns           rounds in which all ways take turns
    program, Child     the command of a module of bench/, and a process that answers lines of JSON
    ratios, spread     figures of rounds
    head               the date and the machine: the head of every result
    finish             print, write build/bench, save bench/results
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from bench import pages

T = TypeVar("T")
ROOT = pages.ROOT
BUILD = ROOT / "build" / "bench"  # git ignores it
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
) -> argparse.ArgumentParser:
    """Return a parser with the options that this bench shares with others.

    ``rounds`` is the default of --rounds, ``out`` that of --out below build/bench. A bench has
    neither option without its default, --quick without its help, or --write if it is not saved.
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
    return made


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
    """Return the options whose numbers or names are fewer than by default."""

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


def add_codecs(made: argparse.ArgumentParser, allowed: Sequence[str]) -> None:
    """Add --codecs, which takes some of these names."""
    text = f"Codecs, with commas (default: {','.join(allowed)})."
    made.add_argument("--codecs", type=names(allowed, "codec"), default=tuple(allowed), help=text)


def names(allowed: Sequence[str], what: str) -> Callable[[str], tuple[str, ...]]:
    """Return the type of an option that takes some of these names, with commas."""

    def names_of(text: str) -> tuple[str, ...]:
        found = tuple(name for name in text.split(",") if name)
        expected = ", ".join(allowed)
        for name in found:
            if name not in allowed:
                raise argparse.ArgumentTypeError(f"invalid {what} {name!r}: expected {expected}")
        if not found:
            raise argparse.ArgumentTypeError(f"no {what}: expected {expected}")
        return found

    return names_of


# ---- ways and processes --------------------------------------------------------------------------


def in_turns(
    ways: Mapping[str, Callable[[], T]],
    rounds: int,
    *,
    warm_ups: int = 0,
    seen: Callable[[str, T], str] = lambda name, sample: "",
) -> dict[str, list[T]]:
    """Measure each way once a round, every second round in reverse order.

    A slow minute of the machine then affects all ways. The first ``warm_ups`` rounds are dropped.
    ``seen`` returns a sample as a line of progress.
    """
    found: dict[str, list[T]] = {name: [] for name in ways}
    for number in range(-warm_ups, rounds):
        for name in list(ways)[:: -1 if number % 2 else 1]:
            sample = ways[name]()
            if number >= 0:
                found[name].append(sample)
            if text := seen(name, sample):
                tell(f"round {number + 1} of {rounds}: {name}: {text}")
    return found


def program(name: str, *words: object) -> list[str]:
    """Return the command that runs a module of bench/ from the root, for example proxy.gate."""
    return [sys.executable, "-m", f"bench.{name}", *map(str, words)]


class Child:
    """A process that answers each line with a line of JSON, and ends with its input."""

    def __init__(self, command: Sequence[object], environment: dict[str, str] | None = None):
        self.process = subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=ROOT,
        )

    def answer(self) -> dict[str, Any]:
        """Return the next line; ``error`` and what the process wrote to stderr if it has ended."""
        assert self.process.stdout is not None
        if line := self.process.stdout.readline():
            return dict(json.loads(line))
        _, errors = self.process.communicate()
        return {"error": f"process ended with {self.process.returncode}: {errors.strip()[-300:]}"}

    def line(self, text: str) -> dict[str, Any]:
        """Send a line, and return its answer."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(text + "\n")
            self.process.stdin.flush()
        return self.answer()

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request as JSON, and return its answer."""
        return self.line(json.dumps(request))

    def stop(self) -> None:
        """End the process."""
        if self.process.poll() is None:
            self.process.communicate()


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


def _commit() -> str:
    changed = _output("git", "status", "--porcelain", "--untracked-files=no", "--", "batchval")
    commit = _output("git", "rev-parse", "--short", "HEAD") or "?"
    return f"{commit} with changes" if changed else commit


def describe() -> dict[str, Any]:
    """Return what a bench runs on: processor, system, Python and commit."""
    return {
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "python": platform.python_version(),
        "commit": _commit(),
    }


def libraries() -> dict[str, Any]:
    """Return the compiler, the codecs, the CRC-32C kernel, and the versions of other libraries."""
    from batchval import compression
    from batchval.core.format import crc32c

    modules = (line.split() for line in GO_MOD.read_text().splitlines())
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return {
        "compiler": _output(os.environ.get("CC", "cc"), "--version").partition("\n")[0],
        "codecs": compression.describe(),
        "crc32c": crc32c.kernel(),
        "packages": versions,
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


def columns(*rows: Sequence[object], names: int = 1) -> str:
    """Return a table as text, columns by their widest value. The first ``names`` are flush left."""
    texts = [[f"{v:,.2f}" if isinstance(v, float) else str(v) for v in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    lines = []
    for row in texts:
        cells = [
            text.ljust(width) if n < names else text.rjust(width)
            for n, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def finish(
    options: argparse.Namespace,
    name: str,
    found: dict[str, Any],
    text: str,
    samples: Mapping[str, Any] | None = None,
) -> None:
    """Print a result, write it where --out says, and save it under its name with --write.

    ``samples`` are written where --out says, and not saved.
    """
    if out := getattr(options, "out", None):
        out.parent.mkdir(parents=True, exist_ok=True)
        whole = {**found, **(samples or {})}
        out.with_suffix(".json").write_text(pages.compact(whole) + "\n", "utf-8")
        out.with_suffix(".md").write_text(text, "utf-8")
    print(text)
    if getattr(options, "write", False):
        pages.save(name, found)

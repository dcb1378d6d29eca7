"""The gate of this checkout and that of another one, the version before, cell by cell in turns.

    python bench/proxy/before.py CHECKOUT [--rounds 20] [--cells TEXT] [--json FILE]

CHECKOUT is a built checkout of the project (git worktree). Both gates are up at once between the
same client and the same broker (wire.c), and take turns: in each round both run each cell, the
second round in the other order, and so on. What else the machine does meets both. The ratio is the
CPU of the gate's process by byte (or request), this checkout over the other, round by round;
its median comes with a 95 % interval from 2,000 resamples of the rounds. ``met`` where the whole
interval is at most 1.03, ``missed`` where all of it is above, ``open`` else: more rounds decide.
Exits with 1 where a cell is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import ends
import load
import verdicts

CEILING = 1.03
RESAMPLES = 2_000
NOW, BEFORE = "now", "before"
WAYS = ("validating", "off", "trust", "audit")


class Cell(NamedTuple):
    """What is sent to a gate that works in one way."""

    size: str
    codec: str
    way: str
    tls: bool = False

    @property
    def name(self) -> str:
        return f"{self.size} {'TLS' if self.tls else self.codec}, {self.way}"

    @property
    def with_claims(self) -> bool:
        return self.codec != "none" and self.way != "validating"


def cells(codecs: list[str]) -> list[Cell]:
    """Return every cell of proxies.py that the gate has."""
    found = [Cell(size, "none", way) for size in load.SIZES for way in ("validating", "off")]
    found += [
        Cell(size, "none", way, True)
        for size in verdicts.TLS_SIZES
        for way in ("validating", "off")
    ]
    return found + [
        Cell(size, codec, way) for size in ("64 kB", "1 MB") for codec in codecs for way in WAYS
    ]


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """Return the median of the ratios and the bounds of its 95 % interval."""
    rng = random.Random(len(ratios))
    medians = sorted(
        statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES)
    )
    return statistics.median(ratios), medians[RESAMPLES // 40], medians[-RESAMPLES // 40]


def verdict(low: float, high: float) -> str:
    """Return met, missed or open."""
    return "met" if high <= CEILING else "missed" if low > CEILING else "open"


class Pair:
    """The two gates of one way, and the client."""

    def __init__(self, way: str, tls: bool, other: Path, answers: Path, seconds: float) -> None:
        certificate = ends.certificate() if tls else None
        self.answers, self.seconds, self.tls = answers, seconds, tls
        self.broker = ends.broker(answers, ends.Place())
        self.gates = {
            name: ends.gate(way, self.broker.port, ends.Place(), certificate, root=root)
            for name, root in ((NOW, load.ROOT), (BEFORE, other))
        }

    def cpu(self, name: str, of: load.Load) -> float:
        """Return the CPU seconds of a gate by request in one run."""
        gate = self.gates[name]
        before = gate.cpu_s()
        sample = ends.client(
            *(gate.port, of.path, self.answers, ends.Place()),
            connections=4,
            window=5,
            seconds=self.seconds,
            tls=self.tls,
        )
        return float((gate.cpu_s() - before) / sample["requests"])

    def stop(self) -> None:
        for process in (*self.gates.values(), self.broker):
            process.stop()


def in_turns(rounds: int) -> Iterator[tuple[str, str]]:
    """Yield which of the two goes first and second in each round."""
    for number in range(rounds):
        yield (NOW, BEFORE) if number % 2 == 0 else (BEFORE, NOW)


def measured(pair: Pair, of: load.Load, rounds: int) -> list[float]:
    """Return the ratio of each round, after one that does not count."""
    ratios = []
    for number, order in enumerate(in_turns(rounds + 1)):
        taken = {name: pair.cpu(name, of) for name in order}
        if number:
            ratios.append(taken[NOW] / taken[BEFORE])
    return ratios


def metadata(other: Path, rounds: int, calls: int) -> list[float]:
    """Return the ratios of rewriting a Metadata response: the best of the calls of each process."""
    ratios = []
    roots = {NOW: load.ROOT, BEFORE: other}
    for order in in_turns(rounds):
        best = {}
        for name in order:
            program = roots[name] / "bench" / "proxy" / "metadata.py"
            command = [sys.executable, str(program), "--calls", str(calls)]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
            best[name] = json.loads(done.stdout)["best_us"]
        ratios.append(best[NOW] / best[BEFORE])
    return ratios


def row(name: str, ratios: list[float]) -> dict[str, Any]:
    middle, low, high = interval(ratios)
    found = {"cell": name, "ratio": middle, "low": low, "high": high, "ratios": ratios}
    found["verdict"] = verdict(low, high)
    print(f"| {name} | {middle:.3f} | {low:.3f} to {high:.3f} | {found['verdict']} |", flush=True)
    return found


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure every cell that was asked for, way by way."""
    wanted = [one for one in cells(options.codecs) if options.cells in one.name]
    answers = load.answers(ends.BUILD / "answers.bin")
    rows = []
    for way, tls in dict.fromkeys((one.way, one.tls) for one in wanted):
        pair = Pair(way, tls, options.checkout, answers, options.seconds)
        try:
            for one in wanted:
                if (one.way, one.tls) == (way, tls):
                    of = load.make(ends.BUILD, one.size, one.codec, claims=one.with_claims)
                    rows.append(row(one.name, measured(pair, of, options.rounds)))
        finally:
            pair.stop()
    if options.cells in verdicts.METADATA:
        rows.append(row(verdicts.METADATA, metadata(options.checkout, options.rounds, 500)))
    return rows


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", type=lambda text: Path(text).resolve())
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.25, help="of each run")
    parser.add_argument(
        "--codecs", type=lambda text: text.split(","), default=["lz4", "zstd", "gzip", "snappy"]
    )
    parser.add_argument(
        "--cells", default="", metavar="TEXT", help="only cells whose name contains it"
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(argv)
    ends.BUILD.mkdir(parents=True, exist_ok=True)
    print(
        f"load average {os.getloadavg()[0]:.1f}; {options.rounds} rounds;",
        f"CPU of this checkout over {options.checkout}",
    )
    print("| cell | ratio | 95 % | verdict |\n| --- | --- | --- | --- |")
    rows = run(options)
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    missed = [one["cell"] for one in rows if one["verdict"] == "missed"]
    print(f"{len(rows)} cells, {len(missed)} above {CEILING}")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())

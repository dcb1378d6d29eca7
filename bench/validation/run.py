"""Time batchval, Apache Kafka's LogValidator and other libraries, on the same bytes.

Each peer is a process of its own; all peers take turns cell by cell, round after round, so that a
slow minute of the machine hits all of them. Prints the table of targets, writes JSON and Markdown.

    python -m bench validation [--only codec=zstd] [--rounds 5] [--quick] [--write]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from bench import runs
from bench.validation import (
    batches,
    cells,
    jmh,
    native,
    peers,
    report,
    samples,
)
from bench.validation.report import pages

SAMPLE_NS = 3e6
FAST_WITHIN = (
    1.2  # a sample is of the fast state if its probe is within this of the best probe seen
)
TINY = {(1, 100), (100, 100), (100, 1000)}
ALLOCATION_CELLS = [(1, 100), (100, 1000), (1000, 100)]
ALLOCATION_OPERATIONS = [
    "result_alone",
    "check_kept",
    "check",
    "validate_in_place",
    "check_ranges",
    "scan_batches",
]

Raw = dict[str, dict[str, list[dict[str, Any]]]]


def parser() -> argparse.ArgumentParser:
    cores = sorted(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(
        description="Time batchval, Kafka and other peers on the same bytes."
    )
    parser.add_argument(
        "--batches",
        type=Path,
        help="folder of bench batches (default: made by the oracle, or by batches.py)",
    )
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default 5)")
    parser.add_argument(
        "--samples", type=int, default=15, help="samples a round, of about 3 ms each (default 15)"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="one round, three shapes of batch, short warm-up: a look, no result",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="codec=, records=, value_size=, magic=, cells=NAME,NAME; may be repeated",
    )
    parser.add_argument(
        "--peers",
        default="kafka," + ",".join(peers.STARTERS),
        help="comma-separated (default: all)",
    )
    parser.add_argument("--java", help="default: the newest JDK here")
    parser.add_argument("--kafka-jar", type=Path, help="the oracle's jar (default: built by Maven)")
    parser.add_argument(
        "--core",
        type=int,
        default=cores[-1],
        help="the core for one-threaded peers (default: the last)",
    )
    parser.add_argument(
        "--jvm-cores",
        default=",".join(map(str, cores[:-1] if len(cores) > 2 else cores)),
        help="cores for the JVM and Go (default: the others; both, of two)",
    )
    parser.add_argument(
        "--nice", type=int, default=0, help="below 0, as root: measured processes go before others"
    )
    parser.add_argument(
        "--continue",
        dest="before",
        type=Path,
        metavar="OUT.raw.json",
        help="adds rounds to a run that was cut off",
    )
    parser.add_argument(
        "--out", type=Path, default=runs.BUILD / "result", help="for OUT.json and OUT.md"
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help="save the result in bench/results and write docs/benchmarks",
    )
    return parser


def arguments(argv: list[str] | None) -> argparse.Namespace:
    asked = parser()
    options = asked.parse_args(argv)
    if options.write and (options.quick or options.only):
        asked.error("--write needs a whole run: without --quick and --only")
    if options.write:
        pages.check_commit(runs.describe())
    if options.quick:
        options.rounds, options.samples = 1, 5
    return options


def chosen(options: argparse.Namespace) -> list[cells.Cell]:
    every = [*cells.cells(2), *cells.cells(1)]
    if options.quick:
        every = [cell for cell in every if (cell.records, cell.value_size) in TINY]
    for condition in options.only:
        key, _, value = condition.partition("=")
        if key == "cells" and value:
            every = [cell for cell in every if cell.name in value.split(",")]
            continue
        if key not in ("codec", "records", "value_size", "magic") or not value:
            raise SystemExit(
                f"--only takes codec=, records=, value_size=, magic= or cells=, not {condition!r}"
            )
        every = [cell for cell in every if str(getattr(cell, key)) == value]
    return every


def say(text: str) -> None:
    runs.tell(text)


class Bench:
    """One run: the peers that are here, and what they answered."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.folder: Path | None = options.batches
        self.own = peers.Place({options.core}, options.nice)
        self.many = peers.Place(
            {int(core) for core in str(options.jvm_cores).split(",")}, options.nice
        )
        wanted = [name for name in options.peers.split(",") if name]
        unknown = set(wanted) - {"kafka", *peers.STARTERS}
        if unknown:
            raise SystemExit(f"unknown peers: {', '.join(sorted(unknown))}")
        self.peers, self.missing = peers.available([name for name in wanted if name != "kafka"])
        self.kafka = self.find_kafka() if "kafka" in wanted else None
        self.batches_by = "Kafka's own builder" if options.batches is None else "others"
        if self.folder is None:
            self.folder, self.batches_by = batches.make(cells.BATCHES), "batches.py"
        self.raw: Raw = {}
        self.best_probe, self.rounds_before = 0.0, 0
        self.allocations_before: dict[str, dict[str, Any]] = {}
        self.repeated: dict[str, int] = {}  # --only, rounds
        if options.before is not None:
            earlier = json.loads(options.before.read_text())
            if earlier["machine"]["commit"] != runs.describe()["commit"]:
                raise SystemExit(
                    f"{options.before} is of another commit: its rounds are not of this run"
                )
            self.raw, self.rounds_before = earlier["raw"], earlier["machine"]["rounds"]
            self.best_probe = earlier["machine"]["best_probe_ns"]
            self.allocations_before = earlier["allocations"]
            self.repeated = earlier["machine"].get("repeated", {})

    def find_kafka(self) -> jmh.Kafka | None:
        java = self.options.java or jmh.newest_java()
        try:
            if java is None:
                raise RuntimeError("no JDK found")
            jar = self.options.kafka_jar or jmh.build_jar()
            if self.folder is None:
                self.folder = jmh.write_batches(java, jar, runs.BUILD / "kafka-batches")
            return jmh.Kafka(
                java, jar, self.folder.resolve(), self.many.prefix(), self.options.quick
            )
        except (
            Exception
        ) as error:  # whatever keeps the oracle from being built: the other rows can still be had
            self.missing["kafka"] = str(error)
            return None

    def keep(self, cell: str, what: str, answer: dict[str, Any]) -> None:
        self.raw.setdefault(cell, {}).setdefault(what, []).append(answer)
        if "error" in answer:
            say(f"  {cell} {what}: {answer['error']}")
        probes = answer.get("probe")
        if probes:
            best = min(probes)
            self.best_probe = min(best, self.best_probe) if self.best_probe else best

    def request(self, operation: str, path: Path) -> dict[str, Any]:
        return {
            "operation": operation,
            "path": str(path),
            "samples": self.options.samples,
            "sample_ns": SAMPLE_NS,
            "fast": round(self.best_probe * FAST_WITHIN),
        }

    def round(self, chosen_cells: list[cells.Cell]) -> None:
        running = {name: peers.STARTERS[name](self.own, self.many) for name in self.peers}
        try:
            for cell in chosen_cells:
                if self.kafka is not None:
                    benchmark = "brokerPath" if cell.magic == 2 else "validateInPlace"
                    self.keep(cell.name, "kafka", self.kafka.ask(cell, benchmark))
                for name, process in running.items():
                    for operation in peers.operations(name, cell):
                        self.keep(
                            cell.name,
                            f"{name} {operation}",
                            process.ask(**self.request(operation, cell.path(self.folder))),
                        )
        finally:
            for process in running.values():
                process.stop()
        if not self.options.only or "crc=1" in self.options.only:
            self.checksums()

    def checksums(self) -> None:
        """Measure CRC32C from Python and of uncached memory."""
        for size in (16 << 10, 1 << 20):
            path = runs.BUILD / f"bytes-{size}.bin"
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(bytes(range(251)) * (size // 251) + bytes(size % 251))
            sums = set()
            for name in ("batchval", "crc32c", "google-crc32c"):
                process = peers.worker(name, self.own)
                answer = process.ask(**self.request("crc32c", path))
                process.stop()
                self.keep(f"crc-{size}", name, answer)
                sums.add(answer.get("crc"))
            if len(sums - {None}) != 1:
                raise SystemExit(f"the peers' CRC32C differ: {sums}")
        process = peers.worker("memory", self.own)
        self.keep("memory", "cold", process.ask(operation="memory", samples=1, sample_ns=SAMPLE_NS))
        process.stop()

    def allocations(self, chosen_cells: list[cells.Cell]) -> dict[str, dict[str, Any]]:
        """Count allocator calls of each operation and of the Python peers; no time is measured."""
        out: dict[str, dict[str, Any]] = {}
        jobs = [
            ("native", "batchval", ALLOCATION_OPERATIONS),
            ("packages", "batchval", ["check", "check_ranges"]),
        ]
        jobs += [
            (name, name, ["records"]) for name in ("aiokafka", "kafka-python") if name in self.peers
        ]
        for label, peer, names in jobs:
            if label in self.missing or (label in peers.STARTERS and label not in self.peers):
                continue
            process = peers.counting_worker(
                peer, self.own, label if peer == "batchval" else "native"
            )
            for cell in chosen_cells:
                wanted = (
                    names
                    if cell.magic == 2
                    else (["validate_messages"] if peer == "batchval" else ["records"])
                )
                if (cell.records, cell.value_size) not in ALLOCATION_CELLS:
                    continue
                for name in wanted:
                    answer = process.ask(
                        operation=name, path=str(cell.path(self.folder)), count_calls=20
                    )
                    out.setdefault(cell.name, {})[f"{label} {name}"] = answer
            process.stop()
        return out

    def run(self) -> dict[str, Any]:
        chosen_cells = chosen(self.options)
        begun, load = time.time(), os.getloadavg()
        if self.peers:
            self.calibrate()
        for number in range(self.options.rounds):
            so_far = int(time.time() - begun)
            say(
                f"round {number + 1} of {self.options.rounds}: {len(chosen_cells)} cells, {so_far} s so far"
            )
            # magic 1 has no targets: one round says enough
            self.round(
                [
                    cell
                    for cell in chosen_cells
                    if cell.magic == 2 or number + self.rounds_before == 0
                ]
            )
            self.repeat_slow(chosen_cells)
            self.save_so_far(begun, load, number + 1)
        counted = self.allocations_before or self.allocations(chosen_cells)
        return self.measured(begun, load, self.options.rounds) | {"allocations": counted}

    def repeat_slow(self, chosen_cells: list[cells.Cell]) -> None:
        """Repeat the one-threaded peers whose every round was measured in the core's slow state."""
        running = {
            name: peers.STARTERS[name](self.own, self.many)
            for name in self.peers
            if name != "franz-go"
        }
        limit = self.best_probe * FAST_WITHIN
        try:
            for cell in chosen_cells:
                for name, process in running.items():
                    for operation in peers.operations(name, cell):
                        what = f"{name} {operation}"
                        answers = self.raw.get(cell.name, {}).get(what, [])
                        fast = sum(
                            probe <= limit
                            for answer in answers
                            for probe in answer.get("probe", [])
                        )
                        if answers and fast < samples.LEAST_FAST:
                            answer = process.ask(**self.request(operation, cell.path(self.folder)))
                            self.keep(cell.name, what, answer)
        finally:
            for process in running.values():
                process.stop()

    def save_so_far(self, begun: float, load: tuple[float, ...], rounds: int) -> None:
        """Save the rounds so far, so that report.py can read an interrupted run."""
        self.options.out.parent.mkdir(parents=True, exist_ok=True)
        self.options.out.with_suffix(".raw.json").write_text(
            json.dumps(self.measured(begun, load, rounds))
        )

    def measured(self, begun: float, load: tuple[float, ...], rounds: int) -> dict[str, Any]:
        facts = runs.describe() | {
            "date": runs.now(),
            "seconds": round(time.time() - begun),
            "rounds": self.rounds_before
            if self.rounds_before and self.options.only
            else rounds + self.rounds_before,
            "repeated": self.repeated
            | (dict.fromkeys(self.options.only, rounds) if self.rounds_before else {}),
            "load_before_and_after": [round(load[0], 2), round(runs.load(), 2)],
            "kafka": self.kafka.describe() if self.kafka else "not measured",
            "batches": self.batches_by,
            "cores": {
                "one-threaded peers": sorted(self.own.cores),
                "JVM and Go": sorted(self.many.cores),
            },
            "nice": self.options.nice,
            "best_probe_ns": self.best_probe,
            "missing": self.missing,
        }
        return {"machine": facts, "raw": self.raw, "allocations": self.allocations_before}

    def calibrate(self) -> None:
        """Calibrate the core's fast state: the best probe of one or two seconds."""
        process = peers.worker("batchval", self.own)
        path = cells.Cell(2, "none", 1, 100).path(self.folder)
        answer = process.ask(operation="check", path=str(path), samples=100, sample_ns=SAMPLE_NS)
        process.stop()
        if "error" in answer:
            raise SystemExit(f"batchval does not run: {answer['error']}")
        best = min(answer["probe"])
        self.best_probe = min(best, self.best_probe) if self.best_probe else best


def check_whole(bench: Bench) -> None:
    """Raise SystemExit if a result is to be saved that a peer would be missing from."""
    if bench.options.write and bench.missing:
        names = ", ".join(bench.missing)
        raise SystemExit(f"--write needs every peer; not here: {names} (docs/benchmarks/method.md)")


def main(argv: list[str] | None = None) -> int:
    options = arguments(argv)
    native.load()
    bench = Bench(options)
    for name, reason in bench.missing.items():
        say(f"not measured: {name} ({reason})")
    check_whole(bench)
    measured = bench.run()
    result = report.assess(measured)
    text = report.markdown(result)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.with_suffix(".raw.json").write_text(json.dumps(measured))
    runs.write(options.out, result, text)
    print(text)
    if options.write:
        report.save(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())

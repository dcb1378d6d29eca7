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
from bench.validation import batches, cells, jmh, native, peers, report, samples

SAMPLE_NS = 3e6
#: a sample is of the fast state if its probe is within this of the best probe seen
FAST_WITHIN = 1.2
TINY = {(1, 100), (100, 100), (100, 1000)}
ALLOCATION_CELLS = [(1, 100), (100, 1000), (1000, 100)]
ALLOCATION_OPERATIONS = ["result_alone", "check_kept", "check", "validate_in_place"]
ALLOCATION_OPERATIONS += ["check_ranges", "scan_batches"]

Raw = dict[str, dict[str, list[dict[str, Any]]]]


def parser(doc: str | None, *, rounds: int, out: str, peer_names: str) -> argparse.ArgumentParser:
    """Return the options of a bench with peers that take turns."""
    cores = sorted(os.sched_getaffinity(0))
    others = ",".join(map(str, cores[:-1] if len(cores) > 2 else cores))
    made = runs.parser(doc, rounds=rounds, quick="one round, few shapes, short warm-up", out=out)
    add = made.add_argument
    add("--batches", type=Path, help="Folder of bench batches (default: made).")
    add("--samples", type=int, default=15, help="Samples a round, about 3 ms each (default: 15).")
    add(
        "--only",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="Cells: codec=, records=, value_size=, magic= or cells=NAME,NAME; may be repeated.",
    )
    add("--peers", default=peer_names, help="Peers, with commas (default: %(default)s).")
    add("--java", help="Java (default: the newest JDK here).")
    add("--kafka-jar", type=Path, help="The oracle's jar (default: built by Maven).")
    add("--core", type=int, default=cores[-1], help="Core of peers with one thread.")
    add("--jvm-cores", default=others, help="Cores of the JVM and Go (default: %(default)s).")
    add("--nice", type=int, default=0, help="Priority of measured processes (negative: root).")
    add(
        "--continue",
        dest="before",
        type=Path,
        metavar="OUT.raw.json",
        help="Add rounds to a run that was cut off.",
    )
    return made


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """Parse the options."""
    every = ",".join(["kafka", *peers.STARTERS])
    made = parser(__doc__, rounds=5, out="result", peer_names=every)
    needs = "a whole run: without --only"
    whole = ("samples", "peers")
    options = runs.parse(made, argv, lambda options: needs if options.only else "", whole)
    if options.quick:
        options.rounds, options.samples = 1, 5
    chosen(options)  # before anything is built
    return options


def chosen(options: argparse.Namespace) -> list[cells.Cell]:
    """Return the cells of --only. Raises SystemExit if there are none."""
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
    if not every:
        conditions = " ".join(f"--only {condition}" for condition in options.only)
        raise SystemExit(
            f"{conditions} selects no cell: codec is one of {', '.join(cells.CODECS)}; records of "
            f"{cells.RECORDS}; value_size of {cells.VALUE_SIZES}; cells are like v2-none-1-100"
        )
    return every


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
            names = ", ".join(sorted(unknown))
            every = ", ".join(["kafka", *peers.STARTERS])
            raise SystemExit(f"unknown peers: {names}: expected {every}")
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
        except Exception as error:  # the rows of other peers can still be measured
            self.missing["kafka"] = str(error)
            return None

    def keep(self, cell: str, what: str, answer: dict[str, Any]) -> None:
        self.raw.setdefault(cell, {}).setdefault(what, []).append(answer)
        if "error" in answer:
            runs.tell(f"  {cell} {what}: {answer['error']}")
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
        if not self.options.only:
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
            runs.tell(
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
            write_raw(self.options.out, self.measured(begun, load, number + 1))
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
    """Name the missing peers. Raises SystemExit if a result is to be saved without them."""
    for name, reason in bench.missing.items():
        runs.tell(f"not measured: {name} ({reason})")
    if bench.options.write and bench.missing:
        names = ", ".join(bench.missing)
        raise SystemExit(f"--write needs every peer; not here: {names} (docs/benchmarks/method.md)")


def main(argv: list[str] | None = None) -> int:
    """Measure and print. Returns the exit code."""
    options = arguments(argv)
    native.load()
    bench = Bench(options)
    check_whole(bench)
    measured = bench.run()
    result = report.assess(measured)
    write_raw(options.out, measured)
    runs.finish(options, "validation", report.rounded(result), report.markdown(result))
    return 0


def write_raw(out: Path, measured: dict[str, Any]) -> None:
    """Write OUT.raw.json: every sample, from which the reports read a run, also one cut off."""
    out.parent.mkdir(parents=True, exist_ok=True)
    out.with_suffix(".raw.json").write_text(json.dumps(measured))


if __name__ == "__main__":
    sys.exit(main())

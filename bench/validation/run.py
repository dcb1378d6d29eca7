"""Time batchval, Apache Kafka's LogValidator and other libraries, on the same bytes.

Each peer is a process of its own; all peers take turns cell by cell, round after round, so that a
slow minute of the machine affects all of them.

    python -m bench validation [--only codec=zstd] [--rounds 5] [--quick] [--write]
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bench import runs
from bench.pages import validation as page
from bench.validation import batches, cells, jmh, native, peers, report

SAMPLE_NS = 3e6
CALLS_COUNTED = 20
ALLOCATION_SHAPES = ((1, 100), (100, 1000), (1000, 100))
COUNTED = ["result_alone", "check_kept", "check", "validate_in_place"]
COUNTED += ["check_ranges", "scan_batches"]


@dataclass(frozen=True)
class Suite:
    """What is measured, in which order, and what the page shows of it."""

    name: str
    doc: str | None
    #: peers by name
    starters: dict[str, peers.Starter]
    all_cells: Callable[[], list[cells.Cell]]
    #: Kafka's benchmarks of a cell by their label, in a round with this number
    kafka: Callable[[cells.Cell, int], dict[str, str]]
    #: labels of a peer's operations on a cell
    operations: Callable[[str, cells.Cell], list[tuple[str, str]]]
    #: label, peer, provider of codecs and operation of what is counted on a cell
    counted: Callable[[cells.Cell], list[tuple[str, str, str, str]]]
    rows: Callable[[report.Reader], Iterator[report.Row]]
    render: Callable[[dict[str, Any]], str]


def _operations(peer: str, cell: cells.Cell) -> list[tuple[str, str]]:
    return [(f"{peer} {name}", name) for name in peers.operations(peer, cell)]


def _counted(cell: cells.Cell) -> list[tuple[str, str, str, str]]:
    if (cell.records, cell.value_size) not in ALLOCATION_SHAPES:
        return []
    own, packages = (["validate_messages"],) * 2
    if cell.magic == 2:
        own, packages = COUNTED, ["check", "check_ranges"]
    found = [(f"native {name}", "batchval", "native", name) for name in own]
    found += [(f"packages {name}", "batchval", "packages", name) for name in packages]
    clients = ("aiokafka", "kafka-python")
    return found + [(f"{name} records", name, "native", "records") for name in clients]


VALIDATION = Suite(
    "validation",
    __doc__,
    peers.STARTERS,
    lambda: [*cells.cells(2), *cells.cells(1)],
    lambda cell, _: {"kafka": "brokerPath" if cell.magic == 2 else "validateInPlace"},
    _operations,
    _counted,
    report.validation_rows,
    page.body,
)


def parser(suite: Suite, rounds: int) -> argparse.ArgumentParser:
    """Return the options of a suite."""
    cores = sorted(os.sched_getaffinity(0))
    others = ",".join(map(str, cores[:-1] if len(cores) > 2 else cores))
    look = "one round, few shapes, short warm-up"
    made = runs.parser(suite.doc, rounds=rounds, quick=look, out=suite.name)
    add = made.add_argument
    add("--samples", type=int, default=15, help="Samples a round, about 3 ms each (default: 15).")
    only = "Cells: codec=, records=, value_size=, magic= or cells=NAME,NAME; may be repeated."
    add("--only", action="append", default=[], metavar="KEY=VALUE", help=only)
    every = ",".join(["kafka", *suite.starters])
    add("--peers", default=every, help="Peers, with commas (default: %(default)s).")
    add("--core", type=int, default=cores[-1], help="Core of peers with one thread.")
    add("--jvm-cores", default=others, help="Cores of the JVM and Go (default: %(default)s).")
    add("--nice", type=int, default=0, help="Priority of measured processes (negative: root).")
    return made


def arguments(
    argv: list[str] | None, suite: Suite = VALIDATION, rounds: int = 5
) -> argparse.Namespace:
    """Parse the options."""
    needs = "a whole run: without --only"
    made, whole = parser(suite, rounds), ("samples", "peers", "rounds")
    options = runs.parse(made, argv, lambda options: needs if options.only else "", whole)
    if options.quick:
        options.rounds, options.samples = 1, min(5, options.samples)
    chosen(options, suite)  # before anything is built
    return options


def chosen(options: argparse.Namespace, suite: Suite = VALIDATION) -> list[cells.Cell]:
    """Return the cells of --only. Raises SystemExit if there are none."""
    every = suite.all_cells()
    if options.quick:
        every = [cell for cell in every if (cell.records, cell.value_size) in cells.SHAPES]
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

    def __init__(self, options: argparse.Namespace, suite: Suite = VALIDATION) -> None:
        self.options, self.suite = options, suite
        self.own = peers.Place({options.core}, options.nice)
        many = {int(core) for core in str(options.jvm_cores).split(",")}
        self.many = peers.Place(many, options.nice)
        wanted = [name for name in options.peers.split(",") if name]
        every = ["kafka", *suite.starters]
        if unknown := sorted(set(wanted) - set(every)):
            names = ", ".join(unknown)
            raise SystemExit(f"unknown peers: {names}: expected {', '.join(every)}")
        self.peers, self.missing = peers.available(
            {name: start for name, start in suite.starters.items() if name in wanted}
        )
        self.folder, self.batches_by = cells.BATCHES, "batches.py"
        self.kafka = self.find_kafka() if "kafka" in wanted else None
        if self.kafka is None:
            batches.make(self.folder)
        self.raw: report.Raw = {}
        self.best_probe = 0.0

    def find_kafka(self) -> jmh.Kafka | None:
        """Build Kafka's benchmark and the batches by it; None, and why, where it is not here."""
        try:
            java, jar = jmh.newest_java(), jmh.build_jar()
            if java is None:
                raise RuntimeError("no JDK found")
            self.folder = jmh.write_batches(java, jar, runs.BUILD / "kafka-batches")
            self.batches_by = "Kafka's own builder"
            folder, prefix = self.folder.resolve(), self.many.prefix()
            return jmh.Kafka(java, jar, folder, prefix, self.options.quick)
        except Exception as error:  # the rows of other peers can still be measured
            self.missing["kafka"] = str(error)
            return None

    def keep(self, cell: str, what: str, answer: dict[str, Any]) -> None:
        """Keep an answer, and the best probe seen."""
        self.raw.setdefault(cell, {}).setdefault(what, []).append(answer)
        if "error" in answer:
            runs.tell(f"  {cell} {what}: {answer['error']}")
        self.best_probe = min([*answer.get("probe", []), self.best_probe or float("inf")])

    def ask(self, process: runs.Child, cell: cells.Cell, what: str, operation: str) -> None:
        """Let a peer time an operation, and keep its answer."""
        path, samples = str(cell.path(self.folder)), self.options.samples
        request = {"operation": operation, "path": path, "samples": samples}
        request |= {"sample_ns": SAMPLE_NS, "fast": round(self.best_probe * report.FAST_WITHIN)}
        self.keep(cell.name, what, process.ask(**request))

    def round(self, chosen_cells: Sequence[cells.Cell], number: int) -> None:
        """Measure each cell once, and again what was measured in the core's slow state alone."""
        running = {name: start(self.own, self.many) for name, start in self.peers.items()}
        for again in (False, True):
            for cell in chosen_cells:
                if self.kafka is not None and not again:
                    for label, benchmark in self.suite.kafka(cell, number).items():
                        self.keep(cell.name, label, self.kafka.ask(cell, benchmark))
                for name, process in running.items():
                    for label, operation in self.suite.operations(name, cell):
                        if not again or self.is_slow(cell.name, label):
                            self.ask(process, cell, label, operation)
        for process in running.values():
            process.stop()

    def is_slow(self, cell: str, label: str) -> bool:
        """Return whether too few samples are of the core's fast state; without probes none is."""
        probes = [probe for one in self.raw[cell][label] for probe in one.get("probe", [])]
        limit = self.best_probe * report.FAST_WITHIN
        return bool(probes) and sum(probe <= limit for probe in probes) < report.MIN_FAST_PROBES

    def allocations(self, chosen_cells: Sequence[cells.Cell]) -> dict[str, dict[str, Any]]:
        """Count allocator calls; no time is measured."""
        found: dict[str, dict[str, Any]] = {}
        running: dict[tuple[str, str], runs.Child] = {}
        for cell in chosen_cells:
            for label, peer, provider, operation in self.suite.counted(cell):
                if label.partition(" ")[0] in self.suite.starters.keys() - self.peers.keys():
                    continue
                if (peer, provider) not in running:
                    running[peer, provider] = peers.counting_worker(peer, self.own, provider)
                path = str(cell.path(self.folder))
                answer = running[peer, provider].ask(
                    operation=operation, path=path, count_calls=CALLS_COUNTED
                )
                found.setdefault(cell.name, {})[label] = answer
        for process in running.values():
            process.stop()
        return found

    def run(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Run all rounds; return the result and the raw answers."""
        chosen_cells, load = chosen(self.options, self.suite), runs.load()
        if self.peers:
            self.calibrate()
        for number in range(self.options.rounds):
            runs.tell(f"round {number + 1} of {self.options.rounds}: {len(chosen_cells)} cells")
            # for magic 1 one round says enough
            asked = [cell for cell in chosen_cells if cell.magic == 2 or number == 0]
            self.round(asked, number)
        reader = report.Reader(self.raw, self.best_probe, self.allocations(chosen_cells))
        machine = runs.describe() | runs.libraries() | {"date": runs.now()}
        machine |= {
            "rounds": self.options.rounds,
            "load_before_and_after": [round(load, 2), round(runs.load(), 2)],
            "kafka": self.kafka.describe() if self.kafka else "not measured",
            "batches": self.batches_by,
            "cores": {
                "one-threaded peers": sorted(self.own.cores),
                "JVM and Go": sorted(self.many.cores),
            },
            "nice": self.options.nice,
            "missing": self.missing,
        }
        rows, times = report.rounded(list(self.suite.rows(reader))), report.rounded(reader.times())
        samples = {"best_probe_ns": self.best_probe, "raw": self.raw}
        return {"machine": machine, "rows": rows, "times": times}, samples

    def calibrate(self) -> None:
        """Find the core's fast state: the best probe of one or two seconds."""
        process = peers.worker("batchval", self.own)
        path = cells.Cell(2, "none", 1, 100).path(self.folder)
        answer = process.ask(operation="check", path=str(path), samples=100, sample_ns=SAMPLE_NS)
        process.stop()
        if "error" in answer:
            raise SystemExit(f"batchval does not run: {answer['error']}")
        self.best_probe = min(answer["probe"])


def check_whole(bench: Bench) -> None:
    """Name the missing peers. Raises SystemExit if a result is to be saved without them."""
    for name, reason in bench.missing.items():
        runs.tell(f"not measured: {name} ({reason})")
    if bench.options.write and bench.missing:
        names = ", ".join(bench.missing)
        raise SystemExit(f"--write needs every peer; not here: {names} (docs/benchmarks/method.md)")


def main(argv: list[str] | None = None, suite: Suite = VALIDATION, rounds: int = 5) -> int:
    """Measure and print. Returns the exit code."""
    options = arguments(argv, suite, rounds)
    native.load()
    bench = Bench(options, suite)
    check_whole(bench)
    result, samples = bench.run()
    runs.finish(options, suite.name, result, suite.render(result), samples)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Time claims, the paths they save, and Kafka: its LogValidator, its full iterator and the
one that skips.

Two runs, each peer a process of its own, all taking turns round after round:

    single    one batch, hot: every way of validating it, the carriers, the ledger; Kafka by JMH
    paced     produce requests of 16 producers at 600 MB/s and 1 GB/s uncompressed: CPU share of one process

    python -m bench claims [--rounds 3] [--quick] [--write]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from typing import Any

from bench import runs
from bench.claims import figures, report_claims, streams
from bench.pages import claims_chart
from bench.validation import cells, jmh, native, peers, report, run

HEAP = (
    "-Xms1g",
    "-Xmx1g",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
)  # as Kafka's own start script has it


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """Parse the options."""
    parser = run.parser(__doc__, rounds=3, out="claims", peer_names="kafka")
    add = parser.add_argument
    add("--seconds", type=float, default=2.0, help="Seconds of each paced point (default: 2).")
    add("--warm-up", type=float, default=6.0, help="Seconds of each JVM before it (default: 6).")
    add("--batches-fed", type=int, default=streams.BATCHES, help="Batches of a stream.")
    runs.add_codecs(parser, cells.CODECS)
    add("--skip", choices=("single", "paced"), help="Leave one of the two runs out.")
    whole = ("rounds", "samples", "peers", "seconds", "warm_up", "batches_fed")
    options = runs.parse(parser, argv, needs, whole)
    if options.quick:
        options.rounds, options.samples = 1, min(options.samples, 3)
        options.seconds, options.warm_up = min(options.seconds, 0.2), min(options.warm_up, 1.0)
    return options


def needs(options: argparse.Namespace) -> str:
    """Return what a run lacks that is to be saved."""
    is_whole = not options.skip and options.codecs == cells.CODECS
    return "" if is_whole else "a whole run: without --skip and --codecs"


class JavaPaced(peers.Process):
    """The oracle's ``paced``, which reads and answers lines as paced.py does."""

    def __init__(self, kafka: jmh.Kafka, way: str, place: peers.Place) -> None:
        super().__init__([kafka.java, *HEAP, "-jar", str(kafka.jar), "paced", way], place)


class OwnPaced(peers.Process):
    def __init__(self, way: str, place: peers.Place) -> None:
        super().__init__(runs.program("claims.paced", way), place)


class ClaimsBench(run.Bench):
    """The rounds of both runs over run.Bench's places, Kafka and answers."""

    def single(self, number: int) -> None:
        assert self.folder is not None
        worker = peers.worker("claims", self.own)
        try:
            for cell in figures.shaped(self.options.codecs):
                self.kafkas(cell, (figures.KAFKA, *(figures.KAFKA_ONCE if number == 0 else ())))
                compressed = (
                    figures.OURS
                    if cell.codec != "none"
                    else ("check", "scan_batches", "header_and_crc")
                )
                for operation in (*compressed, *figures.WALKS):
                    answer = worker.ask(**self.request(operation, cell.path(self.folder)))
                    self.keep(cell.name, operation, answer)
            if number == 0:  # no target is about magic 1: one round says enough
                for cell in figures.shaped(
                    tuple(c for c in self.options.codecs if c != "zstd"), magic=1
                ):
                    self.kafkas(cell, ("validateInPlace",))
                    answer = worker.ask(**self.request("validate_messages", cell.path(self.folder)))
                    self.keep(cell.name, "validate_messages", answer)
                self.keep(
                    "ledger", "detection", worker.ask(operation="detection", samples=1, sample_ns=1)
                )
            for label, size in figures.CRC_SIZES.items():
                for operation in figures.CARRIERS:
                    answer = worker.ask(**self.request(operation, figures.carrier_batch(size)))
                    self.keep(f"carrier {label}", operation, answer)
            for operation in figures.LEDGER:
                answer = worker.ask(
                    **self.request(operation, figures.LEDGER_CELL.path(self.folder))
                )
                self.keep("ledger", operation, answer)
        finally:
            worker.stop()

    def kafkas(self, cell: cells.Cell, benchmarks: tuple[str, ...]) -> None:
        for benchmark in benchmarks if self.kafka is not None else ():
            self.keep(cell.name, f"kafka {benchmark}", self.kafka.ask(cell, benchmark))

    def paced(self) -> None:
        """Measure all points of a way and codec in one process, whose JIT sees nothing else."""
        kafkas = figures.KAFKA_WAYS if self.kafka is not None else ()
        for codec in self.options.codecs:
            for way in (*kafkas, *figures.OUR_WAYS, "none"):
                if codec == "none" and way in ("claims", "audit"):
                    continue  # uncompressed batches are always walked
                if way == "none" and codec != figures.CODEC:
                    continue
                if way in kafkas:
                    process: peers.Process = JavaPaced(self.kafka, way, self.many)  # type: ignore[arg-type]
                else:
                    process = OwnPaced(way, self.own)
                partitions = figures.PARTITIONS if codec == figures.CODEC else (figures.MIDDLE,)
                paths = {
                    n: streams.make(runs.BUILD.resolve(), codec, n, self.options.batches_fed)
                    for n in partitions
                }
                warm_up = self.options.warm_up if way in kafkas else min(self.options.warm_up, 0.5)
                process.line(f"{paths[figures.MIDDLE]} 0 {warm_up}")
                for rate in figures.RATES_MB:
                    for n in partitions:
                        answer = process.line(f"{paths[n]} {rate * 1e6:.0f} {self.options.seconds}")
                        self.keep(f"paced {codec}", f"{way} {rate} {n}", answer)
                process.stop()

    def allocations_of_claims(self) -> dict[str, dict[str, Any]]:
        assert self.folder is not None
        out: dict[str, dict[str, Any]] = {}
        process = peers.counting_worker("claims", self.own)
        for cell in figures.shaped(self.options.codecs):
            operations = ["result_alone", "check"]
            if cell.codec != "none":
                operations += [
                    "claims",
                    "claims_kept",
                    "claims_header",
                    "claims_header_kept",
                    "claims_ranges_header",
                ]
            for operation in operations:
                answer = process.ask(
                    operation=operation, path=str(cell.path(self.folder)), count_calls=20
                )
                out.setdefault(cell.name, {})[operation] = answer
        for cell in figures.shaped(tuple(c for c in self.options.codecs if c != "zstd"), magic=1):
            path = str(cell.path(self.folder))
            answer = process.ask(operation="validate_messages", path=path, count_calls=20)
            out.setdefault(cell.name, {})["validate_messages"] = answer
        process.stop()
        return out

    def run(self) -> dict[str, Any]:
        begun, load = time.time(), os.getloadavg()
        self.calibrate()
        allocations = {} if self.options.skip == "single" else self.allocations_of_claims()
        for number in range(self.options.rounds):
            runs.tell(
                f"round {number + 1} of {self.options.rounds}, {time.time() - begun:.0f} s so far"
            )
            if self.options.skip != "single":
                self.single(number + self.rounds_before)
            if self.options.skip != "paced":
                self.paced()
            run.write_raw(self.options.out, self.measured(begun, load, number + 1))
        return self.measured(begun, load, self.options.rounds) | {"allocations": allocations}

    def measured(self, begun: float, load: tuple[float, ...], rounds: int) -> dict[str, Any]:
        out = super().measured(begun, load, rounds)
        out["machine"]["paced"] = {
            "seconds a point": self.options.seconds,
            "heap": " ".join(HEAP),
            "producers": streams.PRODUCERS,
            "records a batch": streams.RECORDS,
            "value size": streams.VALUE_SIZE,
            "distinct batches": self.options.batches_fed,
        }
        return out


def main(argv: list[str] | None = None) -> int:
    options = arguments(argv)
    native.load()
    bench = ClaimsBench(options)
    run.check_whole(bench)
    measured = bench.run()
    run.write_raw(options.out, measured)
    result = report_claims.assess(measured)
    if result["paced"]:
        options.out.with_suffix(".svg").write_text(claims_chart.draw(result))
    runs.finish(options, "claims", report.rounded(result), report_claims.markdown(result))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(f"{error}: {error.stderr!r}")

"""Print what each path to a verdict costs for the same records: one table, within 20 seconds.

    python -m bench paths [--codec zstd] [--records 100] [--value-size 1000] [--json]

    claims     header, CRC and the claims of a tag: nothing is decompressed
    shallow    decompressed, the structure of each record read
    full       the same records uncompressed: each field of each record read
    rebuilt    decompressed, read, and compressed again for a topic of another codec
    magic 0    messages in a wrapper: decompressed, read, and built again, as Kafka does
    magic 1    messages in a wrapper: decompressed and read
    schema ids by claims, by records    the same records with a schema id at the start of each
               value, for a topic that asks for them

Kafka's rows come from its own classes (tests/conformance/oracle), which ``--build`` compiles once.
This is a look at one machine and one minute. docs/benchmarks/claims.md has the measured figures.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path

from bench import runs
from bench.validation import batches, cells, jmh, peers, worker
from tests.conformance import oracle

HERE = Path(__file__).resolve().parent
KAFKA = "Kafka"
CALLS_COUNTED = 20
KAFKA_ROUNDS = 12
LIMIT_S = 20.0
MARGIN_S = 0.5  # to print the table
LEGACY = "lz4"  # of magic 0 and 1 if the codec is zstd, which they do not have


@dataclass
class Row:
    """One path of one validator. None: was not measured."""

    validator: str
    path: str
    batch: str
    batch_bytes: int
    ns: float | None = None
    allocator_calls: float | None = None
    allocated_bytes: float | None = None


@dataclass
class Way:
    """A path: the operation of peer_claims.py and the batch that takes it."""

    path: str
    operation: str
    cell: cells.Cell

    def row(self, validator: str, folder: Path) -> Row:
        """Return the row without figures."""
        return Row(validator, self.path, self.cell.name, self.cell.path(folder).stat().st_size)


def ways(codec: str, records: int, value_size: int) -> list[Way]:
    """Return all paths for these records, in the order of the table."""
    legacy = LEGACY if codec == "zstd" else codec
    whole = cells.Cell(2, codec, records, value_size)
    return [
        Way("claims", "claims", whole),
        Way("shallow", "check", whole),
        Way("full", "check", cells.Cell(2, "none", records, value_size)),
        Way("rebuilt", "rebuilt", whole),
        Way("magic 0", "validate_messages", cells.Cell(0, legacy, records, value_size)),
        Way("magic 1", "validate_messages", cells.Cell(1, legacy, records, value_size)),
        Way("schema ids by claims", "schema_ids_claims", whole),
        Way("schema ids by records", "schema_ids_records", whole),
    ]


# ---- batchval ------------------------------------------------------------------------------------


def time_own(asked: Sequence[Way], folder: Path, rows: Sequence[Row]) -> None:
    """Set ``ns``."""
    operations = worker.peer_named("claims")
    jobs = [operations[way.operation](way.cell.path(folder).read_bytes()) for way in asked]
    for row, ns in zip(rows, worker.in_turns(jobs), strict=True):
        row.ns = ns


def count_own(asked: Sequence[Way], folder: Path, rows: Sequence[Row]) -> str | None:
    """Set allocator calls and bytes. Returns why there are none, or None."""
    try:
        process = peers.counting_worker("claims", peers.Place(os.sched_getaffinity(0)))
    except (OSError, subprocess.CalledProcessError, AttributeError) as error:
        return f"allocator calls were not counted, which needs glibc and a C compiler: {error}"
    try:
        for way, row in zip(asked, rows, strict=True):
            path = str(way.cell.path(folder))
            answer = process.ask(operation=way.operation, path=path, count_calls=CALLS_COUNTED)
            if "error" in answer:
                return f"allocator calls were not counted: {answer['error']}"
            row.allocator_calls = answer["allocations"]
            row.allocated_bytes = round(answer["per_call"]["bytes"], 1)
    finally:
        process.stop()
    return None


# ---- Kafka ---------------------------------------------------------------------------------------


def time_kafka(
    asked: Sequence[Way], folder: Path, rows: Sequence[Row], seconds: float, until: float
) -> tuple[str | None, str | None]:
    """Set ns and bytes from Kafka's classes. Returns (versions, None) or (None, why not).

    ``until`` is the moment of ``time.monotonic`` at which the JVM is stopped.
    """
    try:
        java = oracle.java()
    except oracle.OracleUnavailable as error:
        return None, f"Kafka's rows are missing: {error}"
    jar = oracle.jar_path()
    if not jar.is_file():
        return None, "Kafka's rows are missing: its classes are not built yet (--build)"
    ms = max(1, round(seconds * 1000 / KAFKA_ROUNDS / len(asked)))
    command = [java, "-Xms512m", "-Xmx512m", "-cp", str(jar), str(HERE / "KafkaPaths.java")]
    try:
        done = subprocess.run(
            [*command, str(ms), str(KAFKA_ROUNDS), *kafka_cases(asked, folder)],
            capture_output=True,
            text=True,
            check=False,
            timeout=max(0.1, until - time.monotonic()),
        )
    except subprocess.TimeoutExpired as error:
        return None, f"Kafka's rows are missing: the JVM did not end within {error.timeout:.0f} s"
    if done.returncode:
        why = f"the JVM ended with {done.returncode}: {done.stderr.strip()[-300:]}"
        return None, f"Kafka's rows are missing: {why}"
    found = dict(line.split("\t", 1) for line in done.stdout.splitlines() if line.count("\t") == 2)
    for row in rows:
        ns, allocated = found[row.path].split("\t")
        row.ns, row.allocated_bytes = round(float(ns), 1), round(float(allocated), 1)
    kafka = jmh.Kafka(java, jar, folder, []).describe().partition(", JMH")[0]
    return kafka, None


def kafka_cases(asked: Sequence[Way], folder: Path) -> list[str]:
    """Return what KafkaPaths.java measures: name, file and the codec of the topic."""
    from bench.validation import peer_claims

    out = []
    for way in asked:
        path = way.cell.path(folder)
        target = way.cell.codec
        if way.operation == "rebuilt":
            target = peer_claims.rebuilt_codec(path.read_bytes())
        out.append(f"{way.path}={path}={target}")
    return out


# ---- the table -----------------------------------------------------------------------------------


HEADINGS = ("", "path", "batch", "bytes", "ns", "allocator calls", "bytes allocated")
FOOTER = """\
ns: CPU time of the calling thread for one batch, one call a batch, warm. batchval: called from
Python. Kafka: batch loop with its CRC and LogValidator, all paths in turns in one JVM; what the
collector's threads do is not in it.
allocator calls: malloc, calloc, realloc, the aligned ones and mmap of a whole process, Python's
objects included, by a preloaded library in a second process; bytes allocated: what they ask for.
Kafka: bytes of Java objects; the JVM does not count calls."""


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """Parse the options."""
    made = runs.look(__doc__)
    add, codecs = made.add_argument, cells.CODECS[1:]
    add("--codec", choices=codecs, default="lz4", help="Compression codec (default: lz4).")
    add("--records", type=int, choices=cells.RECORDS, default=100, help="Records (default: 100).")
    sizes = cells.VALUE_SIZES
    add("--value-size", type=int, choices=sizes, default=1000, help="Bytes of a value.")
    add("--no-kafka", action="store_true", help="Leave Kafka's rows out.")
    add("--build", action="store_true", help="Build Kafka's classes first, by Maven: minutes.")
    add("--seconds", type=float, default=7.0, help="Seconds for Kafka's rows (default: 7).")
    options = runs.parse(made, argv)
    if not 0 < options.seconds <= 60:
        made.error(f"invalid --seconds {options.seconds:g}: expected more than 0, at most 60")
    if options.build and options.no_kafka:
        made.error("--build cannot be combined with --no-kafka")
    return options


def main(argv: list[str] | None = None) -> int:
    """Measure and print. Returns the exit code."""
    options = arguments(argv)
    if options.build:
        try:
            oracle.jar()
        except (oracle.OracleUnavailable, oracle.OracleFailed) as error:
            runs.tell(f"paths.py: {error}")
            return 1
    until = time.monotonic() + max(LIMIT_S, options.seconds + LIMIT_S / 2) - MARGIN_S
    folder = batches.make(cells.BATCHES)
    all_ways = ways(options.codec, options.records, options.value_size)
    rows = [way.row("batchval", folder) for way in all_ways]
    time_own(all_ways, folder, rows)
    notes = [count_own(all_ways, folder, rows)]
    kafka = None
    if not options.no_kafka:
        of_kafka = [
            way for way in all_ways if way.path != "claims" and not way.path.startswith("schema")
        ]
        kafka_rows = [way.row(KAFKA, folder) for way in of_kafka]
        kafka, why = time_kafka(of_kafka, folder, kafka_rows, options.seconds, until)
        notes.append(why)
        rows += kafka_rows if kafka else []
    if options.codec == "zstd":
        notes.append(f"magic 0 and 1 do not have zstd: their rows are of {LEGACY}")
    missing = [note for note in notes if note]
    found = runs.head()
    found["machine"]["kafka"] = kafka
    found |= {"rows": [asdict(row) for row in rows], "notes": missing}
    title = f"{options.records} records of {options.value_size} B, {options.codec}"
    title = "; ".join(filter(None, (title, runs.source(found), kafka and f"Kafka {kafka}")))
    table = runs.columns(HEADINGS, *map(astuple, rows), names=3)
    runs.finish(options, "", found, "\n".join([title, "", table, "", *missing, FOOTER]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

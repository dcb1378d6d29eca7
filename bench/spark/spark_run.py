"""Time kafka-segments and the same engine in as many plain processes: same ranges, same machine, in
turns.

    python -m bench spark [--gib 8] [--rounds 5] [--cores N] [--quick] [--write]

Two segments of 1 GiB, hard-linked into as many partitions as make --gib: what is read lies in the
page cache. CPU is that of the whole tree of processes (driver, JVM, Python workers), from /proc.
Everybody has the ranges that kafka-segments cuts (256 MiB). "plain": a process reads one range
after the other and drops the rows; "processes": as many as cores, each a task at a time; "spark":
DataFrame to Spark's noop sink. "sums": write batches/ in Parquet, then sum records and take the
highest timestamp by topic. The first round is dropped: the JVM compiles.

--quick: 8 GiB, three rounds, four ways; two minutes on two idle cores.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import struct
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyarrow import dataset

from batchval.audit.arrow_rows import read_range
from batchval.audit.audit_run import list_work
from batchval.audit.task import work
from batchval.segment.options import Options
from batchval.segment.ranges import Range, Task, pack
from bench import runs
from bench.pages import spark as page
from bench.pages.spark import MIB, WAYS
from bench.spark import segments
from bench.spark.process_tree import cpu, tree

#: the ways of --quick
QUICK = ("processes", "spark", "processes sums", "spark batches")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


# ---- processes -----------------------------------------------------------------------------------


def status(pid: int, field: str) -> int:
    """Return a field of /proc/PID/status in KiB, or 0 if the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(field + ":")), 0)


def workers() -> list[int]:
    """Return the Python processes that Spark's JVM started."""
    return [
        pid
        for pid, (name, _) in tree().items()
        if name.startswith("python") and _parent_is_python(pid)
    ]


def _parent_is_python(pid: int) -> bool:
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"pyspark.daemon" in line


# ---- ways ----------------------------------------------------------------------------------------


def read_all(job: tuple[Range, Options]) -> int:
    return sum(block.num_rows for block in read_range(*job))


def write_all(job: tuple[Task, Options, str]) -> int:
    return len(work(*job))


def sums(out: Path) -> dict[str, int]:
    """Return the records of each topic from batches/; their greatest timestamp is read and
    dropped.
    """
    columns = ["topic", "records_count", "max_timestamp"]
    rows = dataset.dataset(out / "batches", partitioning="hive").to_table(columns=columns)
    found = rows.group_by("topic").aggregate([("records_count", "sum"), ("max_timestamp", "max")])
    return {row["topic"]: row["records_count_sum"] for row in found.to_pylist()}


class Bench:
    """What is measured on one folder of logs."""

    def __init__(self, logs: Path, out: Path, cores: int, split: int) -> None:
        self.logs, self.out, self.cores = str(logs), out, cores
        self.options = Options(split_bytes=split)
        todo = list_work([self.logs], self.options)
        self.ranges, self.bytes = todo.ranges, todo.bytes
        self.pool = multiprocessing.get_context("spawn").Pool(cores)
        from batchval.spark import session

        self.spark = session(
            f"local[{cores}]",
            conf={"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": str(cores)},
        )

    def close(self) -> None:
        self.pool.terminate()
        self.pool.join()
        self.spark.stop()

    def frame(self, **options: str) -> Any:
        read_options = {"splitBytes": str(self.options.split_bytes), **options}
        return self.spark.read.format("kafka-segments").options(**read_options).load(self.logs)

    def ways(self) -> dict[str, Callable[[], Any]]:
        jobs = [(one, self.options) for one in self.ranges]

        tasks = pack(self.ranges, self.options.split_bytes)

        def engine() -> None:
            from batchval.spark.engine import run_spark

            for _ in run_spark(self.ranges, self.options, self._fresh()):
                pass

        def written() -> None:
            out = self._fresh()
            for _ in self.pool.imap_unordered(
                write_all, [(task, self.options, out) for task in tasks]
            ):
                pass

        def processes_sums() -> dict[str, int]:
            written()
            return sums(self.out)

        def spark_batches() -> dict[str, int]:
            from pyspark.sql import functions as F

            from batchval.spark import audit

            rows = audit(
                self.spark, self.logs, out=self._fresh(), split_bytes=self.options.split_bytes
            ).batches()
            found = rows.groupBy("topic").agg(
                F.sum("records_count").alias("records"), F.max("max_timestamp")
            )
            return {row.topic: row.records for row in found.collect()}

        return {
            "plain": lambda: sum(map(read_all, jobs)),
            "processes": lambda: sum(self.pool.imap_unordered(read_all, jobs)),
            "spark": lambda: self.frame().write.format("noop").mode("overwrite").save(),
            "spark bad": lambda: (
                self.frame(rows="bad").write.format("noop").mode("overwrite").save()
            ),
            "spark parquet": lambda: self.frame().write.mode("overwrite").parquet(self._fresh()),
            "processes parquet": written,
            "processes sums": processes_sums,
            "spark batches": spark_batches,
            "engine parquet": engine,
        }

    def _fresh(self) -> str:
        shutil.rmtree(self.out, ignore_errors=True)
        return str(self.out)

    def rows(self) -> int:
        """Return the number of rows, which must be the same for each peer."""
        seen = {
            "processes": sum(
                self.pool.imap_unordered(read_all, [(one, self.options) for one in self.ranges])
            ),
            "spark": self.frame().count(),
        }
        if len(set(seen.values())) != 1:
            raise SystemExit(f"not the same rows: {seen}")
        ways = self.ways()
        if ways["processes sums"]() != ways["spark batches"]():
            raise SystemExit("not the same sums")
        return seen["spark"]

    def rounds(self, rounds: int, names: list[str]) -> dict[str, list[dict[str, float]]]:
        ways = self.ways()

        def way(name: str) -> Callable[[], dict[str, float]]:
            def run() -> dict[str, float]:
                before, start = cpu(), time.perf_counter()
                ways[name]()
                return {"wall": time.perf_counter() - start, "cpu": cpu() - before}

            return run

        return runs.in_turns(
            {name: way(name) for name in names},
            rounds,
            warm_ups=1,
            seen=lambda _, run: f"{run['wall']:.2f} s, CPU {run['cpu']:.2f} s",
        )


def worker_memory(logs: Path, cores: int, deep: bool) -> float:
    """Return the largest RSS of a Python worker that reads ``logs``, in MiB, sampled every 5 ms."""
    from batchval.spark import session

    spark = session(f"local[{cores}]", conf={"spark.driver.memory": "1g"})
    most = 0
    over = threading.Event()

    def look() -> None:
        nonlocal most
        while not over.is_set():
            for pid in workers():
                most = max(most, status(pid, "VmHWM"))
            over.wait(0.05)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        frame = spark.read.format("kafka-segments").options(
            deep=str(deep).lower(), splitBytes="128m"
        )
        frame.load(str(logs)).write.format("noop").mode("overwrite").save()
    finally:
        over.set()
        looking.join()
        spark.stop()
    return most / 1024


# ---- the run -------------------------------------------------------------------------------------


def make_logs(folder: Path, gib: float, batch_bytes: int = 16 << 10) -> Path:
    """Make two segments, each with the content of half of the partitions."""
    logs = folder / "logs"
    each = min(1.0, gib / 2)
    segments.write(logs, "bench", 2, int(each * (1 << 30)), batch_bytes, CODECS)
    for number in range(2, max(2, round(gib / each))):
        target = logs / f"bench-{number}"
        target.mkdir()
        for file in (logs / f"bench-{number % 2}").iterdir():
            os.link(file, target / file.name)
    return logs


def make_large(folder: Path, batch_mib: int, mib: int) -> Path:
    """Make partitions with batches just below ``batch_mib``, as stored: uncompressed and zstd."""
    for codec in ("none", "zstd"):
        batch = bytearray(segments.batch_near(codec, batch_mib * MIB - (64 << 10), 0))
        log = folder / f"large-{codec}-0" / f"{0:020}.log"
        log.parent.mkdir(parents=True)
        with log.open("wb") as file:
            for offset in range(0, (mib // batch_mib) * 1_000_000, 1_000_000):
                struct.pack_into(">q", batch, 0, offset)
                file.write(batch)
    return folder


def warm(logs: Path) -> None:
    """Read the logs into the page cache."""
    for file in sorted(logs.rglob("*.log")):
        with file.open("rb", buffering=0) as data:
            while data.read(16 << 20):
                pass


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = runs.parser(__doc__, rounds=5, quick="8 GiB, three rounds, four ways", out="spark")
    add = parser.add_argument
    cores, ways = len(os.sched_getaffinity(0)), sorted(WAYS)
    add("--gib", type=float, default=8.0, help="GiB of the segments (default: 8).")
    add("--cores", type=int, default=cores, help="Cores of each way (default: all).")
    split = "Most bytes of a task (default: 256 MiB)."
    add("--split", type=int, default=256 * MIB, metavar="BYTES", help=split)
    only = f"Ways to read: {', '.join(ways)} (default: all)."
    add("--only", nargs="+", choices=ways, default=list(WAYS), metavar="WAY", help=only)
    add("--no-memory", action="store_true", help="Do not measure the memory of workers.")
    large = "Size in MiB of the segments with large batches (default: 512)."
    add("--large-mib", type=int, default=512, help=large)
    options = runs.parse(parser, argv, needs, ("cores", "split", "large_mib"))
    if options.quick:
        options.gib, options.rounds, options.only, options.no_memory = 8.0, 3, list(QUICK), True
    return options


def needs(options: argparse.Namespace) -> str:
    """Return what a run lacks that is to be saved."""
    is_whole = options.gib >= 8 and options.rounds >= 3 and set(options.only) == set(WAYS)
    if is_whole and not options.no_memory:
        return ""
    return "8 GiB, three rounds at least, all ways, with memory"


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    logs = make_logs(folder, options.gib)
    warm(logs)
    bench = Bench(logs, folder / "out", options.cores, options.split)
    try:
        rows = bench.rows()
        found = bench.rounds(options.rounds, [name for name in WAYS if name in options.only])
    finally:
        bench.close()
    measured: dict[str, list[float]] = {}
    if not options.no_memory:
        large = make_large(folder / "large", min(16, options.large_mib // 16), options.large_mib)
        measured["memory"] = [worker_memory(large, options.cores, deep=False)]
        measured["memory deep"] = [worker_memory(large, options.cores, deep=True)]
    import pandas
    import pyarrow
    import pyspark

    return {
        **runs.head(),
        "versions": {
            "PySpark": pyspark.__version__,
            "pyarrow": pyarrow.__version__,
            "pandas": pandas.__version__,
        },
        "bytes": bench.bytes,
        "rows": rows,
        "cores": options.cores,
        "split": options.split,
        "rounds": options.rounds,
        "load": os.getloadavg(),
        "runs": found,
        "measured": measured,
    }


def main(argv: list[str] | None = None) -> None:
    options = arguments(argv)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(runs.ROOT), os.environ.get("PYTHONPATH")])
    )
    with tempfile.TemporaryDirectory(prefix="batchval-bench-") as folder:
        result = measure(options, Path(folder))
    runs.finish(options, "spark", result, page.spark_body(result))


if __name__ == "__main__":
    main()

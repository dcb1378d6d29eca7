"""CPU seconds a GB that an audit costs: the local engine's processes and PySpark, by rows and
depth.

    python -m bench audit-engines [--gib 4] [--rounds 3] [--write]

The same segments (segments.py, warm in the page cache) at two split sizes: what a task costs and
what a GB costs are the line through both. CPU is that of the process and all its children, the
least of the rounds. Spark's rows go to its
``noop`` sink; local rows are made and dropped. Session and processes are started
before, once. --write saves bench/results/audit-engines.json and writes docs/benchmarks.
"""

from __future__ import annotations

import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from batchval.audit.arrow_rows import read_range
from batchval.segment.options import Options
from batchval.segment.ranges import Range, cut
from batchval.segment.store import SegmentInfo, Store
from bench import runs
from bench.pages import spark as page
from bench.spark import process_tree, segments
from bench.validation import cells

os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(runs.ROOT), os.environ.get("PYTHONPATH")])
)

SPLITS = (32 << 20, 256 << 20)
WAYS = (("none", False), ("bad", False), ("all", False), ("all", True))
BATCH_BYTES = 16_384


def ranges(folder: Path, split_bytes: int) -> list[Range]:
    store, path = Store.of(str(folder))
    found = [segment for segment in store.list_segments(path) if isinstance(segment, SegmentInfo)]
    return [range_ for segment in found for range_ in cut(segment, split_bytes, store)]


def read(range_: Range, options: Options) -> int:
    return sum(block.num_rows for block in read_range(range_, options))


def local(pool: ProcessPoolExecutor, folder: Path, options: Options) -> int:
    work = ranges(folder, options.split_bytes)
    return sum(pool.map(read, work, [options] * len(work)))


def spark(session: Any, folder: Path, options: Options) -> None:
    reader = session.read.format("kafka-segments").option("rows", options.rows)
    reader = reader.option("splitBytes", options.split_bytes).option(
        "deep", str(options.deep).lower()
    )
    reader.load(str(folder)).write.format("noop").mode("overwrite").save()


def measure(folder: Path, size: int, rounds: int) -> dict[str, Any]:
    from batchval.spark import session

    cores = os.cpu_count() or 1
    started = session(f"local[{cores}]", conf={"spark.driver.memory": "2g"})
    pool = ProcessPoolExecutor(cores, mp_context=get_context("forkserver"))
    found: dict[tuple[str, str, int], list[float]] = {}
    for round_ in range(rounds + 1):  # the first warms up
        for rows, deep in WAYS:
            for split in SPLITS:
                options = Options(rows=rows, split_bytes=split, deep=deep)
                for engine in ("local", "spark"):
                    cpu, wall = process_tree.cpu(), time.monotonic()
                    if engine == "local":
                        local(pool, folder, options)
                    else:
                        spark(started, folder, options)
                    cpu, wall = process_tree.cpu() - cpu, time.monotonic() - wall
                    way = f"{rows}, deep" if deep else rows
                    spent = f"{cpu / size * 1e9:.3f} CPU-s/GB, {wall:.2f} s"
                    runs.tell(f"{round_} {engine:5} {way:9} {split >> 20:4} MiB {spent}")
                    if round_:
                        found.setdefault((engine, way, split), []).append(cpu)
    pool.shutdown()
    started.stop()
    answer: dict[str, Any] = {}
    for engine, way, _ in list(found):
        small, large = (min(found[engine, way, split]) for split in SPLITS)
        tasks = [len(ranges(folder, split)) for split in SPLITS]
        a_task = max(0.0, (small - large) / (tasks[0] - tasks[1]))
        answer.setdefault(engine, {})[way] = {
            "cpu_s_a_task": float(f"{a_task:.3g}"),
            "cpu_s_a_gb": float(f"{(large - a_task * tasks[1]) / size * 1e9:.3g}"),
        }
    return answer


def main() -> None:
    parser = runs.parser(__doc__, rounds=3, quick="")
    parser.add_argument("--gib", type=float, default=4.0, help="GiB of the segments (default: 4).")
    arguments = runs.parse(parser, None, whole=("gib", "rounds"))
    with tempfile.TemporaryDirectory(prefix="batchval-engines-") as folder:
        partitions = 4
        each = int(arguments.gib * 2**30) // partitions
        batches = segments.write(Path(folder), "bench", partitions, each, BATCH_BYTES, cells.CODECS)
        size = sum(file.stat().st_size for file in Path(folder).rglob("*.log"))
        load = runs.load()
        engines = measure(Path(folder), size, arguments.rounds)
    about = runs.describe() | {
        "date": runs.now(),
        "batches": f"batches of {size // batches:,} bytes, every codec in equal shares",
        "gib": arguments.gib,
        "load_before_and_after": [load, runs.load()],
    }
    result = {"machine": about, "engines": engines}
    runs.finish(arguments, "audit-engines", result, page.engines_body(result))


if __name__ == "__main__":
    main()

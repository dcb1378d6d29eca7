"""Run in a process of its own by test_cluster.py: a master, two workers with an executor each, a
packed environment.

    python cluster_program.py ARCHIVE LOGS OUT

Prints JSON lines: what executors import and from where, and how many processes were killed and
tasks lost while the rows of LOGS were read. The rows are in OUT/rows (Parquet).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

# no PYTHONPATH: the executors of this machine would inherit it
sys.path.insert(0, os.getcwd())

from batchval.spark import session


def children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        found.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    return found


def below(pid: int) -> Iterator[tuple[int, str]]:
    """Return descendants of a process with their command lines."""
    tree, left = children(), [pid]
    while left:
        for child in tree.get(left.pop(), []):
            left.append(child)
            try:
                yield (
                    child,
                    Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode(),
                )
            except OSError:
                continue


def kill_one(what: str) -> bool:
    """Kill the youngest process of ours whose command line has the word."""
    found = sorted(pid for pid, line in below(os.getpid()) if what in line)
    for pid in reversed(found):
        try:
            os.kill(pid, signal.SIGKILL)
            return True
        except ProcessLookupError:
            continue
    return False


def imported(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from batchval.core.batches import columns

    for batch in batches:
        where = [f"{columns.__file__} {sys.executable}"] * batch.num_rows
        yield pa.RecordBatch.from_arrays([pa.array(where)], names=["where"])


def main(archive: str, logs: str, out: str) -> None:
    spark = session(
        "local-cluster[2,1,1024]",
        conf={
            "spark.archives": f"{archive}#environment",
            "spark.pyspark.python": "./environment/bin/python",
            "spark.executor.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
        },
    )
    places = {
        row["where"]
        for row in spark.range(0, 8, 1, 8).mapInArrow(imported, "where string").collect()
    }
    print(json.dumps({"places": sorted(places)}), flush=True)

    rows = spark.read.format("kafka-segments").option("splitBytes", "64k").load(logs)
    reading = threading.Thread(target=lambda: rows.write.mode("overwrite").parquet(f"{out}/rows"))
    tracker = spark.sparkContext.statusTracker()
    reading.start()
    killed = {"pyspark.daemon": 0, "CoarseGrainedExecutorBackend": 0}
    lost = done = 0
    while reading.is_alive():
        for number in tracker.getActiveStageIds():
            stage = tracker.getStageInfo(number)
            if stage is None:
                continue
            done, lost = max(done, stage.numCompletedTasks), max(lost, stage.numFailedTasks)
            if done > 5 and not killed["pyspark.daemon"]:
                killed["pyspark.daemon"] += kill_one("pyspark.daemon")
            elif done > 40 and not killed["CoarseGrainedExecutorBackend"]:
                killed["CoarseGrainedExecutorBackend"] += kill_one("CoarseGrainedExecutorBackend")
        time.sleep(0.02)
    reading.join()
    print(
        json.dumps({"killed": killed, "lost": lost, "tasks": rows.rdd.getNumPartitions()}),
        flush=True,
    )
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Time ``batchval audit --engine local`` and Kafka's dump-log on the same segments, whole commands,
by turns.

    python -m bench dump-log [--gib 4] [--rounds 3] [--quick] [--write]

It needs Java, and Maven once.

The tool checks each batch's checksum and prints a line of it (to /dev/null, without
--deep-iteration); the audit does that and all else that it does without --deep, with ``--rows
none`` and with every row in Parquet. Seconds are the median of the rounds, CPU that of the whole
process tree. Large batches are measured in four times as many bytes too, where the starts of both
count less. --quick is 1 GiB of batches of 16 KiB, two rounds. --write saves
bench/results/dump-log.json and writes docs/benchmarks.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench import runs
from bench.pages import spark as page
from bench.spark import segments
from bench.validation import cells
from tests.system.interop.dump_log import dump_command
from tests.system.interop.kafka_broker import TOOLS_VERSION

WHOLE_TREE = Path(__file__).with_name("whole_tree.py")
BATCH_BYTES = (16_384, 1_024)
LARGE = 4  # times --gib, of batches of BATCH_BYTES[0]
MIN_PARTITIONS = 4  # of one segment each, of 1 GiB at most as Kafka's are


def run(command: list[str]) -> dict[str, float]:
    words = [sys.executable, str(WHOLE_TREE), *command]
    done = subprocess.run(words, cwd=runs.ROOT, capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)
    if result["returncode"]:
        raise SystemExit(f"{command[0]} failed: {done.stderr[-500:]}")
    return {name: round(result[name], 3) for name in ("seconds", "cpu_s")}


def measure(folder: Path, rounds: int) -> dict[str, list[dict[str, float]]]:
    logs = sorted(folder.glob("*/*.log"))
    audit = [sys.executable, "-m", "batchval", "audit", str(folder), "--engine", "local", "--json"]
    with tempfile.TemporaryDirectory(prefix="batchval-out-") as out:

        def rows_all() -> dict[str, float]:
            with tempfile.TemporaryDirectory(dir=out) as once:
                return run([*audit, "--rows", "all", "--out", f"{once}/out"])

        ways = {
            "dump-log": lambda: run(dump_command(logs, deep=False)),
            "rows none": lambda: run([*audit, "--rows", "none"]),
            "rows all": rows_all,
        }
        # the first round reads the files into memory
        return runs.in_turns(ways, rounds, warm_ups=1, seen=lambda _, one: f"{one['seconds']} s")


def bench(rounds: int, cases: list[tuple[float, int]]) -> list[dict[str, Any]]:
    """Return a row for each case: GiB of segments, and bytes of a batch."""
    rows = []
    for gib, batch_bytes in cases:
        with tempfile.TemporaryDirectory(prefix="batchval-dump-") as name:
            folder = Path(name)
            partitions = max(MIN_PARTITIONS, math.ceil(gib))
            size = int(gib * 2**30) // partitions
            batches = segments.write(folder, "bench", partitions, size, batch_bytes, cells.CODECS)
            total = sum(file.stat().st_size for file in folder.rglob("*.log"))
            samples = measure(folder, rounds)
        row: dict[str, Any] = {"batch_bytes": total // batches, "bytes": total}
        for what in ("seconds", "cpu_s"):
            row[what] = {
                name: statistics.median(one[what] for one in found)
                for name, found in samples.items()
            }
        rows.append(row)
    return rows


def main() -> None:
    parser = runs.parser(
        __doc__, rounds=3, quick="1 GiB, one size of batches, two rounds: a look, no result"
    )
    sizes = "GiB of the segments; those of large batches have four times as many (default: 4)."
    parser.add_argument("--gib", type=float, default=4.0, help=sizes)
    options = runs.parse(parser, None, whole=("gib", "rounds"))
    if options.quick:
        options.gib, options.rounds = 1.0, 2
    load = runs.load()
    cases = [(options.gib, size) for size in BATCH_BYTES] + [(LARGE * options.gib, BATCH_BYTES[0])]
    rows = bench(options.rounds, cases[:1] if options.quick else cases)
    about = runs.describe() | {
        "kafka tools": TOOLS_VERSION,
        "date": runs.now(),
    }
    about["load_before_and_after"] = [load, runs.load()]
    result = {"machine": about, "rows": rows}
    runs.finish(options, "dump-log", result, page.dump_log_body(result))


if __name__ == "__main__":
    main()

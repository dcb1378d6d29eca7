"""Print what an audit costs a batch by the claims in payloads: headers alone, a sample of the
claims, every record.

    python -m bench at-rest [--rate 0.01] [--rounds 9] [--mb 128]

A segment of each codec holds batches of about 64 kB, with claims in their payload. An audit's own
work on it (batchval.audit.task: read, validate, count by hour, without rows) is measured in turns:
CPU time of this thread, the segment in the page cache. ``of headers`` is the median over the rounds
of the speed as a share of the speed of headers alone in the same round.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from batchval.audit.task import work
from batchval.core.claims import attach
from batchval.core.convert.record_batch_builder import RecordBatchBuilder
from batchval.segment.options import Options
from batchval.segment.segment_run import list_work
from bench import runs
from bench.validation import batches

CODECS = ("zstd", "gzip")
BATCH_BYTES = 64_000
VALUE_SIZE = 1000
#: different batches of a segment, which repeats them
DISTINCT = 64


def batch(codec: str, text: bytes, number: int, records: int) -> RecordBatchBuilder:
    """Return a builder with records whose values are stretches of the text."""
    builder = RecordBatchBuilder(limit=1 << 30, compression=codec)
    for i in range(records):
        at = (number * records + i) * 997 % (len(text) - VALUE_SIZE)
        builder.append(
            key=b"key-%d-%d" % (number, i),
            value=text[at : at + VALUE_SIZE],
            timestamp=batches.FIRST_TIMESTAMP + number * 1000 + i,
        )
    return builder


def segment(codec: str, folder: Path, size: int) -> tuple[Path, int]:
    """Write a segment with claims. Return its folder and the number of its batches."""
    text = batches.text(batches.JavaRandom(8364), 2 << 20)
    probe = len(batch(codec, text, 0, 64).build())
    records = max(1, round(64 * BATCH_BYTES / probe))
    made = [
        bytes(attach(batch(codec, text, n, records).build(), carrier="payload"))
        for n in range(DISTINCT)
    ]
    partition = folder / f"claims.{codec}-0"
    partition.mkdir()
    written = count = 0
    with open(partition / f"{0:020}.log", "wb") as file:
        while written < size:
            one = made[count % DISTINCT]
            # neither base offset nor leader epoch is under the crc
            file.write((count * records).to_bytes(8, "big") + one[8:12] + bytes(4) + one[16:])
            written += len(one)
            count += 1
    return partition, count


def measured(partition: Path, options: Options) -> float:
    """Return the CPU time of an audit's work, in seconds."""
    ranges = tuple(list_work([str(partition)], options).ranges)
    begun = time.thread_time()
    work(ranges, options, None)
    return time.thread_time() - begun


def rows(
    codec: str, partition: Path, count: int, rate: float, rounds: int
) -> list[dict[str, object]]:
    """Return a row for each way to read the segment."""
    ways: dict[str, dict[str, Any]] = {
        "headers": {},
        f"claims, {rate:g} verified": {"trust_claims": rate},
        "claims, none of them drawn": {"trust_claims": 1e-12},
        "every record": {"deep": True},
    }

    def way(options: dict[str, Any]) -> Callable[[], float]:
        # each has a seed of its own
        return lambda: measured(partition, Options(rows="none", **options))

    times = runs.in_turns({name: way(found) for name, found in ways.items()}, rounds, warm_ups=1)
    size = (partition / f"{0:020}.log").stat().st_size
    return [
        {
            "codec": codec,
            "figures": name,
            "us_a_batch": round(statistics.median(found) / count * 1e6, 2),
            "gb_a_cpu_second": round(size / statistics.median(found) / 1e9, 3),
            "of_headers": round(
                statistics.median(a / b for a, b in zip(times["headers"], found, strict=False)), 3
            ),
        }
        for name, found in times.items()
    ]


def main(argv: list[str] | None = None) -> int:
    """Measure and print. Returns the exit code."""
    made = runs.parser(__doc__, rounds=9, quick="", out="at-rest", is_saved=False)
    add = made.add_argument
    add("--rate", type=float, default=0.01, help="Share of batches to verify (default: 0.01).")
    add("--mb", type=runs.positive, default=128, help="Size of a segment in MB (default: 128).")
    options = runs.parse(made, argv)
    if not 0 <= options.rate <= 1:
        made.error(f"invalid --rate {options.rate:g}: expected a number from 0 to 1")
    found: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        for codec in CODECS:
            partition, count = segment(codec, Path(folder), options.mb * 1_000_000)
            found += rows(codec, partition, count, options.rate, options.rounds)
    heads = ("codec", "figures", "us a batch", "GB a CPU-s", "of headers")
    table = runs.columns(heads, *(tuple(row.values()) for row in found), names=2)
    runs.finish(options, "", {**runs.head(), "rows": found}, table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""A made-up cluster of six topics over two days, with a few faults, and the report of its audit:
the docs' picture.

    python -m bench.spark.example_report page.html
    chromium --headless --hide-scrollbars --window-size=1228,1480 \\
        --screenshot=docs/images/audit-report.png page.html
"""

from __future__ import annotations

import argparse
import os
import random
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from batchval.core.builder import BatchBuilder
from batchval.types import CompressionType
from bench import runs
from bench.validation import batches

START_MS = 1_795_132_800_000  # 2026-11-20 00:00 UTC
HOUR_MS = 3_600_000
HOURS, PARTITIONS = 48, 3
#: codec, records a batch, bytes a value, batches an hour and partition
TOPICS = {
    "clicks": ("lz4", 80, 300, 14),
    "orders": ("zstd", 60, 500, 8),
    "payments": ("none", 5, 400, 12),
    "inventory": ("gzip", 50, 300, 5),
    "audit-log": ("snappy", 30, 400, 4),
    "legacy.events": ("gzip", 10, 200, 3),
}


def segment(topic: str, partition: int, rng: random.Random) -> bytearray:
    codec, records, size, rate = TOPICS[topic]
    data = bytearray()
    offset = 0
    for hour in range(HOURS):
        busy = 1.5 if 8 <= hour % 24 < 20 else 0.7
        count = round(rate * busy * rng.uniform(0.75, 1.25))
        for i in range(count):
            first = START_MS + hour * HOUR_MS + i * HOUR_MS // (count + 1)
            builder = BatchBuilder(1 << 20, CompressionType[codec.upper()])
            for n in range(records):
                builder.append(f"key-{n}".encode(), batches.text(JAVA, size), (), first + n)
            builder.finish()
            builder.seal()
            batch = bytearray(builder.view())
            if topic == "orders" and partition == 1 and hour == 30 and i < 3:
                batch[-7] ^= 0x20  # a bit flips on the disk
            if topic == "inventory" and partition == 2 and hour in (12, 13) and i == 1:
                offset += 40  # somebody has removed batches
            struct.pack_into(">q", batch, 0, offset)
            offset += records
            data += batch
    if topic == "audit-log" and partition == 0:
        data += bytes(4096)  # power failed before the file was cut to its size
    return data


JAVA = batches.JavaRandom(7)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.spark.example_report",
        description="Write the report of an audit of a made-up cluster.",
    )
    parser.add_argument("page", type=Path, help="The HTML file to write.")
    page = parser.parse_args().page.resolve()
    rng = random.Random(7)
    with tempfile.TemporaryDirectory(prefix="batchval-cluster-") as folder:
        for topic in TOPICS:
            for partition in range(PARTITIONS):
                log = Path(folder) / f"{topic}-{partition}" / f"{0:020}.log"
                log.parent.mkdir()
                log.write_bytes(segment(topic, partition, rng))
                written = (START_MS + HOURS * HOUR_MS) / 1000
                os.utime(log, (written, written))
        command = [
            sys.executable,
            "-m",
            "batchval",
            "audit",
            folder,
            "--engine",
            "local",
            "--deep",
            "--rows",
            "none",
        ]
        command += ["--cleanup-policy", "delete"]
        return subprocess.run(
            [*command, "--report", str(page)], cwd=runs.ROOT, check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main())

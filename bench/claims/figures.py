"""The measured operations of claims, and the targets they are held against."""

from __future__ import annotations

from pathlib import Path

from bench import runs
from bench.pages import claims as page
from bench.validation import batches, cells

SHAPES = ((1, 100), (100, 100), (100, 1000))
COMPRESSED = cells.CODECS[1:]

# Kafka : claims path, 100 × 1000 B, one Python call each, on a processor with VPCLMULQDQ; reported
# elsewhere
KAFKA_TARGETS = {"lz4": 30.0, "snappy": 100.0, "zstd": 130.0, "gzip": 400.0}
OVER_HEADER_TARGETS = {(1, 100): 1.3, (100, 1000): 1.05}  # claims path : header and CRC alone
CRC_SIZES = {"16 kB": 16 << 10, "1 MiB": 1 << 20}
NEW_CRC_TARGETS = {"16 kB": 3.0, "1 MiB": 50.0}  # a pass over all bytes : the patch
CARRIER_TARGET = 1.2  # attach, strip : memcpy, at 1 MiB
OF_WALK_TARGET = 1.05  # check with claims made : check
DETECTION_WITHIN = 0.2
RATES = (0.001, 0.01, 0.1)

# the ways of validating that are timed on each cell, ours and Kafka's
OURS = (
    "claims",
    "claims_header",
    "claims_ranges",
    "claims_ranges_header",
    "check",
    "scan_batches",
    "header_and_crc",
)
WALKS = ("claims_of_walk",)
KAFKA = "brokerPath"  # what targets are about: every round
KAFKA_ONCE = ("validateInPlace", "iterateStreaming", "iterateSkip")  # one round says enough
CARRIERS = ("crc_patched", "crc_whole", "attach", "strip", "copy", "memcpy")
LEDGER = ("decide_and_note", "ledger", "claims")
LEDGER_CELL = cells.Cell(2, "lz4", 100, 1000)
ALLOCATION_CELLS = ((1, 100), (100, 1000))

# the paced run: CODEC at each number of partitions, the other codecs at MIDDLE partitions
CODEC, MIDDLE = page.CODEC, page.MIDDLE
PARTITIONS = (1, 12, 128)
RATES_MB = (600, 1000)  # uncompressed, 10**6 bytes a second
KAFKA_WAYS = ("full", "skip", "validator")
OUR_WAYS = ("shallow", "claims", "audit")


def shaped(codecs: tuple[str, ...] = cells.CODECS, magic: int = 2) -> list[cells.Cell]:
    return [cells.Cell(magic, codec, *shape) for codec in codecs for shape in SHAPES]


def carrier_batch(size: int) -> Path:
    """Return the path of a file with one uncompressed batch of ``size`` bytes."""
    path = runs.BUILD / f"carrier-{size}.bin"
    if not path.exists():
        for value in range(size - 70, size - 90, -1):
            batch = batches.batch_of("none", [(batches.FIRST_TIMESTAMP, b"k", bytes(value))])
            if len(batch) == size:
                break
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(batch)
    return path

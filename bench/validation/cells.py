"""The bench batches by name, and the targets they are held against.

vMAGIC-CODEC-RECORDS-VALUESIZE.bin     one batch a file
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bench.runs import BUILD

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS = (1, 10, 100, 1000)
VALUE_SIZES = (100, 1000)

HERE = Path(__file__).resolve().parent

BATCHES = BUILD / "batches"


@dataclass(frozen=True)
class Cell:
    magic: int
    codec: str
    records: int
    value_size: int

    @property
    def name(self) -> str:
        return f"v{self.magic}-{self.codec}-{self.records}-{self.value_size}"

    def path(self, folder: Path) -> Path:
        return folder / f"{self.name}.bin"

    @property
    def payload(self) -> int:
        """Return the approximate size of the uncompressed records in bytes."""
        return self.records * (self.value_size + 20)


def cells(magic: int = 2) -> list[Cell]:
    """Return all cells of a magic by codec. Magic 1 has no zstd, and two record counts suffice."""
    codecs = CODECS if magic == 2 else CODECS[:-1]
    counts = RECORDS if magic == 2 else (1, 100)
    return [Cell(magic, codec, n, size) for codec in codecs for n in counts for size in VALUE_SIZES]


def legacy_cells() -> list[Cell]:
    """Return cells of magic 0 and 1 over the records of magic 2, for the pytest-benchmark
    groups.
    """
    codecs = CODECS[:-1]
    return [
        Cell(m, codec, n, size)
        for m in (0, 1)
        for codec in codecs
        for n in RECORDS
        for size in VALUE_SIZES
    ]


# ratios Kafka : ours that the slow path must reach, by (records, value size)
KAFKA_TARGETS = {
    (100, 1000): {"none": 2.0, "gzip": 2.5, "snappy": 1.5, "lz4": 1.1, "zstd": 1.05},
    (100, 100): {"none": 4.0, "gzip": 1.6, "snappy": 3.0, "lz4": 1.8, "zstd": 1.4},
    (1, 100): {"none": 6.0, "gzip": 4.0, "snappy": 5.0, "lz4": 5.0, "zstd": 5.0},
}
# one Python call a batch, 1 x 100 B
KAFKA_ONE_CALL_TARGETS = {"none": 1.0, "gzip": 2.0, "snappy": 2.0, "lz4": 2.0}
DECOMPRESSOR_TARGETS = {1000: 1.15, 100: 1.3}  # ours : decompressor alone, by value size
DECOMPRESSOR_FROM = 16 * 1024  # bytes of content
SCAN_TARGET_NS = 30.0
CHECK_TARGET_NS = 50.0
CRC_COLD_TARGET = 0.9  # of one core's cold memory read
CRC_PEERS_TARGET = 2.0

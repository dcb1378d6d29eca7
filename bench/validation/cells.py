"""The bench batches by name.

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


def cells(magic: int = 2) -> list[Cell]:
    """Return all cells of a magic by codec. Magic 1 has no zstd, and three record counts suffice."""
    codecs = CODECS if magic == 2 else CODECS[:-1]
    counts = RECORDS if magic == 2 else (1, 10, 100)
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


#: of batches that pages show first: records, value size
SHAPES = {(1, 100), (100, 100), (100, 1000)}

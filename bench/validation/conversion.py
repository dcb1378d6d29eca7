"""Print what conversion to magic 2 costs over the codec alone: one table, within 10 seconds.

    python -m bench conversion [--codecs lz4] [--json]

Message sets of magic 0 and 1 go through LogValidator.validate_messages_and_assign_offsets, which
decompresses, validates, assigns offsets, writes the records as magic 2 and compresses them. Two
parts of that are measured alone, on the same bytes:

    decompress   the wrapper's payload, by the functions that the core calls (peer_parts.py)
    compress     the new records, by batchval.compression.compressors at Kafka's level

The ratio is the whole over the sum of both. This is a look at one machine and one minute: counts of
instructions (``instructions.py``, operation ``convert``) do not depend on what else runs there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, replace

from batchval.compression.compressors import compress
from bench import runs
from bench.validation import batches, cells, peer_batchval, peer_parts, worker
from bench.validation.worker import Job

SHAPES = ((100, 1000), (3, 100))
RECORDS_AT = 61  # in a batch of magic 2
#: for 100 x 1 kB: over the codec alone, and microseconds without one
MOST_OVER_CODEC = {"gzip": 1.3, "lz4": 1.6}
MOST_US_WITHOUT_CODEC = 100.0


@dataclass
class Row:
    """One message set. None: it has no codec, or no target."""

    batch: str
    batch_bytes: int
    whole_us: float
    codec_us: float | None = None
    ratio: float | None = None
    target: str = ""
    is_met: bool | None = None


def all_cells(codecs: Sequence[str]) -> list[cells.Cell]:
    """Return the message sets of the table, in its order."""
    found = []
    for codec in codecs:
        for records, size in SHAPES:
            found += [cells.Cell(magic, codec, records, size) for magic in (0, 1)]
    return found


def payload_of(data: bytes) -> bytes:
    """Return the value of a wrapper, which has no key."""
    at = 12 + 4 + 1 + 1 + (8 if data[16] else 0) + 4
    return data[at + 4 : at + 4 + int.from_bytes(data[at : at + 4], "big")]


def output(data: bytes) -> bytes:
    """Return the batch of magic 2."""
    return bytes(peer_batchval.converted(data).output)


def jobs(cell: cells.Cell) -> dict[str, Job]:
    """Return the parts to measure, by name: without a codec the whole alone."""
    data = batches.build(cell)
    found = {"whole": peer_batchval.convert(data)}
    if cell.codec == "none":
        return found
    codec = batches.CODEC_IDS[cell.codec]
    plain = batches.build(cells.Cell(cell.magic, "none", cell.records, cell.value_size))
    records = output(plain)[RECORDS_AT:]
    if output(data)[RECORDS_AT:] != compress(codec, records):
        raise AssertionError(f"{cell.name}: the conversion compresses other bytes")
    found["decompress"] = peer_parts.decompress_payload(codec, payload_of(data))
    if found["decompress"].facts["content"] != len(plain):
        raise AssertionError(f"{cell.name}: the payload holds other messages")
    names = {"compress": compress, "codec": codec, "records": records}
    found["compress"] = Job("compress(codec, records, 2, None)", names)
    return found


def timed(asked: Sequence[dict[str, Job]]) -> list[dict[str, float]]:
    """Return microseconds a call of each part."""
    times = iter(worker.in_turns([job for parts in asked for job in parts.values()]))
    return [{name: next(times) / 1000 for name in parts} for parts in asked]


# ---- the table -----------------------------------------------------------------------------------


def target_of(row: Row, cell: cells.Cell) -> tuple[str, bool | None]:
    """Return what is asked of a row and whether it holds; ("", None) where nothing is asked."""
    if (cell.records, cell.value_size) != SHAPES[0]:
        return "", None
    if row.ratio is None:
        return f"{MOST_US_WITHOUT_CODEC:.0f} us", row.whole_us <= MOST_US_WITHOUT_CODEC
    most = MOST_OVER_CODEC.get(cell.codec)
    return ("", None) if most is None else (f"{most} x", row.ratio <= most)


def row_of(cell: cells.Cell, us: dict[str, float]) -> Row:
    """Return a row of the table."""
    whole, size = round(us["whole"], 2), len(batches.build(cell))
    row = Row(cell.name, size, whole)
    if "compress" in us:
        codec = us["decompress"] + us["compress"]
        row.codec_us, row.ratio = round(codec, 2), round(us["whole"] / codec, 3)
    row.target, row.is_met = target_of(row, cell)
    return row


def table(rows: Sequence[Row]) -> str:
    """Return the rows as text."""
    return runs.columns(
        ("batch", "bytes", "us", "codec alone us", "ratio", "target", "met"),
        *(astuple(replace(row, target=row.target or "-")) for row in rows),
    )


def main(argv: list[str] | None = None) -> int:
    """Measure and print. Returns the exit code."""
    made = runs.look(__doc__)
    runs.add_codecs(made, cells.CODECS[:-1])
    options = runs.parse(made, argv)
    every = all_cells(options.codecs)
    times = timed([jobs(cell) for cell in every])
    rows = [row_of(cell, us) for cell, us in zip(every, times, strict=True)]
    found = {**runs.head(), "rows": [asdict(row) for row in rows]}
    runs.finish(options, "", found, f"{runs.source(found)}\n\n{table(rows)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

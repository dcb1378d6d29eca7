"""Print what conversion to magic 2 costs over the codec alone: one table, within 10 seconds.

    python -m bench conversion [--only codec=lz4] [--json]

Message sets of magic 0 and 1 go through LogValidator.validate_messages_and_assign_offsets, which
decompresses, judges, assigns offsets, writes the records as magic 2 and compresses them. Two parts
of that are measured alone, on the same bytes:

    decompress   the wrapper's payload, by the functions that the core calls (peer_parts.py)
    compress     the new records, by batchval.compression.compressors at Kafka's level

The ratio is the whole over the sum of both. This is a look at one machine and one minute: counts of
instructions (``instructions.py``, operation ``convert``) do not depend on what else runs there.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from batchval.compression.compressors import compress
from bench import runs
from bench.validation import batches, cells, peer_batchval, peer_parts, worker
from bench.validation.worker import Job

ROUNDS, SAMPLES, SAMPLE_NS = 3, 7, 3e6
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
    """Return microseconds a call: medians of samples in turns, CPU time of this thread."""
    found: list[dict[str, list[float]]] = [{name: [] for name in parts} for parts in asked]
    for _ in range(ROUNDS):
        for parts, times in zip(asked, found, strict=True):
            for name, job in parts.items():
                times[name] += worker.sample(job, SAMPLES, SAMPLE_NS, 0, lambda: 0.0)["ns"]
    return [{name: statistics.median(ns) / 1000 for name, ns in one.items()} for one in found]


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


def lines(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the table: columns by their widest value, what is missing as ``-``."""
    table = [["batch", "bytes", "us", "codec alone us", "ratio", "target", "met"]]
    for row in rows:
        met = {None: None, True: "yes", False: "no"}[row.is_met]
        values = (
            row.batch,
            row.batch_bytes,
            row.whole_us,
            row.codec_us,
            row.ratio,
            row.target or None,
            met,
        )
        table.append([shown(value) for value in values])
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for name, *figures in table:
        columns = [text.rjust(width) for text, width in zip(figures, widths[1:], strict=True)]
        yield "  ".join([name.ljust(widths[0]), *columns])


def shown(value: Any) -> str:
    """Return a value as the table has it."""
    if value is None:
        return "-"
    return (
        f"{value:,}"
        if isinstance(value, int)
        else f"{value:,.2f}"
        if isinstance(value, float)
        else str(value)
    )


def parser() -> argparse.ArgumentParser:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        prog="conversion.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    codecs = [f"codec={name}" for name in cells.CODECS[:-1]]
    parser.add_argument("--only", choices=codecs, help="One codec (default: all).")
    parser.add_argument("--json", action="store_true", help="Print JSON instead of the table.")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Measure and print. Returns the exit code."""
    options = parser().parse_args(argv)
    codecs = [options.only.partition("=")[2]] if options.only else list(cells.CODECS[:-1])
    every = all_cells(codecs)
    times = timed([jobs(cell) for cell in every])
    rows = [row_of(cell, us) for cell, us in zip(every, times, strict=True)]
    described = runs.describe()
    here = {name: described[name] for name in ("processor", "commit")}
    if options.json:
        print(json.dumps({"machine": here, "rows": [asdict(row) for row in rows]}, indent=1))
        return 0
    print("; ".join(map(str, here.values())), end="\n\n")
    print("\n".join(lines(rows)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Time claims, the paths they save, and Kafka: its LogValidator, its full iterator and the one that
skips.

    python -m bench claims [--rounds 3] [--quick] [--write]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from bench.pages import claims as page
from bench.validation import cells, peers, report, run

SHAPES = ((1, 100), (100, 100), (100, 1000))
PATHS = ("claims", "claims_header", "claims_ranges", "claims_ranges_header")
OTHERS = ("check", "scan_batches", "header_and_crc", "claims_of_walk")
KAFKA = "kafka brokerPath"
ONCE = ("validateInPlace", "iterateStreaming", "iterateSkip")  # one round says enough
COUNTED = ("claims", "claims_kept", "claims_header", "claims_header_kept", "claims_ranges_header")


def all_cells() -> list[cells.Cell]:
    """Return three shapes of every codec, and the same records as magic 1."""
    two = [cells.Cell(2, codec, *shape) for codec in cells.CODECS for shape in SHAPES]
    return two + [cells.Cell(1, codec, *shape) for codec in cells.CODECS[:-1] for shape in SHAPES]


def kafka(cell: cells.Cell, number: int) -> dict[str, str]:
    """Return Kafka's benchmarks by their label."""
    if cell.magic == 1:
        return {"kafka validateInPlace": "validateInPlace"}
    names = ("brokerPath", *(() if number else ONCE))
    return {f"kafka {name}": name for name in names}


def operations(peer: str, cell: cells.Cell) -> list[tuple[str, str]]:
    """Return the operations of a cell: of uncompressed batches claims settle nothing."""
    if cell.magic == 1:
        return [("validate_messages", "validate_messages")]
    names = OTHERS if cell.codec == "none" else (*PATHS, *OTHERS)
    return [(name, name) for name in names]


def counted(cell: cells.Cell) -> list[tuple[str, str, str, str]]:
    """Return the operations whose allocator calls are counted."""
    names: tuple[str, ...] = ("validate_messages",)
    if cell.magic == 2:
        names = ("result_alone", "check", *(COUNTED if cell.codec != "none" else ()))
    return [(name, "claims", "native", name) for name in names]


def rows(reader: report.Reader) -> Iterator[report.Row]:
    """Yield the rows of the page."""
    shaped = [
        cells.Cell(2, codec, *shape) for shape in reversed(SHAPES) for codec in cells.CODECS[1:]
    ]
    for cell in shaped:
        yield from reader.over_kafka(page.OVER_KAFKA, cell, "claims", KAFKA)
    for cell in shaped:
        yield from reader.over(page.MANY, cell, "claims_ranges", "scan_batches")
    for cell in shaped:
        yield from reader.over(page.ONE, cell, "claims", "header_and_crc")
    for cell in all_cells():
        yield from reader.over(page.OF_WALK, cell, "claims_of_walk", "check")
    for name, answers in reader.allocations.items():
        for what, label in (("claims", "in a tag"), ("claims_header", "in a header")):
            three = [answers.get(one, {}) for one in ("result_alone", f"{what}_kept", what)]
            cell_name = f"{name.removeprefix('v2-')}, {label}"
            yield from report.beyond_result(page.CALLS, cell_name, *three)


SUITE = run.Suite(
    "claims",
    __doc__,
    {"claims": lambda own, many: peers.worker("claims", own)},
    all_cells,
    kafka,
    operations,
    counted,
    rows,
    page.body,
)


def main(argv: list[str] | None = None) -> int:
    """Measure and print. Returns the exit code."""
    return run.main(argv, SUITE, rounds=3)


if __name__ == "__main__":
    sys.exit(main())

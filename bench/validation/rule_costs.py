"""Print what record rules cost over check, in instructions and allocator calls: two tables.

    python -m bench rule-costs [--only codec=lz4] [--no-instructions] [--json]

100 records of 1 kB, as three batches a codec:

    schema id and sizes   each value starts with one of two ids, in turns; rules: these ids,
                          max_key_bytes and max_value_bytes
    headers               3 headers a record; rules: two are required, two forbidden, at most 8
    headers, schema id    the same batch with the rules of the first

Instructions are those of one warm call of ``check``, with and without rules over the same bytes
(``instructions.py``, which needs valgrind). Allocator calls are those of a whole process
(``counting/counting.c``). The last row is a time: schema ids settled by claims over schema ids read
from bench import runs
from records, a zstd batch of 64 kB.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench import runs
from bench.validation import batches, cells, instructions, peer_rules, peers, worker
from bench.validation.conversion import shown

RECORDS, VALUE_SIZE = 100, 1000
CALLS_COUNTED = 20
#: instructions with rules over those without
MOST_NONE, MOST_COMPRESSED = 1.12, 1.03
CLAIMS_CODEC, CLAIMS_RECORDS, LEAST_CLAIMS = "zstd", 64, 30.0
ROUNDS, SAMPLES, SAMPLE_NS = 3, 7, 3e6
#: name of a row: whether the batch has headers, and the operation of peer_rules.py
KINDS = {
    "schema id and sizes": (False, "check_ids"),
    "headers": (True, "check_headers"),
    "headers, schema id": (True, "check_ids"),
}
PLAIN = "check"


@dataclass
class Row:
    """One batch and its rules. None: was not counted, or has no target."""

    codec: str
    rules: str
    without: int | None = None
    instructions: int | None = None
    ratio: float | None = None
    most: float | None = None
    is_met: bool | None = None
    allocator_calls: float | None = None


@dataclass
class ClaimsRow:
    """Schema ids by claims over by records."""

    batch_bytes: int
    records_us: float
    claims_us: float
    ratio: float
    least: float = LEAST_CLAIMS
    is_met: bool = False


def make(folder: Path, codecs: Sequence[str]) -> dict[tuple[str, bool], Path]:
    """Write the batches, by codec and whether they have headers."""
    found = {}
    for codec in codecs:
        for has_headers in (False, True):
            path = folder / f"{codec}-{'headers' if has_headers else 'plain'}.bin"
            path.write_bytes(peer_rules.batch(codec, RECORDS, VALUE_SIZE, has_headers))
            found[codec, has_headers] = path
    return found


def count(rows: Sequence[Row], paths: dict[tuple[str, bool], Path]) -> None:
    """Set the instructions, in one run of valgrind for each operation."""
    every = list(paths.values())
    plain = dict(zip(every, instructions.totals(runs.ROOT, PLAIN, every), strict=True))
    for operation in dict.fromkeys(operation for _, operation in KINDS.values()):
        asked = [row for row in rows if KINDS[row.rules][1] == operation]
        used = [paths[row.codec, KINDS[row.rules][0]] for row in asked]
        for row, path, executed in zip(
            asked, used, instructions.totals(runs.ROOT, operation, used), strict=True
        ):
            assess(row, plain[path], executed)


def assess(row: Row, without: int, executed: int) -> None:
    """Set a row's ratio, and whether its target is met."""
    row.without, row.instructions = without, executed
    row.ratio = round(executed / without, 3)
    row.most = MOST_NONE if row.codec == "none" else MOST_COMPRESSED
    row.is_met = row.ratio <= row.most


def count_allocations(rows: Sequence[Row], paths: dict[tuple[str, bool], Path]) -> None:
    """Set the allocator calls of one check with rules."""
    process = peers.counting_worker("rules", peers.Place(os.sched_getaffinity(0)))
    try:
        for row in rows:
            has_headers, operation = KINDS[row.rules]
            path = str(paths[row.codec, has_headers])
            answer = process.ask(operation=operation, path=path, count_calls=CALLS_COUNTED)
            if "error" in answer:
                raise SystemExit(f"{row.codec}, {row.rules}: {answer['error']}")
            row.allocator_calls = answer["allocations"]
    finally:
        process.stop()


def by_claims() -> ClaimsRow:
    """Time schema ids by claims and by records, in turns."""
    operations = worker.peer_named("claims")
    data = batches.batch_of(CLAIMS_CODEC, batches.records(CLAIMS_RECORDS, VALUE_SIZE))
    jobs = [operations[name](data) for name in ("schema_ids_records", "schema_ids_claims")]
    found: list[list[float]] = [[], []]
    for _ in range(ROUNDS):
        for job, times in zip(jobs, found, strict=True):
            times.extend(worker.sample(job, SAMPLES, SAMPLE_NS, 0, lambda: 0.0)["ns"])
    records_us, claims_us = (statistics.median(times) / 1000 for times in found)
    row = ClaimsRow(
        len(data), round(records_us, 2), round(claims_us, 3), round(records_us / claims_us, 1)
    )
    row.is_met = row.ratio >= row.least
    return row


# ---- the tables ----------------------------------------------------------------------------------


def yes(is_met: bool | None) -> str | None:
    """Return whether a target is met, as the table has it."""
    return None if is_met is None else "yes" if is_met else "no"


def lines(rows: Sequence[Row], claims: ClaimsRow) -> Iterator[str]:
    """Yield both tables: columns by their widest value, what is missing as ``-``."""
    table = [
        ["codec", "rules", "without", "instructions", "ratio", "at most", "met", "allocator calls"]
    ]
    for row in rows:
        counted = (
            row.without,
            row.instructions,
            row.ratio and f"{row.ratio:.3f}",
            row.most,
            yes(row.is_met),
        )
        table.append([row.codec, row.rules, *map(shown, counted), shown(row.allocator_calls)])
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for codec, rules, *figures in table:
        columns = [text.rjust(width) for text, width in zip(figures, widths[2:], strict=True)]
        yield "  ".join([codec.ljust(widths[0]), rules.ljust(widths[1]), *columns])
    yield ""
    batch = f"schema ids, {CLAIMS_CODEC}, {claims.batch_bytes:,} bytes"
    times = f"by records {claims.records_us} us, by claims {claims.claims_us} us"
    yield f"{batch}: {times}, ratio {claims.ratio} (at least {claims.least:g}: {yes(claims.is_met)})"


def parser() -> argparse.ArgumentParser:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        prog="rule_costs.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    codecs = [f"codec={name}" for name in cells.CODECS]
    parser.add_argument("--only", choices=codecs, help="One codec (default: all).")
    parser.add_argument(
        "--no-instructions", action="store_true", help="Count allocator calls alone."
    )
    parser.add_argument("--json", action="store_true", help="Print JSON instead of the tables.")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Count and print. Returns the exit code."""
    options = parser().parse_args(argv)
    if not options.no_instructions and shutil.which("valgrind") is None:
        runs.tell("rule_costs.py: instructions need valgrind: install it or use --no-instructions")
        return 2
    codecs = [options.only.partition("=")[2]] if options.only else list(cells.CODECS)
    rows = [Row(codec, rules) for codec in codecs for rules in KINDS]
    with tempfile.TemporaryDirectory() as folder:
        paths = make(Path(folder), codecs)
        count_allocations(rows, paths)
        if not options.no_instructions:
            count(rows, paths)
    claims = by_claims()
    described = runs.describe()
    here = {name: described[name] for name in ("processor", "commit")}
    if options.json:
        result = {"machine": here, "rows": [asdict(row) for row in rows], "claims": asdict(claims)}
        print(json.dumps(result, indent=1))
        return 0
    print("; ".join(map(str, here.values())), end="\n\n")
    print("\n".join(lines(rows, claims)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

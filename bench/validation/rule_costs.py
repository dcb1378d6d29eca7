"""Print what record rules cost over check, in instructions and allocator calls: two tables.

    python -m bench rule-costs [--codecs lz4] [--no-instructions] [--json]

100 records of 1 kB, as three batches a codec:

    schema id and sizes   each value starts with one of two ids, in turns; rules: these ids,
                          max_key_bytes and max_value_bytes
    headers               3 headers a record; rules: two are required, two forbidden, at most 8
    headers, schema id    the same batch with the rules of the first

Instructions are those of one warm call of ``check``, with and without rules over the same bytes
(``instructions.py``, which needs valgrind). Allocator calls are those of a whole process
(``counting/counting.c``). The last row is a time: schema ids settled by claims over schema ids read
from records, a zstd batch of 64 kB.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path

from bench import runs
from bench.validation import batches, cells, instructions, peer_rules, peers, worker

RECORDS, VALUE_SIZE = 100, 1000
CALLS_COUNTED = 20
#: instructions with rules over those without
MOST_NONE, MOST_COMPRESSED = 1.12, 1.03
CLAIMS_CODEC, CLAIMS_RECORDS, LEAST_CLAIMS = "zstd", 64, 30.0
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
    records_us, claims_us = (ns / 1000 for ns in worker.in_turns(jobs))
    row = ClaimsRow(
        len(data), round(records_us, 2), round(claims_us, 3), round(records_us / claims_us, 1)
    )
    row.is_met = row.ratio >= row.least
    return row


# ---- the tables ----------------------------------------------------------------------------------


def tables(rows: Sequence[Row], claims: ClaimsRow) -> str:
    """Return both tables as text."""
    heads = ("codec", "rules", "without", "instructions", "ratio", "at most", "met")
    ratios = [None if row.ratio is None else f"{row.ratio:.3f}" for row in rows]
    body = [
        (*astuple(row)[:4], ratio, *astuple(row)[5:])
        for row, ratio in zip(rows, ratios, strict=True)
    ]
    batch = f"schema ids, {CLAIMS_CODEC}, {claims.batch_bytes:,} bytes"
    times = f"by records {claims.records_us} us, by claims {claims.claims_us} us"
    met = f"(at least {claims.least:g}: {runs.shown(claims.is_met)})"
    counted = runs.columns((*heads, "allocator calls"), *body, names=2)
    return f"{counted}\n\n{batch}: {times}, ratio {claims.ratio} {met}"


def main(argv: list[str] | None = None) -> int:
    """Count and print. Returns the exit code."""
    made = runs.look(__doc__)
    runs.add_codecs(made, cells.CODECS)
    made.add_argument("--no-instructions", action="store_true", help="Count allocator calls alone.")
    options = runs.parse(made, argv)
    if not options.no_instructions and shutil.which("valgrind") is None:
        runs.tell(f"{instructions.NO_VALGRIND}, or use --no-instructions")
        return 2
    rows = [Row(codec, rules) for codec in options.codecs for rules in KINDS]
    with tempfile.TemporaryDirectory() as folder:
        paths = make(Path(folder), options.codecs)
        count_allocations(rows, paths)
        if not options.no_instructions:
            count(rows, paths)
    claims = by_claims()
    found = {
        **runs.head(),
        "rows": [asdict(row) for row in rows],
        "claims": asdict(claims),
    }
    runs.finish(options, "", found, f"{runs.source(found)}\n\n{tables(rows, claims)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Compare what side_by_side.py has measured with internal goals: JSON rows, a table for the
terminal.

Again, also of a run that was cut off:

    python -m bench.claims.report_claims build/bench/claims.raw.json [--write]
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from bench import runs
from bench.claims import figures
from bench.pages import claims as page
from bench.validation import cells, report
from bench.validation.report import Row


class Goals(report.Goals):
    """Reads the raw answers of one run."""

    def __init__(self, measured: dict[str, Any]) -> None:
        super().__init__(measured)
        self.has_wide_folding = measured["machine"]["crc32c"] == "fold512"

    def rows(self) -> Iterator[Row]:
        yield from self.rows_against_kafka()
        yield from self.header_rows()
        yield from self.carrier_rows()
        yield from self.walk_rows()
        yield from self.claims_allocation_rows()
        yield from self.ledger_rows()

    def rows_against_kafka(self) -> Iterator[Row]:
        """Yield Kafka's best iteration over our median, as in bench/validation."""
        for shape in reversed(figures.SHAPES):
            for codec in figures.COMPRESSED:
                cell = cells.Cell(2, codec, *shape)
                ours, kafka = (
                    self.time(cell.name, "claims"),
                    self.kafka(cell.name, "kafka brokerPath"),
                )
                target = (
                    figures.KAFKA_TARGETS[codec]
                    if self.has_wide_folding and shape == (100, 1000)
                    else None
                )
                remark = ""
                if shape == (100, 1000) and target is None:
                    remark = f"target {figures.KAFKA_TARGETS[codec]:g} is for VPCLMULQDQ."
                group = "claims path vs Kafka, one Python call a batch"
                yield from report.over_kafka(
                    group, report.cell_name(cell), ours, kafka, target, remark
                )

    def header_rows(self) -> Iterator[Row]:
        for group, what, other, targets in (
            (
                "claims path over header + CRC alone, many a call",
                "claims_ranges_header",
                "scan_batches",
                True,
            ),
            ("the same, one Python call each", "claims", "header_and_crc", False),
        ):
            for shape in figures.SHAPES:
                for codec in figures.COMPRESSED:
                    target = figures.OVER_HEADER_TARGETS.get(shape) if targets else None
                    yield from self.against(
                        group, cells.Cell(2, codec, *shape), what, other, target
                    )

    def carrier_rows(self) -> Iterator[Row]:
        for label, target in figures.NEW_CRC_TARGETS.items():
            ours, whole = (
                self.time(f"carrier {label}", "crc_patched"),
                self.time(f"carrier {label}", "crc_whole"),
            )
            group = "the new CRC of attach and strip, against a full pass"
            yield from report.faster(group, label, ours, whole, target)
        for other, text in (
            ("memcpy", "memcpy of the batch"),
            ("copy", "bytes(batch), which allocates too"),
        ):
            for label in figures.CRC_SIZES:
                for what in ("attach", "strip"):
                    target = (
                        figures.CARRIER_TARGET if (label, other) == ("1 MiB", "memcpy") else None
                    )
                    group = f"attach and strip, whole, over {text}"
                    yield from self.between(
                        group, f"carrier {label}", what, other, target, f"{what} {label}"
                    )

    def walk_rows(self) -> Iterator[Row]:
        for cell in figures.shaped():
            # of uncompressed batches claims settle nothing: reported
            target = None if cell.codec == "none" else figures.OF_WALK_TARGET
            group = "check and claims of it, over check alone"
            yield from self.against(group, cell, "claims_of_walk", "check", target)

    def claims_allocation_rows(self) -> Iterator[Row]:
        for name, answers in self.allocations.items():
            alone = answers.get("result_alone", {})
            for what, label in (("claims", "in a tag"), ("claims_header", "in a header")):
                bare, kept = answers.get(what, {}), answers.get(f"{what}_kept", {})
                group = "claims path: allocator calls a batch beyond the result"
                cell = name.removeprefix("v2-")
                yield from report.beyond_result(group, f"{cell}, {label}", alone, kept, bare)

    def ledger_rows(self) -> Iterator[Row]:
        group = "the ledger"
        alone, whole, path = (self.time("ledger", what) for what in figures.LEDGER)
        if alone is not None and whole is not None and path is not None:
            note = "1 % audited; nothing judged"
            yield Row(
                group,
                "decide + note a batch",
                alone.fast,
                None,
                "lower",
                "",
                alone.fast,
                unit="ns",
                note=note,
            )
            share = whole.fast - path.fast
            note = f"{figures.LEDGER_CELL.name}: {whole.fast:.0f} ns a batch against {path.fast:.0f} trusted blindly"
            yield Row(
                group,
                "ledger.check over check",
                share,
                None,
                "lower",
                "",
                whole.fast,
                unit="ns",
                note=note,
            )
        for answer in self.raw.get("ledger", {}).get("detection", []):
            for rate in figures.RATES:
                if (mean := answer.get(str(rate))) is not None:
                    off = abs(mean * rate - 1)
                    note = f"{mean:.1f} lies until the first is found, the formula says {1 / rate:g}; 200 senders"
                    verdict = runs.verdict(off, figures.DETECTION_WITHIN, "lower", 0.0)
                    name = f"detection at {rate:.1%}, off the formula"
                    target = figures.DETECTION_WITHIN
                    yield Row(group, name, off, target, "lower", verdict, note=note, unit="")


# ---- the paced run -------------------------------------------------------------------------------


def paced(raw: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one row a codec, way, rate and number of partitions: CPU time as a share of one
    core.
    """
    out = []
    for codec in cells.CODECS:
        for what, answers in raw.get(f"paced {codec}", {}).items():
            way, rate, partitions = what.split()
            good = [answer for answer in answers if answer.get("content")]
            if not good:
                continue
            bytes_per_second = int(rate) * 1e6
            needs = [
                answer["cpu_ns"] / answer["content"] * bytes_per_second / 1e9 for answer in good
            ]
            fed = [
                answer["content"] / answer["wall_ns"] * 1e9 / bytes_per_second for answer in good
            ]
            out.append(
                {
                    "codec": codec,
                    "way": way,
                    "mb_per_second": int(rate),
                    "partitions": int(partitions),
                    "cores": statistics.median(needs),
                    "rounds": len(good),
                    "spread": runs.spread(needs),
                    "low": min(needs),
                    "high": max(needs),
                    "fed": statistics.median(fed),
                    "allocated_a_batch": statistics.median(
                        a.get("allocated", 0) / a["batches"] for a in good
                    ),
                }
            )
    return out


def assess(measured: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a run: rows of goals, times, and the paced run."""
    reader = Goals(measured)
    times = report.times_of(reader)
    times = {cell: found for cell, found in times.items() if not cell.startswith("paced")}
    report.add_allocations(times, measured["allocations"])
    rows = [asdict(row) for row in reader.rows()]
    result = {"machine": measured["machine"], "rows": rows, "times": times}
    return result | {"paced": paced(reader.raw)}


# ---- words ---------------------------------------------------------------------------------------


def markdown(result: dict[str, Any]) -> str:
    """Return what the terminal shows: the page, and the internal goals."""
    return report.with_goals(page.body(result), result["rows"])


def main() -> int:
    """Run the command."""
    return runs.again(__doc__, "claims", lambda found: report.rounded(assess(found)), markdown)


if __name__ == "__main__":
    sys.exit(main())

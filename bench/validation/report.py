"""Compare what run.py has measured with internal goals: JSON rows, and a table for the
terminal.

Again, also of a run that was cut off:

    python -m bench.validation.report build/bench/result.raw.json [--write]
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from bench import pages, runs
from bench.pages import validation as page
from bench.pages.text import micro, number
from bench.validation import cells, samples

BASELINE = pages.RESULTS / "validation.json"

OBTAINING = ("malloc", "calloc", "memalign", "mmap")

HEADINGS = ("", "measured", "target", "verdict", "by medians", "±", "ours µs", "peer µs", "")
UNITS = {"x": "×", "ns": " ns", "calls": "", "": ""}

# what the probe's scale is worth where no sample was taken in the core's fast state
SCALED = samples.FAST_WITHIN - 1
SLOW = "no sample in the core's fast state"


@dataclass
class Row:
    """One figure against its target. ``value`` is a ratio but where ``unit`` says otherwise."""

    group: str
    name: str
    value: float
    target: float | None
    better: str  # higher or lower
    verdict: str
    ours_ns: float | None = None
    peer_ns: float | None = None
    median_value: float | None = None  # the same by plain medians
    spread: float = 0.0  # of the value, from round to round, as a share
    note: str = ""
    unit: str = "x"

    @property
    def key(self) -> str:
        return f"{self.group}: {self.name}"


def cell_name(cell: cells.Cell) -> str:
    """Return codec, records and size of a value, as rows are named."""
    return f"{cell.codec} {cell.records} × {cell.value_size} B"


def over_kafka(
    group: str,
    name: str,
    ours: samples.Time | None,
    kafka: samples.KafkaTime | None,
    target: float | None,
    remark: str = "",
) -> Iterator[Row]:
    """Compare Kafka's best iteration with our median. Both must be measured."""
    if ours is None or kafka is None:
        return
    # without a fast sample ours is taken as it is, slow: nothing says that Kafka's cores were fast
    middle = ours.median if ours.all_slow else ours.fast
    value, plain = kafka.best / middle, kafka.median / ours.median
    spread = runs.spread(runs.ratios(kafka.by_round, ours.by_round))
    verdict = runs.verdict(value, target, "higher", spread)
    note = " ".join(filter(None, (remark, SLOW if ours.all_slow else "")))
    yield Row(
        group, name, value, target, "higher", verdict, middle, kafka.best, plain, spread, note
    )


def faster(
    group: str, name: str, ours: samples.Time | None, other: samples.Time | None, target: float
) -> Iterator[Row]:
    """Compare two times of which the other's is to be the longer one."""
    if ours is None or other is None:
        return
    value, spread = (
        other.fast / ours.fast,
        runs.spread(runs.ratios(other.by_round, ours.by_round)),
    )
    verdict, plain = runs.verdict(value, target, "higher", spread), other.median / ours.median
    yield Row(group, name, value, target, "higher", verdict, ours.fast, other.fast, plain, spread)


def beyond_result(
    group: str, name: str, alone: dict[str, Any], kept: dict[str, Any], bare: dict[str, Any]
) -> Iterator[Row]:
    """Count the allocator calls that an operation makes besides those of its result."""
    if not all("per_call" in answer for answer in (alone, kept, bare)):
        return
    # keeping results makes a list grow, by realloc; of these the bare call must make none
    value = bare["per_call"]["realloc"]
    value += sum(kept["per_call"][call] - alone["per_call"][call] for call in OBTAINING)
    value = round(value, 3)
    verdict = runs.verdict(value, 0.0, "lower", 0.0)
    yield Row(group, name, value, 0.0, "lower", verdict, unit="calls")


class Goals:
    """Reads the raw answers of one run."""

    def __init__(self, measured: dict[str, Any]) -> None:
        self.raw = measured["raw"]
        self.best_probe = measured["machine"]["best_probe_ns"]
        self.allocations = measured["allocations"]

    def time(self, cell: str, what: str) -> samples.Time | None:
        return samples.of_samples(self.raw.get(cell, {}).get(what, []), self.best_probe)

    def kafka(self, cell: str, what: str = "kafka") -> samples.KafkaTime | None:
        return samples.of_iterations(self.raw.get(cell, {}).get(what, []))

    def against_kafka(
        self, group: str, cell: cells.Cell, what: str, target: float | None, name: str = ""
    ) -> Iterator[Row]:
        name = name or cell_name(cell)
        yield from over_kafka(
            group, name, self.time(cell.name, what), self.kafka(cell.name), target
        )

    def against(
        self,
        group: str,
        cell: cells.Cell,
        what: str,
        other: str,
        target: float | None,
        *,
        name: str = "",
    ) -> Iterator[Row]:
        """Yield the ratios of our figures to another peer's, both with one thread."""
        yield from self.between(group, cell.name, what, other, target, name or cell_name(cell))

    def between(
        self, group: str, cell: str, what: str, other: str, target: float | None, name: str
    ) -> Iterator[Row]:
        """Compare two operations of one cell, which need not be a bench batch."""
        ours, peer = self.time(cell, what), self.time(cell, other)
        if ours is None or peer is None:
            return
        value = ours.fast / peer.fast
        spread, note = runs.spread(runs.ratios(ours.by_round, peer.by_round)), ""
        if ours.all_slow or peer.all_slow:
            spread, note = max(spread, SCALED), SLOW
        verdict, plain = runs.verdict(value, target, "lower", spread), ours.median / peer.median
        yield Row(
            group, name, value, target, "lower", verdict, ours.fast, peer.fast, plain, spread, note
        )

    def rows(self) -> Iterator[Row]:
        yield from self.kafka_rows()
        yield from self.small_rows()
        yield from self.decompressor_rows()
        yield from self.checksum_rows()
        yield from self.allocation_rows()
        yield from self.reported_rows()

    def kafka_rows(self) -> Iterator[Row]:
        for shape in ((100, 1000), (100, 100)):
            for codec, target in cells.KAFKA_TARGETS[shape].items():
                cell = cells.Cell(2, codec, *shape)
                yield from self.against_kafka(
                    f"slow path vs Kafka, {shape[0]} × {shape[1]} B",
                    cell,
                    "native check_ranges",
                    target,
                )
        for codec in cells.CODECS:
            target = cells.KAFKA_ONE_CALL_TARGETS.get(codec)
            yield from self.against_kafka(
                "vs Kafka, 1 × 100 B, one Python call a batch",
                cells.Cell(2, codec, 1, 100),
                "native check",
                target,
            )
        for codec, target in cells.KAFKA_TARGETS[1, 100].items():
            yield from self.against_kafka(
                "vs Kafka, 1 × 100 B, 100 a call",
                cells.Cell(2, codec, 1, 100),
                "native check_ranges",
                target,
            )
        for cell in cells.cells(2):
            if (cell.records, cell.value_size) not in cells.KAFKA_TARGETS:
                yield from self.against_kafka(
                    "vs Kafka, every other cell", cell, "native check_ranges", 1.0
                )

    def small_rows(self) -> Iterator[Row]:
        """Yield rows for a batch of 180 bytes, in nanoseconds."""
        for name, what, target in (
            ("header and CRC (scan_batches)", "native scan_batches", cells.SCAN_TARGET_NS),
            ("walked (check_ranges)", "native check_ranges", cells.CHECK_TARGET_NS),
        ):
            time = self.time(cells.Cell(2, "none", 1, 100).name, what)
            if time is None:
                continue
            spread = runs.spread([ns for ns in time.by_round if ns is not None])
            verdict = runs.verdict(time.fast, target, "lower", spread)
            yield Row(
                "180-byte batches, 100 a call, ns",
                name,
                time.fast,
                target,
                "lower",
                verdict,
                time.fast,
                spread=spread,
                note=SLOW if time.all_slow else "",
                unit="ns",
            )

    def decompressor_rows(self) -> Iterator[Row]:
        for cell in cells.cells(2):
            if cell.codec == "none":
                continue
            target = (
                cells.DECOMPRESSOR_TARGETS[cell.value_size]
                if cell.payload >= cells.DECOMPRESSOR_FROM
                else None
            )
            if target is not None:
                yield from self.against(
                    "over the decompressor alone",
                    cell,
                    "native check_ranges",
                    "decompressors decompress",
                    target,
                )

    def checksum_rows(self) -> Iterator[Row]:
        cold = [
            answer for answer in self.raw.get("memory", {}).get("cold", []) if "error" not in answer
        ]
        for size in ("1MiB", "16kB"):
            if cold:
                read = statistics.median(
                    value for answer in cold for value in answer[f"read_{size}"]
                )
                ours = [
                    statistics.median(answer[f"crc32c_{size}"])
                    / statistics.median(answer[f"read_{size}"])
                    for answer in cold
                ]
                value = statistics.median(ours)
                note = f"blocks of {size}; plain reads reach {read:.1f} GB/s"
                target, spread = cells.CRC_COLD_TARGET, runs.spread(ours)
                verdict = runs.verdict(value, target, "higher", spread)
                name = f"share of one core's cold memory read, {size}"
                yield Row(
                    "CRC32C", name, value, target, "higher", verdict, spread=spread, note=note
                )
        for size, label in ((16 << 10, "16 kB"), (1 << 20, "1 MiB")):
            ours_time = self.time(f"crc-{size}", "batchval")
            for peer in ("crc32c", "google-crc32c"):
                other = self.time(f"crc-{size}", peer)
                name = f"vs {peer} from Python, {label}"
                yield from faster("CRC32C", name, ours_time, other, cells.CRC_PEERS_TARGET)

    def allocation_rows(self) -> Iterator[Row]:
        every = [
            answers["native check_ranges"]
            for answers in self.allocations.values()
            if "native check_ranges" in answers
        ]
        least = min(
            (answer["allocations"] for answer in every if "allocations" in answer), default=0.0
        )
        for name, answers in self.allocations.items():
            cell = name.removeprefix("v2-")
            alone, kept, bare = (
                answers.get(f"native {what}", {})
                for what in ("result_alone", "check_kept", "check")
            )
            yield from beyond_result(
                "allocator calls a batch beyond the result", f"check, {cell}", alone, kept, bare
            )
            many = answers.get("native check_ranges", {})
            if "allocations" in many:
                # the columns are the result: what a batch adds is what this call makes more than
                # the cheapest one does
                value = round((many["allocations"] - least) / many["batches"], 3)
                size = many["per_call"]["bytes"]
                note = f"{many['allocations']:g} calls, {size:.0f} bytes for the columns of {many['batches']} batches"
                yield Row(
                    "allocator calls a batch beyond the result",
                    f"check_ranges, {cell}",
                    value,
                    0.0,
                    "lower",
                    runs.verdict(value, 0.0, "lower", 0.0),
                    note=note,
                    unit="calls",
                )

    def reported_rows(self) -> Iterator[Row]:
        for cell in cells.cells(2):
            if (cell.records, cell.value_size) in cells.KAFKA_TARGETS:
                yield from self.against_kafka(
                    "provider packages vs Kafka (no target)", cell, "packages check_ranges", None
                )
        for cell in cells.cells(1):
            yield from self.against_kafka(
                "magic 1 vs Kafka (no target)", cell, "native validate_messages", None
            )
        for cell in cells.cells(2):
            if cell.codec == "gzip":
                yield from self.against(
                    "own inflate over libdeflate (no target)",
                    cell,
                    "decompressors decompress",
                    "decompressors libdeflate",
                    None,
                )


def add_allocations(times: dict[str, dict[str, Any]], counted: dict[str, dict[str, Any]]) -> None:
    """Add allocator calls and bytes of a batch to the times of the same operations."""
    for cell, answers in counted.items():
        for what, answer in answers.items():
            if "allocations" in answer and what in times.get(cell, {}):
                times[cell][what] |= {
                    "allocations": answer["allocations"] / answer["batches"],
                    "bytes": answer["per_call"]["bytes"] / answer["batches"],
                }


def times_of(reader: Goals) -> dict[str, dict[str, Any]]:
    """Return the times of all peers by cell."""
    times: dict[str, dict[str, Any]] = {}
    for cell, answers in reader.raw.items():
        for what in answers:
            if what.partition(" ")[0] == "kafka":
                if kafka := reader.kafka(cell, what):
                    found = {"us": kafka.median / 1e3, "best_us": kafka.best / 1e3}
                    times.setdefault(cell, {})[what] = found | {"bytes": kafka.bytes}
            elif time := reader.time(cell, what):
                times.setdefault(cell, {})[what] = {
                    "us": time.fast / 1e3,
                    "low_us": time.low / 1e3,
                    "high_us": time.high / 1e3,
                    "median_us": time.median / 1e3,
                }
    return times


def assess(measured: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a run: rows of goals, and times."""
    reader = Goals(measured)
    found = {cell: times for cell, times in times_of(reader).items() if cell.startswith("v")}
    add_allocations(found, measured["allocations"])
    rows = [asdict(row) for row in reader.rows()]
    return {"machine": measured["machine"], "rows": rows, "times": found}


# ---- words ---------------------------------------------------------------------------------------


def target_rows(rows: list[dict[str, Any]]) -> Iterator[list[str]]:
    """Yield the cells of each row, and a line for each group of rows."""
    group = ""
    for row in rows:
        sign = "≥" if row["better"] == "higher" else "≤"
        if row["group"] != group:
            group = row["group"]
            yield [f"**{group}**", *[""] * (len(HEADINGS) - 1)]
        yield [
            row["name"],
            f"{number(row['value'])}{UNITS[row['unit']]}",
            "" if row["target"] is None else f"{sign} {row['target']:g}",
            row["verdict"],
            f"{number(row['median_value'])}×" if row["median_value"] is not None else "",
            f"{row['spread']:.0%}" if row["spread"] else "",
            micro(row["ours_ns"]),
            micro(row["peer_ns"]),
            row["note"],
        ]


def summary(rows: list[dict[str, Any]]) -> str:
    rated = [row for row in rows if row["verdict"]]
    counts = {
        verdict: [row for row in rated if row["verdict"] == verdict] for verdict in runs.VERDICTS
    }
    text = f"{len(counts[runs.MET])} of {len(rated)} targets met."
    for verdict, words in ((runs.NOISE, "Missed within the spread"), (runs.MISSED, "Missed")):
        if counts[verdict]:
            named = "; ".join(
                f"{row['group']}, {row['name']} ({number(row['value'])})" for row in counts[verdict]
            )
            text += f" {words}: {named}."
    return text


def with_goals(body: str, rows: list[dict[str, Any]]) -> str:
    """Return a page and the table of the internal goals."""
    return f"{body}\n{runs.goals(HEADINGS, target_rows(rows))}\n{summary(rows)}\n"


def markdown(result: dict[str, Any]) -> str:
    """Return what the terminal shows: the page, and the internal goals."""
    return with_goals(page.body(result), result["rows"])


def rounded(value: Any) -> Any:
    """Round to four significant digits: recorded figures are not more exact, and stay small."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list) else value


def main() -> int:
    """Run the command."""
    return runs.again(__doc__, "validation", lambda found: rounded(assess(found)), markdown)


if __name__ == "__main__":
    sys.exit(main())

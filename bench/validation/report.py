"""Judges what run.py has measured against the targets, and writes it down: JSON rows, Markdown tables."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import cells
import samples

README = cells.ROOT / "README.md"
BASELINE = cells.HERE.parent / "baseline.json"
MARKS = re.compile(r"(<!-- bench:start -->\n).*?(<!-- bench:end -->)", re.DOTALL)

OBTAINING = ("malloc", "calloc", "memalign", "mmap")

YES, NO, WITHIN, NONE = "yes", "**no**", "within the spread", ""


@dataclass
class Row:
    """One figure against its target. ``value`` is a ratio but where ``unit`` says otherwise."""

    group: str
    name: str
    value: float
    target: float | None
    better: str  # higher or lower
    met: str
    ours_ns: float | None = None
    peer_ns: float | None = None
    median_value: float | None = None  # the same by plain medians
    spread: float = 0.0  # of the value, from round to round, as a share
    note: str = ""
    unit: str = "x"

    @property
    def key(self) -> str:
        return f"{self.group}: {self.name}"


def met(value: float, target: float | None, better: str) -> str:
    if target is None:
        return NONE
    return YES if (value >= target if better == "higher" else value <= target) else NO


class Judge:
    """Reads the raw answers of one run."""

    def __init__(self, measured: dict[str, Any]) -> None:
        self.raw = measured["raw"]
        self.best_probe = measured["machine"]["best_probe_ns"]
        self.allocations = measured["allocations"]

    def time(self, cell: str, what: str) -> samples.Time | None:
        return samples.of_samples(self.raw.get(cell, {}).get(what, []), self.best_probe)

    def kafka(self, cell: str) -> samples.KafkaTime | None:
        return samples.of_iterations(self.raw.get(cell, {}).get("kafka", []))

    def against_kafka(
        self, group: str, cell: cells.Cell, what: str, target: float | None, name: str = ""
    ) -> Iterator[Row]:
        ours, kafka = self.time(cell.name, what), self.kafka(cell.name)
        if ours is None or kafka is None:
            return
        # without a fast sample ours is taken as it is, slow: nothing says that Kafka's cores were fast
        middle = ours.median if ours.all_slow else ours.fast
        value, plain = kafka.best / middle, kafka.median / ours.median
        verdict = met(value, target, "higher")
        if target == 1.0 and verdict == NO and middle <= kafka.median and plain >= 1.0:
            verdict = WITHIN
        ratios = tuple(k / o for k, o in zip(kafka.by_round, ours.by_round, strict=False))
        note = "no sample in the core's fast state" if ours.all_slow else ""
        name = name or f"{cell.codec} {cell.records} × {cell.value_size} B"
        yield Row(
            group, name, value, target, "higher", verdict, middle, kafka.best, plain, samples.spread(ratios), note
        )

    def against(
        self, group: str, cell: cells.Cell, what: str, other: str, target: float | None, *, name: str = ""
    ) -> Iterator[Row]:
        """Ours : the other's, both one-threaded."""
        ours, peer = self.time(cell.name, what), self.time(cell.name, other)
        if ours is None or peer is None:
            return
        value = ours.fast / peer.fast
        ratios = tuple(o / p for o, p in zip(ours.by_round, peer.by_round, strict=False))
        note = "no sample in the core's fast state" if ours.all_slow or peer.all_slow else ""
        name = name or f"{cell.codec} {cell.records} × {cell.value_size} B"
        plain = ours.median / peer.median
        yield Row(
            group,
            name,
            value,
            target,
            "lower",
            met(value, target, "lower"),
            ours.fast,
            peer.fast,
            plain,
            samples.spread(ratios),
            note,
        )

    def rows(self) -> Iterator[Row]:
        yield from self.kafka_rows()
        yield from self.prototype_rows()
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
                    f"slow path vs Kafka, {shape[0]} × {shape[1]} B", cell, "native check_ranges", target
                )
        for codec in cells.CODECS:
            target = cells.KAFKA_ONE_CALL_TARGETS.get(codec)
            yield from self.against_kafka(
                "vs Kafka, 1 × 100 B, one Python call a batch", cells.Cell(2, codec, 1, 100), "native check", target
            )
        for codec, target in cells.KAFKA_TARGETS[1, 100].items():
            yield from self.against_kafka(
                "vs Kafka, 1 × 100 B, 100 a call", cells.Cell(2, codec, 1, 100), "native check_ranges", target
            )
        for cell in cells.cells(2):
            if (cell.records, cell.value_size) not in cells.KAFKA_TARGETS:
                yield from self.against_kafka("vs Kafka, every other cell", cell, "native check_ranges", 1.0)

    def prototype_rows(self) -> Iterator[Row]:
        for cell in cells.cells(2):
            other = "prototype deep100" if (cell.records, cell.value_size) == (1, 100) else "prototype deep"
            yield from self.against("over the C prototype", cell, "native check_ranges", other, cells.PROTOTYPE_TARGET)

    def small_rows(self) -> Iterator[Row]:
        """A batch of 180 bytes: nanoseconds, or the prototype's where the machine is slow."""
        cell = cells.Cell(2, "none", 1, 100)
        for label, what, other, target in (
            ("header and CRC (scan_batches)", "native scan_batches", "prototype header100", cells.SCAN_TARGET_NS),
            ("walked (check_ranges)", "native check_ranges", "prototype deep100", cells.CHECK_TARGET_NS),
        ):
            for row in self.against("180-byte batches, 100 a call, ns", cell, what, other, None, name=label):
                assert row.ours_ns is not None
                assert row.peer_ns is not None
                row.met = YES if row.ours_ns <= target or row.value <= cells.PROTOTYPE_TARGET else NO
                row.note = f"{row.value:.2f}x the prototype's {row.peer_ns:.1f} ns"
                row.value, row.target, row.unit = row.ours_ns, target, "ns"
                row.median_value = None
                yield row

    def decompressor_rows(self) -> Iterator[Row]:
        for cell in cells.cells(2):
            if cell.codec == "none":
                continue
            target = cells.DECOMPRESSOR_TARGETS[cell.value_size] if cell.payload >= cells.DECOMPRESSOR_FROM else None
            if target is not None:
                yield from self.against(
                    "over the decompressor alone", cell, "native check_ranges", "decompressors decompress", target
                )

    def checksum_rows(self) -> Iterator[Row]:
        cold = [answer for answer in self.raw.get("memory", {}).get("cold", []) if "error" not in answer]
        for size in ("1MiB", "16kB"):
            if cold:
                read = statistics.median(value for answer in cold for value in answer[f"read_{size}"])
                ours = [
                    statistics.median(answer[f"crc32c_{size}"]) / statistics.median(answer[f"read_{size}"])
                    for answer in cold
                ]
                value = statistics.median(ours)
                note = f"blocks of {size}; plain reads reach {read:.1f} GB/s"
                target = cells.CRC_COLD_TARGET
                yield Row(
                    "CRC32C",
                    f"share of one core's cold memory read, {size}",
                    value,
                    target,
                    "higher",
                    met(value, target, "higher"),
                    spread=samples.spread(tuple(ours)),
                    note=note,
                )
        for size, label in ((16 << 10, "16 kB"), (1 << 20, "1 MiB")):
            ours_time = self.time(f"crc-{size}", "batchval")
            for peer in ("crc32c", "google-crc32c"):
                other = self.time(f"crc-{size}", peer)
                if ours_time is None or other is None:
                    continue
                value = other.fast / ours_time.fast
                ratios = tuple(p / o for p, o in zip(other.by_round, ours_time.by_round, strict=False))
                target = cells.CRC_PEERS_TARGET
                plain = other.median / ours_time.median
                yield Row(
                    "CRC32C",
                    f"vs {peer} from Python, {label}",
                    value,
                    target,
                    "higher",
                    met(value, target, "higher"),
                    ours_time.fast,
                    other.fast,
                    plain,
                    samples.spread(ratios),
                )

    def allocation_rows(self) -> Iterator[Row]:
        every = [
            answers["native check_ranges"] for answers in self.allocations.values() if "native check_ranges" in answers
        ]
        least = min((answer["allocations"] for answer in every if "allocations" in answer), default=0.0)
        for name, answers in self.allocations.items():
            cell = name.removeprefix("v2-")
            alone, kept, bare = (answers.get(f"native {what}", {}) for what in ("result_alone", "check_kept", "check"))
            if all("per_call" in answer for answer in (alone, kept, bare)):
                # keeping results makes a list grow, by realloc; of these the bare call must make none
                value = bare["per_call"]["realloc"]
                value += sum(kept["per_call"][call] - alone["per_call"][call] for call in OBTAINING)
                value = round(value, 3)
                yield Row(
                    "allocator calls a batch beyond the result",
                    f"check, {cell}",
                    value,
                    0.0,
                    "lower",
                    met(value, 0.0, "lower"),
                    unit="calls",
                )
            many = answers.get("native check_ranges", {})
            if "allocations" in many:
                # the columns are the result: what a batch adds is what this call makes more than the cheapest one does
                value = round((many["allocations"] - least) / many["batches"], 3)
                size = many["per_call"]["bytes"]
                note = f"{many['allocations']:g} calls, {size:.0f} bytes for the columns of {many['batches']} batches"
                yield Row(
                    "allocator calls a batch beyond the result",
                    f"check_ranges, {cell}",
                    value,
                    0.0,
                    "lower",
                    met(value, 0.0, "lower"),
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
            yield from self.against_kafka("magic 1 vs Kafka (no target)", cell, "native validate_messages", None)
        for cell in cells.cells(2):
            if cell.codec == "gzip":
                yield from self.against(
                    "own inflate over libdeflate (no target)",
                    cell,
                    "decompressors decompress",
                    "decompressors libdeflate",
                    None,
                )


def judge(measured: dict[str, Any]) -> dict[str, Any]:
    reader = Judge(measured)
    rows = list(reader.rows())
    peers: dict[str, dict[str, Any]] = {}
    for cell, answers in reader.raw.items():
        if not cell.startswith("v"):
            continue
        for what in answers:
            if what == "kafka":
                kafka = reader.kafka(cell)
                if kafka:
                    peers.setdefault(cell, {})["kafka"] = {
                        "us": kafka.median / 1e3,
                        "best_us": kafka.best / 1e3,
                        "bytes": kafka.bytes,
                    }
            elif (time := reader.time(cell, what)) is not None:
                peers.setdefault(cell, {})[what] = {
                    "us": time.fast / 1e3,
                    "low_us": time.low / 1e3,
                    "high_us": time.high / 1e3,
                    "median_us": time.median / 1e3,
                }
    for cell, answers in measured["allocations"].items():
        for what, answer in answers.items():
            if "allocations" in answer and what in peers.get(cell, {}):
                peers[cell][what] |= {
                    "allocations": answer["allocations"] / answer["batches"],
                    "bytes": answer["per_call"]["bytes"] / answer["batches"],
                }
    return {"machine": measured["machine"], "rows": [asdict(row) for row in rows], "times": peers}


# ---- words ---------------------------------------------------------------------------------------------------------


def number(value: float | None) -> str:
    if value is None:
        return ""
    if value == 0:
        return "0"
    return f"{value:.3f}" if abs(value) < 1 else f"{value:.2f}" if abs(value) < 20 else f"{value:.0f}"


def micro(ns: float | None) -> str:
    return "" if ns is None else number(ns / 1e3)


def header(machine: dict[str, Any]) -> str:
    codecs = "; ".join(f"{name}: {what}" for name, what in machine["codecs"].items())
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    lines = [
        f"{machine['processor']}; {machine['system']}; {machine['date'][:10]}; batchval at {machine['commit']}.",
        f"Kafka {machine['kafka']}. CPython {machine['python']}, {machine['compiler']}, "
        f"CRC32C kernel {machine['crc32c']}. {codecs}.",
        f"{packages}, franz-go {machine['franz-go']}.",
        f"{machine['rounds']} interleaved rounds over batches made by {machine['batches']}; "
        f"one-threaded peers on core {machine['cores']['one-threaded peers']}, "
        f"JVM and Go on {machine['cores']['JVM and Go']}; "
        f"load average {machine['load_before_and_after'][0]} before, {machine['load_before_and_after'][1]} after.",
    ]
    if machine["missing"]:
        lines.append(
            "Not measured: " + "; ".join(f"{name} ({reason})" for name, reason in machine["missing"].items()) + "."
        )
    return "\n".join(lines)


LEGEND = (
    "Ratios are the result. Against Kafka: its best iteration over our median (the cautious side; 100 batches a "
    "`check_ranges` call, strict mode, provider `native`), then the ratio of plain medians, then the cautious ratio's "
    "spread from round to round. Against one-threaded peers: ours over theirs. "
    "Ours and theirs are CPU time, taken while a probe shows the core's fast state."
)


def target_table(rows: list[dict[str, Any]]) -> str:
    out = [
        "| | measured | target | met | by medians | ± | ours µs | peer µs | |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    group = ""
    for row in rows:
        sign = "≥" if row["better"] == "higher" else "≤"
        target = "" if row["target"] is None else f"{sign} {row['target']:g}"
        if row["group"] != group:
            group = row["group"]
            out.append(f"| **{group}** | | | | | | | | |")
        unit = {"x": "×", "ns": " ns", "calls": ""}[row["unit"]]
        spread = f"{row['spread']:.0%}" if row["spread"] else ""
        plain = f"{number(row['median_value'])}×" if row["median_value"] is not None else ""
        out.append(
            f"| {row['name']} | {number(row['value'])}{unit} | {target} | {row['met']} | {plain} | {spread} "
            f"| {micro(row['ours_ns'])} | {micro(row['peer_ns'])} | {row['note']} |"
        )
    return "\n".join(out)


PEER_COLUMNS = (
    ("native check_ranges", "batchval, 100 a call"),
    ("native check", "batchval, one a call"),
    ("packages check_ranges", "batchval, packages"),
    ("prototype deep", "C prototype"),
    ("kafka", "Kafka (median)"),
    ("franz-go records", "franz-go"),
    ("aiokafka records", "aiokafka"),
    ("kafka-python records", "kafka-python"),
)


def peer_table(times: dict[str, dict[str, Any]]) -> str:
    out = [
        "Microseconds a batch, and allocator calls where they were counted (Kafka: bytes). "
        "Clients make record objects and judge nothing; batchval and the prototype make none.\n",
        "| | " + " | ".join(label for _, label in PEER_COLUMNS) + " |",
        "|---" * (len(PEER_COLUMNS) + 1) + "|",
    ]
    for cell in cells.cells(2):
        if cell.name not in times or (cell.records, cell.value_size) not in cells.KAFKA_TARGETS:
            continue
        fields = []
        for what, _ in PEER_COLUMNS:
            found = times[cell.name].get(what)
            text = number(found["us"]) if found else ""
            if found and "allocations" in found:
                text += f" ({found['allocations']:g})"
            elif found and found.get("bytes"):
                text += f" ({found['bytes']:.0f} B)"
            fields.append(text)
        out.append(f"| {cell.codec} {cell.records} × {cell.value_size} B | " + " | ".join(fields) + " |")
    return "\n".join(out)


def summary(rows: list[dict[str, Any]]) -> str:
    judged = [row for row in rows if row["met"]]
    failed = [row for row in judged if row["met"] == NO]
    text = f"{len(judged) - len(failed)} of {len(judged)} targets met."
    if failed:
        text += (
            " Not met: " + "; ".join(f"{row['group']}, {row['name']} ({number(row['value'])})" for row in failed) + "."
        )
    return text


def markdown(result: dict[str, Any]) -> str:
    parts = [
        header(result["machine"]),
        LEGEND,
        summary(result["rows"]),
        target_table(result["rows"]),
        peer_table(result["times"]),
    ]
    return "\n\n".join(parts) + "\n"


def save(result: dict[str, Any]) -> None:
    """The README's table, and the baseline that compare.py reads."""
    BASELINE.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    text = README.read_text()
    if not MARKS.search(text):
        raise SystemExit("README.md has no <!-- bench:start --> … <!-- bench:end -->")
    README.write_text(MARKS.sub(lambda found: found[1] + markdown(result) + found[2], text))

"""``make demo``: refused batches with their rules, how much is read, and how long it takes."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

import batchval
from batchval import LogValidator, compression, scan_batches
from batchval.core.batches.batch import batches
from batchval.core.format.crc32c import kernel
from batchval.report.units import human_bytes
from batchval.segment.check import Options, Summary, check_paths
from batchval.segment.findings import Finding, Level
from demo.attempts import attempts
from demo.damage import LOG, damaged_copy, damages
from demo.lying_sender import FIRST_LIE, RATE, claimed, lying_sender, ways
from demo.race import CONTENDERS, Lap, peer_version, race

SEGMENTS = Path(__file__).parents[1] / "fixtures" / "segments"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
WIDTH = 100
REPEATS = 31


class Missed(Exception):
    """The demo promised a refusal, and there was none (or an innocent was refused)."""


def table(*columns: tuple[str, str]) -> Table:
    """Make a plain table; a column is a heading with ``<`` or ``>`` (its side) or ``~`` (may
    wrap).
    """
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for heading, side in columns:
        made.add_column(
            heading,
            justify="right" if side == ">" else "left",
            no_wrap=side != "~",
            overflow="fold",
        )
    return made


def real_segments(out: Console) -> None:
    """Show part 1: a broker's segments are valid; unfinished transactions are notes."""
    out.rule("[bold]1. Segments written by an Apache Kafka 4.4.0 broker", align="left")
    rows = table(
        ("partition", "<"),
        ("files", ">"),
        ("batches", ">"),
        ("records", ">"),
        ("bytes", ">"),
        ("findings", "~"),
    )
    total = Summary()
    for folder in sorted(path for path in SEGMENTS.iterdir() if path.is_dir()):
        summary = Summary()
        found = list(check_paths([folder], Options(), summary))
        for name in ("files", "batches", "records", "bytes", "findings"):
            setattr(total, name, getattr(total, name) + getattr(summary, name))
        text = "; ".join(f"{f.rule.id} {f.rule.slug}: {f.reason}" for f in found)
        counts = (summary.files, summary.batches, summary.records, summary.bytes)
        rows.add_row(
            folder.name, *(f"{n:,}" for n in counts), f"[yellow]{text}" if text else "[green]none"
        )
        if any(one.level is not Level.NOTE for one in found):
            raise Missed(f"{folder.name}: {text}")
    out.print(rows)
    out.print(
        f"{total.files} files, {total.batches:,} batches, {total.records:,} records checked."
        "\nThe zeros at the end are preallocated (preallocate=true). An open transaction was not"
        " ended before the broker stopped. Both are notes.\n"
    )


def _shown(found: list[Finding], rules: frozenset[str]) -> Finding:
    return next(finding for finding in found if finding.rule.id in rules)


def damaged_segments(out: Console, seed: int) -> None:
    """Show part 2: each copy has one kind of damage, and each is found."""
    out.rule(f"[bold]2. Copies of them, damaged (seed {seed})", align="left")
    rows = table(("damage", "~"), ("found by rule", "<"), ("position", ">"), ("reason", "~"))
    batch_count = 0
    with tempfile.TemporaryDirectory(prefix="batchval-demo-") as folder:
        for damage in damages():
            copy = damaged_copy(damage, SEGMENTS, Path(folder), seed)
            summary = Summary()
            found = list(check_paths([copy], Options(), summary))
            if not {finding.rule.id for finding in found} & damage.rules:
                raise Missed(
                    f"{damage.what} in {damage.partition}: not found by {', '.join(sorted(damage.rules))}"
                )
            first = _shown(found, damage.rules)
            others = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            rows.add_row(
                damage.what,
                f"[red]{first.rule.id}[/] {first.rule.slug}",
                f"{first.position:,}",
                first.reason + others,
            )
            batch_count += summary.batches
    out.print(rows)
    out.print(
        f"[bold]{len(damages())} of {len(damages())} found[/], and the batches after each damage "
        "were checked too "
        f"({batch_count} in all).\n* with a right checksum: "
        "a checksum alone does not make a batch valid.\n"
    )


def show_attempts(out: Console) -> None:
    """Show part 3: the checks of a produce request; Kafka's answer next to the strict one."""
    out.rule(
        "[bold]3. A Produce request: a batch as a producer sent it, and faulty copies", align="left"
    )
    rows = table(("the batch", "~"), ("strict mode", "<"), ("rule", "<"), ("Kafka", "<"))
    all_attempts, now_ms = attempts(SEGMENTS)
    for attempt in all_attempts:
        strict = LogValidator(attempt.policy).check(attempt.records, now_ms=now_ms)
        kafka = LogValidator(attempt.policy, mode="kafka").check(attempt.records, now_ms=now_ms)
        rule = strict.rule.id if strict.rule else None
        if rule != attempt.rule:
            raise Missed(f"{attempt.what}: {strict!r}, not by rule {attempt.rule}")
        answer = f"[red]{strict.error_code.name}" if strict.rule else "[green]accepted"
        by = f"{strict.rule.id} {strict.rule.slug}" if strict.rule else ""
        differs = kafka.error_code != strict.error_code
        theirs = "accepted" if kafka.ok else f"fails ({int(kafka.error_code)})"
        rows.add_row(attempt.what, answer, by, f"[yellow]{theirs}" if differs else "the same")
    out.print(rows)
    out.print(
        "Where the two differ, Kafka stores the batch, or answers UNKNOWN_SERVER_ERROR, which "
        "names no cause.\nmode='kafka' gives Kafka's own answer for each batch.\n"
    )


def without_decompressing(out: Console) -> None:
    """Show part 4: a scan reads headers and checksums; a check has to decompress."""
    out.rule("[bold]4. How much is read without decompressing", align="left")
    rows = table(
        ("segment", "<"), ("records", ">"), ("scan reads", ">"), ("takes", ">"),
        ("check reads", ">"), ("takes", ">"), ("scan is faster by", ">"),
    )  # fmt: skip
    validator = LogValidator(profile="log")
    for codec in CODECS:
        data = (SEGMENTS / f"codec-{codec}-0" / LOG).read_bytes()
        unpacked = records = 0
        for batch in batches(data):
            for record in batch.records():
                unpacked += record.size_in_bytes if batch.compression_type else 0
                records += 1
        scans, checks = [], []
        for _ in range(REPEATS):
            start = time.perf_counter_ns()
            scan_batches(data)
            middle = time.perf_counter_ns()
            validator.check_batches(data)
            scans.append(middle - start)
            checks.append(time.perf_counter_ns() - middle)
        scan, check = median(scans), median(checks)
        rows.add_row(
            f"codec-{codec}-0", f"{records:,}", human_bytes(len(data)), f"{scan / 1000:,.1f} µs",
            human_bytes(len(data) + unpacked), f"{check / 1000:,.1f} µs", f"{check / scan:.1f}×",
        )  # fmt: skip
    out.print(rows)
    out.print(
        "A scan reads the header and the checksum of each batch: counts, offsets, gaps, epochs, "
        "producers.\nA check reads every record, so it decompresses as well.\n"
    )


def claims_believed_and_not(out: Console) -> None:
    """Show part 5: what claims save, and how a lying sender is found."""
    out.rule(
        "[bold]5. Batches that carry claims (KAFKA-8364), validated without decompression",
        align="left",
    )
    these = claimed(SEGMENTS)
    rows = table(
        ("the same batches", "<"),
        ("takes", ">"),
        ("decompressed", ">"),
        ("is faster by", ">"),
        ("path", "<"),
    )
    made = ways(these)
    for way in made:
        paths = ", ".join(f"{count} {path}" for path, count in way.paths.items())
        faster = f"{made[0].ns / way.ns:.1f}×"
        rows.add_row(
            way.what, f"{way.ns / 1000:,.1f} µs", human_bytes(way.decompressed), faster, paths
        )
    out.print(rows)
    if set(made[-1].paths) != {"claims"}:
        raise Missed(f"expected only the path claims, but the paths are {made[-1].paths}")
    caught = lying_sender(these)
    if (
        "L7" not in caught.answer
        or caught.demoted_path != "shallow"
        or caught.honest_path != "claims"
    ):
        raise Missed(f"the lying sender: {caught}")
    out.print(
        f"A sender makes false claims from batch {FIRST_LIE + 1} on; {RATE:.0%} of its batches are "
        "verified. "
        f"[bold]False claim {caught.lies_until_caught} is found[/]: [red]{caught.answer}[/].\n"
        "For an hour all batches of this sender are decompressed "
        f"(path {caught.demoted_path}). An honest sender keeps the path {caught.honest_path}.\n"
    )


def _spread(ratios: list[float]) -> str:
    return f"[bold]{median(ratios):.1f}×[/] ({min(ratios):.1f}–{max(ratios):.1f})"


def against_the_peer(out: Console, rounds: int) -> list[Lap]:
    """Show part 6: interleaved rounds with aiokafka on the same files."""
    version = peer_version()
    out.rule(f"[bold]6. The same files, read by aiokafka {version or ''}", align="left")
    if version is None:
        out.print("aiokafka with its C extension is not installed: make demo installs it.\n")
        return []
    files = [SEGMENTS / f"codec-{codec}-0" / LOG for codec in CODECS]
    laps = race(files, rounds)
    rows = table(
        ("segment", "<"), ("aiokafka", ">"), ("check", ">"), ("is faster by", "<"),
        ("scan", ">"), ("is faster by", "<"),
    )  # fmt: skip
    for lap in laps:
        peer, check, scan = (f"{lap.ns[name] / 1000:,.1f} µs" for name in CONTENDERS)
        checked, scanned = _spread(lap.ratios["check"]), _spread(lap.ratios["scan"])
        rows.add_row(lap.file.parent.name, peer, check, checked, scan, scanned)
    out.print(rows)
    out.print(
        f"A process each, one at a time, {rounds} rounds in turn, warm; medians, in brackets all rounds. "
        "aiokafka has no validator: it checks the checksum and makes an object of each record; batchval's check asks "
        "each record all rules and makes no object. "
        "To compare with Kafka's own validator: make bench.\n"
    )
    return laps


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m demo.run", description="What batchval does, in six tables."
    )
    parser.add_argument("--seed", type=int, default=1, help="where the damage goes (default: 1)")
    parser.add_argument(
        "--rounds", type=int, default=7, help="rounds of the race with aiokafka (default: 7)"
    )
    chosen = parser.parse_args(arguments)
    width = (
        min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns) if sys.stdout.isatty() else WIDTH
    )
    out = Console(width=width, highlight=False)
    started = time.monotonic()
    codecs = ", ".join(f"{codec} by {origin}" for codec, origin in compression.describe().items())
    out.print(f"[bold]batchval {batchval.__version__}[/]: may this record batch enter a Kafka log?")
    out.print(f"CRC-32C kernel {kernel()}; {codecs}\n", style="dim")
    try:
        real_segments(out)
        damaged_segments(out, chosen.seed)
        show_attempts(out)
        without_decompressing(out)
        claims_believed_and_not(out)
        against_the_peer(out, chosen.rounds)
    except Missed as missed:
        out.print(f"[red bold]This demo is wrong:[/] {missed}")
        return 1
    except KeyboardInterrupt:
        out.print("interrupted")
        return 130
    out.print(
        f"All as promised, in {time.monotonic() - started:.0f} s. Next: .venv-demo/bin/batchval check YOUR.log"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Judges files of batches: the one path for the command line and for Spark.

Partitions are folders of segments; a segment's findings are those of its batches, of its end, between its batches, and
of its index. Whether a partition is compacted decides which gaps are legal.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from batchval.core.columns import BatchColumns
from batchval.core.continuity import Continuity
from batchval.core.validator import LogValidator
from batchval.policy import TopicPolicy
from batchval.rules import Rule, by_number
from batchval.segment.reader import Damage, SegmentFile, Stretch, read_index

__all__ = ["FileFinding", "Options", "Summary", "check_file", "check_paths", "find_files"]

_SEGMENT_NAME = re.compile(r"\d{20}\.log$")
_PATHS = ("", "claims", "shallow", "full", "rebuilt")
#: a gap that is legal once the cleaner has been at the partition
_LEGAL_IF_COMPACTED = (Rule.L3, Rule.L5)


class FileFinding(NamedTuple):
    """One rule that one place of one file breaks. ``offset`` is None where no batch can be read."""

    file: Path
    position: int
    offset: int | None
    rule: Rule
    reason: str
    reported: bool = False  # an extra that is only reported


@dataclass(frozen=True)
class Options:
    """How to judge. ``profile`` None: ``log`` for .log files, ``produce`` for others."""

    mode: str = "strict"
    profile: str | None = None
    policy: TopicPolicy = field(default_factory=TopicPolicy)
    cleanup_policy: str = "auto"
    extras: dict[str, str] = field(default_factory=dict)
    max_decompressed_bytes: int = 64 << 20
    now_ms: int | None = None

    def profile_of(self, path: Path) -> str:
        return self.profile or ("log" if path.suffix == ".log" else "produce")

    def validator(self, profile: str) -> LogValidator:
        return LogValidator(
            self.policy,
            mode=self.mode,
            profile=profile,
            extras=self.extras,
            max_decompressed_bytes=self.max_decompressed_bytes,
        )


@dataclass
class Summary:
    """What was looked at."""

    files: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    paths: Counter[str] = field(default_factory=Counter)
    findings: int = 0
    reports: int = 0
    unreadable: list[str] = field(default_factory=list)

    def add(self, columns: BatchColumns) -> None:
        self.batches += len(columns)
        counts = columns["records_count"]
        self.records += int(counts[(counts > 0) & columns["is_valid"]].sum())
        for path, count in zip(*np.unique(columns["path"], return_counts=True), strict=True):
            self.paths[_PATHS[int(path)]] += int(count)


def find_files(paths: list[Path]) -> Iterator[tuple[Path, Exception | None]]:
    """Files as they are named; below folders, segments by the names that Kafka gives them (and raw .bin dumps)."""
    for path in paths:
        try:
            if not path.is_dir():
                path.stat()
                yield path, None
                continue
            found = sorted(p for p in path.rglob("*") if _SEGMENT_NAME.search(p.name) or p.suffix == ".bin")
        except OSError as error:
            yield path, error
            continue
        if not found:
            yield path, FileNotFoundError("no segments in this folder")
        for file in found:
            yield file, None


def _cleaned(partition: Path) -> bool:
    """Does the log folder's cleaner-offset-checkpoint name the partition?"""
    topic, _, number = partition.name.rpartition("-")
    try:
        lines = (partition.parent / "cleaner-offset-checkpoint").read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return False
    return any(line.split()[:2] == [topic, number] for line in lines[2:])


def check_paths(
    paths: list[Path], options: Options, summary: Summary, progress: Callable[[int], None] = lambda _: None
) -> Iterator[FileFinding]:
    """All findings of all files, partition by partition. What cannot be read is noted in the summary."""
    partition: Path | None = None
    state = _Partition(options, Path())
    for file, error in find_files(paths):
        if error is not None:
            summary.unreadable.append(_one_line(file, error))
            continue
        if options.profile_of(file) == "log" and (
            partition is None or file.parent != partition or not _SEGMENT_NAME.search(file.name)
        ):
            yield from state.finish(summary)
            partition = file.parent
            state = _Partition(options, partition)
        try:
            yield from check_file(file, options, summary, state, progress)
        except OSError as failure:
            summary.unreadable.append(_one_line(file, failure))
    yield from state.finish(summary)


def _one_line(file: Path, error: Exception) -> str:
    return f"{file}: {getattr(error, 'strerror', None) or error}"


class _Partition:
    """What segments of one partition share."""

    def __init__(self, options: Options, folder: Path) -> None:
        compacted = "compact" in options.cleanup_policy or (options.cleanup_policy == "auto" and _cleaned(folder))
        self.continuity = Continuity(compacted=compacted)
        self._auto = options.cleanup_policy == "auto"
        self._held: list[FileFinding] = []

    def feed(self, file: Path, base: int, columns: BatchColumns) -> Iterator[FileFinding]:
        """Findings between batches. Those that compaction would explain are held until the partition is known."""
        if self._auto and not self.continuity.compacted and self._thinned(columns):
            self.continuity.compacted = True
            self._held.clear()
        for found in self.continuity.feed(columns):
            finding = FileFinding(file, base + found.position, found.offset, found.rule, found.reason)
            if found.rule in _LEGAL_IF_COMPACTED:
                self._held.append(finding)
            else:
                yield finding

    @staticmethod
    def _thinned(columns: BatchColumns) -> bool:
        """A batch with fewer records than offsets: only the cleaner writes that."""
        counted = columns["is_valid"] & (columns["records_count"] >= 0)
        return bool((counted & (columns["records_count"] < columns["last_offset_delta"] + 1)).any())

    def finish(self, summary: Summary) -> Iterator[FileFinding]:
        summary.findings += len(self._held)
        yield from self._held
        self._held = []


def check_file(
    file: Path, options: Options, summary: Summary, state: _Partition | None, progress: Callable[[int], None]
) -> Iterator[FileFinding]:
    """The findings of one file, in order of their positions as far as one pass can know it."""
    profile = options.profile_of(file)
    validator = options.validator(profile)
    now_ms = options.now_ms if options.now_ms is not None else int(time.time() * 1000)
    starts: list[np.ndarray] = []
    offsets: list[np.ndarray] = []
    with SegmentFile(file) as segment:
        summary.files += 1
        summary.bytes += segment.size
        for part in segment.stretches():
            if isinstance(part, Damage):
                yield _counted(_damage_finding(file, part, segment.size), summary)
                progress(part.size)
                continue
            columns = (
                validator.check_batches(part.data)
                if profile == "log"
                else validator.check_ranges(part.data, now_ms=now_ms)
            )
            summary.add(columns)
            starts.append(columns["position"] + part.position)
            offsets.append(columns["base_offset"])
            for finding in _batch_findings(file, part, columns):
                yield _counted(finding, summary)
            if profile == "log" and state is not None:
                for finding in state.feed(file, part.position, columns):
                    yield _counted(finding, summary)
            progress(len(part.data))
    if profile == "log" and _SEGMENT_NAME.search(file.name):
        for finding in _index_findings(file, starts, offsets):
            yield _counted(finding, summary)


def _counted(finding: FileFinding, summary: Summary) -> FileFinding:
    if finding.reported:
        summary.reports += 1
    else:
        summary.findings += 1
    return finding


def _damage_finding(file: Path, damage: Damage, size: int) -> FileFinding:
    to_the_end = damage.position + damage.size == size
    if damage.kind == "zeros" and to_the_end:
        return FileFinding(file, damage.position, None, Rule.L1, f"{damage.size} zero bytes to the end")
    if damage.kind == "partial" and to_the_end:
        return FileFinding(file, damage.position, None, Rule.L1, f"{damage.size} bytes of a batch that is not whole")
    rule = Rule.MAGIC_UNKNOWN if damage.kind == "magic" else Rule.BATCH_SIZE_TOO_SMALL
    what = "an unknown magic" if damage.kind == "magic" else "a size field that leads nowhere"
    where = "no batch follows" if to_the_end else f"the next batch that can be proven is {damage.size} bytes on"
    return FileFinding(file, damage.position, None, rule, f"{what}; {where}")


def _batch_findings(file: Path, part: Stretch, columns: BatchColumns) -> Iterator[FileFinding]:
    rules, reports = columns["rule"], columns["reports"]
    for row in np.flatnonzero((rules != 0) | (reports != 0)):
        position, offset = int(columns["position"][row]) + part.position, int(columns["base_offset"][row])
        rule = by_number(int(rules[row]))
        if rule is not None:
            yield FileFinding(file, position, offset, rule, columns.reason_of(int(row)))
            continue
        for bit in range(1, 11):
            if int(reports[row]) & (1 << bit):
                extra = by_number(50 + bit)
                assert extra is not None
                yield FileFinding(file, position, offset, extra, extra.summary, reported=True)


def _index_findings(file: Path, starts: list[np.ndarray], offsets: list[np.ndarray]) -> Iterator[FileFinding]:
    """L6: an entry must point at the start of a batch that does not begin behind the entry's offset."""
    index = file.with_suffix(".index")
    if not index.is_file():
        return
    positions = np.concatenate(starts) if starts else np.empty(0, "<i8")
    bases = np.concatenate(offsets) if offsets else np.empty(0, "<i8")
    for offset, position in read_index(index, int(file.stem)):
        row = int(np.searchsorted(positions, position))
        if row == len(positions) or positions[row] != position:
            yield FileFinding(
                index, position, offset, Rule.L6, f"offset {offset}: no batch starts at position {position}"
            )
        elif bases[row] > offset:
            yield FileFinding(
                index,
                position,
                offset,
                Rule.L6,
                f"offset {offset}: the batch at position {position} begins at {bases[row]}",
            )

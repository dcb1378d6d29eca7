"""Judges files of batches: the one path for the command line and for Spark.

Partitions are folders of segments; a segment's findings are those of its batches, of its end, between its batches, and
of its index. Whether a partition is compacted decides which gaps are legal.
"""

from __future__ import annotations

import errno
import functools
import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from batchval.core.columns import BatchColumns
from batchval.core.continuity import Continuity
from batchval.core.result import CLAIMS
from batchval.core.validator import LogValidator
from batchval.kafka_versions import DEFAULT_KAFKA_VERSION, KafkaVersionName
from batchval.policy import TopicPolicy
from batchval.report.words import plural
from batchval.rules import Rule, by_number
from batchval.segment.folders import CHECKPOINT, SEGMENT_NAME, cleaned_partitions, read_small, walk
from batchval.segment.foreign import START_SIZE, foreign_reason
from batchval.segment.reader import INDEX_ENTRY, Damage, SegmentFile, Stretch, index_entries
from batchval.types import DEFAULT_MAX_DECOMPRESSED_BYTES

__all__ = [
    "LEGAL_IF_COMPACTED",
    "FileFinding",
    "IndexLie",
    "Options",
    "Places",
    "Summary",
    "check_file",
    "check_paths",
    "damage_reason",
    "find_files",
    "index_lies",
    "index_rest_reason",
    "thinned",
]

_PATHS = ("", "claims", "shallow", "full", "rebuilt")
#: gaps that are legal once the cleaner has been at the partition
LEGAL_IF_COMPACTED = (Rule.L3, Rule.L5)


class FileFinding(NamedTuple):
    """One rule that one place of one file breaks. ``offset`` is None where no batch can be read."""

    file: Path
    position: int
    offset: int | None
    rule: Rule
    reason: str
    reported: bool = False  # an extra that is only reported


#: (validator, whole batches, now_ms) -> their rows
ClaimsJudge: TypeAlias = Callable[[LogValidator, memoryview, int], BatchColumns]


@dataclass(frozen=True)
class Options:
    """How to judge. ``profile`` None: ``log`` for .log files, ``produce`` for others."""

    mode: Literal["strict", "kafka"] = "strict"
    profile: Literal["produce", "log"] | None = None
    kafka_version: KafkaVersionName = DEFAULT_KAFKA_VERSION
    policy: TopicPolicy = field(default_factory=TopicPolicy)
    cleanup_policy: str = "auto"
    extras: dict[str, str] = field(default_factory=dict)
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
    now_ms: int | None = None
    #: judges the claims of produce batches; at rest those in a header are always held against the records
    judge_claims: ClaimsJudge | None = None

    def profile_of(self, path: Path) -> Literal["produce", "log"]:
        return self.profile or ("log" if path.suffix == ".log" else "produce")

    def validator(self, profile: Literal["produce", "log"]) -> LogValidator:
        return LogValidator(
            self.policy,
            mode=self.mode,
            profile=profile,
            extras=self.extras,
            max_decompressed_bytes=None if self.mode == "kafka" else self.max_decompressed_bytes,
            kafka_version=self.kafka_version,
        )


@dataclass
class Summary:
    """What was looked at."""

    files: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    paths: Counter[str] = field(default_factory=Counter)
    claims: Counter[str] = field(default_factory=Counter)
    findings: int = 0
    reports: int = 0
    unreadable: list[str] = field(default_factory=list)

    def add(self, columns: BatchColumns) -> None:
        self.batches += len(columns)
        counts = columns["records_count"]  # -1 where magic 0 or 1 does not say
        self.records += int(counts[(counts > 0) & columns["is_valid"]].sum())
        for path, count in zip(*np.unique(columns["path"], return_counts=True), strict=True):
            self.paths[_PATHS[int(path)]] += int(count)
        for answer, count in zip(*np.unique(columns["claims"], return_counts=True), strict=True):
            if answer:
                self.claims[str(CLAIMS[int(answer)])] += int(count)


def is_segment(file: Path) -> bool:
    """Has the file the name that Kafka gives a segment: its base offset in 20 digits?"""
    return SEGMENT_NAME.fullmatch(file.name) is not None


def find_files(paths: list[Path]) -> Iterator[tuple[Path, OSError | None]]:
    """Files as they are named; below folders, segments by the names that Kafka gives them (and raw .bin dumps).

    Links to folders are followed, no folder is walked twice below one path.
    Files of one folder come together and in the order of their names, each once, however they were named: a partition
    can only be judged from its start. What cannot be read comes with its error.
    """
    folders: dict[Path, int] = {}
    found: dict[str, tuple[Path, OSError | None]] = {}
    for path in paths:
        for file, error in _below(path):
            found.setdefault(os.path.abspath(file), (file, error))
            folders.setdefault(file.parent, len(folders))
    yield from sorted(found.values(), key=lambda entry: (folders[entry[0].parent], entry[0].name))


def _below(path: Path) -> Iterator[tuple[Path, OSError | None]]:
    try:
        if not stat.S_ISDIR(path.stat().st_mode):
            yield path, None
            return
    except OSError as error:
        yield path, error
        return
    problems: list[OSError] = []
    empty = True
    for folder, names in walk(str(path), problems):
        for name in names:
            file = Path(folder, name)
            if is_segment(file) or file.suffix == ".bin":
                empty = False
                yield file, None
    for problem in problems:
        yield Path(problem.filename), problem
    if empty and not problems:
        yield path, FileNotFoundError(errno.ENOENT, "no segments in this folder")


def _cleaned(folder: Path) -> frozenset[tuple[str, str]]:
    """The partitions that a log folder's cleaner-offset-checkpoint names."""
    try:
        with SegmentFile(folder / CHECKPOINT) as file:
            return cleaned_partitions(read_small(file))
    except (OSError, UnicodeDecodeError):
        return frozenset()


def check_paths(
    paths: list[Path], options: Options, summary: Summary, progress: Callable[[int], None] = lambda _: None
) -> Iterator[FileFinding]:
    """All findings of all files, partition by partition. What cannot be read is noted in the summary."""
    partition: Path | None = None
    state: _Partition | None = None
    cleaned_in = functools.cache(_cleaned)  # once a log folder, not for each of its partitions
    for file, error in find_files(paths):
        if error is not None:
            summary.unreadable.append(_one_line(file, error))
            continue
        if options.profile_of(file) == "log" and (
            partition is None or file.parent != partition or not is_segment(file)
        ):
            if state is not None:
                yield from state.finish(summary)
            partition = file.parent if is_segment(file) else None
            state = _Partition(options, file.parent, cleaned_in)
        try:
            yield from check_file(file, options, summary, state, progress)
        except OSError as failure:
            summary.unreadable.append(_one_line(file, failure))
            if state is not None:
                state.continuity.damaged()
    if state is not None:
        yield from state.finish(summary)


def _one_line(file: Path, error: OSError) -> str:
    return f"{error.filename or file}: {error.strerror or error}"


def thinned(columns: BatchColumns) -> bool:
    """Is there a batch with fewer records than offsets? Only the cleaner writes that."""
    counted = columns["is_valid"] & (columns["records_count"] >= 0)
    return bool(
        (counted & (columns["records_count"].astype("<i8") <= columns["last_offset_delta"].astype("<i8"))).any()
    )


class _Partition:
    """What segments of one partition share."""

    def __init__(
        self, options: Options, folder: Path, cleaned_in: Callable[[Path], frozenset[tuple[str, str]]]
    ) -> None:
        self._auto = options.cleanup_policy == "auto"
        topic, _, number = folder.name.rpartition("-")
        compacted = (topic, number) in cleaned_in(folder.parent) if self._auto else "compact" in options.cleanup_policy
        self.continuity = Continuity(compacted=compacted)
        self._held: list[FileFinding] = []

    def feed(self, file: Path, base: int, columns: BatchColumns) -> Iterator[FileFinding]:
        """Findings between batches. Those that compaction would explain are held until the partition is known."""
        if self._auto and not self.continuity.compacted and thinned(columns):
            self.continuity.compacted = True
            self._held.clear()
        for found in self.continuity.feed(columns, base):
            finding = FileFinding(file, found.position, found.offset, found.rule, found.reason)
            if self._auto and found.rule in LEGAL_IF_COMPACTED:
                self._held.append(finding)
            else:
                yield finding

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
    places = Places()
    with SegmentFile(file, accept_claims_header=options.policy.accept_claims_header) as segment:
        summary.files += 1
        for part in segment.stretches(scan=validator.check_batches if profile == "log" else None):
            if isinstance(part, Damage):
                summary.bytes += part.size
                places.damaged.append(part)
                if state is not None:
                    state.continuity.damaged()
                rule, reason = damage_reason(part, segment.size)
                if part.position == 0 and part.size >= segment.size:
                    reason = foreign_reason(file, bytes(segment.read(0, START_SIZE))) or reason
                yield _counted(FileFinding(file, part.position, None, rule, reason), summary)
                progress(part.size)
                continue
            if profile == "log":
                columns = part.columns
            elif options.judge_claims is None:
                columns = validator.check_ranges(part.data, now_ms=now_ms)
            else:
                columns = options.judge_claims(validator, part.data, now_ms)
            summary.bytes += len(part.data)
            summary.add(columns)
            findings = list(_batch_findings(file, part, columns))
            if profile == "log":
                places.add(part.position, columns)
                if state is not None:
                    findings += state.feed(file, part.position, columns)
            for finding in sorted(findings, key=lambda f: (f.position, f.rule.number)):
                yield _counted(finding, summary)
            progress(len(part.data))
    if profile == "log" and is_segment(file):
        index = file.with_suffix(".index")
        try:
            found = list(_index_findings(index, int(file.stem), places))
        except OSError as failure:  # of the segment all has been read
            summary.unreadable.append(_one_line(index, failure))
            return
        for finding in found:
            yield _counted(finding, summary)


def _counted(finding: FileFinding, summary: Summary) -> FileFinding:
    if finding.reported:
        summary.reports += 1
    else:
        summary.findings += 1
    return finding


_DAMAGES = {
    "partial": (Rule.L1, "a size field that runs past the end of the file"),
    "zeros": (Rule.L1, "zero bytes"),
    "size": (Rule.BATCH_SIZE_TOO_SMALL, "an impossible size field"),
    "magic": (Rule.MAGIC_UNKNOWN, "an unknown magic"),
    "crc": (Rule.CRC_MISMATCH, "a wrong checksum, and no batch where the size field points"),
}


def damage_reason(damage: Damage, size: int) -> tuple[Rule, str]:
    """The rule that a damage breaks, and a line about it. ``size``: the file's."""
    to_the_end = damage.position + damage.size >= size
    rule, reason = _DAMAGES[damage.kind]
    if to_the_end and damage.kind == "zeros":
        reason = f"{plural(damage.size, 'zero byte')} to the end"
    elif to_the_end and damage.kind == "partial":
        reason = f"{plural(damage.size, 'byte')} of a batch that is not whole"
    elif to_the_end:
        reason += f"; no batch follows in the {plural(damage.size, 'byte')} to the end"
    else:
        reason += f"; the next batch that can be proven is {plural(damage.size, 'byte')} on"
    return rule, reason


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


class Places:
    """Where a segment's batches start, to hold its index against."""

    def __init__(self) -> None:
        self._starts: list[np.ndarray] = [np.empty(0, "<i8")]
        self._offsets: list[np.ndarray] = [np.empty(0, "<i8")]
        self.damaged: list[Damage] = []

    def add(self, base: int, columns: BatchColumns) -> None:
        first = columns["base_offset"].copy()
        # what is not believed, or holds its last offset alone (magic 0 and 1), says nothing about an entry's offset
        first[~columns["is_valid"] | (columns["magic"] < 2)] = -(2**63)
        self._starts.append(columns["position"] + base)
        self._offsets.append(first)

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        return np.concatenate(self._starts), np.concatenate(self._offsets)

    def lost(self, position: int) -> bool:
        return any(d.position <= position < d.position + d.size for d in self.damaged)


def _index_findings(index: Path, base_offset: int, places: Places) -> Iterator[FileFinding]:
    try:
        with SegmentFile(index) as file:
            data = read_small(file)
    except FileNotFoundError:
        return
    rest = len(data) % INDEX_ENTRY
    if rest:
        yield FileFinding(index, len(data) - rest, None, Rule.L6, index_rest_reason(rest))
    for lie in index_lies(*index_entries(data, base_offset), *places.arrays()):
        if lie.names_a_batch or not places.lost(lie.position):
            yield FileFinding(index, lie.position, lie.offset, Rule.L6, lie.reason)


class IndexLie(NamedTuple):
    """An entry that does not tell the truth; where it names no batch, one may have been there that was damaged."""

    position: int
    offset: int
    reason: str
    names_a_batch: bool


def index_lies(offsets: np.ndarray, positions: np.ndarray, starts: np.ndarray, bases: np.ndarray) -> Iterator[IndexLie]:
    """L6: an entry must point at the start of a batch that does not begin behind the entry's offset.

    ``offsets``, ``positions``: the entries'. ``starts``: where batches start, ascending; ``bases``: their base offsets,
    the least int64 where that is not known.
    """
    rows = np.searchsorted(starts, positions)
    found = rows < len(starts)
    rows[~found] = 0
    if len(starts):
        found &= starts[rows] == positions
        behind = found & (bases[rows] > offsets)
    else:
        behind = found
    for i in np.flatnonzero(behind | ~found):
        offset, position = int(offsets[i]), int(positions[i])
        reason = f"offset {offset}: no batch starts at position {position}"
        if found[i]:
            reason = f"offset {offset}: the batch at position {position} begins at {bases[rows[i]]}"
        yield IndexLie(position, offset, reason, names_a_batch=bool(found[i]))


def index_rest_reason(rest: int) -> str:
    return f"{plural(rest, 'byte')} behind the last whole entry"

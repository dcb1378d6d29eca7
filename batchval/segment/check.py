"""``batchval check``: an audit in one process, of segments and of recorded batches.

Segments are validated partition by partition, as an audit does (batchval.segment.segment_run).
Other files hold batches as a client sent them, and are validated on their own.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from batchval.core.batches.columns import BatchColumns
from batchval.core.batches.result import CLAIMS, PATHS
from batchval.errors import BatchvalError
from batchval.rules import by_number, extras_of
from batchval.segment.file_formats import START_SIZE, foreign_reason
from batchval.segment.file_names import SEGMENT_NAME
from batchval.segment.findings import Finding, Level, damage_reason
from batchval.segment.folders import walk
from batchval.segment.options import Options, validator_of
from batchval.segment.partition import Joined, by_folder, join
from batchval.segment.range_check import Block, RangeResult, check_range
from batchval.segment.ranges import Range
from batchval.segment.reader import Damage, SegmentFile, Stretch
from batchval.segment.replicas import compare_replicas
from batchval.segment.salvage import Salvage
from batchval.segment.segment_run import Work, list_work, moved_meanwhile, settled
from batchval.segment.store import SegmentInfo, Unreadable, folder_and_name
from batchval.segment.trust import TrustCounts

__all__ = ["Options", "Summary", "check_paths", "find_files", "is_segment"]


@dataclass
class Summary:
    """Totals of a check.

    ``transactions``  rows of partitions and their open transactions
    ``moved``      segments that a broker deleted or replaced meanwhile
    ``unsettled``  files that changed each time they were read
    """

    files: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    paths: Counter[str] = field(default_factory=Counter)
    claims: Counter[str] = field(default_factory=Counter)
    trust: TrustCounts = field(default_factory=TrustCounts)
    findings: int = 0
    reports: int = 0
    notes: int = 0
    moved: int = 0
    transactions: list[dict[str, Any]] = field(default_factory=list)
    unsettled: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)

    def add(self, columns: BatchColumns) -> None:
        """Count the batches of one stretch."""
        self.batches += len(columns)
        counts = columns["records_count"]  # -1 where magic 0 or 1 does not say
        self.records += int(counts[(counts > 0) & columns["is_valid"]].sum())
        for names, counter, column in (
            (PATHS, self.paths, "path"),
            (CLAIMS, self.claims, "claims"),
        ):
            for number, count in enumerate(np.bincount(columns[column]).tolist()):
                if count and names[number]:
                    counter[str(names[number])] += count

    def add_result(self, result: RangeResult) -> None:
        """Count the results of a range."""
        self.batches += result.batches
        self.records += result.records
        self.bytes += result.bytes
        self.paths += result.paths
        self.claims += result.claims
        self.trust.add(result.trust)

    def count(self, finding: Finding) -> Finding:
        """Count a finding by its level, and return it."""
        if finding.level is Level.FINDING:
            self.findings += 1
        elif finding.level is Level.REPORT:
            self.reports += 1
        else:
            self.notes += 1
        return finding


def is_segment(file: Path) -> bool:
    """Return whether the file has the name of a segment: its base offset in 20 digits."""
    return SEGMENT_NAME.fullmatch(file.name) is not None


def find_files(paths: list[Path]) -> Iterator[tuple[Path, OSError | None]]:
    """Yield files as they are named and, below folders, the segments by Kafka's names (and raw .bin
    dumps).

    Links to folders are followed, no folder is walked twice below one path. Files of one folder
    come together and in the order of their names, each once, however they were named: a partition
    can only be validated from its start. What cannot be read comes with its error.
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


def check_paths(
    paths: list[Path],
    options: Options,
    summary: Summary,
    progress: Callable[[int], None] = lambda _: None,
    salvage: Salvage | None = None,
) -> Iterator[Finding]:
    """Yield all findings of all files, partition by partition. Unreadable files are noted in the
    summary.

    ``salvage`` writes the sound batches of each partition. Raises OSError where it cannot.
    """
    options = replace(options, deep=True, split_bytes=1 << 62, topics=None)
    roots = {os.path.abspath(path): path for path in paths}
    named: list[str] = []
    loose: list[Path] = []
    for file, error in find_files(paths):
        if error is not None:
            summary.unreadable.append(_one_line(file, error))
        elif options.profile_of(file) == "log" and is_segment(file):
            named.append(os.path.abspath(file))
        else:
            loose.append(file)

    if options.trust_claims is not None:
        for file in loose:
            if options.profile_of(file) == "produce":
                why = "--trust-claims is for segments: use --as log, or --claims audit:RATE"
                raise BatchvalError(f"{file}: {why}")

    def read(ranges: Sequence[Range]) -> Iterator[RangeResult]:
        return (_check_range(part, options, progress, salvage) for part in ranges)

    works = list(_works(paths, set(named), options))
    if salvage is not None:
        salvage.expect([folder_and_name(one.listed[0].uri)[0] for one in works])
    partitions = _settled(works, read, options, summary)
    if options.replicas:
        partitions = iter(held := list(partitions))
        compare_replicas(held, options, progress)
    for partition in partitions:
        if salvage is not None:
            salvage.write(partition, lambda file: str(_as_named(file, roots)))
        yield from _counted(partition, roots, summary)
    for file in loose:
        try:
            if options.profile_of(file) == "log":
                alone = _alone(_loose_range(file), options, progress)
                yield from _counted(alone, roots, summary)
            else:
                yield from map(summary.count, _check_dump(file, options, summary, progress))
        except OSError as failure:
            summary.unreadable.append(_one_line(file, failure))
    summary.unreadable = list(dict.fromkeys(summary.unreadable))


def _settled(
    works: Iterable[Work],
    read: Callable[[Sequence[Range]], Iterator[RangeResult]],
    options: Options,
    summary: Summary,
) -> Iterator[Joined]:
    """Yield the partitions of all work."""
    for work in works:
        joined = settled(work, read(work.ranges), options, read)
        summary.moved += moved_meanwhile(work, joined)
        yield from joined


def _works(paths: list[Path], named: set[str], options: Options) -> Iterator[Work]:
    """Yield the work of each partition."""
    wanted = tuple(str(path) for path in paths if path.is_dir() or is_segment(path))
    whole = list_work(wanted, options)
    ranges = {part.segment.uri: part for part in whole.ranges}
    for listed in by_folder(whole.listed).values():
        segments = [one for one in listed if isinstance(one, SegmentInfo) and one.uri in named]
        lost = [one for one in listed if isinstance(one, Unreadable) and is_segment(Path(one.uri))]
        if segments or lost:
            yield Work(
                [*segments, *lost],
                [ranges[one.uri] for one in segments],
                paths=tuple(map(os.path.abspath, wanted)),
            )


def _check_range(
    part: Range, options: Options, progress: Callable[[int], None], salvage: Salvage | None = None
) -> RangeResult:
    """Check a range, with progress while it is read."""
    done = 0

    def take(block: Block) -> None:
        nonlocal done
        progress(block.size)
        done += block.size

    result = check_range(part, options, take if salvage is None else salvage.watch(take))
    if salvage is not None:
        salvage.seen(result)
    progress(max(part.end - part.start - done, 0))
    return result


def _loose_range(file: Path) -> Range:
    """Return the range of a file of batches that is not named as a segment: nothing is known of its
    neighbours."""
    with SegmentFile(file) as segment:
        size = segment.size
    info = SegmentInfo(os.path.abspath(file), file.parent.name, -1, -1, size, 0)
    return Range(info, 0, size)


def _alone(part: Range, options: Options, progress: Callable[[int], None]) -> Joined:
    return join(
        [part.segment], {part.segment: [_check_range(part, options, progress)]}, options, {}
    )


def _counted(joined: Joined, roots: dict[str, Path], summary: Summary) -> Iterator[Finding]:
    """Yield the findings of a partition, with files as they were named."""
    for row in joined.transaction_rows:
        summary.transactions.append(row | {"folder": str(_as_named(row["folder"], roots))})
    for part in joined.parts:
        summary.files += 1
        for result in part.results:
            summary.add_result(result)
    for lines, lost in (
        (summary.unreadable, joined.unreadable),
        (summary.unsettled, joined.unsettled),
    ):
        lines += [f"{_as_named(one.uri, roots)}: {one.reason}" for one in lost]
    for finding in joined.findings:
        yield summary.count(finding._replace(file=str(_as_named(finding.file, roots))))


def _as_named(file: str, roots: dict[str, Path]) -> Path:
    """Return a path below the one that was named."""
    for root, path in roots.items():
        if file == root:
            return path
        if file.startswith(root + os.sep):
            return path / file[len(root) + 1 :]
        folder = os.path.dirname(root)
        if file.startswith(folder + os.sep) and not os.path.isdir(root):
            return path.parent / file[len(folder) + 1 :]
    return Path(file)


def _one_line(file: Path, error: OSError) -> str:
    return f"{error.filename or file}: {error.strerror or error}"


# ---- batches as a client sent them ---------------------------------------------------------------


def _check_dump(
    file: Path, options: Options, summary: Summary, progress: Callable[[int], None]
) -> Iterator[Finding]:
    """Yield the findings of a file of batches, in order of their positions."""
    validator = validator_of(options, "produce")
    now_ms = options.now_ms if options.now_ms is not None else int(time.time() * 1000)
    with SegmentFile(file, accept_claims_header=options.reads_claims) as dump:
        summary.files += 1
        for part in dump.stretches():
            if isinstance(part, Damage):
                summary.bytes += part.size
                rule, reason = damage_reason(part, dump.size)
                if part.position == 0 and part.size >= dump.size:
                    reason = foreign_reason(file, bytes(dump.read(0, START_SIZE))) or reason
                yield Finding(str(file), part.position, None, rule, reason)
                progress(part.size)
                continue
            if options.judge_claims is None:
                columns = validator.check_ranges(part.data, now_ms=now_ms)
            else:
                columns = options.judge_claims(validator, part.data, now_ms)
            summary.bytes += len(part.data)
            summary.add(columns)
            yield from _of_batches(str(file), part, columns)
            progress(len(part.data))


def _of_batches(file: str, part: Stretch, columns: BatchColumns) -> Iterator[Finding]:
    rules, reports = columns["rule"], columns["reports"]
    for row in np.flatnonzero((rules != 0) | (reports != 0)):
        place = int(columns["position"][row]) + part.position, int(columns["base_offset"][row])
        rule = by_number(int(rules[row]))
        if rule is not None:
            yield Finding(file, *place, rule, columns.reason_of(int(row)))
            continue
        for extra in extras_of(int(reports[row])):
            yield Finding(file, *place, extra, extra.summary, Level.REPORT)

"""An audit from paths to outputs: list, cut, map, reduce, write. The engine is whoever maps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from batchval.audit.segments import Range, cut, not_there
from batchval.audit.store import SegmentInfo, Store, Unreadable

if TYPE_CHECKING:
    from batchval.audit.manifest import Entry, Manifest
    from batchval.audit.reduce import Audit
    from batchval.audit.rows import Options
    from batchval.audit.state import RangeResult

__all__ = ["Engine", "Work", "audit", "list_work"]

#: (ranges, options, out) -> a result for each, in any order
Engine: TypeAlias = "Callable[[Sequence[Range], Options, str | None], Iterable[RangeResult]]"


@dataclass
class Work:
    """What there is to do. ``known``: segments of which an earlier audit has read all, or the first part."""

    listed: list[SegmentInfo | Unreadable] = field(default_factory=list)
    ranges: list[Range] = field(default_factory=list)
    known: dict[str, Entry] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return sum(one.end - one.start for one in self.ranges)


def list_work(paths: Sequence[str], options: Options, since: Manifest | None = None) -> Work:
    """Lists the segments below paths and cuts what is to be read, the largest ranges first. BatchvalError: a scheme."""
    found = Work()
    seen: set[str] = set()
    for one in _listed(paths, options):
        if one.uri in seen:
            continue
        seen.add(one.uri)
        found.listed.append(one)
        if isinstance(one, Unreadable):
            continue
        start = 0
        if since is not None:
            entry = since.same(one)
            if entry is not None:
                found.known[one.uri] = entry
                continue
            entry = since.grown(one)
            if entry is not None:
                found.known[one.uri] = entry
                start = entry.end
        store, _ = Store.of(one.uri)
        for part in cut(one, options.split_bytes, store):
            if part.end > start or (part.end == one.size and start == one.size):
                found.ranges.append(part._replace(start=max(part.start, start)))
    found.listed += not_there(paths, options.topics, found.listed)
    found.ranges.sort(key=lambda part: (part.start - part.end, part.segment.uri, part.start))
    return found


def _listed(paths: Iterable[str], options: Options) -> Iterator[SegmentInfo | Unreadable]:
    for uri in paths:
        store, path = Store.of(uri)
        yield from store.list_segments(path, options.topics)


def audit(
    todo: Work, options: Options, engine: Engine, out: str | None = None, prepared: Callable[[], None] = lambda: None
) -> Audit:
    """Does it. With ``out``, a folder or URI, writes batches/ errors/ summary/ segments/ there.

    BatchvalError: the folder is no audit's; OSError: it cannot be written. A run that does not come to its end leaves a
    folder without _SUCCESS, which the next run clears.
    """
    # imported here, while the workers' own imports are under way: see local.start_early
    from batchval.audit import outputs
    from batchval.audit.reduce import reduce

    # nothing to read: no JVM either. One that does not start empties no folder
    results = engine(todo.ranges, options, out) if todo.ranges else ()
    if out is not None:
        outputs.prepare(out)
    prepared()
    found = reduce(todo.listed, results, options, todo.known)
    if out is not None:
        outputs.finish(out, found.tables, found.files)
    return found

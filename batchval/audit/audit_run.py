"""An audit from a work list to outputs: map, join, write. runs/ gets a row for it, after those of
the audits that it goes on from (--since).
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4

from batchval.segment.segment_run import Work, list_work
from batchval.segment.store import shown, text_of

if TYPE_CHECKING:
    import pyarrow as pa

    from batchval.audit.reduce import Audit
    from batchval.segment.options import Options
    from batchval.segment.range_check import RangeResult
    from batchval.segment.ranges import Range

__all__ = ["Engine", "Run", "Work", "audit", "list_work"]

#: (ranges, options, out) -> a result for each, in any order
Engine: TypeAlias = "Callable[[Sequence[Range], Options, str | None], Iterable[RangeResult]]"


@dataclass(frozen=True)
class Run:
    """Options of one run of an audit.

    ``since``      the folder of the audit that this one goes on from
    ``exit_code``  of the process, by what was found
    ``version``    of batchval
    ``progress``   gets bytes of replicas as they are compared
    """

    engine: str = "local"
    since: str | None = None
    exit_code: Callable[[Audit], int] = lambda found: 0
    version: str | None = None
    progress: Callable[[int], None] = lambda done: None


def audit(
    todo: Work,
    options: Options,
    engine: Engine,
    out: str | None = None,
    prepared: Callable[[], None] = lambda: None,
    run: Run | None = None,
) -> Audit:
    """Run an audit. With ``out``, a folder or URI, write the tables there (batchval.audit.outputs).

    BatchvalError: the folder has other files; OSError: it cannot be written. A run that does not
    come to its end leaves a folder without _SUCCESS, which the next run clears.
    """
    # imported here, while the workers' own imports are under way: see local.start_early
    from batchval.audit import batch_files, outputs
    from batchval.audit.local import run_local
    from batchval.audit.reduce import reduce

    # nothing to read: no JVM either. One that does not start empties no folder
    results = engine(todo.ranges, options, out) if todo.ranges else ()
    if out is not None:
        outputs.prepare(out)
    prepared()
    written: list[tuple[str, int, int]] = []
    run = run or Run()
    # few segments have changed, and they lie on this machine
    try:
        found = reduce(
            todo,
            _noting(results, written),
            options,
            lambda ranges: _noting(run_local(ranges, options, out), written),
            run.progress,
        )
        if out is not None:
            batch_files.keep(out, written, found.files)
            found.tables["runs"] = _runs_table(run, todo, options, found)
            outputs.finish(out, found.tables)
    except BaseException:
        if isinstance(results, Generator):
            results.close()  # ends the workers
        if out is not None:
            outputs.discard(out)
        raise
    return found


def _noting(
    results: Iterable[RangeResult], written: list[tuple[str, int, int]]
) -> Iterator[RangeResult]:
    """Yield the results, and note where their rows are."""
    for result in results:
        written += result.files
        yield result


def _runs_table(run: Run, work: Work, options: Options, found: Audit) -> pa.Table:
    """Return the earlier runs and this one."""
    import pyarrow as pa

    from batchval.audit.outputs import RUNS

    row: dict[str, Any] = {
        "run_id": uuid4().hex,
        "started_at": work.now_ms,
        "ended_at": work.now_ms if options.now_ms is not None else int(time.time() * 1000),
        "version": run.version,
        "engine": run.engine,
        "paths": [text_of(shown(path)) for path in work.paths],
        "options": _options(options),
        "since": run.since and text_of(shown(run.since)),
        "findings": len(found.findings),
        **found.states(),
        "notes": len(found.notes),
        "unreadable": len(found.unreadable),
        "exit_code": run.exit_code(found),
    }
    for name in ("segments", "skipped", "reread", "grown", "batches", "bytes", "moved"):
        row[name] = getattr(found, name)
    table = pa.Table.from_pylist([row], RUNS)
    return table if work.since is None else pa.concat_tables([work.since.runs.cast(RUNS), table])


def _options(options: Options) -> str:
    others = dataclasses.replace(
        options, policy=None, judge_claims=None, extras={}, record_rules=()
    )
    plain = dataclasses.asdict(others)
    plain["kafka_version"] = options.release.name
    plain["record_rules"] = [
        [pattern, rules.to_mapping()] for pattern, rules in options.record_rules
    ] or None
    return json.dumps(
        {name: value for name, value in plain.items() if value is not None}, sort_keys=True
    )

"""A task: ranges of segments in; its files, and one small result for each range, out.

Spark's tasks, local processes and a plain loop call the same function, so their rows and findings
are the same.
"""

from __future__ import annotations

from collections.abc import Callable

from batchval.audit.arrow_rows import rows_of, unreadable_row
from batchval.audit.batch_files import BatchFiles
from batchval.audit.hours import Counts
from batchval.audit.outputs import not_written
from batchval.segment.options import Options
from batchval.segment.range_check import Block, RangeResult, check_range
from batchval.segment.ranges import Range, Task

__all__ = ["work"]


def work(
    task: Task,
    options: Options,
    out: str | None,
    progress: Callable[[int], None] = lambda done: None,
) -> list[RangeResult]:
    """Read the ranges of a task, and write their rows below ``out``/batches.

    ``progress`` gets bytes as they are read, those of the whole task in all.

    What storage and bytes do is in the results. Raises OSError for what cannot be written.
    """
    if out is None or options.rows == "none":
        return [_read(part, options, None, progress) for part in task]
    files = BatchFiles(out, task, options)
    try:
        results = [_read(part, options, files, progress) for part in task]
        files.close()
    except BaseException as error:
        files.abort()
        if isinstance(error, OSError):
            raise not_written(out, error) from error
        raise
    return results


def _read(
    part: Range, options: Options, files: BatchFiles | None, progress: Callable[[int], None]
) -> RangeResult:
    counts = Counts(part.segment, options)
    if files is not None:
        files.begin(part)

    left = part.end - part.start

    def take(block: Block) -> None:
        nonlocal left
        if files is not None:
            files.add(rows_of(block, part.segment, files.options))
        counts.add(block.columns)
        counts.add_damage(sum(one.size for one in block.damages))
        step = min(block.size, left)
        left -= step
        progress(step)

    result = check_range(part, options, take)
    progress(left)
    result.hours = counts.packed()
    if files is not None:
        for lost in result.unreadable[:1]:
            if not result.gone and lost.uri == part.segment.uri:
                files.add(unreadable_row(part.segment, lost.reason, files.options))
        result.files = files.end()
    return result

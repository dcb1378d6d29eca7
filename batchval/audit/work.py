"""One range of one segment in; its files, and one small result that others can be joined to, out.

Spark's tasks, local processes and a plain loop call the same function, so their rows and findings
are the same.
"""

from __future__ import annotations

from collections.abc import Callable

from batchval.audit.hours import Counts
from batchval.audit.outputs import BatchFiles, not_written
from batchval.audit.rows import rows_of, unreadable_row
from batchval.segment.judge import Block, RangeResult, judge
from batchval.segment.options import Options
from batchval.segment.ranges import Range

__all__ = ["work"]


def work(
    part: Range,
    options: Options,
    out: str | None,
    progress: Callable[[int], None] = lambda done: None,
) -> RangeResult:
    """Read a range, and write its rows below ``out``/batches where the options want rows.

    ``progress`` gets bytes as they are read, those of the whole range in all.

    What storage and bytes do is in the result. Raises OSError for what cannot be written.
    """
    counts = Counts(part.segment, options)
    files = BatchFiles(out, part, options) if out is not None and options.rows != "none" else None

    left = part.end - part.start

    def take(block: Block) -> None:
        nonlocal left
        if files is not None:
            files.add(rows_of(block, part.segment, files.options))
        if block.columns is not None:
            counts.add(block.columns)
        elif block.damage is not None:
            counts.add_damage(block.damage.size)
        step = min(block.size, left)
        left -= step
        progress(step)

    try:
        result = judge(part, options, take)
        if files is not None:
            for lost in result.unreadable[:1]:
                if not result.gone and lost.uri == part.segment.uri:
                    files.add(unreadable_row(part.segment, lost.reason, files.options))
            result.files = files.close()
    except BaseException as error:
        if files is not None:
            files.abort()
        if isinstance(error, OSError) and out is not None:
            raise not_written(out, error) from error
        raise
    progress(left)
    result.hours = counts.packed()
    return result

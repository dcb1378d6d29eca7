"""``--engine local``: processes of this machine, each a task at a time.

Workers are forked from a fork server, not from this process: a fork of a process in which other
threads hold locks (Arrow's, a caller's) may never return. A worker that somebody has killed takes
the pool with it; what was not done is then done by new ones.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import ForkServerContext
from typing import TYPE_CHECKING, Any

from batchval.errors import BatchvalError
from batchval.segment.ranges import Range, Task, pack

if TYPE_CHECKING:
    from batchval.segment.options import Options
    from batchval.segment.range_check import RangeResult

__all__ = ["Progress", "WorkersLost", "run_local", "start_early"]

#: The first workers cost 0.6 s of CPU, in which a process reads 2 GB from the page cache. Below so
#: many bytes for each, fewer are started; of bytes that are slower to read, with ``deep`` or from a
#: remote store, these.
WORTH = 1 << 30
WORTH_SLOW = 64 << 20
#: tasks handed out ahead of those that are under way
_AHEAD = 2
#: pools that may break, one after the other, without a task being done
_TRIES = 3
#: in which a worker must end before its files are removed
_SECONDS = 5
#: seconds after which progress is shown again
_SHOW_S = 0.5


class WorkersLost(BatchvalError):
    """Worker processes ended repeatedly without an answer."""


def start_early(
    ranges: Iterable[Range], processes: int | None = None, *, deep: bool = False
) -> None:
    """Start to import what the workers of ``run_local`` are forked from, if there will be any.
    Returns at once.

    It imports what an audit needs, which takes as long there as here: call it before importing
    that.
    """
    if _processes(list(ranges), processes, deep) > 1:
        _context()


def run_local(
    ranges: Iterable[Range],
    options: Options,
    out: str | None,
    processes: int | None = None,
    progress: Callable[[int], None] = lambda done: None,
    say: Callable[[str], None] = lambda line: None,
) -> Iterator[RangeResult]:
    """Read ranges in tasks (``pack``), the largest first; results come as tasks end.

    ``progress`` gets bytes as they are read.

    ``processes``: None for as many as there are cores and work for; with 1 all is done in this
    process. ``say`` gets a line when workers are lost. Raises WorkersLost, and OSError for outputs
    that cannot be written.
    """
    left = pack(ranges, options.split_bytes)
    processes = _processes([one for task in left for one in task], processes, options.deep)
    if min(processes, len(left)) <= 1:
        from batchval.audit.task import work

        for task in left:
            yield from work(task, options, out, progress)
        return
    tries = 0
    while left:
        done = 0
        try:
            for task, results in _pool(left, options, out, min(processes, len(left)), progress):
                done += 1
                left.remove(task)
                yield from results
        except BrokenProcessPool:
            tries = 1 if done else tries + 1
            if tries == _TRIES:
                raise WorkersLost(
                    f"worker processes were killed {_TRIES} times in a row while {len(left)} tasks "
                    "were left: check the free memory, or use fewer --processes"
                ) from None
            say("a worker process was killed; what it was reading is read again")


def _processes(ranges: list[Range], processes: int | None, deep: bool) -> int:
    if processes is None:
        slow = (one.end - one.start for one in ranges if deep or "://" in one.segment.uri)
        shares = sum(one.end - one.start for one in ranges) / WORTH + sum(slow) / WORTH_SLOW
        processes = min(_cores(), math.ceil(shares))
    return max(1, min(processes, len(ranges)))


def _cores() -> int:
    """Return how many processors this process may use; all of the machine where none is asked for
    (macOS).
    """
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _context() -> ForkServerContext:
    """Return a context whose server has imported everything and forks the workers: an import in
    each would cost a second of CPU.

    Ctrl-C reaches every process of the terminal; only this process handles it. The fork server
    inherits a mask that blocks SIGINT, because an interrupted import would print a stack trace. Its
    workers inherit the mask.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["batchval.audit.without_pandas", "batchval.audit.task"])
    resource_tracker.ensure_running()  # which sets signals of its own, so before
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    except OSError as error:
        if "path too long" not in str(error):  # which has no errno
            raise
        raise BatchvalError(
            f"the path of temporary files {tempfile.gettempdir()!r} is too long for the socket of "
            "worker processes: set TMPDIR to a shorter one, or use --processes 1"
        ) from None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return context


class Progress:
    """A display of the bytes that others read: what they count, but at least the ranges that ended,
    and at most those that began."""

    def __init__(self, show: Callable[[int], None]) -> None:
        self._show = show
        self._ended = self._shown = 0

    def show(self, counted: int, ended: Iterable[Range], under_way: Iterable[Range]) -> None:
        """Show progress. ``ended``: ranges that ended since the last call."""
        most = self._ended + sum(one.end - one.start for one in under_way)
        self._ended += sum(one.end - one.start for one in ended)
        now = max(self._ended, self._shown, min(counted, most))
        self._show(now - self._shown)
        self._shown = now


def _pool(
    tasks: list[Task],
    options: Options,
    out: str | None,
    processes: int,
    progress: Callable[[int], None],
) -> Iterator[tuple[Task, list[RangeResult]]]:
    waiting = iter(list(tasks))
    context = _context()
    read = context.RawValue("q", 0)
    pool = ProcessPoolExecutor(
        processes, mp_context=context, initializer=_count_in, initargs=(read,)
    )
    shown = Progress(progress)
    under_way: dict[Future[list[RangeResult]], Task] = {}
    try:
        while True:
            for one in islice(waiting, processes * _AHEAD - len(under_way)):
                under_way[pool.submit(_counted, one, options, out)] = one
            if not under_way:
                pool.shutdown()
                return
            broken: BrokenProcessPool | None = None
            ended = wait(under_way, _SHOW_S, FIRST_COMPLETED).done
            of_ended = [one for future in ended for one in under_way[future]]
            shown.show(read.value, of_ended, chain.from_iterable(under_way.values()))
            for future in ended:
                one = under_way.pop(future)
                try:
                    results = future.result()
                except BrokenProcessPool as error:
                    broken = error
                    continue
                yield one, results
            if broken is not None:
                raise broken
    finally:
        workers = list((getattr(pool, "_processes", None) or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        # nobody waits for them any more: an interrupt, an error, or none are left
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.join(_SECONDS)


#: in a worker: the bytes that all workers of the pool have read. They add without a lock, which one
#: that is killed would hold for ever: what is lost is counted when a range ends
_read: list[Any] = []


def _count_in(read: Any) -> None:
    _read.append(read)


def _counted(task: Task, options: Options, out: str | None) -> list[RangeResult]:
    from batchval.audit.task import work

    def add(done: int) -> None:
        _read[0].value += done

    return work(task, options, out, add)

"""``--engine spark``: each range of each segment is a task, its small result comes back, in waves.

A result holds what the reduce needs and no rows, so a driver's memory is bounded by the waves under way. Two waves are
there at once: the slots that one leaves at its end are taken by the next. Tasks write files by names of their own, so
a task that is run again (a lost executor) writes the same bytes to the same place.
"""

from __future__ import annotations

import builtins
import os
import pickle
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

from batchval.audit.local import Progress, WorkersLost
from batchval.audit.work import work
from batchval.segment.judge import RangeResult
from batchval.segment.options import Options
from batchval.segment.ranges import Range
from batchval.segment.uris import without_secrets
from batchval.spark.tasks import settle
from batchval.spark.words import of_error, python_cause

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["JobFailed", "run_spark"]

#: tasks of a wave for each slot of the cluster: enough that its ragged end costs little
DEEP: Final = 16
WAVES: Final = 2
#: bytes below which ranges share a task
SMALL: Final = 4 << 20
#: seconds after which progress is shown again
_SHOW_S: Final = 0.5


def run_spark(
    ranges: Iterable[Range],
    options: Options,
    out: str | None,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Iterator[RangeResult]:
    """Works through ranges, the largest of them first where the caller sorts so; results come as waves end.

    Spark is up when this returns. ``progress`` gets the bytes of ranges that are done. Raises NoJava where a JVM is
    needed and none can be had, NotStarted where Spark cannot start as it was told, OSError for outputs that cannot be
    written, and JobFailed where Spark gave up: what storage refuses is in the result, so that is a defect or a cluster
    that has gone. The session is ended if it was made here. What a JVM says that is started here is not shown, unless
    ``conf`` has a spark.log.level or BATCHVAL_TRACEBACK is set.
    """
    from pyspark.accumulators import AccumulatorTCPServer, AccumulatorUnixServer
    from pyspark.sql import SparkSession

    from batchval.spark.start import session

    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
    before = SparkSession.getActiveSession()
    shown = "spark.log.level" in (conf or {}) or os.environ.get("BATCHVAL_TRACEBACK")
    said = None if shown else tempfile.TemporaryFile()  # noqa: SIM115 (the JVM has it to its end)
    spark = session(master, conf=conf, app_name="batchval audit", said=said)
    if said is not None:
        # where a JVM dies, a server of pyspark's shows a traceback, and the job's own end says it too
        servers: tuple[Any, ...] = (AccumulatorTCPServer, AccumulatorUnixServer)
        for server in servers:
            server.handle_error = lambda *_: None
    return _results(spark, before is None, _waves(spark, iter(ranges), options, out, progress or (lambda done: None)))


def _results(spark: SparkSession, ours: bool, waves: Iterator[RangeResult]) -> Iterator[RangeResult]:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield from waves
    except (Py4JError, PySparkException, ConnectionError) as error:
        if os.environ.get("BATCHVAL_TRACEBACK"):
            raise
        raise _told(error) from error
    finally:
        if ours:
            with warnings.catch_warnings(), suppress(Exception):  # a JVM that is gone has stopped
                warnings.simplefilter("ignore")
                spark.stop()


def _told(error: Exception) -> Exception:
    """The same for a user. What a task says of its outputs is an OSError here too."""
    name, words = python_cause(str(error)) or ("", "")
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, OSError):
        return OSError(without_secrets(words))
    return JobFailed(f"Spark gave up: {of_error(error)} (BATCHVAL_TRACEBACK=1 shows where)")


def _waves(
    spark: SparkSession, ranges: Iterator[Range], options: Options, out: str | None, progress: Callable[[int], None]
) -> Iterator[RangeResult]:
    run, slots, read = _runner(spark)
    shown = Progress(progress)
    with ThreadPoolExecutor(WAVES, thread_name_prefix="batchval-wave") as threads:
        under_way: dict[Future[list[RangeResult]], list[Range]] = {}
        try:
            while True:
                while len(under_way) < WAVES and (wave := list(islice(ranges, slots * DEEP))):
                    under_way[threads.submit(run, wave, options, out)] = wave
                if not under_way:
                    return
                finished = wait(under_way, _SHOW_S, FIRST_COMPLETED).done
                ended = [one for done in finished for one in under_way[done]]
                shown.show(read(), ended, chain.from_iterable(under_way.values()))
                for done in finished:
                    del under_way[done]
                    yield from done.result()
        finally:
            for future in under_way:
                future.cancel()
            if under_way:
                _cancel(spark)


def _cancel(spark: SparkSession) -> None:
    """End the jobs of waves that nobody waits for."""
    if not type(spark).__module__.startswith("pyspark.sql.connect"):
        with suppress(Exception):
            spark.sparkContext.cancelAllJobs()


class JobFailed(WorkersLost):
    """A job of Spark's came to no end."""


Run = Callable[[Sequence[Range], Options, "str | None"], "list[RangeResult]"]


def _runner(spark: SparkSession) -> tuple[Run, int, Callable[[], int]]:
    """Return how this session runs a wave, how many tasks it runs at once, and what says how many
    bytes tasks have read that came to their end."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        return lambda wave, options, out: _connected(spark, wave, options, out), 16, lambda: 0
    context = spark.sparkContext
    read = context.accumulator(0)

    def run(wave: Sequence[Range], options: Options, out: str | None) -> list[RangeResult]:
        tasks = context.parallelize(wave, _tasks(wave, context.defaultParallelism))
        return tasks.mapPartitions(lambda part: _worked(part, options, out, read.add)).collect()

    return run, max(2, context.defaultParallelism), lambda: read.value


def _worked(
    part: Iterable[Range],
    options: Options,
    out: str | None,
    progress: Callable[[int], None] = lambda done: None,
) -> Iterator[RangeResult]:
    """What one task does."""
    for one in part:
        yield work(one, options, out, progress)
    settle()


def _tasks(wave: Sequence[Range], slots: int) -> int:
    """One a range, unless they are small: then as few as keep the slots busy and a task's own cost small."""
    enough = sum(one.end - one.start for one in wave) // SMALL
    return max(1, min(len(wave), max(enough, slots)))


def _connected(spark: Any, wave: Sequence[Range], options: Options, out: str | None) -> list[RangeResult]:
    """Spark Connect has no RDDs: a row is a task, and its result comes back in a column."""
    import pyarrow as pa

    held = [pickle.dumps(one) for one in wave]

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            wanted = (pickle.loads(held[n]) for n in batch.column(0).to_pylist())
            results = [pickle.dumps(one) for one in _worked(wanted, options, out)]
            yield pa.RecordBatch.from_arrays([pa.array(results, pa.binary())], names=["result"])

    tasks = _tasks(wave, 16)
    rows = spark.range(0, len(wave), 1, tasks).mapInArrow(each, "result binary").collect()
    return [pickle.loads(row.result) for row in rows]

"""``--engine spark``: tasks (``pack``) in waves; the small results of their ranges come back.

A result holds what the reduce needs and no rows, so a driver's memory is bounded by the waves under
way. Two waves are there at once: the slots that one leaves at its end are taken by the next. Tasks
write files by names of their own, so a task that is run again (a lost executor) writes the same
bytes to the same place.

A classic session runs an RDD of shares of a wave. Spark Connect has no RDDs: there a row is a
share, and mapInArrow runs it. On a classic session that costs more (docs/adr/0017).
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
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from batchval.audit.local import Progress, WorkersLost
from batchval.audit.task import work
from batchval.segment.options import Options
from batchval.segment.range_check import RangeResult
from batchval.segment.ranges import Range, Task, pack
from batchval.segment.uris import without_secrets
from batchval.spark.failures import of_error, python_cause
from batchval.spark.tasks import settle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["JobFailed", "run_on", "run_spark"]

#: tasks of a wave for each slot of the cluster: enough that its ragged end costs little
TASKS_PER_SLOT: Final = 16
#: tasks of Spark for each slot, which share the tasks of a wave: one costs 14 ms of CPU
SPARK_TASKS_PER_SLOT: Final = 4
WAVES: Final = 2
#: slots of a Spark Connect server, which does not say how many it has
CONNECT_SLOTS: Final = 16
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
    """Read ranges in tasks, the largest first; results come as waves end.

    Spark is up when this returns. ``progress`` gets the bytes of ranges that are done. Raises
    NoJava where a JVM is needed and none can be had, NotStarted where Spark cannot start with these
    settings, OSError for outputs that cannot be written, and JobFailed where Spark gave up: what
    storage refuses is in the result, so that is a defect or a cluster that has gone. The session is
    ended if it was made here. What a JVM says that is started here is not shown, unless ``conf``
    has a spark.log.level or BATCHVAL_TRACEBACK is set.
    """
    from pyspark.accumulators import AccumulatorTCPServer, AccumulatorUnixServer
    from pyspark.sql import SparkSession

    from batchval.spark.start import session

    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
    before = SparkSession.getActiveSession()
    shown = "spark.log.level" in (conf or {}) or os.environ.get("BATCHVAL_TRACEBACK")
    errors = None if shown else tempfile.TemporaryFile()  # noqa: SIM115 (the JVM has it to its end)
    spark = session(master, conf=conf, app_name="batchval audit", jvm_output=errors)
    if errors is not None:
        # where a JVM dies, a server of pyspark's shows a traceback, and the job's own end says it
        # too
        servers: tuple[Any, ...] = (AccumulatorTCPServer, AccumulatorUnixServer)
        for server in servers:
            server.handle_error = lambda *_: None
    return _and_stop(spark, before is None, run_on(spark, ranges, options, out, progress))


def _and_stop(
    spark: SparkSession, ours: bool, results: Iterator[RangeResult]
) -> Iterator[RangeResult]:
    try:
        yield from results
    finally:
        if ours:
            with warnings.catch_warnings(), suppress(Exception):  # a JVM that is gone has stopped
                warnings.simplefilter("ignore")
                spark.stop()


def run_on(
    spark: SparkSession,
    ranges: Iterable[Range],
    options: Options,
    out: str | None,
    progress: Callable[[int], None] | None = None,
) -> Iterator[RangeResult]:
    """Do the same as ``run_spark`` in an existing session."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield from _waves(
            spark, pack(ranges, options.split_bytes), options, out, progress or (lambda done: None)
        )
    except (Py4JError, PySparkException, ConnectionError) as error:
        if os.environ.get("BATCHVAL_TRACEBACK"):
            raise
        raise _for_user(error) from error


def _for_user(error: Exception) -> Exception:
    """Return the error with a text for users; a task's error about outputs is an OSError."""
    name, words = python_cause(str(error)) or ("", "")
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, OSError):
        return OSError(without_secrets(words))
    return JobFailed(f"the Spark job failed: {of_error(error)} (BATCHVAL_TRACEBACK=1 shows where)")


def _waves(
    spark: SparkSession,
    tasks: Iterable[Task],
    options: Options,
    out: str | None,
    progress: Callable[[int], None],
) -> Iterator[RangeResult]:
    run, slots, read = _runner(spark)
    shown = Progress(progress)
    left = iter(tasks)
    with ThreadPoolExecutor(WAVES, thread_name_prefix="batchval-wave") as threads:
        under_way: dict[Future[list[RangeResult]], list[Task]] = {}
        try:
            while True:
                while len(under_way) < WAVES and (
                    wave := list(islice(left, slots * TASKS_PER_SLOT))
                ):
                    under_way[threads.submit(run, wave, options, out)] = wave
                if not under_way:
                    return
                finished = wait(under_way, _SHOW_S, FIRST_COMPLETED).done
                ended = [one for done in finished for task in under_way[done] for one in task]
                began = [one for wave in under_way.values() for task in wave for one in task]
                shown.show(read(), ended, began)
                for done in finished:
                    del under_way[done]
                    yield from done.result()
        finally:
            for future in under_way:
                future.cancel()
            if under_way:
                _cancel(spark)


def _cancel(spark: SparkSession) -> None:
    """Cancel the jobs of waves that are no longer needed."""
    if not type(spark).__module__.startswith("pyspark.sql.connect"):
        with suppress(Exception):
            spark.sparkContext.cancelAllJobs()


class JobFailed(WorkersLost):
    """A Spark job failed."""


Run = Callable[[Sequence[Task], Options, "str | None"], "list[RangeResult]"]


def _runner(spark: SparkSession) -> tuple[Run, int, Callable[[], int]]:
    """Return (runner of a wave, tasks at once, function of the bytes that ended tasks read)."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        return (
            lambda wave, options, out: _connected(spark, wave, options, out),
            CONNECT_SLOTS,
            lambda: 0,
        )
    context = spark.sparkContext
    read = context.accumulator(0)

    slots = max(2, context.defaultParallelism)

    def run(wave: Sequence[Task], options: Options, out: str | None) -> list[RangeResult]:
        shares = context.parallelize(
            _shares(wave, slots), min(len(wave), slots * SPARK_TASKS_PER_SLOT)
        )
        return list(
            shares.mapPartitions(lambda part: _worked(part, options, out, read.add)).collect()
        )

    return run, slots, lambda: read.value


def _shares(wave: Sequence[Task], slots: int) -> list[Sequence[Task]]:
    """Return what each task of Spark's does: as many tasks of all sizes."""
    count = min(len(wave), slots * SPARK_TASKS_PER_SLOT)
    return [wave[n::count] for n in range(count)]


def _worked(
    shares: Iterable[Sequence[Task]],
    options: Options,
    out: str | None,
    progress: Callable[[int], None] = lambda done: None,
) -> Iterator[RangeResult]:
    """Return the result of one Spark task."""
    for share in shares:
        for one in share:
            yield from work(one, options, out, progress)
    settle()


def _connected(
    spark: Any, wave: Sequence[Task], options: Options, out: str | None
) -> list[RangeResult]:
    """Run a wave where a row is a task of Spark's, and its results come back in a column."""
    import pyarrow as pa

    held = [pickle.dumps(one) for one in _shares(wave, CONNECT_SLOTS)]

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            wanted = (pickle.loads(held[n]) for n in batch.column(0).to_pylist())
            results = [pickle.dumps(one) for one in _worked(wanted, options, out)]
            yield pa.RecordBatch.from_arrays([pa.array(results, pa.binary())], names=["result"])

    rows = spark.range(0, len(held), 1, len(held)).mapInArrow(each, "result binary").collect()
    return [pickle.loads(row.result) for row in rows]

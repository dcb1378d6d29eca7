"""Errors for a user: the sentence alone, where Spark would put a worker's traceback around it.

Spark plans Python sources in worker processes. They send the text of an error with its traceback to
the driver, but without it where SPARK_HIDE_TRACEBACK is set when they fail. The worker ends then,
so no other traceback is lost.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader

from batchval.errors import BatchvalError

__all__ = ["sentences", "stream_or_refusal"]

_HIDE: Final = "SPARK_HIDE_TRACEBACK"


def _in_a_worker() -> bool:
    """Return whether this process is one of Spark's workers."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return main is not None and main.name.startswith("pyspark.")


@contextmanager
def sentences() -> Iterator[None]:
    """Hide the worker's traceback of a BatchvalError or OSError raised inside the block: its text
    is complete. (``BATCHVAL_TRACEBACK=1`` keeps it.)
    """
    try:
        yield
    except (BatchvalError, OSError):
        if _in_a_worker() and not os.environ.get("BATCHVAL_TRACEBACK"):
            os.environ[_HIDE] = "1"
        raise


def stream_or_refusal(make: Callable[[], DataSourceStreamReader]) -> DataSourceStreamReader:
    """Return a stream's reader; in a worker one that refuses later: in Spark 4.3 its own error
    hides one that is raised here.
    """
    try:
        return make()
    except BatchvalError as error:
        if not _in_a_worker():
            raise
        return _Refused(error)


class _Refused(DataSourceStreamReader):
    """A stream reader whose first call raises the error."""

    def __init__(self, error: BatchvalError) -> None:
        self.error = error

    def _refuse(self, *_: Any) -> Any:
        with sentences():
            raise self.error

    initialOffset: Any = _refuse
    latestOffset: Any = _refuse
    getDefaultReadLimit: Any = _refuse
    partitions: Any = _refuse
    read: Any = _refuse

    def stop(self) -> None:
        """Do nothing: nothing is open."""

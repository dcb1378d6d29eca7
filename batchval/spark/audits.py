"""``audit(spark, paths)``: an audit in a session that is there, and its tables as DataFrames.

Workers write Parquet, which Spark's vectorised reader reads: rows of a Python data source would go
through Arrow and Spark's rows one by one.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from batchval.audit import audit_run
from batchval.audit.batch_files import file_schema
from batchval.audit.manifest import Manifest
from batchval.audit.reduce import Audit
from batchval.errors import BatchvalError, shown_value
from batchval.segment.findings import Finding
from batchval.segment.options import Options
from batchval.segment.store import Unreadable
from batchval.segment.topic_rules import read_topic_rules
from batchval.spark.engine import run_on

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SparkAudit", "audit"]

#: columns of batches/ that the names of its folders hold
_FOLDERS: Final = ("topic", "hour")


@dataclass(frozen=True)
class SparkAudit:
    """The result of an audit, and its tables.

    ``out``    the folder or URI of its tables
    ``found``  what ``batchval.audit.audit_run.audit`` returns: counts, findings, notes
    """

    spark: SparkSession
    out: str
    options: Options
    found: Audit

    def batches(self) -> DataFrame:
        """Return the rows of batches. Filters on topic and hour choose files."""
        rows = from_arrow_schema(file_schema(self.options))
        schema = StructType([*rows, *(StructField(name, StringType()) for name in _FOLDERS)])
        names = ["topic", *rows.names, "hour"]
        if not self.found.files:
            return self.spark.createDataFrame([], schema).select(*names)
        return self.spark.read.schema(schema).parquet(self._place("batches")).select(*names)

    def errors(self) -> DataFrame:
        """Return the findings, the notes, and what could not be read."""
        return self._table("errors")

    def summary(self) -> DataFrame:
        """Return counts by topic, partition and hour."""
        return self._table("summary")

    def segments(self) -> DataFrame:
        """Return the manifest."""
        return self._table("segments")

    def transactions(self) -> DataFrame:
        """Return a row for each partition with transactions, with its open ones."""
        return self._table("transactions")

    def _table(self, name: str) -> DataFrame:
        return self.spark.read.parquet(self._place(name))

    def _place(self, name: str) -> str:
        """Return a table's folder by scheme: Spark's default file system may be another one."""
        uri = urlsplit(self.out) if "://" in self.out else None
        if uri is None:
            return f"file://{os.path.abspath(self.out)}/{name}"
        scheme = "s3a" if uri.scheme == "s3" else uri.scheme
        return f"{scheme}://{uri.netloc}{uri.path.rstrip('/')}/{name}"

    @property
    def findings(self) -> list[Finding]:
        """Return the findings, in the order of topics, partitions and segments."""
        return self.found.findings

    @property
    def unreadable(self) -> list[Unreadable]:
        """Return what could not be read."""
        return self.found.unreadable

    @property
    def exit_code(self) -> int:
        """Return the exit code of ``batchval audit``: 0, 1 for findings, 3 for what was not
        read."""
        return 3 if self.found.unreadable else 1 if self.found.findings else 0


def audit(
    spark: SparkSession,
    paths: str | Sequence[str],
    *,
    out: str | None = None,
    since: str | None = None,
    **options: Any,
) -> SparkAudit:
    """Audit the segments below paths in this session, now; its tables are DataFrames.

    ``out``      a folder or URI that the driver and all executors reach. With a local master it may
                 be left out: the tables are then in a temporary folder until this process ends
    ``since``    an earlier audit's folder: only what is new since then is read
    ``options``  fields of ``batchval.segment.options.Options``: rows, deep, topics, ...;
                 ``record_rules`` may be a JSON object or the name of a file, as of the command line

    Raises BatchvalError for options and folders that cannot be used, OSError for an ``out`` that
    cannot be written, and JobFailed where Spark gave up.
    """
    chosen = _options(options)
    manifest = Manifest.read(since, chosen) if since is not None else None
    todo = audit_run.list_work([paths] if isinstance(paths, str) else paths, chosen, manifest)
    out = out or _temporary(spark)
    found = audit_run.audit(todo, chosen, lambda *what: run_on(spark, *what), out)
    return SparkAudit(spark, out, chosen, found)


def _options(options: dict[str, Any]) -> Options:
    unknown = sorted(options.keys() - Options.__dataclass_fields__.keys())
    if unknown:
        raise BatchvalError(
            f"unknown option {unknown[0]!r}: expected {', '.join(Options.__dataclass_fields__)}"
        )
    if isinstance(topics := options.get("topics"), str):
        raise BatchvalError(f"topics is {topics!r}: expected a list of names or patterns")
    if isinstance(rules := options.get("record_rules"), str):
        try:
            options = {**options, "record_rules": read_topic_rules(rules)}
        except BatchvalError as error:
            raise BatchvalError(f"record_rules: {error}") from None
    elif not isinstance(rules, tuple | None):
        raise BatchvalError(
            f"record_rules is {shown_value(rules)}: expected a JSON object as a string, or a file"
        )
    if rules and not options.get("deep"):
        raise BatchvalError("record_rules needs deep=True: record rules apply to each record")
    return Options(**options)


def _temporary(spark: SparkSession) -> str:
    """Return a folder that is removed when this process ends.

    Raises BatchvalError where workers may be on other machines.
    """
    connected = type(spark).__module__.startswith("pyspark.sql.connect")
    master = "Spark Connect" if connected else str(spark.sparkContext.master)
    if not master.startswith("local"):
        raise BatchvalError(
            f"out is required with {master}: a folder or URI that the driver and all executors reach"
        )
    folder = tempfile.mkdtemp(prefix="batchval-audit-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder

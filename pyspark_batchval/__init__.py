"""Spark looks into installed modules named ``pyspark_…``: with this one, ``kafka-segments`` needs
no register.

One module is one format: ``pyspark_batchval_live`` is ``kafka-batches``,
``pyspark_batchval_findings`` is ``kafka-findings``. Where Spark has no pyarrow to run Python
sources with, there is nothing to be found here, and Spark's other sources are not to suffer.
"""

try:
    from batchval.spark.batch_source import KafkaSegments as DefaultSource
except ImportError:
    __all__: list[str] = []
else:
    __all__ = ["DefaultSource"]

"""The format ``kafka-findings`` for Spark to find by itself: see ``pyspark_batchval``."""

try:
    from batchval.spark.finding_rows import KafkaFindings as DefaultSource
except ImportError:
    __all__: list[str] = []
else:
    __all__ = ["DefaultSource"]

"""The format ``kafka-batches`` for Spark to find by itself: see ``pyspark_batchval``."""

try:
    from batchval.spark.live import KafkaBatches as DefaultSource
except ImportError:
    __all__: list[str] = []
else:
    __all__ = ["DefaultSource"]

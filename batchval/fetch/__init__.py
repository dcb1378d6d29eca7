"""A consumer for measuring, claims and Spark: raw batches as slices of what came, or records.

``consumer`` is what programs use, ``options`` its settings; ``fetcher`` asks for records and
offsets, ``group`` is the membership (classic protocol), ``assignor`` who gets what, ``state`` where
each partition is. See docs/reference/library/consumer.md.
"""

from batchval.fetch.consumer import Consumer
from batchval.fetch.errors import (
    CommitFailedError,
    FetchError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)
from batchval.fetch.options import ConsumerOptions
from batchval.fetch.subscription_state import (
    ConsumerMetrics,
    ConsumerRecord,
    FetchedBatches,
    TopicPartition,
)

__all__ = [
    "CommitFailedError",
    "Consumer",
    "ConsumerMetrics",
    "ConsumerOptions",
    "ConsumerRecord",
    "FetchError",
    "FetchedBatches",
    "NoOffsetForPartitionError",
    "OffsetOutOfRangeError",
    "TopicPartition",
]

"""The names of confluent-kafka that librdkafka's clients use."""

from __future__ import annotations

from batchval.optional import require

try:
    from confluent_kafka import (
        Consumer,
        KafkaError,
        KafkaException,
        Producer,
        TopicPartition,
        __version__,
        libversion,
    )
except ModuleNotFoundError:
    require("batchval.perf.clients.rdkafka")
    raise

__all__ = [
    "Consumer",
    "KafkaError",
    "KafkaException",
    "Producer",
    "TopicPartition",
    "__version__",
    "libversion",
]

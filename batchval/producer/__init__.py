"""A Kafka producer for measuring and claims, on one asyncio loop. See
docs/reference/library/producer.md.

``producer`` is what users call, ``accumulator`` fills batches, ``core.builder`` writes them,
``sender`` sends them, ``sequences`` and ``transaction_manager`` make each record arrive once.
"""

from batchval.producer.batch import BatchDone
from batchval.producer.delivery import Delivery, RecordMetadata
from batchval.producer.errors import DeliveryError
from batchval.producer.options import ProducerOptions
from batchval.producer.producer import Producer

__all__ = [
    "BatchDone",
    "Delivery",
    "DeliveryError",
    "Producer",
    "ProducerOptions",
    "RecordMetadata",
]

"""What can become of a record that is not acknowledged, beside what a broker or the network says."""

from __future__ import annotations

from typing import ClassVar

from batchval.errors import BatchvalError
from batchval.network.errors import BrokerError

__all__ = [
    "BufferExhaustedError",
    "DeliveryTimeoutError",
    "ProducerClosedError",
    "ProducerError",
    "ProducerFencedError",
    "RecordTooLargeError",
    "TransactionAbortedError",
    "TransactionStateError",
]


class ProducerError(BatchvalError):
    """A record was not sent, or it is not known whether it arrived."""

    retriable: ClassVar[bool] = False


class BufferExhaustedError(ProducerError, TimeoutError):
    """The buffer stayed full for max_block_ms (Kafka's BufferExhaustedException)."""


class DeliveryTimeoutError(ProducerError, TimeoutError):
    """Not acknowledged in delivery_timeout_ms; a request that was under way may have arrived all the same."""


class RecordTooLargeError(ProducerError, ValueError):
    """Larger than max_request_size or buffer_memory: never sent."""


class ProducerClosedError(ProducerError):
    """The producer was closed before the record was acknowledged, or before it was given."""


class TransactionAbortedError(ProducerError):
    """The record was not sent, because its transaction was aborted."""


class TransactionStateError(ProducerError):
    """Not now: no transaction, or one that can only be aborted, or a producer that cannot go on at all."""


class ProducerFencedError(BrokerError):
    """Another producer with this transactional_id has begun: this one can only be closed."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)
        self.retriable = False

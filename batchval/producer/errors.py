"""What can become of a record that is not acknowledged, beside what a broker or the network
says.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from batchval.errors import BatchvalError, ErrorCode
from batchval.network.errors import BrokerError

__all__ = [
    "FENCED",
    "BufferExhaustedError",
    "DeliveryError",
    "DeliveryFailure",
    "DeliveryTimeoutError",
    "DeliveryUnknownError",
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


class DeliveryFailure(NamedTuple):
    """How many records of one batch failed that nobody had awaited, and why."""

    topic: str
    partition: int
    records: int
    error: Exception


class DeliveryError(ProducerError):
    """Records failed that nobody had awaited. Raised by ``flush`` and ``close``, once each.

    ``count`` is exact; ``failures`` names at most 100 batches, oldest first.
    """

    def __init__(self, count: int, failures: tuple[DeliveryFailure, ...]) -> None:
        first = f"; the first: {failures[0].error}" if failures else ""
        super().__init__(f"{count} records that nobody awaited were not delivered{first}")
        self.count = count
        self.failures = failures


class BufferExhaustedError(ProducerError, TimeoutError):
    """The buffer stayed full for max_block_ms (Kafka's BufferExhaustedException)."""


class DeliveryTimeoutError(ProducerError, TimeoutError):
    """Not acknowledged in delivery_timeout_ms; a request that was under way may have arrived all
    the same.
    """


class DeliveryUnknownError(ProducerError):
    """Later records are in the log, and whether these are cannot be known: the leader changed in
    between.
    """


class RecordTooLargeError(ProducerError, ValueError):
    """Larger than max_request_size or buffer_memory: never sent."""


class ProducerClosedError(ProducerError):
    """The producer was closed before the record was acknowledged, or before it was given."""


class TransactionAbortedError(ProducerError):
    """The record was not sent, because its transaction was aborted."""


class TransactionStateError(ProducerError):
    """Not now: no transaction, or one that can only be aborted, or a producer that cannot go on at
    all.
    """


class ProducerFencedError(BrokerError):
    """Another producer with this transactional_id has begun: this one can only be closed."""

    def __init__(self, code: int, what: str) -> None:
        name = ErrorCode(code).name
        super().__init__(
            code,
            f"{what}: {name}: another producer has taken the transactional_id over, or it timed out",
        )
        self.retriable = False


#: The codes that say so.
FENCED = {
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
}

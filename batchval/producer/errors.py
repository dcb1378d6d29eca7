"""Errors of a record that is not acknowledged, except those of brokers and of the network."""

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
    """The number of records of one batch that failed without being awaited, and the reason."""

    topic: str
    partition: int
    records: int
    error: Exception


class DeliveryError(ProducerError):
    """Records failed that no caller had awaited. Raised by ``flush`` and ``close``, once each.

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
    """A record was not acknowledged in delivery_timeout_ms; a broker may still store it."""


class DeliveryUnknownError(ProducerError):
    """Whether the log has the records is not known: the leader changed, and it has later ones."""


class RecordTooLargeError(ProducerError, ValueError):
    """A record is larger than max_request_size or buffer_memory; it is never sent."""


class ProducerClosedError(ProducerError):
    """The producer was closed before the record was acknowledged, or before it was sent."""


class TransactionAbortedError(ProducerError):
    """The record was not sent, because its transaction was aborted."""


class TransactionStateError(ProducerError):
    """A call does not fit the producer's state, such as a transaction that can only be aborted."""


class ProducerFencedError(BrokerError):
    """Another producer uses this transactional_id: this one can only be closed."""

    def __init__(self, code: int, what: str) -> None:
        name = ErrorCode(code).name
        super().__init__(
            code,
            f"{what}: {name}: another producer took over the transactional_id, or it timed out",
        )
        self.retriable = False


#: The codes that mean it.
FENCED = {
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
}

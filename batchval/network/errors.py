"""What can go wrong between a client and a broker; each error says whether the same request may be sent again."""

from __future__ import annotations

from typing import ClassVar

from batchval.errors import BatchvalError

__all__ = [
    "AuthenticationError",
    "ClosedError",
    "CorrelationIdMismatchError",
    "DisconnectError",
    "NetworkError",
    "RequestTimeoutError",
    "UnsupportedVersionError",
    "WakeupError",
]


class NetworkError(BatchvalError):
    """A request that has no answer. ``retriable``: the same request may succeed later (Kafka's RetriableException)."""

    retriable: ClassVar[bool] = True


class DisconnectError(NetworkError, ConnectionError):
    """The connection was lost, or never made, before the answer came; whether the broker acted is not known.

    ``timed_out`` marks the one request whose timeout closed the connection; all others on it have False.
    """

    def __init__(self, message: str, *, timed_out: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out


class CorrelationIdMismatchError(DisconnectError):
    """An answer that is not the one to the oldest outstanding request: nothing on this connection can be believed."""


class RequestTimeoutError(NetworkError, TimeoutError):
    """The request was not sent in its time, so the broker never saw it (Kafka's TimeoutException)."""


class AuthenticationError(NetworkError):
    """TLS or SASL refused; trying again with the same credentials is of no use."""

    retriable = False


class UnsupportedVersionError(NetworkError):
    """The broker does not speak this version of this API; nothing was sent."""

    retriable = False


class ClosedError(NetworkError):
    """The client or connection was closed by its owner."""

    retriable = False


class WakeupError(Exception):
    """Raised in whoever polls, never in a request: another thread called ``wakeup`` (Kafka's WakeupException)."""

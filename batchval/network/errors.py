"""Errors between a client and a broker. ``retriable``: the request may be sent again."""

from __future__ import annotations

from batchval.errors import RETRIABLE, BatchvalError, ErrorCode

__all__ = [
    "AuthenticationError",
    "AuthorizationError",
    "BrokerError",
    "ClosedError",
    "CorrelationIdMismatchError",
    "DisconnectError",
    "InvalidAnswerError",
    "NetworkError",
    "RequestTimeoutError",
    "UnknownTopicOrPartitionError",
    "UnsupportedVersionError",
    "WakeupError",
    "broker_error",
    "name_of",
]


class NetworkError(BatchvalError):
    """A request has no answer. ``retriable``: it may succeed later (RetriableException)."""

    retriable: bool = True


class DisconnectError(NetworkError, ConnectionError):
    """The connection was lost, or never made, before the answer came; whether the broker acted is
    not known.

    ``timed_out`` marks the one request whose timeout closed the connection; all others on it have
    False.
    """

    def __init__(self, message: str, *, timed_out: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out


class CorrelationIdMismatchError(DisconnectError):
    """An answer is not that to the oldest request: the connection cannot be trusted any more."""


class InvalidAnswerError(DisconnectError):
    """A broker's answer cannot be read, or its values make no sense; whether the broker acted is
    not known. Where it cannot be read, the cause is what reading it raised.
    """


class RequestTimeoutError(NetworkError, TimeoutError):
    """A result did not come in time; a request may have been sent (Kafka's TimeoutException)."""


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
    """Another thread called ``wakeup``; raised by ``poll`` alone (Kafka's WakeupException)."""


class BrokerError(NetworkError):
    """A broker answered with the error ``code``; ``retriable`` is as in Kafka's Errors."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.retriable = code in RETRIABLE


class AuthorizationError(BrokerError):
    """The broker knows who asks, and refuses (codes 29, 30, 31, 53 and 65)."""


class UnknownTopicOrPartitionError(BrokerError):
    """A topic does not exist, or not yet, or may not be seen (codes 3 and 100)."""


_AUTHORIZATION = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
_UNKNOWN = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}


def name_of(code: int) -> str:
    """Return Kafka's name of an error code; the number of one that is not known."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def broker_error(code: int, what: str, reported: str | None = None) -> BrokerError:
    """Return the error for a code, with Kafka's name of it.

    ``what`` was requested; ``reported`` is the broker's own message.
    """
    message = f"{what}: {name_of(code)}" + (f" ({reported})" if reported else "")
    if code in _AUTHORIZATION:
        return AuthorizationError(code, message)
    return (
        UnknownTopicOrPartitionError(code, message)
        if code in _UNKNOWN
        else BrokerError(code, message)
    )

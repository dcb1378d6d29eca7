"""Errors that a consumer cannot recover from by itself."""

from __future__ import annotations

from batchval.errors import BatchvalError

__all__ = ["CommitFailedError", "FetchError", "NoOffsetForPartitionError", "OffsetOutOfRangeError"]


class FetchError(BatchvalError):
    """Something about fetching or the group; its subclasses say what."""


class NoOffsetForPartitionError(FetchError):
    """A partition has no committed offset, and auto_offset_reset is "none" (Kafka's exception of
    that name).
    """


class OffsetOutOfRangeError(FetchError):
    """The position is not in the log, and auto_offset_reset is "none" (Kafka's exception of that
    name).
    """


class CommitFailedError(FetchError):
    """The group has moved on: these partitions may be another's by now (Kafka's
    CommitFailedException).
    """

"""Errors that a consumer cannot recover from by itself."""

from __future__ import annotations

from batchval.errors import BatchvalError

__all__ = ["CommitFailedError", "FetchError", "NoOffsetForPartitionError", "OffsetOutOfRangeError"]


class FetchError(BatchvalError):
    """A consumer cannot go on by itself; subclasses say why."""


class NoOffsetForPartitionError(FetchError):
    """A partition has no committed offset, and auto_offset_reset is "none"."""


class OffsetOutOfRangeError(FetchError):
    """The position is not in the log, and auto_offset_reset is "none"."""


class CommitFailedError(FetchError):
    """The group has moved on: these partitions may be another member's by now."""

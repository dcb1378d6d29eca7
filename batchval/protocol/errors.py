"""The error for bytes that are not a frame, or not a message of the stated version."""

from __future__ import annotations

from batchval.errors import BatchvalError

__all__ = ["ProtocolError", "TooManyBrokersError"]


class ProtocolError(BatchvalError, ValueError):
    """Bytes that cannot be read as the message they should be, or values that cannot be written as
    one.

    ``what`` is the reason, ``position`` the offset in the buffer where reading stopped (-1:
    no buffer was read).
    """

    def __init__(self, what: str, position: int = -1) -> None:
        super().__init__(what if position < 0 else f"{what} at byte {position}")
        self.what = what
        self.position = position


class TooManyBrokersError(ProtocolError):
    """An answer that names more brokers than are allowed."""

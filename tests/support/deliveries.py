"""Describe the results of sent records, in the shapes that tests compare."""

from __future__ import annotations

from typing import Any

from batchval.producer import Delivery, Producer, RecordMetadata

__all__ = ["acked", "outcome"]


async def acked(producer: Producer, *record: Any, **more: Any) -> RecordMetadata:
    """Send one record, and wait for its acknowledgement."""
    return await (await producer.send(*record, **more))


def outcome(delivery: Delivery) -> tuple[RecordMetadata | None, Exception | None]:
    """Return (metadata, None) or (None, error)."""
    error = delivery.exception()
    return (delivery.result(), None) if error is None else (None, error)

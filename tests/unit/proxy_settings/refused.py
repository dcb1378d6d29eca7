"""A refusal, as the data path reports one."""

from __future__ import annotations

from typing import NamedTuple


class Refused(NamedTuple):
    topic: str | None = "orders"
    rule: str = "crc-mismatch"
    listener: str = "default"
    client: str = "127.0.0.1:1"
    client_id: str | None = "c"
    partition: int = 0
    error: str = "CORRUPT_MESSAGE"
    reason: str = "why"
    enforced: bool = True
    reported: tuple[str, ...] = ()
    principal: str = "User:ANONYMOUS"
    batches: int = 1
    version: int = 9

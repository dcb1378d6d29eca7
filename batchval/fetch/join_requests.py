"""JoinGroup and SyncGroup requests that brokers other than Kafka's accept too.

Versions end before the flexible ones, which have nothing that is used here: librdkafka's mock
cluster announces some of them and reads them as the older ones. With an error it sends null for the
protocol's name and for the assignment, which no version of these answers allows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from batchval.protocol.errors import ProtocolError
from batchval.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from batchval.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["JOIN_VERSIONS", "SYNC_VERSIONS", "JoinRequest", "SyncRequest"]

T = TypeVar("T")

JOIN_VERSIONS: Final = (0, 5)
SYNC_VERSIONS: Final = (0, 3)
_AFTER_ID: Final = 4  # where the error code stands: after the correlation id
_AFTER_THROTTLE: Final = 8  # or after the throttle time


class JoinRequest(JoinGroupRequest):
    """A JoinGroup request that reads an error code even if the rest cannot be read."""

    __slots__ = ()

    def decode(self, frame: Buffer) -> JoinGroupResponse:
        at = _AFTER_THROTTLE if self.api_version >= 2 else _AFTER_ID
        return _decoded(super().decode, JoinGroupResponse, frame, at)


class SyncRequest(SyncGroupRequest):
    """A SyncGroup request that reads an error code even if the rest cannot be read."""

    __slots__ = ()

    def decode(self, frame: Buffer) -> SyncGroupResponse:
        at = _AFTER_THROTTLE if self.api_version >= 1 else _AFTER_ID
        return _decoded(super().decode, SyncGroupResponse, frame, at)


def _decoded(decode: Callable[[Buffer], T], kind: Callable[..., T], frame: Buffer, at: int) -> T:
    try:
        return decode(frame)
    except ProtocolError:
        code = int.from_bytes(memoryview(frame)[at : at + 2], "big", signed=True)
        if not code:
            raise
        return kind(error_code=code)

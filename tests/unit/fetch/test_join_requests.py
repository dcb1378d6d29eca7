"""Errors of JoinGroup and SyncGroup with null fields, as librdkafka's mock cluster sends them."""

from __future__ import annotations

import pytest

from batchval.fetch.group import JOIN_VERSIONS, SYNC_VERSIONS, JoinRequest, SyncRequest
from batchval.protocol.errors import ProtocolError
from batchval.protocol.messages.join_group import JoinGroupResponse
from batchval.protocol.messages.sync_group import SyncGroupResponse
from batchval.protocol.primitives import Writer

REBALANCE_IN_PROGRESS = 27


def answer(throttled: bool, code: int, generation: bool) -> bytes:
    """An answer with null in the place of the first string or bytes."""
    w = Writer()
    w.int32(1)
    if throttled:
        w.int32(0)
    w.int16(code)
    if generation:
        w.int32(-1)
        w.nullable_string(None)
    else:
        w.nullable_data(None)
    return w.getvalue()


@pytest.mark.parametrize("version", range(JOIN_VERSIONS[1] + 1))
def test_an_error_of_join_group_is_read(version: int) -> None:
    request = JoinRequest(api_version=version)
    assert request.decode(answer(version >= 2, REBALANCE_IN_PROGRESS, True)) == JoinGroupResponse(
        error_code=REBALANCE_IN_PROGRESS
    )
    with pytest.raises(ProtocolError, match="null"):
        request.decode(answer(version >= 2, 0, True))
    good = JoinGroupResponse(generation_id=3, protocol_name="range", leader="me", member_id="me")
    assert request.decode(b"".join(good.encode(1, version))[4:]) == good


@pytest.mark.parametrize("version", range(SYNC_VERSIONS[1] + 1))
def test_an_error_of_sync_group_is_read(version: int) -> None:
    request = SyncRequest(api_version=version)
    assert request.decode(answer(version >= 1, REBALANCE_IN_PROGRESS, False)) == SyncGroupResponse(
        error_code=REBALANCE_IN_PROGRESS
    )
    with pytest.raises(ProtocolError, match="null"):
        request.decode(answer(version >= 1, 0, False))
    good = SyncGroupResponse(assignment=b"mine")
    assert request.decode(b"".join(good.encode(1, version))[4:]) == good

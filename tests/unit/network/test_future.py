"""RequestFuture. (The rules of completion are points 10 and 11 of test_checklist.py.)"""

from __future__ import annotations

import asyncio

import pytest

from batchval.network.errors import DisconnectError
from batchval.network.future import RequestFuture


def test_states() -> None:
    open_, done, failed = (
        RequestFuture[int](),
        RequestFuture[None](),
        RequestFuture[int].failure(OSError()),
    )
    done.complete(None)
    assert [
        (f.is_done, f.succeeded, f.failed, f.should_block()) for f in (open_, done, failed)
    ] == [
        (False, False, False, True),
        (True, True, False, False),
        (True, False, True, False),
    ]
    assert done.value() is None


async def test_awaiting() -> None:
    future = RequestFuture[int]()
    waiters = [asyncio.ensure_future(_await(future)) for _ in range(3)]
    await asyncio.sleep(0)
    waiters[0].cancel()
    await asyncio.sleep(0)
    future.complete(5)
    assert [await waiter for waiter in waiters[1:]] == [5, 5]
    assert waiters[0].cancelled()
    assert await future == 5
    failed = RequestFuture[int]()
    waiting = asyncio.ensure_future(_await(failed))
    await asyncio.sleep(0)
    failed.raise_error(DisconnectError("gone"))
    with pytest.raises(DisconnectError, match="gone"):
        await waiting
    with pytest.raises(DisconnectError, match="gone"):
        await failed


async def _await(future: RequestFuture[int]) -> int:
    return await future

"""RequestFuture and its adapters. (The rules of completion are points 10 and 11 of test_checklist.py.)"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from batchval.network.errors import AuthenticationError, DisconnectError
from batchval.network.future import RequestFuture, RequestFutureAdapter


class Listener:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_success(self, value: Any) -> None:
        self.seen.append(value)

    def on_failure(self, error: BaseException) -> None:
        self.seen.append(error)


def test_states() -> None:
    open_, done, failed = RequestFuture[int](), RequestFuture.success(None), RequestFuture[int].failure(OSError())
    assert [(f.is_done, f.succeeded, f.failed, f.should_block()) for f in (open_, done, failed)] == [
        (False, False, False, True),
        (True, True, False, False),
        (True, False, True, False),
    ]
    assert done.value() is None


def test_is_retriable() -> None:
    assert RequestFuture[int].failure(DisconnectError("gone")).is_retriable
    assert not RequestFuture[int].failure(AuthenticationError("no")).is_retriable
    assert not RequestFuture[int].failure(KeyError()).is_retriable


class Doubles(RequestFutureAdapter[int, str]):
    def on_success(self, value: int, future: RequestFuture[str]) -> None:
        future.complete(str(2 * value))


class Forgives(Doubles):
    def on_failure(self, error: BaseException, future: RequestFuture[str]) -> None:
        future.complete("forgiven")


class Breaks(RequestFutureAdapter[int, str]):
    def on_success(self, value: int, future: RequestFuture[str]) -> None:
        raise ZeroDivisionError


def test_compose_adapts_and_by_default_passes_the_error_on() -> None:
    future = RequestFuture[int]()
    doubled, forgiven, broken = future.compose(Doubles()), future.compose(Forgives()), future.compose(Breaks())
    assert not doubled.is_done
    future.complete(21)
    assert (doubled.value(), forgiven.value()) == ("42", "42")
    assert isinstance(broken.exception(), ZeroDivisionError)

    future, error = RequestFuture[int](), DisconnectError("gone")
    doubled, forgiven = future.compose(Doubles()), future.compose(Forgives())
    future.raise_error(error)
    assert doubled.exception() is error
    assert forgiven.value() == "forgiven"


def test_an_adapter_without_on_success_is_a_mistake_that_is_seen() -> None:
    adapted = RequestFuture.success(1).compose(RequestFutureAdapter[int, int]())
    assert isinstance(adapted.exception(), NotImplementedError)


def test_chain_passes_both_ends_on() -> None:
    for end in (lambda f: f.complete(7), lambda f: f.raise_error(KeyError("x"))):
        first, second, third = RequestFuture[int](), RequestFuture[int](), RequestFuture[int]()
        first.chain(second)
        second.chain(third)
        end(first)
        assert second.is_done
        assert third.is_done
        assert (third.succeeded and third.value() == 7) or third.exception() is first.exception()


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

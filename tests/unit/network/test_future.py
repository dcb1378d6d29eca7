"""RequestFuture. (The rules of completion are points 10 and 11 of test_checklist.py.)"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from batchval.network.errors import AuthenticationError, DisconnectError
from batchval.network.future import RequestFuture, RequestFutureAdapter


class Listener:
    """A listener that keeps what it is told."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_success(self, value: Any) -> None:
        self.seen.append(value)

    def on_failure(self, error: BaseException) -> None:
        self.seen.append(error)


def test_states() -> None:
    open_, done, failed = (
        RequestFuture[int](),
        RequestFuture.success(None),
        RequestFuture[int].failure(OSError()),
    )
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


def test_is_retriable() -> None:
    assert RequestFuture[int].failure(DisconnectError("gone")).is_retriable
    assert not RequestFuture[int].failure(AuthenticationError("no")).is_retriable
    assert not RequestFuture[int].failure(KeyError()).is_retriable
    for future in (RequestFuture[int](), RequestFuture.success(1)):
        with pytest.raises(RuntimeError, match="has not failed"):
            _ = future.is_retriable


def test_a_listener_is_told_once_before_and_after_the_end() -> None:
    before, after, error = Listener(), Listener(), DisconnectError("gone")
    future = RequestFuture[int]()
    future.add_listener(before)
    assert before.seen == []
    future.complete(3)
    future.add_listener(after)
    assert (before.seen, after.seen) == ([3], [3])
    failed = RequestFuture[int].failure(error)
    failed.add_listener(before)
    assert before.seen == [3, error]


class Doubles(RequestFutureAdapter[int, str]):
    def on_success(self, value: int, future: RequestFuture[str]) -> None:
        future.complete(str(2 * value))


class Forgives(Doubles):
    def on_failure(self, error: BaseException, future: RequestFuture[str]) -> None:
        future.complete("forgiven")


class Refuses(RequestFutureAdapter[int, str]):
    """An answer that carries an error: the shape of nearly every adapter in Kafka's consumer."""

    def on_success(self, value: int, future: RequestFuture[str]) -> None:
        future.raise_error(ValueError(value))


class Breaks(RequestFutureAdapter[int, str]):
    def on_success(self, value: int, future: RequestFuture[str]) -> None:
        raise ZeroDivisionError

    def on_failure(self, error: BaseException, future: RequestFuture[str]) -> None:
        raise ZeroDivisionError from error


class Late(RequestFutureAdapter[int, str]):
    """An adapter that needs another answer first."""

    def __init__(self) -> None:
        self.future: RequestFuture[str] | None = None

    def on_success(self, value: int, future: RequestFuture[str]) -> None:
        self.future = future


def test_compose_adapts_and_by_default_passes_the_error_on() -> None:
    future, late = RequestFuture[int](), Late()
    doubled, forgiven = future.compose(Doubles()), future.compose(Forgives())
    refused, later = future.compose(Refuses()), future.compose(late)
    assert not doubled.is_done
    future.complete(21)
    assert (doubled.value(), forgiven.value()) == ("42", "42")
    assert repr(refused.exception()) == "ValueError(21)"
    assert late.future is later
    assert not later.is_done
    late.future.complete("at last")
    assert later.value() == "at last"

    future, error = RequestFuture[int](), DisconnectError("gone")
    doubled, forgiven = future.compose(Doubles()), future.compose(Forgives())
    future.raise_error(error)
    assert doubled.exception() is error
    assert forgiven.value() == "forgiven"


def test_compose_of_a_future_that_is_done() -> None:
    assert RequestFuture.success(4).compose(Doubles()).value() == "8"
    assert RequestFuture[int].failure(KeyError()).compose(Forgives()).value() == "forgiven"


@pytest.mark.parametrize("end", [lambda f: f.complete(1), lambda f: f.raise_error(KeyError())])
def test_an_adapter_that_raises_fails_its_future(
    end: Callable[[RequestFuture[int]], None],
) -> None:
    """In Kafka it stays open for ever (ADR 0006)."""
    future = RequestFuture[int]()
    broken = future.compose(Breaks())
    end(future)
    assert isinstance(broken.exception(), ZeroDivisionError)


def test_an_adapter_without_on_success_is_a_mistake_that_is_seen() -> None:
    adapted = RequestFuture.success(1).compose(RequestFutureAdapter[int, int]())
    assert str(adapted.exception()) == "RequestFutureAdapter has no on_success"


@pytest.mark.parametrize("end", [lambda f: f.complete(7), lambda f: f.raise_error(KeyError("x"))])
def test_chain_passes_both_ends_on(end: Callable[[RequestFuture[int]], None]) -> None:
    first, second, third = RequestFuture[int](), RequestFuture[int](), RequestFuture[int]()
    first.chain(second)
    second.chain(third)
    end(first)
    assert (second.is_done, third.is_done) == (True, True)
    assert (third.succeeded and third.value() == 7) or third.exception() is first.exception()


def test_a_chain_to_one_that_is_done_leaves_it(caplog: pytest.LogCaptureFixture) -> None:
    first, second = RequestFuture[int](), RequestFuture.success(1)
    after = Listener()
    first.chain(second)
    first.add_listener(after)
    first.complete(2)
    assert (second.value(), after.seen) == (1, [2])
    assert "completed twice" in caplog.text

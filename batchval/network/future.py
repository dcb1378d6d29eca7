"""RequestFuture: an answer that will come, with listeners. Kafka's class of that name, awaitable.

A future belongs to one loop, which completes it, adds listeners and awaits it. Listeners run inside
``complete`` or ``raise_error``, in the order they were added; the network client calls those only
from its queue of completions.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, cast

__all__ = ["RequestFuture", "RequestFutureAdapter", "RequestFutureListener"]

T = TypeVar("T")
S = TypeVar("S")
T_contra = TypeVar("T_contra", contravariant=True)

log = logging.getLogger("batchval.network")


class RequestFutureListener(Protocol[T_contra]):
    """What is told once how a future ends."""

    def on_success(self, value: T_contra) -> None:
        """Take the answer."""

    def on_failure(self, error: BaseException) -> None:
        """Take what kept the answer from coming."""


class RequestFutureAdapter(Generic[T, S]):
    """What turns the end of one future into the end of another, of another type, for ``compose``.

    It completes or fails ``future``, in its call or later.
    """

    def on_success(self, value: T, future: RequestFuture[S]) -> None:
        """Turn the answer into one for ``future``, or into a failure of it."""
        raise NotImplementedError(f"{type(self).__name__} has no on_success")

    def on_failure(self, error: BaseException, future: RequestFuture[S]) -> None:
        """Pass the error on, unless a subclass can do better."""
        future.raise_error(error)


class _Open:
    def __repr__(self) -> str:
        return "open"


_OPEN = _Open()


class RequestFuture(Generic[T]):
    """An outcome that comes once: a value (None is one) or an exception."""

    __slots__ = ("_error", "_listeners", "_value")

    def __init__(self) -> None:
        self._value: T | _Open = _OPEN
        self._error: BaseException | None = None
        self._listeners: deque[tuple[Callable[[T], None], Callable[[BaseException], None]]] = (
            deque()
        )

    def __repr__(self) -> str:
        state = f"failed: {self._error!r}" if self._error is not None else repr(self._value)
        return f"<RequestFuture {state}>"

    @classmethod
    def failure(cls, error: BaseException) -> RequestFuture[T]:
        """Return a future that has failed already."""
        future = cls()
        future.raise_error(error)
        return future

    @classmethod
    def success(cls, value: T) -> RequestFuture[T]:
        """Return a future that has succeeded already (``voidSuccess`` in Kafka: with None)."""
        future = cls()
        future.complete(value)
        return future

    @property
    def is_done(self) -> bool:
        """Return whether it succeeded or failed."""
        return self._value is not _OPEN or self._error is not None

    @property
    def succeeded(self) -> bool:
        """Return whether it is done with a value."""
        return self._value is not _OPEN

    @property
    def failed(self) -> bool:
        """Return whether it is done with an exception."""
        return self._error is not None

    @property
    def is_retriable(self) -> bool:
        """Return whether the same request may succeed later. Raises RuntimeError unless failed."""
        return bool(getattr(self.exception(), "retriable", False))

    def value(self) -> T:
        """Return the answer. Raises RuntimeError unless succeeded."""
        if self._value is _OPEN:
            raise RuntimeError(f"the future has not succeeded: {self!r}")
        return cast(T, self._value)

    def exception(self) -> BaseException:
        """Return the exception. Raises RuntimeError unless failed."""
        if self._error is None:
            raise RuntimeError(f"the future has not failed: {self!r}")
        return self._error

    def should_block(self) -> bool:
        """Return whether it is not done, as a condition of ``poll``."""
        return not self.is_done

    def complete(self, value: T) -> None:
        """Succeed. Raises RuntimeError if done already."""
        self._must_be_open()
        self._value = value
        self._fire()

    def raise_error(self, error: BaseException) -> None:
        """Fail (``raise`` in Kafka).

        Raises RuntimeError if done already, TypeError for a value that is not an exception.
        """
        if not isinstance(error, BaseException):
            raise TypeError(f"a future fails with an exception, not with {error!r}")
        self._must_be_open()
        self._error = error
        self._fire()

    def _must_be_open(self) -> None:
        if self.is_done:
            raise RuntimeError(f"completed twice: {self!r}")

    def add_listener(self, listener: RequestFutureListener[T]) -> None:
        """Tell a listener, once, how it ends; now if it is done already."""
        self.add_callbacks(listener.on_success, listener.on_failure)

    def compose(self, adapter: RequestFutureAdapter[T, S]) -> RequestFuture[S]:
        """Return a future that the adapter completes or fails when this one is done.

        An adapter that raises fails it: in Kafka it would stay open for ever (docs/adr/0006).
        """
        adapted: RequestFuture[S] = RequestFuture()

        def adapt(end: Callable[[Any, RequestFuture[S]], None], outcome: Any) -> None:
            try:
                end(outcome, adapted)
            except Exception as error:
                if adapted.is_done:
                    raise
                adapted.raise_error(error)

        self.add_callbacks(partial(adapt, adapter.on_success), partial(adapt, adapter.on_failure))
        return adapted

    def chain(self, future: RequestFuture[T]) -> None:
        """Complete or fail another future as this one ends."""
        self.add_callbacks(future.complete, future.raise_error)

    def add_callbacks(
        self, on_success: Callable[[T], None], on_failure: Callable[[BaseException], None]
    ) -> None:
        """Call one of two functions, once, when it is done; now if it is done already."""
        self._listeners.append((on_success, on_failure))
        if self.is_done:
            self._fire()

    def _fire(self) -> None:
        while self._listeners:
            # first: a listener may add others, or fail
            on_success, on_failure = self._listeners.popleft()
            try:
                if self._error is not None:
                    on_failure(self._error)
                else:
                    on_success(cast(T, self._value))
            except Exception:
                log.exception("a listener failed; the others are called all the same")

    def __await__(self) -> Generator[Any, None, T]:
        """Wait on the running loop. Cancelling the waiting task does not cancel the request."""
        if not self.is_done:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            def wake(_: object) -> None:
                if not waiter.done():
                    waiter.set_result(None)

            self.add_callbacks(wake, wake)
            yield from waiter
        if self._error is not None:
            raise self._error
        return cast(T, self._value)

"""RequestFuture: an answer that will come, with listeners; Kafka's class of that name, and awaitable.

Not a thread's business: completed, listened to and awaited on one loop. Listeners run inside ``complete`` or
``raise_error``, in the order they were added; the network client calls those only from its queue of completions.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Generic, Protocol, TypeVar, cast

__all__ = ["RequestFuture", "RequestFutureAdapter", "RequestFutureListener"]

T = TypeVar("T")
S = TypeVar("S")
T_contra = TypeVar("T_contra", contravariant=True)

log = logging.getLogger("batchval.network")


class RequestFutureListener(Protocol[T_contra]):
    """Told once of a future's end."""

    def on_success(self, value: T_contra) -> None:
        """The answer."""

    def on_failure(self, error: BaseException) -> None:
        """What kept the answer from coming."""


class RequestFutureAdapter(Generic[T, S]):
    """Makes the end of one future into the end of another; a failure is passed on, by default."""

    def on_success(self, value: T, future: RequestFuture[S]) -> None:
        """Must complete ``future``, or raise it, now or later."""
        raise NotImplementedError

    def on_failure(self, error: BaseException, future: RequestFuture[S]) -> None:
        """Passes the error on."""
        future.raise_error(error)


class _Calls(Generic[T]):
    """A listener of two functions."""

    __slots__ = ("on_failure", "on_success")

    def __init__(self, on_success: Callable[[T], None], on_failure: Callable[[BaseException], None]) -> None:
        self.on_success = on_success
        self.on_failure = on_failure


class _Open:
    def __repr__(self) -> str:
        return "open"


_OPEN = _Open()


class RequestFuture(Generic[T]):
    """Open, then either succeeded with a value (None is one) or failed with an exception, once and for good."""

    __slots__ = ("_error", "_listeners", "_value")

    def __init__(self) -> None:
        self._value: T | _Open = _OPEN
        self._error: BaseException | None = None
        self._listeners: deque[RequestFutureListener[T] | _Calls[T]] = deque()

    def __repr__(self) -> str:
        state = f"failed: {self._error!r}" if self._error is not None else repr(self._value)
        return f"<RequestFuture {state}>"

    @classmethod
    def failure(cls, error: BaseException) -> RequestFuture[T]:
        """One that has failed already."""
        future = cls()
        future.raise_error(error)
        return future

    @classmethod
    def success(cls, value: T) -> RequestFuture[T]:
        """One that has succeeded already."""
        future = cls()
        future.complete(value)
        return future

    @property
    def is_done(self) -> bool:
        """Succeeded or failed."""
        return self._value is not _OPEN or self._error is not None

    @property
    def succeeded(self) -> bool:
        """Done, with a value."""
        return self._value is not _OPEN

    @property
    def failed(self) -> bool:
        """Done, with an exception."""
        return self._error is not None

    @property
    def is_retriable(self) -> bool:
        """Whether the failure may pass by itself. RuntimeError unless failed."""
        return bool(getattr(self.exception(), "retriable", False))

    def value(self) -> T:
        """The answer. RuntimeError unless succeeded."""
        if self._value is _OPEN:
            raise RuntimeError(f"there is no value: {self!r}")
        return cast(T, self._value)

    def exception(self) -> BaseException:
        """What it failed with. RuntimeError unless failed."""
        if self._error is None:
            raise RuntimeError(f"there is no exception: {self!r}")
        return self._error

    def should_block(self) -> bool:
        """As a condition of ``poll``: there is still something to wait for."""
        return not self.is_done

    def complete(self, value: T) -> None:
        """Succeeds. RuntimeError if done already."""
        self._must_be_open()
        self._value = value
        self._fire()

    def raise_error(self, error: BaseException) -> None:
        """Fails (``raise`` in Kafka). RuntimeError if done already, TypeError for what is no exception."""
        if not isinstance(error, BaseException):
            raise TypeError(f"a future fails with an exception, not with {error!r}")
        self._must_be_open()
        self._error = error
        self._fire()

    def _must_be_open(self) -> None:
        if self.is_done:
            raise RuntimeError(f"completed twice: {self!r}")

    def add_listener(self, listener: RequestFutureListener[T]) -> None:
        """Tells the listener of the end, once; at once if that has been."""
        self._add(listener)

    def _add(self, listener: RequestFutureListener[T] | _Calls[T]) -> None:
        self._listeners.append(listener)
        if self.is_done:
            self._fire()

    def add_callbacks(self, on_success: Callable[[T], None], on_failure: Callable[[BaseException], None]) -> None:
        """``add_listener`` for two functions."""
        self._add(_Calls(on_success, on_failure))

    def _fire(self) -> None:
        while self._listeners:
            listener = self._listeners.popleft()  # first: a listener may add others, or fail
            try:
                if self._error is not None:
                    listener.on_failure(self._error)
                else:
                    listener.on_success(cast(T, self._value))
            except Exception:
                log.exception("a listener failed; the others are told all the same")

    def compose(self, adapter: RequestFutureAdapter[T, S]) -> RequestFuture[S]:
        """A future of another type, ended by the adapter when this one ends.

        An ``on_success`` that raises fails the adapted future: in Kafka it would stay open for ever.
        """
        adapted: RequestFuture[S] = RequestFuture()

        def succeeded(value: T) -> None:
            try:
                adapter.on_success(value, adapted)
            except Exception as error:
                if adapted.is_done:
                    raise
                adapted.raise_error(error)

        self.add_callbacks(succeeded, lambda error: adapter.on_failure(error, adapted))
        return adapted

    def chain(self, future: RequestFuture[T]) -> None:
        """Ends ``future`` as this one ends."""
        self.add_callbacks(future.complete, future.raise_error)

    def __await__(self) -> Generator[Any, None, T]:
        """Waits on the running loop. Cancelling whoever waits leaves the request as it is."""
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

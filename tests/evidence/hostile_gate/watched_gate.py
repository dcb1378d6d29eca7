"""Runs ``batchval proxy`` with a loop that measures the CPU time of each of its callbacks.

    python watched_gate.py FILE proxy --config SETTINGS

FILE is mapped and shared with the harness, which sets it to zeros before an attack (`Longest`):

    callback_ns:8 turn_ns:8 name_size:4, name      native byte order
    at COLLECTOR_AT: total_ns:8 longest_ns:8       CPU time of the cycle collector

``callback_ns``  CPU time of the loop's thread in one callback: a protocol's method, a step of a
                 task, or a function that was scheduled. Nested calls count as one.
``turn_ns``      CPU time of that thread between two ticks of a timer, which runs once in each turn
                 of the loop. A turn calls back for every connection that is ready, and also holds
                 what uvloop does itself, for example TLS handshakes.

CPU time, because wall time on a busy machine counts what other processes do. The program imports
nothing of the tests: ``PYTHONPATH`` names the checkout whose gate it runs.
"""

from __future__ import annotations

import asyncio
import gc
import mmap
import os
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

import uvloop

HEAD = struct.Struct("=qqi")
SIZE = 4096
COLLECTOR = struct.Struct("=qq")
COLLECTOR_AT = SIZE - COLLECTOR.size
TICK_S = 0.001
METHODS = ("connection_made", "connection_lost", "buffer_updated", "data_received")
METHODS += ("eof_received", "pause_writing", "resume_writing")


class Longest:
    """The longest callback and turn so far, in shared memory."""

    def __init__(self, path: str) -> None:
        with open(path, "r+b") as file:
            self.shared = mmap.mmap(file.fileno(), SIZE)
        self.depth = 0
        self.turn_began = 0
        self.collection_began = 0

    def collected(self, phase: str, _: dict[str, int]) -> None:
        """Add the time of a collection (gc.callbacks)."""
        now = time.thread_time_ns()
        if phase == "start":
            self.collection_began = now
            return
        total, most = COLLECTOR.unpack_from(self.shared, COLLECTOR_AT)
        taken = now - self.collection_began
        COLLECTOR.pack_into(self.shared, COLLECTOR_AT, total + taken, max(most, taken))

    def note(self, callback: Callable[..., Any], nanoseconds: int) -> None:
        """Keep the time of a callback if no other took as long."""
        most, turn, _ = HEAD.unpack_from(self.shared)
        if nanoseconds > most:
            name = name_of(callback).encode()[: COLLECTOR_AT - HEAD.size]
            HEAD.pack_into(self.shared, 0, nanoseconds, turn, len(name))
            self.shared[HEAD.size : HEAD.size + len(name)] = name

    def tick(self, loop: asyncio.AbstractEventLoop) -> None:
        """Measure the turn that ends here, and the next one."""
        now = time.thread_time_ns()
        most, turn, size = HEAD.unpack_from(self.shared)
        if self.turn_began and now - self.turn_began > turn:
            HEAD.pack_into(self.shared, 0, most, now - self.turn_began, size)
        self.turn_began = now
        loop.call_later(TICK_S, self.tick, loop)

    def timed(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """Return a callback that also notes its CPU time."""

        def call(*arguments: Any) -> Any:
            if self.depth:
                return callback(*arguments)
            self.depth = 1
            began = time.thread_time_ns()
            try:
                return callback(*arguments)
            finally:
                taken = time.thread_time_ns() - began
                self.depth = 0
                if taken > 200_000:
                    self.note(callback, taken)

        return call


def name_of(callback: Callable[..., Any]) -> str:
    """Return the name of a function, or of the coroutine whose step it is."""
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return str(getattr(owner.get_coro(), "__qualname__", owner.get_coro()))
    return str(getattr(callback, "__qualname__", type(callback).__name__))


def timed_class(longest: Longest, kind: type) -> type:
    """Return a subclass whose methods of a protocol note their CPU time."""
    methods: dict[str, Any] = {"__slots__": ()}
    for name in METHODS:
        method = getattr(kind, name, None)
        if method is not None and hasattr(method, "__get__") and callable(method):
            timed = longest.timed(method)
            methods[name] = lambda self, *arguments, timed=timed: timed(self, *arguments)
    return type(kind.__name__, (kind,), methods)


def watched_loop(longest: Longest) -> type[uvloop.Loop]:
    """Return a class of loops that notes the CPU time of each callback."""
    classes: dict[type, type] = {}

    def watched(protocol: Any) -> Any:
        kind = type(protocol)
        if kind not in classes and kind not in classes.values():
            classes[kind] = timed_class(longest, kind)
        if kind in classes:
            protocol.__class__ = classes[kind]
        return protocol

    class Watched(uvloop.Loop):  # type: ignore[misc]
        def call_soon(self, callback: Any, *arguments: Any, context: Any = None) -> Any:
            return super().call_soon(longest.timed(callback), *arguments, context=context)

        def call_soon_threadsafe(self, callback: Any, *arguments: Any, context: Any = None) -> Any:
            timed = longest.timed(callback)
            return super().call_soon_threadsafe(timed, *arguments, context=context)

        def call_later(
            self, delay: Any, callback: Any, *arguments: Any, context: Any = None
        ) -> Any:
            return super().call_later(delay, longest.timed(callback), *arguments, context=context)

        def call_at(self, when: Any, callback: Any, *arguments: Any, context: Any = None) -> Any:
            return super().call_at(when, longest.timed(callback), *arguments, context=context)

        def add_reader(self, fileobj: Any, callback: Any, *arguments: Any) -> None:
            super().add_reader(fileobj, longest.timed(callback), *arguments)

        def add_writer(self, fileobj: Any, callback: Any, *arguments: Any) -> None:
            super().add_writer(fileobj, longest.timed(callback), *arguments)

        async def create_server(self, factory: Any, *words: Any, **options: Any) -> Any:
            return await super().create_server(lambda: watched(factory()), *words, **options)

        async def create_connection(self, factory: Any, *words: Any, **options: Any) -> Any:
            return await super().create_connection(lambda: watched(factory()), *words, **options)

        async def connect_accepted_socket(self, factory: Any, *words: Any, **options: Any) -> Any:
            return await super().connect_accepted_socket(
                lambda: watched(factory()), *words, **options
            )

    return Watched


def main() -> None:
    longest = Longest(sys.argv[1])
    gc.callbacks.append(longest.collected)
    kind = watched_loop(longest)

    def new_event_loop() -> uvloop.Loop:
        loop = kind()
        loop.call_soon(longest.tick, loop)
        return loop

    uvloop.new_event_loop = new_event_loop
    sys.argv = ["batchval", *sys.argv[2:]]
    sys.path[0] = os.environ["PYTHONPATH"]
    from batchval.cli import main as command

    command()


if __name__ == "__main__":
    main()

"""The life of a gate's process, from its start to its end.

    SERVING   clients connect and are served
    LEAVING   /readyz is 503, and all else as before, for limits.stop_delay_ms
    HANDED    a new gate serves, and this one drains; nobody has asked it to end yet
    DRAINING  ports are closed; what is under way is delivered, for limits.drain_timeout_ms
    ENDED     nothing is left

    SERVING ──TERMINATE──► LEAVING ──TERMINATE, INTERRUPT, DELAYED──► DRAINING
       ├────────────INTERRUPT────────────────────────────────────────►   │
       └─HANDED─► HANDED ──TERMINATE, INTERRUPT──────────────────────►   │
                    └──────DRAINED──► ENDED                              │
    ENDED ◄───────────────────────TERMINATE, INTERRUPT, DRAINED──────────┘

RELOAD is served in SERVING and LEAVING, and changes no phase.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Final, Protocol

from batchval.proxy.kit.state_machine import StateMachine

__all__ = [
    "SIGNALS",
    "TRANSITIONS",
    "Leaving",
    "Life",
    "LifecycleEvent",
    "Phase",
    "calm_collector",
    "notify",
    "switch_soon",
]


class Phase(enum.Enum):
    """The phases of the process."""

    SERVING = "serving"
    LEAVING = "leaving"
    HANDED = "handed"
    DRAINING = "draining"
    ENDED = "ended"


class LifecycleEvent(enum.Enum):
    """The events of the process."""

    TERMINATE = "terminate"
    INTERRUPT = "interrupt"
    RELOAD = "reload"
    HANDED = "handed"  # a new gate has taken over
    DELAYED = "delayed"
    DRAINED = "drained"


#: (phase, event) -> the next phase.
TRANSITIONS: Final[dict[tuple[Phase, LifecycleEvent], Phase]] = {
    (Phase.SERVING, LifecycleEvent.TERMINATE): Phase.LEAVING,
    (Phase.SERVING, LifecycleEvent.INTERRUPT): Phase.DRAINING,
    (Phase.SERVING, LifecycleEvent.HANDED): Phase.HANDED,
    (Phase.LEAVING, LifecycleEvent.TERMINATE): Phase.DRAINING,
    (Phase.LEAVING, LifecycleEvent.INTERRUPT): Phase.DRAINING,
    (Phase.LEAVING, LifecycleEvent.DELAYED): Phase.DRAINING,
    (Phase.HANDED, LifecycleEvent.TERMINATE): Phase.DRAINING,
    (Phase.HANDED, LifecycleEvent.INTERRUPT): Phase.DRAINING,
    (Phase.HANDED, LifecycleEvent.DRAINED): Phase.ENDED,
    (Phase.DRAINING, LifecycleEvent.TERMINATE): Phase.ENDED,
    (Phase.DRAINING, LifecycleEvent.INTERRUPT): Phase.ENDED,
    (Phase.DRAINING, LifecycleEvent.DRAINED): Phase.ENDED,
}

SIGNALS: Final = {
    signal.SIGTERM: LifecycleEvent.TERMINATE,
    signal.SIGINT: LifecycleEvent.INTERRUPT,
    signal.SIGHUP: LifecycleEvent.RELOAD,
}


log = logging.getLogger("batchval.proxy")


class Leaving(Protocol):
    """The part of the gate that its lifecycle uses."""

    def leave(self) -> None: ...
    async def stop(self, drain_s: float | None = None) -> None: ...


class Life(StateMachine[Phase, LifecycleEvent]):
    """The phases of one gate, which serves already.

    ``events``     what happens: signals, and the hand-over to a new gate
    ``stop_delay_s``  returns limits.stop_delay_ms as it is now, in seconds
    ``leaving``    called when the gate begins to end: it cannot be taken over from then on
    ``draining``   called when it drains: it takes no other settings from then on
    """

    transitions = TRANSITIONS

    def __init__(
        self,
        gate: Leaving,
        stop_delay_s: Callable[[], float],
        reload: Callable[[], object],
        leaving: Callable[[], None] = lambda: None,
        draining: Callable[[], object] = lambda: None,
    ) -> None:
        self.events: asyncio.Queue[LifecycleEvent] = asyncio.Queue()
        self.state = Phase.SERVING
        self._gate = gate
        self._stop_delay_s = stop_delay_s
        self._reload = reload
        self._leaving = leaving
        self._has_left = draining
        self._draining: asyncio.Task[None] | None = None

    async def run(self) -> bool:
        """Run until the gate has ended; return whether a signal has interrupted it."""
        is_interrupted = False
        while self.state is not Phase.ENDED:
            event = await self.events.get()
            if event is LifecycleEvent.RELOAD and self.state in (Phase.SERVING, Phase.LEAVING):
                self._reload()
            before = self.state
            if self.move(event):
                is_interrupted |= event is LifecycleEvent.INTERRUPT or (
                    before is Phase.DRAINING and event is not LifecycleEvent.DRAINED
                )
                if before is Phase.SERVING:
                    self._leaving()
                self._enter()
        await self._end()
        return is_interrupted

    def _enter(self) -> None:
        if self.state is Phase.LEAVING:
            delay_s = self._stop_delay_s()
            log.info("this gate stops: /readyz is 503, ports close after %g s", delay_s)
            self._gate.leave()
            asyncio.get_running_loop().call_later(
                delay_s, self.events.put_nowait, LifecycleEvent.DELAYED
            )
        elif self._draining is None and self.state is not Phase.ENDED:
            log.info("this gate drains: ports are closed, pending answers are delivered")
            self._has_left()
            self._draining = asyncio.ensure_future(self._gate.stop())
            self._draining.add_done_callback(
                lambda _: self.events.put_nowait(LifecycleEvent.DRAINED)
            )

    async def _end(self) -> None:
        assert self._draining is not None
        if self._draining.done():
            self._draining.result()
        else:  # asked twice: at once, then
            self._draining.cancel()
            await asyncio.wait((self._draining,))
            await self._gate.stop(0)
        log.info("this gate has ended")


def notify(state: str) -> None:
    """Send a state such as ``READY=1`` or ``MAINPID=4711``, where systemd asks for it."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        sock.sendto(state.encode(), address.replace("@", "\0", 1) if address[0] == "@" else address)


#: Thresholds of the cycle collector (gc.set_threshold): objects, and how often each generation is
#: collected before the next one is.
COLLECT: Final = (500, 10, 1_000)

#: Seconds that a validating thread may keep the interpreter's lock while the event loop waits for
#: it. Python's 5 ms, several times in one exchange, would be what other clients feel.
SWITCH_S: Final = 0.0005


def switch_soon() -> None:
    """Let the event loop have the interpreter's lock soon."""
    sys.setswitchinterval(SWITCH_S)


def calm_collector() -> None:
    """Keep the cycle collector from stopping the event loop for tens of milliseconds.

    What exists at the start is never looked at again; of the rest, a full collection is rare. A
    closed session needs none: reference counts free it (``Session.dissolve``). What is left is for
    connections that are open. Measured at 1235a497 on two cores that others used, in CPU time:

        a full collection   10 ms for each 1,000 open connections (34 objects each), and 50 ms for
                            the 77,000 objects that are frozen here
        other generations   3 and 6 ms at most, 4 % in all, in 200,000 short connections, 100 at a
                            time: no full collection, and no turn of the loop above 12 ms

    With Python's own thresholds, connections that open cause a full collection each time that they
    have become a quarter more.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT)

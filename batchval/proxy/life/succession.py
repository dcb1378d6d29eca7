"""Take over one gate, and be taken over by another (``control``, ``handover``)."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import TYPE_CHECKING, Final

from batchval.proxy.life.control import Offer
from batchval.proxy.life.handover import TakeOver
from batchval.proxy.life.handover_messages import HandOverError

if TYPE_CHECKING:
    from batchval.proxy.life.gate import Gate

__all__ = ["Succession"]

#: Seconds at the end of a gate, for the end of the one that it has taken over.
FOLLOW_S: Final = 10.0
#: Seconds for a new gate that was lost, to close what it has bound.
FREE_S: Final = 5.0

log = logging.getLogger("batchval.proxy")


class Succession:
    """One gate's place between two others.

    ``predecessor``  the gate that it takes over, until that one has ended
    """

    def __init__(self, gate: Gate, predecessor: TakeOver | None) -> None:
        self.predecessor = predecessor
        self._gate = gate
        self._following: asyncio.Task[None] | None = None

    def succeeded(self) -> None:
        """Note that the gate alone accepts connections, and wait for the end of the other one."""
        if self.predecessor is not None:
            self._following = asyncio.create_task(self._follow(self.predecessor))

    async def _follow(self, predecessor: TakeOver) -> None:
        """Wait for the end of the other gate; the files are this one's then."""
        await predecessor.ended()
        self.predecessor = None
        self._gate.ports.shared_until = 0.0
        if self._gate.observed_file is not None:
            await self._gate.observed_file.follow()

    def offer(self) -> Offer:
        """Return what a new gate gets. Raises HandOverError."""
        gate = self._gate
        if self.predecessor is not None:
            raise HandOverError(
                f"the gate that it has taken over (process {self.predecessor.pid}) still drains"
            )
        if gate.is_draining:
            raise HandOverError("it ends")
        gate.ports.shared_until = math.inf
        return Offer(
            dict(gate.ports.sockets), gate.discovery.state().encode().decode(), gate.unready()
        )

    def go_on(self) -> None:
        """Keep all that was offered: the new gate is lost."""
        self._gate.ports.shared_until = time.monotonic() + FREE_S

    def hand_over(self) -> None:
        """Leave /metrics and the file of the brokers to the gate that has taken over."""
        self._gate.health.close_port()
        self._gate.discovery.hand_over()

    async def stop(self) -> None:
        """Wait for the end of the other gate, so that the files can be written."""
        if self._following is not None:
            await asyncio.wait((self._following,), timeout=FOLLOW_S)
            if self._following.cancel():
                log.warning(
                    "the newest counts of refusals are not written: the gate before this one still drains"
                )

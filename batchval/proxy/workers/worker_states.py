"""The states of one worker, as its parent knows them.

STARTING  the process has been created and does not serve yet
SERVING   it is passed connections
DRAINING  it is passed no more, and delivers what is under way
DEAD      the process has ended, or none was created yet
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

__all__ = ["TRANSITIONS", "WorkerEvent", "WorkerState"]


class WorkerState(enum.Enum):
    """The states of a worker."""

    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"
    DEAD = "dead"


class WorkerEvent(enum.Enum):
    """The events that change them."""

    SPAWN = "spawn"  # its process is created
    READY = "ready"  # it can serve
    DRAIN = "drain"  # the gate ends
    EXIT = "exit"  # its process has ended


_S, _E = WorkerState, WorkerEvent

#: (state, event) -> the next state.
TRANSITIONS: Final[Mapping[tuple[WorkerState, WorkerEvent], WorkerState]] = {
    (_S.DEAD, _E.SPAWN): _S.STARTING,
    (_S.STARTING, _E.READY): _S.SERVING,
    (_S.STARTING, _E.DRAIN): _S.DRAINING,
    (_S.STARTING, _E.EXIT): _S.DEAD,
    (_S.SERVING, _E.DRAIN): _S.DRAINING,
    (_S.SERVING, _E.EXIT): _S.DEAD,
    (_S.DRAINING, _E.EXIT): _S.DEAD,
}

"""The states of one client's session, and their transitions.

    CONNECTING       the client is here; the broker is connected to at its first whole request
    AUTHENTICATING   the broker is connected, and has not yet authenticated the client
    OPEN             requests and answers pass
    DRAINING         only Produce requests with acks=0 are still taken; requests in progress are
                     completed
    CLOSED           both connections are closed, or close once what is written to them is gone

    CONNECTING ──CONNECTED──► AUTHENTICATING ──AUTHENTICATED──► OPEN
         └──────────END──────────────┴──────────END──────────────┴──► DRAINING ──CLOSE──► CLOSED

CLOSE leads from every state to CLOSED. A client that leaves is an END: the broker still gets the
requests that were taken. A broker that leaves is a CLOSE: what it has answered is still written to
the client.
"""

from __future__ import annotations

import enum
from typing import Final

__all__ = ["TRANSITIONS", "Event", "State"]


class State(enum.IntEnum):
    """The states of a session."""

    CONNECTING = 0
    AUTHENTICATING = 1
    OPEN = 2
    DRAINING = 3
    CLOSED = 4


class Event(enum.Enum):
    """The events of a session."""

    CONNECTED = "connected"  # the broker
    AUTHENTICATED = "authenticated"  # the client, or nobody asks it to
    END = "end"  # no more requests, but for Produce with acks=0
    CLOSE = "close"  # nothing is under way any more, or nothing of it can be delivered


#: (state, event) -> the next state.
TRANSITIONS: Final[dict[tuple[State, Event], State]] = {
    (State.CONNECTING, Event.CONNECTED): State.AUTHENTICATING,
    (State.CONNECTING, Event.END): State.DRAINING,
    (State.CONNECTING, Event.CLOSE): State.CLOSED,
    (State.AUTHENTICATING, Event.AUTHENTICATED): State.OPEN,
    (State.AUTHENTICATING, Event.END): State.DRAINING,
    (State.AUTHENTICATING, Event.CLOSE): State.CLOSED,
    (State.OPEN, Event.END): State.DRAINING,
    (State.OPEN, Event.CLOSE): State.CLOSED,
    (State.DRAINING, Event.CLOSE): State.CLOSED,
}

"""The states of one client's session, and their transitions.

    CONNECTING       the client is here; the broker is connected to at its first whole request
    AUTHENTICATING   the broker is connected, and has not yet authenticated the client
    OPEN             requests and answers pass
    DRAINING         no more requests are taken; requests in progress are completed
    PARTING          the client has every answer and an end of file, and the time to end by itself;
                     Produce requests with acks=0 are still taken
    PARTED           that time is over; what came in it is still delivered
    CLOSED           both connections are closed, or close once what is written to them is gone

    CONNECTING ──CONNECTED──► AUTHENTICATING ──AUTHENTICATED──► OPEN
         └──────────END──────────────┴──────────END──────────────┴──► DRAINING ──CLOSE──► CLOSED
                                                                         └PART► PARTING ─QUIET► PARTED

CLOSE leads from every state to CLOSED. A client that leaves is an END: the broker still gets the
requests that were taken. A broker that leaves is a CLOSE: what it has answered is still written to
the client. ``lifetime.Lifetime`` alone moves a session.
"""

from __future__ import annotations

import enum
from typing import Final

__all__ = ["TRANSITIONS", "SessionEvent", "SessionState"]


class SessionState(enum.IntEnum):
    """The states of a session. From DRAINING on it has a reason to end, and a deadline."""

    CONNECTING = 0
    AUTHENTICATING = 1
    OPEN = 2
    DRAINING = 3
    PARTING = 4
    PARTED = 5
    CLOSED = 6


class SessionEvent(enum.Enum):
    """The events of a session."""

    CONNECTED = "connected"  # the broker
    AUTHENTICATED = "authenticated"  # the client, or nobody asks it to
    END = "end"  # no more requests
    PART = "part"  # the client has every answer, and an end of file
    QUIET = "quiet"  # nothing more comes of it, or not in time
    CLOSE = "close"  # nothing is under way any more, or nothing of it can be delivered


#: (state, event) -> the next state.
TRANSITIONS: Final[dict[tuple[SessionState, SessionEvent], SessionState]] = {
    (SessionState.CONNECTING, SessionEvent.CONNECTED): SessionState.AUTHENTICATING,
    (SessionState.CONNECTING, SessionEvent.END): SessionState.DRAINING,
    (SessionState.CONNECTING, SessionEvent.CLOSE): SessionState.CLOSED,
    (SessionState.AUTHENTICATING, SessionEvent.AUTHENTICATED): SessionState.OPEN,
    (SessionState.AUTHENTICATING, SessionEvent.END): SessionState.DRAINING,
    (SessionState.AUTHENTICATING, SessionEvent.CLOSE): SessionState.CLOSED,
    (SessionState.OPEN, SessionEvent.END): SessionState.DRAINING,
    (SessionState.OPEN, SessionEvent.CLOSE): SessionState.CLOSED,
    (SessionState.DRAINING, SessionEvent.PART): SessionState.PARTING,
    (SessionState.DRAINING, SessionEvent.CLOSE): SessionState.CLOSED,
    (SessionState.PARTING, SessionEvent.QUIET): SessionState.PARTED,
    (SessionState.PARTING, SessionEvent.CLOSE): SessionState.CLOSED,
    (SessionState.PARTED, SessionEvent.CLOSE): SessionState.CLOSED,
}

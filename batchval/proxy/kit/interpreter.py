"""Settings of the interpreter for an event loop that many clients share."""

from __future__ import annotations

import gc
import sys
from typing import Final

__all__ = ["calm_collector", "switch_soon"]

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

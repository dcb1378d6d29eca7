"""End a worker whose event loop does not turn any more, where its parent is gone and cannot.

Time in which the process is frozen (SIGSTOP, docker pause, a suspended machine) does not count:

    a thread counts its own looks since the last turn; a freeze is one of them
    SIGPROF comes after CPU time, for code that keeps the GIL from all threads

Both write the stacks of all threads on stderr.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
from typing import Final

__all__ = ["STUCK_S", "Watchdog"]

#: Seconds without a turn of the event loop.
STUCK_S: Final = 90.0
#: Looks in that time.
LOOKS: Final = 18


class Watchdog:
    """A watchdog of the event loop, which calls ``turned``, until the process ends."""

    def __init__(self, stuck_s: float = STUCK_S) -> None:
        self._stuck_s = stuck_s
        self._looks = 0

    def start(self) -> None:
        """Watch from now on."""
        faulthandler.register(signal.SIGPROF, chain=True)  # then the signal ends the process
        self.turned()
        threading.Thread(target=self._run, name="batchval-watchdog", daemon=True).start()

    def turned(self) -> None:
        """Note a turn of the event loop."""
        self._looks = 0
        signal.setitimer(signal.ITIMER_PROF, self._stuck_s)

    def look(self) -> bool:
        """Return whether the last turn was too long ago. Call this in equal intervals."""
        self._looks += 1
        return self._looks > LOOKS

    def _run(self) -> None:
        while not self.look():
            time.sleep(self._stuck_s / LOOKS)
        try:
            print(
                f"the event loop has not turned for {self._stuck_s:g} s",
                file=sys.stderr,
                flush=True,
            )
            faulthandler.dump_traceback()
        finally:
            os._exit(1)  # also where nobody reads stderr any more

"""Standard input, output and error that were closed when the process began: ``>&-``, some init
scripts.
"""

from __future__ import annotations

import os
import sys

__all__ = ["open_closed_streams"]

_ERROR = 2  # the number of standard error, the last of them


def open_closed_streams() -> None:
    """Open /dev/null in place of each that is closed.

    Else the next file or socket gets its number: what is printed goes there, and libuv ends a
    process that closes a socket of such a number. ``sys.stdin`` stays None where it is.
    """
    for number in range(_ERROR + 1):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            os.set_inheritable(opened, True)  # workers of a gate have them, too
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(_ERROR, "w", closefd=False)

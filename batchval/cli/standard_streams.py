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
    while (number := os.open(os.devnull, os.O_RDWR)) <= _ERROR:
        os.set_inheritable(number, True)  # workers of a gate have them, too
    os.close(number)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(_ERROR, "w", closefd=False)

"""Files that settings name, read without waiting: a pipe would stop its reader, for ever."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

__all__ = ["opened", "read"]

_IRREGULAR: Final = "is not a regular file (pipes, devices and folders are not read)"


def opened(path: Path) -> BinaryIO:
    """Open a regular file for reading. Raises OSError, also for anything else."""
    _check(os.stat(path))  # the writer of a pipe would take the open for its reader
    # the file may be another one by now: without O_NONBLOCK the open of a pipe would wait
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _check(os.fstat(descriptor))
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read(path: Path, most: int) -> bytes:
    """Return at most so many bytes of a regular file. Raises OSError."""
    with opened(path) as file:
        return file.read(most)


def _check(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, _IRREGULAR)

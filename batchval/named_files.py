"""Files that options and settings name: no open of them waits for ever, no read of them is without
a limit, and each error has the name of its file.

opened, read                 regular files alone: what a running gate reads
read_start, read_whole       also devices and pipes, such as <(command) of a shell
check_outputs, write_text    files that a command writes
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

__all__ = [
    "MAX_SETTINGS_FILE_BYTES",
    "check_outputs",
    "naming",
    "open_to_write",
    "opened",
    "read",
    "read_start",
    "read_whole",
    "write_text",
]

#: Bytes of a file of properties, record rules or results.
MAX_SETTINGS_FILE_BYTES: Final = 1 << 24
_IRREGULAR: Final = "is not a regular file (pipes, devices and folders are not read)"
_NO_WRITER: Final = "nothing writes to this pipe: expected a file, or a pipe with data"
_NO_READER: Final = "nothing reads this pipe: expected a file, or a pipe that is read"
_SPECIAL: Final = "is a special file that cannot be used: expected a regular file, or a pipe"


def opened(path: Path) -> BinaryIO:
    """Open a regular file for reading. Raises OSError, also for anything else."""
    _check(os.stat(path))  # the writer of a pipe would take the open for its reader
    # the file may be another one by now
    descriptor = _open_at_once(path, os.O_RDONLY)
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


def read_start(path: Path, most: int) -> bytes:
    """Return at most so many bytes of a file, a pipe or a device.

    Raises OSError, also for a pipe without a writer.
    """
    with naming(path), open(path, "rb", opener=_open_at_once) as file:
        data = file.read(most)
        if not data and stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, _NO_WRITER)
    return data


def read_whole(path: Path, most: int = MAX_SETTINGS_FILE_BYTES) -> bytes:
    """Return the bytes of a file or a pipe. Raises OSError, also for a longer file.

    A device such as /dev/zero has no end: at most MAX_SETTINGS_FILE_BYTES bytes of it are read.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        most = min(most, MAX_SETTINGS_FILE_BYTES)
    data = read_start(path, most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"longer than {most} bytes", str(path))
    return data


def check_outputs(*paths: Path | None) -> None:
    """Open the output files, so that a run of an hour does not fail at its end. Raises OSError."""
    for path in paths:
        if path is not None:
            _check_output(path)


def _check_output(path: Path) -> None:
    is_new = not os.path.lexists(path)
    with naming(path):
        if path.is_fifo():
            _open_at_once(path, os.O_WRONLY)  # stays open: its reader takes a close for the end
        else:
            open(path, "ab", opener=_open_at_once).close()
            if is_new:
                path.unlink()


def open_to_write(path: Path) -> BinaryIO:
    """Open a file, a pipe that is read or a device, and empty it; in ``naming``. Raises OSError."""
    return open(path, "wb", opener=_open_at_once)


def write_text(path: Path, text: str) -> None:
    """Write a text in UTF-8 into a file. Raises OSError."""
    with naming(path), open_to_write(path) as file:
        file.write(text.encode())


def _open_at_once(path: str | Path, flags: int) -> int:
    """Open a file. Without O_NONBLOCK the open of a pipe would wait for its other side."""
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    os.set_blocking(descriptor, True)
    return descriptor


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file in errors that do not, and what is allowed in place of some of them."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        if error.errno == errno.ENXIO:
            error.strerror = _NO_READER
        elif error.errno == errno.EINVAL and error.strerror == os.strerror(errno.EINVAL):
            error.strerror = _SPECIAL
        raise


def _check(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, _IRREGULAR)

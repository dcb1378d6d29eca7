"""Open files as sources of bytes, and the memory for blocks of them."""

from __future__ import annotations

import errno
import os
import stat
import struct
from pathlib import Path
from typing import Protocol

import numpy as np

__all__ = ["BLOCK", "START", "InMemory", "LocalFile", "Memory", "Source"]

BLOCK = 8 << 20  # bytes read at a time; a larger batch gets a larger block
START = struct.Struct(">qi4xb")  # offset, size, magic: of every magic


class Source(Protocol):
    """An open file. ``size`` is what it was when opened, and goes down when a read shows that it
    has shrunk.

    ``chunk``: bytes that cost about as much to ask for as one.
    """

    size: int
    chunk: int

    def read_into(self, position: int, memory: memoryview) -> int:
        """Read into a buffer and return the number of bytes. Fewer than the buffer holds may come
        at any place, 0 only at the end.
        """

    def header(self, position: int) -> bytes:
        """Return the first bytes of a batch, up to its magic; fewer at the file's end."""

    def after_hole(self, position: int) -> int:
        """Return ``position``, or a later one if all between are zeros that need not be read."""

    def close(self) -> None: ...


class LocalFile:
    """A regular file of this machine. Raises OSError for files that cannot be opened, and for
    pipes, devices and folders.
    """

    chunk = 8 << 10

    def __init__(self, path: Path) -> None:
        # without O_NONBLOCK, opening a pipe that nobody writes to would wait for ever
        self._fd = os.open(
            path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
        )
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(self._fd)
            if stat.S_ISDIR(status.st_mode):
                raise IsADirectoryError(errno.EISDIR, "is a folder", str(path))
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        self.size = status.st_size

    def read_into(self, position: int, memory: memoryview) -> int:
        return os.preadv(self._fd, [memory], position)

    def header(self, position: int) -> bytes:
        return os.pread(self._fd, START.size, position)

    def after_hole(self, position: int) -> int:
        """Return the end of a hole. A preallocated or sparse tail is one: gigabytes for the cost of
        a call, for each range that begins there.
        """
        try:
            found = os.lseek(self._fd, position, os.SEEK_DATA)
        except OSError as error:  # ENXIO: nothing but a hole up to the end, or the end is before
            found = os.fstat(self._fd).st_size if error.errno == errno.ENXIO else position
        return max(position, min(found, self.size))

    def close(self) -> None:
        os.close(self._fd)


class InMemory:
    """Bytes in memory, as a file."""

    chunk = 64 << 10

    def __init__(self, data: memoryview) -> None:
        self._data = memoryview(data).cast("B")
        self.size = len(self._data)

    def read_into(self, position: int, memory: memoryview) -> int:
        found = self._data[position : position + len(memory)]
        memory[: len(found)] = found
        return len(found)

    def header(self, position: int) -> bytes:
        return bytes(self._data[position : position + START.size])

    def after_hole(self, position: int) -> int:
        """Return ``position``: memory has no holes."""
        return position

    def close(self) -> None:
        """Do nothing: memory is not opened."""


class Memory:
    """A file's bytes from one place on, in memory that is used again; what two blocks share is read
    once.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._bytes = memoryview(bytearray())
        self._position = 0
        self._size = 0

    def at(self, position: int, size: int) -> memoryview:
        """Return at most ``size`` bytes, fewer at the file's end, for use until the next call."""
        offset = position - self._position
        if offset >= 0 and offset + size <= self._size:
            return self._bytes[offset : offset + size].toreadonly()
        before = self._bytes
        held = max(self._size - offset, 0) if offset >= 0 else 0
        if not size <= len(before) <= 4 * max(size, BLOCK):
            self._bytes = np.empty(size, "u1").data
        if held:
            self._bytes[:held] = before[offset : offset + held]
        self._position, self._size = position, held
        while self._size < size:
            got = self._source.read_into(position + self._size, self._bytes[self._size : size])
            if not got:
                self._source.size = min(self._source.size, position + self._size)
                break
            self._size += got
        return self._bytes[: min(self._size, size)].toreadonly()

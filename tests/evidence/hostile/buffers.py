"""Memory of exactly a case's size, so that a read beyond its end is always noticed.

``Guarded`` lays bytes against a page that nobody may read: an over-read is a SIGSEGV, with any
build. ``exact`` asks malloc for exactly the bytes: AddressSanitizer's red zones lie on both sides.
(A ``bytes`` object hides an over-read of one: it ends with a zero of its own.) Both give a writable
memoryview.
"""

from __future__ import annotations

import ctypes
import mmap
import os

__all__ = ["PAGE", "Guarded", "Slots", "buffer_of", "exact", "forbid", "guarded"]

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.malloc.argtypes = [ctypes.c_size_t]
_libc.malloc.restype = ctypes.c_void_p
_libc.free.argtypes = [ctypes.c_void_p]
_PROT_NONE = 0
PAGE = mmap.PAGESIZE


def _own(size: int) -> mmap.mmap:
    """Map private memory: the runner's other processes would write to a shared mapping."""
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _address(region: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(region))


def forbid(address: int, size: int) -> None:
    if _libc.mprotect(address, size, _PROT_NONE) != 0:
        raise OSError(ctypes.get_errno(), "mprotect")


class Guarded:
    """Room for cases of up to ``capacity`` bytes, one at a time, each between two forbidden
    pages.
    """

    def __init__(self, capacity: int = 1 << 20) -> None:
        self.capacity = (capacity + PAGE - 1) // PAGE * PAGE
        self._region = _own(self.capacity + 2 * PAGE)
        address = _address(self._region)
        forbid(address, PAGE)
        forbid(address + PAGE + self.capacity, PAGE)
        self._view = memoryview(self._region)

    def at_end(self, data: bytes) -> memoryview:
        """Place the bytes directly before a forbidden page."""
        if len(data) > self.capacity:
            raise ValueError(f"{len(data)} bytes do not fit {self.capacity}")
        end = PAGE + self.capacity
        view = self._view[end - len(data) : end]
        view[:] = data
        return view

    def at_start(self, data: bytes) -> memoryview:
        """Place the bytes directly after a forbidden page, to find reads before the buffer."""
        view = self._view[PAGE : PAGE + len(data)]
        view[:] = data
        return view


class Slots:
    """Many cases in one buffer, for check_ranges: each slot ends at a forbidden page of its own."""

    def __init__(self, count: int, slot: int) -> None:
        self.count = count
        self.slot = (slot + PAGE - 1) // PAGE * PAGE
        self.stride = self.slot + PAGE
        self._region = _own(count * self.stride)
        self.address = _address(self._region)
        for i in range(count):
            forbid(self.address + i * self.stride + self.slot, PAGE)
        self.view = memoryview(self._region)


class _Block:
    """A malloc'ed block that is freed when the last view of it is gone."""

    def __init__(self, data: bytes) -> None:
        self.address = _libc.malloc(len(data))  # 0 bytes are a block too
        if not self.address:
            raise MemoryError
        ctypes.memmove(self.address, data, len(data))

    def __del__(self) -> None:
        _libc.free(self.address)


def exact(data: bytes) -> memoryview:
    """Return a malloc'ed copy of exactly ``len(data)`` bytes."""
    block = _Block(data)
    array = (ctypes.c_ubyte * len(data)).from_address(block.address)
    array._block = block  # type: ignore[attr-defined]
    return memoryview(array).cast("B")


_GUARDED = Guarded(4 << 20)
_ASAN = os.environ.get("BATCHVAL_BUILD") == "asan"


def guarded(data: bytes) -> memoryview:
    """Place the bytes before the forbidden page of a buffer of all callers: valid until the next
    call.
    """
    return _GUARDED.at_end(data)


def buffer_of(data: bytes) -> memoryview:
    """Return ``exact`` under a sanitizer, else ``guarded``."""
    return exact(data) if _ASAN else guarded(data)

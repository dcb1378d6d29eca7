"""Memory that somebody else writes to: a native thread of this process, or another process.

    Scene    every case in memory of its own, and the side that writes there (writer.c)
    thread   bytearrays of exactly the case's size, Blocks for frames; a thread that never holds the
             GIL
    process  slots of a shared anonymous mapping, each between forbidden or poisoned pages; a forked
             child

Released and fresh memory of malloc hold poison bytes (mallopt M_PERTURB), so what is read there
shows in outputs.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal

from batchval.protocol.frame_memory import Block
from tests.evidence.hostile.buffers import PAGE, forbid
from tests.evidence.hostile.c_library import library
from tests.evidence.hostile.marked import BYTES, NUMBERS, POISON_FREE, Case

__all__ = ["Kind", "Scene", "poison_memory"]

Kind = Literal["thread", "process"]
NO_CASE: Final = 2**64 - 1
_M_PERTURB: Final = -6
_WALL: Final = PAGE


class _Place(ctypes.Structure):
    _fields_ = [("at", ctypes.c_uint32), ("size", ctypes.c_uint32)]


class _Case(ctypes.Structure):
    _fields_ = [
        ("p", ctypes.c_void_p),
        ("good", ctypes.c_char_p),
        ("twin", ctypes.c_char_p),
        ("places", ctypes.POINTER(_Place)),
        ("n", ctypes.c_uint32),
        ("places_count", ctypes.c_uint32),
        ("kind", ctypes.c_uint32),
        ("unused", ctypes.c_uint32),
    ]


class _Control(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("stop", "first", "second", "writes")]


def poison_memory() -> None:
    """Let malloc fill released memory with POISON_FREE, and fresh memory with POISON_NEW."""
    ctypes.CDLL(None).mallopt(_M_PERTURB, POISON_FREE)


def _address(buffer: Any) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


class Scene:
    """The cases in memory that is written to while ``writing``; ``enter`` says which one."""

    def __init__(self, cases: Sequence[Case], kind: Kind, seed: int) -> None:
        self.cases = cases
        self.kind = kind
        self._seed = seed
        self._library = library("writer")
        self._shared = mmap.mmap(-1, PAGE)
        self._control = _Control.from_buffer(self._shared)
        self._control.first = self._control.second = NO_CASE
        self._state = ctypes.c_uint64(seed ^ 0x5DEECE66D)
        self._walls: list[Any] = []
        self.buffers = self._bytearrays() if kind == "thread" else self._slots()
        self._table = (_Case * len(cases))()
        for entry, case, buffer in zip(self._table, cases, self.buffers, strict=True):
            places = (_Place * len(case.places))(*case.places)
            entry.p, entry.n = _address(buffer), len(case.data)
            entry.good, entry.twin = case.data, case.twin
            entry.places, entry.places_count = places, len(places)
            entry.kind = NUMBERS if case.numbers else BYTES
        self.index = 0
        self.turn = 0
        self.second: Any = None

    def _bytearrays(self) -> list[Any]:
        found = []
        for case in self.cases:
            self._walls.append(bytearray(bytes((POISON_FREE,)) * _WALL))
            if case.kind in ("frames", "answer"):
                block = memoryview(Block(len(case.data), True))
                block[:] = case.data
                found.append(block)
            else:
                found.append(bytearray(case.data))
        return found

    def _slots(self) -> list[Any]:
        """Place each case before a page that is forbidden or poisoned by turns, and after
        poison.
        """
        sizes = [(len(case.data) + PAGE - 1) // PAGE * PAGE + 2 * PAGE for case in self.cases]
        region = mmap.mmap(-1, sum(sizes))
        view, address, at = memoryview(region), _address(region), 0
        found = []
        for i, (case, size) in enumerate(zip(self.cases, sizes, strict=True)):
            end = at + size - PAGE
            view[at : at + size] = bytes((POISON_FREE,)) * size
            slot = view[end - len(case.data) : end]
            slot[:] = case.data
            found.append(slot)
            if i % 2:
                forbid(address + end, PAGE)
            at += size
        return found

    # ---- of the case in use ----------------------------------------------------------------------

    @property
    def case(self) -> Case:
        return self.cases[self.index]

    @property
    def buffer(self) -> Any:
        """Return the case's memory: a bytearray, or a memoryview of the mapping."""
        return self.buffers[self.index]

    @property
    def writes(self) -> int:
        """Return how many times the other side has written."""
        return int(self._control.writes)

    def enter(self, index: int, second: int | None = None) -> None:
        """Let the other side write to this case from now on, and to ``second`` too."""
        self.index = index
        self.second = None if second is None else self.buffers[second]
        self._control.second = NO_CASE if second is None else second
        self._control.first = index
        self.restore()

    def restore(self) -> None:
        """Write the good bytes: functions that work in place have changed them."""
        ctypes.memmove(self._table[self.index].p, self.case.data, len(self.case.data))

    def hurt(self) -> None:
        """Make one change that stays, at a known place: where a function calls back, or pauses."""
        self._library.hostile_change(
            ctypes.byref(self._table, self.index * ctypes.sizeof(_Case)), ctypes.byref(self._state)
        )

    # ---- the other side --------------------------------------------------------------------------

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Let the other side write to the case in use until the block ends."""
        seed = ctypes.c_uint64(self._seed * 2 + 1)
        self._control.stop = 0
        if self.kind == "thread":
            arguments = (ctypes.byref(self._control), self._table, seed, ctypes.c_int64(0))
            thread = threading.Thread(
                target=self._library.hostile_writes, args=arguments, daemon=True
            )
            thread.start()
            try:
                yield
            finally:
                self._control.stop = 1
                thread.join()
            return
        parent = os.getpid()
        child = os.fork()
        if child == 0:
            try:
                self._library.hostile_writes(
                    ctypes.byref(self._control), self._table, seed, ctypes.c_int64(parent)
                )
            finally:
                os._exit(0)
        try:
            yield
        finally:
            self._control.stop = 1
            os.waitpid(child, 0)

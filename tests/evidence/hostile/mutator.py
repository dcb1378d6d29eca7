"""The mutator (mutator.c) from Python."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache

from tests.evidence.hostile.buffers import Slots
from tests.evidence.hostile.c_library import library

__all__ = ["MAX_CASE_BYTES", "Mutator", "crc32c", "xxh32"]

MAX_CASE_BYTES = 16384


@cache
def _library() -> ctypes.CDLL:
    found = library("mutator")
    for name in ("hostile_case", "hostile_stream", "hostile_slots", "hostile_checksum"):
        getattr(found, name).restype = ctypes.c_uint32
    return found


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """Compute CRC-32C by the mutator's own tables."""
    return int(_library().hostile_checksum(ord("C"), bytes(data), len(data)))


def xxh32(data: bytes | bytearray | memoryview) -> int:
    """Compute xxHash of 32 bits, seed 0."""
    return int(_library().hostile_checksum(ord("x"), bytes(data), len(data)))


class Mutator:
    """An endless supply of cases made from ``seeds``; the same ``state`` makes the same ones."""

    def __init__(self, seeds: Sequence[bytes], state: int) -> None:
        if not seeds:
            raise ValueError("no seeds")
        self._library = _library()
        self._blob = b"".join(seeds)
        ends = [0]
        for seed in seeds:
            ends.append(ends[-1] + len(seed))
        self._offsets = (ctypes.c_uint32 * len(ends))(*ends)
        self._seeds = ctypes.c_uint32(len(seeds))
        self._state = ctypes.c_uint64(state & 0xFFFFFFFFFFFFFFFF)
        self._out = ctypes.create_string_buffer(MAX_CASE_BYTES)

    @property
    def state(self) -> int:
        """Return the state from which the next case can be made again."""
        return self._state.value

    def case(self) -> bytes:
        """Return a hostile batch, or a part of one."""
        return self._call(self._library.hostile_case)

    def stream(self) -> bytes:
        """Return a hostile raw stream."""
        return self._call(self._library.hostile_stream)

    def _call(self, function: ctypes._NamedFuncPointer) -> bytes:  # type: ignore[name-defined]
        size = function(
            ctypes.byref(self._state),
            self._blob,
            self._offsets,
            self._seeds,
            self._out,
            MAX_CASE_BYTES,
        )
        return self._out.raw[:size] if size > 2048 else ctypes.string_at(self._out, size)

    def fill(self, slots: Slots, ranges: ctypes.Array[ctypes.c_int64]) -> None:
        """Put a case in every slot; ``ranges`` gets their (start, length) pairs."""
        self._library.hostile_slots(
            ctypes.byref(self._state),
            self._blob,
            self._offsets,
            self._seeds,
            ctypes.c_void_p(slots.address),
            slots.slot,
            slots.stride,
            slots.count,
            ranges,
        )

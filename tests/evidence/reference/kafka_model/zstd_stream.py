"""zstd-jni's ZstdInputStreamNoFinalizer around the real ZSTD_decompressStream.

The native function is called through ctypes, as zstd-jni calls it, with the same sizes of input and
output: where its errors surface depends on both, and no Python binding hands them through
unchanged. The library is the one inside the
``zstandard`` package, else the host's.

Kafka's quirk reproduced here: the flag that a frame is complete is lowered only when new input is
fetched. A second frame that is cut off is therefore taken for the end of the stream if it lies in
the same 131,075 bytes as the first.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
import mmap
from functools import cache

from .java import JavaIOError
from .streams import Notes

__all__ = ["ZstdSource", "window_size"]

_SOURCE_BUFFER = 131075
_FRAME_MAGIC = 0xFD2FB528
_MAX_WINDOW = 1 << 27


class _InBuffer(ctypes.Structure):
    _fields_ = (("src", ctypes.c_void_p), ("size", ctypes.c_size_t), ("pos", ctypes.c_size_t))


class _OutBuffer(ctypes.Structure):
    _fields_ = (("dst", ctypes.c_void_p), ("size", ctypes.c_size_t), ("pos", ctypes.c_size_t))


@cache
def _library() -> ctypes.CDLL:
    spec = importlib.util.find_spec("zstandard._cffi")
    path = spec.origin if spec and spec.origin else ctypes.util.find_library("zstd")
    if path is None:
        raise RuntimeError("no zstd library: neither in the zstandard package nor on this host")
    library = ctypes.CDLL(path)
    library.ZSTD_createDStream.restype = ctypes.c_void_p
    library.ZSTD_createDStream.argtypes = []
    library.ZSTD_initDStream.restype = ctypes.c_size_t
    library.ZSTD_initDStream.argtypes = [ctypes.c_void_p]
    library.ZSTD_freeDStream.restype = ctypes.c_size_t
    library.ZSTD_freeDStream.argtypes = [ctypes.c_void_p]
    library.ZSTD_isError.restype = ctypes.c_uint
    library.ZSTD_isError.argtypes = [ctypes.c_size_t]
    library.ZSTD_decompressStream.restype = ctypes.c_size_t
    library.ZSTD_decompressStream.argtypes = [
        ctypes.c_void_p,
        ctypes.POINTER(_OutBuffer),
        ctypes.POINTER(_InBuffer),
    ]
    return library


class ZstdSource:
    """Frames, one after another."""

    def __init__(self, payload: bytes, notes: Notes | None) -> None:
        self._in = payload
        self._at = 0
        self._notes = notes
        self._piece = b""
        self._piece_start = 0
        self._piece_pos = 0
        self._need_read = True
        self._frame_finished = True
        self._frame_starts = [0]
        self._library = _library()
        self._stream = self._library.ZSTD_createDStream()
        self._library.ZSTD_initDStream(self._stream)

    def __del__(self) -> None:
        if getattr(self, "_stream", None):
            self._library.ZSTD_freeDStream(self._stream)
            self._stream = None

    def read(self, size: int) -> bytes | None:
        while True:
            data = self._read_some(size)
            if data != b"":
                if data and self._notes:
                    self._notes.produced(len(data))
                return data

    def _read_some(self, size: int) -> bytes | None:
        # anonymous memory costs nothing until zstd writes there: a record may state a length of
        # gigabytes
        target = mmap.mmap(-1, size) if size > 1 << 20 else ctypes.create_string_buffer(size)
        view = (ctypes.c_char * size).from_buffer(target)
        try:
            produced = self._fill(ctypes.addressof(view), size)
            return None if produced is None else ctypes.string_at(ctypes.addressof(view), produced)
        finally:
            del view

    def _fill(self, address: int, size: int) -> int | None:
        """Fill as zstd-jni's readInternal: bytes written to ``address``, or None at the end."""
        output = _OutBuffer(address, size, 0)
        before = -1
        while output.pos < size and before < output.pos:
            if self._need_read and (self._at < len(self._in) or output.pos == 0):
                self._piece_start = self._at
                self._piece = self._in[self._at : self._at + _SOURCE_BUFFER]
                self._at += len(self._piece)
                self._piece_pos = 0
                if not self._piece:
                    if self._frame_finished:
                        return None
                    raise JavaIOError("zstd: end of input within a frame")
                self._frame_finished = False
            before = output.pos
            source = _InBuffer(
                ctypes.cast(ctypes.c_char_p(self._piece), ctypes.c_void_p),
                len(self._piece),
                self._piece_pos,
            )
            hint = self._library.ZSTD_decompressStream(
                self._stream, ctypes.byref(output), ctypes.byref(source)
            )
            self._piece_pos = source.pos
            if self._library.ZSTD_isError(hint):
                raise JavaIOError("zstd: damaged frame")
            if hint == 0:
                self._frame_finished = True
                self._frame_starts.append(self._piece_start + self._piece_pos)
                self._need_read = self._piece_pos == len(self._piece)
                break
            self._need_read = output.pos < size
        produced: int = output.pos
        return produced

    def skip(self, size: int) -> bytes:
        raise AssertionError("never delegated")

    def available(self) -> int:
        return len(self._in) - self._at if self._need_read else 1

    def unread(self) -> bool:
        if self._frame_starts[-1] != len(self._in):
            return True
        return any(window_size(self._in, start) > _MAX_WINDOW for start in self._frame_starts[:-1])


def window_size(data: bytes, start: int) -> int:
    """Return the window of the frame at ``start``; 0 for a skippable frame."""
    if int.from_bytes(data[start : start + 4], "little") != _FRAME_MAGIC:
        return 0
    descriptor = data[start + 4]
    if not descriptor & 0x20:
        window = data[start + 5]
        base = 1 << (window >> 3) + 10
        return base + base // 8 * (window & 7)
    pos = start + 5 + (0, 1, 2, 4)[descriptor & 3]
    size = (1, 2, 4, 8)[descriptor >> 6]
    content = int.from_bytes(data[pos : pos + size], "little")
    return content + 256 if size == 2 else content

"""The block decompressors through the Python packages, for machines without the C symbols.

Slower than ``native``; the answers are the same. gzip and snappy need no library: core inflates and
unpacks itself under both providers. Both packages release the GIL while they decompress. zstd comes
in the chunks that Kafka asks for; a block of lz4 comes whole, and the package copies its content,
4 MiB at most, with the GIL held.
"""

from __future__ import annotations

import contextlib
import io

import lz4.block
import zstandard

__all__ = ["LZ4_ERRORS", "ZstdFrame", "lz4_block"]

#: The most input that Kafka's stream class holds. A frame within it, whose content fits the output
#: buffer, is decoded in one pass, which checks more of it.
_SOURCE = 131075
_CHUNK = 16384
_BLOCK = 131072  # the most content of a block
_STEP = 512


#: (source, capacity): decompresses one lz4 block of at most ``capacity`` bytes
lz4_block = lz4.block.decompress
#: what that raises where the block is damaged or larger, or cannot be held
LZ4_ERRORS = (lz4.block.LZ4BlockError, ValueError, MemoryError)

#: Decompressors without a frame, by the window and the content size of all frames that they have
#: had: to make one takes longer than a small frame. A buffer of another frame's size would let
#: frames pass that a new decompressor refuses. Whoever takes one is its only user.
_idle: dict[tuple[int, int], zstandard.ZstdDecompressor] = {}
_MAX_IDLE = 4
_MAX_KEPT = 1 << 20  # bytes of content


def _sizes_of(frame: bytes) -> tuple[int, int] | None:
    """Return the window and the content size of a frame; None where it has no header."""
    try:
        found = zstandard.get_frame_parameters(frame)
    except zstandard.ZstdError:
        return None
    return found.window_size, found.content_size


class ZstdFrame:
    """The content of one zstd frame, produced on demand.

    Holds the frame and the decoder's window, never the whole content. ``is_cut_off``: the frame's
    end is missing.
    """

    __slots__ = (
        *("_decompressor", "_frame", "_is_cut_off", "_produced", "_reader", "_sizes", "_withheld"),
        "damaged",
    )

    def __init__(self, frame: bytes, is_cut_off: bool = False) -> None:
        self._frame = frame
        self._is_cut_off = is_cut_off
        self._withheld = memoryview(b"")
        self._produced = 0
        self.damaged = False
        self._sizes = _sizes_of(frame)
        kept = _idle.pop(self._sizes, None) if self._sizes else None
        self._decompressor = kept or zstandard.ZstdDecompressor()
        #: None once the frame's end was read
        self._reader: zstandard.ZstdDecompressionReader | None = self._open(self._decompressor)

    def _open(
        self, decompressor: zstandard.ZstdDecompressor | None = None
    ) -> zstandard.ZstdDecompressionReader:
        whole = len(self._frame) <= _SOURCE
        source = self._frame if whole else io.BytesIO(self._frame)
        decompressor = decompressor or zstandard.ZstdDecompressor()
        return decompressor.stream_reader(source, read_size=_SOURCE)

    def readinto(self, target: memoryview) -> int:
        """Fill ``target`` with the content that follows, and return how many bytes there were.

        They are fewer than the target's only at the end of the frame or of its input, or where
        ``damaged`` is set: then ``target`` has all bytes of the blocks before the damage.
        """
        if self._reader is None:
            return 0
        try:
            produced = self._reader.readinto(target)
            if produced == 0 and self._is_cut_off and self._produced:
                self._is_cut_off = False
                self._withheld = self._last_block(len(target))
        except zstandard.ZstdError:
            self.damaged = True
            return self._before_damage(target)
        if produced == 0:
            produced = min(len(target), len(self._withheld))
            target[:produced] = self._withheld[:produced]
            self._withheld = self._withheld[produced:]
        self._produced += produced
        if produced < len(target):
            self._end()
        return produced

    def _end(self) -> None:
        """Let go of the decompressor, and keep it for another frame."""
        self._reader = None
        if self._sizes is None or self._produced > _MAX_KEPT:
            return
        if len(_idle) >= _MAX_IDLE:
            # the one that was used longest ago; another thread may take one meanwhile
            with contextlib.suppress(KeyError, RuntimeError, StopIteration):
                del _idle[next(iter(_idle))]
        _idle[self._sizes] = self._decompressor

    def _last_block(self, step: int) -> memoryview:
        """Return what the package keeps of the last block: it returns no more bytes once the input
        has ended, although the last read of ``step`` bytes was filled to its end.
        """
        reader, left = self._open(), self._produced - step
        last = bytearray(step + _BLOCK)
        while left > 0:
            left -= reader.readinto(memoryview(last)[: min(left, step)])
        return memoryview(last)[step : reader.readinto(last)]

    def _before_damage(self, target: memoryview) -> int:
        """Decode the frame again: a read that fails does not report how much it has produced.

        The last byte of a block comes with the error of the next one, so it is found with two
        marks.
        """
        good = self._read_on(0, target, _STEP)
        marks = []
        for mark in (0, 255):
            end = self._read_on(good, target, 1, mark)
            marks.append(target[end])
        return end + (marks[0] == marks[1])

    def _read_on(self, start: int, target: memoryview, step: int, mark: int = 0) -> int:
        """Fill ``target`` from ``start`` on, ``step`` bytes at a time, and return where that
        fails.
        """
        reader = self._open()
        left = self._produced + start
        scrap = memoryview(bytearray(_CHUNK))
        try:
            while left:
                left -= reader.readinto(scrap[: min(left, _CHUNK)])
            while True:
                target[start] = mark
                if reader.readinto(target[start : start + step]) < step:
                    return start
                start += step
        except zstandard.ZstdError:
            return start

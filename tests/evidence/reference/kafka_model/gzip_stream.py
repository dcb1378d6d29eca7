"""Java's GZIPInputStream (JDK 17) over 8,192-byte pieces, with zlib's inflate underneath.

An error costs the bytes that the same call to inflate had already produced, so the sizes of pieces
and of reads are part of the behaviour. After a member's trailer Java tries another member if its
source has more bytes, or if more than 26 bytes were left of the piece when the trailer began.
Whatever does not start as a gzip header ends the stream.
"""

from __future__ import annotations

import zlib

from .java import JavaIOError
from .streams import Notes

__all__ = ["GzipSource"]

_PIECE = 8192
_NO_MEMBER = 26
_FHCRC, _FEXTRA, _FNAME, _FCOMMENT = 2, 4, 8, 16


class GzipSource:
    """Deflate members, one after another."""

    def __init__(self, payload: bytes, notes: Notes | None) -> None:
        self._in = payload
        self._notes = notes
        self._at = _header_end(payload, 0)
        self._piece = b""
        self._reach_eof = self._end_of_stream = False
        self._members_end = 0
        self._start_member()

    def _start_member(self) -> None:
        self._inflater = zlib.decompressobj(-zlib.MAX_WBITS)
        self._finished = self._output_full = False
        self._crc = self._written = 0

    def read(self, size: int) -> bytes | None:
        if self._end_of_stream:
            return None
        while True:
            data = self._inflate(size)
            if data is not None:
                self._crc = zlib.crc32(data, self._crc)
                self._written += len(data)
                if self._notes:
                    self._notes.produced(len(data))
                return data
            if not self._next_member():
                self._end_of_stream = True
                return None

    def _inflate(self, size: int) -> bytes | None:
        while True:
            if self._finished:
                self._reach_eof = True
                return None
            if not self._piece and not self._output_full:
                self._piece = self._in[self._at : self._at + _PIECE]
                self._at += len(self._piece)
                if not self._piece:
                    raise JavaIOError("gzip: end of input within a member")
            inflater = self._inflater
            try:
                data = inflater.decompress(self._piece, size)
            except zlib.error as error:
                raise JavaIOError(f"gzip: {error}") from error
            self._finished = inflater.eof
            self._piece = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
            self._output_full = len(data) == size and not inflater.eof
            if data:
                return data

    def _next_member(self) -> bool:
        """Check the trailer and read the next member's header, if there is one."""
        trailer = self._at - len(self._piece)
        if len(self._in) < trailer + 8:
            raise JavaIOError("gzip: end of input within a trailer")
        crc = int.from_bytes(self._in[trailer : trailer + 4], "little")
        size = int.from_bytes(self._in[trailer + 4 : trailer + 8], "little")
        if crc != self._crc or size != self._written & 0xFFFF_FFFF:
            raise JavaIOError("gzip: wrong trailer")
        self._members_end = trailer + 8
        # the trailer's bytes come from the piece, and then one by one from the source
        if max(self._at, trailer + 8) >= len(self._in) and len(self._piece) <= _NO_MEMBER:
            return False
        try:
            header_end = _header_end(self._in, trailer + 8)
        except JavaIOError:
            return False
        # what was left of the piece stays one; a header longer than it was read around the piece
        self._piece = self._in[header_end : self._at]
        self._at = max(self._at, header_end)
        self._start_member()
        return True

    def skip(self, size: int) -> bytes:
        raise AssertionError("never delegated")

    def available(self) -> int:
        if self._reach_eof:
            return 0
        if self._finished:
            self._reach_eof = True
            return 0
        return 1

    def unread(self) -> bool:
        return not self._end_of_stream or self._members_end < len(self._in)


def _header_end(data: bytes, start: int) -> int:
    """Return where the deflate data of the member at ``start`` begins."""
    if len(data) < start + 10:
        raise JavaIOError("gzip: end of input within a header")
    if data[start : start + 3] != b"\x1f\x8b\x08":
        raise JavaIOError("gzip: no gzip header")
    flags = data[start + 3]
    pos = start + 10
    if flags & _FEXTRA:
        if len(data) < pos + 2:
            raise JavaIOError("gzip: end of input within a header")
        pos += 2 + int.from_bytes(data[pos : pos + 2], "little")
    for flag in (_FNAME, _FCOMMENT):
        if flags & flag:
            zero = data.find(b"\0", pos)
            if zero < 0:
                raise JavaIOError("gzip: end of input within a header")
            pos = zero + 1
    if flags & _FHCRC:
        if (
            len(data) < pos + 2
            or int.from_bytes(data[pos : pos + 2], "little") != zlib.crc32(data[start:pos]) & 0xFFFF
        ):
            raise JavaIOError("gzip: wrong header checksum")
        pos += 2
    if pos > len(data):
        raise JavaIOError("gzip: end of input within a header")
    return pos

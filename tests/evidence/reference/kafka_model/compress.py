"""Compress a rebuilt batch: any valid stream will do, nothing compares the bytes."""

from __future__ import annotations

import gzip

import zstandard

from batchval.types import CompressionType

from . import lz4_stream, snappy_stream

__all__ = ["compress"]


def compress(codec: CompressionType, data: bytes, magic: int) -> bytes:
    """Compress ``data`` to a stream of ``codec``."""
    if codec is CompressionType.GZIP:
        return gzip.compress(data, mtime=0)
    if codec is CompressionType.SNAPPY:
        return snappy_stream.encode(data)
    if codec is CompressionType.LZ4:
        return lz4_stream.encode(data, magic == 0)
    if codec is CompressionType.ZSTD:
        return zstandard.ZstdCompressor().compress(data)
    return data

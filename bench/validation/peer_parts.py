"""Parts of the work alone, for worker.py: decompressors, and reading memory.

Decompressors are the very functions that the core calls, over blocks found beforehand. What the
core adds is its frame walk, its checks and its walk over the records. gzip's trailing CRC-32 is
part of decompressing, as in any gzip library. ``libdeflate``, from the host, is measured next to
the core's own inflate.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from ctypes import c_int, c_int64, c_void_p
from typing import Any

import batchval.core.crc32c
import batchval.core.gzip
import batchval.core.snappy
from batchval.compression import native as found_by_core
from bench.validation import native
from bench.validation.worker import Job

RECORDS_AT = 61
_library = native.load()
_keep: list[Any] = []


def core_function(module: Any, name: str) -> int:
    """Return the address of a cdef function, as Cython exports it to other modules."""
    capsule = module.__pyx_capi__[name]
    python = ctypes.pythonapi
    python.PyCapsule_GetName.restype = ctypes.c_char_p
    python.PyCapsule_GetName.argtypes = [ctypes.py_object]
    python.PyCapsule_GetPointer.restype = c_void_p
    python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return int(python.PyCapsule_GetPointer(capsule, python.PyCapsule_GetName(capsule)))


def job(function: str, arguments: tuple[Any, ...], size: int, output: Any) -> Job:
    """Run once, compare the size, and return the call with all arguments converted."""
    run = getattr(_library, function)
    run.restype = c_int64
    _keep.append((arguments, output))
    if run(*arguments) != size:
        raise AssertionError(f"{function} gives {run(*arguments)} bytes, not {size}")
    return Job("run(*arguments)", {"run": run, "arguments": arguments}, 1, {"content": size})


def _lz4(payload: bytes) -> Job:
    flags, descriptor = payload[4], payload[5]
    if flags & 0b11101 or descriptor >> 4 != 4:
        raise ValueError("not a frame as Kafka's producer writes it")
    blocks, at = [], 7
    import lz4.block

    size = 0
    while word := int.from_bytes(payload[at : at + 4], "little"):
        length, stored = word & 0x7FFFFFFF, word >> 31
        at += 4
        blocks += (at, length, 0 if stored else 1)
        size += (
            length
            if stored
            else len(lz4.block.decompress(payload[at : at + length], uncompressed_size=65536))
        )
        at += length
    output = ctypes.create_string_buffer(size + 64)
    return job(
        "run_lz4",
        (
            c_void_p(_found("LZ4_decompress_safe")),
            payload,
            _pairs(blocks),
            c_int(len(blocks) // 3),
            output,
            c_int64(size),
        ),
        size,
        output,
    )


def _snappy(payload: bytes) -> Job:
    blocks, at, size = [], 16, 0
    while at < len(payload):
        (length,) = struct.unpack_from(">i", payload, at)
        at += 4
        content, header = 0, 0
        while True:
            byte = payload[at + header]
            content |= (byte & 0x7F) << (7 * header)
            header += 1
            if byte < 0x80:
                break
        blocks += (at + header, length - header, content)
        size += content
        at += length
    output = ctypes.create_string_buffer(size + 256)
    decode = c_void_p(core_function(batchval.core.snappy, "snappy_decode"))
    return job(
        "run_snappy",
        (decode, payload, _pairs(blocks), c_int(len(blocks) // 3), output),
        size,
        output,
    )


def _zstd(payload: bytes) -> Job:
    import zstandard

    size = len(zstandard.ZstdDecompressor().decompressobj().decompress(payload))
    create = ctypes.CFUNCTYPE(c_void_p)(_found("ZSTD_createDCtx"))
    output = ctypes.create_string_buffer(size + 64)
    arguments = (
        c_void_p(_found("ZSTD_decompressDCtx")),
        c_void_p(create()),
        payload,
        c_int64(len(payload)),
        output,
        c_int64(size),
    )
    return job("run_zstd", arguments, size, output)


def _gzip(payload: bytes) -> Job:
    import gzip

    size = len(gzip.decompress(payload))
    data = ctypes.create_string_buffer(payload[10:], len(payload) - 10 + 64)
    state = ctypes.create_string_buffer(1 << 20)
    output = ctypes.create_string_buffer(size + 1024)
    open_, on = (
        c_void_p(core_function(batchval.core.gzip, name)) for name in ("inflate_open", "inflate_on")
    )
    crc = c_void_p(core_function(batchval.core.crc32c, "crc32_of"))
    return job(
        "run_inflate",
        (open_, on, crc, state, data, c_int64(len(payload) - 18), output, c_int64(size + 512)),
        size,
        output,
    )


def _libdeflate(payload: bytes) -> Job:
    library = ctypes.CDLL("libdeflate.so.0")
    library.libdeflate_alloc_decompressor.restype = c_void_p
    import gzip

    size = len(gzip.decompress(payload))
    output = ctypes.create_string_buffer(size + 64)
    run = library.libdeflate_gzip_decompress
    arguments = (
        c_void_p(library.libdeflate_alloc_decompressor()),
        payload,
        ctypes.c_size_t(len(payload)),
        output,
        ctypes.c_size_t(size),
        None,
    )
    if run(*arguments) != 0 or output.raw[:size] != gzip.decompress(payload):
        raise AssertionError("libdeflate differs")
    return Job("run(*arguments)", {"run": run, "arguments": arguments}, 1, {"content": size})


_found_addresses: dict[str, int] = {}


def _found(name: str) -> int:
    if not _found_addresses:
        found = found_by_core.find()
        _keep.append(found)
        _found_addresses.update(found.addresses)
    return _found_addresses[name]


def _pairs(blocks: list[int]) -> Any:
    return (c_int64 * len(blocks))(*blocks)


_BY_CODEC: dict[int, Callable[[bytes], Job]] = {1: _gzip, 2: _snappy, 3: _lz4, 4: _zstd}


def decompress_payload(codec: int, payload: bytes) -> Job:
    """Decompress a batch's payload, or a wrapper's value of magic 0 or 1."""
    return _BY_CODEC[codec](payload)


def decompress(data: bytes) -> Job:
    return decompress_payload(data[22] & 7, data[RECORDS_AT:])


def libdeflate(data: bytes) -> Job:
    return _libdeflate(data[RECORDS_AT:])


def memory(data: bytes) -> Job:
    """Measure GB/s of one core over uncached memory: plain loads and the core's CRC32C, in turns.

    Every pass goes once over half a GiB in blocks of 1 MiB, or of 16 kB; nothing is read twice
    within a pass.
    """
    import mmap

    size = 512 << 20
    block = mmap.mmap(-1, size)
    tile = bytes(range(256)) * 4096
    for start in range(0, size, len(tile)):
        block[start : start + len(tile)] = tile
    address = ctypes.addressof(ctypes.c_char.from_buffer(block))
    walk = _library.walk_memory
    walk.restype = ctypes.c_double
    walk.argtypes = [c_void_p, c_void_p, c_int64, c_int64, c_int64]
    kernel = core_function(batchval.core.crc32c, "crc32c_of")
    facts: dict[str, Any] = {}
    for label, length in (("1MiB", 1 << 20), ("16kB", 16 << 10)):
        for _ in range(3):
            for what, function in (("read", None), ("crc32c", kernel)):
                took = walk(function, address, length, length, size // length)
                facts.setdefault(f"{what}_{label}", []).append(round(size / took, 3))
    _keep.append(block)
    return Job("", {}, 1, facts)


OPERATIONS = {"memory": memory, "decompress": decompress, "libdeflate": libdeflate}

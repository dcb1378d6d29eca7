"""A search for C functions of lz4 and zstd, which are on every machine with the packages; the core
gets their addresses.

The Linux wheels of lz4 and zstandard carry the whole libraries inside their extension modules and
export them; failing that, the host's liblz4 and libzstd serve. A set of functions is only taken
after every one of them, called as core calls it, has returned the right answer for a known frame
and for a damaged one.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["Found", "find"]

_LZ4 = ("LZ4_decompress_safe",)
_ZSTD = (
    "ZSTD_createDCtx",
    "ZSTD_freeDCtx",
    "ZSTD_decompressBegin",
    "ZSTD_nextSrcSizeToDecompress",
    "ZSTD_nextInputType",
    "ZSTD_decompressContinue",
    "ZSTD_decompressDCtx",
    "ZSTD_isError",
)

# "batchval" 8 times over, compressed once by each library.
_SELF_TEST = b"batchval" * 8
_LZ4_BLOCK = bytes.fromhex("8f626174636876616c08002050636876616c")
_ZSTD_FRAME = bytes.fromhex("28b52ffd204075000040626174636876616c0100dd59b8")
# The same with a copy from before the start, and with a block of the reserved kind.
_LZ4_DAMAGED = bytes.fromhex("8f626174636876616cffff2050636876616c")
_ZSTD_DAMAGED = bytes.fromhex("28b52ffd204077000040626174636876616c0100dd59b8")
_ZSTD_STEPS = (0, 0, 1, 3)  # ZSTD_nextInputType_e: frame header, its rest, block header, last block


@dataclass
class Found:
    """Addresses by C name, and where each library came from, for ``batchval --version``."""

    addresses: dict[str, int] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    libraries: list[ctypes.CDLL] = field(default_factory=list)  # ctypes never unloads one


def _candidates(modules: tuple[str, ...], host: str) -> Iterator[tuple[str, str]]:
    """Yield (path, origin), best first."""
    for module in modules:
        try:
            spec = importlib.util.find_spec(module)
        except (ImportError, ValueError):
            continue
        if spec is not None and spec.origin and spec.origin.endswith(".so"):
            yield spec.origin, f"{module.split('.', 1)[0]} package"
    path = ctypes.util.find_library(host)
    if path:
        yield path, f"host's {path}"


def _addresses(library: ctypes.CDLL, names: tuple[str, ...]) -> dict[str, int] | None:
    found = {}
    for name in names:
        try:
            address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        except AttributeError:
            return None
        if not address:
            return None
        found[name] = address
    return found


def _lz4_works(library: ctypes.CDLL) -> bool:
    function = library.LZ4_decompress_safe
    function.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int]
    function.restype = ctypes.c_int
    out = ctypes.create_string_buffer(len(_SELF_TEST))
    if (
        function(_LZ4_BLOCK, out, len(_LZ4_BLOCK), len(out)) != len(_SELF_TEST)
        or out.raw != _SELF_TEST
    ):
        return False
    return bool(function(_LZ4_DAMAGED, out, len(_LZ4_DAMAGED), len(out)) < 0)


def _zstd_works(library: ctypes.CDLL) -> bool:
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    for name, answers, takes in (
        ("ZSTD_createDCtx", pointer, []),
        ("ZSTD_freeDCtx", size, [pointer]),
        ("ZSTD_decompressBegin", size, [pointer]),
        ("ZSTD_nextSrcSizeToDecompress", size, [pointer]),
        ("ZSTD_nextInputType", ctypes.c_int, [pointer]),
        ("ZSTD_decompressContinue", size, [pointer, pointer, size, pointer, size]),
        ("ZSTD_decompressDCtx", size, [pointer, pointer, size, pointer, size]),
        ("ZSTD_isError", ctypes.c_uint, [size]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = answers, takes
    context = library.ZSTD_createDCtx()
    if not context:
        return False
    right = all(
        decompress(library, context, frame) == content
        for frame, content in ((_ZSTD_FRAME, _SELF_TEST), (_ZSTD_DAMAGED, None))
        for decompress in (_zstd_in_one, _zstd_by_block)
    )
    return not library.ZSTD_isError(library.ZSTD_freeDCtx(context)) and right


def _zstd_in_one(library: ctypes.CDLL, context: int, frame: bytes) -> bytes | None:
    """Decompress a frame in one call. Return None where the library reports an error."""
    out = ctypes.create_string_buffer(len(_SELF_TEST))
    n = library.ZSTD_decompressDCtx(context, out, len(out), frame, len(frame))
    return None if library.ZSTD_isError(n) else out.raw[:n]


def _zstd_by_block(library: ctypes.CDLL, context: int, frame: bytes) -> bytes | None:
    """Decompress as core.codec_streams does: the output of one step lies before the output of the
    next.
    """
    out = ctypes.create_string_buffer(len(_SELF_TEST))
    at = made = 0
    kinds: list[int] = []
    if library.ZSTD_isError(library.ZSTD_decompressBegin(context)):
        return None
    while need := library.ZSTD_nextSrcSizeToDecompress(context):
        if need > len(frame) - at or len(kinds) == len(_ZSTD_STEPS):
            return None
        kinds.append(library.ZSTD_nextInputType(context))
        piece = ctypes.create_string_buffer(frame[at : at + need], need)
        n = library.ZSTD_decompressContinue(
            context, ctypes.addressof(out) + made, len(out) - made, piece, need
        )
        if library.ZSTD_isError(n) or n > len(out) - made:
            return None
        at += need
        made += n
    return out.raw[:made] if at == len(frame) and tuple(kinds) == _ZSTD_STEPS else None


def _version(library: ctypes.CDLL, name: str) -> str:
    try:
        function = getattr(library, name)
    except AttributeError:
        return "?"
    function.restype = ctypes.c_char_p
    return (function() or b"?").decode("ascii", "replace")


def find() -> Found:
    """Return all functions that core needs, or a Found with no addresses where a library is missing
    or does not work.
    """
    result = Found()
    for codec, names, modules, host, works, version in (
        (
            "lz4",
            _LZ4,
            ("lz4.block._block", "lz4.frame._frame"),
            "lz4",
            _lz4_works,
            "LZ4_versionString",
        ),
        (
            "zstd",
            _ZSTD,
            ("zstandard._cffi", "zstandard.backend_c"),
            "zstd",
            _zstd_works,
            "ZSTD_versionString",
        ),
    ):
        for path, origin in _candidates(modules, host):
            try:
                library = ctypes.CDLL(path)
            except OSError:
                continue
            addresses = _addresses(library, names)
            if addresses is None or not works(library):
                continue
            result.addresses.update(addresses)
            result.origins[codec] = f"lib{codec} {_version(library, version)} ({origin})"
            result.libraries.append(library)
            break
        else:
            return Found()
    return result

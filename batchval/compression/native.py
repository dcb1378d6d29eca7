"""Finds C functions of lz4 and zstd that are on every machine with the packages, and gives core their addresses.

The Linux wheels of lz4 and zstandard carry the whole libraries inside their extension modules and export them; failing
that, the host's liblz4 and libzstd serve. A set of functions is only taken after it has decompressed a known frame.
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

# "batchval" 8 times over, compressed once by each library
_SELF_TEST = b"batchval" * 8
_LZ4_BLOCK = bytes.fromhex("8f626174636876616c08002050636876616c")
_ZSTD_FRAME = bytes.fromhex("28b52ffd204075000040626174636876616c0100dd59b8")


@dataclass
class Found:
    """Addresses by C name, and where each library came from, for ``batchval --version``."""

    addresses: dict[str, int] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    libraries: list[ctypes.CDLL] = field(default_factory=list)  # kept, or the addresses would dangle


def _candidates(modules: tuple[str, ...], host: str) -> Iterator[tuple[str, str]]:
    """(path, where it is from), best first."""
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
    return bool(function(_LZ4_BLOCK, out, len(_LZ4_BLOCK), len(out)) == len(_SELF_TEST) and out.raw == _SELF_TEST)


def _zstd_works(library: ctypes.CDLL) -> bool:
    library.ZSTD_createDCtx.restype = ctypes.c_void_p
    library.ZSTD_freeDCtx.argtypes = [ctypes.c_void_p]
    function = library.ZSTD_decompressDCtx
    function.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    function.restype = ctypes.c_size_t
    out = ctypes.create_string_buffer(len(_SELF_TEST))
    context = library.ZSTD_createDCtx()
    if not context:
        return False
    try:
        size = function(context, out, len(out), _ZSTD_FRAME, len(_ZSTD_FRAME))
    finally:
        library.ZSTD_freeDCtx(context)
    return bool(size == len(_SELF_TEST) and out.raw == _SELF_TEST)


def _version(library: ctypes.CDLL, name: str) -> str:
    try:
        function = getattr(library, name)
    except AttributeError:
        return "?"
    function.restype = ctypes.c_char_p
    return (function() or b"?").decode("ascii", "replace")


def find() -> Found:
    """All functions that core needs, or a Found with no addresses where a library is missing or does not work."""
    result = Found()
    for codec, names, modules, host, works, version in (
        ("lz4", _LZ4, ("lz4.block._block", "lz4.frame._frame"), "lz4", _lz4_works, "LZ4_versionString"),
        ("zstd", _ZSTD, ("zstandard._cffi", "zstandard.backend_c"), "zstd", _zstd_works, "ZSTD_versionString"),
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

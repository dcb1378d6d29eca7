"""The providers of lz4 and zstd: two implementations with equal results.

``native``    lz4 and zstd as C functions called by pointer, without the GIL (batchval.compression.native)
``packages``  the Python packages lz4 and zstandard (batchval.compression.packages)

gzip and snappy are core's own under both. The environment variable ``BATCHVAL_CODECS`` forces one;
without it ``native`` is taken where it works.
"""

from __future__ import annotations

import os

from batchval.compression import native, native_pointers
from batchval.errors import BatchvalError

__all__ = ["PROVIDERS", "describe", "provider", "use"]

PROVIDERS = ("native", "packages")

_found = native.Found()
_provider = ""


def use(name: str | None = None) -> str:
    """Switch to a provider by name, or to the best there is. Return its name.

    Raises BatchvalError where ``native`` is requested and no working library is found.
    """
    global _found, _provider  # noqa: PLW0603
    if name not in (None, *PROVIDERS):
        raise BatchvalError(f"BATCHVAL_CODECS must be one of {', '.join(PROVIDERS)}, not {name!r}")
    if name != "packages":
        _found = native.find()
        if _found.addresses:
            native_pointers.bind(_found.addresses)
            _provider = "native"
            return _provider
        if name == "native":
            raise BatchvalError(
                "BATCHVAL_CODECS=native: no working lz4 and zstd library was found. "
                "Unset it, or set packages"
            )
    native_pointers.bind({})
    _provider = "packages"
    return _provider


def provider() -> str:
    """Return the provider in use."""
    return _provider


def describe() -> dict[str, str]:
    """Return what decompresses each codec: for ``batchval --version`` and for bench tables."""
    own = {"gzip": "batchval inflate", "snappy": "batchval snappy"}
    if _provider == "native":
        return own | _found.origins
    import lz4
    import zstandard

    return own | {
        "lz4": f"lz4 {lz4.__version__} for Python",
        "zstd": f"zstandard {zstandard.__version__} for Python",
    }


use(os.environ.get("BATCHVAL_CODECS") or None)

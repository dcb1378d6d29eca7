"""Numbers and names as people read them."""

from __future__ import annotations

import os

__all__ = ["human_bytes", "human_seconds", "plural", "printable"]

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_STEP = 1024


def human_bytes(count: float) -> str:
    """Return a size as ``12.3 MiB``, in powers of 1024."""
    for unit in _UNITS[:-1]:
        if count < _STEP:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= _STEP
    return f"{count:,.1f} {_UNITS[-1]}"


def plural(count: int, word: str, words: str = "") -> str:
    """Return a count with its noun: ``1 batch``, ``2 batches``, ``1,234 files``."""
    if count == 1:
        return f"1 {word}"
    return f"{count:,} {words or (word + 'es' if word.endswith('ch') else word + 's')}"


def printable(name: str | os.PathLike[str]) -> str:
    """Return a file's name escaped, so that it cannot move the cursor, colour the terminal or break
    the encoding of the output.
    """
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


def human_seconds(seconds: float) -> str:
    """Return CPU time as ``1.2 ms``, ``3.4 s`` or ``5.6 h``; days are hours."""
    for size, unit in ((3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms")):
        if seconds >= size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds * 1e6:,.0f} µs" if seconds else "0 s"

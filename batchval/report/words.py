"""Numbers and names as people read them."""

from __future__ import annotations

import os

__all__ = ["human_bytes", "plural", "printable"]

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_STEP = 1024


def human_bytes(count: float) -> str:
    """``12.3 MiB``; powers of 1024."""
    for unit in _UNITS[:-1]:
        if count < _STEP:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= _STEP
    return f"{count:,.1f} {_UNITS[-1]}"


def plural(count: int, word: str, words: str = "") -> str:
    """``1 batch``, ``2 batches``, ``1,234 files``."""
    if count == 1:
        return f"1 {word}"
    return f"{count:,} {words or (word + 'es' if word.endswith('ch') else word + 's')}"


def printable(name: str | os.PathLike[str]) -> str:
    """A file's name that cannot move the cursor, colour the terminal or break the encoding of the output."""
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)

"""C sources of this folder, compiled once, at the first use, into a temporary folder."""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path

__all__ = ["library"]


@cache
def library(name: str) -> ctypes.CDLL:
    """Return the compiled ``name``.c."""
    source = Path(__file__).with_name(f"{name}.c")
    folder = Path(tempfile.gettempdir()) / f"batchval-mutator-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    built = folder / f"{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}.so"
    if not built.exists():
        partial = built.with_suffix(f".{os.getpid()}")
        compiler = os.environ.get("CC", "cc").split()
        subprocess.run(
            [*compiler, "-O2", "-shared", "-fPIC", str(source), "-o", str(partial)], check=True
        )
        partial.rename(built)
    return ctypes.CDLL(str(built))

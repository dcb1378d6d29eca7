"""Archives of loaded classes (JEP 350): with one, a JVM starts in about half its CPU time.

An archive is made once, by a JVM that loads the classes and ends. It is valid for the JVM and the
class path that made it; any other JVM ignores it and loads its classes from jars (-Xshare:auto).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["MAKES", "archive_option"]

#: Option of a JVM that writes an archive when it ends.
MAKES = "-XX:ArchiveClassesAtExit="
USES = "-XX:SharedArchiveFile="


def archive_option(stem: Path, java: str, fill: Callable[[str], object]) -> list[str]:
    """Return the option for an archive; make it first if no other process does at this moment.

    ``stem``  its path, without what depends on the JVM
    ``fill``  runs a JVM to its end with the option that it is called with
    """
    kept = stem.with_name(f"{stem.name}-{_release(java)}.jsa")
    if not kept.exists():
        with _free(kept.with_suffix(".lock")) as is_free:
            if not is_free:
                return []
            if not kept.exists():
                _make(kept, fill)
    # an empty file: this JVM has made none, and is not asked again
    return [f"{USES}{kept}"] if kept.stat().st_size else []


def _release(java: str) -> str:
    release = Path(java).resolve().parents[1] / "release"
    text = release.read_bytes() if release.is_file() else java.encode()
    return hashlib.sha256(text).hexdigest()[:12]


def _make(kept: Path, fill: Callable[[str], object]) -> None:
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        fresh = Path(folder) / kept.name
        fill(f"{MAKES}{fresh}")
        if not fresh.exists():
            fresh.touch()
        fresh.replace(kept)


@contextlib.contextmanager
def _free(path: Path) -> Iterator[bool]:
    """Hold the lock of this file, unless another process does."""
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True

"""Files of the state directory: replaced as a whole, so that a reader never finds half of one."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

__all__ = ["replace_file", "set_aside"]

#: Seconds after which nobody finishes a new file any more.
UNFINISHED_S: Final = 3_600.0


def replace_file(path: Path, pieces: Iterable[bytes], suffix: str = ".new") -> None:
    """Write the pieces to a new file of mode 0600, sync it and rename it to ``path``.

    The folder is made with mode 0700 where it does not exist yet. Raises OSError.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}{suffix}")
    with contextlib.suppress(FileNotFoundError):
        new.unlink()  # of a process that was killed
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except BaseException:
        with contextlib.suppress(OSError):
            new.unlink()
        raise
    _sync_folder(path.parent)
    _delete_unfinished(path)


def set_aside(path: Path) -> Path:
    """Rename a file that cannot be read to ``NAME.corrupt`` and return that. Raises OSError."""
    aside = path.with_name(f"{path.name}.corrupt")
    os.replace(path, aside)
    return aside


def _delete_unfinished(path: Path) -> None:
    """Delete what killed processes have left of a file: each process may have its own suffix."""
    old = time.time() - UNFINISHED_S
    with contextlib.suppress(OSError):
        for left in path.parent.iterdir():
            if left.name.startswith(f"{path.name}.") and left.name.endswith(".new"):
                with contextlib.suppress(OSError):  # another process has deleted it
                    if left.lstat().st_mtime < old:
                        left.unlink()


def _sync_folder(folder: Path) -> None:
    """Make a rename last through a power failure, where the file system can."""
    with contextlib.suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)

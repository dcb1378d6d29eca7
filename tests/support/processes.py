"""Processes of this machine, by /proc; and a command that SIGTERM ends."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["children", "is_alive", "terminated", "until"]

#: a limit on a hang: an audit by Spark begins to write after 12 s on an idle machine, and after
#: 100 s where eight processes keep both cores busy
HANGS_S = 300.0


def children(pid: int) -> list[int]:
    """Return the processes that a process has started, and those that they have."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(folder.name))
    found, todo = [], [pid]
    while todo:
        more = parents.get(todo.pop(), [])
        found += more
        todo += more
    return found


def until(what: str, holds: Callable[[], object], seconds: float = HANGS_S) -> None:
    """Wait until a condition holds; fail the test if it never does."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return
        time.sleep(0.02)
    raise AssertionError(f"not in {seconds} s: {what}")


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def terminated(process: subprocess.Popen[bytes], temporary: Path) -> bytes:
    """Send SIGTERM and return what the process says; nothing of it may be left."""
    family = children(process.pid)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=HANGS_S)
    assert process.returncode == 143, err
    until("its processes end", lambda: not any(map(is_alive, family)))
    assert [
        str(path)
        for path in temporary.iterdir()
        if path.name.startswith(("batchval", "pymp", "tmp"))
    ] == []
    return err

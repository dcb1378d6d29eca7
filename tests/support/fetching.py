"""Build tools that fetch what they need from a registry: Maven and Go.

Maven has no lock for its local repository, and several processes of tests may need a jar at once.
A registry may fail once.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

__all__ = ["fetching", "locked", "maven"]

#: seconds before another attempt, as often as there are numbers
PAUSES = (5.0, 20.0)
TIMEOUT = 1800.0


def fetching(
    command: Sequence[str], *, cwd: str | Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a command that fetches, up to three times until it succeeds, and return how it ended."""
    for pause in (*PAUSES, None):
        done = subprocess.run(
            command,
            cwd=cwd,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT,
        )
        if done.returncode == 0 or pause is None:
            break
        time.sleep(pause)
    return done


def maven(*arguments: str, java: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run Maven on the JDK that has this ``java`` or ``javac``, alone on this machine.

    Raises:
        FileNotFoundError: no ``mvn`` on PATH.
    """
    program = shutil.which("mvn")
    if program is None:
        raise FileNotFoundError("Maven (mvn) is needed to fetch Kafka's jars: not found on PATH")
    home = Path.home() / ".m2"
    home.mkdir(exist_ok=True)
    environment = {**os.environ, "JAVA_HOME": str(java.resolve().parents[1])}
    with locked(home / "batchval.lock"):
        return fetching([program, "-q", "-B", *arguments], cwd=cwd, environment=environment)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of this file; other processes that want it wait."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield

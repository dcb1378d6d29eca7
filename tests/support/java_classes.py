"""Java programs of tests, compiled once for each state of their sources and class path.

``java FILE.java`` would compile at each start, which takes a second of CPU time.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support.fetching import locked

__all__ = ["compiled"]

#: The compiler ends before the JVM's optimizing compiler has saved what it costs.
QUICK = ("-J-XX:+UseSerialGC", "-J-XX:TieredStopAtLevel=1")


def compiled(sources: Sequence[Path], jars: str, java: str, target: Path) -> Path:
    """Return the folder below ``target`` with the classes of these sources."""
    text = os.pathsep.join([jars, java]).encode() + b"".join(
        source.read_bytes() for source in sources
    )
    folder = target / f"{sources[-1].stem}-{hashlib.sha256(text).hexdigest()[:12]}.classes"
    target.mkdir(parents=True, exist_ok=True)
    with locked(target / "classes.lock"):
        if not folder.is_dir():
            fresh = folder.with_suffix(".new")
            compiler = Path(java).resolve().with_name("javac")
            path = ["-cp", jars] if jars else []
            subprocess.run([compiler, *QUICK, "-nowarn", "-d", fresh, *path, *sources], check=True)
            fresh.rename(folder)
    return folder

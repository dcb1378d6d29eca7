"""The agents for the JVM: built by Maven from ``broker/``, once for each state of the sources."""

from __future__ import annotations

import functools
import hashlib
import shutil
import tempfile
from pathlib import Path

from tests.conformance.oracle import cache_folder
from tests.interop.kafka_broker import ToolMissing, find_java
from tests.support.fetching import locked, maven

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "broker"


@functools.cache
def producer_agent() -> Path:
    """Return the jar of the agent for the Java producer."""
    return _built("producer-agent")


def _built(module: str) -> Path:
    """Build ``module`` with its own tests where this state of the sources has not been built yet."""
    name = f"batchval-{module}"
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    jar = cache / f"{name}-{_fingerprint()}.jar"
    with locked(cache / f"{name}.lock"):
        if not jar.is_file():
            _build(module, f"{name}.jar", jar)
    return jar


def _files() -> list[Path]:
    found = (path for path in SOURCES.rglob("*") if "target" not in path.relative_to(SOURCES).parts)
    return sorted(path for path in found if path.is_file())


@functools.cache
def _fingerprint() -> str:
    digest = hashlib.sha256()
    for file in _files():
        digest.update(str(file.relative_to(SOURCES)).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _build(module: str, name: str, to: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="building-", dir=to.parent) as folder:
        for file in _files():
            copy = Path(folder) / file.relative_to(SOURCES)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
        arguments = ["package", "-pl", module, "-am", f"-Dbatchval.fixtures={ROOT / 'fixtures' / 'claims'}"]
        try:
            done = maven(*arguments, java=Path(find_java()), cwd=Path(folder))
        except FileNotFoundError as error:
            raise ToolMissing(str(error)) from None
        if done.returncode:
            raise RuntimeError(f"mvn package failed:\n{done.stdout[-4000:]}{done.stderr[-2000:]}")
        (Path(folder) / module / "target" / name).replace(to)

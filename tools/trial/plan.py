"""List the steps of a trial in a system: each prints or returns a row's facts."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple

from tools import dist
from tools.trial.debian import WORK
from tools.trial.musl import Musl
from tools.trial.systems import System
from tools.wheels import write_wheel

#: the dependency that publishes no wheels for musl
WITHOUT_MUSL = "lz4"
CASES = ("golden", "corpus")  # folders of fixtures: what Kafka answers
DAMAGED_AT = -1  # the last byte of the last record


class Row(NamedTuple):
    """A row of the table."""

    version: str
    platform: str
    system: str
    ran: tuple[str, ...]
    result: str
    passed: bool


def tags(family: str, machine: str) -> list[str]:
    """Return the platforms that pip may download wheels for."""
    return dist.musllinux(machine) if family == "musllinux" else dist.manylinux(machine)


def fitting(folder: Path, version: str, family: str, machine: str) -> Path:
    """Return the wheel for a version of CPython and a platform. Raises DistError."""
    number = version.replace(".", "")
    found = sorted(folder.glob(f"batchval-*-cp{number}-cp{number}-*{family}*_{machine}.whl"))
    if not found:
        raise dist.DistError(
            f"{folder} has no wheel for CPython {version}, {family} {machine}: make wheels"
        )
    return found[0]


def lz4_wheel(system: System, out: Path) -> None:
    """Compile lz4 for musl from its sdist: its authors publish no wheel that fits.

    pip names the wheel by the Python that it runs on, so its files go into one with the right tag.
    """
    built = Musl(system.machine, system.version, 1)
    number = system.version.replace(".", "")
    settings = {
        **os.environ,
        "CC": f"{built.compiler} -I{built.tree}/usr/include/python{system.version}",
        "LDSHARED": f"{built.compiler} -shared",
        "SETUPTOOLS_EXT_SUFFIX": f".cpython-{number}-{system.machine}-linux-musl.so",
        "_PYTHON_HOST_PLATFORM": f"linux-{system.machine}",
    }
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--quiet",
        "--disable-pip-version-check",
        "wheel",
        "--no-cache-dir",
    ]
    with tempfile.TemporaryDirectory() as folder:
        dist.run(
            *pip,
            "--no-deps",
            "--no-binary",
            WITHOUT_MUSL,
            "--wheel-dir",
            folder,
            WITHOUT_MUSL,
            env=settings,
        )
        (compiled,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(compiled) as archive:
            files = {
                name: archive.read(name) for name in archive.namelist() if not name.endswith("/")
            }
    write_wheel(files, [f"cp{number}-cp{number}-linux_{system.machine}"], out)


def dependencies(system: System, wheel: Path) -> Path:
    """Return a folder with the wheel and wheels of its dependencies, the newest that fit."""
    kept = WORK / "wheels" / f"cp{system.version}-{system.family}_{system.machine}"
    kept.mkdir(parents=True, exist_ok=True)
    for own in kept.glob("batchval-*.whl"):
        own.unlink()
    if system.family == "musllinux" and not list(kept.glob(f"{WITHOUT_MUSL}-*.whl")):
        lz4_wheel(system, kept)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "download"]
    pip += ["--only-binary=:all:", "--implementation", "cp", "--python-version", system.version]
    platforms = [
        part for tag in tags(system.family, system.machine) for part in ("--platform", tag)
    ]
    dist.run(*pip, *platforms, "--find-links", kept, "--dest", kept, wheel)
    return kept


def fill(system: System, wheels: Path) -> None:
    """Make the folder of the trial: the wheels, fixtures, a damaged segment."""
    shutil.rmtree(system.folder, ignore_errors=True)
    shutil.copytree(wheels, system.folder / "wheels")
    for name in CASES:
        shutil.copytree(dist.ROOT / "fixtures" / name, system.folder / name)
    shutil.copy2(dist.ROOT / "tools" / "dist_probe.py", system.folder)
    for name in ("good", "damaged"):
        (system.folder / name).mkdir()
    segment = bytearray((dist.ROOT / dist.SEGMENT).read_bytes())
    (system.folder / "good" / Path(dist.SEGMENT).name).write_bytes(segment)
    segment[DAMAGED_AT] ^= 1
    (system.folder / "damaged" / Path(dist.SEGMENT).name).write_bytes(segment)


def install(system: System) -> str:
    """Install the wheel with the system's pip, which chooses it by its tags."""
    system.environment()
    folder = ["--no-index", "--find-links", f"{system.inside}/wheels"]
    system.run(*system.pip(), "install", *system.tags(), *folder, "batchval")
    return ""


def version(system: System) -> str:
    """Return the kernel that was chosen for this processor."""
    shown = system.run(f"{system.inside}/venv/bin/batchval", "--version")
    found = re.search(r"kernel: (\S+)", shown)
    if found is None or "batchval " not in shown:
        raise dist.DistError(f"batchval --version names no kernel:\n{shown}")
    return f"kernel {found[1]}"


def check_good(system: System) -> str:
    """Check a segment of a broker."""
    shown = system.run(f"{system.inside}/venv/bin/batchval", "check", f"{system.inside}/good")
    if "1 file" not in shown:
        raise dist.DistError(f"batchval check of a good segment:\n{shown}")
    return ""


def check_damaged(system: System) -> str:
    """Check the segment with one bit changed: exit code 1, and the finding is named."""
    shown = system.run(
        f"{system.inside}/venv/bin/batchval", "check", f"{system.inside}/damaged", code=1
    )
    if "crc-mismatch" not in shown:
        raise dist.DistError(
            f"batchval check of a damaged segment does not name crc-mismatch:\n{shown}"
        )
    return ""


def conformance(system: System) -> str:
    """Compare the answers with Kafka's."""
    cases = (f"{system.inside}/{name}" for name in CASES)
    shown = system.run(f"{system.inside}/venv/bin/batchval", "conformance", *cases)
    return shown.splitlines()[-1].removeprefix("conformance: ")


def imports(system: System) -> str:
    """Import every module that is not one of an extra's; look for a compiler."""
    python = f"{system.inside}/venv/bin/python"
    segment = f"{system.inside}/good/{Path(dist.SEGMENT).name}"
    return system.run(python, "-I", f"{system.inside}/dist_probe.py", "", segment).splitlines()[0]


STEPS = {
    "pip install": install,
    "--version": version,
    "check good": check_good,
    "check damaged": check_damaged,
    "conformance": conformance,
    "imports": imports,
}


def attempt(system: System, wheels: Path, jobs: int) -> Row:
    """Make a system, carry out all steps there until one fails, and return the row."""
    platform = f"{system.family} {system.machine}"
    number, ran, results = system.version, [], []
    try:
        wheel = fitting(wheels, system.version, system.family, system.machine)
        system.make(jobs)
        fill(system, dependencies(system, wheel))
        for name, step in STEPS.items():
            ran.append(name)
            results.append(step(system))
        script = "import platform; print(platform.python_version())"
        number = system.run(f"{system.inside}/venv/bin/python", "-c", script).strip()
        return Row(
            number,
            platform,
            system.text,
            tuple(ran),
            "ok: " + "; ".join(filter(None, results)),
            True,
        )
    except dist.DistError as error:
        print(f"trial: {system.name}: {error}", file=sys.stderr)
        problem = str(error).splitlines()[0][:200]
        return Row(number, platform, system.text, tuple(ran), f"FAILED: {problem}", False)

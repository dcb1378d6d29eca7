"""An ARM64 machine in build/arm, run by qemu-user: Debian's Python 3.11, wheels, cross-built
modules.

    root/    python3.11:arm64 of Debian bookworm and its libraries, unpacked from .deb files
    site/    the published aarch64 wheels of what the package and its tests import
    lib/     the extension modules of this tree, compiled for ARM64 with the flags of setup.py
    tree/    a copy of the package, its tests and fixtures, with those modules
    python   starts root's Python under qemu: a program, so sys.executable works in the tests

All of it is kept; a second run downloads nothing and compiles only what changed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

from tools import dist

ROOT = Path(__file__).resolve().parents[1]
ARM = ROOT / "build" / "arm"
SYSROOT, SITE, LIB, TREE = ARM / "root", ARM / "site", ARM / "lib", ARM / "tree"
PYTHON = ARM / "python"
QEMU, GCC = "qemu-aarch64-static", "aarch64-linux-gnu-gcc"

#: programs and the Debian packages that have them
PROGRAMS = {
    QEMU: ("qemu-user-static",),
    GCC: ("gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"),
    "apt-get": ("apt",),
    "dpkg-deb": ("dpkg",),
}
SUITE, KEYRING = "bookworm", Path("/usr/share/keyrings/debian-archive-keyring.gpg")
#: the interpreter, and what numpy's wheel expects of every Linux
PACKAGES = ("python3.11", "libstdc++6")
MIRROR = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")
#: what tests/core imports, of the extras in pyproject.toml
FOR_TESTS = {"aiokafka", "hypothesis", "kafka-python", "pyarrow", "pytest", "pytest-xdist"}
COPIED = ("batchval", "docs", "fixtures", "tests", "tools")


class Missing(Exception):
    """Something that this machine lacks, in one line."""


def run(*command: str | Path, cwd: Path = ROOT, env: dict[str, str] | None = None) -> str:
    """Run a command and return its output. Missing, with the end of that output, if it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words,
        cwd=cwd,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Missing(f"{words[0]} failed with status {done.returncode}: {done.stdout[-4000:]}")
    return done.stdout


def programs() -> None:
    """Install the programs that are not here. Missing where that needs root or Debian."""
    lacking = sorted(
        {name for has, names in PROGRAMS.items() if not shutil.which(has) for name in names}
    )
    if not KEYRING.exists():
        lacking.append("debian-archive-keyring")
    if not lacking:
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise Missing(f"missing: {' '.join(lacking)}. Install them, or run this as root on Debian")
    print(f"installing {' '.join(lacking)}", flush=True)
    run("apt-get", "-qq", "update")
    install = ("install", "--yes", "--no-install-recommends", *lacking)
    run("apt-get", "-qq", *install, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})


def _apt(*arguments: str, cwd: Path) -> None:
    """Run apt-get for arm64 on lists and archives in build/arm: the host's packages stay."""
    own = ARM / "apt"
    options = {
        "Dir::State": own,
        "Dir::State::lists": own / "lists",
        "Dir::State::status": own / "status",
        "Dir::Cache": own / "cache",
        "Dir::Etc::sourcelist": own / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
    }
    if os.geteuid() == 0:
        options["APT::Sandbox::User"] = "root"  # apt's own user cannot read a home directory
    settings = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    run("apt-get", "-qq", *settings, *arguments, cwd=cwd)


def sysroot() -> None:
    """Unpack Debian's Python and its headers. The archive's signatures are checked by apt."""
    done = ARM / ".root"
    wanted = " ".join((SUITE, *PACKAGES))
    if done.exists() and done.read_text("ascii") == wanted:
        return
    print("ARM64: fetching Debian's python3.11", flush=True)
    shutil.rmtree(SYSROOT, ignore_errors=True)
    own = ARM / "apt"
    for folder in (
        own / "lists" / "partial",
        own / "cache" / "archives" / "partial",
        own / "extra",
    ):
        folder.mkdir(parents=True, exist_ok=True)
    (own / "status").touch()
    (own / "sources.list").write_text(f"deb [signed-by={KEYRING}] {MIRROR} {SUITE} main\n", "ascii")
    _apt("update", cwd=own)
    _apt("install", "--yes", "--no-install-recommends", "--download-only", *PACKAGES, cwd=own)
    # Python.h, without a compiler's libraries
    _apt("download", "libpython3.11-dev", cwd=own / "extra")
    for deb in sorted(
        [*(own / "cache" / "archives").glob("*.deb"), *(own / "extra").glob("*.deb")]
    ):
        run("dpkg-deb", "--extract", deb, SYSROOT)
    done.write_text(wanted, "ascii")


def requirements() -> list[str]:
    """Return what tests/core needs installed, as pyproject.toml declares it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    found = {
        line: re.split(r"[\[<>=!~ ;]", line)[0] for line in project["optional-dependencies"]["test"]
    }
    return [
        *project["dependencies"],
        *sorted(line for line, name in found.items() if name in FOR_TESTS),
    ]


def site() -> None:
    """Install the published aarch64 wheels into site/. Nothing is compiled."""
    wanted = requirements()
    done = ARM / ".site"
    if done.exists() and done.read_text("utf-8").splitlines() == wanted:
        return
    print("ARM64: installing wheels", flush=True)
    shutil.rmtree(SITE, ignore_errors=True)
    platforms = dist.manylinux("aarch64")
    target = ["--target", str(SITE), "--only-binary", ":all:"]
    target += ["--python-version", "3.11", "--implementation", "cp"]
    for abi in ("cp311", "abi3", "none"):
        target += ["--abi", abi]
    for platform in platforms:
        target += ["--platform", platform]
    run(sys.executable, "-m", "pip", "--disable-pip-version-check", "install", *target, *wanted)
    done.write_text("\n".join(wanted) + "\n", "utf-8")


def cross_environment() -> dict[str, str]:
    """Return the environment in which setuptools builds for ARM64: Debian's own record of its
    Python.
    """
    name = "_sysconfigdata__aarch64-linux-gnu"
    folder = ARM / "sysconfig"
    folder.mkdir(exist_ok=True)
    shutil.copy(SYSROOT / "usr/lib/python3.11" / f"{name}.py", folder)
    include = SYSROOT / "usr/include"
    ccache = "ccache " if shutil.which("ccache") else ""
    return {
        **os.environ,
        "BATCHVAL_BUILD": "release",
        "_PYTHON_HOST_PLATFORM": "linux-aarch64",
        "_PYTHON_SYSCONFIGDATA_NAME": name,
        "PYTHONPATH": str(folder),
        "CC": ccache + GCC,
        "LDSHARED": f"{GCC} -shared",
        # before the folder of the Python that runs setuptools, which is for another processor
        "CFLAGS": f"-I{include / 'python3.11'} -I{include}",
    }


def modules(wheel: Path | None) -> str:
    """Fill lib/ from a wheel, or compile what changed. Returns where the modules are from."""
    if wheel is not None:
        shutil.rmtree(LIB, ignore_errors=True)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(LIB, [name for name in archive.namelist() if name.endswith(".so")])
        return wheel.name
    print("ARM64: compiling the extension modules", flush=True)
    places = ("--build-lib", str(LIB), "--build-temp", str(ARM / "temp"))
    command = (sys.executable, "setup.py", "--quiet", "build_ext", *places)
    log = run(*command, cwd=ROOT, env=cross_environment())
    (ARM / "build.log").write_text(log, "utf-8")
    return GCC


def tree() -> None:
    """Copy the package, its tests and fixtures, and add the modules of lib/."""
    shutil.rmtree(TREE, ignore_errors=True)
    for name in COPIED:
        shutil.copytree(
            ROOT / name, TREE / name, ignore=shutil.ignore_patterns("*.so", "__pycache__", "target")
        )
    for name in ("pyproject.toml", "setup.py", "README.md"):
        shutil.copy(ROOT / name, TREE)
    sources = sorted((TREE / "batchval").rglob("*.pyx"))
    for source in sources:
        module = source.with_suffix(".cpython-311-aarch64-linux-gnu.so")
        built = LIB / module.relative_to(TREE)
        if not built.exists():
            raise Missing(
                f"no ARM64 module for {source.relative_to(TREE)}: remove {LIB} and run this again"
            )
        shutil.copy(built, module)


def launcher() -> None:
    """Write the program ``python``."""
    program = f"{QEMU} -L '{SYSROOT}' -0 '{PYTHON}'"
    environment = f"-E PYTHONHOME='{SYSROOT}/usr' -E PYTHONPATH='{SITE}'"
    command = f"exec {program} {environment} '{SYSROOT}/usr/bin/python3.11' \"$@\""
    PYTHON.write_text(f"#!/bin/sh\n{command}\n", "utf-8")
    PYTHON.chmod(0o755)


def prepare(wheel: Path | None) -> str:
    """Make or complete the machine. Returns where the modules are from. Missing where it cannot."""
    ARM.mkdir(parents=True, exist_ok=True)
    programs()
    sysroot()
    site()
    source = modules(wheel)
    tree()
    launcher()
    return source

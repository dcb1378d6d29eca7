"""The systems that wheels are tried on: how each is made, and how a command runs in it.

All have one folder for the trial, which is made again for each run: the wheels, the fixtures, and
an environment of the system's CPython, venv.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

from tools import dist, python_headers
from tools.trial.debian import WORK, Archive, bare_tree, unpack
from tools.trial.musl import Musl

QEMU = "qemu-aarch64-static"
MUSL_TEXT = "musl 1.2.5 of Debian and CPython compiled here"
#: /dev/null is there for programs that discard output; the network namespace has no way out
_ENTER = 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"'


class System:
    """This machine's own CPython of one version, in an environment without a compiler."""

    family, machine = "manylinux", "x86_64"

    def __init__(self, name: str, version: str) -> None:
        self.name, self.version = name, version
        self.folder = WORK / "folders" / name  # on the host
        self.inside = str(self.folder)  # the same for commands in the system
        self.python = ""

    @property
    def text(self) -> str:
        """Return what the table calls the system."""
        return f"Debian {_host_release()}, pyenv"

    def make(self, jobs: int) -> None:
        """Make the system, or find what an earlier run made. Raises DistError."""
        found = python_headers.interpreter(self.version)
        if found is None:
            raise dist.DistError(f"neither the path nor pyenv has CPython {self.version}")
        self.python = found.program

    def environment(self) -> None:
        """Make the folder's environment, with the pip that CPython brings."""
        self.run(self.python, "-m", "venv", f"{self.inside}/venv")

    def pip(self) -> list[str]:
        """Return the command that is pip in the environment."""
        return [f"{self.inside}/venv/bin/python", "-m", "pip"]

    def tags(self) -> list[str]:
        """Return pip's options where pip cannot find the system's tags itself."""
        return []

    def run(self, *words: str, code: int = 0) -> str:
        """Run a command in the system and return its output. DistError for another exit code."""
        done = subprocess.run(
            self.command(*words),
            env={"PATH": self.path(), "HOME": self.inside, "LANG": "C.UTF-8", "COLUMNS": "200"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != code:
            last = "\n".join(done.stdout.splitlines()[-12:])
            raise dist.DistError(
                f"{' '.join(words)}: exit code {done.returncode}, expected {code}\n{last}"
            )
        return done.stdout

    def path(self) -> str:
        """Return the path of programs for the system's commands."""
        return f"{self.inside}/venv/bin"

    def command(self, *words: str) -> list[str]:
        """Return the command of the host that runs a command of the system."""
        return [_program("unshare"), "--net", *words]


class Tree(System):
    """A folder that holds a system of this processor, entered by chroot."""

    def __init__(self, name: str, version: str) -> None:
        super().__init__(name, version)
        self.tree = Path()
        self.inside = "/trial"

    @property
    def text(self) -> str:
        return f"Debian {self.name}, debootstrap minbase"

    def make(self, jobs: int) -> None:
        self.tree = bare_tree(self.name)
        self.folder = self.tree / "trial"
        self.python = "/usr/bin/python3"

    def path(self) -> str:
        return f"{super().path()}:/usr/sbin:/usr/bin:/bin"  # chroot of the host, too

    def command(self, *words: str) -> list[str]:
        enter = ["unshare", "--net", "--mount", "--propagation", "private", "/bin/sh", "-c", _ENTER]
        return [_program(enter[0]), *enter[1:], str(self.tree), *words]


class MuslTree(Tree):
    """A folder with musl and CPython, and nothing else."""

    family = "musllinux"

    @property
    def text(self) -> str:
        return MUSL_TEXT

    def make(self, jobs: int) -> None:
        self.tree = Musl(self.machine, self.version, jobs).make()
        self.folder = self.tree / "trial"
        self.python = f"/usr/bin/python{self.version}"
        for name in ("proc", "dev", "tmp"):
            (self.tree / name).mkdir(exist_ok=True)
        null = self.tree / "dev" / "null"
        if not null.exists():
            os.mknod(null, stat.S_IFCHR | 0o666, os.makedev(1, 3))


class ArmTree(System):
    """A folder with CPython for ARM64. qemu runs it, and finds its libraries in the folder."""

    machine = "aarch64"

    def __init__(self, name: str, version: str) -> None:
        super().__init__(name, version)
        self.suite = name.removeprefix("arm-")
        self.tree = WORK / "trees" / name

    @property
    def text(self) -> str:
        return f"Debian {self.suite} arm64, packages unpacked, {QEMU}"

    def make(self, jobs: int) -> None:
        if not self.tree.is_dir():
            fresh = self.tree.with_suffix(".new")
            shutil.rmtree(fresh, ignore_errors=True)
            packages = (f"python{self.version}", "libstdc++6", "python3-pip-whl")
            unpack(Archive(self.suite, "arm64").closure(*packages), fresh)
            if not (fresh / "lib").exists():
                (fresh / "lib").symlink_to("usr/lib")  # as base-files has it since trixie
            fresh.rename(self.tree)
        self.python = f"{self.tree}/usr/bin/python{self.version}"

    def environment(self) -> None:
        """Write an environment whose python starts qemu, so that sys.executable works."""
        venv = self.folder / "venv"
        (venv / "bin").mkdir(parents=True)
        self.packages().mkdir(parents=True)
        home = f"home = {self.tree}/usr/bin\ninclude-system-site-packages = false\n"
        (venv / "pyvenv.cfg").write_text(home, "utf-8")
        python = venv / "bin" / "python"
        qemu = f"{_program(QEMU)} -L '{self.tree}' -0 '{python}'"
        python.write_text(f"#!/bin/sh\nexec {qemu} '{self.python}' \"$@\"\n", "utf-8")
        python.chmod(0o755)

    def packages(self) -> Path:
        """Return the environment's folder of packages."""
        return self.folder / "venv" / "lib" / f"python{self.version}" / "site-packages"

    def pip(self) -> list[str]:
        wheels = sorted(self.tree.glob("usr/share/python-wheels/pip-*.whl"))
        wheels += sorted(
            self.tree.glob(f"usr/lib/python{self.version}/ensurepip/_bundled/pip-*.whl")
        )
        return [f"{self.inside}/venv/bin/python", f"{wheels[0]}/pip"]


class ArmMusl(ArmTree):
    """A folder with musl and CPython for ARM64."""

    family = "musllinux"

    @property
    def text(self) -> str:
        return f"{MUSL_TEXT}, {QEMU}"

    def make(self, jobs: int) -> None:
        self.tree = Musl(self.machine, self.version, jobs).make()
        self.python = f"{self.tree}/usr/bin/python{self.version}"

    def environment(self) -> None:
        super().environment()
        (self.folder / "venv" / "bin" / "batchval").symlink_to(self.packages() / "bin" / "batchval")

    def tags(self) -> list[str]:
        # pip runs sys.executable's loader to find musl: here that is a script that starts qemu
        platforms = [part for tag in dist.musllinux(self.machine) for part in ("--platform", tag)]
        return ["--only-binary=:all:", *platforms, "--target", str(self.packages())]


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise dist.DistError(f"{name} is not here: install it with apt-get")
    return found


def _host_release() -> str:
    text = Path("/etc/os-release").read_text("utf-8")
    return next(
        (
            line.partition("=")[2]
            for line in text.splitlines()
            if line.startswith("VERSION_CODENAME=")
        ),
        "",
    )


def systems() -> dict[str, System]:
    """Return all systems by name, in the order of the table."""
    found: list[System] = [
        Tree("bookworm", "3.11"),
        Tree("trixie", "3.13"),
        Tree("sid", "3.14"),
        System("here-3.12", "3.12"),
        MuslTree("musl-3.11", "3.11"),
        MuslTree("musl-3.13", "3.13"),
        ArmTree("arm-bookworm", "3.11"),
        ArmTree("arm-trixie", "3.13"),
        ArmTree("arm-sid", "3.14"),
        ArmMusl("arm-musl-3.11", "3.11"),
    ]
    return {one.name: one for one in found}

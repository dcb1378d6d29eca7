"""The machine of a rehearsal: a bare Debian tree, and commands that run in it.

Each command has a mount namespace of its own with /proc and /dev/shm, so that nothing stays mounted
when it ends. It has the host's network, and of the host's variables none.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tools.rehearsal.steps import StepFailed, expect, expect_equal
from tools.rehearsal.wheels import WORK

BASE = WORK / "base"
SUITE = "bookworm"
PACKAGES = "python3,python3-venv"
#: none of them may be in the tree
BUILD_TOOLS = ("cc", "gcc", "g++", "c++", "clang", "tcc", "ld", "as", "make", "cython")
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "COLUMNS": "200",
}
_ENTER = (
    'mount -t proc proc "$0/proc" && mount -t tmpfs tmpfs "$0/dev/shm" && exec chroot "$0" "$@"'
)


def make_base() -> str:
    """Make the base tree unless an earlier run has; return where it comes from."""
    if BASE.is_dir():
        return "kept from an earlier run"
    fresh = BASE.with_suffix(".new")
    shutil.rmtree(fresh, ignore_errors=True)
    command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(fresh)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    expect(done.returncode == 0, f"debootstrap: exit code {done.returncode}\n{done.stdout[-2000:]}")
    fresh.rename(BASE)
    return "made by debootstrap"


class Tree:
    """A copy of the base tree. Output of its commands is added to ``log``, which its user sets."""

    def __init__(self) -> None:
        """Copy the base tree into a new folder."""
        self.root = Path(tempfile.mkdtemp(prefix="tree-", dir=WORK))
        self.log = Path(os.devnull)
        subprocess.run(["cp", "-a", "--reflink=auto", f"{BASE}/.", str(self.root)], check=True)
        # no name resolves, so nothing can be fetched but from an address that a command names
        (self.root / "etc" / "resolv.conf").unlink(missing_ok=True)
        (self.root / "dev" / "shm").mkdir(exist_ok=True)

    def path(self, inside: str) -> Path:
        """Return where a path of the tree is on the host; its folder is made."""
        outside = self.root / inside.lstrip("/")
        outside.parent.mkdir(parents=True, exist_ok=True)
        return outside

    def write(self, inside: str, content: str | bytes) -> None:
        """Write a file of the tree."""
        self.path(inside).write_bytes(content.encode() if isinstance(content, str) else content)

    def start(self, *words: str, stdout: int, stderr: int) -> subprocess.Popen[bytes]:
        """Start a command in the tree. A signal to the process reaches the command itself."""
        enter = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _ENTER]
        return subprocess.Popen(
            [*enter, str(self.root), *words],
            env=ENVIRONMENT,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )

    def run(self, *words: str, code: int = 0, timeout: float = 600.0) -> str:
        """Run a command in the tree and return its standard output.

        StepFailed for another exit code, or after ``timeout`` seconds.
        """
        line = shlex.join(words)
        with running(self.start(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)) as process:
            try:
                out, err = (
                    part.decode(errors="replace") for part in process.communicate(timeout=timeout)
                )
            except subprocess.TimeoutExpired:
                raise StepFailed(f"{line}: still running after {timeout:g} s") from None
        with self.log.open("a") as log:
            log.write(f"$ {line}\n{out}{err}exit code {process.returncode}\n\n")
        if process.returncode != code:
            last = "\n".join((out + err).splitlines()[-8:])
            raise StepFailed(f"{line}: exit code {process.returncode}, expected {code}\n{last}")
        return out

    def check_bare(self) -> str:
        """Return the tree's Python version. StepFailed if it differs, or the tree is not bare."""
        found = [tool for tool in BUILD_TOOLS if shutil.which(tool, path=self._search_path())]
        expect(not found, f"the tree has {', '.join(found)}: a bare tree has no build tools")
        expect(not list(self.root.glob("usr/include/python*/Python.h")), "the tree has Python.h")
        self.run("python3", "-c", "import socket; socket.getaddrinfo('pypi.org', 443)", code=1)
        program = "import sys; print('%d.%d' % sys.version_info[:2])"
        version = self.run("python3", "-c", program).strip()
        own = "{}.{}".format(*sys.version_info[:2])
        expect_equal("wheels fit one version: the Python of the tree is", version, own)
        return version

    def _search_path(self) -> str:
        return os.pathsep.join(f"{self.root}{folder}" for folder in ENVIRONMENT["PATH"].split(":"))

    def remove(self) -> None:
        """Remove the tree. Its commands must have ended."""
        shutil.rmtree(self.root, ignore_errors=True)


@contextlib.contextmanager
def running(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Kill a process and all it has started at the end of the block, unless it has ended."""
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()

"""A shell that runs the commands of a page, one after the other, as a reader does."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Self

from tests.support.sources import ROOT

#: seconds until the commands of one session are ended
MAX_SESSION_S = 300
_MARK = "the exit code is:"
#: the ports of the pages: the gate's, its brokers', its metrics'
_PORTS = re.compile(r"\b(?:909([2-9])|9464)\b")


def free_ports() -> str:
    """Return the first digits of ten ports that nothing listens to, below those of clients."""
    for prefix in range(1100 + os.getpid() % 1000, 3000):
        with contextlib.ExitStack() as stack:
            try:
                for digit in range(10):
                    stack.enter_context(socket.create_server(("127.0.0.1", 10 * prefix + digit)))
            except OSError:
                continue
            return str(prefix)
    raise OSError("ten free ports in a row are required below 30000")


class Shell:
    """A bash process in a folder. Its group of processes ends with it.

    ``batchval`` and ``python`` are this interpreter's. Ports 909x and 9464 of the pages are
    replaced by free ones, so that runs of the tests do not disturb each other.
    """

    def __init__(self, folder: Path) -> None:
        self._ports = free_ports()
        programs = folder / "bin"
        programs.mkdir()
        for program, arguments in (("batchval", "-m batchval"), ("python", "")):
            path = programs / program
            path.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
            path.chmod(0o755)
        path = f"{programs}:{os.environ['PATH']}"
        self._process = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(ROOT), "PATH": path, "COLUMNS": "100"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._timer = threading.Timer(MAX_SESSION_S, self._kill)

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._kill()
        self._process.communicate()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def own_ports(self, text: str) -> str:
        """Return a text of a page with the ports of this shell."""
        return _PORTS.sub(lambda found: self._ports + (found[1] or "0"), text)

    @staticmethod
    def _shown_port(found: re.Match[str]) -> str:
        """Return the port that the pages show for a port of this shell."""
        return "9464" if found[1] == "0" else f"909{found[1]}"

    def run(self, command: str) -> str:
        """Return what a command prints, and a line ``exit code N`` where it is not 0."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{self.own_ports(command)}\nprintf '\\n{_MARK} %s\\n' $?\n")
        self._process.stdin.flush()
        lines: list[str] = []
        while not (line := self._process.stdout.readline()).startswith(_MARK):
            assert line, f"the shell ended in: {command}"
            lines.append(line)
        printed = "".join(lines).removesuffix("\n")
        printed = "".join(f"{one.rstrip()}\n" for one in printed.splitlines())
        # whole numbers only: 2026 can be the first digits of the ports, and a year
        printed = re.sub(rf"\b{self._ports}(\d)\b", self._shown_port, printed)
        code = int(line.removeprefix(_MARK))
        return printed + (f"exit code {code}\n" if code else "")

"""A runner: a program that judges cases for another implementation, one JSON line each way.

``Runner.ask`` writes one case a line and reads one verdict a line, with up to WINDOW cases under
way. A runner that ends, stays silent or writes another line is stopped and started again. The cases
that were under way are then asked one at a time, so that one of them is at fault for certain.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from batchval.errors import BatchvalError

__all__ = ["Failure", "Runner", "RunnerStopped"]

#: cases under way
WINDOW = 16
#: failures without a verdict between them, after which no other case is asked
MOST_FAILURES = 5
_LONGEST_LINE = 1 << 20
_KEPT_STDERR = 2000
_END_SECONDS = 5.0

Document = dict[str, Any]


class Failure(str):
    """Why a case has no verdict."""

    __slots__ = ()


class RunnerStopped(BatchvalError):
    """The runner cannot be started, or failed MOST_FAILURES times without a verdict."""


class _Fault(Exception):
    """The process cannot be used any more. The text says why."""


class _Process:
    """A started runner with its three pipes, none of which blocks."""

    def __init__(self, command: Sequence[str]) -> None:
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            raise RunnerStopped(f"cannot start {command[0]!r}: {error.strerror or error}") from None
        self._unsent = bytearray()
        self._received = bytearray()
        self._stderr = bytearray()
        self._selector = selectors.DefaultSelector()
        for file in (self._process.stdout, self._process.stderr):
            assert file is not None
            os.set_blocking(file.fileno(), False)
            self._selector.register(file, selectors.EVENT_READ)
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)

    @property
    def stderr(self) -> str:
        """The end of what the process wrote to standard error."""
        return self._stderr.decode("utf-8", "replace").strip()

    def send(self, line: bytes) -> None:
        """Queue a line; ``receive`` writes it."""
        if not self._unsent:
            stdin: Any = self._process.stdin
            self._selector.register(stdin, selectors.EVENT_WRITE)
        self._unsent += line

    def receive(self, timeout: float) -> list[bytes]:
        """Return at least one line. Raises _Fault."""
        end = time.monotonic() + timeout
        while b"\n" not in self._received:
            if len(self._received) > _LONGEST_LINE:
                raise _Fault(f"a line of more than {_LONGEST_LINE:,} bytes")
            left = end - time.monotonic()
            if left <= 0:
                raise _Fault(f"no verdict within {timeout:g} s (a runner must flush each line)")
            for key, _ in self._selector.select(left):
                self._exchange(key.fileobj)
        *lines, rest = self._received.split(b"\n")
        self._received = rest
        return [bytes(line) for line in lines]

    def _exchange(self, file: Any) -> None:
        if file is self._process.stdin:
            self._write()
        elif file is self._process.stderr:
            self._read_stderr()
        else:
            data = file.read(1 << 16)
            if data == b"":
                raise _Fault(self._ending())
            self._received += data or b""

    def _write(self) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        try:
            written = stdin.write(self._unsent[: 1 << 16]) or 0
        except BrokenPipeError:
            written = len(self._unsent)  # the end of standard output says why
        del self._unsent[:written]
        if not self._unsent:
            self._selector.unregister(stdin)

    def _read_stderr(self) -> None:
        stderr = self._process.stderr
        assert stderr is not None
        data = stderr.read(1 << 16)
        if data == b"":
            self._selector.unregister(stderr)
        self._stderr += data or b""
        del self._stderr[:-_KEPT_STDERR]

    def _ending(self) -> str:
        """Return how the process ended: its standard output is closed."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        with suppress(KeyError, ValueError):
            self._read_stderr()
        code = self._process.returncode
        if code is None:
            return "closed its standard output"
        if code < 0:
            return f"ended by {signal.Signals(-code).name}"
        return f"ended with exit status {code}"

    def close(self, patience: float = 0) -> None:
        """Close standard input, wait, and kill the process and its children."""
        with suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr]
        with suppress(subprocess.TimeoutExpired):
            if patience:
                self._process.wait(patience)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._selector.close()
        for file in (self._process.stdout, self._process.stderr):
            file.close()  # type: ignore[union-attr]


class Runner:
    """Asks a command for verdicts. ``stderr`` is the end of what a failed process wrote there.

    ``timeout``: seconds of silence, with a case under way, after which a process has failed.
    ``faults``: what was wrong outside any case, for example an answer to no case.
    """

    def __init__(self, command: Sequence[str], timeout: float) -> None:
        self._command = command
        self._timeout = timeout
        self._process: _Process | None = None
        self._failures = 0
        self.faults: list[str] = []
        self.stderr = ""

    def ask(self, questions: Iterable[Document]) -> Iterator[tuple[str, Document | Failure]]:
        """Yield the id of each question with its verdict, or why there is none.

        Raises:
            RunnerStopped: the command cannot be started, or does not answer any more.
        """
        queue, alone = deque(questions), deque[Document]()
        under_way: dict[str, Document] = {}
        try:
            while queue or alone:
                try:
                    yield from self._exchange(alone or queue, under_way, 1 if alone else WINDOW)
                except _Fault as fault:
                    self._stop(str(fault))
                    if len(under_way) > 1:
                        alone.extend(under_way.values())
                    elif under_way:
                        yield next(iter(under_way)), Failure(fault)
                        self._failures += 1
                    else:
                        self.faults.append(str(fault))
                    under_way.clear()
                    if self._failures >= MOST_FAILURES:
                        raise RunnerStopped(
                            f"the runner failed {MOST_FAILURES} times in a row: {fault}"
                        ) from None
        finally:
            if self._process is not None:
                self._process.close(0 if under_way else _END_SECONDS)
                self._process = None

    def _stop(self, fault: str) -> None:
        assert self._process is not None
        self.stderr = self._process.stderr
        self._process.close()
        self._process = None

    def _exchange(
        self, source: deque[Document], under_way: dict[str, Document], window: int
    ) -> Iterator[tuple[str, Document | Failure]]:
        """Ask what the source holds, with at most ``window`` cases under way. Raises _Fault."""
        if self._process is None:
            self._process = _Process(self._command)
        while source or under_way:
            while source and len(under_way) < window:
                question = source.popleft()
                under_way[question["id"]] = question
                self._process.send(json.dumps(question).encode() + b"\n")
            for line in self._process.receive(self._timeout):
                name, verdict = _verdict(line, under_way)
                del under_way[name]
                self._failures = 0
                yield name, verdict


def _verdict(line: bytes, under_way: dict[str, Document]) -> tuple[str, Document | Failure]:
    """Return the case that a line answers, and its verdict. Raises _Fault where it answers none."""
    shown = line[:80].decode("utf-8", "backslashreplace")
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        raise _Fault(f"a line that is not JSON: {shown!r}") from None
    if not isinstance(document, dict) or not isinstance(document.get("id"), str):
        raise _Fault(f"a line without an id: {shown!r}")
    name = document["id"]
    if name not in under_way:
        raise _Fault(f"a verdict for the id {name[:80]!r}, which was not asked")
    accept, records = document.get("accept"), document.get("records")
    if isinstance(document.get("skip"), str) and accept is None:
        return name, document
    fitting = isinstance(accept, bool) and isinstance(document.get("error"), str | None)
    if not fitting or not (records is None or type(records) is int):
        return name, Failure(f"not a verdict: {shown!r}")
    return name, document

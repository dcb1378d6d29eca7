"""One worker as its parent has it: a process, its sockets, its state, its connections."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

from batchval.proxy.kit.state_machine import StateMachine
from batchval.proxy.workers.channel import MAX_PACKET_BYTES, Channel, Pairs, pass_connection
from batchval.proxy.workers.control_messages import (
    AnswerMessage,
    Begin,
    Drain,
    PassedHeader,
    Question,
    WorkerConfiguration,
)
from batchval.proxy.workers.worker_states import TRANSITIONS, WorkerEvent, WorkerState

__all__ = ["Worker", "WorkerOwner"]

#: Seconds for what a worker has written before it ended.
LAST_WORDS_S: Final = 1.0
_ROOT: Final = Path(__file__).resolve().parents[3]
#: Of the gate's service manager: the state directory is the parent's.
_NOT_INHERITED: Final = (
    "STATE_DIRECTORY",
    "NOTIFY_SOCKET",
    "LISTEN_FDS",
    "LISTEN_PID",
    "WATCHDOG_USEC",
)


class WorkerOwner(Protocol):
    """The receiver of a worker's messages."""

    def received(self, worker: Worker, message: object) -> None: ...
    def asked(self, question: object) -> object: ...
    def ended(self, worker: Worker, code: int) -> None: ...


class Worker(StateMachine[WorkerState, WorkerEvent]):
    """One of the gate's workers. Its process is replaced; the object stays.

    ``starts``       how often a process was created
    ``limit``        of connections, which its open files suffice for
    ``connections``  number -> what the parent has passed and is not gone yet
    ``heard``        when it has sent something last, by the loop's clock
    ``validated``    batches that this process has validated
    ``is_full``      it has not taken the connections that were passed last
    """

    transitions = TRANSITIONS

    def __init__(self, index: int, owner: WorkerOwner) -> None:
        self.index = index
        self.state = WorkerState.DEAD
        self.starts = 0
        self.limit = 0
        self.connections: dict[int, Any] = {}
        self.heard = 0.0
        self.validated = 0
        self.is_full = False
        self._owner = owner
        self._process: asyncio.subprocess.Process | None = None
        self._pairs: Pairs | None = None
        self._channel: Channel | None = None
        self._silent = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self._questions: dict[int, asyncio.Future[bytes]] = {}
        self._asked = 0

    @property
    def key(self) -> tuple[int, int]:
        """Return which process of which worker this is."""
        return self.index, self.starts

    @property
    def pid(self) -> int | None:
        """Return the id of the process, while it runs."""
        return None if self._process is None else self._process.pid

    async def spawn(self, parts: Callable[[], WorkerConfiguration]) -> None:
        """Create the process. Raises OSError.

        ``parts`` is called as late as can be: messages that are sent after that reach the process.
        """
        loop = asyncio.get_running_loop()
        ends, theirs = Pairs.made()
        numbers = [one.fileno() for one in theirs]
        try:
            process = await asyncio.create_subprocess_exec(
                *_command(numbers),
                pass_fds=numbers,
                env=_environment(),
                stdin=asyncio.subprocess.DEVNULL,
            )
        except BaseException:
            ends.close()
            raise
        finally:
            theirs.close()
        self._process = process
        self.move(WorkerEvent.SPAWN)
        self.starts += 1
        self.heard, self.validated, self.is_full = loop.time(), 0, False
        self._pairs = ends
        self._silent = asyncio.Event()
        channel = Channel(self._received, self._silent.set)
        self._watching = loop.create_task(self._watch(process, channel))
        ends.asking.setblocking(False)
        loop.add_reader(ends.asking.fileno(), self._answer, ends.asking)
        try:
            await channel.open(ends.control)
            channel.send(Begin(sys.path, pickle.dumps(parts())))
        except BaseException as error:
            self.kill()
            if isinstance(error, OSError):  # its end is reported
                return
            raise
        if self._process is process:  # else it has ended meanwhile
            self._channel = channel

    async def _watch(self, process: asyncio.subprocess.Process, channel: Channel) -> None:
        """Wait for the end of the process, and for what it has sent before."""
        code = await process.wait()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._silent.wait(), LAST_WORDS_S)
        assert self._pairs is not None
        asyncio.get_running_loop().remove_reader(self._pairs.asking.fileno())
        channel.close()
        self._pairs.passing.close()
        self._pairs.asking.close()
        self._process = self._channel = self._pairs = None
        for question in self._questions.values():
            question.cancel()
        self._questions.clear()
        self._owner.ended(self, code)

    async def wait_ended(self) -> None:
        """Wait until the process has ended and that was reported."""
        if self._watching is not None:
            await asyncio.wait((self._watching,))

    # ---- messages --------------------------------------------------------------------------------

    def _received(self, message: object) -> None:
        self.heard = asyncio.get_running_loop().time()
        if isinstance(message, AnswerMessage) and (
            question := self._questions.pop(message.number, None)
        ):
            if not question.done():
                question.set_result(message.content)
            return
        self._owner.received(self, message)

    def _answer(self, asking: socket.socket) -> None:
        """Answer a question for which the worker waits."""
        try:
            packet = asking.recv(MAX_PACKET_BYTES)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        if not packet:
            asyncio.get_running_loop().remove_reader(asking.fileno())
            return
        number, question = pickle.loads(packet)
        with contextlib.suppress(OSError):  # it has ended
            asking.send(pickle.dumps((number, self._owner.asked(question))))

    def send(self, message: object) -> None:
        """Send a message; nothing once the worker is gone."""
        if self._channel is not None:
            self._channel.send(message)

    async def ask(self, what: Any, timeout_s: float, content: bytes = b"") -> bytes | None:
        """Return the answer to a question; None where there is none in time."""
        if self.state not in (WorkerState.SERVING, WorkerState.DRAINING):
            return None
        self._asked += 1
        number = self._asked
        future = self._questions[number] = asyncio.get_running_loop().create_future()
        self.send(Question(number, what, content))
        try:
            await asyncio.wait((future,), timeout=timeout_s)
            return None if not future.done() or future.cancelled() else future.result()
        finally:
            self._questions.pop(number, None)

    def give(self, header: PassedHeader, connection: socket.socket, passed: object) -> None:
        """Pass a connection. Raises BlockingIOError, OSError."""
        if self._pairs is None:
            raise BrokenPipeError
        pass_connection(self._pairs.passing, header, connection)
        self.connections[header.number] = passed

    def drain(self, seconds: float) -> None:
        """Let it deliver what is under way and end."""
        self.move(WorkerEvent.DRAIN)
        self.send(Drain(seconds))

    def kill(self) -> None:
        """End the process at once."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()


def _command(numbers: list[int]) -> list[str]:
    """Return the command of a worker, with the interpreter's options about module paths."""
    flags = sys.flags
    options = [
        option
        for option, is_set in (("-I", flags.isolated), ("-E", flags.ignore_environment))
        if is_set
    ]
    # -P: the current directory, which others may be able to write, holds no module
    module = "batchval.proxy.workers.worker"
    return [sys.executable, "-P", *options, "-m", module, *map(str, numbers)]


def _environment() -> dict[str, str]:
    """Return the parent's environment, with this package found first."""
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    paths = [str(_ROOT), *filter(None, [environment.get("PYTHONPATH")])]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    return environment

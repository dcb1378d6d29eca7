"""The workers of a gate: which one gets the next connection, and what follows when one ends.

A connection goes to the serving worker with the fewest, those with equally many in turn. Where no
worker takes one, the acceptors leave what comes in the kernel's backlog.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple, Protocol

from batchval.proxy.cluster.listening_sockets import Acceptor
from batchval.proxy.kit.background_threads import spawned
from batchval.proxy.settings.loading import ConfigError
from batchval.proxy.watch.metrics import Family, single
from batchval.proxy.workers.control_messages import (
    Closed,
    Failed,
    Heartbeat,
    PassedHeader,
    Ready,
    WorkerConfiguration,
)
from batchval.proxy.workers.worker_process import Worker
from batchval.proxy.workers.worker_states import WorkerEvent, WorkerState
from batchval.report.units import plural

__all__ = ["Accepted", "PoolOwner", "WorkerPool"]

#: Seconds before the process of a worker that ended is replaced, by how often it has failed in a
#: row; the last one holds from then on.
BACKOFF_S: Final = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
#: Seconds of service after which a worker's earlier failures do not count.
RECOVERED_S: Final = 60.0
#: Seconds for the start of a worker, and without a word of one that serves; then it is killed.
START_S: Final = 120.0
SILENT_S: Final = 30.0
LOOK_S: Final = 1.0
#: Seconds until a connection is offered again to workers that had not taken earlier ones.
AGAIN_S: Final = 0.005
#: Seconds that a worker may take to end, after those of the drain.
END_S: Final = 5.0

log = logging.getLogger("batchval.proxy")


class Admitted(Protocol):
    """A client that the parent has admitted."""

    def release(self) -> None: ...


class Accepted(NamedTuple):
    """A connection on its way to a worker."""

    connection: socket.socket
    header: PassedHeader
    admitted: Admitted


class PoolOwner(Protocol):
    """The parent's gate."""

    def parts_of(self, index: int) -> WorkerConfiguration: ...
    def received(self, message: object) -> None: ...
    def asked(self, question: object) -> object: ...


class WorkerPool:
    """All workers of a gate.

    ``restarts_total``  processes that ended although they should not, and were replaced
    """

    def __init__(self, count: int, owner: PoolOwner) -> None:
        self.workers = [Worker(index, self) for index in range(count)]
        self.restarts_total = 0
        self.acceptors: list[Acceptor] = []
        self._owner = owner
        self._failures = [0] * count  # in a row
        self._serves_since = [0.0] * count
        self._turn = 0
        self._validated_before = 0  # by processes that have ended
        self._waiting: deque[Accepted] = deque()
        self._again: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._started: asyncio.Future[None]
        self._has_started = False
        self._is_stopping = False
        self._looked = 0.0

    # ---- what others read ------------------------------------------------------------------------

    def _in(self, *states: WorkerState) -> list[Worker]:
        return [one for one in self.workers if one.state in states]

    @property
    def serving(self) -> list[Worker]:
        """Return the workers that take connections."""
        return self._in(WorkerState.SERVING)

    @property
    def validated(self) -> int:
        """Return the number of batches that all workers have validated."""
        return self._validated_before + sum(one.validated for one in self.workers)

    @property
    def capacity(self) -> int:
        """Return the number of connections that the open files of all workers suffice for."""
        return sum(one.limit for one in self.workers)

    def pids(self) -> list[int]:
        """Return the processes that run."""
        return [one.pid for one in self.workers if one.pid is not None]

    def ended_starts(self) -> dict[int, int]:
        """Return worker -> how many of its processes have ended."""
        return {one.index: one.starts - (one.pid is not None) for one in self.workers}

    def families(self) -> Iterator[Family]:
        """Yield the metrics about workers themselves."""
        yield single("gauge", "workers", "Workers that serve clients.", len(self.serving))
        text = "Workers that ended although they should not, and were replaced."
        yield single("counter", "worker_restarts", text, self.restarts_total)
        samples = [((str(one.index),), len(one.connections)) for one in self.workers]
        yield Family(
            "gauge",
            "worker_connections",
            "Client connections now, by worker.",
            ("worker",),
            samples,
        )

    # ---- start and end ---------------------------------------------------------------------------

    async def start(self) -> None:
        """Start all workers and wait until they serve. Raises ConfigError and OSError."""
        loop = asyncio.get_running_loop()
        self._started = loop.create_future()
        self._looked = loop.time()
        spawned(self._tasks, self._look())
        await asyncio.gather(*(self._start(one) for one in self.workers))
        await self._started

    async def _start(self, worker: Worker) -> None:
        await worker.spawn(partial(self._owner.parts_of, worker.index))

    async def stop(self, drain_s: float) -> None:
        """Let all workers deliver what is under way for so many seconds, and end them."""
        self._is_stopping = True
        for task in self._tasks:
            task.cancel()
        if self._again is not None:
            self._again.cancel()
        self._drop_waiting()
        alive = [one for one in self.workers if one.state is not WorkerState.DEAD]
        for worker in alive:
            worker.drain(drain_s)
        if not alive:
            return
        ends = [asyncio.ensure_future(one.wait_ended()) for one in alive]
        try:
            _, late = await asyncio.wait(ends, timeout=drain_s + END_S)
            if late:
                for worker in alive:
                    worker.kill()
                await asyncio.wait(late)
        finally:
            for end in ends:
                end.cancel()

    # ---- connections -----------------------------------------------------------------------------

    def add_acceptor(self, acceptor: Acceptor) -> None:
        """Note an acceptor. It accepts while a worker takes connections."""
        self.acceptors.append(acceptor)
        acceptor.hold(not self._may_accept())

    def take(self, accepted: Accepted) -> None:
        """Pass a connection to a worker, now or as soon as one takes it."""
        self._waiting.append(accepted)
        self._pass_waiting()

    def _may_accept(self) -> bool:
        return not self._waiting and self._least() is not None

    def _pass_waiting(self) -> None:
        while self._waiting and (worker := self._least()) is not None:
            connection, header, admitted = accepted = self._waiting.popleft()
            try:
                worker.give(header, connection, admitted)
            except OSError:  # it has not taken earlier ones, or is about to end
                self._waiting.appendleft(accepted)
                worker.is_full = True
                if self._again is None:
                    self._again = asyncio.get_running_loop().call_later(AGAIN_S, self._offer_again)
                continue
            except BaseException:
                connection.close()
                admitted.release()
                raise
            self._turn = worker.index + 1
            connection.close()
        is_held = not self._may_accept()
        for acceptor in self.acceptors:
            acceptor.hold(is_held)

    def _least(self) -> Worker | None:
        """Return the worker for the next connection."""
        count = len(self.workers)
        able = [one for one in self.serving if not one.is_full and len(one.connections) < one.limit]
        return min(
            able,
            key=lambda one: (len(one.connections), (one.index - self._turn) % count),
            default=None,
        )

    def _offer_again(self) -> None:
        self._again = None
        for worker in self.workers:
            worker.is_full = False
        self._pass_waiting()

    def _drop_waiting(self) -> None:
        while self._waiting:
            connection, _, admitted = self._waiting.popleft()
            connection.close()
            admitted.release()

    # ---- what workers say ------------------------------------------------------------------------

    def broadcast(self, message: object) -> None:
        """Send a message to all workers."""
        for worker in self.workers:
            worker.send(message)

    async def ask(
        self, what: str, timeout_s: float, content: bytes = b""
    ) -> dict[tuple[int, int], bytes]:
        """Return the answers of the workers that answer in time, by process."""
        workers = self._in(WorkerState.SERVING, WorkerState.DRAINING)
        keys = [one.key for one in workers]
        answers = await asyncio.gather(*(one.ask(what, timeout_s, content) for one in workers))
        return {
            key: answer for key, answer in zip(keys, answers, strict=True) if answer is not None
        }

    def asked(self, question: object) -> object:
        """Answer a worker that waits."""
        return self._owner.asked(question)

    def received(self, worker: Worker, message: object) -> None:
        """Take a message of a worker."""
        match message:
            case Closed(numbers):
                for number in numbers:
                    if (admitted := worker.connections.pop(number, None)) is not None:
                        admitted.release()
                if self._waiting or (self.acceptors and not worker.is_full):
                    self._pass_waiting()
            case Heartbeat(validated):
                worker.validated = validated
            case Ready(connections):
                self._is_ready(worker, connections)
                self._owner.received(message)
            case Failed():
                self._failed(message)
            case _:
                self._owner.received(message)

    def _is_ready(self, worker: Worker, connections: int) -> None:
        worker.limit = connections
        if worker.move(WorkerEvent.READY):
            self._serves_since[worker.index] = asyncio.get_running_loop().time()
            if self._has_started:
                log.info("worker %d serves", worker.index)
            elif len(self.serving) == len(self.workers):
                self._has_started = True
                self._started.set_result(None)
        if self._has_started:
            self._pass_waiting()

    def _failed(self, failed: Failed) -> None:
        """End the start with a worker's error; later, the log has it."""
        error = OSError(*failed.error) if failed.error is not None else ConfigError(failed.problems)
        if self._has_started:
            log.error("a worker cannot start: %s", error)
        else:
            self._cannot_start(error)

    def _cannot_start(self, error: Exception) -> None:
        if not self._started.done():
            self._started.set_exception(error)

    # ---- workers that end ------------------------------------------------------------------------

    def ended(self, worker: Worker, code: int) -> None:
        """Release what the worker had, and replace its process."""
        served = worker.state is WorkerState.SERVING
        worker.move(WorkerEvent.EXIT)
        self._validated_before, worker.validated = self._validated_before + worker.validated, 0
        connections, worker.connections = worker.connections, {}
        for admitted in connections.values():
            admitted.release()
        if self._is_stopping:
            return
        what = f"worker {worker.index} {_ending(code)}"
        if self._has_started:
            self._replace(worker, served, f"{what} with {plural(len(connections), 'connection')}")
        else:
            self._cannot_start(OSError(None, f"{what} before it served clients"))

    def _replace(self, worker: Worker, served: bool, what: str) -> None:
        now = asyncio.get_running_loop().time()
        if served and now - self._serves_since[worker.index] >= RECOVERED_S:
            self._failures[worker.index] = 0
        wait_s = BACKOFF_S[min(self._failures[worker.index], len(BACKOFF_S) - 1)]
        self._failures[worker.index] += 1
        self.restarts_total += 1
        log.error("%s: it is replaced %s", what, f"in {wait_s:g} s" if wait_s else "at once")
        self._pass_waiting()
        spawned(self._tasks, self._start_later(worker, wait_s))

    async def _start_later(self, worker: Worker, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        try:
            await self._start(worker)
        except OSError as error:
            self._replace(
                worker, False, f"worker {worker.index} cannot be started ({error.strerror})"
            )

    async def _look(self) -> None:
        """End workers whose event loop does not turn any more."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_S)
            now, before, self._looked = loop.time(), self._looked, loop.time()
            if now - before > 5 * LOOK_S:  # this process has stood still, and they may have, too
                for worker in self.workers:
                    worker.heard = now
                continue
            for worker in self._in(WorkerState.STARTING, WorkerState.SERVING):
                most_s = SILENT_S if worker.state is WorkerState.SERVING else START_S
                if now - worker.heard > most_s:
                    log.error(
                        "worker %d was silent for %d s: it is killed",
                        worker.index,
                        now - worker.heard,
                    )
                    worker.heard = now
                    worker.kill()


def _ending(code: int) -> str:
    """Return ``ended with exit status 1`` or ``was ended by SIGKILL``."""
    if code >= 0:
        return f"ended with exit status {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"

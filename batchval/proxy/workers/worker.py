"""A worker: ``python -m batchval.proxy.workers.worker CONTROL PASSING ASKING`` (descriptors).

Its parent starts it, and it ends with its parent: it drains as soon as ``control`` is closed.
It ignores SIGTERM, SIGINT and SIGHUP, which service managers and terminals send to all processes
of a gate: the parent decides. Secrets come over ``control``, never in arguments or the environment.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from typing import Any, Final

from batchval.network.loops import loop_factory
from batchval.proxy.cluster.discovery import ClusterNews, Discovery, DiscoveryOptions
from batchval.proxy.kit.background_threads import spawned
from batchval.proxy.kit.open_files import connections_allowed, raise_limit, reserve_for, too_few
from batchval.proxy.life.gate import Gate, ParentParts
from batchval.proxy.life.lifecycle import calm_collector, switch_soon
from batchval.proxy.session.session import Session
from batchval.proxy.settings.config import Settings
from batchval.proxy.settings.loading import ConfigError
from batchval.proxy.watch.audit_log import write_in_thread
from batchval.proxy.watch.clients import (
    MAX_CLIENTS,
    NOTHING_SERVED,
    ClientKey,
    Served,
)
from batchval.proxy.workers.channel import Channel, Pairs, connection_of, read_message
from batchval.proxy.workers.control_messages import (
    AnswerMessage,
    Apply,
    Begin,
    Closed,
    Drain,
    Failed,
    Heartbeat,
    ObservedRows,
    PassedHeader,
    Question,
    Ready,
    Reopen,
    Seen,
    WorkerConfiguration,
)
from batchval.proxy.workers.metric_totals import packed
from batchval.proxy.workers.watchdog import Watchdog
from batchval.proxy.workers.worker_discovery import ParentQuestions, RemotePorts, ReportsToParent
from batchval.proxy.workers.worker_reload import Preparing

__all__ = ["ReportedClients", "WorkerGate", "main"]

#: Seconds between two reports to the parent.
REPORT_S: Final = 0.5
#: Rows of a message: a new client takes the parent 7 microseconds.
ROWS_A_TURN: Final = 50
#: Messages of `ROWS_A_TURN` clients in one report; the next report has the others.
PIECES_A_REPORT: Final = 40
#: Connections of one message that says that they are gone.
CLOSED_A_MESSAGE: Final = 100
#: Seconds for the configurations of topics at the start; a cluster that is down has none.
TOPICS_S: Final = 5.0
#: Connections that are taken in one turn of the event loop.
TAKEN_A_TURN: Final = 16

log = logging.getLogger("batchval.proxy")


class ReportedClients:
    """The rows that the parent's table is to add: one for each client.

    ``evicted_total``  that were forgotten because too many others came
    """

    def __init__(self) -> None:
        self.evicted_total = 0
        self._added: dict[ClientKey, tuple[dict[int, int], Served]] = {}

    def add(self, key: ClientKey, uses: Mapping[int, int], served: Served = NOTHING_SERVED) -> None:
        """Note the arguments for the parent's ClientTable.add."""
        before = self._added.get(key)
        if before is None:
            if len(self._added) >= MAX_CLIENTS:
                del self._added[next(iter(self._added))]
                self.evicted_total += 1
            self._added[key] = dict(uses), served
            return
        merged, earlier = before
        for pair, requests in uses.items():
            merged[pair] = merged.get(pair, 0) + requests
        self._added[key] = merged, earlier.plus(served)

    def take(self) -> list[tuple[ClientKey, Mapping[int, int], Served]]:
        """Return some of what has been noted, and forget it."""
        first = list(islice(self._added, ROWS_A_TURN))
        return [(key, *self._added.pop(key)) for key in first]


class WorkerGate:
    """The gate of one worker: it listens nowhere and keeps no files."""

    def __init__(
        self, parts: WorkerConfiguration, asking: ParentQuestions, report: Callable[[object], None]
    ) -> None:
        upstream = parts.settings.upstream
        options = DiscoveryOptions(upstream.bootstrap, connect_s=upstream.connect_timeout_ms / 1000)
        self.clients = ReportedClients()
        self._discovery = Discovery(options, ReportsToParent(parts.instance, report, asking))
        self._ports = RemotePorts(asking, self._discovery.brokers.__getitem__)
        self._gone: dict[Session, Callable[[], None]] = {}
        parent = ParentParts(
            discovery=self._discovery,
            ports=self._ports,
            clients=self.clients,
            gone=lambda session: self._gone.pop(session, lambda: None)(),
            connections_of=_connections_of,
            claims_secret=parts.claims_secret,
            release=parts.news.release,
        )
        self.gate = Gate(parts.settings, version=parts.version, parent=parent)
        self.follow(parts.news)

    def follow(self, news: ClusterNews) -> None:
        """Take over what the parent knows of the cluster."""
        self._ports.note(news.ports)
        for (name, node_id), number in news.ports.items():
            if node_id is not None and (proxy := self.gate.proxies.get(name)) is not None:
                proxy.cluster.moved(node_id, number)
        self._discovery.follow(news)
        if news.release is not None:
            self.gate.broker_releases.follow(news.release)

    def adopt(self, header: PassedHeader, connection: Any, gone: Callable[[], None]) -> None:
        """Serve a connection; call ``gone`` once both connections of its session are gone. The news
        of its broker may come later than itself.
        """
        proxy = self.gate.proxies[header.listener]
        if header.broker is not None and header.node_id not in proxy.cluster.brokers:
            assert header.node_id is not None
            port, address = header.broker
            self._ports.note({(header.listener, header.node_id): port})
            address = self._discovery.brokers.get(header.node_id, address)
            proxy.cluster.listener_of(header.node_id, *address)
        connection.setblocking(False)
        self._gone[proxy.serve(connection, proxy.cluster.named(header.node_id))] = gone


def _connections_of(settings: Settings) -> int:
    """Return how many connections the open files suffice for. Raises OSError."""
    limit, wanted = raise_limit(), settings.limits.max_connections
    reserve = reserve_for(len(settings.listeners), settings.limits.threads, 0)
    allowed = connections_allowed(limit, wanted, reserve)
    if allowed < 1:
        raise too_few(limit, f"a worker keeps {reserve} for itself")
    return allowed


class _Worker:
    """One worker, until its parent ends it or is gone. Raises ConfigError for bad settings."""

    def __init__(self, parts: WorkerConfiguration, pairs: Pairs) -> None:
        self._passing = pairs.passing
        self._control = pairs.control
        self._channel = Channel(self._received, self._parent_ended)
        self._drain: asyncio.Queue[float] = asyncio.Queue()
        self._closed: list[int] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._serves = False
        self._code = 0  # exit status
        self._watchdog = Watchdog()
        self._parts = parts
        self._worker_gate = WorkerGate(parts, ParentQuestions(pairs.asking), self._channel.send)
        self.gate = self._worker_gate.gate
        self._preparing = Preparing(self.gate)

    async def run(self) -> int:
        """Return the exit code."""
        await self._channel.open(self._control)
        if (failed := await self._start()) is not None:
            self._channel.send(failed)
            await self._channel.finish()
            return 1
        calm_collector()
        self._loop.add_reader(self._passing.fileno(), self._take_connections)
        self._watchdog.start()
        reports = self._loop.create_task(self._report_often())
        self._serves = True
        self._channel.send(Ready(self.gate.max_connections))
        await self._stop(await self._drain.get())
        reports.cancel()
        await self._report()
        await self._channel.finish()
        return self._code

    async def _start(self) -> Failed | None:
        """Start the gate; return why that is not possible."""
        try:
            await self.gate.start()
        except OSError as error:
            return Failed([], (error.errno or 0, error.strerror or str(error)))
        await self._wait_for_topics()
        return None

    async def _wait_for_topics(self) -> None:
        """Wait for the configurations of topics: a new worker must validate as the others do."""
        until = self._loop.time() + TOPICS_S
        topics = self.gate.cluster_topics
        while topics is not None and topics.is_awaited and self._loop.time() < until:
            await asyncio.sleep(0.02)

    async def _stop(self, seconds: float) -> None:
        """Drain; a second request to do so says how long from then on."""
        while True:
            ending = self._loop.create_task(self.gate.stop(seconds))
            sooner = self._loop.create_task(self._drain.get())
            await asyncio.wait((ending, sooner), return_when=asyncio.FIRST_COMPLETED)
            if ending.done():
                sooner.cancel()
                ending.result()
                return
            ending.cancel()
            await asyncio.wait((ending,))
            seconds = sooner.result()

    # ---- from the parent -------------------------------------------------------------------------

    def _received(self, message: object) -> None:
        match message:
            case ClusterNews():
                self._worker_gate.follow(message)
            case Drain(seconds):
                self._take_connections()
                self._drain.put_nowait(seconds)
            case Question():
                spawned(self._tasks, self._answer_question(message))
            case Apply(settings):
                spawned(self._tasks, self._apply(settings))
            case Reopen():
                self.gate.reopen_files()

    async def _apply(self, settings: bytes) -> None:
        try:
            await self._preparing.apply(settings)
        except Exception:  # it must not serve by other settings than the others
            log.exception("the settings could not be applied: this worker ends")
            self._code = 1
            self._drain.put_nowait(0)
            return
        if self._serves:
            self._channel.send(Ready(self.gate.max_connections))

    def _parent_ended(self) -> None:
        if self._drain.empty():
            settings = self.gate.settings if self._serves else self._parts.settings
            self._drain.put_nowait(settings.limits.drain_timeout_ms / 1000)

    def _take_connections(self) -> None:
        for _ in range(TAKEN_A_TURN):
            try:
                passed = connection_of(self._passing)
            except BlockingIOError:
                return
            except OSError as error:
                log.warning("a connection could not be taken: %s", error.strerror)
                return
            if passed is None:
                self._loop.remove_reader(self._passing.fileno())
                return
            header, connection = passed
            if connection is None:
                log.warning("a connection was closed: this worker has no more open files")
                self._gone(header.number)
            else:
                self._adopt(header, connection)

    def _adopt(self, header: PassedHeader, connection: socket.socket) -> None:
        try:
            self._worker_gate.adopt(header, connection, partial(self._gone, header.number))
        except Exception:  # the others that wait here are taken
            log.exception("a connection could not be served")
            connection.close()
            self._gone(header.number)

    # ---- to the parent ---------------------------------------------------------------------------

    def _gone(self, number: int) -> None:
        if not self._closed:
            self._loop.call_soon(self._report_closed)
        self._closed.append(number)

    def _report_closed(self) -> None:
        closed, self._closed = self._closed, []
        for begin in range(0, len(closed), CLOSED_A_MESSAGE):
            self._channel.send(Closed(closed[begin : begin + CLOSED_A_MESSAGE]))

    async def _answer_question(self, question: Question) -> None:
        content = b""
        if question.what == "families":
            self.gate.shared.budget.measure()
            content = await asyncio.to_thread(packed, self.gate.metrics.families())
        elif question.what == "clients":
            await self.gate.pages.collect_clients()
            await self._report()
        else:
            content = pickle.dumps(await self._preparing.prepare(question.content))
        self._channel.send(AnswerMessage(question.number, content))

    async def _report_often(self) -> None:
        while True:
            self._watchdog.turned()
            await self._report()
            await asyncio.sleep(REPORT_S)

    async def _report(self) -> None:
        send = self._channel.send
        send(Heartbeat(self.gate.counters.produce_partitions_total))
        for _ in range(PIECES_A_REPORT):
            if not (clients := self._worker_gate.clients.take()):
                break
            send(Seen(clients))
            await asyncio.sleep(0)
        while rows := self.gate.observed.take(ROWS_A_TURN):
            send(ObservedRows(rows))
            await asyncio.sleep(0)


class _WithWorker(logging.Filter):
    """A logging filter that adds ``worker`` to the facts of each line."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self._index = index

    def filter(self, record: logging.LogRecord) -> bool:
        record.facts = {**getattr(record, "facts", {}), "worker": self._index}
        return True


async def _serve(parts: WorkerConfiguration, pairs: Pairs) -> int:
    """Return the exit code of a worker, or of one whose settings fail."""
    try:
        worker = _Worker(parts, pairs)
    except ConfigError as error:
        await _report_failure(Failed(error.problems), pairs.control)
        return 1
    return await worker.run()


async def _report_failure(failed: Failed, control: socket.socket) -> None:
    """Send why this worker cannot start. Messages that come have nothing to reach."""
    channel = Channel(lambda _: None, lambda: None)
    await channel.open(control)
    channel.send(failed)
    await channel.finish()


def main() -> None:
    """Run the worker whose descriptors are the arguments, and exit."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    pairs = Pairs.inherited([int(number) for number in sys.argv[1:4]])
    try:
        begin: Begin = read_message(pairs.control)
    except EOFError:
        sys.exit(1)
    sys.path[:] = begin.path  # custom rules are found where the parent finds them
    parts: WorkerConfiguration = pickle.loads(begin.parts)
    log_handler = write_in_thread(parts.settings.log)
    log_handler.addFilter(_WithWorker(parts.worker))
    switch_soon()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        code = runner.run(_serve(parts, pairs))
    log_handler.flush()
    sys.stdout.flush()
    os._exit(code)  # no thread of a custom rule keeps it


if __name__ == "__main__":
    main()

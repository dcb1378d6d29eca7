"""Discovery of the cluster's brokers: their ids, their addresses, and which of them can be reached.

Brokers become known by a Metadata request of the gate's own, by answers to clients, and by the
state file at the start. One object serves all listeners. A broker stays known when the cluster
stops naming it, since it may only be restarting: its port remains, and its address is tried last.
``known_brokers`` says how many are known at most, and when one is forgotten.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import secrets
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Protocol

from batchval.errors import BatchvalError
from batchval.kafka_versions import Release
from batchval.network.errors import AuthenticationError, InvalidAnswerError
from batchval.protocol.errors import ProtocolError, TooManyBrokersError
from batchval.proxy.cluster.endpoints import (
    Endpoint,
    EndpointState,
    address_text,
    listed,
    problem_of,
)
from batchval.proxy.cluster.known_brokers import GONE_S, MAX_BROKERS, BoundedLog, BrokerAges
from batchval.proxy.cluster.listening_sockets import SocketKey
from batchval.proxy.cluster.metadata_client import (
    CLIENT_ID,
    BrokerAddress,
    ClusterView,
    SilentBrokerError,
    ask_metadata,
    foreign_protocol,
    resolved,
)
from batchval.proxy.cluster.probe import http_at, tls_at
from batchval.proxy.cluster.state_file import StateFile, StoredCluster
from batchval.proxy.settings.host_patterns import MAX_HOST, MAX_NODE_ID

__all__ = ["ClusterNews", "ClusterReports", "Discovery", "DiscoveryOptions", "problem_of"]

log = logging.getLogger("batchval.proxy")

FIRST_WAIT_S: Final = 0.2  # between rounds until one is answered; doubled each time
MAX_WAIT_S: Final = 5.0
NOT_READY_WAIT_S: Final = 1.0
FAILED_WAIT_S: Final = 10.0  # while an address fails
SILENT_WAIT_S: Final = 60.0  # a broker that requires authentication logs each such request
NEXT_ADDRESS_S: Final = 0.5  # a slow address delays the next one by this
SEVERAL_CONNECT_S: Final = 2.0  # for one address, if there are others to try
LOOK_S: Final = 1.0
REPEAT_LOG_S: Final = 60.0
ANSWER_S: Final = 5.0  # for a response, once connected
SAVE_S: Final = 5.0  # for the last write of the state file
MAX_LOGGED: Final = 1_000
MAX_ENDPOINTS: Final = 2 * MAX_BROKERS  # addresses with a state, between two rounds

#: Errors of this machine, which say nothing about a broker.
LOCAL_ERRORS: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL}
)

_SERVING, _UNTRIED, _WRONG = EndpointState.SERVING, EndpointState.UNTRIED, EndpointState.WRONG
_ITSELF: Final = "is this gate itself"  # the problem of an address

Ask = Callable[[BrokerAddress, str], Awaitable[ClusterView]]
Subscriber = Callable[[int, str, int], None]
Forgotten = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class DiscoveryOptions:
    """Options of one cluster's discovery. Times are in seconds.

    ``bootstrap``      addresses to begin with, tried in order
    ``tls``            an SSLContext, or a function that returns the newest
    ``find_brokers``   asks one address with the gate's own credentials, under the client id set by
                       the second argument; None: a Metadata request without credentials
    ``authenticates``  whether ``find_brokers`` authenticates with SASL
    ``refresh_s``      between two rounds while everything works
    ``state``          where brokers are kept for the next start; None: nowhere
    """

    bootstrap: tuple[BrokerAddress, ...]
    tls: ssl.SSLContext | Callable[[], ssl.SSLContext] | None = None
    find_brokers: Ask | None = None
    authenticates: bool = False
    connect_s: float = 10.0
    refresh_s: float = 30.0
    state: StateFile | None = None


class ClusterNews(NamedTuple):
    """The view that one process has of the cluster, for another that asks no broker.

    ``endpoints``  state and problem of each address
    ``ports``      (listener, node id) -> port
    ``release``    of Kafka that is in force with ``kafka_version: auto``; None: not known
    """

    brokers: Mapping[int, BrokerAddress]
    cluster_id: str | None
    requires_authentication: bool | None
    endpoints: Mapping[BrokerAddress, tuple[EndpointState, str]]
    ports: Mapping[SocketKey, int]
    release: Release | None = None


class ClusterReports(Protocol):
    """What another process gets that asks the brokers for this one, and writes the lines about them.

    It hears of brokers that are new or move, of those that answers name, and of what changes the
    state of an address. ``look``: a client asks for a broker that is not known.
    """

    def is_own_request(self, client_id: str) -> bool: ...
    def learned(self, node_id: int, address: BrokerAddress) -> None: ...
    def named(self, node_id: int, address: BrokerAddress) -> None: ...
    def reached(self, address: BrokerAddress) -> None: ...
    def failed(self, address: BrokerAddress, reason: str) -> None: ...
    def look(self) -> None: ...
    def answered_without_authentication(self) -> None: ...


class Discovery:
    """The known brokers of one cluster. All methods belong to the event loop of ``start``.

    With ``reports`` it asks no broker and writes no state file: another process does, whose news it
    takes by ``follow``.

    ``brokers``     node id -> the broker's own address
    ``cluster_id``  None while it is not known: only a request with credentials learns it
    ``instance``    what the client ids of its own requests begin with
    ``lines``       log lines about brokers, bounded
    ``answers_refused_total``  answers that named too many brokers
    ``forgotten_total``        brokers whose ports were closed
    ``requires_authentication``  whether brokers answer only authenticated clients; None while that
                    is not known
    ``admin_problem``  why a broker refused the login of ``upstream.admin``; "" if none does
    """

    def __init__(self, options: DiscoveryOptions, reports: ClusterReports | None = None) -> None:
        self.options = options
        self._reports = reports
        self._followed: set[int] = set()  # brokers of the last news
        self.brokers: dict[int, BrokerAddress] = {}
        self.cluster_id: str | None = None
        self._endpoints = {address: Endpoint(address) for address in options.bootstrap}
        self._named: set[int] = set()  # by the Metadata responses of the last round with one
        self._named_in_round: set[int] = set()
        self.lines = BoundedLog()
        self.answers_refused_total = self.forgotten_total = 0
        self._ages = BrokerAges()
        self._subscribers: list[Subscriber] = []
        self._on_forgotten: list[Forgotten] = []
        self._requests = 0
        self._ports: dict[str, dict[int, int]] = {}
        self.requires_authentication: bool | None = True if options.authenticates else None
        self.admin_problem = ""
        self._is_confirmed = False  # by an answer in this run, not by the state file
        self._refused_since: float | None = None  # since the last answer with the brokers
        self._is_silence_logged = False
        self.instance = f"{CLIENT_ID}-{secrets.token_hex(6)}"
        self._asking: dict[str, BrokerAddress] = {}  # by the request's client id
        self._looped: set[str] = set()  # client ids of requests that came back
        self._wake = asyncio.Event()
        self._looked_at = float("-inf")
        self._logged: dict[str, float] = {}  # sentence -> when
        self._task: asyncio.Task[None] | None = None
        self._saving: asyncio.Task[None] | None = None
        self._saved: StoredCluster | None = None
        self._inherited: StoredCluster | None = None
        self._keeps_file = options.state is not None

    # ---- what others read --------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Return whether some broker was reachable at its last attempt."""
        return any(one.state is _SERVING for one in self._endpoints.values())

    def unready(self) -> str | None:
        """Return why no client can be served, with all addresses tried; None if one can."""
        if self.ready:
            return None
        return f"no broker can be reached: {listed(self._endpoints.values())}"

    @property
    def endpoints(self) -> dict[BrokerAddress, tuple[EndpointState, str]]:
        """Return the state of each address, and why it does not serve."""
        return {address: (one.state, one.problem) for address, one in self._endpoints.items()}

    def named_brokers(self) -> list[int]:
        """Return the ids of the brokers that the cluster has named in its last answers."""
        return [node_id for node_id in self.brokers if node_id in self._named]

    def is_away(self, node_id: int) -> bool:
        """Return whether a broker could not be reached when its address was tried last."""
        endpoint = self._endpoints.get(self.brokers[node_id])
        away = (EndpointState.UNREACHABLE, EndpointState.STALLED)
        return endpoint is not None and endpoint.state in away

    def addresses(self, node_id: int | None = None) -> list[BrokerAddress]:
        """Return where to connect for one broker, in the order in which to try.

        None stands for any broker: the bootstrap addresses, then all known brokers, with those
        that failed when they were last tried at the end. An address that is not a broker of this
        cluster is left out.
        """
        if node_id is not None:
            known = [self.brokers[node_id]] if node_id in self.brokers else []
        else:
            gone = sorted(self.brokers, key=lambda node_id: node_id not in self._named)
            known = list(
                dict.fromkeys((*self.options.bootstrap, *(self.brokers[one] for one in gone)))
            )
        usable = [address for address in known if self._endpoint(address).state is not _WRONG]
        return sorted(usable, key=lambda address: self._endpoint(address).failed)

    def connect_timeout_s(self, others: int) -> float:
        """Return the time for one address, with this number of others still to try."""
        limit = self.options.connect_s
        return min(limit, SEVERAL_CONNECT_S) if others else limit

    def is_own_request(self, client_id: str) -> bool:
        """Return whether this gate sent the request itself: then its upstream is this gate."""
        if self._reports is not None:
            return self._reports.is_own_request(client_id)
        if client_id not in self._asking:
            return False
        self._looped.add(client_id)
        return True

    def kept_port(self, listener: str, node_id: int) -> int | None:
        """Return the port that a listener had for this broker before."""
        return self._ports.get(listener, {}).get(node_id)

    # ---- what others report ------------------------------------------------------------------

    def subscribe(self, callback: Subscriber, on_forgotten: Forgotten = lambda _: None) -> None:
        """Call ``callback(node_id, host, port)`` for each known, new and moved broker, and
        ``on_forgotten(node_id)`` for each that is not known any more.
        """
        self._subscribers.append(callback)
        self._on_forgotten.append(on_forgotten)
        for node_id, address in list(self.brokers.items()):
            callback(node_id, *address)

    def unsubscribe(self, callback: Subscriber) -> None:
        """Call it no more."""
        with contextlib.suppress(ValueError):
            at = self._subscribers.index(callback)
            del self._subscribers[at], self._on_forgotten[at]

    def named(self, node_id: int, at_s: float | None = None) -> None:
        """Note that an answer names a broker that is known, now or at that time (monotonic)."""
        if node_id in self.brokers:
            self._ages.named(node_id, at_s)
            if self._reports is not None:
                self._reports.named(node_id, self.brokers[node_id])

    def refused(self, error: TooManyBrokersError) -> None:
        """Note an answer that names too many brokers: what was known before stays."""
        self.answers_refused_total += 1
        self._log(logging.WARNING, f"an answer of a broker was refused: {error}")

    def learn(self, node_id: int, host: str, port: int) -> None:
        """Note a broker that an answer names. One without an id or an address is ignored.

        Raises TooManyBrokersError where no other can be known.
        """
        before = self.brokers.get(node_id)
        self._learn(node_id, host, port)
        if self._reports is not None and self.brokers.get(node_id) != before:
            self._reports.learned(node_id, (host, port))

    def _learn(self, node_id: int, host: str, port: int) -> None:
        address = (host, port)
        before = self.brokers.get(node_id)
        if before == address:
            self._ages.named(node_id)
            return
        if (
            not 0 <= node_id <= MAX_NODE_ID
            or not 0 < port <= 0xFFFF
            or not 0 < len(host) <= MAX_HOST
        ):
            return
        if before is None:
            self._forget(self._ages.displaced(self.brokers))
        self._ages.named(node_id)
        self.brokers[node_id] = address
        self._named.add(node_id)
        if before is not None and self._reports is None:
            text = "broker %d is at %s now, not at %s"
            addresses = address_text(address), address_text(before)
            self.lines.write(logging.INFO, text, node_id, *addresses)
        for callback in list(self._subscribers):
            callback(node_id, host, port)
        if self._endpoint(address).state is _UNTRIED:
            self._wake.set()  # its address may be wrong, or the gate's own
        self._changed()

    def _forget(self, node_ids: Iterable[int]) -> None:
        """Forget brokers and their ports."""
        for node_id in node_ids:
            self._ages.forget(node_id)
            self._named.discard(node_id)
            for ports in self._ports.values():
                ports.pop(node_id, None)
            if self.brokers.pop(node_id, None) is not None:
                self.forgotten_total += 1
                for callback in list(self._on_forgotten):
                    callback(node_id)
            self._changed()

    def _forget_gone(self) -> None:
        """Forget the brokers that have not been named for long, though the cluster answers."""
        gone = self._ages.gone()
        for node_id in gone:
            text = "broker %d was not named for %d hours: its port is closed"
            self.lines.write(logging.INFO, text, node_id, GONE_S // 3600)
        self._forget(gone)

    def look(self) -> None:
        """Ask the cluster at once, because a client asks for a broker that is not known; once in
        LOOK_S at most. Brokers that answer only authenticated clients are not asked without
        credentials.
        """
        if self._reports is not None:
            self._reports.look()
            return
        now = time.monotonic()
        if now - self._looked_at >= LOOK_S and (
            self.options.authenticates or not self.requires_authentication
        ):
            self._looked_at = now
            self._wake.set()

    def reached(self, address: BrokerAddress) -> None:
        """Note that a connection to this address was opened."""
        endpoint = self._endpoint(address)
        if endpoint.state is not _SERVING:
            endpoint.connected()
            if endpoint.state is _SERVING:
                self._log_recovery(endpoint)
            if self._reports is not None:
                self._reports.reached(address)

    def failed(self, address: BrokerAddress, error: BaseException) -> None:
        """Note that no connection to this address could be opened. The cluster is asked at once."""
        endpoint = self._endpoint(address)
        if _is_local(error):
            self._log(logging.WARNING, f"{self._name(endpoint)} was not tried: {problem_of(error)}")
        elif not endpoint.failed:
            self._wake.set()
            self._fail(endpoint, EndpointState.UNREACHABLE, problem_of(error))
            if self._reports is not None:
                self._reports.failed(address, problem_of(error))

    def answered_without_authentication(self) -> None:
        """Note that a broker answered a client that had not authenticated."""
        self._refused_since = None
        self._is_confirmed = True
        if self.requires_authentication is not False:
            self.requires_authentication = False
            self._changed()
            if self._reports is not None:
                self._reports.answered_without_authentication()

    def keep_port(self, listener: str, node_id: int, port: int) -> None:
        """Note the port of a broker, for the next start."""
        ports = self._ports.setdefault(listener, {})
        if ports.get(node_id) != port:
            ports[node_id] = port
            self._changed()

    def state(self) -> StoredCluster:
        """Return what a gate that takes over has to know."""
        ports = {
            name: {node_id: port for node_id, port in ports.items() if node_id in self.brokers}
            for name, ports in self._ports.items()
        }
        texts = tuple(map(address_text, self.options.bootstrap))
        return StoredCluster(
            texts, self.cluster_id, self.requires_authentication, dict(self.brokers), ports
        )

    def inherit(self, state: StoredCluster) -> None:
        """Begin with the brokers of the gate that is taken over, in place of the state file."""
        self._inherited = state
        self._keeps_file = False

    def own_file(self) -> None:
        """Keep the state file from now on."""
        self._keeps_file = True
        self._changed()

    def hand_over(self) -> None:
        """Leave the state file to the gate that has taken over."""
        self._keeps_file = False

    def use(self, options: DiscoveryOptions) -> None:
        """Ask by other options from now on, at once. The state file stays."""
        self.options = replace(options, state=self.options.state)
        for address in options.bootstrap:
            self._endpoint(address)
        if options.authenticates and self.requires_authentication is None:
            self.requires_authentication = True
        self._wake.set()
        self._changed()

    def follow(self, news: ClusterNews) -> None:
        """Take over what the other process knows. The ports must be known before.

        With another cluster, the brokers of the one before are forgotten, as the other process has
        done, and those that it has forgotten. Others are not: this process may know one whose news
        the other has not got yet.
        """
        if self.cluster_id not in (None, news.cluster_id):
            self.brokers.clear()
        self._forget(self._followed - news.brokers.keys())
        self._followed = set(news.brokers)
        self.cluster_id = news.cluster_id
        self.requires_authentication = news.requires_authentication
        for node_id, address in news.brokers.items():
            with contextlib.suppress(TooManyBrokersError):  # others are forgotten soon
                self._learn(node_id, *address)
        for address, (state, problem) in news.endpoints.items():
            self._endpoint(address).fail(state, problem)
        self._forget_unused()

    # ---- its life ----------------------------------------------------------------------------

    async def start(self) -> None:
        """Load the state file and begin to ask. The cluster need not be there."""
        if self._reports is not None:
            return
        await self._load()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Ask no more, and write what has changed."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        if self._saving is not None:  # a disk that hangs must not keep the gate from its end
            await asyncio.wait((self._saving,), timeout=SAVE_S)

    async def _load(self) -> None:
        file = self.options.state
        state = self._inherited
        if state is None and file is not None:
            state = self._saved = await asyncio.to_thread(file.load)
        if state is None:
            return
        if not set(state.bootstrap) & set(self.state().bootstrap):
            whose = (
                "the gate that is taken over"
                if file is None or self._inherited
                else f"the state file {file.path}"
            )
            log.warning(
                "%s is ignored: it is of a cluster at %s", whose, ", ".join(state.bootstrap)
            )
            self._saved = None
            return
        self.cluster_id = state.cluster_id
        self._ports = {name: dict(ports) for name, ports in state.ports.items()} | self._ports
        if self.requires_authentication is None:
            self.requires_authentication = state.requires_authentication
        for node_id, (host, port) in list(state.brokers.items())[:MAX_BROKERS]:
            self.learn(node_id, host, port)
            self._ages.establish(node_id)

    def _changed(self) -> None:
        """Write the state file, in a thread, if anything in it has changed."""
        file = self.options.state
        if (
            file is not None
            and self._keeps_file
            and self._saving is None
            and self._task is not None
        ):
            self._saving = asyncio.get_running_loop().create_task(self._save(file))

    async def _save(self, file: StateFile) -> None:
        try:
            while self._keeps_file and (state := self.state()) != self._saved:
                if not await asyncio.to_thread(file.save, state):
                    return  # tried again after the next round
                self._saved = state
        finally:
            self._saving = None

    # ---- rounds of requests ------------------------------------------------------------------

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        backoff_s = FIRST_WAIT_S
        while True:
            self._changed()
            self._wake.clear()
            try:
                answered = await self._round()
            except Exception:  # a defect in one round must not end discovery
                log.exception("the cluster could not be asked for its brokers")
                answered = False
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    return  # a TaskGroup raises an error of its tasks in place of CancelledError
            ended = loop.time()
            backoff_s = FIRST_WAIT_S if answered else min(2 * backoff_s, MAX_WAIT_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._wait_s(answered, backoff_s)):
                    await self._wake.wait()
            await asyncio.sleep(ended + FIRST_WAIT_S - loop.time())

    def _wait_s(self, answered: bool, backoff_s: float) -> float:
        if not self.ready:
            return min(backoff_s, NOT_READY_WAIT_S)
        if not answered:
            return backoff_s
        if any(one.failed for one in self._endpoints.values()):
            return min(self.options.refresh_s, FAILED_WAIT_S)
        return self.options.refresh_s if self._refused_since is None else SILENT_WAIT_S

    async def _round(self) -> bool:
        """Ask one address after the other until one answers, and all that fail or were never tried.

        Returns whether one answered.
        """
        self._forget_unused()
        self._named_in_round = set()
        asked: list[asyncio.Task[bool]] = []
        answered = False
        async with asyncio.TaskGroup() as group:
            for endpoint in sorted(self._endpoints.values(), key=lambda one: one.failed):
                if answered and endpoint.state is _SERVING:
                    continue
                if endpoint.address not in self._endpoints:
                    continue  # no broker has it any more
                task = group.create_task(self._ask(endpoint))
                asked.append(task)
                await asyncio.wait((task,), timeout=NEXT_ADDRESS_S)
                answered = answered or any(
                    one.done() and not one.cancelled() and one.result() for one in asked
                )
        self.lines.flush()
        if self._named_in_round:
            self._note_named(self._named_in_round)
        return any(task.result() for task in asked)

    async def _ask(self, endpoint: Endpoint) -> bool:
        """Ask one address; return whether a broker answered, if only by closing the connection."""
        self._requests += 1
        client_id = f"{self.instance}-{self._requests}"
        self._asking[client_id] = endpoint.address
        try:
            view = await self._request(endpoint.address, client_id)
        except TooManyBrokersError as error:
            return self._too_many(endpoint, error)
        except (OSError, BatchvalError, ValueError) as error:
            if client_id in self._looped:
                self._fail(endpoint, _WRONG, _ITSELF)
                self._refused_since = None
                return False
            return await self._refused(endpoint, error)
        finally:
            del self._asking[client_id]
            self._looped.discard(client_id)
        return self._answered(endpoint, view)

    async def _request(self, address: BrokerAddress, client_id: str) -> ClusterView:
        options = self.options
        connect_s = self.connect_timeout_s(len(self._endpoints) - 1)
        if options.find_brokers is not None:
            async with asyncio.timeout(options.connect_s):
                return await options.find_brokers(address, client_id)
        tls = resolved(options.tls)
        return await ask_metadata(
            address, client_id, tls, connect_s=connect_s, answer_s=min(options.connect_s, ANSWER_S)
        )

    def _answered(self, endpoint: Endpoint, view: ClusterView) -> bool:
        if not self._is_of_cluster(view.cluster_id):
            self._fail(
                endpoint, _WRONG, f"belongs to the cluster {view.cluster_id}, not {self.cluster_id}"
            )
            return False
        endpoint.answered()
        self._log_recovery(endpoint)
        self._refused_since = None
        self.admin_problem = ""
        self._is_confirmed = True
        if not self.options.authenticates:
            self.answered_without_authentication()
        try:
            for broker in view.brokers:
                self.learn(*broker)
        except TooManyBrokersError as error:
            return self._too_many(endpoint, error)
        self._named_in_round |= {node_id for node_id, _, _ in view.brokers}
        return bool(view.brokers)

    def _too_many(self, endpoint: Endpoint, error: TooManyBrokersError) -> bool:
        """Note an answer that is refused: a broker is there all the same."""
        endpoint.answered()
        self._log_recovery(endpoint)
        self._refused_since = None
        self.refused(error)
        return True

    def _is_of_cluster(self, cluster_id: str | None) -> bool:
        if cluster_id is None or cluster_id == self.cluster_id:
            return True
        if self.cluster_id is not None:
            if self._is_confirmed:
                return False
            log.warning(
                "the state file is of the cluster %s, not of %s: its brokers are forgotten",
                self.cluster_id,
                cluster_id,
            )
            self.brokers.clear()
            self._ages.clear()
            self._named.clear()
        self.cluster_id = cluster_id
        self._changed()
        return True

    def _note_named(self, named: set[int]) -> None:
        """Log once which brokers have gone from the cluster's answers, and which are back."""
        for node_id in sorted(self._named - named):
            text = "broker %d is not named by the cluster any more: its port stays"
            self.lines.write(logging.INFO, text, node_id)
        for node_id in sorted(named - self._named):
            self.lines.write(logging.INFO, "broker %d is named by the cluster again", node_id)
        self._named = named & self.brokers.keys()
        self._forget_gone()

    async def _refused(self, endpoint: Endpoint, error: Exception) -> bool:
        """Note why an address did not answer; return whether a broker is there all the same."""
        protocol = foreign_protocol(error)
        if protocol is None and endpoint.state in (_UNTRIED, _WRONG):
            protocol = await self._probed_protocol(endpoint.address, error)
        if protocol is not None:
            hint = ": set upstream.tls" if protocol == "TLS" else ", not Kafka's protocol"
            self._fail(endpoint, _WRONG, f"speaks {protocol}{hint}")
        elif isinstance(error, SilentBrokerError):
            return self._hung_up(endpoint)
        elif isinstance(error, AuthenticationError):
            self._refused_since = self._refused_since or time.monotonic()
            self.admin_problem = " ".join(f"{address_text(endpoint.address)}: {error}".split())
            endpoint.answered()
            self._log_recovery(endpoint)
            self._log(
                logging.WARNING, f"{self._name(endpoint)} did not accept upstream.admin: {error}"
            )
            return True
        elif isinstance(error, TimeoutError):
            self._fail(endpoint, EndpointState.STALLED, problem_of(error))
        elif isinstance(error, ProtocolError | InvalidAnswerError):
            self._fail(endpoint, _WRONG, f"did not answer as a Kafka broker does: {error}")
        elif _is_local(error):
            self._log(logging.WARNING, f"{self._name(endpoint)} was not tried: {problem_of(error)}")
        else:
            self._fail(endpoint, EndpointState.UNREACHABLE, problem_of(error))
        return False

    async def _probed_protocol(self, address: BrokerAddress, error: Exception) -> str | None:
        """Ask an address that has never answered whether it speaks another protocol.

        Most HTTP servers wait for the end of a line, and some TLS servers close the connection.
        """
        tls, found = resolved(self.options.tls), None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SEVERAL_CONNECT_S):
                if isinstance(error, TimeoutError):
                    found = await http_at(address, tls)
                elif tls is None and isinstance(error, SilentBrokerError):
                    found = await tls_at(address)
        return None if found is None else found.kind.upper()

    def _hung_up(self, endpoint: Endpoint) -> bool:
        """Note that a broker closed the connection instead of answering; return whether it serves.

        It requires authentication, or it is about to stop. A cluster that has answered before is
        taken to require authentication after a minute without an answer. So is an address that led
        back here: another gate whose upstream is this one hangs up while it has no broker.
        """
        now = time.monotonic()
        self._refused_since = self._refused_since or now
        may_wait = now - self._refused_since < SILENT_WAIT_S
        if may_wait and endpoint.problem == _ITSELF:
            return False
        if may_wait and self.requires_authentication is False and self._is_confirmed:
            self._fail(
                endpoint, EndpointState.UNREACHABLE, "the connection was closed without an answer"
            )
            return False
        endpoint.answered()
        self._log_recovery(endpoint)
        if self.requires_authentication is not True:
            self.requires_authentication = True
            self._changed()
        if not self._is_silence_logged:
            self._is_silence_logged = True
            name, request = self._name(endpoint), "an unauthenticated Metadata request"
            log.info(
                "%s did not answer %s; brokers will be discovered from client traffic",
                name,
                request,
            )
        return True

    # ---- addresses and log lines -------------------------------------------------------------

    def _endpoint(self, address: BrokerAddress) -> Endpoint:
        endpoint = self._endpoints.get(address)
        if endpoint is None:
            if len(self._endpoints) >= MAX_ENDPOINTS:
                self._forget_unused()
            endpoint = self._endpoints[address] = Endpoint(address)
        return endpoint

    def _forget_unused(self) -> None:
        """Forget addresses that no broker has any more."""
        used = {*self.options.bootstrap, *self.brokers.values()}
        for address in self._endpoints.keys() - used:
            del self._endpoints[address]

    def _fail(self, endpoint: Endpoint, state: EndpointState, problem: str) -> None:
        endpoint.fail(state, problem)
        if self._reports is not None:
            return
        endpoint.is_logged |= self._log(
            logging.WARNING, f"{self._name(endpoint)} {endpoint.predicate}"
        )

    def _log_recovery(self, endpoint: Endpoint) -> None:
        """Log once that an address serves again, if the log says that it did not."""
        if endpoint.is_logged:
            endpoint.is_logged = False
            self.lines.write(logging.INFO, "%s serves again", self._name(endpoint))

    def _name(self, endpoint: Endpoint) -> str:
        text = address_text(endpoint.address)
        if endpoint.address in self.options.bootstrap:
            return f"upstream.bootstrap {text}"
        nodes = [
            node_id for node_id, address in self.brokers.items() if address == endpoint.address
        ]
        return f"broker {nodes[0]} at {text}" if nodes else text

    def _log(self, level: int, text: str) -> bool:
        """Log a sentence, the same one at most once a minute; return whether it was logged."""
        now = time.monotonic()
        last = self._logged.get(text)
        if last is not None and now - last < REPEAT_LOG_S:
            return False
        if len(self._logged) >= MAX_LOGGED:
            self._logged.clear()
        self._logged[text] = now
        self.lines.write(level, "%s", text)
        return True


def _is_local(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in LOCAL_ERRORS

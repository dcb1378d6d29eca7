"""A worker's view of the cluster: its parent asks the brokers, binds ports and keeps the state.

parent ── ClusterNews ──▶ FollowingDiscovery      what answers and failures show goes back
RemotePorts ── PortOf ──▶ parent                  the port of a broker that is new here
"""

from __future__ import annotations

import contextlib
import errno
import pickle
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from batchval.protocol.errors import TooManyBrokersError
from batchval.proxy.cluster.discovery import LOCAL_ERRORS, Discovery, DiscoveryOptions, problem_of
from batchval.proxy.cluster.endpoints import Endpoint, EndpointState
from batchval.proxy.cluster.known_brokers import MAX_BROKERS
from batchval.proxy.cluster.listening_sockets import Port, SocketKey
from batchval.proxy.cluster.metadata_client import BrokerAddress
from batchval.proxy.workers.channel import MAX_PACKET_BYTES
from batchval.proxy.workers.control_messages import (
    AddressFailed,
    AddressReached,
    ClusterNews,
    Learned,
    OwnRequest,
    PortAnswer,
    PortOf,
    RefreshMetadata,
    Unauthenticated,
)

__all__ = ["FollowingDiscovery", "ParentQuestions", "RemotePorts"]

#: Seconds that a worker waits for its parent's answer. Its clients wait, too; it takes 0.1 ms.
ANSWER_S: Final = 1.0
#: Seconds until a worker reports again that an answer names a broker.
NAMED_AGAIN_S: Final = 120.0


class ParentQuestions:
    """Questions to the parent that are answered at once: those about new brokers."""

    def __init__(self, sock: socket.socket, timeout_s: float = ANSWER_S) -> None:
        self._sock = sock
        self._timeout_s = timeout_s
        self._number = 0

    def __call__(self, question: object) -> Any:
        """Return the answer. Raises OSError where there is none in time."""
        self._number += 1
        until = time.monotonic() + self._timeout_s
        self._sock.settimeout(self._timeout_s)
        self._sock.send(pickle.dumps((self._number, question)))
        while (left_s := until - time.monotonic()) > 0:
            self._sock.settimeout(left_s)
            try:
                packet = self._sock.recv(MAX_PACKET_BYTES)
            except TimeoutError:
                break
            if not packet:
                raise OSError(errno.EPIPE, "the gate's parent process has ended")
            number, answer = pickle.loads(packet)
            if number == self._number:  # else to a question that had no answer in time
                return answer
        raise OSError(
            errno.ETIMEDOUT, f"the gate's parent process did not answer in {self._timeout_s:g} s"
        )


class FollowingDiscovery(Discovery):
    """Brokers as the parent knows them. It asks no broker and writes no state file.

    ``instance``  begins the client ids of the parent's own requests
    ``report``    takes what this worker finds out, for the parent
    """

    def __init__(
        self,
        options: DiscoveryOptions,
        instance: str,
        report: Callable[[object], None],
        asking: ParentQuestions,
    ) -> None:
        super().__init__(options)
        self.instance = instance
        self._report = report
        self._asking_parent = asking
        self._is_following = False
        self._named_by_parent: set[int] = set()  # the parent's brokers
        self._reported: dict[int, float] = {}  # when each was reported as named

    async def start(self) -> None:
        """Wait for news."""

    async def stop(self) -> None:
        """Do nothing: no request is pending."""

    def follow(self, news: ClusterNews) -> None:
        """Take over what the parent knows. The ports must be known before.

        With another cluster, the brokers of the one before are forgotten, as the parent has done,
        and those that the parent has forgotten. Others are not: this worker may know one whose
        news the parent has not got yet.
        """
        if self.cluster_id not in (None, news.cluster_id):
            self.brokers.clear()
        self._forget(self._named_by_parent - news.brokers.keys())
        self._named_by_parent = set(news.brokers)
        self.cluster_id, self.requires_authentication = (
            news.cluster_id,
            news.requires_authentication,
        )
        self._is_following = True
        try:
            for node_id, address in news.brokers.items():
                with contextlib.suppress(TooManyBrokersError):  # others are forgotten soon
                    self.learn(node_id, *address)
        finally:
            self._is_following = False
        for address, (state, problem) in news.endpoints.items():
            self._endpoint(address).fail(state, problem)
        self._forget_unused()

    def learn(self, node_id: int, host: str, port: int) -> None:
        """Note a broker, and report it unless the parent has named it."""
        before = self.brokers.get(node_id)
        super().learn(node_id, host, port)
        if not self._is_following and self.brokers.get(node_id) != before:
            self._report(Learned(node_id, host, port))

    def named(self, node_id: int, at_s: float | None = None) -> None:
        """Note that an answer names a broker, and report it at times: it is established by that."""
        super().named(node_id, at_s)
        now, address = time.monotonic(), self.brokers.get(node_id)
        if address is not None and now - self._reported.get(node_id, 0.0) > NAMED_AGAIN_S:
            if len(self._reported) >= MAX_BROKERS:
                self._reported.clear()
            self._reported[node_id] = now
            self._report(Learned(node_id, *address))

    def look(self) -> None:
        """Let the parent ask the cluster."""
        self._report(RefreshMetadata())

    def reached(self, address: BrokerAddress) -> None:
        """Note a connection, and report it where the parent may think otherwise."""
        is_news = self._endpoint(address).state is not EndpointState.SERVING
        super().reached(address)
        if is_news:
            self._report(AddressReached(address))

    def failed(self, address: BrokerAddress, error: BaseException) -> None:
        """Note a failure, and report it unless it is of this process or known."""
        is_news = not self._endpoint(address).failed
        super().failed(address, error)
        is_local = isinstance(error, OSError) and error.errno in LOCAL_ERRORS
        if is_news and not is_local:
            self._report(AddressFailed(address, problem_of(error)))

    def answered_without_authentication(self) -> None:
        """Note such an answer, and report the first."""
        is_news = self.requires_authentication is not False
        super().answered_without_authentication()
        if is_news:
            self._report(Unauthenticated())

    def is_own_request(self, client_id: str) -> bool:
        """Return whether the parent has sent this request: then its upstream is this gate."""
        if not client_id.startswith(self.instance):
            return False
        try:
            return bool(self._asking_parent(OwnRequest(client_id)))
        except OSError:
            return False

    def _fail(self, endpoint: Endpoint, state: EndpointState, problem: str) -> None:
        endpoint.fail(state, problem)  # the parent writes the line

    def _note_move(self, node_id: int, before: BrokerAddress, address: BrokerAddress) -> None:
        """Leave the line to the parent."""


class RemotePorts:
    """The parent's ports, by listener and broker. ``address_of`` returns a broker's own address."""

    def __init__(self, asking: ParentQuestions, address_of: Callable[[int], BrokerAddress]) -> None:
        self._asking = asking
        self._address_of = address_of
        self._numbers: dict[SocketKey, int] = {}

    def note(self, numbers: Mapping[SocketKey, int]) -> None:
        """Note ports that the parent has."""
        self._numbers.update(numbers)

    def open(self, key: SocketKey, host: str, numbers: Sequence[int]) -> Port:
        """Return the parent's port, which it binds now where it is new. Raises OSError."""
        if key not in self._numbers:
            listener, node_id = key
            assert node_id is not None, key
            answer: PortAnswer = self._asking(PortOf(listener, node_id, self._address_of(node_id)))
            if answer.error is not None:
                raise OSError(*answer.error)
            self.note(answer.ports)
        return Port(self._numbers[key], None)

    def close(self, key: SocketKey) -> None:
        """Leave the port to the parent; one that is opened again may have another number."""
        self._numbers.pop(key, None)

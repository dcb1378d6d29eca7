"""A worker's view of the cluster: its parent asks the brokers, binds ports and keeps the state.

parent ── ClusterNews ──▶ Discovery               ReportsToParent: what answers and failures show
RemotePorts ── PortOf ──▶ parent                  the port of a broker that is new here
"""

from __future__ import annotations

import errno
import pickle
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from batchval.proxy.cluster.known_brokers import MAX_BROKERS
from batchval.proxy.cluster.listening_sockets import Port, SocketKey
from batchval.proxy.cluster.metadata_client import BrokerAddress
from batchval.proxy.workers.channel import MAX_PACKET_BYTES
from batchval.proxy.workers.control_messages import (
    AddressFailed,
    AddressReached,
    Learned,
    OwnRequest,
    PortAnswer,
    PortOf,
    RefreshMetadata,
    Unauthenticated,
)

__all__ = ["ParentQuestions", "RemotePorts", "ReportsToParent"]

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


class ReportsToParent:
    """Reports of what a worker finds out about the cluster.

    ``instance``  begins the client ids of the parent's own requests
    ``report``    takes the messages
    """

    def __init__(
        self, instance: str, report: Callable[[object], None], asking: ParentQuestions
    ) -> None:
        self._instance = instance
        self._report = report
        self._asking = asking
        self._reported: dict[int, float] = {}  # when each was reported as named

    def is_own_request(self, client_id: str) -> bool:
        """Return whether the parent has sent this request: then its upstream is this gate."""
        if not client_id.startswith(self._instance):
            return False
        try:
            return bool(self._asking(OwnRequest(client_id)))
        except OSError:
            return False

    def learned(self, node_id: int, address: BrokerAddress) -> None:
        """Report a broker that is new, or has moved."""
        self._report(Learned(node_id, *address))

    def named(self, node_id: int, address: BrokerAddress) -> None:
        """Report at times that answers name a broker: it is established by that."""
        now = time.monotonic()
        if now - self._reported.get(node_id, 0.0) > NAMED_AGAIN_S:
            if len(self._reported) >= MAX_BROKERS:
                self._reported.clear()
            self._reported[node_id] = now
            self._report(Learned(node_id, *address))

    def reached(self, address: BrokerAddress) -> None:
        """Report that an address serves again."""
        self._report(AddressReached(address))

    def failed(self, address: BrokerAddress, reason: str) -> None:
        """Report that an address fails."""
        self._report(AddressFailed(address, reason))

    def look(self) -> None:
        """Let the parent ask the cluster."""
        self._report(RefreshMetadata())

    def answered_without_authentication(self) -> None:
        """Report that a broker has answered a client that it had not authenticated."""
        self._report(Unauthenticated())


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

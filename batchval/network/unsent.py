"""Requests that wait for a connection or a slot: a queue for each node, in order of arrival."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Iterator

from batchval.network.request import ClientRequest, Node

__all__ = ["UnsentRequests"]


class UnsentRequests:
    """The unsent requests of all nodes, as Kafka's class of that name.

    Empty queues are dropped, and with them everything that names the node.
    """

    __slots__ = ("_counter", "_deadlines", "_entries", "_queues")

    def __init__(self) -> None:
        self._queues: dict[Node, deque[ClientRequest]] = {}
        # a heap of (deadline, tie, [request]); the request is None once it is no longer queued, so
        # that it can be freed
        self._deadlines: list[tuple[float, int, list[ClientRequest | None]]] = []
        self._entries: dict[ClientRequest, list[ClientRequest | None]] = {}
        self._counter = itertools.count()

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def put(self, request: ClientRequest) -> None:
        """Append a request to its node's queue."""
        self._queues.setdefault(request.node, deque()).append(request)
        deadline = request.created_time_ms + request.request_timeout_ms
        entry = self._entries[request] = [request]
        heapq.heappush(self._deadlines, (deadline, next(self._counter), entry))

    def nodes(self) -> list[Node]:
        """Return the nodes with waiting requests: a copy, so that callers may put and remove."""
        return [node for node, queue in self._queues.items() if queue]

    def count(self, node: Node) -> int:
        """Return how many requests wait for this node."""
        return len(self._queues.get(node, ()))

    def first(self, node: Node) -> ClientRequest | None:
        """Return the next request for this node."""
        queue = self._queues.get(node)
        return queue[0] if queue else None

    def pop(self, node: Node) -> ClientRequest:
        """Remove and return the next request for this node."""
        request = self._queues[node].popleft()
        self._forget(request)
        return request

    def _forget(self, request: ClientRequest) -> None:
        self._entries.pop(request)[0] = None
        if len(self._deadlines) > 2 * len(self._entries) + 64:
            self._deadlines = [one for one in self._deadlines if one[2][0] is not None]
            heapq.heapify(self._deadlines)

    def remove(self, node: Node) -> list[ClientRequest]:
        """Remove and return a node's queue: listeners may then put new requests for the node."""
        requests = self._queues.pop(node, deque())
        for request in requests:
            self._forget(request)
        return list(requests)

    def remove_expired(self, now_ms: float) -> Iterator[ClientRequest]:
        """Remove and yield requests that waited longer than their timeout, earliest deadline first.

        Kafka stops at a queue's first live request, so that a short timeout waits for a long one
        before it; here each request has its own deadline.
        """
        while self.next_deadline_ms() is not None:
            request = self._deadlines[0][2][0]
            assert request is not None
            if max(0.0, now_ms - request.created_time_ms) <= request.request_timeout_ms:
                return
            self._queues[request.node].remove(request)
            self._forget(request)
            yield request

    def next_deadline_ms(self) -> float | None:
        """Return the earliest deadline, in milliseconds of the clock that created the requests."""
        while self._deadlines and self._deadlines[0][2][0] is None:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def clean(self) -> None:
        """Drop empty queues."""
        for node in [node for node, queue in self._queues.items() if not queue]:
            del self._queues[node]

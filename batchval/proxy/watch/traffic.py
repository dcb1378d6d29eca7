"""The traffic of each listening port: requests by API and version, and their durations.

    session ──▶ Traffic of its listener and node ── families, on the event loop ──▶ /metrics

Labels come from closed sets: listeners of the settings, brokers that discovery knows up to a number
of them, APIs and versions that the gate carries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple

from batchval.proxy.settings.config import Metrics
from batchval.proxy.watch.clients import api_name, pair_of
from batchval.proxy.watch.metrics import Family
from batchval.proxy.watch.observed_batches import OTHER
from batchval.proxy.watch.request_latency import Traffic, histograms_of

__all__ = ["BOOTSTRAP", "TrafficTable"]

#: The node of a port that clients bootstrap from.
BOOTSTRAP: Final = "bootstrap"

_REQUEST = "From taking a request to handing its answer to the client's connection, in seconds."
_BROKER = "Of this, from sending the request to the broker to its answer."
_UNMEASURED = "Requests that are not in the durations, by the reason."


_Sample = tuple[tuple[str, ...], object]


class _Taken(NamedTuple):
    """The values of one listening port at one moment."""

    listener: str
    node: str
    requests: Mapping[int, int]
    durations: Mapping[int, bytes]


class TrafficTable:
    """The traffic of all listening ports, by listener and node.

    ``nodes``  so many brokers have a label of their own; the others are ``(other)``
    """

    def __init__(self, nodes: int = Metrics().nodes) -> None:
        self.nodes = nodes
        self._known: dict[int, str] = {}
        self._ports: dict[tuple[str, str], Traffic] = {}

    def of(self, listener: str, node_id: int | None, *, is_known: bool = True) -> Traffic:
        """Return the traffic of a listening port; ``node_id`` is None for the bootstrap port.

        ``is_known``  whether the broker is one of the cluster's: others share a label
        """
        label = BOOTSTRAP if node_id is None else self._label(node_id) if is_known else OTHER
        key = listener, label
        traffic = self._ports.get(key)
        if traffic is None:
            traffic = self._ports[key] = Traffic()
        return traffic

    def _label(self, node_id: int) -> str:
        label = self._known.get(node_id)
        if label is None:
            if len(self._known) >= self.nodes:
                return OTHER
            label = self._known[node_id] = str(node_id)
        return label

    def requests_by_api(self) -> dict[int, int]:
        """Return the number of all requests by API key."""
        found: Counter[int] = Counter()
        for one in self._ports.values():
            for pair, count in one.requests.items():
                found[pair >> 16] += count
        return dict(found)

    def families(self) -> Iterator[Family]:
        """Yield the metrics. The values are of this moment; samples are made in any thread."""
        taken = [_Taken(*key, one.requests.copy(), one.taken()) for key, one in self._ports.items()]
        ports = list(self._ports.values())
        waiting, client = (
            sum(getattr(one, f"unmeasured_{why}") for one in ports) for why in ("waiting", "client")
        )
        by_api = [((api_name(key),), count) for key, count in self.requests_by_api().items()]
        yield Family(
            "counter", "requests_by_api", "Requests from clients, by API.", ("api",), by_api
        )
        text = "Requests from clients, by API, version, listener and node."
        labels = "api", "version", "listener", "node"
        yield Family("counter", "requests_by_version", text, labels, _Samples(taken, _by_version))
        for n, (name, text) in enumerate((("request", _REQUEST), ("broker", _BROKER))):
            samples = _Samples(taken, partial(_histograms, n))
            yield Family(
                "histogram", f"{name}_duration_seconds", text, ("api", "listener", "node"), samples
            )
        reasons = [(("waiting",), waiting), (("client",), client)]
        yield Family("counter", "requests_unmeasured", _UNMEASURED, ("reason",), reasons)


class _Samples:
    """Samples that are made when they are asked for: thousands take long on the event loop."""

    def __init__(self, taken: Iterable[_Taken], of: Callable[[_Taken], Iterator[_Sample]]) -> None:
        self._taken = taken
        self._of = of

    def __iter__(self) -> Iterator[_Sample]:
        for one in self._taken:
            yield from self._of(one)


def _by_version(taken: _Taken) -> Iterator[_Sample]:
    for pair, requests in taken.requests.items():
        key, version = pair_of(pair)
        yield (api_name(key), str(version), taken.listener, taken.node), requests


def _histograms(which: int, taken: _Taken) -> Iterator[_Sample]:
    for key, packed in taken.durations.items():
        found = histograms_of(packed)[which]
        if any(found[0]):
            yield (api_name(key), taken.listener, taken.node), found

"""What the data path is told: plain values, checked by whoever reads the configuration.

Times are in seconds, sizes in bytes. The configuration file, its words and its units are another module's matter.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

from batchval.policy import ClaimsPolicy, TopicPolicy

__all__ = ["Counters", "Limits", "ProxyOptions", "Refusal", "TopicPolicies"]

Mode = Literal["enforce", "observe"]
ClaimsOut = Literal["none", "tag"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client may cost. The defaults are Kafka's, where Kafka has one.

    ``max_frame_bytes``   of a request (socket.request.max.bytes)
    ``max_answer_bytes``  of a broker's answer
    ``max_connections``   of all proxies that share these counters;  ``max_listener_connections`` of one proxy's clients
    ``max_bytes_held``    frames and answers that wait here, all connections together; above it reading pauses
    ``write_buffer``      bytes that may wait for one socket before the other side's reading pauses
    ``max_waiting``       answers that one connection may have open before its reading pauses
    ``handshake_s``       until the first whole request;  ``idle_s``  between requests, while no answer is awaited
    ``connect_s``         for the connection to a broker
    ``linger_s``          what a closed connection has to write what is left of it
    ``peer_timeout_s``    how long a peer may leave unacknowledged what the kernel sends it: then it is gone
    """

    max_frame_bytes: int = 100 << 20
    max_answer_bytes: int = 0x7FFFFFFF
    max_connections: int = 10_000
    max_listener_connections: int = 10_000
    max_bytes_held: int = 512 << 20
    write_buffer: int = 256 << 10
    max_waiting: int = 1000
    handshake_s: float = 10.0
    idle_s: float = 600.0
    connect_s: float = 10.0
    linger_s: float = 30.0
    peer_timeout_s: float = 120.0


class TopicPolicies:
    """The policy of each topic: the first glob that matches decides, else the default. Answers are remembered."""

    __slots__ = ("_known", "default", "globs", "known")

    MOST_KNOWN = 10_000

    def __init__(self, default: TopicPolicy | None = None, globs: Mapping[str, TopicPolicy] | None = None) -> None:
        self.default = default or TopicPolicy()
        self.globs = dict(globs or {})
        self.known: Callable[[str], TopicPolicy | None] | None = None  # the cluster's own configs, asked first
        self._known: dict[str | None, TopicPolicy] = {}

    @property
    def only_one(self) -> bool:
        """Whether no topic's name needs to be looked at."""
        return not self.globs and self.known is None

    def of(self, topic: str | None) -> TopicPolicy:
        """The policy of a topic."""
        if self.known is not None and topic is not None:
            policy = self.known(topic)
            if policy is not None:
                return policy
        policy = self._known.get(topic)
        if policy is None:
            policy = self.default
            for glob, given in self.globs.items():
                if topic is not None and fnmatchcase(topic, glob):
                    policy = given
                    break
            if len(self._known) >= self.MOST_KNOWN:  # names come from clients
                self._known.clear()
            self._known[topic] = policy
        return policy


class Refusal(NamedTuple):
    """One partition of a request that was refused, or would have been: for a log line; never a byte of payload."""

    listener: str
    client: str
    client_id: str | None
    topic: str | None
    partition: int
    rule: str
    error: str
    reason: str
    enforced: bool
    reported: tuple[str, ...] = ()  # extras that were found, rule is "" where they alone were


@dataclass(slots=True)
class Counters:
    """What the data path counts. Whoever exports metrics reads these, or gives an object with the same attributes."""

    connections_total: int = 0
    connections_open: int = 0
    connections_refused_total: int = 0  # above max_connections, or max_listener_connections
    connections_closed: dict[str, int] = field(default_factory=dict)  # by reason, where the proxy closed
    upstream_failures_total: int = 0
    requests_total: int = 0
    request_bytes_total: int = 0
    answers_total: int = 0
    answer_bytes_total: int = 0
    produce_requests_total: int = 0
    produce_partitions_total: int = 0
    partitions_refused: dict[str, int] = field(default_factory=dict)  # by rule
    partitions_reported: dict[str, int] = field(default_factory=dict)  # by extra
    requests_by_api: dict[int, int] = field(default_factory=dict)  # by API key
    batches_by_path: dict[str, int] = field(default_factory=dict)  # of accepted ones: claims, shallow, full, rebuilt
    requests_answered_here_total: int = 0
    requests_rewritten_total: int = 0
    judged_in_threads_total: int = 0
    claims_tags_dropped_total: int = 0
    claims_tags_added_total: int = 0
    answers_throttled: dict[int, int] = field(default_factory=dict)  # by API key, of Produce and Fetch
    throttle_time_ms: dict[int, int] = field(default_factory=dict)  # that they told clients to wait
    bytes_held: int = 0
    reading_paused_total: int = 0

    def throttled(self, key: int, wait_ms: int) -> None:
        """An answer tells a client to wait (throttle_time_ms)."""
        self.answers_throttled[key] = self.answers_throttled.get(key, 0) + 1
        self.throttle_time_ms[key] = self.throttle_time_ms.get(key, 0) + wait_ms


def _nothing(_: Refusal) -> None:
    return None


@dataclass(slots=True)
class ProxyOptions:
    """All that ``server.Proxy`` needs.

    ``listen``             (host, port) of the listener that clients bootstrap from; port 0: any free one
    ``upstream``           brokers to bootstrap from, tried in order
    ``advertised_host``    what clients are told; None: the address that the client itself connected to
    ``first_broker_port``  broker n is at this port + n; None: the port of ``listen`` + 1; 0: any free port
    ``mode``               enforce refuses; observe forwards, counts and logs
    ``topics``             policies; ``validator`` what LogValidator is made with besides (mode, extras, limits)
    ``claims_in``          what to make of claims that come in; ``claims_out`` whether any go out
    ``listen_tls``         an SSLContext, or a function that gives the newest at each start of a listener
    ``find_brokers``       gives (node id, host, port) of each broker; None: a broker is asked, without credentials
    ``sender``             gives the name that a connection's claims go by (from its certificate); None: the listener
    """

    listen: tuple[str, int]
    upstream: tuple[tuple[str, int], ...]
    advertised_host: str | None = None
    first_broker_port: int | None = None
    mode: Mode = "enforce"
    topics: TopicPolicies = field(default_factory=TopicPolicies)
    validator: Mapping[str, object] = field(default_factory=dict)
    claims_in: ClaimsPolicy = field(default_factory=ClaimsPolicy)
    claims_out: ClaimsOut = "none"
    listener_name: str = "default"
    listen_tls: ssl.SSLContext | Callable[[], ssl.SSLContext] | None = None
    upstream_tls: ssl.SSLContext | Callable[[], ssl.SSLContext] | None = None
    find_brokers: Callable[[], Awaitable[list[tuple[int, str, int]]]] | None = None
    sender: Callable[[object], str | None] | None = None
    limits: Limits = field(default_factory=Limits)
    threads: int = 2
    on_refusal: Callable[[Refusal], None] = _nothing

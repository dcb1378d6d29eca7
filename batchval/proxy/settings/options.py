"""Runtime options of the proxy. Values are already validated by proxy.config.

Times are in seconds, sizes in bytes; the configuration file has words and units of its own.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from batchval.kafka_versions import Release
from batchval.policy import ClaimsPolicy, TopicPolicy
from batchval.proxy.kit.end_reasons import explained
from batchval.proxy.kit.topics import FirstMatch
from batchval.proxy.settings.config import DenyRule, Limits, Listener, Settings
from batchval.proxy.settings.glob_policies import TopicRules
from batchval.proxy.settings.host_patterns import ServerNames

__all__ = [
    "ANONYMOUS",
    "Counters",
    "Denied",
    "Facts",
    "ProxyOptions",
    "Refusal",
    "RefusedBatches",
    "TopicPolicies",
]

#: Kafka's name for a client that has not authenticated.
ANONYMOUS: Final = "User:ANONYMOUS"


class TopicPolicies:
    """The policy of each topic: the first glob that matches decides, else the default. Answers are
    remembered.

    ``rules``  what is asked of the records of topics, by glob: the first that matches, or nothing
    """

    MAX_KNOWN_TOPICS = 10_000

    def __init__(
        self,
        default: TopicPolicy | None = None,
        globs: Mapping[str, TopicPolicy] | None = None,
        rules: Mapping[str, TopicRules] | None = None,
    ) -> None:
        self.default = default or TopicPolicy()
        self.globs = dict(globs or {})
        self.rules = dict(rules or {})
        self._cluster: Callable[[str], TopicPolicy | None] | None = None
        # whether one policy holds for every topic: an attribute, since each read of requests asks
        self.only_one = not self.globs and not self.rules
        self._known = FirstMatch(self.globs.items(), self.default, self.MAX_KNOWN_TOPICS)
        self._rules: FirstMatch[TopicRules | None]
        self._rules = FirstMatch(self.rules.items(), None, self.MAX_KNOWN_TOPICS)

    def names(self) -> list[str]:
        """Return the topics that were looked up by glob."""
        return list(dict.fromkeys((*self._known, *self._rules)))

    @property
    def known(self) -> Callable[[str], TopicPolicy | None] | None:
        """Return what knows the cluster's own configs, which are asked first; None: nothing."""
        return self._cluster

    @known.setter
    def known(self, cluster: Callable[[str], TopicPolicy | None] | None) -> None:
        self._cluster = cluster
        self.only_one = not self.globs and cluster is None and not self.rules

    def rules_of(self, topic: str | None) -> TopicRules | None:
        """Return what is asked of the records of a topic; None: nothing."""
        return None if not self.rules or topic is None else self._rules[topic]

    def of(self, topic: str | None) -> TopicPolicy:
        """Return the policy of a topic."""
        if not self.rules:
            return self.configuration_of(topic)
        base = self.configuration_of(topic)
        rules = self.rules_of(topic)
        return base if rules is None or topic is None else rules.policy(topic, base)

    def configuration_of(self, topic: str | None) -> TopicPolicy:
        """Return the policy of a topic without what is asked of its records."""
        if topic is None:
            return self.default
        if self.known is not None and (policy := self.known(topic)) is not None:
            return policy
        return self._known[topic]


class Facts(NamedTuple):
    """The sender of a request.

    ``sender``     the name that its claims are kept under
    ``client``     host and port
    ``principal``  in Kafka's form
    ``listener``   the name of the listener where it came in
    ``software``   name and version, as the client says; "" where it says nothing
    """

    sender: str
    client: str
    principal: str
    listener: str
    software: str = ""


class Refusal(NamedTuple):
    """One partition that was refused, or would have been, for a log line; no byte of payload."""

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
    principal: str = ANONYMOUS  # in Kafka's form
    batches: int = 1  # batches of the request that this one stands for: the same rule and outcome
    version: int = -1  # of the Produce request


class RefusedBatches(Protocol):
    """The receiver of copies of refused batches; ``quarantine.Quarantine`` is one. Called on the
    loop.

    ``observed``  whether it takes those that go on although they break a rule, too
    """

    @property
    def observed(self) -> bool: ...
    def take(
        self, refusal: Refusal, batch: memoryview | None, facts: Mapping[str, Any]
    ) -> None: ...
    def leave_out(self, batches: int) -> None: ...


class Denied(NamedTuple):
    """A request of an API that the settings deny. ``inter_broker``: only brokers, controllers and
    operators send it.
    """

    listener: str
    client: str
    client_id: str | None
    principal: str
    key: int
    version: int
    inter_broker: bool = False


def _count(text: str, start: float = 0) -> Any:
    """Declare a number of Counters. ``text``: what it counts, as /metrics and the docs say it."""
    return field(default=start, metadata={"text": text})


def _by(label: str, text: str) -> dict[str, str]:
    """Describe numbers by a label, whose values are few."""
    return {"label": label, "text": text}


@dataclass(slots=True)
class Counters:
    """The counters of the data path: each is a metric, by its name here.

    An exporter of metrics may pass an object like it. A name that ends in ``_total`` is a counter,
    another a gauge; a dict is a counter with one label.
    """

    connections_total: int = _count("Client connections that were accepted.")
    connections_open: int = _count("Open client connections.")
    connections_refused_total: int = _count(
        "Connections refused: over a limit on connections, or while the gate drains."
    )
    connections_refused_by: dict[str, int] = field(
        default_factory=dict, metadata=_by("reason", "Of these, by reason.")
    )
    frames_evicted_total: int = _count(
        "Connections closed over budget: their unfinished frame grew slowest."
    )
    answers_evicted_total: int = _count(
        "Connections closed over budget: their client read no answers."
    )
    connections_closed: dict[str, int] = field(
        default_factory=dict,
        metadata=_by("reason", f"Connections that the gate ended, by reason. {explained()}"),
    )
    handshakes_total: int = _count("TLS handshakes with clients that succeeded.")
    handshakes_failed: dict[str, int] = field(
        default_factory=dict,
        metadata=_by(
            "reason",
            "TLS handshakes with clients that failed, by reason, without probes that sent nothing.",
        ),
    )
    upstream_failures_total: int = _count("Connections to brokers that failed.")
    requests_total: int = _count("Requests from clients.")
    request_bytes_total: int = _count("Bytes of requests from clients.")
    answers_total: int = _count("Answers from brokers.")
    answer_bytes_total: int = _count("Bytes of answers from brokers.")
    produce_requests_total: int = _count("Produce requests.")
    produce_partitions_total: int = _count("Partitions of produce requests: validated batches.")
    partitions_refused: dict[str, int] = field(
        default_factory=dict,
        metadata=_by("rule", "Batches that were refused, by the first rule that they broke."),
    )
    partitions_observed: dict[str, int] = field(
        default_factory=dict,
        metadata=_by(
            "rule", "Batches that broke a rule and were forwarded (observed), by the first one."
        ),
    )
    partitions_reported: dict[str, int] = field(
        default_factory=dict,
        metadata=_by("extra", "Batches accepted although an extra rule found a fault."),
    )
    batches_converted_total: int = _count(
        "Message sets of old clients that became batches of magic 2."
    )
    batches_by_path: dict[str, int] = field(
        default_factory=dict,
        metadata=_by("path", "Batches accepted, by the path of their validation."),
    )
    requests_answered_here_total: int = _count("Produce requests that were not sent to a broker.")
    requests_denied: dict[int, int] = field(
        default_factory=dict, metadata=_by("api", "Requests that the settings deny (deny), by API.")
    )
    requests_rewritten_total: int = _count(
        "Produce requests written anew: without refused partitions, with or without claims."
    )
    judged_in_threads_total: int = _count(
        "Produce requests validated in a thread: they are large, have many partitions, or cost "
        "much to validate."
    )
    refusals_repeated_total: int = _count(
        "Batches refused without reading them: the same sender has sent the same batch before."
    )
    requests_queued: int = _count("Produce requests that wait for a validating thread.")
    judging_cpu_seconds_total: float = _count("CPU time of validation in threads, in seconds.", 0.0)
    answers_streamed_total: int = _count(
        "Answers of brokers streamed to clients before they were complete."
    )
    requests_raised_total: int = _count(
        "Requests of versions that Kafka 4 does not serve, raised to others."
    )
    fetches_unconverted_total: int = _count(
        "Partitions of answers to old consumers with a batch that cannot be converted."
    )
    claims_tags_dropped_total: int = _count("Produce requests whose tags were removed.")
    claims_tags_added_total: int = _count("Batches whose claims were put into a tag.")
    claims_payloads_added_total: int = _count("Batches whose claims were put into their payload.")
    claims_payloads_dropped_total: int = _count(
        "Batches whose claims were removed from their payload."
    )
    answers_throttled: dict[int, int] = field(
        default_factory=dict,
        metadata=_by("api", "Produce and Fetch answers that throttle a client (quotas), by API."),
    )
    throttle_time_ms: dict[int, int] = field(
        default_factory=dict,
        metadata=_by("api", "The throttle time of these answers, in milliseconds, by API."),
    )
    bytes_held: int = _count("Bytes of requests and answers that wait in the gate.")
    reading_paused_total: int = _count("Pauses in reading from a client.")

    def throttled(self, key: int, wait_ms: int) -> None:
        """Count an answer that makes a client wait (throttle_time_ms)."""
        self.answers_throttled[key] = self.answers_throttled.get(key, 0) + 1
        self.throttle_time_ms[key] = self.throttle_time_ms.get(key, 0) + wait_ms


def _nothing(_: object) -> None:
    return None


@dataclass(slots=True)
class ProxyOptions:
    """The settings of one listener, and the objects that are made of them.

    A setting is read from ``settings`` or ``listener`` where it is used, by its key in the file.
    Only what has to be built first has a field of its own; ``configured_parts.options_for`` fills
    them.

    ``listener``       one of ``settings.listeners``
    ``release``        of Kafka, whose answers are given; None: that of the settings
    ``topics``         policies
    ``deny``           APIs that are answered with an authorization error
    ``claims_in``      what to make of claims that come in
    ``claims_secret``  decides which claims are sampled, the same in all processes; None: any
    ``sni``            the server names by which TLS clients choose brokers: there is one port
    ``listen_tls``     an SSLContext, or a function that gives the newest at each connection
    ``quarantine``     gets copies of refused batches; None: nothing is copied
    ``principal``      returns a client's principal, as Kafka writes it, from its verified
                       certificate
    ``sender``         gives the name that a connection's claims go by (from its certificate);
                       None: the listener
    """

    settings: Settings
    listener: Listener
    release: Release | None = None
    topics: TopicPolicies = field(default_factory=TopicPolicies)
    deny: tuple[DenyRule, ...] = ()
    claims_in: ClaimsPolicy = field(default_factory=ClaimsPolicy)
    claims_secret: bytes | None = None
    sni: ServerNames | None = None
    listen_tls: ssl.SSLContext | Callable[[], ssl.SSLContext] | None = None
    upstream_tls: ssl.SSLContext | Callable[[], ssl.SSLContext] | None = None
    sender: Callable[[object], str | None] | None = None
    principal: Callable[[Any], str | None] | None = None
    on_refusal: Callable[[Refusal], None] = _nothing
    on_denied: Callable[[Denied], None] = _nothing
    quarantine: RefusedBatches | None = None

    @property
    def listen(self) -> tuple[str, int]:
        """Return host and port of the listener that clients bootstrap from; port 0: any free."""
        host, port = self.listener.address
        return host or "0.0.0.0", port

    @property
    def limits(self) -> Limits:
        """Return the limits of clients."""
        return self.settings.limits

    @property
    def max_connections(self) -> int:
        """Return how many clients of this listener there may be."""
        return self.listener.max_connections or self.limits.max_connections

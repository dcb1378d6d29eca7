"""The settings of a gate: what a file of YAML may say, and what holds where it says nothing.

Strict: a key that is not known, a number in quotes, a word that is none of those named is an error. Times are
milliseconds, sizes bytes; docs/proxy-configuration.md has an example with every key. ``loading`` reads files.
"""

from __future__ import annotations

import fnmatch
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from batchval.errors import BatchvalError
from batchval.kafka_versions import DEFAULT_KAFKA_VERSION, KAFKA_VERSIONS, KafkaVersionName
from batchval.policy import ClaimsPolicy, TopicPolicy
from batchval.proxy.values import (
    Address,
    AddressField,
    ClaimsField,
    PathField,
    SecretField,
)
from batchval.rules import EXTRAS
from batchval.types import DEFAULT_MAX_DECOMPRESSED_BYTES

__all__ = [
    "Admin",
    "Limits",
    "Listener",
    "ListenerTls",
    "Log",
    "Metrics",
    "Settings",
    "TopicRule",
    "Topics",
    "Upstream",
    "UpstreamTls",
    "Validation",
]

_INT_MAX = 2**31 - 1
Positive = Annotated[int, Field(gt=0)]


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, hide_input_in_errors=True)


class ListenerTls(_Model):
    """TLS for clients. TLS 1.2 at least. With ``client_ca`` clients have to show certificates (mTLS)."""

    certificate: PathField
    key: PathField
    key_password: SecretField | None = None
    client_ca: PathField | None = None
    client_auth: Literal["none", "optional", "required"] | None = None
    minimum_version: Literal["1.2", "1.3"] = "1.2"

    @model_validator(mode="after")
    def _whole(self) -> ListenerTls:
        if self.client_auth in ("optional", "required") and self.client_ca is None:
            raise ValueError(f"client_auth {self.client_auth} needs client_ca")
        if self.client_auth == "none" and self.client_ca is not None:
            raise ValueError("client_ca is of no use with client_auth none")
        return self

    @property
    def client_certificates(self) -> Literal["none", "optional", "required"]:
        """What is asked of clients: required where there is a ``client_ca``, unless told otherwise."""
        return self.client_auth or ("required" if self.client_ca else "none")


class Listener(_Model):
    """Where clients connect: one port to begin with, and one for each broker behind.

    ``address``            the port that clients are given as bootstrap server; port 0: any free one
    ``advertised_host``    the host that clients are told; by default the one that the client itself has connected to
    ``first_broker_port``  broker n is at this port + n; by default the port after that of ``address``; 0: any free ones
    ``max_connections``    of its clients, beside ``limits.max_connections`` of all
    ``trusted``            whoever connects here may make claims: all of them are one sender
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")] = "default"
    address: AddressField
    advertised_host: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]{1,255}$")] | None = None
    first_broker_port: Annotated[int, Field(ge=0, le=65535)] | None = None
    max_connections: Positive | None = None
    trusted: bool = False
    tls: ListenerTls | None = None

    @property
    def gives_senders(self) -> bool:
        """Whether each client that comes by here is someone whose claims can be held against it."""
        return self.trusted or (self.tls is not None and self.tls.client_certificates == "required")


class UpstreamTls(_Model):
    """TLS to the brokers. Their certificates are always verified. TLS 1.2 at least."""

    ca: PathField | None = None
    certificate: PathField | None = None
    key: PathField | None = None
    key_password: SecretField | None = None
    minimum_version: Literal["1.2", "1.3"] = "1.2"

    @model_validator(mode="after")
    def _whole(self) -> UpstreamTls:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key go together")
        if self.key_password is not None and self.key is None:
            raise ValueError("key_password without a key")
        return self


class Admin(_Model):
    """As whom the gate itself asks the cluster for topic configurations; clients keep their own credentials."""

    mechanism: Literal["NONE", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"
    username: Annotated[str, Field(min_length=1)] | None = None
    password: SecretField | None = None
    refresh_ms: Annotated[int, Field(ge=1_000)] = 300_000

    @model_validator(mode="after")
    def _whole(self) -> Admin:
        given = self.username is not None, self.password is not None
        if self.mechanism == "NONE" and any(given):
            raise ValueError("mechanism NONE has neither username nor password")
        if self.mechanism != "NONE" and not all(given):
            raise ValueError(f"{self.mechanism} needs username and password")
        return self


class Upstream(_Model):
    """The cluster behind. ``bootstrap`` is one broker of it."""

    bootstrap: AddressField
    tls: UpstreamTls | None = None
    admin: Admin | None = None
    allow_plaintext: bool = False
    connect_timeout_ms: Positive = 10_000

    @field_validator("bootstrap")
    @classmethod
    def _reachable(cls, bootstrap: Address) -> Address:
        if not bootstrap.host or not bootstrap.port:
            raise ValueError("must be HOST:PORT of a broker")
        return bootstrap


def _quoted(version: object) -> object:
    """YAML reads 3.9 as a number, and 3.10 as 3.1."""
    if isinstance(version, int | float):
        raise ValueError(f'must be one of {", ".join(KAFKA_VERSIONS)}, in quotes: "{version}"')
    return version


class Validation(_Model):
    """How batches are judged. Extras are reported by default, since the broker would accept them.

    ``kafka_version``  version of the brokers: their answers, and the defaults of
                       ``topics.policies``
    """

    kafka_version: Annotated[KafkaVersionName, BeforeValidator(_quoted)] = DEFAULT_KAFKA_VERSION
    rules: Literal["strict", "kafka"] = "strict"
    extras: dict[str, Literal["report", "refuse"]] = {}
    max_decompressed_bytes: Annotated[int, Field(gt=0, le=_INT_MAX)] = DEFAULT_MAX_DECOMPRESSED_BYTES

    @model_validator(mode="after")
    def _whole(self) -> Validation:
        known = [rule.id for rule in EXTRAS]
        for extra, setting in self.extras.items():
            if extra not in known:
                raise ValueError(f"extras: {extra} is not one of {', '.join(known)}")
            if extra == "S8" and setting == "report":
                raise ValueError("extras: S8 is always refused")
        if self.extras and self.rules == "kafka":
            raise ValueError("extras belong to the rules strict")
        return self

    @property
    def all_extras(self) -> dict[str, str]:
        """For LogValidator: what is done about each."""
        given = {rule.id: "report" for rule in EXTRAS if rule.id != "S8"}
        return {} if self.rules == "kafka" else given | dict(self.extras)


class TopicRule(_Model):
    """What the topics whose names match allow: a topic's configuration, by Kafka's keys. Others have their defaults."""

    model_config = ConfigDict(alias_generator=lambda name: name.replace("_", "."))

    match: Annotated[str, Field(min_length=1, max_length=249)]
    message_timestamp_before_max_ms: int | None = None
    message_timestamp_after_max_ms: int | None = None
    message_timestamp_type: str | None = None
    max_message_bytes: int | None = None
    max_decompressed_message_bytes: int | None = None
    compression_type: str | None = None
    compression_gzip_level: int | None = None
    compression_lz4_level: int | None = None
    compression_zstd_level: int | None = None
    cleanup_policy: str | None = None
    message_timestamp_difference_max_ms: int | None = None

    @model_validator(mode="after")
    def _fits(self) -> TopicRule:
        self.policy()
        return self

    def policy(self, kafka_version: str = DEFAULT_KAFKA_VERSION) -> TopicPolicy:
        """As the engine takes it, with the defaults of this version of Kafka. ValueError."""
        given = self.model_dump(by_alias=True, exclude={"match"}, exclude_none=True)
        try:
            return TopicPolicy.from_kafka_config(given, kafka_version=kafka_version)
        except BatchvalError as error:
            raise ValueError(str(error)) from None

    def matches(self, topic: str) -> bool:
        """Whether the glob fits the whole name; upper and lower case differ."""
        return fnmatch.fnmatchcase(topic, self.match)


class Topics(_Model):
    """Which topic allows what: the first of ``policies`` that matches, else what the cluster says, else anything.

    ``from_cluster`` reads topic configurations with ``upstream.admin``; by default where there is one.
    """

    policies: list[TopicRule] = []
    from_cluster: bool | None = None


class Limits(_Model):
    """What clients may take. Every limit is on.

    ``max_frame_bytes``       a longer request ends its connection before a byte of it is stored
    ``max_connections``       of all clients together; one more is closed at once
    ``max_bytes_held``        requests and answers that wait here, of all clients: above it reading pauses
    ``write_buffer_bytes``    what may wait for one socket before the other side is read no more
    ``max_requests_waiting``  answers that one connection may have open before no more is read from it
    ``handshake_timeout_ms``  until the first whole request, TLS included
    ``idle_timeout_ms``       without a request, and with nothing to be answered
    ``peer_timeout_ms``       for a peer to acknowledge what is sent to it; one that is gone without a word is found so
    ``drain_timeout_ms``      at the end, for what is in flight
    ``threads``               that judge what would hold the others up
    """

    max_frame_bytes: Annotated[int, Field(ge=1_024, le=_INT_MAX)] = 104_857_600
    max_connections: Positive = 10_000
    max_bytes_held: Positive = 512 << 20
    write_buffer_bytes: Positive = 256 << 10
    max_requests_waiting: Positive = 1_000
    handshake_timeout_ms: Positive = 10_000
    idle_timeout_ms: Positive = 600_000
    peer_timeout_ms: Annotated[int, Field(ge=1_000, le=_INT_MAX)] = 120_000
    drain_timeout_ms: Annotated[int, Field(ge=0)] = 30_000
    threads: Annotated[int, Field(ge=1, le=64)] = 2

    @model_validator(mode="after")
    def _whole(self) -> Limits:
        if self.max_bytes_held < self.max_frame_bytes:
            raise ValueError("max_bytes_held is below max_frame_bytes: such a frame could never pass")
        return self


class Metrics(_Model):
    """Where /metrics, /livez and /readyz are answered. On this machine alone, unless ``remote`` asks for more.

    ``topics``: so many topics have their own label in the count of refusals; the others share one.
    """

    address: AddressField | None = Address("127.0.0.1", 9464)
    remote: bool = False
    topics: Annotated[int, Field(ge=0, le=10_000)] = 100

    @model_validator(mode="after")
    def _near(self) -> Metrics:
        if self.address is not None and not self.address.is_loopback and not self.remote:
            raise ValueError(f"{self.address} can be reached from elsewhere: say remote: true if that is meant")
        return self


class Log(_Model):
    """Lines on stderr. ``refusals_per_second`` bounds those about refused batches; what is left out is counted."""

    format: Literal["text", "json"] = "text"
    level: Literal["debug", "info", "warning", "error"] = "info"
    refusals_per_second: Positive = 100


class Settings(_Model):
    """All of it. ``mode`` observe forwards what enforce would refuse, counts it and logs it."""

    mode: Literal["enforce", "observe"] = "enforce"
    listeners: Annotated[list[Listener], Field(min_length=1)]
    upstream: Upstream
    validation: Validation = Validation()
    topics: Topics = Topics()
    claims_in: ClaimsField = ClaimsPolicy()
    claims_out: Literal["none", "tag"] = "none"
    limits: Limits = Limits()
    metrics: Metrics = Metrics()
    log: Log = Log()

    @model_validator(mode="after")
    def _claims(self) -> Settings:
        word = self.claims_in.word
        if self.claims_out == "tag" and word not in ("ignore", "verify"):
            raise ValueError(
                f"claims_out tag goes with claims_in ignore or verify, not {word}: it would vouch for a stranger"
            )
        if word in ("audit", "trust") and not any(listener.gives_senders for listener in self.listeners):
            raise ValueError(
                f"claims_in {word} needs a sender: a listener that requires client certificates (tls.client_ca), "
                "or is trusted: true"
            )
        return self

    @model_validator(mode="after")
    def _credentials(self) -> Settings:
        upstream = self.upstream
        if upstream.tls is None and not upstream.bootstrap.is_loopback and not upstream.allow_plaintext:
            for listener in self.listeners:
                if listener.tls is not None:
                    raise ValueError(
                        f"upstream: listener {listener.name} has TLS and the way to {upstream.bootstrap} has none: "
                        "say upstream.allow_plaintext: true if that is meant"
                    )
            if upstream.admin is not None and upstream.admin.mechanism == "PLAIN":
                raise ValueError(
                    "upstream.admin: PLAIN shows the password on a way without TLS: "
                    "say upstream.allow_plaintext: true if that is meant"
                )
        if self.topics.from_cluster and upstream.admin is None:
            raise ValueError("topics.from_cluster needs upstream.admin (mechanism: NONE where the cluster asks nobody)")
        return self

    @model_validator(mode="after")
    def _doors(self) -> Settings:
        names = [listener.name for listener in self.listeners]
        if len(set(names)) < len(names):
            raise ValueError("listeners: two have the same name (give each a name)")
        taken = [(self.metrics.address, "metrics")] if self.metrics.address else []
        for listener in self.listeners:
            here = listener.address
            for other, whose in taken:
                same_host = other.host == here.host or other.is_wildcard or here.is_wildcard
                if here.port and here.port == other.port and same_host:
                    raise ValueError(f"listeners: the port of {listener.name}, {here.port}, is taken by {whose}")
            taken.append((here, listener.name))
        return self

    @property
    def reads_topic_configs(self) -> bool:
        """Whether topic policies come from the cluster."""
        wanted = self.topics.from_cluster
        return self.upstream.admin is not None if wanted is None else wanted

    def claims_in_of(self, listener: Listener) -> ClaimsPolicy:
        """What to make of claims that come by a listener: of those of nobody in particular, nothing."""
        if self.claims_in.word in ("audit", "trust") and not listener.gives_senders:
            return ClaimsPolicy()
        return self.claims_in

"""The settings of a gate: the keys of a YAML file, their types and their defaults.

Strict: an unknown key, a number in quotes and an unknown word are errors. Times are milliseconds,
sizes are bytes. docs/reference/proxy/settings.md has an example with every key. ``loading`` reads
files, ``checks`` compares settings with each other.

Denied APIs are named as in Kafka's message definitions, in any case: DeleteTopics, alterconfigs.
The name inter-broker stands for the requests that brokers, controllers and operators send. Each
listener denies these by default. For most of them Kafka asks for CLUSTER_ACTION or ALTER on the
cluster; but a gate with a certificate of its own is one principal to the brokers, for all of its
clients.
"""

from __future__ import annotations

import difflib
import enum
import math
import os
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
)

from batchval.errors import BatchvalError
from batchval.kafka_versions import (
    DEFAULT_KAFKA_VERSION,
    Release,
    find_release,
    least_refusing,
    releases_from,
)
from batchval.policy import ClaimsPolicy, TopicPolicy
from batchval.protocol.apis import APIS, ApiKey
from batchval.protocol.gate_versions import carried_versions
from batchval.protocol.walkers.broker_requests import BROKER_APIS, SHARED_WITH_BROKERS
from batchval.proxy.settings.record_settings import (
    CustomRuleNames,
    CustomRules,
    RecordRulesRule,
    SchemaRegistry,
)
from batchval.proxy.settings.setting_types import (
    MAX_PORT,
    MAX_WORKERS,
    Address,
    AddressField,
    AdvertisedHostField,
    AllowedHostField,
    BootstrapNameField,
    BridgeField,
    BrokerNameField,
    BrokersField,
    ClaimsField,
    PathField,
    SecretField,
    WorkersField,
    check_url,
)
from batchval.rules import EXTRAS
from batchval.schema_registry.registry_client import split_url
from batchval.types import DEFAULT_MAX_DECOMPRESSED_BYTES
from batchval.yaml_settings.wording import STRICT

__all__ = [
    "DENIABLE",
    "INTER_BROKER",
    "MAX_WORKERS",
    "METRICS_PATH",
    "NEVER_DENIED",
    "Admin",
    "ClaimsOut",
    "DenyRule",
    "DenySettings",
    "Effect",
    "Limits",
    "Listener",
    "ListenerTls",
    "Log",
    "Metrics",
    "ObserveRule",
    "Otlp",
    "Quarantine",
    "QuarantineField",
    "Reload",
    "Settings",
    "Sni",
    "TopicRule",
    "Topics",
    "Upstream",
    "UpstreamTls",
    "Validation",
    "inter_broker_rules",
]

#: APIs without which no client can work.
NEVER_DENIED: Final[Mapping[int, str]] = {
    ApiKey.API_VERSIONS: "clients begin with it",
    ApiKey.METADATA: "clients find brokers by it",
    ApiKey.SASL_HANDSHAKE: "clients authenticate by it",
    ApiKey.SASL_AUTHENTICATE: "clients authenticate by it",
}

#: Name -> key of the APIs that may be denied: the others that a gate carries.
DENIABLE: Final[Mapping[str, int]] = {
    APIS[key].name: key for key in carried_versions() if key not in NEVER_DENIED
}

#: The name of a rule's preset: ``BROKER_APIS``, and of the APIs in ``SHARED_WITH_BROKERS`` the
#: requests of brokers. docs/guide/gate-writes.md has the reason for each.
INTER_BROKER: Final = "inter-broker"

_BY_NAME: Final = {api.name.lower(): api for api in APIS.values()}


def _api(value: Any) -> Any:
    """Return the name of an API as Kafka writes it. Raises ValueError."""
    if not isinstance(value, str):
        raise ValueError("must be the name of an API, for example DeleteTopics")
    if value.lower() == INTER_BROKER:
        return INTER_BROKER
    api = _BY_NAME.get(value.lower())
    if api is None:
        near = difflib.get_close_matches(value.lower(), [name.lower() for name in DENIABLE], 1)
        hint = f": do you mean {_BY_NAME[near[0]].name}?" if near else ", for example DeleteTopics"
        raise ValueError(f"must be the name of an API of Kafka{hint}")
    if api.key in NEVER_DENIED:
        raise ValueError(f"{api.name} cannot be denied: {NEVER_DENIED[api.key]}")
    if api.name not in DENIABLE:
        raise ValueError(f"{api.name} is an API between controllers, which the gate does not carry")
    return api.name


def _globs(value: Any) -> Any:
    return (
        (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value
    )


_Glob = Annotated[str, Field(min_length=1, max_length=1_000)]


class DenyRule(NamedTuple):
    """Denied API keys; globs (fnmatchcase) of principals, those excepted, and listeners.

    ``shared``  keys of APIs of which the requests of brokers are denied
                (``broker_requests.SHARED_WITH_BROKERS``)
    """

    keys: frozenset[int]
    principals: str = "*"
    exceptions: tuple[str, ...] = ()
    listeners: str = "*"
    shared: frozenset[int] = frozenset()

    def matches(self, principal: str) -> bool:
        """Return whether the rule is about a principal."""
        if any(fnmatchcase(principal, glob) for glob in self.exceptions):
            return False
        return fnmatchcase(principal, self.principals)


class DenySettings(BaseModel):
    """APIs that the gate answers with an authorization error.

    ``apis``               names of APIs, or ``inter-broker``
    ``principals``         in Kafka's form, a glob: ``User:alice``, ``User:ANONYMOUS``
    ``except_principals``  globs of principals that the rule is not about
    ``listeners``          a glob of the names of listeners
    """

    model_config = STRICT

    apis: Annotated[list[Annotated[str, BeforeValidator(_api)]], Field(min_length=1)]
    principals: _Glob = "*"
    except_principals: Annotated[tuple[_Glob, ...], BeforeValidator(_globs)] = ()
    listeners: Annotated[str, Field(min_length=1, max_length=64)] = "*"

    @property
    def rule(self) -> DenyRule:
        """Return the rule for the data path."""
        keys = frozenset(DENIABLE[name] for name in self.apis if name != INTER_BROKER)
        if INTER_BROKER not in self.apis:
            return DenyRule(keys, self.principals, self.except_principals, self.listeners)
        return DenyRule(
            keys | BROKER_APIS,
            self.principals,
            self.except_principals,
            self.listeners,
            SHARED_WITH_BROKERS,
        )


def inter_broker_rules(rules: Iterable[DenySettings], listener: str) -> tuple[DenyRule, ...]:
    """Return what a listener denies by default, in addition to these rules.

    A principal that a rule excepts from ``inter-broker``, or from one of its APIs, is excepted here,
    too: the rule says who may use it.
    """
    here = [one.rule for one in rules if fnmatchcase(listener, one.listeners)]
    found: dict[tuple[str, ...], tuple[set[int], set[int]]] = {}
    for key in sorted(BROKER_APIS):
        exceptions = tuple(glob for rule in here if key in rule.keys for glob in rule.exceptions)
        found.setdefault(exceptions, (set(), set()))[0].add(key)
    for key in sorted(SHARED_WITH_BROKERS):
        exceptions = tuple(glob for rule in here if key in rule.shared for glob in rule.exceptions)
        found.setdefault(exceptions, (set(), set()))[1].add(key)
    return tuple(
        DenyRule(frozenset(keys), exceptions=exceptions, shared=frozenset(shared))
        for exceptions, (keys, shared) in found.items()
    )


class Quarantine(BaseModel):
    """Copies of refused batches, with their verdicts. They hold the records of clients.

    ``max_bytes``  of all files: the oldest go first
    ``observed``   copies of batches that are forwarded although they break a rule, too
    """

    model_config = STRICT

    directory: PathField
    max_bytes: Annotated[int, Field(ge=1 << 20)] = 1 << 30
    observed: bool = False


def _quarantine(value: Any) -> Any:
    """Return the long form of ``quarantine: DIR``."""
    return {"directory": value} if isinstance(value, str) else value


QuarantineField = Annotated[Quarantine, BeforeValidator(_quarantine)]

#: Where a collector takes metrics, unless the endpoint has a path.
METRICS_PATH: Final = "/v1/metrics"

MAX_HEADERS: Final = 20

_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")  # RFC 9110, 5.6.2

_collector_url = partial(
    check_url, path=f"; without a path, it is {METRICS_PATH}", instead="the header authorization"
)


class Otlp(BaseModel):
    """A collector that takes metrics by OTLP over HTTP, and how often it gets them.

    ``headers``  of each request, such as ``authorization``; they are secrets
    ``ca``       authorities of its certificate; None: those that the library brings
    """

    model_config = STRICT

    endpoint: Annotated[str, AfterValidator(_collector_url)]
    interval_ms: Annotated[int, Field(ge=1_000, le=3_600_000)] = 60_000
    headers: Annotated[dict[str, SecretField], Field(max_length=MAX_HEADERS)] = {}
    ca: PathField | None = None

    @field_validator("headers")
    @classmethod
    def _are_names(cls, headers: dict[str, SecretField]) -> dict[str, SecretField]:
        for name in headers:
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name[:100]!r} is not the name of a header")
        return headers

    @property
    def url(self) -> str:
        """Return the endpoint with its path."""
        scheme, host, port, path = split_url(self.endpoint)
        host = f"[{host}]" if ":" in host else host
        return f"{scheme}://{host}:{port}{path or METRICS_PATH}"


_INT_MAX = 2**31 - 1

ClaimsOut = Literal["none", "tag", "payload"]

IsolationLevel = Literal["read_uncommitted", "read_committed"]

Positive = Annotated[int, Field(gt=0)]

PortField = Annotated[int, Field(ge=1, le=MAX_PORT)]


class Effect(enum.Enum):
    """The time at which a change of a setting takes effect, declared with its key.

    A key without one has that of the key around it; at the top, RESTART.
    """

    AT_ONCE = "at once"  # the next request, also of clients that are connected
    NEW = "new connections"
    RESTART = "restart"  # another process: ports and folders belong to the running one


class _Model(BaseModel):
    model_config = STRICT


class ListenerTls(_Model):
    """TLS for clients, version 1.2 or later.

    ``client_ca``   authorities of client certificates; with it clients have to show one (mTLS)
    ``client_crl``  certificates that these authorities have revoked
    """

    certificate: PathField
    key: PathField
    key_password: SecretField | None = None
    client_ca: PathField | None = None
    client_crl: PathField | None = None
    client_auth: Literal["none", "optional", "required"] | None = None
    minimum_version: Literal["1.2", "1.3"] = "1.2"

    @property
    def client_certificates(self) -> Literal["none", "optional", "required"]:
        """Return what clients must show; by default a certificate where ``client_ca`` is set."""
        return self.client_auth or ("required" if self.client_ca else "none")


class Sni(_Model):
    """Names of one port for all brokers: the server name in a client's TLS handshake chooses the
    broker.

    ``bootstrap``  the name that clients bootstrap from
    ``broker``     the names of brokers, with {node} for the broker's id
    """

    bootstrap: BootstrapNameField
    broker: BrokerNameField

    @property
    def names(self) -> tuple[str, str]:
        """Return the bootstrap name and the pattern of the brokers' names."""
        return self.bootstrap, self.broker


class Listener(_Model):
    """A listener for clients: one bootstrap port, and one port for each broker.

    ``address``            the bootstrap port of clients; port 0: any free one
    ``advertised_host``    the host in answers to clients, with {node} for the broker's id; by
                           default the one that the client itself has connected to
    ``advertised_port``    the port in answers, of all brokers; by default that of the broker's
                           listener
    ``advertised_first_port``  broker n is at this port + n in answers
    ``sni``                one port for all brokers, which clients choose by TLS server name
    ``first_broker_port``  broker n is at this port + n; by default the port after that of
                           ``address``; 0: any free ones
    ``broker_ports``       how many ports, from ``first_broker_port`` on, belong to brokers
    ``max_connections``    of its clients, within ``limits.max_connections`` of all
    ``trusted``            all clients of this listener may make claims, as one sender
    ``inter_broker``       allow: brokers connect here, or operators who change the cluster; deny:
                           the requests that only these send are denied
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")] = "default"
    address: AddressField
    advertised_host: Annotated[AdvertisedHostField | None, Effect.AT_ONCE] = None
    advertised_port: Annotated[PortField | None, Effect.AT_ONCE] = None
    advertised_first_port: Annotated[PortField | None, Effect.AT_ONCE] = None
    sni: Sni | None = None
    first_broker_port: Annotated[int, Field(ge=0, le=MAX_PORT)] | None = None
    broker_ports: Annotated[int, Field(ge=1, le=MAX_PORT)] = 100
    max_connections: Annotated[Positive | None, Effect.NEW] = None
    trusted: Annotated[bool, Effect.AT_ONCE] = False
    inter_broker: Annotated[Literal["deny", "allow"], Effect.AT_ONCE] = "deny"
    tls: Annotated[ListenerTls | None, Effect.NEW] = None

    @property
    def gives_senders(self) -> bool:
        """Return whether each client is a sender whose claims can be held against it."""
        return self.trusted or (self.tls is not None and self.tls.client_certificates == "required")

    @property
    def broker_range(self) -> range:
        """Return the ports of brokers; empty where they get any free ones, or share one."""
        if self.sni is not None:
            return range(0)
        first = self.first_broker_port
        if first is None:
            first = self.address.port + 1 if self.address.port else 0
        return range(first, first + self.broker_ports) if first else range(0)


class UpstreamTls(_Model):
    """TLS to the brokers. Their certificates are always verified. TLS 1.2 at least."""

    ca: PathField | None = None
    certificate: PathField | None = None
    key: PathField | None = None
    key_password: SecretField | None = None
    minimum_version: Literal["1.2", "1.3"] = "1.2"


class Admin(_Model):
    """The gate's own credentials, which find brokers and read topic configurations."""

    mechanism: Literal["NONE", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"
    username: Annotated[str, Field(min_length=1)] | None = None
    password: SecretField | None = None
    refresh_ms: Annotated[int, Field(ge=1_000)] = 300_000


class Upstream(_Model):
    """The cluster. ``bootstrap`` lists some of its brokers; any one of them suffices."""

    bootstrap: BrokersField
    tls: UpstreamTls | None = None
    admin: Annotated[Admin | None, Effect.AT_ONCE] = None
    allow_plaintext: bool = False
    connect_timeout_ms: Positive = 10_000


#: The word of ``validation.kafka_version`` for the release that the brokers name.
AUTO: Final = "auto"


def _release(version: object) -> object:
    """Return the full number of a release. Refuse one without quotes: YAML reads 3.9 as a number,
    and 3.10 as 3.1.
    """
    if isinstance(version, int | float):
        raise ValueError(f'must be in quotes: "{version}"')
    if not isinstance(version, str) or version == AUTO:
        return version
    try:
        return find_release(version).name
    except BatchvalError as error:
        text = str(error).removeprefix("kafka_version ")
        raise ValueError(text.replace("must be ", f"must be {AUTO}, or ", 1)) from None


class Validation(_Model):
    """The validation of batches. Extras are reported by default, since the broker would accept
    them.

    ``kafka_version``  release of the brokers: their answers, and the defaults of
                       ``topics.policies``. Without a patch number the newest of its minor version.
                       ``auto``: the release that the brokers name
    """

    kafka_version: Annotated[str, BeforeValidator(_release)] = DEFAULT_KAFKA_VERSION
    rules: Literal["strict", "kafka"] = "strict"
    extras: dict[str, Literal["report", "refuse"]] = {}
    max_decompressed_bytes: Annotated[int, Field(gt=0, le=_INT_MAX)] = (
        DEFAULT_MAX_DECOMPRESSED_BYTES
    )

    @property
    def release(self) -> Release | None:
        """Return the release that is set; None for ``auto``."""
        return None if self.kafka_version == AUTO else find_release(self.kafka_version)

    @property
    def arguments(self) -> dict[str, Any]:
        """Return the arguments of LogValidator; with ``auto`` those for brokers that are not
        known: the release that refuses least.
        """
        reported = {rule.id: "report" for rule in EXTRAS if rule.id != "S8"}
        return {
            "mode": self.rules,
            "kafka_version": self.release or least_refusing(releases_from()),
            "extras": {} if self.rules == "kafka" else reported | dict(self.extras),
            "max_decompressed_bytes": self.max_decompressed_bytes,
        }


#: Keys of a topic's rule that are not Kafka's.
OWN_KEYS: Final = frozenset(("match", "record_rules", "custom_rules"))


class TopicRule(_Model):
    """The configuration of the topics whose names match, by Kafka's keys.

    Keys that are not set have Kafka's defaults.

    ``record_rules``  what is asked of each record
    ``custom_rules``  functions that look at the records: module:function, or entry points

    With these two and no key of Kafka, the topic's configuration is the cluster's.
    """

    model_config = ConfigDict(
        alias_generator=lambda name: name if name in OWN_KEYS else name.replace("_", ".")
    )

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
    record_rules: RecordRulesRule | None = None
    custom_rules: CustomRuleNames = []

    @field_validator("*")
    @classmethod
    def _as_kafka_takes_it(cls, value: Any, info: ValidationInfo) -> Any:
        """Check one key alone, so that each wrong value of a rule has its own error."""
        name = info.field_name or ""
        key = name.replace("_", ".")
        if name not in OWN_KEYS and value is not None:
            try:
                TopicPolicy.from_kafka_config({key: value})
            except BatchvalError as error:
                text = str(error)
                for prefix in (f"{name} ", f"{key} "):
                    text = text.removeprefix(prefix)
                raise ValueError(text) from None
        return value

    def policy(self, kafka_version: str | Release = DEFAULT_KAFKA_VERSION) -> TopicPolicy:
        """Return the policy for the engine; keys that are not set have the version's defaults."""
        config = self.model_dump(by_alias=True, exclude=set(OWN_KEYS), exclude_none=True)
        return TopicPolicy.from_kafka_config(config, kafka_version=kafka_version)

    @property
    def leaves_configuration(self) -> bool:
        """Return whether the topic's configuration is the cluster's: only record rules are set."""
        has_keys = any(
            getattr(self, name) is not None
            for name in type(self).model_fields
            if name not in OWN_KEYS
        )
        return not has_keys and (self.record_rules is not None or bool(self.custom_rules))


class Topics(_Model):
    """The configurations of topics: the first of ``policies`` that matches, else the cluster's,
    else no limit.

    ``from_cluster`` reads topic configurations with ``upstream.admin``; by default where there is
    one.
    """

    policies: list[TopicRule] = []
    from_cluster: bool | None = None


class ObserveRule(_Model):
    """Batches that are observed although the mode is enforce: both globs match.

    ``principals`` are in Kafka's form: ``User:alice``, ``User:CN=edge,O=Example``,
    ``User:ANONYMOUS``.
    """

    topics: Annotated[str, Field(min_length=1, max_length=249)] = "*"
    principals: Annotated[str, Field(min_length=1, max_length=1_000)] = "*"


class Limits(_Model):
    """The limits of clients. Every limit is on.

    ``max_frame_bytes``       a longer request ends its connection before a byte of it is stored
    ``max_partitions_per_request``  a Produce request with more ends its connection
    ``max_connections``       of all clients together; one more is closed at once
    ``max_connections_per_address``  of one client address; None: half of ``max_connections``
    ``max_bytes_held``        requests and answers that wait here, of all clients: above it reading
                              pauses
    ``write_buffer_bytes``    what may wait for one socket before the other side is read no more
    ``max_requests_waiting``  answers that one connection may have open before no more is read from
                              it
    ``max_unauthenticated_frame_bytes``  of a request before its sender has authenticated, where
                              the brokers require that
    ``handshake_timeout_ms``  until the first whole request, TLS included
    ``frame_timeout_ms``      for a request to come, and a second more for each MiB of it
    ``idle_timeout_ms``       without a request, and with nothing to be answered
    ``peer_timeout_ms``       for a peer to acknowledge what is sent to it; then it is gone
    ``max_connection_age_ms`` until a client has to connect again, 10 % more or less; None: never
    ``stop_delay_ms``         after SIGTERM, for load balancers to notice /readyz before ports close
    ``drain_timeout_ms``      at the end, for what is in flight
    ``threads``               that validate what would hold the others up
    """

    max_frame_bytes: Annotated[int, Field(ge=1_024, le=_INT_MAX)] = 104_857_600
    max_unauthenticated_frame_bytes: Annotated[int, Field(ge=1_024, le=_INT_MAX)] = 512 << 10
    max_partitions_per_request: Positive = 10_000
    max_connections: Positive = 10_000
    max_connections_per_address: Positive | None = None
    max_bytes_held: Positive = 512 << 20
    write_buffer_bytes: Positive = 256 << 10
    max_requests_waiting: Positive = 1_000
    handshake_timeout_ms: Positive = 10_000
    frame_timeout_ms: Positive = 30_000
    idle_timeout_ms: Positive = 600_000
    peer_timeout_ms: Annotated[int, Field(ge=1_000, le=_INT_MAX)] = 120_000
    max_connection_age_ms: Annotated[Annotated[int, Field(ge=1_000)] | None, Effect.NEW] = None
    stop_delay_ms: Annotated[int, Field(ge=0)] = 0
    drain_timeout_ms: Annotated[int, Field(ge=0)] = 30_000
    threads: Annotated[int, Field(ge=1, le=64)] = 2

    @property
    def linger_s(self) -> float:
        """Return the seconds for the data that is still to be written at the end of a client."""
        return max(self.drain_timeout_ms / 1000, 0.1)

    @property
    def max_age_s(self) -> float:
        """Return the seconds until a client has to connect again; infinity: never."""
        age_ms = self.max_connection_age_ms
        return math.inf if age_ms is None else age_ms / 1000


class Metrics(_Model):
    """The address of /metrics, /livez and /readyz. It is reachable from this machine alone, unless
    ``remote`` is set.

    ``allowed_hosts``: names by which browsers may ask for /clients, besides addresses, localhost and
    the host of ``address``: ``*.example.com`` stands for many, ``*`` for any.
    ``topics``: so many topics have their own label in the count of refusals; the others share one.
    ``nodes``: so many brokers have their own label in what is counted by node.
    ``otlp``: a collector that gets the same by OpenTelemetry's protocol; None: none does.
    """

    address: Annotated[AddressField | None, Effect.RESTART] = Address("127.0.0.1", 9464)
    remote: Annotated[bool, Effect.AT_ONCE] = False
    allowed_hosts: Annotated[list[AllowedHostField], Field(max_length=1_000), Effect.AT_ONCE] = []
    topics: Annotated[int, Field(ge=0, le=10_000), Effect.AT_ONCE] = 100
    nodes: Annotated[int, Field(ge=0, le=1_000), Effect.AT_ONCE] = 50
    otlp: Annotated[Otlp | None, Effect.RESTART] = None


class Log(_Model):
    """The log on stderr. Lines over its rate limits are counted.

    ``refusals_per_second``     bounds those about refused batches
    ``connections_per_second``  bounds those about connections that the gate ended
    ``audit_file``  gets every refused batch as a JSON line; opened anew with SIGHUP
    ``audit_max_bytes``  of one such file: it is renamed to FILE.1 then; None: without a bound
    ``audit_max_files``  that are kept, with the one that is written
    """

    format: Literal["text", "json"] = "text"
    level: Literal["debug", "info", "warning", "error"] = "info"
    refusals_per_second: Positive = 100
    connections_per_second: Positive = 100
    audit_file: Annotated[PathField | None, Effect.RESTART] = None
    audit_max_bytes: Annotated[int, Field(ge=1 << 20)] | None = 104_857_600
    audit_max_files: Annotated[int, Field(ge=2, le=1_000)] = 10


class Reload(_Model):
    """The reload of settings, besides on SIGHUP. ``watch``: reload when the file has changed."""

    watch: bool = True


class Settings(_Model):
    """All settings of a gate.

    ``mode``             observe forwards what enforce would refuse, counts it and logs it; nobody
                         refuses batches who has not asked for it
    ``observe``          topics and principals for which mode enforce does the same
    ``schema_registries``  registries that record rules ask for schema ids
    ``custom_rules``     what all custom rules may cost
    ``bridge``           old clients whose requests are raised to versions that Kafka 4 knows
    ``bridge_isolation_level``  of old consumers, whose requests have none
    ``deny``             APIs that clients may not use
    ``quarantine``       where refused batches are copied; None: nowhere
    ``state_directory``  where the gate keeps what outlasts a restart: brokers, their ports, what
                         was observed; None: $STATE_DIRECTORY
    ``control``          socket by which a new process takes over (--take-over); None: gate.sock in
                         the state directory, if there is one
    ``workers``          processes that serve the listeners; "auto": one for each usable core
    """

    mode: Annotated[Literal["enforce", "observe"], Effect.AT_ONCE] = "observe"
    observe: Annotated[list[ObserveRule], Effect.AT_ONCE] = []
    listeners: Annotated[list[Listener], Field(min_length=1), Effect.RESTART]
    upstream: Annotated[Upstream, Effect.NEW]
    validation: Annotated[Validation, Effect.AT_ONCE] = Validation()
    topics: Annotated[Topics, Effect.AT_ONCE] = Topics()
    schema_registries: Annotated[list[SchemaRegistry], Effect.AT_ONCE] = []
    custom_rules: Annotated[CustomRules, Effect.AT_ONCE] = CustomRules()
    claims_in: Annotated[ClaimsField, Effect.AT_ONCE] = ClaimsPolicy()
    claims_out: Annotated[ClaimsOut, Effect.AT_ONCE] = "none"
    bridge: Annotated[BridgeField, Effect.NEW] = ()
    bridge_isolation_level: Annotated[IsolationLevel, Effect.AT_ONCE] = "read_uncommitted"
    deny: Annotated[list[DenySettings], Effect.AT_ONCE] = []
    quarantine: Annotated[QuarantineField | None, Effect.RESTART] = None
    limits: Annotated[Limits, Effect.AT_ONCE] = Limits()
    metrics: Metrics = Metrics()
    log: Annotated[Log, Effect.AT_ONCE] = Log()
    reload: Annotated[Reload, Effect.AT_ONCE] = Reload()
    state_directory: Annotated[PathField | None, Effect.RESTART] = None
    control: Annotated[PathField | None, Effect.RESTART] = None
    workers: Annotated[WorkersField, Effect.RESTART] = 1

    @property
    def state_folder(self) -> Path | None:
        """Return the folder of state, or None. Of several in $STATE_DIRECTORY the first is used."""
        if self.state_directory is not None:
            return self.state_directory
        first = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
        return Path(first) if first else None

    @property
    def control_path(self) -> Path | None:
        """Return the path of the socket where a new process takes over; None: there is none."""
        if self.control is not None or self.state_folder is None:
            return self.control
        return self.state_folder / "gate.sock"

    @property
    def reads_topic_configs(self) -> bool:
        """Return whether topic policies come from the cluster."""
        wanted = self.topics.from_cluster
        return self.upstream.admin is not None if wanted is None else wanted

    def claims_in_of(self, listener: Listener) -> ClaimsPolicy:
        """Return the claims policy of a listener: audit and trust need known senders."""
        if self.claims_in.word in ("audit", "trust") and not listener.gives_senders:
            return ClaimsPolicy()
        return self.claims_in

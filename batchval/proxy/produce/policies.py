"""The configuration of each topic: by the file's globs, else the cluster's, else without limits.

A topic of which nothing is known is not bounded here: the broker knows its limits. What
belongs to the format itself is checked all the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, TypeVar

from batchval.errors import BatchvalError
from batchval.kafka_versions import DEFAULT_KAFKA_VERSION, Release
from batchval.network.connection import Connection
from batchval.network.errors import AuthenticationError, NetworkError
from batchval.network.options import ConnectionOptions
from batchval.network.sasl import authenticate
from batchval.network.version_negotiation import ApiVersions
from batchval.policy import KAFKA_TOPIC_KEYS, OLDER_TIMESTAMP_KEY, TopicPolicy
from batchval.protocol.errors import ProtocolError
from batchval.protocol.message import Request
from batchval.protocol.messages.api_versions import ApiVersionsResponse
from batchval.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from batchval.protocol.messages.metadata import MetadataRequest
from batchval.protocol.walkers.topic_ids import topics_in_metadata
from batchval.proxy.cluster.metadata_client import (
    CLIENT_ID,
    BrokerAddress,
    ClusterView,
    brokers_by,
)
from batchval.proxy.kit.topics import FirstMatch, is_topic_name
from batchval.proxy.settings.config import TopicRule, Upstream
from batchval.proxy.settings.loading import ConfigError
from batchval.proxy.settings.setting_types import Address

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "REPEAT_LOG_S",
    "RETRY_S",
    "UNBOUNDED",
    "ClusterTopics",
    "Read",
    "TopicLookup",
    "all_topics",
    "authenticate_admin",
    "described_keys",
    "log_in",
    "read_brokers",
    "read_topic_configs",
]

#: For topics of which nothing is known.
UNBOUNDED: Final = TopicPolicy(
    max_message_bytes=2**31 - 1, message_timestamp_after_max_ms=2**63 - 1
)

MAX_TOPICS: Final = 100_000  # that are remembered; names come from clients
MAX_WANTED_TOPICS: Final = 1_000
TOPICS_A_REQUEST: Final = 500
RETRY_S: Final = (1.0, 60.0)
#: Seconds between two lines about the same failure.
REPEAT_LOG_S: Final = 60.0
#: Bytes of answers that are read: as in ``streaming``, and several times what 500 topics take.
MAX_METADATA: Final = 64 << 20
MAX_CONFIGS: Final = 8 << 20
SOON_S: Final = 0.5  # after a topic was asked for that is not known: others may follow

_TOPIC = 2  # ConfigResource.Type.TOPIC
#: What is asked of brokers; one that does not have a key leaves it out.
_KEYS: Final = [
    OLDER_TIMESTAMP_KEY,
    *sorted(KAFKA_TOPIC_KEYS & {field.name.replace("_", ".") for field in fields(TopicPolicy)}),
]

log = logging.getLogger("batchval.proxy")
RequestT = TypeVar("RequestT", bound=Request[Any])


class TopicLookup:
    """The policy of a topic by name, None where nothing is known. Globs' answers are kept."""

    def __init__(
        self,
        rules: Iterable[TopicRule],
        cluster: Callable[[str], TopicPolicy | None] | None = None,
        *,
        kafka_version: str | Release = DEFAULT_KAFKA_VERSION,
    ) -> None:
        globs = [
            (rule.match, None if rule.leaves_configuration else rule.policy(kafka_version))
            for rule in rules
        ]
        self._cluster = cluster
        self._by_glob = FirstMatch(globs, None, MAX_TOPICS)

    def names(self) -> list[str]:
        """Return the topics that were asked for."""
        return list(self._by_glob)

    def __call__(self, topic: str) -> TopicPolicy | None:
        policy = self._by_glob[topic]
        if policy is None and self._cluster is not None:
            return self._cluster(topic)
        return policy


Read = Callable[[Iterable[str] | None], Awaitable[Mapping[str, TopicPolicy]]]


class ClusterTopics:
    """Topic configurations of the cluster, read again every ``refresh_s``; a topic that is new is
    asked for at once.

    ``read``  reads those of some topics, or of all (None), as ``read_topic_configs``
    ``problem``     why the last reading failed; "" if it did not
    ``is_refused``  whether the brokers refused the login

    What was read last holds until something else is read. A read that failed is tried again.
    """

    def __init__(
        self, read: Read, refresh_s: float, *, retry_s: tuple[float, float] = RETRY_S
    ) -> None:
        self._read = read
        self.refresh_s = refresh_s
        self._retry_s = retry_s
        self._known: dict[str, TopicPolicy] = {}
        self._wanted: set[str] = set()
        # since all were read: they do not exist, or may not be described
        self._asked: set[str] = set()
        self._more = asyncio.Event()
        self.read_at: float | None = None
        self.failures_total = 0
        self.problem = ""
        self.is_refused = False
        self._logged: tuple[str, float] = ("", 0.0)  # the newest line about a failure, and when

    def __call__(self, topic: str) -> TopicPolicy | None:
        """Return the known policy of a topic. A topic that is not known is read soon."""
        policy = self._known.get(topic)
        if policy is None and self._may_ask(topic):
            self._wanted.add(topic)
            self._more.set()
        return policy

    def __contains__(self, topic: object) -> bool:
        return topic in self._known

    def _may_ask(self, topic: str) -> bool:
        """Return whether a topic that is not known is asked for."""
        if self.read_at is None or len(self._wanted) >= MAX_WANTED_TOPICS:
            return False
        return topic not in self._asked and is_topic_name(topic)

    def __len__(self) -> int:
        return len(self._known)

    @property
    def age_s(self) -> float:
        """Return the seconds since all topics were read; -1 before the first time."""
        return -1.0 if self.read_at is None else time.monotonic() - self.read_at

    @property
    def is_awaited(self) -> bool:
        """Return whether the first attempt to read them is pending."""
        return self.read_at is None and not self.failures_total

    async def run(self) -> None:
        """Read topic configurations until cancelled."""
        wait_s = self._retry_s[0]
        while True:
            try:
                self._known = dict(list((await self._read(None)).items())[:MAX_TOPICS])
            except (NetworkError, OSError, ProtocolError, ConfigError) as error:
                self._failed(error)
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, self._retry_s[1])
                continue
            wait_s = self._retry_s[0]
            self.read_at = time.monotonic()
            self._succeeded()
            self._asked.clear()
            await self._read_wanted_until(self.read_at + self.refresh_s)

    async def _read_wanted_until(self, end: float) -> None:
        retry_s = self._retry_s[0]
        while (left := end - time.monotonic()) > 0:
            try:
                async with asyncio.timeout(left):
                    await self._more.wait()
                    await asyncio.sleep(SOON_S)
            except TimeoutError:
                return
            self._more.clear()
            wanted, self._wanted = self._wanted, set()
            if len(self._asked) < MAX_TOPICS:
                self._asked |= wanted
            try:
                found = await self._read(wanted)
            except (NetworkError, OSError, ProtocolError, ConfigError) as error:
                self._failed(error)
                self._asked -= wanted
                self._wanted |= wanted
                self._more.set()
                await asyncio.sleep(min(retry_s, max(0.0, end - time.monotonic())))
                retry_s = min(2 * retry_s, self._retry_s[1])
                continue
            retry_s = self._retry_s[0]
            self._succeeded()
            if len(self._known) + len(found) <= MAX_TOPICS:
                self._known |= found

    def _failed(self, error: Exception) -> None:
        self.failures_total += 1
        self.problem = " ".join((str(error) or type(error).__name__).split())
        self.is_refused = isinstance(error, AuthenticationError)
        now = time.monotonic()
        text, logged_at = self._logged
        if text == self.problem and now - logged_at < REPEAT_LOG_S:
            return
        self._logged = self.problem, now
        log.warning(
            "topic configurations could not be read: %s; %s",
            self.problem,
            "the gate limits no topic but those of topics.policies"
            if self.read_at is None
            else f"those read {self.age_s:.0f} s ago stay in use",
        )

    def _succeeded(self) -> None:
        if self.problem:
            self.problem, self.is_refused = "", False
            self._logged = "", 0.0
            log.info("topic configurations are read again: %d topics", len(self._known))


async def read_topic_configs(
    upstream: Upstream,
    tls: ssl.SSLContext | None,
    topics: Iterable[str] | None,
    addresses: Sequence[BrokerAddress] | None = None,
    *,
    kafka_version: str | Release = DEFAULT_KAFKA_VERSION,
) -> dict[str, TopicPolicy]:
    """Ask the first broker that can be reached, on a connection of its own.

    ``addresses`` are tried in order; None: those of ``upstream.bootstrap``. ``kafka_version`` has
    the defaults of configurations that the broker does not have.
    Raises NetworkError, OSError, ProtocolError or ConfigError: those of the last address.
    """
    async with _as_admin(upstream, tls, addresses or upstream.bootstrap) as (connection, versions):
        names = sorted(topics) if topics is not None else await all_topics(connection, versions)
        found: dict[str, TopicPolicy] = {}
        for start in range(0, len(names), TOPICS_A_REQUEST):
            some = names[start : start + TOPICS_A_REQUEST]
            found |= await _policies(connection, versions, some, kafka_version)
        return found


async def log_in(upstream: Upstream, tls: ssl.SSLContext | None, address: BrokerAddress) -> None:
    """Authenticate as ``upstream.admin`` at one broker, and disconnect.

    Raises AuthenticationError if the broker refuses, and else as above.
    """
    async with _as_admin(upstream, tls, (address,)):
        pass


async def read_brokers(
    upstream: Upstream, tls: ssl.SSLContext | None, address: BrokerAddress, client_id: str
) -> ClusterView:
    """Ask one broker for all brokers, with the gate's own credentials.

    Raises as above; SilentBrokerError if the broker closes the connection instead of answering.
    """
    async with _as_admin(upstream, tls, (address,), client_id) as (connection, versions):
        version = _version(MetadataRequest, versions, least=1)
        return await brokers_by(connection, version)


@contextlib.asynccontextmanager
async def _as_admin(
    upstream: Upstream,
    tls: ssl.SSLContext | None,
    addresses: Sequence[BrokerAddress],
    client_id: str = CLIENT_ID,
) -> AsyncIterator[tuple[Connection, dict[int, tuple[int, int]]]]:
    """Open a connection on which ``upstream.admin`` is known, with the versions of the broker."""
    options = ConnectionOptions(client_id=client_id, ssl=tls)
    connection, versions = await _first_connected(upstream, options, addresses)
    try:
        yield connection, versions
    finally:
        connection.close()
        await connection.wait_closed()


async def _first_connected(
    upstream: Upstream, options: ConnectionOptions, addresses: Sequence[BrokerAddress]
) -> tuple[Connection, dict[int, tuple[int, int]]]:
    """Connect to the first address that answers. A refused password is not tried elsewhere."""
    failure: Exception = ConnectionError("no broker is known")
    for address in addresses:
        try:
            return await _connected(upstream, options, address)
        except AuthenticationError:
            raise
        except (NetworkError, OSError, ProtocolError) as error:
            failure = error
    raise failure


async def _connected(
    upstream: Upstream, options: ConnectionOptions, address: BrokerAddress
) -> tuple[Connection, dict[int, tuple[int, int]]]:
    """Connect to one address and authenticate there, within the settings' time to connect."""
    async with asyncio.timeout(upstream.connect_timeout_ms / 1000):
        connection = await Connection.open(*address, options)
        try:
            versions = await _versions(connection)
            await authenticate_admin(upstream, connection)
        except BaseException:
            connection.close()
            raise
        return connection, versions


async def authenticate_admin(upstream: Upstream, connection: Connection) -> None:
    """Authenticate as ``upstream.admin``; nothing is done where it has no password.

    Raises AuthenticationError if the broker refuses, NetworkError, ProtocolError or ConfigError.
    """
    admin = upstream.admin
    if admin is None or admin.username is None or admin.password is None:
        return
    if admin.mechanism == "PLAIN" and upstream.tls is None and not upstream.allow_plaintext:
        peer = Address(*connection.transport.get_extra_info("peername")[:2])
        if not peer.is_loopback:  # a broker that the bootstrap broker names
            raise AuthenticationError(f"PLAIN would show the password on the connection to {peer}")
    try:
        password = admin.password.reveal()
    except ValueError as error:
        raise ConfigError([f"upstream.admin.password: {error}"]) from None
    await authenticate(connection, admin.mechanism, admin.username, password)


async def _versions(connection: Connection) -> dict[int, tuple[int, int]]:
    answer: ApiVersionsResponse = await connection.request(ApiVersions()(0))
    if answer.error_code:
        raise ProtocolError(f"ApiVersions was answered with error {answer.error_code}")
    return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}


def _version(kind: type[RequestT], versions: Mapping[int, tuple[int, int]], least: int = 0) -> int:
    low, high = versions.get(kind.api_key, (0, -1))
    version = min(high, kind.max_version)
    if version < max(low, kind.min_version, least):
        raise ProtocolError(f"the broker has no version of {kind.__name__} that is known here")
    return version


class _TopicNames(MetadataRequest):
    """A Metadata request whose answer is read as names alone: it may have a million partitions."""

    __slots__ = ()

    def decode(self, frame: Buffer) -> Any:
        _check_size(frame, MAX_METADATA)
        return [name for _, name in topics_in_metadata(frame, self.api_version)]


class _Configs(DescribeConfigsRequest):
    """A DescribeConfigs request whose answer is bounded before it is read."""

    __slots__ = ()

    def decode(self, frame: Buffer) -> DescribeConfigsResponse:
        _check_size(frame, MAX_CONFIGS)
        return super().decode(frame)


def _check_size(frame: Buffer, most: int) -> None:
    size = memoryview(frame).nbytes
    if size > most:
        raise ProtocolError(f"it has {size} bytes, at most {most} are allowed")


async def all_topics(connection: Connection, versions: Mapping[int, tuple[int, int]]) -> list[str]:
    """Return the topics that the broker names, in order.

    ``versions`` are those of the broker, by API key. Raises NetworkError or ProtocolError.
    """
    version = _version(MetadataRequest, versions, least=4)
    names: list[str] = await connection.request(
        _TopicNames(topics=None, allow_auto_topic_creation=False, api_version=version)
    )
    return sorted(names)


async def _describe(
    connection: Connection,
    versions: Mapping[int, tuple[int, int]],
    topics: Sequence[str],
    keys: Sequence[str],
) -> DescribeConfigsResponse:
    version = _version(DescribeConfigsRequest, versions)
    resources = [DescribeConfigsResource(_TOPIC, topic, list(keys)) for topic in topics]
    answer: DescribeConfigsResponse = await connection.request(
        _Configs(resources=resources, api_version=version)
    )
    return answer


async def described_keys(
    connection: Connection,
    versions: Mapping[int, tuple[int, int]],
    topics: Sequence[str],
    keys: Sequence[str],
) -> dict[str, frozenset[str] | int]:
    """Return, by topic, which of these configurations it has, or the error code.

    Raises NetworkError or ProtocolError.
    """
    answer = await _describe(connection, versions, topics, keys)
    return {
        result.resource_name: result.error_code
        or frozenset(one.name for one in result.configs if one.name in keys)
        for result in answer.results
        if result.resource_type == _TOPIC and result.resource_name in topics
    }


async def _policies(
    connection: Connection,
    versions: Mapping[int, tuple[int, int]],
    topics: Sequence[str],
    kafka_version: str | Release,
) -> dict[str, TopicPolicy]:
    answer = await _describe(connection, versions, topics, _KEYS)
    found = {}
    for result in answer.results:
        if result.error_code or result.resource_type != _TOPIC:
            continue
        try:
            found[result.resource_name] = TopicPolicy.from_kafka_config(
                {c.name: c.value for c in result.configs},
                allow_unknown=True,
                kafka_version=kafka_version,
            )
        except BatchvalError as error:
            log.warning("the configuration of a topic cannot be parsed: %s", error)
    return found

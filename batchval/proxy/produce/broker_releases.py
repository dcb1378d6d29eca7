"""The release of Kafka that each broker runs, for ``validation.kafka_version: auto``.

    ApiVersions      metadata.version, else the versions of three requests ──▶ minor versions
    DescribeConfigs  the names of a topic's configurations ──▶ ranges of patch releases
    all brokers      ──▶ least_refusing ──▶ the release as which the gate answers

ApiVersions is asked before authentication. DescribeConfigs needs ``upstream.admin`` and its rights
to read topic configurations; without them the patch release that refuses less counts. Two patch
releases that answer clients alike (3.9.0 and 3.9.1, rule 11 concerns followers) count as the newer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from batchval.errors import ErrorCode
from batchval.kafka_versions import (
    ADVERTISED,
    DEFAULT_KAFKA_VERSION,
    KafkaVersion,
    Release,
    find_release,
    least_refusing,
    releases_from,
)
from batchval.network.connection import Connection
from batchval.network.errors import NetworkError
from batchval.network.options import ConnectionOptions
from batchval.network.version_negotiation import ApiVersions
from batchval.protocol.apis import ApiKey
from batchval.protocol.errors import ProtocolError
from batchval.protocol.messages.api_versions import ApiVersionsResponse
from batchval.proxy.cluster.endpoints import address_text
from batchval.proxy.cluster.metadata_client import CLIENT_ID, BrokerAddress
from batchval.proxy.produce.policies import (
    REPEAT_LOG_S,
    RETRY_S,
    all_topics,
    authenticate_admin,
    described_keys,
)
from batchval.proxy.settings.config import Upstream
from batchval.proxy.settings.loading import ConfigError
from batchval.proxy.watch.metrics import Family, single

__all__ = [
    "BrokerAnswer",
    "BrokerReleases",
    "BrokerView",
    "CountedRelease",
    "counted_as",
    "read_broker",
]

#: Seconds between looks at which brokers there are.
LOOK_S: Final = 0.5
#: Seconds after which the answers of some brokers count, while others are awaited.
DECIDE_S: Final = 1.0
#: Brokers that are asked at the same time.
MAX_ASKED: Final = 10
#: Topics of one DescribeConfigs request: one that may be described suffices.
MAX_TOPICS: Final = 10
#: Brokers of one release that a log line names.
MAX_NAMED: Final = 10

_FEATURE: Final = "metadata.version"
_FEATURES_FROM: Final = 3  # the first version of ApiVersions with features (KIP-584)
#: Configurations of topics that tell releases apart, and the rows that have them.
_CONFIGURATIONS: Final[dict[str, Callable[[KafkaVersion], bool]]] = {
    "max.decompressed.message.bytes": lambda row: row.checks_record_length,
    "compression.gzip.level": lambda row: row.compression_levels,
    "message.timestamp.before.max.ms": lambda row: row.timestamp_bounds == "before and after",
}
_NUMBER = re.compile(r"[0-9]+")

log = logging.getLogger("batchval.proxy")


class BrokerAnswer(NamedTuple):
    """What one broker says of its release.

    ``metadata_version``  the highest level of the feature that it supports; None: it has none
    ``versions``          the highest version of each request, by API key
    ``finalized``         (epoch, level of metadata.version in force in the cluster); None: none
    ``configurations``    those of ``_CONFIGURATIONS`` that it has; None: not known
    ``topic``             the topic whose configurations were read
    ``problem``           why they could not be read; "" if nothing failed
    """

    metadata_version: int | None
    versions: Mapping[int, int]
    finalized: tuple[int, int] | None = None
    configurations: frozenset[str] | None = None
    topic: str | None = None
    problem: str = ""


class BrokerView(NamedTuple):
    """A broker that the cluster names. ``is_away``: it could not be reached when tried last."""

    addresses: tuple[BrokerAddress, ...]
    is_away: bool = False


class CountedRelease(NamedTuple):
    """The release as which a broker counts.

    ``text``     for people: all releases that it may be, "4.2.1 or 4.2.2"
    ``warning``  why it may answer otherwise; "" for a release of the table
    """

    release: Release
    text: str
    warning: str = ""


# ---- one broker ----------------------------------------------------------------------------------


async def read_broker(
    upstream: Upstream, tls: ssl.SSLContext | None, address: BrokerAddress, topic: str | None
) -> BrokerAnswer:
    """Ask one broker, within the settings' time to connect. ``topic`` is one that may exist.

    Raises NetworkError, OSError, ProtocolError or ConfigError where ApiVersions has no answer. If
    what follows fails, ``problem`` says why.
    """
    options = ConnectionOptions(client_id=CLIENT_ID, ssl=tls)
    async with asyncio.timeout(upstream.connect_timeout_ms / 1000):
        connection = await Connection.open(*address, options)
        try:
            response = await _api_versions(connection)
            answer = _answer(response)
            if upstream.admin is None:
                return answer
            ranges = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
            try:
                await authenticate_admin(upstream, connection)
                return await _with_configurations(connection, ranges, answer, topic)
            except (NetworkError, OSError, ProtocolError, ConfigError) as error:
                return answer._replace(problem=_text(error))
        finally:
            connection.close()


async def _api_versions(connection: Connection) -> ApiVersionsResponse:
    """Return the answer with features, or that of a broker before Kafka 2.4 without them."""
    ask = ApiVersions()
    answer: ApiVersionsResponse = await connection.request(ask(_FEATURES_FROM))
    if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
        answer = await connection.request(ask(0))
    if answer.error_code:
        raise ProtocolError(f"ApiVersions was answered with error {answer.error_code}")
    return answer


def _answer(response: ApiVersionsResponse) -> BrokerAnswer:
    supported = [one.max_version for one in response.supported_features if one.name == _FEATURE]
    finalized = [
        one.max_version_level for one in response.finalized_features if one.name == _FEATURE
    ]
    return BrokerAnswer(
        supported[0] if supported and supported[0] > 0 else None,
        {api.api_key: api.max_version for api in response.api_keys},
        (response.finalized_features_epoch, finalized[0]) if finalized else None,
    )


async def _with_configurations(
    connection: Connection,
    ranges: Mapping[int, tuple[int, int]],
    answer: BrokerAnswer,
    topic: str | None,
) -> BrokerAnswer:
    """Add the configurations of a topic: of this one, else of the first that may be described."""
    keys = list(_CONFIGURATIONS)
    described = {} if topic is None else await described_keys(connection, ranges, [topic], keys)
    if not any(isinstance(found, frozenset) for found in described.values()):
        topics = (await all_topics(connection, ranges))[:MAX_TOPICS]
        described = await described_keys(connection, ranges, topics, keys) if topics else {}
    for name, found in described.items():
        if isinstance(found, frozenset):
            return answer._replace(configurations=found, topic=name)
    errors = {found for found in described.values() if isinstance(found, int)}
    if not errors:  # there is no topic
        return answer
    names = ", ".join(_error_name(code) for code in sorted(errors))
    return answer._replace(problem=f"DescribeConfigs was answered with {names}")


def _error_name(code: int) -> str:
    with contextlib.suppress(ValueError):
        return ErrorCode(code).name
    return f"error {code}"


def counted_as(answer: BrokerAnswer) -> CountedRelease:
    """Return the release of Kafka as which a broker with this answer counts.

    A broker that is newer than the table counts as the newest release of it, and one that names no
    release as ``DEFAULT_KAFKA_VERSION``.
    """
    level = answer.metadata_version
    minors = list(_minors_of(answer))
    newest = list(ADVERTISED)[-1]
    warning = ""
    if level is not None and not minors:
        warning = f"is newer than this batchval ({_FEATURE} {level})"
        minors = [newest]
    if not minors:
        default = find_release(DEFAULT_KAFKA_VERSION)
        warning = f"names no release of Kafka ({_versions_text(answer)})"
        return CountedRelease(default, f"unknown, taken for {default.name}", warning)
    releases = [release for minor in minors for release in releases_from(minor, minor)]
    if answer.configurations is not None:
        named = answer.configurations
        releases = [one for one in releases if _names_of(one.row) == named] or releases
    release = least_refusing(releases[::-1])
    if all(least_refusing([one, release]) is one for one in releases):
        return CountedRelease(release, release.name, warning)
    return CountedRelease(release, " or ".join(one.name for one in releases), warning)


def _minors_of(answer: BrokerAnswer) -> Iterator[str]:
    """Yield the minor versions that a broker may have; none where it is newer, or not known."""
    if answer.metadata_version is not None:
        if (minor := _minor_of_level(answer.metadata_version)) is not None:
            yield minor
        return
    keys = (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.ADD_PARTITIONS_TO_TXN)
    told = tuple(answer.versions.get(int(key)) for key in keys)
    for minor, one in ADVERTISED.items():
        if told == (one.produce, one.fetch, one.add_partitions_to_txn):
            yield minor


def _minor_of_level(level: int) -> str | None:
    """Return the first minor version whose brokers support this level of metadata.version."""
    for minor, one in ADVERTISED.items():
        if one.metadata_version is not None and level <= one.metadata_version:
            return minor
    return None


def _names_of(row: KafkaVersion) -> frozenset[str]:
    return frozenset(name for name, has in _CONFIGURATIONS.items() if has(row))


def _versions_text(answer: BrokerAnswer) -> str:
    told = [
        f"{name} {answer.versions[key]}"
        for name, key in (("Produce", int(ApiKey.PRODUCE)), ("Fetch", int(ApiKey.FETCH)))
        if key in answer.versions
    ]
    return ", ".join([f"no {_FEATURE}", *told])


def _text(error: BaseException) -> str:
    return " ".join((str(error) or type(error).__name__).split())


# ---- all brokers ---------------------------------------------------------------------------------


@dataclass(slots=True)
class _Known:
    """What is known of one broker, and when it is asked next (monotonic seconds)."""

    view: BrokerView
    answer: BrokerAnswer | None = None
    counted: CountedRelease | None = None
    due_s: float = 0.0
    retry_s: float = RETRY_S[0]
    problem: str = ""
    was_asked: bool = False

    def take(self, answer: BrokerAnswer) -> None:
        """Take an answer. The configurations read before hold while the release is the same."""
        before = self.answer
        if (
            answer.configurations is None
            and answer.problem
            and before is not None
            and before.metadata_version == answer.metadata_version
            and before.versions == answer.versions
        ):
            answer = answer._replace(configurations=before.configurations, topic=before.topic)
        self.answer, self.counted = answer, counted_as(answer)
        # configurations that cannot be read matter only where they would tell releases apart
        is_clear = self.counted.text == self.counted.release.name
        self.problem = "" if is_clear else answer.problem


class BrokerReleases:
    """The releases of all brokers that the cluster names, and the one that is in force.

    ``brokers``    returns those that the cluster names now, by node id
    ``read``       asks one address, with a topic that may exist, as ``read_broker``
    ``release``    in force: of all that brokers run, the one that refuses least
    ``refresh_s``  between two requests to a broker that answers
    ``problem``    why a broker could not be asked; "" if all could

    A broker is also asked when it is new, has moved, or is reachable again. One that has not
    answered yet counts as every release from the cluster's finalised metadata.version on; one that
    does not answer any more, as before. A broker that the cluster no longer names is forgotten
    within ``refresh_s``.
    """

    def __init__(
        self,
        brokers: Callable[[], Mapping[int, BrokerView]],
        read: Callable[[BrokerAddress, str | None], Awaitable[BrokerAnswer]],
        refresh_s: float,
        *,
        look_s: float = LOOK_S,
        retry_s: tuple[float, float] = RETRY_S,
    ) -> None:
        self._brokers = brokers
        self._read = read
        self.refresh_s = refresh_s
        self._look_s = look_s
        self._retry_s = retry_s
        self._known: dict[int, _Known] = {}
        self._topic: str | None = None
        self._forget_at = 0.0
        self.release = least_refusing(releases_from())
        self.failures_total = 0
        self._said = ""
        self._warned: set[str] = set()
        self._logged: dict[str, float] = {}  # problem -> when

    def follow(self, release: Release) -> None:
        """Take the release that another process has found."""
        self.release = release

    @property
    def is_awaited(self) -> bool:
        """Return whether a broker that is known has not been asked yet."""
        known = self._known
        return any(node not in known or not known[node].was_asked for node in self._brokers())

    @property
    def problem(self) -> str:
        """Return why a broker could not be asked; "" if all could."""
        return next((one.problem for one in self._known.values() if one.problem), "")

    async def run(self) -> None:
        """Ask brokers until cancelled."""
        while True:
            try:
                await self._look()
            except Exception:  # a defect in one look must not end the others
                log.exception("the releases of brokers could not be read")
            await asyncio.sleep(self._look_s)

    async def _look(self) -> None:
        """Ask the brokers that are due, and decide."""
        now = time.monotonic()
        views = self._brokers()
        self._note_views(views, now)
        gate = asyncio.Semaphore(MAX_ASKED)
        asked = {
            asyncio.create_task(self._ask(node_id, known, gate))
            for node_id, known in list(self._known.items())
            if node_id in views and now >= known.due_s
        }
        waiting = asked
        try:
            while waiting:
                _, waiting = await asyncio.wait(waiting, timeout=DECIDE_S)
                self._decide()
            for task in asked:
                task.result()
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        self._decide()

    def _note_views(self, views: Mapping[int, BrokerView], now: float) -> None:
        """Note which brokers there are, and make due those that are new, moved or back."""
        is_forgetting = now >= self._forget_at
        if is_forgetting:
            self._forget_at = now + self.refresh_s
        for node_id in self._known.keys() - views.keys():
            if is_forgetting or self._known[node_id].answer is None:
                del self._known[node_id]
        for node_id, view in views.items():
            known = self._known.setdefault(node_id, _Known(view))
            is_back = known.view.is_away and not view.is_away
            if is_back or known.view.addresses != view.addresses:
                known.due_s = 0.0
            known.view = view

    async def _ask(self, node_id: int, known: _Known, gate: asyncio.Semaphore) -> None:
        async with gate:
            for address in known.view.addresses:
                try:
                    answer = await self._read(address, self._topic)
                except (NetworkError, OSError, ProtocolError, ConfigError) as error:
                    known.problem = f"broker {node_id} at {address_text(address)}: {_text(error)}"
                    continue
                known.take(answer)
                if known.problem:
                    known.problem = f"broker {node_id} at {address_text(address)}: {known.problem}"
                else:
                    self._topic = answer.topic
                break
        known.was_asked = True
        now = time.monotonic()
        if not known.problem:
            known.retry_s = self._retry_s[0]
            known.due_s = now + self.refresh_s
            return
        self.failures_total += 1
        known.due_s = now + min(known.retry_s, self.refresh_s)
        known.retry_s = min(2 * known.retry_s, self._retry_s[1])
        self._log_problem(known, now)

    def _log_problem(self, known: _Known, now: float) -> None:
        if now - self._logged.get(known.problem, float("-inf")) < REPEAT_LOG_S:
            return
        self._logged = {
            text: at_s for text, at_s in self._logged.items() if now - at_s < REPEAT_LOG_S
        }
        if len(self._logged) < MAX_NAMED:
            self._logged[known.problem] = now
            counts = (
                "it counts as every release that it may be"
                if known.counted is None
                else f"it counts as Kafka {known.counted.release.name}"
            )
            log.warning("the release could not be read: %s; %s", known.problem, counts)

    # ---- what follows ----------------------------------------------------------------------------

    def _unanswered(self) -> Release:
        """Return the release as which a broker counts that has not answered: the one that refuses
        least of those that support the finalised metadata.version.
        """
        answers = [one.answer for one in self._known.values() if one.answer is not None]
        finalized = [answer.finalized for answer in answers if answer.finalized is not None]
        floor = _minor_of_level(max(finalized)[1]) if finalized else None
        return least_refusing(releases_from(floor) or releases_from())

    def _decide(self) -> None:
        """Put the release in force that refuses least, and log what has changed."""
        releases = [one.counted.release for one in self._known.values() if one.counted is not None]
        if len(releases) < len(self._known) or not releases:
            releases.append(self._unanswered())
        unique = {release.name: release for release in releases}
        self.release = least_refusing(sorted(unique.values(), key=_order))
        self._warn()
        text = f"kafka_version: {self._brokers_text()}: the gate answers as Kafka {self.release}"
        if all(one.counted is None for one in self._known.values()):
            text += ", which refuses least"
        elif len(unique) > 1:
            text += ", which refuses less"
        if text != self._said:
            self._said = text
            log.info("%s", text)

    def _warn(self) -> None:
        """Log once which brokers are not of a release that is known here."""
        warnings = {
            f"broker {node_id} {one.counted.warning}: it counts as Kafka {one.counted.release}"
            for node_id, one in self._known.items()
            if one.counted is not None and one.counted.warning
        }
        for text in sorted(warnings - self._warned)[:MAX_NAMED]:
            log.warning("%s", text)
        self._warned = warnings

    def by_text(self) -> dict[str, list[int]]:
        """Return the brokers that have answered, by their release."""
        found: dict[str, list[int]] = {}
        for node_id, one in sorted(self._known.items()):
            if one.counted is not None:
                found.setdefault(one.counted.text, []).append(node_id)
        return found

    def _brokers_text(self) -> str:
        """Return the releases of the brokers in words."""
        unread = [node_id for node_id, one in sorted(self._known.items()) if one.counted is None]
        parts = [
            f"{text} ({_listed(nodes)})" for text, nodes in sorted(self.by_text().items(), key=_key)
        ]
        if not parts and not unread:
            return "no broker is known yet"
        found = f"brokers are {_joined(parts)}" if parts else ""
        if not unread:
            return found
        silent = f"without an answer ({_listed(unread)})"
        return f"{found}, {silent}" if found else f"brokers are {silent}"

    def families(self) -> Iterator[Family]:
        """Yield the metrics of the brokers."""
        text = "Brokers that have answered, by their release of Kafka (kafka_version: auto)."
        counts = [((release,), len(nodes)) for release, nodes in self.by_text().items()]
        yield Family("gauge", "kafka_version_brokers", text, ("release",), counts, "max")
        text = "1 while brokers run releases of Kafka with other answers (a rolling upgrade)."
        yield single("gauge", "kafka_version_disagree", text, float(self.disagree), "max")
        text = "Brokers whose release of Kafka could not be read when they were asked last."
        unread = sum(bool(one.problem) for one in self._known.values())
        yield single("gauge", "kafka_version_unread", text, float(unread), "max")
        text = "Attempts to read the release of a broker that failed."
        yield single("counter", "kafka_version_failures", text, self.failures_total)

    @property
    def disagree(self) -> bool:
        """Return whether brokers that have answered count as releases of different rows."""
        rows = [one.counted.release.row for one in self._known.values() if one.counted is not None]
        return len(set(rows)) > 1


def _order(release: Release) -> list[int]:
    return [int(number) for number in _NUMBER.findall(release.name)]


def _key(item: tuple[str, list[int]]) -> list[int]:
    return [int(number) for number in _NUMBER.findall(item[0])]


def _joined(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _listed(nodes: Sequence[int]) -> str:
    more = f" and {len(nodes) - MAX_NAMED} more" if len(nodes) > MAX_NAMED else ""
    return ", ".join(map(str, nodes[:MAX_NAMED])) + more

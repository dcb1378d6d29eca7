"""How many brokers the gate knows, which ports it closes, and how much it says of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from batchval.protocol.errors import ProtocolError, TooManyBrokersError
from batchval.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from batchval.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from batchval.protocol.walkers.addresses import MAX_BROKERS, rewrite_addresses
from batchval.proxy.cluster import discovery as module
from batchval.proxy.cluster import known_brokers
from batchval.proxy.cluster.discovery import ClusterNews, Discovery, DiscoveryOptions
from batchval.proxy.cluster.endpoints import EndpointState
from batchval.proxy.cluster.known_brokers import (
    ESTABLISHED_S,
    GONE_S,
    MAX_LINES,
    RECENT_S,
    SECONDS_A_LINE,
    BoundedLog,
    BrokerAges,
)
from batchval.proxy.cluster.listeners import Listeners
from batchval.proxy.cluster.listening_sockets import ListeningSockets
from batchval.proxy.cluster.metadata_client import ClusterView, _BrokersRequest
from batchval.proxy.cluster.state_file import StoredCluster
from batchval.proxy.life import file_limits
from batchval.proxy.session.requests import MAX_ANSWER, MAX_TOKEN, Answer, check_size
from batchval.proxy.settings.config import Settings
from batchval.proxy.workers.control_messages import Learned
from batchval.proxy.workers.worker_discovery import ReportsToParent
from tests.support.proxy import proxy_options

HOUR_S = 3600.0
AT = ("127.0.0.1", 9092)


class Clock:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(known_brokers.time, "monotonic", found)
    return found


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(known_brokers, "MAX_BROKERS", 10)
    return 10


@pytest.fixture
def discovery(clock: Clock) -> Discovery:
    found = Discovery(DiscoveryOptions((AT,)))
    found._ages = BrokerAges(clock)
    found.lines = BoundedLog(clock)
    return found


def learn(discovery: Discovery, node_ids: range) -> None:
    for node_id in node_ids:
        discovery.learn(node_id, "127.0.0.1", 9092)


def named_for(discovery: Discovery, clock: Clock, node_ids: range, seconds: float) -> None:
    """Let answers name these brokers for so long."""
    learn(discovery, node_ids)
    clock.now += seconds
    learn(discovery, node_ids)


# ---- which brokers stay --------------------------------------------------------------------------


def test_new_brokers_take_the_places_of_those_named_for_a_moment(
    discovery: Discovery, clock: Clock, few: int
) -> None:
    """Name others each time, as a broken broker does: its own inventions are replaced."""
    named_for(discovery, clock, range(3), ESTABLISHED_S + 1)
    for wave in range(1, 50):
        clock.now += RECENT_S + 1
        learn(discovery, range(wave * 100, wave * 100 + few - 3))
        assert len(discovery.brokers) == few
        assert {0, 1, 2} <= discovery.brokers.keys()
    assert discovery.forgotten_total == 48 * (few - 3)


def test_a_broker_away_for_hours_keeps_its_place(
    discovery: Discovery, clock: Clock, few: int
) -> None:
    named_for(discovery, clock, range(few), ESTABLISHED_S + 1)
    clock.now += 23 * HOUR_S
    with pytest.raises(TooManyBrokersError, match="10 are known: at most 10"):
        learn(discovery, range(few, few + 1))
    assert discovery.brokers.keys() == set(range(few))
    clock.now += 2 * HOUR_S
    learn(discovery, range(few, few + 1))
    assert few in discovery.brokers


def test_no_port_is_closed_within_a_minute(discovery: Discovery, clock: Clock, few: int) -> None:
    """Flap: two answers in turn may not close each other's ports."""
    learn(discovery, range(few))
    clock.now += RECENT_S - 1
    with pytest.raises(TooManyBrokersError):
        learn(discovery, range(100, 101))


def test_a_broker_that_is_not_named_for_a_day_is_forgotten(
    discovery: Discovery, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "batchval.proxy")
    gone: list[int] = []
    discovery.subscribe(lambda *_: None, gone.append)
    learn(discovery, range(2))
    discovery.keep_port("default", 1, 9999)
    for _ in range(25):
        clock.now += HOUR_S
        assert gone == []
        discovery.learn(0, "127.0.0.1", 9092)
        discovery._note_named({0})
        if clock.now - 1000.0 <= GONE_S:
            assert 1 in discovery.brokers
            gone.clear()
    assert gone == [1]
    assert discovery.kept_port("default", 1) is None
    assert "broker 1 was not named for 24 hours: its port is closed" in caplog.text


def test_the_state_file_has_known_brokers_alone(discovery: Discovery, clock: Clock) -> None:
    learn(discovery, range(2))
    for node_id in range(50):
        discovery.keep_port("default", node_id, 9000 + node_id)
    assert discovery.state().ports == {"default": {0: 9000, 1: 9001}}


def test_a_state_file_of_too_many_brokers_is_cut(clock: Clock) -> None:
    brokers = dict.fromkeys(range(MAX_BROKERS + 5), AT)
    discovery = Discovery(DiscoveryOptions((AT,)))
    discovery.inherit(StoredCluster(("127.0.0.1:9092",), None, None, brokers, {}))
    asyncio.run(discovery._load())
    assert len(discovery.brokers) == MAX_BROKERS


def test_brokers_of_the_state_file_are_established(
    discovery: Discovery, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_brokers, "MAX_BROKERS", 2)
    discovery.inherit(StoredCluster(("127.0.0.1:9092",), None, None, {1: AT, 2: AT}, {}))
    asyncio.run(discovery._load())
    clock.now += HOUR_S
    with pytest.raises(TooManyBrokersError):
        discovery.learn(3, *AT)


def test_addresses_without_a_broker_are_bounded(
    discovery: Discovery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_ENDPOINTS", 20)
    for port in range(1, 500):
        discovery.learn(0, "127.0.0.1", port)
    assert len(discovery.endpoints) <= 21


# ---- answers that are refused --------------------------------------------------------------------


def metadata(count: int, version: int = 1) -> bytes:
    brokers = [MetadataResponseBroker(n, "h", 9092) for n in range(count)]
    return b"".join(MetadataResponse(brokers=brokers).encode(0, version))[4:]


def test_an_answer_of_too_many_brokers_is_refused_before_any_is_taken() -> None:
    asked: list[int] = []

    def replace(node_id: int, host: str, port: int) -> tuple[str, int]:
        asked.append(node_id)
        return "gate", port

    assert rewrite_addresses(metadata(MAX_BROKERS), 3, 1, replace)
    assert len(asked) == MAX_BROKERS
    asked.clear()
    with pytest.raises(TooManyBrokersError, match="names 2001 brokers, at most 2000 are allowed"):
        rewrite_addresses(metadata(MAX_BROKERS + 1), 3, 1, replace)
    assert asked == []


def test_many_coordinators_may_be_few_brokers() -> None:
    """Check an admin's question for 10,000 groups: brokers are counted, and asked for, once."""
    asked: list[int] = []

    def replace(node_id: int, host: str, port: int) -> tuple[str, int]:
        asked.append(node_id)
        return "gate", 1000 + node_id

    found = [Coordinator(f"g{n}", n % 3, "broker", 9092) for n in range(10_000)]
    frame = b"".join(FindCoordinatorResponse(coordinators=found).encode(7, 4))[4:]
    written = b"".join(rewrite_addresses(frame, 10, 4, replace))[4:]
    again = FindCoordinatorResponse.decode(written, 4)
    assert {(one.node_id, one.host, one.port) for one in again.coordinators} == {
        (n, "gate", 1000 + n) for n in range(3)
    }
    assert asked == [0, 1, 2]


@pytest.mark.parametrize("version", [1, 4, 9, 12])
def test_the_gates_own_question_counts_brokers_before_it_reads_them(version: int) -> None:
    request = _BrokersRequest(topics=[], api_version=version)
    assert len(request.decode(metadata(MAX_BROKERS, version)).brokers) == MAX_BROKERS
    with pytest.raises(TooManyBrokersError):
        request.decode(metadata(MAX_BROKERS + 1, version))


def test_a_refused_answer_leaves_what_was_known(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    views: list[Any] = [ClusterView([(1, *AT)]), TooManyBrokersError("it names 9 brokers")]

    async def find(address: Any, client_id: str) -> ClusterView:
        view = views.pop(0) if len(views) > 1 else views[0]
        if isinstance(view, Exception):
            raise view
        return view

    async def run() -> Discovery:
        discovery = Discovery(DiscoveryOptions((AT,), find_brokers=find))
        for _ in range(4):
            assert await discovery._round()
        return discovery

    discovery = asyncio.run(run())
    assert discovery.brokers == {1: AT}
    assert discovery.ready
    assert discovery.endpoints[AT] == (EndpointState.SERVING, "")
    assert discovery.answers_refused_total == 3
    assert caplog.text.count("an answer of a broker was refused: it names 9 brokers") == 1


# ---- ports ---------------------------------------------------------------------------------------


@pytest.fixture
def ports() -> Iterator[ListeningSockets]:
    found = ListeningSockets()
    yield found
    for sock in found.sockets.values():
        sock.close()


def test_a_port_is_closed_with_its_broker(
    discovery: Discovery, clock: Clock, few: int, ports: ListeningSockets
) -> None:
    options = proxy_options(upstream=(AT,))
    cluster = Listeners(options, discovery, lambda _: None, ports)
    cluster.open_bootstrap()
    for wave in range(20):
        for node_id in range(wave * few, (wave + 1) * few):
            listener = cluster.listener_of(node_id, *AT)
            assert listener.node_id == node_id
        assert len(cluster.brokers) == few
        assert len(ports.sockets) == few + 1
        assert len(discovery.state().ports["default"]) == few
        with pytest.raises(TooManyBrokersError):
            cluster.listener_of(10_000, *AT)
        clock.now += RECENT_S + 1
    cluster.close()


def test_brokers_leave_files_to_clients(
    discovery: Discovery, ports: ListeningSockets, caplog: pytest.LogCaptureFixture
) -> None:
    ports.most = 5
    options = proxy_options(upstream=(AT,))
    cluster = Listeners(options, discovery, lambda _: None, ports)
    cluster.open_bootstrap()
    learn(discovery, range(9))
    assert cluster.brokers.keys() == set(range(5))
    assert caplog.text.count("brokers have 5 ports, as many as the limit of open files") == 4
    with pytest.raises(OSError, match="as many as the limit of open files allows"):
        cluster.listener_of(8, "127.0.0.1", 9092)
    cluster.close()


def test_the_settings_decide_how_many_ports_brokers_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_limits, "raise_limit", lambda: 1024)
    upstream = {"bootstrap": "127.0.0.1:9092"}
    for wanted, most in ((100, 256), (700, 700)):
        listener = {"address": "127.0.0.1:9095", "broker_ports": wanted}
        settings = Settings.model_validate({"listeners": [listener], "upstream": upstream})
        assert file_limits.most_ports(settings) == most


def test_answers_that_are_kept_name_their_brokers(
    discovery: Discovery, clock: Clock, few: int, ports: ListeningSockets
) -> None:
    """Serve clients from what was written before: these brokers are named all the same."""
    options = proxy_options(upstream=(AT,))
    cluster = Listeners(options, discovery, lambda _: None, ports)
    cluster.open_bootstrap()
    for _ in range(2):  # answers; what the second one has written is kept
        for node_id in range(3):
            cluster.listener_of(node_id, *AT)
    for _ in range(20):
        clock.now += HOUR_S
        cluster.written_brokers("gate", 1)
    for node_id in range(100, 100 + few - 3):
        cluster.listener_of(node_id, *AT)
    clock.now += 2 * HOUR_S
    for node_id in range(200, 200 + few - 3):
        cluster.listener_of(node_id, *AT)
    assert {0, 1, 2} <= discovery.brokers.keys()
    cluster.close()


def test_a_worker_forgets_what_its_parent_has_forgotten() -> None:
    reports: list[object] = []
    reporting = ReportsToParent("x", reports.append, lambda _: None)  # type: ignore[arg-type]
    worker = Discovery(DiscoveryOptions((AT,)), reporting)
    gone: list[int] = []
    worker.subscribe(lambda *_: None, gone.append)
    worker.follow(ClusterNews({1: AT, 2: AT}, None, None, {}, {}))
    worker.learn(3, *AT)  # the parent does not know it yet
    worker.follow(ClusterNews({1: AT}, None, None, {}, {}))
    assert worker.brokers.keys() == {1, 3}
    assert gone == [2]
    reports.clear()
    for _ in range(5):
        worker.named(1)
    assert reports == [Learned(1, *AT)]


# ---- log lines -----------------------------------------------------------------------------------


def test_moves_of_a_broker_are_counted_where_they_are_not_logged(
    discovery: Discovery, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "batchval.proxy")
    for n in range(3000):
        discovery.learn(0, "127.0.0.1", 9000 + n % 2)
    assert len(caplog.records) == MAX_LINES
    assert discovery.lines.left_out_total == 2999 - MAX_LINES
    caplog.clear()
    discovery.lines.flush()
    assert caplog.records == []
    clock.now += SECONDS_A_LINE + 0.1
    discovery.lines.flush()
    assert [one.getMessage() for one in caplog.records] == [
        f"{2999 - MAX_LINES} more log lines about brokers were left out"
    ]


def test_a_cluster_that_starts_has_all_its_lines(
    discovery: Discovery, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "batchval.proxy")
    learn(discovery, range(50))
    for n in range(50):
        discovery.learn(n, "127.0.0.1", 9093)
    assert len(caplog.records) == 50
    assert discovery.lines.left_out_total == 0


# ---- sizes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", MAX_ANSWER)
def test_answers_that_are_read_as_a_whole_are_bounded(key: int) -> None:
    answer = Answer(1, key, 3, None)
    check_size(answer, MAX_ANSWER[key])
    with pytest.raises(ProtocolError, match=f"at most {MAX_ANSWER[key]} are allowed"):
        check_size(answer, MAX_ANSWER[key] + 1)


def test_answers_that_are_passed_on_are_not() -> None:
    check_size(Answer(1, 1, 3, None), 1 << 30)
    check_size(7, 1 << 30)  # a place of the fast path
    token = Answer(0, -1, 0, None)
    check_size(token, MAX_TOKEN)

"""Requests that only brokers, controllers and operators send: no broker gets one through a gate."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from batchval.protocol.apis import APIS, ApiKey
from batchval.protocol.field_schema import read, shape_of
from batchval.protocol.primitives import Reader
from batchval.protocol.walkers.broker_requests import BROKER_APIS, SHARED_WITH_BROKERS
from batchval.proxy.settings.config import DenyRule, inter_broker_rules
from batchval.proxy.settings.options import Denied
from tests.support.authorities import Authority, pem
from tests.support.broker_requests import (
    BrokerRequest,
    body_of,
    broker_requests,
    client_requests,
    framed,
    with_replica,
)
from tests.support.proxy import (
    LOOPBACK,
    RunningProxy,
    ScriptedBroker,
    answered,
    connected,
    connected_gate,
    eventually,
    other_frame,
    read_frame,
)
from tests.system.auth.gates import RunningSettings
from tests.unit.proxy.test_denied import authenticate_as
from tests.unit.proxy.test_strangers import guarded
from tests.unit.proxy_settings.reloaded import ReloadedGate

DEFAULT = inter_broker_rules((), "default")
TOPIC, CLUSTER = 29, 31
#: The errors are those of Kafka: of a follower's request it is the topic's.
BY_TOPIC = {ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH}
MARKERS = framed(ApiKey.WRITE_TXN_MARKERS, 1, body_of(ApiKey.WRITE_TXN_MARKERS, 1))


def errors_in(values: Any) -> set[int]:
    """Return all error codes of an answer but 0."""
    if isinstance(values, list | tuple):
        return set().union(*map(errors_in, values))
    if not isinstance(values, dict):
        return set()
    own = {value for name, value in values.items() if name.endswith("ErrorCode") and value}
    return own.union(*map(errors_in, values.values()))


def answer_of(one: BrokerRequest, frame: bytes) -> dict[str, Any]:
    r = Reader(frame)
    assert r.int32() == 5
    r.flexible = APIS[one.key].is_flexible(one.version)
    r.unknown_tags()
    return read(shape_of(f"{APIS[one.key].name}Response", one.version), r)


def keys_seen(broker: ScriptedBroker) -> list[int]:
    return [int.from_bytes(frame[:2], "big") for frame in broker.frames]


def ask(sock: socket.socket, frame: bytes) -> bytes:
    sock.sendall(frame)
    return read_frame(sock)


def test_each_api_at_each_version_is_refused_and_no_broker_gets_it() -> None:
    denied: list[Denied] = []
    with (
        ScriptedBroker() as broker,
        RunningProxy(broker.address, deny=DEFAULT, on_denied=denied.append) as proxy,
    ):
        answered = closed = 0
        for one in broker_requests():
            with connected(proxy) as sock:
                if not one.answered:
                    with pytest.raises(EOFError):
                        ask(sock, one.frame)
                    closed += 1
                    continue
                found = errors_in(answer_of(one, ask(sock, one.frame)))
                assert found == {TOPIC if one.key in BY_TOPIC else CLUSTER}, one.name
                answered += 1
                # the connection goes on, and answers keep their order
                sock.sendall(other_frame(7) + one.frame)
                assert [read_frame(sock)[:4] for _ in range(2)] == [b"\0\0\0\7", b"\0\0\0\5"]
        assert set(keys_seen(broker)) == {ApiKey.INIT_PRODUCER_ID}
        counted = proxy.counters.requests_denied
        assert set(counted) == BROKER_APIS | SHARED_WITH_BROKERS
        assert sum(counted.values()) == len(denied) == 2 * answered > 200
        assert all(one.inter_broker for one in denied)
        assert proxy.counters.connections_closed == {"request_version": closed}


@pytest.mark.parametrize("is_known", [True, False])
def test_requests_of_clients_in_the_same_apis_pass(is_known: bool) -> None:
    def quiet(frame: bytes) -> bytes | None:
        is_first = frame[:2] == ApiKey.INIT_PRODUCER_ID.to_bytes(2, "big")
        return answered(frame) if is_first else None

    sent = [framed(*one) for one in client_requests()]
    with ScriptedBroker(quiet) as broker, RunningProxy(broker.address, deny=DEFAULT) as proxy:
        with connected(proxy) as sock:
            if is_known:  # after an answer, requests take the fast path
                ask(sock, other_frame(1))
                broker.frames.clear()
            sock.sendall(b"".join(sent))
            eventually(lambda: len(broker.frames) == len(sent))
        assert [frame[:4] for frame in broker.frames] == [frame[4:8] for frame in sent]
        assert proxy.counters.requests_denied == {}


def test_they_pass_where_nothing_is_denied() -> None:
    with connected_gate(lambda frame: None) as (broker, _, sock):
        sent = [one.frame for one in broker_requests() if one.answered]
        sock.sendall(b"".join(sent))
        eventually(lambda: len(broker.frames) == len(sent))
        assert [frame[:4] for frame in broker.frames] == [frame[4:8] for frame in sent]


def test_old_versions_that_are_raised_are_looked_at_first() -> None:
    options: dict[str, Any] = {"deny": DEFAULT, "bridge": ("producers", "consumers")}
    with ScriptedBroker() as broker, RunningProxy(broker.address, **options) as proxy:
        for version in range(4):
            one = BrokerRequest(ApiKey.FETCH, version, b"", True)
            frame = framed(ApiKey.FETCH, version, with_replica(version, 2))
            with connected(proxy) as sock:
                assert errors_in(answer_of(one, ask(sock, frame))) == {TOPIC}
        assert broker.frames == []


def test_a_request_that_cannot_be_read_ends_the_connection() -> None:
    body = with_replica(18, 3)[:-3]
    with ScriptedBroker() as broker, RunningProxy(broker.address, deny=DEFAULT) as proxy:
        for frame in (other_frame(1), b""):  # by the fast path, and without it
            with connected(proxy) as sock:
                sock.sendall(frame)
                if frame:
                    read_frame(sock)
                with pytest.raises(EOFError):
                    ask(sock, framed(ApiKey.FETCH, 18, body))
        assert set(keys_seen(broker)) == {ApiKey.INIT_PRODUCER_ID}
        assert proxy.counters.connections_closed == {"request_malformed": 2}


def test_they_cannot_overtake_the_authentication() -> None:
    rule = DenyRule(BROKER_APIS, "User:*", ("User:broker",), shared=SHARED_WITH_BROKERS)
    fetch = framed(ApiKey.FETCH, 15, with_replica(15, 3))
    consumer = framed(ApiKey.FETCH, 15, with_replica(15, -1))
    with ScriptedBroker(guarded) as broker, RunningProxy(broker.address, deny=(rule,)) as proxy:
        for name, is_denied in (("bob", True), ("broker", False)):
            with connected(proxy) as sock:
                authenticate_as(sock, name, 1)
                for frame in (fetch, MARKERS):
                    broker.frames.clear()
                    assert (len(ask(sock, frame)) > 4) == is_denied
                    assert bool(broker.frames) != is_denied
                assert ask(sock, consumer) == b"\0\0\0\5"
        with connected(proxy) as sock:
            ask(sock, other_frame(1))
            (session,) = [one for one in proxy.proxy.connections if one.client.transport]
            session.identity.authenticated = session.identity.is_unknown = False
            broker.frames.clear()
            with pytest.raises(EOFError):
                ask(sock, fetch)
        assert broker.frames == []
        assert proxy.counters.connections_closed == {"denied_early": 1}


def test_a_principal_of_any_length_may_consume() -> None:
    rule = DenyRule(BROKER_APIS, "User:*", ("User:broker",), shared=SHARED_WITH_BROKERS)
    with ScriptedBroker() as broker, RunningProxy(broker.address, deny=(rule,)) as proxy:
        deny_list = proxy.proxy.deny_list
        assert deny_list is not None
        long = "User:" + "b" * 3_000
        assert deny_list.denied_to(long) == BROKER_APIS
        assert deny_list.shared_of(long) == SHARED_WITH_BROKERS
        assert deny_list.denied_to("User:broker") == deny_list.shared_of("User:broker") == set()


# ---- from settings -------------------------------------------------------------------------------


def asks(address: tuple[str, int], frame: bytes) -> int:
    """Return the bytes of the answer's body: more than 4 where the gate has answered."""
    with socket.create_connection(address, 10) as sock:
        return len(ask(sock, frame))


def test_a_file_without_deny_denies_them_and_allow_does_not() -> None:
    listeners = [
        {"name": "default", "address": f"{LOOPBACK}:0"},
        {"name": "brokers", "address": f"{LOOPBACK}:0", "inter_broker": "allow"},
    ]
    with (
        ScriptedBroker() as broker,
        RunningSettings(broker.address, listeners=listeners, mode="observe") as gate,
    ):
        assert asks(gate.gate.addresses["default"], MARKERS) > 4
        assert broker.frames == []
        assert asks(gate.gate.addresses["brokers"], MARKERS) == 4
        assert keys_seen(broker) == [ApiKey.WRITE_TXN_MARKERS]
        assert gate.gate.counters.requests_denied == {ApiKey.WRITE_TXN_MARKERS: 1}


async def test_it_may_change_while_clients_are_connected(tmp_path: Path) -> None:
    listener = {"address": f"{LOOPBACK}:0"}
    with ScriptedBroker() as broker:
        async with (
            ReloadedGate(tmp_path, broker, listeners=[listener]) as one,
            one.client() as client,
        ):
            for values, is_denied in (
                ({}, True),
                ({"listeners": [listener | {"inter_broker": "allow"}]}, False),
                ({"deny": [{"apis": ["inter-broker"]}]}, True),
                ({"deny": []}, False),
                ({"listeners": [listener]}, True),
            ):
                if values:
                    assert await one.reload(**values) == "applied"
                client.writer.write(MARKERS)
                assert (len(await client.answer()) > 4) == is_denied, values
                client.writer.write(framed(ApiKey.FETCH, 15, with_replica(15, 1)))
                assert (len(await client.answer()) > 4) == is_denied, values
    assert len(broker.frames) == 4


@pytest.fixture
def certified(tmp_path: Path) -> dict[str, Any]:
    """Return TLS settings of a listener; the folder has certificates of admin and edge."""
    authority = Authority("Example")
    for name, file in (("gate", "gate"), ("admin", "admin"), ("edge", "edge")):
        authority.issue(tmp_path, name, file)
    (tmp_path / "ca.pem").write_bytes(pem(authority.certificate))
    (tmp_path / "gate.key").chmod(0o600)
    return {
        "certificate": str(tmp_path / "gate.pem"),
        "key": str(tmp_path / "gate.key"),
        "client_ca": str(tmp_path / "ca.pem"),
    }


def test_a_certificates_principal_may_be_excepted(
    certified: dict[str, Any], tmp_path: Path
) -> None:
    deny = [{"apis": ["AlterReplicaLogDirs"], "except_principals": "User:CN=admin"}]
    alter = framed(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, body_of(ApiKey.ALTER_REPLICA_LOG_DIRS, 2))
    with (
        ScriptedBroker() as broker,
        RunningSettings(
            broker.address,
            listeners=[{"address": f"{LOOPBACK}:0", "tls": certified}],
            deny=deny,
        ) as gate,
    ):
        for name, frame, passes in (
            ("admin", alter, True),
            ("admin", MARKERS, False),  # the rule is about the other API
            ("edge", alter, False),
            ("edge", MARKERS, False),
        ):
            context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
            context.check_hostname = False
            context.load_cert_chain(tmp_path / f"{name}.pem", tmp_path / f"{name}.key")
            with (
                socket.create_connection(gate.address, 10) as plain,
                context.wrap_socket(plain) as sock,
            ):
                assert (len(ask(sock, frame)) == 4) == passes, (name, passes)
        assert keys_seen(broker) == [ApiKey.ALTER_REPLICA_LOG_DIRS]

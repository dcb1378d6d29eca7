"""Requests that the settings deny: answered here, in their place, and no broker sees them."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from dataclasses import replace

import pytest

from batchval.protocol.apis import ApiKey
from batchval.protocol.field_schema import read, shape_of, write
from batchval.protocol.message import Response
from batchval.protocol.primitives import Reader, Writer
from batchval.proxy.session.deny_list import DenyList
from batchval.proxy.session.handlers import GROWTH, INLINE, MAX_READ_BYTES
from batchval.proxy.session.session import MAX_HELD_BYTES
from batchval.proxy.settings.config import DenyRule
from batchval.proxy.settings.options import Denied
from tests.support.proxy import (
    GOOD,
    RunningProxy,
    ScriptedBroker,
    codes,
    connected,
    connected_gate,
    eventually,
    other_frame,
    produce_frame,
    read_frame,
)
from tests.unit.proxy.test_strangers import asked, guarded, handshake

TOPIC, CLUSTER, TRANSACTIONAL_ID = 29, 31, 53
DELETE_TOPICS = DenyRule(frozenset({ApiKey.DELETE_TOPICS}))


def delete_topics(correlation_id: int, *topics: str, version: int = 3) -> bytes:
    w = Writer()
    write(shape_of("DeleteTopicsRequest", version), w, {"TopicNames": topics, "TimeoutMs": 1000})
    return asked(correlation_id, ApiKey.DELETE_TOPICS, w.getvalue(), version)


def deleted(frame: bytes, version: int = 3) -> tuple[int, dict[str, int]]:
    """Return the correlation id, and the error of each topic."""
    answer = read(shape_of("DeleteTopicsResponse", version), Reader(frame[4:]))
    return int.from_bytes(frame[:4], "big"), {
        one["Name"]: one["ErrorCode"] for one in answer["Responses"]
    }


def authenticate_as(sock: socket.socket, name: str, version: int) -> None:
    """Authenticate by PLAIN after SaslHandshake of this version."""
    token = b"\0" + name.encode() + b"\0secret"
    sock.sendall(handshake(1, version))
    read_frame(sock)
    framed = struct.pack(">i", len(token)) + token
    sock.sendall(asked(2, ApiKey.SASL_AUTHENTICATE, framed, 1) if version else framed)
    read_frame(sock)


def keys_seen(broker: ScriptedBroker) -> list[int]:
    return [int.from_bytes(frame[:2], "big") for frame in broker.frames]


def test_a_denied_request_is_answered_in_its_place() -> None:
    with ScriptedBroker() as broker, RunningProxy(broker.address, deny=(DELETE_TOPICS,)) as proxy:
        with connected(proxy) as sock:
            sock.sendall(
                other_frame(1) + delete_topics(2, "a", "b") + other_frame(3) + delete_topics(4, "c")
            )
            assert read_frame(sock)[:4] == struct.pack(">i", 1)
            assert deleted(read_frame(sock)) == (2, {"a": CLUSTER, "b": CLUSTER})
            assert read_frame(sock)[:4] == struct.pack(">i", 3)
            assert deleted(read_frame(sock)) == (4, {"c": CLUSTER})
        assert keys_seen(broker) == [22, 22]
        assert proxy.counters.requests_denied == {ApiKey.DELETE_TOPICS: 2}


def test_a_large_one_keeps_its_place_too() -> None:
    # It is answered in a thread; what comes after it waits.
    names = [f"topic-{i:04}" for i in range(1000)]
    with ScriptedBroker() as broker, RunningProxy(broker.address, deny=(DELETE_TOPICS,)) as proxy:
        with connected(proxy) as sock:
            large = delete_topics(2, *names)
            assert INLINE < len(large) < MAX_READ_BYTES
            sock.sendall(b"".join((other_frame(1) + large + other_frame(3)) for _ in range(20)))
            for _ in range(20):
                assert read_frame(sock)[:4] == struct.pack(">i", 1)
                assert deleted(read_frame(sock)) == (2, dict.fromkeys(names, CLUSTER))
                assert read_frame(sock)[:4] == struct.pack(">i", 3)
        assert keys_seen(broker) == [22] * 40
        eventually(lambda: proxy.counters.bytes_held == 0)


def test_one_that_is_too_large_ends_the_connection() -> None:
    with ScriptedBroker() as broker, RunningProxy(broker.address, deny=(DELETE_TOPICS,)) as proxy:
        with connected(proxy) as sock:
            sock.sendall(other_frame(1) + delete_topics(2, *["t" * 100] * 2000))
            assert read_frame(sock)[:4] == struct.pack(">i", 1)
            with pytest.raises(EOFError):
                read_frame(sock)
        assert proxy.counters.connections_closed == {"denied_size": 1}
        assert keys_seen(broker) == [22]


def test_one_that_cannot_be_read_ends_the_connection() -> None:
    with ScriptedBroker() as broker, RunningProxy(broker.address, deny=(DELETE_TOPICS,)) as proxy:
        for body in (b"\x7f\xff\xff\xff", struct.pack(">i", 1 << 20) + b"\0" * 2 * INLINE):
            with connected(proxy) as sock:
                sock.sendall(other_frame(1) + asked(2, ApiKey.DELETE_TOPICS, body, 3))
                assert read_frame(sock)[:4] == struct.pack(">i", 1)
                with pytest.raises(EOFError):
                    read_frame(sock)
        assert proxy.counters.connections_closed == {"request_malformed": 2}
        assert keys_seen(broker) == [22, 22]


def test_it_is_reported() -> None:
    denied: list[Denied] = []
    with connected_gate(deny=(DELETE_TOPICS,), on_denied=denied.append) as (_, _, sock):
        sock.sendall(delete_topics(2, "a"))
        assert deleted(read_frame(sock))[0] == 2
        host, port = sock.getsockname()
    assert denied == [
        Denied("default", f"{host}:{port}", "test", "User:ANONYMOUS", ApiKey.DELETE_TOPICS, 3)
    ]


def test_a_client_that_sends_nothing_else_needs_no_broker() -> None:
    with ScriptedBroker() as broker, RunningProxy(broker.address, deny=(DELETE_TOPICS,)) as proxy:
        with connected(proxy) as sock:
            sock.sendall(delete_topics(1, "a"))
            assert deleted(read_frame(sock)) == (1, {"a": CLUSTER})
            sock.sendall(other_frame(2))
            assert read_frame(sock)[:4] == struct.pack(">i", 2)
        assert keys_seen(broker) == [22]


def test_produce_is_denied_by_topic() -> None:
    rule = DenyRule(frozenset({ApiKey.PRODUCE}))
    with ScriptedBroker() as broker, RunningProxy(broker.address, deny=(rule,)) as proxy:
        with connected(proxy) as sock:
            many = [("other", i, GOOD) for i in range(300)]
            sock.sendall(
                produce_frame(1, ("orders", 0, GOOD)) + produce_frame(2, *many) + other_frame(3)
            )
            assert codes(read_frame(sock)) == {("orders", 0): TOPIC}
            assert codes(read_frame(sock)) == dict.fromkeys(
                [("other", i) for i in range(300)], TOPIC
            )
            assert read_frame(sock)[:4] == struct.pack(">i", 3)
            sock.sendall(produce_frame(4, ("orders", 0, GOOD), acks=0))
            with pytest.raises(EOFError):
                read_frame(sock)
        assert proxy.counters.connections_closed == {"denied": 1}
        assert keys_seen(broker) == [22]
        assert proxy.counters.requests_denied == {ApiKey.PRODUCE: 3}


def test_what_a_producer_id_is_for_decides_the_error() -> None:
    rule = DenyRule(frozenset({ApiKey.INIT_PRODUCER_ID}))
    with connected_gate(deny=(rule,)) as (_, _, sock):
        sock.sendall(
            other_frame(1, body=b"\xff\xff\0\0\0\0") + other_frame(2, body=b"\0\1t\0\0\0\0")
        )
        found = [
            read(shape_of("InitProducerIdResponse", 0), Reader(read_frame(sock)[4:]))
            for _ in range(2)
        ]
    assert [one["ErrorCode"] for one in found] == [CLUSTER, TRANSACTIONAL_ID]


@pytest.mark.parametrize("version", [0, 1])
def test_a_principal_is_known_once_the_broker_has_authenticated_it(version: int) -> None:
    rule = DenyRule(frozenset({ApiKey.DELETE_TOPICS}), "User:*", ("User:admin",))
    with ScriptedBroker(guarded) as broker, RunningProxy(broker.address, deny=(rule,)) as proxy:
        for name, is_denied in (("bob", True), ("admin", False)):
            with connected(proxy) as sock:
                authenticate_as(sock, name, version)
                broker.frames.clear()
                sock.sendall(delete_topics(5, "a") + other_frame(6))
                answer = read_frame(sock)
                assert answer[:4] == struct.pack(">i", 5)
                assert (len(answer) > 4) == is_denied
                assert read_frame(sock)[:4] == struct.pack(">i", 6)
                assert keys_seen(broker) == ([22] if is_denied else [20, 22])


def test_a_request_cannot_overtake_the_authentication() -> None:
    # The broker would see it as bob's; here nobody knows yet that he is bob.
    rule = DenyRule(frozenset({ApiKey.DELETE_TOPICS}), "User:bob")
    has_ended = threading.Event()

    def slow(frame: bytes) -> bytes | None:
        if frame[:2] == struct.pack(">h", ApiKey.SASL_AUTHENTICATE):
            assert has_ended.wait(10)
        return guarded(frame)

    with ScriptedBroker(slow) as broker, RunningProxy(broker.address, deny=(rule,)) as proxy:
        with connected(proxy) as sock:
            sock.sendall(handshake(1))
            read_frame(sock)
            token = b"\0bob\0secret"
            sasl = asked(2, ApiKey.SASL_AUTHENTICATE, struct.pack(">i", len(token)) + token, 0)
            sock.sendall(sasl + delete_topics(3, "a"))
            eventually(lambda: proxy.counters.connections_closed)
            has_ended.set()
            assert read_frame(sock)[:4] == struct.pack(">i", 2)
            with pytest.raises(EOFError):
                read_frame(sock)
        assert proxy.counters.connections_closed == {"denied_early": 1}
        assert ApiKey.DELETE_TOPICS not in keys_seen(broker)


def test_other_listeners_and_principals_take_the_fast_path() -> None:
    rules = (
        DenyRule(frozenset({ApiKey.DELETE_TOPICS}), listeners="edge"),
        DenyRule(frozenset({ApiKey.PRODUCE}), "User:bob"),
    )
    with connected_gate(deny=rules) as (_, proxy, sock):
        sock.sendall(delete_topics(1, "a") + produce_frame(2, ("orders", 0, GOOD)))
        assert [read_frame(sock)[:4] for _ in range(2)] == [struct.pack(">i", n) for n in (1, 2)]
        assert proxy.counters.requests_denied == {}
        assert proxy.proxy.deny_list is not None
        assert proxy.proxy.deny_list.guarded == {ApiKey.PRODUCE}
        denied = proxy.proxy.deny_list.denied_to("User:ANONYMOUS")
        assert proxy.proxy.routes_for(denied, proxy.proxy.raised) is proxy.proxy.fast_routes


def test_a_principal_that_is_too_long_to_compare_may_use_no_guarded_api() -> None:
    deny_list = DenyList((DenyRule(frozenset({ApiKey.PRODUCE}), "User:bob"),), "default")
    assert deny_list.denied_to("User:alice") == frozenset()
    assert deny_list.denied_to("User:" + "a" * DenyList.MAX_MATCHED_LENGTH) == {ApiKey.PRODUCE}


def test_the_answer_to_a_large_request_has_no_messages() -> None:
    # Each element of 3 bytes would have a message of 60.
    with ScriptedBroker() as broker, RunningProxy(broker.address, deny=(DELETE_TOPICS,)) as proxy:
        with connected(proxy) as sock:
            for count in (3, 20_000):
                request = delete_topics(1, *["t"] * count)
                sock.sendall(request)
                assert len(read_frame(sock)) < max(400, GROWTH * len(request))
        eventually(lambda: proxy.counters.bytes_held == 0)


@pytest.mark.long
def test_answers_that_are_made_count_as_waiting() -> None:
    # A client that sends 400 requests and reads nothing gets no more than one session may hold.
    large = delete_topics(1, *["t"] * 20_000)
    broker, denied = ScriptedBroker(), (DELETE_TOPICS,)
    with broker, RunningProxy(broker.address, deny=denied) as proxy, connected(proxy) as sock:
        sock.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            for _ in range(400):
                sock.sendall(large)
        (session,) = proxy.proxy.connections
        assert session.requests.waiting <= 2 * MAX_HELD_BYTES
        assert session.client.unwritten() <= MAX_HELD_BYTES


def test_nothing_is_answered_before_a_client_has_authenticated() -> None:
    with ScriptedBroker() as broker, RunningProxy(broker.address, deny=(DELETE_TOPICS,)) as proxy:
        with connected(proxy) as sock:
            sock.sendall(other_frame(1))
            read_frame(sock)
            (session,) = proxy.proxy.connections
            session.identity.authenticated = session.identity.is_unknown = False
            sock.sendall(delete_topics(2, "a"))
            with pytest.raises(EOFError):
                read_frame(sock)
        assert proxy.counters.connections_closed == {"denied_early": 1}


def test_a_session_that_has_not_followed_yet_sends_requests_on() -> None:
    # A reload that takes all rules away reaches so many sessions in one turn of the loop.
    with ScriptedBroker() as broker, RunningProxy(broker.address, deny=(DELETE_TOPICS,)) as proxy:
        with connected(proxy) as sock:
            sock.sendall(other_frame(1))
            read_frame(sock)
            proxy.proxy.deny_list = None
            sock.sendall(delete_topics(2, "a"))
            assert read_frame(sock)[:4] == struct.pack(">i", 2)
        assert proxy.counters.connections_closed == {}


def test_no_rule_costs_nothing() -> None:
    rule = DenyRule(frozenset({ApiKey.DELETE_TOPICS}), listeners="edge")
    with ScriptedBroker() as broker, RunningProxy(broker.address, deny=(rule,)) as proxy:
        assert proxy.proxy.deny_list is None


def test_rules_may_change_while_clients_are_connected() -> None:
    with connected_gate() as (broker, proxy, sock):
        sock.sendall(delete_topics(1, "a"))
        assert read_frame(sock) == struct.pack(">i", 1)
        for rules, is_denied in (((DELETE_TOPICS,), True), ((), False)):

            async def change(rules: tuple[DenyRule, ...] = rules) -> None:
                proxy.proxy.use(replace(proxy.proxy.options, deny=tuple(rules)), proxy.proxy.gate)

            proxy.call(change())
            sock.sendall(delete_topics(2, "a"))
            assert (len(read_frame(sock)) > 4) == is_denied
        assert keys_seen(broker) == [20, 20]


def test_answers_that_have_a_class_are_read_by_it() -> None:
    # Heartbeat and DescribeConfigs, by the classes of batchval.protocol.messages.
    from batchval.protocol.messages.describe_configs import (
        DescribeConfigsRequest,
        DescribeConfigsResource,
    )
    from batchval.protocol.messages.heartbeat import HeartbeatRequest

    rule = DenyRule(frozenset({ApiKey.HEARTBEAT, ApiKey.DESCRIBE_CONFIGS}))
    heartbeat = HeartbeatRequest("group", 1, "member", api_version=4)
    configs = DescribeConfigsRequest([DescribeConfigsResource(2, "orders")], api_version=4)
    with connected_gate(deny=(rule,)) as (_, _, sock):
        sock.sendall(b"".join(heartbeat.encode(1, "c")) + b"".join(configs.encode(2, "c")))
        first: Response = heartbeat.decode(memoryview(read_frame(sock)))
        second = configs.decode(memoryview(read_frame(sock)))
    assert getattr(first, "error_code", None) == 30
    assert [(one.error_code, one.resource_type, one.resource_name) for one in second.results] == [
        (31, 2, "orders")
    ]
    assert (
        second.results[0].error_message
        == "Cluster authorization failed. The gate denies DescribeConfigs."
    )

"""SASL of all mechanisms passes through the gate; its own credentials are for its own questions."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import time
import uuid
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer

from batchval.policy import TopicPolicy
from batchval.protocol.messages.api_versions import ApiVersionsRequest
from batchval.protocol.messages.sasl_handshake import SaslHandshakeRequest
from batchval.proxy.config import Upstream
from batchval.proxy.policies import read_brokers, read_topic_configs
from tests.auth.conftest import USERS, Guarded
from tests.auth.gates import RunningSettings
from tests.support.proxy import (
    RunningProxy,
    batch,
    codes,
    damaged,
    eventually,
    produce_frame,
    read_frame,
)
from tests.support.topics import make_topic

pytestmark = pytest.mark.jvm

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


def as_user(mechanism: str, user: str = "ann", password: str | None = None) -> dict[str, Any]:
    config = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "log_level": 0}
    if mechanism == "OAUTHBEARER":
        return config | {
            "enable.sasl.oauthbearer.unsecure.jwt": True,
            "sasl.oauthbearer.config": f"principal={user} lifeSeconds=3600",
        }
    return config | {"sasl.username": user, "sasl.password": USERS[user] if password is None else password}


def fresh(kind: str = "t") -> str:
    return f"{kind}-{uuid.uuid4().hex[:8]}"


def there_and_back(bootstrap: str, who: dict[str, Any], topic: str, values: list[bytes]) -> list[bytes]:
    """Produces one by one, so that the connection lives for a while, and reads all."""
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, **who})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: error and errors.append(error))
        assert producer.flush(20) == 0
    assert errors == []
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": fresh("g"), "auto.offset.reset": "earliest", **who}
    )
    consumer.subscribe([topic])
    read: list[bytes] = []
    until = time.monotonic() + 30
    while len(read) < len(values) and time.monotonic() < until:
        read += [message.value() or b"" for message in consumer.consume(100, 0.2) if not message.error()]
    consumer.close()
    return read


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_clients_authenticate_with_the_broker_through_the_gate(guarded: Guarded, mechanism: str) -> None:
    values = [b"%d" % i for i in range(5)]
    with RunningProxy(guarded.sasl) as gate:
        assert there_and_back(gate.bootstrap, as_user(mechanism), fresh(), values) == values
        asked = gate.counters.requests_by_api
        assert asked[17] >= 2
        assert asked[36] >= 2
        assert {port for _, port in gate.proxy.listening.values()} <= gate.own_ports()
        assert len(gate.proxy.listening) == 1  # learnt from what the client was told


@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
def test_kafka_python(guarded: Guarded, mechanism: str) -> None:
    values = [b"%d" % i for i in range(5)]
    topic = fresh()
    with RunningProxy(guarded.sasl) as gate:
        who: dict[str, Any] = {
            "bootstrap_servers": gate.bootstrap,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": mechanism,
            "sasl_plain_username": "ann",
            "sasl_plain_password": USERS["ann"],
        }
        producer = KafkaProducer(**who)
        for value in values:
            producer.send(topic, value).get(20)
        producer.close()
        consumer = KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=20_000, **who)
        assert [next(consumer).value for _ in values] == values
        consumer.close()
        assert gate.counters.requests_by_api[36] >= 2


@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
def test_aiokafka(guarded: Guarded, mechanism: str) -> None:
    values = [b"%d" % i for i in range(5)]
    topic = fresh()

    async def run(bootstrap: str) -> list[bytes]:
        who: dict[str, Any] = {
            "bootstrap_servers": bootstrap,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": mechanism,
            "sasl_plain_username": "ann",
            "sasl_plain_password": USERS["ann"],
        }
        async with AIOKafkaProducer(**who) as producer:
            for value in values:
                await producer.send_and_wait(topic, value)
        async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **who) as consumer:
            return [(await asyncio.wait_for(consumer.getone(), 20)).value for _ in values]

    with RunningProxy(guarded.sasl) as gate:
        assert asyncio.run(run(gate.bootstrap)) == values
        assert gate.counters.requests_by_api[36] >= 2


def test_a_batch_is_judged_before_the_broker_asks_who_sends_it(guarded: Guarded) -> None:
    """What is good goes to the broker, which hangs up; what is bad is refused here."""
    with RunningProxy(guarded.sasl) as gate:
        for records, is_answered in ((damaged(batch(b"x")), True), (batch(b"x"), False)):
            with socket.create_connection(gate.address, 10) as sock:
                sock.sendall(produce_frame(1, ("t", 0, records)))
                if is_answered:
                    assert codes(read_frame(sock)) == {("t", 0): 2}
                else:
                    with pytest.raises(EOFError):
                        read_frame(sock)


def test_clients_authenticate_anew_on_the_same_connection(guarded: Guarded) -> None:
    """KIP-368: the broker asks for it every two seconds."""
    with RunningProxy(guarded.sasl) as gate:
        errors: list[object] = []
        producer = Producer({"bootstrap.servers": gate.bootstrap, **as_user("PLAIN")})
        topic = fresh()
        for i in range(12):
            producer.produce(topic, b"%d" % i, on_delivery=lambda error, _: error and errors.append(error))
            assert producer.flush(30) == 0
            time.sleep(0.4)
        assert errors == []
        assert gate.counters.requests_by_api[17] >= 4
        assert gate.counters.requests_by_api[36] >= 4
        assert gate.counters.connections_total <= 3


@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
def test_a_wrong_password_is_the_brokers_to_refuse(guarded: Guarded, mechanism: str) -> None:
    """The same error, straight and through the gate."""
    with RunningProxy(guarded.sasl) as gate:
        for bootstrap in (guarded.sasl, gate.bootstrap):
            said: list[tuple[str, str]] = []
            config = as_user(mechanism, password="pl4nted-wrong")
            producer = Producer(
                {"bootstrap.servers": bootstrap, "error_cb": lambda e, s=said: s.append((e.name(), e.str())), **config}
            )
            eventually(lambda p=producer, s=said: p.poll(0.02) or "_AUTHENTICATION" in dict(s))
            assert "Authentication failed" in dict(said)["_AUTHENTICATION"]
            del producer
        assert gate.counters.requests_by_api[36] >= 1
        assert 3 not in gate.counters.requests_by_api


def test_who_may_do_nothing_may_do_nothing_through_the_gate(guarded: Guarded) -> None:
    with RunningProxy(guarded.sasl) as gate:
        for bootstrap in (guarded.sasl, gate.bootstrap):
            admin = AdminClient({"bootstrap.servers": bootstrap, **as_user("OAUTHBEARER", "bob")})
            topic = fresh()
            with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
                admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(20)


def test_a_bad_batch_is_refused_after_sasl_as_anywhere(guarded: Guarded) -> None:
    topic = fresh("strict")
    rules = [{"match": "strict-*", "max.message.bytes": 1000}]
    with RunningSettings(guarded.sasl, topics={"policies": rules}) as gate:
        errors: list[str] = []
        producer = Producer({"bootstrap.servers": gate.bootstrap, **as_user("SCRAM-SHA-512"), "linger.ms": 0})
        for value in (b"small", b"x" * 5000, b"small"):
            producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error.name() if error else ""))
            assert producer.flush(20) == 0
        assert errors == ["", "MSG_SIZE_TOO_LARGE", ""]


# ---- the gate's own credentials ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_topic_configurations_and_brokers_are_read(guarded: Guarded, mechanism: str) -> None:
    topic = fresh("made")
    config = {"cleanup.policy": "compact", "max.message.bytes": "4321"}
    make_topic(guarded.plain, topic, **config)
    given = upstream(guarded.sasl, mechanism)
    assert asyncio.run(read_brokers(given, None)) == [(1, "127.0.0.1", int(guarded.sasl.rpartition(":")[2]))]
    found = asyncio.run(read_topic_configs(given, None, None))
    assert found[topic] == TopicPolicy(cleanup_policy="compact", max_message_bytes=4321)


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def admin_settings(mechanism: str, password: str | None = None) -> dict[str, Any]:
    word = USERS["gate"] if password is None else password
    return {"mechanism": mechanism, "username": "gate", "password": word, "refresh_ms": 1000}


def upstream(bootstrap: str, mechanism: str) -> Upstream:
    return Upstream.model_validate({"bootstrap": bootstrap, "admin": admin_settings(mechanism)})


def test_with_credentials_every_broker_has_its_listener_before_a_client_comes(
    guarded: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.INFO, "batchval"),
        RunningSettings(guarded.sasl, admin=admin_settings("SCRAM-SHA-512")) as gate,
    ):
        proxy = gate.gate.proxies["default"]
        eventually(lambda: set(proxy.listening) == {1})
        assert gate.gate.unready() is None
        assert gate.gate.counters.connections_total == 0
        topic = make_topic(guarded.plain, fresh("small"), **{"max.message.bytes": "1000"})
        eventually(lambda: gate.gate.cluster_topics and gate.gate.cluster_topics(topic))
        errors: list[str] = []
        producer = Producer({"bootstrap.servers": gate.bootstrap, **as_user("PLAIN"), "linger.ms": 0})
        producer.produce(topic, b"x" * 5000, on_delivery=lambda error, _: errors.append(error and error.name()))
        assert producer.flush(20) == 0
        assert errors == ["MSG_SIZE_TOO_LARGE"]
        assert gate.gate.counters.partitions_refused == {"batch-too-large": 1}
    assert warned(caplog) == ["refused"]
    assert not any(word in caplog.text for word in USERS.values())


def test_without_credentials_nobody_is_warned_and_brokers_are_learnt_from_a_client(
    guarded: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "batchval"), RunningSettings(guarded.sasl) as gate:
        proxy = gate.gate.proxies["default"]
        eventually(lambda: "names its brokers to nobody" in caplog.text)
        eventually(lambda: gate.gate.unready() is None)  # it is there all the same
        time.sleep(2.0)  # several attempts
        assert not proxy.listening
        assert there_and_back(gate.bootstrap, as_user("PLAIN"), fresh(), [b"x"]) == [b"x"]
        assert set(proxy.listening) == {1}
    assert caplog.text.count("names its brokers to nobody") == 1
    assert warned(caplog) == []


def test_a_wrong_password_of_the_gates_own_is_said_and_clients_are_served(
    guarded: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    with RunningSettings(guarded.sasl, admin=admin_settings("SCRAM-SHA-256", "pl4nted-wrong")) as gate:
        eventually(lambda: "refuses these credentials: SASL_AUTHENTICATION_FAILED" in caplog.text)
        assert there_and_back(gate.bootstrap, as_user("SCRAM-SHA-256"), fresh(), [b"x"]) == [b"x"]
    assert "pl4nted" not in caplog.text


# ---- version 0 of SaslHandshake ------------------------------------------------------------------------------------


def plain_token(user: str) -> bytes:
    token = f"\0{user}\0{USERS[user]}".encode()
    return struct.pack(">i", len(token)) + token


def test_raw_tokens_are_not_offered(guarded: Guarded) -> None:
    """The broker still takes SaslHandshake 0, behind which tokens have no header; whoever asks the gate is told 1."""
    host, port = guarded.sasl.rsplit(":", 1)
    with RunningProxy(guarded.sasl) as gate:
        offered = []
        for address in ((host, int(port)), gate.address):
            with socket.create_connection(address, 10) as sock:
                request = ApiVersionsRequest(api_version=0)
                sock.sendall(b"".join(request.encode(1, "test")))
                answer = request.decode(read_frame(sock))
                offered += [(api.min_version, api.max_version) for api in answer.api_keys if api.api_key == 17]
                sock.sendall(b"".join(SaslHandshakeRequest("PLAIN", api_version=0).encode(2, "test")))
                if address == gate.address:
                    with pytest.raises(EOFError):
                        read_frame(sock)
                    break
                read_frame(sock)
                sock.sendall(plain_token("ann"))
                assert read_frame(sock) == b""  # the token of a server that has nothing to say
                sock.sendall(produce_frame(3, (fresh(), 0, batch(b"x"))))
                assert set(codes(read_frame(sock)).values()) <= {0, 3}
        assert offered == [(0, 1), (1, 1)]
        assert gate.counters.connections_closed == {"request_version": 1}

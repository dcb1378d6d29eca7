"""SASL of all mechanisms passes through the gate; its own credentials are for its own questions."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer

from batchval.network.sasl import ScramClient
from batchval.policy import TopicPolicy
from batchval.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from batchval.proxy.life.file_checks import upstream_faults
from batchval.proxy.produce.policies import read_brokers, read_topic_configs
from batchval.proxy.session.session_states import SessionState
from batchval.proxy.settings.config import Upstream
from batchval.proxy.settings.loading import settings_from
from batchval.yaml_settings.faults import Fault
from tests.support.old_clients import run_script
from tests.support.proxy import (
    RunningProxy,
    batch,
    codes,
    damaged,
    eventually,
    produce_frame,
    read_frame,
)
from tests.support.topics import consumed, make_topic
from tests.system.auth.conftest import USERS, Guarded
from tests.system.auth.gates import RunningSettings

pytestmark = pytest.mark.jvm

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


def as_user(mechanism: str, user: str = "ann", password: str | None = None) -> dict[str, Any]:
    config = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "log_level": 0}
    if mechanism == "OAUTHBEARER":
        return config | {
            "enable.sasl.oauthbearer.unsecure.jwt": True,
            "sasl.oauthbearer.config": f"principal={user} lifeSeconds=3600",
        }
    return config | {
        "sasl.username": user,
        "sasl.password": USERS[user] if password is None else password,
    }


def fresh(kind: str = "t") -> str:
    return f"{kind}-{uuid.uuid4().hex[:8]}"


def there_and_back(
    bootstrap: str, who: dict[str, Any], topic: str, values: list[bytes]
) -> list[bytes]:
    """Produce records one by one, so that the connection lives for a while, and read them all."""
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, **who})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: error and errors.append(error))
        assert producer.flush(20) == 0
    assert errors == []
    return consumed({"bootstrap.servers": bootstrap, **who}, topic, len(values))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_clients_authenticate_with_the_broker_through_the_gate(
    guarded: Guarded, mechanism: str
) -> None:
    values = [b"%d" % i for i in range(5)]
    with RunningProxy(guarded.sasl) as gate:
        assert there_and_back(gate.bootstrap, as_user(mechanism), fresh(), values) == values
        asked = gate.proxy.traffic.requests_by_api()
        assert asked[17] >= 2
        assert asked[36] >= 2
        assert {port for _, port in gate.proxy.listening.values()} <= gate.own_ports()
        assert len(gate.proxy.listening) == 1  # learnt from the client's answers


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
        consumer = KafkaConsumer(
            topic, auto_offset_reset="earliest", consumer_timeout_ms=20_000, **who
        )
        assert [next(consumer).value for _ in values] == values
        consumer.close()
        assert gate.proxy.traffic.requests_by_api()[36] >= 2


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
        assert gate.proxy.traffic.requests_by_api()[36] >= 2


def test_a_batch_is_judged_before_the_broker_asks_who_sends_it(guarded: Guarded) -> None:
    # What is good goes to the broker, which hangs up; what is bad is refused here.
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
    # KIP-368: the broker asks for it every two seconds.
    with RunningProxy(guarded.sasl) as gate:
        errors: list[object] = []
        producer = Producer({"bootstrap.servers": gate.bootstrap, **as_user("PLAIN")})
        topic = fresh()
        for i in range(12):
            producer.produce(
                topic, b"%d" % i, on_delivery=lambda error, _: error and errors.append(error)
            )
            assert producer.flush(30) == 0
            time.sleep(0.4)
        assert errors == []
        assert gate.proxy.traffic.requests_by_api()[17] >= 4
        assert gate.proxy.traffic.requests_by_api()[36] >= 4
        assert gate.counters.connections_total <= 3


@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
def test_a_wrong_password_is_the_brokers_to_refuse(guarded: Guarded, mechanism: str) -> None:
    # The same error, straight and through the gate.
    with RunningProxy(guarded.sasl) as gate:
        for bootstrap in (guarded.sasl, gate.bootstrap):
            errors: list[tuple[str, str]] = []
            config = as_user(mechanism, password="pl4nted-wrong")
            producer = Producer(
                {
                    "bootstrap.servers": bootstrap,
                    "error_cb": lambda e, s=errors: s.append((e.name(), e.str())),
                    **config,
                }
            )
            eventually(lambda p=producer, s=errors: p.poll(0.02) or "_AUTHENTICATION" in dict(s))
            assert "Authentication failed" in dict(errors)["_AUTHENTICATION"]
            del producer
        assert gate.proxy.traffic.requests_by_api()[36] >= 1
        assert 3 not in gate.proxy.traffic.requests_by_api()


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
        producer = Producer(
            {"bootstrap.servers": gate.bootstrap, **as_user("SCRAM-SHA-512"), "linger.ms": 0}
        )
        for value in (b"small", b"x" * 5000, b"small"):
            producer.produce(
                topic,
                value,
                on_delivery=lambda error, _: errors.append(error.name() if error else ""),
            )
            assert producer.flush(20) == 0
        assert errors == ["", "MSG_SIZE_TOO_LARGE", ""]


# ---- the gate's own credentials ------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_topic_configurations_and_brokers_are_read(guarded: Guarded, mechanism: str) -> None:
    topic = fresh("made")
    config = {"cleanup.policy": "compact", "max.message.bytes": "4321"}
    make_topic(guarded.plain, topic, **config)
    settings = upstream(guarded.sasl, mechanism)
    (address,) = settings.bootstrap
    view = asyncio.run(read_brokers(settings, None, address, "test"))
    assert view.brokers == [(1, "127.0.0.1", address.port)]
    assert view.cluster_id
    found = asyncio.run(read_topic_configs(settings, None, None))
    assert found[topic] == TopicPolicy(cleanup_policy="compact", max_message_bytes=4321)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_the_check_of_settings_logs_in(guarded: Guarded, mechanism: str) -> None:
    def found(bootstrap: str, **changes: str) -> tuple[list[Fault], list[Fault]]:
        admin = admin_settings(mechanism) | changes
        values = {"bootstrap": bootstrap, "admin": admin}
        return upstream_faults(
            settings_from({"listeners": [{"address": "127.0.0.1:0"}], "upstream": values})
        )

    assert found(guarded.sasl) == ([], [])
    for changes in ({"password": "another"}, {"username": "nobody"}):
        (wrong,), warnings = found(guarded.sasl, **changes)
        assert warnings == []
        assert f"{guarded.sasl} refuses the login of " in wrong.text
        assert "another" not in wrong.text
    # a listener without SASL
    (wrong,), warnings = found(guarded.plain)
    assert warnings == []
    assert f"the broker refused SASL mechanism {mechanism}" in wrong.text


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
        producer = Producer(
            {"bootstrap.servers": gate.bootstrap, **as_user("PLAIN"), "linger.ms": 0}
        )
        producer.produce(
            topic, b"x" * 5000, on_delivery=lambda error, _: errors.append(error and error.name())
        )
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
        eventually(lambda: "brokers will be discovered from client traffic" in caplog.text)
        eventually(lambda: gate.gate.unready() is None)  # it is there all the same
        time.sleep(2.0)  # several attempts
        assert not proxy.listening
        assert there_and_back(gate.bootstrap, as_user("PLAIN"), fresh(), [b"x"]) == [b"x"]
        assert set(proxy.listening) == {1}
    assert caplog.text.count("brokers will be discovered from client traffic") == 1
    assert warned(caplog) == []


def test_a_wrong_password_of_the_gates_own_is_logged_and_clients_are_served(
    guarded: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    with RunningSettings(
        guarded.sasl, admin=admin_settings("SCRAM-SHA-256", "pl4nted-wrong")
    ) as gate:
        eventually(lambda: "refuses these credentials: SASL_AUTHENTICATION_FAILED" in caplog.text)
        assert there_and_back(gate.bootstrap, as_user("SCRAM-SHA-256"), fresh(), [b"x"]) == [b"x"]
    assert "pl4nted" not in caplog.text


# ---- version 0 of SaslHandshake ------------------------------------------------------------------


def plain_token(user: str) -> bytes:
    token = f"\0{user}\0{USERS[user]}".encode()
    return struct.pack(">i", len(token)) + token


def scram(user: str, mechanism: str) -> ScramClient:
    return ScramClient(mechanism, user, USERS[user])


def shake_hands(sock: socket.socket, mechanism: str) -> SaslHandshakeResponse:
    request = SaslHandshakeRequest(mechanism, api_version=0)
    sock.sendall(b"".join(request.encode(2, "test")))
    return request.decode(memoryview(read_frame(sock)))


def framed(token: bytes) -> bytes:
    return struct.pack(">i", len(token)) + token


def test_tokens_of_handshake_0_pass_and_what_follows_is_judged(guarded: Guarded) -> None:
    # PLAIN has one token each way; the requests after it are the client's, as ann.
    with RunningProxy(guarded.sasl) as gate, socket.create_connection(gate.address, 10) as sock:
        assert shake_hands(sock, "PLAIN").error_code == 0
        sock.sendall(plain_token("ann"))
        assert read_frame(sock) == b""  # the token of a server that has nothing to answer
        (session,) = gate.proxy.connections
        assert session.identity.facts.principal == "User:ann"
        assert session.lifetime.state is SessionState.OPEN
        sock.sendall(produce_frame(3, (fresh(), 0, batch(b"x"))))
        assert set(codes(read_frame(sock)).values()) <= {0, 3}
        sock.sendall(produce_frame(4, ("t", 0, damaged(batch(b"x")))))
        assert codes(read_frame(sock)) == {("t", 0): 2}
        assert len(gate.refusals) == 1


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_has_two_tokens_after_handshake_0(guarded: Guarded, mechanism: str) -> None:
    exchange = scram("ann", mechanism)
    with RunningProxy(guarded.sasl) as gate, socket.create_connection(gate.address, 10) as sock:
        assert shake_hands(sock, mechanism).error_code == 0
        sock.sendall(framed(exchange.first()))
        sock.sendall(framed(exchange.final(bytes(read_frame(sock)))))
        exchange.verify(bytes(read_frame(sock)))
        (session,) = gate.proxy.connections
        assert session.identity.facts.principal == "User:ann"
        sock.sendall(produce_frame(4, ("t", 0, damaged(batch(b"x")))))
        assert codes(read_frame(sock)) == {("t", 0): 2}


@pytest.mark.parametrize("mechanism", ["GSSAPI", "OAUTHBEARER", ""])
def test_handshake_0_is_refused_where_nobody_knows_how_many_tokens_come(
    guarded: Guarded, mechanism: str
) -> None:
    with RunningProxy(guarded.sasl) as gate, socket.create_connection(gate.address, 10) as sock:
        response = shake_hands(sock, mechanism)
        assert response.error_code == 33  # UNSUPPORTED_SASL_MECHANISM
        assert response.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
        with pytest.raises(EOFError):
            read_frame(sock)
        assert gate.counters.connections_closed == {"sasl_mechanism": 1}


def test_a_wrong_password_is_refused_by_the_broker(guarded: Guarded) -> None:
    with RunningProxy(guarded.sasl) as gate, socket.create_connection(gate.address, 10) as sock:
        assert shake_hands(sock, "PLAIN").error_code == 0
        sock.sendall(framed(b"\0ann\0wrong"))
        with pytest.raises(EOFError):
            read_frame(sock)


OLD_CLIENT = """
    import sys
    from kafka import KafkaConsumer, KafkaProducer
    bootstrap, mechanism, password, topic = sys.argv[1:]
    who = {"bootstrap_servers": bootstrap, "security_protocol": "SASL_PLAINTEXT",
           "sasl_mechanism": mechanism,
           "sasl_plain_username": "ann", "sasl_plain_password": password}
    producer = KafkaProducer(acks="all", **who)
    for n in range(100):
        producer.send(topic, b"%d" % n).get(30)
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=10000, **who)
    read = []
    for record in consumer:
        read.append(record.value)
        if len(read) == 100:
            break
    print(read == [b"%d" % n for n in range(100)])
"""


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_kafka_python_2_works(guarded: Guarded, old_clients: Path, mechanism: str) -> None:
    # kafka-python 2.0.2 knows no other version of SaslHandshake than 0.
    topic = fresh("old")
    make_topic(guarded.plain, topic)
    with RunningProxy(guarded.sasl) as gate:
        arguments = (gate.bootstrap, mechanism, USERS["ann"], topic)
        assert run_script(old_clients, OLD_CLIENT, *arguments) == "True\n"
        assert gate.counters.produce_requests_total >= 100

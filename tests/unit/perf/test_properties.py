"""Settings as Kafka's tools take them."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchval.perf import properties
from batchval.perf.properties import PropertyError


def test_files_are_javas_properties() -> None:
    text = (
        "# a comment\n! another\n\nlinger.ms=5\nacks : all\r\nbatch.size 1000\n  client.id = a b \\\n   c\n"
        "path=C\\:\\\\x\\u0041\\t|\nempty=\nkey\\=with\\ signs=1\nalone\neven=x\\\\\nafter=1"
    )
    assert properties.parse(text) == {
        "linger.ms": "5",
        "acks": "all",
        "batch.size": "1000",
        "client.id": "a b c",
        "path": "C:\\xA\t|",
        "empty": "",
        "key=with signs": "1",
        "alone": "",
        "even": "x\\",
        "after": "1",
    }
    assert properties.parse("a=\\") == {"a": ""}
    with pytest.raises(PropertyError, match="hexadecimal"):
        properties.parse("a=\\u12")


def test_the_command_line_wins_over_files(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("acks=1\nlinger.ms=7\n", "utf-8")
    assert properties.gathered([file], ["acks=all", "sasl.jaas.config=a b=c;"]) == {
        "acks": "all",
        "linger.ms": "7",
        "sasl.jaas.config": "a b=c;",
    }
    for bad in ("acks", "=1", ""):
        with pytest.raises(PropertyError, match="NAME=VALUE"):
            properties.gathered([], [bad])
    file.write_bytes(b"\xff")
    with pytest.raises(PropertyError, match="UTF-8"):
        properties.gathered([file], [])
    with pytest.raises(OSError, match="No such file"):
        properties.gathered([tmp_path / "none"], [])


def test_what_the_own_producer_makes_of_them() -> None:
    configured = {
        "bootstrap.servers": "a:1, b:2",
        "acks": "all",
        "compression.type": "ZSTD",
        "compression.zstd.level": "7",
        "compression.lz4.level": "3",
        "enable.idempotence": "false",
        "send.buffer.bytes": "-1",
        "receive.buffer.bytes": "65536",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "key.serializer": "x",
        "what.is.this": "1",
        "sasl.mechanisn": "PLAIN",
    }
    options, security, unknown = properties.producer_options(configured)
    assert options == {
        "bootstrap_servers": ["a:1", "b:2"],
        "acks": -1,
        "compression_type": "zstd",
        "compression_level": 7,
        "enable_idempotence": False,
        "send_buffer_bytes": None,
        "receive_buffer_bytes": 65536,
    }
    assert security == {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    assert unknown == ["what.is.this", "sasl.mechanisn"]


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("acks", "2", "all, -1, 0 or 1"),
        ("linger.ms", "-1", "an integer, 0 to 2147483647"),
        ("batch.size", "many", "an integer, 0 to 2147483647"),
        ("batch.size", str(1 << 31), "an integer, 0 to 2147483647"),
        ("compression.type", "brotli", "none, gzip, snappy, lz4 or zstd"),
        ("enable.idempotence", "yes", "true or false"),
        ("max.in.flight.requests.per.connection", "0", "an integer, 1 to 2147483647"),
        ("bootstrap.servers", ",", "HOST:PORT, several with commas"),
    ],
)
def test_values_that_cannot_be(name: str, value: str, allowed: str) -> None:
    for read in (properties.producer_options, properties.rdkafka):
        with pytest.raises(PropertyError) as refused:
            read({name: value})
        assert str(refused.value) == f"invalid {name} {value!r}: expected {allowed}"


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("request.timeout.ms", "-3", "an integer, 1 to 2147483647"),
        ("receive.buffer.bytes", "-7", "an integer, -1 to 2147483647"),
        ("check.crcs", "yes", "true or false"),
        ("fetch.min.bytes", "x", "an integer"),
    ],
)
def test_values_that_cannot_be_a_consumers(name: str, value: str, allowed: str) -> None:
    with pytest.raises(PropertyError) as refused:
        properties.consumer_options({name: value})
    assert str(refused.value) == f"invalid {name} {value!r}: expected {allowed}"


def test_what_the_own_consumer_makes_of_them() -> None:
    configured = {
        "receive.buffer.bytes": "-1",
        "check.crcs": "TRUE",
        "sasl.mechanism": "PLAIN",
        "acks": "all",
    }
    options, security, unknown = properties.consumer_options(configured)
    assert options == {"receive_buffer_bytes": None, "check_crcs": True}
    assert (security, unknown) == ({"sasl.mechanism": "PLAIN"}, ["acks"])


def test_nobodys_secrets_are_shown() -> None:
    names = [
        "sasl.password", "ssl.key.password", "sasl.jaas.config", "ssl.keystore.key", "ssl.key.pem",
        "sasl.oauthbearer.client.secret", "sasl.oauthbearer.config",
        "sasl.oauthbearer.client.credentials.client.secret", "sasl.oauthbearer.assertion.private.key.passphrase",
    ]  # fmt: skip
    assert properties.shown(
        dict.fromkeys(names, "hush") | {"acks": "all", "sasl.username": "ann"}
    ) == {
        **dict.fromkeys(names, "…"),
        "acks": "all",
        "sasl.username": "ann",
    }


def test_librdkafkas_names() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="al\\"ice" password=secret;'
    configured = {
        "linger.ms": "5",
        "buffer.memory": "33554432",
        "max.request.size": "2000000",
        "max.block.ms": "5",
        "send.buffer.bytes": "-1",
        "compression.type": "gzip",
        "compression.gzip.level": "4",
        "sasl.jaas.config": jaas,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/ca.pem",
        "ssl.keystore.type": "pem",
        "ssl.keystore.location": "/me.pem",
        "ssl.endpoint.identification.algorithm": "",
        "queue.buffering.max.messages": "9",
    }
    assert properties.rdkafka(configured) == {
        "linger.ms": "5",
        "queue.buffering.max.kbytes": 32768,
        "message.max.bytes": "2000000",
        "socket.send.buffer.bytes": 0,
        "compression.type": "gzip",
        "compression.level": "4",
        "sasl.username": 'al"ice',
        "sasl.password": "secret",
        "ssl.ca.location": "/ca.pem",
        "ssl.certificate.location": "/me.pem",
        "ssl.key.location": "/me.pem",
        "ssl.endpoint.identification.algorithm": "none",
        "queue.buffering.max.messages": "9",
    }
    assert properties.rdkafka(
        {
            "ssl.truststore.certificates": "ca",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": "key",
            "ssl.keystore.certificate.chain": "chain",
            "ssl.key.password": "word",
        }
    ) == {
        "ssl.ca.pem": "ca",
        "ssl.key.pem": "key",
        "ssl.certificate.pem": "chain",
        "ssl.key.password": "word",
    }
    with pytest.raises(PropertyError, match="PEM"):
        properties.rdkafka({"ssl.truststore.location": "/ca.jks"})

"""perf produce and perf consume at a broker that asks who comes: by password, by certificate, by
files of Kafka's.
"""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from tests.support.topics import make_topic
from tests.system.auth.conftest import LOGIN, USERS, Certificates, Guarded
from tests.system.perf.conftest import CLIENTS, ONE_CLIENT
from tests.unit.perf.kafka_parser import parse_consumer
from tests.unit.perf.producer_parser import complaints, parse

pytestmark = pytest.mark.jvm


def perf(*options: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "batchval", "perf", *map(str, options)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def topic_of(guarded: Guarded) -> str:
    return make_topic(guarded.plain, f"perf-{uuid.uuid4().hex[:8]}", 2)


def by_password(mechanism: str, user: str, password: str) -> str:
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    return (
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f'sasl.jaas.config={LOGIN}.{module} required username="{user}" password="{password}";\n'
    )


def by_certificate(certificates: Certificates, name: str = "client") -> str:
    """Return the properties in the form of Kafka's own tools."""
    return (
        "security.protocol=SSL\nssl.truststore.type=PEM\nssl.keystore.type=PEM\n"
        f"ssl.truststore.location={certificates.ca}\nssl.keystore.location={certificates.path(f'{name}.store')}\n"
    )


def by_texts(certificates: Certificates) -> str:
    """Return the same with certificates and key in the file itself (KIP-651)."""

    def text(name: str) -> str:
        return certificates.path(name).read_text().strip().replace("\n", "\\n")

    return (
        "security.protocol=SSL\nssl.truststore.type=PEM\nssl.keystore.type=PEM\n"
        f"ssl.truststore.certificates={text('ca.pem')}\nssl.keystore.key={text('client.key')}\n"
        f"ssl.keystore.certificate.chain={text('client.pem')}\n"
    )


WAYS: dict[str, Callable[[Guarded], tuple[str, str]]] = {
    "plain": lambda guarded: (guarded.sasl, by_password("PLAIN", "ann", USERS["ann"])),
    "scram-256": lambda guarded: (guarded.sasl, by_password("SCRAM-SHA-256", "ann", USERS["ann"])),
    "scram-512": lambda guarded: (guarded.sasl, by_password("SCRAM-SHA-512", "ann", USERS["ann"])),
    "tls": lambda guarded: (guarded.tls, by_certificate(guarded.certificates)),
    "tls-texts": lambda guarded: (guarded.tls, by_texts(guarded.certificates)),
}


@pytest.mark.parametrize(
    ("way", "client"),
    [(way, "batchval") for way in WAYS]
    + [("scram-512", "librdkafka"), ("tls-texts", "librdkafka")]
    + [
        pytest.param(way, "librdkafka", marks=pytest.mark.slow)
        for way in ("plain", "scram-256", "tls")
    ],
)
def test_with_a_file_of_kafkas(guarded: Guarded, tmp_path: Path, way: str, client: str) -> None:
    bootstrap, text = WAYS[way](guarded)
    file, result = tmp_path / "client.properties", tmp_path / "r.json"
    file.write_text(text)
    topic = topic_of(guarded)
    some = [
        "--bootstrap-server",
        bootstrap,
        "--topic",
        topic,
        "--client",
        client,
        "--command-config",
        file,
    ]
    done = perf(
        "produce",
        *some,
        "--num-records",
        2000,
        "--record-size",
        100,
        "--threads",
        2,
        "--output",
        result,
    )
    assert (done.returncode, complaints(done.stderr)) == (0, [])
    assert parse(done.stdout)[-1].records == 2000
    kept = json.loads(result.read_text())["settings"]["properties"]
    assert kept["security.protocol"] in text
    assert "s3cret" not in result.read_text()
    assert "PRIVATE" not in result.read_text()
    done = perf("consume", *some, "--num-records", 2000, "--threads", 2)
    assert (done.returncode, done.stderr) == (0, "")
    assert parse_consumer(done.stdout)[0]["data.consumed.in.nMsg"] == 2000


@pytest.mark.parametrize("client", CLIENTS)
def test_with_properties_on_the_command_line(guarded: Guarded, client: str) -> None:
    topic = topic_of(guarded)
    some: list[object] = ["--bootstrap-server", guarded.sasl, "--topic", topic, "--client", client]
    for pair in by_password("SCRAM-SHA-512", "ann", USERS["ann"]).splitlines():
        some += ["--command-property", pair]
    done = perf("produce", *some, "--num-records", 10, "--record-size", 10)
    assert (done.returncode, complaints(done.stderr)) == (0, [])
    done = perf("consume", *some, "--num-records", 10, "--threads", 1)
    assert (done.returncode, done.stderr) == (0, "")


def refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """Check that there is one line about one of these words, without any password."""
    assert done.returncode == 3, (done.stdout, done.stderr)
    (line,) = done.stderr.splitlines()
    assert any(word in line.lower().replace("_", " ") for word in words), line
    assert "s3cret" not in line
    assert "wr0ng" not in line
    assert "records sent" not in done.stdout


@pytest.mark.parametrize("client", ONE_CLIENT)
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_wrong_password(guarded: Guarded, tmp_path: Path, mechanism: str, client: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(by_password(mechanism, "ann", "wr0ng"))
    some = ["--bootstrap-server", guarded.sasl, "--topic", topic_of(guarded), "--client", client]
    some += ["--num-records", 10, "--command-config", file]
    refused(perf("produce", *some, "--record-size", 10), "authentication", "invalid credentials")
    refused(perf("consume", *some, "--threads", 1), "authentication", "invalid credentials")


@pytest.mark.parametrize("client", CLIENTS)
def test_who_may_not(guarded: Guarded, tmp_path: Path, client: str) -> None:
    # The broker says it of a topic that the user may not even see.
    file = tmp_path / "client.properties"
    file.write_text(by_password("PLAIN", "bob", USERS["bob"]))
    some = ["--bootstrap-server", guarded.sasl, "--topic", topic_of(guarded), "--client", client]
    some += ["--num-records", 10, "--command-config", file]
    refused(perf("produce", *some, "--record-size", 10), "authorization failed")
    refused(perf("consume", *some, "--threads", 1), "authorization failed")


@pytest.mark.parametrize("client", CLIENTS)
def test_a_broker_that_is_not_believed(guarded: Guarded, tmp_path: Path, client: str) -> None:
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(other)
    file = tmp_path / "client.properties"
    file.write_text(
        by_certificate(guarded.certificates).replace(str(guarded.certificates.ca), str(other))
    )
    some = ["--bootstrap-server", guarded.tls, "--topic", "t", "--client", client]
    some += ["--num-records", 10, "--command-config", file]
    refused(perf("produce", *some, "--record-size", 10), "certificate")
    refused(perf("consume", *some, "--threads", 1), "certificate")


@pytest.mark.long
@pytest.mark.parametrize("client", ONE_CLIENT)
def test_plain_words_to_a_listener_of_tls(guarded: Guarded, client: str) -> None:
    some = [
        "--bootstrap-server",
        guarded.tls,
        "--topic",
        "t",
        "--client",
        client,
        "--num-records",
        10,
    ]
    refused(perf("produce", *some, "--record-size", 10), "no broker answers", guarded.tls)
    refused(perf("consume", *some, "--threads", 1), "no broker answers", guarded.tls)

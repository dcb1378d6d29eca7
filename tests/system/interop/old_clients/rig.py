"""A broker of 4.4 or 3.9 with topics that a client of today has written, and gates before it.

The broker has a second listener, where clients authenticate by PLAIN or SCRAM-SHA-256.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.support.ports import free_port, free_ports
from tests.support.processes import until
from tests.support.topics import await_groups, await_markers, make_topic
from tests.system.interop.kafka_broker import KAFKA_VERSION, KafkaBroker
from tests.system.interop.old_clients.records import Digest, digest_of, key_of, value_of

__all__ = [
    "GROUP_RECORDS",
    "GROUP_TOPIC",
    "PASSWORD",
    "TOPICS",
    "USER",
    "VERSIONS",
    "Rig",
    "numbered",
    "running",
]

USER, PASSWORD = "ann", "s3cret-of-ann"
LOGIN = "org.apache.kafka.common.security"
#: of the profile 3.9 in tests/system/interop/kafka/pom.xml
OLD_VERSION = "3.9.2"
VERSIONS = f"{OLD_VERSION} and {KAFKA_VERSION}"
ROOT = Path(__file__).resolve().parents[4]
LOGS = ROOT / "build" / "old-clients"
BATCH = 200
HEADERS = [("trace", b"4bf92f35"), ("empty", b""), ("null", None)]
#: records of each topic of today's client
TOPICS = {"headers": 1600, "zstd": 1000, "transactions": 1000}
GROUP_TOPIC, GROUP_RECORDS = "group", 2000


@dataclass
class Rig:
    """Addresses, and the topics with the digests of their records.

    ``routes``  route -> (bootstrap, bootstrap of the listener with SASL)
    """

    broker: KafkaBroker
    routes: dict[str, tuple[str, str]]
    topics: dict[str, Digest]


@contextlib.contextmanager
def running(
    profile: str = "broker", *, with_gate: bool = True, bridge: bool = True
) -> Iterator[Rig]:
    """Run a broker and, unless it is an old one, gates."""
    sasl = free_port()
    with contextlib.ExitStack() as stack:
        broker = KafkaBroker(profile=profile, heap="512m")
        broker.config.update(_listeners(broker, sasl))
        stack.enter_context(broker)
        _add_user(broker.bootstrap)
        direct = (broker.bootstrap, f"{broker.host}:{sasl}")
        if profile == "3.9":
            routes = {"3.9": direct}
        else:
            routes = {"direct": direct}
            if with_gate:
                plain, authenticated = (stack.enter_context(gate(one, bridge)) for one in direct)
                routes["gate"] = (plain, authenticated)
        yield Rig(broker, routes, _written(broker.bootstrap))


def _listeners(broker: KafkaBroker, sasl: int) -> dict[str, object]:
    advertised = f"PLAINTEXT://{broker.host}:{broker.port},SASL_PLAINTEXT://{broker.host}:{sasl}"
    kinds = "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
    plain = f'{LOGIN}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    return {
        "listeners": f"{advertised},CONTROLLER://{broker.host}:{broker.controller_port}",
        "advertised.listeners": advertised,
        "listener.security.protocol.map": kinds,
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": plain,
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": f"{LOGIN}.scram.ScramLoginModule required;",
    }


def _add_user(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    upsertion = UserScramCredentialUpsertion(USER, credential, PASSWORD.encode())
    for future in admin.alter_user_scram_credentials([upsertion]).values():
        future.result(30)


@contextlib.contextmanager
def gate(upstream: str, bridge: bool = True) -> Iterator[str]:
    """Run ``batchval proxy`` before a broker, with the bridge or without; its address."""
    port = free_ports(3)
    settings: dict[str, Any] = {
        "mode": "enforce",
        "listeners": [
            {"address": f"127.0.0.1:{port}", "first_broker_port": port + 1, "broker_ports": 2}
        ],
        "upstream": {"bootstrap": upstream},
        "metrics": {"address": None},
    }
    if bridge:
        settings["bridge"] = ["producers", "consumers"]
    LOGS.mkdir(parents=True, exist_ok=True)
    file, log = LOGS / f"gate-{port}.json", LOGS / f"gate-{port}.log"
    # JSON is YAML
    file.write_text(json.dumps(settings))
    command = [sys.executable, "-m", "batchval", "proxy", "--config", str(file)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=ROOT
        )
    try:
        until("the gate listens", lambda: process.poll() is not None or _listens(port), 30)
        if process.poll() is not None:
            raise RuntimeError(f"the gate did not start: {log.read_text()}")
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    return False


def _written(bootstrap: str) -> dict[str, Digest]:
    """Write the topics of today's client; return what they hold."""
    for topic in [*TOPICS, GROUP_TOPIC]:
        make_topic(bootstrap, topic)
    await_groups(bootstrap, GROUP_TOPIC)
    for part, codec in enumerate(("none", "gzip", "snappy", "lz4")):
        quarter = TOPICS["headers"] // 4
        _send(
            bootstrap,
            "headers",
            range(part * quarter, (part + 1) * quarter),
            codec,
            headers=HEADERS,
        )
    _send(bootstrap, "zstd", range(TOPICS["zstd"]), "zstd")
    _send(bootstrap, GROUP_TOPIC, range(GROUP_RECORDS), "gzip")
    _send_transactions(bootstrap)
    await_markers(bootstrap, "transactions")
    counts = TOPICS | {GROUP_TOPIC: GROUP_RECORDS}
    return {topic: numbered(range(count)) for topic, count in counts.items()}


def numbered(numbers: range) -> Digest:
    """Return the digest of the records of these numbers."""
    return digest_of((key_of(number), value_of(number)) for number in numbers)


def _producer(bootstrap: str, codec: str, **more: Any) -> Producer:
    settings = {
        "bootstrap.servers": bootstrap,
        "compression.type": codec,
        "batch.num.messages": BATCH,
        "linger.ms": 20,
    }
    return Producer({**settings, "log_level": 0, **more})


def _put(producer: Producer, topic: str, numbers: range, headers: Any = None) -> None:
    failed: list[Any] = []
    for number in numbers:
        producer.produce(
            topic,
            value_of(number),
            key_of(number),
            0,
            headers=headers,
            on_delivery=lambda error, _: error and failed.append(error),
        )
    if producer.flush(60) or failed:
        raise RuntimeError(f"{topic} could not be written: {failed[:1]}")


def _send(bootstrap: str, topic: str, numbers: range, codec: str, headers: Any = None) -> None:
    _put(_producer(bootstrap, codec), topic, numbers, headers)


def _send_transactions(bootstrap: str) -> None:
    """Write fifths: plain, committed, aborted, committed, plain; each transaction has a marker."""
    fifth = TOPICS["transactions"] // 5
    parts = [range(start, start + fifth) for start in range(0, 5 * fifth, fifth)]
    _send(bootstrap, "transactions", parts[0], "lz4")
    producer = _producer(bootstrap, "snappy", **{"transactional.id": "old-clients"})
    producer.init_transactions(60)
    for numbers, commits in zip(parts[1:4], (True, False, True), strict=True):
        producer.begin_transaction()
        _put(producer, "transactions", numbers)
        (producer.commit_transaction if commits else producer.abort_transaction)(60)
    _send(bootstrap, "transactions", parts[4], "none")

"""Batches that no client makes: the broker's own answer, and the gate's in its place, field by
field.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import kafka.admin
import pytest

from batchval.core.format.crc32c import crc32c
from batchval.protocol.messages.produce import ProduceResponse
from tests.support.proxy import RunningProxy, batch, damaged, eventually, produce_frame, read_frame
from tests.system.chain.conftest import HOUR, POLICIES
from tests.system.interop.kafka_broker import KafkaBroker

pytestmark = pytest.mark.jvm

TOPICS = {
    "raw-plain": {},
    "raw-small": {"max.message.bytes": "1000"},
    "raw-compact": {"cleanup.policy": "compact"},
    "raw-fresh": {
        "message.timestamp.before.max.ms": str(HOUR),
        "message.timestamp.after.max.ms": str(HOUR),
    },
}
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4


def sealed(batch_: bytes, *changes: tuple[int, bytes]) -> bytes:
    """Return the batch with changed bytes and a new checksum."""
    data = bytearray(batch_)
    for at, new in changes:
        data[at : at + len(new)] = new
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return bytes(data)


GOOD = batch(b"one" * 40, b"two" * 40)
COMPRESSED = {
    codec: batch(b"one" * 40, b"two" * 40, codec=codec) for codec in (GZIP, SNAPPY, LZ4, ZSTD)
}
OLD_MS = int(time.time() * 1000) - 50 * HOUR

CASES: dict[str, tuple[str, bytes]] = {
    "good": ("raw-plain", GOOD),
    "crc": ("raw-plain", damaged(GOOD)),
    "crc of a compressed one": ("raw-plain", damaged(COMPRESSED[ZSTD])),
    "too large": ("raw-small", batch(b"x" * 2000)),
    "too large as it comes": (
        "raw-small",
        batch(bytes(range(256)) * 8, bytes(range(255, -1, -1)) * 20),
    ),
    "no key": ("raw-compact", batch(b"a", key=None)),
    "no key, compressed": ("raw-compact", batch(b"a" * 99, b"b" * 99, codec=GZIP, key=None)),
    "old": ("raw-fresh", batch(b"a", b"b", timestamp=OLD_MS)),
    "from tomorrow": ("raw-fresh", batch(b"a", timestamp=int(time.time() * 1000) + 50 * HOUR)),
    "count too high": ("raw-plain", sealed(GOOD, (57, struct.pack(">i", 3)))),
    "count too low": ("raw-plain", sealed(GOOD, (57, struct.pack(">i", 1)))),
    "count negative": ("raw-plain", sealed(GOOD, (57, struct.pack(">i", -1)))),
    "last offset delta": ("raw-plain", sealed(GOOD, (23, struct.pack(">i", 7)))),
    "base offset": ("raw-plain", sealed(GOOD, (0, struct.pack(">q", 5)))),
    "control batch": ("raw-plain", sealed(GOOD, (22, b"\x20"))),
    "transactional without a producer": ("raw-plain", sealed(GOOD, (22, b"\x10"))),
    "codec 7": ("raw-plain", sealed(GOOD, (22, b"\x07"))),
    "magic 3": ("raw-plain", sealed(GOOD, (16, b"\x03"))),
    "magic 127": ("raw-plain", sealed(GOOD, (16, b"\x7f"))),
    "magic 1": ("raw-plain", sealed(GOOD, (16, b"\x01"))),
    "two batches": ("raw-plain", GOOD + GOOD),
    "nothing": ("raw-plain", b""),
    "a piece": ("raw-plain", GOOD[:40]),
    "trailing bytes": ("raw-plain", GOOD + b"xyz"),
    "length too low": ("raw-plain", sealed(GOOD, (8, struct.pack(">i", 10)))),
    "length negative": ("raw-plain", sealed(GOOD, (8, struct.pack(">i", -1)))),
    **{
        f"codec {codec}, no such payload": ("raw-plain", sealed(data, (70, b"????")))
        for codec, data in COMPRESSED.items()
    },
}
BROKERS_OWN = {"transactional without a producer"}
STUMBLED = -1
STRICT = {"codec 7": 76, **{f"codec {codec}, no such payload": 87 for codec in COMPRESSED}}
VERSIONS = (3, 7, 8, 9, 10, 12)


@pytest.fixture(scope="module")
def own(broker: KafkaBroker) -> tuple[str, int]:
    """Return the address of the broker itself, after its topics were made."""
    admin = kafka.admin.KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.create_topics(
        [kafka.admin.NewTopic(name, 1, 1, topic_configs=config) for name, config in TOPICS.items()]
    )
    eventually(lambda: set(TOPICS) <= set(admin.list_topics()))
    admin.close()
    address = (broker.host, broker.port)
    eventually(lambda: all(answered(address, topic, GOOD, 9)[0] == 0 for topic in TOPICS))
    return address


@pytest.fixture(scope="module")
def gate(broker: KafkaBroker) -> Iterator[RunningProxy]:
    with RunningProxy(broker.bootstrap, policies=POLICIES) as running:
        yield running


@pytest.fixture(scope="module")
def gate_of_kafka(broker: KafkaBroker) -> Iterator[RunningProxy]:
    """Run a gate that must answer as Kafka does, even where Kafka names no reason."""
    with RunningProxy(
        broker.bootstrap, policies=POLICIES, validation={"rules": "kafka"}
    ) as running:
        yield running


def answered(address: tuple[str, int], topic: str, records: bytes, version: int) -> tuple[Any, ...]:
    """Return error code, named records, base offset (of a refusal) and append time of the one
    partition.

    Not the message: the gate gives one where a broker's is null.
    """
    with socket.create_connection(address, 20) as sock:
        sock.sendall(produce_frame(1, (topic, 0, records), version=version, acks=-1))
        answer = ProduceResponse.decode(read_frame(sock), version)
    part = answer.responses[0].partition_responses[0]
    where = part.base_offset if part.error_code else 0
    errors = [error.batch_index for error in part.record_errors]
    return part.error_code, errors, where, part.log_append_time_ms


def answers(address: tuple[str, int], name: str) -> dict[int, tuple[Any, ...]]:
    topic, records = CASES[name]
    return {version: answered(address, topic, records, version) for version in VERSIONS}


@pytest.mark.parametrize("name", CASES)
def test_the_answer_is_the_brokers(
    own: tuple[str, int], gate_of_kafka: RunningProxy, name: str
) -> None:
    gate_of_kafka.refusals.clear()
    direct, gated = answers(own, name), answers(gate_of_kafka.address, name)
    assert gated == direct
    enforced = sum(refusal.enforced for refusal in gate_of_kafka.refusals)
    # what a broker asks of a producer's state is its own matter: passed on, and answered by it
    refused = 0 if name in BROKERS_OWN else sum(answer[0] != 0 for answer in gated.values())
    assert enforced == refused


@pytest.mark.parametrize("name", CASES)
def test_the_answer_of_a_strict_gate_says_what_was_wrong(
    own: tuple[str, int], gate: RunningProxy, name: str
) -> None:
    # Where a broker stumbles (UNKNOWN_SERVER_ERROR, -1), it names the error; else the answer is the
    # broker's.
    direct, gated = answers(own, name), answers(gate.address, name)
    for version in VERSIONS:
        if direct[version][0] == STUMBLED:
            assert gated[version] == (STRICT[name], *direct[version][1:])
        else:
            assert gated[version] == direct[version]


#: the records of one partition next to a good one, and the codes of both: of the bad one, of the
#: good one
REQUESTS = {
    "crc": (damaged(GOOD), 2, 0),
    "magic 3": (sealed(GOOD, (16, b"\x03")), 2, 2),
    "length too low": (sealed(GOOD, (8, struct.pack(">i", 10))), 2, 2),
    "length that overflows": (sealed(GOOD, (8, struct.pack(">i", 2**31 - 12))), -1, -1),
    "length too low after a good batch": (GOOD + sealed(GOOD, (8, struct.pack(">i", 10))), 2, 0),
    "length that overflows after a good batch": (
        GOOD + sealed(GOOD, (8, struct.pack(">i", 2**31 - 12))),
        -1,
        -1,
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("bad_first", [True, False])
def test_a_request_of_two_partitions(
    own: tuple[str, int], gate_of_kafka: RunningProxy, name: str, bad_first: bool
) -> None:
    # What cannot be iterated fails the whole request, in the broker as in the gate.
    bad, *expected = REQUESTS[name]
    parts = [
        ("raw-plain", 0, bad),
        ("raw-fresh", 0, batch(b"a", timestamp=int(time.time() * 1000))),
    ]
    for address in (own, gate_of_kafka.address):
        with socket.create_connection(address, 20) as sock:
            sock.sendall(
                produce_frame(1, *(parts if bad_first else parts[::-1]), version=9, acks=-1)
            )
            answer = ProduceResponse.decode(read_frame(sock), 9)
        codes = {topic.name: topic.partition_responses[0].error_code for topic in answer.responses}
        assert [codes["raw-plain"], codes["raw-fresh"]] == expected


@pytest.mark.parametrize("version", [3, 6, 7, 9])
def test_zstd_before_version_7_is_not_supported(
    own: tuple[str, int], gate: RunningProxy, version: int
) -> None:
    codes = {
        answered(address, "raw-plain", COMPRESSED[ZSTD], version)[0]
        for address in (own, gate.address)
    }
    assert codes == ({76} if version < 7 else {0})

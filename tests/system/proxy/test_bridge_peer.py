"""The same old requests, to Kafka 3.9 directly and to Kafka 4.4 through the gate: equal answers.

Where they differ, DIFFERENT says what the gate's answer is and why.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from batchval.protocol.apis import ApiKey
from batchval.protocol.primitives import Reader
from tests.support.fixtures import running_kafka
from tests.support.old_fetches import request
from tests.support.proxy import RunningProxy, read_frame
from tests.support.topics import await_groups, make_topic
from tests.system.interop.kafka_broker import KafkaBroker
from tests.unit.protocol.definitions import definition, read

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

TOPIC, ZSTD_TOPIC = "topic", "compressed"
START = 1_700_000_000_000
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
TOKENS = frozenset(range(ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN + 1))
Case = tuple[str, int, int, bytes]

ZOOKEEPER = "Kafka 3.9 answers UNSUPPORTED_VERSION without ZooKeeper: the gate uses the coordinator"
SEGMENTS = "the gate is more exact than the start of a segment"
DIFFERENT = {
    "list offsets: a time before the log": SEGMENTS,
    "list offsets: a time in the log": SEGMENTS,
    "commit 0": ZOOKEEPER,
    "fetch offset 0: committed": ZOOKEEPER,
    "fetch offset 1: committed": ZOOKEEPER,
    "fetch offset 0: none": ZOOKEEPER,
    "create topics 1: replication": "the sentence of Kafka 4.4 is another",
    "describe configs: topic": "Kafka 3.9 calls nothing a default in version 0",
    "describe configs: changed": "Kafka 3.9 calls nothing a default in version 0",
    "describe configs: broker": "Kafka 3.9 calls nothing a default in version 0",
    "fetch 0: less than a record": "Kafka 3.9 answers nothing, the gate a partial message",
    "fetch 1: less than a record": "Kafka 3.9 answers nothing, the gate a partial message",
    "fetch 2: less than a record": "Kafka 3.9 answers nothing, the gate a partial message",
    **{f"fetch {n}: zstd": "Kafka 3.9 answers UNSUPPORTED_COMPRESSION_TYPE" for n in range(4)},
}


def text(value: str | None) -> bytes:
    return (
        struct.pack(">h", -1) if value is None else struct.pack(">h", len(value)) + value.encode()
    )


def array(*parts: bytes) -> bytes:
    return struct.pack(">i", len(parts)) + b"".join(parts)


def numbers(form: str, *values: int) -> bytes:
    return struct.pack(f">{form}", *values)


def list_offsets() -> Iterator[Case]:
    for name, topic, partition, timestamp, most in (
        ("the end", TOPIC, 0, -1, 1),
        ("the end and the start", TOPIC, 0, -1, 2),
        ("the start", TOPIC, 0, -2, 1),
        ("a time before the log", TOPIC, 0, 1000, 1),
        ("a time in the log", TOPIC, 0, START + 5, 1),
        ("a time after the log", TOPIC, 0, 4_102_444_800_000, 1),
        ("an unknown topic", "unknown", 0, -1, 1),
        ("an unknown partition", TOPIC, 9, -1, 1),
        ("none", TOPIC, 0, -1, 0),
    ):
        part = array(text(topic) + array(numbers("iqi", partition, timestamp, most)))
        yield f"list offsets: {name}", ApiKey.LIST_OFFSETS, 0, numbers("i", -1) + part


def groups() -> Iterator[Case]:
    zero = array(text(TOPIC) + array(numbers("iq", 0, 5) + text("metadata")))
    yield "commit 0", ApiKey.OFFSET_COMMIT, 0, text("group-0") + zero
    place = array(text(TOPIC) + array(numbers("i", 0)))
    for version in (0, 1):
        yield (
            f"fetch offset {version}: committed",
            ApiKey.OFFSET_FETCH,
            version,
            text("group-0") + place,
        )
        yield f"fetch offset {version}: none", ApiKey.OFFSET_FETCH, version, text("nobody") + place
    unknown = array(text("unknown") + array(numbers("i", 0)))
    yield "fetch offset 1: an unknown topic", ApiKey.OFFSET_FETCH, 1, text("nobody") + unknown
    for name, topic, generation, member in (
        ("without a member", TOPIC, -1, ""),
        ("of an unknown member", TOPIC, 3, "member"),
        ("for an unknown topic", "unknown", -1, ""),
    ):
        body = text("group-1") + numbers("i", generation) + text(member)
        body += array(text(topic) + array(numbers("iqq", 0, 6, -1) + text("m")))
        yield f"commit 1: {name}", ApiKey.OFFSET_COMMIT, 1, body
    yield "fetch offset 1: of commit 1", ApiKey.OFFSET_FETCH, 1, text("group-1") + place
    both = array(text(TOPIC) + array(numbers("ii", 0, 0), numbers("ii", 0, 5)))
    for version in (0, 1):
        yield f"leader epoch {version}", ApiKey.OFFSET_FOR_LEADER_EPOCH, version, both


def topics() -> Iterator[Case]:
    timeout = numbers("i", 10_000)
    for version, tail in ((0, b""), (1, b"\0"), (1, b"\1")):
        what = f"create topics {version}{': validate' if tail == bytes([1]) else ''}"
        new = text(f"new-{version}-{len(tail) and tail[0]}") + numbers("ih", 2, 1)
        good = new + array() + array(text("retention.ms") + text("100000"))
        yield what, ApiKey.CREATE_TOPICS, version, array(good) + timeout + tail
        old = text(TOPIC) + numbers("ih", 2, 1) + array() + array()
        yield f"{what}: existing", ApiKey.CREATE_TOPICS, version, array(old) + timeout + tail
        bad = text("bad") + numbers("ih", 2, 1) + array() + array(text("retention.ms") + text("x"))
        yield f"{what}: configuration", ApiKey.CREATE_TOPICS, version, array(bad) + timeout + tail
        placed = text(f"placed-{version}-{len(tail) and tail[0]}") + numbers("ih", -1, -1)
        placed += array(numbers("i", 0) + array(numbers("i", 1))) + array()
        yield f"{what}: assigned", ApiKey.CREATE_TOPICS, version, array(placed) + timeout + tail
    many = text("many") + numbers("ih", 2, 5) + array() + array()
    yield "create topics 0: replication", ApiKey.CREATE_TOPICS, 0, array(many) + timeout
    yield "create topics 1: replication", ApiKey.CREATE_TOPICS, 1, array(many) + timeout + b"\0"
    yield "delete topics", ApiKey.DELETE_TOPICS, 0, array(text("new-0-0")) + timeout
    yield "delete topics: unknown", ApiKey.DELETE_TOPICS, 0, array(text("unknown")) + timeout
    names = array(text("retention.ms"), text("cleanup.policy"))
    for name, topic in (("topic", TOPIC), ("changed", "new-1-0"), ("unknown", "unknown")):
        yield (
            f"describe configs: {name}",
            ApiKey.DESCRIBE_CONFIGS,
            0,
            array(b"\2" + text(topic) + names),
        )
    names = array(text("log.retention.ms"), text("num.io.threads"), text("node.id"))
    yield "describe configs: broker", ApiKey.DESCRIBE_CONFIGS, 0, array(b"\4" + text("1") + names)


def administration() -> Iterator[Case]:
    acl = text("User:a") + text("*") + b"\3\3"
    both = array(b"\2" + text(TOPIC) + acl, b"\2" + text("x") + text("a") + text("*") + b"\3\3")
    yield "create acls", ApiKey.CREATE_ACLS, 0, both
    yield (
        "describe log dirs",
        ApiKey.DESCRIBE_LOG_DIRS,
        0,
        array(text(TOPIC) + array(numbers("i", 0))),
    )
    moved = text("/nowhere") + array(text(TOPIC) + array(numbers("i", 0)))
    yield "alter replica log dirs", ApiKey.ALTER_REPLICA_LOG_DIRS, 0, array(moved)
    yield (
        "create token",
        ApiKey.CREATE_DELEGATION_TOKEN,
        0,
        array(text("User") + text("a")) + numbers("q", 1000),
    )
    for key in (ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN):
        yield key.name, key, 0, numbers("i", 1) + b"x" + numbers("q", 5)
    yield "describe tokens", ApiKey.DESCRIBE_DELEGATION_TOKEN, 0, numbers("i", -1)
    # a broker learns of them a moment after its controller
    everything = b"\1" + text(None) + text(None) + text(None) + b"\1\1"
    yield "describe acls", ApiKey.DESCRIBE_ACLS, 0, everything
    one = b"\2" + text(TOPIC) + text(None) + text(None) + b"\1\1"
    yield "delete acls", ApiKey.DELETE_ACLS, 0, array(one)


def fetches() -> Iterator[Case]:
    for version in range(4):
        head = numbers("iii", -1, 10, 1) + (numbers("i", 1 << 20) if version >= 3 else b"")
        for name, topic, parts in (
            ("an unknown topic", "unknown", [(0, 0, 100)]),
            ("an unknown partition", TOPIC, [(9, 0, 100)]),
            ("out of range", TOPIC, [(0, 1000, 100)]),
            ("below zero", TOPIC, [(0, -1, 100)]),
            ("the end", TOPIC, [(0, 20, 100)]),
            ("two partitions", TOPIC, [(0, 3, 10_000), (1, 0, 10_000)]),
            ("less than a record", TOPIC, [(0, 3, 60)]),
            ("no bytes", TOPIC, [(0, 3, 0)]),
            ("zstd", ZSTD_TOPIC, [(0, 0, 10_000)]),
        ):
            body = head + array(text(topic) + array(*(numbers("iqi", *part) for part in parts)))
            yield f"fetch {version}: {name}", ApiKey.FETCH, version, body


def cases() -> Iterator[Case]:
    """Yield name, API, version and body of each request."""
    for some in (list_offsets, groups, topics, administration, fetches):
        yield from some()


def fill(broker: KafkaBroker) -> None:
    make_topic(broker.bootstrap, TOPIC, 2)
    make_topic(broker.bootstrap, ZSTD_TOPIC, **{"compression.type": "zstd"})
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 50, "log_level": 0})
    for i in range(20):
        producer.produce(TOPIC, b"value %d" % i, partition=0, timestamp=START + i)
    producer.produce(ZSTD_TOPIC, b"z" * 200, timestamp=START)
    assert producer.flush(60) == 0
    await_groups(broker.bootstrap, TOPIC)


def answers(address: tuple[str, int], data: str) -> dict[str, Any]:
    """Return the fields of each answer, without what brokers choose: folders, some orders."""
    found = {}
    for name, key, version, body in cases():
        with socket.create_connection(address, 20) as sock:
            sock.sendall(request(key, version, 7, body))
            frame = read_frame(sock)
        if key in TOKENS:  # kafka-python has no definitions of them
            found[name] = frame.hex()
            continue
        r = Reader(frame[4:])
        fields = read(definition(key, "Response"), version, r)
        r.finish()
        fields.get("Resources", []).sort(key=lambda one: one["ResourceName"])
        for result in fields.get("Results", []):
            if "Configs" in result:
                result["Configs"].sort(key=lambda one: one["Name"])
        found[name] = json.loads(
            json.dumps(fields, default=lambda part: bytes(part).hex()).replace(data, "DATA")
        )
    return found


def test_answers_are_those_of_kafka_3_9() -> None:
    with running_kafka(profile="3.9", config=AUTHORIZER) as broker:
        fill(broker)
        direct = answers((broker.host, broker.port), str(broker.data))
    with running_kafka(config=AUTHORIZER) as broker:
        fill(broker)
        with RunningProxy(broker.bootstrap, bridge=("consumers",)) as gate:
            raised = answers(gate.address, str(broker.data))
    assert len(direct) == len(raised) > 80
    assert {name for name in direct if direct[name] != raised[name]} == set(DIFFERENT)

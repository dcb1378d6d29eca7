"""Produce 0 to 2 through the gate to Kafka 4.4, against what Kafka 3.9 answers and stores."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition

from batchval import TopicPolicy
from batchval.proxy.settings.options import TopicPolicies
from tests.support import batches
from tests.support.batches import GZIP, ZSTD, message, wrapper
from tests.support.fixtures import running_kafka
from tests.support.old_produce import Answered, message_sets, old_answer, old_produce
from tests.support.proxy import RunningProxy, read_frame
from tests.support.topics import make_topic
from tests.system.interop.kafka_broker import KafkaBroker

pytestmark = pytest.mark.long

NOW = int(time.time() * 1000)
HOUR = 3_600_000
TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "small": {"max.message.bytes": "1000"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "recent": {"message.timestamp.before.max.ms": str(HOUR)},
    "zstd": {"compression.type": "zstd"},
    "gzip": {"compression.type": "gzip"},
    "odd": {},
}
GOOD = message(1, timestamp=NOW, key=b"k")
BAD = message(1, timestamp=NOW, crc=1)
BATCH = batches.batch(batches.records(2), base_timestamp=NOW)

Partition = tuple[str, int, bytes]


class Case(NamedTuple):
    """Requests of every version with these partitions.

    ``code``  the gate's, where Kafka 3.9 answers another
    """

    name: str
    partitions: list[Partition]
    acks: int = 1
    code: int | None = None


def one(name: str, topic: str, records: bytes, **fields: Any) -> Case:
    return Case(name, [(topic, 0, records)], **fields)


CASES = [
    *(one(name, "plain", records) for name, records in message_sets(NOW)),
    one("empty", "plain", b""),
    one("incomplete", "plain", GOOD[:20]),
    one("incomplete at the end", "plain", GOOD + GOOD[:20]),
    one("wrong crc", "plain", BAD),
    one("nonsense at the end", "plain", GOOD + b"x" * 30),
    one("too large", "small", message(1, timestamp=NOW, value=b"x" * 2000)),
    one(
        "too large together",
        "small",
        b"".join(message(1, timestamp=NOW, value=b"x" * 400) for _ in range(4)),
    ),
    one("too old", "recent", message(1, timestamp=NOW - 2 * HOUR)),
    one("old where the broker stamps", "stamped", message(1, timestamp=NOW - 2 * HOUR)),
    one("magic 0 where the broker stamps", "stamped", message(0)),
    one("no key", "compacted", message(1, timestamp=NOW)),
    one(
        "no key, compressed", "compacted", wrapper([message(1, timestamp=NOW)], GZIP, timestamp=NOW)
    ),
    one("unknown topic", "unknown", GOOD),
    Case("unknown partition", [("plain", 77, GOOD)]),
    one("topic with zstd", "zstd", GOOD),
    one("topic with gzip", "gzip", GOOD * 3),
    one("batch of magic 2", "plain", BATCH),
    one("two batches of magic 2", "plain", BATCH + BATCH),
    one("both formats", "plain", GOOD + BATCH),
    one("magic 0 and 1", "plain", message(0) + GOOD),
    one("two wrappers", "plain", 2 * wrapper([GOOD], GZIP, timestamp=NOW)),
    one(
        "wrapper in a wrapper",
        "plain",
        wrapper([wrapper([GOOD], GZIP, timestamp=NOW)], GZIP, timestamp=NOW),
    ),
    one("wrong crc inside", "plain", wrapper([BAD], GZIP, timestamp=NOW)),
    one("wrapper of zstd", "plain", wrapper([GOOD], ZSTD, timestamp=NOW)),
    one("wrapper without messages", "plain", wrapper([], GZIP, timestamp=NOW, offset=0)),
    one("magic 3", "plain", GOOD[:16] + b"\3" + GOOD[17:]),
    one("time type by the producer", "plain", message(1, timestamp=NOW, attributes=8)),
    Case("no topics", []),
    Case(
        "several",
        [("plain", 0, GOOD), ("plain", 1, BAD), ("unknown", 0, GOOD), ("compacted", 0, GOOD)],
    ),
    Case("several, one empty", [("plain", 0, GOOD), ("plain", 1, b"")]),
    one("acks -1", "plain", GOOD, acks=-1),
    one("acks 2", "plain", GOOD, acks=2),
    one("acks 2, wrong crc", "plain", BAD, acks=2),
    one("acks -2", "plain", GOOD, acks=-2),
    # Kafka 3.9 answers UNKNOWN_SERVER_ERROR
    one("negative time", "odd", message(1, timestamp=-5), code=32),
    one("unknown codec", "odd", message(1, timestamp=NOW, attributes=5), code=76),
    one(
        "broken gzip", "odd", message(1, timestamp=NOW, value=b"nonsense", attributes=GZIP), code=87
    ),
]


class Asked(NamedTuple):
    """The address of requests, and the prefix of all topics of a run."""

    address: tuple[str, int]
    prefix: str


def outcome(asked: Asked, version: int, case: Case) -> dict[tuple[str, int], Answered]:
    partitions = [
        (asked.prefix + topic, index, records) for topic, index, records in case.partitions
    ]
    with socket.create_connection(asked.address, 20) as sock:
        sock.sendall(old_produce(version, 9, *partitions, acks=case.acks))
        found = old_answer(read_frame(sock), version)
    assert found.correlation_id == 9
    assert found.throttle_time_ms == (0 if version else -2)
    return {
        (topic.removeprefix(asked.prefix), index): part
        for (topic, index), part in found.partitions.items()
    }


def is_open_after(asked: Asked, records: bytes) -> bool:
    """Return whether a connection survives a request with acks=0."""
    topic = f"{asked.prefix}plain"
    with socket.create_connection(asked.address, 20) as sock:
        sock.sendall(old_produce(0, 1, (topic, 0, records), acks=0))
        sock.sendall(old_produce(0, 2, (topic, 1, GOOD)))
        with contextlib.suppress(EOFError):
            return old_answer(read_frame(sock), 0).correlation_id == 2
        return False


class Seen(NamedTuple):
    """The answers to each case in each version, and the topics' records after them."""

    answers: dict[tuple[str, int], dict[tuple[str, int], Answered]]
    open_after: list[bool]
    records: dict[str, list[tuple[int, int | None, bytes | None, bytes | None]]]


def stored(
    bootstrap: str, topic: str, end: int
) -> list[tuple[int, int | None, bytes | None, bytes | None]]:
    """Return (offset, timestamp, key, value) of partition 0; no time where the broker stamps."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "check.crcs": True, "log_level": 0}
    )
    found = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        until = time.monotonic() + 60
        while len(found) < end:
            assert time.monotonic() < until, f"{len(found)} of {end} records of {topic} came"
            for record in consumer.consume(1000, 0.2):
                assert record.error() is None, record.error()
                stamp = None if topic.endswith("stamped") else record.timestamp()[1]
                found.append((record.offset(), stamp, record.key(), record.value()))
    finally:
        consumer.close()
    return found


def look(broker: KafkaBroker, asked: Asked) -> Seen:
    for topic, config in TOPICS.items():
        make_topic(broker.bootstrap, asked.prefix + topic, 2, **config)
    answers = {
        (case.name, version): outcome(asked, version, case)
        for case in CASES
        for version in (0, 1, 2)
    }
    open_after = [is_open_after(asked, records) for records in (GOOD, b"", BAD)]
    ends = {
        topic: outcome(asked, 0, one("end", topic, GOOD))[topic, 0].base_offset for topic in TOPICS
    }
    records = {
        topic: stored(broker.bootstrap, asked.prefix + topic, end + 1)
        for topic, end in ends.items()
    }
    return Seen(answers, open_after, records)


@pytest.fixture(scope="module")
def of_3_9() -> Seen:
    with running_kafka(profile="3.9", config={"auto.create.topics.enable": "false"}) as broker:
        return look(broker, Asked((broker.host, broker.port), ""))


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with running_kafka(config={"auto.create.topics.enable": "false"}) as running:
        yield running


@pytest.mark.parametrize("knows_topics", [False, True])
def test_answers_and_records_are_those_of_kafka_3_9(
    of_3_9: Seen, broker: KafkaBroker, knows_topics: bool
) -> None:
    # Either the broker refuses, or the gate, where it knows how topics are configured.
    policies, prefix = TopicPolicies(), "known-" if knows_topics else "other-"
    if knows_topics:
        globs = {
            prefix + topic: TopicPolicy.from_kafka_config(config)
            for topic, config in TOPICS.items()
        }
        policies = TopicPolicies(globs=globs)
    with RunningProxy(broker.bootstrap, bridge=("producers",), policies=policies) as proxy:
        ours = look(broker, Asked(proxy.address, prefix))
    codes = {case.name: case.code for case in CASES if case.code is not None}
    for (name, version), theirs in of_3_9.answers.items():
        found = ours.answers[name, version]
        assert found.keys() == theirs.keys(), name
        for key, part in theirs.items():
            expected = part if name not in codes else part._replace(error_code=codes[name])
            if part.log_append_time_ms > 0:
                expected = expected._replace(log_append_time_ms=found[key].log_append_time_ms)
                assert abs(found[key].log_append_time_ms - NOW) < HOUR
            assert found[key] == expected, (name, version, key)
    assert ours.open_after == of_3_9.open_after == [True, True, False]
    assert ours.records == of_3_9.records
    assert len(ours.records["plain"]) > 60
    refused = {"message-too-large", "batch-too-large", "timestamp-out-of-range"}
    assert bool(proxy.counters.partitions_refused.keys() & refused) == knows_topics, (
        proxy.counters.partitions_refused
    )

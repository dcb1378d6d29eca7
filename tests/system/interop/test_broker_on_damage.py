"""Compare docs/reference/rules.md with a real broker on a log with damage at rest.

One broker writes a topic for each kind of damage and stops. The files are damaged, the broker
starts again, and its files and answers are compared with the table. Rules L12 and L14 stop it: they
come last.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import Message
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.fixtures import running_kafka
from tests.support.topics import await_markers
from tests.system.interop.kafka_broker import BrokerError, KafkaBroker

PATIENCE = 60  # seconds
BATCHES, RECORDS = 24, 5
TOPIC_CONFIG = {"internal.segment.bytes": "2500", "index.interval.bytes": "300"}
TOPICS = (
    *("name", "lost-index", "wrong-index", "lost-times", "wrong-times", "lost-aborts", "snapshot"),
    *("start-beyond-end", "watermark-beyond-end", "epoch"),
)


def write(broker: KafkaBroker, topic: str) -> None:
    """Write batches of 5 records; of one topic in transactions, of which every other is aborted."""
    is_transactional = topic == "lost-aborts"
    config = {"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "log_level": 0}
    config |= {"transactional.id": topic} if is_transactional else {"enable.idempotence": True}
    producer = confluent_kafka.Producer(config)
    if is_transactional:
        producer.init_transactions(PATIENCE)
    for number in range(BATCHES):
        if is_transactional:
            producer.begin_transaction()
        for _ in range(RECORDS):
            key = b"aborted" if number % 2 else b"kept"
            producer.produce(topic, os.urandom(60), key, partition=0)
        assert producer.flush(PATIENCE) == 0
        if is_transactional and number % 2:
            producer.abort_transaction(PATIENCE)
        elif is_transactional:
            producer.commit_transaction(PATIENCE)
    if is_transactional:
        await_markers(broker.bootstrap, topic)


def read(broker: KafkaBroker, topic: str, start: int = 0, **config: str) -> list[Message]:
    """Return the records from an offset to the end that a consumer gets in some seconds."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": topic,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "log_level": 0,
            **config,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, start)])
    found, until = [], time.monotonic() + 8
    try:
        while time.monotonic() < until:
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error() is not None:
                break
            found.append(message)
    finally:
        consumer.close()
    return found


class Log:
    """The files of a topic's only partition."""

    def __init__(self, broker: KafkaBroker, topic: str) -> None:
        self.data, self.topic = broker.data, topic
        self.folder = broker.data / f"{topic}-0"

    @property
    def bases(self) -> list[int]:
        return sorted(int(path.stem) for path in self.folder.glob("*.log"))

    def file(self, base: int, suffix: str) -> Path:
        return self.folder / f"{base:020}.{suffix}"

    def edit(self, name: str, at: int, new: bytes) -> bytes:
        path = self.folder / name
        data = path.read_bytes()
        path.write_bytes(data[:at] + new + data[at + len(new) :])
        return path.read_bytes()

    def checkpoint(self, name: str, offset: int) -> None:
        path = self.data / name
        own = f"{self.topic} 0 "
        lines = [line for line in path.read_text().splitlines()[2:] if not line.startswith(own)]
        lines.append(f"{own}{offset}")
        path.write_text("\n".join(["0", str(len(lines)), *lines]) + "\n")


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaBroker]:
    with running_kafka() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        wanted = [NewTopic(topic, 1, 1, config=TOPIC_CONFIG) for topic in TOPICS]
        for done in admin.create_topics(wanted).values():
            done.result(PATIENCE)
        for topic in TOPICS:
            write(broker, topic)
        broker.stop()
        _damage(broker)
        broker.start()
        yield broker


#: what was there when the broker stopped, after the damage
KEPT: dict[str, bytes] = {}
SECOND, THIRD = 1, 2  # segments


def _damage(broker: KafkaBroker) -> None:
    logs = {topic: Log(broker, topic) for topic in TOPICS}
    for topic, log in logs.items():
        assert len(log.bases) > 3, topic
    _rename(logs["name"], -4)
    _remember_and_remove(logs["lost-index"], "index")
    log = logs["wrong-index"]
    name = f"{log.bases[SECOND]:020}.index"
    at = 8 + 4  # the position of the second entry
    (position,) = struct.unpack_from(">i", (log.folder / name).read_bytes(), at)
    KEPT["wrong-index"] = log.edit(name, at, struct.pack(">i", position + 5))
    _remember_and_remove(logs["lost-times"], "timeindex")
    log = logs["wrong-times"]
    KEPT["wrong-times"] = log.edit(f"{log.bases[SECOND]:020}.timeindex", 4, b"\0\0\0\0")
    for path in logs["lost-aborts"].folder.glob("*.txnindex"):
        path.unlink()
    log = logs["snapshot"]
    newest = max(log.folder.glob("*.snapshot"))
    KEPT["snapshot"] = log.edit(newest.name, 20, b"\xff\xff")
    KEPT["snapshot name"] = newest.name.encode()
    logs["start-beyond-end"].checkpoint("log-start-offset-checkpoint", 10_000)
    logs["watermark-beyond-end"].checkpoint("replication-offset-checkpoint", 10_000)
    logs["watermark-beyond-end"].checkpoint("recovery-point-offset-checkpoint", 10_000)
    log = logs["epoch"]
    log.edit(f"{log.bases[0]:020}.log", 12, b"\x80")


def _rename(log: Log, by: int) -> None:
    base = log.bases[THIRD]
    for path in log.folder.glob(f"{base:020}.*"):
        path.rename(path.with_name(f"{base + by:020}{path.suffix}"))


def _remember_and_remove(log: Log, suffix: str) -> None:
    path = log.file(log.bases[SECOND], suffix)
    KEPT[log.topic] = path.read_bytes()
    path.unlink()


def offsets(messages: list[Message]) -> list[int]:
    return [one.offset() for one in messages]


@pytest.mark.jvm
@pytest.mark.long
def test_l6_a_missing_index_is_built_again(kafka: KafkaBroker) -> None:
    log = Log(kafka, "lost-index")
    built = log.file(log.bases[SECOND], "index").read_bytes()
    assert built[: len(KEPT["lost-index"])] == KEPT["lost-index"]
    assert offsets(read(kafka, "lost-index")) == list(range(BATCHES * RECORDS))


@pytest.mark.jvm
@pytest.mark.long
def test_l6_a_wrong_index_is_used_after_a_restart(kafka: KafkaBroker) -> None:
    log = Log(kafka, "wrong-index")
    base = log.bases[SECOND]
    path = log.file(base, "index")
    assert path.read_bytes()[: len(KEPT["wrong-index"])] == KEPT["wrong-index"]
    (relative,) = struct.unpack_from(">i", KEPT["wrong-index"], 8)
    assert base + relative not in offsets(read(kafka, "wrong-index", base + relative))


@pytest.mark.jvm
@pytest.mark.long
def test_l8_a_wrong_name_hides_offsets(kafka: KafkaBroker) -> None:
    log = Log(kafka, "name")
    base = log.bases[THIRD]
    first = int.from_bytes(log.file(base, "log").read_bytes()[:8], "big")
    start = base + 1
    assert base < start < first == base + 4
    assert offsets(read(kafka, "name", start))[0] == first


@pytest.mark.jvm
@pytest.mark.long
def test_l9_a_missing_time_index_becomes_empty_and_a_wrong_one_stays(kafka: KafkaBroker) -> None:
    log = Log(kafka, "lost-times")
    built = log.file(log.bases[SECOND], "timeindex").read_bytes()
    assert not any(built)
    log = Log(kafka, "wrong-times")
    data = log.file(log.bases[SECOND], "timeindex").read_bytes()
    assert data[: len(KEPT["wrong-times"])] == KEPT["wrong-times"]


@pytest.mark.jvm
@pytest.mark.long
def test_l10_without_the_index_aborted_records_are_read(kafka: KafkaBroker) -> None:
    found = read(kafka, "lost-aborts", **{"isolation.level": "read_committed"})
    assert any(one.key() == b"aborted" for one in found)


@pytest.mark.jvm
@pytest.mark.long
def test_l11_a_damaged_snapshot_is_replaced(kafka: KafkaBroker) -> None:
    log = Log(kafka, "snapshot")
    path = log.folder / KEPT["snapshot name"].decode()
    assert not path.exists() or path.read_bytes() != KEPT["snapshot"]
    assert len(read(kafka, "snapshot")) == BATCHES * RECORDS


@pytest.mark.jvm
@pytest.mark.long
def test_l13_a_start_beyond_the_end_deletes_the_log(kafka: KafkaBroker) -> None:
    log = Log(kafka, "start-beyond-end")
    assert log.bases == [10_000]
    assert log.file(10_000, "log").stat().st_size == 0


@pytest.mark.jvm
@pytest.mark.long
def test_l13_other_checkpoints_are_limited_to_the_end(kafka: KafkaBroker) -> None:
    assert len(read(kafka, "watermark-beyond-end")) == BATCHES * RECORDS


@pytest.mark.jvm
@pytest.mark.long
def test_l15_a_batch_of_an_impossible_epoch_is_served(kafka: KafkaBroker) -> None:
    assert len(read(kafka, "epoch")) == BATCHES * RECORDS


@pytest.mark.jvm
@pytest.mark.long
@pytest.mark.parametrize("name", ["leader-epoch-checkpoint", "partition.metadata"])
def test_l12_and_l14_an_unreadable_file_stops_the_broker(kafka: KafkaBroker, name: str) -> None:
    path = kafka.data / "epoch-0" / name
    kafka.stop()
    sound = path.read_bytes()
    path.write_bytes(b"garbage")
    try:
        with pytest.raises(BrokerError, match="ended before it was ready"):
            kafka.start()
    finally:
        path.write_bytes(sound)

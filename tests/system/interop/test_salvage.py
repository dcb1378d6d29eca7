"""A broker's logs are damaged, salvaged and put into place: the broker serves all that is sound."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from batchval import batches
from batchval.core.batches.columns import scan_batches
from batchval.segment.check import Summary, check_paths
from batchval.segment.findings import Level
from batchval.segment.options import Options
from batchval.segment.salvage import Salvage
from tests.support.fixtures import running_kafka
from tests.support.processes import until
from tests.support.topics import await_markers
from tests.system.at_rest.test_damage import FAULTS, SPLITS, found_in
from tests.system.at_rest.test_damage import batches as whole_batches
from tests.system.interop.dump_log import dump
from tests.system.interop.kafka_broker import KafkaBroker
from tests.system.interop.test_transaction_index import faults, read

PATIENCE = 90
SMALL = {"segment.bytes": str(1 << 20)}
TOPICS: dict[str, dict[str, str]] = {
    "plain": SMALL,
    "codecs": SMALL,
    "transactional": SMALL,
    "compacted": {
        **SMALL,
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "0",
    },
}


def producer(broker: KafkaBroker, **config: Any) -> confluent_kafka.Producer:
    return confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "log_level": 0, **config}
    )


def send(
    one: confluent_kafka.Producer, topic: str, values: list[tuple[bytes | None, bytes]]
) -> None:
    """Send these keys and values as about one batch."""
    for key, value in values:
        one.produce(topic, value, key, partition=0)
    assert one.flush(PATIENCE) == 0


def fill(broker: KafkaBroker) -> None:
    rng = random.Random(7)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topics = [NewTopic(name, 1, 1, config=config) for name, config in TOPICS.items()]
    for done in admin.create_topics(topics).values():
        done.result(PATIENCE)
    plain = producer(broker)
    for number in range(60):
        send(
            plain,
            "plain",
            [(None, b"%d-%d-" % (number, i) + rng.randbytes(8000)) for i in range(8)],
        )
        send(
            plain,
            "compacted",
            [(b"%d" % rng.randrange(200), rng.randbytes(9000)) for _ in range(8)],
        )
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        one = producer(broker, **{"compression.type": codec, "linger.ms": 20})
        for _ in range(15):
            send(one, "codecs", [(None, rng.randbytes(6000) * 2) for _ in range(8)])
    writers = [producer(broker, **{"transactional.id": f"t{i}"}) for i in range(3)]
    for writer in writers:
        writer.init_transactions(PATIENCE)
    for _ in range(40):
        fates = [rng.random() < 0.5 for _ in writers]
        for writer in writers:
            writer.begin_transaction()
        for _ in range(3):
            for writer, commits in zip(writers, fates, strict=True):
                value = (b"commit" if commits else b"abort") + rng.randbytes(12_000)
                send(writer, "transactional", [(None, value)])
        for writer, commits in zip(writers, fates, strict=True):
            (writer.commit_transaction if commits else writer.abort_transaction)(PATIENCE)
    # what is cut off at the end is not a marker, without which a transaction would stay open
    await_markers(broker.bootstrap, "transactional")
    send(plain, "transactional", [(None, b"commit" + rng.randbytes(90))])
    active = max(int(file.stem) for file in (broker.data / "compacted-0").glob("*.log"))
    # so what is left of it is the same each time
    until("the cleaner is at the active segment", lambda: cleaned_to(broker) >= active, PATIENCE)


def cleaned_to(broker: KafkaBroker) -> int:
    file = broker.data / "cleaner-offset-checkpoint"
    lines = file.read_text().splitlines() if file.exists() else []
    return max((int(line.split()[2]) for line in lines if line.startswith("compacted ")), default=0)


def damage(folder: Path) -> int:
    """Change one byte of a data batch in two segments, put zeros over a third, cut the newest."""
    files = sorted(folder.glob("*.log"))
    damaged = 0
    for number, file in enumerate(files[:-1]):
        data = bytearray(file.read_bytes())
        columns = scan_batches(data)
        rows = [row for row in range(2, len(columns)) if not columns["is_control_batch"][row]]
        if not rows:
            continue  # the cleaner left two batches
        row = rows[len(rows) // 2]
        at = int(columns["position"][row])
        if number % 2:
            data[at : at + 300] = bytes(300)
        else:
            data[at + 70] ^= 1
        file.write_bytes(data)
        damaged += 1
    data = bytearray(files[-1].read_bytes())
    files[-1].write_bytes(data[:-40])
    assert damaged > 1
    return damaged + 1


class Held(NamedTuple):
    """A record of a data batch."""

    offset: int
    value: bytes


def held(folder: Path) -> list[Held]:
    """Return the records of all data batches of a folder."""
    found = []
    for file in sorted(folder.glob("*.log")):
        for one in batches(file.read_bytes()):
            if not one.is_control_batch:
                found += [Held(record.offset, bytes(record.value)) for record in one]
    return found


def consumed(broker: KafkaBroker, topic: str, isolation: str) -> list[Held]:
    config = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": f"{topic}-{isolation}-{time.monotonic_ns()}",
        "isolation.level": isolation,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "log_level": 0,
    }
    reader = confluent_kafka.Consumer(config)
    partition = confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)
    reader.assign([partition])
    found = []
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        message = reader.poll(1)
        if message is None:
            continue
        if message.error() is None:
            found.append(Held(message.offset(), message.value()))
        elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
            reader.close()
            return found
        else:
            raise AssertionError(str(message.error()))
    raise AssertionError(f"the end of {topic} was not reached")


def put_into_place(data: Path, out: Path, aside: Path) -> None:
    """Do what docs/guide/incident.md says after the broker was stopped."""
    aside.mkdir()
    (data / ".kafka_cleanshutdown").unlink()
    for folder in sorted(path for path in out.iterdir() if path.is_dir()):
        shutil.move(data / folder.name, aside / folder.name)
        shutil.move(folder, data / folder.name)
        topic, _, partition = folder.name.rpartition("-")
        for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
            without(data / name, topic, partition)


def without(checkpoint: Path, topic: str, partition: str) -> None:
    """Remove a partition's line from a checkpoint, whose second line counts the others."""
    version, _, *lines = checkpoint.read_text().splitlines()
    kept = [line for line in lines if line.split()[:2] != [topic, partition]]
    checkpoint.write_text("\n".join([version, str(len(kept)), *kept]) + "\n")


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaBroker]:
    config = {"log.cleaner.backoff.ms": 100, "log.initial.task.delay.ms": 100}
    with running_kafka(config=config) as broker:
        fill(broker)
        broker.stop()
        yield broker


@pytest.mark.jvm
@pytest.mark.long
@pytest.mark.parametrize("topic", ["plain", "codecs", "transactional"])
def test_one_fault_is_one_finding(kafka: KafkaBroker, tmp_path: Path, topic: str) -> None:
    """Damage segments of a MiB with indexes: consequences of one fault are not findings."""
    folder = tmp_path / f"{topic}-0"
    shutil.copytree(kafka.data / folder.name, folder)
    # the active one, the damaged one, the one before it: the log's start was deleted
    for log in sorted(folder.glob("*.log"))[:-3]:
        for file in folder.glob(f"{log.stem}.*"):
            file.unlink()
    assert [found_in(folder, split_bytes) for split_bytes in SPLITS] == [[]] * len(SPLITS)
    file = sorted(folder.glob("*.log"))[1]
    data = file.read_bytes()
    for what, fault in FAULTS.items():
        if what.startswith("batches of another log"):
            continue  # whether its offsets are above or below decides about the rule
        file.write_bytes(b"".join(fault.damage(whole_batches(data))))
        found = [found_in(folder, split_bytes) for split_bytes in SPLITS]
        assert [len(one) for one in found] == [1] * len(SPLITS), what
        assert found == found[:1] * len(SPLITS), what


@pytest.mark.jvm
@pytest.mark.long
def test_a_broker_serves_what_was_salvaged(kafka: KafkaBroker, tmp_path: Path) -> None:
    folders = [kafka.data / f"{topic}-0" for topic in TOPICS]
    before = {folder.name: held(folder) for folder in folders}
    faulty = {folder.name: damage(folder) for folder in folders}
    out = tmp_path / "out"
    summary, options = Summary(), Options()
    salvage = Salvage(out, options)
    salvage.prepare(folders)
    findings = list(check_paths(folders, options, summary, salvage=salvage))
    salvage.finish()
    assert summary.unreadable == []
    assert salvage.done.lost
    logs = [one for one in findings if one.level is Level.FINDING and one.file.endswith(".log")]
    found = [Path(one.file).parent.name for one in logs]
    assert {name: found.count(name) for name in faulty} == faulty

    rows = dump(out)  # by Kafka's own tool, record by record
    assert [row for row in rows if "stops" in row or not row["isvalid"]] == []
    assert len(rows) == salvage.done.batches

    sound = {folder.name: held(out / folder.name) for folder in folders}
    for name, records in sound.items():
        assert set(records) < set(before[name])
        lost = [one for one in salvage.done.lost if f"{one.topic}-{one.partition}" == name]
        missing = {one.offset for one in set(before[name]) - set(records)}
        assert missing <= {
            at for one in lost for at in range(one.first_offset, one.last_offset + 1)
        }

    put_into_place(kafka.data, out, tmp_path / "damaged")
    kafka.start()
    for topic in TOPICS:
        assert consumed(kafka, topic, "read_uncommitted") == sound[f"{topic}-0"]
    committed = consumed(kafka, "transactional", "read_committed")
    expected = [one for one in sound["transactional-0"] if one.value.startswith(b"commit")]
    assert committed == expected
    assert len(expected) < len(sound["transactional-0"])
    for folder in folders:
        assert all(file.with_suffix(".index").exists() for file in folder.glob("*.log"))
    assert list((kafka.data / "transactional-0").glob("*.txnindex"))

    after = producer(kafka)
    for topic in TOPICS:
        send(after, topic, [(b"new", b"commit after it")])
        assert consumed(kafka, topic, "read_committed")[-1].value == b"commit after it"
    again = producer(kafka, **{"transactional.id": "t0"})
    again.init_transactions(PATIENCE)
    again.begin_transaction()
    send(again, "transactional", [(None, b"commit the last")])
    again.commit_transaction(PATIENCE)
    assert consumed(kafka, "transactional", "read_committed")[-1].value == b"commit the last"
    kafka.stop()
    state, indexes = read(kafka.data / "transactional-0")
    assert [fault for fault in faults(state, indexes) if fault.is_certain] == []

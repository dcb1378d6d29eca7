"""Clients read batches with claims as they were written: those of batchval's builder, and a gate's.

Each program prints one digest of all records of a topic (tests/support/record_digest.py). It has to
be the digest of the records that were sent. The large run has 10^5 batches of each carrier:

    pytest -m slow -s tests/system/interop/test_claims_clients.py
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError, Message, Producer

from batchval.core import claims
from batchval.core.convert.builder import BatchBuilder
from batchval.network.connection import Connection
from batchval.network.options import ConnectionOptions
from batchval.protocol.messages import produce
from tests.support import go, node
from tests.support.batches import CODECS
from tests.support.fixtures import running_kafka
from tests.support.proxy import RunningProxy, eventually
from tests.support.record_digest import CLIENTS as PYTHON_CLIENTS
from tests.support.record_digest import Digest
from tests.support.topics import await_groups, make_topic
from tests.system.interop.kafka_broker import KafkaBroker, java_command

pytestmark = [pytest.mark.jvm, pytest.mark.long]

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = Path(__file__).resolve().parent / "clients"
#: codec -> where its claims go; a broker does not store tags
CARRIERS = {"zstd": "payload", "gzip": "payload", "snappy": "tag", "lz4": "tag"}
#: kafkajs has no other codec without further packages
KAFKAJS_CODECS = ("gzip",)
CODEC_BYTE = 22
BATCHES = 300
MANY = 100_000
SECONDS = 3000

#: Fields of blocks, in turns: none, a small one, several, and what makes a block of 256 bytes.
FIELDS: tuple[tuple[tuple[int, bytes], ...], ...] = (
    (),
    ((7, b"seven"),),
    ((2, b""), (300, bytes(range(40))), (70_000, b"\xff")),
    ((9, bytes(230)),),
)


class Record(NamedTuple):
    """What a client sends of a record."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def made_batches(count: int) -> Iterator[list[Record]]:
    """Yield the records of each batch: 1 to 12, of each hundredth batch 200."""
    rng = random.Random(8364)
    now = int(time.time() * 1000) - 3_600_000
    for number in range(count):
        records = 200 if number % 100 == 50 else rng.randint(1, 12)
        yield [made_record(rng, now + number // 10) for _ in range(records)]


def made_record(rng: random.Random, timestamp: int) -> Record:
    sort = rng.randrange(20)
    key = None if sort < 5 else b"" if sort == 5 else rng.randbytes(sort)
    if sort == 6:
        value = None
    elif sort == 7:
        value = b""
    elif sort == 8:
        value = rng.randbytes(rng.randrange(4000))
    else:
        value = b"a value like others, " * rng.randrange(1, 12) + rng.randbytes(8)
    headers: list[tuple[str, bytes | None]] = [
        (f"header-{one}", (None, b"", rng.randbytes(9))[one % 3])
        for one in range(max(0, sort - 14))
    ]
    if sort == 19:
        headers.append(("ключ", b"non-ASCII"))
    return Record(timestamp + rng.randrange(-500, 500), key, value, headers)


def built(codec: str, records: list[Record]) -> BatchBuilder:
    """Return a batch of these records, as batchval's producer builds it."""
    builder = BatchBuilder(1 << 20, CODECS[codec])
    for record in records:
        assert builder.append(record.key, record.value, record.headers, record.timestamp)
    builder.finish()
    builder.seal()
    return builder


class Topic(NamedTuple):
    """A topic of one partition, and what was sent to it."""

    name: str
    codec: str
    sent: Digest
    batches: int
    #: SHA-256 over the blocks of its batches; None: a gate made them
    blocks: str | None


class Log(NamedTuple):
    """A running broker with its topics."""

    broker: KafkaBroker
    topics: list[Topic]


async def write(port: int, count: int) -> list[Topic]:
    """Write ``count`` batches of each codec, with claims in its carrier.

    One request holds a batch of each codec.
    """
    names = {codec: f"claims-{codec}" for codec in CARRIERS}
    sent, blocks = Digest(), {codec: hashlib.sha256() for codec in CARRIERS}
    connection = await Connection.open("127.0.0.1", port, ConnectionOptions())
    errors: list[Any] = []
    for number, records in enumerate(made_batches(count)):
        data = []
        for codec, carrier in CARRIERS.items():
            builder = built(codec, records)
            stated = builder.claims._replace(fields=FIELDS[number % len(FIELDS)])
            blocks[codec].update(stated.to_block())
            batch, tags = bytes(builder.view()), ()
            if carrier == "payload":
                batch = claims.attach(batch, stated, carrier="payload")
            else:
                tags = ((claims.TAG, claims.to_tag(stated, builder.crc)),)
            part = produce.PartitionProduceData(index=0, records=batch, unknown_tagged_fields=tags)
            data.append(produce.TopicProduceData(name=names[codec], partition_data=[part]))
        request = produce.ProduceRequest(api_version=9, acks=1, timeout_ms=30_000, topic_data=data)
        await connection.produce_async(request, answer_to(sent.records, errors))
        for record in records:
            sent.add(*record)
        if errors:
            break
    while connection.in_flight:
        await asyncio.sleep(0.01)
    connection.close()
    assert errors == []
    return [
        Topic(name, codec, sent, count, blocks[codec].hexdigest()) for codec, name in names.items()
    ]


def answer_to(offset: int, errors: list[Any]) -> Callable[[Any, BaseException | None], None]:
    """Return a callback that notes an error, and a batch that is not at its offset."""

    def answered(response: Any, error: BaseException | None) -> None:
        if error is not None:
            errors.append(error)
            return
        for topic in response.responses:
            part = topic.partition_responses[0]
            if part.error_code or part.base_offset != offset:
                errors.append((topic.name, part))

    return answered


def write_through_gate(broker: KafkaBroker) -> list[Topic]:
    """Send the records of the small run through a gate that puts claims into payloads."""
    topics = []
    with RunningProxy(broker.bootstrap, claims_out="payload") as gate:
        eventually(lambda: gate.proxy.listening)
        for codec in CARRIERS:
            name, sent, failed = make_topic(broker.bootstrap, f"gate-{codec}"), Digest(), []

            def delivered(
                error: KafkaError | None, _: Message, failed: list[KafkaError] = failed
            ) -> None:
                if error is not None:
                    failed.append(error)

            producer = Producer(
                {
                    "bootstrap.servers": gate.bootstrap,
                    "compression.type": codec,
                    "batch.num.messages": 7,
                    "log_level": 0,
                }
            )
            for records in made_batches(BATCHES):
                for timestamp, key, value, headers in records:
                    producer.produce(
                        name,
                        value,
                        key,
                        0,
                        timestamp=timestamp,
                        headers=headers,
                        on_delivery=delivered,
                    )
                    sent.add(timestamp, key, value, headers)
            assert producer.flush(60) == 0
            assert failed == []
            topics.append(Topic(name, codec, sent, 0, None))
        assert gate.refusals == []
    return topics


@pytest.fixture(scope="module", params=[BATCHES, pytest.param(MANY, marks=pytest.mark.slow)])
def log(request: pytest.FixtureRequest) -> Iterator[Log]:
    """Start a broker with two topics for each codec: from batchval's builder, and through a
    proxy.
    """
    with running_kafka() as broker:
        for codec in CARRIERS:
            make_topic(broker.bootstrap, f"claims-{codec}")
        await_groups(broker.bootstrap, topic=f"claims-{codec}")
        yield Log(
            broker, asyncio.run(write(broker.port, request.param)) + write_through_gate(broker)
        )


def stored(log: Log, topic: Topic) -> Iterator[bytes]:
    """Yield each batch of a topic's segments."""
    for segment in sorted((log.broker.data / f"{topic.name}-0").glob("*.log")):
        with segment.open("rb") as file:
            while head := file.read(12):
                yield head + file.read(struct.unpack(">8xi", head)[0])


def test_payload_claims_are_in_the_log(log: Log) -> None:
    """Find each block as sent; a tag is not stored, and its batch is as without it."""
    for topic in log.topics:
        if topic.blocks is None:
            continue
        blocks, batches, longest = hashlib.sha256(), 0, 0
        for batch in stored(log, topic):
            found = claims.read(batch)
            assert (found is not None) == (CARRIERS[topic.codec] == "payload")
            assert batch[CODEC_BYTE] & 7 == CODECS[topic.codec]
            block = b"" if found is None else found.to_block()
            blocks.update(block)
            batches, longest = batches + 1, max(longest, len(block))
        assert batches == topic.batches
        assert longest == (256 if CARRIERS[topic.codec] == "payload" else 0)
        assert (blocks.hexdigest() == topic.blocks) == (CARRIERS[topic.codec] == "payload")


def test_a_gate_puts_claims_into_each_compressed_batch(log: Log) -> None:
    """Expect claims in compressed batches only: librdkafka skips a codec that saves nothing."""
    for topic in log.topics:
        if topic.blocks is not None:
            continue
        compressed = [batch for batch in stored(log, topic) if batch[CODEC_BYTE] & 7]
        assert len(compressed) > BATCHES // 4
        for batch in compressed:
            found = claims.read(batch)
            assert found == (claims.compute(batch) if CARRIERS[topic.codec] == "payload" else None)


# --- clients


def commands() -> dict[str, list[str]]:
    """Return the command of each client, without its arguments.

    Fetches and builds what is missing.
    """
    digest = str(PROGRAMS / "RecordDigest.java")
    try:
        with_go = {
            "franz-go": [str(go.built(ROOT / "tests" / "system" / "chain" / "go")), "digest"],
            "sarama": [str(go.built(ROOT / "tests" / "system" / "chain" / "sarama")), "digest"],
        }
    except go.GoMissing as missing:
        pytest.skip(str(missing))
    return {
        "Java 2.8": java_command(digest, profile="clients-2.8"),
        "Java 4.4": java_command(digest),
        **with_go,
        "kafkajs": [
            str(node.find_node()),
            str(PROGRAMS / "record_digest.js"),
            str(node.installed(PROGRAMS)),
        ],
        **{
            name: [sys.executable, "-m", "tests.support.record_digest", name]
            for name in PYTHON_CLIENTS
        },
    }


class Reading(NamedTuple):
    """What a client printed: its version, and the digest of each topic."""

    version: str
    digests: dict[str, str]


@pytest.fixture(scope="module")
def readings(log: Log) -> dict[str, Reading]:
    """Return what each client reads of all topics whose codec it supports."""

    def read(client: tuple[str, list[str]]) -> tuple[str, Reading]:
        name, command = client
        topics = [
            topic for topic in log.topics if name != "kafkajs" or topic.codec in KAFKAJS_CODECS
        ]
        wanted = [f"{topic.name}={topic.sent.records}" for topic in topics]
        run = subprocess.run(
            [*command, log.broker.bootstrap, *wanted],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        if run.returncode:
            return name, Reading("", {"failed": run.stdout + run.stderr})
        version, *lines = run.stdout.splitlines()
        return name, Reading(version, dict(line.split(" ", 1) for line in lines))

    with ThreadPoolExecutor(3) as pool:
        return dict(pool.map(read, commands().items()))


EIGHT = (
    "Java 2.8",
    "Java 4.4",
    "librdkafka",
    "franz-go",
    "sarama",
    "kafka-python",
    "aiokafka",
    "kafkajs",
)


@pytest.mark.parametrize("client", EIGHT)
def test_a_client_reads_what_was_sent(log: Log, readings: dict[str, Reading], client: str) -> None:
    reading = readings[client]
    topics = [topic for topic in log.topics if client != "kafkajs" or topic.codec in KAFKAJS_CODECS]
    for topic in topics:
        equal = reading.digests.get(topic.name) == topic.sent.text()
        cells = (
            client,
            reading.version,
            topic.name,
            topic.batches or "",
            topic.sent.records,
            equal,
        )
        print("|", " | ".join(map(str, cells)), "|")
    assert reading.digests == {topic.name: topic.sent.text() for topic in topics}
    assert len(topics) == 2 * (len(KAFKAJS_CODECS) if client == "kafkajs" else len(CARRIERS))


def test_a_digest_depends_on_each_part_of_a_record() -> None:
    whole = (5, b"k", b"v", [("h", b"x")])
    others = [
        (6, b"k", b"v", [("h", b"x")]),
        (5, None, b"v", [("h", b"x")]),
        (5, b"", b"v", [("h", b"x")]),
        (5, b"k", None, [("h", b"x")]),
        (5, b"k", b"", [("h", b"x")]),
        (5, b"k", b"v", []),
        (5, b"k", b"v", [("h", None)]),
        (5, b"k", b"v", [("h", b"x"), ("h", b"x")]),
    ]
    seen = set()
    for record in [whole, *others]:
        digest = Digest()
        digest.add(*record)
        seen.add(digest.text())
    assert len(seen) == len(others) + 1

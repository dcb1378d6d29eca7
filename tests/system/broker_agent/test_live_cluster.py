"""Compare a cluster whose agent trusts batches with a stock one.

Every claim here is honest. Each test asserts that batches were accepted on their claims, where the
topic allows it, so that none passes because everything took Kafka's own path.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from batchval.core.batches.batch import RecordBatch
from batchval.core.claims import carrier_of, compute, read
from batchval.producer import Delivery, Producer, ProducerOptions
from tests.support.batches import LZ4, NOW, ZSTD, batch, record
from tests.support.claims import block
from tests.support.fixtures import needs_kafka
from tests.support.jvm_agents import broker_agent
from tests.support.ports import free_port
from tests.support.processes import until
from tests.support.record_checker import Acked, check, payload
from tests.support.topics import await_markers, make_topic
from tests.system.auth.conftest import Certificates
from tests.system.broker_agent.counters import Counters
from tests.system.broker_agent.lies import CODECS, honest
from tests.system.broker_agent.raw import Answer, Connection, Part
from tests.system.chain.senders import read_all
from tests.system.interop.kafka_broker import KafkaBroker, brokers
from tests.unit.core.test_lies import keyed

pytestmark = pytest.mark.jvm

PATIENCE = 90  # seconds
NOT_LEADER = 6
NEVER = {"retention.ms": "-1"}
OPTIONS = ";".join(
    (
        "rule.1=ignore,topic=stock-*",
        "rule.2=trust,listener=PLAINTEXT",
        "rule.3=trust,principal=User:CN=trusted-client*",
        "rule.4=verify,principal=User:CN=*",
    )
)
CARRIERS = ("tag", "payload")


class Live(NamedTuple):
    """A broker with the agent; ``tls`` is the listener that asks for a certificate."""

    broker: KafkaBroker
    certificates: Certificates
    tls: tuple[str, int]

    @property
    def address(self) -> tuple[str, int]:
        return self.broker.host, self.broker.port


def with_agent(options: str = OPTIONS) -> list[str]:
    return [f"-javaagent:{broker_agent()}={options}"]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    needs_kafka()
    certificates = Certificates(tmp_path_factory.mktemp("certificates"))
    certificates.issue("other", "other-client", common_name="other-client")
    broker = KafkaBroker(jvm=with_agent(), heap="512m")
    tls = free_port()
    advertised = f"PLAINTEXT://{broker.host}:{broker.port},SSL://{broker.host}:{tls}"
    broker.config |= {
        "listeners": f"{advertised},CONTROLLER://{broker.host}:{broker.controller_port}",
        "advertised.listeners": advertised,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": certificates.path("server.store"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": certificates.ca,
        "ssl.client.auth": "required",
        "log.cleaner.backoff.ms": 100,
        "log.retention.check.interval.ms": 1000,
    }
    with broker:
        yield Live(broker, certificates, (broker.host, tls))


class Trusted:
    """How many batches the broker has trusted since the block began, when it ends."""

    def __init__(self, broker: KafkaBroker) -> None:
        self.counters = Counters(broker)
        self.changes: dict[str, int] = {}

    def __enter__(self) -> Trusted:
        self.counters.__enter__()
        self.before = self.counters.read()
        return self

    def __exit__(self, *_: object) -> None:
        now = self.counters.read()
        self.changes = {name: now[name] - self.before[name] for name in now}
        self.counters.__exit__()

    def __getitem__(self, name: str) -> int:
        return self.changes[name]


def segments(broker: KafkaBroker, topic: str, partition: int = 0) -> bytes:
    """Return the bytes of all segments of a partition."""
    for _ in range(100):
        files = sorted((broker.data / f"{topic}-{partition}").glob("*.log"))
        # the cleaner may replace a segment between the two calls
        with contextlib.suppress(FileNotFoundError):
            return b"".join(map(Path.read_bytes, files))
    raise AssertionError(f"the segments of {topic}-{partition} are replaced all the time")


def stored(broker: KafkaBroker, topic: str) -> list[bytes]:
    """Return the batches in the log of the topic's only partition."""
    data = segments(broker, topic)
    found, at = [], 0
    while len(data) - at >= 61:
        size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        if size <= 12:
            break  # the end of a file that is allocated ahead
        found.append(data[at : at + size])
        at += size
    return found


# ---- transactions --------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("carrier", CARRIERS)
def test_transactions_are_committed_and_aborted(live: Live, carrier: str) -> None:
    topic = make_topic(live.broker.bootstrap, f"transactions-{carrier}")

    async def work() -> tuple[list[bytes], int]:
        committed: list[bytes] = []
        options = ProducerOptions(
            bootstrap_servers=[live.broker.bootstrap],
            transactional_id=topic,
            compression_type="zstd",
            claims=carrier,
            linger_ms=0,
        )
        async with Producer(options) as producer:
            await producer.init_transactions()
            for number in range(6):
                producer.begin_transaction()
                values = [b"%d %d" % (number, n) * 20 for n in range(20)]
                for value in values:
                    await producer.send(topic, value, partition=0, key=b"k")
                await producer.flush()
                if number % 3 == 2:
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
                    committed += values
        return committed, 6 * 20

    with Trusted(live.broker) as counted:
        committed, sent = asyncio.run(asyncio.wait_for(work(), PATIENCE))
    await_markers(live.broker.bootstrap, topic)
    assert [
        one.value for one in read_all(live.broker.bootstrap, topic, 1, committed=True)
    ] == committed
    assert len(read_all(live.broker.bootstrap, topic, 1)) == sent
    batches = [data for data in stored(live.broker, topic) if not data[22] & 0x20]
    assert counted["Trusted"] == len(batches) >= 6
    assert {carrier_of(data) for data in batches} == {"payload" if carrier == "payload" else None}


# ---- idempotence ---------------------------------------------------------------------------------


def sequences(connection: Connection, topic: str, carrier: str) -> list[Answer]:
    """Send batches of one producer: in order, again, out of order, and with an older epoch."""
    producer_id, epoch = connection.producer_id()

    def send(sequence: int, its_epoch: int = epoch) -> Answer:
        data = keyed(
            ZSTD, producer_id=producer_id, producer_epoch=its_epoch, base_sequence=sequence
        )
        return connection.produce(topic, *honest(data, carrier))

    first = [send(n * 3) for n in range(8)]
    again = [send(n * 3) for n in (7, 6, 3)]  # the broker remembers five
    forgotten = [send(0), send(3)]
    gap = [send(300)]
    newer = [send(0, epoch + 1), send(3, epoch + 1)]
    older = [send(24), send(6, epoch + 1)]
    return [*first, *again, *forgotten, *gap, *newer, *older]


@pytest.mark.long
@pytest.mark.parametrize("carrier", CARRIERS)
def test_sequences_are_answered_as_without_claims(live: Live, carrier: str) -> None:
    topics = [
        make_topic(live.broker.bootstrap, f"{kind}-sequences-{carrier}", **NEVER)
        for kind in ("stock", "agent")
    ]
    with Connection(live.address) as connection:
        with Trusted(live.broker) as counted:
            stock = sequences(connection, topics[0], carrier)
        assert counted["Trusted"] == 0
        with Trusted(live.broker) as counted:
            trusted = sequences(connection, topics[1], carrier)
    assert trusted == stock
    codes = [answer.error_code for answer in stock]
    assert codes[:11] == [0] * 11
    assert set(codes[11:]) - {0} >= {45, 47}  # out of order, an older epoch
    assert [answer.base_offset for answer in stock[8:11]] == [21, 18, 9]
    assert counted["Trusted"] > 11
    assert len(stored(live.broker, topics[0])) == len(stored(live.broker, topics[1])) >= 10


@pytest.mark.long
def test_payload_claims_are_read_in_every_version_of_produce(live: Live) -> None:
    """Produce with versions before 9, which have no tagged fields; payload claims need none, nor
    acks.
    """
    topic = make_topic(live.broker.bootstrap, "versions", **NEVER)
    carried, tag = honest(keyed(CODECS["gzip"]), "payload")
    assert tag is None
    with Trusted(live.broker) as counted:
        for version in range(3, 13):
            with Connection(live.address, version=version) as connection:
                assert connection.produce(topic, carried).error_code == 0
        with Connection(live.address) as connection:
            for _ in range(5):
                connection.send(Part(topic, carried), acks=0)
            assert connection.produce(topic, carried).base_offset == 45
    assert (counted["Trusted"], counted["NoClaims"], counted["Errors"]) == (16, 0, 0)


# ---- topics --------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_cleaner_keeps_the_last_record_of_every_key(live: Live) -> None:
    """Check that the cleaner leaves claims in payloads that are true of the cleaned batches."""
    config = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.bytes": str(1 << 20),
    }
    config |= {"internal.segment.bytes": "4000", **NEVER}
    topic = make_topic(live.broker.bootstrap, "compacted", **config)
    keys, rounds = 40, 60
    with Trusted(live.broker) as counted, Connection(live.address) as connection:
        for number in range(rounds):
            some = [number % keys, (number * 7 + 1) % keys, keys - 1 - number % 3]
            parts = [
                record(i, key=b"key %d" % key, value=b"%d " % number * 30)
                for i, key in enumerate(some)
            ]
            carrier = ("payload", "tag", "block")[number % 3]
            answer = connection.produce(
                topic, *honest(batch(parts, codec=(ZSTD, LZ4)[number % 2]), carrier)
            )
            assert answer.error_code == 0
    assert counted["Trusted"] == rounds
    last: dict[bytes, bytes] = {}
    for number in range(rounds):
        for key in (number % keys, (number * 7 + 1) % keys, keys - 1 - number % 3):
            last[b"key %d" % key] = b"%d " % number * 30

    def records() -> list[tuple[bytes | None, bytes | None]]:
        return [
            (one.key, one.value)
            for data in stored(live.broker, topic)
            for one in RecordBatch(data).records()
        ]

    until("the cleaner has run", lambda: len(records()) < rounds * 3 - keys, PATIENCE)
    until("the log holds the last record of every key", lambda: dict(records()) == last, PATIENCE)
    seen = {one.value for one in read_all(live.broker.bootstrap, topic, 1)}
    assert set(last.values()) <= seen
    for data in stored(live.broker, topic):
        claims = read(data)
        assert claims is None or claims == compute(data)


@pytest.mark.long
def test_a_log_append_time_topic_takes_kafkas_own_path(live: Live) -> None:
    topic = make_topic(
        live.broker.bootstrap, "append-time", **{"message.timestamp.type": "LogAppendTime"}
    )
    with Trusted(live.broker) as counted, Connection(live.address) as connection:
        before = int(time.time() * 1000)
        answers = [
            connection.produce(topic, *honest(keyed(codec), carrier))
            for codec in CODECS.values()
            for carrier in CARRIERS
        ]
    assert [answer.error_code for answer in answers] == [0] * 8
    assert all(answer.log_append_time >= before for answer in answers)
    assert counted["Trusted"] == 0
    assert all(data[22] & 8 for data in stored(live.broker, topic))


# ---- TLS -----------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_certificate_is_the_sender(live: Live) -> None:
    """Send the same lie twice: the trusted certificate's is accepted, the other's is found."""
    topic = make_topic(live.broker.bootstrap, "tls", **NEVER)
    good = keyed(ZSTD)
    truth, lie = block((NOW, 3, 2), good) + good[17:21], block((NOW, 3, 1), good) + good[17:21]
    for name, expected in (
        ("client", {"Trusted": 2, "Lying": 0, "Honest": 0, "Demotions": 0}),
        ("other", {"Trusted": 0, "Lying": 1, "Honest": 1, "Demotions": 1}),
    ):
        with (
            Trusted(live.broker) as counted,
            Connection(live.tls, tls=live.certificates.context(name)) as connection,
        ):
            assert [connection.produce(topic, good, tag).error_code for tag in (truth, lie)] == [
                0,
                0,
            ]
        assert {name: counted[name] for name in expected} == expected
    assert live.broker.log.read_text(errors="replace").count("CN=other-client") == 1


# ---- restarts ------------------------------------------------------------------------------------


@pytest.mark.long
def test_batches_with_payload_claims_outlive_kills_and_restarts(live: Live) -> None:
    """Recover the log after kill -9, with and without the agent; clients read every record."""
    topic, broker = make_topic(live.broker.bootstrap, "restarts", **NEVER), live.broker
    sent: list[bytes] = []

    def send(count: int) -> None:
        with Connection(live.address) as connection:
            for _ in range(count):
                codec = (ZSTD, CODECS["gzip"])[len(sent) % 2]
                data = batch(
                    [record(i, key=b"k", value=b"%d %d" % (len(sent), i)) for i in range(3)],
                    codec=codec,
                )
                carried, tag = honest(data, "payload")
                assert tag is None
                answer = connection.produce(topic, carried)
                while answer.error_code == NOT_LEADER:  # yet, after a start
                    answer = connection.produce(topic, carried)
                assert (answer.error_code, answer.base_offset) == (0, 3 * len(sent))
                sent.append(carried)

    try:
        for jvm in ((), tuple(with_agent())):
            with Trusted(broker) if broker.jvm else contextlib.nullcontext() as counted:
                send(20)
            assert counted is None or counted["Trusted"] == 20
            broker.kill()
            broker.jvm = jvm
            broker.start()
            assert len(stored(broker, topic)) == len(sent)
        send(20)
        broker.restart()
    finally:
        if broker.jvm != tuple(with_agent()) or not broker.running:
            broker.stop()
            broker.jvm = tuple(with_agent())
            broker.start()
    expected = [b"%d %d" % (number, i) for number in range(len(sent)) for i in range(3)]
    assert [one.value for one in read_all(broker.bootstrap, topic, 1)] == expected
    for number, (data, carried) in enumerate(zip(stored(broker, topic), sent, strict=True)):
        assert int.from_bytes(data[:8], "big") == 3 * number
        assert data[16:] == carried[16:]  # magic, crc, everything under the crc
        assert read(data) == compute(data)


# ---- several brokers -----------------------------------------------------------------------------


async def _write_while(
    bootstrap: list[str], topic: str, work: Any, partitions: int, **options: Any
) -> tuple[list[Acked], int]:
    """Write with an idempotent producer until the work is done.

    Return every acknowledgement, and how many records were sent.
    """
    acked: list[Acked] = []
    errors: list[Exception] = []
    options = {"linger_ms": 2, "batch_size": 2000, "delivery_timeout_ms": 120_000, **options}
    async with Producer(ProducerOptions(bootstrap_servers=bootstrap, **options)) as producer:
        done = asyncio.ensure_future(asyncio.to_thread(work))
        for sequence in itertools.count():

            def noted(delivery: Delivery, sequence: int = sequence) -> None:
                if (error := delivery.exception()) is None:
                    where = delivery.result()
                    acked.append(Acked(1, sequence, topic, where.partition, where.offset))
                else:
                    errors.append(error)

            partition = sequence % partitions
            value = payload(1, sequence, topic, partition, 100)
            delivery = await producer.send(topic, value, key=b"k", partition=partition)
            delivery.add_done_callback(noted)
            if sequence % 50 == 0:
                await asyncio.sleep(0.01)
                if done.done():
                    break
        await done
        await producer.flush(PATIENCE * 1000)
    assert errors == []
    return acked, sequence + 1


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_rolling_upgrade_loses_and_doubles_no_record(carrier: str) -> None:
    """Add the jar to three brokers in turn, and remove it again, while a producer writes.

    Followers fetch what a leader has accepted on its claims: the replicas hold the same bytes.
    """
    from confluent_kafka.admin import AdminClient, NewTopic

    needs_kafka()
    config = {
        "offsets.topic.replication.factor": 3,
        "default.replication.factor": 3,
        "min.insync.replicas": 2,
    }
    partitions, topic = 6, f"rolling-{carrier}"
    jvm = tuple(with_agent("policy=trust;rule.1=trust,listener=PLAINTEXT"))
    trusted: list[int] = []
    with brokers(3, config=config, heap="256m") as nodes:
        servers = [node.bootstrap for node in nodes]
        admin = AdminClient({"bootstrap.servers": servers[0]})
        admin.create_topics([NewTopic(topic, partitions, 3)])[topic].result(PATIENCE)

        def in_sync() -> bool:
            try:
                found = admin.list_topics(topic, 10).topics[topic].partitions
            except Exception:
                return False
            return len(found) == partitions and all(len(one.isrs) == 3 for one in found.values())

        def roll() -> None:
            for upgraded in (jvm, ()):
                for node in nodes:
                    until("all replicas are in sync", in_sync, PATIENCE)
                    node.stop()
                    node.jvm = upgraded
                    node.start()
                until("all replicas are in sync", in_sync, PATIENCE)
                time.sleep(1)
                for node in nodes:
                    if node.jvm:
                        with Counters(node) as counters:
                            trusted.append(counters.read()["Trusted"])

        codec = "zstd" if carrier == "payload" else "lz4"
        acked, sent = asyncio.run(
            asyncio.wait_for(
                _write_while(
                    servers, topic, roll, partitions, claims=carrier, compression_type=codec
                ),
                600,
            )
        )
        until("all replicas are in sync", in_sync, PATIENCE)
        found = check(acked, read_all(",".join(servers), topic, partitions), {1: sent})
        assert not found, str(found)
        assert len(acked) == sent > 1000
        assert sum(trusted) > 0
        for partition in range(partitions):
            replicas = [segments(node, topic, partition) for node in nodes]
            assert len(replicas[0]) > 0
            assert replicas.count(replicas[0]) == 3

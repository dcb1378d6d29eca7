"""Producers that note what they were told, a reader of whole logs, and a run in which gate and broker are killed."""

from __future__ import annotations

import random
import signal
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.interop.kafka_broker import KafkaBroker, java_command
from tests.support.gate_process import GateProcess
from tests.support.record_checker import Acked, Stored, payload, unpacked

IDEMPOTENT = {
    "enable.idempotence": True,
    "message.timeout.ms": 0,  # never given up
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "socket.timeout.ms": 10_000,
}


class Sender:
    """A librdkafka producer. Record n of it goes to partition n modulo ``partitions``."""

    def __init__(
        self, number: int, bootstrap: str, topic: str, partitions: int, config: Mapping[str, Any], size: int = 40
    ) -> None:
        self.number, self.topic, self.partitions, self.size = number, topic, partitions, size
        self.sent = 0
        self.acked: list[Acked] = []
        self.errors: list[str] = []
        self.producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "error_cb": self._error, "log_level": 0, **config}
        )

    def _error(self, error: KafkaError) -> None:
        if error.fatal():
            self.errors.append(str(error))

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        who = unpacked(message.value())
        assert who is not None
        if error is not None:
            self.errors.append(f"{who[1]}: {error}")
            return
        offset = message.offset()
        place = -1 if offset is None or offset < 0 else offset
        self.acked.append(Acked(who[0], who[1], message.topic(), message.partition(), place))

    def send(self) -> None:
        """One more record; waits while the queue is full."""
        partition = self.sent % self.partitions
        value = payload(self.number, self.sent, self.topic, partition, self.size)
        while True:
            try:
                self.producer.produce(self.topic, value, partition=partition, on_delivery=self._delivered)
                break
            except BufferError:
                self.producer.poll(0.05)
        self.sent += 1
        if self.sent % 100 == 0:
            self.producer.poll(0)

    def finish(self, timeout: float) -> None:
        """Until all is acknowledged."""
        left = self.producer.flush(timeout)
        if left:
            self.errors.append(f"{left} records were not acknowledged in {timeout:g} s")


QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"


class JavaSender:
    """The same with the Java client, in a process of its own that paces itself."""

    ACK = struct.Struct(">qiq")

    def __init__(
        self,
        number: int,
        bootstrap: str,
        topic: str,
        partitions: int,
        share: int,
        seconds: float,
        codec: str,
        in_flight: int,
    ) -> None:
        self.number, self.topic, self.sent = number, topic, 0
        self.acked: list[Acked] = []
        self.errors: list[str] = []
        self.directory = tempfile.TemporaryDirectory()
        self.file = Path(self.directory.name) / "acks"
        words = (bootstrap, topic, partitions, number, share, seconds, codec, self.file, in_flight)
        command = java_command("tests/chain/java/Sender.java", *map(str, words), heap="256m", jvm=[QUIET])
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.first = self.process.stdout.readline().strip()  # it takes a while to compile

    def finish(self, timeout: float) -> None:
        """Until all is acknowledged."""
        try:
            said, _ = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            said, _ = self.process.communicate()
            self.errors.append(f"the Java producer did not end in {timeout:g} s")
        lines = [self.first, *said.splitlines()]
        if lines[0] != "sending" or len(lines) < 2 or not lines[1].startswith("sent ") or self.process.returncode:
            self.errors.append(f"the Java producer said {lines[:3]} and ended with {self.process.returncode}")
        else:
            self.sent = int(lines[1].split()[1])
            self.errors += lines[2:]
        if self.file.exists():
            for sequence, partition, offset in self.ACK.iter_unpack(self.file.read_bytes()):
                self.acked.append(Acked(self.number, sequence, self.topic, partition, offset))
        self.directory.cleanup()


#: what a new client gets while a partition has no leader, or its broker does not know it yet
_NO_LEADER_YET = (
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
)


def _log_end(consumer: Consumer, partition: TopicPartition, until: float) -> int:
    """The offset after the last record; waits for the partition's leader."""
    while True:
        try:
            ends: tuple[int, int] = consumer.get_watermark_offsets(partition, 20)
            return ends[1]
        except KafkaException as error:
            if error.args[0].code() not in _NO_LEADER_YET or time.monotonic() > until:
                raise
            time.sleep(0.2)


def read_all(bootstrap: str, topic: str, partitions: int) -> list[Stored]:
    """Every record there is, checksums checked."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "read-all",
            "enable.auto.commit": False,
            "check.crcs": True,
            "isolation.level": "read_uncommitted",
            "log_level": 0,
        }
    )
    try:
        until = time.monotonic() + 120
        ends = {p: _log_end(consumer, TopicPartition(topic, p), until) for p in range(partitions)}
        consumer.assign([TopicPartition(topic, p, 0) for p in ends])
        at = dict.fromkeys(ends, 0)
        read: list[Stored] = []
        while any(at[p] < end for p, end in ends.items()):
            assert time.monotonic() < until, f"the log cannot be read: at {at} of {ends}"
            for message in consumer.consume(10_000, 0.5):
                assert message.error() is None, message.error()
                offset, partition = message.offset(), message.partition()
                assert offset is not None
                assert partition is not None
                at[partition] = offset + 1
                read.append(Stored(topic, partition, offset, message.value() or b""))
        return read
    finally:
        consumer.close()


@dataclass
class Chase:
    """What came of a run."""

    acked: list[Acked]
    sent: dict[int, int]
    errors: list[str]
    gate_kills: int = 0
    broker_kills: int = 0
    seconds: float = 0.0


def chase(
    broker: KafkaBroker,
    gate: GateProcess,
    *,
    topic: str,
    partitions: int,
    producers: int,
    records: int,
    kills: str,
    pause_s: tuple[float, float],
    seed: int,
    java: int = 0,
    say: Callable[[str], None] = lambda _: None,
) -> Chase:
    """Producers send until all ``kills`` have been and ``records`` are out; ``java`` more of them are Java's.

    g: the gate is killed, b: the broker, x: both at once, s: the gate stops for a second
    """
    rng = random.Random(seed)
    codecs = ["none", "zstd", "lz4", "snappy", "gzip"]
    senders = [
        Sender(n, gate.bootstrap, topic, partitions, {**IDEMPOTENT, "linger.ms": 2, "compression.type": codecs[n % 5]})
        for n in range(producers)
    ]
    over = threading.Event()
    share = -(-records // (producers + java))
    expected_s = max(1.0, len(kills) * sum(pause_s) / 2)
    # A broker that was killed knows of each producer its last batch alone (Kafka 4.4.0). One before it that comes again
    # is out of order to it; Java's client then raises its epoch and sends all again, what was stored too.
    in_flight = 1 if set(kills) & set("bx") else 5
    virtual = [
        JavaSender(producers + n, gate.bootstrap, topic, partitions, share, expected_s, codecs[(n + 1) % 5], in_flight)
        for n in range(java)
    ]

    def send(sender: Sender) -> None:
        started = time.monotonic()
        while not (over.is_set() and sender.sent >= share):
            for _ in range(50):
                sender.send()
            # spread over the run, so that every kill has something under way to hit
            ahead = sender.sent / share * expected_s - (time.monotonic() - started)
            if not over.is_set():
                time.sleep(min(max(ahead, 0.001), 0.05))
        sender.finish(180)

    threads = [threading.Thread(target=send, args=(sender,), daemon=True) for sender in senders]
    started = time.monotonic()
    result = Chase([], {}, [])
    for thread in threads:
        thread.start()
    for kill in kills:
        time.sleep(rng.uniform(*pause_s))
        before = sum(len(sender.acked) for sender in senders)
        if kill in "gx":
            gate.kill()
            result.gate_kills += 1
        if kill in "bx":
            broker.kill()
            broker.start()
            result.broker_kills += 1
        if kill in "gx":
            gate.start()
        elif kill == "s":
            gate.signal(signal.SIGSTOP)
            time.sleep(1.0)
            gate.signal(signal.SIGCONT)
        until = time.monotonic() + 60
        while sum(len(sender.acked) for sender in senders) == before and time.monotonic() < until:
            time.sleep(0.02)  # the next one hits a run that goes on
        say(f"{kill}: {before} acknowledged after {time.monotonic() - started:.1f} s")
    over.set()
    for thread in threads:
        thread.join(200)
        if thread.is_alive():
            result.errors.append("a producer did not end")
    for one in virtual:
        one.finish(200)
    for sender in (*senders, *virtual):
        result.acked += sender.acked
        result.errors += sender.errors
        result.sent[sender.number] = sender.sent
    result.seconds = time.monotonic() - started
    return result

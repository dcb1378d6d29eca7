"""Producers that note what they were told, a reader of whole logs, and a run in which gate and broker are killed."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.chain.checker import Acked, Stored, payload, unpacked
from tests.interop.kafka_broker import KafkaBroker
from tests.support.gate_process import GateProcess

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
        self.acked.append(Acked(*who, message.topic(), message.partition(), place))

    def send(self) -> None:
        """One more record; waits while the queue is full."""
        value = payload(self.number, self.sent, self.size)
        while True:
            try:
                self.producer.produce(
                    self.topic, value, partition=self.sent % self.partitions, on_delivery=self._delivered
                )
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
        ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), 20)[1] for p in range(partitions)}
        consumer.assign([TopicPartition(topic, p, 0) for p in ends])
        at = dict.fromkeys(ends, 0)
        read: list[Stored] = []
        until = time.monotonic() + 120
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
    refused: list[str] = field(default_factory=list)


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
    say: Callable[[str], None] = lambda _: None,
) -> Chase:
    """Producers send until all ``kills`` (g: the gate, b: the broker, s: the gate stops for a second) have been and
    ``records`` are out.
    """
    rng = random.Random(seed)
    codecs = ["none", "zstd", "lz4", "snappy", "gzip"]
    senders = [
        Sender(n, gate.bootstrap, topic, partitions, {**IDEMPOTENT, "linger.ms": 2, "compression.type": codecs[n % 5]})
        for n in range(producers)
    ]
    over = threading.Event()
    share = -(-records // producers)

    def send(sender: Sender) -> None:
        expected_s = max(1.0, len(kills) * sum(pause_s) / 2)
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
        if kill == "g":
            gate.kill()
            gate.start()
            result.gate_kills += 1
        elif kill == "b":
            broker.kill()
            broker.start()
            result.broker_kills += 1
        until = time.monotonic() + 60
        while sum(len(sender.acked) for sender in senders) == before and time.monotonic() < until:
            time.sleep(0.02)  # the next one hits a run that goes on
        say(f"{kill}: {before} acknowledged after {time.monotonic() - started:.1f} s")
    over.set()
    for thread in threads:
        thread.join(200)
        if thread.is_alive():
            result.errors.append("a producer did not end")
    for sender in senders:
        result.acked += sender.acked
        result.errors += sender.errors
        result.sent[sender.number] = sender.sent
    result.seconds = time.monotonic() - started
    return result

"""Producers that note each acknowledgement and each transaction, and a reader of whole logs."""

from __future__ import annotations

import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.support.record_checker import Acked, Stored, Transaction, payload, unpacked
from tests.support.topics import log_end
from tests.system.interop.kafka_broker import java_command

IDEMPOTENT = {
    "enable.idempotence": True,
    "message.timeout.ms": 0,  # retries do not end
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "socket.timeout.ms": 10_000,
}


class Sender:
    """A librdkafka producer. Record n of it goes to partition n modulo ``partitions``."""

    def __init__(
        self,
        number: int,
        bootstrap: str,
        topic: str,
        partitions: int,
        config: Mapping[str, Any],
        size: int = 40,
    ) -> None:
        self.number, self.topic, self.partitions, self.size = number, topic, partitions, size
        self.sent = 0
        self.acked: list[Acked] = []
        self.errors: list[str] = []
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "error_cb": self._error,
                "log_level": 0,
                **config,
            }
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
        """Send one more record; wait while the queue is full."""
        partition = self.sent % self.partitions
        value = payload(self.number, self.sent, self.topic, partition, self.size)
        while True:
            try:
                self.producer.produce(
                    self.topic, value, partition=partition, on_delivery=self._delivered
                )
                break
            except BufferError:
                self.producer.poll(0.05)
        self.sent += 1
        if self.sent % 100 == 0:
            self.producer.poll(0)

    def finish(self, timeout: float) -> None:
        """Wait until all records are acknowledged."""
        left = self.producer.flush(timeout)
        if left:
            self.errors.append(f"{left} records were not acknowledged in {timeout:g} s")


#: An abort after every so many transactions.
ABORTS = 7
TRANSACTIONAL = IDEMPOTENT | {"message.timeout.ms": 300_000, "transaction.timeout.ms": 600_000}


class TransactionalSender(Sender):
    """A librdkafka producer whose records come in transactions of ``each``; every seventh aborts.

    A record counts as acknowledged when its transaction has committed. A transaction that an error
    ends is aborted, and the next one has new sequences. Where the producer itself is at its end
    before the answer to a commit, its outcome is unknown, and another producer goes on.
    """

    def __init__(
        self,
        number: int,
        bootstrap: str,
        topic: str,
        partitions: int,
        config: Mapping[str, Any],
        each: int = 50,
    ) -> None:
        config = {"transactional.id": f"{topic}-{number}", **config}
        super().__init__(number, bootstrap, topic, partitions, config)
        self.config = {"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0, **config}
        self.each = each
        self.transactions: list[Transaction] = []
        self.delivered: list[Acked] = []
        self.failed: KafkaError | None = None
        self._until_done(self.producer.init_transactions)

    def _error(self, error: KafkaError) -> None:
        """Note a fatal error, which ends this producer: `_replace` goes on with another."""

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        who = unpacked(message.value())
        assert who is not None
        if error is None:
            offset = message.offset()
            self.delivered.append(
                Acked(
                    who[0],
                    who[1],
                    message.topic(),
                    message.partition(),
                    -1 if offset is None else offset,
                )
            )

    def transact(self) -> None:
        """Send one transaction, and note its outcome."""
        first, self.delivered = self.sent, []
        aborts = (first // self.each) % ABORTS == ABORTS - 1
        try:
            self.producer.begin_transaction()
            for _ in range(self.each):
                self.send()
            outcome = self._abort() if aborts else self._commit()
        except KafkaException as error:
            outcome = self._abort() if not error.args[0].fatal() else self._replace("aborted")
        self.transactions.append(Transaction(self.number, first, self.sent, outcome))
        if outcome == "committed":
            self.acked += self.delivered
            if len(self.delivered) != self.sent - first:
                self.errors.append(
                    f"{first}: committed, and {len(self.delivered)} records were acknowledged"
                )

    def _commit(self) -> str:
        try:
            self._until_done(self.producer.commit_transaction)
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                return self._abort()
            return self._replace("unknown")
        return "committed"

    def _abort(self) -> str:
        try:
            self._until_done(self.producer.abort_transaction)
        except KafkaException:
            return self._replace("aborted")
        return "aborted"

    def _replace(self, outcome: str) -> str:
        """Go on with a new producer of the same transactional id, which ends what is open."""
        self.producer = Producer(self.config)
        self._until_done(self.producer.init_transactions)
        return outcome

    @staticmethod
    def _until_done(action: Any) -> None:
        """Call until it succeeds. Raises KafkaException where another call is of no use."""
        until = time.monotonic() + 300
        while True:
            try:
                action(10.0)
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > until:
                    raise

    def finish(self, timeout: float) -> None:
        """Do nothing: every transaction has an outcome already."""


QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"


class JavaSender:
    """The same with a Java client, in a process of its own that paces itself.

    ``profile``  the release, as `java_command` has it; "broker" is that of the broker
    """

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
        *,
        profile: str = "broker",
        timeout_ms: int = 10_000,
    ) -> None:
        self.number, self.topic, self.sent = number, topic, 0
        self.acked: list[Acked] = []
        self.errors: list[str] = []
        self.directory = tempfile.TemporaryDirectory()
        self.file = Path(self.directory.name) / "acks"
        words = (
            bootstrap,
            topic,
            partitions,
            number,
            share,
            seconds,
            codec,
            self.file,
            in_flight,
            timeout_ms,
        )
        program = "tests/system/chain/java/Sender.java"
        command = java_command(program, *map(str, words), profile=profile, heap="256m", jvm=[QUIET])
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.first = ""

    def await_first(self) -> None:
        """Wait for the first acknowledgement: the program takes a while to compile."""
        assert self.process.stdout is not None
        self.first = self.process.stdout.readline().strip()

    def acknowledged(self) -> int:
        """Return how many acknowledgements it has noted so far."""
        return self.file.stat().st_size // self.ACK.size if self.file.exists() else 0

    def finish(self, timeout: float) -> None:
        """Wait until all records are acknowledged."""
        try:
            printed, _ = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            printed, _ = self.process.communicate()
            self.errors.append(f"the Java producer did not end in {timeout:g} s")
        lines = [self.first, *printed.splitlines()]
        if (
            lines[0] != "sending"
            or len(lines) < 2
            or not lines[1].startswith("sent ")
            or self.process.returncode
        ):
            self.errors.append(
                f"the Java producer printed {lines[:3]} and ended with {self.process.returncode}"
            )
        else:
            self.sent = int(lines[1].split()[1])
            self.errors += lines[2:]
        if self.file.exists():
            for sequence, partition, offset in self.ACK.iter_unpack(self.file.read_bytes()):
                self.acked.append(Acked(self.number, sequence, self.topic, partition, offset))
        self.directory.cleanup()


def read_all(
    bootstrap: str, topic: str, partitions: int, *, committed: bool = False
) -> list[Stored]:
    """Return every record, or every one of a committed transaction; checksums are checked."""
    return list(read(bootstrap, topic, partitions, committed=committed))


def read(
    bootstrap: str, topic: str, partitions: int, *, committed: bool = False
) -> Iterator[Stored]:
    """Yield the same, partition by partition in the order of offsets."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "read-all",
            "enable.auto.commit": False,
            "check.crcs": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    try:
        until = time.monotonic() + 120
        ends = {p: log_end(bootstrap, TopicPartition(topic, p), until) for p in range(partitions)}
        consumer.assign([TopicPartition(topic, p, 0) for p in ends])
        left = {p for p, end in ends.items() if end}
        while left:
            # a committed reader also passes markers and aborted records, which it never shows
            for message in consumer.consume(10_000, 0.5):
                error, partition, offset = message.error(), message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    if offset >= ends[partition]:
                        left.discard(partition)
                    continue
                until = time.monotonic() + 120
                yield Stored(topic, partition, offset, message.value() or b"")
            assert time.monotonic() < until, f"the log cannot be read: {left} of {ends} are left"
    finally:
        consumer.close()

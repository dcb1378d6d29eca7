"""Audits and checks next to a live broker: a healthy cluster has no finding, whatever it does.

    python -m tests.system.at_rest.soak --minutes 30 [--spark] [--seed N]

A broker with small segments writes, rolls, cleans, deletes, preallocates and ends transactions all
the time. Meanwhile its data folder is audited and checked again and again, with splits of several
sizes. Every run must end with exit code 0 and without a finding; notes are counted. At the end the
broker stops, and one more audit and check must be clean as well.

Prints a line for each kind of run. Exits with 1 where a run was not clean, 2 where the broker did
too little for the soak to mean anything.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.system.interop.kafka_broker import KafkaBroker

ROOT = Path(__file__).resolve().parents[3]
BROKER = {
    "log.segment.bytes": 1 << 20,
    "log.retention.check.interval.ms": 1000,
    "log.initial.task.delay.ms": 500,
    "log.segment.delete.delay.ms": 1000,
    "log.flush.offset.checkpoint.interval.ms": 2000,
    "log.flush.start.offset.checkpoint.interval.ms": 2000,
    "log.cleaner.backoff.ms": 500,
    "log.cleaner.dedupe.buffer.size": 4 << 20,
    "log.index.size.max.bytes": 1 << 20,
    "internal.segment.bytes": 1 << 20,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "auto.create.topics.enable": "false",
}
SMALL = {"internal.segment.bytes": "60000", "segment.ms": "4000", "index.interval.bytes": "512"}
TOPICS: dict[str, dict[str, str]] = {
    "plain": {**SMALL, "retention.bytes": "400000", "file.delete.delay.ms": "500"},
    "timed": {**SMALL, "retention.ms": "6000", "message.timestamp.type": "LogAppendTime"},
    "compacted": {
        **SMALL,
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "max.compaction.lag.ms": "3000",
        "delete.retention.ms": "1000",
        "file.delete.delay.ms": "500",
    },
    "both": {
        **SMALL,
        "cleanup.policy": "compact,delete",
        "min.cleanable.dirty.ratio": "0.01",
        "retention.ms": "9000",
    },
    "preallocated": {**SMALL, "preallocate": "true", "retention.bytes": "300000"},
    "transactions": {**SMALL, "retention.bytes": "600000"},
    "cleaned-transactions": {
        **SMALL,
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
    },
}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 2


@dataclass
class Result:
    """What came of it. ``seen``: what the broker did to its files, by kind."""

    runs: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    moved: int = 0
    records: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


class Threads:
    """Threads that run until a block ends; they look at ``_over``."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


class Producers(Threads):
    """Threads that write to all topics until they are stopped."""

    def __init__(self, bootstrap: str, result: Result, seed: int) -> None:
        super().__init__(bootstrap)
        self._result = result
        self._seed = seed
        self._threads = [
            threading.Thread(target=self._write, args=(topic, n)) for n, topic in enumerate(TOPICS)
        ]
        self._threads += [
            threading.Thread(target=self._manage),
            threading.Thread(target=self._consume),
        ]

    def _write(self, topic: str, n: int) -> None:
        try:
            self._produce(topic, n)
        except KafkaException:  # a busy machine: the others go on
            self._result.seen["producers ended"] += 1

    def _produce(self, topic: str, n: int) -> None:
        chance = random.Random(self._seed + n)
        in_transactions = "transactions" in topic
        config: dict[str, Any] = {
            "bootstrap.servers": self._bootstrap,
            "compression.type": CODECS[n % len(CODECS)],
            "enable.idempotence": n % 2 == 0 or in_transactions,
            "linger.ms": 20,
            "batch.num.messages": 50,
        }
        if in_transactions:
            config["transactional.id"] = f"soak-{topic}"
        producer = Producer(config)
        if in_transactions:
            producer.init_transactions()
        while not self._over.is_set():
            if in_transactions:
                producer.begin_transaction()
            for _ in range(chance.randrange(1, 60)):
                key = str(chance.randrange(40)).encode() if chance.random() < 0.9 else None
                key = key or (b"x" if "compact" in str(TOPICS[topic]) else None)
                # compressible: librdkafka sends what compression does not make smaller as it is
                value = (
                    None
                    if chance.random() < 0.05 and key
                    else chance.randbytes(20) * chance.randrange(30)
                )
                producer.produce(topic, value, key, partition=chance.randrange(PARTITIONS))
                self._result.records += 1
            producer.flush()
            if in_transactions and chance.random() < 0.4:
                producer.abort_transaction()
            elif in_transactions:
                producer.commit_transaction()
            self._over.wait(chance.random() / 5)
        producer.flush()

    def _consume(self) -> None:
        """Commit offsets, so that __consumer_offsets is written and cleaned."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "soak",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["plain", "transactions"])
        while not self._over.is_set():
            if (message := consumer.poll(0.2)) is not None and message.error() is None:
                with contextlib.suppress(KafkaException):
                    consumer.commit(asynchronous=False)
        consumer.close()

    def _manage(self) -> None:
        """Create and delete topics, and delete records."""
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        n = 0
        while not self._over.wait(3):
            n += 1
            name = f"short-{n}"
            settle(admin.create_topics([NewTopic(name, 1, 1)]))
            producer = Producer({"bootstrap.servers": self._bootstrap})
            producer.produce(name, b"x" * 100)
            producer.flush(10)
            if n > 1:
                settle(admin.delete_topics([f"short-{n - 1}"]))
            with contextlib.suppress(KafkaException):
                settle(admin.delete_records([TopicPartition("plain", 0, 20 * n)]))


def settle(futures: Any) -> None:
    """Wait for the answers of an admin client."""
    for future in futures.values():
        try:
            future.result(20)
        except KafkaException as error:
            if error.args[0].code() not in (
                KafkaError.TOPIC_ALREADY_EXISTS,
                KafkaError.OFFSET_OUT_OF_RANGE,
            ):
                raise


class Watcher:
    """Counts what happens to the files of a data folder."""

    def __init__(self, data: Path, seen: Counter[str]) -> None:
        self._data = data
        self._seen = seen
        self._files: dict[str, int] = {}

    def look(self) -> None:
        """Compare with the last look."""
        files: dict[str, int] = {}
        for folder, _, names in os.walk(self._data):
            for name in names:
                if name.endswith(".log"):
                    path = os.path.join(folder, name)
                    with contextlib.suppress(OSError):
                        files[path] = os.stat(path).st_ino
        self._seen["new segments"] += len(files.keys() - self._files.keys())
        self._seen["deleted segments"] += len(self._files.keys() - files.keys())
        both = files.keys() & self._files.keys()
        self._seen["replaced segments"] += sum(files[path] != self._files[path] for path in both)
        self._files = files


def one_run(data: Path, words: Sequence[str], result: Result) -> None:
    """Audit or check a folder once."""
    done = subprocess.run(
        [sys.executable, "-m", "batchval", *words, "--json", str(data)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    kind = "audit --since" if "--since" in words else " ".join(words[:3:2])
    result.runs[kind] += 1
    for line in lines:
        if line["type"] == "note":
            result.notes[f"{line['rule']} {line['slug']}"] += 1
        elif line["type"] == "summary":
            result.moved += line["moved"]
            result.seen["segments not read again"] += line.get("skipped", 0)
            result.seen["segments that grew"] += line.get("grown", 0)
            result.seen["segments read again"] += line.get("reread", 0)
    if done.returncode or any(line["type"] == "finding" for line in lines):
        what = [line for line in lines if line["type"] == "finding"]
        shown = f"{json.dumps(what[:3])} {done.stderr[-500:]}"
        result.failures.append(f"exit {done.returncode} of {' '.join(words)}: {shown}")


def ways(chance: random.Random, spark: bool, outs: list[Path]) -> Iterator[list[str]]:
    """Yield the command lines of one round.

    ``outs``: folders of audits that go on from each other.
    """
    split = chance.choice(("4k", "100k", "256m"))
    yield ["audit", "--engine", "local", "--split-bytes", split, "--processes", "1", "--deep"]
    yield ["check"]
    outs.append(outs[-1].with_name(str(len(outs))))
    since = ["--since", str(outs[-2]), "--reread", "1m"] if len(outs) > 2 else []
    yield ["audit", "--engine", "local", "--rows", "bad", "--out", str(outs[-1]), *since]
    if spark:
        yield ["audit", "--engine", "spark", "--master", "local[1]", "--split-bytes", split]


def soak(seconds: float, *, spark: bool = False, seed: int = 1) -> Result:
    """Run a broker and audits of it for so long."""
    result, chance = Result(), random.Random(seed)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-")))
        broker = stack.enter_context(KafkaBroker(config=BROKER, heap="400m"))
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        settle(
            admin.create_topics(
                [NewTopic(name, PARTITIONS, 1, config=more) for name, more in TOPICS.items()]
            )
        )
        outs = [folder / "0"]
        watcher = Watcher(broker.data, result.seen)
        with Producers(broker.bootstrap, result, seed):
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                for words in ways(chance, spark, outs):
                    watcher.look()
                    one_run(broker.data, words, result)
        broker.stop()
        for words in ways(chance, False, outs):
            one_run(broker.data, words, result)
    return result


def enough(seen: Counter[str]) -> bool:
    """Return whether the broker did what a soak is about."""
    return all(
        seen[kind] >= 5 for kind in ("new segments", "deleted segments", "replaced segments")
    )


def main() -> int:
    """Run the soak and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30, help="How long. Default: 30.")
    parser.add_argument("--spark", action="store_true", help="Audits by Spark as well.")
    parser.add_argument("--seed", type=int, default=1, help="Random seed.")
    asked = parser.parse_args()
    result = soak(asked.minutes * 60, spark=asked.spark, seed=asked.seed)
    print(
        f"{result.records:,} records; {dict(result.seen)}; {result.moved:,} segments moved during a run"
    )
    print(f"runs: {dict(result.runs)}; notes: {dict(result.notes)}")
    print(*result.failures, sep="\n")
    if not enough(result.seen):
        return 2
    return 1 if result.failures else 0


if __name__ == "__main__":
    sys.exit(main())

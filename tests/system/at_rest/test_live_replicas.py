"""Replicas that three real brokers write, clean and delete: no finding until a byte is changed."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from batchval.core.batches.batch import batches
from batchval.core.batches.columns import scan_batches
from tests.support.batches import with_crc
from tests.support.fixtures import needs_kafka
from tests.support.processes import until
from tests.system.at_rest.soak import Threads, Watcher, settle
from tests.system.interop.kafka_broker import KafkaBroker, brokers

pytestmark = [pytest.mark.jvm, pytest.mark.alone, pytest.mark.long]

ROOT = Path(__file__).resolve().parents[3]
BROKER = {
    "log.retention.check.interval.ms": 1000,
    "log.initial.task.delay.ms": 500,
    "log.flush.offset.checkpoint.interval.ms": 1000,
    "log.flush.start.offset.checkpoint.interval.ms": 1000,
    "replica.high.watermark.checkpoint.interval.ms": 500,
    "replica.lag.time.max.ms": 2000,
    "log.cleaner.backoff.ms": 500,
    "log.index.size.max.bytes": 1 << 20,
    "auto.create.topics.enable": "false",
}
SMALL = {
    "internal.segment.bytes": "100000",
    "index.interval.bytes": "512",
    "file.delete.delay.ms": "300",
}
TOPICS = {
    "kept": SMALL,
    "short": {**SMALL, "retention.bytes": "600000"},
    "keyed": {
        **SMALL,
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "500",
    },
}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
#: replicas of the partitions; the first leads
ASSIGNED = [[2, 3, 1], [3, 1, 2]]
SECONDS = 12


class Writers(Threads):
    """Threads that write to all topics with each codec until they are stopped."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._threads = [
            threading.Thread(target=self._write, args=(n,)) for n in range(len(CODECS))
        ]

    def _write(self, n: int) -> None:
        chance = random.Random(n)
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "compression.type": CODECS[n],
                "enable.idempotence": n % 2 == 0,
                "linger.ms": 10,
                "batch.num.messages": 40,
                "log_level": 0,
            }
        )
        while not self._over.wait(0.05):
            for _ in range(60):
                topic = chance.choice(list(TOPICS))
                value = (
                    None if chance.random() < 0.1 else chance.randbytes(20) * chance.randrange(20)
                )
                producer.produce(
                    topic,
                    value,
                    b"%d" % chance.randrange(50),
                    partition=chance.randrange(len(ASSIGNED)),
                )
            producer.poll(0)
        producer.flush(30)


def write_last(bootstrap: str, cluster: Cluster) -> None:
    """Write batches that no cleaner and no retention removes, and wait for all replicas."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "compression.type": "none", "log_level": 0}
    )
    value = b"the last of its log"
    for topic in TOPICS:
        producer.produce(topic, value, b"last", partition=0)
    assert producer.flush(60) == 0

    def all_have_it() -> bool:
        nodes = range(len(cluster.nodes))
        return all(
            value in cluster.logs(node, topic)[-1].read_bytes()
            for node in nodes
            for topic in TOPICS
        )

    until("all replicas have it", all_have_it)


def compare(nodes: Sequence[KafkaBroker], *words: str) -> list[dict[str, Any]]:
    """Return all findings and notes."""
    named = [f"b{n}={node.data}" for n, node in enumerate(nodes, 1)]
    command = [sys.executable, "-m", "batchval", *words, "--replicas", "--json", *named]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    found = [line for line in lines if line["type"] != "summary"]
    assert done.returncode == any(line["type"] == "finding" for line in found)
    return found


AUDIT = ("audit", "--engine", "local", "--processes", "1")
CHECK = ("check",)


@dataclass
class Cluster:
    """Three brokers that have stopped, and what was seen while they ran."""

    nodes: list[KafkaBroker]
    seen: Counter[str] = field(default_factory=Counter)
    runs: int = 0
    live: list[dict[str, Any]] = field(default_factory=list)

    def logs(self, node: int, topic: str) -> list[Path]:
        return sorted((self.nodes[node].data / f"{topic}-0").glob("*.log"))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Run the brokers, compare their logs meanwhile, and stop them."""
    needs_kafka()
    with brokers(3, config=BROKER, heap="256m") as nodes, ThreadPoolExecutor(1) as pool:
        found = Cluster(nodes)
        bootstrap = ",".join(node.bootstrap for node in nodes)
        topics = [
            NewTopic(name, len(ASSIGNED), replica_assignment=ASSIGNED, config=more)
            for name, more in TOPICS.items()
        ]
        admin = AdminClient({"bootstrap.servers": bootstrap})
        settle(admin.create_topics(topics))
        watchers = [Watcher(node.data, found.seen) for node in nodes]
        with Writers(bootstrap):
            restarted = pool.submit(time.sleep, 0)
            end = time.monotonic() + SECONDS
            while time.monotonic() < end or not restarted.done():
                for words in (AUDIT, CHECK):
                    for watcher in watchers:
                        watcher.look()
                    found.live += compare(nodes, *words)
                    found.runs += 1
                if found.runs == 2:
                    restarted = pool.submit(nodes[1].restart)
            restarted.result()
        write_last(bootstrap, found)
        for node in reversed(nodes):
            node.stop()
        yield found


def test_a_live_cluster_has_no_finding(cluster: Cluster) -> None:
    assert [line for line in cluster.live if line["type"] == "finding"] == []
    assert cluster.runs >= 4
    for kind in ("new segments", "deleted segments", "replaced segments"):
        assert cluster.seen[kind] >= 3, cluster.seen


@pytest.mark.parametrize("words", [AUDIT, CHECK], ids=["audit", "check"])
def test_a_stopped_cluster_has_no_finding(cluster: Cluster, words: Sequence[str]) -> None:
    lines = compare(cluster.nodes, *words)
    assert [line for line in lines if line["type"] == "finding" or line["rule"] == "L17"] == []


def test_the_brokers_did_what_this_is_about(cluster: Cluster) -> None:
    """Check that leaders changed, all codecs are there, and the cleaner was at work."""
    data = b"".join(path.read_bytes() for path in cluster.logs(0, "kept"))
    columns = scan_batches(data)
    assert len(set(columns["partition_leader_epoch"].tolist())) > 1
    assert len(set(columns["compression_type"].tolist())) > 2
    checkpoint = (cluster.nodes[0].data / "cleaner-offset-checkpoint").read_text()
    assert "keyed 0 " in checkpoint


@pytest.mark.parametrize(("topic", "words"), [("kept", AUDIT), ("short", CHECK), ("keyed", AUDIT)])
def test_one_changed_batch_is_one_finding(
    cluster: Cluster, topic: str, words: Sequence[str]
) -> None:
    """Check that the majority contradicts the third replica."""
    path, position, offset = changed(cluster, topic)
    before = path.read_bytes()
    try:
        path.write_bytes(patched(before, position))
        (one,) = [line for line in compare(cluster.nodes, *words) if line["type"] == "finding"]
        assert (one["rule"], one["broker"], one["follows"]) == ("L17", "b3", 0)
        assert (Path(one["file"]), one["position"], one["offset"]) == (path, position, offset)
    finally:
        path.write_bytes(before)


def changed(cluster: Cluster, topic: str) -> tuple[Path, int, int]:
    """Return a batch of the third replica whose last record has a value and is on all replicas."""
    held = [
        {offset for path in cluster.logs(node, topic) for offset in offsets(path)}
        for node in (0, 1)
    ]
    both = set.intersection(*held)
    for path in cluster.logs(2, topic):
        position = 0
        for one in batches(path.read_bytes()):
            last = None if one.compression_type else [None, *one.records()][-1]
            if last is not None and last.value and last.offset in both:
                return path, position, one.base_offset
            position += one.size_in_bytes
    raise AssertionError(f"no such batch of {topic}")


def offsets(path: Path) -> Iterator[int]:
    for one in batches(path.read_bytes()):
        yield from (record.offset for record in one.records())


def patched(data: bytes, position: int) -> bytes:
    """Return a log with another last byte in the last value of one batch, and its checksum."""
    size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    one = data[position : position + size]
    one = with_crc(one[:-2] + bytes([one[-2] ^ 1]) + one[-1:])
    return data[:position] + one + data[position + size :]

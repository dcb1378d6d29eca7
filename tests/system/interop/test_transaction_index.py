"""Transactions of logs that a real broker wrote, compared with its .txnindex files and offsets."""

from __future__ import annotations

import json
import random
import struct
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from batchval.core.batches.columns import scan_batches
from batchval.segment.index import check_transaction_index
from batchval.segment.transactions import Transactions, marker_kinds
from tests.support.fixtures import running_kafka
from tests.support.processes import until
from tests.support.topics import stable_offset
from tests.system.interop.kafka_broker import KafkaBroker, java_command

_ENTRY = struct.Struct(">hqqqq")  # version, producer id, first, last and last stable offset
MIN_SEGMENT_BYTES = 1 << 20
PATIENCE = 90  # seconds

Entry = tuple[int, int, int, int]


class Writer:
    """Transactional producers of one partition."""

    def __init__(self, broker: KafkaBroker, topic: str, producers: int) -> None:
        self.broker, self.topic = broker, topic
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        self.plain = confluent_kafka.Producer(self._config())
        self.producers = []
        for i in range(producers):
            config = self._config() | {"transactional.id": f"{topic}-{i}"}
            self.producers.append(confluent_kafka.Producer(config))
            self.producers[-1].init_transactions(PATIENCE)

    def _config(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.broker.bootstrap, "linger.ms": 0, "log_level": 0}

    def create(self, config: dict[str, str], replicas: int = 1) -> None:
        topic = NewTopic(self.topic, 1, replicas, config=config)
        for done in self.admin.create_topics([topic]).values():
            done.result(PATIENCE)

    def write(self, producer: Any, value: bytes, key: bytes | None = None) -> int:
        """Return the offset."""
        found: list[Any] = []

        def delivered(error: Any, message: Any) -> None:
            found.append((error, message))

        producer.produce(self.topic, value, key, partition=0, on_delivery=delivered)
        assert producer.flush(PATIENCE) == 0
        ((error, message),) = found
        assert error is None
        return int(message.offset())

    def stable_offset(self) -> int:
        return stable_offset(self.admin, self.topic)

    def aborted_before_another(self) -> None:
        """Abort a transaction while no other is open, and later commit another producer's.

        The leader's entry has the offset after the marker as last stable offset. A follower that
        appends both at once has the first offset of the later transaction, which a plain record
        keeps apart from the marker.
        """
        first, second = self.producers[:2]
        first.begin_transaction()
        offset = self.write(first, b"aborted")
        first.abort_transaction(PATIENCE)
        until("the marker is written", lambda: self.stable_offset() == offset + 2, PATIENCE)
        self.write(self.plain, b"between")
        second.begin_transaction()
        self.write(second, b"later")
        second.commit_transaction(PATIENCE)

    def interleaved(self, rounds: int, size: int) -> int:
        """Commit and abort at random, leave a transaction open. Return the open one's offset."""
        rng = random.Random(3)
        open_now: set[int] = set()
        for _ in range(rounds):
            i = rng.randrange(len(self.producers))
            producer = self.producers[i]
            if i in open_now and rng.random() < 0.45:
                open_now.discard(i)
                if rng.random() < 0.6:
                    producer.abort_transaction(PATIENCE)
                else:
                    producer.commit_transaction(PATIENCE)
                continue
            if i not in open_now:
                producer.begin_transaction()
                open_now.add(i)
            self.write(producer, rng.randbytes(rng.randrange(1, size)), b"%d" % rng.randrange(9))
            if rng.random() < 0.3:
                self.write(self.plain, rng.randbytes(9), b"%d" % rng.randrange(9))
        for i in sorted(open_now):
            self.producers[i].abort_transaction(PATIENCE)
        self.producers[0].begin_transaction()
        first = self.write(self.producers[0], b"open", b"open")
        self.write(self.plain, b"after it", b"plain")
        until("all markers are written", lambda: self.stable_offset() == first, PATIENCE)
        return first


def read(folder: Path) -> tuple[Transactions, dict[int, list[Entry] | None]]:
    """Read all segments of a partition, with a state for each that is joined, and the index
    files.
    """
    state, indexes = Transactions(), {}
    for path in sorted(folder.glob("*.log")):
        segment, index = int(path.stem), path.with_suffix(".txnindex")
        entries = None
        if index.exists():
            entries = [entry[1:] for entry in _ENTRY.iter_unpack(index.read_bytes())]
        indexes[segment] = entries
        data = memoryview(path.read_bytes())
        piece, columns = Transactions(), scan_batches(data)
        assert columns.end == len(data)
        piece.feed(columns, marker_kinds(columns, data), segment=segment)
        state.join(piece)
    return state, indexes


def faults(
    state: Transactions,
    indexes: dict[int, list[Entry] | None],
    *,
    is_cleaned: bool = False,
) -> list[Any]:
    return [
        fault
        for segment, entries in indexes.items()
        for fault in check_transaction_index(
            state.aborted(segment),
            entries,
            segment=segment,
            log_start=min(indexes),
            certain_from=state.certain_from,
            is_cleaned=is_cleaned,
        )
    ]


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaBroker]:
    config = {"log.cleaner.backoff.ms": 100, "log.initial.task.delay.ms": 100}
    with running_kafka(config=config) as broker:
        yield broker


@pytest.mark.jvm
def test_aborted_ranges_are_what_the_broker_indexed(kafka: KafkaBroker) -> None:
    writer = Writer(kafka, "indexed", 4)
    writer.create({"segment.bytes": str(MIN_SEGMENT_BYTES)})
    writer.aborted_before_another()
    first = writer.interleaved(rounds=180, size=80_000)
    state, indexes = read(kafka.data / "indexed-0")
    assert len(indexes) > 3
    expected = {segment: entries or [] for segment, entries in indexes.items()}
    with_data = [one for one in state.aborted() if one.first_offset >= 0]
    found = {at: [one[:4] for one in with_data if one.segment == at] for at in indexes}
    assert found == expected
    assert sum(map(len, expected.values())) > 20
    # some ended while another producer's was open, some did not, some span segments
    ranges = state.aborted()
    assert {one.last_stable_offset > one.last_offset for one in ranges} == {True, False}
    assert any(one.first_offset < one.segment for one in ranges)
    assert state.last_stable_offset == state.first_unstable_offset == first
    (left,) = state.open
    assert (left.first_offset, left.last_offset, left.is_certain) == (first, first, True)
    assert state.committed_count > 10
    assert state.aborted_count == sum(map(len, expected.values()))
    assert state.certain_from == -1
    assert faults(state, indexes) == []


@pytest.mark.jvm
@pytest.mark.long
def test_a_follower_that_catches_up_indexes_other_stable_offsets() -> None:
    """Let it append many batches at once: ``AbortedRange.next_first_offset`` follows its index."""
    with running_kafka() as leader:
        writer = Writer(leader, "copied", 4)  # its coordinator is the only broker so far
        config = leader.config | {
            "process.roles": "broker",
            "node.id": 2,
            "controller.quorum.voters": f"1@{leader.host}:{leader.controller_port}",
        }
        follower = KafkaBroker(config=config, cluster_id=leader.cluster_id)
        follower.config["listeners"] = f"PLAINTEXT://{follower.host}:{follower.port}"
        with follower:
            writer.create({}, replicas=2)
            writer.write(writer.plain, b"both have it")
            follower.stop()
            writer.aborted_before_another()
            writer.interleaved(rounds=200, size=100)
            follower.start()
            logs = [broker.data / "copied-0" / f"{0:020}.log" for broker in (leader, follower)]
            until(
                "the follower has the log",
                lambda: logs[0].read_bytes() == logs[1].read_bytes(),
                PATIENCE,
            )
            follower.stop()  # the last entries are written after the log
            copies = [read(log.parent) for log in logs]
        assert copies[0][0].aborted() == copies[1][0].aborted()
        assert copies[0][1] != copies[1][1]
        assert [faults(*copy) for copy in copies] == [[], []]


@pytest.mark.jvm
def test_open_transactions_are_those_of_kafka_s_own_tool(kafka: KafkaBroker) -> None:
    """Compare check --transactions on the live log with kafka-transactions.sh
    describe-producers.
    """
    writer = Writer(kafka, "open", 3)
    writer.create({})
    first = writer.interleaved(rounds=40, size=200)
    words = ["describe-producers", "--broker-id", "1", "--topic", "open", "--partition", "0"]
    command = java_command(
        "org.apache.kafka.tools.TransactionsCommand",
        *("--bootstrap-server", kafka.bootstrap, *words),
        profile="tools",
    )
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
    head, *lines = [line.split() for line in done.stdout.splitlines() if line.strip()]
    producers = [dict(zip(head, line, strict=True)) for line in lines]
    start = "CurrentTransactionStartOffset"
    expected = [
        (int(one["ProducerId"]), int(one["ProducerEpoch"]), int(one[start]))
        for one in producers
        if one[start] != "None"
    ]
    words = ["check", "--transactions", "--json", str(kafka.data / "open-0")]
    command = [sys.executable, "-m", "batchval", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    found = [
        (one["producer_id"], one["producer_epoch"], one["first_offset"])
        for one in rows
        if one["type"] == "transaction"
    ]
    assert found == expected == [(found[0][0], found[0][1], first)]
    (whole,) = [one for one in rows if one["type"] == "partition_transactions"]
    assert whole["last_stable_offset"] == writer.stable_offset()
    assert (whole["open"], whole["hanging"], whole["markers_without_data"]) == (1, 0, 0)
    writer.producers[0].commit_transaction(PATIENCE)


@pytest.mark.jvm
@pytest.mark.long
def test_what_the_cleaner_keeps_is_right(kafka: KafkaBroker) -> None:
    writer = Writer(kafka, "cleaned", 3)
    writer.create(
        {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            "segment.bytes": str(MIN_SEGMENT_BYTES),
            "delete.retention.ms": "0",
        }
    )
    folder = kafka.data / "cleaned-0"
    checkpoint = kafka.data / "cleaner-offset-checkpoint"

    def cleaned_to() -> int:
        lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
        offsets = [int(line.split()[2]) for line in lines if line.startswith("cleaned ")]
        return max(offsets, default=0)

    def is_above(offset: int) -> bool:
        return cleaned_to() > offset

    for _ in range(2):  # the second round removes what the first marked
        before = cleaned_to()
        writer.interleaved(rounds=120, size=80_000)
        writer.producers[0].commit_transaction(PATIENCE)
        until("another cleaning", partial(is_above, before), PATIENCE)
    kafka.stop()
    try:
        state, indexes = read(folder)
    finally:
        kafka.start()
    assert state.certain_from > 0  # the cleaner left gaps
    assert [fault for fault in faults(state, indexes) if fault.is_certain] == []
    assert [fault for fault in faults(state, indexes, is_cleaned=True) if fault.is_certain] == []
    assert [one for one in state.hanging(transaction_max_timeout_ms=0) if one.is_certain] == []

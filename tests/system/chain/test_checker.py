"""The checker finds one fault in a hundred thousand records, made in its input, and made by a proxy
on the wire.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from batchval.protocol.messages.produce import ProduceRequest
from batchval.proxy.life import listener_server
from batchval.proxy.session.session import Session
from tests.support.batches import batch, records
from tests.support.proxy import RunningProxy
from tests.support.record_checker import (
    Acked,
    Findings,
    Stored,
    Transaction,
    check,
    check_transactions,
    payload,
    unpacked,
)
from tests.support.resent_batches import Resent, last_offsets, without_copies
from tests.system.chain.senders import Sender, read_all

MANY = 100_000
PARTITIONS = 4
TOPIC = "set"


def honest() -> tuple[list[Acked], list[Stored]]:
    acked, stored = [], []
    for i in range(MANY):
        partition, offset, producer, sequence = i % 4, i // 4, i // 4 % 2, i // 8 * 4 + i % 4
        acked.append(Acked(producer, sequence, TOPIC, partition, offset))
        stored.append(
            Stored(TOPIC, partition, offset, payload(producer, sequence, TOPIC, partition))
        )
    return acked, stored


SENT = {0: MANY // 2, 1: MANY // 2}


@pytest.fixture(scope="module")
def log() -> tuple[list[Acked], list[Stored]]:
    return honest()


def test_a_sound_log_is_sound(log: tuple[list[Acked], list[Stored]]) -> None:
    acked, stored = log
    assert len({unpacked(record.value) for record in stored}) == MANY
    assert check(acked, stored, SENT).counts == {}


def test_what_was_not_acknowledged_may_be_missing_or_there_once(
    log: tuple[list[Acked], list[Stored]],
) -> None:
    acked, stored = log
    assert check(acked[:-5], stored, SENT).counts == {}
    assert check(acked[:-5], stored[:-5], SENT).counts == {}
    again = stored[-1]._replace(offset=MANY)
    assert check(acked[:-5], [*stored, again], SENT).counts == {"doubled": 1}
    astray = stored[-1]._replace(partition=(MANY - 2) % PARTITIONS, offset=MANY)
    assert check(acked[:-5], [*stored[:-1], astray], SENT).counts == {"moved": 1}


def drop(records: list[Any], i: int) -> None:
    del records[i]


def double(records: list[Any], i: int) -> None:
    records.append(records[i]._replace(offset=MANY))


def swap(records: list[Any], i: int) -> None:
    here, there = records[i], records[i + 8]
    records[i] = here._replace(value=there.value)
    records[i + 8] = there._replace(value=here.value)


def misplace(records: list[Any], i: int) -> None:
    records.append(records.pop(i)._replace(partition=PARTITIONS))


def damage(records: list[Any], i: int) -> None:
    records[i] = records[i]._replace(value=records[i].value[:-9] + b"!" * 9)


def invent(records: list[Any], i: int) -> None:
    records.append(
        records[i]._replace(offset=MANY, value=payload(0, MANY, TOPIC, records[i].partition))
    )


@pytest.mark.parametrize(
    ("fault", "kinds"),
    [
        (drop, {"lost": 1}),
        (double, {"doubled": 1}),
        (swap, {"moved": 2, "reordered": 1}),
        (misplace, {"moved": 1}),
        (damage, {"damaged": 1, "lost": 1}),
        (invent, {"unknown": 1}),
    ],
)
def test_one_fault_is_found(
    log: tuple[list[Acked], list[Stored]],
    fault: Callable[[list[Any], int], None],
    kinds: dict[str, int],
) -> None:
    acked, stored = log
    stored = list(stored)
    fault(stored, random.Random(fault.__name__).randrange(MANY - 8))
    assert check(acked, stored, SENT).counts == kinds


@pytest.mark.parametrize(
    ("outcome", "seen", "kinds"),
    [
        ("committed", {10, 11, 12}, {}),
        ("committed", {10, 12}, {"lost": 1}),
        ("committed", set(), {"lost": 1}),
        ("aborted", set(), {}),
        ("aborted", {11}, {"aborted and there": 1}),
        ("aborted", {10, 11, 12}, {"aborted and there": 1}),
        ("unknown", set(), {}),
        ("unknown", {10, 11, 12}, {}),
        ("unknown", {10, 11}, {"torn": 1}),
    ],
)
def test_the_outcome_of_a_transaction_is_compared(
    outcome: str, seen: set[int], kinds: dict[str, int]
) -> None:
    transactions = [Transaction(1, 0, 10, "committed"), Transaction(1, 10, 13, outcome)]
    log = {(1, sequence) for sequence in (*range(10), *seen)} | {
        (2, sequence) for sequence in range(20)
    }
    assert check_transactions(transactions, log).counts == kinds


# ---- batches that an old client has sent again ---------------------------------------------------


def written(*batches: tuple[int, ...]) -> tuple[list[Stored], dict[int, list[int]]]:
    """Return the records of these sequences in partition 0, and the last offset of each batch."""
    sequences = [sequence for batch in batches for sequence in batch]
    stored = [
        Stored(TOPIC, 0, offset, payload(0, sequence, TOPIC, 0))
        for offset, sequence in enumerate(sequences)
    ]
    return stored, {0: [end - 1 for end in itertools.accumulate(map(len, batches))]}


#: where sequences 0 to 5 were acknowledged, after (0, 1), (2, 3), (2, 3), (4,), (5,)
LAST_COPIES = (0, 1, 4, 5, 6, 7)


@pytest.mark.parametrize(
    ("batches", "acknowledged", "kinds", "resent"),
    [
        (((0, 1), (2, 3), (2, 3), (4,), (5,)), LAST_COPIES, {}, Resent(1, 2)),
        (((0, 1), (2, 3), (2, 3), (2, 3), (4,), (5,)), (0, 1, 6, 7, 8, 9), {}, Resent(2, 4)),
        # it was acknowledged before it was sent again
        (((0, 1), (2, 3), (2, 3), (4,), (5,)), (0, 1, 2, 3, 6, 7), {"moved": 2}, Resent(1, 2)),
        # a part of the batch, twice as many records in one, another batch in between
        (((0, 1), (2, 3), (3,), (4,), (5,)), (0, 1, 2, 3, 5, 6), {"doubled": 1}, Resent()),
        (((0, 1), (2, 3), (2, 3, 4), (5,)), (0, 1, 2, 3, 6, 7), {"doubled": 2}, Resent()),
        (((0, 1), (2, 3), (4,), (2, 3), (5,)), (0, 1, 2, 3, 4, 7), {"doubled": 2}, Resent()),
        (((0, 1), (4,), (2, 3), (5,)), (0, 1, 3, 4, 2, 5), {"reordered": 2}, Resent()),
        (((0, 1), (2, 3), (2, 3), (5,)), (0, 1, 4, 5, 7, 6), {"lost": 1}, Resent(1, 2)),
    ],
)
def test_whole_batches_may_be_there_again_that_were_not_acknowledged(
    batches: tuple[tuple[int, ...], ...],
    acknowledged: tuple[int, ...],
    kinds: dict[str, int],
    resent: Resent,
) -> None:
    stored, ends = written(*batches)
    acked = [Acked(0, sequence, TOPIC, 0, offset) for sequence, offset in enumerate(acknowledged)]
    counted = Resent()
    assert check(acked, without_copies(stored, ends, counted), {0: 6}).counts == kinds
    assert counted == resent


def test_batches_of_several_producers_may_be_between_copies() -> None:
    stored, ends = written((0, 1), (2, 3), (0, 1))
    stored[2:4] = [Stored(TOPIC, 0, offset, payload(1, offset, TOPIC, 0)) for offset in (2, 3)]
    acked = [Acked(0, 0, TOPIC, 0, 4), Acked(0, 1, TOPIC, 0, 5)]
    assert check(acked, without_copies(stored, ends, Resent()), {0: 2, 1: 4}).counts == {}


def test_the_ends_of_batches_are_read_from_segments(tmp_path: Path) -> None:
    assert list(last_offsets(tmp_path)) == []
    for base_offset, counts in ((0, (2, 3)), (5, (1,))):
        data, offset = b"", base_offset
        for count in counts:
            data += batch(records(count), base_offset=offset)
            offset += count
        (tmp_path / f"{base_offset:020}.log").write_bytes(data)
    assert list(last_offsets(tmp_path)) == [1, 4, 5]


# ---- a faulty proxy ---------------------------------------------------------------------


def rebuilt(batch: bytes, change: Callable[[list[Any]], None]) -> bytes:
    """Return the batch with changed records: magic 2, uncompressed, without a producer id."""
    records = list(DefaultRecordBatch(batch))
    change(records)
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 24)
    for i, record in enumerate(records):
        builder.append(i, record.timestamp, record.key, record.value, record.headers)
    return bytes(builder.build())


def _drop(records: list[Any]) -> None:
    del records[len(records) // 2]


def _double(records: list[Any]) -> None:
    records.insert(len(records) // 2, records[len(records) // 2])


def _swap(records: list[Any]) -> None:
    records[0], records[1] = records[1], records[0]


def faulty(change: Callable[[list[Any]], None] | None, done: list[int]) -> type[Session]:
    """Make a gate's session that changes one batch, that of record 50,000."""
    passed = 0

    class Faulty(Session):
        def _look_passages(self) -> None:
            self.connections.let_pass(requests=False, answers=False)  # each request comes here

        def _take(self, frames: list[memoryview], *, stopped: bool = False) -> None:
            nonlocal passed
            assert not stopped
            for i, frame in enumerate(frames):
                if bytes(frame[4:6]) != b"\0\0" or done:
                    continue
                header, request = ProduceRequest.parse(bytes(frame[4:]))
                for topic in request.topic_data:
                    for part in topic.partition_data:
                        count = int.from_bytes(part.records[57:61], "big")
                        passed += count
                        if change is not None and passed > MANY // 2 and count > 1 and not done:
                            done.append(count)
                            part.records = rebuilt(bytes(part.records), change)
                            whole = b"".join(
                                request.encode(header.correlation_id, header.client_id)
                            )
                            frames[i] = memoryview(bytearray(whole))  # the gate writes into it
            super()._take(frames)

    return Faulty


@pytest.mark.parametrize(
    ("change", "kind"), [(None, None), (_drop, "lost"), (_double, "doubled"), (_swap, "reordered")]
)
def test_a_proxy_that_harms_one_record_in_a_hundred_thousand_is_found(
    change: Callable[[list[Any]], None] | None, kind: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[int] = []
    monkeypatch.setattr(listener_server, "Session", faulty(change, done))
    cluster = Producer(
        {"test.mock.num.brokers": 1, "bootstrap.servers": "ignored"}
    )  # librdkafka's own
    (broker,) = cluster.list_topics(timeout=10).brokers.values()
    upstream = f"{broker.host}:{broker.port}"
    with RunningProxy(upstream) as gate:
        sender = Sender(
            0, gate.bootstrap, TOPIC, PARTITIONS, {"linger.ms": 5, "batch.num.messages": 2000}
        )
        for _ in range(MANY):
            sender.send()
        sender.finish(60)
    found: Findings = check(sender.acked, read_all(upstream, TOPIC, PARTITIONS), {0: sender.sent})
    assert len(sender.acked) == MANY
    assert sender.errors == []
    if kind is None:
        assert found.counts == {}
    else:
        assert done
        assert found.counts[kind] == 1, str(found)


def test_the_whole_log_is_read() -> None:
    cluster = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "ignored"})
    (broker,) = cluster.list_topics(timeout=10).brokers.values()
    upstream = f"{broker.host}:{broker.port}"
    sender = Sender(3, upstream, TOPIC, PARTITIONS, {})
    for _ in range(1000):
        sender.send()
    sender.finish(30)
    read = read_all(upstream, TOPIC, PARTITIONS)
    assert sorted((unpacked(record.value) or (0, -1))[:2] for record in read) == [
        (3, i) for i in range(1000)
    ]
    consumer = Consumer({"bootstrap.servers": upstream, "group.id": "ends"})
    try:
        ends = [
            consumer.get_watermark_offsets(TopicPartition(TOPIC, p))[1] for p in range(PARTITIONS)
        ]
    finally:
        consumer.close()
    assert ends == [250] * 4

"""A producer against a cluster that fails in every way, in simulated time.

    python -m tests.producer.soak --batches 1000000 --seed 1

Faults of a connection: it is cut before or after a batch is stored, falls silent, answers with an
error before or after. Faults of a leader: killed, restarted, another elected, with the unanswered
tail of the log truncated; one that has lost all state of producers; one that was elected uncleanly
and lacks acknowledged batches. Some records are refused (INVALID_RECORD), some batches are too
large until they are split. What is right: every record reported as delivered was in the log when
that was acknowledged, at the offset that was reported; none stands before an earlier one; none is
there twice, unless the leader lost the producer's state after it had stored the first copy.
"""

from __future__ import annotations

import argparse
import array
import asyncio
import random
import struct
import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from batchval.errors import ErrorCode
from batchval.producer import BatchDone, Producer, ProducerOptions
from batchval.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from batchval.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from batchval.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from batchval.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.producer.log_model import Entry, Found, PartitionLog
from tests.producer.simulation import ClientEnd, SimulatedLoop

NODES, PARTITIONS = 3, 4
#: at least so long between two elections of a partition: a leader that loses leadership and state
#: and is elected again while one request is on the wire cannot be noticed
BETWEEN_ELECTIONS_S = 0.25

BEFORE = [
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
]
AFTER = [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]


def put(producer: Producer, values: list[bytes], stamps: array.array[int], partition: int) -> int:
    """Give the producer many records; return how many it took."""
    return producer.send_many("t", values, stamps, partition=partition)


@dataclass(slots=True)
class Pending:
    """A partition's part of an answer, decided when the batch came, valid while its epoch lasts."""

    log: PartitionLog
    index: int
    epoch: int
    code: ErrorCode
    entry: Entry | None


class ServerEnd:
    """One connection at a node. Requests are served at once, and answered in order, later."""

    def __init__(self, cluster: Cluster, node: int, client: ClientEnd) -> None:
        self.cluster, self.node, self.client = cluster, node, client
        self.silent = False
        self.due_s = 0.0
        self.answers: deque[Callable[[], bytes]] = deque()
        client.receive = self.receive
        client.on_end = self.ended

    def ended(self) -> None:
        self.cluster.connections[self.node].pop(self, None)
        self.answers.clear()

    def answer(self, make: Callable[[], bytes], delay_s: float = 0.0005) -> None:
        loop = self.client.loop
        self.due_s = max(self.due_s + 1e-6, loop.time() + delay_s)
        self.answers.append(make)
        loop.call_at(self.due_s, self._due)

    def _due(self) -> None:
        if not self.client.ended and self.answers:
            data = self.answers.popleft()()
            if self.cluster.chance.random() < 0.002:
                self.client.abort()  # the answer is lost: what it says is true all the same
            elif not self.silent:
                self.client.deliver(data)

    def receive(self, frame: bytes) -> None:
        key, version, correlation_id = struct.unpack_from(">hhi", frame)
        if self.silent and self.cluster.chance.random() < 0.5:
            return
        if key == ProduceRequest.api_key:
            self._produce(frame, version, correlation_id)
            return
        response = self.cluster.answer(key, version, frame)
        if key == ApiVersionsRequest.api_key and version > 3:
            version = 0
        data = b"".join(bytes(chunk) for chunk in response.encode(correlation_id, version))
        self.answer(lambda: data)

    def _produce(self, frame: bytes, version: int, correlation_id: int) -> None:
        cluster, chance = self.cluster, self.cluster.chance
        fault = chance.random()
        if fault < 0.004:
            cluster.faults["cut before"] += 1
            self.client.abort()
            return
        if fault < 0.006:
            cluster.faults["silent"] += 1
            self.silent = True
            return
        _, request = ProduceRequest.parse(frame)
        parts = [self._append(one.index, bytes(one.records or b"")) for one in request.topic_data[0].partition_data]
        if fault < 0.010:
            cluster.faults["cut after"] += 1
            self.client.abort()
            return
        delay = chance.choice([0.001, 0.001, 0.004, 0.010])
        self.answer(lambda: _encoded(parts, version, correlation_id), delay)
        cluster.one_more(len(parts))

    def _append(self, index: int, raw: bytes) -> Pending:
        cluster, chance, log = self.cluster, self.cluster.chance, self.cluster.logs[index]
        if log.leader != self.node:
            return Pending(log, index, log.epoch, ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
        if chance.random() < 0.01:
            cluster.faults["error before"] += 1
            return Pending(log, index, log.epoch, chance.choice(BEFORE), None)
        code, entry = log.append(raw)
        if entry is not None and chance.random() < 0.01:
            cluster.faults["error after"] += 1
            return Pending(log, index, log.epoch, chance.choice(AFTER), None)
        return Pending(log, index, log.epoch, code, entry)


def _encoded(parts: list[Pending], version: int, correlation_id: int) -> bytes:
    """The answer, when it is due: a leader of before says so, whatever it has stored."""
    answers = []
    for part in parts:
        code, offset = part.code, -1
        if part.entry is not None:
            if part.epoch != part.log.epoch:
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            else:
                part.log.acknowledge(part.entry)
                offset = part.entry.offset
        answers.append(PartitionProduceResponse(index=part.index, error_code=code, base_offset=offset))
    response = ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=answers)])
    return b"".join(bytes(chunk) for chunk in response.encode(correlation_id, version))


class Cluster:
    """Three nodes, one topic."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.loop = SimulatedLoop(self.connect)
        self.logs = [PartitionLog() for _ in range(PARTITIONS)]
        self.connections: dict[int, dict[ServerEnd, None]] = {n: {} for n in range(1, NODES + 1)}
        self.down: set[int] = set()
        self.elected_s = [0.0] * PARTITIONS
        self.ids = 0
        self.batches = 0
        self.until_trouble = 100
        self.faults: Counter[str] = Counter()
        for n, log in enumerate(self.logs):
            log.leader = n % NODES + 1
        self.view = [(log.leader, log.epoch) for log in self.logs]

    def connect(self, port: int, end: ClientEnd) -> None:
        node = port - 9000
        if node in self.down:
            raise ConnectionRefusedError(f"node {node} is down")
        self.connections[node][ServerEnd(self, node, end)] = None

    def answer(self, key: int, version: int, frame: bytes) -> Any:
        if key == ApiVersionsRequest.api_key:
            response = ApiVersionsResponse()
            if version > 3:
                response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
            spoken = [(0, 3, 12), (3, 1, 12), (18, 0, 3), (22, 0, 4)]
            response.api_keys = [ApiVersion(*one) for one in spoken]
            return response
        if key == InitProducerIdRequest.api_key:
            self.ids += 1
            return InitProducerIdResponse(producer_id=1000 + self.ids)
        assert key == MetadataRequest.api_key
        now = [(log.leader, log.epoch) for log in self.logs]
        shown, self.view = (self.view if self.chance.random() < 0.1 else now), now  # some are late
        parts = [
            MetadataResponsePartition(partition_index=n, leader_id=leader, leader_epoch=epoch)
            for n, (leader, epoch) in enumerate(shown)
        ]
        brokers = [MetadataResponseBroker(n, "127.0.0.1", 9000 + n) for n in self.connections]
        return MetadataResponse(brokers=brokers, topics=[MetadataResponseTopic(name="t", partitions=parts)])

    # --- what happens to leaders

    def one_more(self, batches: int) -> None:
        self.batches += batches
        self.until_trouble -= batches
        if self.until_trouble <= 0:
            self.until_trouble = self.chance.randint(40, 240)
            self.loop.call_later(self.chance.random() * 0.01, self.trouble)

    def trouble(self) -> None:
        node = self.chance.randint(1, NODES)
        if self.chance.random() < 0.6:
            if not self.down:
                self.kill(node)
            return
        for n, log in enumerate(self.logs):
            if log.leader == node:
                self.move(n)

    def kill(self, node: int) -> None:
        self.faults["kill"] += 1
        self.down.add(node)
        for end in list(self.connections[node]):
            end.client.abort()
        stay = self.chance.random() < 0.6
        for n, log in enumerate(self.logs):
            if log.leader == node:
                log.remember_the_last_alone()
                if not stay:
                    self.move(n)
        self.loop.call_later(self.chance.uniform(0.02, 0.3), self.restart, node, stay)

    def restart(self, node: int, stay: bool) -> None:
        self.down.discard(node)
        for n, log in enumerate(self.logs):
            if stay and log.leader == node:
                self.elect(n, node)
                log.remember_the_last_alone()

    def move(self, partition: int) -> None:
        others = [n for n in self.connections if n != self.logs[partition].leader and n not in self.down]
        if others:
            self.elect(partition, self.chance.choice(others))

    def elect(self, partition: int, node: int) -> None:
        log, fate = self.logs[partition], self.chance.random()
        if self.loop.time() - self.elected_s[partition] < BETWEEN_ELECTIONS_S:
            wait = BETWEEN_ELECTIONS_S + self.elected_s[partition] - self.loop.time()
            self.loop.call_later(wait + 1e-3, self._elect_later, partition, node, log.epoch)
            return
        self.elected_s[partition] = self.loop.time()
        log.elect(node)
        end, lowest = len(log.entries), max(log.durable - 5, 0)
        if fate < 0.05 and end > lowest:
            self.faults["unclean"] += 1
            log.truncate(self.chance.randint(lowest, end))
            if self.chance.random() < 0.5:
                log.lose_state()
        elif fate < 0.5 and end > log.durable:
            self.faults["truncated"] += 1
            log.truncate(self.chance.randint(log.durable, end))
        if 0.05 <= fate < 0.10:
            self.faults["state lost"] += 1
            log.lose_state()

    def _elect_later(self, partition: int, node: int, epoch: int) -> None:
        if self.logs[partition].epoch == epoch and node not in self.down:
            self.elect(partition, node)


@dataclass(slots=True)
class Report:
    """What one run, or several, came to."""

    batches: int = 0
    delivered: int = 0  # records, as all below
    without_offset: int = 0
    unknown: int = 0
    refused: int = 0
    other_errors: int = 0
    splits: int = 0
    retries: int = 0

    def add(self, other: Report) -> None:
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))


async def _feed(producer: Producer, cluster: Cluster, batches: int) -> None:
    chance, numbers = cluster.chance, [0] * PARTITIONS
    while cluster.batches < batches:
        partition = chance.randrange(PARTITIONS)
        number = numbers[partition]
        last = number + chance.randint(1, 12)
        while (number := numbers[partition]) < last:
            values = [n.to_bytes(8) for n in range(number, last)]
            numbers[partition] += put(producer, values, array.array("q", range(number, last)), partition)
            await producer.room()
        if chance.random() < 0.1:
            await asyncio.sleep(chance.random() * 0.02)


async def _run(cluster: Cluster, batches: int, report: Report) -> None:
    options = ProducerOptions(
        bootstrap_servers=[f"127.0.0.1:{9000 + n}" for n in cluster.connections],
        linger_ms=1,
        batch_size=120,
        buffer_memory=8_000,
        request_timeout_ms=1_000,
        retry_backoff_ms=5,
        retry_backoff_max_ms=50,
        delivery_timeout_ms=600_000,
        max_block_ms=600_000,
        compression_threads=0,
    )
    delivered: list[list[int]] = [[] for _ in cluster.logs]
    expected = [0] * PARTITIONS

    def done(batch: BatchDone) -> None:
        ids = batch.stamps.tolist()
        assert ids[0] == expected[batch.partition], "batches are reported in order, each once"
        expected[batch.partition] = ids[-1] + 1
        if batch.error is None:
            report.delivered += len(ids)
            report.without_offset += len(ids) * (batch.base_offset < 0)
            delivered[batch.partition].extend(ids)
            cluster.logs[batch.partition].reported(ids, batch.base_offset)
        elif type(batch.error).__name__ == "DeliveryUnknownError":
            report.unknown += len(ids)
        elif getattr(batch.error, "code", None) == ErrorCode.INVALID_RECORD:
            report.refused += len(ids)
        else:
            report.other_errors += len(ids)
            print(f"partition {batch.partition}: {batch.error!r}", file=sys.stderr)

    async with Producer(options) as producer:
        producer.on_batch = done
        await producer.partitions_for("t")
        await _feed(producer, cluster, batches)
        await producer.flush()
        assert producer.buffer_used == 0, "all is settled"
        report.splits += producer.metrics.splits
        report.retries += producer.metrics.retries
    report.batches += cluster.batches
    for log, ids in zip(cluster.logs, delivered, strict=True):
        log.finish(ids)


def soak(batches: int, seed: int) -> tuple[Report, Found, Counter[str]]:
    """Run so many batches. The same seed does the same."""
    chance = random.Random(seed)
    before = random.getstate()
    random.seed(seed)  # the producer's own jitter
    cluster, report, found = Cluster(chance), Report(), Found()
    asyncio.set_event_loop(cluster.loop)
    try:
        cluster.loop.run_until_complete(_run(cluster, batches, report))
    finally:
        asyncio.set_event_loop(None)
        cluster.loop.close()
        random.setstate(before)
    for log in cluster.logs:
        for one in fields(found):
            setattr(found, one.name, getattr(found, one.name) + getattr(log.found, one.name))
    return report, found, cluster.faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=20_000, help="Batches in all.")
    parser.add_argument("--seed", type=int, default=1, help="Random seed of the first run.")
    parser.add_argument("--each", type=int, default=10_000, help="Batches a run; each has its seed.")
    options = parser.parse_args()
    total, wrong, faults = Report(), Found(), Counter[str]()
    seed, began = options.seed, time.process_time()
    while total.batches < options.batches:
        report, found, some = soak(min(options.each, options.batches - total.batches), seed)
        total.add(report)
        faults.update(some)
        for one in fields(found):
            setattr(wrong, one.name, getattr(wrong, one.name) + getattr(found, one.name))
        if found.lost or found.reordered or found.wrong_offsets or found.duplicates:
            print(f"seed {seed}: {found}", flush=True)
        seed += 1
        if seed % 10 == 0:
            print(f"{total.batches} batches, {time.process_time() - began:.0f} s of CPU", flush=True)
    print(f"seeds {options.seed} to {seed - 1}, {time.process_time() - began:.0f} s of CPU")
    for title, what in (("reported", total), ("found", wrong)):
        print(title, {one.name: getattr(what, one.name) for one in fields(what)})
    print("faults", dict(sorted(faults.items())))
    return int(bool(wrong.lost or wrong.reordered or wrong.wrong_offsets or wrong.duplicates))


if __name__ == "__main__":
    sys.exit(main())

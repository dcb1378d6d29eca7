"""A cluster in simulated time that fails: connections, leaders, elections."""

from __future__ import annotations

import random
import struct
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from batchval.errors import ErrorCode
from batchval.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from batchval.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
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
from tests.unit.producer.log_model import Entry, PartitionLog
from tests.unit.producer.simulation import ClientEnd, SimulatedLoop

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
        parts = [
            self._append(one.index, bytes(one.records or b""))
            for one in request.topic_data[0].partition_data
        ]
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
        answers.append(
            PartitionProduceResponse(index=part.index, error_code=code, base_offset=offset)
        )
    response = ProduceResponse(
        responses=[TopicProduceResponse(name="t", partition_responses=answers)]
    )
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
        return MetadataResponse(
            brokers=brokers, topics=[MetadataResponseTopic(name="t", partitions=parts)]
        )

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
        others = [
            n for n in self.connections if n != self.logs[partition].leader and n not in self.down
        ]
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

"""A leader that keeps what it is sent, checks sequences as Kafka's does, and fails by script."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any, Self

from batchval.core.batches.batch import RecordBatch
from batchval.core.batches.validator import LogValidator
from batchval.errors import ErrorCode
from batchval.policy import TopicPolicy
from batchval.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from batchval.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from batchval.protocol.messages.find_coordinator import FindCoordinatorResponse
from batchval.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from batchval.protocol.messages.metadata import MetadataRequest, MetadataResponse
from batchval.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.support.broker_node import NO_ANSWER, BrokerNode, metadata

STRICT = LogValidator(TopicPolicy(max_message_bytes=2**31 - 1))

#: From a partition and a batch, the error to answer with; a batch with one is not kept. None: cut
#: the connection.
Fault = Callable[[int, RecordBatch], "ErrorCode | None"]


def no_fault(partition: int, batch: RecordBatch) -> ErrorCode | None:
    return ErrorCode.NONE


class PartitionLeader:
    """Has every topic with so many partitions. ``holding``: answers are kept until
    ``let_go``.

    ``nodes`` above 1: a cluster whose nodes share the log; ``elect`` makes another the leader.
    """

    def __init__(
        self, partitions: int = 2, produce: tuple[int, int] = (3, 12), nodes: int = 1
    ) -> None:
        self.partitions = partitions
        handlers: dict[int, Callable[[Any], Any]] = {
            3: self._metadata,
            10: lambda _: FindCoordinatorResponse(
                node_id=1, host="127.0.0.1", port=self.nodes[0].port
            ),
            22: self._init_producer_id,
            24: self._add_partitions_to_txn,
            26: self._end_txn,
        }
        ranges = {
            0: produce,
            3: (1, 12),
            10: (0, 3),
            18: (0, 3),
            22: (0, 4),
            24: (0, 3),
            26: (0, 3),
        }
        self.nodes = [
            BrokerNode(
                {0: functools.partial(self._produce, node), **handlers},
                node,
                ranges,
                self._deliver,
                limit=1 << 24,
            )
            for node in range(1, nodes + 1)
        ]
        self.leader, self.leader_epoch = 1, 0
        self.logs: dict[int, list[bytes]] = defaultdict(list)
        self.states: dict[
            tuple[int, int], tuple[int, int]
        ] = {}  # (partition, id) -> (epoch, last sequence)
        self.seen: dict[
            tuple[int, int, int, int], int
        ] = {}  # (partition, id, epoch, base sequence) -> offset
        self.faults: deque[Fault] = deque()
        self.after: deque[Fault] = (
            deque()
        )  # asked once the batch is kept: its answer is lost, or it is an error
        self.holding = False
        self.held: list[tuple[asyncio.StreamWriter, bytes]] = []
        self.unanswered = 0
        self.highest_unanswered = 0
        self.requests: list[ProduceRequest] = []
        self.ids = 0
        self.ends: list[
            tuple[bool, int]
        ] = []  # of transactions: committed, and the batches that were kept before
        self.mute_ends = 0  # so many ends are taken, and not answered
        self._started = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        for node in self.nodes:
            await self._started.enter_async_context(node)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cut()
        await self._started.aclose()

    @property
    def bootstrap(self) -> str:
        return self.nodes[0].address

    def cut(self) -> None:
        """End all connections."""
        for node in self.nodes:
            node.peer.cut()
        self.held.clear()
        self.unanswered = 0

    def let_go(self) -> None:
        """Answers what was held, and all from now on."""
        self.holding = False
        held, self.held = self.held, []
        for writer, response in held:
            self._answer(writer, response)

    def forget(self) -> None:
        """As Kafka's broker that was killed: of each producer it knows the last batch alone."""
        last: dict[tuple[int, int], tuple[int, int, int, int]] = {}
        for where in self.seen:
            last[where[:2]] = where
        self.seen = {where: self.seen[where] for where in last.values()}

    def truncate(self, partition: int, keep: int) -> None:
        """As a leader whose log ends after so many batches: it knows each producer by the last one
        of those.
        """
        del self.logs[partition][keep:]
        for known in (self.states, self.seen):
            for where in [where for where in known if where[0] == partition]:
                del known[where]
        offset = 0
        for raw in self.logs[partition]:
            batch = RecordBatch(raw)
            self._remember(partition, batch, offset)
            offset += batch.records_count or 0
        self.forget()

    def lose_state(self) -> None:
        """As a leader that knows no producer: it takes any sequence from each."""
        self.states.clear()
        self.seen.clear()

    def elect(self, node: int, cut: bool = True) -> None:
        """Makes a node the leader, in the next epoch; the others answer NOT_LEADER_OR_FOLLOWER."""
        self.leader, self.leader_epoch = node, self.leader_epoch + 1
        if cut:
            self.cut()

    def values(self, partition: int) -> list[bytes]:
        return [
            bytes(one.value or b"")
            for batch in self.logs[partition]
            for one in RecordBatch(batch).records()
        ]

    def _deliver(self, request: Any, writer: asyncio.StreamWriter, response: bytes) -> None:
        if not isinstance(request, ProduceRequest):
            writer.write(response)
        elif self.holding:
            self.held.append((writer, response))
        else:
            self._answer(writer, response)

    def _answer(self, writer: asyncio.StreamWriter, response: bytes) -> None:
        self.unanswered -= 1
        writer.write(response)

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        partitions = [(self.leader, self.leader_epoch)] * self.partitions
        return metadata(
            {node.node_id: node.port for node in self.nodes},
            {str(topic.name): partitions for topic in request.topics or ()},
        )

    def _init_producer_id(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        if request.producer_id >= 0:
            return InitProducerIdResponse(
                producer_id=request.producer_id, producer_epoch=request.producer_epoch + 1
            )
        self.ids += 1
        return InitProducerIdResponse(producer_id=1000 + self.ids)

    def _add_partitions_to_txn(
        self, request: AddPartitionsToTxnRequest
    ) -> AddPartitionsToTxnResponse:
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnTopicResult(
                    topic.name, [AddPartitionsToTxnPartitionResult(n) for n in topic.partitions]
                )
                for topic in request.v3_and_below_topics
            ]
        )

    def _end_txn(self, request: EndTxnRequest) -> Any:
        self.ends.append((request.committed, sum(map(len, self.logs.values()))))
        if self.mute_ends:
            self.mute_ends -= 1
            return NO_ANSWER
        return EndTxnResponse()

    def _produce(self, node: int, request: ProduceRequest) -> ProduceResponse | None:
        self.requests.append(request)
        answers = []
        for topic in request.topic_data:
            parts = []
            for data in topic.partition_data:
                raw = bytes(data.records or b"")
                result = STRICT.validate(raw, now_ms=2**62)
                assert result.ok, result
                code: ErrorCode | None = ErrorCode.NOT_LEADER_OR_FOLLOWER
                offset = -1
                if node == self.leader:
                    code, offset = self._kept(data.index, raw)
                if code is None:
                    self.cut()
                    return None
                parts.append(
                    PartitionProduceResponse(index=data.index, error_code=code, base_offset=offset)
                )
            answers.append(TopicProduceResponse(name=topic.name, partition_responses=parts))
        self.unanswered += 1
        self.highest_unanswered = max(self.highest_unanswered, self.unanswered)
        return ProduceResponse(responses=answers)

    def _kept(self, partition: int, raw: bytes) -> tuple[ErrorCode | None, int]:
        batch = RecordBatch(raw)
        fault = (self.faults.popleft() if self.faults else no_fault)(partition, batch)
        if fault != ErrorCode.NONE:
            return fault, -1
        producer_id, epoch = batch.producer_id, batch.producer_epoch
        if producer_id >= 0:
            known_epoch, last = self.states.get((partition, producer_id), (-1, -1))
            where = (partition, producer_id, epoch, batch.base_sequence)
            if where in self.seen:
                return ErrorCode.NONE, self.seen[where]
            if epoch < known_epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH, -1
            expected = 0 if epoch != known_epoch else (last + 1) & 0x7FFFFFFF
            if known_epoch >= 0 and batch.base_sequence != expected:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        offset = sum(RecordBatch(one).records_count or 0 for one in self.logs[partition])
        self._remember(partition, batch, offset)
        self.logs[partition].append(raw)
        after = (self.after.popleft() if self.after else no_fault)(partition, batch)
        return (after, offset) if after != ErrorCode.NONE else (ErrorCode.NONE, offset)

    def _remember(self, partition: int, batch: RecordBatch, offset: int) -> None:
        if batch.producer_id < 0:
            return
        last = (batch.base_sequence + (batch.records_count or 0) - 1) & 0x7FFFFFFF
        self.states[partition, batch.producer_id] = batch.producer_epoch, last
        self.seen[partition, batch.producer_id, batch.producer_epoch, batch.base_sequence] = offset

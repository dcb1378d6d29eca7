"""Transactions: one producer's part of the protocol of KIP-98 (TransactionManager), with its
coordinator.

    InitProducerId → (AddPartitionsToTxn → Produce …)* → EndTxn

A record that fails for good makes its transaction one that can only be aborted; a newer producer
with the same transactional_id makes this one useless (fenced). The versions are those from before
KIP-890's second part, which every broker since 0.11 speaks.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

from batchval.errors import RETRIABLE, ErrorCode, shown_ms
from batchval.network.client import ConsumerNetworkClient, Timer
from batchval.network.cluster_metadata import ClusterMetadata
from batchval.network.coordinator import TRANSACTION, find_coordinator
from batchval.network.errors import (
    InvalidAnswerError,
    NetworkError,
    RequestTimeoutError,
    broker_error,
)
from batchval.network.request import AnyRequest, Build, Node
from batchval.producer.batch import PartitionQueue
from batchval.producer.errors import FENCED, ProducerFencedError, TransactionStateError
from batchval.producer.options import ProducerOptions
from batchval.producer.sequences import Sequences
from batchval.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from batchval.protocol.messages.end_txn import EndTxnRequest
from batchval.protocol.messages.init_producer_id import InitProducerIdRequest

__all__ = ["State", "Transactions"]

_COORDINATOR_MOVED = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
_FATAL = {
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.UNSUPPORTED_VERSION,
}
_INIT, _ADD_PARTITIONS, _END = 22, 24, 26

log = logging.getLogger("batchval.producer")


class State(Enum):
    """The state of the producer in its transaction."""

    UNINITIALIZED = "not initialised"
    READY = "no transaction"
    IN_TRANSACTION = "in a transaction"
    ENDING = "ending a transaction"
    COMMITTING = "in a transaction whose commit is not answered: commit again, or close"
    ABORTABLE = "in a transaction that can only be aborted"
    FATAL = "failed for good and can only be closed"


class Transactions:
    """The states and requests of transactions, or of the producer id alone without them."""

    def __init__(
        self,
        options: ProducerOptions,
        client: ConsumerNetworkClient,
        metadata: ClusterMetadata,
        sequences: Sequences,
        on_change: Callable[[], None],
    ) -> None:
        self.options = options
        self.client = client
        self.metadata = metadata
        self.sequences = sequences
        self.state = State.UNINITIALIZED
        self.error: Exception | None = None
        self._on_change = on_change
        self._coordinator: Node | None = None
        self._partitions: set[tuple[str, int]] = set()  # added to the transaction
        self._wanted: set[tuple[str, int]] = set()
        self._bump_at_the_end = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._adding: asyncio.Task[None] | None = None
        self._in_doubt = False  # partitions were sent to the coordinator, which has not answered
        self._asking_id = False
        self._logged = ""  # the last answer that made no sense

    # --- states

    def must_be(self, *states: State) -> None:
        """Raise the fatal error or TransactionStateError unless the state is one of these."""
        if self.state in states:
            return
        if self.state is State.FATAL and self.error is not None:
            raise self.error
        raise TransactionStateError(f"the producer is {self.state.value}") from self.error

    def failed(self, error: Exception) -> None:
        """Note that a record or a request of the transaction failed."""
        code = getattr(error, "code", None)
        if isinstance(error, ProducerFencedError) or code in _FATAL:
            self._is_fatal(error)
        elif self.state in (State.IN_TRANSACTION, State.ENDING, State.COMMITTING):
            self.state, self.error = State.ABORTABLE, error
            self._bump_at_the_end = True

    def failed_in_abort(self, error: Exception) -> None:
        """Note that a record failed while its transaction is aborted: its sequence is missing."""
        self._bump_at_the_end = True

    def _is_fatal(self, error: Exception) -> None:
        self.state, self.error = State.FATAL, error
        self._on_change()

    # --- the producer id

    def need_id(self) -> None:
        """Request a producer id in the background, for a producer without transactions."""
        if self._asking_id or self.state is State.FATAL:
            return
        self._asking_id = True
        self._start(self._ask_id())

    async def _ask_id(self) -> None:
        try:
            await self._init(float("inf"))
        except Exception as error:  # of whatever kind: records wait for it
            self._is_fatal(error)
        finally:
            self._asking_id = False

    async def _init(self, timeout_ms: float) -> None:
        options, sequences = self.options, self.sequences
        producer_id, epoch = sequences.producer_id, sequences.producer_epoch

        def make(version: int) -> AnyRequest:
            request = InitProducerIdRequest(
                options.transactional_id,
                options.transaction_timeout_ms
                if options.transactional_id is not None
                else 0x7FFFFFFF,
                api_version=version,
            )
            if version >= 3 and options.transactional_id is not None:
                request.producer_id, request.producer_epoch = producer_id, epoch
            return request

        def code_of(response: Any) -> int:
            code: int = response.error_code
            if not code and (response.producer_id < 0 or response.producer_epoch < 0):
                given = f"{response.producer_id} with epoch {response.producer_epoch}"
                raise InvalidAnswerError(f"a broker gave the producer id {given}")
            return code

        answer = await self._ask(_INIT, (0, 5), make, code_of, timeout_ms)
        sequences.set_id(answer.producer_id, answer.producer_epoch)
        self.state = State.READY
        self._on_change()

    # --- transactions

    async def init(self, timeout_ms: float) -> None:
        """Fence earlier producers of this id and end their open transactions."""
        self.must_be(State.UNINITIALIZED, State.READY)
        await self._init(timeout_ms)

    def begin(self) -> None:
        """Begin a transaction: the records that follow belong to it."""
        self.must_be(State.READY)
        self.state = State.IN_TRANSACTION

    def hold(self, queue: PartitionQueue) -> bool:
        """Return whether the partition is not in the transaction yet; start adding it."""
        where = (queue.topic, queue.partition)
        if where in self._partitions:
            return False
        if self.state in (State.IN_TRANSACTION, State.ENDING):
            self._wanted.add(where)
            if self._adding is None:
                self._adding = self._start(self._add_partitions())
        return True

    async def _add_partitions(self) -> None:
        try:
            while self._wanted and self.state in (State.IN_TRANSACTION, State.ENDING):
                these = sorted(self._wanted)
                self._in_doubt = True
                await self._ask(
                    _ADD_PARTITIONS,
                    (0, 3),
                    functools.partial(self._partitions_request, these),
                    functools.partial(_added_code, these),
                    self.options.max_block_ms,
                )
                self._in_doubt = False
                self._partitions.update(these)
                self._wanted.difference_update(these)
                self._on_change()
        except Exception as error:  # of whatever kind: records wait for it
            self.failed(error)
            self._on_change()
        finally:
            self._adding = None

    def _partitions_request(self, these: list[tuple[str, int]], version: int) -> AnyRequest:
        topics: dict[str, list[int]] = {}
        for topic, partition in these:
            topics.setdefault(topic, []).append(partition)
        named = [AddPartitionsToTxnTopic(name, parts) for name, parts in topics.items()]
        return AddPartitionsToTxnRequest([], *self._who(), named, api_version=version)

    async def end(self, commit: bool, timeout_ms: float) -> None:
        """Send EndTxn if the coordinator knows the transaction. All records must be settled.

        Waits for a request that adds partitions: after EndTxn it would begin a transaction that
        nobody ends.
        """
        self._wanted.clear()
        if self._adding is not None:
            await asyncio.wait([self._adding])
        if self._in_doubt and not commit:
            self._bump_at_the_end = True  # a new epoch ends what there may be
        elif self._partitions:
            await self._ask(
                _END,
                (0, 4),
                lambda version: EndTxnRequest(*self._who(), commit, api_version=version),
                lambda response: response.error_code,
                timeout_ms,
            )
        if self._bump_at_the_end and not commit:
            await self._init(timeout_ms)  # a new epoch: sequences begin again (KIP-360)
        self._bump_at_the_end = self._in_doubt = False
        self._partitions.clear()
        self.state, self.error = State.READY, None

    # --- asking

    def _who(self) -> tuple[str, int, int]:
        return (
            self.options.transactional_id or "",
            self.sequences.producer_id,
            self.sequences.producer_epoch,
        )

    async def _node(self, timeout_ms: float) -> Node:
        """Return the coordinator; without a transactional id any broker will do."""
        if self.options.transactional_id is None:
            node = self.client.least_loaded_node(self.metadata.nodes())
            if node is None:
                raise RequestTimeoutError("no broker is available for the request")
            return node
        if self._coordinator is None:
            self._coordinator = await find_coordinator(
                self.client, self.metadata, self.options.transactional_id, TRANSACTION, timeout_ms
            )
        return self._coordinator

    async def _ask(
        self,
        api_key: int,
        versions: tuple[int, int],
        make: Callable[[int], AnyRequest],
        code_of: Callable[[Any], int],
        timeout_ms: float,
    ) -> Any:
        """Repeat a request until no retriable error is returned. Raises any other error.

        ``code_of`` returns an answer's error code, or raises InvalidAnswerError.
        """
        timer = Timer(timeout_ms)
        last: Exception | None = None
        while not timer.expired:
            try:
                node = await self._node(timer.remaining_ms)
                response = (await self.client.send(node, Build(api_key, versions, make))).response
                code = code_of(response)
            except NetworkError as error:
                if not error.retriable:
                    raise
                last = error
                self._coordinator = None
                if isinstance(error, InvalidAnswerError) and str(error) != self._logged:
                    self._logged = str(error)
                    log.warning("%s; the request is sent again", error)
            else:
                if code == ErrorCode.NONE:
                    return response
                last = self._error(code)
                if code not in RETRIABLE:
                    raise last
                if code in _COORDINATOR_MOVED:
                    self._coordinator = None
            await asyncio.sleep(min(self.options.retry_backoff_ms, timer.remaining_ms) / 1000)
        raise RequestTimeoutError(f"no answer in {shown_ms(timeout_ms)}: {last}") from last

    def _error(self, code: int) -> NetworkError:
        what = (
            f"transactional id {self.options.transactional_id}"
            if self.options.transactional_id
            else "producer id"
        )
        if code in FENCED:
            return ProducerFencedError(code, what)
        return broker_error(code, what)

    def _start(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Cancel all requests."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _added_code(these: list[tuple[str, int]], response: Any) -> int:
    """Return the error code of an AddPartitionsToTxn answer. Raises InvalidAnswerError."""
    results = {
        (topic.name, one.partition_index): one.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for one in topic.results_by_partition
    }
    code = _first_error(results.values())
    missing = [where for where in these if where not in results]
    if missing and not code:
        topic, partition = missing[0]
        raise InvalidAnswerError(f"the coordinator did not answer for {topic}-{partition}")
    return code


def _first_error(codes: Iterable[int]) -> int:
    """Return the first code that is not retriable, else a retriable one, else NONE."""
    found = [code for code in codes if code != ErrorCode.NONE]
    return next(
        (code for code in found if code not in RETRIABLE), found[0] if found else ErrorCode.NONE
    )

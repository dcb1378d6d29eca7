"""Resolve OUT_OF_ORDER_SEQUENCE_NUMBER: whether the log holds a batch that was sent, not answered.

    NONE ─out of order→ CONFIRMING ─metadata: the same leader→ ASKING ─acknowledged→ NONE (stored)

A leader that was killed finds in its log of each producer the last batch alone
(ProducerStateManager, Kafka 4.4.0). Of five that it had stored and not answered, sent again, only
the fifth is a duplicate to it; the others are out of order. So the next batch is asked for: a
leader that has it, or takes it, has all before it, if that leader knew the producer before it was
asked. A leader that knows nothing of a producer takes any sequence.

Hence two rules. A batch goes to a leader while an earlier one is not settled only if that leader
has shown that it knows the producer: it has acknowledged a batch, or called one out of order. And
only the leader that raised a doubt may settle it: the same node and connection, in the same leader
epoch of the same topic.

A batch that a later one has passed, without a proof that it is in the log, is deferred while the
partition's leader has not shown that it knows the producer. The next batch goes first. After the
leader has acknowledged the next batch, it can answer the deferred one only with a duplicate or with
out of order. It cannot store the deferred batch after later ones.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from batchval.network.errors import NetworkError
from batchval.network.request import Node
from batchval.producer.batch import Doubt, Leader, PartitionQueue, Passed, ProducerBatch
from batchval.producer.errors import DeliveryUnknownError

if TYPE_CHECKING:
    from batchval.network.client import ConsumerNetworkClient
    from batchval.network.cluster_metadata import ClusterMetadata

__all__ = [
    "TRANSITIONS",
    "Action",
    "Doubts",
    "Event",
    "LeaderChangedError",
    "Leaders",
    "follow",
]


class LeaderChangedError(NetworkError):
    """The leader is not the one that the request was for; nothing was sent."""


class Event(Enum):
    """An event of a doubt."""

    DOUBTED = auto()  # the oldest batch not settled is out of order, and another follows it
    CONFIRMED = auto()  # metadata came, and the leader is the same
    LEADER_CHANGED = auto()  # another node, connection, epoch or topic, or NOT_LEADER_OR_FOLLOWER
    PROVED = auto()  # that leader acknowledged a later batch
    UNPROVED = auto()  # a later batch was acknowledged, perhaps by another leader
    ALL_DOUBTED = auto()  # out of order, and no batch is left to be asked for
    FAILED = auto()  # a batch of the partition failed for good


class Action(Enum):
    """The action on the doubted batches."""

    KEEP = auto()  # they wait
    DELIVERED = auto()  # they are in the log; their offsets are not known
    ASK_AGAIN = auto()  # they go again, the first one first


_ENDS: Final = {
    Event.LEADER_CHANGED: (Doubt.NONE, Action.ASK_AGAIN),
    Event.PROVED: (Doubt.NONE, Action.DELIVERED),
    Event.UNPROVED: (Doubt.NONE, Action.ASK_AGAIN),
    Event.ALL_DOUBTED: (Doubt.NONE, Action.ASK_AGAIN),
    Event.FAILED: (Doubt.NONE, Action.ASK_AGAIN),
}
TRANSITIONS: Final[dict[Doubt, dict[Event, tuple[Doubt, Action]]]] = {
    Doubt.NONE: dict.fromkeys(Event, (Doubt.NONE, Action.KEEP))
    | {Event.DOUBTED: (Doubt.CONFIRMING, Action.KEEP)},
    Doubt.CONFIRMING: _ENDS
    | {
        Event.DOUBTED: (Doubt.CONFIRMING, Action.KEEP),
        Event.CONFIRMED: (Doubt.ASKING, Action.KEEP),
    },
    Doubt.ASKING: _ENDS
    | {
        Event.DOUBTED: (Doubt.ASKING, Action.KEEP),
        Event.CONFIRMED: (Doubt.ASKING, Action.KEEP),
    },
}


def follow(queue: PartitionQueue, event: Event) -> Action:
    """Take a partition's doubt through one event; return what becomes of its doubted batches."""
    queue.doubt, action = TRANSITIONS[queue.doubt][event]
    return action


def _next_may_go(queue: PartitionQueue) -> bool:
    """Return whether the next batch may go before the deferred ones: its sequence stays."""
    if not queue.queue or queue.is_rewound(batch := queue.queue[0]):
        return False
    return batch.sequence >= 0 or not queue.unresolved


class Leaders:
    """The leaders that partitions have now, and those that batches were sent to."""

    def __init__(self, client: ConsumerNetworkClient, metadata: ClusterMetadata) -> None:
        self.client = client
        self.metadata = metadata

    def now(self, node: Node, queue: PartitionQueue) -> Leader:
        """Return the node as the partition's leader, by what is known at the moment."""
        topic, partition = queue.topic, queue.partition
        connection = self.client.network.connection(node)
        return Leader(
            node.id,
            connection,
            self.metadata.leader_epoch(topic, partition),
            self.metadata.topic_id(topic),
        )

    def is_known(self, queue: PartitionQueue) -> bool:
        """Return whether the partition's leader now has shown that it knows the producer."""
        node = self.metadata.leader(queue.topic, queue.partition)
        return node is not None and self.now(node, queue) == queue.known_by

    def still_leads(self, batch: ProducerBatch) -> bool:
        """Return whether metadata names the leader that the batch was sent to, unchanged."""
        queue, asked = batch.partition, batch.asked
        node = self.metadata.leader(queue.topic, queue.partition)
        if asked is None or node is None:
            return False
        now = (
            node.id,
            self.metadata.leader_epoch(queue.topic, queue.partition),
            self.metadata.topic_id(queue.topic),
        )
        return now == (asked.node_id, asked.leader_epoch, asked.topic_id)

    def ask(self, node: Node, batches: list[ProducerBatch]) -> None:
        """Note the leader that the batches are about to be written to.

        Raises LeaderChangedError where one of them may go to another leader only.
        """
        for batch in batches:
            queue = batch.partition
            batch.asked = self.now(node, queue)
            if batch.needs_known_leader and batch.asked != queue.known_by:
                raise LeaderChangedError(
                    f"the leader of {queue} changed before {batch.builder.count} records were sent"
                )


class Doubts:
    """The doubted batches of one producer, and those that a later one has passed.

    ``acknowledge`` reports a batch as delivered, ``fail`` as failed (with the error, and whether
    the leader certainly lacks it).
    """

    def __init__(
        self,
        leaders: Leaders,
        acknowledge: Callable[[ProducerBatch], None],
        fail: Callable[[ProducerBatch, Exception, bool], None],
    ) -> None:
        self.leaders = leaders
        self._acknowledge = acknowledge
        self._fail = fail

    def add(self, batch: ProducerBatch) -> None:
        """Doubt a batch. The first one of a partition makes the client ask for metadata."""
        queue, metadata = batch.partition, self.leaders.metadata
        if not queue.doubted:
            queue.doubted_at = metadata.asked
            metadata.request_update()
        self.move(queue, Event.DOUBTED)
        queue.doubted.append(batch)

    def move(self, queue: PartitionQueue, event: Event, but: ProducerBatch | None = None) -> None:
        """Take a partition's doubt through an event, and all doubted batches but one with it."""
        action = follow(queue, event)
        if action is Action.KEEP:
            return
        doubted, queue.doubted = queue.doubted, []
        for one in doubted:
            if action is Action.DELIVERED:
                self._acknowledge(one)
            elif one is not but:
                queue.requeue(one)

    def look(self, queue: PartitionQueue) -> None:
        """Settle or defer what the leader cannot be asked. The partition has nothing on the wire.

        Deferred batches go again once a later batch has shown that the leader knows the producer.
        Without a later batch they fail.
        """
        if queue.doubted:
            if not self.leaders.is_known(queue):
                self.move(queue, Event.LEADER_CHANGED)
            elif self.leaders.metadata.answered > queue.doubted_at:  # asked after the doubt began
                self.move(queue, Event.CONFIRMED)
            return
        if queue.deferred and self.leaders.is_known(queue):
            deferred, queue.deferred = queue.deferred, []
            for one in deferred:
                queue.requeue(one)
        while queue.queue and (first := queue.queue[0]).passed is not Passed.NO:
            may_go = first.passed is Passed.PROVED or self.leaders.is_known(queue)
            if may_go and not queue.is_rewound(first):
                return
            queue.queue.popleft()
            if may_go:
                self.settle_passed(first)
            else:
                queue.deferred.append(first)
        if queue.deferred and not _next_may_go(queue):
            for one in list(queue.deferred):
                self.settle_passed(one)

    def settle_passed(self, batch: ProducerBatch) -> None:
        """Report a batch that no leader can be asked about, after a later one is in the log."""
        if batch.passed is Passed.PROVED:
            self._acknowledge(batch)
            return
        what = f"whether {batch.builder.count} records for {batch.partition} are in the log"
        why = "the leader changed before it acknowledged later records"
        self._fail(batch, DeliveryUnknownError(f"{what} cannot be known: {why}"), False)

"""ListOffsets requests to leaders.

ListOffsets v2-9 (-2 earliest, -1 latest, else the first offset with that timestamp) → offset
"""

from __future__ import annotations

from typing import Final

from batchval.fetch.state import TopicPartition
from batchval.network.client import ConsumerNetworkClient
from batchval.network.cluster_metadata import ClusterMetadata
from batchval.network.errors import NetworkError, broker_error
from batchval.network.request import Build, Node
from batchval.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

__all__ = ["OffsetLookup"]

_LIST_VERSIONS: Final = (2, 9)
_TIMESTAMPS: Final = {"earliest": -2, "latest": -1}


class OffsetLookup:
    """The lookup of partitions' offsets for one consumer."""

    def __init__(
        self, client: ConsumerNetworkClient, metadata: ClusterMetadata, isolation: int
    ) -> None:
        self._client = client
        self._metadata = metadata
        self._isolation = isolation

    async def offsets(self, wanted: dict[TopicPartition, int | str]) -> dict[TopicPartition, int]:
        """Return each partition's offset for "earliest", "latest" or a timestamp (-1: none), in one
        round.

        Partitions that cannot be looked up at the moment are left out. Raises errors that are not
        retriable.
        """
        by_node: dict[Node, dict[TopicPartition, int]] = {}
        for tp, what in wanted.items():
            leader = self._metadata.leader(*tp)
            if leader is None:
                self._metadata.follow(tp.topic)
                self._metadata.request_update()
                continue
            by_node.setdefault(leader, {})[tp] = (
                _TIMESTAMPS[what] if isinstance(what, str) else what
            )
        found: dict[TopicPartition, int] = {}
        for node, timestamps in by_node.items():
            found |= await self._offsets_of(node, timestamps)
        return found

    async def _offsets_of(
        self, node: Node, timestamps: dict[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        topics: dict[str, ListOffsetsTopic] = {}
        for (name, number), timestamp in timestamps.items():
            topic = topics.setdefault(name, ListOffsetsTopic(name))
            topic.partitions.append(
                ListOffsetsPartition(number, self._metadata.leader_epoch(name, number), timestamp)
            )

        def make(version: int) -> ListOffsetsRequest:
            return ListOffsetsRequest(
                -1, self._isolation, topics=list(topics.values()), api_version=version
            )

        try:
            sent = await self._client.send(
                node, Build(ListOffsetsRequest.api_key, _LIST_VERSIONS, make)
            )
        except NetworkError as error:
            if not error.retriable:
                raise
            self._metadata.request_update()
            return {}
        answer: ListOffsetsResponse = sent.response
        found: dict[TopicPartition, int] = {}
        for result in answer.topics:
            for one in result.partitions:
                tp = TopicPartition(result.name, one.partition_index)
                if tp not in timestamps:
                    continue
                if not one.error_code:
                    # -1 is an answer to a timestamp alone; others are asked for again
                    if one.offset >= (-1 if timestamps[tp] >= 0 else 0):
                        found[tp] = one.offset
                    continue
                failure = broker_error(
                    one.error_code, f"offsets of {result.name}-{one.partition_index}"
                )
                if not failure.retriable:
                    raise failure
                self._metadata.request_update()
        return found

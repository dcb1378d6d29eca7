"""The coordinator of a group or a transactional id: FindCoordinator, repeated until it is known.

    v0–3   one key → node_id, host, port            v4–6   several keys (KIP-699) → a list of the same

A group's coordinator gets a connection of its own, as in Kafka: its id is 2^31 - 1 less the
broker's. A heartbeat would otherwise wait for a Fetch that waits for records.
"""

from __future__ import annotations

from typing import Final

from batchval.network.client import ConsumerNetworkClient
from batchval.network.cluster_metadata import ClusterMetadata
from batchval.network.errors import InvalidAnswerError, broker_error
from batchval.network.request import Build, Node
from batchval.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

__all__ = ["GROUP", "TRANSACTION", "find_coordinator"]

#: Kinds of keys.
GROUP: Final = 0
TRANSACTION: Final = 1

_SEVERAL_FROM: Final = 4


async def find_coordinator(
    client: ConsumerNetworkClient,
    metadata: ClusterMetadata,
    key: str,
    kind: int = GROUP,
    timeout_ms: float = 60_000,
) -> Node:
    """Return the coordinator of a group id or transactional id.

    Raises AuthorizationError, BrokerError or AuthenticationError where another request is of no
    use, RequestTimeoutError (with the last reason) when the time is over.
    """
    what = f"{'transactional id' if kind == TRANSACTION else 'group'} {key}"
    return await metadata.ask_any(
        lambda node: _ask(client, node, key, kind, what), timeout_ms, f"no coordinator of {what}"
    )


async def _ask(client: ConsumerNetworkClient, node: Node, key: str, kind: int, what: str) -> Node:
    def make(version: int) -> FindCoordinatorRequest:
        if version >= _SEVERAL_FROM:
            return FindCoordinatorRequest(
                key_type=kind, coordinator_keys=[key], api_version=version
            )
        return FindCoordinatorRequest(key, kind, api_version=version)

    lowest = 0 if kind == GROUP else 1
    versions = (lowest, FindCoordinatorRequest.max_version)
    sent = await client.send(node, Build(FindCoordinatorRequest.api_key, versions, make))
    answer: FindCoordinatorResponse = sent.response
    found = next((one for one in answer.coordinators if one.key == key), answer)
    if found.error_code:
        raise broker_error(found.error_code, what, found.error_message)
    if found.node_id < 0 or not found.host or not 0 < found.port <= 0xFFFF:
        address = f"{found.node_id} at {found.host[:100]!r}:{found.port}"
        raise InvalidAnswerError(f"{what}: the coordinator cannot be broker {address}")
    number = 2**31 - 1 - found.node_id if kind == GROUP else found.node_id
    return Node(number, found.host, found.port)

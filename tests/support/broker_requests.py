"""Requests that brokers, controllers and operators send, as frames: each API at each version.

Bodies are those of Kafka's definitions, with one element in each array. The tagged fields that tell
a broker from a client (Fetch from version 15 on) are written here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from batchval.protocol.apis import APIS, ApiKey
from batchval.protocol.field_schema import Shape, shape_of, write
from batchval.protocol.gate_versions import carried_versions
from batchval.protocol.primitives import Writer
from batchval.protocol.walkers.broker_requests import BROKER_APIS

FIRST_REPLICA_STATE = 15  # of Fetch
REPLICA_STATE_TAG = 1
SHARE_COORDINATOR = 2
#: LeaderAndIsr, StopReplica, UpdateMetadata, ControlledShutdown: brokers before Kafka 4 have these
REMOVED_KEYS = (4, 5, 6, 7)


class BrokerRequest(NamedTuple):
    """A frame with its length. ``answered``: the gate answers it, and does not end the
    connection."""

    key: int
    version: int
    frame: bytes
    answered: bool

    @property
    def name(self) -> str:
        """Return a name for a test."""
        return f"{APIS[self.key].name if self.key in APIS else self.key}-{self.version}"


def framed(
    key: int, version: int, body: bytes, *, correlation_id: int = 5, client: bytes = b"raw"
) -> bytes:
    """Return a request's frame with its length."""
    head = struct.pack(">hhih", key, version, correlation_id, len(client)) + client
    tags = b"\0" if key in APIS and APIS[key].is_flexible(version) else b""
    whole = head + tags + body
    return struct.pack(">i", len(whole)) + whole


def body_of(key: int, version: int, **values: Any) -> bytes:
    """Return a request's body with one element in each array; ``values`` are fields of its root."""
    shapes = shape_of(f"{APIS[key].name}Request", version)
    w = Writer(APIS[key].is_flexible(version))
    write(shapes, w, _values(shapes) | values)
    return w.getvalue()


def _values(shapes: tuple[Shape, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for shape in shapes:
        if shape.tag is not None:
            continue
        if not shape.method:
            one: Any = _values(shape.fields)
        elif "string" in shape.method:
            one = "orders"
        else:
            one = {"uuid": bytes(15) + b"\1", "data": b"d", "nullable_data": b"d"}.get(
                shape.method, 0
            )
        found[shape.name] = [one] if shape.array else one
    return found


def with_replica(version: int, replica_id: int, *, tag: int = REPLICA_STATE_TAG) -> bytes:
    """Return the body of a Fetch request of a replica; -1: a consumer's."""
    if version < FIRST_REPLICA_STATE:
        return body_of(ApiKey.FETCH, version, ReplicaId=replica_id)
    body = body_of(ApiKey.FETCH, version)
    assert body[-1] == 0  # no tagged fields yet
    if replica_id == -1:
        return body
    state = struct.pack(">iqb", replica_id, 7, 0)
    return body[:-1] + bytes([1, tag, len(state)]) + state


def broker_requests(client: bytes = b"raw") -> Iterator[BrokerRequest]:
    """Return each request between brokers, and each to a controller, at each version."""
    carried = carried_versions()
    for key in (*sorted(BROKER_APIS), *sorted(set(APIS) - carried.keys()), *REMOVED_KEYS):
        is_carried = key in carried
        for version in range((carried[key][1] if is_carried else 8) + 1):
            body = body_of(key, version) if is_carried else bytes(20)
            yield BrokerRequest(key, version, framed(key, version, body, client=client), is_carried)
    for key, version, body in shared_requests():
        yield BrokerRequest(key, version, framed(key, version, body, client=client), True)


def shared_requests() -> Iterator[tuple[int, int, bytes]]:
    """Return key, version and body of brokers' requests in APIs that clients use, too."""
    for version in range(19):
        for replica_id in (0, 1, 0x7FFFFFFF, -3):
            yield ApiKey.FETCH, version, with_replica(version, replica_id)
    for version in range(12):
        yield ApiKey.LIST_OFFSETS, version, body_of(ApiKey.LIST_OFFSETS, version, ReplicaId=1)
    for version in (3, 4):
        body = body_of(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, ReplicaId=1)
        yield ApiKey.OFFSET_FOR_LEADER_EPOCH, version, body
    for version in (4, 5):
        yield ApiKey.ADD_PARTITIONS_TO_TXN, version, body_of(ApiKey.ADD_PARTITIONS_TO_TXN, version)
    body = body_of(ApiKey.FIND_COORDINATOR, 6, KeyType=SHARE_COORDINATOR)
    yield ApiKey.FIND_COORDINATOR, 6, body


def client_requests() -> Iterator[tuple[int, int, bytes]]:
    """Return key, version and body of clients' requests in these APIs."""
    for version in range(19):
        yield ApiKey.FETCH, version, with_replica(version, -1)
        yield ApiKey.FETCH, version, with_replica(version, -2)
    for version in range(12):
        for replica_id in (-1, -2):
            body = body_of(ApiKey.LIST_OFFSETS, version, ReplicaId=replica_id)
            yield ApiKey.LIST_OFFSETS, version, body
    for version in range(5):
        body = body_of(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, ReplicaId=-1)
        yield ApiKey.OFFSET_FOR_LEADER_EPOCH, version, body
    for version in range(4):
        yield ApiKey.ADD_PARTITIONS_TO_TXN, version, body_of(ApiKey.ADD_PARTITIONS_TO_TXN, version)
    for version in range(7):
        for key_type in (0, 1):
            body = body_of(ApiKey.FIND_COORDINATOR, version, KeyType=key_type)
            yield ApiKey.FIND_COORDINATOR, version, body

"""Requests of brokers are found among those of clients, also if their sizes are wrong."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest

from batchval.protocol.apis import APIS, ApiKey
from batchval.protocol.errors import ProtocolError
from batchval.protocol.messages.fetch import FetchRequest
from batchval.protocol.walkers.broker_requests import (
    BROKER_APIS,
    SHARED_WITH_BROKERS,
    is_from_broker,
)
from tests.support.broker_requests import (
    body_of,
    client_requests,
    framed,
    shared_requests,
    with_replica,
)
from tests.unit.protocol.values import frame, invented


def asked(key: int, version: int, body: bytes) -> bool:
    return is_from_broker(framed(key, version, body)[4:])


def test_every_request_of_a_broker_is_found_and_none_of_a_client() -> None:
    seen = set()
    for key, version, body in shared_requests():
        assert asked(key, version, body), (APIS[key].name, version)
        seen.add(key)
    assert seen == SHARED_WITH_BROKERS
    for key, version, body in client_requests():
        assert not asked(key, version, body), (APIS[key].name, version)
    for key in APIS.keys() - SHARED_WITH_BROKERS:
        assert not is_from_broker(framed(key, 0, b""))
    assert not BROKER_APIS & SHARED_WITH_BROKERS


@pytest.mark.parametrize("replica_id", [-5, -4, -3, -2, -1, 0, 1, 2**31 - 1, -(2**31)])
def test_a_replica_has_an_id_from_0_on_or_that_of_a_brokers_own_copy(replica_id: int) -> None:
    # FetchRequest.isConsumer, isValidBrokerId: Kafka takes all other negative ids for consumers
    for version in range(19):
        body = with_replica(version, replica_id)
        assert asked(ApiKey.FETCH, version, body) == (replica_id >= 0 or replica_id == -3)


def test_a_cut_request_is_never_a_clients() -> None:
    for key, version, body in (*shared_requests(), *client_requests()):
        whole = framed(key, version, body)[4:]
        expected = is_from_broker(whole)
        for end in range(len(whole)):
            try:
                found = is_from_broker(whole[:end])
            except ProtocolError:
                continue
            assert found == expected, (APIS[key].name, version, end)


def state(replica_id: int, size: int | None = None) -> bytes:
    """Return tag 1 of a Fetch request, with a size of its own."""
    content = struct.pack(">iqb", replica_id, 7, 0)
    return bytes([1, len(content) if size is None else size]) + content


CLUSTER_ID = b"\0\3\2ab"[:2] + b"\3ab"  # tag 0 of three bytes: the compact string "ab"

#: tagged fields of a Fetch request -> what is found; None: it cannot be read
TAGS: dict[str, tuple[bytes, bool | None]] = {
    "none": (b"\0", False),
    "a cluster id": (b"\1" + CLUSTER_ID, False),
    "a consumer's state": (b"\1" + state(-1), False),
    "a replica's state": (b"\1" + state(3), True),
    "after a cluster id": (b"\2" + CLUSTER_ID + state(3), True),
    "after an unknown field": (b"\2" + b"\x64\2xy" + state(3), True),
    "twice, the consumer first": (b"\2" + state(-1) + state(3), True),
    "twice, the replica first": (b"\2" + state(3) + state(-1), True),
    "a state that states no size": (b"\1" + state(3, 0), None),
    "a state that states too little": (b"\1" + state(3, 4), None),
    "a state that states too much": (b"\2" + state(-1, 13 + 15) + state(3), None),
    "a cluster id that hides the state": (b"\2" + b"\0\x12\3ab" + state(3), None),
    "a count above what is there": (b"\3" + state(-1), None),
    "a count of two bytes": (b"\x81\0" + state(3), True),
}


@pytest.mark.parametrize("name", TAGS)
@pytest.mark.parametrize("version", [15, 16, 17, 18])
def test_tagged_fields_that_hide_a_replica(name: str, version: int) -> None:
    tags, expected = TAGS[name]
    body = body_of(ApiKey.FETCH, version)[:-1] + tags
    if expected is None:
        with pytest.raises(ProtocolError):
            asked(ApiKey.FETCH, version, body)
    else:
        assert asked(ApiKey.FETCH, version, body) is expected
        assert asked(ApiKey.FETCH, version, body + b"\1\0\0") is expected  # Kafka reads no further


@pytest.mark.parametrize(("version", "tag", "size"), [(17, 0, 15), (18, 0, 17), (18, 1, 9)])
def test_a_partitions_field_that_lies_about_its_size(version: int, tag: int, size: int) -> None:
    # Kafka reads fields that it knows by their type: the walks would part
    body = body_of(ApiKey.FETCH, version)
    at = body.index(bytes(15) + b"\1") + 16 + 1 + 32  # topic id, count, the partition's fields
    assert body[at] == 0
    right = 16 if tag == 0 else 8
    for stated, fine in ((right, True), (size, False)):
        changed = body[:at] + bytes([1, tag, stated]) + bytes(stated) + body[at + 1 :]
        if fine:
            assert not asked(ApiKey.FETCH, version, changed)
        else:
            with pytest.raises(ProtocolError):
                asked(ApiKey.FETCH, version, changed)


def test_it_agrees_with_the_reader_of_fetch_requests() -> None:
    rng = random.Random(5)
    replicas = 0
    for version in range(FetchRequest.min_version, FetchRequest.max_version + 1):
        for seed in range(150):
            request = invented(FetchRequest, version, seed)
            replica_id = rng.choice((-1, -2, -3, 0, 5))
            (request if version < 15 else request.replica_state).replica_id = replica_id
            found = is_from_broker(frame(request, version)[4:])
            assert found == (replica_id >= 0 or replica_id == -3), (version, seed)
            replicas += found
    assert replicas > 300


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_any_buffer_is_read(wrap: Callable[[bytes], bytes]) -> None:
    key, version, body = next(shared_requests())
    assert is_from_broker(wrap(framed(key, version, body)[4:]))
    with pytest.raises(ProtocolError):
        is_from_broker(b"\0\1\0")

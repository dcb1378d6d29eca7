"""The target ``old_versions``: requests of versions that Kafka 4 removed, and the answers to them.

What must hold: nothing but ProtocolError is raised; what a translation makes is a whole message of
the other version, and not much larger than what it was made of.
"""

from __future__ import annotations

import random
from functools import partial

from batchval.protocol.apis import ApiKey
from batchval.protocol.errors import ProtocolError
from batchval.protocol.old_fetch import AnswerWriter, OldFetch, read_answer
from batchval.protocol.old_list_offsets import EARLIEST, LATEST, OldListOffsets
from batchval.protocol.old_versions import CONSUMERS, lower_answer, raise_request
from batchval.protocol.primitives import Reader, Writer
from tests.evidence.hostile.buffers import buffer_of
from tests.evidence.hostile.wire import broken
from tests.unit.protocol.definitions import definition, invent, read
from tests.unit.protocol.values import Inventor

__all__ = ["old_versions_case"]

_MAX_ELEMENTS = 50  # topics and partitions
_GROWTH, _HEAD = 8, 64

#: kafka-python has no definitions of delegation tokens: of those only the number changes.
_PAIRS = [
    (key, version)
    for key, raised in CONSUMERS.items()
    for version in range(raised.oldest, raised.to)
    if version < 4
    and not (ApiKey.CREATE_DELEGATION_TOKEN <= key <= ApiKey.DESCRIBE_DELEGATION_TOKEN)
]


def _body(rng: random.Random, key: ApiKey, side: str, version: int) -> memoryview:
    w = Writer()
    invent(definition(key, side), version, Inventor(rng.getrandbits(32)), w)
    data = w.getvalue()
    return buffer_of(broken(rng, data) if rng.random() < 0.8 else data)


def _whole(key: ApiKey, side: str, version: int, made: bytes, size: int) -> list[str]:
    r = Reader(made)
    read(definition(key, side), version, r)
    r.finish()
    grown = len(made) > _GROWTH * size + _HEAD
    return [f"{key.name} {side}: {len(made)} bytes of {size}"] if grown else []


def _fetch(rng: random.Random, version: int) -> list[str]:
    body = _body(rng, ApiKey.FETCH, "Request", version)
    request = OldFetch(body, version, max_partitions=_MAX_ELEMENTS)
    raised = request.raised([one.offset for one in request.partitions], 1 << 20, 0)
    return _whole(ApiKey.FETCH, "Request", 10, raised, len(body))


def _fetch_answer(rng: random.Random, version: int) -> list[str]:
    body = _body(rng, ApiKey.FETCH, "Response", 10)
    answer = read_answer(body)
    writer = AnswerWriter(answer, version, 7)
    for fetched in answer.partitions:
        writer.put(fetched, fetched.error_code, [bytes(fetched.records or b"")])
    frame = b"".join(writer.finish())
    return _whole(ApiKey.FETCH, "Response", version, frame[8:], len(body))


def _list_offsets(rng: random.Random, version: int) -> list[str]:
    body = _body(rng, ApiKey.LIST_OFFSETS, "Request", version)
    request = OldListOffsets(body, max_partitions=_MAX_ELEMENTS)
    found = _whole(ApiKey.LIST_OFFSETS, "Request", 1, request.raised(), len(body))
    for timestamp in (LATEST, EARLIEST):
        found += _whole(ApiKey.LIST_OFFSETS, "Request", 1, request.raised(timestamp), len(body))
        request.note(timestamp, _body(rng, ApiKey.LIST_OFFSETS, "Response", 1))
    request.shrink()
    answer = _body(rng, ApiKey.LIST_OFFSETS, "Response", 1)
    return found + _whole(ApiKey.LIST_OFFSETS, "Response", 0, request.lowered(answer), len(answer))


def _other(rng: random.Random, key: ApiKey, version: int) -> list[str]:
    raised = CONSUMERS[key]
    if rng.random() < 0.5:
        body = _body(rng, key, "Request", version)
        made, side, to = (
            raise_request(raised, version, body, max_elements=_MAX_ELEMENTS),
            "Request",
            raised.to,
        )
        steps = raised.requests[version]
    else:
        body = _body(rng, key, "Response", raised.to)
        made, side, to = lower_answer(raised, version, body), "Response", version
        steps = raised.answers[version]
    return [] if steps is None else _whole(key, side, to, made, len(body))


def old_versions_case(seed: int) -> list[str]:
    """Return what is wrong with the translation that follows from this number."""
    rng = random.Random(seed)
    key, version = rng.choice(_PAIRS)
    if key == ApiKey.FETCH:
        case = partial(rng.choice((_fetch, _fetch_answer)), rng, version)
    elif key == ApiKey.LIST_OFFSETS:
        case = partial(_list_offsets, rng, version)
    else:
        case = partial(_other, rng, key, version)
    try:
        return case()
    except ProtocolError:
        return []

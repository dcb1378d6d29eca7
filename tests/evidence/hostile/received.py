"""The target ``received``: answers to Fetch, whole and broken, through a Receiver and through a
ReceiveLoop.

What must hold: of a whole answer a receiver counts what ``walk_fetched`` counts of the same answer
read whole, however its bytes come, and hands the same batches over; of a broken one it takes no
more memory than a little ahead of the bytes that came, counts no batch twice, and goes on only
where the message could be read; a loop ends when it is asked to.
"""

from __future__ import annotations

import os
import random
import socket
import threading

from batchval.core.fetched import walk_fetched
from batchval.fetch.receive_loop import ReceiveLoop
from batchval.fetch.receiver import Quota, Receiver
from batchval.protocol.errors import ProtocolError
from batchval.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from tests.evidence.hostile.seeds import batch, record
from tests.evidence.hostile.wire import broken

__all__ = ["received_case"]

_ID = 1
_PARTITIONS = 3
_STEPS = (9, 700, 5000, 1 << 20)
_AHEAD = (1 << 20) + (64 << 10)  # bytes that a length may buy before its own have come
_BUFFER = 264 << 10  # that a receiver has next to a block
_DECODES = ("headers", "records", "blocks")


def _batches(rng: random.Random) -> bytes:
    made, offset = [], rng.randrange(3)
    for _ in range(rng.randrange(4)):
        count = rng.randrange(1, 5)
        value = bytes(rng.choice((0, 1, 90, 90, 90, 70_000)))
        body = b"".join(record(n, None, value) for n in range(count))
        made.append(batch(body, count, rng.choice((0, 0, 1, 4)), base_offset=offset))
        offset += count + rng.randrange(2)
    whole = b"".join(made)
    return whole[: rng.randrange(len(whole) + 1)] if rng.random() < 0.3 else whole


def _partition(rng: random.Random, index: int, version: int) -> PartitionData:
    data = PartitionData(index, rng.choice((0, 0, 0, 6)), rng.randrange(1 << 60), -1)
    data.records = rng.choice((None, b"", _batches(rng), _batches(rng)))
    if rng.random() < 0.3:
        data.aborted_transactions = [AbortedTransaction(i, i + 1) for i in range(rng.randrange(4))]
    if version >= 12 and rng.random() < 0.3:
        data.unknown_tagged_fields = ((77, rng.randbytes(40)),)
    return data


def _answer(rng: random.Random, version: int) -> FetchResponse:
    parts = [
        _partition(rng, index, version) for index in range(_PARTITIONS + 1) if rng.random() < 0.8
    ]
    return FetchResponse(
        rng.randrange(2), responses=[FetchableTopicResponse("t", partitions=parts)]
    )


def _receiver(version: int, **settings: object) -> Receiver:
    receiver = Receiver(version, **settings)  # type: ignore[arg-type]
    for index in range(_PARTITIONS):
        receiver.add("t", index, 0)
    return receiver


def _expected(answer: FetchResponse, decode: str, crcs: bool, isolation: int) -> tuple[int, int]:
    records = size = 0
    for data in answer.responses[0].partitions:
        aborted = isolation and data.aborted_transactions
        if (
            data.partition_index < _PARTITIONS
            and not data.error_code
            and not aborted
            and data.records
        ):
            found = walk_fetched(data.records, 0, decode, crcs)
            records, size = records + found.records, size + found.key_value_bytes
    return records, size


def _handed_over(answer: FetchResponse, receiver: Receiver, isolation: int) -> list[str]:
    """Compare blocks with what the answer has."""
    expected = {}
    for data in answer.responses[0].partitions:
        aborted = isolation and data.aborted_transactions
        if (
            data.partition_index < _PARTITIONS
            and not data.error_code
            and not aborted
            and data.records
        ):
            found = walk_fetched(data.records, 0, "headers")
            if found.next_offset:
                whole = bytes(data.records[: found.end])
                expected[data.partition_index] = (whole, 0, found.next_offset, data.high_watermark)
    came = {slot: (bytes(records), *rest) for slot, records, *rest in receiver.blocks()}
    return (
        []
        if came == expected
        else [f"blocks of {sorted(came)} came, not those of {sorted(expected)}"]
    )


def _feed(rng: random.Random, receiver: Receiver, stream: bytes, seeks: bool = False) -> list[str]:
    at, step = 0, rng.choice(_STEPS)
    while at < len(stream):
        size = rng.randrange(1, step)
        receiver.feed(stream[at : at + size])
        at += size
        if receiver.held_bytes > max(_AHEAD, 2 * at + (1 << 16)) + _BUFFER:
            return [f"{receiver.held_bytes} bytes are held after {at} came"]
        if seeks and rng.random() < 0.01:
            receiver.seek(rng.choice(receiver.positions())[0], 0)
    return []


def _through_a_receiver(rng: random.Random) -> list[str]:
    version = rng.randrange(4, 13)
    decode, crcs, isolation = rng.choice(_DECODES), rng.random() < 0.5, rng.randrange(2)
    answer = _answer(rng, version)
    receiver = _receiver(version, decode=decode, check_crcs=crcs, isolation=isolation)
    receiver.request()
    found = _feed(rng, receiver, b"".join(answer.encode(_ID, version)))
    how = "headers" if decode == "blocks" else decode
    expected, counted = _expected(answer, how, crcs, isolation), receiver.counted()[:2]
    if counted != expected:
        found.append(f"counted {counted}, not {expected}")
    if decode == "blocks":
        found += _handed_over(answer, receiver, isolation)
    if receiver.failure or receiver.is_under_way:
        found.append(f"a whole answer is not taken: {receiver.failure}")
    return found


def _broken(rng: random.Random, version: int) -> tuple[FetchResponse | None, bytes]:
    frame = b"".join(_answer(rng, version).encode(_ID, version))
    body = frame[:8] + broken(rng, frame[8:])
    body = (len(body) - 4).to_bytes(4, "big") + body[4:]
    try:
        return FetchResponse.decode(body[4:], version), body
    except ProtocolError:
        return None, body


def _through_a_broken_answer(rng: random.Random) -> list[str]:
    version, left = rng.randrange(4, 13), rng.choice((0, 3, 1 << 40))
    quota = Quota(left)
    settings = {"decode": rng.choice(_DECODES), "isolation": rng.randrange(2)}
    receiver = _receiver(
        version, quota=quota if settings["decode"] != "blocks" else None, **settings
    )
    receiver.request()
    answer, frame = _broken(rng, version)
    found = _feed(rng, receiver, frame, seeks=rng.random() < 0.5)
    if answer is not None and left and receiver.failure:
        found.append(f"an answer that can be read is refused: {receiver.failure}")
    for _, records, offset, next_offset, _ in receiver.blocks():
        if walk_fetched(records, offset, "headers").next_offset != next_offset:
            found.append("a block ends elsewhere than its batches")
    if settings["decode"] != "blocks" and receiver.counted().records > left:
        found.append("more than the quota is counted")
    _feed(rng, receiver, rng.randbytes(rng.choice((0, 7, 90_000))))
    receiver.returned()
    receiver.request()
    return found


def _through_a_loop(rng: random.Random) -> list[str]:
    version = rng.randrange(4, 13)
    pipes = [*os.pipe(), *os.pipe()]
    for end in pipes:
        os.set_blocking(end, False)
    loop = ReceiveLoop(pipes[0], pipes[1], pipes[3], 1000)
    thread = threading.Thread(target=loop.run)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.settimeout(0.02)
    receiver = _receiver(version, decode=rng.choice(_DECODES))
    try:
        thread.start()
        loop.add(receiver, ours.fileno())
        for _ in range(rng.randrange(3)):
            try:
                theirs.recv(1 << 16)
                theirs.sendall(_broken(rng, version)[1])
            except OSError:
                break
            receiver.positions()
            for slot, *_ in receiver.blocks():
                receiver.used(slot)
        if rng.random() < 0.5:
            loop.remove(receiver)
    finally:
        loop.stop()
        thread.join(30)
        ours.close()
        theirs.close()
        for end in pipes:
            os.close(end)
    return ["a loop does not end"] if thread.is_alive() else []


def received_case(seed: int) -> list[str]:
    """Return what is wrong with the receiving of the answer that follows from this number."""
    rng = random.Random(seed)
    if seed % 50 == 0:
        return _through_a_loop(rng)
    return _through_a_receiver(rng) if seed % 2 else _through_a_broken_answer(rng)

"""The target ``down_conversion``: answers to Fetch, whole and broken, converted down.

What must hold: nothing but NotConverted is raised; what comes out, also before a batch that cannot
be converted, is whole messages with right checksums; a whole answer gives the messages of the rules
in plain Python; slices of any size give what one call gives.
"""

from __future__ import annotations

import random
from functools import cache
from typing import Any

from batchval.core.batches.batch import batches
from batchval.core.convert.aborted import AbortedTransactions
from batchval.core.convert.down_conversion import DownConverted, NotConverted, down_convert
from tests.evidence.hostile.buffers import buffer_of
from tests.evidence.hostile.mutator import Mutator
from tests.evidence.hostile.seeds import seeds
from tests.support.fetch_answers import aborted_in, answer, bytes_of, expected

__all__ = ["down_case"]

_LIMIT = 1 << 20


def _converted(data: Any, to_magic: int, **settings: Any) -> tuple[DownConverted, str]:
    try:
        return down_convert(data, to_magic, max_decompressed_bytes=_LIMIT, **settings), ""
    except NotConverted as error:
        return error.converted, str(error)


@cache
def _seeds() -> list[bytes]:
    return seeds()


def _wrong_messages(output: bytes, data: bytes) -> list[str]:
    """Return what is wrong with messages that did not pass as they are in the input."""
    size = 0
    for one in batches(output):
        size += one.size_in_bytes
        if bytes(one) in data:
            continue
        if not one.is_valid:
            return [f"the checksum of the message at byte {size - one.size_in_bytes} is wrong"]
        list(one.records())
    return [] if size == len(output) else [f"{size} of {len(output)} bytes are whole messages"]


def _slices(
    data: Any, to_magic: int, settings: dict[str, Any], rng: random.Random
) -> tuple[bytes, int, str]:
    output, position, fault = b"", 0, ""
    settings = dict(settings)
    if rng.random() < 0.5:  # what is kept between the slices
        settings["aborted"] = AbortedTransactions(settings["aborted"])
    while not fault:
        most = {"max_bytes": rng.choice((1, 60, 1000)), "max_work": rng.choice((1, 1000, 1 << 20))}
        made, fault = _converted(data, to_magic, position=position, **most, **settings)
        output += made.output
        if made.position == position or made.is_partial:
            return output, made.position, fault
        position, settings["aborted"] = made.position, made.aborted
    return output, position, fault


def _broken(rng: random.Random, data: bytes) -> bytes:
    kind = rng.randrange(4)
    if kind == 0:
        return data[: rng.randrange(len(data) + 1)]
    if kind == 1:  # batches of all kinds, most of them damaged inside
        mutator = Mutator(_seeds(), rng.randrange(1, 2**63))
        return b"".join(mutator.case() for _ in range(rng.randrange(1, 4))) + data
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(out))
        if kind == 2:
            out[at] = rng.randrange(256)
        else:
            out[at : at + rng.randrange(9)] = rng.randbytes(rng.randrange(9))
    return bytes(out)


def down_case(seed: int) -> list[str]:
    """Return what is wrong with the conversion of the answer that follows from this number."""
    rng = random.Random(seed)
    sent, to_magic = answer(rng), rng.randrange(2)
    data, whole = bytes_of(sent), rng.random() < 0.3
    settings: dict[str, Any] = {
        "first_offset": rng.choice((0, sent[-1].base_offset)),
        "aborted": aborted_in(sent) if rng.random() < 0.6 else (),
    }
    if not whole:
        data = _broken(rng, data)
        settings["check_crcs"] = rng.random() < 0.2
    buffer = bytes(data) if rng.random() < 0.3 else buffer_of(data)
    made, fault = _converted(buffer, to_magic, **settings)
    found = _wrong_messages(made.output, data)
    # where offsets go back, each slice counts anew which transactions have begun
    if whole or not settings["aborted"]:
        output, position, slice_fault = _slices(buffer, to_magic, settings, rng)
        if (output, position, bool(slice_fault)) != (made.output, made.position, bool(fault)):
            found.append(
                f"in slices: {len(output)} bytes up to {position} {slice_fault}; in one: {fault}"
            )
    if whole:
        rows = expected(sent, to_magic, settings["first_offset"], settings["aborted"])
        read = [each for one in batches(made.output) for each in one.records()]
        if fault or [(row.offset, row.key, row.value) for row in rows] != [
            (each.offset, each.key, each.value) for each in read
        ]:
            found.append(f"{len(read)} records, expected {len(rows)} {fault}")
    return found

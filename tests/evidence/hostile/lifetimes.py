"""The target ``freed_or_resized``: buffers are taken away while something made of them is in use.

A user is a generator: it takes a buffer, makes something of it, and pauses; later steps use what it
has made. Between the steps the buffer is overwritten, resized, closed or dropped, and users are
abandoned half way. All follows from one number.

What must hold: no crash; no exceptions but BatchvalError and what Python itself raises for a
released buffer (BufferError, ValueError); contents are those of the buffer, or after an overwriting
hold no poison (marked.py); and after the last user has gone, the buffer can be resized or closed.
"""

from __future__ import annotations

import array
import contextlib
import gc
import mmap
import random
from collections.abc import Callable, Generator
from functools import cache
from itertools import islice
from typing import Any

import numpy as np

from batchval.core.batches.batch import RecordBatch, batches
from batchval.core.batches.columns import scan_batches
from batchval.core.batches.validator import LogValidator
from batchval.core.convert.builder import BatchBuilder
from batchval.errors import BatchvalError
from batchval.fetch.partition_chunks import FetchPieces, FetchSplitter
from batchval.perf.histogram import Histogram
from batchval.policy import TopicPolicy
from batchval.protocol.frames import FrameSplitter
from batchval.protocol.primitives import Reader
from batchval.protocol.walkers.fetch_tail import FetchTail, rewrite_tail
from batchval.protocol.walkers.produce import ProduceRequestView
from tests.evidence.hostile.marked import Case, cases, has_poison
from tests.evidence.hostile.operations import Values
from tests.evidence.hostile.seeds import NOW

__all__ = ["lifetime_case"]

_MAX_CASE_BYTES = 16 << 10  # of a case: larger ones say nothing more
_RELEASED = (BatchvalError, BufferError, ValueError)
_Steps = Generator[list[str], None, None]
_Contents = list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]]


class _Buffer:
    """A case in memory of one kind. ``dirty`` from the first overwriting on."""

    def __init__(self, case: Case, kind: str) -> None:
        self.case = case
        self.kind = kind
        self.dirty = False
        self.memory: Any = None
        match kind:
            case "bytearray":
                self.memory = bytearray(case.data)
            case "mmap":
                # private: a shared anonymous mapping that grows has no memory for its new pages
                self.memory = mmap.mmap(-1, len(case.data), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
                self.memory[:] = case.data
            case "numpy":
                self.memory = np.array(bytearray(case.data), "u1")
            case _:
                self.memory = array.array("B", case.data)

    def overwrite(self, rng: random.Random) -> None:
        self.dirty = True
        at = rng.randrange(len(self.case.data))
        for _ in range(rng.randrange(1, 40)):
            self.memory[at % len(self.memory)] = rng.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF))
            at += 1

    def resize(self, rng: random.Random) -> None:
        """Change the size. BufferError or ValueError where somebody holds the buffer."""
        self.dirty = True
        size = rng.choice((0, 1, 20, 61, len(self.case.data) // 2, 4 * len(self.case.data)))
        match self.kind:
            case "bytearray":
                self.memory[:] = bytes(size)
            case "mmap":
                self.memory.resize(max(size, 1))
            case "numpy":
                self.memory.resize(max(size, 1))
            case _:
                del self.memory[size:]

    def drop(self) -> None:
        """Close it where that is possible. Only its users know it afterwards."""
        self.dirty = True
        try:
            if self.kind == "mmap":
                self.memory.close()
        finally:
            self.memory = None


# ---- users ---------------------------------------------------------------------------------------


@cache
def _contents(name: str) -> _Contents:
    """Return key, value and headers of each record of a case."""
    data = next(case.data for case in cases() if case.name == name)
    found: _Contents = []
    for one in batches(data):
        for record in one.records():
            key, value = record.key, record.value
            found.append(
                (
                    None if key is None else bytes(key),
                    None if value is None else bytes(value),
                    record.headers,
                )
            )
    return found


def _wrong(records: list[Any], first: int, of: _Buffer, clean: bool) -> list[str]:
    """Return whether these are the case's records from ``first`` on.

    ``clean``: nothing was overwritten when they were read.
    """
    for i, record in enumerate(records):
        key, value = (None if part is None else bytes(part) for part in (record.key, record.value))
        if (
            clean
            and not of.dirty
            and (key, value, record.headers) != _contents(of.case.name)[first + i]
        ):
            return [f"record {first + i} has other contents"]
        parts = [part for name, value in record.headers for part in (name.encode(), value)]
        if of.case.marked and has_poison(key, value, *parts):
            return [f"foreign bytes in record {first + i}: {key!r} {(value or b'')[:200]!r}"]
    return []


def _records(of: _Buffer, rng: random.Random) -> _Steps:
    one = RecordBatch(of.memory)
    yield []
    clean = not of.dirty
    iterator = one.records()
    yield []
    first = list(islice(iterator, rng.randrange(4)))
    yield _wrong(first, 0, of, clean)
    rest = list(iterator)
    yield _wrong(first, 0, of, clean) + _wrong(rest, len(first), of, clean)
    repr(one), one.base_offset, one.is_valid
    del one, iterator
    yield _wrong(first + rest, 0, of, clean)
    yield _wrong(rest, len(first), of, clean)


def _batches(of: _Buffer, rng: random.Random) -> _Steps:
    walk = batches(of.memory)
    for one in walk:
        yield []
        assert one.size_in_bytes > 0
        records = list(islice(one.records(), 2))
        yield []
        del one
        if of.case.marked and any(has_poison(record.value) for record in records):
            yield ["foreign bytes in a record"]


@cache
def _validator(codec: str) -> LogValidator:
    return LogValidator(TopicPolicy(compression_type=codec, accept_claims_header=True))


def _ranges(of: _Buffer, rng: random.Random) -> _Steps:
    size = len(of.case.data)
    pairs: Any = [(0, size), (0, min(61, size))]
    if rng.random() < 0.5:
        pairs = np.array(pairs, "<i8")
    tag: Any = None if of.case.tag is None else bytearray(of.case.tag)
    policies = [TopicPolicy(), TopicPolicy()]
    claims = [(tag, "verify"), None] if tag is not None else None
    columns = _validator("producer").check_ranges(
        of.memory,
        pairs,
        policies,
        now_ms=NOW,
        claims=claims,  # type: ignore[arg-type]
    )
    yield []
    del pairs
    policies.clear()
    if claims is not None:
        claims.clear()
        del tag[:]
    rules = columns["rule"]
    yield []
    str(columns.result(rng.randrange(2)))
    yield []
    list(columns.rows())
    del columns
    rules.sum()
    yield []


def _at_rest(of: _Buffer, rng: random.Random) -> _Steps:
    validator = LogValidator(profile="log")
    columns = validator.check_batches(of.memory)
    yield []
    scanned = scan_batches(of.memory)
    offsets = scanned["base_offset"]
    yield []
    for i in range(len(columns)):
        str(columns.result(i))
    del validator
    yield []
    table = columns.to_arrow()
    list(columns.rows())
    del scanned, columns
    offsets.sum()
    yield []
    table.validate(full=True)
    yield []


def _validated(of: _Buffer, rng: random.Random) -> _Steps:
    codec = rng.choice(("producer", "gzip", "lz4", "uncompressed"))
    result = _validator(codec).validate(of.memory, now_ms=NOW, in_place=rng.random() < 0.5)
    yield []
    str(result), result.record_errors
    output = result.output
    del result
    yield []
    if output is not None:
        bytes(output)
    yield []


def _stage(of: _Buffer, rng: random.Random) -> _Steps:
    magic = rng.randrange(3)
    result = _validator("producer").validate_messages_and_assign_offsets(
        of.memory, now_ms=NOW, to_magic=magic
    )
    yield []
    for one in batches(result.output or b""):
        yield _wrong(list(one.records()), 0, of, False)


def _request(of: _Buffer, rng: random.Random) -> _Steps:
    splitter = FrameSplitter(1 << 20)
    frames = splitter.feed(of.memory)
    yield []
    views = [ProduceRequestView(frame) for frame in frames]
    del frames, splitter
    yield []
    kept: list[Any] = []
    for view in views:
        for i in range(len(view)):
            view.topic(i), view.claims(i)
            kept.append(view.records(i))
        kept += view.rewritten(correlation_id=5)
    yield []
    del views
    for part in kept:
        bytes(part or b"")
    yield []


def _reader(of: _Buffer, rng: random.Random) -> _Steps:
    reader = Reader(of.memory)
    yield []
    reader.int32(), reader.int16()
    yield []
    reader.int64(), reader.rest()
    yield []


def _pieces(of: _Buffer, rng: random.Random) -> _Steps:
    kept: list[Any] = []
    pieces = FetchPieces(of.case.version, lambda topic, data, ended: kept.append(data.records))
    pieces.read(of.memory)
    yield []
    del pieces
    for part in kept:
        if part is not None:
            _validator("producer").check(part, now_ms=NOW)
    yield []
    data = b"".join((len(of.case.data).to_bytes(4, "big"), of.case.data))
    splitter, at = FetchSplitter(1 << 24), 0
    splitter.expect(
        1, FetchPieces(of.case.version, lambda topic, data, ended: kept.append(data.records))
    )
    old: list[memoryview] = []
    while at < len(data):
        target = splitter.get_buffer()
        size = min(len(target), len(data) - at, rng.choice((3, 100, 5000)))
        target[:size] = data[at : at + size]
        old.append(target)
        at += size
        splitter.buffer_updated(size)
        yield []
    for target in old[:20]:  # of a buffer that is not the splitter's any more, or still is
        target[:8] = b"\xff" * min(8, len(target))
    yield []
    del splitter
    for part in kept:
        bytes(part or b"")
    yield []


def _streamed(of: _Buffer, rng: random.Random) -> _Steps:
    """Stream a frame; all that was read into or handed out is kept, and written to later."""
    splitter = FrameSplitter(1 << 24, whole=True)
    data = of.case.data * 3
    kept: list[memoryview] = []
    at = 0
    while at < len(data):
        target = splitter.get_buffer()
        size = min(len(target), len(data) - at, rng.choice((1, 20, 100, 5000)))
        target[:size] = data[at : at + size]
        kept.append(target)
        at += size
        kept += splitter.buffer_updated(size)
        partial = splitter.partial
        if partial is not None and rng.random() < 0.3:
            kept.append(splitter.stream_partial())
        elif rng.random() < 0.1:
            target = rng.choice(kept)[:8]
            target[:] = b"\0\0\0\x20\0\0\0\1"[: len(target)]
        yield []
    del splitter
    for part in kept:
        bytes(part[:100])
    yield []


def _tail(of: _Buffer, rng: random.Random) -> _Steps:
    walk, at, before = FetchTail(1, of.case.version), 0, 0
    body = memoryview(of.memory)
    while at < len(body) and walk.tail_size < 0:
        piece = body[at : at + rng.choice((1, 100, 5000))]
        at += len(piece)
        before += max(walk.feed(piece), 0)
        del piece
        yield []

    def replace(*_: Any) -> tuple[str, int]:
        if of.memory is not None:
            of.overwrite(rng)
        return rng.choice(("g", "gate", "gate.example.com")), 9

    tail = body[before:]
    out = rewrite_tail(tail, 1, of.case.version, replace)
    yield (
        [] if len(out) == len(tail) else [f"a tail of {len(tail)} bytes has {len(out)} afterwards"]
    )


def _builder(of: _Buffer, rng: random.Random) -> _Steps:
    part = memoryview(of.memory)[:600]
    made = BatchBuilder(1 << 14, rng.randrange(5))
    made.append(part[:5], part, [("h", part[:3])], NOW)
    yield []
    made.append(None, part, (), NOW + 1)
    del part
    yield []
    payload = made.payload()
    with contextlib.suppress(BufferError):  # somebody has a view of the records
        made.append(b"k", bytes(40_000), (), NOW)
    if rng.random() < 0.5:
        del payload
    made.seal()
    view, halves = made.view(), made.split()
    yield []
    recycled = made.recycle()
    yield []
    bytes(view)
    if recycled is not None:
        recycled[:] = b"\xff" * len(recycled)
        BatchBuilder(1 << 14, 0, None, recycled).append(b"k", b"v", (), NOW)
    del made
    yield []
    for half in halves:
        half.seal()
        if not RecordBatch(bytes(half.view())).is_valid:
            yield ["a half of a batch has a wrong checksum"]
    yield []


def _many(of: _Buffer, rng: random.Random) -> _Steps:
    """Use what send_many holds: the caller's sequence, and the stamps."""
    count = rng.choice((1, 5, 100))
    values: Any = [rng.choice((b"v" * 30, memoryview(of.memory)[:9], None)) for _ in range(count)]
    stamps = array.array("q", [NOW] * count)
    one = rng.random() < 0.3
    taken = Values(of.memory if one else values, stamps)
    made = BatchBuilder(1 << 14, 0)
    yield []
    match rng.randrange(4):
        case 0:
            values.clear()
        case 1:
            del values[count // 2 :]
        case 2:
            values[:] = [7] * count
        case _:
            values += [b"more"] * 100
    yield []
    with contextlib.suppress(TypeError):  # None has no size, a number is not a value
        made.append_many(taken, 0, count, 1, NOW)
    yield []
    if rng.random() < 0.5:
        taken.close()
        try:
            made.append_many(taken, 0, 1, 1, NOW)
        except IndexError:
            pass
        else:
            yield ["values that were closed are still taken"]
    kept = made.stamps
    del made, taken
    yield []
    list(kept)
    yield []


def _latencies(of: _Buffer, rng: random.Random) -> _Steps:
    stamps = array.array("q", range(1000, 2000))
    counted = Histogram()
    counted.record_many(stamps)
    yield []
    del stamps[rng.randrange(1000) :]
    other = Histogram()
    other.merge(counted)
    del counted
    yield []
    if other.count != 1000:
        yield [f"{other.count} latencies counted of 1000"]


_USERS: dict[str, tuple[Callable[[_Buffer, random.Random], _Steps], ...]] = {
    "batch": (
        _records,
        _batches,
        _ranges,
        _at_rest,
        _validated,
        _stage,
        _builder,
        _many,
        _latencies,
    ),
    "claimed": (_records, _batches, _ranges, _at_rest, _validated),
    "legacy": (_records, _batches, _at_rest, _stage),
    "set": (_batches, _ranges, _at_rest, _records),
    "produce": (_request, _reader),
    "fetch": (_pieces, _streamed, _reader),
    "tail": (_tail, _streamed, _reader),
}


@cache
def _cases() -> tuple[Case, ...]:
    return tuple(
        case for case in cases() if case.kind in _USERS and len(case.data) <= _MAX_CASE_BYTES
    )


def _step(user: _Steps) -> tuple[bool, list[str]]:
    """Return whether the user is at its end, and what is wrong."""
    try:
        return False, next(user)
    except StopIteration:
        return True, []
    except _RELEASED:
        return True, []


def _still_held(of: _Buffer) -> list[str]:
    """Return whether anybody still holds the buffer after its last user has gone."""
    if of.memory is None or of.kind == "numpy":  # numpy counts references, the test's own as well
        return []
    for attempt in range(2):
        try:
            if of.kind == "mmap":
                of.memory.close()
            else:
                of.memory.append(0)
        except BufferError:
            if attempt:
                return [f"a {of.kind} is still held after its last user has gone"]
            gc.collect()
        else:
            return []
    return []


def lifetime_case(seed: int) -> list[str]:
    """Return what goes wrong in the history that follows from this number."""
    rng = random.Random(seed)
    case = rng.choice(_cases())
    of = _Buffer(case, rng.choice(("bytearray", "mmap", "numpy", "array")))
    users = [rng.choice(_USERS[case.kind])(of, rng) for _ in range(rng.randrange(1, 4))]
    found: list[str] = []
    for user in users:  # each has taken the buffer before it changes for the first time
        _, what = _step(user)
        found += what
        del user
    for _ in range(40):
        if not users:
            break
        action = rng.randrange(16)
        if action < 11 or of.memory is None:
            user = rng.choice(users)
            ended, what = _step(user)
            found += what
            if ended:
                users.remove(user)
            del user
            continue
        try:
            if action == 11:
                users.pop(rng.randrange(len(users))).close()
            elif action < 14:
                of.overwrite(rng)
            elif action == 14:
                of.resize(rng)
            elif rng.random() < 0.3:
                of.drop()
        except (BufferError, ValueError, ZeroDivisionError, IndexError):
            pass  # somebody holds it, or it is empty
    users.clear()
    return found[:1] or _still_held(of)

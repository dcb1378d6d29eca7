"""Every reader of the core over a mapping that another process writes to. For a process of its own:
it may crash.

python shared_mapping.py READER SECONDS    prints how many calls there were, and the MiB that they
                                           added to the peak of the process
"""

from __future__ import annotations

import mmap
import os
import random
import resource
import signal
import struct
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from batchval.core import claims
from batchval.core.batches.batch import batches
from batchval.core.batches.columns import scan_batches
from batchval.core.batches.validator import LogValidator
from batchval.core.fetched import walk_fetched
from batchval.errors import BatchvalError
from batchval.perf.histogram import Histogram
from batchval.policy import TopicPolicy
from batchval.rules import EXTRAS, Rule
from batchval.segment.search_window import follow, resynchronise
from tests.support.batches import NOW, batch, message, record

POLICIES = [
    TopicPolicy(),
    TopicPolicy(compression_type="gzip"),
    TopicPolicy(compression_type="uncompressed"),
    TopicPolicy(compression_type="zstd", message_timestamp_type="LogAppendTime"),
    TopicPolicy(cleanup_policy="compact", compression_type="lz4"),
]
REPORT = {rule.id: "report" for rule in EXTRAS if rule is not Rule.S8}
VALIDATORS = [LogValidator(p, extras=REPORT) for p in POLICIES] + [
    LogValidator(p, mode="kafka") for p in POLICIES
]
REST = LogValidator(profile="log")


def stage(data: Any, in_place: bool = False) -> None:
    """Run LogValidator's stage to every magic, under every policy and mode."""
    for validator in VALIDATORS:
        for magic in (0, 1, 2):
            validator.validate_messages_and_assign_offsets(
                data, now_ms=NOW, to_magic=magic, in_place=in_place
            )


READERS: dict[str, Callable[[Any], object]] = {
    "check": lambda data: [v.check(data, now_ms=NOW) for v in VALIDATORS],
    "validate": lambda data: [v.validate(data, now_ms=NOW, first_offset=5) for v in VALIDATORS],
    "stage": stage,
    "ranges": lambda data: [v.check_ranges(data, now_ms=NOW) for v in VALIDATORS],
    "rest": lambda data: (REST.check_batches(data), REST.check(data)),
    "scan": lambda data: (scan_batches(data), resynchronise(data, 1), follow(data, 1 << 20)),
    "fetched": lambda data: (
        walk_fetched(data, check_crcs=True),
        walk_fetched(data),
        walk_fetched(data, 3, "headers"),
    ),
    "records": lambda data: [bytes(r.value or b"") for b in batches(data) for r in b.records()],
    "in_place": lambda data: [v.validate(data, now_ms=NOW, in_place=True) for v in VALIDATORS],
    "stage_in_place": lambda data: stage(data, in_place=True),
    "claims": lambda data: (claims.compute(data), claims.attach(data)),
    "codecs": lambda data: VALIDATORS[0].validate_messages_and_assign_offsets(
        data, now_ms=NOW, to_magic=1, in_place=True
    ),
    "sizes": lambda data: (
        REST.check_batches(data),
        VALIDATORS[0].validate_messages_and_assign_offsets(data, now_ms=NOW),
        [r.value for b in batches(data) for r in b.records()],
        walk_fetched(data),
    ),
}


@contextmanager
def written_by_a_child(write: Callable[[], None]) -> Iterator[None]:
    """Call ``write`` in another process, over and over."""
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        while os.getppid() == parent:  # also where the parent has crashed
            for _ in range(200):
                write()
        os._exit(0)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def damage(data: bytes, memory: mmap.mmap) -> Callable[[], None]:
    """Put junk at a random place, and then the old bytes again."""
    view, original, r = np.frombuffer(memory, "u1"), np.frombuffer(data, "u1"), random.Random(1)
    size = len(data)
    hot = [*range(min(101, size)), *(r.randrange(size) for _ in range(30))]

    def write() -> None:
        at = r.choice(hot) if r.random() < 0.5 else r.randrange(size)
        n = min(r.choice((1, 1, 2, 4)), size - at)
        view[at : at + n] = r.choice((0xFF, 0x7F, 0, 0x80, r.randrange(256)))
        view[at : at + n] = original[at : at + n]

    return write


def sizes(data: bytes, memory: mmap.mmap) -> Callable[[], None]:
    """Change the size of a message of magic 1, and its key's length: whole, or far beyond the
    buffer.
    """
    view = np.frombuffer(memory, "u1", 38)
    right, wrong = np.frombuffer(data, "u1", 38).copy(), np.frombuffer(data, "u1", 38).copy()
    wrong[8:12] = np.frombuffer(struct.pack(">i", 0x7FFFFFF0), "u1")
    wrong[26:30] = np.frombuffer(struct.pack(">i", 0x7FFFF000), "u1")

    def write() -> None:
        view[:] = wrong
        view[:] = right

    return write


def plain(magic: int) -> bytes:
    """Return messages without a codec."""
    return b"".join(message(magic, offset=i, key=b"key", value=b"v" * 90) for i in range(200))


BOMB = 200  # MiB that the last message of ``bomb`` holds, where it is read as gzip


def bomb() -> bytes:
    """Return plain messages of magic 1, and one more whose value is a gzip member."""
    squeeze = zlib.compressobj(9, wbits=31)
    inner = bytearray(message(1, value=b""))
    struct.pack_into(">i", inner, 8, len(inner) - 12 + (BOMB << 20))
    struct.pack_into(">i", inner, 30, BOMB << 20)
    value = squeeze.compress(inner)
    for _ in range(BOMB):
        value += squeeze.compress(bytes(1 << 20))
    return plain(1) + message(1, offset=200, value=value + squeeze.flush())


def codecs(data: bytes, memory: mmap.mmap) -> Callable[[], None]:
    """Give the last of the messages that ``bomb`` made gzip's number, and take it back."""
    view, at = np.frombuffer(memory, "u1"), len(plain(1)) + 17

    def write() -> None:
        view[at] = 1
        view[at] = 0

    return write


WRITERS = {"sizes": sizes, "codecs": codecs}


def peak() -> int:
    """Return the most memory that this process has held, in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def run(reader: str, seconds: float) -> tuple[int, int]:
    parts = [record(i, key=b"k%d" % i, value=b"value %d" % i * (i % 9)) for i in range(400)]
    if reader == "sizes":
        cases = [message(1, key=b"key", value=b"v" * 2000)]
    elif reader == "codecs":
        cases = [bomb()]
    else:
        cases = [*(batch(parts, codec=codec) for codec in range(5)), plain(0), plain(1)]
    calls, before = 0, peak()
    for data in cases:
        memory = mmap.mmap(-1, len(data))
        memory[:] = data
        with written_by_a_child(WRITERS.get(reader, damage)(data, memory)):
            end = time.monotonic() + seconds / len(cases)
            while time.monotonic() < end:
                with suppress(BatchvalError):
                    READERS[reader](memory)
                calls += 1
    return calls, (peak() - before) >> 10


def latencies() -> None:
    """Count a mapping's numbers while they are made negative and huge."""
    memory = mmap.mmap(-1, 8 * 4096)
    view = np.frombuffer(memory, "<i8")

    def write() -> None:
        view[:] = -(1 << 40)
        view[:] = 5

    histogram = Histogram()
    with written_by_a_child(write):
        end = time.monotonic() + 1
        while time.monotonic() < end:
            with suppress(ValueError, OverflowError):
                histogram.record_many(view)


if __name__ == "__main__":
    print(*run(sys.argv[1], float(sys.argv[2])))

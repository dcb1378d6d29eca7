"""Hostile batches, again and again: neither Python's blocks nor malloc's bytes grow.

(LeakSanitizer sees neither: what CPython's collector has on its lists counts as reachable.)
"""

import copy
import ctypes
import gc
import itertools
import pickle
import sys

import pyarrow
import pytest

from batchval import compression
from batchval.core.batches.arrow import binary_views
from batchval.core.batches.batch import RecordBatch
from batchval.core.batches.columns import scan_batches
from batchval.core.batches.validator import LogValidator
from batchval.errors import BatchvalError, NotABatch
from tests.evidence.hostile.differential import setups
from tests.evidence.hostile.mutator import Mutator
from tests.evidence.hostile.seeds import NOW, seeds

ROUNDS = 5
ATTEMPTS = 3


class _Mallinfo(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
        )
    ] + [("keepcost", ctypes.c_size_t)]


_libc = ctypes.CDLL(None)
_libc.mallinfo2.restype = _Mallinfo


def held():
    """Return the blocks of Python's allocator and the bytes of malloc's."""
    gc.collect()
    info = _libc.mallinfo2()
    return sys.getallocatedblocks(), info.uordblks + info.hblkhd


def checks(cases):
    strict, log = LogValidator(max_decompressed_bytes=1 << 20), LogValidator(profile="log")
    for data in cases:
        str(strict.check(data, now_ms=NOW))
        list(log.check_batches(data).rows())
        list(scan_batches(data).rows())


def exports(cases):
    """Export columns that Arrow consumers read, that none reads, and that are copied."""
    for data in cases[::4]:
        columns = scan_batches(data)
        pyarrow.table(columns).column("crc")
        columns.__arrow_c_array__(), columns.__arrow_c_stream__()
        pyarrow.array(binary_views(data, [0], [len(data)]))
        assert pickle.loads(pickle.dumps(columns)) == copy.copy(columns)
        with pytest.raises(BatchvalError):
            binary_views(data, [1], [len(data)])


def rebuilds(cases):
    configured = setups(3, 40)
    for i, data in enumerate(cases):
        setup = configured[i % len(configured)]
        result = setup.kafka.validate(data, now_ms=setup.cfg["now"], to_magic=setup.cfg["to_magic"])
        assert len(result.record_errors) == 0 or not result.ok
        assert result.output is None or result.ok


def decodes(cases):
    for data in cases:
        try:
            for record in RecordBatch(data).records(max_decompressed_bytes=1 << 20):
                assert record.headers is not record.key
        except NotABatch:
            pass


def refused_arguments(cases):
    validator = LogValidator()
    for data in cases:
        for wrong in (
            {"now_ms": "x"},
            {"now_ms": 0, "origin": "NOBODY"},
            {"now_ms": 0, "to_magic": 7},
        ):
            with pytest.raises(Exception):  # noqa: B017, PT011
                validator.check(data, **wrong)


WORK = [checks, rebuilds, decodes]
#: Work without a decoder: one provider is as good as the other.
UNDECODED = [exports, refused_arguments]

_KEPT: list[object] = []


def leaks(cases):
    """Return the leaks that the others must not have."""
    _KEPT.extend(LogValidator().check(data, now_ms=NOW) for data in cases)


def growth(work, cases):
    """Return the least growth of some attempts: only a leak grows every time."""
    for _ in range(3):
        work(cases)
    grown = []
    for _ in range(ATTEMPTS):
        before = held()
        for _ in range(ROUNDS):
            work(cases)
        grown.append([now - then for now, then in zip(held(), before, strict=True)])
    return [min(numbers) for numbers in zip(*grown, strict=True)]


@pytest.mark.alone
@pytest.mark.parametrize(
    ("work", "provider"),
    [*itertools.product(WORK, compression.PROVIDERS), *((work, "native") for work in UNDECODED)],
    ids=lambda one: one if isinstance(one, str) else one.__name__,
)
def test_nothing_is_left(work, provider):
    mutator = Mutator(seeds(), 11)
    cases = [mutator.case() for _ in range(60 if work is refused_arguments else 400)]
    before = compression.provider()
    compression.use(provider)
    try:
        blocks, size = growth(work, cases)
    finally:
        compression.use(before)
    # one block a case and round would be 300 and more
    assert blocks < 100
    assert size < 64 << 10


@pytest.mark.alone
def test_a_leak_would_be_seen():
    mutator = Mutator(seeds(), 11)
    blocks, _ = growth(leaks, [mutator.case() for _ in range(60)])
    _KEPT.clear()
    assert blocks >= 300

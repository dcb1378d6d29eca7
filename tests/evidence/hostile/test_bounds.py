"""Work and answers grow no faster than the input: twice the bytes take about twice the time."""

import time

import pytest

from batchval.core.batches.batch import RecordBatch, batches
from batchval.core.batches.columns import scan_batches
from batchval.core.batches.validator import LogValidator
from batchval.policy import TopicPolicy
from batchval.segment.search_window import resynchronise
from tests.evidence.hostile.seeds import (
    NOW,
    batch,
    compress,
    legacy,
    record,
    records_in_order,
    wrapper,
)
from tests.support.calibration import slowness

ERRORS_KEPT = 1000  # of a batch's record errors
STRICT = LogValidator(TopicPolicy(max_message_bytes=2**31 - 1, cleanup_policy="compact"))
LOG = LogValidator(profile="log")
EMPTY_ZSTD = bytes.fromhex("28b52ffd2000010000")
EMPTY_GZIP = compress(1, b"")


def check(data):
    STRICT.check(data, now_ms=NOW)


def at_rest(data):
    LOG.check_batches(data)


def of_headers(n):
    return batch(record(0, b"k", b"v", 0, [(b"", None)] * n), 1)


def of_records(n, codec=0):
    return batch(b"".join(record(i, b"k", b"v") for i in range(n)), n, codec)


def of_refused(n):
    return batch(b"".join(record(i, None, b"v") for i in range(n)), n, 4)


def of_frames(empty, codec):
    return lambda n: batch(
        b"", 1, codec, payload=empty * n + compress(codec, record(0, b"k", b"v"))
    )


def of_lz4_blocks(n):
    """Build a block for every byte of one record."""
    blocks = b"".join(b"\x01\0\0\x80" + bytes([byte]) for byte in record(0, b"k", bytes(n)))
    return batch(b"", 1, 3, payload=bytes.fromhex("04224d18607073") + blocks + bytes(4))


def of_snappy_chunks(n):
    chunks = b"".join(b"\0\0\0\3\1\0" + bytes([byte]) for byte in record(0, b"k", bytes(n)))
    return batch(b"", 1, 2, payload=b"\x82SNAPPY\0\0\0\0\1\0\0\0\1" + chunks)


def of_wrappers(n):
    inner = legacy(1, b"k", b"v")
    return b"".join(wrapper(1, inner, 1, 0) for _ in range(n))


def of_inner(n):
    return wrapper(1, b"".join(legacy(1, b"k", b"v", i) for i in range(n)), 3, n - 1)


def of_batches(n):
    return batch(record(0, b"k", b"v"), 1) * n


def of_producers(n):
    """Build batches of different producers, whose ids differ only in the highest bits."""
    data = record(0, b"k", b"v")
    return b"".join(batch(data, 1, base_offset=i, producer=(i << 48, 0, 0)) for i in range(n))


def replicate(data):
    assert (
        LogValidator(TopicPolicy(max_message_bytes=1 << 30))
        .check(data, now_ms=NOW, origin="REPLICATION")
        .ok
    )


def half_sized(n):
    """Build batches that state too large a length: the next is only found by its checksum."""
    one = bytearray(batch(record(0, b"k", b"v"), 1))
    one[8:12] = (len(one) * 3).to_bytes(4, "big")
    return bytes(one) * n


GROWING = {
    "headers": (of_headers, check, 40_000),
    "records": (of_records, check, 20_000),
    "record errors": (of_refused, check, 20_000),
    "zstd frames": (of_frames(EMPTY_ZSTD, 4), check, 5_000),
    "gzip members": (of_frames(EMPTY_GZIP, 1), check, 10_000),
    "lz4 blocks": (of_lz4_blocks, check, 60_000),
    "snappy chunks": (of_snappy_chunks, check, 60_000),
    "wrappers": (of_wrappers, at_rest, 6_000),
    "inner messages": (of_inner, at_rest, 20_000),
    "producers": (of_producers, replicate, 4_000),
    "tiny batches": (of_batches, at_rest, 20_000),
    "tiny batches, scanned": (of_batches, scan_batches, 60_000),
    "batches": (of_batches, lambda data: sum(1 for _ in batches(data)), 20_000),
    "zeros": (bytes, resynchronise, 2_000_000),
    "garbage": (lambda n: b"\x02\x01\0\0\0\0\0\0\0\x30\0\0" * n, resynchronise, 20_000),
    "lying sizes": (half_sized, resynchronise, 5_000),
    "records, decoded": (
        of_records,
        lambda data: sum(1 for _ in RecordBatch(data).records()),
        20_000,
    ),
}


def seconds(work, data):
    """Return the CPU time of this thread."""
    started = time.thread_time()
    work(data)
    return time.thread_time() - started


@pytest.mark.alone
@pytest.mark.parametrize("name", GROWING)
def test_four_times_the_input_takes_no_square_of_it(name, provider):
    make, work, n = GROWING[name]
    small, large = make(n), make(4 * n)
    few = many = float("inf")
    noise = 0.002 * slowness()
    # The best of some tries, in turns: others who use the machine only make a try slower.
    for _ in range(5):
        few = min(few, seconds(work, small))
        many = min(many, seconds(work, large))
        if many <= 10 * few + noise:
            break
    # 16 would be a square; a fresh cache level or a noisy neighbour is worth less than 2.5
    assert many <= 10 * few + noise


@pytest.mark.alone
@pytest.mark.parametrize("last", [record(0, b"k", b""), b"\x0c\0"], ids=["offset", "cut off"])
def test_refused_records_are_walked_once(last):
    """A batch of which the last record alone is wrong costs what a good one costs."""
    n = 100_000
    records = records_in_order(0, n - 1, b"")
    good = batch(records + record(n - 1, None, b""), n, 4)
    odd = batch(records + last, n, 4)
    validator = LogValidator()
    assert validator.check(good, now_ms=NOW).ok
    assert not validator.check(odd, now_ms=NOW).ok
    accepted = refused = float("inf")
    for _ in range(20):
        accepted = min(accepted, seconds(lambda data: validator.check(data, now_ms=NOW), good))
        refused = min(refused, seconds(lambda data: validator.check(data, now_ms=NOW), odd))
        if refused <= 1.5 * accepted:
            break
    # two walks take twice as long; a record that is cut off has the stream read once more
    assert refused <= 1.5 * accepted


def test_record_errors_are_counted_all_and_kept_in_part():
    n = ERRORS_KEPT + 1000
    result = STRICT.check(of_refused(n), now_ms=NOW)
    assert not result.ok
    assert len(result.record_errors) == ERRORS_KEPT
    assert [index for index, _ in result.record_errors[-2:]] == [ERRORS_KEPT - 2, ERRORS_KEPT - 1]
    assert result.reason == f"{n} records were refused"
    assert result.record_errors_count == n


def test_fewer_record_errors_are_kept_all():
    assert len(STRICT.check(of_refused(1000), now_ms=NOW).record_errors) == 1000

"""``python tests/evidence/hostile/gil.py``: how long a thread holds the GIL while batches are
judged.

Prints the thread CPU time between two releases of the GIL, the longest of each call and the least
of several calls of one kind: what a neighbour on the machine adds does not count. Above the bound
the line ends with an exclamation mark, and the program fails.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shlex
import struct
import subprocess
import sys
import sysconfig
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy
import zstandard

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from batchval import compression
from batchval.core import claims
from batchval.core.batches import fetched
from batchval.core.batches.batch import RecordBatch
from batchval.core.batches.columns import scan_batches
from batchval.core.batches.record_columns import record_columns
from batchval.core.batches.validator import LogValidator
from batchval.core.convert.down_conversion import down_convert
from batchval.policy import TopicPolicy
from batchval.rules import EXTRAS, Rule
from batchval.segment.search_window import follow
from tests.evidence.hostile.bombs import BOMBS, bomb
from tests.evidence.hostile.seeds import (
    NOW,
    batch,
    compress,
    legacy,
    record,
    records_in_order,
    varint,
    wrapper,
)

BOUND_NS = 1_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
MAX_INT32 = 2**31 - 1
REPORT = {rule.id: "report" for rule in EXTRAS if rule is not Rule.S8}
Case = tuple[str, Callable[[], object]]


# ---- batches -------------------------------------------------------------------------------------


def _pack(codec: int, content: bytes) -> bytes:
    if codec == 0:
        return content
    if codec == 4:  # as small as can be: 10 million equal records in some 6 kB
        return zstandard.ZstdCompressor(level=3, write_content_size=False).compress(content)
    return compress(codec, content)


def _headers(n: int, one: bytes) -> bytes:
    body = b"\0" + varint(0) * 2 + varint(-1) * 2 + varint(n) + one * n
    return varint(len(body)) + body


def contents(size: int) -> Iterator[tuple[str, bytes, int, int]]:
    """Yield records of about ``size`` bytes together: (what, bytes, records, attributes)."""
    least = b"\x0c\0\0\0\x01\x01\0"  # the offset delta is wrong from the second on
    n = max(1, size // len(least))
    yield "equal records", least * n, n, 0
    yield "record errors", least * n, n, 8
    yield "empty headers", _headers(size // 2, varint(0) + varint(-1)), 1, 0
    yield "bad header keys", _headers(size // 3, varint(1) + b"\xff" + varint(-1)), 1, 0
    value = b"\0\0\0\x01" + varint(size) + bytes(size) + b"\0"
    yield "one record of zeros", varint(len(value)) + value, 1, 0
    yield "not a record at the end", least * n + b"\x7f", n + 1, 0


def in_order(size: int) -> tuple[bytes, int]:
    n = max(1, size // 9)
    return records_in_order(0, n, b""), n


def of_one_record(codec: int, payload: bytes) -> bytes:
    return batch(b"", 1, codec, payload=payload)


def dynamic_blocks(n: int, literals: int) -> bytes:
    """Return ``n`` deflate blocks in whole bytes, each with its own code and ``literals`` zero
    bytes.
    """
    value = size = 0

    def put(bits: int, count: int) -> None:
        nonlocal value, size
        value |= bits << size
        size += count

    put(2 << 1, 3)
    put(14 << 10, 14)  # 257 lengths, 1 distance, 18 lengths of their own code
    for symbol in (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1):
        put({18: 1, 0: 2, 1: 2}.get(symbol, 0), 3)
    put(3, 2)  # literal 0: 1 bit
    put(138 - 11 << 1, 8)
    put(117 - 11 << 1, 8)
    put(3, 2)  # end of block: 1 bit
    put(1, 2)
    put(0, literals)
    put(1, 1)
    eight = sum(value << size * i for i in range(8))
    return eight.to_bytes(size, "little") * -(-n // 8)


def fillers() -> Iterator[tuple[str, bytes]]:
    """Yield compressed bytes, just too few for an immediate release of the GIL, without any
    output.
    """
    last = record(0, None, b"v")
    header = bytes.fromhex("1f8b08000000000000ff")
    deflate = zlib.compressobj(6, zlib.DEFLATED, -15)
    end = deflate.compress(last) + deflate.flush() + struct.pack("<II", zlib.crc32(last), len(last))
    member = header + b"\3\0" + bytes(8)
    yield "empty gzip members", of_one_record(1, member * 390 + compress(1, last))
    yield "stored gzip blocks", of_one_record(1, header + b"\0\0\0\xff\xff" * 1600 + end)
    yield "empty gzip blocks", of_one_record(1, header + dynamic_blocks(700, 0) + end)
    yield "gzip blocks of a literal", of_one_record(1, header + dynamic_blocks(660, 1) + end)
    yield (
        "skippable frames",
        of_one_record(4, struct.pack("<II", 0x184D2A50, 0) * 1000 + compress(4, last)),
    )
    yield (
        "empty zstd frames",
        of_one_record(4, bytes.fromhex("28b52ffd2000010000") * 880 + compress(4, last)),
    )
    yield (
        "empty zstd blocks",
        of_one_record(4, bytes.fromhex("28b52ffd0058") + b"\0\0\0" * 2600 + b"\1\0\0"),
    )
    dense = zstandard.ZstdCompressor(level=19, write_content_size=False)
    words = b"the quick brown fox jumps over the lazy dog, and the lazy dog sleeps on: "
    frame = dense.compress(words * 2)
    start = b"\0\0\0\x01" + varint(len(words) * 2 * 70)
    start = varint(len(start) + len(words) * 2 * 70 + 1) + start
    yield (
        "small zstd frames",
        of_one_record(4, compress(4, start) + frame * 70 + compress(4, b"\0")),
    )
    chunks = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + (struct.pack(">i", 1) + b"\0") * 1600
    yield "empty snappy chunks", of_one_record(2, chunks + compress(2, last)[16:])


# ---- calls ---------------------------------------------------------------------------------------


def validators() -> Iterator[tuple[str, LogValidator]]:
    for mode in ("strict", "kafka"):
        extras = REPORT if mode == "strict" else None
        yield mode, LogValidator(TopicPolicy(max_message_bytes=MAX_INT32), mode=mode, extras=extras)
    compact = TopicPolicy(max_message_bytes=MAX_INT32, cleanup_policy="compact")
    yield "compacted", LogValidator(compact, extras=REPORT)


def sweep(large: int) -> Iterator[Case]:
    """Yield every codec, mode and kind of record, at sizes around those where behaviour changes."""
    for codec, name in enumerate(CODECS):
        for size in (8_000, 60_000, 66_000, 130_000, 131_500, 300_000, 1_000_000, large):
            for what, content, n, attributes in contents(size):
                data = batch(b"", n, codec | attributes, payload=_pack(codec, content))
                for mode, validator in validators():
                    yield (
                        f"{name}, {mode}, {size}: {what}",
                        lambda v=validator, d=data: v.check(d, now_ms=NOW),
                    )
            content, n = in_order(size if size < 4 << 20 else 4 << 20)
            data = batch(b"", n, codec, payload=_pack(codec, content))
            for mode, validator in validators():
                yield (
                    f"{name}, {mode}, {size}: accepted",
                    lambda v=validator, d=data: v.check(d, now_ms=NOW),
                )
    for what, data in fillers():
        for mode, validator in validators():
            yield f"{mode}: {what}", lambda v=validator, d=data: v.check(d, now_ms=NOW)
            # the first batch says nothing of those after it
            both = batch(record(0, None, b"v"), 1, 0) + data * 15
            yield (
                f"{mode}: many of {what}",
                lambda v=validator, d=both: v.check(d, now_ms=NOW, origin="COORDINATOR"),
            )


def bombs(size: int) -> Iterator[Case]:
    for name, (codec, many) in BOMBS.items():
        data = bomb(codec, many, size)
        for mode, validator in validators():
            if mode != "compacted":
                yield f"bomb, {mode}: {name}", lambda v=validator, d=data: v.check(d, now_ms=NOW)


def other_calls(large: int) -> Iterator[Case]:
    strict = LogValidator(TopicPolicy(max_message_bytes=MAX_INT32), extras=REPORT)
    log = LogValidator(profile="log")
    content, n = in_order(1 << 20)
    one = batch(b"", n, 4, payload=_pack(4, content))
    least = b"\x0c\0\0\0\x01\x01\0"
    many = large // len(least)
    tiny = batch(b"", many, 4, payload=_pack(4, least * many))
    plain = batch(record(0, None, b"v"), 1, 0)
    pairs = numpy.tile(numpy.array([[0, len(tiny)]], dtype=numpy.int64), (20, 1))
    yield (
        "check_ranges: one small batch many times",
        lambda: strict.check_ranges(tiny, pairs, now_ms=NOW),
    )
    thousands = numpy.tile(numpy.array([[0, len(plain)]], dtype=numpy.int64), (100_000, 1))
    yield (
        "check_ranges: 100,000 ranges of one batch",
        lambda: strict.check_ranges(plain, thousands, now_ms=NOW),
    )
    tuples = [(0, len(plain))] * 100_000
    yield "check_ranges: 100,000 tuples", lambda: strict.check_ranges(plain, tuples, now_ms=NOW)
    policies = [TopicPolicy()] * 100_000
    yield (
        "check_ranges: 100,000 policies",
        lambda: strict.check_ranges(plain, tuples, policies, now_ms=NOW),
    )
    yield "check_ranges: every batch", lambda: strict.check_ranges(plain * 30_000, now_ms=NOW)
    bad = batch(b"", many, 12, payload=_pack(4, least * many))
    yield "check, then record_errors", lambda: strict.check(bad, now_ms=NOW).record_errors
    step = (14).to_bytes(4, "big") + bytes(14)
    tiny_headers = b"".join(i.to_bytes(8, "big") + step for i in range(500_000))
    yield "check_batches", lambda: log.check_batches(tiny)
    yield "the result of a row at rest", lambda: log.check_batches(tiny).result(0)
    yield "analyze", lambda: strict.analyze(plain * 5_000)
    yield (
        "validate_messages",
        lambda: strict.validate_messages_and_assign_offsets(one, now_ms=NOW),
    )
    yield "compute", lambda: claims.compute(one)
    yield "walk_fetched", lambda: fetched.walk_fetched(tiny)
    yield "walk_fetched, accepted", lambda: fetched.walk_fetched(one)
    yield "down_convert", lambda: down_convert(one, 0)
    few, count = in_order(min(large, 4 << 20))
    small = batch(b"", count, 4, payload=_pack(4, few))
    yield "down_convert: small records", lambda: down_convert(small, 1)
    single = b"\0\0\0\x01" + varint(large) + os.urandom(large) + b"\0"
    for codec in (1, 3):
        of_noise = batch(b"", 1, codec, payload=_pack(codec, varint(len(single)) + single))
        yield (
            f"down_convert: noise, {CODECS[codec]}",
            lambda d=of_noise: down_convert(d, 1, max_decompressed_bytes=1 << 30),
        )
    yield "down_convert: 5,000 batches", lambda: down_convert(plain * 5_000, 1)
    aborted = [(i * 7919 % 50_021, i * 104_729 % 50_021) for i in range(50_000)]
    yield (
        "down_convert: 50,000 aborted transactions",
        lambda: down_convert(plain, 1, aborted=aborted),
    )
    yield "scan_batches", lambda: scan_batches(plain * 100_000)
    yield "follow", lambda: follow(tiny_headers, 1 << 30)
    yield "record_columns", lambda: record_columns(tiny, max_decompressed_bytes=1 << 30)
    yield "record_columns, accepted", lambda: record_columns(one)
    filled = batch(b"", 1, 4, payload=_pack(4, _headers(large // 2, varint(0) + varint(-1))))
    columns = record_columns(filled, max_decompressed_bytes=1 << 30)
    yield "last_header", lambda: columns.last_header(0, "schema")
    yield "is_valid", lambda: RecordBatch(one).is_valid
    yield "records: the first", lambda: next(RecordBatch(one).records())
    inner = b"".join(legacy(1, None, b"", i) for i in range(200_000))
    wrapped = wrapper(1, inner, 1, 199_999)
    for mode, validator in validators():
        yield (
            f"{mode}: a wrapper",
            lambda v=validator: v.validate_messages_and_assign_offsets(wrapped, now_ms=NOW),
        )


def rebuilds(large: int) -> Iterator[Case]:
    """Yield rebuilds of at most 4 MiB: Python frees a codec's bytes with the GIL, 0.1 ms a MiB."""
    zeros = b"\0\0\0\x01" + varint(large) + bytes(large) + b"\0"
    noise = b"\0\0\0\x01" + varint(large) + os.urandom(large) + b"\0"
    keys = _headers(large // 8, varint(5) + b"\xff\xe0\xed\xa0\x80" + varint(-1))
    few, n = in_order(2 << 20)
    for what, content, count in (
        ("zeros", varint(len(zeros)) + zeros, 1),
        ("noise", varint(len(noise)) + noise, 1),
        ("header keys", keys, 1),
        ("small records", few, n),
    ):
        for codec in (0, 4):
            data = batch(b"", count, codec, payload=_pack(codec, content))
            for target in ("uncompressed", "gzip", "snappy", "lz4", "zstd"):
                policy = TopicPolicy(max_message_bytes=MAX_INT32, compression_type=target)
                validator = LogValidator(policy, extras=REPORT, max_decompressed_bytes=1 << 30)
                yield (
                    f"validate: {what}, {CODECS[codec]} to {target}",
                    lambda v=validator, d=data: v.validate(d, now_ms=NOW, first_offset=7),
                )


# ---- measuring -----------------------------------------------------------------------------------


def _watcher() -> ctypes.PyDLL:
    include = sysconfig.get_paths()["include"]
    source = Path(__file__).with_suffix("").with_name("gil_holds.c")
    compiler = shlex.split(os.environ.get("CC", "cc"))
    with tempfile.TemporaryDirectory(prefix="batchval-gil-") as folder:
        library = Path(folder) / "gil_holds.so"
        command = [*compiler, "-O1", "-shared", "-fPIC", f"-I{include}", "-o", library, source]
        subprocess.run(command, check=True, capture_output=True)
        watcher = ctypes.PyDLL(str(library))  # it is called with the GIL
    watcher.gil_worst.restype = ctypes.c_int64
    if watcher.gil_watch() < 10:
        raise RuntimeError("batchval's modules do not import the functions that release the GIL")
    return watcher


def measure(cases: Iterator[Case], repeats: int) -> Iterator[tuple[str, int]]:
    """Yield (case, nanoseconds); stop repeating a case as soon as it is within the bound."""
    watcher = _watcher()
    for name, call in cases:
        least = None
        for _ in range(repeats):
            watcher.gil_start()
            result = call()
            held = watcher.gil_worst()
            del result
            least = held if least is None else min(least, held)
            if least <= BOUND_NS // 2:
                break
        assert least is not None
        yield name, least


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--provider", choices=compression.PROVIDERS, default=None)
    parser.add_argument(
        "--mebibytes", type=int, default=64, help="Decompressed size of the large cases."
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="", help="Cases whose name contains this.")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    compression.use(arguments.provider)
    # malloc keeps pages for blocks of a size that was freed before. Fresh ones are cleared by the
    # kernel with the GIL held, which is the CPU time of memory and not of batchval.
    bytearray(16 << 20)
    large = arguments.mebibytes << 20

    def cases() -> Iterator[Case]:
        for group in (
            sweep(large),
            bombs(2 * large),
            other_calls(large),
            rebuilds(min(large // 2, 4 << 20)),
        ):
            yield from ((name, call) for name, call in group if arguments.only in name)

    started = time.monotonic()
    found = dict(measure(cases(), arguments.repeats))
    if arguments.json:
        print(json.dumps(found))
        return 0
    worst = sorted(found.items(), key=lambda each: -each[1])
    for name, held in worst[:25]:
        print(f"{held / 1e6:8.3f} ms  {name}{' !' * (held > BOUND_NS)}")
    over = sum(held > BOUND_NS for held in found.values())
    print(
        f"{len(found)} calls, {over} above {BOUND_NS / 1e6:g} ms, {time.monotonic() - started:.0f} s"
    )
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())

"""``python tests/evidence/hostile/bombs.py``: batches of a few kilobytes that unpack to a
gigabyte, and lengths that lie.

Each bomb is judged in a process of its own. Measured are the growth of its resident memory (the
kernel's high-water mark, set back before the call) and the CPU time of the call. Bombs are made
here, never stored.
"""

from __future__ import annotations

import argparse
import json
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import lz4.block
import snappy
import zstandard

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.evidence.hostile.seeds import batch, record, records_in_order, varint

__all__ = ["BOMBS", "CLAIMS", "LIMIT_SMALL", "MIB", "bomb", "measure", "measure_each"]

MIB = 1 << 20
GIB = 1 << 30
LIMIT_SMALL = 8 * MIB
_CODECS = ("gzip", "snappy", "lz4", "zstd")
_MANY = 1 << 16  # records of 16 kB each make the gigabyte


# ---- a gigabyte, piece by piece ------------------------------------------------------------------


def _pieces(size: int, many: bool) -> Iterator[bytes]:
    """Yield the records' bytes in pieces of some 100 kB: one record of zeros, or many small
    ones.
    """
    if not many:
        value = varint(size)
        body = b"\0\0\0\x01" + value
        yield varint(len(body) + size + 1) + body
        for _ in range(size // MIB):
            yield bytes(MIB)
        yield b"\0"
        return
    each = size // _MANY
    for first in range(0, _MANY, 64):
        yield records_in_order(first, 64, bytes(each))


def _gzip(pieces: Iterator[bytes]) -> bytes:
    """Compress pieces, each flushed, so that equal ones are compressed once; the trailer is never
    read.
    """
    out = [bytes.fromhex("1f8b08000000000002ff")]
    last, packed = b"", b""
    for piece in pieces:
        if piece != last:
            packer = zlib.compressobj(9, zlib.DEFLATED, -15)
            last, packed = piece, packer.compress(piece) + packer.flush(zlib.Z_FULL_FLUSH)
        out.append(packed)
    return b"".join([*out, b"\x03\0", bytes(8)])


def _snappy(pieces: Iterator[bytes]) -> bytes:
    out = [b"\x82SNAPPY\0", struct.pack(">ii", 1, 1)]
    last, packed = b"", b""
    for piece in pieces:
        if piece != last:
            last, packed = piece, bytes(snappy.compress(piece))
        out.append(struct.pack(">i", len(packed)) + packed)
    return b"".join(out)


def _lz4(pieces: Iterator[bytes]) -> bytes:
    out = [bytes.fromhex("04224d18607073")]  # blocks of 4 MiB
    last, packed = b"", b""
    for piece in pieces:
        if piece != last:
            last, packed = piece, lz4.block.compress(piece, store_size=False)
        out.append(struct.pack("<I", len(packed)) + packed)
    return b"".join([*out, bytes(4)])


def _zstd(pieces: Iterator[bytes]) -> bytes:
    packer = zstandard.ZstdCompressor(level=1).compressobj()
    return b"".join([*(packer.compress(piece) for piece in pieces), packer.flush()])


_PACKERS: dict[str, Callable[[Iterator[bytes]], bytes]] = {
    "gzip": _gzip,
    "snappy": _snappy,
    "lz4": _lz4,
    "zstd": _zstd,
}


def bomb(codec: str, many: bool, size: int = GIB) -> bytes:
    """Return a batch of a gigabyte in one record, or in 65,536."""
    payload = _PACKERS[codec](_pieces(size, many))
    return batch(b"", _MANY if many else 1, _CODECS.index(codec) + 1, payload=payload)


# ---- lengths without the bytes they state --------------------------------------------------------

_MAX_INT32 = 0x7FFFFFFF


def _claims() -> Iterator[tuple[str, bytes]]:
    one = record(0, b"k", b"v")
    huge = varint(_MAX_INT32 - 8) + one[1:]
    key = varint(_MAX_INT32 - 32) + b"\0\0\0" + varint(_MAX_INT32 - 64)
    yield "records_count", batch(one, _MAX_INT32, 0)
    for codec in range(5):
        yield f"record length, {codec}", batch(huge, 1, codec)
        yield f"key length, {codec}", batch(key, 1, codec)
        yield (
            f"headers, {codec}",
            batch(varint(200) + b"\0\0\0\x01\x01" + varint(_MAX_INT32), 1, codec),
        )
        yield f"records_count, {codec}", batch(one, _MAX_INT32, codec)
    yield "snappy block", batch(b"", 1, 2, payload=b"\xff\xff\xff\xff\x07" + bytes(16))
    yield (
        "snappy chunk",
        batch(b"", 1, 2, payload=b"\x82SNAPPY\0\0\0\0\1\0\0\0\1" + struct.pack(">i", 512 << 20)),
    )
    lz4_header = bytes.fromhex("04224d18607073")
    yield "lz4 block", batch(b"", 1, 3, payload=lz4_header + struct.pack("<I", 4 << 20) + b"\0")
    yield "zstd window 2^31", batch(b"", 1, 4, payload=bytes.fromhex("28b52ffd00a8") + b"\x01\0\0")
    yield "zstd window 2^27", batch(b"", 1, 4, payload=bytes.fromhex("28b52ffd0088") + b"\x01\0\0")
    yield (
        "zstd content size",
        batch(b"", 1, 4, payload=bytes.fromhex("28b52ffde0ffffffffffffff7f") + b"\x01\0\0"),
    )
    whole = bytearray(batch(one, 1, 0))
    whole[8:12] = struct.pack(">i", _MAX_INT32 - 12)
    yield "batch_length", bytes(whole)


BOMBS = {
    f"{codec}, {'many' if many else 'one'}": (codec, many)
    for codec in _CODECS
    for many in (False, True)
}
CLAIMS = dict(_claims())


# ---- measuring -----------------------------------------------------------------------------------

_CHILD = """
import json, os, struct, sys, time
sys.path[:0] = [{root!r}]
from batchval import compression
from batchval.core.batches.validator import LogValidator
from batchval.policy import TopicPolicy
compression.use({provider!r})
def status(name):
    for line in open("/proc/self/status"):
        if line.startswith(name):
            return int(line.split()[1]) * 1024
arguments = dict(mode={mode!r}, profile={profile!r}, policy=TopicPolicy(max_message_bytes=2**31 - 1))
limit = {limit!r}
if limit:
    arguments["max_decompressed_bytes"] = limit
def measure(small, data):
    validator = LogValidator(**arguments)
    for _ in range(3):
        validator.check(small, now_ms=1700000000000)
    try:
        open("/proc/self/clear_refs", "w").write("5")
        reset = True
    except OSError:
        reset = False
    before = status("VmRSS")
    started = time.process_time()
    result = validator.check(data, now_ms=1700000000000)
    seconds = time.process_time() - started
    print(json.dumps(dict(code=int(result.error_code), rule=result.rule and result.rule.id, seconds=seconds,
                          growth=max(0, status("VmHWM") - before), reset=reset)), flush=True)
def part():
    size = sys.stdin.buffer.read(8)
    return sys.stdin.buffer.read(struct.unpack("<q", size)[0]) if size else None
while (small := part()) is not None:
    data = part()
    if (child := os.fork()) == 0:
        measure(small, data)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit("a measurement did not end well")
"""


def measure_each(
    batches: Iterable[bytes],
    *,
    limit: int = 0,
    provider: str = "native",
    mode: str = "strict",
    profile: str = "produce",
) -> list[dict[str, object]]:
    """Measure one call for each batch, in a process that has judged no other.

    Returns ``code``, ``rule``, ``seconds`` of CPU time and ``growth`` of memory in bytes. The
    processes are forks of one that has imported everything, which takes longer than a call.
    """
    script = _CHILD.format(
        root=str(Path(__file__).parents[3]),
        provider=provider,
        limit=limit,
        mode=mode,
        profile=profile,
    )
    sent = b""
    for data in batches:
        codec = data[22] & 7 if len(data) > 22 else 0
        warm = batch(record(0, b"k", b"v"), 1, codec if codec <= 4 else 0)
        sent += b"".join(struct.pack("<q", len(part)) + part for part in (warm, data))
    done = subprocess.run(
        [sys.executable, "-c", script], input=sent, capture_output=True, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def measure(
    data: bytes,
    *,
    limit: int = 0,
    provider: str = "native",
    mode: str = "strict",
    profile: str = "produce",
) -> dict[str, object]:
    """Measure one call: see measure_each."""
    (found,) = measure_each([data], limit=limit, provider=provider, mode=mode, profile=profile)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--provider", action="append", choices=("native", "packages"))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    broken = 0
    started = time.monotonic()
    for provider in arguments.provider or ("native", "packages"):
        worst = max(
            int(str(found["growth"])) for found in measure_each(CLAIMS.values(), provider=provider)
        )
        broken += worst > MIB
        print(f"{provider}: {len(CLAIMS)} claimed lengths: at most {worst / MIB:.2f} MiB")
        for name, (codec, many) in BOMBS.items():
            data = bomb(codec, many)
            for limit, most in ((LIMIT_SMALL, 24 * MIB), (0, 80 * MIB)):
                found = measure(data, limit=limit, provider=provider)
                growth, seconds = int(str(found["growth"])), float(str(found["seconds"]))
                bad = found["rule"] != "S8" or growth > most
                broken += bad and provider == "native"
                words = f"+{growth / MIB:.1f} MiB, {seconds * 1000:.1f} ms, {found['rule']}"
                print(
                    f"{provider}: {name} ({len(data):,} bytes) at {limit or 'the default'}: {words}{' !' * bad}"
                )
    print(f"bombs: {broken} over their bounds, {time.monotonic() - started:.0f} s")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())

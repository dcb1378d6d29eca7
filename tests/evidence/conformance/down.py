"""Batches converted down, against Apache Kafka 3.9's own classes, which did so for Fetch 0 to 3.

    python tests/evidence/conformance/down.py --seed S [--cases N]

Makes answers to Fetch from a seed, converts each with ``down_convert``, and asks the oracle's
``down-convert`` to convert it with MemoryRecords.downConvert and to read ours. A case agrees if

* Kafka reads its own records in our output;
* both have the same wrappers around the same messages: bytes that a codec makes are compared
  decompressed, others as they are;
* the numbers of converted records are equal;
* Kafka's consumer with read_committed reads the offsets that ``aborted=`` leaves.

Kafka throws for zstd, which becomes gzip here: of such a batch Kafka converts a copy that is gzip
already.

In every fourth case a byte or two are changed: there Kafka throws where we raise, or both agree.
What is known to differ is named in docs/adr/0002 and is counted (``KNOWN``).

Prints each disagreement; the last line is ``down conversion: N of M agree``. Exit code 0 only if
all agree, 3 without JDK 17 or Maven.
"""

from __future__ import annotations

import argparse
import io
import random
import struct
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from batchval.core.batches.batch import batches  # noqa: E402
from batchval.core.convert.down_conversion import NotConverted, down_convert  # noqa: E402
from tests.evidence.conformance import oracle  # noqa: E402
from tests.support.batches import GZIP, NONE, SNAPPY  # noqa: E402
from tests.support.fetch_answers import aborted_in, answer, bytes_of  # noqa: E402

__all__ = ["KNOWN", "Answer", "Case", "answers", "compare", "disagreements", "make"]

DEFAULT_CASES = 2000
CHUNK = 10_000
NO_JDK = 3
_CODEC = 7
_CASE = struct.Struct(">bqi")
_SIZE = struct.Struct(">i")
#: What Kafka throws where we convert, and what we refuse where Kafka converts.
KNOWN = {
    "Invalid negative timestamp": "a negative timestamp is kept",
    "are not those of a log": "offsets below 0 or above the last are refused",
    "within the offsets of its batch": "an offset outside its batch is refused",
    # by damage alone: an empty batch that says zstd, a control batch that is too small
    "Down-conversion of zstandard": "zstd is converted",
    "fewer than a batch's header": "less than a header is refused",
}


@dataclass
class Case:
    """One answer, and what we made of it; ``output`` is None where it cannot be converted."""

    number: int
    to_magic: int
    first_offset: int
    is_damaged: bool
    data: bytes
    for_kafka: bytes  # without zstd
    output: bytes | None
    records: int
    error: str
    aborted: list[tuple[int, int]]
    committed: list[int] | None  # offsets of what is left without aborted transactions


class Answer(NamedTuple):
    """Kafka's: the number of converted records (-1: it throws), what came out or the exception, how
    ours differs, and the offsets that a consumer with read_committed reads (None: it throws).
    """

    converted: int
    output: bytes
    difference: str
    committed: list[int] | None


def _damaged(rng: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randrange(len(out))
        out[at] = rng.choice((out[at] ^ 1 << rng.randrange(8), rng.randrange(256)))
    return bytes(out)


def make(seed: int, number: int) -> Case:
    """Return a case that follows from the two numbers."""
    rng = random.Random(seed << 32 | number)
    sent, to_magic, is_damaged = answer(rng, 4), rng.randrange(2), number % 4 == 3
    data, for_kafka = bytes_of(sent), b"".join(one.as_gzip for one in sent)
    if is_damaged:
        data = for_kafka = _damaged(rng, for_kafka)
    elif rng.random() < 0.3:  # a batch that is cut off
        cut = sent[0].as_gzip[: rng.randrange(len(sent[0].as_gzip))]
        data, for_kafka = data + cut, for_kafka + cut
    first_offset = rng.choice((0, rng.randrange(sent[0].base_offset, sent[-1].last_offset + 2)))
    aborted = aborted_in(sent)
    case = Case(
        number, to_magic, first_offset, is_damaged, data, for_kafka, None, 0, "", aborted, None
    )
    try:
        made = down_convert(data, to_magic, first_offset=first_offset)
        case.output, case.records = made.output, made.records
        if not is_damaged:
            left = down_convert(data, to_magic, aborted=aborted).output
            case.committed = [each.offset for one in batches(left) for each in one.records()]
    except NotConverted as error:
        case.error = str(error)
    return case


def _asked(case: Case) -> bytes:
    parts = [_CASE.pack(case.to_magic, case.first_offset, len(case.for_kafka)), case.for_kafka]
    parts.append(
        _SIZE.pack(-1) if case.output is None else _SIZE.pack(len(case.output)) + case.output
    )
    parts.append(
        _SIZE.pack(len(case.aborted)) + b"".join(struct.pack(">qq", *pair) for pair in case.aborted)
    )
    return b"".join(parts)


def _snappy(payload: bytes) -> bytes:
    import snappy

    found, at = [], 16
    while at < len(payload):
        (size,) = _SIZE.unpack_from(payload, at)
        found.append(bytes(snappy.decompress(payload[at + 4 : at + 4 + size])))
        at += 4 + size
    return payload[:16] + b"".join(found)


def _lz4(payload: bytes) -> bytes:
    """Return descriptor and content. The descriptor's checksum is wrong for magic 0."""
    import lz4.block

    found, at = [payload[:7]], 7
    while size := int.from_bytes(payload[at : at + 4], "little"):
        block = payload[at + 4 : at + 4 + (size & 0x7FFFFFFF)]
        found.append(
            block if size >> 31 else lz4.block.decompress(block, uncompressed_size=1 << 16)
        )
        at += 4 + len(block)
    return b"".join(found) + payload[at:]


def _content(codec: int, payload: bytes) -> bytes:
    if codec == GZIP:
        return zlib.decompress(payload, 31)
    return _snappy(payload) if codec == SNAPPY else _lz4(payload)


def _without_codec(data: bytes) -> bytes:
    """Return a wrapper decompressed, without sizes and checksum of the compressed bytes."""
    codec, overhead = data[17] & _CODEC, 26 if data[16] == 0 else 34
    return (
        data
        if codec == NONE
        else data[:8] + data[16 : overhead - 4] + _content(codec, data[overhead:])
    )


def _same(ours: bytes, kafkas: bytes) -> bool:
    """Return whether both have the same messages, in the same wrappers."""
    pieces, theirs = ([bytes(one) for one in batches(data)] for data in (ours, kafkas))
    return (
        b"".join(pieces) == ours
        and len(pieces) == len(theirs)
        and all(
            one == other or _without_codec(one) == _without_codec(other)
            for one, other in zip(pieces, theirs, strict=True)
        )
    )


def _known(text: str) -> str:
    return next((f"[{name}]" for part, name in KNOWN.items() if part in text), "")


def compare(case: Case, kafkas: Answer) -> str:
    """Return how Kafka's answer differs from ours, or the known difference in brackets, or ""."""
    if kafkas.converted < 0:
        text = kafkas.output.decode()
        return "" if case.output is None else _known(text) or f"Kafka throws {text}"
    if case.output is None:
        return _known(case.error) or f"Kafka converts {kafkas.converted} records; {case.error}"
    if kafkas.difference:
        return kafkas.difference
    if kafkas.converted != case.records:
        return f"Kafka counts {kafkas.converted} records, we {case.records}"
    if case.committed is not None and case.committed != kafkas.committed:
        return f"with {case.aborted} aborted Kafka's consumer reads {kafkas.committed}, ours {case.committed}"
    return "" if _same(case.output, kafkas.output) else "the messages have other bytes"


def answers(cases: list[Case]) -> Iterator[tuple[Case, Answer]]:
    asked = b"".join(map(_asked, cases))
    source = io.BytesIO(
        oracle.run("down-convert", stdin=asked, release=oracle.DOWN_CONVERSION_RELEASE)
    )

    def number() -> int:
        return int(_SIZE.unpack(source.read(4))[0])

    for case in cases:
        converted, output, difference = number(), source.read(number()), source.read(number())
        offsets = number()
        committed = (
            None if offsets < 0 else list(struct.unpack(f">{offsets}q", source.read(8 * offsets)))
        )
        yield case, Answer(converted, output, difference.decode(), committed)


def disagreements(seed: int, count: int, counted: Counter[str]) -> Iterator[str]:
    """Yield a line for each case that differs; ``counted`` says what was compared."""
    for start in range(0, count, CHUNK):
        cases = [make(seed, number) for number in range(start, min(start + CHUNK, count))]
        for case, kafkas in answers(cases):
            found = compare(case, kafkas)
            counted["cases"] += 1
            counted["damaged"] += case.is_damaged
            counted["both refuse"] += kafkas.converted < 0 and case.output is None
            counted["records"] += max(kafkas.converted, 0)
            counted["equal bytes"] += kafkas.output == case.output
            counted["with aborted transactions"] += bool(case.committed and case.aborted)
            if found.startswith("["):
                counted[found[1:-1]] += 1
            elif found:
                where = (
                    f"case {case.number}, magic {case.to_magic}, first offset {case.first_offset}"
                )
                yield f"{where}: {found} ({case.data.hex()})"
            counted["agree"] += not found
        print(f"{counted['cases']:,} of {count:,} compared", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=DEFAULT_CASES, help=f"default {DEFAULT_CASES}")
    options = parser.parse_args()
    counted: Counter[str] = Counter()
    try:
        for line in disagreements(options.seed, options.cases, counted):
            print(line, flush=True)
    except oracle.OracleUnavailable as error:
        print(f"conformance: {error}", file=sys.stderr)
        return NO_JDK
    print(", ".join(f"{name}: {number:,}" for name, number in counted.items()))
    known = sum(counted[name] for name in KNOWN.values())
    print(f"down conversion: {counted['agree']:,} of {options.cases - known:,} agree")
    return int(counted["agree"] + known != options.cases)


if __name__ == "__main__":
    sys.exit(main())

"""Compression levels of a topic: a rebuilt batch has the size that Kafka's has, so rule 40 gives
Kafka's answer.

gzip by zlib on both sides, zstd by libzstd: the same bytes. lz4 is written by different
implementations at the levels below 3 and at the default level: see docs/adr/0001.
"""

import hashlib
import random
from typing import Any

import pytest
import zstandard

from batchval.cli.cases import policy_of
from batchval.core.batches.validator import LogValidator
from tests.support.batches import GZIP, NOW, ZSTD, batch, message, record, wrapper

pytestmark = [pytest.mark.jvm, pytest.mark.long]

GZIP_LEVELS = (None, -1, *range(1, 10))
LZ4_LEVELS = (*range(3, 9), *range(10, 18))
ZSTD_LEVELS = (None, -131072, -50, -1, 0, *range(1, 20))
SAME_ZSTD = zstandard.ZSTD_VERSION == (1, 5, 7)  # that of the oracle's zstd-jni


def words(rng, count):
    return b" ".join(
        rng.choice((b"record", b"batch", b"segment", b"%d" % rng.randrange(999)))
        for _ in range(count)
    )


def samples():
    rng = random.Random(8364)
    for records, length in ((1, 3), (10, 20), (120, 100)):
        yield batch([record(i, value=words(rng, length)) for i in range(records)])


def cases(codec, levels, **cfg):
    for level in levels:
        named = {} if level is None else {f"{codec}_level": level}
        for data in samples():
            yield {"batch_hex": data.hex(), "cfg": {"now": NOW, "target": codec, **named, **cfg}}


def ours(case):
    return LogValidator(policy_of(case["cfg"])).validate(
        bytes.fromhex(case["batch_hex"]), now_ms=NOW
    )


@pytest.mark.parametrize(
    ("codec", "levels"), [("gzip", GZIP_LEVELS), ("lz4", LZ4_LEVELS), ("zstd", ZSTD_LEVELS)]
)
def test_rebuilt_bytes_are_kafkas(kafka, codec, levels):
    answers = kafka.answer(cases(codec, levels))
    sizes = [answer["expect"]["validate"]["out_len"] for answer in answers]
    assert len(set(sizes[2::3])) > 5  # the level has an effect
    for answer, size in zip(answers, sizes, strict=True):
        output = ours(answer).output
        if codec == "zstd" and not SAME_ZSTD:
            assert abs(len(output) - size) <= size // 10
        else:
            assert (
                hashlib.sha256(output).hexdigest() == answer["expect"]["validate"]["out_sha256"]
            ), answer["cfg"]


def at_level(level: int) -> dict[str, Any]:
    """Return a batch that arrives smaller than gzip of this level makes it."""
    rng = random.Random(level)
    parts = [record(i, value=words(rng, 100)) for i in range(120)]
    arriving = batch(parts, codec=ZSTD, payload=zstandard.compress(b"".join(parts), 19))
    return {"batch_hex": arriving.hex(), "cfg": {"now": NOW, "target": "gzip", "gzip_level": level}}


def test_a_limit_that_the_rebuilt_batch_just_meets(kafka):
    """Apply rule 40 to a batch that grows when rebuilt, so that rule 13 does not refuse it
    first.
    """
    limited, expected = [], []
    for case in kafka.answer(map(at_level, range(1, 10))):
        size = case["expect"]["validate"]["out_len"]
        assert len(case["batch_hex"]) // 2 < size - 1
        for limit, answer in (
            (size, ("ok", "None")),
            (size - 1, ("resize", "40 rebuilt-batch-too-large")),
        ):
            limited.append({**case, "cfg": {**case["cfg"], "max_message_bytes": limit}})
            expected.append(answer)
    answers = kafka.answer(limited)
    assert [(answer["expect"]["final"], str(ours(answer).rule)) for answer in answers] == expected


def test_levels_count_where_the_topic_names_their_codec(kafka):
    """Rebuild with compression.type=producer at the default level, as Kafka does."""
    rng = random.Random(8364)
    old = wrapper([message(1, offset=i, value=words(rng, 100)) for i in range(120)], GZIP)
    levels = {"gzip_level": 1, "zstd_level": 1}
    producer = {"now": NOW, "target": "producer", **levels}
    gzip = {**producer, "target": "gzip"}
    sizes = []
    for cfg in (producer, gzip):
        case = {"batch_hex": old.hex(), "cfg": cfg}
        sizes.append(kafka.answer([case])[0]["expect"]["validate"]["out_len"])
        built = LogValidator(policy_of(cfg), mode="kafka").validate_messages_and_assign_offsets(
            old, now_ms=NOW
        )
        assert len(built.output) == sizes[-1]
    assert sizes[0] < sizes[1]

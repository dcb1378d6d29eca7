"""Kafka accepts what RecordBatchBuilder builds, and reads the records that went in."""

import hashlib

import pytest

from batchval import CompressionType, RecordBatchBuilder
from batchval.cli.cases import logical_sha256
from tests.support.batches import NOW

pytestmark = pytest.mark.jvm

ROWS = [
    (b"key", b"value", NOW, []),
    (None, b"", NOW - 1000, [("a", b"1"), ("a", None), ("ü", b"")]),
    (b"", None, NOW + 3000, []),
    (b"k" * 300, b"v" * 70_000, 0, [(f"h{n}", b"x" * n) for n in range(130)]),
    *((b"%d" % n, b"value %d" % n, NOW + n, []) for n in range(200)),
]


def built(codec, **settings):
    builder = RecordBatchBuilder(compression=codec, **settings)
    for row in ROWS:
        assert builder.append(*row)
    return builder.build()


@pytest.mark.parametrize(
    "sender",
    [
        {},
        {"producer_id": 5, "producer_epoch": 1, "base_sequence": 7},
        {"producer_id": 2**62, "producer_epoch": 0, "base_sequence": 2**31 - 1, "is_transactional": True},
    ],
    ids=["no sender", "idempotent", "transactional"],
)
def test_kafka_reads_the_same_records(kafka, sender):
    """Once kept as they are, once rebuilt: then Kafka has read every field of every record."""
    plain = logical_sha256(built("none", **sender))
    cases = [
        {"batch_hex": built(codec, **sender).hex(), "cfg": {"now": NOW, "target": target}}
        for codec in CompressionType
        for target in ("producer", "gzip" if codec is CompressionType.ZSTD else "zstd")
    ]
    for answer in kafka.answer(cases):
        assert answer["expect"]["final"] == "ok"
        validated = answer["expect"]["validate"]
        assert validated["in_place"] == (answer["cfg"]["target"] == "producer")
        if not validated["in_place"]:
            assert validated["out_logical_sha256"] == plain


@pytest.mark.parametrize("codec", CompressionType)
def test_kafka_keeps_a_leaders_batch(kafka, codec):
    data = built(codec, base_offset=1000, partition_leader_epoch=4, log_append_time=NOW)
    cfg = {"now": NOW, "origin": "REPLICATION", "first_offset": 1000, "leader_epoch": 4}
    (answer,) = kafka.answer([{"batch_hex": data.hex(), "cfg": cfg}])
    stored = answer["expect"]["append"]
    assert stored["ok"], stored
    assert stored["next_offset"] == 1000 + len(ROWS)
    assert stored["stored_sha256"] == hashlib.sha256(data).hexdigest()

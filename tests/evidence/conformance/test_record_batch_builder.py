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


SENDERS = {
    "no sender": {},
    "idempotent": {"producer_id": 5, "producer_epoch": 1, "base_sequence": 7},
    "transactional": {
        "producer_id": 2**62,
        "producer_epoch": 0,
        "base_sequence": 2**31 - 1,
        "is_transactional": True,
    },
}


def of_sender(sender):
    """Yield each codec's batch twice: to be kept as it is, and to be rebuilt."""
    for codec in CompressionType:
        for target in ("producer", "gzip" if codec is CompressionType.ZSTD else "zstd"):
            data = built(codec, **SENDERS[sender])
            yield {"id": sender, "batch_hex": data.hex(), "cfg": {"now": NOW, "target": target}}


def of_leader(codec):
    data = built(codec, base_offset=1000, partition_leader_epoch=4, log_append_time=NOW)
    cfg = {"now": NOW, "origin": "REPLICATION", "first_offset": 1000, "leader_epoch": 4}
    return {"id": f"leader {codec}", "batch_hex": data.hex(), "cfg": cfg}


@pytest.fixture(scope="module")
def answers(kafka):
    """Return Kafka's answers to the cases of all tests, by id, from one JVM."""
    cases = [case for sender in SENDERS for case in of_sender(sender)]
    found = {}
    for answer in kafka.answer([*cases, *map(of_leader, CompressionType)]):
        found.setdefault(answer["id"], []).append(answer)
    return found


@pytest.mark.parametrize("sender", SENDERS)
def test_kafka_reads_the_same_records(answers, sender):
    """Send once as is, once to be rebuilt: then Kafka has read every field of every record."""
    plain = logical_sha256(built("none", **SENDERS[sender]))
    assert len(answers[sender]) == 2 * len(CompressionType)
    for answer in answers[sender]:
        assert answer["expect"]["final"] == "ok"
        validated = answer["expect"]["validate"]
        assert validated["in_place"] == (answer["cfg"]["target"] == "producer")
        if not validated["in_place"]:
            assert validated["out_logical_sha256"] == plain


@pytest.mark.parametrize("codec", CompressionType)
def test_kafka_keeps_a_leaders_batch(answers, codec):
    (answer,) = answers[f"leader {codec}"]
    stored = answer["expect"]["append"]
    assert stored["ok"], stored
    assert stored["next_offset"] == 1000 + len(ROWS)
    assert stored["stored_sha256"] == hashlib.sha256(bytes.fromhex(answer["batch_hex"])).hexdigest()

"""fixtures/peer-vectors: every batch decoded and answered as Kafka does."""

import json
import re
from pathlib import Path

import pytest

from batchval.cli.cases import policy_of
from batchval.core.batches.batch import RecordBatch
from batchval.core.batches.validator import LogValidator
from batchval.errors import NotABatch

FILE = Path(__file__).resolve().parents[3] / "fixtures" / "peer-vectors" / "vectors.jsonl"
VECTORS = [json.loads(line) for line in FILE.read_text("utf-8").splitlines()]
READABLE = [vector for vector in VECTORS if vector["expect"]["iterate"] == "OK"]
FOREVER = 2**63 - 1
CODES = {"InvalidRecordException": 87, "UnsupportedOperationException": -1}


pytestmark = pytest.mark.usefixtures("provider")


def of(vectors):
    return pytest.mark.parametrize("vector", vectors, ids=lambda vector: vector["id"])


def hexed(value):
    """Return hexadecimal bytes as in the vectors: above 4096 bytes only the length."""
    if value is None:
        return None
    return bytes(value).hex() if len(value) <= 4096 else f"len:{len(value)}"


@pytest.fixture(scope="module", autouse=True)
def all_are_there():
    assert len(VECTORS) == 144
    assert len(READABLE) == 143
    assert all(vector["origin"]["license"] for vector in VECTORS)


@of(VECTORS)
def test_header(vector):
    batch, expect = RecordBatch(bytes.fromhex(vector["hex"])), vector["expect"]
    assert batch.size_in_bytes == vector["size"]
    assert batch.magic == vector["magic"]
    assert batch.compression_type.kafka_name == expect["codec"]
    assert batch.is_valid == expect["crc_ok"]
    assert batch.last_offset == expect["last_offset"]
    assert batch.records_count == expect["header_count"]
    assert batch.timestamp_type.kafka_name == expect["ts_type"]
    assert batch.max_timestamp == expect["max_timestamp"]
    assert batch.producer_id == expect["producer_id"]
    assert batch.producer_epoch == expect["producer_epoch"]
    assert batch.base_sequence == expect["base_sequence"]
    assert batch.is_transactional == expect["transactional"]
    assert batch.is_control_batch == expect["control"]


@of(READABLE)
def test_records(vector):
    batch, expect = RecordBatch(bytes.fromhex(vector["hex"])), vector["expect"]
    decoded = [
        {
            "o": record.offset,
            "ts": record.timestamp,
            "k": hexed(record.key),
            "v": hexed(record.value),
            "h": [[name, hexed(value)] for name, value in record.headers],
        }
        for record in batch.records()
    ]
    assert decoded == expect["records"]
    assert len(decoded) == expect["record_count"]
    assert batch.base_offset == expect["base_offset"]


@of([vector for vector in VECTORS if vector not in READABLE])
def test_what_kafka_cannot_read_we_cannot(vector):
    with pytest.raises(NotABatch):
        list(RecordBatch(bytes.fromhex(vector["hex"])).records())


def verdict(result):
    """Return whether it was accepted, and the code."""
    return (result.ok, int(result.error_code))


def expected(text):
    if text.startswith("OK"):
        return (True, 0)
    return (False, CODES[re.match(r"REJECT (\w+)", text)[1]])


def facts(text):
    return {name: int(value) for name, value in re.findall(r"(\w+)=(-?\d+)", text)}


@of(VECTORS)
def test_request_and_batch_loop(vector):
    data, kafka = bytes.fromhex(vector["hex"]), vector["kafka_verdict"]
    validator = LogValidator(policy_of({}), mode="kafka")
    assert verdict(validator.check_request(data, produce_version=9)) == expected(kafka["produce"])
    analyzed = validator.analyze(data)
    assert verdict(analyzed) == expected(kafka["analyze"])
    if analyzed.ok:
        assert analyzed.valid_bytes == facts(kafka["analyze"])["validBytes"]


@pytest.mark.parametrize("how", ["validate", "compact", "recompress"])
@of(VECTORS)
def test_validator(vector, how):
    data, kafka = bytes.fromhex(vector["hex"]), vector["kafka_verdict"][how]
    source = vector["expect"]["codec"]
    target = "producer" if how != "recompress" else "gzip" if source == "lz4" else "lz4"
    policy = policy_of({"compact": how == "compact", "target": target, "after_max_ms": FOREVER})
    result = LogValidator(policy, mode="kafka").validate_messages_and_assign_offsets(
        data, now_ms=0, source=source
    )
    assert verdict(result) == expected(kafka)
    assert [index for index, _ in result.record_errors] == (
        list(range(facts(kafka)["recordErrors"])) if "recordErrors" in kafka else []
    )
    if result.ok:
        assert result.records_count == facts(kafka)["n"]
        assert result.max_timestamp == facts(kafka)["maxTs"]
        if not result.size_maybe_changed or (source == "none" and how != "recompress"):
            assert len(result.output) == facts(kafka)["bytes"]

"""docs/claims.md is a specification: its tables and its bytes are what the code does."""

from __future__ import annotations

import re
import struct
from typing import Any

import pytest

from batchval.core.batch import RecordBatch
from batchval.core.claims import TAG, BatchClaims, attach, compute, from_tag, read, strip, to_tag
from batchval.core.crc32c import crc32c
from batchval.core.validator import LogValidator
from batchval.ledger import DEMOTION_MS, FIRST_CHECKED
from batchval.policy import TopicPolicy
from tests.contract.sources import ROOT

PAGE = (ROOT / "docs" / "claims.md").read_text("utf-8")
_BLOCK = re.compile(r"^```hex\n([a-z ]+):\n([0-9a-f\n]+)```$", re.MULTILINE)
BLOCKS = {name: bytes.fromhex(digits) for name, digits in _BLOCK.findall(PAGE)}
_ROW = re.compile(r"^\| (\d+) \| (\d+) \| `?(\w+)", re.MULTILINE)
ROWS = {field: (int(at), int(size)) for at, size, field in _ROW.findall(PAGE) if field != "claims"}
NOW = 1_700_000_000_000
CLAIMS = BatchClaims(NOW, 3, 2)


def test_all_blocks_are_read() -> None:
    assert list(BLOCKS) == ["batch", "claims", "tag", "tagged fields", "carried", "lie"]
    assert PAGE.count("```hex") == len(BLOCKS)


def test_the_example_is_the_batch_that_is_described() -> None:
    batch = RecordBatch(BLOCKS["batch"])
    assert (batch.magic, batch.is_valid, batch.compression_type.kafka_name) == (2, True, "snappy")
    found = [(bytes(r.key or b""), bytes(r.value or b""), r.timestamp - NOW) for r in batch.records()]
    assert found == [(b"a", b"one", 10), (b"b", b"two", 0), (b"c", b"three", 20)]
    assert batch.max_timestamp == NOW + 20


def test_the_claims() -> None:
    assert compute(BLOCKS["batch"]) == CLAIMS == BatchClaims.from_bytes(BLOCKS["claims"])
    assert BLOCKS["claims"] == CLAIMS.to_bytes() == struct.pack(">qib", *CLAIMS)


def test_where_the_claims_stand_in_their_bytes() -> None:
    values = []
    for field in BatchClaims._fields:
        at, size = ROWS[field]
        values.append(int.from_bytes(BLOCKS["claims"][at : at + size], "big", signed=True))
    assert tuple(values) == CLAIMS


def test_the_tag() -> None:
    crc = RecordBatch(BLOCKS["batch"]).crc
    assert BLOCKS["tag"] == to_tag(CLAIMS, crc)
    assert from_tag(BLOCKS["tag"], crc) == CLAIMS
    at, size = ROWS["version"]
    assert BLOCKS["tag"][at : at + size] == b"\1"
    at, size = ROWS["crc"]
    assert BLOCKS["tag"][at : at + size] == BLOCKS["batch"][17:21]
    assert (len(BLOCKS["tag"]), BLOCKS["tag"][1:14]) == (18, BLOCKS["claims"])


def test_the_tagged_field_on_the_wire() -> None:
    wire = BLOCKS["tagged fields"]
    number = sum((byte & 0x7F) << 7 * i for i, byte in enumerate(wire[1:4]))
    assert (wire[0], number, [byte >> 7 for byte in wire[1:4]]) == (1, TAG, [1, 1, 0])
    assert f"field **{TAG}**" in PAGE
    assert (wire[4], wire[5:]) == (len(BLOCKS["tag"]), BLOCKS["tag"])


def test_the_header() -> None:
    three = BLOCKS["carried"]
    assert attach(BLOCKS["batch"]) == three
    assert strip(three) == BLOCKS["batch"]
    assert (read(three), three[16], three[61:74]) == (CLAIMS, 3, BLOCKS["claims"])
    assert three[74:] == BLOCKS["batch"][61:]
    assert crc32c(three[21:]) == RecordBatch(three).crc
    assert ROWS["header"] == (0, 61)


def test_the_formula_of_the_patch() -> None:
    two, three = BLOCKS["batch"], BLOCKS["carried"]
    zeros = bytes(len(two) - 61)
    patched = RecordBatch(two).crc ^ crc32c(two[21:61] + zeros) ^ crc32c(three[21:74] + zeros)
    assert patched == RecordBatch(three).crc


def judged(data: bytes, word: str, tag: bytes | None = None, **policy: Any) -> tuple[bool, str | None, str | None]:
    validator = LogValidator(TopicPolicy(accept_claims_header=True, **policy))
    result = validator.check(data, now_ms=NOW, claims=(tag, word))  # type: ignore[arg-type]
    return result.ok, result.claims, result.rule and result.rule.id


def test_what_becomes_of_the_examples() -> None:
    for data, tag in ((BLOCKS["batch"], BLOCKS["tag"]), (BLOCKS["carried"], None)):
        assert judged(data, "trust", tag) == (True, "trusted", None)
        assert judged(data, "verify", tag) == (True, "honest", None)
        assert judged(data, "trust", tag, cleanup_policy="compact") == (True, "trusted", None)
    assert read(BLOCKS["lie"]) == CLAIMS._replace(null_keys=1)
    assert judged(BLOCKS["lie"], "verify") == (False, "lying", "L7")
    assert judged(BLOCKS["lie"], "trust") == (True, "trusted", None)
    assert judged(BLOCKS["lie"], "trust", cleanup_policy="compact") == (False, "lying", "L7")
    assert judged(BLOCKS["lie"], "ignore") == (True, None, None)


def test_a_stock_broker() -> None:
    for validator in (LogValidator(mode="kafka"), LogValidator()):
        result = validator.check(BLOCKS["carried"], now_ms=NOW)
        assert (result.error_code.name, result.rule.slug) == ("CORRUPT_MESSAGE", "magic-unknown")


@pytest.mark.parametrize("null_keys", [0, 1, 2])
def test_the_key_bytes(null_keys: int) -> None:
    row = re.search(rf"^\| {null_keys} \| (true|false) \|", PAGE, re.MULTILINE)
    assert row is not None
    assert BatchClaims(0, 1, null_keys).all_key_is_null == (row[1] == "true")


def test_the_numbers_of_sampling() -> None:
    assert f"first {FIRST_CHECKED} " in PAGE
    assert "for an hour" in PAGE
    assert DEMOTION_MS == 3_600_000
    for share, batches in ((1.0, 459), (0.01, 46_050)):
        assert f"{batches:,}" in PAGE
        assert 1 - (1 - 0.01 * share) ** batches == pytest.approx(0.99, abs=1e-4)

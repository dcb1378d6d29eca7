"""The pages about claims are a specification: its tables and its bytes are what the code does."""

from __future__ import annotations

import re
import struct
from typing import Any

import pytest

from batchval.core.batches.batch import RecordBatch
from batchval.core.batches.validator import LogValidator
from batchval.core.claims import (
    TAG,
    BatchClaims,
    attach,
    compute,
    from_tag,
    read,
    strip,
    to_tag,
)
from batchval.core.format.crc32c import crc32c
from batchval.ledger import DEMOTION_MS, FIRST_CHECKED
from batchval.policy import TopicPolicy
from tests.support.sources import ROOT

NAMES = ("reference/claims-format", "reference/claims-carriers", "concepts/claims")
PAGE = "\n".join((ROOT / "docs" / f"{name}.md").read_text("utf-8") for name in NAMES)
_BLOCK = re.compile(r"^```hex\n([a-z ]+):\n([0-9a-f\n]+)```$", re.MULTILINE)
BLOCKS = {name: bytes.fromhex(digits) for name, digits in _BLOCK.findall(PAGE)}
_ROW = re.compile(r"^\| (\d+) \| ([\d to]+) \| `?(\w+)", re.MULTILINE)


def rows(heading: str) -> dict[str, tuple[int, int]]:
    """Return offset and least size of each field in the first table after a text."""
    table = PAGE.partition(heading)[2].partition("| offset |")[2].partition("\n\n")[0]
    return {field: (int(at), int(size.split()[0])) for at, size, field in _ROW.findall(table)}


NOW = 1_700_000_000_000
CLAIMS = BatchClaims(NOW, 3, 2, 96, 12)
VERSION_1 = BatchClaims(NOW, 3, 2)


def test_all_blocks_are_read() -> None:
    tags = ["tag", "tagged fields", "tag of version one"]
    payloads = ["zstd batch", "zstd carrying", "gzip batch", "gzip carrying"]
    assert list(BLOCKS) == [
        "batch",
        "block",
        "claims",
        "schema ids",
        "fields",
        *tags,
        *payloads,
        "carried",
        "lie",
    ]
    assert PAGE.count("```hex") == len(BLOCKS)


def test_the_example_is_the_batch_that_is_described() -> None:
    batch = RecordBatch(BLOCKS["batch"])
    assert (batch.magic, batch.is_valid, batch.compression_type.kafka_name) == (2, True, "snappy")
    found = [
        (bytes(r.key or b""), bytes(r.value or b""), r.timestamp - NOW) for r in batch.records()
    ]
    assert found == [(b"a", b"one", 10), (b"b", b"two", 0), (b"c", b"three", 20)]
    assert batch.max_timestamp == NOW + 20


def test_the_claims() -> None:
    assert compute(BLOCKS["batch"]) == CLAIMS == BatchClaims.from_block(BLOCKS["block"])
    assert BLOCKS["block"] == CLAIMS.to_block() == struct.pack(">bqibiib", 2, *CLAIMS[:5], 0)
    assert (
        BLOCKS["claims"]
        == VERSION_1.to_bytes()
        == CLAIMS.to_bytes()
        == struct.pack(">qib", *CLAIMS[:3])
    )


@pytest.mark.parametrize(
    ("heading", "block", "values"),
    [
        ("## What is claimed", "block", (2, *CLAIMS[:5], 0)),
        ("### Version 1", "claims", VERSION_1[:3]),
    ],
)
def test_where_the_claims_stand_in_their_bytes(
    heading: str, block: str, values: tuple[int, ...]
) -> None:
    fields = rows(heading)
    found = [
        int.from_bytes(BLOCKS[block][at : at + size], "big", signed=True)
        for at, size in fields.values()
    ]
    assert tuple(found) == values
    names = [name for name in fields if name not in ("version", "fields")]
    assert names == [*BatchClaims._fields[: len(names)]]


def test_the_tag() -> None:
    crc = RecordBatch(BLOCKS["batch"]).crc
    assert BLOCKS["tag"] == to_tag(CLAIMS, crc) == BLOCKS["block"] + BLOCKS["batch"][17:21]
    assert from_tag(BLOCKS["tag"], crc) == CLAIMS
    assert (
        BLOCKS["tag of version one"]
        == to_tag(VERSION_1, crc)
        == b"\1" + BLOCKS["claims"] + BLOCKS["batch"][17:21]
    )
    assert from_tag(BLOCKS["tag of version one"], crc) == VERSION_1
    assert len(BLOCKS["tag of version one"]) == 18


@pytest.mark.parametrize("codec", ["zstd", "gzip"])
def test_the_payload(codec: str) -> None:
    plain, carrying = BLOCKS[f"{codec} batch"], BLOCKS[f"{codec} carrying"]
    assert (RecordBatch(plain).compression_type.kafka_name, RecordBatch(carrying).is_valid) == (
        codec,
        True,
    )
    assert attach(plain, carrier="payload") == carrying
    assert (strip(carrying), read(carrying)) == (plain, CLAIMS)
    fields = rows(f"\n{codec}, a ")
    last_at, _ = [*fields.values()][-1]
    assert carrying[61 + last_at : 61 + last_at + 23] == BLOCKS["block"]
    at, size = fields["id" if codec == "zstd" else "subfield"]
    assert carrying[61 + at : 61 + at + size] == b"BV"
    for word, answer in (("verify", "honest"), ("trust", "trusted"), ("ignore", None)):
        assert judged(carrying, word) == (True, answer, None)
    tag = to_tag(CLAIMS, RecordBatch(carrying).crc)
    assert judged(carrying, "trust", tag) == (True, "trusted", None)
    assert judged(carrying, "trust", BLOCKS["tag"]) == (True, "unbound", None)


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
    assert (read(three), three[16], three[61:74]) == (VERSION_1, 3, BLOCKS["claims"])
    assert three[74:] == BLOCKS["batch"][61:]
    assert crc32c(three[21:]) == RecordBatch(three).crc
    assert rows("## Carrier three")["header"] == (0, 61)


def test_the_formula_of_the_patch() -> None:
    two, three = BLOCKS["batch"], BLOCKS["carried"]
    zeros = bytes(len(two) - 61)
    patched = RecordBatch(two).crc ^ crc32c(two[21:61] + zeros) ^ crc32c(three[21:74] + zeros)
    assert patched == RecordBatch(three).crc


def judged(
    data: bytes, word: str, tag: bytes | None = None, **policy: Any
) -> tuple[bool, str | None, str | None]:
    validator = LogValidator(TopicPolicy(accept_claims_header=True, **policy))
    result = validator.check(data, now_ms=NOW, claims=(tag, word))  # type: ignore[arg-type]
    return result.ok, result.claims, result.rule and result.rule.id


def test_what_becomes_of_the_examples() -> None:
    tags = (BLOCKS["tag"], BLOCKS["tag of version one"])
    for data, tag in (*((BLOCKS["batch"], tag) for tag in tags), (BLOCKS["carried"], None)):
        assert judged(data, "trust", tag) == (True, "trusted", None)
        assert judged(data, "verify", tag) == (True, "honest", None)
        assert judged(data, "trust", tag, cleanup_policy="compact") == (True, "trusted", None)
    assert read(BLOCKS["lie"]) == VERSION_1._replace(null_keys=1)
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


def test_the_example_of_schema_ids() -> None:
    content = BLOCKS["schema ids"]
    claims = CLAIMS._replace(fields=((1, content),))
    assert (claims.schema_ids, claims.no_value_null) == ((7, 300), True)
    assert claims.to_block() == BLOCKS["block"][:-1] + BLOCKS["fields"]

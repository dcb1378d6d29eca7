"""Claims in a check: what trust accepts, what it leaves to the slow path, what a lie gets.

The header carrier's own ways are in test_carried.py.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from batchval.core.batches.result import RecordValidationStats
from batchval.core.batches.validator import LogValidator
from batchval.core.claims import compute
from batchval.errors import BatchvalError
from batchval.policy import TopicPolicy
from tests.support.batches import (
    CODECS,
    GZIP,
    LZ4,
    NOW,
    SNAPPY,
    ZSTD,
    Body,
    batch,
    message,
    raw,
    record,
    varint,
    wrapper,
)
from tests.support.claims import Stated, carry, sizes_of, tag, three

COMPRESSED = [GZIP, SNAPPY, LZ4, ZSTD]
ANSWER = (
    "ok",
    "error_code",
    "rule",
    "record_errors",
    "record_error_rules",
    "reports",
    "next_offset",
    "max_timestamp",
)
PLACED = (
    "append_time",
    "in_place",
    "size_maybe_changed",
    "converted",
    "valid_bytes",
    "source",
    "output",
)
KEYS = [b"a", b"b", b"c"]


def keyed(keys: list[bytes | None], codec: int = ZSTD, **fields: Any) -> bytes:
    """Three records 10, 0 and 20 ms from now, and a header that is right by default."""
    deltas = [10, 0, 20]
    parts = [
        record(i, key=k, timestamp_delta=d)
        for i, (k, d) in enumerate(zip(keys, deltas, strict=True))
    ]
    return batch(parts, codec=codec, **{"max_timestamp": NOW + 20, **fields})


TRUE = Stated(NOW, 3, 2)
GOOD = keyed(KEYS)


class Asked:
    """One batch and its claims, in a carrier, to one topic."""

    def __init__(self, carrier: str, policy: TopicPolicy | None = None, **settings: Any) -> None:
        self.carrier = carrier
        values = (
            {}
            if policy is None
            else {f: getattr(policy, f) for f in TopicPolicy.__dataclass_fields__}
        )
        self.validator = LogValidator(
            TopicPolicy(**values | {"accept_claims_header": carrier == "header"}), **settings
        )

    def __call__(self, data: bytes, claimed: tuple[int, int, int], word: str, **call: Any) -> Any:
        call = {"now_ms": NOW, **call}
        sent, its_tag = carry(self.carrier, claimed, data)
        return self.validator.validate(sent, claims=(its_tag, word), **call)

    def without(self, data: bytes, **call: Any) -> Any:
        return self.validator.validate(data, **{"now_ms": NOW, **call})


@pytest.fixture(params=["tag", "block", "header"])
def carrier(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def same(quick: Any, slow: Any, names: tuple[str, ...] = ANSWER) -> None:
    assert {name: getattr(quick, name) for name in names} == {
        name: getattr(slow, name) for name in names
    }


def slow_decides(
    carrier: str,
    data: bytes,
    claimed: tuple[int, int, int],
    policy: TopicPolicy | None = None,
    **kw: Any,
) -> Any:
    """Trusted claims that settle nothing: the answer is the one without claims, by the path without
    claims.

    But in a header, a lie that came out on the way refuses what would be accepted.
    """
    settings = {k: kw.pop(k) for k in ("extras", "max_decompressed_bytes") if k in kw}
    asked = Asked(carrier, policy, **settings)
    quick, slow = asked(data, claimed, "trust", **kw), asked.without(data, **kw)
    assert quick.path == slow.path != "claims"
    assert quick.claims != "trusted"
    if carrier == "header" and quick.claims == "lying" and slow.ok:
        assert (quick.ok, int(quick.error_code), str(quick.rule)) == (False, 87, "L7 lying-claims")
        return quick
    same(quick, slow)
    assert (quick.stats, quick.output) == (slow.stats, slow.output)
    return quick


# ---- what trust accepts --------------------------------------------------------------------------


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize(
    "keys", [KEYS, [None] * 3, [b"a", None, b"c"]], ids=["keys", "no keys", "some keys"]
)
def test_true_claims_settle_it(carrier: str, codec: int, keys: list[bytes | None]) -> None:
    data = keyed(keys, codec)
    claimed = compute(data)
    assert claimed is not None
    asked = Asked(carrier)
    quick, slow = (
        asked(data, claimed, "trust", first_offset=500, leader_epoch=3),
        asked.without(data, first_offset=500, leader_epoch=3),
    )
    same(quick, slow, ANSWER if carrier == "header" else ANSWER + PLACED)
    assert quick.output == slow.output
    assert (slow.path, quick.path, quick.claims) == ("shallow", "claims", "trusted")


def test_nothing_is_known_that_only_records_tell(carrier: str) -> None:
    quick = Asked(carrier)(GOOD, TRUE, "trust")
    size = sizes_of(GOOD)[0] if carrier == "block" else None
    assert quick.stats == RecordValidationStats(size, 0, None)
    assert quick.records_count == 3
    assert quick.batch_claims is None
    slow = Asked(carrier)(GOOD, TRUE, "verify")
    assert slow.stats.temporary_memory_bytes > 0
    assert three(slow.batch_claims) == TRUE


def test_nothing_is_decompressed(carrier: str) -> None:
    """A payload that is not a stream: the lie that trust is about."""
    data = batch([], codec=ZSTD, payload=b"no zstd frame", records_count=3, max_timestamp=NOW + 20)
    asked = Asked(carrier)
    assert not asked.without(data).ok
    quick = asked(data, TRUE, "trust")
    assert (quick.ok, quick.path, quick.records_count, quick.next_offset) == (True, "claims", 3, 3)


@pytest.mark.parametrize("null_keys", [0, 1, 2])
def test_keys_do_not_matter_where_the_topic_is_not_compacted(carrier: str, null_keys: int) -> None:
    assert Asked(carrier)(GOOD, TRUE._replace(null_keys=null_keys), "trust").path == "claims"


def test_a_compacted_topic_takes_the_word_that_no_key_is_null(carrier: str) -> None:
    asked = Asked(carrier, TopicPolicy(cleanup_policy="compact"))
    assert asked(GOOD, TRUE, "trust").path == "claims"


@pytest.mark.parametrize("producer", [(7, 0, 0), (7, 1, 2**31 - 1)])
@pytest.mark.parametrize("attributes", [0, 0x10])
def test_idempotent_and_transactional_batches(
    carrier: str, attributes: int, producer: tuple[int, int, int]
) -> None:
    named = dict(zip(("producer_id", "producer_epoch", "base_sequence"), producer, strict=True))
    data = keyed(KEYS, attributes=attributes, **named)
    asked = Asked(carrier)
    quick, slow = asked(data, TRUE, "trust"), asked.without(data)
    assert (quick.ok, quick.path, slow.path) == (True, "claims", "shallow")
    assert quick.output == slow.output


def test_a_topic_that_writes_its_own_time(carrier: str) -> None:
    asked = Asked(carrier, TopicPolicy(message_timestamp_type="LogAppendTime"))
    late = NOW + 10**12
    quick, slow = asked(GOOD, TRUE, "trust", now_ms=late), asked.without(GOOD, now_ms=late)
    same(quick, slow)
    assert (quick.path, quick.max_timestamp) == ("claims", late)
    assert quick.output == slow.output


@pytest.mark.parametrize("ms", [-1, 0, 1])
def test_the_clocks_bounds_to_the_millisecond(carrier: str, ms: int) -> None:
    """The lowest timestamp may be before_max old, the highest after_max ahead, and no more."""
    policy = TopicPolicy(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=500)
    for now_ms in (NOW + 1000 + ms, NOW + 20 - 500 + ms):
        asked = Asked(carrier, policy)
        quick, slow = asked(GOOD, TRUE, "trust", now_ms=now_ms), asked.without(GOOD, now_ms=now_ms)
        same(quick, slow)
        assert (quick.path == "claims") == slow.ok


def test_target_codecs(carrier: str) -> None:
    assert (
        Asked(carrier, TopicPolicy(compression_type="zstd"))(GOOD, TRUE, "trust").path == "claims"
    )
    for target in ("lz4", "gzip", "snappy", "uncompressed"):
        assert (
            slow_decides(carrier, GOOD, TRUE, TopicPolicy(compression_type=target)).path
            == "rebuilt"
        )


# ---- what settles nothing ------------------------------------------------------------------------


def test_uncompressed_batches_are_walked(carrier: str) -> None:
    data = keyed(KEYS, 0)
    assert slow_decides(carrier, data, TRUE).path == "full"
    assert Asked(carrier)(data, TRUE, "trust").claims == "honest"
    assert Asked(carrier)(data, TRUE._replace(null_keys=1), "trust").claims == "lying"
    broken = batch([raw(Body(), varint(99))] * 3, max_timestamp=NOW + 20)
    assert not slow_decides(carrier, broken, TRUE).ok


def test_records_without_timestamp(carrier: str) -> None:
    parts = [record(0, timestamp_delta=-1 - NOW), record(1)]
    data = batch(parts, codec=LZ4)
    assert three(compute(data)) == (-1, 2, 1)
    assert slow_decides(carrier, data, (-1, 2, 1)).ok
    assert Asked(carrier)(data, (-1, 2, 1), "verify").claims == "honest"
    assert Asked(carrier)(data, (NOW, 2, 1), "verify").claims == "lying"


def test_a_batch_without_any_timestamp(carrier: str) -> None:
    data = batch([record(0), record(1)], codec=GZIP, base_timestamp=-1)
    assert three(compute(data)) == (-1, 2, 1)
    assert slow_decides(carrier, data, (-1, 2, 1)).ok
    assert slow_decides(carrier, data, (0, 2, 1)).path == "shallow"


@pytest.mark.parametrize("least", [-(2**63), -2, -1, NOW + 21, 2**63 - 1])
def test_a_minimum_below_0_or_above_the_maximum(carrier: str, least: int) -> None:
    result = slow_decides(carrier, GOOD, TRUE._replace(batch_min_timestamp=least))
    assert (result.ok, result.claims) == (carrier != "header", "lying")


@pytest.mark.parametrize("topic", ["CreateTime", "LogAppendTime"])
def test_the_log_append_time_bit(carrier: str, topic: str) -> None:
    data = keyed(KEYS, attributes=8)
    result = slow_decides(carrier, data, TRUE, TopicPolicy(message_timestamp_type=topic))
    assert result.ok == (
        topic == "CreateTime" and carrier != "header"
    )  # the minimum is the header's max timestamp then
    assert len(result.record_errors) == (3 if topic == "LogAppendTime" else 0)
    assert (
        slow_decides(
            carrier, data, (NOW + 20, 3, 2), TopicPolicy(message_timestamp_type=topic)
        ).claims
        == "honest"
    )


def test_a_max_timestamp_that_is_not_set(carrier: str) -> None:
    data = keyed(KEYS, max_timestamp=-1)
    result = slow_decides(carrier, data, TRUE)
    assert (result.path, result.claims) == ("shallow", "lying")


@pytest.mark.parametrize("null_keys", [0, 1])
def test_a_compacted_topic_wants_the_strongest_word(carrier: str, null_keys: int) -> None:
    policy = TopicPolicy(cleanup_policy="compact,delete")
    asked = Asked(carrier, policy)
    quick, slow = asked(GOOD, TRUE._replace(null_keys=null_keys), "trust"), asked.without(GOOD)
    assert (quick.path, slow.ok) == ("shallow", True)
    assert quick.claims == ("honest" if null_keys == 0 else "lying")
    assert quick.ok == (carrier != "header" or null_keys == 0)
    # and where there really is a record without key, the answer is Kafka's with its indexes
    refused = slow_decides(carrier, keyed([b"a", None, b"c"]), (NOW, 3, null_keys), policy)
    assert [i for i, _ in refused.record_errors] == [1]


@pytest.mark.parametrize("null_keys", [-128, -1, 3, 127])
def test_a_key_byte_that_means_nothing(carrier: str, null_keys: int) -> None:
    claimed = TRUE._replace(null_keys=null_keys)
    result = slow_decides(carrier, GOOD, claimed)
    assert (result.path, result.claims) == ("shallow", "lying")


def test_a_clock_before_1970(carrier: str) -> None:
    assert not slow_decides(carrier, GOOD, TRUE, now_ms=-5).ok


def test_a_coordinators_batch_is_not_settled(carrier: str) -> None:
    result = slow_decides(carrier, GOOD, TRUE, origin="COORDINATOR")
    assert (result.ok, result.claims) == (True, "honest")


@pytest.mark.parametrize("origin", ["REPLICATION", "RAFT_LEADER"])
def test_no_record_is_read_where_offsets_are_kept(carrier: str, origin: str) -> None:
    stamped = GOOD[:12] + bytes(4) + GOOD[16:]
    result = slow_decides(carrier, stamped, TRUE, origin=origin)
    assert (result.ok, result.claims, result.path) == (True, "unjudged", None)


@pytest.mark.parametrize("to_magic", [0, 1])
def test_a_conversion_needs_the_records(carrier: str, to_magic: int) -> None:
    result = slow_decides(carrier, keyed(KEYS, LZ4), TRUE, to_magic=to_magic)
    assert (result.ok, result.claims, result.path) == (True, "honest", "rebuilt")


def frame_stating(size: int) -> bytes:
    """A zstd frame whose header states so many bytes; what is in it does not matter."""
    return struct.pack("<IBBQ", 0xFD2FB528, 0xC0, 0x50, size) + b"\1\0\0"


def lz4_stating(size: int) -> bytes:
    return struct.pack("<IBBQ", 0x184D2204, 0x68, 0x40, size) + b"\0\0\0\0\0"


@pytest.mark.parametrize("size", [5001, 2**32, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1])
@pytest.mark.parametrize(
    ("codec", "frame"), [(ZSTD, frame_stating), (LZ4, lz4_stating)], ids=["zstd", "lz4"]
)
def test_a_frame_that_states_more_than_the_limit(
    carrier: str, codec: int, frame: Callable[[int], bytes], size: int
) -> None:
    asked = Asked(carrier, max_decompressed_bytes=5000)
    data = batch([], codec=codec, payload=frame(size), records_count=3, max_timestamp=NOW + 20)
    assert asked(data, TRUE, "trust").path != "claims"
    within = batch([], codec=codec, payload=frame(5000), records_count=3, max_timestamp=NOW + 20)
    assert asked(within, TRUE, "trust").path == "claims"


def test_a_skippable_frame_before_the_one_that_states_its_size(carrier: str) -> None:
    skippable = struct.pack("<II", 0x184D2A5F, 3) + b"abc"
    asked = Asked(carrier, max_decompressed_bytes=5000)
    for size, path in ((5000, "claims"), (5001, "shallow")):
        data = batch(
            [],
            codec=ZSTD,
            payload=skippable + frame_stating(size),
            records_count=3,
            max_timestamp=NOW + 20,
        )
        assert asked(data, TRUE, "trust").path == path


def test_a_topic_that_bounds_single_records(carrier: str) -> None:
    """max.decompressed.message.bytes is Kafka's rule, and version 1 says nothing about sizes."""
    parts = [record(i, key=b"k", value=bytes(300), timestamp_delta=20) for i in range(3)]
    data, claimed = batch(parts, codec=ZSTD, max_timestamp=NOW + 20), (NOW + 20, 3, 2)
    narrow = TopicPolicy(max_decompressed_message_bytes=200)
    assert str(slow_decides(carrier, data, claimed, narrow).rule) == "29 record-malformed"
    enough = TopicPolicy(max_decompressed_message_bytes=400)
    if carrier == "block":
        assert Asked(carrier, enough)(data, claimed, "trust").path == "claims"
    else:
        assert slow_decides(carrier, data, claimed, enough).ok
    # nobody lied: the sender cannot know the topic's bound
    assert Asked(carrier, narrow)(data, claimed, "verify").claims == "unjudged"
    wide = TopicPolicy(max_decompressed_message_bytes=1000)
    assert (
        Asked(carrier, wide, max_decompressed_bytes=1000)(data, claimed, "trust").path == "claims"
    )


def test_more_than_the_limit_is_a_lie(carrier: str) -> None:
    """Claims promise a payload that decompresses within the limit. What the header refuses is
    unjudged.
    """
    data = batch([record(0, value=bytes(100_000))], codec=ZSTD)
    for word in ("verify", "trust"):
        result = Asked(carrier, max_decompressed_bytes=5000)(data, (NOW, 2, 1), word)
        assert (str(result.rule), result.claims) == (
            "25 records-count-unlike-offsets",
            "unjudged",
        ) or not result.ok
    result = Asked(carrier, max_decompressed_bytes=5000)(data, (NOW, 1, 1), "verify")
    assert (result.rule.id, result.claims) == ("S8", "lying")


def test_bits_that_nobody_knows(carrier: str) -> None:
    data = keyed(KEYS, attributes=0x4000)
    assert slow_decides(carrier, data, TRUE).rule.id == "S1"
    reported = Asked(carrier, extras={"S1": "report"})(data, TRUE, "trust")
    assert (reported.ok, reported.path, [r.id for r in reported.reports]) == (
        True,
        "claims",
        ["S1"],
    )


HEADERS = {
    "base offset": {"base_offset": 5},
    "count and delta": {"records_count": 4, "last_offset_delta": 2},
    "no records": {"records_count": 0},
    "negative count": {"records_count": -1},
    "negative delta": {"last_offset_delta": -1},
    "control": {"attributes": 0x20},
    "control and transactional": {"attributes": 0x30, "producer_id": 4, "base_sequence": 0},
    "sequence": {"producer_id": 4, "base_sequence": -1},
    "codec 5": {"codec": 5, "payload": b"x"},
    "codec 7": {"codec": 7, "payload": b"x"},
    "checksum": {"crc": 1},
}


@pytest.mark.parametrize("how", HEADERS)
@pytest.mark.parametrize("word", ["ignore", "verify", "trust"])
def test_a_header_that_kafka_refuses(how: str, word: str) -> None:
    """Claims change neither the code nor the reason."""
    codec = HEADERS[how].get("codec", ZSTD)
    data = keyed(KEYS, codec, **{k: v for k, v in HEADERS[how].items() if k != "codec"})
    asked = Asked("tag")
    quick, slow = asked(data, TRUE, word), asked.without(data)
    same(quick, slow, (*ANSWER, "reason", "path", "position", "meters"))
    assert not quick.ok
    assert quick.claims == (None if word == "ignore" else "unjudged")


def test_a_batch_that_is_too_large_or_too_new(carrier: str) -> None:
    assert (
        slow_decides(carrier, GOOD, TRUE, TopicPolicy(max_message_bytes=len(GOOD) - 1)).rule.number
        == 13
    )
    assert (
        Asked(carrier, TopicPolicy(max_message_bytes=len(GOOD)))(GOOD, TRUE, "trust").path
        == "claims"
    )
    assert slow_decides(carrier, GOOD, TRUE, produce_version=6).rule.number == 7
    assert Asked(carrier)(keyed(KEYS, LZ4), TRUE, "trust", produce_version=6).path == "claims"


def test_bytes_after_the_batch() -> None:
    asked = Asked("tag")
    for tail in (b"\0", b"junk", GOOD, b"\xff" * 30):
        quick, slow = asked(GOOD + tail, TRUE, "trust"), asked.without(GOOD + tail)
        same(quick, slow)
        assert not quick.ok


# ---- tags ----------------------------------------------------------------------------------------


def tags() -> dict[str, bytes]:
    right = tag(TRUE, GOOD)
    return {
        "none of it": b"",
        "version 0": b"\0" + right[1:],
        "version 2": b"\2" + right[1:],
        "too short": right[:-1],
        "too long": right + b"\0",
        "another batch's": tag(TRUE, keyed(KEYS, LZ4)),
        "crc of 0": right[:14] + bytes(4),
        "first bit of the crc": right[:14] + bytes([right[14] ^ 0x80]) + right[15:],
        "last bit of the crc": right[:17] + bytes([right[17] ^ 1]),
    }


@pytest.mark.parametrize("which", tags())
@pytest.mark.parametrize("word", ["verify", "trust"])
def test_a_tag_that_is_none_settles_nothing(which: str, word: str) -> None:
    validator = LogValidator()
    quick = validator.validate(GOOD, now_ms=NOW, claims=(tags()[which], word))
    same(quick, validator.validate(GOOD, now_ms=NOW), ANSWER + PLACED)
    assert (quick.ok, quick.path, quick.claims) == (True, "shallow", "unbound")


def test_a_tag_in_any_buffer() -> None:
    right = tag(TRUE, GOOD)
    for kind in (bytes, bytearray, memoryview, lambda b: memoryview(b"xx" + b)[2:]):
        assert (
            LogValidator().check(GOOD, now_ms=NOW, claims=(kind(right), "trust")).path == "claims"
        )
    for bad in (17, "tag", memoryview(right)[::2]):
        with pytest.raises(BatchvalError):
            LogValidator().check(GOOD, now_ms=NOW, claims=(bad, "trust"))  # type: ignore[arg-type]


def test_ignored_claims_are_not_looked_at() -> None:
    for claimed in (TRUE, Stated(0, 0, 77)):
        result = LogValidator().check(GOOD, now_ms=NOW, claims=(tag(claimed, GOOD), "ignore"))
        assert (result.ok, result.path, result.claims) == (True, "shallow", None)


def test_trust_without_claims() -> None:
    for word in ("trust", "verify", "ignore"):
        result = LogValidator().check(GOOD, now_ms=NOW, claims=(None, word))
        assert (result.ok, result.path, result.claims) == (True, "shallow", None)


@pytest.mark.parametrize(
    "claims",
    [
        "trust",
        (b"", "believe"),
        (b"",),
        (b"", "trust", 1),
        7,
        (b"", None),
        (b"", ["trust"]),
        b"\0" * 18,
    ],
)
def test_words_that_are_none(claims: Any) -> None:
    with pytest.raises(BatchvalError, match="claims must be"):
        LogValidator().check(GOOD, now_ms=NOW, claims=claims)


def test_kafka_mode_knows_no_claims() -> None:
    kafka = LogValidator(mode="kafka")
    for word in ("trust", "verify"):
        with pytest.raises(BatchvalError, match="strict"):
            kafka.check(GOOD, now_ms=NOW, claims=(tag(TRUE, GOOD), word))
    assert kafka.check(GOOD, now_ms=NOW, claims=(tag(TRUE, GOOD), "ignore")).path == "shallow"
    at_rest = LogValidator(profile="log")
    for call in (at_rest.check, at_rest.check_ranges):
        with pytest.raises(BatchvalError, match="at rest"):
            call(GOOD, claims=(None, "verify"))


@pytest.mark.parametrize("codec", [0, GZIP, SNAPPY, LZ4])
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("word", ["ignore", "verify", "trust"])
def test_old_formats_know_no_claims(magic: int, codec: int, word: str) -> None:
    """Refused as ever, whatever is claimed of them; the stage that takes them takes no
    claims.
    """
    inner = [message(magic, offset=i, key=b"k") for i in range(3)]
    data = wrapper(inner, codec, magic) if codec else b"".join(inner)
    validator = LogValidator()
    with_tag = validator.check(data, now_ms=NOW, claims=(tag(TRUE, data), word))
    same(with_tag, validator.check(data, now_ms=NOW), (*ANSWER, "reason", "path"))
    assert with_tag.claims in ((None,) if word == "ignore" else ("unbound",))
    on, off = (
        LogValidator(TopicPolicy(accept_claims_header=accept)).validate_messages_and_assign_offsets(
            data, now_ms=NOW
        )
        for accept in (True, False)
    )
    same(on, off, (*ANSWER, *PLACED, "path", "stats"))
    assert (on.ok, on.batch_claims) == (True, None)


# ---- a request -----------------------------------------------------------------------------------


def test_one_claim_a_range() -> None:
    lie = TRUE._replace(null_keys=1)
    other = keyed([None] * 3, LZ4)
    data = GOOD + other + GOOD + keyed(KEYS, 0) + GOOD
    pairs, at = [], 0
    for part in (GOOD, other, GOOD, keyed(KEYS, 0), GOOD):
        pairs.append((at, len(part)))
        at += len(part)
    claims = [
        (tag(TRUE, GOOD), "trust"),
        (tag((NOW, 3, 1), other), "trust"),
        (tag(lie, GOOD), "verify"),
        (tag(lie, keyed(KEYS, 0)), "trust"),
        None,
    ]
    columns = LogValidator().check_ranges(data, pairs, now_ms=NOW, claims=claims)
    assert columns.ok().all()
    assert columns.all_ok
    assert [row["claims"] for row in columns.rows()] == [
        "trusted",
        "trusted",
        "lying",
        "lying",
        None,
    ]
    assert [row["path"] for row in columns.rows()] == [
        "claims",
        "claims",
        "shallow",
        "full",
        "shallow",
    ]
    for i, claimed in enumerate(claims):
        alone = LogValidator().check(data[pairs[i][0] : sum(pairs[i])], now_ms=NOW, claims=claimed)
        again = columns.result(i)
        assert (again.claims, again.path, again.ok) == (alone.claims, alone.path, alone.ok)
    with pytest.raises(BatchvalError, match="got 4 claims for 5 ranges"):
        LogValidator().check_ranges(data, pairs, now_ms=NOW, claims=claims[:4])
    with pytest.raises(BatchvalError, match="claims must be"):
        LogValidator().check_ranges(data, pairs, now_ms=NOW, claims=["trust"] * 5)  # type: ignore[list-item]
    with pytest.raises(BatchvalError, match="claims must be one"):
        LogValidator().check_ranges(data, pairs, now_ms=NOW, claims=17)  # type: ignore[arg-type]


def test_one_claim_for_all_ranges() -> None:
    """It is bound to one batch; of the others it says nothing."""
    data = GOOD + keyed(KEYS, LZ4)
    columns = LogValidator().check_ranges(data, now_ms=NOW, claims=(tag(TRUE, GOOD), "trust"))
    assert [row["claims"] for row in columns.rows()] == ["trusted", "unbound"]
    assert [columns.result(i).claims for i in range(2)] == ["trusted", "unbound"]


def test_every_codec_is_compressed_here() -> None:
    assert set(COMPRESSED) | {0} == set(CODECS.values())

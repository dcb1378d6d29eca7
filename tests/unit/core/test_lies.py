"""Every lie that claims can tell: what trust makes of it, that verify finds it, what it is answered
with.

The batch is Kafka's to refuse or not; only in a header a lie makes a batch malformed that would
else be accepted (L7).
"""

from __future__ import annotations

import struct
from typing import Any

import pytest
import zstandard

from batchval.core.batches.validator import LogValidator
from batchval.core.claims import compute
from batchval.policy import TopicPolicy
from tests.support.batches import (
    GZIP,
    LZ4,
    NOW,
    SNAPPY,
    ZSTD,
    Body,
    batch,
    blob,
    compress,
    raw,
    record,
    records,
    varint,
)
from tests.support.claims import Stated, carry, carrying, tag, three

COMPRESSED = [GZIP, SNAPPY, LZ4, ZSTD]
KEYED = [record(i, key=b"k%d" % i, timestamp_delta=d) for i, d in enumerate((10, 0, 20))]
TRUE = Stated(NOW, 3, 2)
ANSWER = (
    "ok",
    "error_code",
    "rule",
    "record_errors",
    "reports",
    "next_offset",
    "max_timestamp",
    "reason",
    "path",
)


def keyed(codec: int = ZSTD, **fields: Any) -> bytes:
    return batch(**{"parts": KEYED, "codec": codec, "max_timestamp": NOW + 20, **fields})


@pytest.fixture(params=["tag", "block", "payload", "header"])
def carrier(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class CarrierCase:
    """A topic, and the carrier that is used."""

    def __init__(self, carrier: str, **policy: Any) -> None:
        self.carrier = carrier
        self.validator = LogValidator(
            TopicPolicy(accept_claims_header=carrier == "header", **policy)
        )

    def judge(
        self, data: bytes, claimed: tuple[int, int, int], word: str, now_ms: int = NOW
    ) -> Any:
        sent, its_tag = carry(self.carrier, claimed, data)
        return self.validator.check(sent, now_ms=now_ms, claims=(its_tag, word))

    def found_by_verify(self, data: bytes, claimed: tuple[int, int, int], now_ms: int = NOW) -> Any:
        """The lie is named, and the verdict is Kafka's; or L7, where a header lies and Kafka would
        accept.
        """
        result = self.judge(data, claimed, "verify", now_ms)
        # a stream that is cut off ends otherwise after a whole frame, such as one of claims
        sent = carry(self.carrier, claimed, data)[0] if self.carrier == "payload" else data
        slow = self.validator.check(sent, now_ms=now_ms)
        assert result.claims == "lying"
        if self.carrier == "header" and slow.ok:
            assert (str(result.rule), int(result.error_code)) == ("L7 lying-claims", 87)
            assert result.reason == "the records contradict the claims in the header"
            assert (result.path, result.output, result.record_errors) == (slow.path, None, [])
        else:
            assert {n: getattr(result, n) for n in ANSWER} == {n: getattr(slow, n) for n in ANSWER}
        return slow

    def believed(self, data: bytes, claimed: tuple[int, int, int], now_ms: int = NOW) -> bool:
        """Whether trust lets it in unseen."""
        result = self.judge(data, claimed, "trust", now_ms)
        if result.claims == "trusted":
            assert (result.ok, result.path) == (True, "claims")
            return True
        assert result.path != "claims"
        return False


def test_the_truth_is_not_a_lie(carrier: str) -> None:
    for codec in (0, *COMPRESSED):
        result = CarrierCase(carrier).judge(keyed(codec), TRUE, "verify")
        assert (result.ok, result.claims, three(result.batch_claims)) == (True, "honest", TRUE)


# ---- each field ----------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("by", [1, 20])
def test_a_minimum_too_high(carrier: str, codec: int, by: int) -> None:
    """What hides a record that is too old."""
    data, claimed = keyed(codec), TRUE._replace(batch_min_timestamp=NOW + by)
    assert CarrierCase(carrier).found_by_verify(data, claimed).ok
    assert CarrierCase(carrier).believed(data, claimed)
    strict = CarrierCase(carrier, message_timestamp_before_max_ms=1000)
    slow = strict.found_by_verify(data, claimed, now_ms=NOW + 1001)
    assert [i for i, _ in slow.record_errors] == [1]
    assert strict.believed(data, claimed, now_ms=NOW + 1001)


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("by", [1, NOW])
def test_a_minimum_too_low(carrier: str, codec: int, by: int) -> None:
    """Gains nothing: where the topic bounds ages, it is only the slow path that it leads to."""
    data, claimed = keyed(codec), TRUE._replace(batch_min_timestamp=NOW - by)
    assert CarrierCase(carrier).found_by_verify(data, claimed).ok
    assert CarrierCase(carrier).believed(data, claimed)
    bounded = CarrierCase(carrier, message_timestamp_before_max_ms=0)
    assert bounded.found_by_verify(data, claimed).ok
    assert not bounded.believed(data, claimed)


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("by", [1, 2, -1, -2, -3, -4, 2**31 - 4])
def test_a_count_unlike_the_headers(carrier: str, codec: int, by: int) -> None:
    data, claimed = keyed(codec), TRUE._replace(records_number=3 + by)
    assert CarrierCase(carrier).found_by_verify(data, claimed).ok
    assert not CarrierCase(carrier).believed(data, claimed)


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("count", [2, 4, 1000])
def test_a_count_that_header_and_claims_share(carrier: str, codec: int, count: int) -> None:
    """Consumers would miss records, or read after the last."""
    data, claimed = keyed(codec, records_count=count), TRUE._replace(records_number=count)
    assert str(CarrierCase(carrier).found_by_verify(data, claimed).rule) == "29 record-malformed"
    assert CarrierCase(carrier).believed(data, claimed)


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize(
    ("by", "believed"), [(1, True), (-1, True), (3_600_001, False), (-21, False), (-NOW, False)]
)
def test_a_header_max_timestamp_that_is_wrong(
    carrier: str, codec: int, by: int, believed: bool
) -> None:
    """The fourth claim: Kafka recomputes it and answers with the right one."""
    data = keyed(codec, max_timestamp=NOW + 20 + by)
    slow = CarrierCase(carrier).found_by_verify(data, TRUE)
    assert (slow.ok, slow.max_timestamp) == (True, NOW + 20)
    assert CarrierCase(carrier).believed(data, TRUE) == believed


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize(
    ("keys", "true", "lies"),
    [
        ([None] * 3, 1, (0, 2, 3, -1)),
        ([b"k"] * 3, 2, (1, 3, -1)),
        ([b"k", None, b""], 0, (1, 2, 3, -1)),
    ],
    ids=["no keys", "keys", "some keys"],
)
def test_a_key_byte_that_is_not_true(
    carrier: str, codec: int, keys: list[bytes | None], true: int, lies: tuple[int, ...]
) -> None:
    data = batch([record(i, key=k) for i, k in enumerate(keys)], codec=codec)
    assert three(compute(data)) == (NOW, 3, true)
    for lie in lies:
        assert CarrierCase(carrier).found_by_verify(data, (NOW, 3, lie)).ok
        assert CarrierCase(carrier).believed(data, (NOW, 3, lie)) == (lie in (0, 1, 2))
    assert CarrierCase(carrier).judge(data, (NOW, 3, true), "verify").claims == "honest"


def test_saying_less_than_one_could_is_not_a_lie_where_it_can_mislead_nobody(carrier: str) -> None:
    """0: not every key is null, and nothing more is known."""
    assert (
        CarrierCase(carrier).judge(keyed(), TRUE._replace(null_keys=0), "verify").claims == "honest"
    )


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("where", [0, 1, 2])
def test_a_hidden_null_key_on_a_compacted_topic(carrier: str, codec: int, where: int) -> None:
    """The cleaner would drop the record in silence: why compacted topics are to be verified, or
    trusted with care.
    """
    data = batch([record(i, key=None if i == where else b"k") for i in range(3)], codec=codec)
    case = CarrierCase(carrier, cleanup_policy="compact")
    slow = case.found_by_verify(data, (NOW, 3, 2))
    assert (str(slow.rule), [i for i, _ in slow.record_errors]) == ("35 key-missing", [where])
    assert case.believed(data, (NOW, 3, 2))


# ---- structure -----------------------------------------------------------------------------------

BROKEN = {
    "a length too long": [raw(Body(), varint(9)), *KEYED[1:]],
    "a length too short": [raw(Body(), varint(5)), *KEYED[1:]],
    "a key length below -1": [raw(Body(key=varint(-2))), *KEYED[1:]],
    "a value length below -1": [raw(Body(value=varint(-5))), *KEYED[1:]],
    "a key past the end": [*KEYED[:2], raw(Body(offset_delta=varint(2), key=varint(1000)))],
    "a value past the end": [
        *KEYED[:2],
        raw(Body(offset_delta=varint(2), value=varint(10**6) + b"v")),
    ],
    "negative headers": [raw(Body(headers=varint(-1))), *KEYED[1:]],
    "a header key that is null": [
        raw(Body(headers=varint(1) + varint(-1) + blob(b""))),
        *KEYED[1:],
    ],
    "a header key that is not UTF-8": [
        record(0, key=b"k", headers=[(b"\xc0\x80", b"")]),
        *KEYED[1:],
    ],
    "record attributes": [record(0, key=b"k", attributes=4), *KEYED[1:]],
    "a varint that does not end": [b"\xff" * 11, *KEYED[1:]],
    "the last one cut off": [*KEYED[:2], KEYED[2][:-1]],
    "a byte after it": [*KEYED[:2], KEYED[2] + b"\0"],
    "a record after it": [*KEYED[:2], KEYED[2] + record(3)],
    "nothing": [b"", b"", b""],
}


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("how", BROKEN)
def test_records_that_are_broken_under_true_facts(carrier: str, codec: int, how: str) -> None:
    data = keyed(codec, parts=BROKEN[how])
    slow = CarrierCase(carrier).found_by_verify(data, TRUE)
    assert (slow.ok, int(slow.error_code)) == (False, 87)
    assert CarrierCase(carrier).believed(data, TRUE)


DELTAS = {
    "from 1": (1, 2, 3),
    "backwards": (2, 1, 0),
    "one twice": (0, 0, 2),
    "a gap": (0, 1, 5),
    "negative": (0, -1, 2),
    "all 0": (0, 0, 0),
}


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("how", DELTAS)
def test_deltas_that_are_wrong_under_a_true_count(carrier: str, codec: int, how: str) -> None:
    """Two batches' offsets would overlap, or a consumer wait for one that never comes."""
    deltas = DELTAS[how]
    data = keyed(
        codec,
        parts=[
            record(d, key=b"k", timestamp_delta=t) for d, t in zip(deltas, (10, 0, 20), strict=True)
        ],
    )
    slow = CarrierCase(carrier).found_by_verify(data, TRUE)
    assert (slow.rule.id, int(slow.error_code)) == ("S3", 87)
    assert CarrierCase(carrier).believed(data, TRUE)


STREAMS = {
    "no stream": lambda good: b"not compressed at all",
    "nothing": lambda good: b"",
    "cut off": lambda good: good[: len(good) // 2],
    "its first byte": lambda good: b"\x55" + good[1:],
}


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("how", STREAMS)
def test_a_damaged_stream_under_true_facts(carrier: str, codec: int, how: str) -> None:
    good = compress(codec, b"".join(KEYED))
    data = keyed(codec, payload=STREAMS[how](good))
    assert not CarrierCase(carrier).found_by_verify(data, TRUE).ok
    assert CarrierCase(carrier).believed(data, TRUE)


def test_the_wrong_codecs_name(carrier: str) -> None:
    data = keyed(LZ4, payload=compress(ZSTD, b"".join(KEYED)))
    assert not CarrierCase(carrier).found_by_verify(data, TRUE).ok
    assert CarrierCase(carrier).believed(data, TRUE)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_timestamp_below_minus_1(carrier: str, codec: int) -> None:
    """S10's own code stands, in a header too: a lie does not hide what is wrong with the batch."""
    data = batch([record(0, timestamp_delta=-NOW - 5), record(1)], codec=codec)
    slow = CarrierCase(carrier).found_by_verify(data, (NOW, 2, 1))
    assert (slow.rule.id, slow.error_code.name) == ("S10", "INVALID_TIMESTAMP")
    assert CarrierCase(carrier).believed(data, (NOW, 2, 1))
    assert not CarrierCase(carrier).believed(data, (-5, 2, 1))


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_under_true_facts(carrier: str, codec: int) -> None:
    """S8 stands, also in a header: the client learns what is wrong with the batch."""
    bomb = batch([record(0, value=bytes(300_000))], codec=codec)
    topic = CarrierCase(carrier)
    topic.validator = LogValidator(topic.validator.policy, max_decompressed_bytes=100_000)
    assert topic.found_by_verify(bomb, (NOW, 1, 1)).rule.id == "S8"
    states_its_size = codec == SNAPPY and topic.judge(bomb, (NOW, 1, 1), "trust").claims == "lying"
    # true sizes of version 2 settle nothing here
    assert topic.believed(bomb, (NOW, 1, 1)) == (
        not states_its_size and carrier in ("tag", "header")
    )
    topic.validator = LogValidator(topic.validator.policy, max_decompressed_bytes=400_000)
    assert topic.judge(bomb, (NOW, 1, 1), "verify").claims == "honest"


def test_a_frame_that_states_too_much_is_read_and_is_a_lie(carrier: str) -> None:
    """The stated size makes trust read the records: nothing was sampled, and it is a lie all the
    same.
    """
    payload = zstandard.ZstdCompressor(write_content_size=True).compress(
        record(0, value=bytes(300_000))
    )
    bomb = batch([], codec=ZSTD, payload=payload, records_count=1)
    topic = CarrierCase(carrier)
    topic.validator = LogValidator(topic.validator.policy, max_decompressed_bytes=100_000)
    result = topic.judge(bomb, (NOW, 1, 1), "trust")
    assert (result.rule.id, result.claims) == ("S8", "lying")


# ---- other people's claims -----------------------------------------------------------------------


@pytest.mark.parametrize("codec", COMPRESSED)
def test_claims_copied_from_another_batch(carrier: str, codec: int) -> None:
    other = batch(records(5, key=b"k"), codec=codec, base_timestamp=NOW - 5000)
    claimed = compute(other)
    assert claimed is not None
    mine = keyed(codec)
    assert not CarrierCase(carrier).believed(mine, claimed)
    if carrier == "header":  # nothing binds them there but the batch's own checksum, made anew
        CarrierCase(carrier).found_by_verify(mine, claimed)
    copied = tag(claimed[:3], other)
    result = LogValidator().check(mine, now_ms=NOW, claims=(copied, "trust"))
    assert (result.ok, result.path, result.claims) == (True, "shallow", "unbound")


def test_a_replay_is_answered_as_the_first_time(carrier: str) -> None:
    """The core remembers nobody: sampling is the ledger's."""
    case, lie = CarrierCase(carrier), TRUE._replace(batch_min_timestamp=NOW + 5)
    for _ in range(5):
        assert case.believed(keyed(), TRUE)
        assert case.believed(keyed(), lie)
        case.found_by_verify(keyed(), lie)


@pytest.mark.parametrize("codec", [0, *COMPRESSED])
@pytest.mark.parametrize(
    "fields", [{"attributes": 0x20}, {"attributes": 0x30, "producer_id": 9, "base_sequence": 0}]
)
def test_claims_on_a_control_batch(carrier: str, codec: int, fields: dict[str, int]) -> None:
    """Not a client's to send; nothing was read, so nobody lied."""
    data = keyed(codec, **fields)
    for word in ("trust", "verify"):
        result = CarrierCase(carrier).judge(data, TRUE, word)
        slow = CarrierCase(carrier).validator.check(data, now_ms=NOW)
        assert (str(result.rule), result.claims) == ("25 control-batch-by-client", "unjudged")
        assert {n: getattr(result, n) for n in ANSWER} == {n: getattr(slow, n) for n in ANSWER}


@pytest.mark.parametrize("codec", COMPRESSED)
def test_claims_on_a_transactional_batch(carrier: str, codec: int) -> None:
    data = keyed(codec, attributes=0x10, producer_id=9, producer_epoch=1, base_sequence=4)
    assert CarrierCase(carrier).believed(data, TRUE)
    assert CarrierCase(carrier).judge(data, TRUE, "verify").claims == "honest"
    CarrierCase(carrier).found_by_verify(data, TRUE._replace(null_keys=1))


@pytest.mark.parametrize("codec", [0, *COMPRESSED])
def test_claims_on_a_log_append_time_batch(carrier: str, codec: int) -> None:
    data = keyed(codec, attributes=8)
    assert not CarrierCase(carrier).believed(data, (NOW + 20, 3, 2))
    assert not CarrierCase(carrier).believed(data, TRUE)
    assert CarrierCase(carrier).found_by_verify(data, TRUE).ok
    own_time = CarrierCase(carrier, message_timestamp_type="LogAppendTime")
    assert str(own_time.found_by_verify(data, TRUE).rule) == "37 timestamp-type-by-producer"
    assert own_time.judge(data, (NOW + 20, 3, 2), "verify").claims == "honest"


@pytest.mark.parametrize("codec", [0, *COMPRESSED])
def test_claims_on_a_batch_with_records_without_timestamp(carrier: str, codec: int) -> None:
    data = batch([record(0, timestamp_delta=-NOW - 1), record(1)], codec=codec)
    assert not CarrierCase(carrier).believed(data, (-1, 2, 1))
    assert CarrierCase(carrier).judge(data, (-1, 2, 1), "verify").claims == "honest"
    assert CarrierCase(carrier).found_by_verify(data, (NOW, 2, 1)).ok


def test_a_lie_with_another_refusal_is_noted_and_changes_nothing(carrier: str) -> None:
    case = CarrierCase(carrier, message_timestamp_before_max_ms=5)
    slow = case.found_by_verify(keyed(), TRUE._replace(null_keys=1), now_ms=NOW + 100)
    assert [i for i, _ in slow.record_errors] == [0, 1, 2]


@pytest.mark.parametrize("extra", ["S1", "S3", "S4", "S5"])
def test_extras_that_are_only_reported(carrier: str, extra: str) -> None:
    """Claims also say that strict's walk passes, whatever the extras do; S1 is the
    header's matter.
    """
    data = {
        "S1": keyed(attributes=0x100),
        "S3": keyed(
            parts=[record(d, key=b"k", timestamp_delta=t) for d, t in ((0, 10), (1, 0), (1, 20))]
        ),
        "S4": keyed(parts=[raw(Body(key=blob(b"k")), varint(9)), *KEYED[1:]]),
        "S5": keyed(parts=[record(0, key=b"k", timestamp_delta=10, attributes=1), *KEYED[1:]]),
    }[extra]
    validator = LogValidator(extras={extra: "report"})
    result = validator.check(data, now_ms=NOW, claims=(tag(TRUE, data), "verify"))
    assert result.claims == ("honest" if extra == "S1" else "lying")
    assert [r.id for r in result.reports] == ([] if not result.ok else [extra])


def test_the_thirteen_bytes_are_under_the_checksum() -> None:
    data = carrying(keyed(), TRUE)
    case = CarrierCase("header")
    for at in range(61, 74):
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        for word in ("ignore", "verify", "trust"):
            result = case.validator.check(changed, now_ms=NOW, claims=(None, word))
            assert (str(result.rule), result.error_code.name) == (
                "14 crc-mismatch",
                "CORRUPT_MESSAGE",
            )
    assert struct.unpack(">qib", data[61:74]) == TRUE


def test_a_last_offset_delta_that_nobody_asks_a_coordinator_about(carrier: str) -> None:
    """The cleaner leaves such batches; claims say that they are whole."""
    data = keyed(last_offset_delta=7)
    case = CarrierCase(carrier)
    arguments = {"now_ms": NOW, "origin": "COORDINATOR", "first_offset": 100}
    assert case.validator.check(data, **arguments).ok
    assert case.validator.check(data, **arguments).batch_claims is None
    sent = carry(carrier, TRUE, data)
    for word in ("trust", "verify"):
        assert case.validator.check(sent[0], claims=(sent[1], word), **arguments).claims == "lying"
    resting = LogValidator(TopicPolicy(accept_claims_header=True), profile="log")
    assert resting.check(carrying(data, TRUE)).rule.id == "L7"
    assert resting.check(data).ok

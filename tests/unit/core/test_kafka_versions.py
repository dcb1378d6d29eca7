"""LogValidator(kafka_version=...): the table of batchval.kafka_versions, one test for each column
that judges.
"""

from __future__ import annotations

import copy
import itertools
import pickle
import random
import struct
import warnings
import zlib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from batchval.cli.cases import NotACase, policy_of, read_cases
from batchval.core.batches.validator import LogValidator
from batchval.errors import BatchvalError, ErrorCode
from batchval.kafka_versions import (
    ADVERTISED,
    DEFAULT_KAFKA_VERSION,
    KAFKA_VERSIONS,
    REFUSES_LESS,
    RELEASES,
    KafkaVersion,
    NewerKafkaWarning,
    Release,
    changes_of,
    find_release,
    least_refusing,
    releases_from,
    releases_of,
)
from batchval.policy import TopicPolicy
from tests.support.batches import (
    CODECS,
    NOW,
    Body,
    batch,
    compress,
    message,
    raw,
    record,
    records,
    varint,
)

FIXTURES = Path(__file__).parents[3] / "fixtures"
VERSIONS = list(KAFKA_VERSIONS)
OLDER = [name for name, row in KAFKA_VERSIONS.items() if not row.checks_record_length]
SUMMING = [name for name, row in KAFKA_VERSIONS.items() if row.sums_record_fields]
#: every release of Kafka from 2.8.0 on that Maven Central had on 30 November 2026
PUBLISHED = (
    *("2.8.0", "2.8.1", "2.8.2", "3.0.0", "3.0.1", "3.0.2", "3.1.0", "3.1.1", "3.1.2"),
    *("3.2.0", "3.2.1", "3.2.2", "3.2.3", "3.3.0", "3.3.1", "3.3.2", "3.4.0", "3.4.1"),
    *("3.5.0", "3.5.1", "3.5.2"),
    *("3.6.0", "3.6.1", "3.6.2", "3.7.0", "3.7.1", "3.7.2", "3.8.0", "3.8.1"),
    *("3.9.0", "3.9.1", "3.9.2", "4.0.0", "4.0.1", "4.0.2", "4.1.0", "4.1.1", "4.1.2"),
    *("4.2.0", "4.2.1", "4.2.2", "4.3.0", "4.3.1", "4.4.0"),
)
MAX_ARRAY_LENGTH = 2**31 - 3
GOOD = Body()


def kafka(version: str, policy: TopicPolicy | None = None) -> LogValidator:
    return LogValidator(policy, mode="kafka", kafka_version=version)


def code(validator: LogValidator, data: bytes, **arguments: Any) -> int:
    return int(validator.check(data, now_ms=NOW, **arguments).error_code)


# ---- the name ------------------------------------------------------------------------------------


def test_every_release_has_one_row() -> None:
    """Compare the ranges with the list of releases: no gap, no overlap, nothing unpublished."""
    known = [one for one in RELEASES if one.is_published]
    rows = {release: find_release(release) for release in PUBLISHED}
    assert all(found.name == release for release, found in rows.items())
    assert not any(found.is_newer for found in rows.values())
    for one in RELEASES:
        assert one.row in KAFKA_VERSIONS
        assert (one.first in PUBLISHED) == (one.last in PUBLISHED) == one.is_published
    inside = [
        release
        for release in PUBLISHED
        for one in known
        if numbers(one.first) <= numbers(release) <= numbers(one.last)
    ]
    assert inside == list(PUBLISHED)
    assert {found.row.name for found in rows.values()} == set(VERSIONS)


def numbers(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


def test_the_default_is_the_newest() -> None:
    assert LogValidator().kafka_version == DEFAULT_KAFKA_VERSION == PUBLISHED[-1]
    assert find_release(DEFAULT_KAFKA_VERSION).row.name == VERSIONS[-1]


@pytest.mark.parametrize(
    ("asked", "name", "row"),
    [
        ("2.8", "2.8.2", "2.8.2"),
        ("3.0.0", "3.0.0", "2.8.0"),
        ("3.0.1", "3.0.1", "3.0.1"),
        ("3.2.1", "3.2.1", "3.1.0"),
        ("3.2.2", "3.2.2", "3.1.2"),
        ("3.5", "3.5.2", "3.1.2"),
        ("3.6", "3.6.2", "3.6.0"),
        ("3.9", "3.9.2", "3.9.1"),
        ("3.9.0", "3.9.0", "3.8.0"),
        ("4.0", "4.0.2", "4.0.1"),
        ("4.2", "4.2.2", "4.2.2"),
        ("4.2.1", "4.2.1", "4.2.0"),
        ("4.3", "4.3.1", "4.2.0"),
        ("4.3.2", "4.3.2", "4.2.2"),
        (" 4.4 ", "4.4.0", "4.2.2"),
    ],
)
def test_a_minor_is_its_newest_patch(asked: str, name: str, row: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        validator = LogValidator(kafka_version=asked)
    assert validator.kafka_version == name
    assert find_release(asked).row.name == row
    assert f"kafka_version='{name}'" in repr(validator)
    other = validator.with_policy(TopicPolicy(max_message_bytes=1))
    assert (other.kafka_version, other.policy.max_message_bytes) == (name, 1)
    assert pickle.loads(pickle.dumps(validator)) == validator


@pytest.mark.parametrize(
    ("asked", "name", "like"),
    [
        ("4.4.1", "4.4.1", "4.4.0"),
        ("4.5", "4.5.0", "4.4.0"),
        ("5.0.3", "5.0.3", "4.4.0"),
        ("4.2.9", "4.2.9", "4.2.2"),
        ("3.9.7", "3.9.7", "3.9.2"),
    ],
)
def test_a_newer_release_takes_the_newest_row_with_a_warning(
    asked: str, name: str, like: str
) -> None:
    text = f"Kafka {name} is newer than this batchval, which answers as Kafka {like} does"
    with pytest.warns(NewerKafkaWarning, match=text) as seen:
        validator = LogValidator(kafka_version=asked)
    assert validator.kafka_version == name
    assert [warning.filename for warning in seen] == [__file__]
    assert find_release(asked).row == find_release(like).row
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = validator.with_policy(TopicPolicy())
        assert copy.deepcopy(again) == pickle.loads(pickle.dumps(again)) == again
        assert LogValidator(kafka_version=find_release(asked)).kafka_version == name


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("2.7", "2.8.0"), ("2.9", "2.8.2"), ("3.10", "3.9.2"), ("0.11", "2.8.0")],
)
def test_an_unknown_release_names_the_nearest(name: str, nearest: str) -> None:
    for ask in (find_release, lambda name: LogValidator(kafka_version=name)):
        with pytest.raises(BatchvalError) as refused:
            ask(name)
        assert str(refused.value) == f"{EXPECTED}, not '{name}' (nearest: {nearest})"


EXPECTED = "kafka_version must be a release from 2.8.0 to 4.4.0, for example 4.4.0"


@pytest.mark.parametrize("name", ["", "latest", "4.x", " ", "4", "4.4.0.1", "4.4-rc1", "v4.4"])
def test_a_word_has_no_nearest(name: str) -> None:
    with pytest.raises(BatchvalError) as refused:
        LogValidator(kafka_version=name)
    assert str(refused.value) == f"{EXPECTED}, not {name!r}"


@pytest.mark.parametrize("name", [3.9, 4, None, b"3.9", ("3.9",)])
def test_a_version_is_a_string(name: Any) -> None:
    with pytest.raises(BatchvalError) as refused:
        LogValidator(kafka_version=name)
    assert (
        str(refused.value) == f"kafka_version must be a string, for example '4.4.0', not {name!r}"
    )


def test_people_see_ranges_and_changes() -> None:
    assert releases_of("4.2.0") == ["4.2.0 to 4.2.1", "4.3.0 to 4.3.1"]
    assert releases_of("4.0.0") == ["4.0.0"]
    assert changes_of("3.9.1") == {"drops_newer_epochs": True}
    assert changes_of(VERSIONS[0]) == {}


# ---- the length that a record states -------------------------------------------------------------

LENGTHS = {-1: 87, -(2**31): 87, 2**31 - 1: -1, MAX_ARRAY_LENGTH + 1: -1, MAX_ARRAY_LENGTH: 87}


def stated(length: int, codec: int) -> bytes:
    return batch([raw(GOOD, varint(length)), record(1)], codec=codec)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_lengths_of_a_batch_in_place(version: str, codec: str) -> None:
    """The parser that skips keys and values reads the length; 3.6 to 4.2.1 do not look at it."""
    ignored = version in OLDER and version not in SUMMING
    for length in LENGTHS:
        data = stated(length, CODECS[codec])
        assert code(kafka(version), data) == (0 if ignored else 87)
        validator = LogValidator(kafka_version=version)
        strict = validator.check(data, now_ms=NOW)
        assert strict.error_code is ErrorCode.INVALID_RECORD
        assert strict.rule is not None
        assert strict.rule.id == ("S4" if ignored else "29")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_lengths_of_a_batch_to_be_rebuilt(version: str, codec: str) -> None:
    """ByteBuffer.allocate: IllegalArgumentException below 0, OutOfMemoryError above the longest
    array.
    """
    policy = TopicPolicy(compression_type="uncompressed")
    for length, of_newer in LENGTHS.items():
        data = stated(length, CODECS[codec])
        # up to 3.5 nothing catches the IllegalArgumentException
        answer = -1 if version in SUMMING and length < 0 else of_newer
        assert code(kafka(version, policy), data) == (answer if version in OLDER else 87), length
        validator = LogValidator(policy, kafka_version=version)
        result = validator.check(data, now_ms=NOW)
        assert result.error_code is ErrorCode.INVALID_RECORD
        assert result.rule is not None
        assert result.rule.id == ("S9" if answer == -1 and version in OLDER else "29")


def test_no_topic_limits_a_record_before_the_check() -> None:
    policy = TopicPolicy(max_decompressed_message_bytes=10)
    data = batch([record(0, value=b"x" * 100)], codec=CODECS["gzip"])
    answers = {version: code(kafka(version, policy), data) for version in VERSIONS}
    assert answers == {name: 0 if name in OLDER else 87 for name in VERSIONS}


def test_the_reason_of_a_length_that_no_array_has() -> None:
    policy = TopicPolicy(compression_type="uncompressed")
    result = kafka("3.9", policy).check(stated(2**31 - 1, CODECS["gzip"]), now_ms=NOW)
    assert (
        result.reason
        == "record 0: length 2147483647 is above 2147483645, the longest array of a JVM"
    )


# ---- up to 3.5: record fields are summed ---------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("wrong_by", [-1, 1])
def test_fields_fill_the_length_of_a_record(version: str, codec: str, wrong_by: int) -> None:
    """A good record states a byte too few or too many, another one follows."""
    data = stated(len(b"".join(GOOD)) + wrong_by, CODECS[codec])
    assert code(kafka(version), data) == (87 if version in SUMMING else 0)
    policy = TopicPolicy(compression_type="uncompressed")
    assert code(kafka(version, policy), data) == 87


@pytest.mark.parametrize("version", VERSIONS)
def test_a_damaged_stream_is_met_a_piece_of_2048_bytes_early(version: str) -> None:
    """A key's length is no varint, and the stream is damaged later in the same record."""
    broken = raw(Body(key=b"\xff" * 6, value=b"x" * 6000))
    for whole, answer in ((2000, -1), (2100, 87)):
        data = batch([broken], codec=CODECS["lz4"], payload=lz4_damaged_after(broken, whole))
        assert code(kafka(version), data) == (answer if version in SUMMING else 87)


def lz4_damaged_after(plain: bytes, size: int) -> bytes:
    header = compress(CODECS["lz4"], b"")[:7]
    stored = struct.pack("<I", size | 1 << 31) + plain[:size]
    return header + stored + struct.pack("<I", 5) + b"\xff" * 5


@pytest.mark.parametrize("version", VERSIONS)
def test_a_gzip_stream_that_is_cut_off(version: str) -> None:
    """Up to 3.5 an EOFException within a record is a malformed record; one after it is not."""
    noise = random.Random(1).randbytes(3000)
    good = [record(0, value=noise), record(1, value=noise)]
    whole = compress(CODECS["gzip"], b"".join(good))
    for cut, answer in ((200, 87), (4, -1)):
        data = batch(good, codec=CODECS["gzip"], payload=whole[:-cut])
        assert code(kafka(version), data) == (answer if version in SUMMING else -1)


def test_a_varint_of_a_length_that_does_not_end() -> None:
    data = batch([raw(Body(), b"\xff" * 5)], codec=CODECS["lz4"])
    answers = {version: code(kafka(version), data) for version in VERSIONS}
    assert answers == {name: -1 if name in SUMMING else 87 for name in VERSIONS}


def test_an_uncompressed_record_that_is_cut_off() -> None:
    """2.8 has no record there: -1, or 87 where bytes are left after the last one."""
    first, cut = record(0), record(1, value=b"v" * 9)[:-3]
    last = batch([first, cut])
    inner = batch([first, cut, record(2)], payload=first + cut)
    nothing = batch([first, cut], payload=first + cut[:1])
    for data, answer in ((last, 87), (inner, -1), (nothing, -1)):
        answers = {version: code(kafka(version), data) for version in VERSIONS}
        assert answers == {name: answer if name.startswith("2.8") else 87 for name in VERSIONS}


def test_the_delete_horizon_stays_where_a_header_is_written() -> None:
    policy = TopicPolicy(message_timestamp_type="LogAppendTime")
    data = batch(records(2), attributes=0x40)
    kept = {}
    for version in VERSIONS:
        result = kafka(version, policy).validate(data, now_ms=NOW)
        assert result.output is not None
        kept[version] = bytes(result.output)[22]
    before = ("2.8.0", "2.8.2", "3.0.1", "3.0.2")
    assert kept == {name: 0x08 if name in before else 0x48 for name in VERSIONS}


def test_a_count_of_headers_that_no_array_has() -> None:
    """CVE-2022-34917; the parser that skips them makes no array."""
    body = Body(headers=varint(2**31 - 1))
    plain, packed = batch([raw(body)]), batch([raw(body)], codec=CODECS["zstd"])
    rebuilt = TopicPolicy(compression_type="uncompressed")
    for version in VERSIONS:
        expected = 87 if KAFKA_VERSIONS[version].bounds_header_counts else -1
        assert code(kafka(version), plain) == expected
        assert code(kafka(version, rebuilt), packed) == expected
        assert code(kafka(version), packed) == 87
    reason = kafka("2.8.1").check(plain, now_ms=NOW).reason
    assert reason == (
        "record 0: the number of headers, 2147483647, is above 2147483645, the longest array of a JVM"
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_the_next_member_of_a_gzip_stream(version: str) -> None:
    """The first member ends with a piece of 8192 bytes: up to 3.5 that is the stream's end."""
    first = record(0, value=random.Random(1).randbytes(8160))
    head = gzip_stored(first)
    assert 10 + 8192 - 26 <= len(head) - 8 <= 10 + 8192  # the header is not of the piece
    data = batch([first, record(1)], codec=CODECS["gzip"], payload=head + gzip_stored(record(1)))
    assert code(kafka(version), data) == (87 if version in SUMMING else 0)


def gzip_stored(plain: bytes) -> bytes:
    packed = zlib.compressobj(0, zlib.DEFLATED, 31)
    return packed.compress(plain) + packed.flush()


def test_append_time_of_a_producer() -> None:
    data = batch(records(1), attributes=0x08)
    for version in VERSIONS:
        expected = 32 if KAFKA_VERSIONS[version].refuses_append_time else 0
        assert code(kafka(version), data) == expected
        topic = TopicPolicy(message_timestamp_type="LogAppendTime")
        assert code(kafka(version, topic), data) == 32


# ---- Produce v0 to v2 ----------------------------------------------------------------------------

TWO_MESSAGES = message(offset=0, key=b"k") + message(offset=1, key=b"k", value=b"w")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("produce_version", [0, 1, 2, 3, 9])
@pytest.mark.parametrize("mode", ["strict", "kafka"])
def test_old_requests_hold_messages_before_4_0(
    version: str, produce_version: int, mode: Any
) -> None:
    validator = LogValidator(mode=mode, kafka_version=version)
    admitted = produce_version < KAFKA_VERSIONS[version].first_checked_produce_version
    result = validator.validate(
        TWO_MESSAGES, now_ms=NOW, first_offset=5, produce_version=produce_version
    )
    assert result.ok == admitted
    assert validator.check_request(TWO_MESSAGES, produce_version=produce_version).ok == admitted
    assert validator.check_request(b"", produce_version=produce_version).ok == admitted
    if not admitted:
        assert result.rule is not None
        assert result.rule.id == "6"
        return
    assert (result.records_count, result.next_offset, result.converted) == (2, 7, 2)
    (row,) = validator.check_ranges(
        TWO_MESSAGES, [(0, len(TWO_MESSAGES))], now_ms=NOW, produce_version=produce_version
    )["error_code"].tolist()
    assert row == 0


def test_extras_of_old_requests() -> None:
    """S2 is about bytes that no message is made of; S1 about a header of magic 2."""
    strict = LogValidator(kafka_version="3.9")
    cut = TWO_MESSAGES[:-1]
    for data in (cut, TWO_MESSAGES + b"x", b"x" * 11):
        result = strict.check(data, now_ms=NOW, produce_version=2)
        assert result.rule is not None
        assert result.rule.id == "S2"
        assert code(kafka("3.9"), data, produce_version=2) == 0
    assert strict.check(b"", now_ms=NOW, produce_version=2).ok
    bits = batch(records(1), attributes=1 << 8)
    result = strict.check(bits, now_ms=NOW, produce_version=2)
    assert result.rule is not None
    assert result.rule.id == "S1"


def test_two_batches_of_magic_2_are_refused_later() -> None:
    two = batch(records(1)) * 2
    (old, new) = (kafka("3.9").check(two, now_ms=NOW, produce_version=v) for v in (2, 3))
    assert (old.rule and old.rule.id, new.rule and new.rule.id) == ("19", "8")
    assert old.error_code == new.error_code == ErrorCode.INVALID_RECORD


# ---- defaults ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_records_of_tomorrow(version: str) -> None:
    """KIP-1030: message.timestamp.after.max.ms is an hour from 4.0 on."""
    tomorrow = batch(records(1), base_timestamp=NOW + 86_400_000, max_timestamp=NOW + 86_400_000)
    expected = 32 if numbers(version) >= (4, 0, 0) else 0
    assert code(LogValidator(kafka_version=version), tomorrow) == expected
    policy = TopicPolicy.from_kafka_config({"max.message.bytes": "1000"}, kafka_version=version)
    assert code(kafka(version, policy), tomorrow) == expected
    hour = TopicPolicy.from_kafka_config(
        {"message.timestamp.after.max.ms": "3600000"}, kafka_version=version
    )
    assert code(kafka(version, hour), tomorrow) == 32


def test_a_policy_has_the_default_of_4_4() -> None:
    assert (
        TopicPolicy.from_kafka_config({}, kafka_version="4.4")
        == TopicPolicy.from_kafka_config({})
        == TopicPolicy()
    )
    with pytest.raises(BatchvalError, match="kafka_version must be a release from"):
        TopicPolicy.from_kafka_config({}, kafka_version="2.7")


# ---- brokers of several releases -----------------------------------------------------------------

ROWS = [Release(row.name, row) for row in KAFKA_VERSIONS.values()]
PAIRS = list(itertools.product(ROWS, repeat=2))


def test_each_column_says_which_value_refuses_less() -> None:
    columns = [one.name for one in fields(KafkaVersion) if one.name != "name"]
    assert list(REFUSES_LESS) == columns


def test_what_two_rows_take_is_what_refuses_least_of_each_column() -> None:
    for one, other in PAIRS:
        least = least_refusing([one, other])
        reversed_least = least_refusing([other, one])
        for column, choose in REFUSES_LESS.items():
            found = getattr(least.row, column)
            pair = [getattr(one.row, column), getattr(other.row, column)]
            assert found == (choose(pair) if choose else found)
            assert found in pair
            assert choose is None or found == getattr(reversed_least.row, column)
        assert least_refusing([least, one]).row == least.row
    assert least_refusing([find_release("4.2.1"), find_release("4.4.0")]) == find_release("4.2.1")
    assert least_refusing([find_release("4.4.0"), find_release("4.2.1")]) == find_release("4.2.1")
    # followers alone differ: the first counts
    assert least_refusing([find_release("3.9.2"), find_release("3.9.0")]).name == "3.9.2"
    both = least_refusing([find_release("3.7.2"), find_release("4.0.2")])
    assert both.name == both.row.name == "3.7.2 or 4.0.2"
    assert pickle.loads(pickle.dumps(both)) == both
    assert kafka(both).kafka_version == "3.7.2 or 4.0.2"  # type: ignore[arg-type]


def accepts(release: Release, case: Any) -> bool:
    cfg = case["cfg"]
    validator = LogValidator(policy_of(cfg), mode="kafka", kafka_version=release)
    return validator.validate(
        case["batch"],
        now_ms=cfg["now"],
        first_offset=cfg["first_offset"],
        produce_version=cfg["produce_version"],
    ).ok


def test_a_batch_that_one_of_two_rows_takes_is_not_refused() -> None:
    """Ask all pairs of rows for the batches of clients on which rows differ."""
    corpora = [FIXTURES / "corpus" / f"kafka-{one}.jsonl.gz" for one in ("2.8.1", "3.9.2", "4.2.2")]
    seen: set[tuple[bytes, str]] = set()
    differing = 0
    for case in read_cases([FIXTURES / "golden", *corpora]):
        assert not isinstance(case, NotACase)
        key = case["batch"], repr(case["cfg"])
        if key in seen:
            continue
        seen.add(key)
        by_row = {one.name: accepts(one, case) for one in ROWS}
        if len(set(by_row.values())) == 1:
            continue
        differing += 1
        for one, other in itertools.combinations(ROWS, 2):
            if by_row[one.name] or by_row[other.name]:
                least = least_refusing([one, other])
                assert accepts(least, case), (case["id"], one.name, other.name)
    assert differing > 50


def test_what_brokers_advertise_is_in_order_and_has_every_minor_version() -> None:
    minors = {".".join(one.first.split(".")[:2]) for one in RELEASES}
    assert minors <= ADVERTISED.keys()
    assert list(ADVERTISED)[-1] == ".".join(RELEASES[-1].last.split(".")[:2])
    rows = list(ADVERTISED.values())
    levels = [one.metadata_version for one in rows if one.metadata_version is not None]
    assert levels == sorted(set(levels))
    assert [one.produce for one in rows] == sorted(one.produce for one in rows)


def test_releases_from_a_minor_version_on() -> None:
    assert [one.name for one in releases_from("4.3")] == ["4.3.1", "4.3.2", "4.4.0"]
    assert [one.name for one in releases_from("4.2", "4.2")] == ["4.2.1", "4.2.2"]
    assert releases_from("4.9") == releases_from("2.7", "2.7") == []
    assert len(releases_from()) == len(RELEASES)

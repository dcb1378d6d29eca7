"""Test RecordBatchBuilder: strict mode accepts its batches, and other clients build equal ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from batchval import (
    BatchvalError,
    CompressionType,
    LogValidator,
    RecordBatch,
    RecordBatchBuilder,
    TopicPolicy,
)
from batchval.core.claims import compute
from batchval.errors import ArgumentTypeError, ArgumentValueError
from tests.support.batches import NOW

STRICT = LogValidator(
    TopicPolicy(max_message_bytes=2**31 - 1, message_timestamp_after_max_ms=2**63 - 1)
)
Row = tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]
ROWS: list[Row] = [
    (b"key", b"value", NOW, []),
    (None, b"", NOW - 1000, [("a", b"1"), ("a", None), ("ü", b"")]),
    (b"", None, NOW + 2**40, []),
    (b"k" * 300, b"v" * 70_000, 0, [(f"h{n}", b"x" * n) for n in range(130)]),
    *((b"%d" % n, b"value %d" % n, NOW + n, []) for n in range(200)),
]
SENDER: dict[str, Any] = {"producer_id": 2**40, "producer_epoch": 7, "base_sequence": 2**31 - 2}


def built(rows: list[Row] = ROWS, **settings: Any) -> bytes:
    builder = RecordBatchBuilder(**settings)
    for key, value, timestamp, headers in rows:
        assert builder.append(key, value, timestamp, headers) is True
    assert len(builder) == len(rows)
    return builder.build()


def decoded(batch: bytes) -> list[Row]:
    return [
        (
            None if r.key is None else bytes(r.key),
            None if r.value is None else bytes(r.value),
            r.timestamp,
            [(name, None if content is None else bytes(content)) for name, content in r.headers],
        )
        for r in RecordBatch(batch).records()
    ]


@pytest.mark.parametrize("codec", CompressionType)
@pytest.mark.parametrize("by_name", [True, False])
def test_accepted_with_the_records_that_went_in(codec: CompressionType, by_name: bool) -> None:
    batch = built(compression=codec.kafka_name if by_name else codec)
    result = STRICT.validate(batch, now_ms=NOW)
    assert (result.ok, result.source, result.records_count) == (True, codec, len(ROWS))
    assert decoded(batch) == ROWS
    claims = compute(batch)
    assert claims is not None
    assert claims[:3] == (0, len(ROWS), 0)


@pytest.mark.parametrize("codec", CompressionType)
@pytest.mark.parametrize("transactional", [False, True])
def test_the_same_records_as_aiokafka_and_kafka_python(
    codec: CompressionType, transactional: bool
) -> None:
    ours = built(compression=codec, is_transactional=transactional, **SENDER)
    settings = {"magic": 2, "compression_type": int(codec), "batch_size": 1 << 20, **SENDER}
    peers = [
        kind(is_transactional=transactional, **settings)
        for kind in (AiokafkaBuilder, KafkaPythonBuilder)
    ]
    for peer in peers:
        for offset, (key, value, timestamp, headers) in enumerate(ROWS):
            taken = peer.append(offset, timestamp, key, value, list(headers))
            assert taken is not None
        theirs = bytes(peer.build())
        assert decoded(ours) == decoded(theirs) == ROWS
        assert header(ours) == header(theirs)
        if codec is CompressionType.NONE:
            assert ours[16:] == theirs[16:]  # after the leader epoch, which they set to 0


def header(batch: bytes) -> dict[str, Any]:
    names = (
        "magic",
        "base_offset",
        "last_offset",
        "records_count",
        "compression_type",
        "timestamp_type",
    )
    names += ("base_timestamp", "max_timestamp", "producer_id", "producer_epoch", "base_sequence")
    names += ("last_sequence", "is_transactional", "is_control_batch", "is_valid")
    found = RecordBatch(batch)
    return {name: getattr(found, name) for name in names}


def test_every_field_of_the_header() -> None:
    batch = built(
        ROWS[:3],
        base_offset=2**40,
        partition_leader_epoch=5,
        is_transactional=True,
        is_control_batch=True,
        log_append_time=NOW + 5,
        **SENDER,
    )
    found = RecordBatch(batch)
    assert header(batch) == {
        "magic": 2,
        "base_offset": 2**40,
        "last_offset": 2**40 + 2,
        "records_count": 3,
        "compression_type": CompressionType.NONE,
        "timestamp_type": 1,
        "base_timestamp": NOW,
        "max_timestamp": NOW + 5,
        "producer_id": 2**40,
        "producer_epoch": 7,
        "base_sequence": 2**31 - 2,
        "last_sequence": 0,
        "is_transactional": True,
        "is_control_batch": True,
        "is_valid": True,
    }
    assert found.partition_leader_epoch == 5
    assert {r.timestamp for r in found.records()} == {NOW + 5}


def test_a_log_holds_what_was_built() -> None:
    first = built(ROWS[4:9], base_offset=10, partition_leader_epoch=3, log_append_time=NOW)
    second = built(ROWS[4:6], base_offset=15, partition_leader_epoch=3, compression="zstd")
    assert LogValidator(profile="log").check(first + second).ok
    follower = LogValidator().validate(
        first, now_ms=NOW, origin="REPLICATION", first_offset=10, leader_epoch=3
    )
    assert (follower.ok, follower.next_offset, follower.output) == (True, 15, first)


def test_a_transaction_marker() -> None:
    """Key: version 0, type 1 (commit). Value: version 0, coordinator epoch 4."""
    sender = {"producer_id": 5, "producer_epoch": 1, "base_sequence": -1}
    marker = built(
        [(b"\0\0\0\1", b"\0\0\0\0\0\4", NOW, [])],
        is_transactional=True,
        is_control_batch=True,
        **sender,
    )
    assert str(STRICT.check(marker, now_ms=NOW).rule).startswith("25 ")
    assert STRICT.check(marker, now_ms=NOW, origin="COORDINATOR").ok


def test_a_full_batch_takes_no_more() -> None:
    builder = RecordBatchBuilder(limit=300)
    taken = 0
    while builder.append(b"key", b"v" * 20, NOW):
        taken += 1
    before = (len(builder), builder.size_in_bytes, builder.remaining_bytes)
    assert before == (taken, builder.size_in_bytes, 300 - builder.size_in_bytes)
    assert builder.remaining_bytes < RecordBatchBuilder.estimate_size(b"key", b"v" * 20)
    assert not builder.append(None, b"x" * 300, NOW)
    assert (len(builder), builder.size_in_bytes, builder.remaining_bytes) == before
    batch = builder.build()
    assert len(batch) == builder.size_in_bytes <= 300
    assert RecordBatch(batch).records_count == taken


def test_a_first_record_fits_whatever_its_size() -> None:
    builder = RecordBatchBuilder(limit=0)
    assert builder.append(None, b"x" * 5000, NOW)
    assert not builder.append(None, b"", NOW)
    assert builder.remaining_bytes == 0
    assert STRICT.check(builder.build(), now_ms=NOW).ok


@pytest.mark.parametrize("row", ROWS[:5], ids=range(5))
def test_the_estimate_is_an_upper_bound(row: Row) -> None:
    key, value, timestamp, headers = row
    builder = RecordBatchBuilder()
    empty = builder.size_in_bytes
    builder.append(key, value, timestamp, headers)
    used = builder.size_in_bytes - empty
    estimated = RecordBatchBuilder.estimate_size(key, value, headers)
    assert used <= estimated <= used + 36 + 10 * len(headers)


def test_buffers_may_change_after_append() -> None:
    key, value, content = (
        bytearray(b"key"),
        np.frombuffer(bytearray(b"value"), "u1"),
        bytearray(b"content"),
    )
    builder = RecordBatchBuilder()
    builder.append(key, memoryview(value), NOW, [("h", content)])
    key[:], value[:], content[:] = b"???", 63, b"???????"
    batch = builder.build()
    assert decoded(batch) == [(b"key", b"value", NOW, [("h", b"content")])]


def test_build_is_the_end() -> None:
    builder = RecordBatchBuilder(compression="lz4")
    assert repr(builder) == "<RecordBatchBuilder records=0 size=61 compression=lz4 limit=1048588>"
    builder.append(None, b"value", NOW)
    batch = builder.build()
    assert builder.build() is batch
    assert type(batch) is bytes
    with pytest.raises(BatchvalError, match="the batch is built"):
        builder.append(None, b"value", NOW)
    assert builder.remaining_bytes == 0
    assert (
        repr(builder) == f"<RecordBatchBuilder records=1 size={len(batch)} compression=lz4 built>"
    )


def test_a_header_that_builds_the_batch_meanwhile() -> None:
    builder = RecordBatchBuilder(compression="gzip")
    builder.append(None, b"first", NOW)

    class Pairs:
        def __iter__(self) -> Any:
            builder.build()
            return iter([("h", b"1")])

    with pytest.raises(BatchvalError, match="built while"):
        builder.append(None, b"second", NOW, Pairs())  # type: ignore[arg-type]
    assert decoded(builder.build()) == [(None, b"first", NOW, [])]


BUILDER: Any = RecordBatchBuilder  # Any: what a type checker would find is passed on purpose


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"compression": "brotli"},
            "compression must be one of none, gzip, snappy, lz4, zstd, not 'brotli'",
        ),
        ({"compression": 4}, "compression must be"),
        ({"compression": None}, "compression must be"),
        (
            {"compression": "gzip", "level": 10},
            "compression_gzip_level must be a whole number from 1 to 9",
        ),
        ({"compression": "zstd", "level": 1.5}, "compression_zstd_level must be"),
        ({"compression": "snappy", "level": 1}, "snappy has no levels"),
        ({"level": 1}, "none has no levels"),
        ({"limit": -1}, "limit must be a whole number from 0 to 2147483647, not -1"),
        ({"limit": True}, "limit must be"),
        ({"base_offset": -1}, "base_offset must be"),
        ({"base_offset": 2**63}, "base_offset must be"),
        ({"partition_leader_epoch": 2**31}, "partition_leader_epoch must be"),
        ({"producer_id": "5"}, "producer_id must be"),
        ({"producer_id": 5, "producer_epoch": 2**15}, "producer_epoch must be"),
        ({"producer_id": 5, "base_sequence": 0}, "Invalid negative producer epoch"),
        ({"producer_id": 5, "producer_epoch": 0}, "Invalid negative sequence number used"),
        (
            {"is_transactional": True},
            "Cannot write transactional messages without a valid producer ID",
        ),
        ({"log_append_time": -1}, "log_append_time must be"),
        ({"log_append_time": 1.7e9}, "log_append_time must be"),
    ],
    ids=str,
)
def test_settings_that_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BatchvalError, match=message) as caught:
        BUILDER(**settings)
    assert isinstance(caught.value, ArgumentTypeError | ArgumentValueError)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (("text", b"", NOW), "contiguous buffer of bytes"),
        ((b"", "text", NOW), "contiguous buffer of bytes"),
        ((b"", 5, NOW), "contiguous buffer of bytes"),
        ((np.array([None, 5], object), b"", NOW), "contiguous buffer of bytes"),
        ((b"", np.zeros(3), NOW), "contiguous buffer of bytes"),
        ((b"", b"", None), "timestamp must be"),
        ((b"", b"", 1.5), "timestamp must be"),
        ((b"", b"", -2), "timestamp must be"),
        ((b"", b"", 2**63), "timestamp must be"),
        ((b"", b"", NOW, 5), "headers must be pairs"),
        ((b"", b"", NOW, [5]), "headers must be pairs"),
        ((b"", b"", NOW, [("a",)]), "headers must be pairs"),
        ((b"", b"", NOW, [(b"a", b"")]), "headers must be pairs"),
        ((b"", b"", NOW, [("\ud800", b"")]), "headers must be pairs"),
        ((b"", b"", NOW, [("a", "text")]), "contiguous buffer of bytes"),
        ((b"", b"", NOW, [("a", 5)]), "contiguous buffer of bytes"),
        ((b"", b"", NOW, [("a", [1, 2])]), "contiguous buffer of bytes"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_records_that_are_refused(record: tuple[Any, ...], message: str) -> None:
    builder: Any = RecordBatchBuilder()
    builder.append(b"k", b"v", NOW)
    size = builder.size_in_bytes
    with pytest.raises(BatchvalError, match=message) as caught:
        builder.append(*record)
    assert isinstance(caught.value, ArgumentTypeError | ArgumentValueError)
    assert (len(builder), builder.size_in_bytes) == (1, size)
    assert decoded(builder.build()) == [(b"k", b"v", NOW, [])]


def test_nothing_to_build_or_to_estimate() -> None:
    with pytest.raises(BatchvalError, match="append one before build"):
        RecordBatchBuilder().build()
    with pytest.raises(ArgumentTypeError, match="contiguous"):
        RecordBatchBuilder.estimate_size("text", None)

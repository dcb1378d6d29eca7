"""down_convert: the rules one by one, then random answers against rules in plain Python."""

from __future__ import annotations

import random
import struct
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from batchval.compression.compressors import compress
from batchval.core.batches.batch import batches
from batchval.core.convert.aborted import AbortedTransactions
from batchval.core.convert.down_conversion import DownConverted, NotConverted, down_convert
from batchval.errors import BatchvalError, NotABatch
from tests.evidence.hostile.buffers import guarded
from tests.evidence.hostile.mutator import xxh32
from tests.support.batches import (
    CODECS,
    GZIP,
    LZ4,
    NONE,
    NOW,
    SNAPPY,
    ZSTD,
    batch,
    message,
    record,
    records,
    with_crc,
    wrapper,
)
from tests.support.fetch_answers import (
    ABORT,
    COMMIT,
    CONTROL,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Converted,
    aborted_in,
    answer,
    bytes_of,
    expected,
    marker,
)
from tests.support.seeds import seeds

MAGICS = (0, 1)
SET_PIECE = 256 << 10  # as in batchval.core.convert.down_conversion
ALL_CODECS = pytest.mark.parametrize("codec", list(CODECS.values()), ids=list(CODECS))


def read(output: bytes) -> list[Converted]:
    """Return the messages of an output, of which every byte is part of a whole, valid message."""
    found, size = [], 0
    for one in batches(output):
        assert one.is_valid
        assert one.magic < 2
        size += one.size_in_bytes
        inner = list(one.records())
        assert inner[-1].offset == one.last_offset
        codec = int(one.compression_type)
        if one.magic and codec:
            latest = max(each.timestamp for each in inner)
            assert one.max_timestamp == latest
        for each in inner:
            is_appended = one.magic > 0 and bool(one.attributes & LOG_APPEND_TIME)
            found.append(
                Converted(
                    one.magic, codec, each.offset, each.timestamp, is_appended, each.key, each.value
                )
            )
    assert size == len(output)
    return found


def offsets(output: bytes) -> list[int]:
    return [one.offset for one in read(output)]


def marked(kind: int, producer_id: int, offset: int) -> bytes:
    attributes = TRANSACTIONAL | CONTROL
    return batch(
        [marker(kind)],
        base_offset=offset,
        attributes=attributes,
        producer_id=producer_id,
        producer_epoch=0,
    )


def sent(offset: int, producer_id: int, count: int = 2, **fields: object) -> bytes:
    """A transactional batch."""
    parts = records(count)
    return batch(
        parts,
        base_offset=offset,
        attributes=TRANSACTIONAL,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        **fields,  # type: ignore[arg-type]
    )


# ---- formats -------------------------------------------------------------------------------------


@ALL_CODECS
@pytest.mark.parametrize("to_magic", MAGICS)
def test_offsets_times_nulls_and_codec_are_kept(codec: int, to_magic: int) -> None:
    parts = [
        record(2, b"k", b"v", [(b"h", b"x")], 5),
        record(3, None, b"z" * 200),
        record(900, b"", None, timestamp_delta=7),
    ]
    data = batch(parts, codec=codec, base_offset=100, last_offset_delta=950, max_timestamp=NOW + 7)
    found = down_convert(data, to_magic)
    kept = GZIP if codec == ZSTD else codec
    rows = [(102, NOW + 5, b"k", b"v"), (103, NOW, None, b"z" * 200), (1000, NOW + 7, b"", None)]
    assert read(found.output) == [
        Converted(to_magic, kept, offset, time if to_magic else -1, False, key, value)
        for offset, time, key, value in rows
    ]
    assert found[1:] == (3, 100, 1051, len(data), False, ())
    assert isinstance(found, DownConverted)


@ALL_CODECS
def test_log_append_time_is_that_of_every_message(codec: int) -> None:
    data = batch(
        records(3, timestamp_delta=9),
        codec=codec,
        attributes=LOG_APPEND_TIME,
        max_timestamp=NOW + 50,
    )
    assert {one[3:5] for one in read(down_convert(data, 1).output)} == {(NOW + 50, True)}
    assert {one[3:5] for one in read(down_convert(data, 0).output)} == {(-1, False)}


def test_wrappers_count_as_their_magic_does() -> None:
    data = batch([record(1), record(4)], codec=GZIP, base_offset=10, last_offset_delta=4)
    for to_magic, inner in ((0, [11, 14]), (1, [0, 3])):
        output = down_convert(data, to_magic).output
        overhead = 26 if to_magic == 0 else 34
        assert struct.unpack_from(">q", output) == (14,)
        content = b"".join(message(to_magic, offset=offset, timestamp=NOW) for offset in inner)
        assert output[overhead:] == compress(GZIP, content, to_magic)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
@pytest.mark.parametrize(("from_magic", "to_magic"), [(2, 0), (2, 1), (1, 0)])
def test_a_wrapper_that_is_made_in_pieces_is_that_of_one_piece(
    codec: int, from_magic: int, to_magic: int
) -> None:
    """Messages above SET_PIECE are compressed in pieces, and one of them may be larger."""
    values = [b"%d" % i * (i % 70) for i in range(6000)]
    values[3000] = bytes(range(256)) * 3000
    first = batch(records(1))
    if from_magic == 2:
        parts = [record(i, b"k", value) for i, value in enumerate(values)]
        data = batch(parts, codec=codec, base_offset=10, last_offset_delta=len(values) - 1)
    else:
        inner = [message(1, offset=i, key=b"k", value=value) for i, value in enumerate(values)]
        data = wrapper(inner, codec, 1, offset=10 + len(values) - 1)
    found = down_convert(first + data + first, to_magic)
    output = found.output[len(down_convert(first, to_magic).output) :]
    base = 10 if to_magic == 0 else 0
    content = b"".join(
        message(to_magic, offset=base + i, key=b"k", value=value, timestamp=NOW)
        for i, value in enumerate(values)
    )
    assert len(content) > 4 * SET_PIECE
    overhead = 26 if to_magic == 0 else 34
    (size,) = struct.unpack_from(">i", output, overhead - 4)
    assert output[overhead : overhead + size] == compress(codec, content, to_magic)
    assert len(read(found.output)) == len(values) + 2
    assert found.records == len(values) + 2


@pytest.mark.parametrize("from_magic", [2, 1])
def test_what_a_batch_takes_is_reported_while_it_is_converted(from_magic: int) -> None:
    values = [bytes(100)] * (8 * SET_PIECE // 100)
    if from_magic == 2:
        content = b"".join(record(i, value=value) for i, value in enumerate(values))
        data = batch(
            [content], codec=GZIP, records_count=len(values), last_offset_delta=len(values) - 1
        )
    else:
        content = b"".join(message(1, offset=i, value=value) for i, value in enumerate(values))
        data = wrapper([content], GZIP, 1, offset=len(values) - 1)
    seen: list[int] = []
    output = down_convert(data, 0, on_held=seen.append).output
    assert len(seen) > 8
    for size in seen:  # never the messages of the whole batch
        assert len(content) < size < len(content) + 2 * SET_PIECE + len(output)
    with pytest.raises(ZeroDivisionError):
        down_convert(data, 0, on_held=lambda size: size // 0)


@pytest.mark.parametrize("from_magic", [2, 1])
def test_nothing_remains_of_a_wrapper_whose_last_message_cannot_be_converted(
    from_magic: int,
) -> None:
    count = 4 * SET_PIECE // 100
    if from_magic == 2:
        parts = [record(i, value=bytes(100)) for i in range(count)]
        wrong = batch([*parts, record(0)], codec=GZIP, last_offset_delta=count)
    else:
        inner = [message(1, offset=i, value=bytes(100)) for i in range(count)]
        wrong = wrapper([*inner, message(1, offset=0)], GZIP, 1, offset=count)
    first = batch(records(2), codec=GZIP, base_offset=0)
    with pytest.raises(NotConverted) as raised:
        down_convert(first + wrong, 0)
    assert raised.value.converted.output == down_convert(first, 0).output
    assert raised.value.converted.position == len(first)
    # the next call has nothing of it
    assert down_convert(first, 0).output == raised.value.converted.output


@pytest.mark.parametrize("to_magic", MAGICS)
def test_lz4_has_the_header_checksum_of_its_magic(to_magic: int) -> None:
    """Clients of magic 0 take the frame's magic number into it (KAFKA-3160)."""
    output = down_convert(batch(records(3), codec=LZ4), to_magic).output
    frame = output[26 if to_magic == 0 else 34 :]
    assert frame[:4] == b"\x04\x22\x4d\x18"
    assert frame[6] == xxh32(frame[:6] if to_magic == 0 else frame[4:6]) >> 8 & 0xFF


def test_snappy_is_framed_as_old_clients_read_it() -> None:
    assert down_convert(batch(records(3), codec=SNAPPY), 1).output[34:].startswith(b"\x82SNAPPY\0")


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4])
def test_what_is_old_enough_passes_as_it_is(codec: int) -> None:
    inner = [message(1, offset=i, timestamp=NOW + i) for i in range(3)]
    data = (
        message(1, offset=7, crc=5) if codec == NONE else wrapper(inner, codec, 1, offset=7, crc=5)
    )
    found = down_convert(data, 1, first_offset=1000)
    assert (found.output, found.records, found.next_offset) == (data, 0, 8)
    plain = message(0, offset=7)
    assert down_convert(plain, 0).output == down_convert(plain, 1).output == plain


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4])
def test_magic_1_becomes_magic_0(codec: int) -> None:
    if codec == NONE:
        data = message(1, offset=9, key=b"k", value=None, attributes=LOG_APPEND_TIME)
        rows = [(9, b"k", None)]
    else:
        inner = [message(1, offset=i, key=b"k" * i, value=b"v" * 90) for i in (0, 2, 5)]
        data = wrapper(inner, codec, 1, offset=9)
        rows = [(4, b"", b"v" * 90), (6, b"kk", b"v" * 90), (9, b"k" * 5, b"v" * 90)]
    found = down_convert(data, 0)
    assert read(found.output) == [
        Converted(0, codec, offset, -1, False, *rest) for offset, *rest in rows
    ]
    assert (found.records, found.next_offset) == (len(rows), 10)


# ---- what is left out ----------------------------------------------------------------------------


def test_control_batches_and_empty_batches_are_stepped_over() -> None:
    empty = batch([], base_offset=20, last_offset_delta=7)
    squeezed = batch([], codec=ZSTD, payload=b"", base_offset=28, last_offset_delta=1)
    data = marked(COMMIT, 5, 19) + empty + squeezed
    assert down_convert(data, 1) == DownConverted(b"", 0, 19, 30, len(data), False, ())
    assert offsets(down_convert(batch(records(2)) + data, 1).output) == [0, 1]


@ALL_CODECS
def test_records_below_the_first_offset_are_left_out_unless_compressed(codec: int) -> None:
    data = batch(records(5), codec=codec, base_offset=10)
    found = down_convert(data, 1, first_offset=13)
    assert offsets(found.output) == ([13, 14] if codec == NONE else [10, 11, 12, 13, 14])
    assert found.records == len(offsets(found.output))
    below = down_convert(data, 0, first_offset=100)
    assert offsets(below.output) == ([] if codec == NONE else [10, 11, 12, 13, 14])
    assert below.next_offset == 15


def test_nothing_was_read() -> None:
    assert down_convert(b"", 1, first_offset=44) == DownConverted(b"", 0, 44, 44, 0, False, ())
    cut = batch(records(2), base_offset=44)[:-1]
    for size in (1, 11, 16, 17, len(cut)):
        assert down_convert(cut[:size], 1, first_offset=44) == DownConverted(
            b"", 0, 44, 44, 0, True, ()
        )


def test_a_batch_that_is_cut_off_is_left_for_the_next_answer() -> None:
    data = batch(records(3), base_offset=5)
    found = down_convert(data + data[:-1], 1)
    assert (offsets(found.output), found.position, found.is_partial) == ([5, 6, 7], len(data), True)


def test_of_a_control_batch_nothing_is_read_unless_transactions_were_aborted() -> None:
    """Nor does Kafka look at its codec."""
    data = batch([b"?"], attributes=TRANSACTIONAL | CONTROL | 7, producer_id=5, producer_epoch=0)
    assert down_convert(data, 1).next_offset == 1
    assert (
        down_convert(message(1, offset=4, tail=b"\0\0\0\x09k"), 0, first_offset=5).next_offset == 5
    )
    with pytest.raises(NotConverted, match="compression codec 7"):
        down_convert(data, 1, aborted=[(5, 0)])


# ---- read_committed ------------------------------------------------------------------------------


def test_aborted_transactions_are_left_out_up_to_their_marker() -> None:
    data = b"".join(
        [
            sent(0, 5),
            sent(2, 6),
            batch(records(1), base_offset=4),
            sent(5, 5),
            marked(ABORT, 5, 7),
            marked(COMMIT, 6, 8),
            sent(9, 5),
            marked(COMMIT, 5, 11),
        ]
    )
    assert offsets(down_convert(data, 1).output) == [0, 1, 2, 3, 4, 5, 6, 9, 10]
    found = down_convert(data, 1, aborted=[(5, 0)])
    assert offsets(found.output) == [2, 3, 4, 9, 10]
    assert (found.records, found.next_offset, found.aborted) == (5, 12, ())


def test_a_transaction_counts_from_its_first_offset() -> None:
    data = sent(0, 5) + marked(COMMIT, 5, 2) + sent(3, 5, codec=LZ4) + marked(ABORT, 5, 5)
    assert offsets(down_convert(data, 0, aborted=[(5, 3)]).output) == [0, 1]
    both = sent(0, 5) + marked(ABORT, 5, 2) + sent(3, 5) + marked(ABORT, 5, 5) + sent(6, 5)
    assert offsets(down_convert(both, 0, aborted=((5, 3), (5, 0))).output) == [6, 7]


def test_only_transactional_batches_of_a_producer_are_aborted() -> None:
    data = batch(records(2), producer_id=5, producer_epoch=0, base_sequence=0) + batch(
        records(1), base_offset=2
    )
    assert offsets(down_convert(data, 1, aborted=[(5, 0)]).output) == [0, 1, 2]


def two_aborted() -> bytes:
    """Transactions of producers 5 and 6, one aborted each, and one that is open."""
    first = [sent(0, 5), sent(2, 6), marked(ABORT, 5, 4), sent(5, 5), sent(7, 6)]
    return b"".join([*first, marked(ABORT, 6, 9), sent(10, 6)])


def test_slices_carry_the_open_transactions_on() -> None:
    """A transaction that ended in an earlier slice does not take the producer's next one."""
    data = two_aborted()
    pending: Any = [(5, 0), (6, 2)]
    position, found, seen = 0, [], []
    while position < len(data):
        one = down_convert(data, 1, position=position, aborted=pending, max_bytes=1)
        position, pending = one.position, one.aborted
        found += offsets(one.output)
        seen.append(set(pending))
    assert found == [5, 6, 10, 11]
    assert seen[0] == {(6, 2)}
    assert seen[-1] == set()


@pytest.mark.parametrize(
    ("key", "reason"), [(b"\0\0\0", "3 bytes"), (b"\xff\xff\0\0", "4 bytes"), (None, "-1 bytes")]
)
def test_a_marker_that_cannot_be_read(key: bytes | None, reason: str) -> None:
    data = batch([record(0, key)], attributes=TRANSACTIONAL | CONTROL, producer_id=5)
    assert down_convert(data, 1).next_offset == 1
    with pytest.raises(NotConverted, match=reason):
        down_convert(data, 1, aborted=[(5, 0)])


# ---- slices --------------------------------------------------------------------------------------


def test_it_stops_after_the_batch_that_fills_the_output() -> None:
    one = batch(records(10))
    data = b"".join(batch(records(10), base_offset=10 * i, codec=i % 5) for i in range(20))
    whole = down_convert(data, 1)
    first = down_convert(data, 1, max_bytes=1)
    assert (first.position, first.next_offset, first.is_partial) == (len(one), 10, False)
    for most in (1, 100, 700, 5000, 10**9):
        output, position, count, base = b"", 0, 0, 0
        while position < len(data):
            found = down_convert(data + data[:40], 1, position=position, max_bytes=most)
            assert found.position > position
            assert found.first_offset == base
            output, position, count = output + found.output, found.position, count + found.records
            base = found.next_offset
        assert (output, count) == (whole.output, whole.records)


# ---- broken input --------------------------------------------------------------------------------

GOOD = batch(records(2))


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (batch(base_offset=2, batch_length=5), "size field 5 is below 14"),
        (batch(base_offset=2, magic=3), "magic 3 is unknown: expected 0, 1 or 2"),
        (batch(base_offset=2, batch_length=40)[:52], "52 bytes are fewer than a batch's header"),
        (batch(base_offset=-9), "offset -9"),
        (batch(base_offset=2, last_offset_delta=-1), "last offset delta -1"),
        (batch(base_offset=2**63 - 1), "are not those of a log"),
        (batch(base_offset=2, attributes=7), "compression codec 7"),
        (message(1, offset=2, attributes=6), "compression codec 6"),
        (message(1, offset=2, attributes=4), "a message of magic 1 cannot use zstd"),
        (message(1, offset=-3), "offset -3"),
        (
            batch(base_offset=2, records_count=-1, last_offset_delta=0),
            "records_count -1 is negative",
        ),
        (batch(base_offset=2, records_count=2**31 - 1), "the batch ends inside it"),
        (batch([record(), b"\0"], base_offset=2, records_count=1), "bytes are left"),
        (batch([record(5)], base_offset=2), "record 0: offset 7"),
        (batch([record(1), record(1)], base_offset=2), "record 1: offset 3, expected 4"),
        (batch([record(1), record(0)], base_offset=2, codec=LZ4), "record 1: offset 2, expected 4"),
        (batch(base_offset=2, codec=GZIP, payload=b"no"), "gzip: the member's header is damaged"),
        (batch(base_offset=2, codec=ZSTD, payload=b"xyz"), "zstd"),
        (
            batch([record(value=bytes(2000))], base_offset=2, codec=ZSTD),
            "decompresses to more than max_decompressed_bytes, 1000",
        ),
    ],
)
def test_an_error_names_the_place_and_keeps_what_came_before(bad: bytes, reason: str) -> None:
    assert down_convert(GOOD, 0).next_offset == 2
    with pytest.raises(NotConverted, match=rf"at byte {len(GOOD)} \(offset 2.*{reason}") as caught:
        down_convert(GOOD + bad + GOOD, 0, max_decompressed_bytes=1000)
    before = caught.value.converted
    assert (offsets(before.output), before.next_offset) == ([0, 1], 2)
    assert (before.position, before.is_partial) == (len(GOOD), False)
    assert isinstance(caught.value, NotABatch)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (message(1, offset=2, tail=b"\0\0\0\x09k"), "its key or value runs past its end"),
        (
            wrapper([message(1, attributes=1)], GZIP, 1, offset=2),
            "is compressed inside a compressed message",
        ),
        (wrapper([message(1, offset=9)], GZIP, 1, offset=2), "wrapper offset 2 is below"),
        (wrapper([], GZIP, 1, offset=2), "holds no message"),
        (wrapper([message(1), message(1)], GZIP, 1, offset=2), "record 1: offset 2, expected 3"),
        (
            wrapper([message(1, value=bytes(2000))], GZIP, 1, offset=2),
            "decompresses to more than max_decompressed_bytes, 1000",
        ),
    ],
)
def test_messages_of_magic_1_that_cannot_be_read(bad: bytes, reason: str) -> None:
    with pytest.raises(NotConverted, match=reason):
        down_convert(bad, 0, max_decompressed_bytes=1000)
    assert down_convert(bad, 1).output == bad


def test_checksums_are_asked_for() -> None:
    """Kafka 3.9 asks for none; what is converted gets a new one."""
    bad = batch(records(2), crc=7)
    assert offsets(down_convert(bad, 1).output) == [0, 1]
    with pytest.raises(NotConverted, match="stored crc = 7, computed"):
        down_convert(bad, 1, check_crcs=True)
    old = message(1, crc=7)
    assert offsets(down_convert(old, 0).output) == [0]
    assert down_convert(old, 1, check_crcs=True).output == old
    with pytest.raises(NotConverted, match="stored crc = 7, computed"):
        down_convert(old, 0, check_crcs=True)
    assert down_convert(batch(records(2)), 1, check_crcs=True).records == 2


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"to_magic": 2}, "to_magic must be a whole number from 0 to 1, not 2"),
        ({"to_magic": True}, "to_magic"),
        ({"first_offset": "3"}, "first_offset"),
        ({"position": 5}, "position 5 is outside"),
        ({"max_bytes": 0}, "max_bytes must be a whole number of bytes from 1"),
        ({"max_decompressed_bytes": -1}, "max_decompressed_bytes"),
        ({"aborted": 7}, "aborted must be pairs"),
        ({"aborted": [7]}, r"aborted\[0\] must be a pair \(producer id, first offset\), not 7"),
        ({"aborted": [(1, 2), (1, 2, 3)]}, r"aborted\[1\]"),
        ({"aborted": [(1, None)]}, r"aborted\[0\], first offset must be"),
    ],
)
def test_arguments(arguments: dict[str, object], reason: str) -> None:
    with pytest.raises(BatchvalError, match=reason):
        down_convert(b"", **{"to_magic": 1, **arguments})  # type: ignore[arg-type]


# ---- random answers ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds(150))
def test_as_the_rules_in_plain_python(seed: int, provider: str) -> None:
    rng = random.Random(seed)
    batches_sent = answer(rng)
    data = bytes_of(batches_sent)
    inside = rng.randrange(batches_sent[0].base_offset, batches_sent[-1].last_offset + 2)
    for to_magic in MAGICS:
        for first_offset in (0, inside):
            for aborted in ((), aborted_in(batches_sent)):
                cut = data[: rng.randrange(len(batches_sent[0].data))]
                found = down_convert(
                    guarded(data + cut), to_magic, first_offset=first_offset, aborted=aborted
                )
                assert read(found.output) == expected(batches_sent, to_magic, first_offset, aborted)
                assert (found.position, found.is_partial) == (len(data), bool(cut))
                assert found.next_offset == batches_sent[-1].last_offset + 1


def test_slices_may_share_the_aborted_transactions() -> None:
    data = two_aborted()
    aborted = AbortedTransactions([(6, 2), (5, 0)])
    position, found = 0, []
    while position < len(data):
        one = down_convert(data, 1, position=position, aborted=aborted, max_bytes=1)
        assert one.aborted is aborted
        position = one.position
        found += offsets(one.output)
    assert found == [5, 6, 10, 11]


def test_aborted_transactions_may_come_in_any_order() -> None:
    pairs = [
        (producer, first)
        for producer in (-5, 2**62, 0, 7, -(2**62))
        for first in (9, -1, 2**63 - 1, 0)
    ]
    for seed in range(5):
        random.Random(seed).shuffle(pairs)
        assert down_convert(b"", 1, aborted=pairs).aborted == tuple(sorted(pairs))


@pytest.mark.parametrize("wrong", [5, [(1,)], [(1, 2), None], [(1, "2")], [(2**63, 0)]])
def test_a_wrong_list_of_transactions_is_an_error(wrong: Any) -> None:
    with pytest.raises(BatchvalError, match="aborted"):
        AbortedTransactions(wrong)


def test_two_calls_at_a_time_do_not_share_aborted_transactions() -> None:
    aborted = AbortedTransactions([(5, 0)])
    large = batch(records(1000, value=bytes(1000))) * 50
    refused = []
    with ThreadPoolExecutor(1) as pool:
        for _ in range(20):
            other = pool.submit(down_convert, large, 1, aborted=aborted)
            while not other.done() and not refused:
                try:
                    down_convert(b"", 1, aborted=aborted)
                except BatchvalError as error:
                    refused.append(str(error))
            other.exception()
            if refused:
                break
    assert refused == ["aborted is in use by another call: one call at a time may use it"]
    assert down_convert(b"", 1, aborted=aborted).aborted is aborted


def test_a_call_ends_when_it_has_done_its_work() -> None:
    """Batches of which nothing comes out count as well: read, decompressed and compressed bytes."""
    large = batch(records(1, value=bytes(10_000)), codec=GZIP)
    packed = b"".join(
        batch(records(1, value=bytes(10_000)), codec=GZIP, base_offset=n) for n in range(10)
    )
    assert down_convert(packed, 1, max_work=1).next_offset == 1
    assert down_convert(packed, 1, max_work=30_000).next_offset == 2
    assert down_convert(packed, 1, max_work=1 << 20).next_offset == 10
    plain = b"".join(batch(records(1), base_offset=n) for n in range(10))
    below = down_convert(plain, 1, first_offset=100, max_work=2 * len(batch(records(1))))
    assert (below.output, below.next_offset) == (b"", 2)
    assert len(large) < 1000


@pytest.mark.parametrize("to_magic", MAGICS)
def test_a_heavy_batch_is_left_for_a_call_that_may_convert_it(to_magic: int) -> None:
    small, large = (
        batch(records(1)),
        batch(records(1, value=bytes(10_000)), codec=GZIP, base_offset=1),
    )
    with pytest.raises(NotConverted, match="max_batch_work, 9999 bytes") as caught:
        down_convert(small + large, to_magic, max_batch_work=9_999)
    made = caught.value.converted
    assert caught.value.is_heavy
    assert (offsets(made.output), made.position, made.next_offset) == ([0], len(small), 1)
    assert offsets(down_convert(small + large, to_magic, position=made.position).output) == [1]
    # the messages are larger than the records
    tiny = batch(records(1000, value=b""), codec=GZIP)
    with pytest.raises(NotConverted) as caught:
        down_convert(tiny, to_magic, max_batch_work=20_000)
    assert caught.value.is_heavy
    # a batch above max_decompressed_bytes is refused and not heavy
    with pytest.raises(NotConverted) as caught:
        down_convert(large, to_magic, max_batch_work=9_999, max_decompressed_bytes=9_999)
    assert not caught.value.is_heavy


def test_a_buffer_that_can_change_gives_the_same() -> None:
    data = bytes_of(answer(random.Random(3), 20))
    assert down_convert(bytearray(data), 1) == down_convert(data, 1)


def test_the_answers_hold_what_is_to_be_tested() -> None:
    """A generator that never makes a marker would test nothing."""
    made = [one for seed in range(150) for one in answer(random.Random(seed))]
    assert {one.magic for one in made} == {0, 1, 2}
    assert {(one.codec, one.log_append_time is not None) for one in made if one.magic == 2} == {
        (codec, appended) for codec in CODECS.values() for appended in (False, True)
    }
    assert {one.marker for one in made} == {None, ABORT, COMMIT}
    assert sum(bool(aborted_in(answer(random.Random(seed)))) for seed in range(150)) > 5
    assert with_crc(made[0].data) == made[0].data or made[0].magic < 2

"""Columns that are cut, added up and asked which sizes can be believed; headers followed without
checksums.
"""

from __future__ import annotations

import struct

import numpy as np
import pytest

from batchval.core.batches.columns import BatchColumns, scan_batches
from batchval.core.batches.validator import LogValidator
from batchval.errors import BatchvalError
from batchval.segment.search_window import follow
from tests.support.batches import GZIP, ZSTD, batch, message, records, with_crc
from tests.support.claims import carrying

PARTS = [batch(records(2), base_offset=2 * i) for i in range(10)]
SIZE = len(PARTS[0])
DATA = b"".join(PARTS)
LOG = LogValidator(profile="log")


def test_what_is_kept_ends_where_the_next_row_began() -> None:
    columns = scan_batches(DATA + b"x")
    assert (columns.end, columns.tail) == (len(DATA), "partial")
    assert columns["last_offset"].tolist() == list(range(1, 20, 2))
    columns.keep(10)
    assert columns.tail == "partial"
    columns.keep(3)
    assert (len(columns), columns.end, columns.tail) == (3, 3 * SIZE, None)
    assert columns["base_offset"].tolist() == [0, 2, 4]
    assert columns["last_offset"].tolist() == [1, 3, 5]  # computed anew
    for wrong in (-1, 4):
        with pytest.raises(IndexError):
            columns.keep(wrong)
    columns.keep(0)
    assert (len(columns), columns.end) == (0, 0)


@pytest.mark.parametrize("checked", [False, True])
def test_blocks_add_up_to_the_whole(checked: bool) -> None:
    def look(data: bytes) -> BatchColumns:
        return LOG.check_batches(data) if checked else scan_batches(data)

    data = (
        DATA
        + batch(records(1), base_offset=99, crc=3)
        + message(0, offset=100)
        + batch(codec=ZSTD, base_offset=101)
    )
    whole = look(data)
    joined = BatchColumns(checked)
    for start, end in (
        (0, 4 * SIZE),
        (4 * SIZE, 4 * SIZE),
        (4 * SIZE, 9 * SIZE),
        (9 * SIZE, len(data)),
    ):
        joined.extend(look(data[start:end]), start)
    assert (len(joined), joined.end, joined.tail) == (len(whole), whole.end, whole.tail)
    for name in (*whole.names, *(["uncompressed_size", "null_keys"] if checked else [])):
        assert np.array_equal(joined[name], whole[name]), name
    assert list(joined.rows()) == list(whole.rows())
    with pytest.raises(BatchvalError, match="no results"):
        joined.result(0)


def test_what_others_look_at_is_not_moved() -> None:
    columns = BatchColumns(False)
    columns.extend(scan_batches(DATA), 0)
    held = columns["position"]
    with pytest.raises(BufferError):
        columns.extend(scan_batches(DATA), len(DATA))
    del held
    columns.extend(scan_batches(DATA), len(DATA))
    assert columns["position"].tolist() == list(range(0, 2 * len(DATA), SIZE))
    with pytest.raises(BatchvalError, match="cannot be combined"):
        columns.extend(LOG.check_batches(DATA), 0)


def test_sizes_that_need_more_than_their_own_columns() -> None:
    wrong = [batch(records(2), base_offset=2 * i, crc=1) for i in range(10)]
    assert scan_batches(DATA).first_doubtful() == -1
    assert scan_batches(wrong[0] + PARTS[0]).first_doubtful() == -1  # the next is proven
    assert scan_batches(wrong[0] + wrong[1] + PARTS[2]).first_doubtful() == -1  # the next goes on
    assert scan_batches(wrong[1] + wrong[0] + PARTS[2]).first_doubtful() == 0  # it goes back
    assert scan_batches(wrong[1] + wrong[1] + PARTS[2]).first_doubtful() == 0
    assert scan_batches(wrong[1] + wrong[1] + PARTS[2]).first_doubtful(1) == -1
    assert scan_batches(PARTS[0] + wrong[1]).first_doubtful() == 1  # nothing follows
    far = batch(base_offset=2**31 + 1, crc=1)
    assert scan_batches(batch(base_offset=1, crc=1) + far + PARTS[0]).first_doubtful() == 0
    assert scan_batches(batch(base_offset=2, crc=1) + far + PARTS[0]).first_doubtful() == -1
    assert (
        scan_batches(
            batch(base_offset=-(2**63), crc=1) + batch(base_offset=2**63 - 1, crc=1)
        ).first_doubtful()
        == 0
    )
    assert (
        scan_batches(wrong[0] + message(1, offset=1, crc=1)).first_doubtful() == 0
    )  # another magic
    assert scan_batches(b"").first_doubtful() == -1


def test_headers_are_followed_while_they_go_on() -> None:
    assert follow(DATA, 1 << 20) == (9 * SIZE, 10 * SIZE)
    assert follow(DATA[: 5 * SIZE + 16], 1 << 20) == (4 * SIZE, 5 * SIZE)
    assert follow(DATA[: 5 * SIZE + 17], 1 << 20) == (5 * SIZE, 6 * SIZE)
    assert follow(DATA, SIZE) == (9 * SIZE, 10 * SIZE)
    assert follow(DATA, SIZE - 1) == (0, 0)
    assert follow(PARTS[0] + PARTS[1] + PARTS[1] + PARTS[5], 1 << 20) == (SIZE, 2 * SIZE)
    assert follow(PARTS[0] + message(1, offset=9), 1 << 20) == (0, SIZE)
    small = struct.pack(">qi", 5, 13) + PARTS[1][12:]
    assert follow(PARTS[0] + small, 1 << 20) == (SIZE, SIZE)
    assert (
        follow(b"", 1 << 20)
        == follow(bytes(16), 1 << 20)
        == follow(b"\xff" * 61, 1 << 20)
        == (0, 0)
    )
    claimed = carrying(PARTS[0], (0, 2, 0))
    assert follow(claimed, 1 << 20) == (0, 0)
    assert follow(claimed, 1 << 20, accept_claims_header=True) == (0, len(claimed))
    with pytest.raises(BatchvalError, match="contiguous"):
        follow(memoryview(DATA)[::2], 1 << 20)


def test_without_deep_compressed_payloads_stay_closed() -> None:
    junk = batch(payload=b"junk", codec=ZSTD)
    malformed = batch(payload=b"junk")
    data = (
        junk
        + malformed
        + batch(records(3), codec=GZIP)
        + batch(attributes=5)
        + batch(codec=ZSTD, crc=1)
    )
    shallow, deep = LOG.check_batches(data, deep=False), LOG.check_batches(data)
    assert [row["rule"] for row in shallow.rows()] == [None, "29", None, "S6", "14"]
    assert [row["rule"] for row in deep.rows()] == ["S7", "29", None, "S6", "14"]
    assert [row["path"] for row in shallow.rows()] == [None, "full", None, None, None]
    assert shallow["uncompressed_size"].tolist() == [-1] * 5
    assert deep["uncompressed_size"].tolist() == [-1, -1, len(batch(records(3))), -1, -1]
    assert [shallow.result(i).ok for i in range(5)] == [True, False, True, False, False]
    assert shallow.result(0).path is None
    assert deep.result(0).rule is not None
    kafka = LogValidator(profile="log", mode="kafka").check_batches(data, deep=False)
    assert kafka["error_code"].tolist() == [0, 87, 0, -1, 2]
    stump = with_crc(batch(codec=ZSTD)[:40])
    stump = stump[:8] + struct.pack(">i", 28) + stump[12:]
    assert [row["rule"] for row in LOG.check_batches(stump, deep=False).rows()] == ["14"]

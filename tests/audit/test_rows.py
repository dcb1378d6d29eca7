"""Rows of ranges: the same for any split."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from batchval.audit.rows import ROW_SCHEMA, Options, read_range
from batchval.audit.segments import cut
from batchval.audit.store import SegmentInfo, Store

SEGMENTS = Path(__file__).parents[2] / "fixtures" / "segments"


def rows_of(folder: Path, options: Options = Options()) -> pa.Table:  # noqa: B008
    store, path = Store.of(str(folder))
    found = []
    for segment in store.list_segments(path, options.topics):
        assert isinstance(segment, SegmentInfo), segment
        for part in cut(segment, options.split_bytes, store):
            found += [block.rows for block in read_range(part, options)]
    return pa.Table.from_batches(found, ROW_SCHEMA)


@pytest.mark.parametrize("split_bytes", [1000, 5000, 20_000])
def test_real_segments_give_the_same_rows_for_any_split(split_bytes: int) -> None:
    whole = rows_of(SEGMENTS)
    assert whole.num_rows > 200
    assert rows_of(SEGMENTS, Options(split_bytes=split_bytes)).equals(whole)

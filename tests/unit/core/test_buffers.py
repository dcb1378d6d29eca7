"""Every entry point accepts any contiguous buffer; each error for others names what is allowed."""

from __future__ import annotations

import array
import mmap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from batchval import BatchvalError, LogValidator, RecordBatch, scan_batches
from batchval.core import claims
from batchval.core.batches.arrow import binary_views
from batchval.core.convert.down_conversion import down_convert
from batchval.core.fetched import walk_fetched
from batchval.segment.search_window import follow, resynchronise
from tests.support.sources import ROOT

SEGMENT = (
    ROOT / "fixtures" / "segments" / "codec-none-0" / "00000000000000000000.log"
).read_bytes()
DATA = SEGMENT[: RecordBatch(SEGMENT).size_in_bytes]
NOW = RecordBatch(DATA).max_timestamp

ENTRY_POINTS: dict[str, Callable[[Any], Any]] = {
    "check": lambda data: LogValidator().check(data, now_ms=NOW).ok,
    "validate": lambda data: LogValidator().validate(data, now_ms=NOW).ok,
    "check_ranges": lambda data: bool(LogValidator().check_ranges(data, now_ms=NOW).ok().all()),
    "check_batches": lambda data: bool(LogValidator(profile="log").check_batches(data).ok().all()),
    "analyze": lambda data: LogValidator().analyze(data).ok,
    "check_request": lambda data: LogValidator().check_request(data).ok,
    "scan_batches": lambda data: bool(scan_batches(data)["is_valid"].all()),
    "RecordBatch": lambda data: RecordBatch(data).is_valid,
    "resynchronise": lambda data: resynchronise(data) == 0,
    "follow": lambda data: follow(data, 1 << 20) == (0, len(DATA)),
    "walk_fetched": lambda data: walk_fetched(data).records > 0,
    "down_convert": lambda data: down_convert(data, 1).records > 0,
    "binary_views": lambda data: binary_views(data, [0], [len(DATA)]).null_count == 0,
    "claims": lambda data: claims.strip(claims.attach(data, (1, 2, 0))) == DATA,
}


def mapped() -> mmap.mmap:
    memory = mmap.mmap(-1, len(DATA))
    memory.write(DATA)
    return memory


TAKEN: dict[str, Callable[[], Any]] = {
    "bytes": lambda: DATA,
    "bytearray": lambda: bytearray(DATA),
    "a slice of a memoryview": lambda: memoryview(b"x" + DATA)[1:],
    "numpy": lambda: np.frombuffer(DATA, "u1"),
    "array": lambda: array.array("b", DATA),
    "mmap": mapped,
}
REFUSED: dict[str, Callable[[], Any]] = {
    "every second byte": lambda: memoryview(DATA)[::2],
    "every second byte of numpy": lambda: np.frombuffer(DATA, "u1")[::2],
    "a column of numpy": lambda: np.zeros((4, 4), "u1")[:, 1],
    "text": lambda: "text",
    "nothing": lambda: None,
    "a list": lambda: [1, 2],
    "objects": lambda: np.array([b"x", None, 5] * 100, dtype=object),
    "numbers of eight bytes": lambda: array.array("q", bytes(800)),
    "floats": lambda: np.zeros(100),
    "dates": lambda: np.zeros(100, "M8[ms]"),
    "strings": lambda: np.zeros(100, "S1"),
    "truths": lambda: memoryview(bytes(800)).cast("?"),
}


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
@pytest.mark.parametrize("kind", TAKEN)
def test_taken(kind: str, entry_point: str) -> None:
    assert ENTRY_POINTS[entry_point](TAKEN[kind]()) is True


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
@pytest.mark.parametrize("kind", REFUSED)
def test_refused(kind: str, entry_point: str) -> None:
    with pytest.raises(BatchvalError, match="contiguous"):
        ENTRY_POINTS[entry_point](REFUSED[kind]())

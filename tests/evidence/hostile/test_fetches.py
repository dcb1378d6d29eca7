"""Test cut zstd frames at the edges of Kafka's fetches of 131,075 bytes."""

import pytest

from batchval import compression
from tests.evidence.hostile.differential import Setup, compare, compare_strict
from tests.evidence.hostile.seeds import NOW, batch, compress, record

FETCH = 131_075
SETUP = Setup.of({"now": NOW})


def skippable(size):
    return b"\x50\x2a\x4d\x18" + (size - 8).to_bytes(4, "little") + bytes(size - 8)


@pytest.mark.parametrize("provider", compression.PROVIDERS)
@pytest.mark.parametrize("fetches", [1, 2])
@pytest.mark.parametrize("difference", [-2, -1, 0, 1, 2])
@pytest.mark.parametrize("cut", [b"\x28", b"\x28\xb5\x2f\xfd", b"\x28\xb5\x2f\xfd\x00"])
def test_a_whole_frame_ends_where_input_is_fetched(provider, fetches, difference, cut):
    frame = compress(4, record(0, b"k", b"v"))
    payload = frame + skippable(fetches * FETCH + difference - len(frame)) + cut
    data = batch(b"", 1, 4, payload=payload)
    before = compression.provider()
    compression.use(provider)
    try:
        assert compare(SETUP, data) + compare_strict(SETUP, data) == []
    finally:
        compression.use(before)


def test_both_answers_occur():
    frame = compress(4, record(0, b"k", b"v"))
    codes = set()
    for difference in (0, 1):
        payload = frame + skippable(FETCH + difference - len(frame)) + b"\x28"
        codes.add(int(SETUP.kafka.check(batch(b"", 1, 4, payload=payload), now_ms=NOW).error_code))
    assert len(codes) == 2

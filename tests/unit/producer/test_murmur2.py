"""The hash is Java's: the vectors are those of Kafka's own UtilsTest and what kafka-python
computes.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchval.producer.murmur2 import murmur2, partition_of


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_kafkas_vectors(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected
    assert murmur2(bytearray(key)) == expected
    assert partition_of(key, 7) == (expected & 0x7FFFFFFF) % 7


@settings(deadline=None)
@given(st.binary(max_size=70), st.integers(1, 1000))
def test_as_another_client_has_it(key: bytes, partitions: int) -> None:
    other = pytest.importorskip("kafka.partitioner.default", reason="kafka-python is not installed")
    value = murmur2(key)
    assert value & 0xFFFFFFFF == other.murmur2(key) & 0xFFFFFFFF
    assert partition_of(memoryview(key), partitions) == (value & 0x7FFFFFFF) % partitions


def test_no_partition() -> None:
    with pytest.raises(ValueError, match="partitions 0: expected at least 1"):
        partition_of(b"key", 0)

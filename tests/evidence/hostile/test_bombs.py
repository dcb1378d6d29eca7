"""A gigabyte out of kilobytes, and lengths that lie: memory and time stay bounded by the limit.

Bounds of time are five times the figures that hold on a quiet machine: 60 ms at 8 MiB.
"""

import functools

import pytest

from batchval import compression
from batchval.core.batches.validator import LogValidator
from batchval.types import DEFAULT_MAX_DECOMPRESSED_BYTES
from tests.evidence.hostile.bombs import (
    BOMBS,
    CLAIMS,
    LIMIT_SMALL,
    MIB,
    bomb,
    measure,
    measure_each,
)
from tests.evidence.hostile.seeds import batch, compress, varint
from tests.support.calibration import slowness

QUICK = ("gzip, one", "snappy, one", "lz4, one", "zstd, one", "lz4, many", "zstd, many")
BY_DEFAULT = ("gzip, one", "lz4, one", "zstd, many")
AT_REST = ("gzip, one", "zstd, one", "lz4, many")
BY_PACKAGES = ("snappy, one", "zstd, one")


@pytest.fixture(scope="module")
def made():
    return {name: bomb(*BOMBS[name]) for name in QUICK}


@pytest.fixture(scope="module")
def measured(made):
    """Return a function that measures these bombs, each in a process of its own, once for all
    tests.
    """

    @functools.cache
    def of(names, **options):
        return dict(
            zip(names, measure_each([made[name] for name in names], **options), strict=True)
        )

    return of


@pytest.mark.alone
@pytest.mark.parametrize("name", QUICK)
def test_a_small_limit_bounds_memory_and_time(name, measured):
    found = measured(QUICK, limit=LIMIT_SMALL)[name]
    assert (found["code"], found["rule"]) == (87, "S8")
    assert found["reset"], "the kernel's high-water mark of this process cannot be set back"
    assert found["growth"] <= 24 * MIB
    assert found["seconds"] <= 5 * 0.060 * slowness()


@pytest.mark.alone
@pytest.mark.parametrize("name", BY_DEFAULT)
def test_the_default_limit_bounds_memory(name, measured):
    found = measured(BY_DEFAULT)[name]
    assert (found["code"], found["rule"]) == (87, "S8")
    assert found["growth"] <= DEFAULT_MAX_DECOMPRESSED_BYTES + 16 * MIB


@pytest.mark.alone
@pytest.mark.parametrize("name", AT_REST)
def test_a_segment_at_rest_too(name, measured):
    found = measured(AT_REST, limit=LIMIT_SMALL, profile="log")[name]
    assert found["rule"] == "S8"
    assert found["growth"] <= 24 * MIB


@pytest.mark.alone
@pytest.mark.parametrize("name", BY_PACKAGES)
def test_the_packages_provider_holds_the_bytes_twice(name, measured):
    found = measured(BY_PACKAGES, limit=LIMIT_SMALL, provider="packages")[name]
    assert found["growth"] <= 2 * LIMIT_SMALL + 16 * MIB


@pytest.mark.alone
def test_each_frame_gets_what_the_ones_before_it_left():
    """Use seven of 8 MiB in the first zstd frame: the second must not get eight more."""
    value = varint(128 * MIB)
    start = varint(128 * MIB + 5 + len(value)) + b"\0\0\0\x01" + value
    payload = compress(4, start + bytes(7 * MIB)) + compress(4, bytes(121 * MIB) + b"\0")
    data = batch(b"", 1, 4, payload=payload)
    alone = measure(
        batch(b"", 1, 4, payload=compress(4, start + bytes(7 * MIB))),
        limit=LIMIT_SMALL,
        provider="packages",
    )
    found = measure(data, limit=LIMIT_SMALL, provider="packages")
    assert found["rule"] == "S8"
    assert found["growth"] <= alone["growth"] + 6 * MIB


def test_the_limit_is_what_refuses():
    data = bomb("zstd", True, 1 << 22)
    assert measure(data)["rule"] is None
    assert measure(data, limit=1 << 20)["rule"] == "S8"


@pytest.mark.alone
@pytest.mark.parametrize("mode", ["strict", "kafka"])
def test_claimed_lengths_buy_no_memory(mode):
    growths = dict(
        zip(
            CLAIMS,
            [found["growth"] for found in measure_each(CLAIMS.values(), mode=mode)],
            strict=True,
        )
    )
    assert {name: growth for name, growth in growths.items() if growth > MIB} == {}


@pytest.mark.parametrize("provider", compression.PROVIDERS)
@pytest.mark.parametrize("name", CLAIMS)
def test_claimed_lengths_are_refused(name, provider):
    before = compression.provider()
    compression.use(provider)
    try:
        assert int(LogValidator().check(CLAIMS[name], now_ms=0).error_code) not in (0, -1)
    finally:
        compression.use(before)

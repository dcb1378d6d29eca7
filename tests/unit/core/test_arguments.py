"""A wrong argument is a BatchvalError that says what is wrong, the value and what is allowed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from batchval.core import claims
from batchval.core.batches.batch import RecordBatch
from batchval.core.batches.columns import scan_batches
from batchval.core.batches.validator import LogValidator
from batchval.core.claims import BatchClaims
from batchval.core.fetched import walk_fetched
from batchval.errors import BatchvalError
from batchval.protocol.apis import APIS, ApiKey
from batchval.segment.search_window import follow, resynchronise
from batchval.types import NEWEST_PRODUCE_VERSION, AppendOrigin
from tests.support.batches import NOW, batch

DATA = batch()
STRICT: Any = LogValidator()  # Any: what a type checker would find is passed on purpose
AT_REST: Any = LogValidator(profile="log")
CRC = int.from_bytes(DATA[17:21], "big")

#: every call that takes a number or an origin, by what it takes
CALLS: dict[str, tuple[Callable[..., Any], set[str]]] = {
    "check": (
        lambda **to: STRICT.check(DATA, **{"now_ms": NOW, **to}),
        {"now_ms", "origin", "produce_version", "first_offset", "leader_epoch", "to_magic"},
    ),
    "validate": (
        lambda **to: STRICT.validate(DATA, **{"now_ms": NOW, **to}),
        {"now_ms", "origin", "produce_version", "first_offset", "leader_epoch", "to_magic"},
    ),
    "check_ranges": (
        lambda **to: STRICT.check_ranges(DATA, **{"now_ms": NOW, **to}),
        {"now_ms", "origin", "produce_version", "first_offset", "leader_epoch", "to_magic"},
    ),
    "validate_messages_and_assign_offsets": (
        lambda **to: STRICT.validate_messages_and_assign_offsets(DATA, **{"now_ms": NOW, **to}),
        {"now_ms", "origin", "first_offset", "leader_epoch", "to_magic"},
    ),
    "check_produce_request": (
        lambda **to: STRICT.check_produce_request([DATA], **{"now_ms": NOW, **to}),
        {"now_ms", "produce_version"},
    ),
    "scan_produce_request": (
        lambda **to: STRICT.scan_produce_request([DATA], **to),
        {"produce_version"},
    ),
    "check_request": (lambda **to: STRICT.check_request(DATA, **to), {"produce_version"}),
    "analyze": (lambda **to: STRICT.analyze(DATA, **to), {"origin", "leader_epoch"}),
    "at rest": (lambda **to: AT_REST.check(DATA, **to), {"now_ms", "origin", "leader_epoch"}),
    "check_batches": (lambda **to: AT_REST.check_batches(DATA, **to), {"position"}),
    "rejudge_at_rest": (
        lambda **to: AT_REST.rejudge_at_rest(DATA, **{"position": 0, **to}),
        {"position"},
    ),
    "LogValidator": (LogValidator, {"max_decompressed_bytes"}),
    "compute": (lambda **to: claims.compute(DATA, **to), {"max_decompressed_bytes"}),
    "scan_batches": (lambda **to: scan_batches(DATA, **to), {"position"}),
    "resynchronise": (lambda **to: resynchronise(DATA, **to), {"position"}),
    "follow": (lambda **to: follow(DATA, **{"largest": 1 << 20, **to}), {"largest"}),
    "RecordBatch": (lambda **to: RecordBatch(DATA, **to), {"position"}),
    "walk_fetched": (
        lambda **to: walk_fetched(DATA, **to),
        {"fetch_offset", "max_decompressed_bytes"},
    ),
    "to_tag": (lambda **to: claims.to_tag(BatchClaims(NOW, 1, 2), **{"crc": CRC, **to}), {"crc"}),
    "from_tag": (lambda **to: claims.from_tag(bytes(18), **{"crc": CRC, **to}), {"crc"}),
}
OF_NO_INT = [
    1.5,
    float(NOW),
    True,
    False,
    "1",
    b"1",
    [1],
    np.float64(1),
    np.array([1, 2]),
    np.True_,
    object(),
]
OUT_OF_RANGE = {
    "now_ms": [2**63, -(2**63) - 1, 10**5000],
    "first_offset": [2**63, -(2**63) - 1],
    "leader_epoch": [2**31, -(2**31) - 1, 2**64],
    "produce_version": [-1, NEWEST_PRODUCE_VERSION + 1, 99, 2**16 + 9, 2**64],
    "to_magic": [-1, 3, 2**32],
    "max_decompressed_bytes": [-1, 2**64],
    "position": [-1, len(DATA) + 1, 2**64],
    "crc": [-1, 2**32],
    "largest": [2**63],
    "fetch_offset": [2**63, -(2**63) - 1],
}
IN_RANGE: dict[str, list[Any]] = {
    "now_ms": [0, NOW, -5, 2**63 - 1, -(2**63), np.int64(NOW), 2**30, 2**60],
    "first_offset": [0, 2**62, np.int64(5)],
    "leader_epoch": [0, -1, 2**31 - 1],
    "produce_version": [0, 9, NEWEST_PRODUCE_VERSION, np.int8(3)],
    "to_magic": [2],
    "max_decompressed_bytes": [1 << 20, 2**62 - 1],
    "largest": [0, 1 << 30],
    "fetch_offset": [0, 2**62],
    "position": [0],
    "crc": [0, CRC, 2**32 - 1],
    "origin": ["CLIENT", AppendOrigin.REPLICATION, *AppendOrigin.__members__],
}
TAKING = [(call, name) for call, (_, names) in CALLS.items() for name in sorted(names)]


@pytest.mark.parametrize(("call", "name"), TAKING)
def test_what_is_not_a_whole_number(call: str, name: str) -> None:
    ask = CALLS[call][0]
    for value in OF_NO_INT:
        with pytest.raises(BatchvalError, match=name) as caught:
            ask(**{name: value})
        assert isinstance(caught.value, TypeError | ValueError), value
        if name != "origin":
            assert isinstance(caught.value, TypeError), value


# a position that is outside is not a mistake for it: it starts at the nearest one
FORGIVING = ("resynchronise", "position")


@pytest.mark.parametrize(
    ("call", "name"), [one for one in TAKING if one[1] in OUT_OF_RANGE and one != FORGIVING]
)
def test_numbers_out_of_range(call: str, name: str) -> None:
    ask = CALLS[call][0]
    for value in OUT_OF_RANGE[name]:
        with pytest.raises(BatchvalError, match=name) as caught:
            ask(**{name: value})
        assert isinstance(caught.value, ValueError)
        assert len(str(caught.value)) < 200


@pytest.mark.parametrize(("call", "name"), TAKING)
def test_what_is_in_range(call: str, name: str) -> None:
    for value in IN_RANGE[name]:
        CALLS[call][0](**{name: value})


def test_numbers_reach_the_verdict() -> None:
    """Each way to read an int: one digit, two, more, and another type's."""
    for offset in (0, 5, 2**29, 2**30, 2**31, 2**59, 2**60, 2**62, np.int64(2**40)):
        assert STRICT.check(DATA, now_ms=NOW, first_offset=offset).next_offset == offset + 1
    for late in (2**60, 2**62):
        assert not STRICT.check(DATA, now_ms=-late).ok


@pytest.mark.parametrize("origin", [0, 2, 3, 3.0, None, "BROKER", "client", b"CLIENT", [], {}])
def test_origins_that_are_none(origin: Any) -> None:
    for call, (ask, names) in CALLS.items():
        if "origin" in names:
            with pytest.raises(BatchvalError, match="origin must be one of REPLICATION") as caught:
                ask(origin=origin)
            assert isinstance(caught.value, ValueError if isinstance(origin, str) else TypeError), (
                call
            )


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "no time": (lambda: STRICT.check(DATA), r"now_ms is required \(milliseconds since the epoch\)"),
    "seconds": (
        lambda: STRICT.check(DATA, now_ms=1.7e9),
        r"now_ms must be a whole number of milliseconds from -2\^63 to 2\^63 - 1, "
        r"not 1700000000.0 \(float\)",
    ),
    "extras of Kafka": (
        lambda: LogValidator(mode="kafka", extras={"S1": "report"}),
        r"extras cannot be combined with mode='kafka'",
    ),
    "a clock": (lambda: LogValidator(clock_ns=5), "clock_ns must be a function"),
    "a policy": (lambda: LogValidator({}), "policy must be a TopicPolicy"),
    "a mode": (lambda: LogValidator(mode=[]), "mode must be strict or kafka"),
    "ranges": (
        lambda: STRICT.check_ranges(DATA, [(0, 1), (0.5, 1)], now_ms=NOW),
        r"start of range 1 must be a whole number from .*, not 0.5 \(float\)",
    ),
    "far ranges": (
        lambda: STRICT.check_ranges(DATA, [(0, 2**70)], now_ms=NOW),
        r"length of range 0 must be a whole number from -2\^63 to 2\^63 - 1, not 1180591",
    ),
    "ranges of one number": (
        lambda: STRICT.check_ranges(DATA, [(0,)], now_ms=NOW),
        r"range 0 must be a pair \(start, length\), not \(0,\)",
    ),
    "no ranges": (lambda: STRICT.check_ranges(DATA, 5, now_ms=NOW), "ranges must be"),
    "policies": (
        lambda: STRICT.check_ranges(DATA, policies=5, now_ms=NOW),
        "policies must be a TopicPolicy, or one for each range, not 5",
    ),
    "policies of partitions": (
        lambda: STRICT.check_produce_request([DATA], 5, now_ms=NOW),
        "policies must be a TopicPolicy, or one for each partition, not 5",
    ),
    "claims of partitions": (
        lambda: STRICT.check_produce_request([DATA], now_ms=NOW, claims=5),
        "claims must be one",
    ),
    "partitions": (lambda: STRICT.scan_produce_request(5), "partitions must be"),
    "a source": (
        lambda: STRICT.validate_messages_and_assign_offsets(DATA, now_ms=NOW, source=[]),
        "source must be none, gzip",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_messages(name: str) -> None:
    call, message = WRONG[name]
    with pytest.raises(BatchvalError, match=message) as caught:
        call()
    assert isinstance(caught.value, TypeError | ValueError)


def test_extras_of_kafkas_mode_that_say_nothing() -> None:
    assert LogValidator(mode="kafka", extras={}) == LogValidator(mode="kafka")
    assert LogValidator(mode="kafka").with_policy(STRICT.policy) == LogValidator(
        STRICT.policy, mode="kafka"
    )


def test_the_newest_produce_version_is_the_protocols() -> None:
    assert APIS[ApiKey.PRODUCE].max_version == NEWEST_PRODUCE_VERSION

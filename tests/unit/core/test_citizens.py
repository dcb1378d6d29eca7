"""Results and validators can be pickled, copied and compared, by another process too."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

from batchval.core import claims
from batchval.core.batches.result import (
    RecordValidationStats,
    RejectedBatch,
    ValidationResult,
    _restored,
)
from batchval.core.batches.validator import LogValidator
from batchval.core.claims import BatchClaims
from batchval.errors import ArgumentValueError, BatchvalError
from batchval.ledger import ClaimsCounts, ClaimsLedger
from batchval.policy import ClaimsPolicy, TopicPolicy
from tests.support.batches import LZ4, NOW, ZSTD, batch, record, records

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
GOOD = batch(records(3), codec=LZ4)
NINES = b"\x09" * 80  # a batch that fails the whole request
KEYLESS = batch([record(i, key=None) for i in range(3)])
COMPACTED = TopicPolicy(cleanup_policy="compact")
CLOCKED = LogValidator(
    TopicPolicy(compression_type="zstd"), extras={"S2": "report"}, clock_ns=time.monotonic_ns
)
TRUE = claims.compute(GOOD)
assert TRUE is not None
TAG = claims.to_tag(TRUE, int.from_bytes(GOOD[17:21], "big"))


def in_place() -> ValidationResult:
    return LogValidator().validate(bytearray(GOOD), now_ms=NOW, first_offset=7, in_place=True)


RESULTS: dict[str, Callable[[], ValidationResult]] = {
    "accepted": lambda: LogValidator().check(GOOD, now_ms=NOW),
    "in place": in_place,
    "rebuilt": lambda: CLOCKED.validate(
        GOOD + b"junk", now_ms=NOW, first_offset=100, leader_epoch=3
    ),
    "reported": lambda: CLOCKED.check(GOOD + b"junk", now_ms=NOW),
    "refused": lambda: LogValidator().check(batch(crc=1), now_ms=NOW),
    "record errors": lambda: LogValidator(COMPACTED).check(KEYLESS, now_ms=NOW),
    "empty": lambda: LogValidator().check(b"", now_ms=NOW),
    "trusted": lambda: LogValidator().check(GOOD, now_ms=NOW, claims=(TAG, "trust")),
    "honest": lambda: LogValidator().check(GOOD, now_ms=NOW, claims=(TAG, "verify")),
    "a stage": lambda: LogValidator().analyze(GOOD),
    "at rest": lambda: LogValidator(profile="log").check(GOOD[:-1]),
    "a whole request": lambda: LogValidator().check_produce_request([GOOD, NINES], now_ms=NOW)[0],
}
VALIDATORS = [
    LogValidator(),
    LogValidator(mode="kafka", kafka_version="3.9"),
    LogValidator(profile="log"),
    CLOCKED,
    LogValidator(COMPACTED, extras={"S1": "report", "S3": "refuse"}, max_decompressed_bytes=99),
]


def public(result: ValidationResult) -> dict[str, Any]:
    """Every public field; ``output`` as bytes."""
    names = [name for name in dir(result) if not name.startswith("_") and name != "raise_for_error"]
    fields = {name: getattr(result, name) for name in names}
    return fields | {"output": None if result.output is None else bytes(result.output)}


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_comes_back_whole(name: str) -> None:
    result = RESULTS[name]()
    twins = [pickle.loads(pickle.dumps(result, protocol)) for protocol in PROTOCOLS]
    for twin in [*twins, copy.copy(result), copy.deepcopy(result)]:
        assert public(twin) == public(result)
        assert twin == result
        assert hash(twin) == hash(result)
        assert repr(twin) == repr(result)
        if not result.ok:
            with pytest.raises(RejectedBatch) as caught:
                twin.raise_for_error()
            assert caught.value.result == result


def test_results_are_equal_if_all_their_fields_are() -> None:
    # the clock of "rebuilt" goes on
    made = {name: make() for name, make in RESULTS.items() if name != "rebuilt"}
    for name, result in made.items():
        assert [other for other in made if made[other] == result] == [name]
        assert result == RESULTS[name]()
    assert made["accepted"] != "accepted"
    offsets = [LogValidator().check(GOOD, now_ms=NOW, first_offset=offset) for offset in (0, 0, 1)]
    assert (offsets[0] == offsets[1], offsets[0] == offsets[2]) == (True, False)
    assert len(set(offsets)) == 2


def test_a_copy_no_longer_looks_at_the_buffer() -> None:
    own = bytearray(GOOD)
    result = LogValidator().validate(own, now_ms=NOW, in_place=True)
    twins = [copy.deepcopy(result), pickle.loads(pickle.dumps(result))]
    assert isinstance(result.output, memoryview)
    before = bytes(own)
    own[30:] = bytes(len(own) - 30)
    for twin in twins:
        assert twin.output == before
        assert twin != result


def states() -> list[Any]:
    pickled: Any = LogValidator().check(batch(crc=1), now_ms=NOW).__reduce__()
    good: dict[str, Any] = pickled[1][0]
    verdict: dict[str, Any] = good["verdict"]
    wrong: list[Any] = [
        None,
        [],
        {},
        {**good, "output": "text"},
        {**good, "text": 5},
        {**good, "errors": [(1, 2)]},
    ]
    wrong += [{**good, "errors": [(0, 35, NOW)] * 1001}, {**good, "errors": [(0, 999, NOW)]}]
    wrong += [
        {name: value for name, value in good.items() if name != "now"},
        {**good, "now": 2**70},
    ]
    numbers = {
        "path": 99,
        "claims": 200,
        "reason": 9999,
        "source": 7,
        "rule": 999,
        "error_code": 500,
    }
    wrong += [{**good, "verdict": {**verdict, name: value}} for name, value in numbers.items()]
    wrong += [{**good, "verdict": {**verdict, "reason": -1}}]
    wrong += [
        {**good, "verdict": {name: value for name, value in verdict.items() if name != "meters"}}
    ]
    return wrong


@pytest.mark.parametrize("state", states(), ids=lambda state: str(state)[-60:])
def test_other_states_are_refused(state: Any) -> None:
    with pytest.raises(BatchvalError, match="not a pickled ValidationResult"):
        _restored(state)


@pytest.mark.parametrize("validator", VALIDATORS, ids=repr)
def test_a_validator_comes_back_with_its_settings(validator: LogValidator) -> None:
    twins = [pickle.loads(pickle.dumps(validator, protocol)) for protocol in PROTOCOLS]
    for twin in [
        *twins,
        copy.copy(validator),
        copy.deepcopy(validator),
        validator.with_policy(validator.policy),
    ]:
        assert twin == validator
        assert hash(twin) == hash(validator)
        assert repr(twin) == repr(validator)
        if validator.profile == "produce":
            assert public(twin.check(GOOD + b"junk", now_ms=NOW)) == public(
                validator.check(GOOD + b"junk", now_ms=NOW)
            )
    assert [other for other in VALIDATORS if other == validator] == [validator]
    assert validator != "a validator"


@pytest.mark.parametrize(
    "value",
    [
        COMPACTED,
        TopicPolicy.from_kafka_config({"compression.type": "gzip", "compression.gzip.level": "9"}),
        ClaimsPolicy.parse("audit:0.01"),
        BatchClaims(NOW, 3, 2),
        RecordValidationStats(10, 3, None),
        ClaimsCounts(batches=3),
    ],
    ids=repr,
)
def test_values_come_back(value: Any) -> None:
    for twin in [pickle.loads(pickle.dumps(value, p)) for p in PROTOCOLS] + [
        copy.copy(value),
        copy.deepcopy(value),
    ]:
        assert type(twin) is type(value)
        assert twin == value
        assert hash(twin) == hash(value)


@pytest.mark.parametrize("take", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_ledger_stays_where_it_is(take: Callable[[Any], Any]) -> None:
    ledger = ClaimsLedger(ClaimsPolicy.parse("audit:0.5"), secret=b"s" * 16)
    with pytest.raises(BatchvalError, match="cannot be pickled or copied") as caught:
        take(ledger)
    assert isinstance(caught.value, TypeError)
    assert "ssss" not in str(caught.value)


# ---- in one line ---------------------------------------------------------------------------------


def test_reprs() -> None:
    assert repr(LogValidator(TopicPolicy(compression_type="lz4"), extras={"S1": "report"})) == (
        "LogValidator(TopicPolicy(compression_type='lz4'), mode='strict', profile='produce', "
        "extras={'S1': 'report'}, max_decompressed_bytes=67108864, clock_ns=None, "
        "kafka_version='4.4.0')"
    )
    assert eval(repr(VALIDATORS[-1])) == VALIDATORS[-1]
    assert repr(TopicPolicy()) == "TopicPolicy()"
    assert (
        repr(RESULTS["trusted"]())
        == "<ValidationResult ok path=claims records=3 reports=[] claims=trusted>"
    )
    assert (
        repr(RESULTS["reported"]()) == "<ValidationResult ok path=rebuilt records=3 reports=['S2']>"
    )
    assert (
        repr(in_place())
        == f"<ValidationResult ok path=shallow records=3 reports=[] output={len(GOOD)} bytes>"
    )
    assert repr(RESULTS["refused"]()).startswith(
        "<ValidationResult CORRUPT_MESSAGE rule=14 crc-mismatch: Record is corrupt"
    )


# ---- in a worker process -------------------------------------------------------------------------


def judge(validator: LogValidator, data: bytes) -> ValidationResult:
    return validator.validate(data, now_ms=NOW, first_offset=40)


def validate_or_raise(validator: LogValidator, data: bytes) -> None:
    validator.check(data, now_ms=NOW).raise_for_error()


def ask_wrongly(validator: LogValidator) -> None:
    validator.check(b"", now_ms=NOW, produce_version=-1)


def test_workers_return_and_raise_them() -> None:
    """Spawned, so that nothing is inherited: all that the workers know was pickled."""
    validator = LogValidator(TopicPolicy(compression_type="lz4"))
    batches = [GOOD, b"", batch(crc=1), batch(records(2), codec=ZSTD)]
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        results = list(pool.map(judge, [validator] * len(batches), batches))
        raised = [pool.submit(validate_or_raise, validator, data).exception() for data in batches]
        mistake = pool.submit(ask_wrongly, validator).exception()
    assert results == [judge(validator, data) for data in batches]
    assert [result.ok for result in results] == [True, False, False, True]
    assert [None if error is None else type(error) for error in raised] == [
        None,
        RejectedBatch,
        RejectedBatch,
        None,
    ]
    for error, data in zip(raised, batches, strict=True):
        if isinstance(error, RejectedBatch):
            assert error.result == validator.check(data, now_ms=NOW)
    assert isinstance(mistake, ArgumentValueError)
    assert "produce_version" in str(mistake)

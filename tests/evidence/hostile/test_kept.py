"""fixtures/hostile: what fuzzing has found once, in every mode, under both providers."""

import json
from pathlib import Path

import pytest

from batchval.cli.cases import compare, read_cases
from batchval.core.batches.validator import LogValidator
from batchval.errors import ErrorCode
from tests.evidence.hostile.buffers import buffer_of, exact, guarded
from tests.evidence.hostile.differential import Setup
from tests.evidence.hostile.targets import TARGETS, replay

HERE = Path(__file__).parents[3] / "fixtures" / "hostile"
BATCHES = list(read_cases([HERE / "batches.jsonl"]))
STREAMS = [json.loads(line) for line in (HERE / "streams.jsonl").read_text().splitlines()]


def test_they_are_few_and_small():
    assert sum(path.stat().st_size for path in HERE.iterdir()) <= 300 * 1024
    assert len({case["id"] for case in BATCHES}) == len(BATCHES) > 50
    assert {case["target"] for case in [*BATCHES, *STREAMS]} <= set(TARGETS)


@pytest.mark.parametrize("case", BATCHES, ids=lambda case: case["id"])
def test_kafka_s_answer(case, provider):
    assert compare(case) == []


@pytest.mark.parametrize("case", BATCHES, ids=lambda case: case["id"])
def test_every_target_s_promises(case, provider):
    found = []
    for target in {"differential", "core_entry_points", "providers", "files", case["target"]}:
        found += replay({"target": target, "cfg": case["cfg"], "batch_hex": case["batch_hex"]})
    assert found == []


@pytest.mark.parametrize("case", BATCHES, ids=lambda case: case["id"])
def test_no_mode_answers_minus_one_but_kafka_s(case, provider):
    setup = Setup.of(case["cfg"])
    log = LogValidator(setup.policy, profile="log")
    for place in (exact, guarded, buffer_of):
        results = [
            setup.strict.check(place(case["batch"]), now_ms=setup.cfg["now"]),
            log.check(place(case["batch"])),
        ]
        assert ErrorCode.UNKNOWN_SERVER_ERROR not in [result.error_code for result in results]
        whole = [(0, len(case["batch"]))]
        row = setup.strict.check_ranges(place(case["batch"]), whole, now_ms=setup.cfg["now"])
        assert int(row["error_code"][0]) == int(results[0].error_code)


@pytest.mark.parametrize("case", STREAMS, ids=lambda case: case["batch_hex"][:16])
def test_a_stream_is_decoded_as_its_library_does(case):
    assert replay(case) == []

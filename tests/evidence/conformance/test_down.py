"""down_convert against Kafka 3.9's down-conversion and consumer: see down.py."""

from collections import Counter
from dataclasses import replace

import pytest

from batchval.core.convert.down_conversion import down_convert
from tests.evidence.conformance import down
from tests.support.batches import NONE, batch, message, records

pytestmark = pytest.mark.jvm


def agree(seed: int, cases: int) -> Counter[str]:
    counted: Counter[str] = Counter()
    assert list(down.disagreements(seed, cases, counted)) == []
    known = sum(counted[name] for name in down.KNOWN.values())
    assert counted["agree"] + known == counted["cases"] == cases
    assert known < cases / 100
    return counted


@pytest.mark.long
def test_fresh_answers_are_converted_as_kafka_does(kafka):
    counted = agree(7, 2000)
    assert counted["damaged"] == 500
    assert counted["records"] > 10_000
    assert counted["with aborted transactions"] > 100
    assert 20 < counted["both refuse"] < 250


@pytest.mark.slow
def test_a_hundred_thousand_answers(kafka):
    agree(20251125, 100_000)


def test_a_difference_is_found(kafka):
    """Change a record or a byte in what Kafka reads back: the comparison fails."""
    data = batch(records(3), codec=NONE)
    output = down_convert(data, 1).output
    wrong = {
        output: "",
        output[:-1]
        + b"!": "1700000000000 true, theirs batch 1 none CreateTime 2 1700000000000 false",
        output + message(1, offset=3): "Kafka's is the end",
        output[:-26]: "theirs the end",
    }
    cases = [down.Case(0, 1, 0, False, data, data, ours, 3, "", [], [0, 1, 2]) for ours in wrong]
    for (case, kafkas), seen in zip(down.answers(cases), wrong.values(), strict=True):
        assert seen in down.compare(case, kafkas)
        alike = kafkas._replace(difference="")
        assert down.compare(case, alike) == ("the messages have other bytes" if seen else "")
        if not seen:
            assert "Kafka counts 3" in down.compare(replace(case, records=2), alike)
            assert "consumer reads [0, 1, 2]" in down.compare(
                replace(case, committed=[0, 1]), alike
            )

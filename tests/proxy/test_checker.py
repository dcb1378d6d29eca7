"""The checker catches what it is for, before anything is believed that it does not find."""

from __future__ import annotations

import random

import pytest

from tests.support.record_checker import Checker, value_of

COUNT = 100_000


def history() -> tuple[Checker, list[tuple[str, int, int, bytes]]]:
    """A hundred thousand records of four producers in six partitions, all acknowledged, and the log as it should be."""
    rng = random.Random(3)
    checker = Checker()
    ends: dict[tuple[str, int], int] = {}
    log = []
    for number in range(COUNT):
        producer, topic, partition = rng.randrange(4), rng.choice("ab"), rng.randrange(3)
        offset = ends.get((topic, partition), 0)
        ends[topic, partition] = offset + 1
        checker.sent[producer, number] = (topic, partition)
        checker.acknowledged[producer, number] = (topic, partition, offset)
        log.append((topic, partition, offset, value_of(producer, number, topic, partition, 60)))
    return checker, log


def shifted(log, topic, partition, from_offset, by):
    return [(t, p, o + by if (t, p) == (topic, partition) and o > from_offset else o, v) for t, p, o, v in log]


@pytest.fixture(scope="module")
def recorded():
    return history()


def test_nothing_is_found_where_nothing_is(recorded):
    checker, log = recorded
    assert checker.findings(log) == []


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("fault", ["lost", "doubled", "reordered", "moved", "damaged", "unknown"])
def test_one_in_a_hundred_thousand_is_found(recorded, fault, seed):
    checker, log = recorded
    rng = random.Random(seed)
    at = rng.randrange(10, COUNT - 1000)
    topic, partition, offset, value = log[at]
    if fault == "lost":
        broken = shifted(log[:at] + log[at + 1 :], topic, partition, offset, -1)
    elif fault == "doubled":
        broken = shifted(log, topic, partition, offset, 1)
        broken.insert(at + 1, (topic, partition, offset + 1, value))
    elif fault == "reordered":
        producer = value.split(b" ")[0]
        other = next(
            i for i in range(at + 1, COUNT) if log[i][:2] == (topic, partition) and log[i][3].split(b" ")[0] == producer
        )
        broken = list(log)
        broken[at] = (*log[at][:3], log[other][3])
        broken[other] = (*log[other][:3], value)
    elif fault == "moved":
        other = next(i for i in range(at + 1, COUNT) if log[i][0] != topic)
        broken = list(log)
        broken[at] = (*log[at][:3], log[other][3])
        broken[other] = (*log[other][:3], value)
    elif fault == "damaged":
        broken = list(log)
        broken[at] = (*log[at][:3], b"9" + value)
    else:
        broken = [*log, ("a", 0, 10**6, value_of(7, 1, "a", 0))]
    found = checker.findings(broken)
    assert any(finding.startswith(fault) for finding in found), found[:3]


def test_what_was_not_acknowledged_may_be_there_once_or_not_at_all(recorded):
    checker, log = recorded
    lenient = Checker(dict(checker.acknowledged), checker.sent)
    producer, number = map(int, log[-1][3].split(b" ")[:2])
    del lenient.acknowledged[producer, number]
    assert lenient.findings(log) == []
    assert lenient.findings(log[:-1]) == []
    assert lenient.findings([*log, (*log[-1][:2], log[-1][2] + 1, log[-1][3])])

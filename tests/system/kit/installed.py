"""batchval judges the cases of batchval-fixtures through its pytest plugin.

Named to be run alone, where the plugin is loaded: by test_cases.py, and by tools/dist.py with the
installed package.
"""

from __future__ import annotations

import pytest
from batchval_fixtures import Case

from batchval import LogValidator, TopicPolicy


@pytest.mark.kafka_cases("broker")
def test_broker(kafka_case: Case) -> None:
    validator = LogValidator(TopicPolicy.from_kafka_config(kafka_case.topic), mode="kafka")
    result = validator.validate(kafka_case.batch, **kafka_case.append)
    assert (result.ok, None if result.ok else result.error_code.name) == (
        kafka_case.accept,
        kafka_case.error,
    )


@pytest.mark.kafka_cases("reader")
def test_reader(kafka_case: Case) -> None:
    assert LogValidator(profile="log").check(kafka_case.batch, now_ms=0).ok == kafka_case.accept

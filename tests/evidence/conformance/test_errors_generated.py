"""batchval/errors.py holds Kafka's own error codes, and its generator can tell."""

import json

import pytest

from batchval.errors import RETRIABLE, ErrorCode
from tools import generate_errors

pytestmark = pytest.mark.jvm


@pytest.fixture(scope="module")
def errors(kafka):
    return [json.loads(line) for line in kafka.run("errors").splitlines()]


def test_every_code_of_kafka_is_there(errors):
    assert {e["name"]: e["code"] for e in errors} == {e.name: int(e) for e in ErrorCode}


def test_retriable_as_kafka_says(errors):
    assert {e["name"] for e in errors if e["retriable"]} == {e.name for e in RETRIABLE}
    assert {e["name"]: e["retriable"] for e in errors} == {e.name: e.retriable for e in ErrorCode}


def test_file_is_what_the_generator_writes(errors):
    text = generate_errors.TARGET.read_text("utf-8")
    assert generate_errors.renewed(text, errors) == text


def test_generator_notices_a_code_that_is_not_there(errors):
    text = generate_errors.TARGET.read_text("utf-8")
    assert generate_errors.renewed(text, errors[:-1]) != text

"""Whole produce requests before the append: our codes are those of Kafka's classes, for every
mixture of partitions.
"""

import itertools
import json
import random

import pytest

from batchval.core.batches.validator import LogValidator
from tests.evidence.conformance.test_corpus import SAMPLE

pytestmark = pytest.mark.jvm

GOOD = next(c for c in SAMPLE if c["family"] == "valid_v2" and c["expect"]["request"].get("ok"))[
    "batch"
]
TRANSACTIONAL = next(
    c["batch"]
    for c in SAMPLE
    if len(c["batch"]) > 61 and c["batch"][16] == 2 and c["batch"][22] & 0x10
)
EDGES = [
    GOOD,
    TRANSACTIONAL,
    b"",
    GOOD[:8] + (13).to_bytes(4, "big") + GOOD[12:],
    GOOD[:8] + (2**31 - 12).to_bytes(4, "big") + GOOD[12:],
    GOOD[:16] + b"\x03" + GOOD[17:],
    GOOD[:22] + b"\x06" + GOOD[23:],
    GOOD + GOOD[:8] + (2**31 - 12).to_bytes(4, "big") + GOOD[12:],
    GOOD + GOOD[:8] + (13).to_bytes(4, "big") + GOOD[12:],
]
REQUESTS = 3000


def requests():
    """Return every pair of edges under both request versions, then random mixtures of cases."""
    for version, *pair in itertools.product((3, 9), EDGES, EDGES):
        yield version, pair
    rng = random.Random(12)
    small = [case["batch"] for case in SAMPLE if len(case["batch"]) < 4096]
    for _ in range(REQUESTS):
        several = [
            rng.choice(EDGES) if rng.random() < 0.1 else rng.choice(small)
            for _ in range(rng.randint(1, 5))
        ]
        yield rng.choice((3, 6, 7, 9, 12)), several


def before_the_append(validator, version, partitions):
    """Return the codes of the whole request's scan, else of each partition's own check."""
    refused = validator.scan_produce_request(partitions, produce_version=version)
    if refused is not None:
        return [int(result.error_code) for result in refused]
    return [
        int(validator.check_request(records, produce_version=version).error_code)
        for records in partitions
    ]


def test_codes_are_kafkas(kafka, tmp_path):
    made = list(requests())
    lines = [
        {"produce_version": version, "partitions": [p.hex() for p in several]}
        for version, several in made
    ]
    questions = tmp_path / "requests.jsonl"
    questions.write_text("".join(json.dumps(line) + "\n" for line in lines))
    kafka.run("produce", str(questions), str(tmp_path / "answers.jsonl"))
    answers = [
        json.loads(line)["codes"] for line in (tmp_path / "answers.jsonl").read_text().splitlines()
    ]
    validator = LogValidator(mode="kafka")
    ours = [before_the_append(validator, version, several) for version, several in made]
    assert [i for i, pair in enumerate(zip(ours, answers, strict=True)) if pair[0] != pair[1]] == []
    whole = [
        codes
        for codes in answers
        if len(codes) > 1 and len(set(codes)) == 1 and codes[0] in (-1, 2)
    ]
    assert len(whole) > 200

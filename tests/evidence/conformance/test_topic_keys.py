"""TopicPolicy knows Kafka's topic configuration keys, their defaults and the ranges of the
levels.
"""

import dataclasses
import json

import pytest

from batchval.errors import BatchvalError
from batchval.policy import KAFKA_TOPIC_KEYS, TopicPolicy

pytestmark = pytest.mark.jvm

LEVELS = ("compression.gzip.level", "compression.lz4.level", "compression.zstd.level")


@pytest.fixture(scope="module")
def keys(kafka):
    return {line["name"]: line for line in map(json.loads, kafka.run("topic-keys").splitlines())}


def takes(key, value):
    try:
        TopicPolicy.from_kafka_config({key: value})
    except BatchvalError:
        return False
    return True


def test_every_key_of_kafka_is_known(keys):
    assert set(keys) == KAFKA_TOPIC_KEYS


def test_defaults_are_kafkas(keys):
    own = {field.name.replace("_", "."): field.default for field in dataclasses.fields(TopicPolicy)}
    for name in ("accept.claims.header", "record.rules"):  # batchval has these alone
        del own[name]
    assert {key: keys[key]["default"].strip("[]") for key in own} == {
        key: str(value) for key, value in own.items()
    }


@pytest.mark.parametrize("key", LEVELS)
def test_levels_have_kafkas_range(keys, key):
    bounds, _, other = keys[key]["allowed"].partition(" or ")
    low, high = (int(bound) for bound in bounds.strip("[]").split(",...,"))
    assert [takes(key, value) for value in (low - 1, low, high, high + 1)] == [
        False,
        True,
        True,
        False,
    ]
    assert takes(key, -1) == (other == "-1" or low <= -1)
    assert not takes(key, low - 3)

"""Old requests against record rules, schema registries and custom rules: asked of what the message
sets hold, and answered in the old form.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator

import pytest

from batchval import RecordRules, TopicPolicy
from batchval.custom_rules import CustomRule
from batchval.protocol.messages.produce import ProduceRequest
from batchval.proxy.kit.rule_budget import BudgetedRule
from batchval.proxy.settings.glob_policies import RegistryIds, TopicRules
from batchval.proxy.settings.options import TopicPolicies
from batchval.proxy.settings.record_settings import CustomRules
from batchval.record_rules import SchemaIds
from batchval.schema_registry import RegistryClient, SubjectIds
from tests.support.batches import GZIP, message, wrapper
from tests.support.old_produce import old_answer, old_produce
from tests.support.proxy import connected_gate, read_frame
from tests.unit.schema_registry.scripted import ScriptedRegistry

NOW = int(time.time() * 1000)
BRIDGE = ("producers",)
INVALID_RECORD = 87


def of(schema_id: int) -> bytes:
    return b"\0" + struct.pack(">i", schema_id) + b"text" * 30


def messages(*values: bytes, codec: int = 0, magic: int = 1) -> bytes:
    inner = [message(magic, offset=n, timestamp=NOW, value=value) for n, value in enumerate(values)]
    return wrapper(inner, codec, magic, timestamp=NOW) if codec else b"".join(inner)


def answered(policies: TopicPolicies, *sets: bytes, mode: str = "enforce") -> tuple[list[int], int]:
    """Return the codes of one request with these partitions, and how many the broker got."""
    with connected_gate(policies=policies, bridge=BRIDGE, mode=mode) as (broker, _, sock):
        sock.sendall(old_produce(1, 7, *(("ruled", n, one) for n, one in enumerate(sets)), acks=1))
        found = old_answer(read_frame(sock), 1)
        requests = [
            ProduceRequest.parse(frame)[1] for frame in broker.frames if frame[:2] == b"\0\0"
        ]
    sent = [part for one in requests for topic in one.topic_data for part in topic.partition_data]
    return [found.partitions["ruled", n][0] for n in range(len(sets))], len(sent)


@pytest.fixture
def registry() -> Iterator[ScriptedRegistry]:
    with ScriptedRegistry() as running:
        running.subjects = {"ruled-value": {1: 7}}
        yield running


@pytest.mark.parametrize("codec", [0, GZIP])
@pytest.mark.parametrize("magic", [0, 1])
def test_record_rules(codec: int, magic: int) -> None:
    policy = TopicPolicy(
        record_rules=RecordRules(SchemaIds(ids=frozenset({7})), max_value_bytes=200)
    )
    policies = TopicPolicies(TopicPolicy(), {"ruled": policy})
    good = messages(of(7), of(7), codec=codec, magic=magic)
    bad = messages(of(7), of(9), codec=codec, magic=magic)
    assert answered(policies, good, bad) == ([0, INVALID_RECORD], 1)
    assert answered(policies, good, bad, mode="observe") == ([0, 0], 2)


def test_a_registry_is_asked_before_a_set_is_refused(registry: ScriptedRegistry) -> None:
    registry.subjects["ruled-value"][2] = 8
    subjects = SubjectIds(RegistryClient(registry.url, timeout_s=5.0), absent_s=60.0, retry_s=0.2)
    by_registry = RegistryIds(0, subjects, "{topic}-value", False)
    rules = RecordRules(SchemaIds(ids=frozenset()))
    policies = TopicPolicies(rules={"ruled": TopicRules(rules, [by_registry])})
    try:
        assert answered(policies, messages(of(7)), messages(of(8)), messages(of(9))) == (
            [0, 0, INVALID_RECORD],
            2,
        )
    finally:
        subjects.close()
    assert set(registry.asked) == {f"/schemas/ids/{n}/versions" for n in (7, 8, 9)}


@pytest.mark.parametrize("codec", [0, GZIP])
@pytest.mark.parametrize("magic", [0, 1])
def test_custom_rules(codec: int, magic: int) -> None:
    own = CustomRule(
        "own:rule",
        lambda columns: [
            (row, "bad") for row in range(len(columns)) if b"bad" in columns.value(row)
        ],
    )
    policies = TopicPolicies(
        rules={"ruled": TopicRules(custom_rules=(BudgetedRule(own, CustomRules().budget),))}
    )
    good, bad = (messages(value, b"x", codec=codec, magic=magic) for value in (b"good", b"bad"))
    assert answered(policies, good, bad) == ([0, INVALID_RECORD], 1)
    assert answered(policies, good, bad, mode="observe") == ([0, 0], 2)

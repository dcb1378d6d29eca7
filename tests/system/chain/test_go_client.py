"""franz-go sees through the gate what it sees without it, line by line; the gate is who refuses."""

from __future__ import annotations

import pytest

from tests.support import go
from tests.system.chain.conftest import GO_MOD, both_ways
from tests.system.interop.kafka_broker import KafkaBroker

pytestmark = pytest.mark.jvm


def test_each_line_is_the_same(broker: KafkaBroker) -> None:
    program = str(go.built(GO_MOD.parent))
    direct, gated, gate = both_ways(broker, lambda *args: [program, *args], "go")
    assert gated == direct
    assert gated["node"] == "true"
    assert gated["codecs read"].startswith("100 records")
    assert gated["committed"].startswith("10 records")
    assert gated["group goes on at"] == "60"
    assert gated["too large zstd true"].startswith("MESSAGE_TOO_LARGE")
    assert gated["no key none false"].startswith("INVALID_RECORD")
    assert gated["-50 hours none true"].startswith("INVALID_TIMESTAMP")
    assert gated["what is there"] == "6"
    refused = {(refusal.topic, refusal.error) for refusal in gate.refusals if refusal.enforced}
    assert refused == {
        ("gogated-small", "MESSAGE_TOO_LARGE"),
        ("gogated-compact", "INVALID_RECORD"),
        ("gogated-fresh", "INVALID_TIMESTAMP"),
    }

"""sarama sees through the gate what it sees without it, line by line; the gate is who refuses."""

from __future__ import annotations

import pytest

from tests.support import go
from tests.system.chain.conftest import HERE, both_ways
from tests.system.interop.kafka_broker import KafkaBroker

pytestmark = pytest.mark.jvm

SOURCE = HERE / "sarama"


@pytest.fixture(scope="module")
def program() -> str:
    return str(go.built(SOURCE))


@pytest.mark.parametrize("version", ["4.3.1", pytest.param("2.1.0", marks=pytest.mark.slow)])
def test_each_line_is_the_same(broker: KafkaBroker, program: str, version: str) -> None:
    # With the newest protocol that sarama knows, and with one of 2018.
    prefix = f"sarama{version[0]}"
    direct, gated, gate = both_ways(broker, lambda *args: [program, *args, version], prefix)
    assert gated == direct
    assert gated["node"] == "true"
    assert gated["codecs read"].startswith("100 records")
    assert gated["idempotent"].startswith("30 records")
    assert "out of order" not in gated
    assert gated["committed"].startswith("10 records")
    assert gated["group"] == "from 60 on 40"
    for how in ("none false", "none true", "zstd false", "zstd true"):
        assert gated[f"too large {how}"] == "error 10"
        assert gated[f"no key {how}"] == "error 87"
        assert gated[f"-50 hours {how}"] == gated[f"50 hours {how}"] == "error 32"
        assert gated[f"and goes on {how}"].startswith("accepted")
    assert gated["what is there"].startswith("4 records")
    refused = {(refusal.topic, refusal.error) for refusal in gate.refusals if refusal.enforced}
    assert refused == {
        (f"{prefix}gated-small", "MESSAGE_TOO_LARGE"),
        (f"{prefix}gated-compact", "INVALID_RECORD"),
        (f"{prefix}gated-fresh", "INVALID_TIMESTAMP"),
    }

"""The Java clients see through the gate what they see without it, line by line; the gate is who
refuses.
"""

from __future__ import annotations

import re

import pytest

from tests.support.proxy import RunningProxy
from tests.system.chain.conftest import both_ways
from tests.system.interop.kafka_broker import KafkaBroker, java_command

pytestmark = pytest.mark.jvm

SOURCE = "tests/system/chain/java/Client.java"


@pytest.fixture(scope="module")
def seen(broker: KafkaBroker) -> tuple[dict[str, str], dict[str, str], RunningProxy]:
    return both_ways(broker, lambda *args: java_command(SOURCE, *args, heap="256m"))


def test_each_line_is_the_same(seen: tuple[dict[str, str], dict[str, str], RunningProxy]) -> None:
    direct, gated, _ = seen
    assert {line: wordless(text) for line, text in gated.items()} == {
        line: wordless(text) for line, text in direct.items()
    }
    assert len(direct) > 30


def wordless(text: str) -> str:
    """Return an exception's class: the text about a timestamp or a size is the gate's own."""
    return re.sub(r"(Exception): [^=}]*", r"\1", text)


def test_the_run_was_what_it_was_meant_to_be(
    seen: tuple[dict[str, str], dict[str, str], RunningProxy],
) -> None:
    _, gated, _ = seen
    assert gated["nodes"].endswith("strangers 0")
    assert gated["codecs read"].startswith("100 records")
    assert gated["committed"].startswith("10 records")
    assert gated["classic group goes on"] == gated["consumer group goes on"] == "at 60"
    assert gated["out"].startswith("10 records")
    assert gated["its commit"] == "fails"
    assert gated["the next one"].startswith("1 records")
    assert gated["nothing of it"].startswith("0 records")
    assert "RecordTooLargeException" in gated["too large zstd (idempotent)"]
    assert "InvalidRecordException" in gated["no key none (idempotent)"]
    assert "InvalidTimestampException" in gated["-50 hours none"]
    assert "InvalidTimestampException" in gated["50 hours zstd"]
    assert gated["what is there"].startswith("20 records")


def test_the_gate_refused(seen: tuple[dict[str, str], dict[str, str], RunningProxy]) -> None:
    *_, gate = seen
    rules = {(refusal.topic, refusal.error) for refusal in gate.refusals if refusal.enforced}
    assert ("gated-small", "MESSAGE_TOO_LARGE") in rules
    assert ("gated-compact", "INVALID_RECORD") in rules
    assert ("gated-fresh", "INVALID_TIMESTAMP") in rules
    assert {topic for topic, _ in rules} == {"gated-small", "gated-compact", "gated-fresh"}

"""``python -m demo.two_brokers`` measures, and says what it needs where it cannot."""

from __future__ import annotations

import pytest

from demo import two_brokers
from tests.system.interop.kafka_broker import ToolMissing


def test_it_says_what_it_needs_without_java(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_java() -> str:
        raise ToolMissing("Kafka 4.4.0 needs Java 17 or newer: no java found")

    monkeypatch.setattr(two_brokers, "find_java", no_java)
    assert two_brokers.main([]) == 1
    out = capsys.readouterr().out
    assert "It needs a JDK 17 or newer, and Maven" in out
    assert "no java found" in out


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--codecs", "lzma"], "invalid codec 'lzma': expected gzip, snappy, lz4, zstd"),
        (["--rounds", "0"], "invalid --rounds 0: expected more than 0"),
    ],
)
def test_options_that_cannot_be_are_refused(
    words: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        two_brokers.arguments(words)
    assert error in capsys.readouterr().err


@pytest.mark.jvm
@pytest.mark.slow
def test_both_brokers_are_measured_and_the_counters_are_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert two_brokers.main(["--codecs", "zstd", "--rounds", "2", "--seconds", "1"]) == 0
    out = capsys.readouterr().out
    lines = {line.split("  ")[0]: line.split() for line in out.splitlines() if line.strip()}
    assert float(lines["zstd, a batch"][-1]) > 0
    counters = {
        words[0]: int(words[1].replace(",", "")) for words in lines.values() if len(words) == 2
    }
    assert counters["Trusted"] > counters["Verified"] >= 100
    assert counters["Honest"] == counters["Verified"]
    assert counters["Lying"] == counters["Demotions"] == 0

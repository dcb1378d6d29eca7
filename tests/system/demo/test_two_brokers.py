"""``python -m demo.two_brokers`` measures, and says what it needs where it cannot."""

from __future__ import annotations

import pytest

from demo import two_brokers
from tests.system.interop.kafka_java import BrokerError, ToolMissing


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


def test_another_failure_is_not_blamed_on_java(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_: object) -> None:
        raise BrokerError("the broker was not ready within 300 s\n[2026-11-30] last line")

    monkeypatch.setattr(two_brokers.Demo, "start", slow)
    monkeypatch.setattr(two_brokers, "find_java", lambda: "java")
    monkeypatch.setattr(two_brokers, "java_version", lambda _: 17)
    assert two_brokers.main([]) == 1
    out = capsys.readouterr().out
    assert "The demo ends: the broker was not ready within 300 s\n[2026-11-30] last line" in out
    assert "JDK" not in out


def test_columns_and_ratio_agree_where_the_pace_is_not_kept() -> None:
    """Both brokers were sent half of the load, the stock one in rounds twice as long."""

    def run(us: float, cores: float) -> dict[str, object]:
        return {"batches": 100, "bytes": 2e6, "us": {"broker": us}, "cores": {"broker": cores}}

    samples = {"gzip": {two_brokers.STOCK: [run(1000, 0.3)], two_brokers.AGENT: [run(500, 0.3)]}}
    made = two_brokers.table_of(samples, mb=20)
    cells = [list(column.cells) for column in made.columns]
    assert cells[0] == ["gzip, a batch", "gzip, of one core at 20 MB/s"]
    assert cells[1:] == [["1,000 µs", "100%"], ["500 µs", "50%"], ["0.50", ""]]


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

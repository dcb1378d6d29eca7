"""The cost of claims in the Java producer, tiny. No time is asserted: each variant did its part."""

from __future__ import annotations

import pytest

from tests.support.benches import ROOT, run

COST = ROOT / "bench" / "claims" / "producer_cost.py"


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.parametrize(("option", "ratios"), [((), 3), (("--schema-ids",), 5)])
def test_each_codec_has_a_line_with_a_ratio_of_each_variant(
    option: tuple[str, ...], ratios: int
) -> None:
    tiny = ("--jvms", "1", "--rounds", "1", "--records", "300", "--codecs", "none,lz4,zstd,gzip")
    done = run(COST, *tiny, *option)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()[3:]]
    assert [line[0] for line in lines] == ["none", "lz4", "zstd", "gzip"]
    assert all(line.count("to") == ratios for line in lines)


def test_only_whole_results_are_saved() -> None:
    for wrong in (
        ("--write", "--schema-ids"),
        ("--write", "--jvms", "2", "--rounds", "3"),
        ("--codecs", "brotli"),
        ("--rounds", "0"),
    ):
        done = run(COST, *wrong)
        assert done.returncode == 2
        assert "error: " in done.stderr

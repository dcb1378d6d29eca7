"""The table of LogValidator with claims, tiny. No time is asserted."""

from __future__ import annotations

import pytest

from bench import runs
from tests.support.benches import ROOT, run

BENCH = ROOT / "bench" / "claims" / "broker_validator.py"


def test_the_interval_is_that_of_a_median() -> None:
    # of 30 values the 10th and the 21st, of 20 the 6th and the 15th: P(X <= 9) is 0.021 of 30
    assert runs.interval([float(n) for n in range(30, 0, -1)]) == (10, 21)
    assert runs.interval([float(n) for n in range(1, 21)]) == (6, 15)
    assert runs.interval([2.0, 1.0, 3.0]) == (1, 3)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--codecs", "none"], "invalid codec 'none': expected zstd, gzip, snappy, lz4"),
        (["--rounds", "0"], "invalid number '0': expected a whole number of at least 1"),
        (["--write", "--rounds", "19"], "--write needs all codecs and at least 20 rounds"),
    ],
)
def test_wrong_options_are_named(options: list[str], complaint: str) -> None:
    done = run(BENCH, *options)
    assert done.returncode == 2
    assert complaint in done.stderr


@pytest.mark.jvm
@pytest.mark.slow
def test_each_codec_has_a_row() -> None:
    done = run(BENCH, "--rounds", "2", "--ms", "1", "--codecs", "lz4,gzip")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[3:]] == ["lz4", "gzip"]
    assert all(line.count("1/") + line.count("0.") + line.count("1.") > 3 for line in lines[3:])

"""Honest batches are answered the same with claims as without: golden cases here, a hundred
thousand in test-full.
"""

from collections import Counter
from pathlib import Path

import pytest

from batchval.core.batches.columns import scan_batches
from tests.evidence.conformance import claims_path

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
GOLDEN = sorted((FIXTURES / "golden").rglob("cases.jsonl"))


def test_golden_cases(provider):
    counts, found = claims_path.compared(claims_path.lines(GOLDEN))
    assert found == []
    assert counts["  by the claims path"] > 15
    assert counts["honest, and refused, rebuilt or uncompressed"] > 50


def test_batches_that_clients_sent(provider):
    """Restore the base offset as sent (no checksum covers it) in a real broker's batches."""
    cases = []
    for path in sorted((FIXTURES / "segments").rglob("*.log")):
        data = path.read_bytes()
        for row in scan_batches(data).rows():
            whole = data[row["position"] : row["position"] + row["size_in_bytes"]]
            cases.append(
                {
                    "id": f"{path.parent.name} {row['position']}",
                    "batch_hex": (bytes(8) + whole[8:]).hex(),
                }
            )
    counts, found = claims_path.compared(cases)
    assert found == []
    assert counts["  by the claims path"] > 30


def test_a_difference_is_seen(monkeypatch):
    """Change an answer: the comparison must report it."""
    case = next(
        c
        for c in claims_path.lines(GOLDEN)
        if claims_path.differences(c, counts := Counter()) == [] and counts["  by the claims path"]
    )
    real = claims_path.compute
    monkeypatch.setattr(claims_path, "compute", lambda data: real(data)._replace(null_keys=9))
    assert any(
        "path shallow, not claims" in line for line in claims_path.differences(case, Counter())
    )
    assert any("claims lying" in line for line in claims_path.differences(case, Counter()))


@pytest.mark.slow
def test_fresh_cases(kafka, tmp_path):
    total = Counter()
    for seed in range(13):
        fresh = tmp_path / "fresh.jsonl"
        kafka.run("generate", "--seed", str(seed), "--cases", "50000", str(fresh))
        counts, found = claims_path.compared(claims_path.lines([fresh]))
        assert found == []
        total += counts
    assert total["honest, compressed, in place"] > 100_000

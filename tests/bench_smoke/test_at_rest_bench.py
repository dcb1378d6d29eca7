"""The bench of audits by claims, tiny. No time is asserted."""

from __future__ import annotations

import json

from tests.support.benches import ROOT, run

BENCH = ROOT / "bench" / "claims" / "at_rest.py"
FIGURES = ["headers", "claims, 0.5 verified", "claims, none of them drawn", "every record"]


def test_each_way_to_read_a_segment_has_a_row() -> None:
    done = run(BENCH, "--json", "--mb", "1", "--rounds", "1", "--rate", "0.5")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [(row["codec"], row["figures"]) for row in rows] == [
        (c, f) for c in ("zstd", "gzip") for f in FIGURES
    ]
    assert all(row["us_a_batch"] > 0 and row["gb_a_cpu_second"] > 0 for row in rows)
    assert [row["of_headers"] for row in rows][::4] == [1, 1]

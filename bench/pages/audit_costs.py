"""Compute the cost of validating a batch, from kept bench results: batchval/audit/costs.json.

    python -m bench.pages.audit_costs [--check]

For each codec and way, nanoseconds are a * batches + b * records + c * bytes (as stored), a, b and
c not below 0, fitted to the relative error over the bench's cells of magic 2. So the sum
for a whole hour needs the three sums only, not the single batches. ``within`` is the largest
distance of a cell from its fit. ``cpu_s_a_gb`` is measured with batches of 100 records of 1,000
bytes, per 10^9 bytes as stored. Kafka's times are its best iterations, so the real saving is
higher. ``engines`` has the cost of a task and of a GB of an audit (bench/spark/engines.py).
"""

from __future__ import annotations

import itertools
import json
import math
import sys
from typing import Any

import numpy as np

import bench.pages as place
from bench.validation import batches, cells
from tools import generated_files

COSTS = place.ROOT / "batchval" / "audit" / "costs.json"
#: bench -> what costs.json says of its run, besides date, commit and processor
SOURCES = {"validation": "kafka", "claims": "kafka", "audit-engines": "batches"}
#: way -> (bench, the name of its time there, which of its times)
WAYS = {
    "kafka": ("validation", "kafka", "best_us"),  # Kafka's own LogValidator, in place
    "shallow": ("validation", "native check_ranges", "us"),  # every record walked here
    "claims": ("claims", "claims_ranges", "us"),  # header, CRC and claims
    "header": ("validation", "native scan_batches", "us"),  # header and CRC alone
}
MIDDLE = (100, 1000)


def fit(cases: list[tuple[int, int, float]]) -> dict[str, float]:
    """Fit three coefficients to (records, bytes, ns) of one batch each; include the largest
    deviation.
    """
    times = np.array([ns for _, _, ns in cases])
    matrix = np.array([[1.0, records, size] for records, size, _ in cases]) / times[:, None]
    best: tuple[float, np.ndarray] | None = None
    for count in range(1, 4):
        for chosen in itertools.combinations(range(3), count):
            found = np.linalg.lstsq(matrix[:, chosen], np.ones(len(cases)), rcond=None)[0]
            if (found < 0).any():
                continue
            whole = np.zeros(3)
            whole[list(chosen)] = found
            error = float(((matrix @ whole - 1) ** 2).sum())
            if best is None or error < best[0] - 1e-12:
                best = error, whole
    assert best is not None
    ratios = matrix @ best[1]
    names = ("ns_a_batch", "ns_a_record", "ns_a_byte")
    return dict(zip(names, (float(f"{x:.4g}") for x in best[1]), strict=True)) | {
        "within": math.ceil(100 * max(ratios.max(), 1 / ratios.min())) / 100
    }


def costs() -> dict[str, Any]:
    """Return the content of costs.json."""
    found = {name: place.read(name) for name in SOURCES}
    answer: dict[str, Any] = {"made_by": "bench/pages/audit_costs.py", "sources": {}, "ways": {}}
    for name, own in SOURCES.items():
        answer["sources"][f"bench/results/{name}.json"] = {
            key: found[name]["machine"][key] for key in ("date", "commit", "processor", own)
        }
    for way, (bench, key, which) in WAYS.items():
        answer["ways"][way] = {}
        for codec in cells.CODECS:
            cases = []
            for cell in cells.cells():
                timed = found[bench]["times"].get(cell.name, {}).get(key)
                if cell.codec == codec and timed is not None:
                    cases.append(
                        (cell.records, len(batches.build(cell)), timed[which] * 1000, cell)
                    )
            if not cases:
                continue  # without compression there is nothing that claims would save
            middle = next(
                ns / size
                for _, size, ns, cell in cases
                if (cell.records, cell.value_size) == MIDDLE
            )
            fitted = fit([(records, size, ns) for records, size, ns, _ in cases])
            answer["ways"][way][codec] = fitted | {"cpu_s_a_gb": float(f"{middle:.4g}")}
    answer["engines"] = {
        engine: {
            way: {name: cost[name] for name in ("cpu_s_a_task", "cpu_s_a_gb")}
            for way, cost in ways.items()
        }
        for engine, ways in found["audit-engines"]["engines"].items()
    }
    return answer


if __name__ == "__main__":
    sys.exit(generated_files.run({COSTS: json.dumps(costs(), indent=1) + "\n"}))

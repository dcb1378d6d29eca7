"""``python tests/evidence/hostile/keep.py FILE...``: makes findings of fuzz runs regression inputs
of fixtures/hostile.

Reads the reproducers that fuzz.py wrote. Of each kind of finding (its text without the numbers)
the three shortest inputs are kept. Batches get Kafka's own answers, from
tests/evidence/conformance/oracle.py (a JDK and Maven), so that
``batchval conformance fixtures/hostile`` can hold ours against them; raw streams need none.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

HERE = Path(__file__).parents[3] / "fixtures" / "hostile"
STREAMS = ("inflate", "snappy")
_EACH = 3
_MAX_CASE_BYTES = 2048
_OUTPUT = ("out_hex", "out_head_hex", "out_batches", "out_batch_count")  # what no comparison asks


def _kind(finding: dict[str, Any]) -> str:
    return finding["target"] + ": " + re.sub(r"-?\d+", "N", str(finding["what"][0]))[:100]


def _chosen(paths: list[Path]) -> list[dict[str, Any]]:
    kinds: dict[str, dict[str, dict[str, Any]]] = {}
    for path in paths:
        for line in path.read_text("utf-8").splitlines():
            finding = json.loads(line)
            if 0 < len(finding["batch_hex"]) <= 2 * _MAX_CASE_BYTES:
                kinds.setdefault(_kind(finding), {})[finding["batch_hex"]] = finding
    return [
        finding
        for kind in sorted(kinds)
        for finding in sorted(
            kinds[kind].values(), key=lambda f: (len(f["batch_hex"]), f["batch_hex"])
        )[:_EACH]
    ]


def _with_answers(findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    from tests.evidence.conformance import oracle

    asked = [
        {
            "id": hashlib.sha256(json.dumps([f["cfg"], f["batch_hex"]]).encode()).hexdigest()[:12],
            "family": "hostile",
            "kafka": "4.4.0",
            "target": f["target"],
            "broke": f["what"][0],
            "cfg": {k: v for k, v in f["cfg"].items() if k != "origin" or v != "CLIENT"},
            "batch_hex": f["batch_hex"],
        }
        for f in findings
    ]
    answered = oracle.answer(asked)
    for case, answer in zip(asked, answered, strict=True):
        case["expect"] = answer["expect"]
        for name in _OUTPUT:
            case["expect"].get("validate", {}).pop(name, None)
    return asked


def _add(path: Path, cases: list[dict[str, Any]]) -> int:
    old = (
        [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
    )
    known = {case["batch_hex"] for case in old}
    new = [case for case in cases if case["batch_hex"] not in known]
    text = "".join(json.dumps(case, separators=(",", ":")) + "\n" for case in [*old, *new])
    path.write_text(text, encoding="utf-8")
    return len(new)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="+")
    findings = _chosen(parser.parse_args().files)
    HERE.mkdir(parents=True, exist_ok=True)
    batches = _with_answers([f for f in findings if f["target"] not in STREAMS])
    streams = [
        {"target": f["target"], "broke": f["what"][0], "batch_hex": f["batch_hex"]}
        for f in findings
        if f["target"] in STREAMS
    ]
    print(
        _add(HERE / "batches.jsonl", batches),
        "batches,",
        _add(HERE / "streams.jsonl", streams),
        "streams",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

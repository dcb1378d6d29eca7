"""Compare the claims path with the strict slow path: on honest batches they must not differ in
anything.

    python tests/evidence/conformance/claims_path.py FILE...             over files of cases
    python tests/evidence/conformance/claims_path.py --seed S --cases N  over fresh ones

Each case of magic 2 is judged as it is, and with the claims that are true of it in both carriers,
trusted, verified and ignored; under its own configuration, and once more under Kafka's defaults and
a clock that shows its max timestamp. Where it may enter compressed and in place, trust must take
the claims path unless the claims settle nothing, which is counted. Prints differences, then the
counts; exit code 0 only without a difference and with something to compare, 3 without a JDK
or Maven.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from batchval.cli.cases import policy_of  # noqa: E402
from batchval.core.batches.validator import LogValidator  # noqa: E402
from batchval.core.claims import BatchClaims, attach, compute, to_tag  # noqa: E402
from batchval.policy import TopicPolicy  # noqa: E402
from tests.evidence.conformance import oracle  # noqa: E402

NO_JDK = 3
CARRIERS = ("tag", "header")
SAME = (
    "ok",
    "error_code",
    "rule",
    "record_errors",
    "reports",
    "next_offset",
    "max_timestamp",
    "records_count",
)
SAME_IN_PLACE = (
    "output",
    "append_time",
    "in_place",
    "size_maybe_changed",
    "converted",
    "valid_bytes",
    "source",
)


def lines(paths: Iterable[Path]) -> Iterator[dict[str, Any]]:
    for path in paths:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            yield from map(json.loads, file)


def is_one_batch(data: bytes) -> bool:
    return len(data) >= 61 and data[16] == 2 and int.from_bytes(data[8:12], "big") + 12 == len(data)


def settle_nothing(claims: BatchClaims, data: bytes, cfg: dict[str, Any], carrier: str) -> str:
    """Return why true claims do not settle an acceptable batch; empty if they must.

    A tag has the longest record's size, a header of magic 3 (version 1) has not.
    """
    if data[22] & 8:
        return "the LogAppendTime bit"
    if claims.batch_min_timestamp < 0:
        return "a record without timestamp"
    if cfg.get("compact", False) and claims.null_keys != 2:
        return "a compacted topic"
    if carrier == "header" and cfg.get("max_record_body", 2**31) < 64 << 20:
        return "a bound on record bodies"
    if cfg.get("ts_type") != "LogAppendTime" and cfg.get("now", 0) < 0:
        return "a clock before 1970"
    if cfg.get("origin", "CLIENT") != "CLIENT":
        return "no client"
    return ""


def differences(case: dict[str, Any], counts: Counter[str]) -> list[str]:
    """Return one line for each answer that claims changed, for the case and in an ordinary
    topic.
    """
    data = bytes.fromhex(case["batch_hex"])
    counts["cases"] += 1
    if not is_one_batch(data):
        return []
    claims = compute(data)
    if claims is None:
        counts["no claims would be true"] += 1
        return []
    ordinary = {"now": max(0, int.from_bytes(data[35:43], "big", signed=True))}
    found = asked(case, data, claims, case.get("cfg", {}), counts)
    return found + asked(case, data, claims, ordinary, counts)


def asked(
    case: dict[str, Any],
    data: bytes,
    claims: BatchClaims,
    cfg: dict[str, Any],
    counts: Counter[str],
) -> list[str]:
    policy = policy_of(cfg)
    validator, carrying = LogValidator(policy), LogValidator(_accepting(policy))
    call = {
        name: cfg[name]
        for name in ("origin", "produce_version", "first_offset", "leader_epoch")
        if name in cfg
    }
    call |= {"now_ms": cfg.get("now", 0), "to_magic": cfg.get("to_magic", 2)}
    slow = validator.validate(data, **call)
    tag, carried = to_tag(claims, int.from_bytes(data[17:21], "big")), attach(data, claims)
    in_place = slow.ok and slow.path == "shallow" and slow.in_place
    why_not = {
        carrier: settle_nothing(claims, data, cfg, carrier) if in_place else "not in place"
        for carrier in CARRIERS
    }
    found = []
    for word in ("trust", "verify", "ignore"):
        for carrier in CARRIERS:
            if carrier == "tag":
                quick = validator.validate(data, claims=(tag, word), **call)
            else:
                quick = carrying.validate(carried, claims=(None, word), **call)
            names = SAME + (
                SAME_IN_PLACE if carrier == "tag" else ("output", "append_time", "source")
            )
            found += [
                f"{case.get('id')} {carrier} {word}: {name} {getattr(quick, name)!r}, without {getattr(slow, name)!r}"
                for name in names
                if getattr(quick, name) != getattr(slow, name)
            ]
            path = "claims" if word == "trust" and not why_not[carrier] else slow.path
            if quick.path != path:
                found.append(
                    f"{case.get('id')} {carrier} {word}: path {quick.path}, not {path} "
                    f"({why_not[carrier]})"
                )
            answers = {
                "ignore": (None,),
                "verify": ("honest", "unjudged"),
                "trust": ("trusted", "honest", "unjudged"),
            }
            expected = (
                ("honest",)
                if word == "verify" and slow.ok and slow.path in ("shallow", "full")
                else answers[word]
            )
            if quick.claims not in expected:
                found.append(
                    f"{case.get('id')} {carrier} {word}: claims {quick.claims}, not {expected}"
                )
    if in_place:
        counts["honest, compressed, in place"] += 1
        why = why_not["header"]
        counts[f"  settled nothing: {why}" if why else "  by the claims path"] += 1
    else:
        counts["honest, and refused, rebuilt or uncompressed"] += 1
    return found


def _accepting(policy: TopicPolicy) -> TopicPolicy:
    return dataclasses.replace(policy, accept_claims_header=True)


def compared(cases: Iterable[dict[str, Any]]) -> tuple[Counter[str], list[str]]:
    counts: Counter[str] = Counter()
    found = [line for case in cases for line in differences(case, counts)]
    return counts, found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--cases", type=int, default=0, help="number of fresh cases, in addition to the files"
    )
    options = parser.parse_args()
    counts, found = compared(lines(options.files))
    with tempfile.TemporaryDirectory() as folder:
        if options.cases:
            fresh = Path(folder) / "fresh.jsonl"
            try:
                oracle.run(
                    "generate",
                    "--seed",
                    str(options.seed),
                    "--cases",
                    str(options.cases),
                    str(fresh),
                )
            except oracle.OracleUnavailable as error:
                print(f"claims path: {error}", file=sys.stderr)
                return NO_JDK
            more, differing = compared(lines([fresh]))
            counts, found = counts + more, found + differing
    for line in found:
        print(line)
    for name, count in counts.items():
        print(f"{count:9,} {name}")
    print(f"claims path: {len(found)} differences")
    return int(bool(found) or not counts["honest, compressed, in place"])


if __name__ == "__main__":
    sys.exit(main())

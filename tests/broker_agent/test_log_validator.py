"""Kafka's LogValidator and a real log with the agent of ``broker/`` loaded, in 3.9, 4.1 and 4.4.

The sender of a case chooses the policy. A case without one is asked as without the agent, in the
same JVM: its answer is stock Kafka's.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batchval.core.claims import BatchClaims, attach, compute, to_tag
from tests.conformance import corpus, oracle
from tests.conformance.claims_path import is_one_batch
from tests.support.jvm_agents import broker_agent

pytestmark = pytest.mark.jvm

FILES = {**corpus.VERSION_FILES, "4.4": corpus.FILE}
GOLDEN = sorted((Path(__file__).resolve().parents[2] / "fixtures" / "golden").rglob("cases.jsonl"))
OPTIONS = "rule.1=trust,principal=trust*;rule.2=verify,principal=verify*;rule.3=audit:0.5,principal=audit*"
ZSTD, GZIP = 4, 1
Case = dict[str, Any]


def ask(cases: list[Case], version: str, options: str = OPTIONS) -> list[Case]:
    """The answers of Kafka's classes, with the agent loaded."""
    lines = "".join(json.dumps(case) + "\n" for case in cases).encode()
    jvm = [f"-javaagent:{broker_agent()}={options}"]
    out = oracle.run("answer", "-", "-", stdin=lines, kafka_version=version, jvm=jvm)
    return [json.loads(line)["expect"] for line in out.splitlines()]


def stored(version: str) -> list[Case]:
    """The cases of the corpus with stock Kafka's answers."""
    with gzip.open(FILES[version]) as file:
        cases = [json.loads(line) for line in file]
    return [c for c in cases if "OutOfMemoryError" not in json.dumps(c["expect"])]


def honest(version: str) -> Iterator[tuple[Case, bytes, BatchClaims]]:
    """The cases whose batch has true claims: under their own settings, and under Kafka's defaults."""
    cases = stored(version)
    if version == "4.4":
        for path in GOLDEN:
            cases += [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    for case in cases:
        data = bytes.fromhex(case["batch_hex"])
        claims = compute(data) if is_one_batch(data) and data[22] & 7 else None
        if claims is not None:
            now = max(0, int.from_bytes(data[35:43], "big", signed=True))
            plain = {"id": case["id"], "batch_hex": case["batch_hex"], "cfg": {"now": now}}
            extra = {"kafka_version": version} if version != "4.4" else {}
            yield {"id": case["id"], "batch_hex": case["batch_hex"], "cfg": case["cfg"], **extra}, data, claims
            yield {**plain, **extra}, data, claims


def tag_of(data: bytes, claims: BatchClaims) -> str:
    return to_tag(claims, int.from_bytes(data[17:21], "big")).hex()


def with_sender(case: Case, sender: str, tag: str | None) -> Case:
    cfg = {**case["cfg"], "sender": sender} | ({} if tag is None else {"tag": tag})
    return {**case, "cfg": cfg}


def without_counts(answer: Case) -> Case:
    validate = {name: value for name, value in answer["validate"].items() if name != "claims"}
    return {**answer, "validate": validate}


def counts_of(answer: Case) -> Case:
    return answer["validate"].get("claims", {})


@pytest.mark.parametrize("version", FILES)
def test_honest_claims_change_no_answer_and_no_byte(version: str) -> None:
    asked: list[tuple[Case, str]] = []
    for number, (case, data, claims) in enumerate(honest(version)):
        batches: list[tuple[Case, str | None]] = [(case, tag_of(data, claims))]
        if data[22] & 7 in (ZSTD, GZIP):
            carrying = attach(data, claims, carrier="payload")
            batches.append(({**case, "batch_hex": bytes(carrying).hex()}, None))
        for one, tag in batches:
            asked.append((one, "stock"))
            asked += [(with_sender(one, f"{word}-{number}", tag), word) for word in ("trust", "verify")]
            asked += [(with_sender(one, "audit", tag), "audit"), (with_sender(one, "other", tag), "ignore")]
    answers = ask([case for case, _ in asked], version)
    seen: Counter[str] = Counter()
    stock: Case = {}
    for (case, word), answer in zip(asked, answers, strict=True):
        if word == "stock":
            stock = answer
            continue
        assert without_counts(answer) == without_counts(stock), (case["id"], word, case["cfg"])
        counts = counts_of(answer)
        assert "Lying" not in counts and "Errors" not in counts and "Unbound" not in counts, (case, counts)
        if word == "ignore":
            assert counts == {}, (case["id"], counts)
        seen.update(f"{word} {name}" for name in counts)
        seen[f"{word} accepted"] += bool(answer["validate"].get("ok")) and case["cfg"].get("origin", "CLIENT") == "CLIENT"
    assert seen["trust Trusted"] > seen["trust accepted"] / 2 > 10
    assert seen["trust NotSettled"] > 5
    assert seen["verify Honest"] >= seen["verify accepted"]
    assert seen["audit Verified"] > 10
    print(version, sorted(seen.items()))

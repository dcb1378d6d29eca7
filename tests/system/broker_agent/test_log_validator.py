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
from kafka.record.default_records import DefaultRecordBatchBuilder

from batchval.cli.cases import policy_of
from batchval.core.batches.validator import LogValidator
from batchval.core.claims import BatchClaims, attach, compute, to_tag
from tests.evidence.conformance import corpus, oracle
from tests.evidence.conformance.claims_path import is_one_batch
from tests.support.batches import with_crc
from tests.support.jvm_agents import broker_agent

pytestmark = pytest.mark.jvm

#: releases that the agent knows
FILES = {
    release: file
    for release, file in corpus.RELEASE_FILES.items()
    if not release.startswith(("3.6", "3.7", "3.8"))
}
FILES["4.4.0"] = corpus.FILE
FEW = ("3.9.2", "4.1.2", "4.4.0")
SOME = [
    pytest.param(release, marks=pytest.mark.long if release in FEW else pytest.mark.slow)
    for release in FILES
]
GOLDEN = sorted((Path(__file__).resolve().parents[3] / "fixtures" / "golden").rglob("cases.jsonl"))
OPTIONS = "rule.1=trust,principal=trust*;rule.2=verify,principal=verify*;rule.3=audit:0.5,principal=audit*"
ZSTD, GZIP = 4, 1
Case = dict[str, Any]


def ask(cases: list[Case], version: str, options: str = OPTIONS) -> list[Case]:
    """Return the answers of Kafka's classes with the agent loaded."""
    lines = "".join(json.dumps(case) + "\n" for case in cases).encode()
    jvm = [*oracle.options_for(len(cases)), f"-javaagent:{broker_agent()}={options}"]
    out = oracle.run("answer", "-", "-", stdin=lines, release=version, jvm=jvm)
    return [json.loads(line)["expect"] for line in out.splitlines()]


def stored(version: str) -> list[Case]:
    """Return the cases of the corpus with stock Kafka's answers."""
    with gzip.open(FILES[version]) as file:
        cases = [json.loads(line) for line in file]
    return [c for c in cases if "OutOfMemoryError" not in json.dumps(c["expect"])]


def honest(version: str) -> Iterator[tuple[Case, bytes, BatchClaims]]:
    """Yield the honest cases of the corpus, and for 4.4 the golden ones."""
    cases = stored(version)
    if version == "4.4.0":
        for path in GOLDEN:
            cases += [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return with_claims(cases, version)


def with_claims(cases: list[Case], version: str) -> Iterator[tuple[Case, bytes, BatchClaims]]:
    """Return cases with true claims: with their own settings and with Kafka's defaults."""
    for case in cases:
        data = bytes.fromhex(case["batch_hex"])
        claims = compute(data) if is_one_batch(data) and data[22] & 7 else None
        if claims is not None:
            now = max(0, int.from_bytes(data[35:43], "big", signed=True))
            plain = {"id": case["id"], "batch_hex": case["batch_hex"], "cfg": {"now": now}}
            extra = {"kafka_version": version} if version != "4.4.0" else {}
            yield (
                {"id": case["id"], "batch_hex": case["batch_hex"], "cfg": case["cfg"], **extra},
                data,
                claims,
            )
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


def compare_honest(cases: list[tuple[Case, bytes, BatchClaims]], version: str) -> Counter[str]:
    """Ask each case with its true claims under each policy, and as stock; what was counted."""
    asked: list[tuple[Case, str]] = []
    for number, (case, data, claims) in enumerate(cases):
        batches: list[tuple[Case, str | None]] = [(case, tag_of(data, claims))]
        if data[22] & 7 in (ZSTD, GZIP):
            carrying = attach(data, claims, carrier="payload")
            batches.append(({**case, "batch_hex": bytes(carrying).hex()}, None))
        for one, tag in batches:
            asked.append((one, "stock"))
            asked += [
                (with_sender(one, f"{word}-{number}", tag), word) for word in ("trust", "verify")
            ]
            asked += [
                (with_sender(one, "audit", tag), "audit"),
                (with_sender(one, "other", tag), "ignore"),
            ]
    answers = ask([case for case, _ in asked], version)
    seen: Counter[str] = Counter()
    stock: Case = {}
    for (case, word), answer in zip(asked, answers, strict=True):
        if word == "stock":
            stock = answer
            continue
        assert without_counts(answer) == without_counts(stock), (case["id"], word, case["cfg"])
        counts = counts_of(answer)
        assert not counts.keys() & {"Lying", "Errors", "Unbound"}, (case["id"], counts)
        assert counts == {} or word != "ignore", (case["id"], counts)
        seen.update(f"{word} {name}" for name in counts)
        is_client = case["cfg"].get("origin", "CLIENT") == "CLIENT"
        seen[f"{word} accepted"] += bool(answer["validate"].get("ok")) and is_client
    return seen


@pytest.mark.parametrize("version", SOME)
def test_honest_claims_change_no_answer_and_no_byte(version: str) -> None:
    every = list(honest(version))
    seen = compare_honest(every if version != "4.4.0" else every[::9], version)
    assert seen["trust Trusted"] > seen["trust accepted"] / 2 > 10
    assert seen["trust NotSettled"] > 5
    assert seen["verify Honest"] >= seen["verify accepted"]
    assert seen["audit Verified"] > 10


@pytest.mark.slow
def test_all_honest_claims_of_the_corpus() -> None:
    seen = compare_honest(list(honest("4.4.0")), "4.4.0")
    assert seen["trust Trusted"] > 500


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("version", FILES)
def test_honest_claims_of_fresh_cases(version: str, seed: int, tmp_path: Path) -> None:
    made = tmp_path / "fresh.jsonl"
    oracle.run("generate", "--seed", str(seed), "--cases", "20000", str(made), release=version)
    cases = [json.loads(line) for line in made.read_text("utf-8").splitlines()]
    seen = compare_honest(list(with_claims(cases, version)), version)
    assert seen["trust Trusted"] > 500


@pytest.mark.slow
@pytest.mark.parametrize("version", FILES)
@pytest.mark.parametrize("options", ["policy=ignore", "policy=nothing", OPTIONS])
def test_the_corpus_has_stock_answers(version: str, options: str) -> None:
    """Expect stock answers of patched classes without claims, and of an agent that patches
    nothing.
    """
    cases = stored(version)
    answers = ask(
        [{k: v for k, v in case.items() if k != "expect"} for case in cases], version, options
    )
    for case, answer in zip(cases, answers, strict=True):
        assert answer == case["expect"], case["id"]


def claims_about(data: bytes, kind: int) -> BatchClaims:
    """Return true claims of version 2 or 1 if there are any, else what the header makes likely."""
    claims = compute(data)
    if claims is None or kind == 2:
        base, count = (
            int.from_bytes(data[a:b], "big", signed=True) for a, b in ((27, 35), (57, 61))
        )
        return BatchClaims(base, count, 0, 61 + 200, 30)
    return claims if kind == 0 else BatchClaims(*claims[:3])


@pytest.mark.slow
@pytest.mark.parametrize("version", FILES)
def test_the_comparison_is_the_librarys(version: str) -> None:
    """Compare claims about each compressed batch of the corpus, hostile ones included."""
    cases: list[Case] = []
    expected: list[str | None] = []
    for number, case in enumerate(stored(version)):
        data, cfg, expect = bytes.fromhex(case["batch_hex"]), case["cfg"], case["expect"]
        asked_as_a_broker = (
            cfg.get("origin", "CLIENT") == "CLIENT"
            and cfg.get("source", "auto") == "auto"
            and cfg.get("to_magic", 2) == 2
            and expect["request"].get("ok")
            and expect["analyze"].get("ok")
        )
        if not is_one_batch(data) or not 0 < data[22] & 7 <= ZSTD or not asked_as_a_broker:
            continue
        for kind in range(3):
            tag = tag_of(data, claims_about(data, kind))
            one = {
                name: case[name]
                for name in ("id", "batch_hex", "cfg", "kafka_version")
                if name in case
            }
            cases.append(with_sender(one, f"verify-{number}-{kind}", tag))
            answer = LogValidator(policy_of(cfg), kafka_version=version).check(
                data,
                now_ms=cfg.get("now", 0),
                produce_version=cfg.get("produce_version", 9),
                leader_epoch=cfg.get("leader_epoch", 0),
                first_offset=cfg.get("first_offset", 0),
                claims=(bytes.fromhex(tag), "verify"),
            )
            expected.append(answer.claims)
    found = [sorted(counts_of(answer)) for answer in ask(cases, version)]
    seen: Counter[str] = Counter()
    differ = []
    for case, own, agents in zip(cases, expected, found, strict=True):
        assert own is not None
        seen[own] += 1
        if own.capitalize() not in agents:
            differ.append((case["id"], own, agents))
    assert differ == []
    assert min(seen[word] for word in ("honest", "lying", "unjudged")) > 5


# ---- lies ----------------------------------------------------------------------------------------


def batch_of(codec: int, null_key_at: int | None = None, count: int = 40) -> bytes:
    builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1 << 24)
    for i in range(count):
        builder.append(
            i, 1_700_000_000_000 + i, None if i == null_key_at else b"k", b"value %d" % i * 9, []
        )
    return bytes(builder.build())


#: no value has a schema id
FIELD_1 = ((1, b"\0" + (7).to_bytes(4, "big")),)
LIES: dict[str, dict[str, Any]] = {
    "an earlier minimum": {"batch_min_timestamp": 1_699_999_999_999},
    "a later minimum": {"batch_min_timestamp": 1_700_000_000_001},
    "no key is null": {"null_keys": 2},
    "every key is null": {"null_keys": 1},
    "fewer bytes": {"uncompressed_bytes": 2000},
    "more bytes": {"uncompressed_bytes": 9000},
    "a shorter longest record": {"max_record_bytes": 20},
    "a longer longest record": {"max_record_bytes": 200},
    "schema ids": {"fields": FIELD_1},
}


@pytest.mark.parametrize(
    "version",
    [
        pytest.param(version, marks=() if version == "4.4.0" else pytest.mark.slow)
        for version in FILES
    ],
)
def test_lies_are_found_and_change_no_answer(version: str) -> None:
    """Send each lie in a tag and in a payload: its sender is demoted, Kafka's answer stays."""
    cases: list[Case] = []
    names: list[tuple[str, str]] = []
    cfg = {"now": 1_700_000_000_040}
    extra = {"kafka_version": version} if version != "4.4.0" else {}

    def add(name: str, word: str, data: bytes, sender: str | None, tag: str | None = None) -> None:
        case = {"id": name, "batch_hex": data.hex(), "cfg": cfg, **extra}
        cases.append(case if sender is None else with_sender(case, sender, tag))
        names.append((name, word))

    for codec in (GZIP, 2, 3, ZSTD):
        data = batch_of(codec, null_key_at=7)
        true = compute(data)
        assert true is not None
        for lie, change in LIES.items():
            claims = true._replace(**change)
            name = f"{lie}, codec {codec}"
            add(name, "stock", data, None)
            add(name, "lying", data, f"verify-{name}", tag_of(data, claims))
            # once demoted, an honest batch of the sender is verified although it is trusted
            add(name, "lying", data, f"verify-{name}", tag_of(data, claims))
            if codec in (GZIP, ZSTD):
                carrying = bytes(attach(data, claims, carrier="payload"))
                add(name, "stock", carrying, None)
                add(name, "lying", carrying, f"verify-payload-{name}")
    for name, data, change in broken():
        add(name, "stock", data, None)
        add(name, "lying", data, f"verify-{name}", tag_of(data, change))
    stock: Case = {}
    demoted: set[str] = set()
    for (name, word), case, answer in zip(names, cases, ask(cases, version), strict=True):
        if word == "stock":
            stock = answer
            continue
        assert without_counts(answer) == without_counts(stock), name
        sender = case["cfg"]["sender"]
        first = {} if sender in demoted else {"Demotions": 1}
        demoted.add(sender)
        assert counts_of(answer) == {"Lying": 1, "Verified": 1, **first}, name


def broken() -> Iterator[tuple[str, bytes, BatchClaims]]:
    """Yield batches whose records differ from the claims in ways that Kafka may not check."""
    good = batch_of(ZSTD)
    true = compute(good)
    assert true is not None
    yield "a payload that is none", with_crc(good[:70] + b"?" * 20 + good[90:]), true
    header = good[:26] + b"\x28" + good[27:60] + b"\x29"
    yield "one record more", with_crc(header + good[61:]), true._replace(records_number=41)
    yield "a max timestamp that no record has", with_crc(good[:42] + b"\xff" + good[43:]), true


def test_demotion_and_a_decompression_bomb() -> None:
    """Compare claims that settle nothing, too: one lie demotes, and honest batches are verified.

    A batch of more than max.decompressed.bytes is a lie whatever its claims say (S8), and is
    accepted, since Kafka has no such limit.
    """
    data, larger = batch_of(ZSTD), batch_of(ZSTD, count=41)
    true, true_of_larger = compute(data), compute(larger)
    assert true is not None
    assert true.uncompressed_bytes is not None
    assert true_of_larger is not None
    settings = {"now": 1_700_000_000_040}
    lie = true._replace(null_keys=1)
    asked = [
        ("trust-a", data, settings, true, {"Trusted": 1}),
        (
            "trust-a",
            data,
            {**settings, "compact": True},
            lie,
            {"NotSettled": 1, "Lying": 1, "Demotions": 1},
        ),
        ("trust-a", data, settings, true, {"Verified": 1, "Honest": 1}),
        ("trust-b", data, settings, true, {"Trusted": 1}),
        ("verify-a", data, settings, true, {"Verified": 1, "Honest": 1}),
        ("verify-a", larger, settings, true_of_larger, {"Verified": 1, "Lying": 1, "Demotions": 1}),
        (
            "trust-b",
            larger,
            settings,
            true_of_larger,
            {"NotSettled": 1, "Lying": 1, "Demotions": 1},
        ),
    ]
    cases = [
        with_sender(
            {"id": "x", "batch_hex": batch.hex(), "cfg": cfg}, sender, tag_of(batch, claims)
        )
        for sender, batch, cfg, claims, _ in asked
    ]
    answers = ask(
        cases, "4.4.0", f"{OPTIONS};max.decompressed.bytes={true.uncompressed_bytes - 61}"
    )
    assert [counts_of(answer) for answer in answers] == [counted for *_, counted in asked]
    assert all(answer["validate"]["ok"] for answer in answers)

"""Fresh cases through Kafka's LogValidator and log with the agent of ``broker/`` loaded.

    python tests/evidence/conformance/with_agent.py [--seed S] [--cases N] [--kafka-version 3.9.2]
        [--families PREFIX] [--jobs 2] [--without-append]

Makes cases as `fresh.py` does and asks Kafka's own classes about each, in one JVM: as without the
agent, then with the sender's policy ``ignore``, and, where there are honest claims, ``trust``, with
the case's settings and with Kafka's defaults. All must give the same answer, with the same bytes
and figures. A case without honest claims has a tag that is another's, or claims that are off by
one. Claims are in tags of both versions and in payloads, in turns.

``--without-append`` leaves out the log, which takes most of the time. Rounds of ``ROUND`` cases
have seeds of their own, S, S + 1, ... The last lines count the cases, those that were asked under
each policy and those that ``trust`` settled. Exit code 0 only if all agree, 3 without JDK 17 or
Maven.
"""

from __future__ import annotations

import argparse
import json
import random
import secrets
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from batchval.core.claims import BatchClaims, attach, compute, to_tag  # noqa: E402
from batchval.errors import BatchvalError  # noqa: E402
from batchval.kafka_versions import DEFAULT_KAFKA_VERSION  # noqa: E402
from tests.evidence.conformance import oracle  # noqa: E402
from tests.evidence.conformance.claims_path import is_one_batch  # noqa: E402
from tests.support.jvm_agents import broker_agent  # noqa: E402

ROUND = 10_000
DEFAULT_CASES = 2000
NO_JDK = 3
OPTIONS = "rule.1=trust,principal=trust*"
#: Stages of an answer, and what says how they came together.
PARTS = ("request", "analyze", "validate", "append", "final", "final_code")
_CODECS = 7

Case = dict[str, Any]


class Asked(NamedTuple):
    """One question about a case.

    ``word``: stock (without the agent), the same with Kafka's defaults (stock, plain), ignore or
    trust.
    """

    case: Case
    word: str


class Round(NamedTuple):
    """What came of a round: counts, and a line for each answer that differs."""

    counts: Counter[str]
    differences: list[str]


def questions(cases: list[Case], seed: int) -> Iterator[Asked]:
    """Yield each case three times, or twice where no claims are honest."""
    rng = random.Random(seed)
    for case in cases:
        data = bytes.fromhex(case["batch_hex"])
        true = compute(data) if is_one_batch(data) and data[22] & _CODECS else None
        tag: bytes | None
        asked = case
        if true is not None:
            carrier = rng.choice(("tag", "block", "payload"))
            asked, tag = _carried(case, data, true, carrier)
        elif len(data) >= 21:
            some = rng.choice(
                (true, BatchClaims(rng.randrange(2**40), rng.randrange(9), 2, 200, 20))
            )
            tag = to_tag(some or (0, 1, 2), int.from_bytes(data[17:21], "big") ^ rng.randrange(2))
        else:
            tag = rng.randbytes(rng.randrange(30))
        yield Asked(asked, "stock")
        yield Asked(_sent(asked, "ignore", tag), "ignore")
        if true is None:
            continue
        yield Asked(_sent(asked, "trust", tag), "trust")
        # most cases have settings under which claims settle nothing: here they do
        now = max(0, int.from_bytes(data[35:43], "big", signed=True))
        without_append = case["cfg"].get("without_append", False)
        plain = {**asked, "cfg": {"now": now, "without_append": without_append}}
        yield Asked(plain, "stock, plain")
        yield Asked(_sent(plain, "trust", tag), "trust")


def _carried(case: Case, data: bytes, true: BatchClaims, carrier: str) -> tuple[Case, bytes | None]:
    if carrier == "payload":
        try:
            return {**case, "batch_hex": bytes(attach(data, true, carrier="payload")).hex()}, None
        except BatchvalError:
            carrier = "block"
    crc = int.from_bytes(data[17:21], "big")
    return case, to_tag(true[:3] if carrier == "tag" else true, crc)


def _sent(case: Case, sender: str, tag: bytes | None) -> Case:
    """Return the case with a sender and a tag; its own settings stay."""
    more = {"sender": sender} | ({} if tag is None else {"tag": tag.hex()})
    return {**case, "cfg": {**case["cfg"], **more}}


def compared(asked: list[Asked], answers: list[Case]) -> Round:
    """Compare each answer with the one without the agent before it."""
    counts: Counter[str] = Counter()
    differences: list[str] = []
    stock: Case = {}
    for (case, word), answer in zip(asked, answers, strict=True):
        claims = answer["validate"].pop("claims", {})
        if word.startswith("stock"):
            stock = answer
            counts["cases"] += word == "stock"
            continue
        if "OutOfMemoryError" in json.dumps(stock):
            counts["out of memory"] += 1
            continue
        counts[word] += 1
        counts.update(f"{word}: {name}" for name in claims)
        if "Trusted" in claims and _is_of_version_1(case):
            # which states no sizes: Kafka's statistics have 0 for them
            answer["validate"]["temp_bytes"] = stock["validate"].get("temp_bytes")
        wrong = [part for part in PARTS if answer.get(part) != stock.get(part)]
        if word == "ignore" and claims:
            wrong.append(f"counted {claims}")
        if {"Lying", "Unbound", "Errors"} & claims.keys():
            wrong.append(f"counted {claims}")
        if wrong:
            differences.append(f"{case['id']} ({case['family']}) {word}: {', '.join(wrong)}")
    return Round(counts, differences)


def _is_of_version_1(case: Case) -> bool:
    return str(case["cfg"].get("tag", "")).startswith("01")


def run_round(seed: int, cases: int, version: str, families: str, without_append: bool) -> Round:
    """Make and ask one round. The files go away."""
    with tempfile.TemporaryDirectory() as name:
        made, asks, answered = (
            Path(name) / file for file in ("made.jsonl", "asked.jsonl", "answered.jsonl")
        )
        settings = ("--seed", str(seed), "--cases", str(cases), "--families", families)
        oracle.run("generate", *settings, str(made), release=version, jvm=oracle.options_for(cases))
        with made.open() as lines:
            some = [json.loads(line) for line in lines]
        some = some[:cases]
        if version != DEFAULT_KAFKA_VERSION:
            some = [{**case, "kafka_version": version} for case in some]
        if without_append:
            some = [{**case, "cfg": {**case["cfg"], "without_append": True}} for case in some]
        asked = list(questions(some, seed))
        with asks.open("w") as file:
            file.writelines(json.dumps(one.case) + "\n" for one in asked)
        jvm = [*oracle.options_for(cases), f"-javaagent:{broker_agent()}={OPTIONS}"]
        oracle.run("answer", str(asks), str(answered), release=version, jvm=jvm)
        with answered.open() as lines:
            return compared(asked, [json.loads(line)["expect"] for line in lines])


def rounds(
    seed: int,
    cases: int,
    version: str,
    families: str = "",
    jobs: int = 1,
    *,
    without_append: bool = False,
) -> Iterator[Round]:
    """Yield the rounds of so many cases."""
    sizes = [min(ROUND, cases - at) for at in range(0, cases, ROUND)]
    with ThreadPoolExecutor(jobs) as pool:
        work = [
            pool.submit(run_round, seed + n, size, version, families, without_append)
            for n, size in enumerate(sizes)
        ]
        for one in work:
            yield one.result()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, help="Random seed; one at random unless set.")
    parser.add_argument(
        "--cases", type=int, default=DEFAULT_CASES, help=f"Default {DEFAULT_CASES}."
    )
    parser.add_argument("--kafka-version", choices=oracle.RELEASES, default=DEFAULT_KAFKA_VERSION)
    parser.add_argument("--families", default="", help="Those alone whose names start so.")
    parser.add_argument("--jobs", type=int, default=1, help="JVMs at once.")
    parser.add_argument(
        "--without-append", action="store_true", help="Ask LogValidator, and no log."
    )
    options = parser.parse_args()
    seed = secrets.randbelow(1 << 31) if options.seed is None else options.seed
    print(f"seed {seed}, {options.cases} cases, Kafka {options.kafka_version}", flush=True)
    total: Counter[str] = Counter()
    differ, started = 0, time.monotonic()
    try:
        found = rounds(
            seed,
            options.cases,
            options.kafka_version,
            options.families,
            options.jobs,
            without_append=options.without_append,
        )
        for one in found:
            total += one.counts
            differ += len(one.differences)
            for line in one.differences:
                print(line, flush=True)
            print(
                f"{total['cases']} cases, {differ} differ, {time.monotonic() - started:.0f} s",
                flush=True,
            )
    except oracle.OracleUnavailable as error:
        print(f"with_agent: {error}", file=sys.stderr)
        return NO_JDK
    print(", ".join(f"{name} {count}" for name, count in sorted(total.items())))
    print(f"with_agent: {total['ignore'] + total['trust']} answers, {differ} differ")
    return int(bool(differ) or not total["trust: Trusted"])


if __name__ == "__main__":
    sys.exit(main())

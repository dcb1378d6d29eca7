"""Every lie of `lies.py`, sent to an Apache Kafka 4.4.0 broker with the agent under each policy.

A stock broker gets the same batches without tags and says what Kafka answers. The library's ledger
says which batches are trusted and what is found: the agent has to count the same.

    ignore   a stock broker's answer to every batch; nothing is counted
    verify   a stock broker's answer to every batch; every lie is counted, its sender demoted once
    audit    some lies are let in until the sample falls on one; afterwards a stock broker's answers
    trust    what `docs/concepts/claims.md` ("What a lie costs") lets in is accepted; else
             a stock broker's answer
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from batchval.core.batches.validator import LogValidator
from batchval.ledger import ClaimsLedger
from batchval.policy import ClaimsPolicy
from tests.support.fixtures import needs_kafka
from tests.support.jvm_agents import broker_agent
from tests.support.topics import make_topic
from tests.system.broker_agent.counters import COUNTERS, Counters
from tests.system.broker_agent.lies import TOPICS, Case, cases
from tests.system.broker_agent.raw import Answer, Connection, Part, listen_for_users
from tests.system.interop.kafka_broker import KafkaBroker

pytestmark = pytest.mark.jvm

SECRET = bytes(range(32))
AUDIT = "audit:0.5"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
POLICIES = ("ignore", "verify", "audit", "trust")
ACCEPTED = (0, (), None, -1)
#: How often each lie is sent under audit.
REPEATS = 3
OPTIONS = ";".join(
    (
        "rule.1=verify,topic=verify-*",
        f"rule.2={AUDIT},topic=audit-*",
        "rule.3=trust,principal=User:trust*",
        f"secret={SECRET.hex()}",
        "first.checked=0",
    )
)


@dataclass
class Brokers:
    """One with the agent, and a stock one."""

    agent: KafkaBroker
    stock: KafkaBroker
    listener: tuple[str, int]
    counters: Counters

    def user(self, name: str) -> Connection:
        return Connection(self.listener, name)

    def changes(self, before: dict[str, int]) -> dict[str, int]:
        """Return the counters that are not as before."""
        now = self.counters.read()
        return {name: now[name] - before[name] for name in COUNTERS if now[name] != before[name]}


def users() -> list[str]:
    """Return a user for each case under audit and under trust: no lie demotes another case's
    sender.
    """
    count = max(len(cases(codec)) for codec in CODECS)
    return [
        "checked",
        *(
            f"{policy}_{c}_{n}"
            for policy in ("audit", "trust")
            for c in CODECS
            for n in range(count)
        ),
    ]


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    needs_kafka()
    agent, stock = KafkaBroker(jvm=[f"-javaagent:{broker_agent()}={OPTIONS}"]), KafkaBroker()
    listener = listen_for_users(agent, users())
    never = {"retention.ms": "-1"}  # the records are of 2023

    def start(broker: KafkaBroker, policies: tuple[str, ...]) -> None:
        broker.start()
        for policy in policies:
            for kind, config in TOPICS.items():
                make_topic(broker.bootstrap, f"{policy}-{kind}", **never, **config)

    try:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(start, (agent, stock), (POLICIES, ("stock",))))
        with Counters(agent) as counters:
            assert counters.status().startswith("active")
            yield Brokers(agent, stock, listener, counters)
    finally:
        for broker in (agent, stock):
            broker.__exit__()


@pytest.fixture(scope="module", params=CODECS)
def lies(request: pytest.FixtureRequest, brokers: Brokers) -> list[tuple[Case, Answer]]:
    """Return the cases of a codec, each with a stock broker's answer to its bytes without a tag."""
    made = cases(request.param)
    parts = [[Part(f"stock-{case.kind}", case.records)] for case in made]
    with Connection((brokers.stock.host, brokers.stock.port)) as connection:
        answers = connection.produce_all(parts)
    return [
        (case, answer[f"stock-{case.kind}", 0]) for case, answer in zip(made, answers, strict=True)
    ]


def judged(ledger: ClaimsLedger, sender: str, case: Case) -> str | None:
    """Return what the library's ledger makes of a case: trusted, honest, lying, unjudged, unbound.

    None: the agent does not see its claims. It looks at whole compressed batches of magic 2 in
    LogValidator, and at no others.
    """
    if not case.reaches_the_validator or not case.is_compressed:
        return None
    validator = LogValidator(case.policy, extras={"S1": "report"})
    now = int(time.time() * 1000)
    if case.may_settle:
        return ledger.check(validator, case.records, sender=sender, now_ms=now, tag=case.tag).claims
    return validator.check(case.records, now_ms=now, claims=(case.tag, "verify")).claims


def counted(changes: dict[str, int]) -> dict[str | None, int]:
    """Return what became of batches, in the library's words; ``Errors`` where there are any."""
    words = {
        "Trusted": "trusted",
        "Honest": "honest",
        "Lying": "lying",
        "Unjudged": "unjudged",
        "Unbound": "unbound",
    }
    return {
        words.get(name, name): n for name, n in changes.items() if name in words or name == "Errors"
    }


def without_none(expected: Counter[str | None]) -> dict[str | None, int]:
    return {word: n for word, n in expected.items() if word is not None}


def test_ignore_answers_as_a_stock_broker_and_counts_nothing(
    brokers: Brokers, lies: list[tuple[Case, Answer]]
) -> None:
    before = brokers.counters.read()
    with brokers.user("checked") as connection:
        answers = connection.produce_all(
            [[Part(f"ignore-{case.kind}", case.records, case.tag)] for case, _ in lies]
        )
    assert different(lies, answers, "ignore") == []
    assert brokers.changes(before) == {}


def test_verify_answers_as_a_stock_broker_and_finds_every_lie(
    brokers: Brokers, lies: list[tuple[Case, Answer]]
) -> None:
    ledger = ClaimsLedger(ClaimsPolicy.parse("verify"), secret=SECRET, first_checked=0)
    expected = Counter(judged(ledger, "User:checked", case) for case, _ in lies)
    before = brokers.counters.read()
    with brokers.user("checked") as connection:
        answers = connection.produce_all(
            [[Part(f"verify-{case.kind}", case.records, case.tag)] for case, _ in lies]
        )
    assert different(lies, answers, "verify") == []
    assert counted(brokers.changes(before)) == without_none(expected)


def test_trust_lets_in_what_the_document_says_and_no_more(
    brokers: Brokers, lies: list[tuple[Case, Answer]], request: pytest.FixtureRequest
) -> None:
    codec = request.node.callspec.params["lies"]
    ledger = ClaimsLedger(ClaimsPolicy.parse("trust"), secret=SECRET, first_checked=0)
    before = brokers.counters.read()
    wrong = []
    expected: Counter[str | None] = Counter()
    for number, (case, stock) in enumerate(lies):
        user = f"trust_{codec}_{number}"
        found = judged(ledger, f"User:{user}", case)
        expected[found] += 1
        with brokers.user(user) as connection:
            answer = connection.produce(f"trust-{case.kind}", case.records, case.tag)
        wanted = ACCEPTED if found == "trusted" else stock.verdict
        if answer.verdict != wanted:
            wrong.append((case.name, case.kind, found, answer.verdict, stock.verdict))
    assert wrong == []
    assert counted(brokers.changes(before)) == without_none(expected)


def test_audit_lets_in_lies_until_the_sample_falls_on_one(
    brokers: Brokers, lies: list[tuple[Case, Answer]], request: pytest.FixtureRequest
) -> None:
    """Draw the same sample with the library's ledger: same secret, same sender, same batches."""
    codec = request.node.callspec.params["lies"]
    ledger = ClaimsLedger(ClaimsPolicy.parse(AUDIT), secret=SECRET, first_checked=0)
    before = brokers.counters.read()
    wrong, demoted = [], []
    expected: Counter[str | None] = Counter()
    for number, (case, stock) in enumerate(lies):
        user = f"audit_{codec}_{number}"
        found = [judged(ledger, f"User:{user}", case) for _ in range(REPEATS)]
        expected.update(found)
        demoted += [user] * ("lying" in found)
        with brokers.user(user) as connection:
            answers = connection.produce_all(
                [[Part(f"audit-{case.kind}", case.records, case.tag)]] * REPEATS
            )
        for what, answer in zip(found, answers, strict=True):
            wanted = ACCEPTED if what == "trusted" else stock.verdict
            if (verdict := answer[f"audit-{case.kind}", 0].verdict) != wanted:
                wrong.append((case.name, case.kind, found, verdict, stock.verdict))
    assert wrong == []
    changes = brokers.changes(before)
    assert counted(changes) == without_none(expected)
    assert changes.get("Demotions", 0) == len(demoted)
    log = brokers.agent.log.read_text(errors="replace")
    assert [user for user in demoted if log.count(f"User:{user} ") != 1] == []


def test_anonymous_is_believed_only_where_a_rule_names_the_listener(brokers: Brokers) -> None:
    """Treat ANONYMOUS as any client: verify applies to it, audit without a listener acts as
    ignore.
    """
    lie = next(case for case in cases("zstd") if case.name == "minimum +1, block")
    before = brokers.counters.read()
    with Connection((brokers.agent.host, brokers.agent.port)) as connection:
        for _ in range(3):
            assert connection.produce("audit-plain", lie.records, lie.tag).verdict == ACCEPTED
        assert brokers.changes(before) == {"AnonymousIgnored": 3}
        assert connection.produce("verify-plain", lie.records, lie.tag).verdict == ACCEPTED
    assert counted(brokers.changes(before)) == {"lying": 1}
    log = brokers.agent.log.read_text(errors="replace")
    assert log.count("claims of User:ANONYMOUS on listener PLAINTEXT are ignored") == 1


def different(
    lies: list[tuple[Case, Answer]], answers: list[dict[tuple[str, int], Answer]], policy: str
) -> list[object]:
    """Return the cases to which a broker does not answer as a stock broker."""
    return [
        (case.name, case.kind, answer[f"{policy}-{case.kind}", 0].verdict, stock.verdict)
        for (case, stock), answer in zip(lies, answers, strict=True)
        if answer[f"{policy}-{case.kind}", 0].verdict != stock.verdict
    ]

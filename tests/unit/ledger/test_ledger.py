"""Test sampling, demotion and the ledger. Secrets are fixed: every run draws the same."""

from __future__ import annotations

import itertools
import json
import random
import statistics
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from batchval.core import claims
from batchval.core.batches.validator import LogValidator
from batchval.errors import BatchvalError
from batchval.ledger import ClaimsCounts, ClaimsLedger
from batchval.policy import ClaimsPolicy, TopicPolicy
from batchval.rules import Rule
from tests.support.batches import GZIP, LZ4, NONE, NOW, ZSTD, batch, record, records

SECRET = bytes(range(32))
HOUR = 3_600_000
GOOD = batch(records(20), codec=LZ4)
TRUE = claims.compute(GOOD)
assert TRUE is not None
LIE = TRUE._replace(batch_min_timestamp=NOW - 5)
CARRIED = TopicPolicy(accept_claims_header=True)
VECTORS = Path(__file__).resolve().parents[3] / "fixtures" / "claims" / "ledger.jsonl"
CASES = [json.loads(line) for line in VECTORS.read_text("ascii").splitlines()]


def new_ledger(policy: str, **more: int) -> ClaimsLedger:
    return ClaimsLedger(ClaimsPolicy.parse(policy), secret=SECRET, **more)


def crc_of(data: bytes) -> int:
    return struct.unpack_from(">I", data, 17)[0]


def tag_of(these: claims.BatchClaims, data: bytes = GOOD) -> bytes:
    return claims.to_tag(these, crc_of(data))


def past_probation(ledger: ClaimsLedger, sender: str = "edge") -> None:
    for _ in range(100):
        assert ledger.decide(sender, 1, NOW) == "verify"
        ledger.note(sender, "honest", NOW)


# ---- policies ------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["ignore", "verify", "audit:0.01", "audit:1", "trust"])
def test_policies_by_their_words(text: str) -> None:
    assert str(ClaimsPolicy.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("believe", "one of ignore, verify, audit, trust"),
        ("", "one of"),
        ("audit", "needs a rate"),
        ("audit:", "must be a number"),
        ("audit:0", "for 0 use trust"),
        ("audit:1.01", "above 0 and at most 1"),
        ("audit:-0.1", "above 0"),
        ("audit:nan", "above 0"),
        ("trust:0.5", "only audit has one"),
    ],
)
def test_wrong_policies_are_refused(text: str, complaint: str) -> None:
    with pytest.raises(BatchvalError, match=complaint):
        ClaimsPolicy.parse(text)


def test_ignored_claims_are_not_counted() -> None:
    ledger = new_ledger("ignore")
    assert ledger.decide("edge", 1, NOW) == "ignore"
    assert (
        ledger.check(LogValidator(), GOOD, sender="edge", now_ms=NOW, tag=tag_of(LIE)).claims
        is None
    )
    assert ledger.counts() == ClaimsCounts()


def test_verify_checks_every_batch_and_trust_none() -> None:
    sure, blind = new_ledger("verify"), new_ledger("trust")
    for crc in range(300):
        assert sure.decide("edge", crc, NOW) == "verify"
        assert blind.decide("edge", crc, NOW) == "trust"


# ---- sampling ------------------------------------------------------------------------------------


def test_the_first_hundred_are_all_checked() -> None:
    ledger = new_ledger("audit:0.001")
    past_probation(ledger)
    later = [ledger.decide("edge", 1, NOW) for _ in range(200)]
    assert later.count("trust") > 190


def test_batches_refused_before_they_were_walked_prove_nothing() -> None:
    ledger = new_ledger("audit:0.001")
    for _ in range(500):
        assert ledger.decide("edge", 1, NOW) == "verify"
        ledger.note("edge", "unjudged", NOW)


@pytest.mark.parametrize("rate", [0.001, 0.01, 0.1])
def test_lies_are_found_when_the_formula_says(rate: float) -> None:
    """200 that behave for their first 100 batches and then lie in every one: on average 1 / rate
    until it shows.
    """
    ledger = new_ledger(f"audit:{rate}")
    crcs = random.Random(7)
    waits = []
    for number in range(200):
        past_probation(ledger, f"sender {number}")
        wait = 1
        while ledger.decide(f"sender {number}", crcs.getrandbits(32), NOW) != "verify":
            wait += 1
        ledger.note(f"sender {number}", "lying", NOW)
        waits.append(wait)
    assert 0.8 / rate < statistics.mean(waits) < 1.2 / rate
    assert ledger.counts().demotions == 200


@pytest.mark.parametrize("rate", [0.01, 0.1])
def test_a_replayed_batch_is_drawn_anew_each_time(rate: float) -> None:
    """Neither always checked nor never: who found one that passes could else send it for ever."""
    ledger = new_ledger(f"audit:{rate}")
    past_probation(ledger)
    for crc in (0, 1, 0xDEADBEEF):
        checked = [ledger.decide("edge", crc, NOW) == "verify" for _ in range(20_000)]
        assert 0.8 * rate < statistics.mean(checked) < 1.2 * rate
        places = [i for i, c in enumerate(checked) if c]
        assert len({b - a for a, b in itertools.pairwise(places)}) > 10  # no rhythm to be learnt


def test_nothing_that_a_sender_knows_foretells_a_draw() -> None:
    """Same batches in the same order: another secret, another sender or an earlier batch more
    changes the sample.
    """

    def sample(secret: bytes = SECRET, sender: str = "edge", before: int = 0) -> list[bool]:
        ledger = ClaimsLedger(ClaimsPolicy("audit", 0.5), secret=secret, first_checked=0)
        for _ in range(before):
            ledger.decide(sender, 9, NOW)
        return [ledger.decide(sender, crc, NOW) == "verify" for crc in range(256)]

    one = sample()
    assert one == sample()
    for other in (sample(secret=bytes(32)), sample(sender="other"), sample(before=1)):
        assert 64 < sum(a == b for a, b in zip(one, other, strict=True)) < 192


def test_a_secret_of_its_own_by_default() -> None:
    def draws() -> list[str]:
        ledger = ClaimsLedger(ClaimsPolicy("audit", 0.5), first_checked=0)
        return [ledger.decide("edge", 1, NOW) for _ in range(200)]

    assert draws() != draws()


@pytest.mark.parametrize("size", [0, 15, 65])
def test_secrets_of_the_wrong_size(size: int) -> None:
    with pytest.raises(BatchvalError, match="16 to 64 bytes"):
        ClaimsLedger(ClaimsPolicy("verify"), secret=bytes(size))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_decisions_are_those_of_the_shared_vectors(case: dict[str, Any]) -> None:
    sender = case["sender"]
    ledger = ClaimsLedger(
        ClaimsPolicy.parse(case["policy"]),
        secret=bytes.fromhex(case["secret"]),
        first_checked=case["first_checked"],
        demotion_ms=case["demotion_ms"],
    )
    decided = []
    for step in case["steps"]:
        decided.append(ledger.decide(sender, step["crc"], step["now_ms"]))
        ledger.note(sender, step["answer"], step["now_ms"])
    assert decided == [step["decision"] for step in case["steps"]]


PAYLOADS = [
    claims.attach(batch(records(3), codec=codec), carrier="payload") for codec in (GZIP, ZSTD)
]


@pytest.mark.parametrize("data", PAYLOADS, ids=["gzip", "zstd"])
def test_claims_in_payloads_are_decided_and_noted(data: bytes) -> None:
    ledger, validator = new_ledger("audit:0.5", first_checked=2), LogValidator()
    paths = [ledger.check(validator, data, sender="s", now_ms=NOW).path for _ in range(50)]
    assert paths[:2] == ["shallow"] * 2
    assert 5 < paths.count("claims") < 45
    assert ledger.counts("s").batches == 50
    plain = claims.strip(data)
    buffer = data + plain
    ranges = [(0, len(data)), (len(data), len(plain)), (0, 30), (0, 61)]
    columns = ledger.check_ranges(validator, buffer, ranges, sender="s", now_ms=NOW)
    assert [row["claims"] is None for row in columns.rows()] == [False, True, True, True]
    assert ledger.counts("s").batches == 51


@pytest.mark.parametrize("data", PAYLOADS, ids=["gzip", "zstd"])
def test_a_payload_that_lies_demotes(data: bytes) -> None:
    true = claims.read(data)
    assert true is not None
    lie = claims.attach(data, true._replace(max_record_bytes=1), carrier="payload")
    ledger = new_ledger("audit:0.5")
    result = ledger.check(LogValidator(), lie, sender="s", now_ms=NOW)
    assert (result.ok, result.claims, ledger.is_demoted("s", NOW)) == (True, "lying", True)


# ---- demotion ------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["audit:0.001", "trust"])
def test_a_lie_costs_an_hour(policy: str) -> None:
    ledger = new_ledger(policy)
    if policy != "trust":
        past_probation(ledger)
    assert ledger.decide("edge", 5, NOW) == "trust"
    ledger.note("edge", "lying", NOW)
    assert ledger.is_demoted("edge", NOW)
    for later in (0, 1, HOUR // 2, HOUR - 1):
        assert ledger.decide("edge", 5, NOW + later) == "verify"
    assert not ledger.is_demoted("edge", NOW + HOUR)
    if policy == "trust":
        assert ledger.decide("edge", 5, NOW + HOUR) == "trust"
    else:  # it starts as a new sender does
        for _ in range(100):
            assert ledger.decide("edge", 5, NOW + HOUR) == "verify"
            ledger.note("edge", "honest", NOW + HOUR)
        assert ledger.decide("edge", 5, NOW + HOUR) == "trust"


def test_another_lie_lengthens_it() -> None:
    ledger = new_ledger("trust")
    ledger.note("edge", "lying", NOW)
    ledger.note("edge", "lying", NOW + HOUR // 2)
    assert ledger.decide("edge", 1, NOW + HOUR) == "verify"
    assert ledger.counts("edge").demotions == 1
    assert ledger.decide("edge", 1, NOW + HOUR * 3 // 2) == "trust"


def test_one_lie_does_not_demote_another_sender() -> None:
    ledger = new_ledger("trust")
    ledger.note("sender", "lying", NOW)
    assert ledger.decide("edge", 1, NOW) == "trust"


def test_a_sender_that_renames_itself_is_new() -> None:
    ledger = new_ledger("audit:0.001")
    past_probation(ledger, "sender")
    ledger.note("sender", "lying", NOW)
    past_probation(
        ledger, "the sender under another name"
    )  # asserts that each of its batches is checked


def test_a_clock_that_goes_back_does_not_forgive() -> None:
    ledger = new_ledger("trust")
    ledger.note("edge", "lying", NOW)
    assert ledger.decide("edge", 1, NOW - HOUR) == "verify"


def test_memory_for_senders_is_bounded_and_no_demoted_one_is_forgotten() -> None:
    ledger = new_ledger("trust", most_senders=10)
    ledger.note("sender", "lying", NOW)
    for n in range(1000):
        ledger.decide(f"sender {n}", 1, NOW)
    assert len(ledger.senders()) == 10
    assert ledger.decide("sender", 1, NOW) == "verify"
    for n in range(20):
        ledger.note(f"sender {n}", "lying", NOW)
    assert len(ledger.senders()) == 10
    assert all(ledger.is_demoted(sender, NOW) for sender in ledger.senders())
    assert ledger.counts().lying == 21
    ledger.decide("newcomer", 1, NOW + 2 * HOUR)
    assert "newcomer" in ledger.senders()


@pytest.mark.parametrize("setting", ["first_checked", "demotion_ms", "most_senders"])
def test_settings_below_their_least(setting: str) -> None:
    with pytest.raises(BatchvalError, match=setting):
        new_ledger("verify", **{setting: -1})


def test_a_sender_has_a_name() -> None:
    with pytest.raises(BatchvalError, match="sender is '': expected a certificate's subject"):
        new_ledger("verify").decide("", 1, NOW)


# ---- decompression bombs -------------------------------------------------------------------------

LIMIT = 1 << 16


def a_bomb(number: int, codec: int = ZSTD) -> bytes:
    """Return a batch that decompresses to four times the limit; each has its own checksum."""
    return batch([record(0, value=b"%8d" % number + bytes(4 * LIMIT))], codec=codec)


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
def test_the_first_bomb_that_is_sampled_demotes_its_sender(codec: int) -> None:
    ledger = new_ledger("audit:0.2")
    validator = LogValidator(max_decompressed_bytes=LIMIT)
    for _ in range(150):
        assert ledger.check(validator, GOOD, sender="edge", now_ms=NOW, tag=tag_of(TRUE)).ok
    bombs = [a_bomb(n, codec) for n in range(200)]
    tags = [tag_of(claims.BatchClaims(NOW, 1, 1), bomb) for bomb in bombs]
    results = [
        ledger.check(validator, bomb, sender="edge", now_ms=NOW, tag=tag)
        for bomb, tag in zip(bombs, tags, strict=True)
    ]
    passed = next(n for n, result in enumerate(results) if not result.ok)
    assert passed < 50  # 0.8 ** 50: one in 70,000 secrets would let more pass
    assert [result.ok for result in results] == [True] * passed + [False] * (200 - passed)
    assert {(result.rule, result.claims) for result in results[passed:]} == {(Rule.S8, "lying")}
    counts = ledger.counts("edge")
    assert (counts.demotions, counts.lying, counts.unjudged) == (1, 200 - passed, 0)
    assert ledger.is_demoted("edge", NOW)
    assert (
        ledger.check(validator, GOOD, sender="edge", now_ms=NOW, tag=tag_of(TRUE)).path == "shallow"
    )


def test_bombs_in_one_request_demote_their_sender() -> None:
    ledger = new_ledger("audit:1")
    bombs = [a_bomb(n) for n in range(3)]
    ends = list(itertools.accumulate(map(len, bombs)))
    ranges = [(end - len(bomb), len(bomb)) for end, bomb in zip(ends, bombs, strict=True)]
    tags = [tag_of(claims.BatchClaims(NOW, 1, 1), bomb) for bomb in bombs]
    columns = ledger.check_ranges(
        LogValidator(max_decompressed_bytes=LIMIT),
        b"".join(bombs),
        ranges,
        sender="edge",
        now_ms=NOW,
        tags=tags,
    )
    assert [row["claims"] for row in columns.rows()] == ["lying"] * 3
    assert (ledger.counts("edge").demotions, ledger.is_demoted("edge", NOW)) == (1, True)


# ---- with a validator ----------------------------------------------------------------------------


def test_an_honest_sender_is_soon_believed() -> None:
    ledger = new_ledger("audit:0.001")
    paths = [
        ledger.check(LogValidator(), GOOD, sender="edge", now_ms=NOW, tag=tag_of(TRUE)).path
        for _ in range(150)
    ]
    assert paths[:100] == ["shallow"] * 100
    assert paths[100:].count("claims") > 45
    counts = ledger.counts("edge")
    assert counts.batches == 150
    assert counts.honest + counts.trusted == 150
    assert counts.lying == counts.demotions == 0


def test_a_lie_in_a_tag_leaves_the_slow_verdict_and_demotes() -> None:
    ledger = new_ledger("verify")
    result = ledger.check(LogValidator(), GOOD, sender="edge", now_ms=NOW, tag=tag_of(LIE))
    assert result.ok
    assert result.claims == "lying"
    assert ledger.is_demoted("edge", NOW)


def test_a_lie_in_a_header_is_a_malformed_batch() -> None:
    ledger = new_ledger("verify")
    result = ledger.check(
        LogValidator(CARRIED), claims.attach(GOOD, LIE), sender="edge", now_ms=NOW
    )
    assert result.rule is Rule.L7
    assert result.error_code.name == "INVALID_RECORD"
    assert ledger.counts().lying == 1


def test_a_batch_without_claims_draws_nothing() -> None:
    ledger = new_ledger("audit:0.5")
    assert ledger.check(LogValidator(), GOOD, sender="edge", now_ms=NOW).claims is None
    assert (
        ledger.check(LogValidator(), claims.attach(GOOD), sender="edge", now_ms=NOW).claims is None
    )  # not accepted
    assert ledger.check(LogValidator(), b"", sender="edge", now_ms=NOW, tag=b"").claims is None
    assert ledger.counts().batches == 0


def test_a_request_of_many_batches() -> None:
    plain, bad = batch(records(3), codec=NONE), batch([record(0, value=None)], codec=ZSTD, crc=1)
    carried = claims.attach(GOOD)
    parts = [GOOD, GOOD, carried, GOOD, plain, bad]
    tags = [tag_of(TRUE), tag_of(LIE), None, None, tag_of(TRUE), tag_of(TRUE, bad)]
    buffer = b"".join(parts)
    starts = [sum(map(len, parts[:i])) for i in range(len(parts))]
    ranges = [(start, len(part)) for start, part in zip(starts, parts, strict=True)]
    ledger = new_ledger("verify")
    columns = ledger.check_ranges(
        LogValidator(CARRIED), buffer, ranges, sender="edge", now_ms=NOW, tags=tags
    )
    answers = [row["claims"] for row in columns.rows()]
    assert answers == ["honest", "lying", "honest", None, "unbound", "unjudged"]
    assert ledger.counts().batches == 5
    assert ledger.counts().lying == 1
    for policies in (CARRIED, [CARRIED] * 6):
        again = new_ledger("trust").check_ranges(
            LogValidator(), buffer, ranges, sender="edge", now_ms=NOW, tags=tags, policies=policies
        )
        assert [row["path"] for row in again.rows()][:4] == [
            "claims",
            "claims",
            "claims",
            "shallow",
        ]
    with pytest.raises(BatchvalError, match="1 tags for 6 ranges"):
        ledger.check_ranges(LogValidator(), buffer, ranges, sender="edge", now_ms=NOW, tags=[None])


@pytest.mark.parametrize("carrier", ["payload", "header"])
def test_a_range_beyond_the_buffer_is_not_read(carrier: Any) -> None:
    """Leave a range beyond the buffer to the validator, which refuses it, and count no claims."""
    data = claims.attach(batch(records(3), codec=GZIP), carrier=carrier)
    ledger = new_ledger("verify")
    validator = LogValidator(TopicPolicy(accept_claims_header=True))
    for start, length in ((len(data) - 22, 90), (len(data), 61), (-1, 61), (0, len(data) + 1)):
        with pytest.raises(BatchvalError, match="range"):
            ledger.check_ranges(validator, data, [(start, length)], sender="s", now_ms=NOW)
    assert ledger.counts("s").batches == 0


def test_a_buffer_that_is_none() -> None:
    with pytest.raises(BatchvalError, match="contiguous buffer"):
        new_ledger("verify").check(LogValidator(), memoryview(GOOD)[::2], sender="edge", now_ms=NOW)


def test_many_threads_lose_no_count() -> None:
    ledger = new_ledger("audit:0.5")

    def work(n: int) -> None:
        for _ in range(200):
            ledger.check(
                LogValidator(), GOOD, sender=f"sender {n % 3}", now_ms=NOW, tag=tag_of(TRUE)
            )

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    counts = ledger.counts()
    assert counts.batches == counts.honest + counts.trusted == 1600
    assert sum(ledger.counts(f"sender {n}").batches for n in range(3)) == 1600

"""Who is believed: sampling, demotion, and the books. Secrets are fixed, so every draw is the same
in every run.
"""

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
from batchval.core.validator import LogValidator
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
VECTORS = Path(__file__).resolve().parents[2] / "fixtures" / "claims" / "ledger.jsonl"
CASES = [json.loads(line) for line in VECTORS.read_text("ascii").splitlines()]


def ledger(policy: str, **more: int) -> ClaimsLedger:
    return ClaimsLedger(ClaimsPolicy.parse(policy), secret=SECRET, **more)


def crc_of(data: bytes) -> int:
    return struct.unpack_from(">I", data, 17)[0]


def tag_of(these: claims.BatchClaims, data: bytes = GOOD) -> bytes:
    return claims.to_tag(these, crc_of(data))


def past_probation(books: ClaimsLedger, sender: str = "edge") -> None:
    for _ in range(100):
        assert books.decide(sender, 1, NOW) == "verify"
        books.note(sender, "honest", NOW)


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
        ("audit:", "is a number"),
        ("audit:0", "0 is called trust"),
        ("audit:1.01", "above 0 and at most 1"),
        ("audit:-0.1", "above 0"),
        ("audit:nan", "above 0"),
        ("trust:0.5", "only audit has a rate"),
    ],
)
def test_wrong_policies_are_refused(text: str, complaint: str) -> None:
    with pytest.raises(BatchvalError, match=complaint):
        ClaimsPolicy.parse(text)


def test_ignored_claims_are_not_counted() -> None:
    books = ledger("ignore")
    assert books.decide("edge", 1, NOW) == "ignore"
    assert (
        books.check(LogValidator(), GOOD, sender="edge", now_ms=NOW, tag=tag_of(LIE)).claims is None
    )
    assert books.counts() == ClaimsCounts()


def test_verify_checks_every_batch_and_trust_none() -> None:
    sure, blind = ledger("verify"), ledger("trust")
    for crc in range(300):
        assert sure.decide("edge", crc, NOW) == "verify"
        assert blind.decide("edge", crc, NOW) == "trust"


# ---- sampling ------------------------------------------------------------------------------------


def test_the_first_hundred_are_all_checked() -> None:
    books = ledger("audit:0.001")
    past_probation(books)
    later = [books.decide("edge", 1, NOW) for _ in range(200)]
    assert later.count("trust") > 190


def test_batches_refused_before_they_were_walked_prove_nothing() -> None:
    books = ledger("audit:0.001")
    for _ in range(500):
        assert books.decide("edge", 1, NOW) == "verify"
        books.note("edge", "unjudged", NOW)


@pytest.mark.parametrize("rate", [0.001, 0.01, 0.1])
def test_liars_are_found_when_the_formula_says(rate: float) -> None:
    """200 that behave for their first 100 batches and then lie in every one: on average 1 / rate
    until it shows.
    """
    books = ledger(f"audit:{rate}")
    crcs = random.Random(7)
    waits = []
    for liar in range(200):
        past_probation(books, f"liar {liar}")
        wait = 1
        while books.decide(f"liar {liar}", crcs.getrandbits(32), NOW) != "verify":
            wait += 1
        books.note(f"liar {liar}", "lying", NOW)
        waits.append(wait)
    assert 0.8 / rate < statistics.mean(waits) < 1.2 / rate
    assert books.counts().demotions == 200


@pytest.mark.parametrize("rate", [0.01, 0.1])
def test_a_replayed_batch_is_drawn_anew_each_time(rate: float) -> None:
    """Neither always checked nor never: who found one that passes could else send it for ever."""
    books = ledger(f"audit:{rate}")
    past_probation(books)
    for crc in (0, 1, 0xDEADBEEF):
        checked = [books.decide("edge", crc, NOW) == "verify" for _ in range(20_000)]
        assert 0.8 * rate < statistics.mean(checked) < 1.2 * rate
        places = [i for i, c in enumerate(checked) if c]
        assert len({b - a for a, b in itertools.pairwise(places)}) > 10  # no rhythm to be learnt


def test_nothing_that_a_sender_knows_foretells_a_draw() -> None:
    """Same batches in the same order: another secret, another sender or an earlier batch more
    changes the sample.
    """

    def sample(secret: bytes = SECRET, sender: str = "edge", before: int = 0) -> list[bool]:
        books = ClaimsLedger(ClaimsPolicy("audit", 0.5), secret=secret, first_checked=0)
        for _ in range(before):
            books.decide(sender, 9, NOW)
        return [books.decide(sender, crc, NOW) == "verify" for crc in range(256)]

    one = sample()
    assert one == sample()
    for other in (sample(secret=bytes(32)), sample(sender="other"), sample(before=1)):
        assert 64 < sum(a == b for a, b in zip(one, other, strict=True)) < 192


def test_a_secret_of_its_own_by_default() -> None:
    def draws() -> list[str]:
        books = ClaimsLedger(ClaimsPolicy("audit", 0.5), first_checked=0)
        return [books.decide("edge", 1, NOW) for _ in range(200)]

    assert draws() != draws()


@pytest.mark.parametrize("size", [0, 15, 65])
def test_secrets_of_the_wrong_size(size: int) -> None:
    with pytest.raises(BatchvalError, match="16 to 64 bytes"):
        ClaimsLedger(ClaimsPolicy("verify"), secret=bytes(size))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_decisions_are_those_of_the_shared_vectors(case: dict[str, Any]) -> None:
    sender = case["sender"]
    books = ClaimsLedger(
        ClaimsPolicy.parse(case["policy"]),
        secret=bytes.fromhex(case["secret"]),
        first_checked=case["first_checked"],
        demotion_ms=case["demotion_ms"],
    )
    decided = []
    for step in case["steps"]:
        decided.append(books.decide(sender, step["crc"], step["now_ms"]))
        books.note(sender, step["answer"], step["now_ms"])
    assert decided == [step["decision"] for step in case["steps"]]


PAYLOADS = [
    claims.attach(batch(records(3), codec=codec), carrier="payload") for codec in (GZIP, ZSTD)
]


@pytest.mark.parametrize("data", PAYLOADS, ids=["gzip", "zstd"])
def test_claims_in_payloads_are_decided_and_noted(data: bytes) -> None:
    books, validator = ledger("audit:0.5", first_checked=2), LogValidator()
    paths = [books.check(validator, data, sender="s", now_ms=NOW).path for _ in range(50)]
    assert paths[:2] == ["shallow"] * 2
    assert 5 < paths.count("claims") < 45
    assert books.counts("s").batches == 50
    plain = claims.strip(data)
    buffer = data + plain
    ranges = [(0, len(data)), (len(data), len(plain)), (0, 30), (0, 61)]
    columns = books.check_ranges(validator, buffer, ranges, sender="s", now_ms=NOW)
    assert [row["claims"] is None for row in columns.rows()] == [False, True, True, True]
    assert books.counts("s").batches == 51


@pytest.mark.parametrize("data", PAYLOADS, ids=["gzip", "zstd"])
def test_a_payload_that_lies_demotes(data: bytes) -> None:
    true = claims.read(data)
    assert true is not None
    lie = claims.attach(data, true._replace(max_record_bytes=1), carrier="payload")
    books = ledger("audit:0.5")
    result = books.check(LogValidator(), lie, sender="s", now_ms=NOW)
    assert (result.ok, result.claims, books.is_demoted("s", NOW)) == (True, "lying", True)


# ---- demotion ------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["audit:0.001", "trust"])
def test_a_lie_costs_an_hour(policy: str) -> None:
    books = ledger(policy)
    if policy != "trust":
        past_probation(books)
    assert books.decide("edge", 5, NOW) == "trust"
    books.note("edge", "lying", NOW)
    assert books.is_demoted("edge", NOW)
    for later in (0, 1, HOUR // 2, HOUR - 1):
        assert books.decide("edge", 5, NOW + later) == "verify"
    assert not books.is_demoted("edge", NOW + HOUR)
    if policy == "trust":
        assert books.decide("edge", 5, NOW + HOUR) == "trust"
    else:  # it starts as a new sender does
        for _ in range(100):
            assert books.decide("edge", 5, NOW + HOUR) == "verify"
            books.note("edge", "honest", NOW + HOUR)
        assert books.decide("edge", 5, NOW + HOUR) == "trust"


def test_another_lie_lengthens_it() -> None:
    books = ledger("trust")
    books.note("edge", "lying", NOW)
    books.note("edge", "lying", NOW + HOUR // 2)
    assert books.decide("edge", 1, NOW + HOUR) == "verify"
    assert books.counts("edge").demotions == 1
    assert books.decide("edge", 1, NOW + HOUR * 3 // 2) == "trust"


def test_one_liar_does_not_demote_another_sender() -> None:
    books = ledger("trust")
    books.note("liar", "lying", NOW)
    assert books.decide("edge", 1, NOW) == "trust"


def test_a_sender_that_renames_itself_is_new() -> None:
    books = ledger("audit:0.001")
    past_probation(books, "liar")
    books.note("liar", "lying", NOW)
    past_probation(books, "liar under another name")  # asserts that each of its batches is checked


def test_a_clock_that_goes_back_does_not_forgive() -> None:
    books = ledger("trust")
    books.note("edge", "lying", NOW)
    assert books.decide("edge", 1, NOW - HOUR) == "verify"


def test_memory_for_senders_is_bounded_and_no_liar_is_forgotten() -> None:
    books = ledger("trust", most_senders=10)
    books.note("liar", "lying", NOW)
    for n in range(1000):
        books.decide(f"sender {n}", 1, NOW)
    assert len(books.senders()) == 10
    assert books.decide("liar", 1, NOW) == "verify"
    for n in range(20):
        books.note(f"liar {n}", "lying", NOW)
    assert len(books.senders()) == 10
    assert all(books.is_demoted(sender, NOW) for sender in books.senders())
    assert books.counts().lying == 21
    books.decide("newcomer", 1, NOW + 2 * HOUR)
    assert "newcomer" in books.senders()


@pytest.mark.parametrize("setting", ["first_checked", "demotion_ms", "most_senders"])
def test_settings_below_their_least(setting: str) -> None:
    with pytest.raises(BatchvalError, match=setting):
        ledger("verify", **{setting: -1})


def test_a_sender_has_a_name() -> None:
    with pytest.raises(BatchvalError, match="a sender is"):
        ledger("verify").decide("", 1, NOW)


# ---- decompression bombs -------------------------------------------------------------------------

LIMIT = 1 << 16


def a_bomb(number: int, codec: int = ZSTD) -> bytes:
    """Return a batch that decompresses to four times the limit; each has its own checksum."""
    return batch([record(0, value=b"%8d" % number + bytes(4 * LIMIT))], codec=codec)


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
def test_the_first_bomb_that_is_sampled_demotes_its_sender(codec: int) -> None:
    books = ledger("audit:0.2")
    validator = LogValidator(max_decompressed_bytes=LIMIT)
    for _ in range(150):
        assert books.check(validator, GOOD, sender="edge", now_ms=NOW, tag=tag_of(TRUE)).ok
    bombs = [a_bomb(n, codec) for n in range(200)]
    tags = [tag_of(claims.BatchClaims(NOW, 1, 1), bomb) for bomb in bombs]
    results = [
        books.check(validator, bomb, sender="edge", now_ms=NOW, tag=tag)
        for bomb, tag in zip(bombs, tags, strict=True)
    ]
    passed = next(n for n, result in enumerate(results) if not result.ok)
    assert passed < 50  # 0.8 ** 50: one in 70,000 secrets would let more pass
    assert [result.ok for result in results] == [True] * passed + [False] * (200 - passed)
    assert {(result.rule, result.claims) for result in results[passed:]} == {(Rule.S8, "lying")}
    counts = books.counts("edge")
    assert (counts.demotions, counts.lying, counts.unjudged) == (1, 200 - passed, 0)
    assert books.is_demoted("edge", NOW)
    assert (
        books.check(validator, GOOD, sender="edge", now_ms=NOW, tag=tag_of(TRUE)).path == "shallow"
    )


def test_bombs_in_one_request_demote_their_sender() -> None:
    books = ledger("audit:1")
    bombs = [a_bomb(n) for n in range(3)]
    ends = list(itertools.accumulate(map(len, bombs)))
    ranges = [(end - len(bomb), len(bomb)) for end, bomb in zip(ends, bombs, strict=True)]
    tags = [tag_of(claims.BatchClaims(NOW, 1, 1), bomb) for bomb in bombs]
    columns = books.check_ranges(
        LogValidator(max_decompressed_bytes=LIMIT),
        b"".join(bombs),
        ranges,
        sender="edge",
        now_ms=NOW,
        tags=tags,
    )
    assert [row["claims"] for row in columns.rows()] == ["lying"] * 3
    assert (books.counts("edge").demotions, books.is_demoted("edge", NOW)) == (1, True)


# ---- with a validator ----------------------------------------------------------------------------


def test_an_honest_sender_is_soon_believed() -> None:
    books = ledger("audit:0.001")
    paths = [
        books.check(LogValidator(), GOOD, sender="edge", now_ms=NOW, tag=tag_of(TRUE)).path
        for _ in range(150)
    ]
    assert paths[:100] == ["shallow"] * 100
    assert paths[100:].count("claims") > 45
    counts = books.counts("edge")
    assert counts.batches == 150
    assert counts.honest + counts.trusted == 150
    assert counts.lying == counts.demotions == 0


def test_a_lie_in_a_tag_leaves_the_slow_verdict_and_demotes() -> None:
    books = ledger("verify")
    result = books.check(LogValidator(), GOOD, sender="edge", now_ms=NOW, tag=tag_of(LIE))
    assert result.ok
    assert result.claims == "lying"
    assert books.is_demoted("edge", NOW)


def test_a_lie_in_a_header_is_a_malformed_batch() -> None:
    books = ledger("verify")
    result = books.check(LogValidator(CARRIED), claims.attach(GOOD, LIE), sender="edge", now_ms=NOW)
    assert result.rule is Rule.L7
    assert result.error_code.name == "INVALID_RECORD"
    assert books.counts().lying == 1


def test_a_batch_without_claims_draws_nothing() -> None:
    books = ledger("audit:0.5")
    assert books.check(LogValidator(), GOOD, sender="edge", now_ms=NOW).claims is None
    assert (
        books.check(LogValidator(), claims.attach(GOOD), sender="edge", now_ms=NOW).claims is None
    )  # not accepted
    assert books.check(LogValidator(), b"", sender="edge", now_ms=NOW, tag=b"").claims is None
    assert books.counts().batches == 0


def test_a_request_of_many_batches() -> None:
    plain, bad = batch(records(3), codec=NONE), batch([record(0, value=None)], codec=ZSTD, crc=1)
    carried = claims.attach(GOOD)
    parts = [GOOD, GOOD, carried, GOOD, plain, bad]
    tags = [tag_of(TRUE), tag_of(LIE), None, None, tag_of(TRUE), tag_of(TRUE, bad)]
    buffer = b"".join(parts)
    starts = [sum(map(len, parts[:i])) for i in range(len(parts))]
    ranges = [(start, len(part)) for start, part in zip(starts, parts, strict=True)]
    books = ledger("verify")
    columns = books.check_ranges(
        LogValidator(CARRIED), buffer, ranges, sender="edge", now_ms=NOW, tags=tags
    )
    answers = [row["claims"] for row in columns.rows()]
    assert answers == ["honest", "lying", "honest", None, "unbound", "unjudged"]
    assert books.counts().batches == 5
    assert books.counts().lying == 1
    for policies in (CARRIED, [CARRIED] * 6):
        again = ledger("trust").check_ranges(
            LogValidator(), buffer, ranges, sender="edge", now_ms=NOW, tags=tags, policies=policies
        )
        assert [row["path"] for row in again.rows()][:4] == [
            "claims",
            "claims",
            "claims",
            "shallow",
        ]
    with pytest.raises(BatchvalError, match="1 tags for 6 ranges"):
        books.check_ranges(LogValidator(), buffer, ranges, sender="edge", now_ms=NOW, tags=[None])


def test_a_buffer_that_is_none() -> None:
    with pytest.raises(BatchvalError, match="contiguous buffer"):
        ledger("verify").check(LogValidator(), memoryview(GOOD)[::2], sender="edge", now_ms=NOW)


def test_many_threads_lose_no_count() -> None:
    books = ledger("audit:0.5")

    def work(n: int) -> None:
        for _ in range(200):
            books.check(
                LogValidator(), GOOD, sender=f"sender {n % 3}", now_ms=NOW, tag=tag_of(TRUE)
            )

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    counts = books.counts()
    assert counts.batches == counts.honest + counts.trusted == 1600
    assert sum(books.counts(f"sender {n}").batches for n in range(3)) == 1600

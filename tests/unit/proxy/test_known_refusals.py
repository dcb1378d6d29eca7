"""Test refusals that a gate remembers: the answer is the same as if the batch was read again."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from batchval.core.claims import compute, to_tag
from batchval.policy import ClaimsPolicy, TopicPolicy
from batchval.protocol.walkers.produce import CLAIMS_TAG, ProduceRequestView
from batchval.proxy.produce import produce_validator as gate_module
from batchval.proxy.produce.produce_validator import (
    MAX_BYTES,
    MAX_SENDER_BYTES,
    MAX_SENDERS,
    KnownRefusals,
    ProduceValidator,
)
from batchval.proxy.settings.options import Counters, Facts, TopicPolicies
from batchval.proxy.watch.senders import Sender, Share
from batchval.record_rules import RecordRules
from tests.evidence.hostile import seeds
from tests.evidence.hostile.seeds import NOW, batch, record
from tests.support.old_produce import old_produce
from tests.support.proxy import produce_frame, proxy_options

FACTS = Facts("s", "127.0.0.1:1", "User:ANONYMOUS", "default")
LOG_APPEND_TIME = 8
ZSTD = 4
COUNT = 12_000  # records: more work than what is not worth remembering
MINIMAL_RECORD = record(0, None, b"")
IN_ORDER = seeds.records_in_order(0, COUNT, b"")
LIMIT = 2 << 20
DAY_MS = 86_400_000
POLICIES = {
    "any": TopicPolicy(),
    "keyed": TopicPolicy(cleanup_policy="compact"),
    "recent": TopicPolicy(message_timestamp_before_max_ms=DAY_MS),
    "ruled": TopicPolicy(record_rules=RecordRules(required_headers=("trace",))),
    "stamped": TopicPolicy(message_timestamp_type="LogAppendTime"),
}


@pytest.fixture
def clock(monkeypatch):
    """Return the clock of gates: ``clock.ms``."""
    found = SimpleNamespace(ms=NOW)
    times = SimpleNamespace(
        time_ns=lambda: found.ms * 1_000_000,
        thread_time=time.thread_time,
        monotonic=time.monotonic,
    )
    monkeypatch.setattr(gate_module, "time", times)
    return found


def gate_of(**options: Any) -> ProduceValidator:
    """Return a gate whose topics have the policies of these names."""
    options.setdefault("topics", TopicPolicies(TopicPolicy(), POLICIES))
    options.setdefault("validation", {"max_decompressed_bytes": LIMIT})
    return ProduceValidator(proxy_options(**options), Counters())


def answer(gate: ProduceValidator, frame: bytes, account: str = "a") -> tuple[Any, int]:
    """Return all that a gate says of a request, and how many partitions it did not read."""
    request = ProduceRequestView(memoryview(frame)[4:], oldest=0)
    verdict = gate.validate(request, "s", account=Sender(account, Share()))
    heavy = False
    while not verdict.done:
        heavy = gate.work(request, verdict, heavy=heavy, budget_s=1.0) == "heavy" or heavy
    gate.settle(request, verdict, FACTS)
    found = verdict.verdicts
    assert found is not None
    rows = [
        (
            found.rule(i),
            found.error_code(i),
            found.reason(i),
            found.record_errors(i, "t"),
            found.reports(i),
            found.path(i),
        )
        for i in range(len(found))
    ]
    return (rows, verdict.keep, verdict.refusals, verdict.any_left), found.repeated


def sent(data: bytes, topic: str = "any", **options: Any) -> bytes:
    return produce_frame(1, (topic, 0, data), **options)


def refused_by(gate: ProduceValidator, frame: bytes, account: str = "a") -> tuple[str, int]:
    found, repeated = answer(gate, frame, account)
    return found[0][0][0], repeated


WRONG_OFFSETS = batch(MINIMAL_RECORD * COUNT, COUNT, ZSTD)
STAMPED = batch(
    MINIMAL_RECORD * COUNT,
    COUNT,
    ZSTD,
    attributes=LOG_APPEND_TIME,
    base_timestamp=-1,
    max_timestamp=-1,
)
CUT_OFF = batch(IN_ORDER[:-1], COUNT, ZSTD)
REPEATED = {
    "wrong offsets": ("any", WRONG_OFFSETS),
    "record errors": ("any", STAMPED),
    "null keys": ("keyed", batch(IN_ORDER, COUNT, ZSTD)),
    "old records": ("recent", batch(IN_ORDER, COUNT, ZSTD, base_timestamp=1_000)),
    "the last record is cut off": ("any", CUT_OFF),
    "damage after records": (
        "any",
        batch(b"", 5 * COUNT, ZSTD, payload=seeds.compress(ZSTD, MINIMAL_RECORD * 5 * COUNT)[:-1]),
    ),
    "above the limit": ("any", batch(seeds.record(0, None, bytes(3 * LIMIT)), 1, ZSTD)),
    "record rules": ("ruled", batch(IN_ORDER, COUNT, ZSTD)),
    "gzip": ("any", batch(MINIMAL_RECORD * COUNT, COUNT, 1)),
    "snappy": ("any", batch(MINIMAL_RECORD * COUNT, COUNT, 2, style=1)),
    "lz4": ("any", batch(MINIMAL_RECORD * COUNT, COUNT, 3)),
}


@pytest.mark.parametrize("mode", ["strict", "kafka"])
@pytest.mark.parametrize("name", REPEATED)
def test_a_repeated_batch_has_the_same_answer_and_is_not_read(name, mode, clock):
    topic, data = REPEATED[name]
    validation = {"max_decompressed_bytes": LIMIT, "rules": mode}
    gate = gate_of(validation=validation)
    first, read = answer(gate, sent(data, topic))
    assert first[0][0][0]
    assert read == 0
    if name == "snappy" and len(data) * 16 > COUNT * len(MINIMAL_RECORD):
        pytest.skip("snappy makes too little of it")
    clock.ms += 5_000
    again, not_read = answer(gate, sent(data, topic))
    assert not_read == 1
    assert again == answer(gate_of(validation=validation), sent(data, topic))[0]
    assert gate.counters.refusals_repeated_total == 1


def test_partitions_of_one_request_count_too(clock):
    frame = produce_frame(1, *(("any", i, STAMPED) for i in range(5)))
    found, not_read = answer(gate_of(), frame)
    assert not_read == 4
    rows = found[0]
    assert [row[:3] for row in rows] == [rows[0][:3]] * 5
    assert len(rows[0][3]) == 1_000
    assert rows[1][3] == [], "a request has the first 1,000 record errors"


def test_requests_that_have_begun_count_too(clock):
    gate, account, begun = gate_of(), Sender("a", Share()), []
    frame = sent(batch(MINIMAL_RECORD * 250_000, 250_000, ZSTD))
    for _ in range(3):
        request = ProduceRequestView(memoryview(frame)[4:], oldest=0)
        verdict = gate.validate(request, "s", account=account)
        assert gate.work(request, verdict, heavy=False, budget_s=1.0) == "heavy"
        begun.append((request, verdict))
    for request, verdict in begun:
        assert gate.work(request, verdict, heavy=True, budget_s=1.0) == "done"
    assert [verdict.verdicts.repeated for _, verdict in begun] == [0, 1, 1]


def test_nobody_pays_for_another_and_no_other_batch_is_refused(clock):
    gate = gate_of()
    assert refused_by(gate, sent(WRONG_OFFSETS)) == ("offset-deltas-not-sequential", 0)
    assert refused_by(gate, sent(WRONG_OFFSETS), "b")[1] == 0
    other = batch(MINIMAL_RECORD * COUNT, COUNT, ZSTD, producer=(5, 0, 0))
    assert refused_by(gate, sent(other))[1] == 0
    good = batch(IN_ORDER, COUNT, ZSTD)
    assert refused_by(gate, sent(good)) == ("", 0)


def test_a_batch_with_the_checksum_and_size_of_a_refused_one_is_read(clock):
    """Only its digest says that it is another: its checksum is wrong."""
    gate = gate_of()
    refused_by(gate, sent(WRONG_OFFSETS))
    forged = bytearray(WRONG_OFFSETS)
    forged[-6] ^= 1
    assert refused_by(gate, sent(bytes(forged))) == ("crc-mismatch", 0)


def test_only_batches_like_a_refused_one_are_hashed(clock):
    gate = gate_of()
    hashed = []
    digest = gate.known_refusals.digest
    gate.known_refusals.digest = lambda one: hashed.append(len(one)) or digest(one)
    good = [batch(IN_ORDER, COUNT, ZSTD, producer=(i, 0, 0)) for i in range(3)]
    for one in good:
        refused_by(gate, sent(one))
    assert hashed == []
    refused_by(gate, sent(WRONG_OFFSETS))
    for one in good:
        refused_by(gate, sent(one))
    assert hashed == [len(WRONG_OFFSETS)]


def test_the_policy_of_a_topic_and_the_version_count(clock):
    gate = gate_of()
    data = batch(IN_ORDER, COUNT, ZSTD)
    assert refused_by(gate, sent(data, "keyed")) == ("key-missing", 0)
    assert refused_by(gate, sent(data, "any")) == ("", 0)
    assert refused_by(gate, sent(data, "keyed")) == ("key-missing", 1)
    assert refused_by(gate, sent(data, "keyed", version=6)) == ("request-zstd-too-old", 0)


def test_an_acceptance_is_not_remembered(clock):
    gate = gate_of()
    for _ in range(2):
        assert refused_by(gate, sent(batch(IN_ORDER, COUNT, ZSTD))) == ("", 0)
    assert len(gate.known_refusals) == 0


def test_cheap_refusals_are_not_remembered(clock):
    gate = gate_of()
    refused_by(gate, sent(WRONG_OFFSETS[:-1] + b"\0"))
    refused_by(gate, sent(batch(MINIMAL_RECORD * 100, 100, ZSTD)))
    refused_by(gate, sent(batch(MINIMAL_RECORD * COUNT, COUNT)))
    assert len(gate.known_refusals) == 0


def test_batches_with_claims_are_not_remembered(clock):
    gate = gate_of(claims_in=ClaimsPolicy.parse("verify"))
    tag = to_tag(compute(batch(IN_ORDER, COUNT, ZSTD)), int.from_bytes(WRONG_OFFSETS[17:21], "big"))
    frame = sent(WRONG_OFFSETS, tags=((CLAIMS_TAG, tag),))
    assert refused_by(gate, frame) == refused_by(gate, frame) == ("offset-deltas-not-sequential", 0)
    assert len(gate.known_refusals) == 0


def test_a_later_answer_is_that_of_its_time(clock):
    """The records of wrong offsets become too old, which is another error."""
    gate = gate_of()
    frame = sent(WRONG_OFFSETS, "recent")
    assert refused_by(gate, frame) == ("offset-deltas-not-sequential", 0)
    clock.ms += DAY_MS
    assert refused_by(gate, frame) == ("offset-deltas-not-sequential", 1)
    clock.ms += 1
    assert refused_by(gate, frame) == ("timestamp-out-of-range", 0)
    clock.ms = NOW
    assert refused_by(gate, frame)[0] == "offset-deltas-not-sequential"


def test_what_is_forwarded_all_the_same_is_forwarded_again(clock):
    gate = gate_of(mode="observe")
    first, _ = answer(gate, sent(WRONG_OFFSETS))
    again, not_read = answer(gate, sent(WRONG_OFFSETS))
    assert (not_read, again) == (1, first)
    assert again[3], "it is forwarded"


@pytest.mark.parametrize("observes", [False, True])
def test_message_sets_of_old_producers(clock, observes):
    """Observed ones are converted each time."""
    inner = seeds.legacy(1, None, b"", 0, NOW) * COUNT
    wrapper = seeds.wrapper(1, inner[:-1] + b"\1", 1, COUNT - 1)
    gate = gate_of(mode="observe" if observes else "enforce")
    frame = old_produce(2, 1, ("any", 0, wrapper))
    first, _ = answer(gate, frame)
    again, not_read = answer(gate, frame)
    assert (not_read, again) == (not observes, first)
    forged = bytearray(wrapper)
    forged[12] ^= 1  # its checksum
    assert refused_by(gate, old_produce(2, 1, ("any", 0, bytes(forged))))[1] == 0


def a_bomb(rng: random.Random) -> tuple[str, bytes]:
    """Return a topic and a batch that some rule may refuse after its records were read."""
    timestamps = [rng.choice((0, 0, -DAY_MS, -1, 3 * DAY_MS)) for _ in range(2)]
    parts = [record(0, rng.choice((None, b"k")), b"", timestamps[i]) for i in range(2)]
    records = rng.choice((IN_ORDER, parts[0] * COUNT, parts[0] * (COUNT - 1) + parts[1]))
    fields: dict[str, Any] = {
        "attributes": rng.choice((0, 0, 0, LOG_APPEND_TIME, 16)),
        "base_timestamp": rng.choice((NOW, NOW, -1, 1_000, NOW - DAY_MS)),
        "max_timestamp": rng.choice((NOW, -1, 1_000)),
        "base_offset": rng.choice((0, 0, 0, 0, 1)),
    }
    count = COUNT + rng.choice((0, 0, 0, 0, -1, 1))
    made = batch(records, count, rng.choice((1, 3, 4)), **fields)
    return rng.choice(tuple(POLICIES)), made


def test_a_gate_that_remembers_answers_as_one_that_does_not(clock):
    rng = random.Random(46)
    gate = gate_of()
    bombs = [a_bomb(rng) for _ in range(40)]
    repeated = 0
    for _ in range(160):
        topic, data = rng.choice(bombs)
        clock.ms = NOW + rng.choice((0, 0, 1, 3_600_000, DAY_MS, DAY_MS + 1, 4 * DAY_MS, -DAY_MS))
        frame = produce_frame(1, (topic, 0, data), version=rng.choice((6, 9, 9)))
        found, not_read = answer(gate, frame)
        fresh, _ = answer(gate_of(), frame)
        assert found == fresh, (topic, clock.ms - NOW, data[:61].hex())
        repeated += not_read
    assert repeated > 20


# ---- the table -----------------------------------------------------------------------------------


class Refused(SimpleNamespace):
    """A refusal of some size."""

    size = 1_000


def test_a_sender_loses_its_own_oldest_refusals():
    table = KnownRefusals()
    table.add("quiet", (1, 1, 9), Refused())
    for i in range(2_000):
        table.add("busy", (i, 1, 9), Refused())
    found = table.of("busy")
    assert sorted(found) == [(i, 1, 9) for i in range(2_000 - MAX_SENDER_BYTES // 1_000, 2_000)]
    assert table.size == 1_000 * (len(found) + 1)
    assert list(table.of("quiet")) == [(1, 1, 9)]


def test_the_table_is_bounded_for_all_senders_together():
    table = KnownRefusals()
    for i in range(MAX_SENDERS + 5):
        table.add(f"small {i}", (1, 1, 9), Refused())
    assert len(table) == MAX_SENDERS
    assert table.of("small 0") is None
    for i in range(MAX_BYTES // MAX_SENDER_BYTES + 5):
        for n in range(MAX_SENDER_BYTES // 1_000):
            table.add(f"large {i}", (n, 1, 9), Refused())
        assert table.size <= MAX_BYTES
    table.add("x", (1, 1, 9), SimpleNamespace(size=MAX_SENDER_BYTES + 1))
    assert table.of("x") is None
    table.clear()
    assert (len(table), table.size, table.of("large 60")) == (0, 0, None)


def test_a_place_has_one_refusal():
    table = KnownRefusals()
    for _ in range(3):
        one = Refused()
        table.add("a", (1, 1, 9), one)
    assert (len(table), table.size) == (1, 1_000)
    assert table.of("a")[1, 1, 9] is one


def test_digests_of_two_tables_differ():
    assert KnownRefusals().digest(memoryview(b"x")) != KnownRefusals().digest(memoryview(b"x"))


def test_a_changed_file_forgets_all(clock):
    """A reload makes another gate, and a cluster with other policies other validators."""
    gate = gate_of()
    refused_by(gate, sent(WRONG_OFFSETS))
    policies = dict(POLICIES)
    gate.topics.known = policies.get
    assert refused_by(gate, sent(WRONG_OFFSETS))[1] == 1
    policies["any"] = replace(policies["any"], max_message_bytes=50)
    assert refused_by(gate, sent(WRONG_OFFSETS)) == ("batch-too-large", 0)

"""Schema ids as claims in the gate: what they settle, which lies are found, what goes on."""

from __future__ import annotations

import struct
import time
from typing import Any

import pytest

from batchval.core.claims import BatchClaims, attach, compute, read, to_tag
from batchval.policy import ClaimsPolicy, TopicPolicy
from batchval.protocol.walkers.produce import CLAIMS_TAG, ProduceRequestView
from batchval.proxy.settings.options import TopicPolicies
from batchval.record_rules import RecordRules, SchemaIds
from tests.support.batches import GZIP, message, wrapper
from tests.support.old_produce import old_answer, old_produce
from tests.support.proxy import (
    ZSTD,
    RunningProxy,
    ScriptedBroker,
    batch,
    codes,
    connected,
    produce_frame,
    read_frame,
)

INVALID_RECORD = 87
TOPIC = "orders"


def with_ids(*schema_ids: int) -> bytes:
    return batch(
        *(b"\0" + struct.pack(">i", one) + b"payload" * 20 for one in schema_ids), codec=ZSTD
    )


def policies() -> TopicPolicies:
    rules = RecordRules(SchemaIds(ids=frozenset({7, 8})))
    return TopicPolicies(TopicPolicy(), {TOPIC: TopicPolicy(record_rules=rules)})


def tag_of(records: bytes, *ids: int) -> bytes:
    """Return the true claims in a tag, with these ids in field 1."""
    claims = compute(records)
    assert claims is not None
    field = (1, struct.pack(f">B{len(ids)}i", 1, *ids))
    return to_tag(claims._replace(fields=(field,)), int.from_bytes(records[17:21], "big"))


def running(broker: ScriptedBroker, word: str = "ignore", **more: Any) -> RunningProxy:
    return RunningProxy(
        broker.address, policies=policies(), claims_in=ClaimsPolicy.parse(word), **more
    )


def test_trusted_ids_settle_and_ids_that_are_not_allowed_are_named() -> None:
    # Shown with a false list: under trust it passes, and so no record was looked at.
    good, bad = with_ids(7, 8), with_ids(7, 9)
    cases = [(good, (7, 8), 0), (bad, (7, 9), INVALID_RECORD), (bad, (7, 8), 0)]
    with ScriptedBroker() as broker, running(broker, "trust") as proxy, connected(proxy) as sock:
        for n, (records, ids, code) in enumerate(cases):
            sock.sendall(
                produce_frame(n, (TOPIC, 0, records), tags=((CLAIMS_TAG, tag_of(records, *ids)),))
            )
            assert codes(read_frame(sock)) == {(TOPIC, 0): code}
    assert proxy.counters.partitions_refused == {"record-schema-id": 1}


def test_a_false_list_is_a_lie() -> None:
    records = with_ids(7, 8)
    with ScriptedBroker() as broker, running(broker, "verify") as proxy, connected(proxy) as sock:
        for n, ids in enumerate(((7, 8), (7,), (7, 8, 9))):
            sock.sendall(
                produce_frame(n, (TOPIC, 0, records), tags=((CLAIMS_TAG, tag_of(records, *ids)),))
            )
            assert codes(read_frame(sock)) == {(TOPIC, 0): 0}
        counts = proxy.proxy.gate.ledger.counts()
        assert (counts.honest, counts.lying) == (2, 1)


@pytest.mark.parametrize("partitions", [1, 2])  # the fast path takes one
@pytest.mark.parametrize("claims_out", ["tag", "payload"])
def test_claims_that_go_out_state_the_ids_of_topics_with_a_rule(
    claims_out: str, partitions: int
) -> None:
    records = with_ids(8, 7)
    true = compute(records, schema_ids=True)
    assert true is not None
    assert true.schema_ids == (7, 8)
    for topic, expected in ((TOPIC, true), ("other", true._replace(fields=()))):
        parts = [(topic, i, records) for i in range(partitions)]
        with (
            ScriptedBroker() as broker,
            running(broker, claims_out=claims_out) as proxy,
            connected(proxy) as sock,
        ):
            sock.sendall(produce_frame(1, *parts))
            assert set(codes(read_frame(sock)).values()) == {0}
        assert sent_on(broker, records) == [expected] * partitions


@pytest.mark.parametrize("magic", [0, 1])
def test_claims_of_converted_batches_state_the_ids_too(magic: int) -> None:
    # Of topics with a rule, where the claims go out. They also state whether a value is null.
    now = int(time.time() * 1000)
    values = [b"\0" + struct.pack(">i", one) + b"payload" * 20 for one in (8, 7, 8)]
    for last, topic, claims_out, expected in (
        (values[0], TOPIC, "payload", ((7, 8), True)),
        (None, TOPIC, "payload", ((7, 8), False)),
        (values[0], "other", "payload", (None, False)),
        (values[0], TOPIC, "none", None),
    ):
        inner = [
            message(magic, offset=n, timestamp=now, value=one)
            for n, one in enumerate([*values, last])
        ]
        old = old_produce(1, 7, (topic, 0, wrapper(inner, GZIP, magic, timestamp=now)), acks=1)
        bridged = running(broker := ScriptedBroker(), claims_out=claims_out, bridge=("producers",))
        with broker, bridged as proxy, connected(proxy) as sock:
            sock.sendall(old)
            assert old_answer(read_frame(sock), 1).partitions[topic, 0].error_code == 0
        made = bytes(ProduceRequestView(broker.frames[0]).records(0) or b"")
        assert compute(made) is not None  # a whole batch of magic 2
        claims = read(made)
        assert (claims is not None) == (claims_out == "payload")
        if claims is not None:
            assert claims == compute(made, schema_ids=topic == TOPIC)
            assert (claims.schema_ids, claims.no_value_null) == expected


def sent_on(broker: ScriptedBroker, records: bytes) -> list[BatchClaims | None]:
    view = ProduceRequestView(broker.frames[0])
    found = []
    for i in range(len(view)):
        batch_sent = bytes(view.records(i) or b"")
        claims = read(batch_sent, view.claims(i))
        assert batch_sent == records or (
            claims and batch_sent == attach(records, claims, carrier="payload")
        )
        found.append(claims)
    return found

"""Test the answers that clients get to their batches: of each partition, and in order."""

from __future__ import annotations

import socket
import struct
import time
import weakref
from typing import Any

import pytest

from batchval.core.claims import attach, compute, to_tag
from batchval.errors import BatchvalError
from batchval.policy import ClaimsPolicy, TopicPolicy
from batchval.protocol.messages.produce import ProduceRequest, ProduceResponse
from batchval.protocol.walkers.produce import CLAIMS_TAG, ProduceRequestView
from batchval.proxy.life.listener_server import ListenerServer
from batchval.proxy.produce import produce_validator as gate_module
from batchval.proxy.settings.options import Counters, TopicPolicies
from tests.support.proxy import (
    BAD,
    COMPRESSED,
    GOOD,
    RunningProxy,
    ScriptedBroker,
    answered,
    batch,
    codes,
    connected,
    connected_gate,
    damaged,
    eventually,
    other_frame,
    produce_frame,
    proxy_options,
    read_frame,
)

GZIP = 1


def test_an_accepted_request_goes_on_untouched_but_for_its_correlation_id():
    sent = produce_frame(77, ("t", 0, GOOD), ("t", 3, COMPRESSED), ("u", 1, GOOD))
    with connected_gate() as (broker, proxy, sock):
        sock.sendall(sent)
        answer = read_frame(sock)
        assert codes(answer) == {("t", 0): 0, ("t", 3): 0, ("u", 1): 0}
        assert struct.unpack(">i", answer[:4]) == (77,)
        (frame,) = broker.frames
        assert frame[:4] + frame[8:] == sent[4:8] + sent[12:]
        assert proxy.refusals == []


@pytest.mark.parametrize("version", range(3, 13))
def test_a_refused_partition_is_answered_with_the_brokers_answers_to_the_others(version):
    sent = produce_frame(
        5, ("t", 0, GOOD), ("t", 1, BAD), ("u", 0, BAD), ("v", 2, GOOD), version=version
    )
    with connected_gate() as (broker, proxy, sock):
        sock.sendall(sent)
        answer = read_frame(sock)
        assert struct.unpack(">i", answer[:4]) == (5,)
        assert codes(answer, version) == {("t", 0): 0, ("t", 1): 2, ("u", 0): 2, ("v", 2): 0}
        _, forwarded = ProduceRequest.parse(broker.frames[0])
        parts = [
            (t.name, p.index, bytes(p.records))
            for t in forwarded.topic_data
            for p in t.partition_data
        ]
        assert parts == [("t", 0, GOOD), ("v", 2, GOOD)]
        assert [(r.topic, r.partition, r.rule, r.error) for r in proxy.refusals] == [
            ("t", 1, "crc-mismatch", "CORRUPT_MESSAGE"),
            ("u", 0, "crc-mismatch", "CORRUPT_MESSAGE"),
        ]


@pytest.mark.parametrize(("size", "code"), [(13, 2), (2**31 - 12, 87)])
def test_a_batch_that_cannot_be_iterated_fails_the_whole_request(size, code):
    # As in Kafka: every partition gets the code, and nothing reaches the broker.
    bad = GOOD[:8] + struct.pack(">i", size) + GOOD[12:]
    sent = produce_frame(5, ("t", 0, GOOD), ("t", 1, bad), ("u", 0, COMPRESSED))
    with connected_gate() as (broker, proxy, sock):
        sock.sendall(sent)
        assert codes(read_frame(sock)) == {("t", 0): code, ("t", 1): code, ("u", 0): code}
        assert broker.frames == []
        assert [(r.topic, r.partition) for r in proxy.refusals] == [("t", 0), ("t", 1), ("u", 0)]
        sock.sendall(produce_frame(6, ("t", 0, GOOD), ("u", 0, COMPRESSED)))
        assert codes(read_frame(sock)) == {("t", 0): 0, ("u", 0): 0}


def test_record_errors_say_which_record():
    old = batch(b"a", b"b", timestamp=1000)
    policies = TopicPolicies(TopicPolicy(message_timestamp_before_max_ms=60_000))
    with connected_gate(policies=policies) as (broker, _, sock):
        sock.sendall(produce_frame(1, ("t", 0, old), version=8))
        response = ProduceResponse.decode(read_frame(sock), 8)
        part = response.responses[0].partition_responses[0]
        assert part.error_code == 32
        assert [error.batch_index for error in part.record_errors] == [0, 1]
        assert part.base_offset == -1
        assert part.error_message
        assert broker.frames == []


def test_policies_go_by_topic():
    policies = TopicPolicies(TopicPolicy(), {"compact-*": TopicPolicy(cleanup_policy="compact")})
    keyless = batch(b"x", key=None)
    with connected_gate(policies=policies) as (_, _, sock):
        sock.sendall(produce_frame(1, ("compact-a", 0, keyless), ("other", 0, keyless)))
        assert codes(read_frame(sock)) == {("compact-a", 0): 87, ("other", 0): 0}


def test_policies_that_come_and_go_cost_no_memory(monkeypatch):
    monkeypatch.setattr(gate_module, "MAX_POLICIES", 10)
    limits = iter(range(100, 200))
    topics = TopicPolicies()
    topics.known = lambda _: TopicPolicy(
        max_message_bytes=next(limits)
    )  # the topic's configuration is never the same
    gate = gate_module.ProduceValidator(proxy_options(topics=topics), Counters())
    request = ProduceRequestView(produce_frame(1, ("t", 0, batch(b"x" * 60)))[4:])
    passed = [gate.validate(request, "s").verdicts.ok(0) for _ in range(100)]
    assert passed == [len(batch(b"x" * 60)) <= limit for limit in range(100, 200)]
    assert 0 < len(gate._by_policy) <= 10


def test_answers_keep_the_order_of_requests():
    held: list[bytes] = []
    with connected_gate(held.append) as (broker, _, sock):
        sock.sendall(
            produce_frame(1, ("t", 0, GOOD))
            + produce_frame(2, ("t", 0, BAD))
            + other_frame(3)
            + produce_frame(4, ("t", 0, BAD))
            + produce_frame(5, ("t", 0, GOOD), ("t", 1, BAD))
        )
        eventually(lambda: len(held) == 3)
        sock.settimeout(0.2)
        with pytest.raises(TimeoutError):
            sock.recv(1)  # the refusals wait for their turn
        sock.settimeout(10)
        assert broker.talking is not None
        for frame in held:
            broker.talking.sendall(answered(frame) or b"")
        got = [read_frame(sock) for _ in range(5)]
        assert [struct.unpack(">i", frame[:4])[0] for frame in got] == [1, 2, 3, 4, 5]
        assert codes(got[4]) == {("t", 0): 0, ("t", 1): 2}


def test_what_nobody_else_is_asked_about_is_answered_at_once():
    with connected_gate() as (broker, proxy, sock):
        for i in range(3):
            sock.sendall(produce_frame(i, ("t", 0, BAD)))
            assert codes(read_frame(sock)) == {("t", 0): 2}
        assert broker.frames == []
        assert proxy.counters.requests_answered_here_total == 3


def test_a_long_decompression_keeps_its_place(monkeypatch):
    monkeypatch.setattr(gate_module, "INLINE_COMPRESSED", 100)
    slow = batch(*(b"%d" % i * 500 for i in range(200)), codec=GZIP)
    assert len(slow) > 100
    frames = [
        produce_frame(1, ("t", 0, slow)),
        produce_frame(2, ("t", 0, GOOD)),
        other_frame(3),
        produce_frame(4, ("t", 0, damaged(slow))),
        produce_frame(5, ("t", 0, slow), ("t", 1, BAD)),
        produce_frame(6, ("t", 0, GOOD)),
    ]
    with connected_gate() as (broker, proxy, sock):
        for _ in range(20):
            broker.frames.clear()
            sock.sendall(b"".join(frames))
            got = [read_frame(sock) for _ in frames]
            assert [struct.unpack(">i", frame[:4])[0] for frame in got] == [1, 2, 3, 4, 5, 6]
            assert codes(got[3]) == {("t", 0): 2}
            assert codes(got[4]) == {("t", 0): 0, ("t", 1): 2}
            assert [len(frame) + 4 for frame in broker.frames][:3] == [
                len(frame) for frame in frames[:3]
            ]
        assert proxy.counters.judged_in_threads_total == 60


def test_what_turns_out_large_is_judged_in_a_thread():
    bomb = batch(b"\0" * (4 << 20), codec=GZIP)
    assert len(bomb) < gate_module.INLINE_COMPRESSED
    with connected_gate() as (_, proxy, sock):
        sock.sendall(produce_frame(1, ("t", 0, bomb)) + produce_frame(2, ("t", 0, BAD)))
        assert codes(read_frame(sock)) == {("t", 0): 0}
        assert codes(read_frame(sock)) == {("t", 0): 2}
        assert proxy.counters.judged_in_threads_total == 1


def test_a_bomb_is_refused_whatever_thread_judges_it():
    bomb = batch(b"\0" * (3 << 20), codec=GZIP)
    options = {"validation": {"max_decompressed_bytes": 2 << 20}}
    with connected_gate(**options) as (broker, proxy, sock):
        sock.sendall(produce_frame(1, ("t", 0, bomb)))
        assert codes(read_frame(sock)) == {("t", 0): 87}
        assert proxy.refusals[0].rule == "decompressed-too-large"
        assert broker.frames == []


def test_acks_0_forwards_what_passes_delivers_what_is_queued_then_closes():
    with connected_gate() as (broker, proxy, sock):
        sock.sendall(
            produce_frame(1, ("t", 0, GOOD))
            + produce_frame(2, ("t", 0, GOOD), acks=0)
            + produce_frame(3, ("t", 0, GOOD), ("t", 1, BAD), acks=0)
            + produce_frame(4, ("t", 0, GOOD))
        )
        assert codes(read_frame(sock)) == {("t", 0): 0}
        with pytest.raises(EOFError):
            read_frame(sock)
        eventually(lambda: len(broker.frames) == 3)  # the fourth came after the end
        _, last = ProduceRequest.parse(broker.frames[2])
        assert [(p.index, bytes(p.records)) for p in last.topic_data[0].partition_data] == [
            (0, GOOD)
        ]
        assert proxy.counters.connections_closed == {"acks_0_refused": 1}


def test_acks_0_then_acks_1_are_distinguished():
    with connected_gate() as (broker, _, sock):
        for i in range(50):
            sock.sendall(
                produce_frame(i, ("t", 0, GOOD), acks=0) + produce_frame(1000 + i, ("t", 0, GOOD))
            )
            assert struct.unpack(">i", read_frame(sock)[:4]) == (1000 + i,)
        assert len(broker.frames) == 100


def test_what_a_client_sent_without_waiting_for_it_arrives_although_the_client_is_gone():
    with ScriptedBroker() as broker, RunningProxy(broker.address) as proxy:
        for _ in range(20):
            with socket.create_connection(proxy.address) as sock:
                sock.sendall(produce_frame(1, ("t", 0, GOOD), acks=0))
        eventually(lambda: len(broker.frames) == 20)


def test_observing_forwards_all_and_says_what_would_have_been_refused():
    sent = produce_frame(1, ("t", 0, BAD), ("t", 1, GOOD))
    with connected_gate(mode="observe") as (broker, proxy, sock):
        sock.sendall(sent)
        assert codes(read_frame(sock)) == {("t", 0): 0, ("t", 1): 0}
        assert broker.frames[0][8:] == sent[12:]
        assert [(r.rule, r.enforced) for r in proxy.refusals] == [("crc-mismatch", False)]
        assert proxy.counters.partitions_observed == {"crc-mismatch": 1}
        assert proxy.counters.partitions_refused == {}


def test_extras_are_reported_and_pass():
    trailing = GOOD + b"xyz"
    with connected_gate() as (_, proxy, sock):
        sock.sendall(produce_frame(1, ("t", 0, trailing)))
        assert codes(read_frame(sock)) == {("t", 0): 0}
        assert [(r.rule, r.reported, r.enforced) for r in proxy.refusals] == [
            ("", ("bytes-behind-batch",), False)
        ]


@pytest.mark.parametrize(
    "records",
    [b"", b"\0" * 5, GOOD[:30], b"\xff" * 80],
    ids=["empty", "zeros", "half a header", "ones"],
)
def test_records_that_are_none(records):
    with connected_gate() as (broker, _, sock):
        sock.sendall(produce_frame(1, ("t", 0, records)) + produce_frame(2, ("t", 0, GOOD)))
        assert codes(read_frame(sock))[("t", 0)] in (2, 87)
        assert codes(read_frame(sock)) == {("t", 0): 0}
        assert len(broker.frames) == 1


# ---- claims --------------------------------------------------------------------------------------


def tag_of(records: bytes, null_keys: int | None = None) -> bytes:
    claims = compute(records)
    assert claims is not None
    if null_keys is not None:
        claims = claims._replace(null_keys=null_keys)
    return to_tag(claims, int.from_bytes(records[17:21], "big"))


@pytest.mark.parametrize("claims_in", ["ignore", "verify", "audit:0.5", "trust"])
@pytest.mark.parametrize("mode", ["enforce", "observe"])
def test_claims_that_come_in_do_not_go_on(claims_in, mode):
    other = (7, b"kept")
    sent = produce_frame(1, ("t", 0, COMPRESSED), tags=(other, (CLAIMS_TAG, tag_of(COMPRESSED))))
    options = {"claims_in": ClaimsPolicy.parse(claims_in), "mode": mode}
    with connected_gate(**options) as (broker, proxy, sock):
        sock.sendall(sent)
        assert codes(read_frame(sock)) == {("t", 0): 0}
        _, forwarded = ProduceRequest.parse(broker.frames[0])
        part = forwarded.topic_data[0].partition_data[0]
        assert (bytes(part.records), part.unknown_tagged_fields) == (COMPRESSED, (other,))
        assert proxy.counters.claims_tags_dropped_total == 1


def test_claims_go_out_for_what_was_decompressed_here():
    uncompressed = GOOD
    sent = produce_frame(
        1, ("t", 0, COMPRESSED), ("t", 1, uncompressed), ("t", 2, damaged(COMPRESSED))
    )
    with connected_gate(claims_out="tag") as (broker, proxy, sock):
        sock.sendall(sent)
        assert codes(read_frame(sock)) == {("t", 0): 0, ("t", 1): 0, ("t", 2): 2}
        view = ProduceRequestView(broker.frames[0])
        assert [view.claims(i) for i in range(len(view))] == [tag_of(COMPRESSED), None]
        assert proxy.counters.claims_tags_added_total == 1


def test_a_stranger_is_not_vouched_for():
    # A lie that comes in is replaced by what is true.
    lie = tag_of(COMPRESSED, null_keys=1)
    sent = produce_frame(1, ("t", 0, COMPRESSED), tags=((CLAIMS_TAG, lie),))
    for claims_in in ("ignore", "verify"):
        options = {"claims_out": "tag", "claims_in": ClaimsPolicy(claims_in)}
        with connected_gate(**options) as (broker, _, sock):
            sock.sendall(sent)
            assert codes(read_frame(sock)) == {("t", 0): 0}
            assert ProduceRequestView(broker.frames[0]).claims(0) == tag_of(COMPRESSED)


CARRYING = attach(COMPRESSED, carrier="payload")
GZIPPED = batch(b"one" * 50, b"two" * 50, codec=GZIP)


def sent_on(broker: ScriptedBroker) -> list[tuple[bytes, bytes | None]]:
    """Return the records and the claims tag of each partition of the first request."""
    view = ProduceRequestView(broker.frames[0])
    return [(bytes(view.records(i) or b""), view.claims(i)) for i in range(len(view))]


@pytest.mark.parametrize("version", [7, 8, 9, 12])
@pytest.mark.parametrize("claims_in", ["ignore", "verify", "audit:0.5", "trust"])
@pytest.mark.parametrize("mode", ["enforce", "observe"])
def test_claims_that_come_in_a_payload_do_not_go_on(version, claims_in, mode):
    parts = (("t", 0, CARRYING), ("t", 1, GOOD), ("u", 0, attach(GZIPPED, carrier="payload")))
    options = {"claims_in": ClaimsPolicy.parse(claims_in), "mode": mode}
    with connected_gate(**options) as (broker, proxy, sock):
        sock.sendall(produce_frame(1, *parts, version=version))
        assert codes(read_frame(sock), version) == {("t", 0): 0, ("t", 1): 0, ("u", 0): 0}
        assert sent_on(broker) == [(COMPRESSED, None), (GOOD, None), (GZIPPED, None)]
        counters = proxy.counters
        assert (counters.claims_payloads_dropped_total, counters.claims_payloads_added_total) == (
            2,
            0,
        )
        ledger = proxy.proxy.gate.ledger
        counts = None if ledger is None else ledger.counts()
        assert claims_in == "ignore" or (counts.batches, counts.honest + counts.trusted) == (2, 2)


@pytest.mark.parametrize("version", [7, 9])
@pytest.mark.parametrize("came", [False, True])
def test_claims_go_out_in_the_payload(version, came):
    # Of a codec without a place there, and where the topic's limit is exceeded, in the tag.
    lz4 = batch(b"one" * 50, b"two" * 50, codec=3)
    first = (
        attach(COMPRESSED, compute(COMPRESSED)._replace(null_keys=0), carrier="payload")
        if came
        else COMPRESSED
    )
    parts = (
        ("t", 0, first),
        ("t", 1, GZIPPED),
        ("t", 2, lz4),
        ("t", 3, GOOD),
        ("small", 0, COMPRESSED),
    )
    limits = TopicPolicies(
        TopicPolicy(), {"small": TopicPolicy(max_message_bytes=len(CARRYING) - 1)}
    )
    with connected_gate(claims_out="payload", policies=limits) as (broker, proxy, sock):
        sock.sendall(produce_frame(1, *parts, version=version))
        assert set(codes(read_frame(sock), version).values()) == {0}
        tags = [tag_of(one) if version == 9 else None for one in (lz4, COMPRESSED)]
        assert sent_on(broker) == [
            (CARRYING, None),
            (attach(GZIPPED, carrier="payload"), None),
            (lz4, tags[0]),
            (GOOD, None),
            (COMPRESSED, tags[1]),
        ]
        counters = proxy.counters
        assert (counters.claims_payloads_added_total, counters.claims_payloads_dropped_total) == (
            2,
            0,
        )
        assert counters.claims_tags_added_total == sum(tag is not None for tag in tags)


def test_a_tag_is_made_for_the_batch_that_goes_on():
    # The crc of a batch without the claims that came is another one.
    options = {"claims_out": "tag"}
    with connected_gate(**options) as (broker, _, sock):
        sock.sendall(produce_frame(1, ("t", 0, CARRYING)))
        assert codes(read_frame(sock)) == {("t", 0): 0}
        assert sent_on(broker) == [(COMPRESSED, tag_of(COMPRESSED))]


@pytest.mark.parametrize("claims_out", ["tag", "payload"])
def test_a_payload_that_lies_is_counted_and_replaced(claims_out):
    lie = attach(COMPRESSED, compute(COMPRESSED)._replace(max_record_bytes=1), carrier="payload")
    options = {"claims_out": claims_out, "claims_in": ClaimsPolicy("verify")}
    with connected_gate(**options) as (broker, proxy, sock):
        sock.sendall(produce_frame(1, ("t", 0, lie)))
        assert codes(read_frame(sock)) == {("t", 0): 0}
        assert proxy.proxy.gate.ledger.counts().lying == 1
        expected = (CARRYING, None) if claims_out == "payload" else (COMPRESSED, tag_of(COMPRESSED))
        assert sent_on(broker) == [expected]


def test_false_claims_demote_their_sender_and_the_batch_is_validated():
    lie = tag_of(COMPRESSED, null_keys=1)
    options = {"claims_in": ClaimsPolicy.parse("audit:0.001")}
    with connected_gate(**options) as (_, proxy, sock):
        sock.sendall(produce_frame(1, ("t", 0, COMPRESSED), tags=((CLAIMS_TAG, lie),)))
        assert codes(read_frame(sock)) == {("t", 0): 0}  # a tag that lies changes no verdict
        ledger = proxy.proxy.gate.ledger
        assert ledger is not None
        assert ledger.counts().lying == 1
        assert ledger.is_demoted("listener default", int(time.time() * 1000))


def test_trusted_claims_are_believed_and_nothing_is_decompressed():
    # Shown with a payload that is none: under trust it passes, and so it was not looked at.
    claims = compute(COMPRESSED)
    assert claims is not None
    from batchval.core.format.crc32c import crc32c

    body = COMPRESSED[21:-8] + b"not zstd"
    lying = COMPRESSED[:17] + crc32c(body).to_bytes(4, "big") + body
    tag = to_tag(claims, int.from_bytes(lying[17:21], "big"))
    for word, code in (("ignore", 87), ("verify", 87), ("trust", 0)):
        options = {"claims_in": ClaimsPolicy(word)}
        with connected_gate(**options) as (_, _, sock):
            sock.sendall(produce_frame(1, ("t", 0, lying), tags=((CLAIMS_TAG, tag),)))
            assert codes(read_frame(sock)) == {("t", 0): code}, word


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_large_batches_that_claims_settle_need_no_thread(codec):
    large = batch(
        *(bytes([n]) * 30_000 for n in range(100)), codec=codec
    )  # 3 MB, stated by zstd frames
    cases = {
        "true": (tag_of(large), 0),
        "of another batch": (tag_of(COMPRESSED), 1),
        "null_keys that nobody knows": (tag_of(large)[:13] + b"\x05" + tag_of(large)[14:], 1),
    }
    for name, (tag, threads) in cases.items():
        options = {"claims_in": ClaimsPolicy("trust")}
        with connected_gate(**options) as (_, proxy, sock):
            sock.sendall(produce_frame(1, ("t", 0, large), tags=((CLAIMS_TAG, tag),)))
            assert codes(read_frame(sock)) == {("t", 0): 0}
            assert proxy.counters.judged_in_threads_total == threads, name
            assert proxy.counters.batches_by_path == {"claims" if threads == 0 else "shallow": 1}, (
                name
            )


def test_tagging_does_not_go_with_trusting():
    for word in ("trust", "audit:0.1"):
        options = proxy_options(
            claims_in=ClaimsPolicy.parse(word),
            claims_out="tag",
        )
        with pytest.raises(BatchvalError, match="claims_out"):
            ListenerServer(options)


def test_a_chain_of_two_proxies_makes_claims_and_believes_them():
    options = {"claims_in": ClaimsPolicy("trust")}
    with (
        ScriptedBroker() as broker,
        RunningProxy(broker.address, **options) as core,
        RunningProxy(core.bootstrap, claims_out="tag") as edge,
        connected(edge) as sock,
    ):
        sock.sendall(produce_frame(1, ("t", 0, COMPRESSED), ("t", 1, damaged(COMPRESSED))))
        assert codes(read_frame(sock)) == {("t", 0): 0, ("t", 1): 2}
        assert core.proxy.gate.ledger is not None
        assert core.proxy.gate.ledger.counts().trusted == 1
        assert not ProduceRequestView(broker.frames[0]).has_claims


def test_batches_that_were_made_are_in_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    # In place of Charge, which counts for the whole process: its size, as long as it lives.
    charges: weakref.WeakSet[Any] = weakref.WeakSet()

    class Noted:
        def __init__(self) -> None:
            charges.add(self)

        def count(self, size: int) -> None:
            self.size = size

    monkeypatch.setattr(gate_module, "Charge", Noted)
    verdict = gate_module.RequestVerdict(0, "", None, "", "")
    assert not charges
    verdict.take_batches([b"a" * 1000, None, b"b" * 24])
    assert not verdict.untouched
    assert [charge.size for charge in charges] == [verdict.copied_bytes] == [1024]
    del verdict
    assert not charges

"""Two gates in a row, clients that change nothing: the first makes claims, the second believes them
but for a sample.

client → edge (claims_out tag) → core (claims_in audit:0.001, a trusted listener) → broker
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import kafka
import pytest
from confluent_kafka import Producer

from batchval.core.claims import compute, from_tag, to_tag
from batchval.policy import ClaimsPolicy
from batchval.protocol.walkers.produce import ProduceRequestView
from batchval.proxy.life import listener_server
from batchval.proxy.life.listener_server import ListenerServer
from batchval.proxy.produce.produce_validator import Outgoing, RequestVerdict
from batchval.proxy.session.fast_path import Routes
from batchval.proxy.session.session import Session
from batchval.proxy.watch.observed_batches import ObserveRules
from tests.support.proxy import RunningProxy, eventually
from tests.system.chain.conftest import POLICIES
from tests.system.chain.senders import read_all
from tests.system.interop.kafka_broker import KafkaBroker

pytestmark = pytest.mark.jvm

AUDIT = ClaimsPolicy.parse("audit:0.001")
CHECKED_FIRST = 100


@contextmanager
def chain(
    upstream: str, claims_in: str = "ignore", audit: ClaimsPolicy = AUDIT
) -> Iterator[tuple[RunningProxy, RunningProxy]]:
    """Return (edge, core)."""
    with (
        RunningProxy(upstream, policies=POLICIES, claims_in=audit) as core,
        RunningProxy(
            core.bootstrap,
            policies=POLICIES,
            claims_in=ClaimsPolicy.parse(claims_in),
            claims_out="tag",
        ) as edge,
    ):
        eventually(lambda: edge.proxy.listening)
        yield edge, core


def has_leader(producer: Producer, topic: str) -> bool:
    """Return whether partition 0 has a leader that the producer knows; creates the topic."""
    found = producer.list_topics(topic, timeout=30).topics[topic]
    return found.error is None and 0 in found.partitions and found.partitions[0].leader >= 0


def produce(bootstrap: str, topic: str, batches: int, codec: str = "zstd") -> None:
    """Send so many batches of 20 records through librdkafka."""
    config = {
        "bootstrap.servers": bootstrap,
        "compression.type": codec,
        "linger.ms": 0,
        "acks": "all",
    }
    # what is sent again must not come after what was sent later
    producer = Producer(config | {"max.in.flight": 1})
    eventually(lambda: has_leader(producer, topic), 60)
    errors = []
    for i in range(batches):
        for j in range(20):
            producer.produce(
                topic, b"%d/%d " % (i, j) * 20, key=b"k%d" % j, partition=0,
                on_delivery=lambda error, _: errors.append(error) if error else None,
            )  # fmt: skip
            # The first record goes alone: with the first one of a topic librdkafka looks for its
            # partitions in another thread, and may queue that record after those that follow.
            if i == j == 0:
                assert producer.flush(30) == 0
        assert producer.flush(30) == 0
    assert errors == []


class Watched(Session):
    """Remembers the claims of all that comes, before the gate has looked at it."""

    claims: ClassVar[WeakKeyDictionary[ListenerServer, list[bytes | None]]] = WeakKeyDictionary()

    def _look_passages(self) -> None:
        super()._look_passages()
        if self.proxy in self.claims:
            self.connections.let_pass(requests=False, answers=False)

    def _take(self, frames: list[memoryview], *, stopped: bool = False) -> None:
        for frame in map(bytes, frames if self.proxy in self.claims else ()):
            if frame[4:6] == b"\0\0":
                request = ProduceRequestView(frame[4:])
                tags = map(request.claims, range(len(request)))
                self.claims[self.proxy].extend(None if tag is None else bytes(tag) for tag in tags)
        super()._take(frames, stopped=stopped)


@pytest.fixture(autouse=True)
def watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_server, "Session", Watched)


def tags_seen(gate: RunningProxy) -> list[bytes | None]:
    """Collect the claims of each batch that comes to a gate from now on."""
    return Watched.claims.setdefault(gate.proxy, [])


def counts(gate: RunningProxy) -> Any:
    ledger = gate.proxy.gate.ledger
    assert ledger is not None
    return ledger.counts()


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_tags_travel_and_are_believed_after_the_first_hundred(
    broker: KafkaBroker, codec: str
) -> None:
    topic = f"chain-{codec}"
    with chain(broker.bootstrap) as (edge, core):
        seen = tags_seen(core)
        produce(edge.bootstrap, topic, CHECKED_FIRST + 60, codec)
        batches = len(seen)
        assert batches >= CHECKED_FIRST + 60
        assert all(tag is not None and len(tag) == 27 for tag in seen)
        assert (
            edge.counters.claims_tags_added_total
            == core.counters.claims_tags_dropped_total
            == batches
        )
        after = batches - CHECKED_FIRST
        # one in a thousand of those after the first hundred is verified all the same
        assert after - 5 <= core.counters.batches_by_path["claims"] <= after
        assert counts(core).lying == 0
        assert "claims" not in edge.counters.batches_by_path
        assert edge.refusals == core.refusals == []
    values = [record.value for record in read_all(broker.bootstrap, topic, 1)]
    assert values == [b"%d/%d " % (i, j) * 20 for i in range(CHECKED_FIRST + 60) for j in range(20)]


@pytest.mark.parametrize("claims_in", ["ignore", "verify"])
def test_a_third_gate_in_front_vouches_for_nobody(broker: KafkaBroker, claims_in: str) -> None:
    # What comes to the edge with claims, even false ones, goes on with the edge's own.
    with (
        chain(broker.bootstrap, claims_in) as (edge, core),
        RunningProxy(edge.bootstrap, claims_out="tag") as stranger,
    ):
        change_tags(stranger, lambda batch, tag: lie(batch))
        came, went = tags_seen(edge), tags_seen(core)
        eventually(lambda: stranger.proxy.listening)
        produce(stranger.bootstrap, f"stranger-{claims_in}", 10)
        assert len(came) == len(went) >= 10
        assert all(
            a is not None and b is not None and a != b for a, b in zip(came, went, strict=True)
        )
        assert counts(core).lying == 0
        if claims_in == "verify":
            assert counts(edge).lying >= 1


def change_tags(
    gate: RunningProxy, change: Callable[[memoryview, bytes | None], bytes | None]
) -> None:
    """Let a gate send other claims than those that it has computed, before clients connect."""
    gate.proxy.fast_routes = Routes({})  # the fast path puts claims in where nobody can change them
    made = gate.proxy.gate._outgoing

    def outgoing(request: ProduceRequestView, verdict: RequestVerdict, verdicts: Any) -> Outgoing:
        tags, batches = made(request, verdict, verdicts)
        found = [change(request.records(i) or memoryview(b""), tag) for i, tag in enumerate(tags)]
        return found, batches

    gate.proxy.gate._outgoing = outgoing  # type: ignore[method-assign]


def lie(batch: Any) -> bytes | None:
    """Check that every key is null."""
    claims = compute(bytes(batch))
    if claims is None:
        return None
    return to_tag(claims._replace(null_keys=1), int.from_bytes(batch[17:21], "big"))


def test_a_middle_hop_that_lies_is_caught_and_demoted(broker: KafkaBroker) -> None:
    # An edge that lies from its 121st batch on: it is believed until the sample falls on it, and no
    # more after that.
    #
    # One in a hundred is drawn here: that none of 6,000 is has a probability of 6e-27.
    with chain(broker.bootstrap, audit=ClaimsPolicy.parse("audit:0.01")) as (edge, core):
        tags = 0

        def change(batch: memoryview, tag: bytes | None) -> bytes | None:
            nonlocal tags
            tags += 1
            return tag if tags <= CHECKED_FIRST + 20 else lie(batch)

        change_tags(edge, change)
        ledger = core.proxy.gate.ledger
        assert ledger is not None
        produce(edge.bootstrap, "false-claims", CHECKED_FIRST + 20)
        trusted = core.counters.batches_by_path["claims"]
        assert trusted >= 12
        for _ in range(60):
            produce(edge.bootstrap, "false-claims", 100)
            if counts(core).lying:
                break
        assert counts(core).demotions == 1
        now_ms = int(time.time() * 1000)
        assert ledger.is_demoted("listener default", now_ms)
        before = core.counters.batches_by_path["claims"]
        produce(edge.bootstrap, "false-claims", 50)
        assert core.counters.batches_by_path["claims"] == before
        # demotion costs CPU, nothing else: what comes is validated whole, and refused by the same
        # rules
        assert core.refusals == []


def test_false_claims_from_the_start_are_caught_at_once(broker: KafkaBroker) -> None:
    with chain(broker.bootstrap) as (edge, core):
        change_tags(edge, lambda batch, tag: lie(batch))
        produce(edge.bootstrap, "false-claims-at-once", 120)
        assert counts(core).demotions == 1
        assert (
            counts(core).lying == core.counters.produce_partitions_total
        )  # it is checked on, and lies on
        assert "claims" not in core.counters.batches_by_path


def test_on_a_compacted_topic_a_hop_cannot_lie_a_key_away(broker: KafkaBroker) -> None:
    # Claims that settle nothing are decided by the records: refused here as ever, with the same
    # answer.
    producer_of = {"acks": "all", "compression_type": "gzip", "retries": 0}
    with chain(broker.bootstrap) as (edge, core):
        # an edge that lets all through, and vouches that no key is null
        edge.proxy.gate.observe = ObserveRules("observe")
        change_tags(edge, lambda batch, tag: claimed_keyed(batch))
        producer = kafka.KafkaProducer(bootstrap_servers=edge.bootstrap, **producer_of)
        try:
            with pytest.raises(kafka.errors.InvalidRecordError):
                producer.send("chain-compact", b"keyless" * 30, partition=0).get(30)
        finally:
            producer.close()
        assert [(refusal.rule, refusal.error) for refusal in core.refusals] == [
            ("key-missing", "INVALID_RECORD")
        ]
        assert counts(core).lying == 1


def claimed_keyed(batch: Any) -> bytes | None:
    claims = compute(bytes(batch))
    assert claims is not None
    return to_tag(claims._replace(null_keys=2), int.from_bytes(batch[17:21], "big"))


def test_a_tag_says_what_is_in_the_batch(broker: KafkaBroker) -> None:
    with chain(broker.bootstrap) as (edge, core):
        seen = tags_seen(core)
        produce(edge.bootstrap, "claims", 1)
        assert None not in seen
        # librdkafka may send the twenty in more than one batch, and a batch again (the topic has
        # just been made)
        claimed = [
            from_tag(tag, int.from_bytes(tag[-4:], "big"))
            for tag in {tag for tag in seen if tag is not None}
        ]
    assert claimed
    assert all(claims is not None and claims.null_keys == 2 for claims in claimed)
    assert sum(claims.records_number for claims in claimed if claims is not None) == 20

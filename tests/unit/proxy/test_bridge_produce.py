"""Produce 0 to 2 through the gate: message sets become batches of magic 2, answers those of old."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from batchval import LogValidator, TopicPolicy
from batchval.core.batches.batch import RecordBatch
from batchval.errors import ErrorCode
from batchval.protocol.apis import ApiKey
from batchval.protocol.errors import ProtocolError
from batchval.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from batchval.protocol.messages.produce import ProduceRequest, ProduceResponse
from batchval.protocol.old_versions import ERROR_CODES
from batchval.protocol.walkers.produce_answer import ProduceResponseView, lower
from batchval.proxy.cluster.metadata_client import ClusterView
from batchval.proxy.settings.config import ObserveRule
from batchval.proxy.settings.options import TopicPolicies
from tests.support import batches
from tests.support.batches import GZIP, message, wrapper
from tests.support.old_produce import OldAnswer, message_sets, old_answer, old_produce
from tests.support.proxy import (
    RunningProxy,
    ScriptedBroker,
    answered,
    connected,
    connected_gate,
    eventually,
    other_frame,
    read_frame,
    success,
)

NOW = int(time.time() * 1000)
BRIDGE = ("producers",)
CORRUPT_MESSAGE, NOT_LEADER, MESSAGE_TOO_LARGE, INVALID_TIMESTAMP = 2, 6, 10, 32
INVALID_ACKS, STORAGE_ERROR, INVALID_RECORD = 21, 56, 87
SETS = dict(message_sets(NOW))
GOOD = message(1, timestamp=NOW)
BAD = message(1, timestamp=NOW, crc=1)
LATE = message(1, timestamp=NOW - 7_200_000)
SOON = TopicPolicy(message_timestamp_before_max_ms=3_600_000)


def ask(
    sock: socket.socket, version: int, *partitions: tuple[str, int, bytes | None], acks: int = 1
) -> OldAnswer:
    sock.sendall(old_produce(version, 7, *partitions, acks=acks))
    found = old_answer(read_frame(sock), version)
    assert found.correlation_id == 7
    return found


def produced(broker: ScriptedBroker) -> list[ProduceRequest]:
    return [ProduceRequest.parse(frame)[1] for frame in broker.frames if frame[:2] == b"\0\0"]


def sent(broker: ScriptedBroker) -> dict[tuple[str, int], bytes]:
    """Return the records that the broker got, in one request of version 3."""
    (request,) = produced(broker)
    assert (request.api_version, request.transactional_id) == (3, None)
    return {
        (topic.name, part.index): bytes(part.records)
        for topic in request.topic_data
        for part in topic.partition_data
    }


@pytest.fixture
def upstream() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as broker:
        yield broker


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("name", SETS)
def test_message_sets_become_batches(upstream: ScriptedBroker, name: str, version: int) -> None:
    with RunningProxy(upstream.address, bridge=BRIDGE) as proxy, connected(proxy) as sock:
        found = ask(sock, version, ("orders", 3, SETS[name]))
    assert found.partitions == {("orders", 3): (0, 7, -1 if version == 2 else -2)}
    assert found.throttle_time_ms == (0 if version else -2)
    batch = sent(upstream)["orders", 3]
    judged = LogValidator().check(batch, now_ms=NOW, produce_version=3)
    assert judged.ok, judged.reason
    assert not judged.reports
    values = [None] if "no value" in name else [b"value 0" * 20] if name.startswith("one") else None
    values = values or [b"value %d" % i * 20 for i in range(3)]
    records = list(RecordBatch(batch).records())
    assert [record.value for record in records] == values
    magic = 0 if "magic 0" in name else 1
    assert {record.timestamp for record in records} <= (
        {-1} if magic == 0 else {NOW, NOW + 1, NOW + 2}
    )
    codec = next((n for word, n in batches.CODECS.items() if word in name), 0)
    assert batches.fields(batch)["attributes"] == codec
    assert proxy.counters.batches_converted_total == 1
    assert proxy.counters.batches_by_path == {"rebuilt": 1}


def test_partitions_that_are_refused(upstream: ScriptedBroker) -> None:
    policies = TopicPolicies(globs={"small": TopicPolicy(max_message_bytes=300)})
    large = b"".join(message(1, timestamp=NOW, value=b"x" * 100) for _ in range(4))
    with (
        RunningProxy(upstream.address, bridge=BRIDGE, policies=policies) as proxy,
        connected(proxy) as sock,
    ):
        found = ask(
            sock,
            2,
            ("a", 0, GOOD),
            ("a", 1, BAD),
            ("a", 2, b""),
            ("a", 4, None),
            ("small", 0, large),
            ("z", 0, GOOD),
        )
    assert {key: part[:2] for key, part in found.partitions.items()} == {
        ("a", 0): (0, 7),
        ("a", 1): (CORRUPT_MESSAGE, -1),
        ("a", 2): (0, -1),  # as Kafka 3.9: nothing is written
        ("a", 4): (0, -1),
        ("small", 0): (MESSAGE_TOO_LARGE, -1),
        ("z", 0): (0, 7),
    }
    assert list(sent(upstream)) == [("a", 0), ("z", 0)]
    assert proxy.counters.partitions_refused == {"crc-mismatch": 1, "rebuilt-batch-too-large": 1}
    assert {refusal.topic for refusal in proxy.refusals if refusal.enforced} == {"a", "small"}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_request_of_which_nothing_goes_on(upstream: ScriptedBroker, version: int) -> None:
    with RunningProxy(upstream.address, bridge=BRIDGE) as proxy, connected(proxy) as sock:
        assert ask(sock, version, ("a", 0, BAD)).partitions["a", 0][:2] == (CORRUPT_MESSAGE, -1)
        assert ask(sock, version, ("a", 0, b"")).partitions["a", 0][:2] == (0, -1)
        assert ask(sock, version, ("a", 0, BAD), acks=2).partitions["a", 0][:2] == (
            INVALID_ACKS,
            -1,
        )
    assert not produced(upstream)


def test_a_request_without_topics_goes_on(upstream: ScriptedBroker) -> None:
    with RunningProxy(upstream.address, bridge=BRIDGE) as proxy, connected(proxy) as sock:
        assert ask(sock, 0).partitions == {}
    assert sent(upstream) == {}


def test_acks_0(upstream: ScriptedBroker) -> None:
    # Nothing is answered; what is refused ends the connection, and an empty set does not.
    with RunningProxy(upstream.address, bridge=BRIDGE) as proxy, connected(proxy) as sock:
        sock.sendall(
            old_produce(0, 1, ("a", 0, GOOD), ("a", 1, b""), acks=0)
            + old_produce(0, 2, ("a", 0, b""), acks=0)
        )
        assert ask(sock, 1, ("a", 0, GOOD)).partitions["a", 0][:2] == (0, 7)
        sock.sendall(old_produce(0, 3, ("a", 0, GOOD), ("a", 1, BAD), acks=0))
        assert sock.recv(1) == b""
    # the client may see the end before the broker has read the last request
    eventually(lambda: len(produced(upstream)) == 3)
    assert [request.acks for request in produced(upstream)] == [0, 1, 0]
    assert proxy.counters.connections_closed == {"acks_0_refused": 1}


def broker_that_answers(code: int, append_time: int, throttle_ms: int) -> ScriptedBroker:
    def answer(frame: bytes) -> bytes | None:
        header, request = ProduceRequest.parse(frame)
        response: ProduceResponse = success(request)
        response.throttle_time_ms = throttle_ms
        for topic in response.responses:
            topic.partition_responses[-1].error_code = code
            topic.partition_responses[-1].log_append_time_ms = append_time
        return b"".join(response.encode(header.correlation_id, request.api_version))

    return ScriptedBroker(answer)


@pytest.mark.parametrize("refused", [False, True])
def test_answers_have_what_their_version_has(refused: bool) -> None:
    parts = [("a", 0, GOOD), ("a", 1, GOOD)] + ([("a", 2, BAD)] if refused else [])
    with (
        broker_that_answers(STORAGE_ERROR, NOW, 30) as upstream,
        RunningProxy(upstream.address, bridge=BRIDGE) as proxy,
        connected(proxy) as sock,
    ):
        for version, last, throttle in ((0, -2, -2), (1, -2, 30), (2, NOW, 30)):
            found = ask(sock, version, *parts)
            assert found.throttle_time_ms == throttle
            assert found.partitions["a", 0] == (0, 7, -1 if version == 2 else -2)
            assert found.partitions["a", 1] == (NOT_LEADER, 7, last)
            assert ("a", 2) in found.partitions if refused else len(found.partitions) == 2
    assert proxy.counters.throttle_time_ms == {0: 90}


def test_observed_topics_get_what_can_be_converted(upstream: ScriptedBroker) -> None:
    # What breaks a rule of its topic goes on; what nobody can convert is refused all the same.
    policies = TopicPolicies(default=SOON)
    for options in ({"mode": "observe"}, {"observe": [ObserveRule(topics="a")]}):
        upstream.frames.clear()
        with RunningProxy(upstream.address, bridge=BRIDGE, policies=policies, **options) as proxy:
            with connected(proxy) as sock:
                found = ask(sock, 2, ("a", 0, LATE), ("a", 1, BAD), ("a", 2, GOOD))
            assert [part.error_code for part in found.partitions.values()] == [
                0,
                CORRUPT_MESSAGE,
                0,
            ]
            assert [
                RecordBatch(batch).records().__next__().timestamp
                for batch in sent(upstream).values()
            ] == [
                NOW - 7_200_000,
                NOW,
            ]
            assert {refusal.partition: refusal.enforced for refusal in proxy.refusals} == {
                0: False,
                1: True,
            }
            assert sum(proxy.counters.partitions_observed.values()) == 1
            assert sum(proxy.counters.partitions_refused.values()) == 1
    with (
        RunningProxy(upstream.address, bridge=BRIDGE, policies=policies) as proxy,
        connected(proxy) as sock,
    ):
        assert ask(sock, 2, ("a", 0, LATE)).partitions["a", 0].error_code == INVALID_TIMESTAMP


@pytest.mark.parametrize(
    ("config", "codec"),
    [
        ({"message.timestamp.type": "LogAppendTime"}, 0),
        ({"compression.type": "zstd"}, 0),  # Produce 3 carries none: the broker compresses
        ({"compression.type": "gzip"}, GZIP),
    ],
)
def test_what_the_broker_writes_is_left_to_it(
    upstream: ScriptedBroker, config: dict[str, str], codec: int
) -> None:
    policies = TopicPolicies(default=TopicPolicy.from_kafka_config(config))
    set_of_100 = b"".join(message(1, timestamp=NOW - 100_000, value=b"x" * 100) for _ in range(100))
    with (
        RunningProxy(upstream.address, bridge=BRIDGE, policies=policies) as proxy,
        connected(proxy) as sock,
    ):
        assert ask(sock, 2, ("a", 0, set_of_100)).partitions["a", 0].error_code == 0
    fields = batches.fields(sent(upstream)["a", 0])
    assert (fields["attributes"], fields["max_timestamp"], fields["base_timestamp"]) == (
        codec,
        NOW - 100_000,
        NOW - 100_000,
    )


@pytest.mark.parametrize("name", ["gzip of magic 0", "gzip of magic 1", "lz4 of magic 1"])
def test_converted_batches_carry_claims(upstream: ScriptedBroker, name: str) -> None:
    # They are those that a validator computes of the batch.
    with (
        RunningProxy(upstream.address, bridge=BRIDGE, claims_out="payload") as proxy,
        connected(proxy) as sock,
    ):
        assert ask(sock, 2, ("a", 0, SETS[name])).partitions["a", 0].error_code == 0
    batch = sent(upstream)["a", 0]
    judged = LogValidator().check(batch, now_ms=NOW, claims=(None, "verify"))
    assert judged.ok
    carried = "gzip" in name
    assert judged.claims == ("honest" if carried else None)
    assert proxy.counters.claims_payloads_added_total == carried
    assert proxy.counters.claims_payloads_dropped_total == 0


def test_batches_of_magic_2_go_on_as_they_came(upstream: ScriptedBroker) -> None:
    batch = batches.batch(batches.records(3), codec=GZIP, base_timestamp=NOW)
    with RunningProxy(upstream.address, bridge=BRIDGE) as proxy, connected(proxy) as sock:
        found = ask(sock, 2, ("a", 0, batch), ("a", 1, batch + batch), ("a", 2, GOOD + batch))
    assert [part.error_code for part in found.partitions.values()] == [
        0,
        INVALID_RECORD,
        INVALID_RECORD,
    ]
    assert sent(upstream) == {("a", 0): batch}


def test_answers_keep_the_order_of_requests(upstream: ScriptedBroker) -> None:
    # Small message sets are converted on the loop, others in threads.
    large = wrapper(
        [message(1, offset=i, timestamp=NOW, value=b"v" * 1000) for i in range(300)], GZIP, 1
    )
    sets = [large if n % 5 == 0 else BAD if n % 7 == 3 else GOOD for n in range(60)]
    with RunningProxy(upstream.address, bridge=BRIDGE) as proxy, connected(proxy) as sock:
        sock.sendall(
            b"".join(old_produce(n % 3, n, ("a", n, records)) for n, records in enumerate(sets))
        )
        for n, records in enumerate(sets):
            found = old_answer(read_frame(sock), n % 3)
            assert found.correlation_id == n
            assert found.partitions["a", n].error_code == (CORRUPT_MESSAGE if records is BAD else 0)
        assert proxy.counters.judged_in_threads_total >= 12
        (session,) = proxy.proxy.connections
        assert (session.requests.waiting, session.requests.made) == (0, 0)
    partitions = [request.topic_data[0].partition_data[0].index for request in produced(upstream)]
    assert partitions == [n for n, records in enumerate(sets) if records is not BAD]


def test_what_decompresses_to_too_much_is_refused(upstream: ScriptedBroker) -> None:
    bomb = wrapper([message(1, timestamp=NOW, value=bytes(40 << 20))], GZIP, 1, timestamp=NOW)
    options = {"validation": {"max_decompressed_bytes": 8 << 20}}
    with (
        RunningProxy(upstream.address, bridge=BRIDGE, mode="observe", **options) as proxy,
        connected(proxy) as sock,
    ):
        assert ask(sock, 2, ("a", 0, bomb), ("b", 0, GOOD)).partitions["a", 0].error_code != 0
    assert list(sent(upstream)) == [("b", 0)]


def test_without_the_bridge_the_connection_ends(upstream: ScriptedBroker) -> None:
    for bridge in ((), ("consumers",)):
        with RunningProxy(upstream.address, bridge=bridge) as proxy, connected(proxy) as sock:
            sock.sendall(old_produce(2, 1, ("a", 0, GOOD)))
            assert sock.recv(1) == b""
            assert proxy.counters.connections_closed == {"version_too_old": 1}
    assert not produced(upstream)


@pytest.mark.parametrize("cut", [1, 5, 9, 13, 20, 30])
def test_malformed_requests_end_the_connection(upstream: ScriptedBroker, cut: int) -> None:
    whole = old_produce(1, 1, ("orders", 0, GOOD))[4:-cut]
    with RunningProxy(upstream.address, bridge=BRIDGE) as proxy, connected(proxy) as sock:
        sock.sendall(struct.pack(">i", len(whole)) + whole)
        assert sock.recv(1) == b""
        assert proxy.counters.connections_closed == {"produce_malformed": 1}


def test_a_broker_that_authenticates_is_asked_first() -> None:
    # The first request of an appliance is Produce 0: it is validated once the broker answers.
    asked = []

    def answer(frame: bytes) -> bytes | None:
        if frame[:2] == b"\0\3":
            asked.append(frame)
            return struct.pack(">i4siii", 16, frame[4:8], 0, -1, 0)
        return answered(frame)

    with ScriptedBroker(answer) as upstream:
        gate = RunningProxy(upstream.address, bridge=BRIDGE)
        discovery = gate.proxy.discovery
        discovery.use(replace(discovery.options, authenticates=True, find_brokers=nobody))
        with gate as proxy, connected(proxy) as sock:
            assert ask(sock, 0, ("a", 0, GOOD)).partitions["a", 0][:2] == (0, 7)
        assert len(asked) == 1
        assert upstream.frames[0] == asked[0]
        assert sent(upstream).keys() == {("a", 0)}


async def nobody(*_: object) -> ClusterView:
    raise ConnectionError("no broker is known")


def test_the_codes_that_old_clients_get() -> None:
    # A retriable code becomes one that clients of 0.8 know and retry; no other changes.
    for code, lowered in ERROR_CODES[ApiKey.PRODUCE].items():
        assert ErrorCode(code).retriable
        assert ErrorCode(lowered).retriable
        assert code > ErrorCode.INVALID_REQUIRED_ACKS > lowered
    body = struct.pack(">iih1si", 5, 1, 1, b"t", len(ErrorCode))
    body += b"".join(struct.pack(">ihqq", n, code, 3, NOW) for n, code in enumerate(ErrorCode))
    answer = ProduceResponseView(body + struct.pack(">i", 9), 3)
    for version in range(3):
        found = old_answer(b"".join(lower(answer, version))[4:], version)
        codes = [part.error_code for part in found.partitions.values()]
        assert codes == [ERROR_CODES[ApiKey.PRODUCE].get(code, code) for code in ErrorCode]
    for wrong in (-1, 3):
        with pytest.raises(ProtocolError, match="cannot be lowered"):
            lower(answer, wrong)


@pytest.mark.parametrize(("bridge", "oldest"), [(BRIDGE, 0), ((), 3)])
def test_api_versions_offer_old_versions_with_the_bridge(
    bridge: tuple[str, ...], oldest: int
) -> None:
    # Kafka 4.0 to 4.4 name Produce from 0 themselves (KAFKA-18659); others name what they know.
    def answer(frame: bytes) -> bytes:
        keys = [ApiVersion(0, 3, 12), ApiVersion(18, 0, 4)]
        return b"".join(
            ApiVersionsResponse(api_keys=keys).encode(int.from_bytes(frame[4:8], "big"), 0)
        )

    with connected_gate(answer, bridge=bridge) as (_, _, sock):
        sock.sendall(other_frame(1, key=18, body=b""))
        found = ApiVersionsResponse.decode(read_frame(sock), 0)
    assert found.api_keys[0] == ApiVersion(0, oldest, 12)

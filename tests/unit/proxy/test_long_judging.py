"""Batches that the gate validates on the loop, in a thread, and as heavy; their answers and their
cost.
"""

from __future__ import annotations

import struct
import time
import zlib
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from batchval.core.batches.validator import LogValidator
from batchval.core.format.crc32c import crc32c
from batchval.errors import BatchvalError
from batchval.policy import ClaimsPolicy, TopicPolicy
from batchval.protocol import messages
from batchval.protocol.messages.produce import PartitionProduceData, TopicProduceData
from batchval.protocol.walkers.produce import ProduceRequestView
from batchval.protocol.walkers.produce_answer import ProduceResponseView
from batchval.proxy.produce import produce_validator as gate_module
from batchval.proxy.produce.produce_validator import ProduceValidator, RequestVerdict
from batchval.proxy.produce.verdicts import HEAVY, VALIDATED, Verdicts
from batchval.proxy.settings.options import Counters, Refusal, TopicPolicies
from batchval.types import DEFAULT_MAX_DECOMPRESSED_BYTES
from tests.support.calibration import cpu_s, slowness
from tests.support.proxy import BAD, COMPRESSED, GOOD, batch, produce_frame, proxy_options

FACTS = SimpleNamespace(sender="s", client="c:1", principal="User:alice", listener="outside")
NOW_MS = time.time_ns() // 1_000_000
TOPIC_ID = bytes(range(16))
LIMIT = 8 << 20


def gate_of(refusals: list[Refusal] | None = None, **options: Any) -> ProduceValidator:
    lines = [] if refusals is None else refusals
    return ProduceValidator(proxy_options(on_refusal=lines.append, **options), Counters())


def view_of(
    *parts: tuple[str, int, bytes | None], version: int = 9, acks: int = 1
) -> ProduceRequestView:
    frame = produce_frame(1, *parts, version=version, acks=acks)  # type: ignore[arg-type]
    return ProduceRequestView(frame[4:])


def finished(gate: ProduceValidator, request: ProduceRequestView) -> RequestVerdict:
    verdict = gate.validate(request, "s")
    heavy = False
    while not verdict.done:
        heavy = gate.work(request, verdict, heavy=heavy, budget_s=0.005) == "heavy"
    gate.settle(request, verdict, FACTS)
    return verdict


def many_records(count: int, codec: int = 0, attributes: int = 0) -> bytes:
    """Return a batch of the smallest records, 7 bytes each, with offset delta 0. ``codec`` 1 is
    gzip.
    """
    records = b"\x0c\0\0\0\x01\x01\0" * count
    payload = records
    if codec:
        packer = zlib.compressobj(9, wbits=31)
        payload = packer.compress(records) + packer.flush()
    body = (
        struct.pack(">hiqqqhii", codec | attributes, count - 1, NOW_MS, NOW_MS, -1, -1, -1, count)
        + payload
    )
    return struct.pack(">qiibI", 0, len(body) + 9, 0, 2, crc32c(body)) + body


# ---- where ---------------------------------------------------------------------------------------


def test_ordinary_requests_are_judged_at_once() -> None:
    for parts in (
        [("t", 0, GOOD)],
        [("t", 0, COMPRESSED), ("u", 1, BAD)],
        [("t", 0, batch(b"x" * 500_000))],
    ):
        assert gate_of().validate(view_of(*parts), "s").done


@pytest.mark.parametrize(
    "parts",
    [
        [("t", i, None) for i in range(gate_module.INLINE_PARTITIONS + 1)],
        [("t", 0, batch(*[b"x" * 1000] * 1100))],
        [("t", i, many_records(5000)) for i in range(10)],
        [("t", 0, many_records(100_000, codec=1))],
        [("t", i, many_records(9_000, codec=1)) for i in range(20)],
        [("t", 0, batch(b"\0" * (4 << 20), codec=1))],
        [(f"{i}" + "n" * 32_000, 0, GOOD) for i in range(3)],
    ],
    ids=[
        "partitions",
        "bytes",
        "records",
        "compressed records",
        "compressed in all",
        "decompressed",
        "names",
    ],
)
def test_what_may_take_long_goes_to_a_thread(parts: list[tuple[str, int, bytes | None]]) -> None:
    gate = gate_of()
    verdict = gate.validate(view_of(*parts), "s")
    assert not verdict.done
    assert gate.work(view_of(*parts), verdict, heavy=True, budget_s=10.0) == "done"
    assert verdict.done
    assert verdict.cpu_s > 0


def test_nothing_is_judged_at_once_where_the_loop_has_no_time() -> None:
    gate, request = gate_of(), view_of(("t", 0, GOOD))
    verdict = gate.validate(request, "s", inline=False)
    assert not verdict.done
    assert gate.work(request, verdict, heavy=False, budget_s=1.0) == "done"
    assert verdict.done


def test_what_decompresses_to_much_more_than_it_is_waits_for_the_heavy() -> None:
    gate, request = gate_of(), view_of(("t", 0, batch(b"\0" * (4 << 20), codec=1)), ("t", 1, GOOD))
    verdict = gate.validate(request, "s")
    assert [gate.work(request, verdict, heavy=False, budget_s=1.0) for _ in range(2)] == [
        "heavy",
        "heavy",
    ]
    assert gate.work(request, verdict, heavy=True, budget_s=1.0) == "done"
    gate.settle(request, verdict, FACTS)
    assert (verdict.untouched, gate.counters.batches_by_path) == (True, {"shallow": 1, "full": 1})


def test_a_heavy_batch_is_bounded_where_its_session_is_known_for_short_ones() -> None:
    words = []
    for size in (gate_module.SHORT_DECOMPRESSED // 2, 2 * gate_module.SHORT_DECOMPRESSED):
        gate, request = gate_of(), view_of(("t", 0, batch(bytes(size), codec=1)))
        verdict = gate.validate(request, "s")
        assert gate.work(request, verdict, heavy=False, budget_s=1.0) == "heavy"
        words.append(gate.work(request, verdict, heavy=True, is_bounded=True, budget_s=1.0))
        assert gate.work(request, verdict, heavy=True, budget_s=1.0) == "done"
        gate.settle(request, verdict, FACTS)
        assert verdict.untouched
    assert words == ["done", "heavy"]


@pytest.mark.alone
def test_a_heavy_batch_is_not_tried_twice_with_the_same_limit() -> None:
    """The thread does not decompress again what the loop has decompressed up to the limit."""
    taken = [float("inf")] * 2
    for _ in range(5):
        verdicts = Verdicts(view_of(("t", 0, batch(bytes(40 << 20), codec=1))), NOW_MS)
        for n in range(2):
            began = time.thread_time()
            word = verdicts.validate(LogValidator(), LIMIT, 12, 1 << 40, 1 << 40)
            taken[n] = min(taken[n], time.thread_time() - began)
            assert word == HEAVY
    assert taken[1] < taken[0] / 5
    assert verdicts.validate(LogValidator(), 2 * LIMIT, 12, 1 << 40, 1 << 40) == HEAVY
    assert verdicts.validate(LogValidator(), 0, 12, 1 << 40, 1 << 40) == VALIDATED


def test_twelve_times_its_own_size_is_light() -> None:
    value = b"".join(b"%08x" % (i * 2654435761 % 2**32) for i in range(300_000))
    data = batch(value, codec=1)
    assert len(value) > gate_module.LIGHT_DECOMPRESSED
    assert len(value) < gate_module.LIGHT_TIMES * len(data)
    gate, request = gate_of(), view_of(("t", 0, data))
    verdict = gate.validate(request, "s")
    assert not verdict.done
    assert gate.work(request, verdict, heavy=False, budget_s=10.0) == "done"


def test_work_ends_between_two_batches() -> None:
    gate, request = gate_of(), view_of(*[("t", i, many_records(100_000)) for i in range(20)])
    verdict, words = gate.validate(request, "s"), []
    while not verdict.done:
        words.append(gate.work(request, verdict, heavy=False, budget_s=0.0))
    assert words == ["more"] * 19 + ["done"]


def test_work_ends_when_the_client_has_left() -> None:
    gate, request = gate_of(), view_of(*[("t", i, GOOD) for i in range(200)])
    verdict = gate.validate(request, "s")
    verdict.cancelled = True
    assert gate.work(request, verdict, heavy=False, budget_s=1.0) == "done"
    assert not verdict.done
    assert verdict.verdicts is not None
    assert not verdict.verdicts.done


# ---- what is allowed -----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["strict", "kafka"])
def test_what_may_be_decompressed_is_bounded_in_both_modes(mode: str) -> None:
    validation = {"rules": mode, "max_decompressed_bytes": 2 << 20}
    gate = gate_of(validation=validation)
    verdict = finished(gate, view_of(("t", 0, batch(b"\0" * (3 << 20), codec=1)), ("t", 1, GOOD)))
    assert verdict.keep == [False, True]
    assert gate.counters.partitions_refused == {"decompressed-too-large": 1}
    assert verdict.refusals is not None
    reason = f"the batch decompresses to more than max_decompressed_bytes, {2 << 20}"
    assert verdict.refusals[0] == (87, (), reason)
    assert finished(gate, view_of(("t", 0, batch(b"\0" * (1 << 20), codec=1)))).untouched


def test_the_limit_has_a_default_in_both_modes() -> None:
    for mode in ("strict", "kafka"):
        assert (
            gate_of(validation={"rules": mode}).validator.max_decompressed_bytes
            == DEFAULT_MAX_DECOMPRESSED_BYTES
        )
        for no_limit in (None, "none"):
            with pytest.raises(ValidationError, match="max_decompressed_bytes"):
                gate_of(validation={"rules": mode, "max_decompressed_bytes": no_limit})


def test_claims_do_not_go_with_the_rules_of_kafka_alone() -> None:
    with pytest.raises(BatchvalError, match="rules: kafka"):
        gate_of(validation={"rules": "kafka"}, claims_in=ClaimsPolicy.parse("verify"))


# ---- what is answered ----------------------------------------------------------------------------


def test_log_lines_of_a_request_are_bounded_and_counters_exact() -> None:
    lines: list[Refusal] = []
    gate = gate_of(lines)
    verdict = finished(gate, view_of(*[(f"t{i}", i, BAD if i % 2 else GOOD) for i in range(3000)]))
    assert gate.counters.partitions_refused == {"crc-mismatch": 1500}
    assert gate.counters.produce_partitions_total == 3000
    assert gate.counters.batches_by_path == {"full": 1500}
    assert len(lines) == gate_module.MAX_LINES + 1
    assert [line.topic for line in lines[:3]] == ["t1", "t3", "t5"]
    assert {(*line[:2], line.principal) for line in lines} == {("outside", "c:1", "User:alice")}
    assert (lines[-1].topic, lines[-1].partition, lines[-1].rule) == (None, -1, "crc-mismatch")
    assert (lines[-1].batches, lines[-1].enforced) == (1400, True)
    assert verdict.any_left


def test_an_answer_stays_below_a_mebibyte() -> None:
    request = view_of(
        *[("t", i, GOOD if i else BAD[:16] + b"\7" + BAD[17:]) for i in range(10_000)]
    )
    gate = gate_of()
    verdict = finished(gate, request)
    answer = b"".join(verdict.answer(request))
    assert len(answer) < 1 << 20
    response = ProduceResponseView(answer[4:], 9)
    assert {response.error_code(i) for i in range(len(response))} == {2}
    assert len(response) == 10_000


def test_record_errors_of_a_request_are_bounded() -> None:
    policies = TopicPolicies(TopicPolicy(message_timestamp_before_max_ms=60_000))
    old = batch(*[b"v"] * 400, timestamp=1000)
    verdict = finished(gate_of(topics=policies), view_of(*[("t", i, old) for i in range(5)]))
    assert verdict.refusals is not None
    assert [len(refusal[1]) for refusal in verdict.refusals if refusal is not None] == [
        400,
        400,
        200,
        0,
        0,
    ]
    texts = [refusal[2] or "" for refusal in verdict.refusals if refusal is not None]
    assert ["not listed" in text for text in texts] == [False, False, True, True, True]
    assert "200 more" in texts[2]


@pytest.mark.parametrize("count", [3, 300])
def test_a_large_request_is_answered_and_forwarded_as_a_small_one(count: int) -> None:
    half = [("t", i, BAD if i % 2 else GOOD) for i in range(count)]
    request = view_of(*half)
    verdict = finished(gate_of(), request)
    sent = ProduceRequestView(b"".join(verdict.forwarded(request, 0x01020304))[4:])
    assert sent.correlation_id == 0x01020304
    assert [sent.partition(i) for i in range(len(sent))] == list(range(0, count, 2))
    bad = view_of(*[("t", i, BAD) for i in range(count)])
    verdict = finished(gate_of(), bad)
    assert not verdict.any_left
    response = ProduceResponseView(b"".join(verdict.answer(bad))[4:], 9)
    assert response.correlation_id == 1
    assert [response.error_code(i) for i in range(len(response))] == [2] * count


# ---- topic ids -----------------------------------------------------------------------------------


def with_ids(*topics: tuple[bytes, bytes], acks: int = 1) -> ProduceRequestView:
    made = messages.ProduceRequest(api_version=13, acks=acks, timeout_ms=1)
    for topic_id, records in topics:
        made.topic_data.append(TopicProduceData("", topic_id, [PartitionProduceData(0, records)]))
    return ProduceRequestView(b"".join(made.encode(3, "test"))[4:])


def test_topics_are_known_by_their_ids() -> None:
    lines: list[Refusal] = []
    topics = TopicPolicies(TopicPolicy(), {"compact-*": TopicPolicy(cleanup_policy="compact")})
    gate = gate_of(lines, topics=topics)
    keyless = batch(b"v", key=None)
    request = with_ids((TOPIC_ID, keyless), (TOPIC_ID[::-1], keyless), (b"?" * 16, GOOD))
    assert gate.unknown_topics(request) == [TOPIC_ID, TOPIC_ID[::-1], b"?" * 16]
    names = {TOPIC_ID: "compact-a", TOPIC_ID[::-1]: "other"}
    gate.topic_names = names.get
    assert gate.unknown_topics(request) == [b"?" * 16]
    verdict = finished(gate, request)
    assert verdict.keep == [False, True, False]
    assert [(line.topic, line.rule, line.error) for line in lines] == [
        ("compact-a", "key-missing", "INVALID_RECORD"),
        (None, "unknown-topic-id", "UNKNOWN_TOPIC_ID"),
    ]
    sent = ProduceRequestView(b"".join(verdict.forwarded(request, 9))[4:])
    assert [sent.topic_id(i) for i in range(len(sent))] == [TOPIC_ID[::-1]]


def test_an_id_that_nobody_knows_is_never_forwarded() -> None:
    for only_one in (True, False):
        topics = TopicPolicies(TopicPolicy(), None if only_one else {"a*": TopicPolicy()})
        gate = gate_of(topics=topics)
        request = with_ids((TOPIC_ID, GOOD))
        verdict = finished(gate, request)
        assert not verdict.any_left
        response = messages.ProduceResponse.decode(b"".join(verdict.answer(request))[4:], 13)
        part = response.responses[0].partition_responses[0]
        assert (response.responses[0].topic_id, part.error_code) == (TOPIC_ID, 100)
        assert part.error_message == "This server does not host this topic ID."
        assert gate.counters.partitions_refused == {"unknown-topic-id": 1}


# ---- long names ----------------------------------------------------------------------------------


def test_long_names_are_answered_whole_and_logged_in_part() -> None:
    # The answer repeats a name of 32 kB; nobody decodes all of it.
    lines: list[Refusal] = []
    names = [f"{i}" + "\N{GRINNING FACE}" * 8_000 for i in range(3)]
    request = view_of(*[(name, 0, BAD) for name in names])
    assert request.topic(1, 5) == "1\N{GRINNING FACE}"
    assert request.size_without_records == request.size - 3 * len(BAD) > 3 * 32_000
    verdict = finished(gate_of(lines), request)
    assert [line.topic for line in lines] == [name[:1] + name[1:250] + "\ufffd" for name in names]
    answer = b"".join(map(bytes, verdict.answer(request)))
    view = ProduceResponseView(memoryview(bytearray(answer))[4:], 9)
    assert [view.topic(i) for i in range(3)] == names


# ---- what it costs -------------------------------------------------------------------------------


@pytest.mark.alone
def test_the_loop_spends_a_millisecond_or_two_on_any_request() -> None:
    # Measured: 0.02 to 1.3 ms. What goes to a thread costs the loop nothing.
    worst = {
        "partitions": view_of(*[("t", i, None) for i in range(10_000)]),
        "topics": view_of(*[(f"t{i}", i, None) for i in range(10_000)]),
        "just few enough": view_of(*[("t", i, None) for i in range(gate_module.INLINE_PARTITIONS)]),
        "91 MB": view_of(("t", 0, many_records(13_000_000))),
        "1 MiB": view_of(("t", 0, batch(*[b"x" * 1000] * 1000))),
        "records": view_of(("t", 0, many_records(40_000))),
        "compressed records": view_of(("t", 0, many_records(40_000, codec=1))),
        "names": view_of(*[(f"{i}" + "\N{SNOWMAN}" * 10_000, 0, BAD) for i in range(100)]),
        "bombs": view_of(*[("t", i, batch(b"\0" * (1 << 20), codec=1)) for i in range(40)]),
    }
    for name, request in worst.items():
        gate = gate_of()
        assert cpu_s(partial(gate.validate, request, "s"), 3) < 0.005, name


@pytest.mark.alone
@pytest.mark.parametrize("topics", [1, 10_000])
def test_ten_thousand_partitions_cost_little_each(topics: int) -> None:
    # 3 us of CPU each in a thread, 2 ms on the loop to settle. Measured: 0.3 and 2 us, 0.3 ms.
    policies = TopicPolicies(
        TopicPolicy(), {"a*": TopicPolicy(), "b*": TopicPolicy(max_message_bytes=300)}
    )
    for records in (None, GOOD, BAD):
        request = view_of(*[(f"t{i % topics}", i, records) for i in range(10_000)])

        def once(request: ProduceRequestView = request) -> tuple[float, float]:
            gate = gate_of(topics=policies)
            verdict = gate.validate(request, "s")
            while not verdict.done:
                gate.work(request, verdict, heavy=False, budget_s=0.005)
            settled = cpu_s(partial(gate.settle, request, verdict, FACTS), 1)
            return verdict.cpu_s / slowness(), settled

        found = [once() for _ in range(3)]
        assert min(work for work, _ in found) < 3e-6 * 10_000
        assert min(settled for _, settled in found) < 2e-3

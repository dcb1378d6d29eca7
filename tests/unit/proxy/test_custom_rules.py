"""Rules of one's own in the gate: who is refused, in which words, and what becomes of a rule that
fails or takes too long.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from batchval.core.batches.record_columns import record_columns
from batchval.custom_rules import CustomRule
from batchval.protocol.messages.produce import ProduceResponse
from batchval.proxy.kit import rule_budget
from batchval.proxy.kit.rule_budget import BudgetedRule
from batchval.proxy.produce.record_stage import RecordStage
from batchval.proxy.settings.glob_policies import TopicRules
from batchval.proxy.settings.options import TopicPolicies
from batchval.proxy.settings.record_settings import CustomRules
from tests.support.proxy import (
    BAD,
    COMPRESSED,
    GOOD,
    ZSTD,
    batch,
    codes,
    connected_gate,
    produce_frame,
    read_frame,
)

INVALID_RECORD, TIMED_OUT = 87, 7
GZIP = 1


def no_secrets(columns: Any) -> Any:
    """Refuse values that begin with "secret"."""
    return [
        (row, f"value {columns.value(row).decode()} is secret")
        for row in range(len(columns))
        if columns.value(row).startswith(b"secret")
    ]


#: Without settings.
BUDGET = CustomRules().budget


def budgeted(function: Callable[[Any], Any], **budget: Any) -> BudgetedRule:
    return BudgetedRule(CustomRule("own:rule", function), replace(BUDGET, **budget))


def policies(*rules: BudgetedRule) -> TopicPolicies:
    return TopicPolicies(rules={"ruled-*": TopicRules(custom_rules=rules)})


@pytest.mark.parametrize("codec", [0, GZIP])
@pytest.mark.parametrize("version", [3, 9, 12])
def test_records_at_fault_are_named_and_the_others_go_on(codec: int, version: int) -> None:
    good = batch(b"plain" * 40, b"text" * 40, codec=codec)
    bad = batch(b"plain" * 40, b"secret\n" * 3, b"secret" * 90, codec=codec)
    rule = budgeted(no_secrets)
    with connected_gate(policies=policies(rule)) as (broker, proxy, sock):
        sock.sendall(
            produce_frame(
                1, ("ruled-a", 0, good), ("ruled-a", 1, bad), ("other", 0, bad), version=version
            )
        )
        answer = read_frame(sock)
        assert codes(answer, version) == {
            ("ruled-a", 0): 0,
            ("ruled-a", 1): INVALID_RECORD,
            ("other", 0): 0,
        }
        part = next(
            part
            for topic in ProduceResponse.decode(answer, version).responses
            for part in topic.partition_responses
            if part.error_code
        )
        if version >= 8:
            errors = [
                (error.batch_index, error.batch_index_error_message) for error in part.record_errors
            ]
            assert [row for row, _ in errors] == [1, 2]
            assert errors[0][1] == "value secret\\nsecret\\nsecret\\n is secret"
            assert len(errors[1][1]) == 200
            assert part.error_message == f"record 1: {errors[0][1]} (custom rule own:rule)"
        assert len(broker.frames) == 1
    assert (rule.calls_total, rule.refusals_total, rule.errors_total) == (2, 1, 0)
    assert [(one.topic, one.partition, one.rule, one.error) for one in proxy.refusals] == [
        ("ruled-a", 1, "custom-rule", "INVALID_RECORD")
    ]
    assert proxy.counters.partitions_refused == {"custom-rule": 1}


#: A batch whose attributes state gzip for plain records.
NOT_GZIP = batch(b"a")[:22] + b"\x01" + batch(b"a")[23:]


@pytest.mark.parametrize(
    ("records", "limit", "text"),
    [
        (None, 1 << 20, "the records cannot be read for custom rules: they are null"),
        (NOT_GZIP, 1 << 20, "the records cannot be read for custom rules: "),
        (batch(b"a", b"b"), 95, "2 records need 96 bytes for custom rules, but max_decompress"),
    ],
    ids=["null", "unreadable", "many"],
)
def test_a_refusal_says_why_the_records_cannot_be_passed(
    records: bytes | None, limit: int, text: str
) -> None:
    stage: Any = SimpleNamespace(
        _request=SimpleNamespace(records=lambda _: records),
        _validators=SimpleNamespace(whole=SimpleNamespace(max_decompressed_bytes=limit)),
    )
    columns = RecordStage._columns(stage, 0)
    assert isinstance(columns, str)
    assert columns.startswith(text)


def test_no_batch_goes_past_a_rule_by_the_fast_path_or_by_claims() -> None:
    rule = budgeted(lambda columns: np.ones(len(columns), bool))
    with connected_gate(policies=policies(rule)) as (broker, _, sock):
        for n, one in enumerate((GOOD, COMPRESSED)):
            sock.sendall(produce_frame(n, ("ruled-a", 0, one)))
            assert codes(read_frame(sock)) == {("ruled-a", 0): INVALID_RECORD}
        sock.sendall(produce_frame(9, ("ruled-a", 0, BAD)))
        assert codes(read_frame(sock)) == {("ruled-a", 0): 2}  # not asked of what Kafka refuses
        assert broker.frames == []
    assert rule.calls_total == 2


def test_observed_batches_go_on() -> None:
    rule = budgeted(lambda columns: np.ones(len(columns), bool))
    with connected_gate(policies=policies(rule), mode="observe") as (_, proxy, sock):
        sock.sendall(produce_frame(1, ("ruled-a", 0, GOOD)))
        assert codes(read_frame(sock)) == {("ruled-a", 0): 0}
    assert proxy.counters.partitions_observed == {"custom-rule": 1}
    assert proxy.counters.partitions_refused == {}


def test_an_exception_becomes_a_refusal_and_the_session_goes_on() -> None:
    def broken(_: Any) -> None:
        raise KeyError("customer 4711")

    for passes, code in ((False, INVALID_RECORD), (True, 0)):
        rule = budgeted(broken, pass_errors=passes)
        with connected_gate(policies=policies(rule)) as (_, _, sock):
            for n in range(3):
                sock.sendall(produce_frame(n, ("ruled-a", 0, GOOD)))
                answer = read_frame(sock)
                assert codes(answer) == {("ruled-a", 0): code}
                assert b"4711" not in answer
                assert b"Traceback" not in answer
        assert (rule.calls_total, rule.errors_total) == (3, 3)


@pytest.mark.parametrize(
    "kind", [SystemExit, GeneratorExit, KeyboardInterrupt, asyncio.CancelledError]
)
def test_no_exception_of_a_rule_ends_the_session(kind: type[BaseException]) -> None:
    def broken(_: Any) -> Any:
        raise kind
        yield 0, ""

    rule = budgeted(broken)
    with connected_gate(policies=policies(rule)) as (_, _, sock):
        for n in range(2):
            sock.sendall(produce_frame(n, ("ruled-a", 0, GOOD)))
            assert codes(read_frame(sock)) == {("ruled-a", 0): INVALID_RECORD}
    assert rule.errors_total == 2


def test_errors_that_clients_choose_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]

    def broken(columns: Any) -> None:
        raise KeyError(columns.value(0))

    rule = BudgetedRule(CustomRule("own:rule", broken), BUDGET, clock=lambda: now[0])
    for n in range(200):
        now[0] += 0.125
        assert rule.ask(record_columns(batch(b"%d" % n))).kind == "error"
    assert rule.errors_total == 200
    lines = [one.getMessage() for one in caplog.records]
    assert lines[0] == "custom rule own:rule failed: KeyError: b'0'"
    assert len(lines) == 3
    assert lines[1] == "custom rule own:rule failed: KeyError: b'80' (and 79 others before it)"


def burn(seconds: float) -> Callable[[Any], None]:
    def function(_: Any) -> None:
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass

    return function


@pytest.mark.parametrize("passes", [False, True])
def test_a_client_whose_batches_take_too_long_is_refused(
    passes: bool, caplog: pytest.LogCaptureFixture
) -> None:
    # also with pass: a client must not choose whether its batches are checked
    rule = budgeted(burn(0.004), budget_s=0.001, overruns=3, suspend_s=60.0, pass_suspended=passes)
    with connected_gate(policies=policies(rule)) as (_, proxy, sock):
        got = []
        for n in range(6):
            sock.sendall(produce_frame(n, ("ruled-a", 0, GOOD)))
            got += codes(read_frame(sock)).values()
    assert got == [0, 0, 0, TIMED_OUT, TIMED_OUT, TIMED_OUT]
    assert (rule.calls_total, rule.overruns_total, rule.unasked_total) == (3, 3, 3)
    assert (rule.is_suspended, rule.refused_senders) == (False, 1)
    assert rule.seconds_total >= 0.012
    lines = [one.getMessage() for one in caplog.records if "is suspended" in one.getMessage()]
    assert len(lines) == 1
    assert "own:rule is suspended for 127.0.0.1 for 60 s: 3 calls took longer" in lines[0]
    assert proxy.counters.partitions_refused == {"custom-rule-suspended": 3}
    assert rule.ask(record_columns(GOOD), "User:other").kind == "answered"


@pytest.mark.parametrize("passes", [False, True])
def test_a_rule_is_suspended_where_it_takes_too_long_for_several_clients(
    passes: bool, caplog: pytest.LogCaptureFixture
) -> None:
    rule = budgeted(burn(0.002), budget_s=0.001, overruns=2, pass_suspended=passes)
    columns = record_columns(GOOD)
    for sender in ("a", "b", "c"):
        assert not rule.is_suspended
        assert [rule.ask(columns, sender).kind for _ in range(2)] == ["answered"] * 2
    assert rule.is_suspended
    answer = rule.ask(columns, "d")
    assert (answer.kind, answer.reason) == (
        "suspended",
        None if passes else "custom rule own:rule is suspended: retry later",
    )
    assert rule.ask(columns, "a").reason is not None  # it has overrun itself
    assert "suspended for all clients" in caplog.text


def test_a_few_of_many_clients_do_not_suspend_a_rule_for_all() -> None:
    costs = [0.0]

    def own(columns: Any) -> None:
        burn(costs[0])(columns)

    rule = budgeted(own, budget_s=0.001, overruns=2)
    columns = record_columns(GOOD)
    for n in range(10):
        assert rule.ask(columns, f"honest {n}").kind == "answered"
    costs[0] = 0.002
    for n in range(4):
        for _ in range(4):
            rule.ask(columns, f"hostile {n}")
    assert (rule.is_suspended, rule.refused_senders) == (False, 4)
    costs[0] = 0.0
    assert rule.ask(columns, "honest 3").kind == "answered"


def test_the_senders_that_a_rule_knows_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_budget, "MAX_SENDERS", 10)
    rule = budgeted(lambda _: None)
    columns = record_columns(GOOD)
    for n in range(100):
        rule.ask(columns, f"sender {n}")
    assert len(rule._senders) == 10


@pytest.mark.parametrize(
    ("count", "size", "units"),
    [(1, 0, 1), (2_000, 0, 1), (60_000, 0, 30), (1, 4 << 20, 4), (8_000, 2 << 20, 4)],
)
def test_a_budget_is_for_bytes_and_for_records(count: int, size: int, units: int) -> None:
    # a loop in Python over 60,000 records of 10 bytes is not at fault
    rule = budgeted(lambda _: None, budget_s=0.005)

    class Columns:
        data = SimpleNamespace(nbytes=size)

        def __len__(self) -> int:
            return count

    columns: Any = Columns()
    assert rule._budget_of(columns) == pytest.approx(0.005 * units)


def test_a_rule_is_asked_again_and_rare_overruns_do_not_suspend_it() -> None:
    now = [0.0]
    rule = BudgetedRule(
        CustomRule("own:rule", burn(0.002)),
        replace(BUDGET, budget_s=0.0001, overruns=2, suspend_s=10.0),
        clock=lambda: now[0],
    )
    columns = record_columns(GOOD)
    for n in range(5):  # 11 s between two of them
        now[0] = 11.0 * n
        assert rule.ask(columns).kind == "answered"
    now[0] += 1.0
    assert rule.ask(columns).kind == "answered"
    assert rule.ask(columns).kind == "suspended"
    now[0] += 10.0
    assert rule.ask(columns).kind == "answered"
    assert rule.refused_senders == 0


def test_a_call_that_waits_is_an_overrun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_budget, "SLOW_S", 0.01)
    rule = budgeted(lambda _: time.sleep(0.05), overruns=3, budget_s=0.02)
    columns = record_columns(GOOD)
    assert [rule.ask(columns).kind for _ in range(4)] == ["answered"] * 3 + ["suspended"]
    assert rule.seconds_total < 3 * 0.05  # the time that it slept


def test_a_call_that_does_not_return_holds_up_its_own_sender_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rule_budget, "STUCK_S", 0.05)
    gone_on = threading.Event()
    is_stuck = [True]
    rule = budgeted(lambda _: [] if not is_stuck[0] or gone_on.wait(20) else None)
    columns = record_columns(GOOD)
    thread = threading.Thread(target=rule.ask, args=(columns, "hostile"))
    thread.start()
    time.sleep(0.1)
    is_stuck[0] = False
    assert rule.ask(columns, "hostile").kind == "suspended"
    assert rule.ask(columns, "honest").kind == "answered"
    gone_on.set()
    thread.join()
    assert rule.ask(columns, "hostile").kind == "answered"


def test_the_budget_of_a_reload_counts_from_then_on() -> None:
    rule = budgeted(burn(0.002), budget_s=1.0, overruns=2)
    columns = record_columns(GOOD)
    for _ in range(3):
        rule.ask(columns, "a")
    rule.follow(replace(BUDGET, budget_s=0.001, overruns=1))
    assert rule.ask(columns, "a").kind == "answered"
    assert rule.ask(columns, "a").kind == "suspended"


def test_a_batch_of_too_many_records_for_the_memory_is_refused() -> None:
    rule = budgeted(lambda _: None)
    many = batch(*[b""] * 3000, codec=ZSTD)
    with connected_gate(
        policies=policies(rule), validation={"max_decompressed_bytes": 3000 * 20}
    ) as (_, _, sock):
        sock.sendall(produce_frame(1, ("ruled-a", 0, many), ("other", 0, many)))
        assert codes(read_frame(sock)) == {("ruled-a", 0): INVALID_RECORD, ("other", 0): 0}
    assert rule.calls_total == 0

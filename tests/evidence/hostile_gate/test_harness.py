"""The harness finds what it looks for, and its attacks are what their names say."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batchval.core.batches.validator import LogValidator
from batchval.policy import TopicPolicy
from batchval.protocol.messages.produce import ProduceRequest
from bench import pages
from tests.evidence.hostile_gate import batches, broker, ceilings, page, requests
from tests.evidence.hostile_gate.attacks import ATTACKS, of_brokers
from tests.evidence.hostile_gate.batches import CODECS, Batch
from tests.evidence.hostile_gate.crowd import Crowd, Plan
from tests.evidence.hostile_gate.measure import best_of
from tests.evidence.hostile_gate.prober import Client
from tests.evidence.hostile_gate.watched_gate import HEAD, SIZE, Longest, watched_loop

MAX_FRAME_BYTES = 1 << 30


# ---- the watched loop ----------------------------------------------------------------------------


def burn(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def watched(tmp_path: Path, run: Callable[[], Any]) -> tuple[float, float, str]:
    """Run a coroutine on a watched loop; return the longest callback and turn in s, and a name."""
    path = tmp_path / "longest"
    path.write_bytes(bytes(SIZE))
    longest = Longest(str(path))
    loop = watched_loop(longest)()
    loop.call_soon(longest.tick, loop)
    loop.run_until_complete(run())
    loop.close()
    data = path.read_bytes()
    callback, turn, size = HEAD.unpack_from(data)
    return callback / 1e9, turn / 1e9, data[HEAD.size : HEAD.size + size].decode()


@pytest.mark.alone
def test_a_callback_counts_its_cpu_and_not_its_sleep(tmp_path: Path) -> None:
    async def run() -> None:
        asyncio.get_running_loop().call_soon(time.sleep, 0.1)
        asyncio.get_running_loop().call_later(0.02, burn, 0.03)
        await asyncio.sleep(0.2)

    callback, turn, name = watched(tmp_path, run)
    assert 0.03 <= callback < 0.09
    assert turn >= 0.03
    assert name == "burn"


@pytest.mark.alone
def test_methods_of_protocols_and_steps_of_tasks_count(tmp_path: Path) -> None:
    class Burning(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            burn(0.02)

    async def step() -> None:
        burn(0.04)

    async def connect() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Burning, "127.0.0.1", 0)
        with socket.create_connection(server.sockets[0].getsockname()) as sock:
            sock.sendall(b"x")
            await asyncio.sleep(0.1)
        server.close()

    async def both() -> None:
        await connect()
        await asyncio.ensure_future(step())

    callback, _, name = watched(tmp_path, connect)
    assert callback >= 0.02
    assert name.endswith("data_received")
    callback, _, name = watched(tmp_path, both)
    assert callback >= 0.04
    assert name.endswith("step")


# ---- figures -------------------------------------------------------------------------------------


def figures(**changes: Any) -> dict[str, Any]:
    """Return the figures of an attack that stays below every ceiling."""
    sent = {"connections": 1, "closed": 0, "sent": 1_000_000, "requests": 10, "plain": 0}
    sent |= {"answered": 1_000, "largest_answer": 100}
    found = {
        "unit": "byte",
        "sent": sent,
        "cpu_s": 0.01,
        "memory_bytes": 1 << 20,
        "max_bytes_held": 1 << 20,
    }
    found |= {
        "quiet_p99_s": 0.01,
        "p99_s": 0.02,
        "callback_s": 0.001,
        "metrics_bytes": 100,
        "wrong": [],
    }
    found["ordinary_byte_s"] = 1e-9
    for key, value in changes.items():
        (sent if key in sent else found)[key] = value
    return found


def test_below_every_ceiling_nothing_is_broken() -> None:
    assert ceilings.broken(figures()) == {}


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"cpu_s": 0.121}, "cpu"),
        ({"cpu_s": 0.0221, "unit": "request"}, "cpu"),
        ({"cpu_s": 0.0231, "unit": "connection"}, "cpu"),
        ({"cpu_s": 0.221, "unit": "answer", "answered": 1_000_000}, "cpu"),
        ({"memory_bytes": 66 << 20}, "memory"),
        ({"p99_s": 0.061}, "latency"),
        ({"callback_s": 0.0051}, "callback"),
        ({"largest_answer": 2 << 20}, "answer"),
        ({"metrics_bytes": 1_100_000}, "metrics"),
        ({"wrong": ["the gate has ended"]}, "alive"),
        ({"audit_bytes": 2_001, "max_audit_bytes": 2_000}, "files"),
        ({"held_share": 0.89, "unserved": 0}, "held"),
        ({"held_share": 1.11, "unserved": 0}, "held"),
        ({"held_share": 1.0, "unserved": 1}, "healthy"),
    ],
)
def test_a_figure_above_its_ceiling_is_found(changes: dict[str, Any], name: str) -> None:
    assert list(ceilings.broken(figures(**changes))) == [name]


@pytest.mark.parametrize("unit", ["byte", "request", "connection"])
def test_cpu_is_that_of_the_reference_machine(unit: str) -> None:
    above = figures(cpu_s=0.2, unit=unit)
    assert "cpu" in ceilings.broken(above)
    assert ceilings.shares(above | {"slowness": 4.0})["cpu"] < ceilings.shares(above)["cpu"] / 4
    assert ceilings.shares(above | {"slowness": 0.5}) == ceilings.shares(above)


def test_a_try_is_judged_by_what_is_allowed_alone() -> None:
    late, long = figures(p99_s=0.111), figures(callback_s=0.0051)
    tries = iter([long, late, figures()])
    assert best_of(tries.__next__, above=without_latency) is late  # the last one is not needed
    assert list(tries) == [figures()]
    assert best_of(iter([late, long, late]).__next__) is long


def without_latency(found: dict[str, Any]) -> dict[str, float]:
    return {name: share for name, share in ceilings.broken(found).items() if name != "latency"}


def test_a_stall_makes_every_request_slow_that_was_due() -> None:
    client = Client(b"", 0.01)
    client.taken = [(i / 100, 0.001) for i in range(100)]
    assert ceilings.p99(client.between(0.0, 1.0)) == 0.001
    client.unanswered.extend([time.monotonic() - 5.0] * 2)
    start = time.monotonic() - 6.0
    assert ceilings.p99(client.between(start, start + 2.0)) >= 5.0


# ---- requests and batches ------------------------------------------------------------------------


def parsed(frame: bytes) -> ProduceRequest:
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return ProduceRequest.parse(frame[4:])[1]


def test_produce_requests_are_what_they_say() -> None:
    assert len(parsed(requests.many_partitions(500, None)).topic_data[0].partition_data) == 500
    assert len(parsed(requests.many_partitions_3(500, b"abc")).topic_data[0].partition_data) == 500
    assert (
        len(parsed(requests.produce_of(requests.topic_of(b"t", b"", 0) * 70, 70)).topic_data) == 70
    )
    tagged = parsed(requests.produce_of(b"", 0, tags=requests.many_tags(300)))
    assert tagged.topic_data == []
    one = parsed(requests.produce((b"t", [(3, b"abc")]), acks=0))
    assert (one.acks, one.topic_data[0].partition_data[0].index) == (0, 3)


def verdict(made: Batch, **policy: Any) -> Any:
    validator = LogValidator(
        TopicPolicy(max_message_bytes=2**31 - 1, **policy), max_decompressed_bytes=MAX_FRAME_BYTES
    )
    return validator.check(made.data, now_ms=batches.now_ms())


@pytest.mark.parametrize("codec", CODECS)
def test_batches_are_what_they_say(codec: str) -> None:
    number = CODECS[codec]
    assert verdict(batches.errors(1_500, number)).record_errors_count == 1_500
    assert (
        verdict(batches.null_keys(1_500, number), cleanup_policy="compact").record_errors_count
        == 1_500
    )
    old = verdict(batches.old_records(1_500, number), message_timestamp_before_max_ms=1_000)
    assert old.record_errors_count == 1_500
    assert verdict(batches.ordinary(number, 20_000)).ok
    assert verdict(batches.zeros(100_000, number)).ok
    assert verdict(batches.empty_headers(1_000, number)).ok
    assert not verdict(batches.equal_records(1_000, number)).ok
    assert not verdict(batches.damaged(batches.small())).ok


def test_bombs_decompress_to_what_they_state() -> None:
    made = batches.large_bomb(2)
    assert (len(made.data) < 10_000, made.plain) == (True, 14_000_000)
    result = LogValidator(TopicPolicy(), max_decompressed_bytes=13_999_999).check(
        made.data, now_ms=0
    )
    assert result.rule is not None
    assert result.rule.id == "S8"
    for name, stream in batches.empty_streams(2_000).items():
        assert verdict(stream).ok, name


# ---- the broker and the crowd --------------------------------------------------------------------


def test_the_broker_answers_by_client_id() -> None:
    answers = broker.Answers()
    answers.listen_at([1, 2])
    good = requests.produce((b"t", [(0, b"")]))
    assert answers.to(good[4:68]) == broker.produce_answer()
    assert answers.to(requests.produce(client=b"mute-1")[4:68]) is None
    assert len(answers.to(requests.fetch(b"big-1")[4:68]) or b"") > broker.FETCHED_BYTES
    assert answers.to(requests.metadata([])[4:68]) == broker.metadata_answer([1, 2])
    assert (
        len(answers.to(requests.metadata([], client=b"many-1")[4:68]) or b"")
        > 20 * broker.MANY_TOPICS
    )


def test_the_broker_ends_at_a_request_that_must_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr("os._exit", ended.append)
    broker.Answers().to(requests.heartbeat(b"never-1")[4:68])
    assert ended == [1]
    assert all(b"never-1" in plan.data[:40] for plan in of_brokers())


def test_a_crowd_counts_bytes_requests_and_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        crowd = Crowd(listener.getsockname())
        crowd.open([Plan(b"abcd" * 10, requests=10, answers=2)])
        peer, _ = listener.accept()
        peer.sendall(b"\0\0\0\3abc\0\0")
        peer.sendall(b"\0\1x")
        crowd.drive(5)
        peer.close()
        sent = crowd.sent(plain=100)
        crowd.close()
    assert (sent.sent, sent.requests, sent.plain, sent.connections) == (40, 10, 100, 1)
    assert (sent.answers, sent.answered, sent.largest_answer) == (2, 12, 3)


def test_every_class_has_a_share_in_ci() -> None:
    # The classes are the parts of the names before the colon.
    parts = Counter(name.partition(":")[0] for name in ATTACKS)
    in_ci = {name.partition(":")[0] for name, attack in ATTACKS.items() if attack.in_ci}
    assert len(ATTACKS) > 80
    assert {part for part, count in parts.items() if count > 1} - in_ci == {
        "stream of nothing",
        "answers",
    }


def test_what_is_saved_of_an_attack_is_what_its_row_reads() -> None:
    found = pages.read("hostile")["attacks"][0]
    more = found | {"worst_s": 1.0, "sent": found["sent"] | {"facts": {"a": 1}}}
    assert page.kept(more) == found
    assert page.row(page.kept(more)) == page.row(more)

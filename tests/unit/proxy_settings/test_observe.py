"""Batches that are observed, by topic and principal, and their counts, also over restarts."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import stat
import time
from pathlib import Path

import pytest

from batchval.errors import BatchvalError
from batchval.proxy.cluster.state_file import replace_file
from batchval.proxy.settings.config import ObserveRule
from batchval.proxy.settings.options import ANONYMOUS
from batchval.proxy.watch.observed_batches import (
    _MAX_FILE_BYTES,
    INVALID,
    NAME,
    OTHER,
    ObservedCounts,
    ObservedFile,
    ObservedRow,
    ObserveRules,
    RowKey,
    _pieces,
    read_observed,
)
from tests.support.calibration import cpu_s
from tests.support.proxy import (
    BAD,
    GOOD,
    ScriptedBroker,
    codes,
    connected,
    connected_gate,
    eventually,
    produce_frame,
    read_frame,
)
from tests.system.auth.gates import RunningSettings
from tests.unit.proxy_settings.refused import Refused

# ---- which refusals are observed -----------------------------------------------------------------


def globs(*pairs: tuple[str, str]) -> ObserveRules:
    return ObserveRules(
        "enforce", [ObserveRule(topics=pair[0], principals=pair[1]) for pair in pairs]
    )


def test_without_rules_the_mode_decides() -> None:
    assert ObserveRules("observe").observes("orders", "User:alice")
    assert ObserveRules("observe").observes(None, "User:alice")
    assert not ObserveRules("enforce").observes("orders", "User:alice")


def test_both_globs_have_to_match() -> None:
    rules = globs(("orders.*", "User:a*"), ("*.test.*", "*"), ("audit", "User:CN=edge,O=[xy]"))
    for _ in range(2):  # the second time from memory
        assert rules.observes("orders.eu", "User:alice")
        assert not rules.observes("orders.eu", "User:bob")
        assert not rules.observes("Orders.eu", "User:alice")
        assert rules.observes("a.test.b", "User:bob")
        assert rules.observes("orders.test.b", ANONYMOUS)
        assert rules.observes("audit", "User:CN=edge,O=x")
        assert not rules.observes("audit", "User:CN=edge,O=z")
        assert not rules.observes("xorders.eu", "User:alice")


@pytest.mark.parametrize("name", [None, "", "x" * 250, "a b", "..", "orders.\n"])
def test_invalid_names_are_matched_by_a_star_alone(name: str | None) -> None:
    assert not globs(("orders.*", "*"), ("?*", "*")).observes(name, ANONYMOUS)
    assert globs(("*", "User:ANON*")).observes(name, ANONYMOUS)


def test_a_very_long_principal_is_matched_by_a_star_alone() -> None:
    long = "User:CN=" + "x" * 5_000
    assert globs(("orders", "*")).observes("orders", long)
    assert not globs(("orders", "User:CN=*")).observes("orders", long)
    assert globs(("orders", "User:CN=*")).observes("orders", long[:1_000])


def test_what_is_remembered_of_names_is_bounded() -> None:
    rules = globs(("orders.*", "User:*"))
    for n in range(25_000):
        assert rules.observes(f"orders.{n}", f"User:{n}")
        assert not rules.observes("\0" * (n % 300), f"User:{n}")
    assert len(rules._known) <= rules.MAX_KNOWN_TOPICS
    assert len(rules._topics_by_principal) <= rules.MAX_PRINCIPALS
    assert max(len(topic or "") for topic, _ in rules._known) <= 249


@pytest.mark.alone
def test_names_that_were_never_seen_cost_little() -> None:
    # 50 rules and 10,000 names: it is asked on the event loop.
    rules = globs(*((f"team-{n}.*.events-*-[abc]", "User:*") for n in range(50)))
    names = [f"team-{n % 60}.{'x.' * 60}events-{n}-d" for n in range(10_000)]
    rules.observes("x", ANONYMOUS)  # compiles

    def ask() -> None:
        rules._known.clear()
        assert not any(rules.observes(name, ANONYMOUS) for name in names)

    assert cpu_s(ask, 2) < 2.0


def test_one_request_is_observed_in_part() -> None:
    observe = [ObserveRule(topics="orders.*")]
    with connected_gate(observe=observe) as (broker, proxy, sock):
        sock.sendall(produce_frame(1, ("orders.eu", 0, BAD), ("plain", 0, BAD), ("plain", 1, GOOD)))
        assert codes(read_frame(sock)) == {("orders.eu", 0): 0, ("plain", 0): 2, ("plain", 1): 0}
        assert [(r.topic, r.enforced, r.principal) for r in proxy.refusals] == [
            ("orders.eu", False, ANONYMOUS),
            ("plain", True, ANONYMOUS),
        ]
        expected = produce_frame(1, ("orders.eu", 0, BAD), ("plain", 1, GOOD))
        assert broker.frames[0][8:] == expected[12:]
        assert proxy.counters.partitions_refused == {"crc-mismatch": 1}
        assert proxy.counters.partitions_observed == {"crc-mismatch": 1}


def test_a_request_of_which_all_is_observed_goes_on_untouched() -> None:
    observe = [ObserveRule(topics="orders.*", principals="User:ANON*")]
    with connected_gate(observe=observe) as (broker, proxy, sock):
        sent = produce_frame(1, ("orders.eu", 0, BAD), ("orders.us", 0, BAD))
        sock.sendall(sent)
        assert codes(read_frame(sock)) == {("orders.eu", 0): 0, ("orders.us", 0): 0}
        assert broker.frames[0][8:] == sent[12:]
        assert proxy.counters.requests_rewritten_total == 0
        # acks=0 is not ended for what is observed
        sock.sendall(
            produce_frame(2, ("orders.eu", 0, BAD), acks=0) + produce_frame(3, ("t", 0, GOOD))
        )
        assert codes(read_frame(sock)) == {("t", 0): 0}


# ---- counts --------------------------------------------------------------------------------------


class Clock:
    ms = 1_769_850_000_000

    def __call__(self) -> int:
        self.ms += 1
        return self.ms * 1_000_000


def test_counts_by_topic_principal_rule_and_outcome() -> None:
    counts = ObservedCounts("observe", clock_ns=Clock(), judged=lambda: 70)
    alice = Refused(principal="User:alice", enforced=False)
    for refusal in (
        alice._replace(reason="first"),
        alice._replace(client_id=None, partition=7, reason="second", batches=4),
        alice._replace(enforced=True),
        alice._replace(rule="batch-too-large"),
        Refused(rule="", error="", reason="", reported=("unused-attribute-bits",)),
    ):
        counts(refusal)
    found = counts.snapshot()
    start = Clock.ms + 1
    assert (found.mode, found.since_ms, found.judged) == ("observe", start, 70)
    assert dict(found.rows) == {
        RowKey("orders", "User:alice", "crc-mismatch", False): ObservedRow(
            5, start + 1, start + 2, "127.0.0.1:1", None, 7, "CORRUPT_MESSAGE", "second"
        ),
        RowKey("orders", "User:alice", "crc-mismatch", True): ObservedRow(
            1, start + 3, start + 3, "127.0.0.1:1", "c", 0, "CORRUPT_MESSAGE", "why"
        ),
        RowKey("orders", "User:alice", "batch-too-large", False): ObservedRow(
            1, start + 4, start + 4, "127.0.0.1:1", "c", 0, "CORRUPT_MESSAGE", "why"
        ),
    }


def test_a_snapshot_does_not_change() -> None:
    counts = ObservedCounts("enforce")
    counts(Refused())
    before = counts.snapshot()
    counts(Refused())
    counts(Refused(topic="b"))
    assert [row.batches for _, row in before.rows] == [1]


def test_rows_are_bounded_and_nothing_is_lost() -> None:
    counts = ObservedCounts("enforce", most=1_000)
    rng = random.Random(14)
    for n in range(20_000):
        whose = f"User:{rng.randrange(3)}" if n % 2 else f"User:{n}"
        counts(Refused(topic=f"topic-{n}", principal=whose, rule=f"rule-{n % 5}"))
    rows = counts.snapshot().rows
    assert len(rows) <= 1_000 + 100 + 5
    assert sum(row.batches for _, row in rows) == 20_000
    assert {key.rule for key, _ in rows if key.topic == key.principal == OTHER} == {
        f"rule-{n}" for n in range(5)
    }
    # a row that is there counts on
    counts(Refused(topic="topic-1", principal=rows[1][0].principal, rule="rule-1"))
    assert counts.snapshot().rows[1][1].batches == 2


def test_invented_names_do_not_take_the_rows_of_topics_that_exist() -> None:
    counts = ObservedCounts("enforce", most=1_000, is_known=lambda topic: topic.startswith("real-"))
    for n in range(5_000):
        counts(Refused(topic=f"invented-{n}"))
    for n in range(800):
        counts(Refused(topic=f"real-{n}"))
    topics = {key.topic for key, _ in counts.snapshot().rows}
    assert {f"real-{n}" for n in range(800)} <= topics
    assert len(topics) == 800 + 100 + 1


@pytest.mark.parametrize("topic", ["", "a b", "x" * 250, "x" * 32_767, "\x1b[2J", "."])
def test_invalid_names_are_not_kept(topic: str) -> None:
    counts = ObservedCounts("enforce")
    counts(Refused(topic=topic))
    counts(Refused(topic=None))
    assert [key.topic for key, _ in counts.snapshot().rows] == [INVALID, OTHER]


def test_what_clients_chose_is_shortened() -> None:
    counts = ObservedCounts("enforce")
    counts(
        Refused(
            principal="User:" + "p" * 9_000,
            client_id="c" * 9_000,
            reason="r" * 9_000,
            client="a" * 9_000,
        )
    )
    ((key, row),) = counts.snapshot().rows
    assert len(key.principal) == 249
    assert len(json.dumps([*key, *row])) < 1_000


# ---- the file ------------------------------------------------------------------------------------


def filled(rows: int = 3) -> ObservedCounts:
    counts = ObservedCounts("observe", judged=lambda: 500)
    for n in range(rows):
        counts(
            Refused(
                topic=f"topic-{n}",
                client_id=None if n % 2 else "ü\n",
                enforced=n % 2 == 0,
                batches=n + 1,
            )
        )
    return counts


async def written(folder: Path, counts: ObservedCounts) -> Path:
    file = ObservedFile(folder, counts)
    file.start()
    await file.stop()
    assert file.failures_total == 0
    return file.path


@pytest.mark.parametrize("rows", [0, 1, 50, 51, 1_234])
async def test_what_was_written_is_read_again(tmp_path: Path, rows: int) -> None:
    counts = filled(rows)
    before = counts.snapshot()
    path = await written(tmp_path, counts)
    found = read_observed(path)
    assert found._replace(until_ms=0) == before._replace(until_ms=0)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == [NAME]


async def test_counts_go_on_after_a_restart(tmp_path: Path) -> None:
    first = filled()
    await written(tmp_path, first)
    second = ObservedCounts("enforce", judged=lambda: 11)
    file = ObservedFile(tmp_path, second)
    file.load()
    second(Refused(topic="topic-1", enforced=False))
    found, before = second.snapshot(), first.snapshot()
    assert (found.since_ms, found.judged, found.mode) == (before.since_ms, 511, "enforce")
    rows = dict(found.rows)
    key = RowKey("topic-1", ANONYMOUS, "crc-mismatch", False)
    assert rows[key].batches == 3
    assert rows[key].first_ms == dict(before.rows)[key].first_ms
    assert len(rows) == 3


#: A file without counts, and changes of it that make it corrupt.
SOUND = {"version": 1, "mode": "observe", "since_ms": 1, "until_ms": 1, "judged": 1, "rows": []}
CHANGES: dict[str, dict[str, object]] = {
    "another version": {"version": 2},
    "no mode": {"mode": None},
    "no rows": {"rows": None},
    "a short row": {"rows": [["a"]]},
    "a negative number": {"since_ms": -1},
    "a fraction": {"judged": 1.5},
    "a number too large": {"until_ms": 1 << 63},
    "a wrong type": {"rows": [["t", "p", "r", 1, 1, 1, 1, "c", None, 0, "e", "r"]]},
    "a negative count": {"rows": [["t", "p", "r", True, -1, 1, 1, "c", None, 0, "e", "r"]]},
}
CORRUPT = {name: json.dumps(SOUND | change).encode() for name, change in CHANGES.items()} | {
    "empty": b"",
    "not JSON": b'{"version": 1',
    "not UTF-8": b'"\xff"',
    "an array": b"[]",
    "no judged": json.dumps({"version": 1, "mode": "", "rows": []}).encode(),
    "too deep": b"[" * 100_000,
}


@pytest.mark.parametrize("data", CORRUPT.values(), ids=CORRUPT.keys())
async def test_a_corrupt_file_is_set_aside_with_one_warning(
    tmp_path: Path, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / NAME).write_bytes(data)
    with pytest.raises(BatchvalError, match=NAME):
        read_observed(tmp_path / NAME)
    counts = filled()
    before = counts.snapshot()
    file = ObservedFile(tmp_path, counts)
    with caplog.at_level(logging.INFO, "batchval"):
        file.load()
        file.start()
        await file.stop()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert (tmp_path / f"{NAME}.corrupt").read_bytes() == data
    assert read_observed(tmp_path / NAME).rows == before.rows


def test_a_sound_file_is_read(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(json.dumps(SOUND))
    assert read_observed(tmp_path / NAME).judged == 1


async def test_it_is_written_now_and_then_and_at_the_end(tmp_path: Path) -> None:
    counts = filled(0)
    file = ObservedFile(tmp_path / "new", counts, changed_s=0.05, unchanged_s=1_000)
    file.start()
    await _until(file.path.exists)
    assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700
    first = file.path.stat().st_ino
    await asyncio.sleep(0.3)
    assert file.path.stat().st_ino == first  # nothing has changed
    counts(Refused())
    await _until(lambda: len(read_observed(file.path).rows) == 1)
    counts(Refused(topic="last"))
    await file.stop()
    assert len(read_observed(file.path).rows) == 2


async def test_a_file_that_cannot_be_written_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "state"
    folder.write_bytes(b"a file where the folder should be")
    file = ObservedFile(folder, filled(), changed_s=0.02, unchanged_s=0.02)
    file.start()
    await _until(lambda: file.failures_total > 3)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    folder.unlink()
    await _until(file.path.exists)
    await file.stop()
    assert len(read_observed(file.path).rows) == 3


async def test_a_stop_that_is_cancelled_writes_all_the_same(tmp_path: Path) -> None:
    counts = filled(2_000)
    file = ObservedFile(tmp_path, counts)
    file.start()
    stopping = asyncio.create_task(file.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    await file.stop()
    assert len(read_observed(file.path).rows) == 2_000


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    def pieces() -> object:
        yield b"half"
        raise OSError("no space left")

    path = tmp_path / NAME
    replace_file(path, [b"whole"])
    (tmp_path / f"{NAME}.new").write_bytes(b"of a process that was killed")
    with pytest.raises(OSError, match="no space left"):
        replace_file(path, pieces())  # type: ignore[arg-type]
    assert path.read_bytes() == b"whole"
    assert os.listdir(tmp_path) == [NAME]


def test_what_killed_processes_have_left_is_deleted_after_an_hour(tmp_path: Path) -> None:
    path = tmp_path / NAME
    names = f"{NAME}.71.new", f"{NAME}.new.1", f"{NAME}.72.new"
    for name in names:
        (tmp_path / name).write_bytes(b"half")
    for name in names[:2]:
        os.utime(tmp_path / name, (0, time.time() - 4_000))
    replace_file(path, [b"whole"], ".73.new")
    assert sorted(os.listdir(tmp_path)) == sorted([NAME, *names[1:]])


def test_the_longest_file_that_is_written_can_be_read() -> None:
    counts = ObservedCounts("enforce")
    text = "\U0001f600" * 1_000
    counts(Refused(topic="t" * 249, principal=text, client=text, client_id=text, reason=text))
    (length,) = (len(piece) for piece in list(_pieces(counts.snapshot()))[1:-1])
    assert length * 1.2 * ObservedCounts.MAX_ROWS < _MAX_FILE_BYTES


async def _until(what: object) -> None:
    async with asyncio.timeout(15):
        while not what():  # type: ignore[operator]
            await asyncio.sleep(0.01)


# ---- a gate --------------------------------------------------------------------------------------


def test_a_gate_keeps_its_counts_over_a_restart(tmp_path: Path) -> None:
    for turn in (1, 2):
        with (
            ScriptedBroker() as broker,
            RunningSettings(
                broker.address,
                observe=[{"topics": "orders.*"}],
                state_directory=str(tmp_path),
            ) as running,
        ):
            with connected(running) as sock:  # type: ignore[arg-type]
                sock.sendall(
                    produce_frame(1, ("orders.eu", 0, BAD), ("plain", 0, BAD), ("plain", 1, GOOD))
                )
                assert codes(read_frame(sock)) == {
                    ("orders.eu", 0): 0,
                    ("plain", 0): 2,
                    ("plain", 1): 0,
                }
            eventually((tmp_path / NAME).exists)
        found = read_observed(tmp_path / NAME)
        assert found.judged == 3 * turn
        assert {(key.topic, key.enforced): row.batches for key, row in found.rows} == {
            ("orders.eu", False): turn,
            ("plain", True): turn,
        }

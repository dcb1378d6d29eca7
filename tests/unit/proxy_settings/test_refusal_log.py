"""One line for each refusal: who, where, which rule, why. Nothing of a record, and no flood."""

from __future__ import annotations

import io
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from batchval.core.batches.validator import LogValidator
from batchval.proxy.settings.config import Log
from batchval.proxy.watch.audit_log import (
    MAX_LINE_BYTES,
    MAX_LINES_AT_ONCE,
    LineFormatter,
    RefusalLog,
    encoded,
    install,
    json_line,
    text_line,
)
from tests.support.clock import Clock
from tests.unit.proxy_settings.refused import Refused

GOLDEN = Path(__file__).parents[3] / "fixtures" / "golden"


def lines(kind: str, *refusals: Refused, per_second: int = 100, level: str = "info") -> list[str]:
    stream = io.StringIO()
    install(Log.model_validate({"format": kind, "level": level}), logging.StreamHandler(stream))
    log = RefusalLog(per_second, Clock())
    for refusal in refusals:
        log(refusal)
    log.flush()
    return stream.getvalue().splitlines()


def test_text() -> None:
    (line,) = lines("text", Refused(reason="stored 1, computed 2", client_id="my client"))
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z WARNING refused listener=default client=127\.0\.0\.1:1 "
        r'client_id="my client" principal=User:ANONYMOUS topic=orders partition=0 '
        r'rule=crc-mismatch error=CORRUPT_MESSAGE reason="stored 1, computed 2"',
        line,
    )


def test_json() -> None:
    refusal, reported = (
        Refused(enforced=False),
        Refused(rule="", error="", reason="", reported=("a", "b")),
    )
    first, second = (json.loads(line) for line in lines("json", refusal, reported))
    assert first.pop("time").endswith("Z")
    assert first == {
        "level": "WARNING",
        "event": "observed",
        "listener": "default",
        "client": "127.0.0.1:1",
        "client_id": "c",
        "principal": "User:ANONYMOUS",
        "topic": "orders",
        "partition": 0,
        "rule": "crc-mismatch",
        "error": "CORRUPT_MESSAGE",
        "reason": "why",
    }
    assert (second["event"], second["reported"]) == ("reported", "a,b")
    assert "rule" not in second


NASTY = 'x\n2026-01-01T00:00:00.000Z WARNING refused client=other\r\x1b[2J\u2028 "'


@pytest.mark.parametrize("kind", ["text", "json"])
def test_text_of_a_client_does_not_make_a_line(kind: str) -> None:
    (line,) = lines(kind, Refused(client_id=NASTY, topic=NASTY, reason=NASTY, principal=NASTY))
    assert line.isprintable()
    assert line.isascii()
    (line,) = lines(
        kind,
        Refused(client_id="y" * 5000, topic="z" * 5000, reason="w" * 5000, principal="p" * 5000),
    )
    assert len(line) < 1750


LONG = "\U0001f600" * 5_000


@pytest.mark.parametrize("kind", ["text", "json"])
def test_a_pipe_takes_the_longest_line_as_one_piece(kind: str) -> None:
    # Several workers write to one pipe: what is above PIPE_BUF is cut by the lines of others.
    (line,) = lines(
        kind, Refused(client_id=LONG, topic=LONG, reason=LONG, principal=LONG, partition=7)
    )
    assert 1_000 < len(line) < MAX_LINE_BYTES
    assert all(
        word in line for word in ("refused", "127.0.0.1:1", "crc-mismatch", "CORRUPT_MESSAGE")
    )
    if kind == "json":
        row = json.loads(line)
        assert row["partition"] == 7
        assert all(
            row[name].endswith("…") for name in ("client_id", "topic", "reason", "principal")
        )


@pytest.mark.parametrize("formatter", [LineFormatter(text_line), LineFormatter(json_line)])
@pytest.mark.parametrize("message", ["x" * 10_000, "é" * 10_000, "\udc80" * 10_000, "\0" * 10_000])
def test_a_long_message_is_shortened(formatter: logging.Formatter, message: str) -> None:
    line = formatter.format(logging.makeLogRecord({"msg": message, "facts": {"count": 1}}))
    assert 1_000 < len(encoded(line)) <= MAX_LINE_BYTES
    assert "count" in line


def test_a_line_may_stand_for_several_batches() -> None:
    several = Refused(topic=None, principal="User:CN=edge,O=Example", batches=900)
    (line,) = lines("json", several)
    row = json.loads(line)
    assert (row["batches"], row["principal"]) == (900, "User:CN=edge,O=Example")
    assert "topic" not in row
    stream = io.StringIO()
    install(Log(), logging.StreamHandler(stream))
    log = RefusalLog(1, Clock())
    for _ in range(3):
        log(several)
    log.flush()
    assert log.suppressed_total == 1_800
    assert "count=1800" in stream.getvalue().splitlines()[-1]


def test_a_flood_is_bounded_and_counted() -> None:
    stream, clock = io.StringIO(), Clock()
    install(Log(), logging.StreamHandler(stream))
    log = RefusalLog(10, clock)
    for _ in range(1_000):
        log(Refused())
    assert len(stream.getvalue().splitlines()) == 10
    assert log.suppressed_total == 990
    clock.now += 0.5
    for _ in range(20):
        log(Refused())
    lines = stream.getvalue().splitlines()[10:]
    assert "left out of the log count=990" in lines[0]
    assert len(lines) == 6
    log.flush()
    assert "count=15" in stream.getvalue().splitlines()[-1]
    assert log.suppressed_total == 1_005


def test_few_lines_come_at_once() -> None:
    # The event loop writes them: 20 now, and the rest of a hundred in the course of a second.
    stream, clock = io.StringIO(), Clock()
    install(Log(), logging.StreamHandler(stream))
    log = RefusalLog(100, clock)
    for _ in range(300):
        log(Refused(partition=1))
        clock.now += 0.0001
    # 2 more in that time, each after a count of those left out
    assert len(stream.getvalue().splitlines()) == MAX_LINES_AT_ONCE + 2 * 2
    for _ in range(97):
        clock.now += 0.01
        log(Refused())
    assert stream.getvalue().count("partition=0") == 97


def test_the_level_is_kept() -> None:
    assert lines("text", Refused(), level="error") == []


def test_an_exception_is_named_but_not_quoted() -> None:
    stream = io.StringIO()
    install(Log(), logging.StreamHandler(stream))
    try:
        raise ValueError("pl4nted-s3cret")
    except ValueError:
        logging.getLogger("batchval.proxy").exception("something failed")
    assert "something failed exception=ValueError" in stream.getvalue()
    assert "pl4nted" not in stream.getvalue()
    assert stream.getvalue().count("\n") == 1


def test_no_reason_of_the_engine_quotes_a_record() -> None:
    looked_at = 0
    for path in sorted(GOLDEN.glob("*/cases.jsonl")):
        for text in path.read_text("utf-8").splitlines():
            batch = bytes.fromhex(json.loads(text)["batch_hex"])
            result = LogValidator().check(batch, now_ms=1_700_000_000_000)
            for word in re.findall(rb"(?:key|value)-[0-9]+", batch):
                shown = [result.reason, *(message for _, message in result.record_errors)]
                assert not any(word.decode() in str(one) for one in shown), (path, shown)
                looked_at += not result.ok
    assert looked_at > 100


def test_a_flood_of_one_sender_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    log = RefusalLog(10, Clock())
    flood, honest = Refused(client="10.6.6.6:5000"), Refused(client="10.0.0.1:5000")
    for _ in range(1_000):
        log(flood)
    log(honest)
    log(honest)
    for n in range(1_000):  # other connections of the same sender
        log(Refused(client=f"10.6.6.6:{n}"))
    found: list[Any] = [line for line in caplog.records if line.getMessage() == "refused"]
    clients = [line.facts["client"] for line in found]
    assert clients.count("10.6.6.6:5000") == 10
    assert clients.count("10.0.0.1:5000") == 1
    assert len(clients) == 11


def test_lines_are_bounded_whatever_the_number_of_senders(caplog: pytest.LogCaptureFixture) -> None:
    log = RefusalLog(10, Clock())
    for n in range(1_000):
        log(Refused(client=f"10.{n // 200}.{n % 200}.1:5000"))
    assert len([line for line in caplog.records if line.getMessage() == "refused"]) == 20

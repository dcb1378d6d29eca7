"""log.audit_file: every refused batch is one JSON line, over rotations and errors of the disk."""

from __future__ import annotations

import errno
import json
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batchval.proxy.life.gate import Gate
from batchval.proxy.settings.loading import settings_from
from batchval.proxy.watch import audit_file
from batchval.proxy.watch.audit_file import AuditFile
from tests.support.proxy import BAD, GOOD, ScriptedBroker, eventually, produce_frame
from tests.unit.proxy_settings.refused import Refused
from tests.unit.proxy_settings.test_assembled import asked

TIME_NS = 1_769_850_000_123_456_789


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "refused.jsonl"


@pytest.fixture
def audit(path: Path) -> Iterator[AuditFile]:
    audit = AuditFile(path, lambda: TIME_NS, look_s=0.01)
    audit.start()
    yield audit
    audit.stop()


def rows(path: Path) -> list[dict[str, Any]]:
    lines = path.read_bytes().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith(b"\n")]  # the last may be half here


def partitions(path: Path) -> list[int]:
    return [row["partition"] for row in rows(path)]


def test_a_row_has_the_facts_of_the_line_and_more(audit: AuditFile, path: Path) -> None:
    audit(Refused(reason="stored 1, computed 2"))
    audit(
        Refused(
            topic=None,
            partition=-1,
            rule="S1",
            enforced=False,
            batches=900,
            principal="User:CN=edge,O=Example",
        )
    )
    audit(Refused(rule="", error="", reported=("S1",)))  # refuses nothing
    first, second = eventually(lambda: audit.rows == 2 and rows(path))
    assert first == {
        "time_ms": 1_769_850_000_123,
        "event": "refused",
        "listener": "default",
        "client": "127.0.0.1:1",
        "client_id": "c",
        "principal": "User:ANONYMOUS",
        "topic": "orders",
        "partition": 0,
        "rule": "crc-mismatch",
        "error": "CORRUPT_MESSAGE",
        "reason": "stored 1, computed 2",
        "batches": 1,
        "version": 9,
    }
    assert (second["event"], second["batches"], second["principal"]) == (
        "observed",
        900,
        "User:CN=edge,O=Example",
    )
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_a_client_chose_is_one_line_of_bounded_length(audit: AuditFile, path: Path) -> None:
    nasty = 'x\n{"event": "refused"}\r\u2028' + "y" * 40_000
    audit(Refused(client_id=nasty, topic=nasty, reason=nasty, principal=nasty))
    eventually(lambda: audit.rows == 1)
    (row,) = rows(path)
    assert row["topic"].startswith('x\n{"event"')
    assert len(path.read_bytes()) < 3_000


def test_rows_are_appended(path: Path) -> None:
    path.write_text('{"partition": 7}\n')
    audit = AuditFile(path)
    audit.start()
    audit(Refused())
    audit.stop()
    assert partitions(path) == [7, 0]
    assert audit.dropped == 0


def test_a_file_that_was_moved_is_made_anew(audit: AuditFile, path: Path) -> None:
    audit(Refused(partition=1))
    eventually(lambda: audit.rows == 1)
    aside = path.with_suffix(".1")
    path.rename(aside)

    def follows() -> bool:
        audit(Refused(partition=2))
        return path.exists()

    eventually(follows)
    path.unlink()
    audit.reopen()  # SIGHUP: without a row, too
    eventually(path.exists)
    audit(Refused(partition=3))
    eventually(lambda: partitions(path)[-1:] == [3])
    assert set(partitions(path)) <= {2, 3}
    assert partitions(aside)[0] == 1
    assert audit.failures == 0


def test_an_error_of_the_disk_is_logged_once_and_nothing_is_lost(
    audit: AuditFile, path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # The disk takes a part of a row, and then nothing for a while.
    caplog.set_level(logging.INFO)
    write, is_full = os.write, threading.Event()

    def full(descriptor: int, data: bytes) -> int:
        if threading.current_thread().name != "batchval-audit" or not is_full.is_set():
            return write(descriptor, data)
        if len(data) > 100:
            return write(descriptor, data[:50])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(audit_file.os, "write", full)
    is_full.set()
    for partition in range(5):
        audit(Refused(partition=partition))
    eventually(lambda: audit.failures >= 3)
    assert audit.rows == 0
    is_full.clear()
    eventually(lambda: audit.rows == 5)
    assert partitions(path) == [0, 1, 2, 3, 4]
    messages = eventually(
        lambda: len(caplog.records) == 2 and [record.getMessage() for record in caplog.records]
    )
    assert messages == [
        f"log.audit_file {path} cannot be written: No space left on device",
        f"log.audit_file {path} is written again",
    ]
    assert audit.dropped == 0


@pytest.mark.parametrize("may_cut", [True, False])
def test_no_file_ends_in_half_a_row_that_another_one_has_the_rest_of(
    audit: AuditFile, path: Path, monkeypatch: pytest.MonkeyPatch, may_cut: bool
) -> None:
    # The disk is full in the middle of a row; then the file is rotated.
    write, is_full, aside = os.write, threading.Event(), path.with_name("aside")

    def full(descriptor: int, data: bytes) -> int:
        if threading.current_thread().name != "batchval-audit" or not is_full.is_set():
            return write(descriptor, data)
        if len(data) > 300:
            return write(descriptor, data[:-100])  # some rows, and a part of the last one
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def unable(*_: object) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(audit_file.os, "write", full)
    if not may_cut:
        monkeypatch.setattr(audit_file.os, "ftruncate", unable)
    audit(Refused(partition=0))
    eventually(lambda: audit.rows == 1)
    is_full.set()
    audit._queue.extend({"partition": partition, "reason": "x" * 90} for partition in (1, 2, 3))
    audit._wake.set()
    eventually(lambda: audit.failures >= 2)
    path.rename(aside)
    if not may_cut:
        audit.reopen()
    is_full.clear()
    eventually(lambda: audit.rows == 4)
    assert path.read_bytes().endswith(b"}\n")
    assert partitions(path) == [3]
    assert aside.read_bytes().endswith(b"}\n") is may_cut
    assert partitions(aside) == [0, 1, 2]


def test_gates_that_append_to_one_file_write_whole_rows(path: Path) -> None:
    # Each waits for the other's lock: half a row is cut before the next row is appended.
    first, second = (AuditFile(path, lambda: TIME_NS, look_s=0.01) for _ in range(2))
    first.start(), second.start()
    for partition in range(500):
        first(Refused(partition=partition)), second(Refused(partition=partition))
    first.stop(), second.stop()
    assert path.read_bytes().endswith(b"}\n")
    assert sorted(partitions(path)) == sorted(2 * list(range(500)))


def test_rows_without_a_place_are_counted(
    audit: AuditFile, path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # The disk hangs: the caller does not wait, and the queue is bounded.
    monkeypatch.setattr(audit_file, "MAX_WAITING_ROWS", 100)
    hangs, goes_on, write = threading.Event(), threading.Event(), os.write

    def hanging(descriptor: int, data: bytes) -> int:
        if threading.current_thread().name == "batchval-audit":
            hangs.set()
            assert goes_on.wait(20)
        return write(descriptor, data)

    monkeypatch.setattr(audit_file.os, "write", hanging)
    audit(Refused())
    assert hangs.wait(10)
    for _ in range(150):
        audit(Refused())
    assert audit.dropped == 50
    monkeypatch.setattr(audit_file, "STOP_S", 0.01)
    audit.stop()
    assert audit.dropped == 151
    assert "refusals left out of" in caplog.records[-1].getMessage()
    goes_on.set()
    assert {family.name: list(family.samples) for family in audit.families()}[
        "audit_file_dropped"
    ] == [((), 151)]


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    # As /dev/stdout of a container. One that nobody reads is an error, not a wait.
    path = tmp_path / "pipe"
    os.mkfifo(path)
    audit = AuditFile(path)
    with pytest.raises(OSError, match="No such device or address"):
        audit.start()
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    audit.start()
    for partition in range(100):
        audit(Refused(partition=partition))
    eventually(lambda: audit.rows == 100)
    audit.stop()
    assert os.read(reader, 1 << 20).count(b"\n") == 100
    os.close(reader)


async def test_a_gate_writes_what_the_log_leaves_out(path: Path) -> None:
    with ScriptedBroker() as broker:
        gate = Gate(
            settings_from(
                {
                    "mode": "enforce",
                    "listeners": [{"address": "127.0.0.1:0"}],
                    "upstream": {"bootstrap": broker.address},
                    "metrics": {"address": None},
                    "log": {"audit_file": str(path), "level": "error"},
                }
            )
        )
        await gate.start()
        bad = [("t", partition, BAD) for partition in range(150)]
        assert (await asked(gate.addresses["default"], produce_frame(1, *bad, ("t", 150, GOOD))))[
            149
        ] == 2
        assert gate.audit_file is not None
        written = gate.audit_file
        eventually(lambda: written.rows == 101)
        path.rename(path.with_suffix(".1"))
        gate.reopen_files()
        eventually(path.exists)
        await asked(gate.addresses["default"], produce_frame(1, ("t", 7, BAD), version=10))
        await gate.stop(0.2)
    first, second = rows(path.with_suffix(".1")), rows(path)
    assert sum(row["batches"] for row in first) == 150
    assert first[0]["version"] == 9
    assert [(row["partition"], row["version"], row["event"]) for row in second] == [
        (7, 10, "refused")
    ]
    assert "audit_file_rows_total 102.0" in gate.metrics.page()().decode()


async def test_a_file_that_cannot_be_opened_ends_the_start(tmp_path: Path) -> None:
    gate = Gate(
        settings_from(
            {
                "listeners": [{"address": "127.0.0.1:0"}],
                "upstream": {"bootstrap": "127.0.0.1:1"},
                "metrics": {"address": None},
                "log": {"audit_file": str(tmp_path)},
            }
        )
    )
    with pytest.raises(OSError, match=r"log\.audit_file .* cannot be opened: Is a directory"):
        await gate.start()

"""Copies of refused batches: the bytes that came are in the files, and refusals stay the same."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from batchval.proxy.produce.quarantine import COPIED, QuarantineFolder, QuarantineWriter
from batchval.proxy.settings.config import ObserveRule
from batchval.proxy.settings.options import Refusal
from tests.support.batches import message
from tests.support.proxy import (
    BAD,
    GOOD,
    RunningProxy,
    ScriptedBroker,
    batch,
    codes,
    connected,
    damaged,
    eventually,
    produce_frame,
    read_frame,
)

CORRUPT = 2
MIB = 1 << 20


class Filled:
    """``with Filled(folder) as quarantine``: it writes, and has written all at the end."""

    def __init__(self, path: Path, max_bytes: int = 16 * MIB, **options: Any) -> None:
        self.quarantine = QuarantineWriter(
            QuarantineFolder(path, max_bytes), version="1.2.3", **options
        )

    def __enter__(self) -> QuarantineWriter:
        self.quarantine.start()
        return self.quarantine

    def __exit__(self, *_: object) -> None:
        self.quarantine.stop()


def verdicts(path: Path) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted(path.glob("*.json"))]


def refusal(topic: str | None = "orders", partition: int = 0) -> Refusal:
    return Refusal(
        "edge", "10.0.0.7:1", "c", topic, partition, "crc-mismatch", "CORRUPT_MESSAGE", "why", True
    )


def test_a_refused_batch_is_copied_with_its_verdict(tmp_path: Path) -> None:
    folder = tmp_path / "quarantine"
    with (
        Filled(folder) as quarantine,
        ScriptedBroker() as broker,
        RunningProxy(broker.address, quarantine=quarantine) as proxy,
        connected(proxy) as sock,
    ):
        sock.sendall(produce_frame(1, ("orders", 3, BAD), ("orders", 4, GOOD), version=8))
        assert codes(read_frame(sock), 8) == {("orders", 3): CORRUPT, ("orders", 4): 0}
        host, port = sock.getsockname()
    (verdict,) = verdicts(folder)
    (log,) = folder.glob("*.log")
    assert log.read_bytes() == BAD
    assert log.name == verdict["file"]
    assert log.with_suffix(".json").exists()
    reason = verdict.pop("reason")
    assert "crc" in reason.lower() or "stored" in reason
    del verdict["time"], verdict["file"]
    assert verdict == {
        "version": 1,
        "gate": "1.2.3",
        "outcome": "refused",
        "listener": "default",
        "client": f"{host}:{port}",
        "client_id": "test",
        "principal": "User:ANONYMOUS",
        "software": "",
        "topic": "orders",
        "partition": 3,
        "rule": "crc-mismatch",
        "rule_id": verdict["rule_id"],
        "error": "CORRUPT_MESSAGE",
        "error_code": CORRUPT,
        "extras": [],
        "api_version": 8,
        "acks": 1,
        "record_errors": [],
        "claims_tag": None,
        "size": len(BAD),
        "sha256": hashlib.sha256(BAD).hexdigest(),
    }
    assert verdict["rule_id"]
    assert (quarantine.batches_total, set(quarantine.dropped.values())) == (1, {0})
    assert quarantine.folder.bytes == sum(file.stat().st_size for file in folder.iterdir())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}


def test_a_large_batch_is_whole_although_its_memory_is_used_again(tmp_path: Path) -> None:
    # Small ones are copied, large ones keep their memory: the thread begins only at the end.
    large = [damaged(batch(bytes([65 + n]) * 3 * COPIED)) for n in range(8)]
    small = [damaged(batch(bytes([97 + n]) * 100)) for n in range(8)]
    filled = Filled(tmp_path)
    with (
        ScriptedBroker() as broker,
        RunningProxy(broker.address, quarantine=filled.quarantine) as proxy,
    ):
        with connected(proxy) as sock:
            for n, (one, other) in enumerate(zip(large, small, strict=True)):
                sock.sendall(
                    produce_frame(n, ("orders", n, one)) + produce_frame(n, ("small", n, other))
                )
                assert (
                    set(codes(read_frame(sock)).values())
                    == set(codes(read_frame(sock)).values())
                    == {CORRUPT}
                )
            sock.sendall(
                produce_frame(9, *(("orders", n, batch(b"z" * 3 * COPIED)) for n in range(8)))
            )
            assert set(codes(read_frame(sock)).values()) == {0}
        with filled:
            pass
    found = {
        (one["topic"], one["partition"]): (tmp_path / one["file"]).read_bytes()
        for one in verdicts(tmp_path)
    }
    wanted = {("orders", n): one for n, one in enumerate(large)} | {
        ("small", n): one for n, one in enumerate(small)
    }
    assert found == wanted


@pytest.mark.parametrize("observed", [False, True])
def test_observed_batches_are_copied_where_that_is_set(tmp_path: Path, observed: bool) -> None:
    with Filled(tmp_path, observed=observed) as quarantine, ScriptedBroker() as broker:
        options: dict[str, Any] = {
            "observe": [ObserveRule(topics="seen")],
            "quarantine": quarantine,
        }
        with RunningProxy(broker.address, **options) as proxy, connected(proxy) as sock:
            sock.sendall(produce_frame(1, ("seen", 0, BAD), ("orders", 0, BAD)))
            assert codes(read_frame(sock)) == {("seen", 0): 0, ("orders", 0): CORRUPT}
    outcomes = sorted((one["topic"], one["outcome"]) for one in verdicts(tmp_path))
    assert outcomes == [("orders", "refused")] + [("seen", "observed")] * observed


def test_message_sets_of_old_clients_are_copied_as_they_came(tmp_path: Path) -> None:
    from tests.support.old_produce import old_produce

    bad = damaged(message(1))
    with (
        Filled(tmp_path) as quarantine,
        ScriptedBroker() as broker,
        RunningProxy(broker.address, quarantine=quarantine, bridge=("producers",)) as proxy,
        connected(proxy) as sock,
    ):
        sock.sendall(old_produce(1, 7, ("orders", 0, bad)))
        read_frame(sock)
    (verdict,) = verdicts(tmp_path)
    assert (verdict["api_version"], (tmp_path / verdict["file"]).read_bytes()) == (1, bad)


def test_no_client_chooses_the_name_of_a_file(tmp_path: Path) -> None:
    names = [
        "../../etc/passwd",
        "..",
        ".",
        "a" * 249,
        "b" * 30_000,
        "naïve",
        "a/b",
        "",
        "x\n.log",
        "orders",
        None,
    ]
    with Filled(tmp_path / "q") as quarantine:
        for name in names:
            quarantine.take(refusal(name, -1), memoryview(GOOD), {})
    files = sorted(path.name for path in (tmp_path / "q").iterdir())
    assert len(files) == 2 * len(names)
    assert [path.name for path in tmp_path.iterdir()] == ["q"]
    middles = [file[21:].split(f"-0-{os.getpid()}-")[0] for file in files]
    assert {one for one in middles if not one.startswith("sha256-")} == {"orders", "unknown"}
    assert all(len(file) < 255 for file in files)
    assert quarantine.dropped == {"queue": 0, "rate": 0, "request": 0, "write": 0}


def test_the_oldest_go_first_and_the_bound_holds(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    # of an earlier process
    (tmp_path / "20200101T000000.000Z-old-0-1-000001.log").write_bytes(bytes(MIB))
    (tmp_path / "20200101T000000.000Z-old-0-1-000001.json").write_text("{}")
    largest = 0
    with Filled(tmp_path, 2 * MIB) as quarantine:
        for n in range(40):
            quarantine.take(refusal(partition=n), memoryview(bytes([n]) * 200_000), {})
            eventually(lambda n=n: quarantine.batches_total == n + 1)
            largest = max(largest, sum(file.stat().st_size for file in tmp_path.iterdir()))
    assert MIB < largest <= 2 * MIB + len("mine")
    kept = [one["partition"] for one in verdicts(tmp_path)]
    assert kept == list(range(40 - len(kept), 40))
    assert len(kept) == len(list(tmp_path.glob("*.log"))) == 10
    assert (tmp_path / "notes.txt").exists()
    assert quarantine.folder.bytes <= 2 * MIB


def test_the_number_of_batches_is_bounded_too(tmp_path: Path) -> None:
    folder = QuarantineFolder(tmp_path, MIB, most_batches=20)
    folder.open()
    for n in range(50):
        folder.write(folder.name_for(1.0 + n, "orders", n), memoryview(b"x"), b"{}")
    assert len(list(tmp_path.iterdir())) == 40
    other = QuarantineFolder(tmp_path, MIB, most_batches=5)
    other.open()
    assert sorted(path.name.split("-")[2] for path in tmp_path.glob("*.log")) == [
        "45",
        "46",
        "47",
        "48",
        "49",
    ]


def test_what_another_worker_writes_and_deletes_is_tolerated(tmp_path: Path) -> None:
    ours, theirs = QuarantineFolder(tmp_path, 64_000), QuarantineFolder(tmp_path, 64_000)
    for folder in (ours, theirs):
        folder.open()
    for n in range(100):
        for folder in (ours, theirs):
            folder.write(
                folder.name_for(1.0 + n, "orders", id(folder) % 1000),
                memoryview(bytes(1000)),
                b"{}",
            )
        for path in list(tmp_path.glob("*.log"))[::7]:
            path.unlink()
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 64_000 * 5 // 4


def test_a_batch_that_is_larger_than_the_bound_leaves_its_verdict(tmp_path: Path) -> None:
    with Filled(tmp_path, MIB) as quarantine:
        quarantine.take(refusal(), memoryview(bytes(MIB)), {})
        quarantine.take(refusal(), None, {})
    first, second = verdicts(tmp_path)
    assert (first["file"], first["size"], first["sha256"]) == (
        None,
        MIB,
        hashlib.sha256(bytes(MIB)).hexdigest(),
    )
    assert first["note"] == f"the batch has more bytes than quarantine.max_bytes ({MIB}) allows"
    assert (second["file"], second["size"]) == (None, None)
    assert list(tmp_path.glob("*.log")) == []


def test_a_folder_that_is_removed_is_made_again(tmp_path: Path) -> None:
    folder = QuarantineFolder(tmp_path / "copies", MIB)
    folder.open()
    folder.write("20261126T081500.123Z-orders-3-4711-000001", memoryview(bytes(1000)), b"{}")
    shutil.rmtree(folder.path)
    name = "20261126T081500.123Z-orders-3-4711-000002"
    folder.write(name, memoryview(bytes(10)), b"{}")
    assert sorted(file.name for file in folder.path.iterdir()) == [f"{name}.json", f"{name}.log"]
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    assert folder.bytes == 12
    folder.path.rename(tmp_path / "elsewhere")
    (tmp_path / "copies").symlink_to(tmp_path / "nowhere")
    with pytest.raises(OSError, match="exists"):
        folder.write(name, None, b"{}")
    assert folder.bytes == 0


def test_a_disk_that_takes_nothing_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_full = threading.Event()
    write = QuarantineFolder._write

    def full(self: QuarantineFolder, name: str, data: bytes) -> None:
        if is_full.is_set() and name.endswith(".json"):
            raise OSError(28, "No space left on device")
        write(self, name, data)

    monkeypatch.setattr(QuarantineFolder, "_write", full)
    with (
        Filled(tmp_path) as quarantine,
        ScriptedBroker() as broker,
        RunningProxy(broker.address, quarantine=quarantine) as proxy,
        connected(proxy) as sock,
    ):
        for is_now_full in (False, True, True, True, False):
            (is_full.set if is_now_full else is_full.clear)()
            before = quarantine.batches_total + quarantine.dropped["write"]
            sock.sendall(produce_frame(1, ("orders", 0, BAD)))
            assert codes(read_frame(sock)) == {("orders", 0): CORRUPT}
            eventually(lambda n=before: quarantine.batches_total + quarantine.dropped["write"] > n)
    assert (quarantine.batches_total, quarantine.dropped["write"]) == (2, 3)
    assert len(list(tmp_path.iterdir())) == 4
    lines = [
        record.getMessage() for record in caplog.records if "refused batches" in record.getMessage()
    ]
    assert lines == [f"refused batches cannot be copied to {tmp_path}: No space left on device"]


def test_what_the_thread_cannot_keep_up_with_is_left_out(tmp_path: Path) -> None:
    filled = Filled(tmp_path, most_waiting=MIB)
    one = memoryview(bytes(MIB // 4))
    for _ in range(10):
        filled.quarantine.take(refusal(), one, {})
    assert filled.quarantine.dropped["queue"] == 6
    with filled:
        pass
    assert len(verdicts(tmp_path)) == 4
    filled.quarantine.take(refusal(), memoryview(bytes(8 * MIB)), {})  # one is taken, however large
    assert filled.quarantine.dropped["queue"] == 6


def test_a_batch_counts_with_the_request_that_it_keeps_in_memory(tmp_path: Path) -> None:
    quarantine = QuarantineWriter(QuarantineFolder(tmp_path, 1 << 30), most_waiting=3 << 20)
    request = memoryview(bytearray(2 << 20))
    for _ in range(3):  # nobody writes
        quarantine.take(refusal(), request[: COPIED + 1], {})
    assert quarantine.dropped["queue"] == 2
    quarantine.take(refusal(), request[:COPIED], {})  # a small one is copied
    assert quarantine.dropped["queue"] == 2


def test_the_rate_is_bounded(tmp_path: Path) -> None:
    quarantine = QuarantineWriter(QuarantineFolder(tmp_path, MIB), clock=lambda: 0.0)
    for _ in range(1500):
        quarantine.take(refusal(), memoryview(b"x"), {})
    assert quarantine.dropped["rate"] == 500


def test_a_request_of_many_refused_batches_is_copied_in_part(tmp_path: Path) -> None:
    with (
        Filled(tmp_path) as quarantine,
        ScriptedBroker() as broker,
        RunningProxy(broker.address, quarantine=quarantine) as proxy,
        connected(proxy) as sock,
    ):
        sock.sendall(produce_frame(1, *(("orders", n, BAD) for n in range(250))))
        assert set(codes(read_frame(sock)).values()) == {CORRUPT}
    assert len(verdicts(tmp_path)) == quarantine.batches_total == 100
    assert quarantine.dropped["request"] == 150


def test_software_is_in_the_verdict(tmp_path: Path) -> None:
    from batchval.protocol.messages.api_versions import ApiVersionsRequest

    with (
        Filled(tmp_path) as quarantine,
        ScriptedBroker() as broker,
        RunningProxy(broker.address, quarantine=quarantine) as proxy,
        connected(proxy) as sock,
    ):
        hello = ApiVersionsRequest("rdkafka", "2.0.2", api_version=3)
        sock.sendall(b"".join(hello.encode(1, "c")) + produce_frame(2, ("orders", 0, BAD)))
        eventually(lambda: quarantine.batches_total)
    assert [one["software"] for one in verdicts(tmp_path)] == ["rdkafka 2.0.2"]


def test_a_name_has_the_time_and_the_process(tmp_path: Path) -> None:
    folder = QuarantineFolder(tmp_path, MIB)
    name = folder.name_for(1_700_000_000.25, "orders", 7)
    assert name == f"20231114T221320.250Z-orders-7-{os.getpid()}-000001"

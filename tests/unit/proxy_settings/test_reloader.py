"""Reloads that have nothing to do with the content: what the gate writes, workers, threads."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from batchval.proxy.life.reload import NotPrepared
from batchval.proxy.life.reloading import Reloader
from batchval.proxy.life.settings_file import UNREADABLE, SettingsFile
from tests.support.network import until
from tests.support.proxy import ScriptedBroker
from tests.unit.proxy_settings.reloaded import ReloadedGate


async def test_what_the_gate_writes_is_neither_read_nor_compared(tmp_path: Path) -> None:
    os.mknod(tmp_path / "control", stat.S_IFSOCK | 0o600)
    (tmp_path / "quarantine").mkdir()
    written = {
        "state_directory": str(tmp_path),
        "control": str(tmp_path / "control"),
        "log": {"audit_file": str(tmp_path / "audit")},
        "quarantine": {"directory": str(tmp_path / "quarantine")},
    }
    with ScriptedBroker() as broker:
        async with ReloadedGate(tmp_path, broker, **written) as one:
            (tmp_path / "audit").write_text("a row")
            assert await one.reloader.reload() == "unchanged"
            assert await one.reload(bridge=["producers"]) == "applied"


async def test_settings_that_a_worker_did_not_prepare_are_tried_again(tmp_path: Path) -> None:
    class Late:
        """Prepares in the third attempt."""

        attempts = 0

        def __init__(self, gate: Any) -> None:
            self.settings, self.gate = gate.settings, gate

        async def prepare(self, settings: Any) -> Any:
            self.attempts += 1
            if self.attempts < 3:
                raise NotPrepared(["worker 1 did not prepare the settings"])
            return await self.gate.prepare(settings)

    with ScriptedBroker() as broker:
        async with ReloadedGate(tmp_path, broker) as one:
            reloader = Reloader(Late(one.gate), one.reloader._file, {}, look_s=0.01)
            watching = asyncio.create_task(reloader.run())
            one.put(mode="observe")
            await until(lambda: one.gate.settings.mode == "observe")
            watching.cancel()
            assert reloader.results["refused"] == 2


async def test_a_thread_that_cannot_start_does_not_end_the_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name == "batchval-background":
            raise RuntimeError("can't start new thread")
        real(thread)

    with ScriptedBroker() as broker:
        async with ReloadedGate(tmp_path, broker, look_s=0.01) as one:
            with monkeypatch.context() as patched:
                patched.setattr(threading.Thread, "start", start)
                await until(lambda: "can't start new thread" in caplog.text)
            one.put(mode="observe")
            await until(lambda: one.gate.settings.mode == "observe")


async def test_a_registry_is_closed_when_nobody_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each settings keep theirs for RETIRE_S, whatever was retired before and after them.
    closed: list[str] = []

    def parts(**timeouts: int) -> dict[str, Any]:
        registries = [
            {"name": name, "url": "http://127.0.0.1:1", "timeout_ms": ms}
            for name, ms in timeouts.items()
        ]
        rules = {
            "schema_id": [
                {"place": place, "registry": name}
                for place, name in zip(("key", "value"), timeouts, strict=False)
            ]
        }
        return {
            "schema_registries": registries,
            "topics": {"policies": [{"match": "t", "record_rules": rules}]},
        }

    def watch(gate: Any, name: str, text: str) -> None:
        registry = gate.record_parts.registries[name]
        close = registry.close
        monkeypatch.setattr(registry, "close", lambda: (closed.append(text), close()))

    with ScriptedBroker() as broker:
        async with ReloadedGate(tmp_path, broker, **parts(a=1_000, b=1_000)) as one:
            watch(one.gate, "a", "first a"), watch(one.gate, "b", "b")
            assert await one.reload(**parts(a=2_000, b=1_000)) == "applied"
            watch(one.gate, "a", "second a")
            assert await one.reload(**parts(a=3_000)) == "applied"
            one.gate._close_retired(1)  # the timer of the first reload
            assert closed == ["first a"]  # the settings of the second one still use b
            one.gate._close_retired(1)
            assert sorted(closed) == ["b", "first a", "second a"]


async def test_settings_that_are_not_prepared_in_time_are_refused_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def hang(_: Any) -> Any:
        raise TimeoutError  # as asyncio.timeout does after limit_s

    with ScriptedBroker() as broker:
        async with ReloadedGate(tmp_path, broker) as one:
            with monkeypatch.context() as patched:
                patched.setattr(one.gate, "prepare", hang)
                assert await one.reload(mode="observe") == "refused"
            assert "settings refused: the settings were not prepared within 60 s" in caplog.text
            assert "file system" not in caplog.text
            assert one.reloader._watch.tried == UNREADABLE
            assert await one.reload() == "applied"


async def test_a_file_system_that_hangs_is_reported_and_ends_no_later_reload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    go_on = threading.Event()
    read = SettingsFile.read

    def hang(file: SettingsFile) -> bytes:
        go_on.wait(10)
        return read(file)

    with ScriptedBroker() as broker:
        async with ReloadedGate(tmp_path, broker) as one:
            reloader = Reloader(one.gate, one.reloader._file, {}, look_s=0.01, limit_s=0.05)
            one.put(mode="observe")
            with monkeypatch.context() as patched:
                patched.setattr(SettingsFile, "read", hang)
                watching = asyncio.create_task(reloader.run())
                await until(lambda: reloader.results["refused"] == 1)
                assert (
                    "settings refused: not read within 0.05 s: does a file system hang?"
                    in caplog.text
                )
                reloader.ask()
                await until(lambda: reloader.results["refused"] == 2)
                reloader._reading.limit_s = 60.0
                go_on.set()
            await until(lambda: one.gate.settings.mode == "observe")
            assert reloader.results == {"applied": 1, "unchanged": 0, "refused": 2}
            watching.cancel()

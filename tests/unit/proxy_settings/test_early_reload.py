"""SIGHUP while a gate starts: it neither ends the process nor is lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from batchval.cli import proxy
from batchval.cli.proxy import EarlyReload
from batchval.proxy.life import lifecycle
from batchval.proxy.life.gate import Gate
from tests.support.proxy import ScriptedBroker, eventually


@pytest.fixture(autouse=True)
def handlers_as_they_were() -> Iterator[None]:
    before = {
        number: signal.getsignal(number)
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)
    }
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # where a test sends it although no gate runs
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_signal_is_noted_and_asks_for_one_reload() -> None:
    asked: list[int] = []
    early = EarlyReload()
    early.resume(lambda: asked.append(1))
    assert asked == []
    signal.raise_signal(signal.SIGHUP)
    signal.raise_signal(signal.SIGHUP)
    early.resume(lambda: asked.append(2))
    early.resume(lambda: asked.append(3))
    assert asked == [2]


def test_settings_that_change_while_the_gate_starts_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The signal comes after the file was read, before there is a loop.
    gates: list[Gate] = []
    made = Gate.__init__

    def put(mode: str) -> None:
        path.write_text(yaml.safe_dump(values | {"mode": mode}))

    def make(gate: Gate, *words: Any, **more: Any) -> None:
        made(gate, *words, **more)
        gates.append(gate)

    def end_once_reloaded() -> None:
        try:
            eventually(lambda: gates and gates[0].settings.mode == "observe")
        finally:
            signal.raise_signal(signal.SIGTERM)

    path = tmp_path / "gate.yaml"
    monkeypatch.setattr(Gate, "__init__", make)
    for change in ("calm_collector", "switch_soon"):  # of the whole process
        monkeypatch.setattr(lifecycle, change, lambda: None)
    with ScriptedBroker() as broker:
        values = {
            "mode": "enforce",
            "listeners": [{"address": "127.0.0.1:0"}],
            "upstream": {"bootstrap": broker.address},
        }
        values |= {"metrics": {"address": None}, "reload": {"watch": False}}
        put("enforce")
        early = EarlyReload()
        draft = proxy.draft_of(path, None, {})
        put("observe")
        signal.raise_signal(signal.SIGHUP)
        ending = threading.Thread(target=end_once_reloaded)
        ending.start()
        assert proxy.run(draft.finished(), early, proxy.file_of(path, {}, draft)) == 0
        ending.join()
    assert gates[0].settings.mode == "observe"

"""Workers without processes: their states, how many there are, and what each gets."""

from __future__ import annotations

import os
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from batchval.proxy.settings.loading import ConfigError, settings_from
from batchval.proxy.settings.worker_limits import share_of, usable_cores, workers_of
from batchval.proxy.workers.worker_states import TRANSITIONS, WorkerEvent, WorkerState

S, E = WorkerState, WorkerEvent
GATE: dict[str, Any] = {
    "listeners": [{"address": ":9092"}],
    "upstream": {"bootstrap": "kafka:9092"},
}
MIB = 1 << 20


def test_a_worker_is_replaced_only_after_its_end() -> None:
    reached = {S.DEAD: {E.SPAWN: S.STARTING}}
    for state in (S.STARTING, S.SERVING):
        reached[state] = {E.DRAIN: S.DRAINING, E.EXIT: S.DEAD}
    reached[S.STARTING][E.READY] = S.SERVING
    reached[S.DRAINING] = {E.EXIT: S.DEAD}
    found: dict[S, dict[E, S]] = {state: {} for state in S}
    for (state, event), to in TRANSITIONS.items():
        found[state][event] = to
    assert found == reached


def test_each_worker_has_its_part() -> None:
    limits = {"max_bytes_held": 300 * MIB, "threads": 2, "max_connections": 50}
    settings = settings_from(GATE | {"workers": 3, "limits": limits, "state_directory": "/tmp/x"})
    assert workers_of(settings) == 3
    share = share_of(settings, 3)
    assert (share.limits.max_bytes_held, share.limits.threads, share.limits.max_connections) == (
        100 * MIB,
        1,
        50,
    )
    assert (share.log.refusals_per_second, share.log.connections_per_second, share.workers) == (
        33,
        33,
        1,
    )
    assert share.metrics.address is None
    assert share.state_directory is None
    assert pickle.loads(pickle.dumps(share)) == share


def test_auto_is_a_worker_for_each_core_that_has_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchval.proxy.settings.worker_limits.usable_cores", lambda: 16)
    assert workers_of(settings_from(GATE)) == 1
    assert workers_of(settings_from(GATE | {"workers": "auto"})) == 5  # 512 MiB, 100 MiB for each
    limits = {"max_bytes_held": 10_000 * MIB}
    assert workers_of(settings_from(GATE | {"workers": "auto", "limits": limits})) == 16


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("max 100000\n", 4),
        ("150000 100000\n", 2),
        ("50000 100000\n", 1),
        ("900000 100000\n", 4),
        ("odd", 4),
        (None, 4),
    ],
)
def test_usable_cores(
    text: str | None, cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    if text is not None:
        (tmp_path / "cpu.max").write_text(text)
    assert usable_cores(tmp_path / "cpu.max") == cores


@pytest.mark.parametrize("value", [0, 65, -1, "2", "all", True, 1.5, None, [2]])
def test_a_wrong_number_of_workers_is_an_error(value: object) -> None:
    wrong = f"workers: must be a number from 1 to 64, or auto, not {value!r}"
    with pytest.raises(ConfigError, match=re.escape(wrong) + "$"):
        settings_from(GATE | {"workers": value})


def test_each_worker_must_be_able_to_hold_the_largest_request() -> None:
    with pytest.raises(ConfigError) as found:
        settings_from(GATE | {"workers": 6})
    (line,) = found.value.problems
    assert "workers: each of 6 has 89478485 bytes of limits.max_bytes_held" in line
    assert line.endswith("set fewer workers, or max_bytes_held to 629145600 or more")

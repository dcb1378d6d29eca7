"""``quarantine``: its short form, what is refused, and a gate that is assembled with it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from batchval.proxy.life.file_checks import file_faults
from batchval.proxy.life.gate import Gate
from batchval.proxy.settings.config import Settings
from batchval.proxy.settings.loading import ConfigError, drafted, settings_from
from tests.support.proxy import BAD, ScriptedBroker, codes, eventually, produce_frame


def values(**more: Any) -> dict[str, Any]:
    return {
        "mode": "enforce",
        "listeners": [{"address": "127.0.0.1:0"}],
        "upstream": {"bootstrap": "127.0.0.1:9092"},
        "metrics": {"address": None},
        **more,
    }


def refused(**more: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        settings_from(values(**more))
    (line,) = caught.value.problems
    return line


def test_a_word_is_the_directory(tmp_path: Path) -> None:
    short = settings_from(values(quarantine=str(tmp_path)))
    assert short == settings_from(values(quarantine={"directory": str(tmp_path)}))
    assert short.quarantine is not None
    assert (short.quarantine.directory, short.quarantine.max_bytes) == (tmp_path, 1 << 30)
    assert settings_from(values()).quarantine is None


def warned(**more: Any) -> list[str]:
    draft = drafted(values(**more))
    draft.finished()
    return draft.warning_lines()


def test_settings_that_the_mode_makes_idle(tmp_path: Path) -> None:
    (line,) = warned(quarantine=str(tmp_path), mode="observe")
    assert line == (
        "quarantine.observed: is false, and mode observe refuses nothing: "
        "set quarantine.observed: true"
    )
    observed = {"directory": str(tmp_path), "observed": True}
    (line,) = warned(quarantine=observed, mode="enforce")
    assert line.startswith("quarantine.observed: has no effect: no batch is observed")
    assert warned(quarantine=observed, mode="enforce", observe=[{"topics": "a"}]) == []
    assert warned(quarantine=observed, mode="observe") == []


def test_settings_that_are_wrong(tmp_path: Path) -> None:
    assert refused(quarantine={"directory": str(tmp_path), "max_bytes": 1000}).startswith(
        "quarantine.max_bytes: "
    )
    assert refused(quarantine=7).startswith("quarantine: ")
    assert refused(quarantine="").startswith("quarantine.directory: must be the path")


def faults(directory: Path) -> list[str]:
    settings: Settings = settings_from(values(quarantine=str(directory)))
    return [fault.text for fault in file_faults(settings, None)]


def test_the_directory_is_checked(tmp_path: Path) -> None:
    assert faults(tmp_path) == faults(tmp_path / "new") == []
    assert faults(tmp_path / "a" / "b") == [
        f"{tmp_path / 'a'}: does not exist: mkdir -p {tmp_path / 'a'}"
    ]
    (tmp_path / "file").touch()
    assert faults(tmp_path / "file") == [f"{tmp_path / 'file'}: is not a directory"]
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o1777)
    (line,) = faults(open_to_all)
    assert line.startswith(f"{open_to_all}: mode 1777 lets every user write there: chmod o-w ")


async def test_a_gate_with_it(tmp_path: Path) -> None:
    folder = tmp_path / "q"
    with ScriptedBroker() as broker:
        gate = Gate(
            settings_from(values(quarantine=str(folder), upstream={"bootstrap": broker.address})),
            version="9.9.9",
        )
        await gate.start()
        try:
            reader, writer = await asyncio.open_connection(*gate.addresses["default"])
            writer.write(produce_frame(1, ("orders", 0, BAD)))
            size = int.from_bytes(await reader.readexactly(4), "big")
            assert codes(await reader.readexactly(size)) == {("orders", 0): 2}
            writer.close()
            assert gate.quarantine is not None
            await asyncio.to_thread(
                eventually, lambda: gate.quarantine and gate.quarantine.batches_total
            )
            page = gate.metrics.page()().decode()
        finally:
            await gate.stop(0)
    assert "batchval_gate_quarantine_batches_total 1.0" in page
    assert 'batchval_gate_quarantine_dropped_total{reason="queue"} 0.0' in page
    (verdict,) = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    assert (verdict["gate"], verdict["rule"], verdict["topic"]) == (
        "9.9.9",
        "crc-mismatch",
        "orders",
    )
    bytes_line = f"batchval_gate_quarantine_bytes {float(sum(one.stat().st_size for one in folder.iterdir()))}"
    assert bytes_line in page


async def test_a_gate_without_it_has_no_such_metrics() -> None:
    gate = Gate(settings_from(values()))
    assert "quarantine" not in gate.metrics.page()().decode()
    assert gate.quarantine is None

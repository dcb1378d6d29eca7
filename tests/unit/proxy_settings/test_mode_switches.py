"""``mode`` changes alone: by a reload, by an option, by a hand-over, in each documented rollout.

What the new mode makes idle is a warning. What is wrong in both modes stays an error.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from batchval.cli.proxy import check_files, draft_of
from batchval.proxy.life.gate import Gate
from batchval.proxy.life.reloading import Reloader
from batchval.proxy.life.settings_file import SettingsFile, digests_of
from batchval.proxy.settings.config import Settings
from batchval.proxy.settings.loading import ConfigError, drafted, settings_from
from tests.support.gate_command import GateCommand
from tests.support.network import closed_port, until
from tests.support.proxy import (
    BAD,
    ScriptedBroker,
    codes,
    eventually,
    produce_frame,
    read_frame,
)
from tests.support.rollouts import documented, runnable
from tests.unit.cli.conftest import run  # noqa: F401
from tests.unit.proxy_settings.reloaded import ReloadedGate

#: None: the key is not there.
MODES = (None, "observe", "enforce")
DEFAULT = Settings.model_fields["mode"].default
GLOBS = [{"topics": "legacy.*"}, {"topics": "orders.*", "principals": "User:etl-*"}]
#: Rollouts that pages describe in words, and several of them at once.
DESCRIBED: dict[str, dict[str, Any]] = {
    "quarantine": {"quarantine": "q"},
    "quarantine of observed": {"quarantine": {"directory": "q", "observed": True}},
    "observe": {"observe": GLOBS},
    "observe, quarantine": {"observe": GLOBS, "quarantine": "q"},
    "observe, quarantine of observed": {
        "observe": GLOBS,
        "quarantine": {"directory": "q", "observed": True},
    },
    "all topics": {"observe": [{"topics": "*"}], "quarantine": "q"},
}
ROLLOUTS = documented() | DESCRIBED
IDLE_IN_OBSERVE = "observe: has no effect: mode observe observes all topics and principals"
BATCH = produce_frame(1, ("not-observed", 0, BAD))

every_rollout = pytest.mark.parametrize("values", ROLLOUTS.values(), ids=ROLLOUTS)


def with_mode(values: dict[str, Any], mode: str | None) -> dict[str, Any]:
    """Return settings with another mode."""
    rest = {key: value for key, value in values.items() if key != "mode"}
    return rest if mode is None else {"mode": mode} | rest


def written(path: Path, values: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump(values, sort_keys=False))
    return path


def idle_keys(values: dict[str, Any], mode: str) -> list[str]:
    """Return what is idle in this mode, as the settings say it."""
    found = []
    quarantine = values.get("quarantine")
    copies = isinstance(quarantine, dict) and quarantine.get("observed", False)
    if mode == "observe":
        found += ["observe"] if values.get("observe") else []
        found += ["quarantine.observed"] if quarantine is not None and not copies else []
    elif copies and not values.get("observe"):
        found += ["quarantine.observed"]
    return sorted(found)


def test_the_pages_have_rollouts() -> None:
    keys = {key for values in documented().values() for key in values}
    assert keys >= {"mode", "observe", "quarantine", "topics", "deny", "claims_in"}
    pages = {name.rpartition("-")[0] for name in documented() if ".md-" in name}
    assert pages >= {
        "README.md",
        "docs/guide/gate-observing.md",
        "docs/guide/gate-policies.md",
        "docs/guide/gate-production.md",
        "docs/reference/proxy/settings.md",
        "docs/tutorial/gate.md",
    }
    assert "deploy/helm/batchval-gate/values.yaml" in documented()


@every_rollout
def test_each_mode_is_valid_and_what_is_idle_is_named(
    values: dict[str, Any], tmp_path: Path
) -> None:
    for mode in MODES:
        draft = drafted(runnable(with_mode(values, mode), tmp_path, "127.0.0.1:1"))
        settings = draft.finished()
        assert settings.mode == mode or (mode is None and settings.mode == DEFAULT)
        keys = sorted(line.partition(":")[0] for line in draft.warning_lines())
        assert keys == idle_keys(values, settings.mode)


@every_rollout
def test_the_check_and_the_report_take_each_mode(
    run: Callable[..., Any],  # noqa: F811
    values: dict[str, Any],
    tmp_path: Path,
) -> None:
    closed = f"127.0.0.1:{closed_port()}"
    state = {"state_directory": str(tmp_path / "state")}
    (tmp_path / "state").mkdir(mode=0o700)
    for of_file in MODES:
        path = written(
            tmp_path / "gate.yaml", runnable(with_mode(values, of_file), tmp_path, closed) | state
        )
        for option in MODES:
            words = ("--config", path, *(() if option is None else ("--mode", option)))
            code, out, err = run("proxy", "--check-config", *words)
            assert (code, out) == (0, "the settings are valid\n"), err
            lines = [line.removeprefix("batchval proxy: warning: ") for line in err.splitlines()]
            keys = idle_keys(values, option or of_file or DEFAULT)
            for key in keys:
                (line,) = [one for one in lines if f": {key}: " in one]
                assert line.startswith(f"{path}:")  # and the number of the line
            assert len(lines) == len(keys) + 1  # the broker that cannot be reached
            code, out, err = run("proxy", "--report", *words)
            assert (code, out) == (3, "")
            assert "no gate with this state_directory has run yet" in err


@every_rollout
async def test_a_reload_takes_each_change_of_the_mode(
    values: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with ScriptedBroker() as broker:
        of_file = runnable(values, tmp_path, broker.address)
        everything = values.get("observe") == [{"topics": "*"}]
        async with (
            ReloadedGate(tmp_path, broker, **of_file) as one,
            one.client(next(iter(one.gate.addresses))) as client,
        ):
            for before, after in permutations(MODES, 2):
                for mode in (before, after):
                    caplog.clear()
                    running = one.gate.settings.mode
                    wanted = mode or DEFAULT
                    one.values = with_mode(one.values, mode)
                    expected = "unchanged" if wanted == running else "applied"
                    assert await one.reload() == expected, caplog.text
                    assert one.gate.settings.mode == wanted
                    code = 2 if wanted == "enforce" and not everything else 0
                    assert await client.ask(BATCH) == {("not-observed", 0): code}
                    warnings = [
                        record.getMessage()
                        for record in caplog.records
                        if record.getMessage().startswith("settings: ")
                    ]
                    keys = idle_keys(values, wanted)
                    assert len(warnings) == len(keys)
                    for key in keys:
                        assert any(
                            f"{one.path}:" in line and f": {key}: " in line for line in warnings
                        )
            assert one.gate.counters.connections_closed == {}


@every_rollout
def test_a_hand_over_takes_each_mode(values: dict[str, Any], tmp_path: Path) -> None:
    # What a new process does with --take-over before it asks the running one.
    for of_file, option in permutations(MODES, 2):
        path = written(
            tmp_path / "gate.yaml",
            runnable(with_mode(values, of_file), tmp_path, "127.0.0.1:1")
            | {"control": str(tmp_path / "gate.sock")},
        )
        draft = draft_of(path, None, {} if option is None else {"mode": option})
        check_files(draft, path)
        assert draft.finished().mode == (option or of_file or DEFAULT)


@pytest.mark.long
def test_an_operator_at_night() -> None:
    # A gate with the documented rollout: sed in the file, a hand-over with an option, and back.
    folder = {"quarantine": "quarantine", "observe": GLOBS, "mode": "enforce"}

    def code(gate: GateCommand) -> int:
        with gate.connected() as sock:
            sock.sendall(BATCH)
            return codes(read_frame(sock))["not-observed", 0]

    with ScriptedBroker() as broker, GateCommand(broker.address, **folder) as gate:
        eventually(lambda: gate.get("/readyz")[0] == 200)
        assert code(gate) == 2
        gate.config.write_text(gate.config.read_text().replace("enforce", "observe"))
        eventually(lambda: "mode enforce -> observe" in gate.log())
        assert code(gate) == 0
        assert IDLE_IN_OBSERVE in gate.log()
        before = gate.running
        gate.start("--take-over", "--mode", "observe")
        assert (gate.ended(before), code(gate)) == (0, 0)
        assert IDLE_IN_OBSERVE in gate.log()
        gate.settings["mode"] = "enforce"
        gate.hand_over()
        assert code(gate) == 2
        assert gate.end() == 0


async def test_a_gate_without_a_mode_observes_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    line = "this gate observes, because no mode is set"
    for mode in MODES:
        caplog.clear()
        with ScriptedBroker() as broker:
            values = with_mode(runnable({}, tmp_path, broker.address), mode)
            gate = Gate(settings_from(values))
            await gate.start()
            await gate.stop(0)
        assert gate.settings.mode == (mode or "observe")
        assert caplog.text.count(line) == (mode is None)


# ---- a file in which more than the mode is not as it was -----------------------------------------


async def test_the_mode_changes_although_a_file_is_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    names = {"certificate": "gate.pem", "key": "gate.key"}
    issued = authority.issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(tmp_path / names["certificate"])
    issued.private_key_pem.write_to_path(tmp_path / names["key"])
    (tmp_path / names["key"]).chmod(0o600)
    more: dict[str, Any] = {
        "listeners": [
            {"name": "plain", "address": "127.0.0.1:0"},
            {"name": "secure", "address": "127.0.0.1:0", "tls": names},
        ],
        "quarantine": str(tmp_path / "away" / "quarantine"),
        "mode": "enforce",
    }
    (tmp_path / "away").mkdir()
    with ScriptedBroker() as broker:
        async with ReloadedGate(tmp_path, broker, **more) as one, one.client("plain") as client:
            assert await client.ask(BATCH) == {("not-observed", 0): 2}
            os.unlink(tmp_path / names["certificate"])
            (tmp_path / "away").rename(tmp_path / "elsewhere")
            # another key keeps the faults: nothing changes
            assert await one.reload(mode="observe", observe=GLOBS) == "refused"
            caplog.clear()
            with monkeypatch.context() as patched:  # no other file is read
                patched.delattr("batchval.proxy.life.settings_file.file_faults")
                patched.delattr("batchval.proxy.life.settings_file.digests_of")
                assert await one.reload(mode="observe", observe=[]) == "applied"
            assert await client.ask(BATCH) == {("not-observed", 0): 0}
            assert "certificate" not in caplog.text
            context = one.gate.parts.listener_tls["secure"]
            assert one.gate.proxies["secure"].options.listen_tls is context
            assert await one.reload(mode="enforce") == "applied"
            assert await client.ask(BATCH) == {("not-observed", 0): 2}
            # the signal is for the other files, too: the mode is taken first
            one.put(mode="observe")
            one.reloader.ask()
            await until(lambda: one.reloader.results["refused"] == 2)
            assert await client.ask(BATCH) == {("not-observed", 0): 0}
            assert "listeners[1].tls.certificate: " in caplog.text


async def test_an_option_that_keeps_the_mode_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with ScriptedBroker() as broker:
        async with ReloadedGate(tmp_path, broker, mode="enforce") as one:
            file = SettingsFile(one.path, {"mode": "enforce"}, "")
            reloader = Reloader(one.gate, file, digests_of(one.gate.settings))
            assert await reloader.reload() == "unchanged"
            assert "the option" not in caplog.text
            one.put(mode="observe")
            assert await reloader.reload() == "unchanged"
            assert (
                f"settings: mode: the option --mode enforce of the running gate wins: observe in "
                f"{one.path} has no effect" in caplog.text
            )


@pytest.mark.parametrize("mode", ["enforce", "observe"])
@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"observe": [{"topics": "a*"}, {"topics": "ab"}]}, "observe[0] covers it"),
        ({"observe": [{"topics": "#"}]}, "matches no topic name"),
        ({"quarantine": {"directory": "q", "max_bytes": 1}}, "quarantine.max_bytes"),
        ({"quarantine": "q", "observed": True}, "observed"),
    ],
)
def test_what_is_wrong_in_both_modes_stays_an_error(
    mode: str, more: dict[str, Any], words: str
) -> None:
    values = {"listeners": [{"address": "127.0.0.1:0"}], "upstream": {"bootstrap": "127.0.0.1:1"}}
    with pytest.raises(ConfigError) as caught:
        drafted(values | {"mode": mode} | more).finished()
    assert any(words in line for line in caught.value.problems)

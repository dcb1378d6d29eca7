"""Settings change while clients stay connected: what is taken, what is refused, and what stays."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme

from batchval.core.claims import compute, to_tag
from batchval.protocol.walkers.produce import CLAIMS_TAG
from batchval.proxy.life.reloading import FileWatch, Reloader
from batchval.proxy.settings.loading import ConfigError, settings_from
from tests.support.calibration import cpu_s
from tests.support.network import until
from tests.support.proxy import BAD, COMPRESSED, GOOD, ScriptedBroker, batch, produce_frame
from tests.unit.proxy_settings.reloaded import ReloadedGate

LARGE = batch(b"x" * 3_000)


def small(size: int) -> dict[str, Any]:
    return {"policies": [{"match": "small-*", "max.message.bytes": size}]}


def tagged() -> bytes:
    """Return a request with claims that are true."""
    claims = compute(COMPRESSED)
    assert claims is not None
    tag = to_tag(claims, int.from_bytes(COMPRESSED[17:21], "big"))
    return produce_frame(1, ("t", 0, COMPRESSED), tags=((CLAIMS_TAG, tag),))


def metrics(one: ReloadedGate) -> dict[str, float]:
    lines = one.gate.metrics.page()().decode().splitlines()
    found = (line.rpartition(" ") for line in lines if line.startswith("batchval_gate_config_"))
    return {name.removeprefix("batchval_gate_"): float(value) for name, _, value in found}


# ---- what is taken -------------------------------------------------------------------------------


async def test_a_client_that_stays_gets_the_new_policies(tmp_path: Path) -> None:
    frame = produce_frame(1, ("small-1", 0, LARGE))
    with ScriptedBroker() as broker:
        async with ReloadedGate(tmp_path, broker, topics=small(500)) as one, one.client() as client:
            assert await client.ask(frame) == {("small-1", 0): 10}
            for size, code in ((5_000, 0), (600, 10), (6_000, 0)):
                assert await one.reload(topics=small(size)) == "applied"
                assert await client.ask(frame) == {("small-1", 0): code}
            assert await one.reload(topics={}) == "applied"
            assert await client.ask(frame) == {("small-1", 0): 0}
            assert one.gate.counters.connections_total == 1
            assert one.gate.counters.connections_closed == {}


async def test_what_all_sessions_ask_of_their_gate_is_new_at_once(tmp_path: Path) -> None:
    bad = produce_frame(1, ("t", 0, BAD))
    with ScriptedBroker() as broker:
        async with ReloadedGate(tmp_path, broker) as one, one.client() as client:
            assert await client.ask(bad) == {("t", 0): 2}
            assert await one.reload(mode="observe") == "applied"
            assert await client.ask(bad) == {("t", 0): 0}  # the broker's answer
            assert 'mode="observe"' in one.gate.metrics.page()().decode()
            assert await one.reload(mode="enforce", observe=[{"topics": "t"}]) == "applied"
            assert await client.ask(bad) == {("t", 0): 0}
            assert (
                await one.reload(observe=[], log={"level": "error"}, metrics={"address": None})
                == "applied"
            )
            assert await client.ask(bad) == {("t", 0): 2}


async def test_limits_hold_for_sessions_that_are_open(tmp_path: Path) -> None:
    limits = {"idle_timeout_ms": 3_600_000, "max_frame_bytes": 100_000, "threads": 1}
    with ScriptedBroker() as broker:
        async with (
            ReloadedGate(tmp_path, broker, limits=limits) as one,
            one.client() as client,
            one.client() as other,
        ):
            assert await client.ask(produce_frame(1, ("t", 0, GOOD))) == {("t", 0): 0}
            assert await other.ask(produce_frame(1, ("t", 0, GOOD))) == {("t", 0): 0}
            more = {
                "max_connections": 7,
                "max_connections_per_address": 2,
                "max_bytes_held": 64 << 20,
                "threads": 3,
            }
            assert await one.reload(limits=limits | more | {"max_frame_bytes": 2_000}) == "applied"
            budget, judging = one.gate.shared.budget, one.gate.shared.validation
            assert (budget.max_connections, budget.max_address_connections, budget.limit) == (
                7,
                2,
                64 << 20,
            )
            assert judging.threads == 3
            await until(
                lambda: all(session.limits.max_frame_bytes == 2_000 for session in sessions(one))
            )
            other.writer.write(produce_frame(1, ("t", 0, LARGE)))
            assert await other.reader.read() == b""  # as its length shows
            assert one.gate.counters.connections_closed == {"frame_size": 1}
            assert await one.reload(limits=limits | {"idle_timeout_ms": 50}) == "applied"
            assert await client.reader.read() == b""
            assert one.gate.counters.connections_closed == {"frame_size": 1, "idle": 1}


def sessions(one: ReloadedGate) -> list[Any]:
    return [session for proxy in one.gate.proxies.values() for session in proxy.connections]


async def test_many_sessions_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchval.proxy.life.listener_server.RENEWED_A_TURN", 3)
    with ScriptedBroker() as broker:
        async with ReloadedGate(tmp_path, broker) as one:
            clients = [
                await asyncio.open_connection(*one.gate.addresses["default"]) for _ in range(20)
            ]
            await until(lambda: len(sessions(one)) == 20)
            assert await one.reload(mode="observe") == "applied"
            assert await one.reload(mode="enforce") == "applied"
            gate = one.gate.proxies["default"].gate
            await until(lambda: all(session.requests.gate is gate for session in sessions(one)))
            for _, writer in clients:
                writer.close()


async def test_a_bridge_is_offered_to_new_connections(tmp_path: Path) -> None:
    # Clients ask for versions once a connection.
    with ScriptedBroker() as broker:
        async with (
            ReloadedGate(tmp_path, broker, bridge=["producers"]) as one,
            one.client() as client,
        ):
            assert await client.ask(produce_frame(1, ("t", 0, GOOD))) == {("t", 0): 0}
            (before,) = sessions(one)
            assert await one.reload(bridge="none") == "applied"
            async with one.client() as other:
                assert await other.ask(produce_frame(1, ("t", 0, GOOD))) == {("t", 0): 0}
                after = next(session for session in sessions(one) if session is not before)
                assert (set(before.requests.raised), set(after.requests.raised)) == ({0}, set())


async def test_what_is_known_of_senders_stays(tmp_path: Path) -> None:
    listeners = [{"address": "127.0.0.1:0", "trusted": True}]
    with ScriptedBroker() as broker:
        async with (
            ReloadedGate(tmp_path, broker, listeners=listeners, claims_in="trust") as one,
            one.client() as client,
        ):
            assert await client.ask(tagged()) == {("t", 0): 0}
            ledger = one.gate.ledger
            assert ledger is not None
            assert ledger.counts().trusted == 1
            assert await one.reload(claims_in="audit:1") == "applied"
            assert await client.ask(tagged()) == {("t", 0): 0}
            assert (ledger.counts().trusted, ledger.counts().sampled, ledger.counts().honest) == (
                1,
                1,
                1,
            )
            del listeners[0]["trusted"]
            assert await one.reload(listeners=listeners, claims_in="ignore") == "applied"
            assert await client.ask(tagged()) == {("t", 0): 0}
            assert ledger.counts().batches == 2  # nothing is read of claims
            listeners[0]["trusted"] = True
            assert await one.reload(listeners=listeners, claims_in="audit:0.5") == "applied"
            assert await client.ask(tagged()) == {("t", 0): 0}
            assert one.gate.ledger is ledger
            assert ledger.counts().batches == 3


def slow_rule(columns: Any) -> Any:
    """Refuse every record, when the test lets it."""
    SLOW.entered.set()
    assert SLOW.go_on.wait(10)
    return [(row, "the old rule") for row in range(len(columns))]


def pass_rule(columns: Any) -> None:
    """Refuse nothing."""


class SLOW:
    """The event that the slow rule waits for."""

    entered = threading.Event()
    go_on = threading.Event()


async def test_what_is_being_judged_is_judged_to_its_end_by_the_gate_of_before(
    tmp_path: Path,
) -> None:
    def ruled(function: str) -> dict[str, Any]:
        return {"policies": [{"match": "*", "custom_rules": [f"{__name__}:{function}"]}]}

    SLOW.entered.clear(), SLOW.go_on.clear()
    with ScriptedBroker() as broker:
        async with (
            ReloadedGate(tmp_path, broker, topics=ruled("slow_rule")) as one,
            one.client() as client,
        ):
            client.writer.write(produce_frame(1, ("t", 0, GOOD)))
            await until(SLOW.entered.is_set)
            assert await one.reload(topics=ruled("pass_rule")) == "applied"
            client.writer.write(produce_frame(2, ("t", 0, GOOD)))
            SLOW.go_on.set()
            first, second = await client.answer(), await client.answer()
            assert b"the old rule" in first
            assert b"the old rule" not in second
            assert (first[:4], second[:4]) == (b"\0\0\0\1", b"\0\0\0\2")
            assert one.gate.counters.partitions_refused == {"custom-rule": 1}


async def test_registries_and_rules_that_stay_keep_what_they_know(tmp_path: Path) -> None:
    def parts(refresh_ms: int, budget_ms: int) -> dict[str, Any]:
        rules = {"schema_id": [{"registry": "main"}]}
        return {
            "schema_registries": [
                {"name": "main", "url": "http://127.0.0.1:1", "refresh_ms": refresh_ms}
            ],
            "custom_rules": {"budget_ms": budget_ms},
            "topics": {
                "policies": [
                    {"match": "t", "record_rules": rules, "custom_rules": [f"{__name__}:pass_rule"]}
                ]
            },
        }

    with ScriptedBroker() as broker:
        async with ReloadedGate(tmp_path, broker, **parts(5_000, 3)) as one:
            before = one.gate.record_parts
            (rule,) = before.custom_rules.values()
            assert await one.reload(mode="observe", **parts(5_000, 4)) == "applied"
            assert one.gate.record_parts.registries["main"] is before.registries["main"]
            assert one.gate.record_parts.custom_rules == {rule.name: rule}
            assert rule.budget.budget_s == 0.004
            assert await one.reload(**parts(6_000, 4)) == "applied"
            assert one.gate.record_parts.registries["main"] is not before.registries["main"]


# ---- what is refused -----------------------------------------------------------------------------


def _text(text: str) -> Callable[[ReloadedGate], None]:
    return lambda one: one.path.write_text(text) and None


def _values(**values: Any) -> Callable[[ReloadedGate], None]:
    return lambda one: one.put(**values)


def _fifo(one: ReloadedGate) -> None:
    one.path.unlink()
    os.mkfifo(one.path)


TLS = {"certificate": "gate.pem", "key": "gate.key"}
ADDRESS = "127.0.0.1:0"
UNSET = "BATCHVAL_NOT_SET"
REFUSED: dict[str, tuple[Callable[[ReloadedGate], None], str]] = {
    "unknown key": (_values(limits={"thread": 3}), "limits.thread: unknown key"),
    "half written": (_text("listeners:\n  - address: '127."), "is not YAML"),
    "not UTF-8": (lambda one: one.path.write_bytes(b"mode: \xff") and None, "is not UTF-8"),
    "empty": (_text(""), "listeners: is missing"),
    "vanished": (lambda one: one.path.unlink(), "gate.yaml: No such file or directory"),
    "10 MB": (_text("#" * 10_000_000), "longer than 1048576 bytes"),
    "FIFO": (_fifo, "gate.yaml: is not a regular file"),
    "no certificate": (_values(listeners=[{"address": ADDRESS, "tls": TLS}]), "gate.pem: No such"),
    "no variable": (
        _values(listeners=[{"address": ADDRESS, "tls": TLS | {"key_password": {"env": UNSET}}}]),
        f"the environment has no {UNSET}",
    ),
    "no module": (
        _values(topics={"policies": [{"match": "*", "custom_rules": ["not_a_module:rule"]}]}),
        "custom_rules[0]: ",
    ),
    "another port": (
        _values(listeners=[{"address": "127.0.0.1:19092"}]),
        "listeners[0].address: is 127.0.0.1:0 in the running gate, and 127.0.0.1:19092 here",
    ),
    "no such file of a secret": (
        _values(
            upstream={
                "bootstrap": "127.0.0.1:1",
                "admin": {"username": "a", "password": {"file": "none"}},
            }
        ),
        "upstream.admin.password",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
async def test_a_wrong_file_changes_nothing_and_says_why(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spoil, why = REFUSED[kind]
    frame = produce_frame(1, ("small-1", 0, LARGE))
    with ScriptedBroker() as broker:
        async with ReloadedGate(tmp_path, broker, topics=small(500)) as one, one.client() as client:
            before = one.gate.settings
            spoil(one)
            with caplog.at_level(logging.INFO, "batchval"):
                assert await one.reloader.reload() == "refused"
            lines = [
                record.getMessage() for record in caplog.records if record.levelno == logging.ERROR
            ]
            assert any(why in line for line in lines), lines
            assert lines[-1].startswith("the settings stay as they were")
            assert one.gate.settings is before
            assert await client.ask(frame) == {("small-1", 0): 10}
            found = metrics(one)
            assert found['config_reloads_total{result="refused"}'] == 1
            assert found["config_last_reload_successful"] == 0
            if one.path.exists():
                one.path.unlink()
            assert await one.reload(**before_of(one, topics=small(5_000))) == "applied"
            assert await client.ask(frame) == {("small-1", 0): 0}
            assert metrics(one)["config_last_reload_successful"] == 1
            assert one.gate.counters.connections_closed == {}


def before_of(one: ReloadedGate, **more: Any) -> dict[str, Any]:
    """Return sound values for a file."""
    bootstrap = str(one.gate.settings.upstream.bootstrap[0])
    one.values.clear()
    sound = {
        "listeners": [{"address": ADDRESS}],
        "upstream": {"bootstrap": bootstrap},
        "metrics": {"address": None},
    }
    return sound | more


async def test_prepare_alone_refuses_and_changes_nothing(tmp_path: Path) -> None:
    with ScriptedBroker() as broker:
        async with ReloadedGate(tmp_path, broker) as one, one.client() as client:
            values = one.values | {
                "listeners": [{"address": ADDRESS, "broker_ports": 7, "first_broker_port": 20_000}]
            }
            with pytest.raises(ConfigError) as refused:
                await one.gate.prepare(settings_from(values))
            keys = [line.partition(":")[0] for line in refused.value.problems]
            assert keys == ["listeners[0].first_broker_port", "listeners[0].broker_ports"]
            step = await one.gate.prepare(settings_from(one.values | {"mode": "observe"}))
            assert await client.ask(produce_frame(1, ("t", 0, BAD))) == {("t", 0): 2}
            step.apply()
            assert await client.ask(produce_frame(1, ("t", 0, BAD))) == {("t", 0): 0}


# ---- when it is read -----------------------------------------------------------------------------


def test_a_content_is_tried_once_and_after_two_looks() -> None:
    watch = FileWatch("a")
    assert [watch.look(one) for one in "aabbb"] == [False, False, False, True, True]
    watch.tried = "b"
    assert [watch.look(one) for one in "bcdcdd"] == [False, False, False, False, False, True]
    watch.tried = "d"
    assert [watch.look(one) for one in ("", "d", "d", "", "")] == [False, False, False, False, True]


async def test_a_change_of_the_file_is_found(tmp_path: Path) -> None:
    # The file is a link into a folder that is replaced, as Kubernetes does.
    with ScriptedBroker() as broker:
        (tmp_path / "v1").mkdir()
        (tmp_path / "data").symlink_to("v1")
        one = ReloadedGate(tmp_path / "data", broker, look_s=0.02)
        (tmp_path / "gate.yaml").symlink_to("data/gate.yaml")
        async with one:
            text = one.path.read_text()
            (tmp_path / "v2").mkdir()
            (tmp_path / "v2" / "gate.yaml").write_text(text.replace("enforce", "observe"))
            (tmp_path / "next").symlink_to("v2")
            os.replace(tmp_path / "next", tmp_path / "data")
            await until(lambda: one.gate.settings.mode == "observe")
            one.path.write_text(text.replace("enforce", "wrong"))
            await until(lambda: one.reloader.results["refused"] == 1)
            one.path.unlink()
            await until(lambda: one.reloader.results["refused"] == 2)
            await asyncio.sleep(0.1)  # several looks
            one.path.write_text(text)
            await until(lambda: one.gate.settings.mode == "enforce")
            assert one.reloader.results == {"applied": 2, "unchanged": 0, "refused": 2}
            one.path.write_text(f"{text}reload: {{watch: false}}\n")
            await until(lambda: not one.gate.settings.reload.watch)
            one.path.write_text(text.replace("enforce", "observe"))
            await asyncio.sleep(0.1)
            assert one.gate.settings.mode == "enforce"
            one.reloader.ask()
            await until(lambda: one.gate.settings.mode == "observe")


async def test_two_who_ask_at_once_get_the_newest_file(tmp_path: Path) -> None:
    with ScriptedBroker() as broker:
        async with ReloadedGate(tmp_path, broker) as one:
            one.put(mode="observe")
            one.reloader.ask()
            one.reloader.ask()
            await until(lambda: one.reloader.results["applied"] == 1)
            one.put(mode="enforce")
            one.reloader.ask()
            await until(lambda: one.reloader.results["applied"] == 2)
            assert one.gate.settings.mode == "enforce"
            one.reloader.ask()
            await until(lambda: one.reloader.results["unchanged"] == 1)
            found = metrics(one)
            assert found['config_reloads_total{result="applied"}'] == 2
            assert found["config_last_applied_timestamp_seconds"] > 1.7e9


def put_certificate(folder: Path) -> None:
    leaf = trustme.CA().issue_cert("127.0.0.1")
    (folder / "gate.pem").write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
    leaf.private_key_pem.write_to_path(folder / "gate.key")
    (folder / "gate.key").chmod(0o600)


async def test_a_certificate_alone_may_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put_certificate(tmp_path)
    with ScriptedBroker() as broker, caplog.at_level(logging.INFO, "batchval"):
        async with ReloadedGate(
            tmp_path, broker, listeners=[{"address": ADDRESS, "tls": TLS}]
        ) as one:
            assert await one.reloader.reload() == "unchanged"
            before = one.gate.proxies["default"].options.listen_tls
            put_certificate(tmp_path)
            assert await one.reloader.reload() == "applied"
            assert one.gate.proxies["default"].options.listen_tls is not before
            assert "listeners[0].tls.certificate: " in caplog.text
            (tmp_path / "gate.key").write_text("half")
            assert await one.reloader.reload() == "refused"


async def test_a_certificate_that_is_replaced_before_the_first_look_is_taken(
    tmp_path: Path,
) -> None:
    put_certificate(tmp_path)
    with ScriptedBroker() as broker:
        one = ReloadedGate(tmp_path, broker, listeners=[{"address": ADDRESS, "tls": TLS}])
        put_certificate(tmp_path)
        async with one:
            assert await one.reloader.reload() == "applied"
            assert await one.reloader.reload() == "unchanged"


async def test_a_certificate_is_found_again_when_listeners_have_changed_places(
    tmp_path: Path,
) -> None:
    listeners = []
    for name in "ab":
        (tmp_path / name).mkdir()
        put_certificate(tmp_path / name)
        tls = {key: str(tmp_path / name / file) for key, file in TLS.items()}
        listeners.append({"name": name, "address": ADDRESS, "tls": tls})
    with ScriptedBroker() as broker:
        async with ReloadedGate(tmp_path, broker, listeners=listeners) as one:
            assert await one.reload(listeners=listeners[::-1]) == "unchanged"
            before = one.gate.parts.listener_tls
            put_certificate(tmp_path / "a")
            assert await one.reloader.reload() == "applied"
            assert one.gate.parts.listener_tls["a"] is not before["a"]
            assert await one.reloader.reload() == "unchanged"


async def test_a_defect_ends_no_later_reload(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with ScriptedBroker() as broker:
        async with ReloadedGate(tmp_path, broker) as one:

            class Broken:
                settings = one.gate.settings

                async def prepare(self, _: object) -> Any:
                    raise RuntimeError("a defect")

            one.put(mode="observe")
            reloader = Reloader(Broken(), one.reloader._file, {})
            assert [await reloader.reload(), await reloader.reload()] == ["refused", "refused"]
            assert "the settings could not be reloaded" in caplog.text


@pytest.mark.alone
async def test_the_loop_does_as_much_for_many_policies_as_for_few(tmp_path: Path) -> None:
    # The CPU time of ``apply``: what grows with the policies was done in a thread.
    policies = [{"match": f"topic-{n}-*", "max.message.bytes": 1_000_000 + n} for n in range(500)]
    with ScriptedBroker() as broker:
        async with ReloadedGate(tmp_path, broker) as one:
            spent = []
            for mode in ("observe", "enforce", "observe"):
                wanted = settings_from(
                    one.values | {"topics": {"policies": policies}, "mode": mode}
                )
                step = await one.gate.prepare(wanted)
                spent.append(cpu_s(step.apply, 1))
            assert min(spent) < 0.001, spent

"""The login of ``upstream.admin``: --check-config tries it, and a gate whose login is refused says
so for as long as it lasts.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from batchval.cli.proxy import check_upstreams, draft_of
from batchval.network.errors import AuthenticationError
from batchval.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from batchval.protocol.messages.sasl_handshake import SaslHandshakeResponse
from batchval.proxy.life.gate import Gate
from batchval.proxy.life.health import HttpRequest
from batchval.proxy.produce import policies
from batchval.proxy.produce.policies import ClusterTopics
from batchval.proxy.settings.loading import settings_from
from batchval.yaml_settings.faults import lines_of
from tests.support.network import closed_port, until
from tests.support.proxy import ScriptedBroker
from tests.unit.proxy_settings.reloaded import ReloadedGate
from tests.unit.proxy_settings.test_command import of_admin, ran

RIGHT, WRONG = "r1ght-s3cret", "wr0ng-s3cret"
HANDSHAKE, AUTHENTICATE = 17, 36
REFUSED = "the broker refuses these credentials: SASL_AUTHENTICATION_FAILED"


class Guarded:
    """The answers of a broker that accepts one password. ``logins`` counts attempts."""

    mechanisms = ("PLAIN",)

    def __init__(self) -> None:
        self.logins = 0
        self.closes = False

    def __call__(self, frame: bytes) -> bytes | None:
        key, version, correlation_id = struct.unpack_from(">hhi", frame)
        answer: SaslHandshakeResponse | SaslAuthenticateResponse
        if key == HANDSHAKE:
            if self.closes:
                raise ConnectionAbortedError
            answer = SaslHandshakeResponse(
                0 if "PLAIN" in self.mechanisms else 33, list(self.mechanisms)
            )
        elif key == AUTHENTICATE:
            self.logins += 1
            _, request = SaslAuthenticateRequest.parse(frame)
            is_right = bytes(request.auth_bytes) == f"\0gate\0{RIGHT}".encode()
            answer = SaslAuthenticateResponse(0 if is_right else 58, None, b"")
        else:
            return of_admin(frame)
        return b"".join(bytes(piece) for piece in answer.encode(correlation_id, version))


def values(*bootstrap: str, password: str = RIGHT, **admin: Any) -> dict[str, Any]:
    return {
        "mode": "enforce",
        "listeners": [{"address": "127.0.0.1:0"}],
        "upstream": {
            "bootstrap": list(bootstrap),
            "admin": {"mechanism": "PLAIN", "username": "gate", "password": password} | admin,
        },
        "metrics": {"address": None},
    }


def written(path: Path, content: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump(content))
    path.chmod(0o600)
    return path


def checked(path: Path) -> tuple[list[str], list[str]]:
    """Return the faults and the warnings of --check-config about upstreams."""
    draft = draft_of(path, None, {})
    warnings = check_upstreams(draft)
    return lines_of(draft.faults, draft.source), warnings


# ---- --check-config ------------------------------------------------------------------------------


@pytest.mark.long
def test_the_check_logs_in(tmp_path: Path) -> None:
    closed = f"127.0.0.1:{closed_port()}"
    with ScriptedBroker(guarded := Guarded()) as broker:
        path = written(tmp_path / "gate.yaml", values(closed, broker.address))
        unreachable = f"upstream.bootstrap: {closed} cannot be reached: Connection refused"
        code, out, err = ran("--check-config", "--config", path)
        assert (code, out) == (0, "the settings are valid\n")
        assert (len(err), unreachable in err[0], guarded.logins) == (1, True, 1)
        written(path, values(closed, broker.address, password=WRONG))
        code, out, err = ran("--check-config", "--config", path)
        assert (code, out, guarded.logins) == (2, "", 2)
    assert unreachable in err[0]
    text = f"{broker.address} refuses the login of gate with PLAIN: {REFUSED}"
    assert err[1].startswith(f"batchval proxy: {path}:")
    assert err[1].endswith(f": upstream.admin: {text}")
    assert len(err) == 2
    assert WRONG not in "".join(err)


def test_a_mechanism_that_the_broker_does_not_offer(tmp_path: Path) -> None:
    guarded = Guarded()
    guarded.mechanisms = ("GSSAPI",)  # type: ignore[assignment]
    with ScriptedBroker(guarded) as broker:
        path = written(tmp_path / "gate.yaml", values(broker.address))
        (line,), warnings = checked(path)
    assert (guarded.logins, warnings) == (0, [])
    assert "refused SASL mechanism PLAIN" in line
    assert line.endswith("it offers GSSAPI")


def test_a_login_that_could_not_be_tried_is_a_warning(tmp_path: Path) -> None:
    guarded = Guarded()
    guarded.closes = True
    with ScriptedBroker(guarded) as broker:
        path = written(tmp_path / "gate.yaml", values(broker.address))
        faults, (line,) = checked(path)
    assert faults == []
    assert f"the login of gate with PLAIN at {broker.address} could not be tried: " in line


@pytest.mark.parametrize("admin", [{"username": None}, {"password": 7}, {"mechanism": "NONE"}])
def test_credentials_that_are_wrong_by_themselves_are_not_tried(
    tmp_path: Path, admin: dict[str, Any]
) -> None:
    with ScriptedBroker(guarded := Guarded()) as broker:
        path = written(tmp_path / "gate.yaml", values(broker.address, **admin))
        faults, warnings = checked(path)
    assert (guarded.logins, warnings) == (0, [])
    assert len(faults) > 0
    assert "refuses the login" not in "".join(faults)


# ---- a gate that runs ----------------------------------------------------------------------------


def shown(gate: Gate) -> dict[str, float]:
    lines = (line.rpartition(" ") for line in gate.metrics.page()().decode().splitlines())
    names = ("batchval_gate_admin_refused", "batchval_gate_topic_configs_unread")
    return {name.rpartition("gate_")[2]: float(value) for name, _, value in lines if name in names}


async def ready(gate: Gate) -> tuple[int, str]:
    request = HttpRequest("GET", "/readyz", "", "1.1")
    status, _, body = await gate.health.answer(request, "127.0.0.1")
    return status, body.decode()


async def test_a_refused_login_is_shown_until_it_succeeds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with ScriptedBroker(Guarded()) as broker:
        content = values(broker.address, password=WRONG)
        (tmp_path / "password").write_text(WRONG)
        (tmp_path / "password").chmod(0o600)
        content["upstream"]["admin"]["password"] = {"file": str(tmp_path / "password")}
        async with ReloadedGate(tmp_path, broker, **content) as one:
            gate = one.gate
            await until(lambda: shown(gate) == {"admin_refused": 1, "topic_configs_unread": 1})
            await until(lambda: gate.discovery.admin_problem)
            status, body = await ready(gate)
            assert status == 200
            assert body.splitlines() == [
                "ok",
                f"warning: the login of upstream.admin is refused: {broker.address}: {REFUSED}",
                f"warning: topic configurations cannot be read: {REFUSED}",
            ]
            assert f"topic configurations could not be read: {REFUSED}; the gate limits no" in (
                caplog.text
            )
            (tmp_path / "password").write_text(RIGHT)
            # the scripted broker has no DescribeConfigs: the login alone succeeds
            assert await one.reload() == "applied"
            gate.discovery.use(gate.discovery_options(gate.parts))
            await until(lambda: not gate.admin_problem())
            assert shown(gate)["admin_refused"] == 0
            assert "the login of upstream.admin" not in (await ready(gate))[1]
    assert WRONG not in caplog.text
    assert RIGHT not in caplog.text


def test_a_gate_without_credentials_has_no_such_metric() -> None:
    content = values("127.0.0.1:1")
    del content["upstream"]["admin"]
    assert shown(Gate(settings_from(content))) == {}


async def test_the_warning_is_repeated_but_not_for_each_attempt(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    clock = SimpleNamespace(now=1_000.0)
    monkeypatch.setattr(policies, "time", SimpleNamespace(monotonic=lambda: clock.now))
    fails = True

    async def read(_: object) -> dict[str, Any]:
        if fails:
            raise AuthenticationError("refused\nby it")
        return {}

    topics = ClusterTopics(read, 60.0, retry_s=(0.0001, 0.0001))
    task = asyncio.create_task(topics.run())
    for turn in range(3):
        attempts = topics.failures_total
        await until(lambda seen=attempts: topics.failures_total > seen + 5)
        assert caplog.text.count("could not be read: refused by it; ") == turn + 1
        assert (topics.problem, topics.is_refused) == ("refused by it", True)
        clock.now += policies.REPEAT_LOG_S
    fails = False
    await until(lambda: not topics.problem)
    assert not topics.is_refused
    assert "topic configurations are read again: 0 topics" in caplog.text
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

"""/clients is not shown to pages of other sites; probes and scrapers may send any Host."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from batchval.proxy.life.gate import Gate
from batchval.proxy.life.health import HealthServer, HttpRequest, host_of, is_allowed, refusal_of
from batchval.proxy.settings.loading import ConfigError, settings_from
from tests.support.health import started

CLOSED = "127.0.0.1:1"


def settings(**metrics: Any) -> Any:
    values = {"listeners": [{"address": "127.0.0.1:0"}], "upstream": {"bootstrap": CLOSED}}
    return settings_from(values | {"metrics": {"address": "127.0.0.1:0", **metrics}})


async def ask(address: tuple[str, int], *lines: str) -> tuple[int, str]:
    """Send the lines of a request; return the status and the body."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body.decode()


@pytest.mark.parametrize(
    ("authority", "host"),
    [
        ("localhost", "localhost"),
        ("LocalHost.:9464", "localhost"),
        ("gate-1_a.example.com:0", "gate-1_a.example.com"),
        ("127.0.0.1:9464", "127.0.0.1"),
        ("127.0.0.1.", "127.0.0.1"),
        ("[::1]", "::1"),
        ("[::1]:9464", "::1"),
        ("[FE80::1%25eth0]:9464", "fe80::1%eth0"),
        ("[0:0:0:0:0:0:0:1]:", "::1"),
        ("", None),
        (".", None),
        ("::1", None),
        ("[::1", None),
        ("[::1]9464", None),
        ("[localhost]:9464", None),
        ("localhost:65536", None),
        ("localhost:1:2", None),
        ("localhost, attacker.example", None),
        ("localhost attacker.example", None),
        ("user@localhost", None),
        ("localhost/a", None),
        ("attacker.example\\.localhost", None),
        ("localh\xf6st", None),
        ("a" * 255, None),
    ],
)
def test_the_host_of_an_authority(authority: str, host: str | None) -> None:
    assert host_of(authority) == host


@pytest.mark.parametrize(
    ("host", "allowed", "is_it"),
    [
        ("localhost", (), True),
        ("127.0.0.1", (), True),
        ("10.0.0.7", (), True),
        ("fe80::1%eth0", (), True),
        ("localhost.attacker.example", (), False),
        ("127.0.0.1.attacker.example", (), False),
        ("127.1", (), False),
        ("0x7f000001", (), False),
        ("2130706433", (), False),
        ("gate.example.com", ("gate.example.com",), True),
        ("other.example.com", ("gate.example.com",), False),
        ("a.b.example.com", ("*.example.com",), True),
        ("example.com", ("*.example.com",), False),
        ("attackerexample.com", ("*.example.com",), False),
        ("attacker.example", ("*",), True),
    ],
)
def test_which_hosts_are_allowed(host: str, allowed: tuple[str, ...], is_it: bool) -> None:
    assert is_allowed(host, allowed) is is_it


@pytest.mark.parametrize(
    ("lines", "status", "words"),
    [
        (["GET /clients HTTP/1.1", "Host: localhost:9464"], 200, ""),
        (["GET /clients HTTP/1.1", "HOST:LOCALHOST."], 200, ""),
        (["GET /clients HTTP/1.1", "Host: [::1]:9464"], 200, ""),
        (["GET /clients HTTP/1.0"], 200, ""),
        (["GET /clients HTTP/1.1", "Host: gate.example.com"], 200, ""),
        (["GET http://localhost:9464/clients HTTP/1.1", "Host: localhost:9464"], 200, ""),
        (["GET HTTP://localhost/clients?limit=1 HTTP/1.1", "Host: localhost"], 200, ""),
        (["GET /clients HTTP/1.1", "Host: attacker.example"], 403, "Host 'attacker.example' is"),
        (["HEAD /clients HTTP/1.1", "Host: attacker.example"], 403, ""),
        (["GET /clients HTTP/1.0", "Host: attacker.example"], 403, "metrics.allowed_hosts"),
        (["GET /clients?old=true HTTP/1.1", "Host: localhost.attacker.example"], 403, "allowed"),
        (
            ["GET http://attacker.example/clients HTTP/1.1", "Host: localhost"],
            403,
            "Host 'attacker.example'",
        ),
        (
            ["GET http://localhost/clients HTTP/1.1", "Host: attacker.example"],
            403,
            "Host 'attacker.example'",
        ),
        (
            ["GET /clients HTTP/1.1", "Host: localhost", "Host: attacker.example"],
            400,
            "several Host headers",
        ),
        (["GET /clients HTTP/1.1", "Host: localhost", "host: localhost"], 400, "several"),
        (["GET /clients HTTP/1.1", "Host:"], 400, "Host '' is not HOST or HOST:PORT"),
        (["GET /clients HTTP/1.1", "Host: localhost, b"], 400, "is not HOST or HOST:PORT"),
        (["GET /clients HTTP/1.1", "Host: \x1b[2J<script>"], 400, r"Host '\x1b[2J<script>' is"),
        (["GET /clients HTTP/1.1", "Host: " + "a" * 4_000], 400, "a" * 100 + "' is not"),
        (
            ["GET /clients HTTP/1.1", "Host: localhost", "Origin: http://attacker.example"],
            403,
            "Origin 'http://attacker.example' is another site",
        ),
        (["GET /clients HTTP/1.1", "Host: localhost", "Origin: null"], 403, "Origin 'null'"),
        (["GET /clients HTTP/1.0", "Origin: http://localhost"], 403, "Origin"),
        (
            ["GET /clients HTTP/1.1", "Host: 10.0.0.7", "Origin: http://127.0.0.1"],
            403,
            "Origin",
        ),
        (
            ["GET /clients HTTP/1.1", "Host: 10.0.0.7:9464", "Origin: http://10.0.0.7:9464"],
            200,
            "",
        ),
        (
            [
                "GET /clients HTTP/1.1",
                "Host: localhost",
                "Origin: http://localhost",
                "Origin: http://attacker.example",
            ],
            403,
            "Origin 'http://attacker.example'",
        ),
    ],
)
async def test_who_may_read_the_clients(lines: list[str], status: int, words: str) -> None:
    async def clients(_: object) -> Any:
        return lambda: ("text/plain", b"10.0.0.7 shop\n")

    server = HealthServer(
        lambda: lambda: b"counts 1\n",
        lambda: None,
        clients,
        allowed_hosts=lambda: {"gate.example.com"},
    )
    address = await started(server)
    found, body = await ask(address, *lines)
    assert found == status
    assert words in body
    assert ("shop" in body) is (status == 200)
    if status == 403 and "Host '" in body:
        assert f"ask http://{address[0]}:{address[1]}/clients" in body
    await server.stop()


@pytest.mark.parametrize("path", ["/metrics", "/livez", "/readyz"])
@pytest.mark.parametrize(
    "headers",
    [
        ["Host: gate.monitoring.svc.cluster.local:9464"],
        ["Host: 10.244.1.7:9464"],
        ["Host: a", "Host: b"],
        ["Host: ???", "Origin: http://attacker.example"],
        [],
    ],
)
async def test_probes_and_scrapers_may_send_any_host(path: str, headers: list[str]) -> None:
    server = HealthServer(lambda: lambda: b"counts 1\n", lambda: None)
    address = await started(server)
    for target in (path, f"http://gate.monitoring.svc{path}"):
        assert (await ask(address, f"GET {target} HTTP/1.1", *headers))[0] == 200
    await server.stop()


async def test_no_head_of_a_request_makes_another_error() -> None:
    """Compare random heads: each is read, or ValueError says what is wrong."""
    rng = random.Random(4)
    good = b"GET http://[::1]:9/clients?a HTTP/1.1\r\nHost: [::1]:9\r\nOrigin: http://[::1]\r\n\r\n"
    refused = 0
    for _ in range(5_000):
        head = bytearray(good)
        for _ in range(rng.randrange(1, 6)):
            head[rng.randrange(len(head))] = rng.choice(b"\r\n :/[]%.@,\0\xff1aH\x85\x1c")
        try:
            request = HttpRequest.parse(bytes(head))
        except ValueError:
            continue
        found = refusal_of(request, (), "127.0.0.1:9")
        refused += found is not None
        assert found is None or found[1].isprintable()
    assert refused > 100


async def test_a_reload_changes_the_hosts() -> None:
    gate = Gate(settings(allowed_hosts=["Gate.Example.com."]))
    assert gate.pages.allowed_hosts() == {"127.0.0.1", "gate.example.com"}
    await gate.start()
    assert gate.metrics_at is not None
    asked = "GET /clients HTTP/1.1", "Host: new.example.com"
    assert (await ask(gate.metrics_at, *asked))[0] == 403
    assert (await ask(gate.metrics_at, "GET /clients HTTP/1.1", "Host: gate.example.com"))[0] == 200
    (await gate.prepare(settings(allowed_hosts=["*.example.com"]))).apply()
    assert (await ask(gate.metrics_at, *asked))[0] == 200
    await gate.stop(0)


def test_the_host_of_the_address_is_allowed() -> None:
    gate = Gate(settings(address="Gate-1:9464", remote=True))
    assert gate.pages.allowed_hosts() == {"gate-1"}


@pytest.mark.parametrize(
    "name",
    ["gate:9464", "http://gate", "", ".", "a..b", "*.", "a.*", "*a", "-a", "[::1]", "b\xfccher.de"],
)
def test_what_cannot_be_a_host_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"metrics\.allowed_hosts\[0\]"):
        settings(allowed_hosts=[name])


def test_hosts_without_a_port_have_no_effect() -> None:
    with pytest.raises(ConfigError, match="allowed_hosts: has no effect"):
        settings(address=None, allowed_hosts=["gate"])

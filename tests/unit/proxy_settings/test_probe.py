"""Probes of an upstream address: Kafka, TLS, HTTP, something else, or nothing."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from batchval.proxy.cluster.probe import Probe, probe
from batchval.proxy.life.file_checks import upstream_faults
from batchval.proxy.settings.loading import drafted
from tests.support.network import closed_port
from tests.unit.proxy_settings.test_command import ran

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def kafka(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer ApiVersions 0; close the connection after anything else, as a broker does."""
    length = int.from_bytes(await reader.readexactly(4), "big")
    if length < 1000:
        request = await reader.readexactly(length)
        answer = request[4:8] + bytes(2) + (1).to_bytes(4, "big") + bytes((0, 18, 0, 0, 0, 4))
        writer.write(len(answer).to_bytes(4, "big") + answer)
        await writer.drain()


async def http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Wait for the end of a request's first line, as most servers do."""
    await reader.readuntil(b"\n")
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await writer.drain()


async def http_at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await writer.drain()


async def ssh(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
    await writer.drain()


async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


async def closes(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
    """Return: the connection is closed."""


async def alert(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer as a TLS server that gets plaintext (RFC 8446, 6: alert, fatal,
    unexpected_message).
    """
    await reader.read(1)
    writer.write(bytes((0x15, 3, 3, 0, 2, 2, 10)))
    await writer.drain()


@contextlib.contextmanager
def handshakes(context: ssl.SSLContext) -> Iterator[tuple[str, int]]:
    """Run a server that makes handshakes and reads: it sends its alerts, which asyncio's leaves
    out.
    """

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = listener.accept()
                with (
                    sock,
                    contextlib.suppress(OSError),
                    context.wrap_socket(sock, server_side=True) as secure,
                ):
                    secure.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[:2]
        listener.shutdown(socket.SHUT_RDWR)


@contextlib.asynccontextmanager
async def serving(
    serve: Serve, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[str, int]]:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(once, "127.0.0.1", 0, ssl=tls)
    try:
        yield "127.0.0.1", server.sockets[0].getsockname()[1]
    finally:
        server.close()


class Tls:
    """Contexts of a server and of a client that trusts it."""

    def __init__(self) -> None:
        self.authority = trustme.CA()
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.authority.issue_cert("127.0.0.1").configure_cert(self.server)
        self.client = ssl.create_default_context()
        self.authority.configure_trust(self.client)


async def test_kafka() -> None:
    tls = Tls()
    async with serving(kafka) as address:
        assert await probe(address, None, 10) == Probe("kafka")
    async with serving(kafka, tls.server) as address:
        assert await probe(address, tls.client, 10) == Probe("kafka")


@pytest.mark.parametrize("serve", [http, http_at_once])
async def test_http(serve: Serve) -> None:
    tls = Tls()
    async with serving(serve) as address:
        assert await probe(address, None, 4) == Probe("http")
        assert await probe(address, tls.client, 4) == Probe("http")
    async with serving(serve, tls.server) as address:
        assert await probe(address, tls.client, 4) == Probe("http")


async def test_tls_where_none_is_set() -> None:
    tls = Tls()
    async with serving(kafka, tls.server) as address:
        assert await probe(address, None, 4) == Probe("tls")
    async with serving(alert) as address:
        assert await probe(address, None, 4) == Probe("tls")
    tls.server.verify_mode = ssl.CERT_REQUIRED
    tls.authority.configure_trust(tls.server)
    async with serving(kafka, tls.server) as address:
        assert await probe(address, None, 4) == Probe("tls")


async def test_no_tls_where_it_is_set() -> None:
    async with serving(kafka) as address:
        assert await probe(address, Tls().client, 4) == Probe("plaintext")


async def test_certificates_that_one_side_refuses() -> None:
    tls, other = Tls(), Tls()
    async with serving(kafka, tls.server) as address:
        found = await probe(address, other.client, 20)
        assert found.kind == "untrusted"
        assert "certificate" in found.reason
    tls.server.verify_mode = ssl.CERT_REQUIRED
    tls.authority.configure_trust(tls.server)
    with handshakes(tls.server) as address:
        found = await probe(address, tls.client, 4)
        # TLS 1.3: the refusal comes after the handshake, and a close may overtake it
        assert found.kind in ("untrusted", "silent")
        if found.kind == "untrusted":
            assert "certificate required" in found.reason


async def test_something_else() -> None:
    async with serving(ssh) as address:
        assert await probe(address, None, 4) == Probe("other", "b'SSH-2.0-OpenSSH_'")


async def test_nothing() -> None:
    assert await probe(("127.0.0.1", closed_port()), None, 4) == Probe(
        "unreachable", "Connection refused"
    )
    assert (await probe(("kafka.invalid", 9092), None, 4)).kind == "unreachable"
    assert (await probe(("a..b", 9092), None, 4)).kind == "unreachable"
    async with serving(closes) as address:
        assert (await probe(address, None, 4)).kind == "silent"


@pytest.mark.alone
async def test_silence_takes_no_longer_than_allowed() -> None:
    async with serving(silent) as address:
        began = time.monotonic()
        assert await probe(address, None, 0.4) == Probe("unreachable", "no answer within 0.4 s")
        assert time.monotonic() - began < 30
        assert await probe(address, Tls().client, 0.4) == Probe(
            "unreachable", "no answer within 0.4 s"
        )


async def test_a_broker_that_is_slow_is_one_all_the_same() -> None:
    others = []

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the first connection after TLS and HTTP have been tried too."""
        others.append(writer)
        if len(others) > 1:
            return
        while len(others) < 3:
            await asyncio.sleep(0.01)
        await kafka(reader, writer)

    async with serving(slow) as address:
        assert await probe(address, None, 4) == Probe("kafka")
        assert len(others) == 3


# ---- --check-config ------------------------------------------------------------------------------


@contextlib.contextmanager
def answering(answer: bytes) -> Any:
    """Run a server in a thread that answers each connection with the same bytes."""

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = listener.accept()
                with sock, contextlib.suppress(OSError):
                    sock.recv(1)
                    sock.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.long
def test_check_config_names_what_the_upstreams_speak(tmp_path: Path) -> None:
    closed = f"127.0.0.1:{closed_port()}"
    with (
        answering(b"HTTP/1.0 400 Bad Request\r\n\r\n") as http_at,
        answering(bytes((21, 3, 3, 0, 2, 2, 10))) as tls_at,
    ):
        code, out, err = ran(
            "--check-config",
            "--listen",
            "127.0.0.1:0",
            "--upstream",
            f"{http_at},{tls_at},{closed}",
        )
        path = tmp_path / "gate.yaml"
        listener = {"address": "127.0.0.1:0"}
        path.write_text(
            yaml.safe_dump(
                {"listeners": [listener], "upstream": {"bootstrap": http_at}, "mode": "both"}
            )
        )
        with_more = ran("--check-config", "--config", path)
    assert (code, out) == (2, "")
    start = "batchval proxy:"
    no_kafka = "speaks HTTP, not Kafka: set the address of a broker"
    only_tls = "speaks TLS: set upstream.tls (with ca, or {} for the authorities of the system)"
    assert err == [
        f"{start} warning: upstream.bootstrap: {closed} cannot be reached: Connection refused",
        f"{start} upstream.bootstrap: {http_at} {no_kafka}",
        f"{start} upstream.bootstrap: {tls_at} {only_tls}",
    ]
    assert with_more[0] == 2
    assert [line.split(": ")[2] for line in with_more[2]] == ["mode", "upstream.bootstrap"]


def test_a_cluster_that_is_down_is_a_warning() -> None:
    closed = f"127.0.0.1:{closed_port()}"
    code, out, err = ran("--check-config", "--listen", "127.0.0.1:0", "--upstream", closed)
    assert (code, out) == (0, "the settings are valid\n")
    assert err == [
        f"batchval proxy: warning: upstream.bootstrap: {closed} cannot be reached: Connection refused"
    ]


def test_a_wrong_address_among_right_ones_is_not_asked() -> None:
    values = {"listeners": [{"address": "127.0.0.1:0"}], "upstream": {"bootstrap": ["nowhere"]}}
    draft = drafted(values)
    assert draft.settings is not None
    assert upstream_faults(draft.settings) == ([], [])

"""``batchval proxy --clients``: the table of a gate that runs, and what else may answer."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from batchval.proxy.watch.clients import Asked, ClientKey, ClientTable, Software, page_of
from tests.support.network import closed_port

Run = Callable[..., Any]
OLD, NEW = {1 << 16 | 2: 5}, {1 << 16 | 12: 1}


@contextlib.contextmanager
def answering(*answers: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Serve these bytes at a port, one request after the other; the last of them again."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    sock, _ = listener.accept()
                    with sock:
                        asked.append(sock.recv(65536))
                        sock.sendall(answers[min(len(asked), len(answers)) - 1])

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}", asked
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def http(body: bytes, status: str = "200 OK") -> bytes:
    return (
        f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
        + body
    )


def page(*uses: dict[int, int], client_id: str = "agent") -> bytes:
    table = ClientTable(clock_ns=lambda: 1_764_064_800 * 10**9)
    for n, one in enumerate(uses):
        table.add(
            ClientKey(client_id, Software("franz", "1.22.2"), f"10.0.0.{n}", "User:a", "default"),
            one,
        )
    return page_of(table, {}, Asked())()[1]


def test_text(run: Run) -> None:
    with answering(http(page(NEW, OLD, client_id="a\x1b[2J"))) as (address, asked):
        for url in (address, f"http://{address}", f"http://{address}/clients"):
            code, out, err = run("proxy", "--clients", url)
            assert (code, err) == (1, "")
            lines = out.splitlines()
            assert (
                lines[0] == "2 clients since 2025-11-25 10:00:00 UTC, of which Kafka 4 turns away 1"
            )
            assert lines[3].startswith(r"turned away  a\x1b[2J   franz 1.22.2  10.0.0.1")
            assert lines[3].endswith("Fetch 2")
    assert all(request.startswith(b"GET /clients?limit=10000 HTTP/1.1\r\n") for request in asked)


def test_a_name_that_is_not_allowed_is_asked_by_its_address(run: Run) -> None:
    # metrics.allowed_hosts is for browsers: this command has the address.
    answers = [http(b"not allowed", "403 Forbidden"), http(page(NEW))]
    with answering(*answers) as (address, asked):
        code, out, err = run("proxy", "--clients", f"localhost:{address.partition(':')[2]}")
    assert (code, err) == (0, "")
    assert out.startswith("1 client since")
    assert [b"Host: localhost:" in one for one in asked] == [True, False]
    assert b"\r\nHost: 127.0.0.1\r\n" in asked[1]


def test_the_slowest_come_first(run: Run) -> None:
    with answering(http(page(NEW))) as (address, asked):
        code, out, err = run("proxy", "--clients", address, "--slowest")
    assert (code, err) == (0, "")
    assert "mean ms" in out
    assert asked[0].startswith(b"GET /clients?limit=10000&order=slowest HTTP/1.1\r\n")
    code, _, err = run("proxy", "--slowest")
    assert (code, "--slowest needs --clients" in err) == (2, True)


def test_an_older_gate_has_no_latencies(run: Run) -> None:
    document = json.loads(page(NEW))
    for name in ("request_bytes", "answer_bytes", "mean_ms", "max_ms", "stalls"):
        del document["clients"][0][name]
    with answering(http(json.dumps(document).encode())) as (address, _):
        code, out, _ = run("proxy", "--clients", address)
    assert (code, out.splitlines()[-1].split()[-6:]) == (0, ["1", *"-----"])


def test_json(run: Run) -> None:
    with answering(http(page(OLD))) as (address, _):
        code, out, err = run("proxy", "--clients", address, "--json")
    client, summary = map(json.loads, out.splitlines())
    assert (code, err) == (1, "")
    assert (client["type"], client["client_id"], client["old"]) == ("client", "agent", True)
    assert (summary["type"], summary["known"], summary["old"]) == ("summary", 1, 1)


def test_the_address_of_the_settings(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "gate.yaml"
    with answering(http(page(NEW))) as (address, _):
        port = address.rpartition(":")[2]
        for host in ("127.0.0.1", "0.0.0.0", ""):
            # a gate runs with it, with --listen, --upstream and --mode
            config.write_text(f"metrics: {{address: '{host}:{port}'}}\nobserve: [{{topics: a}}]\n")
            assert run("proxy", "--clients", "--config", config)[0] == 0
            assert run("proxy", "--clients", "--mode", "observe", "--config", config)[0] == 0
        assert run("proxy", "--clients", "--metrics", address)[0] == 0
    for text, why in (("null", "is null"), ("'127.0.0.1:0'", "port 0 is any free port")):
        config.write_text(f"metrics: {{address: {text}}}\n")
        code, _, err = run("proxy", "--clients", "--config", config)
        assert code == 2
        assert f"metrics.address: {why}" in err


def test_without_old_clients_the_exit_code_is_0(run: Run) -> None:
    with answering(http(page(NEW))) as (address, _):
        assert run("proxy", "--clients", address)[0] == 0


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (http(b"/metrics, /livez, /readyz\n", "404 Not Found"), "the answer has status 404"),
        (http(b"hello"), "the answer is not that of a gate"),
        (http(b"[]"), "the answer is not that of a gate"),
        (http(b"[" * 100_000), "the answer is not that of a gate"),
        (http(b'{"clients": []}'), "the answer is not that of a gate"),
        (
            http(page(OLD).replace(b'"uses": [', b'"uses": [1, ')),
            "the answer is not that of a gate",
        ),
        (http(page(OLD).replace(b'"10.0.0.0"', b"7")), "the answer is not that of a gate"),
        (
            http(page(OLD).replace(b'"version": 2', b'"version": "\\u001b"')),
            "the answer is not that of a gate",
        ),
        (b"SSH-2.0-OpenSSH\r\n", "SSH-2.0-OpenSSH"),
        (b"", "closed connection without response"),
        (http(page(OLD))[:-20], "the answer is not that of a gate"),
    ],
)
def test_what_else_may_answer(run: Run, answer: bytes, why: str) -> None:
    with answering(answer) as (address, _):
        code, out, err = run("proxy", "--clients", address)
    assert (code, out) == (3, "")
    assert why in err
    assert len(err.splitlines()) == 1
    assert err.startswith(f"batchval proxy: http://{address}/clients: ")


def test_nothing_listens(run: Run) -> None:
    code, _, err = run("proxy", "--clients", f"127.0.0.1:{closed_port()}")
    assert code == 3
    assert err.endswith("/clients: Connection refused\n")


@pytest.mark.parametrize(
    "url", ["https://a:1", "http://", "http://a:b", "http://a:99999", "[::1", "ftp://a", ""]
)
def test_addresses_that_are_none(run: Run, url: str) -> None:
    code, _, err = run("proxy", "--clients", url)
    assert code == 2
    assert "expected the address of the gate's metrics, HOST:PORT" in err


def test_options_that_do_not_fit(run: Run) -> None:
    assert run("proxy", "--clients", "a", "--report")[0] == 2
    assert run("proxy", "--json")[0] == 2

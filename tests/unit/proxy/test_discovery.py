"""Discovery: scripted brokers that come, move, stop and hang up, and other upstreams."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import json
import logging
import os
import socket
import ssl
import struct
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme

from batchval.proxy.cluster import discovery as module
from batchval.proxy.cluster.discovery import Discovery, DiscoveryOptions
from batchval.proxy.cluster.metadata_client import BrokerAddress, ClusterView, SilentBrokerError
from batchval.proxy.cluster.state_file import StateFile, StoredCluster
from tests.support.network import closed_port, until
from tests.support.ports import free_port, free_ports
from tests.support.proxy import (
    LOOPBACK,
    RunningProxy,
    ScriptedBroker,
    connected,
    eventually,
    other_frame,
    read_frame,
)
from tests.system.auth.gates import RunningSettings

QUICK = 0.05  # seconds between rounds


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), 30))

    return run


class NamingBroker(ScriptedBroker):
    """A broker that answers Metadata with the brokers in ``named``; it hangs up if that is None."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(listener=socket.create_server((LOOPBACK, port)))
        self.named: dict[int, BrokerAddress] | None = {0: self.at}
        self.asked = 0

    @property
    def at(self) -> BrokerAddress:
        host, _, port = self.address.rpartition(":")
        return host, int(port)

    def _metadata(self, correlation_id: bytes) -> bytes:
        self.asked += 1
        if self.named is None:
            raise EOFError
        body = correlation_id + struct.pack(">i", len(self.named))
        for node_id, (host, port) in self.named.items():
            body += struct.pack(f">ih{len(host)}sih", node_id, len(host), host.encode(), port, -1)
        body += struct.pack(">ii", 0, 0)
        return struct.pack(">i", len(body)) + body

    def _serve(self, sock: socket.socket) -> None:
        super()._serve(sock)
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


@contextlib.asynccontextmanager
async def running(*bootstrap: BrokerAddress, **options: Any) -> AsyncIterator[Discovery]:
    options.setdefault("refresh_s", QUICK)
    discovery = Discovery(DiscoveryOptions(bootstrap, **options))
    await discovery.start()
    try:
        yield discovery
    finally:
        await discovery.stop()


@pytest.fixture(autouse=True)
def logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "batchval.proxy")


def lines(caplog: pytest.LogCaptureFixture, part: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if part in record.getMessage()]


# ---- brokers -------------------------------------------------------------------------------------


@on_a_loop
async def test_brokers_that_come_move_and_go(caplog: pytest.LogCaptureFixture) -> None:
    with NamingBroker() as one, NamingBroker() as two, NamingBroker() as three:
        one.named = {1: one.at}
        async with running(one.at) as discovery:
            heard: list[tuple[int, str, int]] = []
            await until(lambda: discovery.brokers == {1: one.at})
            discovery.subscribe(lambda *broker: heard.append(broker))
            assert heard == [(1, *one.at)]
            two.named = three.named = {}  # these are asked, too
            one.named = {1: one.at, 2: two.at}
            await until(lambda: discovery.brokers == one.named)
            assert discovery.addresses(2) == [two.at]
            one.named = {1: one.at, 2: three.at}
            await until(lambda: discovery.brokers == one.named)
            assert heard == [(1, *one.at), (2, *two.at), (2, *three.at)]
            one.named = {1: one.at}
            await until(lambda: lines(caplog, "broker 2 is not named by the cluster any more"))
            before = one.asked
            await until(lambda: one.asked > before + 3)
            assert discovery.addresses(2) == [three.at]  # it may only be restarting
            assert discovery.addresses() == [one.at, three.at]
            one.named = {1: one.at, 2: three.at}
            await until(lambda: lines(caplog, "broker 2 is named by the cluster again"))
    moved = f"broker 2 is at {three.address} now, not at {two.address}"
    assert lines(caplog, "broker 2 is") == [
        moved,
        "broker 2 is not named by the cluster any more: its port stays",
        "broker 2 is named by the cluster again",
    ]


@on_a_loop
async def test_answers_to_clients_teach_too_and_nonsense_does_not() -> None:
    with NamingBroker() as broker:
        async with running(broker.at) as discovery:
            await until(lambda: discovery.brokers)
            discovery.learn(7, *broker.at)
            for nonsense in [
                (-1, "a", 1),
                (2**31, "a", 1),
                (8, "", 1),
                (8, "a", 0),
                (8, "a", 65536),
                (8, "a" * 256, 1),
            ]:
                discovery.learn(*nonsense)
            assert discovery.brokers == {0: broker.at, 7: broker.at}
            assert discovery.addresses(8) == []


@on_a_loop
async def test_a_broker_without_brokers_is_asked_again() -> None:
    with NamingBroker() as broker:
        broker.named = {}
        async with running(broker.at) as discovery:
            await until(lambda: broker.asked > 2)
            assert discovery.ready
            broker.named = {4: broker.at}
            await until(lambda: discovery.brokers == {4: broker.at})


# ---- which addresses are tried -------------------------------------------------------------------


@on_a_loop
async def test_an_address_that_failed_is_tried_last_until_it_serves(
    caplog: pytest.LogCaptureFixture,
) -> None:
    port = free_port()
    first = (LOOPBACK, port)
    with NamingBroker() as second, NamingBroker() as third:
        second.named = {1: first, 2: second.at, 3: third.at}
        async with running(first, second.at) as discovery:
            await until(lambda: discovery.addresses() == [second.at, third.at, first])
            assert discovery.ready
            assert discovery.addresses(1) == [first]
            with NamingBroker(port) as back:
                back.named = second.named
                await until(lambda: discovery.addresses() == [first, second.at, third.at])
    assert lines(caplog, f"{LOOPBACK}:{port}") == [
        f"upstream.bootstrap {LOOPBACK}:{port} cannot be reached: Connection refused",
        f"upstream.bootstrap {LOOPBACK}:{port} serves again",
    ]


@on_a_loop
async def test_the_cluster_is_asked_at_once_after_a_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with NamingBroker() as one, NamingBroker() as two:
        async with running(one.at, two.at, refresh_s=3600.0) as discovery:
            await until(lambda: one.asked and two.asked)
            await asyncio.sleep(0.3)
            before = two.asked
            discovery.failed(
                one.at, ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
            )
            assert discovery.addresses() == [two.at, one.at]
            await until(lambda: two.asked > before)
            await until(lambda: discovery.addresses() == [one.at, two.at])
            discovery.reached(one.at)
            assert len(lines(caplog, "cannot be reached")) == 1


@on_a_loop
async def test_a_local_error_marks_no_broker(caplog: pytest.LogCaptureFixture) -> None:
    with NamingBroker() as broker:
        async with running(broker.at) as discovery:
            await until(lambda: discovery.ready)
            for _ in range(3):
                discovery.failed(broker.at, OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
            assert discovery.ready
    assert lines(caplog, "Too many") == [
        f"upstream.bootstrap {broker.address} was not tried: Too many open files"
    ]


def is_unready_with(discovery: Discovery, texts: list[str]) -> bool:
    why = discovery.unready() or ""
    return all(text in why for text in texts)


@on_a_loop
async def test_all_brokers_gone_and_back(caplog: pytest.LogCaptureFixture) -> None:
    ports = [free_port(), free_port()]
    named = {n: (LOOPBACK, port) for n, port in enumerate(ports)}
    async with running((LOOPBACK, ports[0])) as discovery:
        for _ in range(2):
            with NamingBroker(ports[0]) as one, NamingBroker(ports[1]) as two:
                one.named = two.named = named
                await until(lambda: discovery.ready and discovery.brokers == named)
                assert discovery.unready() is None
            refused = [f"{LOOPBACK}:{port} (Connection refused)" for port in ports]
            await until(functools.partial(is_unready_with, discovery, refused))
        with NamingBroker(ports[1]) as two:  # a known broker serves for asking
            two.named = named
            await until(lambda: discovery.ready)
            assert discovery.addresses()[0] == two.at


@contextlib.contextmanager
def black_hole() -> Iterator[BrokerAddress]:
    """Yield an address that answers no SYN: its backlog is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind((LOOPBACK, 0))
        listener.listen(0)
        for _ in range(4):
            sock = stack.enter_context(socket.socket())
            sock.setblocking(False)
            sock.connect_ex(listener.getsockname())
        yield listener.getsockname()


@pytest.mark.alone
def test_a_bootstrap_address_that_swallows_connections_costs_no_client_its_timeout() -> None:
    with (
        black_hole() as (host, port),
        ScriptedBroker() as broker,
        RunningProxy(f"{host}:{port}", broker.address, connect_timeout_ms=30_000) as proxy,
    ):
        for n in range(3):
            with connected(proxy, 15.0) as sock:
                sock.sendall(other_frame(n))
                assert read_frame(sock) == struct.pack(">i", n)
        assert proxy.proxy.discovery.ready
        eventually(lambda: proxy.proxy.discovery.addresses()[-1] == (host, port))


# ---- authentication ------------------------------------------------------------------------------


@on_a_loop
async def test_a_broker_that_hangs_up_requires_authentication(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with NamingBroker() as broker:
        broker.named = None
        async with running(broker.at) as discovery:
            assert discovery.requires_authentication is None
            await until(lambda: discovery.requires_authentication)
            assert discovery.ready
            discovery.answered_without_authentication()
            assert discovery.requires_authentication is False
    (line,) = lines(caplog, broker.address)
    assert "brokers will be discovered from client traffic" in line


@on_a_loop
async def test_a_broker_that_has_answered_may_hang_up_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with NamingBroker() as broker:
        async with running(broker.at) as discovery:
            await until(lambda: discovery.requires_authentication is False)
            monkeypatch.setattr(module, "SILENT_WAIT_S", 0.5)
            broker.named, before = None, broker.asked
            await until(lambda: broker.asked > before)  # it stops, or it is set up anew
            assert discovery.requires_authentication is False
            await until(lambda: discovery.requires_authentication)
            broker.named = {0: broker.at}
            await until(lambda: discovery.requires_authentication is False)


@on_a_loop
async def test_an_address_that_led_back_here_may_hang_up_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Another gate whose upstream is this one hangs up while it has no broker.
    asked: list[str] = []

    async def find(address: BrokerAddress, client_id: str) -> ClusterView:
        asked.append(client_id)
        if len(asked) == 1:
            discovery.is_own_request(client_id)
        raise SilentBrokerError("closed")

    async with running((LOOPBACK, 1), find_brokers=find) as discovery:
        await until(lambda: len(asked) > 1)
        assert not discovery.ready
        monkeypatch.setattr(module, "SILENT_WAIT_S", 0.0)
        await until(lambda: discovery.ready)


@pytest.mark.parametrize("authenticates", [False, True])
@on_a_loop
async def test_with_the_gates_own_credentials(authenticates: bool) -> None:
    asked: list[tuple[BrokerAddress, str]] = []

    async def find(address: BrokerAddress, client_id: str) -> ClusterView:
        asked.append((address, client_id))
        if address[1] == 1:
            raise SilentBrokerError("closed")
        return ClusterView([(5, "five", 5)], "cluster-1")

    options = {"find_brokers": find, "authenticates": authenticates}
    async with running(("a", 1), ("b", 2), **options) as discovery:
        assert discovery.requires_authentication is (True if authenticates else None)
        await until(lambda: discovery.brokers == {5: ("five", 5)})
        assert discovery.cluster_id == "cluster-1"
        assert discovery.requires_authentication is authenticates
        assert {address for address, _ in asked} >= {("a", 1), ("b", 2)}
        assert not discovery.is_own_request(asked[0][1])  # it has ended


# ---- what is not a broker ------------------------------------------------------------------------


@contextlib.contextmanager
def speaking(answer: Callable[[socket.socket], None]) -> Iterator[BrokerAddress]:
    """Run a server that is not a broker."""
    listener = socket.create_server((LOOPBACK, 0))

    def serve() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=one, args=(sock,), daemon=True).start()

    def one(sock: socket.socket) -> None:
        with sock, contextlib.suppress(OSError):
            answer(sock)

    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname()
    with contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def hasty_http(sock: socket.socket) -> None:
    sock.recv(4096)
    sock.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")


def patient_http(sock: socket.socket) -> None:
    """Answer as most such servers do: nothing before the end of a line."""
    came = b""
    while b"\n" not in came:
        piece = sock.recv(4096)
        if not piece:
            return
        came += piece
    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


def tls_alert(sock: socket.socket) -> None:
    sock.recv(4096)
    sock.sendall(b"\x15\x03\x01\0\x02\x02\x46")


def greeting(sock: socket.socket) -> None:
    sock.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
    sock.recv(4096)


def nonsense(sock: socket.socket) -> None:
    sock.recv(4096)
    sock.sendall(struct.pack(">i", 8) + b"\0\0\0\0\xff\xff\xff\xff")
    sock.recv(4096)


def tls_server(sock: socket.socket) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert(LOOPBACK).configure_cert(context)
    context.wrap_socket(sock, server_side=True)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (hasty_http, "speaks HTTP, not Kafka's protocol"),
        (patient_http, "speaks HTTP, not Kafka's protocol"),
        (tls_alert, "speaks TLS: set upstream.tls"),
        (tls_server, "speaks TLS: set upstream.tls"),
        (greeting, "did not answer as a Kafka broker does: "),
        (nonsense, "did not answer as a Kafka broker does: "),
    ],
)
@on_a_loop
async def test_an_upstream_of_another_protocol(
    answer: Callable[[socket.socket], None], sentence: str, caplog: pytest.LogCaptureFixture
) -> None:
    with speaking(answer) as (host, port):
        async with running((host, port), connect_s=1.0) as discovery:
            await until(lambda: lines(caplog, sentence))
            assert not discovery.ready
            assert sentence in (discovery.unready() or "")
            assert f"{host}:{port}" in (discovery.unready() or "")
            discovery.reached((host, port))  # a client's connection does not make it a broker
            assert not discovery.ready
            assert discovery.addresses() == []
            await asyncio.sleep(2.5)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"upstream.bootstrap {host}:{port} {sentence}")


@on_a_loop
async def test_an_upstream_that_never_answers(caplog: pytest.LogCaptureFixture) -> None:
    with speaking(lambda sock: time.sleep(5)) as stalled, NamingBroker() as broker:
        async with running(stalled, broker.at, connect_s=0.5) as discovery:
            await until(lambda: discovery.brokers)
            await until(lambda: discovery.addresses() == [broker.at, stalled])
            discovery.reached(stalled)  # its kernel accepts connections
            assert discovery.addresses() == [broker.at, stalled]
            assert discovery.requires_authentication is False
    assert lines(caplog, "cannot") == [
        f"upstream.bootstrap {LOOPBACK}:{stalled[1]} cannot be reached: no answer in time"
    ]


@on_a_loop
async def test_tls_to_a_broker_without(caplog: pytest.LogCaptureFixture) -> None:
    context = ssl.create_default_context()
    with NamingBroker() as broker:
        async with running(broker.at, tls=context, connect_s=1.0) as discovery:
            await until(lambda: lines(caplog, "cannot be reached: "))
            assert not discovery.ready


def bounded(proxy: RunningProxy) -> bool:
    before = proxy.counters.connections_total
    time.sleep(1.2)
    return proxy.counters.connections_total - before < 10 and not proxy.proxy.discovery.ready


def test_an_upstream_that_is_the_gate_itself(caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    sentence = f"upstream.bootstrap {LOOPBACK}:{port} is this gate itself"
    with RunningProxy(f"{LOOPBACK}:{port}", listen=(LOOPBACK, port)) as proxy:
        eventually(lambda: lines(caplog, sentence))
        with connected(proxy) as sock:  # there is nobody to send it to
            sock.sendall(other_frame(1))
            assert sock.recv(1) == b""
        assert bounded(proxy)
        assert sentence.partition(" ")[2].replace(" is", " (is") in proxy.proxy.discovery.unready()
    assert len(lines(caplog, sentence)) == 1
    assert lines(caplog, "authentication") == []


def test_two_gates_that_are_each_others_upstream(caplog: pytest.LogCaptureFixture) -> None:
    ports = [free_port(), free_port()]
    with contextlib.ExitStack() as stack:
        gates = [
            stack.enter_context(RunningProxy(f"{LOOPBACK}:{there}", listen=(LOOPBACK, here)))
            for here, there in (ports, reversed(ports))
        ]
        eventually(lambda: lines(caplog, "is this gate itself"))
        time.sleep(1.0)
        before = sum(gate.counters.connections_total for gate in gates)
        time.sleep(2.0)
        assert sum(gate.counters.connections_total for gate in gates) - before < 20
        assert not all(gate.proxy.discovery.ready for gate in gates)


def test_a_broker_that_advertises_the_gates_address(caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    with NamingBroker() as broker:
        broker.named = {3: (LOOPBACK, port), 4: broker.at}
        with RunningProxy(broker.address, listen=(LOOPBACK, port), first_broker_port=0) as proxy:
            eventually(lambda: lines(caplog, f"broker 3 at {LOOPBACK}:{port} is this gate itself"))
            assert proxy.proxy.discovery.ready
            assert proxy.proxy.discovery.addresses() == [broker.at]
            assert proxy.proxy.discovery.addresses(3) == []
            with socket.create_connection(proxy.proxy.listening[3], 10) as sock:
                sock.sendall(other_frame(1))
                assert sock.recv(1) == b""
            with connected(proxy) as sock:
                sock.sendall(other_frame(2))
                assert read_frame(sock) == struct.pack(">i", 2)


def test_broker_ports_end_where_the_settings_say(caplog: pytest.LogCaptureFixture) -> None:
    # The ports after them may be another listener's.
    first = free_ports(2)
    with NamingBroker() as broker:
        broker.named = {0: broker.at, 1: broker.at, 2: broker.at}
        with RunningProxy(broker.address, first_broker_port=first, broker_ports=2) as proxy:
            eventually(lambda: len(proxy.proxy.listening) == 3)
            ports = {node_id: proxy.proxy.listening[node_id][1] for node_id in (0, 1, 2)}
    assert (ports[0], ports[1]) == (first, first + 1)
    assert ports[2] != first + 2
    assert lines(
        caplog, f"broker 2 would be at port {first + 2}, and broker_ports ends at {first + 1}"
    )


@on_a_loop
async def test_only_a_request_under_way_is_ones_own() -> None:
    other = Discovery(DiscoveryOptions((("a", 1),)))
    assert not any(
        other.is_own_request(name)
        for name in ("", "batchval-proxy", other.instance, f"{other.instance}-0")
    )


# ---- the state file ------------------------------------------------------------------------------

KEPT = StoredCluster(
    ("kafka-1:9092",), "cluster-1", False, {1: ("kafka-1", 9092)}, {"default": {1: 19093}}
)


def test_the_file_is_private_and_whole(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "made" / "here")
    assert file.load() is None
    for state in (KEPT, StoredCluster(), KEPT):
        assert file.save(state)
        assert file.load() == state
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(file.path.parent) == ["brokers.json"]


def changed(**fields: Any) -> bytes:
    return json.dumps(json.loads(KEPT.encode()) | fields).encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff\xfe",
        b"[" * 100_000,
        KEPT.encode()[:-3],
        changed(format="something else"),
        changed(version=2),
        changed(bootstrap="kafka-1:9092"),
        changed(cluster_id=7),
        changed(requires_authentication="no"),
        changed(brokers=[]),
        changed(brokers={"one": ["kafka-1", 9092]}),
        changed(brokers={"-1": ["kafka-1", 9092]}),
        changed(brokers={str(2**31): ["kafka-1", 9092]}),
        changed(brokers={"9" * 5000: ["kafka-1", 9092]}),
        changed(brokers={"1": ["kafka-1"]}),
        changed(brokers={"1": ["", 9092]}),
        changed(brokers={"1": ["kafka\n1", 9092]}),
        changed(brokers={"1": ["kafka-1", True]}),
        changed(brokers={"1": ["kafka-1", 65536]}),
        changed(ports={"default": {"1": 0}}),
        changed(ports={"default": 1}),
        changed(more="x" * (5 << 20)),
    ],
    ids=range(24),
)
def test_a_file_that_is_corrupt_or_foreign_is_ignored(
    content: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = StateFile(tmp_path)
    file.path.write_bytes(content)
    file.path.chmod(0o600)
    assert file.load() is None
    assert (
        len(lines(caplog, f"the state file {file.path} is ignored: ")) == len(caplog.records) == 1
    )


def test_a_file_that_others_can_write_is_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = StateFile(tmp_path)
    file.save(KEPT)
    file.path.chmod(0o620)
    assert file.load() is None
    file.path.unlink()
    os.mkfifo(file.path, 0o600)
    assert file.load() is None  # and nobody waits for a writer
    assert [line.partition(": ")[2] for line in lines(caplog, "ignored")] == [
        "others can write it (mode 0620, expected 0600)",
        "it is not a regular file",
    ]


def test_a_directory_that_cannot_be_written_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    file = StateFile(tmp_path / "file" / "folder")
    assert not file.save(KEPT)
    assert not file.save(StoredCluster())
    assert len(lines(caplog, "cannot be written: Not a directory")) == 1


@on_a_loop
async def test_the_file_is_written_only_when_something_changes(tmp_path: Path) -> None:
    with NamingBroker() as broker:
        broker.named = {1: broker.at}
        file = StateFile(tmp_path)
        async with running(broker.at, state=file) as discovery:
            await until(lambda: (state := file.load()) and state.requires_authentication is False)
            before, asked = file.path.stat(), broker.asked
            await until(lambda: broker.asked > asked + 5)
            assert file.path.stat() == before
            discovery.keep_port("default", 1, 4711)
            discovery.learn(2, "kafka-2", 9092)
        found = file.load()
        assert found == StoredCluster(
            (broker.address,),
            None,
            False,
            {1: broker.at, 2: ("kafka-2", 9092)},
            {"default": {1: 4711}},
        )


@on_a_loop
async def test_what_the_file_holds_is_used_until_the_cluster_answers(tmp_path: Path) -> None:
    file, gone = StateFile(tmp_path), (LOOPBACK, closed_port())
    bootstrap = f"{LOOPBACK}:{gone[1]}"
    with NamingBroker() as known:
        known.named = {1: gone, 2: known.at}
        for requires in (None, True, False):
            file.save(
                StoredCluster(
                    (bootstrap, "other:1"),
                    "cluster-1",
                    requires,
                    {2: known.at},
                    {"default": {2: 4711}},
                )
            )
            async with running(gone, state=file) as discovery:
                assert discovery.brokers[2] == known.at
                assert discovery.kept_port("default", 2) == 4711
                assert discovery.requires_authentication in (requires, False)
                await until(lambda: discovery.brokers == known.named)
                assert discovery.ready
                assert discovery.requires_authentication is False


@on_a_loop
async def test_brokers_of_another_cluster_are_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = StateFile(tmp_path)
    file.save(KEPT)
    async with running((LOOPBACK, closed_port()), state=file) as discovery:
        assert discovery.brokers == {}
    assert len(lines(caplog, "is ignored: it is of a cluster at kafka-1:9092")) == 1

    ids = {1: "cluster-2", 2: "cluster-3"}

    async def find(address: BrokerAddress, _: str) -> ClusterView:
        return ClusterView([(address[1], *address)], ids[address[1]])

    file.save(StoredCluster(("a:1",), "cluster-1", None, {7: ("old", 7)}, {}))
    async with running(("a", 1), ("b", 2), state=file, find_brokers=find) as discovery:
        await until(lambda: discovery.cluster_id == "cluster-2")
        assert discovery.brokers == {1: ("a", 1)}
        await until(
            lambda: lines(
                caplog, "upstream.bootstrap b:2 belongs to the cluster cluster-3, not cluster-2"
            )
        )
        assert discovery.addresses() == [("a", 1)]
        assert discovery.brokers == {1: ("a", 1)}
    assert (file.load() or StoredCluster()).brokers == {1: ("a", 1)}


@on_a_loop
async def test_a_stop_in_a_round_that_fails_is_not_lost() -> None:
    """An error of one request is heavier than the cancellation of all."""
    asked = asyncio.Event()

    async def find(_: BrokerAddress, __: str) -> ClusterView:
        asked.set()
        try:
            return await asyncio.Future()
        finally:
            raise KeyError

    async with asyncio.timeout(10):
        async with running(("a", 1), find_brokers=find):
            await asked.wait()


def test_ports_listen_again_while_the_cluster_is_down(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bootstrap, port = free_port(), free_port()
    address = f"{LOOPBACK}:{bootstrap}"

    def remembering() -> RunningProxy:
        proxy = RunningProxy(address, listen=(LOOPBACK, port), first_broker_port=0)
        discovery = proxy.proxy.discovery
        discovery.options = replace(discovery.options, state=StateFile(tmp_path))
        discovery.own_file()
        return proxy

    with NamingBroker(bootstrap) as broker, NamingBroker() as second:
        broker.named = second.named = {1: broker.at, 2: second.at}
        with remembering() as proxy:
            eventually(lambda: len(proxy.proxy.listening) == 2)
            before = dict(proxy.proxy.listening)
    at_two = second.at
    with remembering() as proxy:
        assert proxy.proxy.listening == before
        with socket.create_connection(before[2], 10) as sock:
            sock.sendall(other_frame(1))
            assert sock.recv(1) == b""  # the broker is down
        with NamingBroker(at_two[1]) as second:
            second.named = {1: (LOOPBACK, bootstrap), 2: at_two}
            eventually(lambda: proxy.proxy.discovery.ready)  # the bootstrap broker is still down
            for at in (before[2], proxy.address):
                with socket.create_connection(at, 10) as sock:
                    sock.sendall(other_frame(2))
                    assert read_frame(sock) == struct.pack(">i", 2)
    with socket.create_server(before[1]), remembering() as proxy:
        assert proxy.proxy.listening[2] == before[2]
        assert proxy.proxy.listening[1] != before[1]
    assert (
        len(
            lines(
                caplog, f"port {before[1][1]} of broker 1 cannot be bound (Address already in use)"
            )
        )
        == 1
    )


@contextlib.contextmanager
def relay(to: tuple[str, int]) -> Iterator[str]:
    """Open a port that leads to another one."""

    def copy(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for sock in (source, target):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                here, _ = server.accept()
                try:
                    there = socket.create_connection(to, 10)
                except OSError:
                    here.close()
                    continue
                for pair in ((here, there), (there, here)):
                    threading.Thread(target=copy, args=pair, daemon=True).start()

    with socket.create_server((LOOPBACK, 0)) as server:
        threading.Thread(target=accept, daemon=True).start()
        yield f"{LOOPBACK}:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("mechanism", ["NONE", "PLAIN"])
def test_the_gates_own_credentials_do_not_hide_that_it_is_its_own_upstream(
    mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    # The address is a relay's, so that the settings cannot tell.
    port = free_port()
    admin = {"mechanism": mechanism} | (
        {} if mechanism == "NONE" else {"username": "gate", "password": "secret"}
    )
    listener = {"address": f"{LOOPBACK}:{port}"}
    with (
        relay((LOOPBACK, port)) as at,
        RunningSettings(at, admin=admin, listeners=[listener]) as gate,
    ):
        eventually(lambda: lines(caplog, f"upstream.bootstrap {at} is this gate itself"))
        assert gate.gate.unready() == f"no broker can be reached: {at} (is this gate itself)"

"""The data path with TLS on both sides, both with client certificates, on both event loops.

The broker here is a script. Released frames are poisoned: memory let go too early would be seen in
what arrives.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvloop

from batchval.core.claims import compute, to_tag
from batchval.protocol.messages.produce import ProduceRequest
from batchval.protocol.walkers.produce import CLAIMS_TAG, ProduceRequestView
from batchval.proxy.settings.loading import ConfigError
from tests.support.fixtures import poisoned  # noqa: F401
from tests.support.proxy import (
    BAD,
    COMPRESSED,
    GOOD,
    ScriptedBroker,
    answered,
    batch,
    codes,
    damaged,
    eventually,
    other_frame,
    produce_frame,
    read_frame,
)
from tests.system.auth.conftest import Certificates
from tests.system.auth.gates import RunningSettings


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def loop_factory(request: pytest.FixtureRequest) -> Any:
    return request.param


#: uvloop is what ``batchval proxy`` runs on
on_both_if_slow = pytest.mark.parametrize(
    "loop_factory",
    [pytest.param(asyncio.new_event_loop, marks=pytest.mark.slow), uvloop.new_event_loop],
    ids=["asyncio", "uvloop"],
    indirect=True,
)


class TlsBroker(ScriptedBroker):
    """A server that accepts only clients with a certificate; ``shown`` are the names of those."""

    def __init__(
        self, certificates: Certificates, answer: Callable[[bytes], bytes | None] | None = None
    ) -> None:
        super().__init__(answer)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(
            certificates.path("server.pem"), certificates.path("server.key")
        )
        self.context.load_verify_locations(certificates.ca)
        self.context.verify_mode = ssl.CERT_REQUIRED
        self.shown: set[str] = set()

    def _serve(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            wrapped = self.context.wrap_socket(sock, server_side=True)
            self.connections[self.connections.index(sock)] = wrapped
            subject = dict(part[0] for part in (wrapped.getpeercert() or {})["subject"])
            self.shown.add(subject.get("commonName", ""))
            super()._serve(wrapped)
            wrapped.close()  # as a broker answers the end of TLS


@contextlib.contextmanager
def mutual(
    certificates: Certificates,
    upstream: str,
    loop_factory: Any = uvloop.new_event_loop,
    **more: Any,
) -> Iterator[RunningSettings]:
    tls = certificates.pair("server") | {"client_ca": str(certificates.ca)}
    client_tls = certificates.pair("client") | {"ca": str(certificates.ca)}
    with RunningSettings(
        upstream, tls=tls, upstream_tls=client_tls, loop_factory=loop_factory, **more
    ) as gate:
        yield gate


@contextlib.contextmanager
def connected(
    gate: RunningSettings, certificates: Certificates, context: ssl.SSLContext | None = None
) -> Iterator[ssl.SSLSocket]:
    context = context or certificates.context("client")
    with (
        socket.create_connection(gate.address, 20) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as sock,
    ):
        yield sock


def test_good_and_bad_and_in_their_order(certificates: Certificates, loop_factory: Any) -> None:
    with (
        TlsBroker(certificates) as broker,
        mutual(certificates, broker.address, loop_factory) as gate,
        connected(gate, certificates) as sock,
    ):
        sent = [
            produce_frame(1, ("t", 0, GOOD)),
            produce_frame(2, ("t", 0, BAD)),
            other_frame(3),
            produce_frame(4, ("t", 0, GOOD), ("t", 1, BAD), ("t", 2, COMPRESSED)),
        ]
        sock.sendall(b"".join(sent))
        answers = [read_frame(sock) for _ in sent]
        assert [struct.unpack_from(">i", answer)[0] for answer in answers] == [1, 2, 3, 4]
        assert codes(answers[0]) == {("t", 0): 0}
        assert codes(answers[1]) == {("t", 0): 2}
        assert codes(answers[3]) == {("t", 0): 0, ("t", 1): 2, ("t", 2): 0}
        first, other, merged = broker.frames
        assert first[:4] == sent[0][4:8]
        assert first[8:] == sent[0][12:]  # the same bytes but for the correlation id
        assert other[8:] == sent[2][12:]
        _, kept = ProduceRequest.parse(merged)
        assert [
            (part.index, bytes(part.records)) for part in kept.topic_data[0].partition_data
        ] == [
            (0, GOOD),
            (2, COMPRESSED),
        ]
        assert broker.shown == {"trusted-client"}


def test_acks_0_forwards_what_passes_then_closes(
    certificates: Certificates, loop_factory: Any
) -> None:
    with (
        TlsBroker(certificates) as broker,
        mutual(certificates, broker.address, loop_factory) as gate,
    ):
        with connected(gate, certificates) as sock:
            for n in range(20):
                sock.sendall(produce_frame(n, ("t", 0, GOOD), acks=0))
            sock.sendall(other_frame(30))
            assert read_frame(sock) == struct.pack(">i", 30)
            sock.sendall(produce_frame(40, ("t", 0, GOOD), ("t", 1, BAD), acks=0))
            with pytest.raises((EOFError, ssl.SSLError)):
                read_frame(sock)
        eventually(lambda: len(broker.frames) == 22)
        _, last = ProduceRequest.parse(broker.frames[-1])
        assert [part.index for part in last.topic_data[0].partition_data] == [0]
        assert gate.gate.counters.connections_closed == {"acks_0_refused": 1}


@on_both_if_slow
def test_large_frames_both_ways(certificates: Certificates, loop_factory: Any) -> None:
    # Requests of 12 MB and answers of 9 MB on four connections; the broker and two clients are slow
    # to read.
    large = batch(*(os.urandom(1 << 20) for _ in range(12)))
    answer_body = os.urandom(9 << 20)

    def answer(frame: bytes) -> bytes | None:
        if frame[:2] == b"\0\0":
            return answered(frame)
        return struct.pack(">i", 4 + len(answer_body)) + frame[4:8] + answer_body

    failures: list[BaseException] = []
    with (
        TlsBroker(certificates, answer) as broker,
        mutual(certificates, broker.address, loop_factory) as gate,
    ):

        def talk(slow: bool) -> None:
            try:
                with connected(gate, certificates) as sock:
                    for n in range(2):
                        sock.sendall(produce_frame(3 * n, ("t", 0, large)) + other_frame(3 * n + 1))
                        if slow:
                            time.sleep(0.3)
                        assert codes(read_frame(sock)) == {("t", 0): 0}
                        assert read_frame(sock) == struct.pack(">i", 3 * n + 1) + answer_body
            except BaseException as failure:
                failures.append(failure)

        broker.reading.clear()
        threads = [threading.Thread(target=talk, args=(n % 2 == 0,)) for n in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        broker.reading.set()
        for thread in threads:
            thread.join(60)
        assert failures == []
        arrived = [
            ProduceRequestView(frame).records(0) for frame in broker.frames if frame[:2] == b"\0\0"
        ]
        assert len(arrived) == 8
        assert all(records == large for records in arrived)
        eventually(lambda: gate.gate.counters.connections_open == 0)
        eventually(lambda: gate.gate.shared.budget.measure() == 0)


def tag_of(records: bytes) -> tuple[tuple[int, bytes], ...]:
    claims = compute(records)
    assert claims is not None
    return ((CLAIMS_TAG, to_tag(claims, int.from_bytes(records[17:21], "big"))),)


def test_a_chain_that_knows_itself_by_its_certificates(
    certificates: Certificates, loop_factory: Any
) -> None:
    # The first gate makes claims; the second believes the certificate that it shows, and
    # decompresses nothing.
    with (
        TlsBroker(certificates) as broker,
        mutual(certificates, broker.address, loop_factory, claims_in="trust") as core,
        mutual(certificates, str(core.bootstrap), loop_factory, claims_out="tag") as edge,
        connected(edge, certificates) as sock,
    ):
        for n in range(5):
            sock.sendall(produce_frame(n, ("t", 0, COMPRESSED)))
            assert codes(read_frame(sock)) == {("t", 0): 0}
        sock.sendall(produce_frame(9, ("t", 0, damaged(COMPRESSED))))
        assert codes(read_frame(sock)) == {("t", 0): 2}
        ledger = core.gate.proxies["default"].gate.ledger
        assert ledger is not None
        assert [sender.partition(",")[0] for sender in ledger.senders()] == [
            "certificate CN=trusted-client"
        ]
        assert ledger.counts().trusted == 5
        assert core.gate.counters.batches_by_path == {"claims": 5}
        assert edge.gate.counters.claims_tags_added_total == 5
        assert not any(tag_of(COMPRESSED)[0][1] in frame for frame in broker.frames)


def test_who_shows_no_certificate_or_speaks_no_tls_is_not_served(
    certificates: Certificates, loop_factory: Any
) -> None:
    with (
        TlsBroker(certificates) as broker,
        mutual(certificates, broker.address, loop_factory) as gate,
    ):
        with pytest.raises((ssl.SSLError, ConnectionError, EOFError)):
            ask(gate, certificates, certificates.context())
        with socket.create_connection(gate.address, 10) as plain:
            plain.sendall(other_frame(1))
            with contextlib.suppress(EOFError):
                assert read_frame(plain)[:1] != b"\0"  # a TLS alert at most
        assert broker.frames == []
        assert ask(gate, certificates) == struct.pack(">i", 1)


def ask(
    gate: RunningSettings, certificates: Certificates, context: ssl.SSLContext | None = None
) -> bytes:
    with connected(gate, certificates, context) as sock:
        sock.sendall(other_frame(1))
        return read_frame(sock)


@on_both_if_slow
def test_certificates_are_read_again_under_load(
    certificates: Certificates, tmp_path: Any, loop_factory: Any
) -> None:
    # Nobody is disturbed: connections go on, and each new one sees the newest certificate there is.
    own = Certificates(tmp_path)  # its files change
    failures: list[BaseException] = []
    requests = [0] * 3
    over = threading.Event()
    with TlsBroker(own) as broker, mutual(own, broker.address, loop_factory) as gate:

        def stay(n: int) -> None:
            with connected(gate, own) as sock:
                while not over.is_set():
                    sock.sendall(produce_frame(requests[n], ("t", 0, GOOD), ("t", 1, BAD)))
                    assert codes(read_frame(sock)) == {("t", 0): 0, ("t", 1): 2}
                    requests[n] += 1

        def come_and_go(n: int) -> None:
            while not over.is_set():
                with connected(gate, own) as sock:
                    sock.sendall(produce_frame(requests[n], ("t", 0, GOOD)))
                    assert codes(read_frame(sock)) == {("t", 0): 0}
                    requests[n] += 1

        def caught(what: Callable[[int], None], n: int) -> None:
            try:
                what(n)
            except BaseException as failure:
                failures.append(failure)

        contents = (stay, stay, come_and_go)
        threads = [
            threading.Thread(target=caught, args=(what, n)) for n, what in enumerate(contents)
        ]
        for thread in threads:
            thread.start()
        serials = []
        for _ in range(10):
            own.issue("gate", "127.0.0.1")
            os.replace(own.path("gate.pem"), own.path("server.pem"))
            os.replace(own.path("gate.key"), own.path("server.key"))
            assert gate.call(_reloaded(gate))
            with connected(gate, own) as sock:
                serials.append((sock.getpeercert() or {})["serialNumber"])
            own.path("server.pem").write_text("half written")
            assert not gate.call(_reloaded(gate))  # the old one holds
            with connected(gate, own) as sock:
                assert (sock.getpeercert() or {})["serialNumber"] == serials[-1]
            before = list(requests)
            eventually(
                lambda before=before: (
                    failures or all(a > b for a, b in zip(requests, before, strict=True))
                )
            )
        over.set()
        for thread in threads:
            thread.join(20)
        assert failures == []
        assert len(set(serials)) == 10
        assert gate.gate.counters.connections_closed == {}
        assert len(broker.frames) == sum(requests)


async def _reloaded(gate: RunningSettings) -> bool:
    try:
        step = await gate.gate.prepare(gate.gate.settings)
    except ConfigError:
        return False
    step.apply()
    return True

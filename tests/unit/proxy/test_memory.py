"""The cost of clients and brokers that stall: memory of the gate's process, as the kernel counts
it.
"""

from __future__ import annotations

import contextlib
import resource
import signal
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from batchval.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from tests.support.batches import ZSTD, record
from tests.support.batches import batch as batch_of
from tests.support.gate_process import GateProcess
from tests.support.old_fetches import OldConsumer
from tests.support.proxy import (
    ScriptedBroker,
    batch,
    eventually,
    other_frame,
    produce_frame,
    read_exactly,
)

MB = 1 << 20
SMALL = 16 << 10  # of the kernel's own buffers, so that what waits, waits in the gate or before it
# BBR, the default of some machines, sees a bandwidth of 0 where buffers of 16 KiB stall, and may
# then pace the rest at a few bytes a second
CONGESTION = "reno"


def enough_files(count: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft = min(hard, 4 * count + 256)
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def small(sock: socket.socket) -> socket.socket:
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, SMALL)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, CONGESTION.encode())
    return sock


def narrow_listener() -> socket.socket:
    """Listen with small buffers, which accepted connections inherit. The kernel's send buffer is
    sized by segments, which are 64 kB on a loopback.
    """
    listener = small(socket.create_server(("127.0.0.1", 0), backlog=2048))
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1400)
    return listener


@pytest.mark.alone
@pytest.mark.parametrize(
    ("clients", "each"), [(100, 2 * MB), pytest.param(1000, MB // 2, marks=pytest.mark.slow)]
)
def test_many_clients_on_a_stalled_broker(clients, each):
    # Each has megabytes to send, and the broker takes none of them: the limit holds, and nothing is
    # lost.
    enough_files(clients)
    held = 16 * MB
    limits = {"max_bytes_held": held, "max_frame_bytes": MB, "write_buffer_bytes": MB}
    # A quarter of drain_timeout_ms is the period of the clock that passes the right to send around.
    # A client may have to wait for a processor before its first frame, so its timeout is long.
    limits |= {"handshake_timeout_ms": 120_000, "drain_timeout_ms": 2_000}
    frame = produce_frame(1, ("t", 0, batch(b"x" * 99_000)), acks=0)
    count = each // len(frame)
    same: list[bool] = []

    def taken(got: bytes) -> None:
        same.append(got[8:] == frame[12:])
        broker.frames.clear()

    with (
        ScriptedBroker(taken, narrow_listener()) as broker,
        # One read brings what the kernel received since the last: without a bound on that, it would
        # depend on how long the gate waits for a processor.
        GateProcess(
            broker.address, limits=limits, receive_buffer=SMALL, congestion=CONGESTION
        ) as gate,
        contextlib.ExitStack() as open_,
    ):
        before = gate.peak_bytes()
        broker.reading.clear()
        socks = [open_.enter_context(socket.socket()) for _ in range(clients)]
        for sock in socks:
            small(sock).connect(("127.0.0.1", gate.port))
            sock.setblocking(False)
        left = dict.fromkeys(socks, memoryview(frame * count))
        # the worst case: all that the kernel takes is there at once
        gate.signal(signal.SIGSTOP)
        threading.Timer(1.0, gate.signal, (signal.SIGCONT,)).start()
        quiet = time.monotonic()
        while (
            time.monotonic() - quiet < 3.0
        ):  # until nobody can send any more; who is not read is not blamed for it
            for sock, data in left.items():
                with contextlib.suppress(BlockingIOError):
                    if data and (sent := sock.send(data)):
                        left[sock] = data[sent:]
                        quiet = time.monotonic()
            time.sleep(0.001)
        counters = gate.counters()
        grown = gate.peak_bytes() - before
        print(
            f"{clients} clients: {counters['bytes_held'] / MB:.0f} MB held, "
            f"{grown / MB:.0f} MB more resident"
        )
        assert same == []
        assert counters["connections_open"] == clients
        # what is held is counted as memory: of each client, the frame that was read last
        assert held // 2 < counters["bytes_held"] <= held + MB + clients * 128_000
        assert grown < held + clients * (len(frame) + 100_000) + 32 * MB
        for sock in broker.connections:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, MB)

        def rest(some):
            for sock in some:
                sock.setblocking(True)
                sock.settimeout(240)
                sock.sendall(left[sock])

        threads = [threading.Thread(target=rest, args=([sock],), daemon=True) for sock in socks]
        for thread in threads:
            thread.start()
        broker.reading.set()  # once all send: a client that is read and silent may be evicted
        try:
            eventually(lambda: len(same) == clients * count, 240)
        finally:  # whether what is missing waits in the gate or in the kernel
            print(f"{len(same)} of {clients * count} frames arrived; {gate.counters()}")
        assert all(same)
        eventually(lambda: gate.counters()["bytes_held"] == 0)
        assert gate.peak_bytes() - before < held + clients * (len(frame) + 100_000) + 32 * MB


@pytest.mark.alone
@pytest.mark.parametrize("queued", [64 * MB, pytest.param(1024 * MB, marks=pytest.mark.slow)])
def test_much_queued_for_a_stalled_client(queued):
    # Answers of a megabyte for somebody who takes none yet: they stay with the broker, and all come
    # in the end.
    def answer(frame: bytes) -> bytes:
        return struct.pack(">i", MB) + frame[4:8] + bytes(MB - 4)

    count = queued // MB
    with (
        ScriptedBroker(answer) as broker,
        GateProcess(broker.address) as gate,
        socket.socket() as sock,
    ):
        small(sock).connect(("127.0.0.1", gate.port))
        sock.settimeout(60)
        before = gate.peak_bytes()
        sock.sendall(b"".join(other_frame(n) for n in range(count)))
        eventually(lambda: gate.counters()["answers_total"] > 0)
        time.sleep(1.0)
        counters = gate.counters()
        grown = gate.peak_bytes() - before
        print(
            f"{queued // MB} MB requested: {counters['answers_total']} answers taken, "
            f"{grown / MB:.1f} MB more resident"
        )
        assert counters["answers_total"] < 16
        assert grown < 16 * MB
        for n in range(count):
            assert read_exactly(sock, 8) == struct.pack(">ii", MB, n)
            assert len(read_exactly(sock, MB - 4)) == MB - 4
        assert gate.peak_bytes() - before < 16 * MB


@pytest.mark.alone
def test_old_consumers_of_tiny_records():
    # Messages of formats 0 and 1 are many times as large: a piece of them is there at once.
    count, consumers = 300_000, 20
    content = b"".join(record(i, value=b"x") for i in range(count))
    sent = batch_of([content], codec=ZSTD, records_count=count, last_offset_delta=count - 1)
    partition = PartitionData(0, records=sent)
    response = FetchResponse(responses=[FetchableTopicResponse("t", partitions=[partition])])

    def answer(frame: bytes) -> bytes:
        return b"".join(response.encode(struct.unpack_from(">i", frame, 4)[0], 10))

    def fetched(_: int) -> int:
        with contextlib.closing(
            OldConsumer(("127.0.0.1", gate.port), 2, max_bytes=8 * MB)
        ) as consumer:
            return len(consumer.fetch("t", 0, 0).records)

    with (
        ScriptedBroker(answer) as broker,
        GateProcess(broker.address, bridge=("consumers",)) as gate,
        ThreadPoolExecutor(consumers) as pool,
    ):
        before = gate.peak_bytes()
        (size,) = set(pool.map(fetched, range(consumers)))
        grown = gate.peak_bytes() - before
        print(
            f"{len(content) / MB:.1f} MB of records each, answers of {size / MB:.1f} MB: {grown / MB:.0f} MB"
        )
        # all answers may wait for their clients, and two conversions hold their records
        assert grown < consumers * (len(sent) + size) + 8 * len(content)
        # a client has its answer before the gate has let it go
        eventually(lambda: gate.counters()["bytes_held"] == 0)

"""A proxy on a loop of its own, in a thread; a broker that does what a test says; and produce
requests to send.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from typing import Any

import uvloop
from kafka.record.default_records import DefaultRecordBatchBuilder

from batchval.protocol.messages.produce import ProduceRequest, ProduceResponse
from batchval.proxy.life.listener_server import ListenerServer
from batchval.proxy.settings.config import Limits, Listener, Settings, Upstream
from batchval.proxy.settings.options import (
    Counters,
    ProxyOptions,
    Refusal,
    TopicPolicies,
)
from batchval.proxy.settings.setting_types import Address
from batchval.proxy.watch.traffic import TrafficTable
from tests.support.ports import free_port

LOOPBACK = "127.0.0.1"


def requests_of(traffic: TrafficTable) -> dict[int, int]:
    """Return the requests of all ports by API key << 16 | version."""
    return dict(sum((Counter(one.requests) for one in traffic._ports.values()), Counter()))


def limits_with(**values: Any) -> Limits:
    """Return limits with these values, which may be lower than a file's."""
    assert values.keys() <= Limits.model_fields.keys()
    return Limits().model_copy(update=values)


def proxy_options(
    listen: tuple[str, int] = (LOOPBACK, 0),
    upstream: Iterable[tuple[str, int]] = ((LOOPBACK, 1),),
    **values: Any,
) -> ProxyOptions:
    """Return the options of one listener, whose mode is enforce unless it is set.

    ``values``  fields of ProxyOptions, else keys of the listener, of upstream or of the settings
    """

    def taken(names: Iterable[str]) -> dict[str, Any]:
        return {name: values.pop(name) for name in names if name in values}

    objects = taken(one.name for one in fields(ProxyOptions))
    listener = Listener(address=Address(*listen), **taken(Listener.model_fields))
    brokers = tuple(Address(*one) for one in upstream)
    cluster = Upstream(bootstrap=brokers, **taken(Upstream.model_fields))
    given = {"mode": "enforce", "upstream": cluster} | values
    return ProxyOptions(Settings(listeners=[listener], **given), listener, **objects)


class RunningProxy:
    """``with RunningProxy(upstream) as proxy: … proxy.bootstrap …``"""

    def __init__(
        self,
        *upstream: str,
        policies: TopicPolicies | None = None,
        **options: Any,
    ) -> None:
        self.refusals: list[Refusal] = []
        self.counters = Counters()
        addresses = tuple(
            (address.rpartition(":")[0], int(address.rpartition(":")[2])) for address in upstream
        )
        if "listen" not in options:  # no client of another test knows this port
            options = {"first_broker_port": 0} | options | {"listen": (LOOPBACK, free_port())}
        self.options = proxy_options(
            upstream=addresses,
            topics=policies or TopicPolicies(),
            on_refusal=self.refusals.append,
            **options,
        )
        self.proxy = ListenerServer(self.options, self.counters)
        self.loop = uvloop.new_event_loop()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()  # it has six files, and what its handles hold

    def __enter__(self) -> RunningProxy:
        self.thread.start()
        self.call(self.proxy.start())
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(0.5)

    def call(self, coroutine: Any, timeout: float = 30.0) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(timeout)

    def stop(self, drain_s: float = 10.0) -> None:
        if self.thread.is_alive():
            self.call(self.proxy.stop(drain_s))
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join(10)

    @property
    def bootstrap(self) -> str:
        host, port = self.proxy.bootstrap
        return f"{host}:{port}"

    @property
    def address(self) -> tuple[str, int]:
        return self.proxy.bootstrap

    def own_ports(self) -> set[int]:
        return {port for _, port in [self.proxy.bootstrap, *self.proxy.listening.values()]}


def run_both(*commands: list[str]) -> list[str]:
    """Run programs in parallel, which must succeed; return what each printed."""
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    outputs = [run.communicate(timeout=180)[0] for run in runs]
    assert [run.returncode for run in runs] == [0] * len(runs), outputs
    return outputs


def eventually(what: Callable[[], Any], timeout: float = 60.0) -> Any:
    """Wait until it is true."""
    until = time.monotonic() + timeout
    while not (value := what()):
        assert time.monotonic() < until, "it did not come to pass"
        time.sleep(0.005)
    return value


def read_frame(sock: socket.socket) -> bytes:
    """Read one frame without its length. Raises EOFError if the peer closes the connection."""
    return read_exactly(sock, struct.unpack(">i", read_exactly(sock, 4))[0])


def read_exactly(sock: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        try:
            piece = sock.recv(count - len(data))
        except ConnectionResetError:
            piece = b""
        if not piece:
            raise EOFError(bytes(data))
        data += piece
    return bytes(data)


class ScriptedBroker:
    """A broker of one port: what comes is kept, and what goes is the test's matter.

    ``answer(frame)``, called with a frame without its length, returns the bytes to send (frames,
    whole), or None for nothing.
    """

    def __init__(
        self,
        answer: Callable[[bytes], bytes | None] | None = None,
        listener: socket.socket | None = None,
    ) -> None:
        self.answer = answer or answered
        self.frames: list[bytes] = []
        self.connections: list[socket.socket] = []
        self.talking: socket.socket | None = None  # the connection that the last frame came by
        self.reading = threading.Event()
        self.reading.set()
        self.listener = listener or socket.create_server((LOOPBACK, 0))
        host, port = self.listener.getsockname()
        self.address = f"{host}:{port}"
        self.closed = False

    def __enter__(self) -> ScriptedBroker:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True
        self.reading.set()
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)  # a thread that accepts would keep it open
        self.listener.close()
        for sock in self.connections:
            with contextlib.suppress(OSError):
                sock.close()

    def _metadata(self, correlation_id: bytes) -> bytes:
        """Return Metadata version 1 with one broker, 0, at this address."""
        host, _, port = self.address.rpartition(":")
        body = correlation_id + struct.pack(
            f">iih{len(host)}sih", 1, 0, len(host), host.encode(), int(port), -1
        )
        body += struct.pack(">ii", 0, 0)
        return struct.pack(">i", len(body)) + body

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            self.connections.append(sock)
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                self.reading.wait()
                frame = read_frame(sock)
                if (
                    frame[:2] == b"\0\3" and b"batchval-proxy" in frame[:40]
                ):  # the proxy's own question for brokers
                    sock.sendall(self._metadata(frame[4:8]))
                    continue
                self.talking = sock
                self.frames.append(frame)
                answer = self.answer(frame)
                if answer:
                    sock.sendall(answer)


def answered(frame: bytes) -> bytes | None:
    """Answer as a broker that accepts everything: Produce with success, else the correlation id."""
    if frame[:2] == b"\0\0":
        header, request = ProduceRequest.parse(frame)
        if request.acks == 0:
            return None
        return b"".join(success(request).encode(header.correlation_id, request.api_version))
    return struct.pack(">i", 4) + frame[4:8]


def success(request: ProduceRequest, base_offset: int = 7) -> ProduceResponse:
    """Return a response with every partition at this offset."""
    from batchval.protocol.messages import produce as p

    return ProduceResponse(
        responses=[
            p.TopicProduceResponse(
                name=topic.name,
                partition_responses=[
                    p.PartitionProduceResponse(index=part.index, base_offset=base_offset)
                    for part in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def batch(
    *values: bytes, codec: int = 0, timestamp: int | None = None, key: bytes | None = b"k"
) -> bytes:
    """Return a record batch of magic 2."""
    builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1 << 24)
    at = int(time.time() * 1000) if timestamp is None else timestamp
    for i, value in enumerate(values or (b"value",)):
        builder.append(i, at, key, value, [])
    built = bytes(builder.build())
    assert built[22] & 7 == codec, "too little to compress"
    return built


def damaged(good: bytes) -> bytes:
    """Return the batch with a bit of the last byte flipped: its checksum is wrong."""
    return good[:-1] + bytes([good[-1] ^ 1])


ZSTD = 4
GOOD = batch(b"one", b"two")
BAD = damaged(GOOD)
COMPRESSED = batch(b"one" * 50, b"two" * 50, codec=ZSTD)


def produce_frame(
    correlation_id: int,
    *partitions: tuple[str, int, bytes],
    version: int = 9,
    acks: int = 1,
    tags: tuple[tuple[int, bytes], ...] = (),
) -> bytes:
    """Return a Produce request, its length included."""
    from batchval.protocol.messages import produce as p

    topics: dict[str, p.TopicProduceData] = {}
    for topic, index, records in partitions:
        data = topics.setdefault(topic, p.TopicProduceData(name=topic, partition_data=[]))
        data.partition_data.append(
            p.PartitionProduceData(index=index, records=records, unknown_tagged_fields=tags)
        )
    request = ProduceRequest(
        api_version=version, acks=acks, timeout_ms=1000, topic_data=list(topics.values())
    )
    return b"".join(request.encode(correlation_id, "test"))


def other_frame(
    correlation_id: int, key: int = 22, version: int = 0, body: bytes = b"\0\0\0\0\0\0"
) -> bytes:
    """Return a request that is only passed on (InitProducerId by default)."""
    frame = struct.pack(">hhih4s", key, version, correlation_id, 4, b"test") + body
    return struct.pack(">i", len(frame)) + frame


def codes(frame: bytes, version: int = 9) -> dict[tuple[str, int], int]:
    """Return (topic, partition) -> error code of a Produce answer."""
    response = ProduceResponse.decode(frame, version)
    return {
        (topic.name, part.index): part.error_code
        for topic in response.responses
        for part in topic.partition_responses
    }


@contextlib.contextmanager
def connected(proxy: RunningProxy, timeout: float = 10.0) -> Iterator[socket.socket]:
    """Connect to the proxy's client listener without TLS."""
    with socket.create_connection(proxy.address, timeout) as sock:
        yield sock


@contextlib.contextmanager
def connected_gate(
    answer: Callable[[bytes], bytes | None] | None = None, **options: Any
) -> Iterator[tuple[ScriptedBroker, RunningProxy, socket.socket]]:
    """Yield a broker, the gate in front of it, and a client's connection to the gate."""
    with (
        ScriptedBroker(answer) as broker,
        RunningProxy(broker.address, **options) as proxy,
        connected(proxy) as sock,
    ):
        yield broker, proxy, sock

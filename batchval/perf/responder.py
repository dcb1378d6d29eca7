"""A broker of known delay: it takes every batch, keeps none, and answers Produce after exactly so
many microseconds.

    python -m batchval.perf.responder --delay-us 137 --partitions 4

prints "listening PORT" and runs until its standard input ends. The delay runs from the arrival of a
request's last byte in the kernel (SO_TIMESTAMPNS) to the call that sends the answer, so it does not
depend on how soon this process wakes. Other requests are answered at once. Every topic exists; this
broker leads all of its partitions.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from batchval.errors import BatchvalError, ErrorCode
from batchval.network.wire_times import ANCILLARY_BYTES, arrived_ns, ask_for_stamps
from batchval.protocol.apis import ApiKey
from batchval.protocol.errors import ProtocolError
from batchval.protocol.frames import FrameSplitter
from batchval.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from batchval.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from batchval.protocol.messages.end_txn import EndTxnResponse
from batchval.protocol.messages.find_coordinator import FindCoordinatorResponse
from batchval.protocol.messages.init_producer_id import InitProducerIdResponse
from batchval.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from batchval.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

__all__ = ["MAX_DELAY_US", "running"]

MAX_DELAY_US: Final = 10_000_000
#: Fetch is listed and not served: librdkafka writes batches of magic 2 only to brokers that list
#: it.
_SPOKEN: Final = (
    (ApiKey.PRODUCE, 3, 11),
    (ApiKey.FETCH, 4, 12),
    (ApiKey.METADATA, 1, 12),
    (ApiKey.FIND_COORDINATOR, 0, 3),
    (ApiKey.API_VERSIONS, 0, 3),
    (ApiKey.INIT_PRODUCER_ID, 0, 4),
    (ApiKey.ADD_PARTITIONS_TO_TXN, 0, 3),
    (ApiKey.END_TXN, 0, 3),
)
_HEADER: Final = struct.Struct(">hhi")
_SPIN_NS: Final = 100_000  # the last part of a wait: a process that sleeps may wake as late as this
_IDLE_S: Final = 1.0
_PR_SET_TIMERSLACK: Final = 29  # Linux, prctl(2)


class _Broker:
    """The broker's answers, without their timing."""

    def __init__(self, port: int, partitions: int) -> None:
        self._port, self._partitions = port, partitions
        self._producers = 0

    def answer(self, frame: memoryview) -> tuple[bytes, bool]:
        """Return the answer's frame (empty: none is wanted), and whether it is delayed.
        ProtocolError for anything unknown.
        """
        key, version, correlation_id = _HEADER.unpack_from(frame)
        response: Any
        if key == ApiKey.PRODUCE:
            _, request = ProduceRequest.parse(frame)
            if request.acks == 0:
                return b"", False
            response = _produced(request)
        elif key == ApiKey.API_VERSIONS:
            response = ApiVersionsResponse(api_keys=[ApiVersion(*one) for one in _SPOKEN])
            if version > 3:
                response.error_code, version = ErrorCode.UNSUPPORTED_VERSION, 0
        else:
            response = self._of_the_rest(key, version, frame)
        return b"".join(
            bytes(chunk) for chunk in response.encode(correlation_id, version)
        ), key == ApiKey.PRODUCE

    def _of_the_rest(self, key: int, version: int, frame: memoryview) -> Any:
        host, port = "127.0.0.1", self._port
        if key == ApiKey.METADATA:
            _, asked = MetadataRequest.parse(frame)
            parts = [
                MetadataResponsePartition(
                    partition_index=n, leader_id=1, replica_nodes=[1], isr_nodes=[1]
                )
                for n in range(self._partitions)
            ]
            topics = [
                MetadataResponseTopic(name=one.name, partitions=parts) for one in asked.topics or ()
            ]
            return MetadataResponse(
                brokers=[MetadataResponseBroker(1, host, port)], topics=topics, controller_id=1
            )
        if key == ApiKey.INIT_PRODUCER_ID:
            self._producers += 1
            return InitProducerIdResponse(producer_id=self._producers, producer_epoch=0)
        if key == ApiKey.FIND_COORDINATOR:
            return FindCoordinatorResponse(node_id=1, host=host, port=port)
        if key == ApiKey.ADD_PARTITIONS_TO_TXN:
            _, add = AddPartitionsToTxnRequest.parse(frame)
            return AddPartitionsToTxnResponse(
                results_by_topic_v3_and_below=[
                    AddPartitionsToTxnTopicResult(
                        one.name,
                        [AddPartitionsToTxnPartitionResult(part) for part in one.partitions],
                    )
                    for one in add.v3_and_below_topics
                ]
            )
        if key == ApiKey.END_TXN:
            return EndTxnResponse()
        raise ProtocolError(f"a request of API {key}, version {version}")


def _produced(request: ProduceRequest) -> ProduceResponse:
    """Return an answer that accepts every batch, at an offset that no client reads."""
    answers = []
    for topic in request.topic_data:
        parts = [
            PartitionProduceResponse(part.index, base_offset=0) for part in topic.partition_data
        ]
        answers.append(TopicProduceResponse(name=topic.name, partition_responses=parts))
    return ProduceResponse(responses=answers)


class _Peer:
    """One connection, and the answers that wait for their instant (ns of the monotonic clock),
    oldest first.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.splitter = FrameSplitter()
        self.waiting: deque[tuple[int, bytes]] = deque()


class _Responder:
    """One thread; it sleeps until shortly before the next answer is due, and spins through the
    rest.
    """

    def __init__(self, listener: socket.socket, broker: _Broker, delay_ns: int) -> None:
        self._listener, self._broker, self._delay_ns = listener, broker, delay_ns
        self._peers: dict[int, _Peer] = {}

    def serve(self, stop: int) -> None:
        """Serve until the descriptor ``stop`` can be read."""
        listener = self._listener.fileno()
        while True:
            readable, _, _ = select.select([stop, listener, *self._peers], (), (), self._rest_s())
            if stop in readable:
                return
            if listener in readable:
                self._accept()
            for descriptor in readable:
                if (peer := self._peers.get(descriptor)) is not None:
                    self._read(peer)
            self._send_due()

    def _accept(self) -> None:
        sock, _ = self._listener.accept()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ask_for_stamps(sock)
        self._peers[sock.fileno()] = _Peer(sock)

    def _end(self, peer: _Peer) -> None:
        self._peers.pop(peer.sock.fileno(), None)
        peer.sock.close()

    def _read(self, peer: _Peer) -> None:
        try:
            size, ancillary, _, _ = peer.sock.recvmsg_into(
                [peer.splitter.get_buffer(-1)], ANCILLARY_BYTES
            )
            arrived = arrived_ns(ancillary) or time.monotonic_ns()
            if not size:
                raise ConnectionResetError
            for frame in peer.splitter.buffer_updated(size):
                answer, delayed = self._broker.answer(frame)
                peer.waiting.append((arrived + self._delay_ns if delayed else 0, answer))
        except BlockingIOError:
            pass
        except (OSError, ProtocolError, struct.error):
            self._end(peer)

    def _rest_s(self) -> float:
        """Return how long to sleep: until the next answer is nearly due."""
        due = min(
            (peer.waiting[0][0] for peer in self._peers.values() if peer.waiting), default=None
        )
        if due is None:
            return _IDLE_S
        return max(0.0, (due - _SPIN_NS - time.monotonic_ns()) / 1e9)

    def _send_due(self) -> None:
        """Spin for answers that are due within the time of a wake-up."""
        for peer in list(self._peers.values()):
            while peer.waiting and peer.waiting[0][0] <= time.monotonic_ns() + _SPIN_NS:
                due, answer = peer.waiting.popleft()
                while time.monotonic_ns() < due:
                    pass
                try:
                    peer.sock.sendall(answer)
                except OSError:
                    self._end(peer)
                    break


def _wake_exactly() -> None:
    """Ask the kernel for timers without slack, where it is Linux."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--delay-us", type=int, required=True)
    parser.add_argument("--partitions", type=int, default=1)
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends when its standard input does
    _wake_exactly()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        responder = _Responder(listener, _Broker(port, options.partitions), options.delay_us * 1000)
        gc.freeze()
        gc.disable()
        print(f"listening {port}", flush=True)
        responder.serve(sys.stdin.fileno())


@contextlib.contextmanager
def running(delay_us: int, partitions: int) -> Iterator[str]:
    """Yield the address of such a broker in a process of its own.

    The process ends with the block, or with this process.

    """
    if not 0 <= delay_us <= MAX_DELAY_US:
        raise ValueError(f"delay_us is {delay_us}, expected 0 to {MAX_DELAY_US}")
    command = [sys.executable, "-m", "batchval.perf.responder"]
    command += ["--delay-us", str(delay_us), "--partitions", str(partitions)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            words = process.stdout.readline().split()
            if words[:1] != ["listening"]:
                raise BatchvalError("the built-in broker did not start: see its message above")
            yield f"127.0.0.1:{words[1]}"
        finally:
            process.stdin.close()
            process.wait(10)


if __name__ == "__main__":
    main()

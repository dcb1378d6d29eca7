"""The loop asks, reads and asks again by itself; what it cannot see to comes back, and callers
always get their turn.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from batchval.fetch.receive_loop import ReceiveLoop
from batchval.fetch.receiver import Quota, Receiver
from batchval.protocol.messages.fetch import FetchRequest, PartitionData
from tests.support.proxy import eventually
from tests.unit.fetch.test_receive import answer, data_of


def can_read(file: int | socket.socket, seconds: float) -> bool:
    """Return whether a file can be read within so many seconds, whatever its number is."""
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


@dataclass
class Broker:
    """The other end of a connection."""

    socket: socket.socket

    def read(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            some = self.socket.recv(size - len(found))
            assert some, "the loop has hung up"
            found += some
        return found

    def request(self) -> tuple[int, FetchRequest]:
        """The next one, and its correlation id."""
        (size,) = struct.unpack(">i", self.read(4))
        frame = self.read(size)
        return struct.unpack_from(">i", frame, 4)[0], FetchRequest.parse(frame)[1]

    def offset(self) -> int:
        """Of the next request, which is answered with as many batches as fit 24 offsets."""
        correlation_id, request = self.request()
        first: int = request.topics[0].partitions[0].fetch_offset
        self.socket.sendall(
            answer(
                {("t", 0): PartitionData(0, 0, 24, 24, records=data_of(9, first))},
                12,
                correlation_id,
            )
        )
        return first


def by_loopback() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        return ours, listener.accept()[0]


class Running:
    """A loop in its thread."""

    def __init__(self, timeout_ms: int) -> None:
        self.pipes = [*os.pipe(), *os.pipe()]
        for end in self.pipes:
            os.set_blocking(end, False)
        self.loop = ReceiveLoop(self.pipes[0], self.pipes[1], self.pipes[3], timeout_ms)
        self.thread = threading.Thread(target=self.loop.run)
        self.sockets: list[socket.socket] = []
        self.thread.start()

    def connect(self, receiver: Receiver, by_tcp: bool = False) -> Broker:
        ours, theirs = by_loopback() if by_tcp else socket.socketpair()
        ours.setblocking(False)
        theirs.settimeout(30)
        self.sockets += [ours, theirs]
        self.loop.add(receiver, ours.fileno())
        return Broker(theirs)

    def notified(self) -> None:
        assert can_read(self.pipes[2], 30)
        self.loop.drain(self.pipes[2])

    def close(self) -> None:
        self.loop.stop()
        self.thread.join(30)
        assert not self.thread.is_alive()
        for one in self.sockets:
            one.close()
        for end in self.pipes:
            os.close(end)


@contextmanager
def running(timeout_ms: int = 30_000) -> Iterator[Running]:
    run = Running(timeout_ms)
    try:
        yield run
    finally:
        run.close()


def asking(**settings: object) -> Receiver:
    receiver = Receiver(12, **settings)  # type: ignore[arg-type]
    receiver.add("t", 0, 0)
    return receiver


def test_it_asks_for_what_follows_and_is_asked_while_it_runs() -> None:
    began = time.monotonic_ns()
    with running() as run:
        receiver = asking()
        broker = run.connect(receiver)
        assert [broker.offset() for _ in range(3)] == [0, 12, 24]
        correlation_id, request = broker.request()
        assert request.topics[0].partitions[0].fetch_offset == 36
        counted, size = receiver.counted(), 3 * len(data_of(9))
        assert counted[:6] == (36, size, 9, size, 4, 3)
        assert 0 < counted.latency_ns_max <= counted.latency_ns < time.monotonic_ns() - began
        assert counted.lag == 12
        assert began < counted.last_ns < time.monotonic_ns()
        assert receiver.positions() == [(0, 36, 24)]
        receiver.seek(0, 5)
        receiver.add("t", 1, 7)
        broker.socket.sendall(
            answer({("t", 0): PartitionData(0, records=data_of(9, 36))}, 12, correlation_id)
        )
        _, request = broker.request()
        assert [one.fetch_offset for one in request.topics[0].partitions] == [5, 7]
        assert receiver.counted().records == 0


def test_a_partition_that_is_added_later_wakes_it() -> None:
    with running() as run:
        receiver = Receiver(12)
        broker = run.connect(receiver)
        receiver.add("t", 0, 0)
        run.loop.wake()
        assert broker.offset() == 0


def test_python_is_notified_of_what_is_returned() -> None:
    with running() as run:
        receiver = asking()
        broker = run.connect(receiver)
        correlation_id, _ = broker.request()
        broker.socket.sendall(answer({("t", 0): PartitionData(0, 6)}, 12, correlation_id))
        run.notified()
        assert receiver.returned() == [(0, 6, 0)]
        assert run.loop.ended() == []


def test_python_is_notified_of_each_block_and_wakes_it_when_one_was_used() -> None:
    with running() as run:
        receiver = asking(decode="blocks")
        broker = run.connect(receiver)
        for first in (0, 12):
            assert broker.offset() == first
            run.notified()
            assert [offset for _, _, offset, _, _ in receiver.blocks()] == [first]
        assert not can_read(broker.socket, 0.05)
        assert receiver.used(0)
        run.loop.wake()
        assert broker.offset() == 24


@pytest.mark.long
@pytest.mark.parametrize("hangs_up", [False, True])
def test_a_large_block_that_comes_slowly(hangs_up: bool) -> None:
    data = data_of(300_000)
    with running() as run:
        receiver = asking(decode="blocks")
        broker = run.connect(receiver, by_tcp=True)
        for number in range(2):
            correlation_id, _ = broker.request()
            frame = answer(
                {("t", 0): PartitionData(0, records=data_of(300_000, 12 * number))},
                12,
                correlation_id,
            )
            for at in range(0, len(frame), 500_001):
                broker.socket.sendall(frame[at : at + 500_001])
                time.sleep(0.01)
            run.notified()
            ((_, records, *_),) = receiver.blocks()
            assert records == data_of(300_000, 12 * number)
            receiver.used(0)
        correlation_id, _ = broker.request()
        broker.socket.sendall(
            answer({("t", 0): PartitionData(0, records=data)}, 12, correlation_id)[:-9_000]
        )
        if hangs_up:
            broker.socket.close()
            run.notified()
            assert run.loop.ended() == [(receiver, "")]
        assert receiver.blocks() == []


def test_a_receiver_that_is_removed_before_the_thread_has_seen_it() -> None:
    wake, wake_end, notified, notify = *os.pipe(), *os.pipe()
    loop = ReceiveLoop(wake, wake_end, notify, 1_000)
    ours, theirs = socket.socketpair()
    receiver = asking(decode="blocks")
    loop.add(receiver, ours.fileno())
    loop.remove(receiver)
    thread = threading.Thread(target=loop.run)
    thread.start()
    loop.stop()
    thread.join(30)
    assert not thread.is_alive()
    assert receiver.positions() == [(0, 0, -1)]
    for end in (ours, theirs):
        end.close()
    for number in (wake, wake_end, notified, notify):
        os.close(number)


def test_one_notification_stands_until_python_looks() -> None:
    with running() as run:
        receiver = asking(decode="blocks")
        broker = run.connect(receiver)
        assert [broker.offset(), broker.offset()] == [0, 12]
        eventually(lambda: receiver.positions()[0][1] == 24)
        run.notified()
        assert not can_read(run.pipes[2], 0.05)
        assert len(receiver.blocks()) == 2


@pytest.mark.parametrize(
    "sent", [b"", struct.pack(">ii", 8, 9)], ids=["hangs up", "another's answer"]
)
def test_python_is_notified_of_a_connection_that_ends(sent: bytes) -> None:
    with running() as run:
        receiver, other = asking(), asking()
        broker, healthy = run.connect(receiver), run.connect(other)
        broker.offset()
        broker.request()
        broker.socket.sendall(sent)
        broker.socket.shutdown(socket.SHUT_WR)
        run.notified()
        assert run.loop.ended() == [(receiver, "an answer to another request" if sent else "")]
        run.loop.remove(receiver)
        assert run.loop.ended() == []
        assert receiver.positions() == [(0, 12, 24)]
        assert healthy.offset() == 0  # others go on
        assert healthy.offset() == 12


def test_an_answer_that_does_not_come_in_time_ends_the_connection() -> None:
    with running(timeout_ms=50) as run:
        receiver = asking()
        broker = run.connect(receiver)
        broker.request()
        run.notified()
        assert run.loop.ended() == [(receiver, "no answer in 50 ms")]


def test_the_client_is_silent_as_long_as_the_broker_asks() -> None:
    with running() as run:
        broker = run.connect(asking())
        correlation_id, _ = broker.request()
        began = time.monotonic()
        broker.socket.sendall(
            answer({("t", 0): PartitionData(0)}, 12, correlation_id, throttle_time_ms=60)
        )
        broker.request()
        assert time.monotonic() - began >= 0.055


def test_nothing_is_asked_when_the_quota_is_used_up() -> None:
    with running() as run:
        receiver = asking(quota=Quota(13))
        broker = run.connect(receiver)
        assert [broker.offset(), broker.offset()] == [0, 12]
        run.notified()
        assert receiver.counted().records == 13
        assert receiver.positions() == [(0, 13, 24)]
        assert not can_read(broker.socket, 0.05)


def test_a_request_larger_than_the_socket_takes_is_sent_whole() -> None:
    with running() as run:
        receiver = Receiver(12)
        for index in range(30_000):
            receiver.add("t", index, index)
        broker = run.connect(receiver)
        _, request = broker.request()
        assert [one.fetch_offset for one in request.topics[0].partitions] == list(range(30_000))


def test_callers_have_their_turn_while_bytes_come_without_end() -> None:
    with running() as run:
        receiver = asking()
        broker = run.connect(receiver)
        stop = threading.Event()

        def send() -> None:
            data = data_of(9, 0, 40)
            while not stop.is_set():
                correlation_id, _ = broker.request()
                broker.socket.sendall(
                    answer({("t", 0): PartitionData(0, records=data)}, 12, correlation_id)
                )
                receiver.seek(0, 0)

        sender = threading.Thread(target=send)
        sender.start()
        for _ in range(200):
            receiver.positions()
        stop.set()
        sender.join(30)
        assert receiver.counted().requests > 0


def test_a_receiver_has_one_owner() -> None:
    with running() as run:
        receiver = asking()
        run.connect(receiver).request()
        for call in (
            receiver.request,
            lambda: receiver.feed(b"x"),
            lambda: run.connect(receiver),
            run.loop.run,
        ):
            with pytest.raises(RuntimeError):
                call()

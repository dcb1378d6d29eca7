"""The messages of workers and their parent, and a worker's view of the cluster."""

from __future__ import annotations

import asyncio
import logging
import pickle
import socket
import threading
from typing import Any

import pytest

from batchval.proxy.cluster.discovery import ClusterNews, Discovery, DiscoveryOptions
from batchval.proxy.cluster.endpoints import EndpointState
from batchval.proxy.cluster.listening_sockets import Port
from batchval.proxy.workers.channel import Channel, Pairs, connection_of, encoded, pass_connection
from batchval.proxy.workers.control_messages import (
    AddressFailed,
    AddressReached,
    Closed,
    Drain,
    Heartbeat,
    Learned,
    PassedHeader,
    PortAnswer,
    PortOf,
    RefreshMetadata,
    Unauthenticated,
)
from batchval.proxy.workers.worker_discovery import ParentQuestions, RemotePorts, ReportsToParent


def test_a_connection_is_passed_with_its_header(pairs: tuple[Pairs, Pairs]) -> None:
    ours, theirs = pairs
    header = PassedHeader(9, "edge", 3, (9095, ("kafka", 9092)))
    one, other = socket.socketpair()
    with other:
        pass_connection(ours.passing, header, one)
        one.close()
        passed = connection_of(theirs.passing)
        assert passed is not None
        found, connection = passed
        assert found == header
        assert connection is not None
        assert not connection.get_inheritable()
        with connection:
            connection.sendall(b"x")
            assert other.recv(1) == b"x"
    with pytest.raises(BlockingIOError):
        connection_of(theirs.passing)
    ours.passing.close()
    assert connection_of(theirs.passing) is None


def test_a_worker_that_takes_nothing_does_not_block_its_parent(pairs: tuple[Pairs, Pairs]) -> None:
    ours, _ = pairs
    one, other = socket.socketpair()

    def pass_all() -> None:
        for number in range(100_000):
            pass_connection(ours.passing, PassedHeader(number, "edge", None, None), one)

    with one, other, pytest.raises(BlockingIOError):
        pass_all()


async def test_messages_come_whole_and_in_order_however_they_are_cut(
    pairs: tuple[Pairs, Pairs],
) -> None:
    ours, theirs = pairs
    received: list[object] = []
    ended = asyncio.Event()
    channel = Channel(received.append, ended.set)
    await channel.open(ours.control)
    messages = [Drain(1.0), Closed(list(range(50_000))), Heartbeat(3)]
    data = b"".join(map(encoded, messages))
    loop = asyncio.get_running_loop()
    theirs.control.setblocking(False)
    for cut in (data[:3], data[3:9], data[9:100_000], data[100_000:]):
        await loop.sock_sendall(theirs.control, cut)
        await asyncio.sleep(0.001)
    theirs.control.close()
    await asyncio.wait_for(ended.wait(), 10)
    assert received == messages
    channel.send(Heartbeat(4))  # nobody is there


def test_a_late_answer_is_not_taken_for_that_of_the_next_question(
    pairs: tuple[Pairs, Pairs],
) -> None:
    ours, theirs = pairs
    asking = ParentQuestions(theirs.asking, timeout_s=0.05)
    with pytest.raises(OSError, match=r"parent process did not answer in 0\.05 s"):
        asking("first")
    asking = ParentQuestions(theirs.asking, timeout_s=10)
    asking._number = 1

    def answer() -> None:
        for _ in range(2):
            number, question = pickle.loads(ours.asking.recv(1000))
            ours.asking.send(pickle.dumps((number, question.upper())))

    thread = threading.Thread(target=answer)
    thread.start()
    assert asking("second") == "SECOND"
    thread.join()
    ours.asking.close()
    with pytest.raises(OSError, match=r"(?i)ended|broken pipe"):
        asking("third")


KAFKA = ("kafka", 9092)


class Parent:
    """A parent that answers with a port, and keeps what is reported."""

    def __init__(self) -> None:
        self.reported: list[object] = []
        self.asked: list[object] = []
        self.answer: object = PortAnswer({("edge", 1): 9093})

    def __call__(self, question: object) -> object:
        self.asked.append(question)
        return self.answer

    def follower(self) -> Discovery:
        options = DiscoveryOptions((KAFKA,))
        report: Any = self.reported.append
        asking: Any = self
        return Discovery(options, ReportsToParent("instance", report, asking))


def news(**more: Any) -> ClusterNews:
    known: dict[str, Any] = {
        "brokers": {1: KAFKA},
        "cluster_id": "c",
        "requires_authentication": False,
    }
    known |= {"endpoints": {KAFKA: (EndpointState.SERVING, "")}, "ports": {("edge", 1): 9093}}
    return ClusterNews(**(known | more))


def test_a_worker_follows_its_parent_and_reports_what_is_new(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "batchval.proxy")
    parent = Parent()
    follower = parent.follower()
    assert follower.unready() is not None
    follower.follow(news())
    assert (follower.unready(), follower.brokers, follower.requires_authentication) == (
        None,
        {1: KAFKA},
        False,
    )
    follower.reached(KAFKA)
    follower.answered_without_authentication()
    follower.learn(1, *KAFKA)
    assert parent.reported == []
    follower.learn(2, "other", 9092)
    follower.learn(1, "moved", 9092)
    follower.failed(KAFKA, ConnectionRefusedError(111, "refused"))
    follower.failed(KAFKA, ConnectionRefusedError(111, "refused"))
    follower.reached(KAFKA)
    assert parent.reported == [
        Learned(2, "other", 9092),
        Learned(1, "moved", 9092),
        AddressFailed(KAFKA, "Connection refused"),
        AddressReached(KAFKA),
    ]
    assert caplog.messages == []  # the parent writes these lines
    follower.follow(news(requires_authentication=None))
    follower.answered_without_authentication()
    assert parent.reported[4:] == [Unauthenticated()]
    follower.failed(KAFKA, OSError(24, "Too many open files"))  # this process' own matter
    assert len(parent.reported) == 5
    assert "was not tried: Too many open files" in caplog.text


async def test_a_worker_lets_its_parent_ask_the_brokers() -> None:
    parent = Parent()
    follower = parent.follower()
    before = asyncio.all_tasks()
    await follower.start()
    assert asyncio.all_tasks() == before
    for _ in range(2):  # the parent knows how often it may ask
        follower.look()
    assert parent.reported == [RefreshMetadata(), RefreshMetadata()]
    await follower.stop()


def test_a_worker_forgets_the_brokers_of_another_cluster_as_its_parent_does() -> None:
    follower = Parent().follower()
    follower.follow(news())
    follower.learn(2, "other", 9092)
    follower.follow(news())  # sent before the parent knew of broker 2
    assert sorted(follower.brokers) == [1, 2]
    follower.follow(news(cluster_id="another", brokers={3: KAFKA}))
    assert follower.brokers == {3: KAFKA}


def test_the_parent_is_asked_for_its_own_requests_alone() -> None:
    parent = Parent()
    follower = parent.follower()
    assert not follower.is_own_request("a client")
    assert parent.asked == []
    parent.answer = True
    assert follower.is_own_request("instance-0")
    parent.answer = False
    assert not follower.is_own_request("instance-1")


def test_ports_are_the_parents() -> None:
    parent = Parent()
    ports = RemotePorts(parent, {1: KAFKA, 2: ("two", 1)}.__getitem__)  # type: ignore[arg-type]
    ports.note({("edge", None): 9092})
    assert ports.open(("edge", None), "", [0]) == Port(9092, None)
    assert parent.asked == []
    for _ in range(2):
        assert ports.open(("edge", 1), "", [9100, 0]) == Port(9093, None)
    assert parent.asked == [PortOf("edge", 1, KAFKA)]
    parent.answer = PortAnswer({}, (98, "Address already in use"))
    with pytest.raises(OSError, match="Address already in use"):
        ports.open(("edge", 2), "", [0])

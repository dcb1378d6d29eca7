"""Test metadata and coordinators, from scripted brokers and from librdkafka's mock cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest

from batchval.errors import ErrorCode
from batchval.network.client import ConsumerNetworkClient
from batchval.network.cluster_metadata import ClusterMetadata, bootstrap_nodes
from batchval.network.coordinator import GROUP, TRANSACTION, find_coordinator
from batchval.network.errors import (
    AuthorizationError,
    BrokerError,
    ClosedError,
    RequestTimeoutError,
    UnknownTopicOrPartitionError,
)
from batchval.network.request import Node
from batchval.network.version_negotiation import ApiVersions
from batchval.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from batchval.protocol.messages.metadata import MetadataResponse
from tests.support.broker_node import BrokerNode, metadata, unknown_topic
from tests.support.network import client_options, closed_port, until


def client() -> ConsumerNetworkClient:
    return ConsumerNetworkClient(
        client_options({"splitter": _splitter()}, network_api_versions=ApiVersions())
    )


def _splitter() -> Any:
    from batchval.protocol.frames import FrameSplitter

    return FrameSplitter


def of(broker: BrokerNode, c: ConsumerNetworkClient, **options: Any) -> ClusterMetadata:
    return ClusterMetadata(c, bootstrap_nodes([broker.address]), retry_backoff_ms=20, **options)


def answering(*answers: Callable[[BrokerNode], MetadataResponse]) -> BrokerNode:
    """Each Metadata request gets the next of the answers, the last again and again."""
    left = list(answers)
    broker: BrokerNode

    def answer(_: Any) -> MetadataResponse:
        return (left.pop(0) if len(left) > 1 else left[0])(broker)

    broker = BrokerNode({3: answer})
    return broker


def test_addresses() -> None:
    assert bootstrap_nodes(["a:1,SSL://b.c:2", "[::1]:3"]) == [
        Node(-1, "a", 1),
        Node(-2, "b.c", 2),
        Node(-3, "::1", 3),
    ]
    for wrong in ("a", "a:", "a:0", "a:65536", ":1", "a:b", "a b"):
        with pytest.raises(ValueError, match="expected host:port"):
            bootstrap_nodes([wrong])
    with pytest.raises(ValueError, match=r"bootstrap servers .*: expected at least one"):
        bootstrap_nodes([","])


async def test_a_topic_is_waited_for_until_it_is_made() -> None:
    def not_yet(b: BrokerNode) -> MetadataResponse:
        return MetadataResponse(
            brokers=metadata({1: b.port}, {}).brokers, topics=[unknown_topic("t")]
        )

    broker = answering(
        not_yet, not_yet, lambda b: metadata({1: b.port}, {"t": [(1, 4), (-1, 4), (9, 2)]})
    )
    async with broker, client() as c:
        known = of(broker, c)
        assert known.partitions("t") == 0
        assert known.leader("t", 0) is None
        assert await known.wait_for("t", 10_000) == 3
        node = Node(1, "127.0.0.1", broker.port)
        assert [known.leader("t", n) for n in range(4)] == [node, None, None, None]
        assert [known.leader_epoch("t", n) for n in range(4)] == [4, 4, 2, -1]
        assert known.nodes() == [node]
        assert known.node(1) == node
        assert known.error("t") is None
        assert known.topic_id("t") == b"t".ljust(16, b"\0")
        assert len(broker.of(3)) == 3
        assert broker.of(3)[0].allow_auto_topic_creation
        known.close()


async def test_an_answer_is_that_of_its_request() -> None:
    seen: list[tuple[int, int]] = []

    def answer(b: BrokerNode) -> MetadataResponse:
        seen.append((known.asked, known.answered))
        return metadata({1: b.port}, {"t": [(1, 4)]})

    async with answering(answer) as broker, client() as c:
        known = of(broker, c)
        assert await known.wait_for("t", 10_000) == 1
        assert (known.asked, known.answered) == (1, 1)
        known.request_update()
        await until(lambda: known.answered == 2)
        assert seen == [(1, 0), (2, 1)]
        known.close()


@pytest.mark.parametrize(
    ("code", "kind"),
    [(3, UnknownTopicOrPartitionError), (29, AuthorizationError), (17, BrokerError)],
)
async def test_a_topic_that_there_is_not(code: int, kind: type[BrokerError]) -> None:
    def none(b: BrokerNode) -> MetadataResponse:
        return MetadataResponse(
            brokers=metadata({1: b.port}, {}).brokers, topics=[unknown_topic("t", code)]
        )

    async with answering(none) as broker, client() as c:
        known = of(broker, c, allow_auto_topic_creation=False)
        with pytest.raises(kind, match=f"topic t: {ErrorCode(code).name}") as raised:
            await known.wait_for("t", 200)
        assert raised.value.code == code
        assert known.error("t") is ErrorCode(code)
        assert not broker.of(3)[0].allow_auto_topic_creation
        assert len(broker.of(3)) == 1 if code != 3 else len(broker.of(3)) > 1
        known.close()


async def test_nobody_there_is_reported_after_the_time() -> None:
    async with client() as c:
        known = ClusterMetadata(c, [Node(-1, "127.0.0.1", closed_port())], retry_backoff_ms=20)
        with pytest.raises(
            RequestTimeoutError, match=r"no metadata .* in 300 ms: .*(Connect call|refused)"
        ):
            await known.update(["t"], 300)
        with pytest.raises(RequestTimeoutError, match="no coordinator of group g in 200 ms"):
            await find_coordinator(c, known, "g", GROUP, 200)
        known.close()


async def test_an_older_epoch_never_replaces_a_newer_one_but_a_new_topic_does() -> None:
    two = {1: 9, 2: 9}
    broker = answering(
        lambda b: metadata({**two, 1: b.port}, {"t": [(1, 5)]}),
        lambda b: metadata({**two, 1: b.port}, {"t": [(2, 4)]}),
        lambda b: metadata({**two, 1: b.port}, {"t": [(2, 6)]}),
        lambda b: metadata({**two, 1: b.port}, {"t": [(1, 0)]}, {"t": b"another".ljust(16)}),
    )
    async with broker, client() as c:
        known = of(broker, c)
        known.follow("t")
        seen = []
        for _ in range(4):
            await known.update(timeout_ms=5_000)
            leader = known.leader("t", 0)
            assert leader is not None
            seen.append((leader.id, known.leader_epoch("t", 0)))
        known.close()
    # the background may have asked in between: what came first and last holds in any case
    assert seen[-1] == (1, 0)
    assert (2, 4) not in seen


async def test_an_epoch_that_no_other_answer_has_does_not_hold_for_ever() -> None:
    """Take an absurd epoch once: 20 answers that contradict it are believed."""
    async with answering(lambda b: metadata({1: b.port}, {"t": [(1, 5)]})) as broker, client() as c:
        known = of(broker, c)
        await known.wait_for("t", 5_000)
        assert known.leader_is("t", 0, 7, 2**31 - 1, ("127.0.0.1", 1234))
        epochs = []
        for _ in range(21):
            await known.update(["t"], timeout_ms=5_000)
            epochs.append(known.leader_epoch("t", 0))
        known.close()
    assert epochs == [2**31 - 1] * 20 + [5]


@pytest.mark.parametrize("numbers", [[0, 0], [1, 2], [-1, 0], [2**31 - 1], [0, 2]])
async def test_partitions_that_cannot_be_a_topics_are_another_brokers_to_answer(
    numbers: list[int],
) -> None:
    def senseless(broker: BrokerNode) -> MetadataResponse:
        answer = metadata({1: broker.port}, {"t": [(1, 5)] * len(numbers)})
        for part, number in zip(answer.topics[0].partitions, numbers, strict=True):
            part.partition_index = number
        return answer

    good = lambda b: metadata({1: b.port}, {"t": [(1, 5)] * 3})  # noqa: E731
    async with answering(senseless, senseless, good) as broker, client() as c:
        known = of(broker, c)
        assert await known.wait_for("t", 5_000) == 3
        assert len(broker.of(3)) >= 3
        known.close()
    async with answering(senseless) as broker, client() as c:
        known = of(broker, c)
        with pytest.raises(RequestTimeoutError, match="partitions of topic t are not 0 to"):
            await known.wait_for("t", 200)
        known.close()


@pytest.mark.parametrize(
    "at", [(-1, "h", 7), (5, "", 7), (5, "h", 0), (5, "h", -5), (5, "h", 70_000)]
)
async def test_a_coordinator_that_cannot_be_is_asked_for_again(at: tuple[int, str, int]) -> None:
    answers = [at, at, (5, "h", 7)]

    def answer(_: Any) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(coordinators=[Coordinator("g", *answers.pop(0))])

    async with BrokerNode({10: answer}) as broker, client() as c:
        known = of(broker, c)
        assert await find_coordinator(c, known, "g", TRANSACTION, 10_000) == Node(5, "h", 7)
        assert len(broker.of(10)) == 3
        known.close()


async def test_what_other_answers_say_of_leaders() -> None:
    async with answering(lambda b: metadata({1: b.port}, {"t": [(1, 5)]})) as broker, client() as c:
        known = of(broker, c)
        changes: list[int] = []
        known.add_listener(lambda: changes.append(known.leader_epoch("t", 0)))
        await known.wait_for("t", 5_000)
        assert not known.leader_is("t", 0, 1, 5)  # no news
        assert not known.leader_is("t", 0, 7, 6)  # who is that?
        assert not known.leader_is("other", 0, 1, 6)
        assert known.leader_is("t", 0, 7, 6, ("127.0.0.1", 1234))
        assert known.leader("t", 0) == Node(7, "127.0.0.1", 1234)
        assert changes == [5, 6]
        known.close()


async def test_updates_in_the_background() -> None:
    leader = [1]
    broker = answering(lambda b: metadata({1: b.port, 2: b.port}, {"t": [(leader[0], leader[0])]}))
    async with broker, client() as c:
        known = of(broker, c, max_age_ms=60)
        known.follow("t")
        await until(lambda: known.leader_epoch("t", 0) == 1)
        leader[0] = 2
        known.request_update()
        known.request_update()
        await until(lambda: known.leader_epoch("t", 0) == 2)
        asked = len(broker.of(3))
        await until(lambda: len(broker.of(3)) >= asked + 3)  # by age alone
        known.close()
        asked = len(broker.of(3))
        await asyncio.sleep(0.15)
        assert len(broker.of(3)) == asked


async def test_the_bootstrap_address_is_asked_again_when_all_brokers_are_gone() -> None:
    broker = answering(
        lambda b: metadata({1: closed_port()}, {"t": [(1, 1)]}),
        lambda b: metadata({2: b.port}, {"t": [(2, 2)]}),
    )
    async with broker, client() as c:
        known = of(broker, c)
        await known.update(["t"], 5_000)
        assert known.leader_epoch("t", 0) == 1
        await known.update(["t"], 5_000)
        assert known.leader("t", 0) == Node(2, "127.0.0.1", broker.port)
        known.close()


async def test_all_topics_by_a_pattern() -> None:
    topics: dict[str, list[tuple[int, int]]] = {"aa": [(1, 0)], "ab": [(1, 0)], "b": [(1, 0)]}
    async with answering(lambda b: metadata({1: b.port}, topics)) as broker, client() as c:
        known = of(broker, c)
        assert await known.matching("a.") == ["aa", "ab"]
        assert broker.of(3)[0].topics is None
        assert not broker.of(3)[0].allow_auto_topic_creation
        del topics["ab"]
        assert await known.matching("a.|b") == ["aa", "b"]
        known.close()


async def test_a_closed_client_is_not_asked_for_ever() -> None:
    async with answering(lambda b: metadata({1: b.port}, {})) as broker:
        async with client() as c:
            known = of(broker, c)
            await known.update(["t"], 5_000)
        with pytest.raises(ClosedError):
            await known.update(["t"], 5_000)
        known.close()


@pytest.mark.parametrize("latest", [0, 1, 3, 4, 6])
async def test_coordinators_in_all_versions(latest: int) -> None:
    errors = [15, 16, 0]

    def answer(request: Any) -> FindCoordinatorResponse:
        error = errors.pop(0) if errors else 0
        if request.api_version < 4:
            assert request.key == "g"
            return FindCoordinatorResponse(error_code=error, node_id=5, host="h", port=7)
        assert request.coordinator_keys == ["g"]
        return FindCoordinatorResponse(coordinators=[Coordinator("g", 5, "h", 7, error)])

    async with BrokerNode({10: answer}, ranges={10: (0, latest)}) as broker, client() as c:
        known = of(broker, c)
        assert await find_coordinator(c, known, "g", GROUP, 10_000) == Node(2**31 - 6, "h", 7)
        assert len(broker.of(10)) == 3
        if latest:
            assert await find_coordinator(c, known, "g", TRANSACTION, 10_000) == Node(5, "h", 7)
            assert broker.of(10)[-1].key_type == TRANSACTION
        known.close()


async def test_a_group_that_is_refused_is_not_asked_for_again() -> None:
    refused = FindCoordinatorResponse(coordinators=[Coordinator("g", -1, "", -1, 30)])
    async with BrokerNode({10: lambda _: refused}) as broker, client() as c:
        known = of(broker, c)
        with pytest.raises(AuthorizationError, match="group g: GROUP_AUTHORIZATION_FAILED"):
            await find_coordinator(c, known, "g", GROUP, 10_000)
        assert len(broker.of(10)) == 1
        known.close()


async def test_a_mock_cluster_of_librdkafka() -> None:
    """Its flexible Metadata answers end with a byte that no version has."""
    owner = confluent_kafka.Producer({"test.mock.num.brokers": 3, "log_level": 0})
    brokers = (await asyncio.to_thread(owner.list_topics, timeout=10)).brokers
    async with client() as c:
        known = ClusterMetadata(
            c, bootstrap_nodes([f"{one.host}:{one.port}" for one in brokers.values()])
        )
        count = await known.wait_for("some", 15_000)
        partitions = (
            (await asyncio.to_thread(owner.list_topics, "some", 10)).topics["some"].partitions
        )
        assert count == len(partitions)
        leaders = [known.leader("some", number) for number in range(count)]
        assert [leader and leader.id for leader in leaders] == [
            partitions[number].leader for number in range(count)
        ]
        coordinator = await find_coordinator(c, known, "g", GROUP, 10_000)
        assert 2**31 - 1 - coordinator.id in brokers
        known.close()

"""A consumer that has lost its membership, or has left: what it may commit."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from batchval.fetch import CommitFailedError, Consumer, ConsumerOptions
from batchval.fetch.assignor import write_assignment
from batchval.fetch.subscription_state import TopicPartition
from batchval.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from batchval.protocol.messages.heartbeat import HeartbeatResponse
from batchval.protocol.messages.join_group import JoinGroupResponse
from batchval.protocol.messages.leave_group import LeaveGroupResponse
from batchval.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from batchval.protocol.messages.sync_group import SyncGroupResponse
from tests.support.broker_node import BrokerNode, metadata

TP = TopicPartition("t", 0)


class Coordinating(BrokerNode):
    """A broker that coordinates group g, whose members get t-0. ``heartbeat`` is its error code."""

    def __init__(self) -> None:
        super().__init__({3: lambda _: metadata({1: self.port}, {"t": [(1, 1)]})})
        self.heartbeat = 0
        commit = OffsetCommitResponseTopic("t", partitions=[OffsetCommitResponsePartition(0)])
        joined = JoinGroupResponse(generation_id=1, leader="another", member_id="me")
        self.handlers |= {
            8: lambda _: OffsetCommitResponse(topics=[commit]),
            10: lambda _: FindCoordinatorResponse(
                coordinators=[Coordinator("g", 1, "127.0.0.1", self.port)]
            ),
            11: lambda _: joined,
            12: lambda _: HeartbeatResponse(error_code=self.heartbeat),
            13: lambda _: LeaveGroupResponse(),
            14: lambda _: SyncGroupResponse(assignment=write_assignment([TP])),
        }


@asynccontextmanager
async def member(**more: Any) -> AsyncIterator[tuple[Coordinating, Consumer]]:
    """A consumer that has joined, and is at offset 5 of t-0. It is not closed."""
    async with Coordinating() as broker:
        consumer = Consumer(
            ConsumerOptions(
                bootstrap_servers=[broker.address],
                group_id="g",
                heartbeat_interval_ms=10,
                session_timeout_ms=1_000,
                **more,
            )
        )
        async with consumer, asyncio.timeout(30):
            consumer.subscribe(re.compile("t") if more.get("client_id") == "pattern" else "t")
            group = consumer._group
            assert group is not None
            group.start_joining()
            assert group.joining is not None
            assigned, group.joining = await group.joining, None
            consumer._assigned(assigned)
            await consumer.seek(TP, 5)
            yield broker, consumer


async def lost(broker: Coordinating, consumer: Consumer, how: str) -> None:
    group = consumer._group
    assert group is not None
    if how == "max_poll_interval_ms":
        group.last_poll_s = -1e9
    else:
        broker.heartbeat = 25  # UNKNOWN_MEMBER_ID
    while not group.lost:
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("client_id", ["names", "pattern"])
@pytest.mark.parametrize("how", ["max_poll_interval_ms", "heartbeat"])
async def test_a_consumer_that_lost_its_membership_commits_nothing(
    how: str, client_id: str
) -> None:
    async with member(client_id=client_id) as (broker, consumer):
        await consumer.commit()
        assert [request.generation_id_or_member_epoch for request in broker.of(8)] == [1]
        await lost(broker, consumer, how)
        with pytest.raises(CommitFailedError, match="not a member of group g: nothing was"):
            await consumer.commit()
        assert len(broker.of(8)) == 1


@pytest.mark.parametrize("is_lost", [True, False])
async def test_the_last_commit_is_that_of_a_member(
    is_lost: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with member(enable_auto_commit=True) as (broker, consumer):
        if is_lost:
            await lost(broker, consumer, "heartbeat")
        await consumer.close()
        assert len(broker.of(8)) == (not is_lost)
        assert "commit" not in caplog.text


async def test_a_consumer_that_has_unsubscribed_commits_without_a_generation() -> None:
    async with member() as (broker, consumer):
        await consumer.unsubscribe()
        consumer.assign([TP])
        await consumer.commit({TP: 7})
        assert [request.generation_id_or_member_epoch for request in broker.of(8)] == [-1]

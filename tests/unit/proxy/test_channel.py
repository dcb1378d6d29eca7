"""Messages of a worker that wait for the next turn of their reader's event loop."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest

from batchval.proxy.workers.channel import Channel, encoded
from batchval.proxy.workers.control_messages import Heartbeat, RefreshMetadata


class FakeTransport:
    """Notes what a channel asks for."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def is_closing(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        return partial(self.calls.append, name)


async def test_messages_of_one_read_are_taken_in_several_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The parent's event loop belongs to others, too: here a turn has time for one message.
    monkeypatch.setattr("batchval.proxy.workers.channel.TURN_S", 0)
    received: list[object] = []
    channel, transport = Channel(received.append, lambda: received.append("ended")), FakeTransport()
    channel.connection_made(transport)  # type: ignore[arg-type]
    messages = [Heartbeat(number) for number in range(5)]
    data = b"".join(map(encoded, messages))
    channel.data_received(data[:-1])
    assert (received, transport.calls) == (messages[:1], ["pause_reading"])
    channel.data_received(data[-1:])  # nothing overtakes what waits
    assert received == messages[:1]
    await asyncio.sleep(0)
    assert received == messages[:2]
    channel.connection_lost(None)
    for _ in range(4):
        await asyncio.sleep(0)
    assert received == [*messages, "ended"]


async def test_reading_goes_on_once_all_messages_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchval.proxy.workers.channel.TURN_S", 0)
    received: list[object] = []
    channel, transport = Channel(received.append, lambda: None), FakeTransport()
    channel.connection_made(transport)  # type: ignore[arg-type]
    channel.data_received(encoded(RefreshMetadata()) * 2)
    await asyncio.sleep(0)
    assert (received, transport.calls) == (
        [RefreshMetadata()] * 2,
        ["pause_reading", "resume_reading"],
    )
    channel.data_received(encoded(RefreshMetadata()) * 2)
    channel.close()  # what waits is for a process that has ended
    await asyncio.sleep(0)
    assert received == [RefreshMetadata()] * 3


async def test_a_defect_of_a_receiver_ends_the_channel() -> None:
    channel, transport = (
        Channel(Mock(side_effect=ValueError("a defect")), lambda: None),
        FakeTransport(),
    )
    channel.connection_made(transport)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a defect"):
        channel.data_received(encoded(RefreshMetadata()))
    assert transport.calls == ["abort"]

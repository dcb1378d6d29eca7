"""Old consumers: their requests raised, their answers converted, in order and within bounds.

A session without sockets: the test plays the client and the broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
import struct
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from batchval.protocol.apis import APIS, ApiKey
from batchval.protocol.frame_memory import allocated
from batchval.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from batchval.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from batchval.protocol.old_fetch import WantedPartition
from batchval.protocol.old_versions import CONSUMERS
from batchval.proxy.session import budget, fetch_down_conversion, version_bridge
from batchval.proxy.session import session as session_module
from batchval.proxy.session.connections import CONVERTING, VALIDATING
from batchval.proxy.session.fast_path import Routes
from batchval.proxy.session.old_fetches import MAX_FAULTS, OldFetches
from batchval.proxy.session.requests import Answer
from batchval.proxy.session.session import Session
from batchval.proxy.session.session_states import SessionState
from tests.support.batches import GZIP, NOW, ZSTD, batch, record, records
from tests.support.network import until
from tests.support.old_fetches import (
    Fetched,
    OldConsumer,
    answered,
    fetch_frame,
    messages_in,
    request,
)
from tests.support.proxy import RunningProxy, ScriptedBroker, eventually, limits_with, other_frame
from tests.unit.proxy.test_fast_path import Place
from tests.unit.proxy.test_session_order import Rig, ids, run

pytestmark = pytest.mark.usefixtures("unhurried")

CONTROL, TRANSACTIONAL = 0x20, 0x10
ABORT = struct.pack(">hh", 0, 0)
OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE, NOT_LEADER, STORAGE_ERROR = 1, 2, 6, 56


class Bridge(Rig):
    """A gate with old consumers, whose conversions wait for ``go``."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("bridge", ("consumers",))
        super().__init__(**options)

    def fetch(
        self, version: int, offset: int, most: int = 1 << 20, partition: int = 0, **options: Any
    ) -> FetchRequest:
        """Ask as an old consumer; return what the broker was asked."""
        self.send(fetch_frame(version, 7, {("t", partition): (offset, most)}, **options))
        _, asked = FetchRequest.parse(self.asked()[-1])
        return asked

    def reply(self, *parts: PartitionData, more: bytes = b"", error_code: int = 0) -> None:
        """Answer the last request, with ``more`` frames in the same read."""
        response = FetchResponse(
            error_code=error_code,
            throttle_time_ms=0,
            responses=[FetchableTopicResponse("t", partitions=list(parts))],
        )
        wire_id = struct.unpack_from(">i", self.asked()[-1], 4)[0]
        self.read(self.up, b"".join(response.encode(wire_id, 10)) + more)

    async def fetched(
        self, version: int, offset: int, *batches: bytes, most: int = 1 << 20, **part: Any
    ) -> Fetched:
        """Return what a consumer gets for one partition with these batches."""
        before = len(self.got())
        self.fetch(version, offset, most)
        self.reply(PartitionData(0, high_watermark=100, records=b"".join(batches), **part))
        await until(lambda: len(self.got()) > before)
        assert self.session.requests.waiting == 0
        return answered(self.got()[-1], version)["t", 0]


def kept(rig: Bridge) -> int:
    """Return the bytes that the session keeps for pending answers."""
    return sum(one.held for one in rig.session.requests.answers if isinstance(one, Answer))


def list_offsets(correlation_id: int, partitions: int) -> bytes:
    """Return a ListOffsets 0 that needs both requests of the gate's own."""
    parts = b"".join(struct.pack(">iqi", n, 5, 2) for n in range(partitions))
    body = struct.pack(">iih1si", -1, 1, 1, b"t", partitions) + parts
    return request(ApiKey.LIST_OFFSETS, 0, correlation_id, body)


def offsets_answer(frame: bytes) -> bytes:
    """Answer a ListOffsets 1 of ``list_offsets``."""
    parts = b"".join(struct.pack(">ihqq", n, 0, -1, 7) for n in range((len(frame) - 28) // 12))
    body = frame[4:8] + struct.pack(">ih1si", 1, 1, b"t", len(parts) // 22) + parts
    return struct.pack(">i", len(body)) + body


def control(offset: int, producer_id: int = 1) -> bytes:
    marker = record(key=ABORT, value=bytes(6))
    return batch(
        [marker], base_offset=offset, producer_id=producer_id, attributes=CONTROL | TRANSACTIONAL
    )


# ---- requests ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4))
def test_a_request_is_raised_and_bounded(version: int) -> None:
    async def test() -> None:
        rig = Bridge()
        asked = rig.fetch(version, 5, most=1 << 30, max_wait_ms=300, min_bytes=2, max_bytes=1 << 30)
        assert asked.api_version == 10
        assert (asked.max_wait_ms, asked.min_bytes, asked.isolation_level) == (300, 2, 0)
        assert asked.max_bytes == version_bridge.MAX_FETCHED_BYTES
        ((topic),) = asked.topics
        ((part),) = topic.partitions
        assert (topic.topic, part.partition, part.fetch_offset) == ("t", 0, 5)
        assert part.partition_max_bytes == version_bridge.MAX_FETCHED_BYTES
        assert rig.counters.requests_raised_total == 1

    run(test)


def test_one_session_asks_for_its_share_of_the_memory_alone() -> None:
    async def test() -> None:
        rig = Bridge(limits=limits_with(max_bytes_held=16 << 20))
        assert rig.fetch(3, 0, most=1 << 30).max_bytes == 1 << 20

    run(test)


@pytest.mark.parametrize(("version", "is_rotated"), [(0, True), (2, True), (3, False)])
def test_each_partition_comes_first_in_turn_below_version_3(version: int, is_rotated: bool) -> None:
    # A broker fills an answer of limited size in the order of the request.
    async def test() -> None:
        rig = Bridge()
        wanted = {("a", 0): (1, 9), ("a", 1): (2, 9), ("a", 2): (3, 9), ("b", 5): (4, 9)}
        orders = []
        for _ in range(3):
            rig.send(fetch_frame(version, 7, wanted))
            _, asked = FetchRequest.parse(rig.asked()[-1])
            parts = [
                (topic.topic, part.partition, part.fetch_offset)
                for topic in asked.topics
                for part in topic.partitions
            ]
            assert {(topic, n): (offset, 9) for topic, n, offset in parts} == wanted
            orders.append([offset for _, _, offset in parts])
        rotated = [[1, 2, 3, 4], [4, 1, 2, 3], [2, 3, 1, 4]]
        assert orders == (rotated if is_rotated else [[1, 2, 3, 4]] * 3)

    run(test)


def test_requests_after_a_large_one_wait_for_it() -> None:
    async def test() -> None:
        rig = Bridge()
        wanted = {("t", n): (n, 100) for n in range(1000)}
        large = fetch_frame(2, 1, wanted)
        assert len(large) > version_bridge.INLINE
        rig.send(large, other_frame(2), fetch_frame(2, 3, {("t", 0): (5, 1)}))
        assert rig.asked() == []
        await until(lambda: len(rig.asked()) == 3)
        assert ids(rig.asked(), 4) == [1, 2, 3]
        _, first = FetchRequest.parse(rig.asked()[0])
        assert [part.fetch_offset for topic in first.topics for part in topic.partitions] == list(
            range(1000)
        )
        assert rig.session.requests.waiting == kept(rig) > 16 * 1000
        assert not rig.session.requests.outbox

    run(test)


def test_what_a_session_remembers_changes_on_the_loop_only(monkeypatch: pytest.MonkeyPatch) -> None:
    # A large request is raised in a thread, and its answer is converted in one.
    changed: list[tuple[str, int]] = []
    read_in: list[int] = []

    def noted(name: str) -> Callable[..., Any]:
        real = getattr(OldFetches, name)

        def change(*arguments: Any) -> Any:
            changed.append((name, threading.get_ident()))
            return real(*arguments)

        return change

    def offset_for(fetches: OldFetches, wanted: WantedPartition) -> int:
        read_in.append(threading.get_ident())
        return wanted.offset

    for name in ("next_turn", "note", "forget"):
        monkeypatch.setattr(OldFetches, name, noted(name))
    monkeypatch.setattr(OldFetches, "offset_for", offset_for)

    async def test() -> None:
        rig = Bridge()
        rig.send(fetch_frame(2, 1, {("t", n): (n, 100) for n in range(1000)}))
        await until(rig.asked)
        rig.reply(
            PartitionData(0, records=control(0)),
            PartitionData(1, error_code=OFFSET_OUT_OF_RANGE, records=b""),
        )
        await until(rig.got)
        here = threading.get_ident()
        assert {name for name, _ in changed} == {"next_turn", "note", "forget"}
        assert {thread for _, thread in changed} == {here}
        assert here not in read_in

    run(test)


def test_a_large_malformed_request_ends_the_session_after_the_earlier_ones() -> None:
    async def test() -> None:
        rig = Bridge()
        large = fetch_frame(2, 2, {("t", n): (n, 100) for n in range(1000)})
        broken = request(ApiKey.FETCH, 2, 2, large[17:-5])
        after = fetch_frame(2, 3, {("t", 0): (5, 1)}), list_offsets(4, 3)
        rig.send(other_frame(1), broken, *after)
        await until(lambda: rig.session.lifetime.reason)
        assert rig.session.lifetime.reason == "request_malformed"
        rig.answer(0)
        assert ids(rig.asked(), 4) == [1]
        assert ids(rig.got()) == [1]
        assert rig.session.requests.waiting == 0

    run(test)


def test_more_partitions_than_are_allowed_end_the_session() -> None:
    async def test() -> None:
        for count in (10, 1000):  # on the loop, in a thread
            rig = Bridge(limits=limits_with(max_partitions_per_request=count))
            rig.send(fetch_frame(2, 1, {("t", n): (n, 100) for n in range(count)}))
            await until(lambda: rig.session.lifetime.reason)  # noqa: B023
            assert rig.session.lifetime.reason == "request_malformed"
            assert rig.asked() == []

    run(test)


def test_a_client_that_leaves_drops_its_raised_request() -> None:
    async def test() -> None:
        rig = Bridge()
        put, kept = rig.proxy.validation.put, []
        rig.proxy.validation.put = kept.append  # type: ignore[method-assign]
        rig.send(fetch_frame(2, 1, {("t", n): (n, 100) for n in range(1000)}))
        rig.client_leaves()
        assert kept[0].cancelled
        put(kept[0])
        await until(lambda: not len(rig.proxy.validation))
        await asyncio.sleep(0.05)
        assert rig.asked() == []

    run(test)


@pytest.mark.parametrize("partitions", [10, 5_000], ids=["on the loop", "in a thread"])
def test_what_is_kept_for_answers_is_counted_and_bounded(
    partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A broker answers as late as the client wants it to (max_wait_ms), and clients send on.
    most = 40 * partitions * 16
    monkeypatch.setattr(session_module, "MAX_HELD_BYTES", most)

    async def test() -> None:
        rig = Bridge()
        wanted = {("t", n): (n, 100) for n in range(partitions)}
        for n in range(60):
            if rig.session.client.holds & VALIDATING:
                break
            rig.send(fetch_frame(2, n, wanted) if n % 2 else list_offsets(n, partitions))
            await until(lambda: not rig.session.requests.outbox)
            assert rig.session.requests.waiting == kept(rig)
        assert 3 < n < 50
        assert most < rig.session.requests.waiting < 2 * most
        assert budget.held_by(rig.session) >= rig.session.requests.waiting
        for frame in rig.asked():
            if struct.unpack_from(">h", frame) == (ApiKey.LIST_OFFSETS,):
                rig.read(rig.up, offsets_answer(frame))
            else:
                empty = [
                    PartitionData(n, high_watermark=100, records=b"") for n in range(partitions)
                ]
                response = FetchResponse(responses=[FetchableTopicResponse("t", partitions=empty)])
                rig.read(
                    rig.up, b"".join(response.encode(struct.unpack_from(">i", frame, 4)[0], 10))
                )
        await until(lambda: len(rig.got()) == n)
        assert ids(rig.got()) == list(range(n))
        assert rig.session.requests.waiting == 0
        assert not rig.session.client.holds & VALIDATING

    run(test)


# ---- answers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4))
def test_batches_become_messages(version: int) -> None:
    async def test() -> None:
        rig = Bridge()
        first = batch(
            [record(0, b"k", b"v", [(b"h", b"x")], 5), record(1, None, None)], base_offset=10
        )
        second = batch(records(3), base_offset=20, codec=ZSTD)
        found = await rig.fetched(version, 10, first, second)
        assert (found.error_code, found.high_watermark) == (0, 100)
        messages = messages_in(found.records)
        assert [one.offset for one in messages] == [10, 11, 20, 21, 22]
        assert [(one.key, one.value) for one in messages][:3] == [
            (b"k", b"v"),
            (None, None),
            (None, b"value 0"),
        ]
        assert messages[0].timestamp == (NOW + 5 if version >= 2 else None)

    run(test)


def test_an_answer_without_records_needs_no_thread() -> None:
    async def test() -> None:
        rig = Bridge()
        rig.go.clear()
        rig.fetch(1, 5)
        rig.reply(PartitionData(0, STORAGE_ERROR, -1, records=None))
        assert answered(rig.got()[-1], 1) == {("t", 0): Fetched(NOT_LEADER, -1, b"")}
        rig.fetch(1, 5)
        rig.reply(PartitionData(0, 0, 9, records=b""), error_code=29)
        assert answered(rig.got()[-1], 1)["t", 0].error_code == 29
        assert rig.counters.judging_cpu_seconds_total == 0

    run(test)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Return an event; conversions wait until it is set."""
    go, real = threading.Event(), fetch_down_conversion.down_convert

    def waits(*args: Any, **options: Any) -> Any:
        assert go.wait(30)
        return real(*args, **options)

    monkeypatch.setattr(fetch_down_conversion, "down_convert", waits)
    return go


def test_later_answers_wait_for_one_that_is_converted(held: threading.Event) -> None:
    async def test() -> None:
        rig = Bridge()
        rig.send(
            fetch_frame(2, 7, {("t", 0): (0, 1 << 20)}),
            other_frame(8),
            fetch_frame(2, 9, {("t", 0): (3, 1)}),
        )
        response = FetchResponse(responses=[FetchableTopicResponse("t", partitions=[])])
        response.responses[0].partitions = [PartitionData(0, records=batch(records(3), codec=GZIP))]
        first = b"".join(response.encode(1, 10))
        third = b"".join(response.encode(3, 10))
        rig.read(rig.up, first + struct.pack(">ii", 4, 2))
        assert rig.up.holds & CONVERTING
        rig.read(rig.up, third)  # what had been read already
        assert rig.session.requests.waiting == len(first) + kept(rig)
        assert budget.held_by(rig.session) >= len(first)
        await asyncio.sleep(0.05)
        assert rig.got() == []
        held.set()
        await until(lambda: len(rig.got()) == 3)
        assert ids(rig.got()) == [7, 8, 9]
        assert len(messages_in(answered(rig.got()[0], 2)["t", 0].records)) == 3
        assert rig.session.requests.waiting == 0
        assert not rig.up.holds & CONVERTING
        assert not rig.session.requests.answers

    run(test)


def test_a_client_that_leaves_ends_its_conversion(held: threading.Event) -> None:
    async def test() -> None:
        rig = Bridge()
        rig.fetch(2, 0)
        made = [batch(records(1), base_offset=n) for n in range(500)]
        rig.reply(PartitionData(0, records=b"".join(made)))
        conversion: Any = rig.session.requests.converting
        rig.client_leaves()
        rig.up.connection_lost(None)
        assert conversion.cancelled
        assert rig.session.lifetime.state is SessionState.CLOSED
        held.set()
        await until(lambda: rig.counters.judging_cpu_seconds_total)
        assert rig.got() == []
        assert rig.session.requests.converting is None
        assert not rig.proxy.connections

    run(test)


def test_what_has_been_made_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_down_conversion, "SLICE_S", -1.0)  # each slice makes others wait
    monkeypatch.setattr(fetch_down_conversion, "SLICE_BYTES", 1)

    async def test() -> None:
        rig = Bridge()
        rig.fetch(2, 0)
        seen = []
        paused = rig.session.job_paused

        def noted() -> None:
            paused()
            seen.append(rig.session.requests.waiting)

        rig.session.job_paused = noted  # type: ignore[method-assign]
        made = [batch(records(1, value=bytes(100)), base_offset=n) for n in range(20)]
        rig.reply(PartitionData(0, records=b"".join(made)))
        await until(rig.got)
        assert len(seen) >= 20
        assert seen == sorted(seen)
        assert seen[-1] > seen[0] + 19 * 100
        assert rig.session.requests.waiting == 0

    run(test)


def test_what_a_batch_takes_is_counted_while_it_is_converted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted: list[int] = []
    real = fetch_down_conversion.down_convert

    def noted(*args: Any, on_held: Callable[[int], None], **options: Any) -> Any:
        def on_held_here(size: int) -> None:
            on_held(size)
            counted.append(allocated())

        return real(*args, on_held=on_held_here, **options)

    monkeypatch.setattr(fetch_down_conversion, "down_convert", noted)

    async def test() -> None:
        rig = Bridge()
        before = allocated()
        await rig.fetched(2, 0, batch(records(1, value=bytes(4 << 20)), codec=ZSTD))
        assert max(counted) > before + (4 << 20)

    run(test)


def test_batches_that_hold_much_leave_a_thread_to_the_others() -> None:
    # The light threads never convert a batch of more than LIGHT_WORK, however small it came.
    async def test() -> None:
        rig = Bridge()
        bomb = batch(records(1, value=bytes(4 << 20)), codec=ZSTD, base_offset=1)
        assert len(bomb) < 1000
        rig.fetch(2, 0)
        calls: list[tuple[bool, bool]] = []
        real = fetch_down_conversion.down_convert

        def noted(*args: Any, **options: Any) -> Any:
            made = None
            try:
                made = real(*args, **options)
                return made
            finally:
                calls.append((conversion.heavy, made is None))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fetch_down_conversion, "down_convert", noted)
            judging: Any = rig.proxy.validation
            put, judging.put = judging.put, lambda _: None
            rig.reply(PartitionData(0, records=batch(records(1)) + bomb))
            conversion: Any = rig.session.requests.converting
            put(conversion)
            await until(rig.got)
        assert calls == [(False, False), (False, True), (True, False)]
        assert len(messages_in(answered(rig.got()[0], 2)["t", 0].records)) == 2
        assert rig.counters.fetches_unconverted_total == 0

    run(test)


def test_a_conversion_that_nobody_waits_for_is_freed() -> None:
    # The client leaves between two slices: the steps that are left know the conversion.
    async def test() -> None:
        rig = Bridge()
        rig.proxy.validation.put = lambda _: None  # type: ignore[method-assign]
        rig.fetch(2, 0)
        bomb = batch(records(1, value=bytes(4 << 20)), codec=ZSTD, base_offset=1)
        rig.reply(PartitionData(0, records=batch(records(1)) + bomb))
        conversion = rig.session.requests.converting
        assert conversion is not None
        assert conversion.work()[0] == "heavy"
        conversion.cancel()
        rig.session.requests.converting = None
        gone = weakref.ref(conversion)
        gc.collect()
        gc.disable()
        try:
            del conversion
            assert gone() is None
        finally:
            gc.enable()

    run(test)


def test_a_large_answer_is_heavy_before_it_is_converted() -> None:
    async def test() -> None:
        rig = Bridge()
        rig.proxy.validation.put = lambda _: None  # type: ignore[method-assign]
        rig.fetch(2, 0)
        rig.reply(
            PartitionData(
                0, records=batch(records(1, value=bytes(fetch_down_conversion.HEAVY_BYTES)))
            )
        )
        conversion: Any = rig.session.requests.converting
        assert conversion.work()[0] == "heavy"
        conversion.heavy = True
        assert conversion.work()[0] == "done"

    run(test)


def test_an_answer_has_a_largest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_down_conversion, "MAX_CONVERTED_BYTES", 500)

    async def test() -> None:
        rig = Bridge()
        made = b"".join(batch(records(1, value=bytes(200)), base_offset=n) for n in range(10))
        rig.send(fetch_frame(3, 1, {("t", 0): (0, 1 << 20), ("t", 1): (0, 1 << 20)}))
        rig.reply(PartitionData(0, records=made), PartitionData(1, records=made))
        await until(rig.got)
        found = answered(rig.got()[-1], 3)
        assert [one.offset for one in messages_in(found["t", 0].records)] == [0, 1, 2]
        assert found["t", 1].records == b""
        assert rig.fetch(3, 0, partition=1).topics[0].partitions[0].fetch_offset == 0

    run(test)


@pytest.mark.parametrize(("version", "is_cut"), [(0, True), (2, True), (3, False)])
def test_a_partial_message_ends_an_answer_below_version_3(version: int, is_cut: bool) -> None:
    async def test() -> None:
        rig = Bridge()
        made = [batch(records(1, value=bytes(100)), base_offset=n) for n in range(5)]
        found = await rig.fetched(version, 0, *made, most=300)
        whole = messages_in(found.records)
        if is_cut:
            assert len(found.records) == 300
            assert [one.offset for one in whole] == [0, 1]
        else:
            assert [one.offset for one in whole] == [0, 1, 2]
        # a batch that is larger than what the client asked for: it sees a part
        large = batch(records(1, value=bytes(1000)))
        found = await rig.fetched(version, 0, large, most=300)
        assert len(messages_in(found.records)) == (0 if is_cut else 1)
        assert (len(found.records) == 300) == is_cut
        # one that is not, but its messages are
        many = batch(records(40, value=b""))
        assert len(many) < 600 < len((await rig.fetched(version, 0, many, most=600)).records)
        assert len(messages_in((await rig.fetched(version, 0, many, most=600)).records)) == 40

    run(test)


# ---- progress ------------------------------------------------------------------------------------


def test_an_old_consumer_gets_past_what_it_cannot_read() -> None:
    async def test() -> None:
        rig = Bridge()
        emptied = batch([], base_offset=6, last_offset_delta=3)
        found = await rig.fetched(2, 5, control(5), emptied)
        assert (found.error_code, found.records) == (0, b"")
        asked = rig.fetch(2, 5)
        assert asked.topics[0].partitions[0].fetch_offset == 10
        rig.reply(PartitionData(0, records=control(10)))
        await until(lambda: len(rig.got()) == 2)
        assert rig.fetch(2, 5).topics[0].partitions[0].fetch_offset == 11
        rig.reply(PartitionData(0, records=batch(records(2), base_offset=11)))
        await until(lambda: len(rig.got()) == 3)
        assert [one.offset for one in messages_in(answered(rig.got()[2], 2)["t", 0].records)] == [
            11,
            12,
        ]
        # another offset is asked for as it is, and a log that has changed begins anew
        assert rig.fetch(2, 4).topics[0].partitions[0].fetch_offset == 4
        rig.reply(PartitionData(0))
        assert rig.fetch(2, 5).topics[0].partitions[0].fetch_offset == 11
        rig.reply(PartitionData(0, OFFSET_OUT_OF_RANGE))
        assert rig.fetch(2, 5).topics[0].partitions[0].fetch_offset == 5

    run(test)


def test_each_partition_of_a_request_gets_past_what_it_cannot_read() -> None:
    async def test() -> None:
        rig = Bridge()
        count = 3000
        for turn in range(2):
            rig.send(fetch_frame(2, 7, {("t", n): (0, 1 << 20) for n in range(count)}))
            await until(lambda: len(rig.asked()) == turn + 1)  # noqa: B023
            _, asked = FetchRequest.parse(rig.asked()[-1])
            assert {part.fetch_offset for topic in asked.topics for part in topic.partitions} == {
                turn
            }
            rig.reply(*(PartitionData(n, records=control(0)) for n in range(count)))
            await until(lambda: len(rig.got()) == turn + 1)  # noqa: B023

    run(test)


def test_a_compressed_batch_without_records_from_the_offset_on_is_passed() -> None:
    # Compaction keeps a batch's last offset, but not the records at its end.
    async def test() -> None:
        rig = Bridge()
        kept = batch(records(2), base_offset=3, last_offset_delta=6, codec=GZIP)
        found = await rig.fetched(2, 5, kept)
        assert found.records == b""
        assert rig.fetch(2, 5).topics[0].partitions[0].fetch_offset == 10
        rig.reply(PartitionData(0))
        assert len(messages_in((await rig.fetched(2, 4, kept)).records)) == 2

    run(test)


def test_what_a_session_remembers_is_bounded() -> None:
    fetches = OldFetches(1000)
    for n in range(1001):
        fetches.note({("t", n): (5, 9)})
    assert fetches.offset_for(WantedPartition("t", 0, 5, 1)) == 5
    assert fetches.offset_for(WantedPartition("t", 1, 5, 1)) == 9
    assert len(fetches._continues) == 1000
    fetches.note({("u", n): (5, 9) for n in range(1000)})
    assert fetches.offset_for(WantedPartition("u", 0, 5, 1)) == 9
    assert len(fetches._continues) == 1000
    for n in range(3 * MAX_FAULTS):
        assert fetches.is_new_fault("t", 0, n) == (n < MAX_FAULTS)
        assert not fetches.is_new_fault("t", 0, n)
    assert len(fetches._faults) == MAX_FAULTS


# ---- transactions --------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_aborted_records_are_left_out_where_the_isolation_level_says_so(level: Any) -> None:
    async def test() -> None:
        rig = Bridge(bridge_isolation_level=level)
        asked = rig.fetch(2, 0)
        assert asked.isolation_level == (level == "read_committed")
        made = [
            batch(records(1), producer_id=1, attributes=TRANSACTIONAL),
            batch(records(1), base_offset=1, producer_id=2, attributes=TRANSACTIONAL),
            control(2),
            batch(records(1), base_offset=3, producer_id=1, attributes=TRANSACTIONAL),
        ]
        aborted = [AbortedTransaction(1, 0)] if level == "read_committed" else None
        rig.reply(PartitionData(0, records=b"".join(made), aborted_transactions=aborted))
        await until(rig.got)
        found = [one.offset for one in messages_in(answered(rig.got()[0], 2)["t", 0].records)]
        assert found == ([1, 3] if level == "read_committed" else [0, 1, 3])

    run(test)


# ---- faults --------------------------------------------------------------------------------------


def test_a_batch_that_cannot_be_converted_is_an_error_once_it_is_first(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        rig = Bridge()
        good, bad = batch(records(2)), bytearray(batch(records(2), base_offset=2))
        bad[-1] ^= 1
        with caplog.at_level(logging.WARNING, "batchval.proxy"):
            found = await rig.fetched(2, 0, good, bytes(bad))
            assert (found.error_code, len(messages_in(found.records))) == (0, 2)
            for _ in range(3):
                found = await rig.fetched(2, 2, bytes(bad))
                assert (found.error_code, found.records) == (CORRUPT_MESSAGE, b"")
        assert rig.counters.fetches_unconverted_total == 4
        assert rig.session.lifetime.reason is None
        (line,) = [one for one in caplog.messages if "cannot be converted" in one]
        assert "topic t, partition 0, offset 2" in line

    run(test)


def test_an_answer_with_many_faults_has_few_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        rig = Bridge()
        bad = bytearray(batch(records(1)))
        bad[-1] ^= 1
        count, seen = 3 * MAX_FAULTS, []
        with caplog.at_level(logging.WARNING, "batchval.proxy"):
            for turn in range(MAX_FAULTS // fetch_down_conversion.MAX_LINES + 2):
                caplog.clear()
                rig.send(fetch_frame(2, 7, {("t", n): (0, 1000) for n in range(count)}))
                await until(lambda: len(rig.asked()) == turn + 1)  # noqa: B023
                rig.reply(*(PartitionData(n, records=bytes(bad)) for n in range(count)))
                await until(lambda: len(rig.got()) == turn + 1)  # noqa: B023
                seen.append(len(caplog.messages))
                assert rig.counters.fetches_unconverted_total == count * (turn + 1)
                if turn == 0:
                    assert f"{count} batches of one answer" in caplog.messages[-1]
                    assert all(
                        f"partition {n}, " in caplog.messages[n]
                        for n in range(fetch_down_conversion.MAX_LINES)
                    )
        assert seen == [fetch_down_conversion.MAX_LINES + 1] * (
            MAX_FAULTS // fetch_down_conversion.MAX_LINES
        ) + [0, 0]

    run(test)


def test_a_batch_that_decompresses_to_too_much_is_an_error() -> None:
    async def test() -> None:
        rig = Bridge(validation={"max_decompressed_bytes": 1000})
        bomb = batch(records(1, value=bytes(100_000)), codec=ZSTD)
        assert (await rig.fetched(2, 0, bomb)).error_code == CORRUPT_MESSAGE

    run(test)


@pytest.mark.parametrize("cut", [9, 40, 70])
def test_an_answer_that_cannot_be_read_ends_the_session(cut: int) -> None:
    async def test() -> None:
        rig = Bridge()
        rig.fetch(2, 0)
        response = FetchResponse(
            responses=[FetchableTopicResponse("t", partitions=[PartitionData(0, records=b"x")])]
        )
        whole = b"".join(response.encode(1, 10))[4:]
        broken = whole[: min(cut, len(whole) - 1)]
        rig.read(rig.up, struct.pack(">i", len(broken)) + broken)
        await until(lambda: rig.session.lifetime.reason)
        assert rig.session.lifetime.reason == "answer_malformed"

    run(test)


def test_a_partition_that_was_not_asked_for_ends_the_session() -> None:
    async def test() -> None:
        rig = Bridge()
        rig.fetch(2, 0)
        rig.reply(PartitionData(1, records=batch(records(1))))
        await until(lambda: rig.session.lifetime.reason)
        assert rig.session.lifetime.reason == "answer_malformed"
        assert rig.got() == []

    run(test)


# ---- newer versions ------------------------------------------------------------------------------


@pytest.mark.parametrize("is_fast", [True, False])
def test_versions_that_kafka_knows_are_passed_on(is_fast: bool) -> None:
    # Of all APIs that are raised: from the oldest version that Kafka 4 knows to the newest.
    async def test() -> None:
        for key in CONSUMERS:
            for version in range(APIS[key].min_version, APIS[key].max_version + 1):
                rig = Bridge()
                if not is_fast:
                    rig.proxy.fast_routes = Routes({})
                    rig.session = Session(rig.proxy, Place())  # type: ignore[arg-type]
                    rig.connect()
                sent = other_frame(5, key=key, version=version, body=bytes(20))
                rig.send(sent)
                assert rig.asked() == [sent[4:8] + struct.pack(">i", 1) + sent[12:]], (key, version)
                assert rig.session.lifetime.reason is None
        assert rig.counters.requests_raised_total == 0

    run(test)


# ---- other APIs, and ApiVersions -----------------------------------------------------------------


def test_a_large_answer_is_lowered_in_a_thread_and_keeps_its_place() -> None:
    async def test() -> None:
        rig = Bridge()
        body = struct.pack(">ih1si", 1, 1, b"t", 1) + struct.pack(">i", 0)
        rig.send(
            request(ApiKey.OFFSET_FETCH, 0, 5, struct.pack(">h1s", 1, b"g") + body), other_frame(6)
        )
        parts = b"".join(struct.pack(">iqhh", n, -1, 0, 0) for n in range(1000))
        answer = struct.pack(">ih1si", 1, 1, b"t", 1000) + parts
        rig.read(rig.up, struct.pack(">ii", 4 + len(answer), 1) + answer + struct.pack(">ii", 4, 2))
        await until(lambda: len(rig.got()) == 2)
        assert ids(rig.got()) == [5, 6]
        lowered = rig.got()[0][4:]
        assert lowered == answer.replace(
            struct.pack(">qhh", -1, 0, 0), struct.pack(">qhh", -1, 0, 3)
        )

    run(test)


def test_old_versions_are_offered_where_the_broker_knows_what_they_are_raised_to() -> None:
    def offered(bridge: tuple[str, ...], *ranges: tuple[int, int, int]) -> dict[int, int]:
        found: dict[int, int] = {}

        async def test() -> None:
            rig = Bridge(bridge=bridge)
            rig.send(request(ApiKey.API_VERSIONS, 0, 1, b""))
            response = ApiVersionsResponse(api_keys=[ApiVersion(*one) for one in ranges])
            rig.read(rig.up, b"".join(response.encode(1, 0)))
            answer = ApiVersionsResponse.decode(rig.got()[0], 0)
            found.update({one.api_key: one.min_version for one in answer.api_keys})

        run(test)
        return found

    ranges = (0, 3, 12), (1, 4, 17), (2, 1, 10), (8, 2, 9), (3, 0, 12)
    everything = ("producers", "consumers")
    assert offered(everything, *ranges) == {0: 0, 1: 0, 2: 0, 8: 0, 3: 0}
    assert offered(("consumers",), *ranges) == {0: 3, 1: 0, 2: 0, 8: 0, 3: 0}
    assert offered((), *ranges) == {0: 3, 1: 4, 2: 1, 8: 2, 3: 0}
    assert offered(everything, (1, 6, 17), (2, 0, 0), (8, 2, 9)) == {1: 6, 2: 0, 8: 0}
    assert offered(everything, (1, 4, 9), (2, 1, 1)) == {1: 4, 2: 0}


def answering(sent: bytes) -> Callable[[bytes], bytes]:
    """Return a broker that answers each Fetch with these batches."""
    response = FetchResponse(
        responses=[FetchableTopicResponse("t", partitions=[PartitionData(0, records=sent)])]
    )
    return lambda frame: b"".join(response.encode(struct.unpack_from(">i", frame, 4)[0], 10))


@pytest.mark.alone
@pytest.mark.parametrize(
    ("consumers", "count", "limit"), [(60, 500, 4 << 20), (40, 4000, 20 << 20)]
)
def test_many_consumers_share_a_small_budget(consumers: int, count: int, limit: int) -> None:
    # Answers that are not whole yet hold all of it: they come nevertheless, a few at a time.
    limits = limits_with(max_bytes_held=limit)
    held = 0
    with (
        ScriptedBroker(answering(batch(records(count, value=bytes(1000))))) as broker,
        RunningProxy(broker.address, bridge=("consumers",), limits=limits) as gate,
        ThreadPoolExecutor(consumers) as pool,
    ):
        ones = [OldConsumer(gate.address, 2, max_bytes=8 << 20) for _ in range(consumers)]
        fetches = [pool.submit(one.fetch, "t", 0, 0) for one in ones]
        while not all(one.done() for one in fetches):
            held = max(held, gate.proxy.budget.held)
            time.sleep(0.002)
        sizes = {len(one.result().records) for one in fetches}
        assert len(messages_in(fetches[0].result().records)) == count
        assert len(sizes) == 1
        for one in ones:
            one.close()
    # answers in part up to the limit, whole ones up to the limit, and four that go on in between:
    # each of these may be there twice, as it came and as it is sent
    size = sizes.pop()
    bound = 2 * limit + 8 * size
    assert limit // 4 < held <= bound < consumers * size // 2


@pytest.mark.alone
def test_consumers_that_take_nothing_give_way_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    # Converted answers are counted until they are taken, and free their bytes in the end.
    monkeypatch.setattr(budget, "UNTAKEN_S", 0.5)
    limits = limits_with(max_bytes_held=16 << 20)
    with (
        ScriptedBroker(answering(batch(records(4000, value=bytes(1000))))) as broker,
        RunningProxy(broker.address, bridge=("consumers",), limits=limits) as gate,
        contextlib.ExitStack() as open_,
    ):
        for _ in range(20):
            stalled = open_.enter_context(socket.socket())
            stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stalled.connect(gate.address)
            stalled.sendall(fetch_frame(2, 1, {("t", 0): (0, 8 << 20)}))
        shared = gate.proxy.budget
        eventually(lambda: shared.held > limits.max_bytes_held)
        eventually(lambda: gate.counters.answers_evicted_total)
        waiting = sum(one.client.unwritten() for one in list(gate.proxy.connections))
        assert shared.held >= waiting > 0
        healthy = OldConsumer(gate.address, 2, max_bytes=8 << 20)
        assert len(messages_in(healthy.fetch("t", 0, 0).records)) == 4000
        healthy.close()
        assert shared.held < 2 * limits.max_bytes_held

"""The table of clients, its rows from sessions, and versions that are too old."""

from __future__ import annotations

import random
import struct
import tracemalloc
from typing import Any

import pytest

from batchval.protocol.apis import APIS
from batchval.protocol.messages.api_versions import ApiVersionsRequest
from batchval.protocol.old_versions import Raised
from batchval.proxy.watch.clients import (
    MAX_SOFTWARE_NAMES,
    MAX_USES_PER_CLIENT,
    Client,
    ClientKey,
    ClientTable,
    SeenClient,
    Software,
    is_turned_away,
    software_of,
    turned_away_by_software,
)
from tests.support.log_lines import ended
from tests.support.proxy import (
    GOOD,
    RunningProxy,
    ScriptedBroker,
    answered,
    connected,
    eventually,
    other_frame,
    produce_frame,
    read_frame,
    requests_of,
)
from tests.unit.proxy.test_fast_path import Side

pytestmark = pytest.mark.usefixtures("unhurried")

PRODUCE, FETCH, METADATA, INIT_PRODUCER_ID, API_VERSIONS = 0, 1, 3, 22, 18


def pair(key: int, version: int) -> int:
    return key << 16 | version


def key_of(client_id: str | None = "c", name: str = "", address: str = "10.0.0.7") -> ClientKey:
    return ClientKey(client_id, Software(name), address, "User:ANONYMOUS", "default")


def asked(key: int, version: int, client_id: bytes | None = b"test", body: bytes = b"") -> bytes:
    """Return a request with its length."""
    size = -1 if client_id is None else len(client_id)
    frame = struct.pack(">hhih", key, version, 7, size) + (client_id or b"") + body
    return struct.pack(">i", len(frame)) + frame


def old_produce(version: int = 0, client_id: bytes = b"agent") -> bytes:
    """Return a request of one topic without records, as an appliance of 2014 sends it."""
    body = (
        struct.pack(">hii", 1, 1000, 1)
        + struct.pack(">h6sii", 6, b"orders", 1, 0)
        + struct.pack(">i", 0)
    )
    return asked(PRODUCE, version, client_id, body)


def introduced(name: str, version: str, tags: tuple[tuple[int, bytes], ...] = ()) -> memoryview:
    request = ApiVersionsRequest(name, version, api_version=3, unknown_tagged_fields=tags)
    return memoryview(b"".join(request.encode(1, "test")))


# ---- the table -----------------------------------------------------------------------------------


def test_one_sender_s_names_push_out_nobody_else_s() -> None:
    table = ClientTable(most=100)
    for n in range(20):
        table.add(key_of("app", address=f"10.0.0.{n}"), {pair(METADATA, 9): 1})
    for n in range(1_000):
        table.add(key_of(f"invented {n}", address="10.6.6.6"), {pair(METADATA, 9): 1})
    kept = {key.address for key, _ in table.rows()}
    assert {f"10.0.0.{n}" for n in range(20)} <= kept
    assert (len(table), table.evicted_total) == (100, 920)
    names = [key.client_id for key, _ in table.rows() if key.address == "10.6.6.6"]
    assert names == [f"invented {n}" for n in range(920, 1_000)]  # its own oldest went


def test_a_principal_s_rows_are_one_sender_s_whatever_the_addresses() -> None:
    table = ClientTable(most=10)
    table.add(key_of("app"), {pair(METADATA, 9): 1})
    for n in range(100):
        key = key_of(f"n{n}", address=f"10.1.0.{n}")._replace(principal="User:mallory")
        table.add(key, {pair(METADATA, 9): 1})
    assert key_of("app") in dict(table.rows())


def test_where_nobody_has_two_rows_the_oldest_goes() -> None:
    table = ClientTable(most=10)
    for n in range(15):
        table.add(key_of("app", address=f"10.0.0.{n}"), {pair(METADATA, 9): 1})
    assert [key.address for key, _ in table.rows()] == [f"10.0.0.{n}" for n in range(5, 15)]


def test_the_sender_with_the_most_rows_is_right_after_any_changes() -> None:
    rng = random.Random(3)
    table = ClientTable(most=40)
    for _ in range(5_000):
        key = key_of(f"c{rng.randrange(30)}", address=f"10.0.0.{rng.randrange(12)}")
        table.add(key, {pair(METADATA, 9): 1})
    counts: dict[str, int] = {}
    for key, _ in table.rows():
        counts[key.address] = counts.get(key.address, 0) + 1
    assert len(table) == 40
    assert table._by_sender._most == max(counts.values())
    assert {name: len(rows) for name, rows in table._by_sender._rows.items()} == counts


@pytest.mark.parametrize(
    ("key", "version", "is_old"),
    [
        (PRODUCE, 2, True),
        (PRODUCE, 3, False),
        (FETCH, 3, True),
        (FETCH, 4, False),
        (METADATA, 0, False),
        (17, 0, False),  # SaslHandshake 0 is still there in 4.4
        (FETCH, -1, False),
        (4_000, 0, False),
    ],
)
def test_what_kafka_4_turns_away(key: int, version: int, is_old: bool) -> None:
    assert is_turned_away(key, version) is is_old


def test_requests_of_a_client_are_added_up() -> None:
    now = [1_000_000_000]
    table = ClientTable(clock_ns=lambda: now[0])
    table.add(key_of(), {pair(FETCH, 12): 3, pair(METADATA, 0): 1})
    ((_, before),) = table.rows()
    now[0] += 5_000_000_000
    table.add(key_of(), {pair(FETCH, 12): 4, pair(FETCH, 2): 1})
    ((key, row),) = table.rows()
    assert key == key_of()
    assert row == Client(
        1_000, 6_000, {pair(FETCH, 12): 7, pair(METADATA, 0): 1, pair(FETCH, 2): 1}, 0, True
    )
    assert row.requests == 9
    assert before == Client(1_000, 1_000, {pair(FETCH, 12): 3, pair(METADATA, 0): 1}, 0, False)


def test_the_client_seen_longest_ago_leaves_first() -> None:
    table = ClientTable(most=3)
    for name in ("a", "b", "c", "a", "d"):
        table.add(key_of(name), {pair(FETCH, 12): 1})
    assert [key.client_id for key, _ in table.rows()] == ["c", "a", "d"]
    assert dict(table.rows())[key_of("a")].requests == 2
    assert (len(table), table.evicted_total) == (3, 1)


def test_versions_of_a_client_are_bounded_and_old_ones_are_never_left_out() -> None:
    table = ClientTable()
    every = [
        pair(api.key, version) for api in APIS.values() for version in range(api.max_version + 1)
    ]
    recent = [one for one in every if not is_turned_away(one >> 16, one & 0xFFFF)]
    old = sorted(set(every) - set(recent))
    for one in recent + old:
        table.add(key_of(), {one: 2})
    ((_, row),) = table.rows()
    assert sorted(row.uses) == sorted(recent[:MAX_USES_PER_CLIENT] + old)
    assert len(old) < 50
    assert row.others == 2 * (len(recent) - MAX_USES_PER_CLIENT)
    assert row.requests == 2 * len(every)


@pytest.mark.alone
def test_the_memory_of_the_table_is_bounded() -> None:
    # Clients with the longest names, each with all old versions and as many new ones.
    every = [
        pair(api.key, version) for api in APIS.values() for version in range(api.max_version + 1)
    ]
    uses = dict.fromkeys(every, 1_000)
    tracemalloc.start()
    try:
        table = ClientTable(most=200)
        for n in range(200):
            table.add(
                ClientKey(f"{n:0100d}", Software(), "10.0.0.7", "User:" + "x" * 200, "default"),
                dict(uses),
            )
        full = tracemalloc.get_traced_memory()[0]
        for n in range(400):
            table.add(
                ClientKey(f"-{n:0100d}", Software(), "10.0.0.7", "User:" + "x" * 200, "default"),
                dict(uses),
            )
        assert tracemalloc.get_traced_memory()[0] < 1.1 * full
        assert full / len(table) < 8_000
    finally:
        tracemalloc.stop()
    assert (len(table), table.evicted_total) == (200, 400)


def test_old_clients_of_today_are_counted_by_software() -> None:
    now = [0]
    table = ClientTable(clock_ns=lambda: now[0])
    table.add(key_of("early", "sarama"), {pair(FETCH, 0): 1})
    now[0] = 25 * 3_600 * 10**9
    table.add(key_of("a", "sarama"), {pair(FETCH, 0): 1})
    table.add(key_of("b", "sarama"), {pair(FETCH, 12): 1})
    table.add(key_of("c"), {pair(PRODUCE, 2): 1})
    assert dict(table.recent_old()) == {("sarama",): 1, ("(unknown)",): 1}


def test_software_names_are_bounded() -> None:
    rows = [(key_of(str(n), f"made-up-{n}"), Client(0, 5, {}, 0, True)) for n in range(1_000)]
    found = dict(turned_away_by_software(rows, 5))
    assert len(found) == MAX_SOFTWARE_NAMES + 1
    assert found["(other)",] == 1_000 - MAX_SOFTWARE_NAMES
    assert sum(found.values()) == 1_000
    assert dict(turned_away_by_software(rows, 6)) == {("(other)",): 0}


# ---- what requests say ---------------------------------------------------------------------------


def test_software_is_what_api_versions_says() -> None:
    assert software_of(introduced("apache-kafka-java", "4.4.0"), 3) == Software(
        "apache-kafka-java", "4.4.0"
    )


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("", ""),
        ("a b", "1"),
        ("-a", "1"),
        ("a\n", "1"),
        ("a", '"} 1'),
        ("x" * 61, "1"),
        ("a", "1" * 61),
        ("é", "1"),
    ],
)
def test_software_that_a_broker_would_refuse_is_not_taken(name: str, version: str) -> None:
    assert software_of(introduced(name, version), 3) is None


def test_requests_that_cannot_be_read_name_no_software() -> None:
    whole = introduced("name", "1")
    assert all(software_of(whole[:size], 3) is None for size in range(4, len(whole)))
    assert software_of(whole, 2) is None
    assert software_of(introduced("name", "1", ((1, bytes(3_000)),)), 3) is None
    rng = random.Random(5)
    for _ in range(2_000):
        data = bytearray(whole)
        data[rng.randrange(4, len(data))] = rng.randrange(256)
        software_of(memoryview(bytes(data)), 3)


# ---- what sessions put into it -------------------------------------------------------------------


def rows_of(side: Side) -> dict[str | None, dict[int, int]]:
    side.session.seen_client.collect()
    return {key.client_id: dict(row.uses) for key, row in side.proxy.clients.rows()}


@pytest.mark.parametrize("uses_fast_path", [True, False])
async def test_both_paths_count_by_api_and_version(uses_fast_path: bool) -> None:
    side = Side(uses_fast_path=uses_fast_path)
    frames = [produce_frame(1, ("t", 0, GOOD))] * 3 + [
        asked(FETCH, 12),
        asked(FETCH, 11),
        other_frame(5),
    ] * 2
    side.read(side.session.client, b"".join(frames))
    uses = {
        pair(PRODUCE, 9): 3,
        pair(FETCH, 12): 2,
        pair(FETCH, 11): 2,
        pair(INIT_PRODUCER_ID, 0): 2,
    }
    assert rows_of(side) == {"test": uses}
    assert requests_of(side.proxy.traffic) == uses
    assert side.proxy.traffic.requests_by_api() == {PRODUCE: 3, FETCH: 4, INIT_PRODUCER_ID: 2}
    side.read(side.session.client, asked(FETCH, 12))
    assert rows_of(side) == {"test": uses | {pair(FETCH, 12): 3}}


@pytest.mark.parametrize("uses_fast_path", [True, False])
async def test_a_session_may_have_several_client_ids(uses_fast_path: bool) -> None:
    side = Side(uses_fast_path=uses_fast_path)
    long = b"x" * 300
    ids = [b"a", b"a", None, b"", b"b", b"a", long, long, long[:-1] + b"y", b"\xff\x1b[2J", b"b"]
    side.read(side.session.client, b"".join(asked(FETCH, 12, one) for one in ids))
    found = {name: sum(uses.values()) for name, uses in rows_of(side).items()}
    # the first 256 bytes of a client id are compared, and its size: 100 characters are kept
    assert found == {"a": 3, None: 1, "": 1, "b": 2, "x" * 100: 3, "\ufffd\x1b[2J": 1}


@pytest.mark.parametrize("uses_fast_path", [True, False])
@pytest.mark.parametrize("size", [-2, 5, 0x7FFF])
async def test_client_ids_that_go_past_the_end_are_not_read(
    uses_fast_path: bool, size: int
) -> None:
    side = Side(uses_fast_path=uses_fast_path)
    side.read(side.session.client, asked(FETCH, 12))
    frame = struct.pack(">hhih", FETCH, 12, 7, size) + b"abc"
    side.read(side.session.client, struct.pack(">i", len(frame)) + frame)
    side.read(side.session.client, struct.pack(">ihhi", 8, FETCH, 12, 7))
    assert rows_of(side) == {"test": {pair(FETCH, 12): 3}}


async def test_more_versions_than_are_counted_natively() -> None:
    side = Side(uses_fast_path=True)
    pairs = [(api.key, version) for api in APIS.values() for version in range(api.max_version + 1)]
    fetches = [
        (key, version) for key, version in pairs if key in (8, 9, 11, 12, 13, 14, 15, 16, 22)
    ]
    for _ in range(2):
        side.read(side.session.client, b"".join(asked(*one) for one in fetches * 3))
    assert len(fetches) > 50
    taken = side.session.fast_path.take_uses()
    assert taken == {pair(*one): 6 for one in fetches}
    assert side.session.fast_path.take_uses() == {}
    assert requests_of(side.proxy.traffic) == taken


async def test_the_software_and_the_principal_count_for_earlier_requests_too() -> None:
    side = Side(uses_fast_path=True)
    side.read(side.session.client, asked(METADATA, 0))
    side.read(side.session.client, bytes(introduced("librdkafka", "2.0.2")))
    side.session.identity.authenticated_as("User:alice")
    side.session.seen_client.collect()
    ((key, row),) = side.proxy.clients.rows()
    assert key == ClientKey(
        "test", Software("librdkafka", "2.0.2"), "unknown", "User:alice", "default"
    )
    assert row.uses == {pair(METADATA, 0): 1, pair(API_VERSIONS, 3): 1}


async def test_a_session_that_goes_on_is_collected_from_time_to_time() -> None:
    side = Side(uses_fast_path=True)
    seen = side.session.seen_client
    side.read(side.session.client, asked(FETCH, 12))
    seen.check(4.9)
    assert len(side.proxy.clients) == 0
    seen.check(5.0)
    assert len(side.proxy.clients) == 1


async def test_turns_of_the_loop_are_short_however_often_the_client_id_changes() -> None:
    # Each change costs as much as the native path allows for hundreds of requests.
    side = Side(uses_fast_path=True)
    side.session.budget.take_turn = lambda *_: None  # type: ignore[method-assign]
    ids = [b"%d" % n for n in range(2_000)]
    side.read(side.session.client, b"".join(asked(FETCH, 12, one) for one in ids))
    assert side.session.requests.untaken
    assert 0 < len(side.proxy.clients) < 1_000


@pytest.mark.parametrize(
    "client_id", [b"\xff" * 32_767, "\U0001f600".encode() * 8_191, "é".encode() * 16_383]
)
async def test_of_a_long_client_id_the_beginning_alone_is_decoded(client_id: bytes) -> None:
    taken: list[int] = []

    class Counted(bytes):
        def __getitem__(self, key: Any) -> Any:
            part = super().__getitem__(key)
            taken.append(len(part))
            return part

        def decode(self, *_: Any, **__: Any) -> str:
            raise AssertionError("32 KiB of malformed UTF-8 take 0.3 ms on the loop")

    seen = Side(uses_fast_path=True).session.seen_client
    seen._change(Counted(client_id))
    assert taken == [400]
    assert seen.client_id == client_id.decode(errors="replace")[:100]


# ---- versions too old ----------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2])
def test_produce_too_old_to_be_judged_ends_the_connection(
    version: int, caplog: pytest.LogCaptureFixture
) -> None:
    with ScriptedBroker() as broker, RunningProxy(broker.address) as proxy:
        with connected(proxy) as sock:
            sock.sendall(other_frame(7) + old_produce(version))
            assert read_frame(sock) == struct.pack(">i", 7)
            assert sock.recv(1) == b""
            client = "{}:{}".format(*sock.getsockname())
        assert proxy.counters.connections_closed == {"version_too_old": 1}
        (line,) = ended(caplog)
        facts = {"client": client, "client_id": "agent", "api": "Produce", "version": version}
        assert line | facts | {"reason": "version_too_old"} == line
        assert line["detail"].endswith("upgrade the client, or set bridge: producers")
        eventually(lambda: len(proxy.proxy.clients) == 2)
        key, row = list(proxy.proxy.clients.rows())[-1]
        assert (key.client_id, key.address, row.is_old) == ("agent", "127.0.0.1", True)
        assert row.uses == {pair(PRODUCE, version): 1}
        assert not any(frame[:2] == b"\0\0" for frame in broker.frames)


def hangs_up(broker: ScriptedBroker, *, from_the: int = 0) -> None:
    """Answer so many Fetch requests; end the connection at the next, as if it were not known."""
    seen = [0]

    def answer(frame: bytes) -> bytes | None:
        if frame[:2] == struct.pack(">h", FETCH):
            seen[0] += 1
            if seen[0] > from_the:
                assert broker.talking is not None
                broker.talking.close()
                return None
        return answered(frame)

    broker.answer = answer


@pytest.mark.parametrize(
    ("version", "answered_before", "why"),
    [(2, 0, "version_too_old"), (2, 1, "upstream_lost"), (4, 0, "upstream_lost")],
)
def test_the_broker_ends_the_connection_at_a_version_too_old(
    version: int, answered_before: int, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    # A broker that has answered the version before ends the connection for another reason.
    with ScriptedBroker() as broker, RunningProxy(broker.address) as proxy:
        hangs_up(broker, from_the=answered_before)
        with connected(proxy) as sock:
            for _ in range(answered_before):
                sock.sendall(asked(FETCH, version))
                read_frame(sock)
            sock.sendall(asked(FETCH, version))
            assert sock.recv(1) == b""
        assert proxy.counters.connections_closed == {why: 1}
        (line,) = ended(caplog)
        assert (line["reason"], line["api"], line["version"]) == (why, "Fetch", version)
        assert ("detail" in line) is (why == "version_too_old")


class Uses:
    """Stands for the native counts."""

    def __init__(self) -> None:
        self.uses: dict[int, int] = {}

    def watch(self, _: Any) -> None:
        pass

    def take_uses(self) -> dict[int, int]:
        taken, self.uses = self.uses, {}
        return taken

    def take_served(self) -> tuple[int, int, int, int, int]:
        return 0, 0, 0, 0, 0


@pytest.mark.parametrize(
    ("earlier", "uses", "first", "waiting", "found"),
    [
        ({}, {pair(FETCH, 2): 1}, (FETCH, 2), 1, (FETCH, 2)),
        ({}, {pair(FETCH, 2): 3}, (FETCH, 2), 3, (FETCH, 2)),
        ({}, {pair(FETCH, 2): 3}, (FETCH, 2), 2, None),  # one was answered
        ({pair(FETCH, 2): 1}, {pair(FETCH, 2): 1}, (FETCH, 2), 1, None),
        ({pair(FETCH, 3): 1}, {pair(FETCH, 2): 1}, (FETCH, 2), 1, (FETCH, 2)),
        ({}, {pair(2, 0): 1, pair(METADATA, 0): 1}, (-1, 0), 1, (2, 0)),
        ({}, {pair(2, 0): 1}, (PRODUCE, 9), 2, None),
        ({}, {pair(METADATA, 0): 1}, (-1, 0), 1, None),
    ],
)
async def test_when_the_version_is_the_reason(
    earlier: dict[int, int],
    uses: dict[int, int],
    first: tuple[int, int],
    waiting: int,
    found: tuple[int, int] | None,
) -> None:
    counts = Uses()
    seen = SeenClient(Side(uses_fast_path=True).session.identity, counts, ClientTable(), 0.0)
    counts.uses = earlier
    seen.collect()
    counts.uses = uses
    assert seen.rejected(first, waiting, {}) == found


async def test_a_broker_that_never_saw_the_old_version_had_another_reason() -> None:
    counts = Uses()
    seen = SeenClient(Side(uses_fast_path=True).session.identity, counts, ClientTable(), 0.0)
    counts.uses = {pair(FETCH, 2): 1, pair(2, 0): 1}
    assert seen.rejected((FETCH, 2), 2, {FETCH: Raised(0, 10)}) is None
    counts.uses = {pair(8, 0): 1}
    assert seen.rejected((8, 0), 1, {8: Raised(1, 2)}) == (8, 0)

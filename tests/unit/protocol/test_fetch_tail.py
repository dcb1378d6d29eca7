"""The walk in pieces finds the tail that the whole frame has; a rewritten tail keeps its size."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from batchval.protocol import messages
from batchval.protocol.apis import APIS
from batchval.protocol.errors import ProtocolError
from batchval.protocol.messages import fetch
from batchval.protocol.walkers.addresses import MAX_BROKERS, addresses, rewrite_addresses
from batchval.protocol.walkers.fetch_tail import WITH_TAIL, FetchTail, rewrite_tail
from tests.support.seeds import seeds
from tests.unit.protocol.address_messages import share_fetch
from tests.unit.protocol.values import frame, invented, refusal

Replace = Callable[[int, str, int], tuple[str, int]]
KINDS: dict[int, Any] = {1: messages.FetchResponse, 78: share_fetch.ShareFetchResponse}
ENDPOINT = {1: fetch.FetchNodeEndpoint, 78: share_fetch.ShareFetchNodeEndpoint}
ALL = [
    (key, version)
    for key in sorted(WITH_TAIL)
    for version in range(APIS[key].addresses_from or 0, APIS[key].max_version + 1)
]
GATE = ("gate", 9)
each_version = pytest.mark.parametrize(("key", "version"), ALL)


def response(key: int, version: int, seed: int) -> Any:
    """A random response with ports that there are."""
    message = invented(KINDS[key], version, seed)
    for one in message.node_endpoints:
        one.port = abs(one.port) % 65536
    return message


def split(data: bytes, key: int, version: int) -> tuple[bytes, bytes]:
    """What is before the tail, and the tail."""
    walk = FetchTail(key, version)
    before = walk.feed(data)
    assert before > 0
    assert walk.tail_size == len(data) - before
    return data[:before], data[before:]


def tail_in(message: Any, version: int) -> int:
    """Where the tail must begin: what is after the topics, by the size of the same without it."""
    tail = ("node_endpoints", "unknown_tagged_fields")
    fields = {name: getattr(message, name) for name in message.__match_args__ if name not in tail}
    bare = KINDS[message.api_key](**fields)
    return len(frame(bare, version)) - (1 if message.api_key == 1 else 2)


@each_version
def test_the_tail_begins_after_the_topics(key: int, version: int) -> None:
    for seed in range(150):
        message = response(key, version, seed)
        data = frame(message, version)
        before, tail = split(data, key, version)
        assert len(before) == tail_in(message, version)
        assert before + tail == data


@each_version
def test_every_split_of_a_response(key: int, version: int) -> None:
    frames = sorted((frame(response(key, version, seed), version) for seed in range(40)), key=len)
    for data in (frames[0], frames[10], frames[25]):
        before, _ = split(data, key, version)
        for cut in range(len(data) + 1):
            walk = FetchTail(key, version)
            assert walk.feed(data[:cut]) == min(cut, len(before))
            assert walk.tail_size == (len(data) - len(before) if cut > len(before) - 1 else -1)
            assert walk.feed(data[cut:]) == max(len(before) - cut, 0)


@each_version
def test_a_byte_at_a_time(key: int, version: int) -> None:
    for seed in range(20):
        data = frame(response(key, version, seed), version)
        walk = FetchTail(key, version)
        assert sum(walk.feed(data[at : at + 1]) for at in range(len(data))) == len(
            split(data, key, version)[0]
        )


def large_response(rng: random.Random, version: int) -> Any:
    partitions = [
        fetch.PartitionData(
            n,
            aborted_transactions=rng.choice([None, [], [fetch.AbortedTransaction(1, 2)] * 200]),
            records=rng.choice(
                [None, b"", rng.randbytes(rng.choice([1, 127, 128, 20_000, 1_500_000]))]
            ),
        )
        for n in range(60)
    ]
    topics = [
        fetch.FetchableTopicResponse(topic_id=rng.randbytes(16), partitions=part)
        for part in (partitions, [], partitions[:7])
    ]
    return messages.FetchResponse(
        responses=topics, node_endpoints=[fetch.FetchNodeEndpoint(1, "broker", 9092)]
    )


@pytest.mark.parametrize("seed", seeds(12))
def test_many_partitions_in_pieces(seed: int) -> None:
    rng = random.Random(seed)
    data = frame(large_response(rng, 16), 16)
    before, tail = split(data, 1, 16)
    sizes = rng.choices([1, 2, 5, 300, 4096, 65_536, 1 << 20, 5 << 20], k=6)
    walk = FetchTail(1, 16)
    at = passed = 0
    for size in itertools.chain(sizes, itertools.repeat(1 << 18)):
        if at >= len(data):
            break
        passed += walk.feed(memoryview(data)[at : at + size])
        at += size
    assert passed == len(before)
    out = rewrite_tail(tail, 1, 16, lambda *_: ("gate", 1))
    assert addresses((before + out)[4:], 1, 16) == [(1, "gate", 1)]


def broken(data: bytes, rng: random.Random) -> Iterator[bytes]:
    """Frames cut short or with other bytes, and their lengths right."""
    body = data[4:]
    for size in range(0, len(body), max(1, len(body) // 150)):
        yield size.to_bytes(4, "big") + body[:size]
    for _ in range(600):
        other = bytearray(body)
        for _ in range(rng.randint(1, 3)):
            other[rng.randrange(len(other))] = rng.choice(
                [0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)]
            )
        yield len(other).to_bytes(4, "big") + other


def whole_refusal(case: bytes, key: int, version: int) -> ProtocolError | None:
    return refusal(lambda: rewrite_addresses(case[4:], key, version, lambda *_: GATE))


def tail_refusal(case: bytes, key: int, version: int) -> ProtocolError | None:
    """The refusal of a frame that is fed in two pieces, and whose tail is rewritten."""
    walk = FetchTail(key, version)
    before = sum(walk.feed(part) for part in (case[:50], case[50:]) if walk.tail_size == -1)
    if walk.feed(b"") == -1:
        return ProtocolError("malformed")
    tail = case[before:]
    assert walk.tail_size == len(tail) > 0
    wrong = refusal(lambda: rewrite_tail(tail, key, version, lambda *_: GATE))
    if wrong is None:
        out = rewrite_tail(tail, key, version, lambda *_: GATE)
        assert len(out) == len(tail)
        assert {host for _, host, _ in addresses((case[:before] + out)[4:], key, version)} <= {
            "",
            "gate",
        }
    return wrong


@each_version
def test_what_the_whole_walk_refuses_is_refused_and_nothing_else(key: int, version: int) -> None:
    rng = random.Random(version)
    sizes = [frame(response(key, version, seed), version) for seed in range(60)]
    refused = accepted = 0
    for data in [one for one in sizes if 60 < len(one) < 900][:6]:
        for case in broken(data, rng):
            whole, tail = whole_refusal(case, key, version), tail_refusal(case, key, version)
            if whole is None and key == 78 and tail is not None:
                # the whole walk ends before the tagged fields of ShareFetch
                with pytest.raises(ProtocolError):
                    KINDS[key].decode(case[4:], version)
                continue
            assert (whole is None) == (tail is None)
            refused += whole is not None
            accepted += whole is None
    assert refused > 100
    assert accepted > 100


@each_version
@pytest.mark.parametrize(
    "length",
    [
        b"\xff\xff\xff\xff",
        b"\x80\0\0\0",
        b"\0\0\0\0",
        b"\0\0\0\3",
        b"\0\0\0\4",
        b"\0\0\0\5",
        b"\0\0\0\x10",
    ],
)
def test_a_length_that_cannot_be_is_malformed_for_good(
    key: int, version: int, length: bytes
) -> None:
    data = length + frame(response(key, version, 3), version)[4:]
    walk = FetchTail(key, version)
    assert walk.feed(data) == -1
    assert walk.feed(data) == walk.feed(b"") == walk.tail_size == -1
    walk = FetchTail(key, version)
    assert min(walk.feed(data[at : at + 1]) for at in range(len(data))) == -1


def test_the_state_has_a_fixed_size() -> None:
    small, large = FetchTail(1, 16), FetchTail(1, 16)
    large.feed(frame(large_response(random.Random(1), 16), 16))
    assert small.__sizeof__() == large.__sizeof__() < 300


@pytest.mark.parametrize(
    ("key", "version"), [(0, 10), (3, 12), (79, 1), (1, 15), (1, 19), (78, 0), (78, 3), (-1, 0)]
)
def test_other_responses_have_no_tail(key: int, version: int) -> None:
    for call in (
        lambda: FetchTail(key, version),
        lambda: rewrite_tail(b"\0", key, version, lambda *_: ("h", 1)),
    ):
        with pytest.raises(ProtocolError, match="tail of addresses"):
            call()


@pytest.mark.parametrize("wrong", ["text", None, memoryview(b"abcd")[::2]])
def test_only_buffers_are_taken(wrong: Any) -> None:
    with pytest.raises(ProtocolError, match="contiguous"):
        FetchTail(1, 16).feed(wrong)
    with pytest.raises(ProtocolError, match="contiguous"):
        rewrite_tail(wrong, 1, 16, lambda *_: ("h", 1))


# ---- rewriting -----------------------------------------------------------------------------------


def rewritten(message: Any, version: int, replace: Replace) -> tuple[Any, int]:
    """The response with the rewritten tail, and how many NodeEndpoints were left out."""
    key = message.api_key
    data = frame(message, version)
    before, tail = split(data, key, version)
    out = rewrite_tail(tail, key, version, replace)
    assert type(out) is bytes
    assert len(out) == len(tail)
    again = KINDS[key].decode((before + out)[4:], version)
    assert again.responses == message.responses
    return again, len(message.node_endpoints) - len(again.node_endpoints)


def shortened(by: int, empty: str = "") -> Replace:
    """Hosts without their first bytes, and ``empty`` where none is left."""
    return lambda node, host, port: (host[by:] or empty, port)


@each_version
def test_addresses_are_replaced_and_all_else_stays(key: int, version: int) -> None:
    left_out = padded = 0
    for seed in range(300):
        message = response(key, version, seed)
        rng = random.Random(seed)
        answers: list[tuple[str, int]] = []
        asked = []

        def replace(
            node: int,
            host: str,
            port: int,
            rng: Any = rng,
            answers: Any = answers,
            asked: Any = asked,
        ) -> Any:
            asked.append((node, host, port))
            answers.append(
                (rng.choice(["", "g", "gate-1", "é.example", "h" * 130]), rng.randrange(65536))
            )
            return answers[-1]

        again, missing = rewritten(message, version, replace)
        assert asked == [
            (one.node_id, one.host, one.port) for one in message.node_endpoints if one.host
        ]
        for one in message.node_endpoints:
            if one.host:
                one.host, one.port = answers.pop(0)
        assert again.node_endpoints == message.node_endpoints[: len(again.node_endpoints)]
        kept = dict(again.unknown_tagged_fields)
        padding = kept.keys() - dict(message.unknown_tagged_fields).keys()
        assert len(padding) <= 1
        assert [kept[tag] for tag in padding] == [bytes(len(kept[tag])) for tag in padding]
        assert (
            tuple(one for one in again.unknown_tagged_fields if one[0] not in padding)
            == message.unknown_tagged_fields
        )
        padded += len(padding)
        left_out += missing
    assert padded > 10
    assert left_out > 10


@each_version
def test_any_difference_of_sizes(key: int, version: int) -> None:
    """Shorter by any number of bytes, all addresses stay; longer by one, the last one goes."""
    for size in (*range(1, 400), 5_400, 5_500, 10_000):
        hosts = ["a" * (size + 1), "b" * size]
        message = KINDS[key](
            node_endpoints=[ENDPOINT[key](n, host, 9092) for n, host in enumerate(hosts)]
        )
        for shorter in {0, 1, 2, 3, size // 2, size - 1} - {size}:
            again, missing = rewritten(message, version, shortened(shorter, "h"))
            assert missing == 0
            assert [one.host for one in again.node_endpoints] == [
                host[shorter:] or "h" for host in hosts
            ]
        again, missing = rewritten(
            message, version, lambda node, host, port: (host + "c" * node, port)
        )
        assert missing == 1
        assert [one.host for one in again.node_endpoints] == hosts[:1]


@each_version
@pytest.mark.parametrize("fields", [0, 1, 126, 127, 128, 129, 16_383])
def test_padding_next_to_many_unknown_fields(key: int, version: int, fields: int) -> None:
    """Where their count takes another byte, and where the usual tag of the padding is taken."""
    tags = tuple((100 + n, b"x" * (n % 3)) for n in range(fields))
    endpoint = ENDPOINT[key](1, "broker-number-1", 9092)
    for shorter in range(12):
        message = KINDS[key](node_endpoints=[endpoint], unknown_tagged_fields=tags)
        again, missing = rewritten(message, version, shortened(shorter))
        assert missing == 0
        assert [one.host for one in again.node_endpoints] == [endpoint.host[shorter:]]
        numbers = [tag for tag, _ in again.unknown_tagged_fields]
        assert numbers == sorted(set(numbers))
        assert set(tags) <= set(again.unknown_tagged_fields)
    again, missing = rewritten(message, version, lambda node, host, port: (host + "x", port))
    assert missing == 1
    assert set(tags) <= set(again.unknown_tagged_fields)


def test_padding_stands_where_its_tag_belongs() -> None:
    message = messages.FetchResponse(
        node_endpoints=[fetch.FetchNodeEndpoint(1, "broker-1", 9092)],
        unknown_tagged_fields=((127, b"a"), (2**32 - 1, b"z")),
    )
    again, missing = rewritten(message, 16, lambda *_: ("b", 1))
    assert missing == 0
    assert [tag for tag, _ in again.unknown_tagged_fields] == [126, 127, 2**32 - 1]
    every = tuple((tag, b"") for tag in range(1, 128))
    message.unknown_tagged_fields = (*every, (2**32 - 1, b"z"))
    again, missing = rewritten(message, 16, lambda *_: ("b", 1))
    assert missing == 0
    assert [tag for tag, _ in again.unknown_tagged_fields] == [*range(1, 129), 2**32 - 1]


def test_an_endpoint_is_left_out_where_no_padding_is_possible() -> None:
    """Three bytes over, and all tags of two bytes are taken: no broker sends as many."""
    tags = tuple((tag, b"") for tag in range(1, 16_384))
    endpoint = fetch.FetchNodeEndpoint(1, "broker-number-1", 9092)
    for shorter in range(8):
        message = messages.FetchResponse(
            node_endpoints=[endpoint, endpoint], unknown_tagged_fields=tags
        )
        other = fetch.FetchNodeEndpoint(2, "x" * shorter + "b", 9092)
        message.node_endpoints[1] = other
        again, missing = rewritten(message, 16, lambda node, host, port: (host.lstrip("x"), port))
        assert missing == (1 if shorter == 3 else 0)
        assert set(tags) <= set(again.unknown_tagged_fields)


def test_a_tail_without_addresses_stays_as_it_is() -> None:
    def never(*_: Any) -> tuple[str, int]:
        raise AssertionError("nothing to ask about")

    assert rewrite_tail(b"\0", 1, 16, never) == b"\0"
    assert rewrite_tail(b"\1\0\1\1", 1, 16, never) == b"\1\0\1\1"
    assert rewrite_tail(b"\1\0", 78, 1, never) == b"\1\0"
    assert rewrite_tail(bytearray(b"\1\x05\3abc"), 1, 17, never) == b"\1\x05\3abc"


def test_a_field_of_addresses_that_stands_twice() -> None:
    """No broker sends it. Both are rewritten, because a client may read either."""
    message = messages.FetchResponse(node_endpoints=[fetch.FetchNodeEndpoint(1, "broker", 9092)])
    data = frame(message, 16)
    before, tail = split(data, 1, 16)
    twice = b"\2" + tail[1:] * 2
    again = rewrite_tail(twice, 1, 16, lambda *_: ("gate", 1))
    assert len(again) == len(twice)
    whole = (len(before) - 4 + len(again)).to_bytes(4, "big") + before[4:] + again
    assert addresses(whole[4:], 1, 16) == [(1, "gate", 1)] * 2
    assert rewrite_tail(twice, 1, 16, lambda *_: ("broker-2", 1)).count(b"broker-2") == 1


def test_many_addresses_that_do_not_fit() -> None:
    """As many as fit, found without a try for each."""
    message = messages.FetchResponse(
        node_endpoints=[fetch.FetchNodeEndpoint(n, f"b{n}", 9092) for n in range(MAX_BROKERS)]
    )
    again, missing = rewritten(message, 18, lambda node, host, port: (host + ".example.com", port))
    assert 0.4 * MAX_BROKERS < missing < 0.6 * MAX_BROKERS
    assert again.node_endpoints[-1].host == f"b{len(again.node_endpoints) - 1}.example.com"


@pytest.mark.parametrize("wrong", [("h" * 40_000, 1), ("h", 65536), ("h", -2)])
def test_an_address_that_cannot_be_written_is_refused(wrong: tuple[str, int]) -> None:
    data = frame(
        messages.FetchResponse(node_endpoints=[fetch.FetchNodeEndpoint(1, "broker", 9092)]), 16
    )
    _, tail = split(data, 1, 16)
    with pytest.raises(ProtocolError, match="cannot be an address"):
        rewrite_tail(tail, 1, 16, lambda *_: wrong)
    with pytest.raises(KeyError):
        rewrite_tail(tail, 1, 16, lambda *_: {}["unknown"])
    held = bytearray(tail)
    with pytest.raises(KeyError):
        rewrite_tail(held, 1, 16, lambda *_: {}["unknown"])
    held.append(0)  # nobody holds it any more

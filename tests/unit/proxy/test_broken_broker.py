"""A running gate before a broker whose answers are broken: what its clients, ports and log see."""

from __future__ import annotations

import struct

import pytest

from batchval.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
)
from batchval.protocol.walkers.addresses import MAX_BROKERS
from tests.support.proxy import (
    LOOPBACK,
    RunningProxy,
    ScriptedBroker,
    answered,
    connected,
    eventually,
    other_frame,
    read_frame,
)

VERSION = 9
#: Of requests, with the end of the header where its version has tagged fields.
BODIES = {
    3: b"\0\1\0\0\0\0",
    10: b"\0\2g\0\0",
    18: b"\0\2x\2y\0",
    36: b"\0\0\0\0",
}


def metadata_frame() -> bytes:
    return b"".join(MetadataRequest(topics=[], api_version=VERSION).encode(1, "test"))


def naming(first: int, count: int, correlation_id: bytes) -> bytes:
    brokers = [MetadataResponseBroker(first + n, LOOPBACK, 9) for n in range(count)]
    response = MetadataResponse(brokers=brokers, cluster_id=None)
    return b"".join(response.encode(int.from_bytes(correlation_id, "big"), VERSION))


def ended(proxy: RunningProxy, reason: str) -> bool:
    return bool(proxy.proxy.counters.connections_closed.get(reason))


def test_metadata_of_too_many_brokers_opens_no_port() -> None:
    """Ask once with an honest answer, then with one of 20,000 brokers, then honestly again."""
    counts = [3, 20_000, MAX_BROKERS + 1, 3]

    def answer(frame: bytes) -> bytes | None:
        if frame[:4] != struct.pack(">hh", 3, VERSION):
            return answered(frame)
        return naming(10, counts.pop(0), frame[4:8])

    with ScriptedBroker(answer) as broker, RunningProxy(broker.address) as proxy:
        for refused in (False, True, True, False):
            with connected(proxy) as sock:
                sock.sendall(metadata_frame())
                if refused:
                    with pytest.raises(EOFError):
                        read_frame(sock)
                else:
                    found = MetadataResponse.decode(read_frame(sock), VERSION)
                    assert [one.node_id for one in found.brokers] == [10, 11, 12]
            cluster = proxy.proxy.cluster
            assert {10, 11, 12} <= cluster.brokers.keys()
            assert len(cluster.brokers) <= 4  # with the broker's own
        discovery = proxy.proxy.discovery
        assert eventually(lambda: discovery.answers_refused_total == 2)
        assert ended(proxy, "answer_malformed")


@pytest.mark.parametrize(
    ("key", "version", "size"),
    [(18, 3, 7_000_000), (10, 3, 17 << 20), (3, VERSION, 65 << 20), (36, 1, 2 << 20)],
)
def test_an_answer_that_is_too_long_is_not_read(key: int, version: int, size: int) -> None:
    """Send 100 kB of it alone: the gate does not wait for the rest."""

    def answer(frame: bytes) -> bytes | None:
        if frame[:4] != struct.pack(">hh", key, version):
            return answered(frame)
        return struct.pack(">i", size) + frame[4:8] + bytes(100_000)

    with ScriptedBroker(answer) as broker, RunningProxy(broker.address) as proxy:
        with connected(proxy) as sock:
            sock.sendall(other_frame(1, key, version, BODIES[key]))
            with pytest.raises(EOFError):
                read_frame(sock)
        assert eventually(lambda: ended(proxy, "answer_malformed"))


def test_a_broker_that_moves_all_the_time_opens_no_files() -> None:
    moves = [0]

    def answer(frame: bytes) -> bytes | None:
        if frame[:4] != struct.pack(">hh", 3, VERSION):
            return answered(frame)
        moves[0] += 1
        brokers = [MetadataResponseBroker(10, LOOPBACK, 1 + moves[0])]
        response = MetadataResponse(brokers=brokers, cluster_id=None)
        return b"".join(response.encode(int.from_bytes(frame[4:8], "big"), VERSION))

    with ScriptedBroker(answer) as broker, RunningProxy(broker.address) as proxy:
        with connected(proxy) as sock:
            for _ in range(300):
                sock.sendall(metadata_frame())
                read_frame(sock)
        discovery = proxy.proxy.discovery
        assert len(proxy.proxy.cluster.brokers) <= 2
        assert discovery.lines.left_out_total > 100

"""The pipelining table's count on the wire is right, and the table is made, tiny, over a relay. No
time is asserted.
"""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path

import pytest

from bench.pipelining import table_wire as wire
from tests.support.benches import ROOT, run

CLIENT, BROKER = 40_000, 9101


def request(correlation_id: int, size: int = 100, api_key: int = 0) -> bytes:
    return struct.pack(">ihhi", 8 + size, api_key, 9, correlation_id) + bytes(size)


def response(correlation_id: int, size: int = 10) -> bytes:
    return struct.pack(">ii", 4 + size, correlation_id) + bytes(size)


def test_requests_in_flight_are_counted_by_their_ids_whatever_the_pieces() -> None:
    rng = random.Random(6)
    for _ in range(50):
        count = wire.Wire()
        requests, responses = count.connection()

        def feed(frames: wire.Frames, data: bytes) -> None:
            while data:
                size = rng.randrange(1, 40)
                frames.feed(data[:size])
                data = data[size:]

        feed(requests, request(1, api_key=18))  # not a produce request: it counts as none
        feed(requests, b"".join(request(n) for n in range(2, 7)))
        assert (count.highest, count.open_now) == (5, 5)
        feed(responses, response(1) + response(2) + response(3))
        assert count.open_now == 3
        feed(requests, request(7, size=0) + request(8))
        assert count.highest == 5
        feed(requests, request(9))
        assert count.highest == 6
        feed(responses, b"".join(response(n, size=0) for n in range(4, 10)))
        report = count.report()
        assert (report["requests"], report["answers"], report["in_flight"]) == (8, 8, 6)
        assert report["bytes"] == sum(
            len(request(n, size)) for n, size in [(n, 100) for n in range(2, 9)] + [(9, 0)]
        )


def test_all_brokers_together_and_a_run_after_another() -> None:
    count = wire.Wire()
    first, second = count.connection(), count.connection()
    first[0].feed(request(1) + request(2))
    second[0].feed(request(1) + request(2) + request(3))
    assert (count.highest, count.highest_total) == (3, 5)
    count.start()
    second[1].feed(response(1))  # of before
    count.connection()[0].feed(request(1))
    assert (count.highest, count.highest_total, count.report()["requests"]) == (1, 1, 1)


def packet(from_client: bool, sequence: int, payload: bytes, flags: int = 16) -> bytes:
    ports = (CLIENT, BROKER) if from_client else (BROKER, CLIENT)
    tcp = struct.pack(">HHIIBBHHH", *ports, sequence & 0xFFFFFFFF, 0, 5 << 4, flags, 0, 0, 0)
    ip = struct.pack(
        ">BBHHHBBH4s4s", 0x45, 0, 40 + len(payload), 0, 0, 64, 6, 0, bytes(4), bytes(4)
    )
    return ip + tcp + payload


@pytest.mark.parametrize("start", [7, (1 << 32) - 150])
def test_packets_sent_again_or_overtaken_count_once(start: int) -> None:
    """Order the stream as TCP does, also across the end of the sequence numbers."""
    data = b"".join(request(n, size=40) for n in range(8))
    rng = random.Random(start)
    for _ in range(30):
        count = wire.Wire()
        tap = wire.Tap(count, {BROKER})
        tap.seen(packet(True, start - 1, b"", wire.SYN), True)
        tap.seen(packet(False, 99, b"", wire.SYN | 16), False)
        pieces = [(at, data[at : at + size]) for at in range(0, len(data), 30) for size in (30, 45)]
        rng.shuffle(pieces)
        for at, piece in pieces:
            tap.seen(packet(True, start + at, piece), True)
        assert (count.highest, count.report()["bytes"]) == (8, len(data))
        tap.seen(packet(False, 100, b"".join(response(n) for n in range(8))), False)
        assert count.open_now == 0


@pytest.mark.jvm
@pytest.mark.long
def test_the_table_is_made(tmp_path: Path) -> None:
    """Run librdkafka's loop against a real broker, through a relay that counts."""
    out = tmp_path / "table"
    words = [
        "--quick",
        "--link",
        "relay",
        "--rtt",
        "1",
        "--peers",
        "librdkafka",
        "--cells",
        "one",
        "one-1",
    ]
    done = run(ROOT / "bench" / "pipelining" / "table.py", *words, "--out", out)
    assert done.returncode == 0, done.stderr
    assert out.with_suffix(".md").read_text() == done.stdout.removesuffix("\n")
    result = json.loads(out.with_suffix(".json").read_text())
    assert result["settings"]["missing"] == {}
    rows = {row["cell"]: row for row in result["rows"]}
    assert set(rows) == {"one", "one-1"}
    assert rows["one-1"]["in_flight"] == 1
    assert 1 <= rows["one"]["in_flight"] <= 5
    assert all(row["max_records_per_s"] > 0 for row in rows.values())
    for one in result["samples"]:
        assert one["wire"]["answers"] == one["wire"]["requests"] >= 2_000 // 50
        assert one["wire"]["bytes"] > 2_000 * 1000

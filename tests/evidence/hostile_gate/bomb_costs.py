"""CPU of hostile Produce requests by kB: ``python -m tests.evidence.hostile_gate.bomb_costs``.

    engine    thread CPU of one LogValidator.check with the gate's settings
    first     process CPU of a gate that gets each batch once: bytes differ, records do not
    repeated  process CPU of a gate that gets the same request again and again

    --only TEXT       bombs whose name contains it; may be repeated
    --checkout DIR    the built checkout whose gate runs; default: this one
    --engine          the engine alone
    --json FILE       also save the figures

The engine is always the one of this checkout. Exits with 1 if a figure is above its ceiling, which
is a multiple of what was measured in the same run:

    engine    ENGINE_RATIO times a byte of good records, by byte that is decompressed
    first     FIRST_RATIO times the engine and REQUEST_S a request: a gate reads a batch once
    repeated  REPEATED_RATIO times the engine and REQUEST_S a request, where a batch is remembered
"""

from __future__ import annotations

import argparse
import functools
import json
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from batchval.core.batches.validator import LogValidator
from batchval.policy import TopicPolicy
from batchval.record_rules import RecordRules
from batchval.rules import EXTRAS, Rule
from bench.pages.text import table
from tests.evidence.hostile import seeds
from tests.evidence.hostile_gate import batches
from tests.evidence.hostile_gate.batches import CODECS, Batch
from tests.evidence.hostile_gate.gate_under_test import ROOT, GateUnderTest
from tests.evidence.hostile_gate.requests import produce
from tests.support.old_produce import old_produce

__all__ = ["BOMBS", "Bomb", "Cost", "above", "engine_cost", "gate_costs", "good_byte_s"]

ENGINE_RATIO, FIRST_RATIO, REPEATED_RATIO = 4.0, 1.8, 0.1
#: What a request costs a gate besides its batch, its log line and its answer among it.
REQUEST_S = 0.003
LIMIT = 64 << 20

#: Requests of each phase at a gate, and the CPU after which no more are sent.
REQUESTS, ENOUGH_S = 6, 1.5
GOOD = "a million good records, passed on"
TOPICS = {
    "topics": {
        "policies": [
            {"match": "compact*", "cleanup.policy": "compact"},
            {"match": "headers*", "record_rules": {"required_headers": ["trace"]}},
            {
                "match": "custom*",
                "custom_rules": ["tests.evidence.hostile_gate.custom_rules:accept"],
            },
        ]
    }
}
OLD = {"bridge": ["producers"]}
#: As the topics of a gate that reads no configuration of its cluster.
UNBOUNDED = TopicPolicy(max_message_bytes=2**31 - 1)
ALL_EXTRAS: dict[str, Any] = {one.id: "report" for one in EXTRAS if one is not Rule.S8}


@dataclass(frozen=True)
class Bomb:
    """A hostile batch, the topic that it goes to, and how often one request has it.

    ``is_known``  whether a gate refuses the next one without reading it
    ``python``    times the engine's CPU that a gate needs besides it, in Python
    """

    make: Callable[[], Batch]
    topic: str = "t"
    partitions: int = 1
    policy: TopicPolicy = UNBOUNDED
    settings: dict[str, Any] = field(default_factory=dict)
    old: bool = False
    is_known: bool = True
    python: float = 0.0

    def requests(self, count: int) -> list[bytes]:
        """Return so many requests whose batches have the same records and different bytes."""
        made = self.make().data
        return [self._request(self._varied(made, number)) for number in range(count)]

    def _varied(self, data: bytes, number: int) -> bytes:
        """Return the batch with another producer id, or a message with another offset."""
        changed = bytearray(data)
        if self.old:
            changed[:8] = struct.pack(">q", number)
        if self.old or not number:
            return bytes(changed)
        changed[43:57] = struct.pack(">qhi", number, 0, 0)
        changed[17:21] = struct.pack(">I", seeds.crc32c(bytes(changed[21:])))
        return bytes(changed)

    def _request(self, data: bytes) -> bytes:
        if self.old:
            return old_produce(2, 1, (self.topic, 0, data))
        return produce((self.topic.encode(), [(i, data) for i in range(self.partitions)]))


def _refused_records(codec: str) -> Batch:
    """Return a million and a half records of nine bytes, each of them refused."""
    one = seeds.record(0, b"k", b"v")
    flags = {"attributes": batches.LOG_APPEND_TIME, "base_timestamp": -1, "max_timestamp": -1}
    return batches.of(one * 1_500_000, 1_500_000, CODECS[codec], **flags)


def _ordered(count: int, last: bytes) -> Batch:
    """Return records in order, of which the last is not as it should be."""
    records = seeds.records_in_order(0, count - 1, b"")
    return batches.of(records + last, count, CODECS["zstd"])


def _odd_headers(count: int) -> Batch:
    """Return a record with so many headers whose names are not UTF-8."""
    head = b"\0" + seeds.varint(0) * 2 + seeds.varint(-1) * 2 + seeds.varint(count)
    body = head + (seeds.varint(1) + b"\xff" + seeds.varint(-1)) * count
    return batches.of(batches.one_record(body), 1, CODECS["zstd"])


def _wrapped(count: int, codec: str) -> Batch:
    """Return a wrapper of magic 1 around so many equal messages, and one that is damaged."""
    message = seeds.legacy(1, None, b"", 0, batches.now_ms())
    inner = message * count + message[:-1] + b"\1"
    payload = batches.packed(CODECS[codec], inner)
    made = seeds.legacy(1, None, payload, count, batches.now_ms(), CODECS[codec])
    return Batch(made, len(inner))


def _bombs() -> dict[str, Bomb]:
    codecs = ("gzip", "snappy", "lz4", "zstd")
    part = functools.partial
    found = {f"1.5 million refused records, {c}": Bomb(part(_refused_records, c)) for c in codecs}
    found |= {
        f"9 million records of one offset, {c}": Bomb(
            part(batches.equal_records, 9_000_000, CODECS[c])
        )
        for c in codecs
    }
    zstd = CODECS["zstd"]
    found |= {
        "a million records, the last of another offset": Bomb(
            part(_ordered, 1_000_000, seeds.record(0, None, b""))
        ),
        "a million records, the last cut off": Bomb(part(_ordered, 1_000_000, b"\x0c\0")),
        GOOD: Bomb(part(_ordered, 1_000_000, seeds.record(999_999, None, b"")), is_known=False),
        "64 MB of zeros, passed on": Bomb(part(batches.zeros, 66_000_000, zstd), is_known=False),
        "210 MB, above the limit": Bomb(part(batches.large_bomb, 30)),
        "30 million empty headers, passed on": Bomb(
            part(batches.empty_headers, 30_000_000, zstd), is_known=False
        ),
        "20 million headers that are not UTF-8, passed on": Bomb(
            part(_odd_headers, 20_000_000), is_known=False
        ),
        "a million null keys of a compacted topic": Bomb(
            part(batches.null_keys, 1_000_000, zstd),
            "compact",
            policy=replace(UNBOUNDED, cleanup_policy="compact"),
        ),
        "9 million records without a required header": Bomb(
            part(batches.equal_records, 9_000_000, zstd),
            "headers",
            policy=replace(UNBOUNDED, record_rules=RecordRules(required_headers=("trace",))),
        ),
        "500,000 records for a custom rule": Bomb(
            part(_ordered, 500_000, seeds.record(499_999, None, b"")),
            "custom",
            is_known=False,
            python=6.0,
        ),
        "1,000 partitions of 20,000 records": Bomb(
            part(batches.equal_records, 20_000, zstd), partitions=1_000
        ),
        "a wrapper of 1.5 million messages, gzip": Bomb(
            part(_wrapped, 1_500_000, "gzip"), settings=OLD, old=True
        ),
    }
    found |= {
        f"1 MB of nothing: {name}": Bomb(
            lambda name=name: batches.empty_streams(1_000_000)[name], is_known=False
        )
        for name in batches.empty_streams(100)
    }
    return found


BOMBS = _bombs()


@dataclass(frozen=True)
class Cost:
    """CPU seconds of requests of so many bytes, which decompress to ``plain`` bytes."""

    seconds: float
    size: int
    requests: int = 1
    plain: int = 0

    @property
    def by_kb(self) -> float:
        return self.seconds / self.size * 1000

    @property
    def by_request(self) -> float:
        return self.seconds / self.requests


def good_byte_s() -> float:
    """Return the CPU of a byte of good records, by byte that is decompressed."""
    cost = engine_cost(BOMBS[GOOD])
    return cost.seconds / cost.plain


def engine_cost(bomb: Bomb, tries: int = 3) -> Cost:
    """Return the least CPU of a check of one batch."""
    made, plain = bomb.make()
    validator = LogValidator(
        bomb.policy,
        max_decompressed_bytes=LIMIT,
        extras=ALL_EXTRAS,
        kafka_version="3.9" if bomb.old else "4.4",
    )
    least = float("inf")
    for _ in range(tries):
        began = time.thread_time()
        validator.check(made, now_ms=batches.now_ms(), produce_version=2 if bomb.old else 9)
        least = min(least, time.thread_time() - began)
    return Cost(least, len(made), plain=min(plain, LIMIT))


def above(bomb: Bomb, byte_s: float, engine: Cost, gate: tuple[Cost, Cost] | None) -> list[str]:
    """Return what is above its ceiling."""
    found = []
    if engine.plain and engine.seconds > ENGINE_RATIO * byte_s * engine.plain:
        found.append(f"engine: {engine.seconds / byte_s / engine.plain:.1f} times a good byte")
    if gate is not None:
        names = {"first": FIRST_RATIO, "repeated": REPEATED_RATIO if bomb.is_known else FIRST_RATIO}
        for (name, ratio), cost in zip(names.items(), gate, strict=True):
            most = (ratio + bomb.python) * engine.seconds * bomb.partitions + REQUEST_S
            if cost.by_request > most:
                found.append(f"{name}: {cost.by_request:.4f} s a request, allowed {most:.4f} s")
    return found


def gate_costs(gate: GateUnderTest, bomb: Bomb) -> tuple[Cost, Cost]:
    """Return the CPU of a gate for batches that differ, and for one that is repeated."""
    requests = bomb.requests(REQUESTS + 1)
    _sent(gate, requests[:1])
    first = _sent(gate, requests[1:])
    _sent(gate, requests[:1])  # which may have made way for the others
    return first, _sent(gate, requests[:1] * REQUESTS)


def _sent(gate: GateUnderTest, requests: list[bytes]) -> Cost:
    """Send requests, each after the answer to the one before; return what they cost the gate."""
    before, size, count = gate.cpu_s(), 0, 0
    with socket.create_connection(gate.address, 120) as sock, sock.makefile("rb") as answers:
        for request in requests:
            sock.sendall(request)
            size, count = size + len(request), count + 1
            answers.read(int.from_bytes(answers.read(4), "big"))
            if gate.cpu_s() - before > ENOUGH_S:
                break
    return Cost(gate.cpu_s() - before, size, count)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--checkout", type=Path, default=ROOT)
    parser.add_argument("--engine", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(argv)
    rows, broken = {}, 0
    byte_s = good_byte_s()
    for name, bomb in BOMBS.items():
        if options.only and not any(text in name for text in options.only):
            continue
        engine = engine_cost(bomb)
        row = {"bytes": engine.size, "engine_s_kb": engine.by_kb}
        costs = None
        if not options.engine:
            with tempfile.TemporaryDirectory(prefix="bomb-costs-") as folder:
                settings = TOPICS | bomb.settings
                with GateUnderTest(options.checkout, Path(folder), settings) as gate:
                    costs = gate_costs(gate, bomb)
            row |= {"first_s_kb": costs[0].by_kb, "repeated_s_kb": costs[1].by_kb}
        rows[name] = row
        found = above(bomb, byte_s, engine, costs)
        broken += bool(found)
        print(name, json.dumps(row), *found, file=sys.stderr, flush=True)
    print(table(("bomb", *next(iter(rows.values()))), [_cells(*one) for one in rows.items()]))
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"bomb costs: {len(rows)} bombs, {broken} above a ceiling")
    return int(bool(broken))


def _cells(name: str, row: dict[str, float]) -> list[str]:
    return [name, *(f"{value:,.5g}" for value in row.values())]


if __name__ == "__main__":
    sys.exit(main())

"""Attacks of strangers on the gate, as data: one function each, in the table `ATTACKS`.

A function is a generator. It builds what it will send, yields once (the harness starts its clock),
sends, and returns `Sent`. It runs in a process of its own (attacker.py).
Client ids choose what the broker answers (broker.py).
"""

from __future__ import annotations

import random
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.evidence.hostile_gate import batches
from tests.evidence.hostile_gate import requests as kafka
from tests.evidence.hostile_gate.batches import CODECS, Batch
from tests.evidence.hostile_gate.crowd import Crowd, Plan, Sent
from tests.evidence.hostile_gate.requests import produce
from tests.support.broker_requests import broker_requests

Address = tuple[str, int]
Running = Generator[None, None, Sent]
PATIENCE_S = 8.0
KAFKA_RULES = {"validation": {"rules": "kafka", "max_decompressed_bytes": 1 << 20}}
TLS_FILES = {"certificate": "gate.pem", "key": "gate.key"}
TLS = {"listeners": [{"address": "127.0.0.1:0", "first_broker_port": 0, "tls": TLS_FILES}]}
BOUNDED = {
    "topics": {
        "policies": [
            {"match": "compact*", "cleanup.policy": "compact"},
            {"match": "fresh*", "message.timestamp.before.max.ms": 3_600_000},
        ]
    }
}


@dataclass(frozen=True)
class Attack:
    """An attack and the settings of the gate that it is for.

    ``unit``   what its CPU time is divided by (ceilings.py): "byte" received or decompressed,
               "request" or "connection" where these have almost no bytes, "answer" for a byte of
               the broker's answers
    ``in_ci``  whether the alone stage of ``make test`` runs it
    ``memory`` bytes over idle that it may take; None: max_bytes_held and more (ceilings.py)
    """

    name: str
    run: Callable[[Address], Running]
    settings: dict[str, Any] = field(default_factory=dict)
    unit: str = "byte"
    in_ci: bool = False
    memory: int | None = None


ATTACKS: dict[str, Attack] = {}


def attack(
    name: str,
    settings: dict[str, Any] | None = None,
    *,
    unit: str = "byte",
    in_ci: bool = False,
    memory: int | None = None,
) -> Callable[[Callable[[Address], Running]], Callable[[Address], Running]]:
    """Enter a function in the table."""

    def enter(run: Callable[[Address], Running]) -> Callable[[Address], Running]:
        ATTACKS[name] = Attack(name, run, settings or {}, unit, in_ci, memory)
        return run

    return enter


def several(
    names: dict[str, Callable[[], Iterable[Plan]]], prefix: str, in_ci: str = "", **options: Any
) -> None:
    """Enter attacks that differ in their plans only."""
    for name, plans in names.items():

        def run(address: Address, plans: Callable[[], Iterable[Plan]] = plans) -> Running:
            made = list(plans())
            yield
            return driven(address, made)

        attack(f"{prefix}: {name}", in_ci=name == in_ci, **options)(run)


def driven(
    address: Address, plans: Iterable[Plan], plain: int = 0, seconds: float = PATIENCE_S
) -> Sent:
    """Open all connections, drive them, close them."""
    crowd = Crowd(address)
    crowd.open(plans)
    crowd.drive(seconds)
    sent = crowd.sent(plain)
    crowd.close()
    return sent


def refused(
    made: Batch, copies: int = 1, topic: bytes = b"t", client: bytes = b"c", acks: int = 1
) -> bytes:
    """Return a request with this batch for partitions 0, 1, ..."""
    return produce((topic, [(i, made.data) for i in range(copies)]), client=client, acks=acks)


# ---- many partitions -----------------------------------------------------------------------------

JUNK = b"\0" * 30


def one(data: bytes) -> list[Plan]:
    return [Plan(data, 1, 1)]


def within_limit(records: bytes | None) -> list[Plan]:
    """Send requests of 9,999 partitions, which the default of max_partitions_per_request allows."""
    request = kafka.many_partitions(9_999, records)
    return [Plan(request * 20, 20, 20)]


def empty_topics(count: int) -> bytes:
    return kafka.produce_of(kafka.topic_of(b"t", b"", 0) * count, count)


def own_topics(count: int, same: bool = False) -> bytes:
    bad = kafka.partition_of(0, JUNK)
    names = (b"t" if same else b"topic-%d" % i for i in range(count))
    return kafka.produce_of(b"".join(kafka.topic_of(name, bad, 1) for name in names), count)


several(
    {
        "200,000 null ones": lambda: one(kafka.many_partitions(200_000, None)),
        "200,000 empty ones": lambda: one(kafka.many_partitions(200_000, b"")),
        "100,000 of 30 bytes": lambda: one(kafka.many_partitions(100_000, JUNK)),
        "100,000 null ones in Produce 3": lambda: one(kafka.many_partitions_3(100_000, None)),
        "20 times 9,999 null ones": lambda: within_limit(None),
        "20 times 9,999 of 30 bytes": lambda: within_limit(JUNK),
        "9,999 null ones on 20 connections": lambda: one(kafka.many_partitions(9_999, None)) * 20,
        "100,000 topics": lambda: one(own_topics(100_000)),
        "20 times 9,999 topics": lambda: [Plan(own_topics(9_999) * 20, 20, 20)],
        "one topic 50,000 times": lambda: one(own_topics(50_000, same=True)),
        "500,000 topics without one": lambda: one(empty_topics(500_000)),
    },
    "partitions",
    in_ci="20 times 9,999 of 30 bytes",
)


# ---- record errors -------------------------------------------------------------------------------


@attack("record errors: 155 bytes of zstd", in_ci=True)
def errors_of_155_bytes(address: Address) -> Running:
    made = batches.errors(140_000, CODECS["zstd"])
    yield
    return driven(address, [Plan(refused(made) * 20, 20, 20)], 20 * made.plain)


@attack("record errors: 100 partitions of 155 bytes")
def errors_of_100_partitions(address: Address) -> Running:
    made = batches.errors(140_000, CODECS["zstd"])
    yield
    return driven(address, [Plan(refused(made, 100), 1, 1)], 100 * made.plain)


@attack("record errors: 5,000 partitions of a few records")
def errors_of_many_partitions(address: Address) -> Running:
    made = batches.errors(300, CODECS["zstd"])
    yield
    return driven(address, [Plan(refused(made, 5_000), 1, 1)], 5_000 * made.plain)


def _errors_of_codec(codec: str) -> Callable[[Address], Running]:
    def run(address: Address) -> Running:
        made = batches.errors(1_000_000, CODECS[codec])
        yield
        return driven(address, [Plan(refused(made) * 3, 3, 3)], 3 * made.plain)

    return run


for _codec in ("gzip", "snappy", "lz4", "zstd"):
    attack(f"record errors: a million, {_codec}")(_errors_of_codec(_codec))


@attack("record errors: null keys on a compacted topic", BOUNDED)
def errors_of_null_keys(address: Address) -> Running:
    made = batches.null_keys(500_000, CODECS["zstd"])
    yield
    return driven(address, [Plan(refused(made, topic=b"compact-1") * 5, 5, 5)], 5 * made.plain)


@attack("record errors: old timestamps", BOUNDED)
def errors_of_old_records(address: Address) -> Running:
    made = batches.old_records(500_000, CODECS["zstd"])
    yield
    return driven(address, [Plan(refused(made, topic=b"fresh-1") * 5, 5, 5)], 5 * made.plain)


@attack("record errors: pipelined, answers unread", in_ci=True)
def errors_unread(address: Address) -> Running:
    made = batches.errors(60_000, CODECS["zstd"])
    yield
    plans = [Plan(refused(made) * 200, 200, 200, reads=False) for _ in range(4)]
    return driven(address, plans, 800 * made.plain, 4.0)


@attack("record errors: held after an unanswered request")
def errors_held(address: Address) -> Running:
    first = produce((b"t", [(0, batches.small().data)]), client=b"mute-1")
    made = batches.errors(65_000, CODECS["zstd"])
    yield
    plans = [Plan(first + refused(made) * 200, 201, 201)]
    return driven(address, plans, 200 * made.plain, 5.0)


@attack("record errors: acks=0")
def errors_without_answers(address: Address) -> Running:
    made = batches.errors(140_000, CODECS["zstd"])
    yield
    return driven(address, [Plan(refused(made, acks=0) * 50, 50, stays=True)], 50 * made.plain, 3.0)


@attack("refusals: 20,000 bad batches, each with its log line", unit="request")
def refusals(address: Address) -> Running:
    bad = refused(batches.damaged(batches.small()))
    yield
    return driven(address, [Plan(bad * 1_000, 1_000, 1_000) for _ in range(20)])


# ---- partial frames ------------------------------------------------------------------------------


@attack("partial frames: 6 of 99 MB", in_ci=True)
def partial_large(address: Address) -> Running:
    data = struct.pack(">i", 104_857_600) + kafka.header(0, 9, 1, b"c", b"\0") + bytes(99 << 20)
    yield
    return driven(address, [Plan(data, 0, 1) for _ in range(6)], seconds=5.0)


@attack("partial frames: 1,000 of 500 kB")
def partial_many(address: Address) -> Running:
    data = struct.pack(">i", 524_000) + kafka.header(0, 9, 1, b"c", b"\0") + bytes(500_000)
    yield
    return driven(address, [Plan(data, 0, 1) for _ in range(1_000)], seconds=5.0)


@attack("partial frames: 300 that grow by 10 bytes", unit="connection")
def partial_drip(address: Address) -> Running:
    data = struct.pack(">i", 400_000) + kafka.header(0, 9, 1, b"c", b"\0") + bytes(4_000)
    yield
    return driven(
        address,
        [Plan(data, 0, 1, drip=10) for _ in range(300)],
        seconds=4.0,
    )


@attack("partial frames: 2,000 lengths alone", unit="connection")
def partial_lengths(address: Address) -> Running:
    yield
    return driven(
        address, [Plan(struct.pack(">i", 100_000_000), 0, 1) for _ in range(2_000)], seconds=3.0
    )


# ---- names ---------------------------------------------------------------------------------------


def long_name(number: int) -> bytes:
    """Return a name with a character of four bytes, for which CPython keeps four bytes per
    character.
    """
    return b"\xf0\x9f\x98\x80%08d" % number + b"a" * 32_000


def invalid_name(number: int) -> bytes:
    return b"a name/%d" % number + b" " * 100


def names_of(name: Callable[[int], bytes], count: int, each: int) -> list[Plan]:
    """Send Produce requests of ``each`` topics, which are refused."""
    bad = kafka.partition_of(0, JUNK)
    frames = []
    for first in range(0, count, each):
        topics = (kafka.topic_of(name(i), bad, 1) for i in range(first, first + each))
        frames.append(kafka.produce_of(b"".join(topics), each))
    return [Plan(b"".join(frames), len(frames), len(frames))]


def asked(name: Callable[[int], bytes], count: int) -> list[Plan]:
    frames = [
        kafka.metadata(name(i) for i in range(first, first + 1_000))
        for first in range(0, count, 1_000)
    ]
    return [Plan(b"".join(frames), len(frames), len(frames))]


several(
    {
        "2,000 of 32 kB": lambda: names_of(long_name, 2_000, 100),
        "50,000 that are invalid": lambda: names_of(invalid_name, 50_000, 5_000),
        "100,000 valid ones": lambda: names_of(lambda i: b"orders.%d" % i, 100_000, 5_000),
        "100,000 valid ones in Metadata": lambda: asked(lambda i: b"orders.%d" % i, 100_000),
        "labels of the first hundred": lambda: names_of(lambda i: b"x%03d" % (i % 100), 2_000, 100),
    },
    "names",
    settings=BOUNDED,
    in_ci="2,000 of 32 kB",
)


# ---- bombs ---------------------------------------------------------------------------------------


def _bomb(
    make: Callable[[], Batch], copies: int, connections: int = 1
) -> Callable[[Address], Running]:
    def run(address: Address) -> Running:
        made = make()
        request = refused(made)
        yield
        plans = [Plan(request * copies, copies, copies) for _ in range(connections)]
        return driven(address, plans, copies * connections * made.plain)

    return run


attack("bomb: 9 million records in 6 kB of zstd", in_ci=True)(
    _bomb(lambda: batches.equal_records(9_000_000, CODECS["zstd"]), 4)
)
attack("bomb: 9 million records, gzip")(
    _bomb(lambda: batches.equal_records(9_000_000, CODECS["gzip"]), 4)
)
attack("bomb: 9 million records, lz4")(
    _bomb(lambda: batches.equal_records(9_000_000, CODECS["lz4"]), 4)
)
attack("bomb: 9 million records, snappy")(
    _bomb(lambda: batches.equal_records(9_000_000, CODECS["snappy"]), 4)
)
attack("bomb: 64 MB of zeros, zstd")(_bomb(lambda: batches.zeros(66_000_000, CODECS["zstd"]), 8))
attack("bomb: 30 million empty headers")(
    _bomb(lambda: batches.empty_headers(30_000_000, CODECS["zstd"]), 3)
)
attack("bomb: 20 small ones in a request")(
    _bomb(lambda: batches.equal_records(100_000, CODECS["zstd"]), 200)
)
attack("bomb: 210 MB, above the limit")(_bomb(lambda: batches.large_bomb(30), 8))


def _empty_stream(name: str) -> Callable[[Address], Running]:
    def run(address: Address) -> Running:
        request = refused(batches.empty_streams(1_000_000)[name])
        yield
        return driven(address, [Plan(request * 4, 4, 4)])

    return run


for _name in batches.empty_streams(100):
    attack(f"stream of nothing: {_name}")(_empty_stream(_name))


@attack("many small streams of nothing: 7 kB of gzip blocks")
def small_streams(address: Address) -> Running:
    request = refused(batches.empty_streams(7_000)["gzip blocks"])
    yield
    return driven(address, [Plan(request * 300, 300, 300)])


# ---- the validating threads ----------------------------------------------------------------------


@attack("judging: 12 bombs and gone", in_ci=True)
def bombs_and_gone(address: Address) -> Running:
    made = batches.equal_records(9_000_000, CODECS["zstd"])
    request = refused(made)
    yield
    crowd = Crowd(address)
    crowd.open([Plan(request * 12, 12)])
    crowd.drive(0.5)
    crowd.close()
    time.sleep(2.0)
    return crowd.sent(12 * made.plain)


@attack("judging: 20 connections of 3 bombs")
def bombs_of_many(address: Address) -> Running:
    made = batches.equal_records(9_000_000, CODECS["zstd"])
    request = refused(made)
    yield
    return driven(address, [Plan(request * 3, 3, 3) for _ in range(20)], 60 * made.plain, 5.0)


@attack("judging: 300 connections of one bomb that leave")
def bombs_that_leave(address: Address) -> Running:
    made = batches.equal_records(9_000_000, CODECS["zstd"])
    request = refused(made)
    yield
    total = Sent()
    for _ in range(6):
        crowd = Crowd(address)
        crowd.open([Plan(request, 1) for _ in range(50)])
        crowd.drive(0.2)
        crowd.close()
        part = crowd.sent(50 * made.plain)
        total.connections += part.connections
        total.sent += part.sent
        total.requests += part.requests
        total.plain += part.plain
        time.sleep(0.2)
    return total


# ---- TLS -----------------------------------------------------------------------------------------


@attack("TLS: 400 handshakes at once", TLS, unit="connection", in_ci=True)
def handshakes(address: Address) -> Running:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    sent = Sent()
    yield
    until = time.monotonic() + PATIENCE_S

    def shake(count: int) -> None:
        for _ in range(count):
            if time.monotonic() > until:
                return
            try:
                with socket.create_connection(address, 10) as sock, context.wrap_socket(sock):
                    sent.connections += 1
            except OSError:
                sent.closed += 1

    threads = [threading.Thread(target=shake, args=(50,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sent.sent = sent.connections * 700
    return sent


@attack("TLS: 500 half handshakes", TLS, unit="connection")
def half_handshakes(address: Address) -> Running:
    yield
    return driven(
        address, [Plan(b"\x16\x03\x01\x02\x00\x01", 0, 1) for _ in range(500)], seconds=3.0
    )


@attack("TLS: 500 first messages", TLS, unit="connection")
def first_messages(address: Address) -> Running:
    """Begin handshakes: each makes the gate sign, and costs the client nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing)
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        hello = outgoing.read()
    yield
    return driven(address, [Plan(hello, 0, 1 << 30) for _ in range(500)], seconds=3.0)


@attack("TLS: Kafka in plain text", TLS, unit="connection")
def no_tls(address: Address) -> Running:
    yield
    return driven(
        address, [Plan(kafka.api_versions() * 10, 10, 10) for _ in range(500)], seconds=3.0
    )


# ---- connections ---------------------------------------------------------------------------------


@attack("connections: 2,000 silent ones", unit="connection", in_ci=True)
def silent(address: Address) -> Running:
    yield
    return driven(address, [Plan(b"", 0, 1) for _ in range(2_000)], seconds=2.0)


@attack("connections: 3,000 that close at once", unit="connection")
def churn(address: Address) -> Running:
    yield
    sent = Sent()
    until = time.monotonic() + PATIENCE_S
    for _ in range(3_000):
        if time.monotonic() > until:
            break
        try:
            socket.create_connection(address, 5).close()
            sent.connections += 1
        except OSError:
            sent.closed += 1
    return sent


@attack("connections: 1,500 with one request each", unit="connection")
def one_request(address: Address) -> Running:
    yield
    return driven(
        address, [Plan(kafka.api_versions(), 1, 1, stays=True) for _ in range(1_500)], seconds=3.0
    )


SHORT_MEMORY = 20 << 20


@attack(
    "connections: 8,000 short ones, 100 at a time",
    unit="connection",
    in_ci=True,
    memory=SHORT_MEMORY,
)
def short(address: Address) -> Running:
    """Ask for versions, read the answer, and leave: closed sessions must leave no memory."""
    yield
    total = Sent()
    for _ in range(80):
        part = driven(address, [Plan(kafka.api_versions(), 1, 1) for _ in range(100)])
        total.connections += part.connections
        total.sent += part.sent
        total.requests += part.requests
        total.answers += part.answers
        total.answered += part.answered
        total.largest_answer = max(total.largest_answer, part.largest_answer)
        total.closed += part.closed
    return total


# ---- rules: kafka --------------------------------------------------------------------------------

attack("rules kafka: 210 MB out of 19 kB", KAFKA_RULES, in_ci=True)(
    _bomb(lambda: batches.large_bomb(30), 3)
)
attack("rules kafka: 3 million record errors", KAFKA_RULES)(
    _bomb(lambda: batches.errors(3_000_000, CODECS["zstd"]), 1)
)


# ---- files of the gate ---------------------------------------------------------------------------

AUDITED = {
    "log": {
        "level": "error",
        "audit_file": "refused.jsonl",
        "audit_max_bytes": 1 << 20,
        "audit_max_files": 2,
    }
}


@attack("files: 8,000 refusals with long client ids", AUDITED, unit="request", in_ci=True)
def long_refusals(address: Address) -> Running:
    """Send requests of which each makes a row of log.audit_file that is longer than itself."""
    bad = batches.damaged(batches.small())
    request = refused(bad, client=b"\xf0\x9f\x98\x80" * 249)
    yield
    return driven(address, [Plan(request * 2_000, 2_000, 2_000) for _ in range(4)])


# ---- large and uncompressed ----------------------------------------------------------------------


@attack("uncompressed: 91 MB of refused records")
def uncompressed_refused(address: Address) -> Running:
    request = refused(batches.errors(13_000_000))
    yield
    return driven(address, [Plan(request, 1, 1)], seconds=15.0)


@attack("uncompressed: 20 times 1 MB of records of 7 bytes", in_ci=True)
def uncompressed_small_records(address: Address) -> Running:
    request = refused(batches.errors(140_000))
    yield
    return driven(address, [Plan(request * 20, 20, 20)])


@attack("uncompressed: 6 times 60 MB to a broker that does not answer")
def uncompressed_unanswered(address: Address) -> Running:
    request = refused(batches.zeros(60_000_000, 0), client=b"mute-1")
    yield
    return driven(address, [Plan(request, 1, 1) for _ in range(6)], seconds=4.0)


# ---- answers that nobody reads -------------------------------------------------------------------


@attack("answers: ApiVersions, 100,000 unread", unit="request")
def unread_small(address: Address) -> Running:
    data = kafka.api_versions() * 10_000
    yield
    return driven(
        address, [Plan(data, 10_000, 10_000, reads=False) for _ in range(10)], seconds=4.0
    )


@attack("answers: Metadata of 20,000 topics", unit="answer")
def large_metadata(address: Address) -> Running:
    data = kafka.metadata([], client=b"many-1") * 5
    yield
    return driven(address, [Plan(data, 5, 5) for _ in range(4)])


@attack("answers: Metadata of 20,000 topics, unread", unit="request")
def large_metadata_unread(address: Address) -> Running:
    data = kafka.metadata([], client=b"many-1") * 50
    yield
    return driven(address, [Plan(data, 50, 50, reads=False) for _ in range(10)], seconds=4.0)


# ---- a broker whose answers are broken -----------------------------------------------------------


def each(request: bytes, connections: int) -> list[Plan]:
    """Send one request on each connection, which its answer ends."""
    return [Plan(request, 1, 1) for _ in range(connections)]


several(
    {
        "Metadata of 20,000 brokers": lambda: each(kafka.metadata([], client=b"brokers-1"), 200),
        "Metadata of 5,000 new brokers": lambda: each(kafka.metadata([], client=b"new-1"), 200),
        "ApiVersions of 7 MB": lambda: each(kafka.api_versions(b"versions-1"), 50),
    },
    "broken broker",
    in_ci="Metadata of 20,000 brokers",
    unit="connection",
)
several(
    {"a broker that moves": lambda: flood(kafka.metadata([], client=b"move-1"), 50, 80)},
    "broken broker",
    unit="request",
)


# ---- floods of small requests --------------------------------------------------------------------


def flood(request: bytes, count: int, connections: int) -> list[Plan]:
    """Send as many requests on each of the connections, all at once."""
    return [Plan(request * count, count, count) for _ in range(connections)]


several(
    {
        "100,000 Heartbeats of 30 bytes": lambda: flood(kafka.heartbeat(), 25_000, 4),
        "50,000 ApiVersions": lambda: flood(kafka.api_versions(), 12_500, 4),
        "50,000 Produce without a topic": lambda: flood(kafka.produce(), 12_500, 4),
        "Heartbeats on 200 connections": lambda: flood(kafka.heartbeat(), 300, 200),
        "unanswered Heartbeats": lambda: [Plan(kafka.heartbeat(b"mute-1") * 100_000, 100_000, 1)],
    },
    "flood",
    in_ci="100,000 Heartbeats of 30 bytes",
    unit="request",
)


@attack("names: 100,000 client ids", unit="request", in_ci=True)
def client_ids(address: Address) -> Running:
    """Send requests of which each makes a row of the table of clients, and displaces another."""
    plans = []
    for n in range(4):
        data = b"".join(kafka.heartbeat(b"%0100d" % (25_000 * n + i)) for i in range(25_000))
        plans.append(Plan(data, 25_000, 25_000))
    yield
    return driven(address, plans)


# ---- malformed -----------------------------------------------------------------------------------


def garbage(count: int) -> list[Plan]:
    rng = random.Random(14)
    return [Plan(rng.randbytes(200), 0, 1) for _ in range(count)]


def broken(count: int) -> list[Plan]:
    """Produce requests with three bytes changed."""
    rng = random.Random(15)
    good = produce((b"t", [(i, batches.small().data) for i in range(4)]))
    plans = []
    for _ in range(count):
        data = bytearray(good)
        for _ in range(3):
            data[rng.randrange(4, len(data))] = rng.randrange(256)
        plans.append(Plan(bytes(data), 1, 1))
    return plans


def lengths() -> list[Plan]:
    sizes = (-1, 0, 1, 7, 8, 0x7FFFFFFF, -(1 << 31), 104_857_601)
    return [Plan(struct.pack(">i", size) + bytes(20), 0, 1) for size in sizes for _ in range(60)]


def promises() -> list[Plan]:
    """Send counts and lengths of 2^31 with nothing after them."""
    huge = kafka.uvarint(0x7FFFFFFF)
    head = kafka.header(0, 9, 1, b"c", b"\0")
    bodies = (
        head + b"\0" + struct.pack(">hi", 1, 1000) + huge,
        head + b"\0" + struct.pack(">hi", 1, 1000) + b"\2" + kafka.compact(b"t") + huge,
        head + b"\0" + struct.pack(">hi", 1, 1000) + b"\2" + huge,
        head + huge,
        kafka.header(0, 9, 1, b"c") + huge,
        kafka.header(3, 1) + struct.pack(">i", 0x7FFFFFFF),
    )
    return [Plan(kafka.frame(body), 1, 1) for body in bodies for _ in range(50)]


def unknown() -> list[Plan]:
    keys = (-1, 4, 6, 7, 51, 58, 100, 0x7FFF)
    return [
        Plan(kafka.frame(kafka.header(key, version) + bytes(20)), 1, 1)
        for key in keys
        for version in range(20)
    ]


def of_brokers() -> list[Plan]:
    """Send each request of brokers and controllers at each version: the broker must get none."""
    return [Plan(one.frame, 1, 1) for one in broker_requests(client=b"never-1")]


several(
    {"each API at each version": of_brokers},
    "requests of brokers",
    in_ci="each API at each version",
    unit="connection",
)

several(
    {
        "500 connections of garbage": lambda: garbage(500),
        "500 broken Produce requests": lambda: broken(500),
        "lengths": lengths,
        "promises of 2^31": promises,
        "unknown APIs and versions": unknown,
    },
    "malformed",
    in_ci="500 broken Produce requests",
    unit="connection",
)


def tagged(count: int) -> bytes:
    return kafka.produce_of(b"", 0, tags=kafka.many_tags(count))


def asking(count: int) -> bytes:
    return kafka.metadata(b"t%d" % i for i in range(count))


LONG_ID = b"\xc3\xa9" * 16_000


def tokens() -> list[Plan]:
    """Send SaslAuthenticate with tokens of 400 kB, after SaslHandshake."""
    hello = kafka.frame(kafka.header(kafka.SASL_HANDSHAKE, 1) + struct.pack(">h5s", 5, b"PLAIN"))
    token = kafka.frame(kafka.header(36, 1) + struct.pack(">i", 400_000) + bytes(400_000))
    return [Plan(hello + token * 10, 11, 11) for _ in range(4)]


several(
    {
        "500,000 tagged fields in a header": lambda: one(tagged(500_000)),
        "9,000 partitions of 50 tagged fields": lambda: one(
            kafka.produce_of(
                kafka.topic_of(
                    b"t", kafka.partition_of(0, JUNK, kafka.many_tags(50)) * 9_000, 9_000
                ),
                1,
            )
        ),
        "client ids of 32 kB": lambda: flood(kafka.heartbeat(LONG_ID), 300, 1),
        "refusals with client ids of 32 kB": lambda: [
            Plan(
                refused(batches.damaged(batches.small()), client=b"\x1b[2J" * 8_000) * 300, 300, 300
            )
        ],
        "Metadata that asks for 100,000 topics": lambda: one(asking(100_000)),
        "SaslAuthenticate with 400 kB": tokens,
    },
    "fields",
    in_ci="500,000 tagged fields in a header",
)

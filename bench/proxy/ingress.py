"""CPU of gate and broker at a fixed ingress: so many MB a second on the wire, paced, in front of a
real Apache Kafka.

    straight    client → Kafka
    off         client → a gate that validates nothing → Kafka
    validating  client → a gate that decompresses and validates → Kafka
    audited     a client that attaches claims → a gate that believes them but for one in a thousand → Kafka
    two gates   client → a gate that validates and attaches claims → the same gate as above → Kafka

CPU is user and system time of each process (all threads) as a share of one core. The client sends
prebuilt Produce requests of one compressed batch (records of 1 kB) over 4 connections, to a
partition each, 5 in flight at most; each answer must be without an error. All ways are up at once
and take turns. Needs Java and Maven.

    python -m bench ingress [--mb 30] [--codecs lz4,zstd] [--rounds 3] [--quick] [--write]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import uvloop

from batchval.network.connection import Connection
from batchval.network.options import ConnectionOptions
from bench import runs
from bench.pages import proxy as page
from bench.proxy import ends, load
from bench.validation import cells
from tests.interop.kafka_broker import KAFKA_VERSION, KafkaBroker
from tests.support.gate_process import GateProcess
from tests.support.produce_requests import Metadata

WAYS = ("straight", "off", "validating", "audited", "two gates")
SIZE = "64 kB"
PARTITIONS = CONNECTIONS = 4
WINDOW = 5
FRAMES = 32
AUDIT = "audit:0.001"
SETTLE_S = 2.0  # of each run: the ledger's first 100 batches of a sender, buffers
HEAP = "1g"
#: As a broker that is to live for long is run; the tests' own is short-lived by its flags.
JVM = (
    "-XX:-UseSerialGC",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:TieredStopAtLevel=4",
    f"-Xms{HEAP}",
)
SETTINGS = {
    "num.partitions": PARTITIONS,
    "log.retention.ms": -1,  # the records' timestamps are old
    "log.retention.bytes": 64 << 20,
    "log.segment.bytes": 32 << 20,
    "log.retention.check.interval.ms": 1000,
    "log.segment.delete.delay.ms": 1000,
}
ERROR_AT = (
    4 + 1 + 1 + 1 + len(load.TOPIC) + 1 + 4
)  # correlation id, tags, topics, name, partitions, index


@dataclass(slots=True)
class Prebuilt:
    """A Produce request of which only the correlation id is written anew. ``decode`` gives the
    error code.
    """

    frame: bytes
    api_key: int = 0
    api_version: int = 9
    expects_response: bool = True

    def encode(self, correlation_id: int, client_id: str | None) -> Sequence[bytes | memoryview]:
        return [self.frame[:8] + correlation_id.to_bytes(4, "big"), memoryview(self.frame)[12:]]

    def decode(self, frame: memoryview) -> int:
        return int.from_bytes(frame[ERROR_AT : ERROR_AT + 2], "big", signed=True)


def requests(codec: str, *, claims: bool) -> list[list[Prebuilt]]:
    """Return the requests of each partition."""
    count = load.records_in(codec, SIZE)
    return [
        [
            Prebuilt(
                load.produce(
                    load.batch_of(codec, SIZE, n, count), claims=claims, partition=partition
                )
            )
            for n in range(partition, FRAMES, PARTITIONS)
        ]
        for partition in range(PARTITIONS)
    ]


class Sent:
    """Bytes so far, of requests that were answered without an error."""

    def __init__(self) -> None:
        self.bytes = self.requests = 0
        self.wrong: list[str] = []

    def answered(self, size: int, error_code: int | None, error: BaseException | None) -> None:
        if error is not None or error_code:
            self.wrong.append(repr(error or error_code))
        self.bytes += size
        self.requests += 1


async def pace(
    port: int, what: list[Prebuilt], bytes_a_second: float, until: float, sent: Sent
) -> None:
    """Send on one connection at this rate; catch up as far as the window allows."""
    connection = await Connection.open("127.0.0.1", port, ConnectionOptions(max_in_flight=WINDOW))
    loop = asyncio.get_running_loop()
    due, number = loop.time(), 0
    try:
        while due < until and not sent.wrong:
            await asyncio.sleep(due - loop.time())
            request = what[number % len(what)]
            size = len(request.frame)
            await connection.produce_async(
                request, lambda code, error, size=size: sent.answered(size, code, error)
            )
            due += size / bytes_a_second
            number += 1
        while len(connection.in_flight) and not sent.wrong:
            await asyncio.sleep(0.01)
    finally:
        connection.close()


class Way:
    """The gates of one way, up."""

    def __init__(self, name: str, broker: KafkaBroker, open_: contextlib.ExitStack) -> None:
        self.name = name
        self.gates: dict[str, int] = {}  # name -> process id
        self.core: GateProcess | None = None
        port = int(broker.bootstrap.rpartition(":")[2])
        if name == "off":
            gate = ends.gate("off", port, ends.Place())
            open_.callback(gate.stop)
            self.port, self.gates["gate"] = gate.port, gate.process.pid
            return
        self.port = port
        if name != "straight":
            self.core = open_.enter_context(
                GateProcess(broker.bootstrap, claims_in="ignore" if name == "validating" else AUDIT)
            )
            self._through(self.core, "gate")
        if name == "two gates":
            assert self.core is not None
            self._through(
                open_.enter_context(GateProcess(self.core.bootstrap, claims_out="tag")),
                "first gate",
            )

    def _through(self, gate: GateProcess, called: str) -> None:
        assert gate.process is not None
        self.port, self.gates[called] = gate.port, gate.process.pid

    def paths(self) -> dict[str, int]:
        """Return batches by path of the proxy before the broker, which must have rejected none."""
        if self.core is None:
            return {}
        counters = self.core.counters()
        if counters["partitions_refused"] or counters["lying"]:
            raise RuntimeError(
                f"{self.name}: refused {counters['partitions_refused']}, lying {counters['lying']}"
            )
        found: dict[str, int] = counters["batches_by_path"]
        return found


async def run(
    way: Way,
    broker_pid: int,
    what: list[list[Prebuilt]],
    mb_a_second: float,
    settle_s: float,
    seconds: float,
) -> dict[str, Any]:
    """Run once and measure after ``settle_s``. Raises RuntimeError for an answer with an error."""
    loop = asyncio.get_running_loop()
    sent = Sent()
    each = mb_a_second * 1e6 / CONNECTIONS
    until = loop.time() + settle_s + seconds
    clients = [asyncio.ensure_future(pace(way.port, one, each, until + 0.3, sent)) for one in what]
    await asyncio.sleep(settle_s)
    processes = {**way.gates, "broker": broker_pid}
    paths = way.paths()
    began, before, size = (
        loop.time(),
        {name: runs.cpu_s(pid) for name, pid in processes.items()},
        sent.bytes,
    )
    await asyncio.sleep(seconds)
    took, after, done = (
        loop.time() - began,
        {name: runs.cpu_s(pid) for name, pid in processes.items()},
        sent.bytes,
    )
    taken = {path: count - paths.get(path, 0) for path, count in way.paths().items()}
    await asyncio.gather(*clients)
    if sent.wrong:
        raise RuntimeError(f"{way.name}: answered with {sent.wrong[0]}")
    return {
        "cpu": {name: (after[name] - before[name]) / took for name in processes},
        "mb_a_second": (done - size) / took / 1e6,
        "paths": taken,
    }


def measure(options: argparse.Namespace) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return the rounds of each codec and way."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    with (
        KafkaBroker(config=SETTINGS, heap=HEAP, jvm=JVM) as broker,
        contextlib.ExitStack() as open_,
    ):
        assert broker.process is not None
        pid = broker.process.pid
        ways = [Way(name, broker, open_) for name in WAYS]
        uvloop.run(topic(int(broker.bootstrap.rpartition(":")[2])))
        loads = {
            codec: [requests(codec, claims=claims) for claims in (False, True)]
            for codec in options.codecs
        }
        for plain, _ in loads.values():  # the JVM compiles
            uvloop.run(run(ways[0], pid, plain, options.mb, 0.0, options.warm_up))
        for number in range(options.rounds):
            for codec, (plain, claiming) in loads.items():
                for way in ways:
                    what = claiming if way.name == "audited" else plain
                    sample = uvloop.run(
                        run(way, pid, what, options.mb, options.settle, options.seconds)
                    )
                    found.setdefault(codec, {}).setdefault(way.name, []).append(sample)
                    runs.tell(f"  round {number + 1}: {codec}: {way.name}: {summary(sample)}")
    return found


async def topic(port: int) -> None:
    """Request the topic's metadata, at which the broker creates it."""
    connection = await Connection.open("127.0.0.1", port, ConnectionOptions())
    while not await connection.request(Metadata(load.TOPIC)):
        await asyncio.sleep(0.2)
    connection.close()
    await asyncio.sleep(1.0)  # all partitions have leaders


def summary(sample: dict[str, Any]) -> str:
    shares = ", ".join(f"{name} {share:.0%}" for name, share in sample["cpu"].items())
    return f"{shares}; {sample['mb_a_second']:.1f} MB/s"


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = runs.parser(
        __doc__, rounds=3, quick="one short round, slow: a look, no result", out="proxy/ingress"
    )
    add = parser.add_argument
    add("--mb", type=float, default=30.0, help="MB a second on the wire (default: 30).")
    runs.add_codecs(parser, cells.CODECS[1:], ("lz4", "zstd"))
    add("--seconds", type=float, default=6.0, help="Measured seconds of each run (default: 6).")
    options = runs.parse(parser, argv, whole=("mb", "codecs", "seconds", "rounds"))
    options.settle, options.warm_up = SETTLE_S, 15.0
    if options.quick:
        options.rounds, options.seconds, options.mb = 1, 0.5, 15.0
        options.settle, options.warm_up = 1.0, 0.5
    return options


def main(argv: list[str] | None = None) -> int:
    options = arguments(argv)
    ends.BUILD.mkdir(parents=True, exist_ok=True)
    began = runs.load()
    samples = measure(options)
    result = {
        **runs.head(),
        "settings": {
            "kafka": KAFKA_VERSION,
            "jvm": f"G1, heap {HEAP}",
            "mb": options.mb,
            "rounds": options.rounds,
            "seconds": options.seconds,
            "settle": options.settle,
            "load": [began, runs.load()],
        },
        "samples": samples,
    }
    runs.finish(options, "ingress", result, page.ingress_body(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Measure a broker's heap after many requests with tags: it must not retain them.

    python -m tests.system.broker_agent.retained [--requests N] [--batches N] [--policy trust]

Sends Produce requests, each of some batches with a tag, through one connection. After a tenth of
them and after all, `jcmd GC.class_histogram` collects the heap and counts what is left: instances
of the agent's classes, which hold tags and principals, and bytes of the whole heap.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from tests.support.batches import LZ4, batch, record
from tests.support.jvm_agents import broker_agent
from tests.support.topics import make_topic
from tests.system.broker_agent.counters import Counters
from tests.system.broker_agent.lies import honest
from tests.system.broker_agent.pump import Pump
from tests.system.broker_agent.raw import Connection
from tests.system.interop.kafka_broker import KafkaBroker, find_java

IN_FLIGHT = 8
#: Classes of which there is one for each request or batch while it is handled.
OF_A_REQUEST = ("Carried", "Call", "Claims", "Tag", "RecordWalk", "WatchedStream")
#: Constants within those, which live as long as the class does.
CONSTANTS = ("RecordWalk$State",)
_LINE = re.compile(r"^ *\d+: +(\d+) +(\d+) +(\S+)", re.MULTILINE)


class Heap(NamedTuple):
    """What lives after a collection: bytes in all, and instances and bytes by class."""

    total: int
    classes: dict[str, tuple[int, int]]

    def of_requests(self) -> dict[str, int]:
        """Return the instances of the agent's classes that belong to a request or a batch."""
        found = {}
        for name, (instances, _) in self.classes.items():
            short = name.rpartition(".")[2]
            if not name.startswith("batchval.") or short in CONSTANTS:
                continue
            if short.partition("$")[0] in OF_A_REQUEST:
                found[name] = instances
        return found


def heap_of(broker: KafkaBroker) -> Heap:
    """Collect the broker's heap, and count what is left."""
    assert broker.process is not None
    jcmd = str(Path(find_java()).resolve().with_name("jcmd"))
    printed = ""
    for _ in range(2):  # the first collection lets go of what waits for a finalizer or a cleaner
        command = [jcmd, str(broker.process.pid), "GC.class_histogram"]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    classes = {name: (int(count), int(size)) for count, size, name in _LINE.findall(printed)}
    return Heap(sum(size for _, size in classes.values()), classes)


class Result(NamedTuple):
    """``first`` after a tenth of the requests, ``last`` after all of them."""

    requests: int
    batches: int
    trusted: int
    first: Heap
    last: Heap
    seconds: float

    @property
    def growth(self) -> int:
        """Return the growth of the collected heap in bytes."""
        return self.last.total - self.first.total


def measure(requests: int, each: int, policy: str = "trust") -> Result:
    """Send requests of ``each`` batches through one broker."""
    options = f"rule.1={policy},listener=PLAINTEXT"
    # else the serial collector leaves gaps, which the histogram shows as int arrays
    jvm = [f"-javaagent:{broker_agent()}={options}", "-XX:MarkSweepAlwaysCompactCount=1"]
    broker = KafkaBroker(jvm=jvm, heap="512m")
    broker.config |= {"log.retention.check.interval.ms": 2000, "file.delete.delay.ms": 1000}
    config = {"retention.ms": "-1", "retention.bytes": str(8 << 20), "segment.bytes": str(4 << 20)}
    body = Pump.part(*honest(batch([record(0, key=b"k", value=b"value")], codec=LZ4), "block"))
    with broker:
        make_topic(broker.bootstrap, "retained", each, **config)
        with Connection((broker.host, broker.port)) as connection:
            pump = Pump(connection, "retained", each, body)
            pump.prepare()
            started = time.monotonic()
            _send(pump, requests // 10)
            first = heap_of(broker)
            _send(pump, requests - requests // 10)
            seconds = time.monotonic() - started
            last = heap_of(broker)
        with Counters(broker) as counters:
            read = counters.read()
        assert read["Errors"] == 0
        return Result(requests, requests * each, read["Trusted"], first, last, seconds)


def _send(pump: Pump, requests: int) -> None:
    for number in range(requests + IN_FLIGHT):
        if number >= IN_FLIGHT:
            pump.receive()
        if number < requests:
            pump.send()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument(
        "--batches",
        type=int,
        default=10,
        help="Batches, each with a tag, in a request; default 10.",
    )
    parser.add_argument("--policy", default="trust", help="Of the agent; default trust.")
    options = parser.parse_args()
    result = measure(options.requests, options.batches, options.policy)
    print(
        f"{result.requests} requests, {result.batches} batches with a tag, {result.trusted} trusted"
    )
    print(f"{result.seconds:.0f} s, {result.requests / result.seconds:.0f} requests/s")
    print(
        f"heap after a collection: {result.first.total} bytes after a tenth, {result.last.total} after all"
    )
    print(f"instances of a request: {result.first.of_requests()}, {result.last.of_requests()}")
    grown = {
        name: (
            size - result.first.classes.get(name, (0, 0))[1],
            count - result.first.classes.get(name, (0, 0))[0],
        )
        for name, (count, size) in result.last.classes.items()
    }
    for name, (size, count) in sorted(grown.items(), key=lambda item: -item[1][0])[:8]:
        print(f"{size:+10} bytes {count:+8} instances  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

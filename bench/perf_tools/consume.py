"""Compare ``batchval perf consume``, Kafka's own tool and a loop of C over librdkafka: same broker,
same topic, in turns.

    python -m bench perf-consume [--rounds 3] [--records 4000000] [--quick] [--write]

A broker of its own (Java, Maven), 12 partitions, values of 1,000 bytes, uncompressed, in the page
cache. Everybody's clock starts after the joining: Java's is fetch.nMsg.sec, the C loop's starts
with its first records. The C loop runs twice, with librdkafka's defaults and without the sleep of a
full queue. "fetch and drop" reads nothing: it shows what this broker
and this machine's loopback give one connection, and four.
"""

from __future__ import annotations

import re
import sys

from bench import runs
from bench.pages import perf as page
from bench.pages.perf import SIZE
from bench.perf_tools import perf_bench
from bench.perf_tools.perf_bench import Command
from tests.support.topics import make_topic

TOPIC, PARTITIONS = "perf-consume", 12
FETCHED = re.compile(r"^(?:[^,]+, ){4}(\d+), (?:[^,]+, ){4}([\d.]+)$", re.MULTILINE)
BENCH = perf_bench.Bench(
    section="perf-consume",
    clients=page.CONSUMERS,
    records=4_000_000,
    quick_records=200_000,
    doc=__doc__,
)


def fill(bootstrap: str, records: int) -> None:
    from confluent_kafka import Producer

    make_topic(bootstrap, TOPIC, PARTITIONS)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "batch.size": 500_000,
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    value = bytes(65 + i * 7 % 26 for i in range(SIZE))
    for i in range(records):
        while True:
            try:
                producer.produce(TOPIC, value, partition=i % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(120):
        raise SystemExit("the topic could not be filled")


def commands(bootstrap: str, records: int) -> dict[str, Command]:
    own = [*perf_bench.own("consume", bootstrap, TOPIC), "--num-records", str(records)]
    loop = [*perf_bench.c_loop("consume_loop", bootstrap, TOPIC), str(records)]
    drops = [perf_bench.built("fetch_and_drop"), *bootstrap.rsplit(":", 1), TOPIC, str(PARTITIONS)]
    found = {
        "java": [
            *perf_bench.java("ConsumerPerformance", bootstrap, TOPIC),
            "--num-records",
            str(records),
        ],
        "loop": loop,
        "loop tuned": [*loop, "fetch.queue.backoff.ms=2"],
        "loop of drops 1": [*drops, "1", str(records)],
        "loop of drops 4": [*drops, "4", str(records)],
        "librdkafka 1": [*own, "--client", "librdkafka", "--threads", "1"],
    }
    for decode in ("headers", "records"):
        for threads in ("1", "4"):
            found[f"{decode} {threads}"] = [*own, "--decode", decode, "--threads", threads]
    return {name: (command, records) for name, command in found.items()}


def rate_of(stdout: str, records: int) -> float | None:
    match = FETCHED.search(stdout)
    return None if match is None or int(match[1]) < records else float(match[2])


def main(argv: list[str] | None = None) -> int:
    options = BENCH.arguments(argv)
    result = BENCH.measure(options, fill, commands, rate_of)
    runs.finish(options, BENCH.section, result, page.consume(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())

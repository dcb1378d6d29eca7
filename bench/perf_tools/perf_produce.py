"""Compare ``batchval perf produce``, Kafka's own tool and a loop of C over librdkafka: same broker,
same topic, in turns.

    python -m bench perf-produce [--rounds 3] [--records 1000000] [--quick] [--write]

A broker of its own (Java, Maven), one partition, values of 1,000 bytes, acks=all, idempotent,
uncompressed, batches of 500,000 bytes and 5 ms linger for everybody; the C loop once more with
librdkafka's own defaults. All latencies are on. Java's figure is its steady state after a warm-up
of a third of its records. What measuring costs is what stamping and recording a latency take by
themselves.
"""

from __future__ import annotations

import re
import sys
import time
from array import array

from batchval.perf.histogram import Histogram, now_ns, stamp_many
from bench import runs
from bench.pages import perf as page
from bench.pages.perf import SIZE
from bench.perf_tools import perf_bench
from bench.perf_tools.perf_bench import Command
from tests.support import topics

TOPIC = "perf-produce"
SAME = ["batch.size=500000", "linger.ms=5"]
RATE = re.compile(
    r"^\d+(?: steady state)? records sent, ([\d.]+) records/sec .* 99\.9th\.$", re.MULTILINE
)
BENCH = perf_bench.Bench(
    section="perf-produce",
    clients=page.PRODUCERS,
    records=1_000_000,
    quick_records=100_000,
    doc=__doc__,
)


def make_topic(bootstrap: str, records: int) -> None:
    # what was sent is not kept for long: a disk is not what is measured
    settings = {"retention.bytes": "500000000", "segment.bytes": "100000000"}
    topics.make_topic(bootstrap, TOPIC, **settings)


def commands(bootstrap: str, records: int) -> dict[str, Command]:
    settings = ["--record-size", str(SIZE), "--throughput", "-1"]
    own = [*perf_bench.own("produce", bootstrap, TOPIC), *settings, "--num-records", str(records)]
    own += ["--command-property", *SAME]
    loop = [*perf_bench.c_loop("produce_loop", bootstrap, TOPIC), str(records), "0", "1"]
    even = ["queue.buffering.max.kbytes=32768", "enable.idempotence=true", *SAME]
    java = [*perf_bench.java("ProducerPerformance", bootstrap, TOPIC), *settings]
    java += ["--num-records", str(records * 3 // 2), "--warmup-records", str(records // 2)]
    java += ["--command-property", *SAME, "acks=all"]
    return {
        "java": (java, records * 3 // 2),
        "loop": ([*loop, *even], records),
        "loop defaults": ([*loop, "acks=all"], records),
        "librdkafka": ([*own, "--client", "librdkafka"], records),
        "own": ([*own, "--client", "batchval"], records),
    }


def rate_of(stdout: str, records: int) -> float | None:
    """Return the rate in the last line; the second one of Java is its steady state."""
    found = RATE.findall(stdout)
    return float(found[-1]) if found else None


def nanoseconds() -> dict[str, float]:
    """Return the cost of one latency, stamped and recorded in batches of 500: the best of many, in
    ns.
    """
    stamps, histogram, best = array("q", bytes(8 * 500)), Histogram(), {"stamp": 1e9, "record": 1e9}
    for _ in range(300):
        begin = time.perf_counter_ns()
        for _ in range(20):
            stamp_many(stamps)
        middle = time.perf_counter_ns()
        for _ in range(20):
            histogram.record_since(stamps, now_ns())
        end = time.perf_counter_ns()
        best["stamp"] = min(best["stamp"], (middle - begin) / 10_000)
        best["record"] = min(best["record"], (end - middle) / 10_000)
    return best


def main(argv: list[str] | None = None) -> int:
    options = BENCH.arguments(argv)
    result = BENCH.measure(options, make_topic, commands, rate_of)
    result["nanoseconds"] = nanoseconds()
    runs.finish(options, BENCH.section, result, page.produce(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What measuring costs ``perf produce``: the same run with latencies on and off, in turns, in one process.

    python bench/perf_tools/cost.py [--rounds 9] [--records 1000000] [--quick] [--write]

A broker of its own; one partition, values of 1,000 bytes, acks=all, idempotent, batches of 500,000 bytes, linger 5 ms,
as in perf_produce.py. Off means: no record is stamped, no latency recorded. The order changes from round to round;
ratios are taken round by round. Of a latency by itself, stamped and recorded in batches of 500: the best of many, ns.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from datetime import UTC, datetime
from typing import Any

import perf_bench
import result_files
from perf_bench import ROOT, SIZE
from perf_produce import TOPIC, make_topic, nanoseconds

from batchval.network.loops import loop_factory
from batchval.perf.clients.own_producer import OwnProducer
from batchval.perf.payloads import Letters
from batchval.perf.produce import ProduceRun, ProduceSettings
from batchval.producer import ProducerOptions
from tests.interop.kafka_broker import KAFKA_VERSION, KafkaBroker

RESULTS = ROOT / "bench" / "results" / "perf-cost"
TARGET, TARGET_NS = 0.03, 25.0


def once(bootstrap: str, records: int, measure: bool) -> dict[str, float]:
    """Of a record, in µs: the time it took, and the CPU of this process."""
    options = ProducerOptions(bootstrap_servers=[bootstrap], batch_size=500_000, linger_ms=5)
    run = ProduceRun(
        ProduceSettings(num_records=records, measure=measure),
        lambda _: OwnProducer(options, TOPIC),
        lambda _: Letters(SIZE, many=False, seed=0),
        new_loop=loop_factory(),
    )
    before = time.process_time()
    run.run()
    cpu = time.process_time() - before
    total = run.total()
    if total.acked != records or bool(total.latencies.count) != measure:
        raise SystemExit(f"{total.acked} of {records} records, {total.latencies.count} latencies")
    return {"time": total.elapsed_ns / records / 1e3, "cpu": cpu / records * 1e6}


def measured(rounds: int, records: int) -> list[dict[str, dict[str, float]]]:
    settings: dict[str, Any] = {"config": perf_bench.BROKER_CONFIG, "heap": "1g", "jvm": perf_bench.BROKER_JVM}
    with perf_bench.log_folder() as folder, KafkaBroker(folder, **settings) as broker:
        make_topic(broker.bootstrap, records)
        for _ in range(3):
            once(broker.bootstrap, records, True)
        found = []
        for number in range(rounds):
            turn = {"on": True, "off": False} if number % 2 else {"off": False, "on": True}
            found.append({name: once(broker.bootstrap, records, measure) for name, measure in turn.items()})
        return found


def verdict(middle: float, spread: float) -> str:
    return "met" if middle <= TARGET else "noise" if middle - spread <= TARGET else "missed"


def table(result: dict[str, Any]) -> str:
    lines = [
        "# What measuring costs",
        "",
        f"{perf_bench.machine.said(result)}, load average {result['load'][0]:.1f}; Kafka {KAFKA_VERSION}, "
        f"{result['records']:,} records of {SIZE:,} bytes a run; median of {len(result['rounds'])} pairs of runs, half "
        "of the span between quartiles.",
        "",
        "| | off | on | target | more with latencies | spread | |",
        "|---|---|---|---|---|---|---|",
    ]
    for key, name in (("time", "time a record, µs"), ("cpu", "CPU a record, µs")):
        off, on = ([one[way][key] for one in result["rounds"]] for way in ("off", "on"))
        ratios = [b / a - 1 for a, b in zip(off, on, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
        spread = (high - low) / 2
        lines.append(
            f"| {name} | {statistics.median(off):.3f} | {statistics.median(on):.3f} | ≤ {TARGET:.0%} | {middle:+.1%} | "
            f"{spread:.1%} | {verdict(middle, spread)} |"
        )
    took = sum(result["nanoseconds"].values())
    lines.append(f"| ns a latency | | {took:.1f} | ≤ {TARGET_NS:g} | | | {'met' if took <= TARGET_NS else 'missed'} |")
    return "\n".join(lines) + "\n"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--quick", action="store_true", help="two short rounds: a look, no result")
    parser.add_argument("--write", action="store_true", help=f"into {RESULTS.relative_to(ROOT)}.md and .json")
    options = parser.parse_args(argv)
    if options.quick:
        options.rounds, options.records = 2, 50_000
    result: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": perf_bench.machine.describe(),
        "load": os.getloadavg(),
        "records": options.records,
        "rounds": measured(options.rounds, options.records),
        "nanoseconds": nanoseconds(),
    }
    text = table(result)
    print(text)
    if options.write and not options.quick:
        result_files.write(RESULTS, result, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Time ``perf produce`` with latencies on and off, in turns, in one process.

    python -m bench perf-cost [--rounds 9] [--records 1000000] [--quick] [--write]

A broker of its own; one partition, values of 1,000 bytes, acks=all, idempotent, batches of 500,000
bytes, linger 5 ms, as in perf_produce.py. Off means: no record is stamped, no latency recorded. The
order changes from round to round; ratios are taken round by round. Of a latency by itself, stamped
and recorded in batches of 500: the best of many, ns.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from batchval.network.loops import loop_factory
from batchval.perf.clients.own_producer import OwnProducer
from batchval.perf.payloads import Letters
from batchval.perf.produce import ProduceRun, ProduceSettings
from batchval.producer import ProducerOptions
from bench import runs
from bench.pages import perf as page
from bench.pages.perf import SIZE
from bench.perf_tools import perf_bench
from bench.perf_tools.perf_produce import TARGET, TOPIC, cost_row, make_topic, nanoseconds
from tests.interop.kafka_broker import KAFKA_VERSION, KafkaBroker


def once(bootstrap: str, records: int, measure: bool) -> dict[str, float]:
    """Return the wall time and the CPU time of this process per record, in µs."""
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
    settings: dict[str, Any] = {
        "config": perf_bench.BROKER_CONFIG,
        "heap": "1g",
        "jvm": perf_bench.BROKER_JVM,
    }
    with perf_bench.log_folder() as folder, KafkaBroker(folder, **settings) as broker:
        make_topic(broker.bootstrap, records)
        for _ in range(3):
            once(broker.bootstrap, records, True)
        found = []
        for number in range(rounds):
            turn = {"on": True, "off": False} if number % 2 else {"off": False, "on": True}
            found.append(
                {name: once(broker.bootstrap, records, measure) for name, measure in turn.items()}
            )
        return found


def goals(result: dict[str, Any]) -> str:
    """Return what latencies add, and the internal goals, as a table."""
    rows = []
    for key, name in (("time", "time a record"), ("cpu", "CPU a record")):
        middle, spread = page.more(result["rounds"], key)
        verdict = runs.verdict(1 + middle, 1 + TARGET, "lower", spread)
        rows.append((name, f"≤ {TARGET:.0%}", f"{middle:+.1%}", f"{spread:.1%}", verdict))
    rows.append(cost_row(sum(result["nanoseconds"].values())))
    return runs.goals(("", "goal", "measured", "spread", ""), rows)


def main(argv: list[str] | None = None) -> int:
    parser = runs.parser(__doc__, rounds=9, quick="two short rounds: a look, no result")
    records = "Records of a run (default: 1,000,000)."
    parser.add_argument("--records", type=runs.positive, default=1_000_000, help=records)
    options = runs.parse(parser, argv, whole=("records", "rounds"))
    if options.quick:
        options.rounds, options.records = 2, 50_000
    result: dict[str, Any] = {
        **runs.head(),
        "versions": {"Kafka": KAFKA_VERSION},
        "load": os.getloadavg(),
        "records": options.records,
        "rounds": measured(options.rounds, options.records),
        "nanoseconds": nanoseconds(),
    }
    runs.finish(options, "perf-cost", result, f"{page.cost(result)}\n{goals(result)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

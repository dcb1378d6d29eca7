"""Measure what ``perf produce`` adds to a latency, and how exactly it keeps a rate.

    python -m bench perf-accuracy [--seconds 60] [--quick] [--write]

The broker is the built-in one of --calibrate: a process of its own that answers each Produce
request after a fixed time, counted from the arrival of its last byte. Latencies: records of 1 kB
one by one (linger 0), with as many requests in flight as keep any from waiting for another, 15
seconds each; the last row shows what a path costs that runs 20 times a second, and has no goal.

Rates: records of 1 kB in batches of 64 kB, four partitions, at most five requests in flight, except
where five requests of four batches cannot carry the rate: 20 there, without idempotence.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

from batchval.network.loops import loop_factory
from batchval.perf import responder
from batchval.perf.clients.own_producer import OwnProducer
from batchval.perf.clients.rdkafka_producer import RdkafkaProducer
from batchval.perf.histogram import Histogram
from batchval.perf.payloads import Letters
from batchval.perf.produce import PerfProducer, ProduceRun, ProduceSettings
from batchval.producer import ProducerOptions
from bench import runs
from bench.pages import perf as page
from bench.pages.perf import SIZE

PARTITIONS = 4
BATCH = 64 << 10
#: Delay in µs, records a second, requests in flight at most.
LATENCIES = ((137, 1_000, 5), (5_000, 1_000, 20), (140_000, 1_000, 400), (5_000, 20, 5))
LEAST_RATE = 1_000  # that has a goal
RATES = (100, 500, 1_000, 5_000, 20_000)
DELAYS_US = (0, 140_000)
CAP, WIDE_CAP = 5, 20
BEYOND_US, WIRE_US, RATE_SHARE = 250, 60, 0.005
Make = Callable[[str], PerfProducer]


def own(bootstrap: str, **options: Any) -> PerfProducer:
    return OwnProducer(
        ProducerOptions(bootstrap_servers=[bootstrap], **options), "t", is_alone=True
    )


def capped(cap: int) -> dict[str, Any]:
    """Return the options that limit batchval's producer to ``cap`` requests in flight."""
    return {"max_in_flight": cap, "enable_idempotence": cap <= CAP}


def librdkafka(bootstrap: str, cap: int) -> PerfProducer:
    config = {"bootstrap.servers": bootstrap, "linger.ms": 0, "enable.idempotence": cap <= CAP}
    return RdkafkaProducer(config | {"max.in.flight": cap}, "t")


def run_at(
    delay_us: int,
    make: Make,
    rate: float,
    records: int,
    loops: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> ProduceRun:
    """Run once against a broker with this delay; every record must be acknowledged."""
    settings = ProduceSettings(
        num_records=records, throughput=rate, warmup_records=max(records // 10, 1)
    )
    with responder.running(delay_us, PARTITIONS) as bootstrap:
        run = ProduceRun(
            settings,
            lambda _: make(bootstrap),
            lambda _: Letters(SIZE, many=False, seed=0),
            new_loop=loops or loop_factory(),
        )
        run.run()
    if run.total().acked != records:
        raise SystemExit(f"{run.total().acked} of {records} records at {rate}/s and {delay_us} us")
    return run


def beyond(histogram: Histogram, delay_us: int) -> dict[str, int]:
    """Return the percentiles above the delay, in µs."""
    return {f"{percent:g}": histogram.percentile(percent) - delay_us for percent in (5, 50, 99)}


def latency(delay_us: int, rate: int, cap: int, seconds: float) -> dict[str, Any]:
    """Measure both clients of the tool at one delay."""
    clients: dict[str, tuple[Make, Callable[[], asyncio.AbstractEventLoop]]] = {
        "batchval": (lambda at: own(at, linger_ms=0, **capped(cap)), loop_factory()),
        "librdkafka": (lambda at: librdkafka(at, cap), asyncio.new_event_loop),
    }
    found: dict[str, Any] = {"delay_us": delay_us, "rate": rate, "cap": cap}
    for name, (make, loops) in clients.items():
        tally = run_at(delay_us, make, rate, int(rate * seconds), loops).steady()
        assert tally is not None
        found[name] = {
            "intended": beyond(tally.intended, delay_us),
            "send": beyond(tally.latencies, delay_us),
        }
        if tally.wire.count:
            found[name]["wire"] = beyond(tally.wire, delay_us)
    return found


def rate_kept(delay_us: int, rate: int, seconds: float) -> dict[str, Any]:
    """Measure the rate from the first send to the last, and the rate in Kafka's output line."""
    carried = CAP * PARTITIONS * (BATCH // SIZE) * 1e6 / delay_us if delay_us else float("inf")
    cap = CAP if rate < carried else WIDE_CAP

    def make(bootstrap: str) -> PerfProducer:
        return own(bootstrap, batch_size=BATCH, **capped(cap))

    tally = run_at(delay_us, make, rate, int(rate * seconds)).steady()
    assert tally is not None
    return {
        "delay_us": delay_us,
        "rate": rate,
        "cap": cap,
        "sent_per_second": tally.sent_per_second,
        "printed": tally.acked * 1e9 / tally.elapsed_ns,
    }


def goals(result: dict[str, Any]) -> str:
    """Return the internal goals as a table."""
    rows = []

    def row(name: str, goal: str, value: str, is_met: bool) -> None:
        rows.append((name, goal, value, runs.MET if is_met else runs.MISSED))

    for one in result["latencies"]:
        if one["rate"] < LEAST_RATE:
            continue
        at = f"at {one['delay_us']} µs"
        whole, wire = one["batchval"]["intended"]["50"], one["batchval"]["wire"]["50"]
        row(
            f"median beyond the delay, {at}", f"≤ {BEYOND_US} µs", f"{whole} µs", whole <= BEYOND_US
        )
        row(f"the same on the wire, {at}", f"≤ {WIRE_US} µs", f"{wire} µs", wire <= WIRE_US)
    for one in result["rates"]:
        off = one["sent_per_second"] / one["rate"] - 1
        name = f"{one['rate']} records/s at {one['delay_us']} µs"
        row(name, f"within {RATE_SHARE:.1%}", f"{off:+.3%}", abs(off) <= RATE_SHARE)
    return runs.goals(("", "goal", "measured", ""), rows)


def main(argv: list[str] | None = None) -> int:
    parser = runs.parser(__doc__, quick="two seconds each: a look, no result")
    help_of = "Seconds of each run at a fixed rate (default: 60)."
    parser.add_argument("--seconds", type=float, default=60, help=help_of)
    options = runs.parse(parser, argv, whole=("seconds",))
    seconds, rest = (2.0, 2.0) if options.quick else (15.0, options.seconds)
    before = runs.load()
    result: dict[str, Any] = {
        **runs.head(),
        "latencies": [latency(*one, seconds) for one in LATENCIES],
        "rates": [rate_kept(delay, rate, rest) for delay in DELAYS_US for rate in RATES],
        "seconds": rest,
    }
    result["load"] = (before, runs.load())
    runs.finish(options, "perf-accuracy", result, f"{page.accuracy(result)}\n{goals(result)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

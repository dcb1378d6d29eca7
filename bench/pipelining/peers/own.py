"""A fixed number of records through batchval.producer, acknowledged batch by batch; one line of JSON."""

from __future__ import annotations

import argparse
import array
import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import uvloop

from batchval.network.security import Security
from batchval.producer import BatchDone, Producer, ProducerOptions

AT_ONCE = 1000


def security(options: argparse.Namespace) -> Security:
    if not options.ca:
        return Security()
    stores = {"ssl.truststore.type": "PEM", "ssl.truststore.location": options.ca}
    stores |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": options.both}
    return Security.from_properties({"security.protocol": "SSL", **stores})


async def send(options: argparse.Namespace) -> dict[str, Any]:
    to = None if options.partition < 0 else options.partition
    settings = ProducerOptions(
        bootstrap_servers=options.brokers.split(","),
        acks=options.acks,
        linger_ms=options.linger,
        batch_size=options.batch,
        buffer_memory=options.buffer,
        max_in_flight=options.cap,
        enable_idempotence=None,  # wherever acks allow it
        partitioner="round_robin" if to is None else "manual",
        security=security(options),
    )
    value = bytes(97 + n % 26 for n in range(1000))
    stamps = memoryview(array.array("q", [0] * AT_ONCE))
    errors: list[str] = []
    settled = 0

    def on_batch(batch: BatchDone) -> None:
        nonlocal settled
        settled += batch.records
        if batch.error is not None:
            errors.extend([repr(batch.error)] * batch.records)

    async with Producer(settings) as producer:
        producer.on_batch = on_batch
        began = time.perf_counter()
        left = options.records
        while left:
            asked = min(left, AT_ONCE)
            taken = producer.produce_many(options.topic, value, stamps[:asked], partition=to)
            left -= taken
            await (producer.room() if taken < asked else asyncio.sleep(0))
        await producer.flush()
        seconds = time.perf_counter() - began
        metrics = producer.metrics
    failed = len(errors) + options.records - settled
    seen = {"in_flight": max(metrics.highest_in_flight.values(), default=0)}
    seen["in_flight_total"] = metrics.highest_in_flight_total
    return {"records": options.records, "failed": failed, "why": errors[:1], "seconds": seconds, **seen}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", required=True, help="host:port,…")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--partition", type=int, default=-1, help="-1: round robin")
    parser.add_argument("--acks", type=int, default=-1)
    parser.add_argument("--cap", type=int, default=5)
    parser.add_argument("--batch", type=int, default=500_000)
    parser.add_argument("--linger", type=float, default=100, help="milliseconds")
    parser.add_argument("--buffer", type=int, default=32 << 20)
    parser.add_argument("--ca", help="PEM; with --both: TLS")
    parser.add_argument("--both", help="PEM of the client's key and certificate")
    print(json.dumps(uvloop.run(send(parser.parse_args()))))


if __name__ == "__main__":
    main()

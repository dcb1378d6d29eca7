"""A producer against a cluster that fails in every way, in simulated time.

    python -m tests.unit.producer.soak --batches 1000000 --seed 1

Faults of a connection: it is cut before or after a batch is stored, falls silent, answers with an
error before or after. Faults of a leader: killed, restarted, another elected, with the unanswered
tail of the log truncated; one that has lost all state of producers; one that was elected uncleanly
and lacks acknowledged batches. Some records are refused (INVALID_RECORD), some batches are too
large until they are split. What is right: every record reported as delivered was in the log when
that was acknowledged, at the offset that was reported; none stands before an earlier one; none is
there twice, unless the leader lost the producer's state after it had stored the first copy.
"""

from __future__ import annotations

import argparse
import array
import asyncio
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, fields

from batchval.errors import ErrorCode
from batchval.producer import BatchDone, Producer, ProducerOptions
from batchval.producer.errors import DeliveryTimeoutError, DeliveryUnknownError
from tests.unit.producer.cluster_model import PARTITIONS, Cluster
from tests.unit.producer.log_model import Found

NO_TIMEOUT_MS = 600_000


def put(producer: Producer, values: list[bytes], stamps: array.array[int], partition: int) -> int:
    """Give the producer many records; return how many it took."""
    return producer.send_many("t", values, stamps, partition=partition, timestamp_ms=0)


@dataclass(slots=True)
class Report:
    """What one run, or several, came to."""

    batches: int = 0
    delivered: int = 0  # records, as all below
    without_offset: int = 0
    unknown: int = 0
    timed_out: int = 0
    refused: int = 0
    other_errors: int = 0
    splits: int = 0
    retries: int = 0

    def add(self, other: Report) -> None:
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))


async def _feed(producer: Producer, cluster: Cluster, batches: int) -> None:
    chance, numbers = cluster.chance, [0] * PARTITIONS
    while cluster.batches < batches:
        partition = chance.randrange(PARTITIONS)
        number = numbers[partition]
        last = number + chance.randint(1, 12)
        while (number := numbers[partition]) < last:
            values = [n.to_bytes(8) for n in range(number, last)]
            numbers[partition] += put(
                producer, values, array.array("q", range(number, last)), partition
            )
            await producer.wait_for_space()
        if chance.random() < 0.1:
            await asyncio.sleep(chance.random() * 0.02)


async def _run(cluster: Cluster, batches: int, report: Report, delivery_timeout_ms: float) -> None:
    options = ProducerOptions(
        bootstrap_servers=[f"127.0.0.1:{9000 + n}" for n in cluster.connections],
        linger_ms=1,
        batch_size=120,
        buffer_memory=8_000,
        request_timeout_ms=1_000,
        retry_backoff_ms=5,
        retry_backoff_max_ms=50,
        delivery_timeout_ms=delivery_timeout_ms,
        max_block_ms=NO_TIMEOUT_MS,
        compression_threads=0,
    )
    delivered: list[list[int]] = [[] for _ in cluster.logs]
    expected = [0] * PARTITIONS

    def done(batch: BatchDone) -> None:
        ids = batch.stamps.tolist()
        assert ids[0] == expected[batch.partition], "batches are reported in order, each once"
        expected[batch.partition] = ids[-1] + 1
        if batch.error is None:
            report.delivered += len(ids)
            report.without_offset += len(ids) * (batch.base_offset < 0)
            delivered[batch.partition].extend(ids)
            cluster.logs[batch.partition].reported(ids, batch.base_offset)
        elif isinstance(batch.error, DeliveryUnknownError):
            report.unknown += len(ids)
        elif isinstance(batch.error, DeliveryTimeoutError):
            report.timed_out += len(ids)
        elif getattr(batch.error, "code", None) == ErrorCode.INVALID_RECORD:
            report.refused += len(ids)
        else:
            report.other_errors += len(ids)
            print(f"partition {batch.partition}: {batch.error!r}", file=sys.stderr)

    async with Producer(options) as producer:
        producer.on_batch = done
        await producer.partitions_for("t")
        await _feed(producer, cluster, batches)
        await producer.flush()
        async with asyncio.timeout(5):  # batches that timed out may be on the wire
            while producer.buffer_used:
                await asyncio.sleep(0.05)
        report.splits += producer.metrics.splits
        report.retries += producer.metrics.retries
    report.batches += cluster.batches
    for log, ids in zip(cluster.logs, delivered, strict=True):
        log.finish(ids)


def soak(
    batches: int, seed: int, delivery_timeout_ms: float = NO_TIMEOUT_MS
) -> tuple[Report, Found, Counter[str]]:
    """Run so many batches. The same seed does the same."""
    chance = random.Random(seed)
    before = random.getstate()
    random.seed(seed)  # the producer's own jitter
    cluster, report, found = Cluster(chance), Report(), Found()
    asyncio.set_event_loop(cluster.loop)
    try:
        cluster.loop.run_until_complete(_run(cluster, batches, report, delivery_timeout_ms))
    finally:
        asyncio.set_event_loop(None)
        cluster.loop.close()
        random.setstate(before)
    for log in cluster.logs:
        for one in fields(found):
            setattr(found, one.name, getattr(found, one.name) + getattr(log.found, one.name))
    return report, found, cluster.faults


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=int, default=20_000, help="Batches in all.")
    parser.add_argument("--seed", type=int, default=1, help="Random seed of the first run.")
    parser.add_argument(
        "--each", type=int, default=10_000, help="Batches a run; each has its seed."
    )
    parser.add_argument(
        "--delivery-timeout-ms",
        type=float,
        default=NO_TIMEOUT_MS,
        help="The producer's delivery_timeout_ms.",
    )
    options = parser.parse_args()
    total, wrong, faults = Report(), Found(), Counter[str]()
    seed, began = options.seed, time.process_time()
    while total.batches < options.batches:
        report, found, some = soak(
            min(options.each, options.batches - total.batches), seed, options.delivery_timeout_ms
        )
        total.add(report)
        faults.update(some)
        for one in fields(found):
            setattr(wrong, one.name, getattr(wrong, one.name) + getattr(found, one.name))
        if found.lost or found.reordered or found.wrong_offsets or found.duplicates:
            print(f"seed {seed}: {found}", flush=True)
        seed += 1
        if seed % 10 == 0:
            print(
                f"{total.batches} batches, {time.process_time() - began:.0f} s of CPU", flush=True
            )
    print(f"seeds {options.seed} to {seed - 1}, {time.process_time() - began:.0f} s of CPU")
    for title, what in (("reported", total), ("found", wrong)):
        print(title, {one.name: getattr(what, one.name) for one in fields(what)})
    print("faults", dict(sorted(faults.items())))
    return int(bool(wrong.lost or wrong.reordered or wrong.wrong_offsets or wrong.duplicates))


if __name__ == "__main__":
    sys.exit(main())

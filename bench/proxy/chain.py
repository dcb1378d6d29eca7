"""The CPU that two gates in a row cost, with claims and without, in front of a real broker, with
unmodified producers.

    librdkafka → edge (claims_out) → core (claims_in) → Apache Kafka

    claims   edge: claims_out tag      core: claims_in audit:0.001
    none     edge: claims_out none     core: claims_in ignore     (both decompress)
    core     no edge                   core: claims_in ignore     (one gate, as it is without a chain)

CPU is user and system time of each gate's process, and of the broker's, per GB of Produce requests
as they come on the wire. Each way has its own gates; the first 200 batches are not counted, so that
the core has come to believe the edge. Needs Java and Maven.

    python -m bench chain [--codecs zstd,lz4] [--batches 2000] [--quick]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import statistics
from typing import Any

from confluent_kafka import Producer, libversion

from bench import runs
from bench.validation import cells
from tests.interop.kafka_broker import KAFKA_VERSION, KafkaBroker
from tests.support.gate_process import GateProcess

WAYS = {"claims": ("tag", "audit:0.001"), "none": ("none", "ignore"), "core": (None, "ignore")}
UNCOUNTED = 200
RECORD = (
    4000  # bytes of a value: fewer would leave the producer's Python too slow to keep a gate busy
)
PARTITIONS = 4


def values(count: int) -> list[bytes]:
    """Return JSON values of 4 kB, words and hexadecimal; they compress to about a third."""
    rng = random.Random(8364)
    words = [
        "offset",
        "segment",
        "leader",
        "epoch",
        "replica",
        "partition",
        "producer",
        "timestamp",
        "header",
        "quota",
    ]
    made = []
    for i in range(count):
        text = json.dumps({"id": i, "user": rng.getrandbits(64), "tags": rng.choices(words, k=180)})
        made.append((text + rng.randbytes(RECORD // 2).hex())[:RECORD].encode())
    return made


def produce(
    bootstrap: str, codec: str, batch_bytes: int, batches: int, records: list[bytes]
) -> None:
    """Produce at least this many batches with librdkafka."""
    errors: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "batch.size": batch_bytes,
            "message.max.bytes": 4 << 20,
            "linger.ms": 200,
            "enable.idempotence": True,
            "queue.buffering.max.kbytes": 64 << 10,
            "log_level": 0,
        }
    )
    each = batch_bytes // (RECORD + 20)
    for i in range(batches * each):
        while True:
            try:
                producer.produce(
                    f"chain-{codec}",
                    records[i % len(records)],
                    key=b"%d" % i,
                    partition=i // each % PARTITIONS,
                    on_delivery=lambda error, _: errors.append(error) if error else None,
                )
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(120) == 0
    assert not errors, errors[0]


def measure(
    broker: KafkaBroker, way: str, codec: str, batch_bytes: int, batches: int, records: list[bytes]
) -> dict[str, Any]:
    """Measure one way once: CPU seconds of each process per GB on the wire, and the core's
    paths.
    """
    claims_out, claims_in = WAYS[way]
    assert broker.process is not None
    with contextlib.ExitStack() as open_:
        core = open_.enter_context(GateProcess(broker.bootstrap, claims_in=claims_in))
        gates = {"core": core}
        if claims_out is not None:
            gates["edge"] = open_.enter_context(GateProcess(core.bootstrap, claims_out=claims_out))
        first = gates.get("edge", core)
        produce(first.bootstrap, codec, batch_bytes, UNCOUNTED, records)

        def now() -> dict[str, float]:
            return {name: gate.cpu_seconds() for name, gate in gates.items()} | {
                "broker": runs.cpu_s(broker.process.pid)
            }

        before, counted, paths = (
            now(),
            core.counters()["request_bytes_total"],
            core.counters()["batches_by_path"],
        )
        produce(first.bootstrap, codec, batch_bytes, batches, records)
        after, counters = now(), core.counters()
        gb = (counters["request_bytes_total"] - counted) / 1e9
        assert counters["partitions_refused"] == {}
        assert not counters["lying"]
        taken = {
            path: count - paths.get(path, 0) for path, count in counters["batches_by_path"].items()
        }
        return {
            **{f"{name} s/GB": (after[name] - before[name]) / gb for name in after},
            "wire GB": gb,
            "wire bytes a batch": gb * 1e9 / max(1, sum(taken.values())),
            "claims path": taken.get("claims", 0) / max(1, sum(taken.values())),
        }


def figures(samples: list[dict[str, Any]], name: str) -> str | None:
    """Return the median of a process's figures, lowest and highest; None without the process."""
    if name not in samples[0]:
        return None
    numbers = sorted(sample[name] for sample in samples)
    return f"{statistics.median(numbers):.2f} ({numbers[0]:.2f} to {numbers[-1]:.2f})"


def table(results: dict[str, dict[str, list[dict[str, Any]]]]) -> str:
    """Return the rows as text."""
    heads = ("codec", "way", "edge", "core", "broker", "believed", "wire kB a batch")
    body = []
    for codec, ways in results.items():
        for way, samples in ways.items():
            share = statistics.mean(sample["claims path"] for sample in samples)
            body.append(
                (
                    codec,
                    way,
                    *(figures(samples, f"{name} s/GB") for name in heads[2:5]),
                    f"{share:.1%}",
                    f"{samples[0]['wire bytes a batch'] / 1000:.0f}",
                )
            )
    return runs.columns(heads, *body, names=2)


def measured(options: argparse.Namespace) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return the rounds of each codec and way."""
    records = values(2000)
    settings = {
        "num.partitions": PARTITIONS,
        "log.retention.bytes": 64 << 20,
        "log.segment.bytes": 32 << 20,
        "message.max.bytes": 4 << 20,
    }
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    with KafkaBroker(config=settings, heap="1g") as broker:
        for codec in options.codecs:
            found[codec] = {way: [] for way in WAYS}
            for number in range(options.rounds):
                for way in WAYS:
                    sample = measure(broker, way, codec, options.batch, options.batches, records)
                    found[codec][way].append(sample)
                    runs.tell(f"  round {number + 1}: {codec} {way}")
    return found


def main(argv: list[str] | None = None) -> int:
    """Measure and print. Returns the exit code."""
    parser = runs.parser(__doc__, rounds=3, out="proxy/chain", is_saved=False)
    add = parser.add_argument
    runs.add_codecs(parser, cells.CODECS[1:])
    add("--batch", type=int, default=256 << 10, help="Bytes of a batch before compression.")
    add("--batches", type=int, default=1500, help="Batches of a run (default: 1500).")
    options = runs.parse(parser, argv)
    if options.quick:
        options.rounds, options.batches, options.batch = 1, 100, 32 << 10
    found = {**runs.head(), "samples": measured(options)}
    text = (
        f"{runs.source(found)}; Kafka {KAFKA_VERSION}, librdkafka {libversion()[0]}\n"
        f"{RECORD} B records, batches of {options.batch} bytes before compression\n"
        "CPU s per GB on the wire: median of the rounds (lowest to highest); believed: share of "
        f"batches\n\n{table(found['samples'])}"
    )
    runs.finish(options, "", found, text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

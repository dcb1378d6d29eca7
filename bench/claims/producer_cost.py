"""Time the Java producer with the agent against the stock one, in JVMs that take turns.

    python -m bench producer-cost [--jvms 5] [--rounds 20] [--records 4000]
        [--codecs zstd,gzip] [--schema-ids] [--write]

KafkaProducer 4.4.0, records of 200 to 600 bytes in batches of at most 64 kB, one partition, a sink
in the same JVM that answers at once. CPU is that of the thread that sends and of the producer's own
thread, for a record; records/s are those of a round, flush included:

    stock     a JVM without the agent
    again     another one: how far the ratio of two equal producers is from 1 on this machine
    tag       a JVM with the agent: claims in tags
    payload   claims in the payloads of zstd and gzip batches, tags for snappy and lz4

With ``--schema-ids`` the values begin with schema ids, and there are two more variants, whose
claims state them: ``tag ids`` and ``payload ids``.

A JVM compiles the same code differently in each run, and keeps what it has compiled. So a JVM is
one sample, the median of its rounds, and a ratio is over the stock JVM of the same turn. The 95 %
confidence interval is that of a median (order statistics of the binomial distribution).
``--write`` saves bench/results/producer-cost.json, which broker/producer-agent/README.md shows.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from bench import runs
from tests.interop.kafka_broker import classpath, find_java
from tests.support.jvm_agents import producer_agent

HERE = Path(__file__).resolve().parent
CODECS = ("none", "lz4", "snappy", "zstd", "gzip")
CARRIERS = ("tag", "payload")
IDS = " ids"
VARIANTS = ("stock", "again", *CARRIERS)
IDS_VARIANTS = (*VARIANTS, *(carrier + IDS for carrier in CARRIERS))
#: the jars that a producer needs
JARS = ("kafka-clients", "zstd-jni", "lz4-java", "snappy-java", "slf4j-")
WARM_UP = 15
HEAP = ("-Xms512m", "-Xmx512m", "-XX:+UseG1GC")
FEWEST_ROUNDS = 20  # of a saved result


class Sample(NamedTuple):
    """Medians of a JVM's rounds: records a second, CPU ns a record."""

    speed: float
    ns: float


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """Parse the options."""
    parser = runs.parser(__doc__, rounds=20, quick="", is_json=True)
    add = parser.add_argument
    add("--jvms", type=runs.positive, default=5, help="JVMs of each variant (default: 5).")
    add("--records", type=runs.positive, default=4000, help="Records of a turn (default: 4000).")
    runs.add_codecs(parser, CODECS)
    add("--schema-ids", action="store_true", help="Values with schema ids, which claims state.")
    options = runs.parse(parser, argv, needs, ("records",))
    options.variants = IDS_VARIANTS if options.schema_ids else VARIANTS
    return options


def needs(options: argparse.Namespace) -> str:
    """Return what a run lacks that is to be saved."""
    is_whole = options.jvms * options.rounds >= FEWEST_ROUNDS and options.codecs == CODECS
    if is_whole and not options.schema_ids:
        return ""
    return f"all codecs and at least {FEWEST_ROUNDS} rounds, without --schema-ids"


def expected_claims(codec: str, variant: str) -> str:
    carrier = variant.removesuffix(IDS)
    if codec == "none" or carrier not in CARRIERS:
        return "none"
    found = "payload" if carrier == "payload" and codec in ("zstd", "gzip") else "tag"
    return found + IDS if variant.endswith(IDS) else found


def run_jvm(variant: str, options: argparse.Namespace) -> dict[str, Sample]:
    """Run one JVM, and return the medians of its rounds by codec.

    Raises SystemExit where the variant did not do what its name says.
    """
    jars = [jar for jar in classpath().split(os.pathsep) if Path(jar).name.startswith(JARS)]
    command = [find_java(), *HEAP, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    carrier = variant.removesuffix(IDS)
    if carrier in CARRIERS:
        schema_ids = ";schema.ids=true" if variant.endswith(IDS) else ""
        command.append(f"-javaagent:{producer_agent()}=carrier={carrier}{schema_ids}")
    command += ["-cp", os.pathsep.join(jars), str(HERE / "ProducerCost.java"), str(options.records)]
    command += [str(WARM_UP), str(options.rounds), ",".join(options.codecs)]
    command += ["ids"] if options.schema_ids else []
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    found: dict[str, list[Sample]] = {}
    for codec, speed, ns, claims in (line.split("\t") for line in lines):
        if claims != (expected := expected_claims(codec, variant)):
            raise SystemExit(f"{codec}, {variant}: the claims are in {claims}, not {expected}")
        found.setdefault(codec, []).append(Sample(float(speed), float(ns)))
    return {
        codec: Sample(*map(statistics.median, zip(*all_rounds, strict=True)))
        for codec, all_rounds in found.items()
    }


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Run the turns, and return medians."""
    samples: dict[tuple[str, str], list[Sample]] = {}
    for turn in range(options.jvms):
        for i in range(len(options.variants)):
            variant = options.variants[(turn + i) % len(options.variants)]
            for codec, one in run_jvm(variant, options).items():
                samples.setdefault((codec, variant), []).append(one)
    rows = []
    for codec in options.codecs:
        row: dict[str, Any] = {"codec": codec}
        stock = samples[codec, "stock"]
        for variant in options.variants:
            own = samples[codec, variant]
            ratios = [mine.ns / other.ns for mine, other in zip(own, stock, strict=True)]
            row[f"{variant} records/s"] = round(statistics.median(one.speed for one in own))
            row[f"{variant} ns"] = round(statistics.median(one.ns for one in own))
            row[f"{variant} ratio"] = statistics.median(ratios)
            row[f"{variant} interval"] = runs.interval(ratios)
        rows.append(row)
    return {
        **runs.head(),
        "kafka": "4.4.0",
        "jvms": options.jvms,
        "rounds": options.rounds,
        "records": options.records,
        "rows": rows,
    }


def table(result: dict[str, Any]) -> str:
    """Return the rows as text."""
    compared = [name.removesuffix(" ns") for name in result["rows"][0] if name.endswith(" ns")][1:]
    heads = ["codec", "stock", "rec/s"]
    for variant in compared:
        heads += [variant, "rec/s", "over stock (95 %)"]
    body = []
    for row in result["rows"]:
        line = [row["codec"], row["stock ns"], row["stock records/s"]]
        for variant in compared:
            least, most = row[f"{variant} interval"]
            ratio = f"{row[f'{variant} ratio']:.3f} ({least:.3f} to {most:.3f})"
            line += [row[f"{variant} ns"], row[f"{variant} records/s"], ratio]
        body.append(line)
    head = f"KafkaProducer {result['kafka']}, CPU ns a record and records/s, {result['jvms']} JVMs"
    return "\n".join(
        [f"{head}, {result['rounds']} rounds", runs.source(result), runs.columns(heads, *body)]
    )


def main(argv: list[str] | None = None) -> int:
    options = arguments(argv)
    result = run(options)
    runs.finish(options, "producer-cost", result, table(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Time Kafka's LogValidator with believed claims against stock, in one JVM and in turns.

    python -m bench broker-validator [--rounds 30] [--ms 60] [--codecs zstd,gzip] [--write]

Batches of 64 kB on the wire, as those of bench/proxy; Kafka 4.4.0; CPU time of the thread for a
batch, with the ledger's decisions and the reading of the tag:

    stock     no claims
    trust     claims are believed
    audit     audit:0.01: one batch in a hundred is verified, which is in the figure
    verify    each batch is decompressed by Kafka, and its claims are compared

A ratio is the median of the rounds' ratios; its 95 % confidence interval is that of a median (order
statistics of the binomial distribution). ``--write`` saves bench/results/broker-validator.json, which broker/README.md
shows.
"""

from __future__ import annotations

import argparse
import statistics
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

from batchval.core.claims import compute, to_tag
from bench import runs
from bench.proxy import load
from tests.conformance import oracle
from tests.support.jvm_agents import broker_agent

HERE = Path(__file__).resolve().parent
CODECS = ("zstd", "gzip", "snappy", "lz4")
SENDERS = ("trust", "audit", "verify")
OPTIONS = (
    "rule.1=trust,principal=trust;rule.2=audit:0.01,principal=audit;rule.3=verify,principal=verify"
)
SIZE, BATCHES, WARM_UP = "64 kB", 32, 10
OVER = "over stock (95 %)"
HEAP = ("-Xms512m", "-Xmx512m", "-XX:+UseG1GC")
FEWEST_ROUNDS = 20  # of a saved result


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """Parse the options."""
    parser = runs.parser(__doc__, rounds=30, quick="")
    parser.add_argument(
        "--ms", type=runs.positive, default=60, help="Milliseconds of a turn (default: 60)."
    )
    runs.add_codecs(parser, CODECS)
    return runs.parse(parser, argv, needs, ("ms",))


def needs(options: argparse.Namespace) -> str:
    """Return what a run lacks that is to be saved."""
    whole = options.rounds >= FEWEST_ROUNDS and options.codecs == CODECS
    return "" if whole else f"all codecs and at least {FEWEST_ROUNDS} rounds"


def batches_of(codec: str, folder: Path) -> dict[str, Any]:
    """Write the batches and tags of a codec; what they are."""
    count = load.records_in(codec, SIZE)
    path = folder / f"broker-{codec}.batches"
    sizes = []
    with path.open("wb") as out:
        for number in range(BATCHES):
            data = load.batch_of(codec, SIZE, number, count)
            claims = compute(data)
            assert claims is not None
            tag = to_tag(claims, int.from_bytes(data[17:21], "big"))
            out.write(struct.pack(">i", len(data)) + data + struct.pack(">i", len(tag)) + tag)
            sizes.append(len(data))
    return {"path": path, "records": count, "bytes": round(statistics.mean(sizes))}


def run(options: argparse.Namespace) -> dict[str, Any]:
    folder = runs.BUILD.resolve() / "claims"
    folder.mkdir(parents=True, exist_ok=True)
    made = {codec: batches_of(codec, folder) for codec in options.codecs}
    agent, jar = broker_agent(), oracle.jar()
    command = [oracle.java(), *HEAP, f"-javaagent:{agent}={OPTIONS}", "-cp", f"{jar}:{agent}"]
    command += [
        str(HERE / "BrokerValidator.java"),
        str(options.ms),
        str(WARM_UP),
        str(options.rounds),
    ]
    command += [f"{codec}={one['path']}" for codec, one in made.items()]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    times: dict[tuple[str, str], list[float]] = {}
    for codec, sender, us in (line.split("\t") for line in lines):
        times.setdefault((codec, sender), []).append(float(us))
    rows = []
    for codec in options.codecs:
        stock = times[codec, "stock"]
        row: dict[str, Any] = {name: made[codec][name] for name in ("records", "bytes")}
        row |= {"codec": codec, "stock us": round(statistics.median(stock), 2)}
        for sender in SENDERS:
            ratios = [own / other for own, other in zip(times[codec, sender], stock, strict=True)]
            row[f"{sender} us"] = round(statistics.median(times[codec, sender]), 3)
            row[f"{sender} ratio"] = statistics.median(ratios)
            row[f"{sender} interval"] = runs.interval(ratios)
        rows.append(row)
    return {
        **runs.head(),
        "kafka": "4.4.0",
        "rounds": options.rounds,
        "ms": options.ms,
        "rows": rows,
    }


def one_over(ratio: float) -> str:
    return f"1/{1 / ratio:.1f}" if ratio < 0.5 else f"{ratio:.2f}"


def table(result: dict[str, Any]) -> str:
    """Return the rows as text."""
    heads = ["codec", "records", "stock"]
    for sender in SENDERS:
        heads += [sender, OVER]
    body = []
    for row in result["rows"]:
        line = [row["codec"], row["records"], f"{row['stock us']:.1f}"]
        for sender in SENDERS:
            least, most = row[f"{sender} interval"]
            ratio = f"{one_over(row[f'{sender} ratio'])} ({one_over(least)} to {one_over(most)})"
            line += [row[f"{sender} us"], ratio]
        body.append(line)
    head = f"LogValidator of Kafka {result['kafka']}, CPU us a batch of {SIZE}"
    return "\n".join(
        [
            f"{head}, {result['rounds']} rounds in turns",
            runs.source(result),
            runs.columns(heads, *body),
        ]
    )


def main(argv: list[str] | None = None) -> int:
    options = arguments(argv)
    result = run(options)
    runs.finish(options, "broker-validator", result, table(result))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(f"{error}: {error.stderr[-2000:]}")

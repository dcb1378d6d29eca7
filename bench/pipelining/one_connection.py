"""Throughput of one partition over a long path: requests in flight × batch size, one connection of
batchval.network.

The bound is cap × batch bytes / round trip: what a client reaches whose next request leaves when an
answer comes. Prints Markdown, writes it and JSON.

    python -m bench one-connection [--rtt 1 70 140] [--caps 1 5] [--rounds 3] [--broker kafka]
        [--link relay] [--quick | --write]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from bench import runs
from bench.pages.pipelining import one_connection
from bench.pipelining import link as links

TARGET = 0.75
RTT_MS = {"sink": [1.0, 70.0, 140.0], "kafka": [140.0]}
FROM_MS = 70  # shorter round trips allow more than the link's one process can carry: reported, without a target


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = runs.parser(__doc__, rounds=3, out="pipelining")
    add = parser.add_argument
    rtt = "Round trips in milliseconds (default: 1 70 140; 140 with --broker kafka)."
    add("--rtt", type=float, nargs="+", help=rtt)
    add("--caps", type=int, nargs="+", default=[1, 5], help="Requests in flight (default: 1 5).")
    records = "Records of 1,000 bytes in a batch (default: 500 960)."
    add("--records", type=int, nargs="+", default=[500, 960], help=records)
    seconds = "Measured seconds of each round, after the warm-up (default: 8)."
    add("--seconds", type=float, default=8, help=seconds)
    warm_up = "Seconds until the congestion window has grown (default: 6)."
    add("--warm-up", type=float, default=6, help=warm_up)
    broker = "A broker that answers at once, or Apache Kafka (default: sink)."
    add("--broker", choices=("sink", "kafka"), default="sink", help=broker)
    links.add_options(parser)
    buffer = "Measure one more row, with this SO_SNDBUF."
    add("--fixed-buffer", type=int, metavar="BYTES", help=buffer)
    whole = ("caps", "records", "seconds", "warm_up", "rounds")
    options = runs.parse(parser, argv, needs, whole)
    options.rtt = options.rtt or RTT_MS[options.broker]
    if options.quick:
        options.rounds, options.seconds, options.warm_up = 1, 0.5, 0.2
        options.records = options.records[:1]
    return options


def needs(options: argparse.Namespace) -> str:
    """Return what a run lacks that is to be saved."""
    if options.rtt and not set(options.rtt) >= set(RTT_MS[options.broker]):
        return "a whole run: without --rtt"
    return links.needs(options.link)


@contextlib.contextmanager
def listening(*command: str) -> Iterator[tuple[str, int]]:
    """Start a process that prints "listening HOST PORT", yield both, and stop it afterwards."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=runs.ROOT)
    try:
        assert process.stdout is not None
        words = process.stdout.readline().split()
        if words[:1] != ["listening"]:
            raise RuntimeError(f"{command[-1]} did not start")
        yield words[1], int(words[2])
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def path(options: argparse.Namespace, rtt_ms: float) -> Iterator[tuple[list[str], str, int]]:
    """Yield (prefix of the sender's command, host, port) of a broker at the far end of a link."""
    broker = runs.program("pipelining.sink" if options.broker == "sink" else "pipelining.broker")
    if options.link == "tun":
        broker += [
            "--host",
            links.FAR,
            *(["--congestion", options.congestion] if options.broker == "sink" else []),
        ]
        with links.link(rtt_ms) as (near, far), listening(*far, *broker) as (host, port):
            yield near, host, port
        return
    relay = runs.program("pipelining.link", rtt_ms)
    with listening(*broker) as (host, port), listening(*relay, "--relay", f"{host}:{port}") as ends:
        yield [], *ends


def send(
    options: argparse.Namespace, prefix: list[str], host: str, port: int, cell: dict[str, Any]
) -> dict[str, Any]:
    command = [*prefix, *runs.program("pipelining.sender", host, port)]
    command += ["--cap", str(cell["cap"]), "--records", str(cell["records"])]
    command += ["--seconds", str(options.seconds), "--warm-up", str(options.warm_up)]
    command += ["--send-buffer", str(cell["buffer"])] if cell["buffer"] else []
    command += ["--congestion", options.congestion] if options.link == "tun" else []
    command += ["--kafka"] if options.broker == "kafka" else []
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=runs.ROOT)
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1:]}
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def cells(options: argparse.Namespace) -> list[dict[str, Any]]:
    found = [
        {"cap": cap, "records": count, "buffer": None}
        for count in options.records
        for cap in options.caps
    ]
    if options.fixed_buffer:
        found.append(
            {
                "cap": max(options.caps),
                "records": options.records[-1],
                "buffer": options.fixed_buffer,
            }
        )
    return found


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return one row a cell; rounds interleave the cells, and each run has a process and
    connection.
    """
    rows = []
    for rtt_ms in options.rtt:
        with path(options, rtt_ms) as (prefix, host, port):
            several = [{"rtt_ms": rtt_ms, **cell, "rounds": []} for cell in cells(options)]
            for number in range(options.rounds):
                for cell in several:
                    answer = send(options, prefix, host, port, cell)
                    cell["rounds"].append(answer)
                    runs.tell(f"  round {number + 1}: {cell_name(cell)}: {summary(answer)}")
            rows += several
    return [rated(row) for row in rows]


def cell_name(cell: dict[str, Any]) -> str:
    return f"{cell['rtt_ms']:g} ms, cap {cell['cap']}, {cell['records']} records"


def summary(answer: dict[str, Any]) -> str:
    return str(answer.get("error") or f"{answer['bytes_per_second'] / 1e6:.2f} MB/s")


def rated(row: dict[str, Any]) -> dict[str, Any]:
    """Add the medians of a row's rounds, and the share of the bound that they reach."""
    good = [one for one in row["rounds"] if "error" not in one]
    if len(good) < len(row["rounds"]):
        return row | {
            "met": False,
            "error": [one["error"] for one in row["rounds"] if "error" in one],
        }
    middle = statistics.median(one["bytes_per_second"] for one in good)
    size = good[0]["request_bytes"]
    bound = row["cap"] * size / row["rtt_ms"] * 1000
    rates = [one["bytes_per_second"] for one in good]
    share = middle / bound
    return row | {
        "round_trip_ms": statistics.median(one["round_trip_ms"] for one in good),
        "bytes_per_second": middle,
        "records_per_second": statistics.median(one["records_per_second"] for one in good),
        "bound": bound,
        "share": share,
        "spread": (max(rates) - min(rates)) / middle,
        "order_kept": all(one["order_kept"] for one in good),
        "peak_in_flight": max(one["peak_in_flight"] for one in good),
        "latency_ms": statistics.median(one["latency_ms"] for one in good),
        "met": share >= TARGET and all(one["order_kept"] for one in good),
    }


def goals(rows: list[dict[str, Any]]) -> str:
    """Return how many rows reach the internal goal, and those that do not."""
    rated = [row for row in rows if not row.get("buffer") and row["rtt_ms"] >= FROM_MS]
    missed = [cell_name(row) for row in rated if not row["met"]]
    text = f"{len(rated) - len(missed)} of {len(rated)} rows reach {TARGET} of the bound"
    return f"{text}; missed: {', '.join(missed)}\n" if missed else f"{text}\n"


def main(argv: list[str] | None = None) -> int:
    options = arguments(argv)
    load = runs.load()
    rows = measure(options)
    first = next(
        (one for row in rows for one in row["rounds"] if "error" not in one), {"loop": "?"}
    )
    control = {"sink": "at both ends", "kafka": "at the sender"}[options.broker]
    described = {
        "tun": f"TUN devices between two network namespaces, {options.congestion} {control}",
        "relay": "a delaying relay",
    }
    result = {
        **runs.head(),
        "settings": {
            "link": described[options.link],
            "broker": {
                "sink": "one that checks the order and answers at once",
                "kafka": "Apache Kafka 4.4.0",
            }[options.broker],
            "rounds": options.rounds,
            "seconds": options.seconds,
            "warm_up": options.warm_up,
            "loop": first["loop"],
            "load": [load, runs.load()],
        },
        "rows": rows,
    }
    text = f"{one_connection(result)}\n{goals(rows)}"
    name = "pipelining" if options.broker == "sink" else "pipelining-kafka"
    runs.finish(options, name, result, text)
    return int(any("error" in row for row in rows))


if __name__ == "__main__":
    sys.exit(main())

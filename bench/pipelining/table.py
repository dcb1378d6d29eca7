"""The pipelining table: what producers reach over a long path, and how many requests they have in
flight on the wire.

Kafka 4.4.0 runs at the end of a delayed link (table_wire.py); each client sends a fixed number of
records of 1,000 bytes, flushed at 500,000 bytes or 100 ms, and waits for all answers.

    python -m bench pipelining [--rtt 1 70 140] [--cells one one-1 large acks0 many long]
        [--peers batchval Java …] [--rounds 3] [--quick | --write]
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from bench import runs
from bench.pages import pipelining as page
from bench.pipelining import table_cluster
from bench.pipelining import table_peers as peers
from bench.pipelining import table_wire as links
from tests.support.ports import free_port, free_ports

ONE, MANY, PARTITIONS = table_cluster.ONE, table_cluster.MANY, table_cluster.PARTITIONS
BATCH, LARGE, LINGER_MS = 500_000, 1_000_000, 100
CELLS = {  # partitions, acks, limit of requests in flight, batch
    "one": (1, -1, 5, BATCH),
    "one-1": (1, -1, 1, BATCH),
    "large": (1, -1, 5, LARGE),
    "acks0": (1, 0, 5, BATCH),
    "many": (PARTITIONS, -1, 5, BATCH),
    "long": (1, -1, 5, LARGE),  # whole runs, in which the start of a connection is little
}
ONLY = {"long": ("batchval", peers.TODAY)}
#: one request at a time to a partition: fewer records, or they take minutes
SERIAL = ("sarama 1.30.1", "sarama 1.61.1", "librdkafka idempotent")
#: what the samples of a row have in common
KEY = ("cell", "rtt_ms", "congestion", "peer")
TIMEOUT_S = 240

Sample = dict[str, Any]


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """Parse the options."""
    look = "few records, one round: a look, no result"
    parser = runs.parser(__doc__, rounds=3, quick=look, out="pipelining-table")
    add = parser.add_argument
    rtt = "Round trips in milliseconds (default: 1 70 140)."
    add("--rtt", type=float, nargs="+", default=[1.0, 70.0, 140.0], help=rtt)
    cells, every = list(CELLS), list(peers.PEERS)
    cells_help = f"Cells: {', '.join(cells)} (default: all)."
    add("--cells", nargs="+", choices=cells, default=cells, metavar="CELL", help=cells_help)
    peers_help = f"Clients: {', '.join(every)} (default: all)."
    add("--peers", nargs="+", choices=every, default=every, metavar="PEER", help=peers_help)
    add("--brokers", type=int, default=5, help="Brokers; a relay has one (default: 5).")
    add("--heap", default="256m", help="Heap of a broker (default: 256m).")
    default = "tun" if links.is_possible() else "relay"
    link = "TUN devices between network namespaces (root), or a relay (default: tun if possible)."
    add("--link", choices=("tun", "relay"), default=default, help=link)
    congestion = "Congestion control of every connection over the link (default: cubic)."
    add("--congestion", default="cubic", help=congestion)
    options = runs.parse(parser, argv, needs, ("rtt", "cells", "peers", "brokers", "rounds"))
    if options.quick:
        options.rounds = 1
    if options.link == "relay":
        options.brokers = 1
    return options


def needs(options: argparse.Namespace) -> str:
    """Return what a run lacks that is to be saved."""
    return "TUN devices in network namespaces (root)" if options.link == "relay" else ""


def wanted(
    options: argparse.Namespace, missing: dict[str, str]
) -> Iterator[tuple[str, float, str]]:
    """Yield cell, round trip and client of each run of a round."""
    for rtt_ms in options.rtt:
        for cell in options.cells:
            if cell in ONLY and rtt_ms != max(options.rtt):
                continue
            for peer in options.peers:
                exists = (cell, peer) != ("acks0", "librdkafka idempotent")
                if exists and peer not in missing and peer in ONLY.get(cell, options.peers):
                    yield cell, rtt_ms, peer


@contextlib.contextmanager
def path(options: argparse.Namespace) -> Iterator[tuple[list[str], runs.Child, str]]:
    """Yield the prefix of a client's command, the wire, and the addresses of the brokers."""
    with contextlib.ExitStack() as stack:

        def child(command: list[str]) -> tuple[runs.Child, dict[str, Any]]:
            started = runs.Child(command)
            stack.callback(started.stop)
            answer = started.answer()
            if "error" in answer:
                raise RuntimeError(f"{command[2]}: {answer['error']}")
            return started, answer

        cluster = ["--brokers", options.brokers, "--heap", options.heap]
        if options.link == "tun":
            ports = [9100 + number for number in range(1, options.brokers + 1)]
            words = ("tun", *ports, "--congestion", options.congestion)
            wire, ends = child(runs.program("pipelining.table_wire", *words))
            far, prefix = (["ip", "netns", "exec", ends[end]] for end in ("far", "near"))
            cluster += ["--host", links.FAR, "--port", 9100]
        else:
            port, broker_port = free_port(), free_ports(table_cluster.CONTROLLER + 2)
            far, prefix, target = [], [], f"127.0.0.1:{broker_port + 1}"
            wire, _ = child(runs.program("pipelining.table_wire", "relay", port, target))
            cluster += ["--port", broker_port, "--advertise", port]
        _, brokers = child([*far, *runs.program("pipelining.table_cluster", *cluster)])
        yield prefix, wire, brokers["plain"]


def records(peer: str, cell: str, rtt_ms: float, quick: bool) -> int:
    """Return a number of records: at least 200 requests with five in flight, in about ten
    seconds.
    """
    partitions, acks, cap, batch = CELLS[cell]
    if quick:
        return 2_000
    if cell == "long":
        return 1_000_000
    if partitions > 1:  # sarama's requests have 13 MB then: fewer records make too few of them
        return 500_000
    if rtt_ms < 50:
        return 300_000
    if acks == 0:
        return 200_000
    if cap == 1:
        return 40 * batch // 1000
    if peer in SERIAL:
        return 50_000
    return 220 * batch // 1000


def send(
    options: argparse.Namespace,
    prefix: list[str],
    wire: runs.Child,
    brokers: str,
    cell: str,
    rtt_ms: float,
    peer: str,
) -> Sample:
    """Run one client once."""
    partitions, acks, cap, batch = CELLS[cell]
    count = records(peer, cell, rtt_ms, options.quick)
    batch = 50_000 if options.quick else batch
    topic = MANY if partitions > 1 else ONE
    run = peers.Run(brokers, topic, count, partitions, acks, cap, batch, LINGER_MS)
    sample: Sample = {"peer": peer, "cell": cell, "rtt_ms": rtt_ms, "records": count}
    sample |= {"batch": batch, "congestion": options.congestion, "load": runs.load()}
    wire.ask(rtt=rtt_ms, start=1)
    try:
        done = subprocess.run(
            [*prefix, *peers.PEERS[peer](run)],
            capture_output=True,
            text=True,
            check=False,
            cwd=runs.ROOT,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return sample | {"error": f"not done in {TIMEOUT_S} s"}
    if acks == 0:  # what left the client may still be on its way
        seen, until = -1, time.monotonic() + 60
        while (now := wire.ask(report=1)["bytes"]) != seen and time.monotonic() < until:
            seen = now
            time.sleep(0.5 + rtt_ms / 500)
    seen_on_wire = wire.ask(report=1)
    try:
        answer = peers.read_result(peer, done.stdout)
    except ValueError:
        output = (done.stderr.strip() or done.stdout.strip()).splitlines()
        return sample | {"error": output[-1][:300] if output else f"exit code {done.returncode}"}
    if answer["failed"]:
        return sample | {"error": f"{answer['failed']} of {count} failed: {answer.get('why', '')}"}
    if not count * 1000 < seen_on_wire["bytes"] < count * 1100 + 200_000:
        return sample | {"error": f"{seen_on_wire['bytes']} bytes passed, of {count} records"}
    return sample | {"seconds": answer["seconds"], "wire": seen_on_wire}


def measure(options: argparse.Namespace, missing: dict[str, str]) -> list[Sample]:
    """Return the samples of all rounds."""
    samples: list[Sample] = []
    asked = [peer for peer in options.peers if peer not in missing]
    with path(options) as (prefix, wire, brokers):
        for peer in asked if not options.quick else []:  # warms up brokers and topics
            send(options, prefix, wire, brokers, "one", 1.0, peer)
        for number in range(options.rounds):
            for cell, rtt_ms, peer in wanted(options, missing):
                one = send(options, prefix, wire, brokers, cell, rtt_ms, peer)
                samples.append(one)
                runs.tell(f"  {number + 1}: {rtt_ms:g} ms {cell} {peer}: {summary(one)}")
    return samples


def summary(sample: Sample) -> str:
    """Return a sample as a line of progress."""
    if "error" in sample:
        return str(sample["error"])
    wire = sample["wire"]
    counted = f"in flight {wire['in_flight']} ({wire['in_flight_total']} in all)"
    return f"{rate(sample):,.0f} records/s, {wire['requests']} requests, {counted}"


# ---- rows ----------------------------------------------------------------------------------------


def rate(sample: Sample) -> float:
    """Return records a second by the client's clock, to the last sent byte without acks."""
    seconds = sample["wire"]["sending_s"] if sample["cell"] == "acks0" else sample["seconds"]
    return float(sample["records"] / seconds)


def steady(sample: Sample) -> float | None:
    """Return records a second on the wire between the middle answer and the last but one."""
    wire = sample["wire"]
    if not wire.get("steady_bytes_per_s") or sample["cell"] in ("acks0", "many"):
        return None
    return float(wire["steady_bytes_per_s"] * sample["records"] / wire["bytes"])


def rows(samples: list[Sample], brokers: int) -> list[dict[str, Any]]:
    """Return one row over all rounds for each value of KEY."""
    groups: dict[tuple[Any, ...], list[Sample]] = {}
    for one in samples:
        groups.setdefault(tuple(one[name] for name in KEY), []).append(one)
    order = list(page.FLAGS)
    in_order = sorted(groups.items(), key=lambda item: (order.index(item[0][0]), *item[0][1:3]))
    return [row(dict(zip(KEY, key, strict=True)), found, brokers) for key, found in in_order]


def row(found: dict[str, Any], several: list[Sample], brokers: int) -> dict[str, Any]:
    """Return the row of these samples, which have the values of ``found`` in common."""
    cell, good = found["cell"], [one for one in several if "error" not in one]
    if not good:
        return found | {"error": several[-1]["error"]}
    cap, best = CELLS[cell][2], max(rate(one) for one in good)
    wires = [one["wire"] for one in good]
    found |= {"rounds": len(good), "brokers": brokers}
    found |= {"records": max(one["records"] for one in good)}
    found |= {"max_records_per_s": best, "max_mib_per_s": best * 1000 / 2**20}
    if even := [value for one in good if (value := steady(one)) is not None]:
        found["steady_records_per_s"] = statistics.median(even)
        found["bound_records_per_s"] = cap * good[0]["batch"] / found["rtt_ms"]
        sizes = [wire["bytes"] / wire["requests"] for wire in wires]
        found["request_bytes"] = statistics.median(sizes)
    if cell != "acks0":
        found["in_flight"] = max(wire["in_flight"] for wire in wires)
        found["in_flight_total"] = max(wire["in_flight_total"] for wire in wires)
        found["cap_kept"] = found["in_flight"] <= cap
    return found


def main(argv: list[str] | None = None) -> int:
    """Measure and print. Returns the exit code."""
    options = arguments(argv)
    missing = peers.build(options.peers)
    samples = measure(options, missing)
    loads = [one["load"] for one in samples]
    settings = {"missing": missing, "heap": options.heap, "links": [options.link]}
    settings |= {"brokers": options.brokers}
    settings |= {"load": [min(loads, default=0.0), max(loads, default=0.0)]}
    versions = {"Kafka": "4.4.0", "Java": "4.3.1", "librdkafka": peers.librdkafka_version()}
    result = {**runs.head(), "settings": settings, "versions": versions}
    result["rows"] = rows(samples, options.brokers)
    runs.finish(options, "pipelining-table", result, page.producers(result), {"samples": samples})
    return int(any("error" in one for one in samples))


if __name__ == "__main__":
    sys.exit(main())

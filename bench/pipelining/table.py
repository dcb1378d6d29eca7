"""The pipelining table: what producers reach over a long path, and how many requests they have
under way on the wire.

Kafka 4.4.0 runs at the end of a delayed link (table_wire.py); each client sends a fixed number of
records of 1,000 bytes, flushed at 500,000 bytes or 100 ms, and waits for all answers.

    python -m bench pipelining [--rtt 1 70 140] [--cells one one-1 large acks0 many tls long]
        [--peers batchval Java …] [--rounds 3] [--fresh] [--quick | --write] [--report-only]

The samples of a commit are kept, so a table can be made in pieces; --report-only --write saves it.
Samples of --quick and of --link relay are kept in files of their own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench import runs
from bench.pipelining import link as links
from bench.pipelining import table_figures as figures
from bench.pipelining import table_peers as peers
from tests.support.ports import free_port, free_ports

ONE, MANY, PARTITIONS = "pipeline-1", "pipeline-128", 128
BATCH, LARGE, LINGER_MS = 500_000, 1_000_000, 100
CELLS = {  # partitions, acks, cap, batch, TLS
    "one": (1, -1, 5, BATCH, False),
    "one-1": (1, -1, 1, BATCH, False),
    "large": (1, -1, 5, LARGE, False),
    "acks0": (1, 0, 5, BATCH, False),
    "many": (PARTITIONS, -1, 5, BATCH, False),
    "tls": (1, -1, 5, BATCH, True),
    "long": (1, -1, 5, LARGE, False),  # whole runs, in which the start of a connection is little
}
ONLY = {"long": ("batchval", figures.TODAY)}
LONGEST_PATH_ONLY = ("tls", "long")
#: one request at a time to a partition: fewer records, or they take minutes
SERIAL = ("sarama 1.30.1", "sarama 1.61.1", "librdkafka idempotent")


def arguments(argv: list[str] | None) -> argparse.Namespace:
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
    links.add_options(parser)
    add("--nice", type=int, default=0, help="Priority of the clients (negative: root).")
    add("--fresh", action="store_true", help="Forget the samples of earlier runs.")
    add("--report-only", action="store_true", help="Measure nothing, write what is kept.")
    options = runs.parse(parser, argv, needs, ("rtt", "cells", "peers", "brokers", "rounds"))
    if options.quick:
        options.rounds = 1
    if options.link == "relay":
        options.brokers = 1
    return options


def needs(options: argparse.Namespace) -> str:
    """Return what a run lacks that is to be saved."""
    if not options.report_only:
        return links.needs(options.link)
    counts = Counter(
        (one["cell"], one["rtt_ms"], one["peer"])
        for one in kept(options)
        if one["congestion"] == "cubic" and one["link"] == "tun"
    )
    fewest = min((counts[one] for one in wanted(options, options.peers)), default=0)
    if fewest >= options.rounds:
        return ""
    return f"{options.rounds} samples of each cell and client; of one there are {fewest}"


def wanted(options: argparse.Namespace, names: Sequence[str]) -> Iterator[tuple[str, float, str]]:
    """Yield cell, round trip and client of each run of a round."""
    for rtt_ms in options.rtt:
        for cell in options.cells:
            if cell in LONGEST_PATH_ONLY and rtt_ms != max(options.rtt):
                continue
            for peer in names:
                exists = (cell, peer) != ("acks0", "librdkafka idempotent")
                if exists and peer in ONLY.get(cell, names):
                    yield cell, rtt_ms, peer


def samples_file(options: argparse.Namespace) -> Path:
    """Return the file of the samples of runs like this one."""
    kind = ("-quick" if options.quick else "") + ("-relay" if options.link == "relay" else "")
    out: Path = options.out
    return out.with_name(f"{out.stem}{kind}.samples.json")


def kept(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the samples of earlier runs. Raises SystemExit if another commit was measured."""
    path = samples_file(options)
    if options.fresh or not path.exists():
        return []
    found: list[dict[str, Any]] = json.loads(path.read_text())
    others = {str(one.get("commit")) for one in found} - {runs.describe()["commit"]}
    if others:
        commits = ", ".join(sorted(others))
        raise SystemExit(f"{path} is of another commit ({commits}): --fresh forgets its samples")
    return found


class Child:
    """A process that answers lines of JSON, and ends with its input."""

    def __init__(self, *command: str) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=runs.ROOT
        )
        self.name = next((word for word in command if word.startswith("bench.")), command[0])

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended: see above")
        found: dict[str, Any] = json.loads(line)
        return found

    def ask(self, **order: float) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


@contextlib.contextmanager
def path(
    options: argparse.Namespace, certificates: Path
) -> Iterator[tuple[list[str], Child, dict[str, Any]]]:
    """Yield (prefix of a client's command, the wire, the cluster's addresses)."""
    with contextlib.ExitStack() as stack:

        def child(*command: str) -> Child:
            started = Child(*command)
            stack.callback(started.end)
            return started

        cluster = runs.program("pipelining.table_cluster", "--certificates", certificates)
        cluster += ["--brokers", str(options.brokers), "--heap", options.heap]
        if options.link == "tun":
            ports = [str(9100 + number) for number in range(1, options.brokers + 1)]
            words = ("tun", *ports, "--congestion", options.congestion)
            wire = child(*runs.program("pipelining.table_wire", *words))
            ends = wire.answer()
            far = ["ip", "netns", "exec", ends["far"]]
            prefix = ["ip", "netns", "exec", ends["near"]]
            brokers = child(*far, *cluster, "--host", links.FAR, "--port", "9100")
        else:
            from bench.pipelining.table_cluster import CONTROLLER

            port, broker_port = free_port(), free_ports(CONTROLLER + 2)
            prefix = []
            words = ("relay", port, f"127.0.0.1:{broker_port + 1}")
            wire = child(*runs.program("pipelining.table_wire", *words))
            wire.answer()
            brokers = child(*cluster, "--port", str(broker_port), "--advertise", str(port))
        yield prefix, wire, brokers.answer()


def records(peer: str, cell: str, rtt_ms: float, quick: bool) -> int:
    """Return a number of records: at least 200 requests with five in flight, in about ten
    seconds.
    """
    partitions, acks, cap, batch, _ = CELLS[cell]
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
    options: argparse.Namespace, prefix: list[str], wire: Child, addresses: dict[str, Any], peer: str, cell: str,
    rtt_ms: float, certificates: Path,
) -> dict[str, Any]:  # fmt: skip
    """Run one client once."""
    partitions, acks, cap, batch, tls = CELLS[cell]
    count = records(peer, cell, rtt_ms, options.quick)
    run = peers.Run(
        brokers=addresses["tls" if tls else "plain"],
        topic=MANY if partitions > 1 else ONE,
        records=count,
        partitions=partitions,
        acks=acks,
        cap=cap,
        batch=50_000 if options.quick else batch,
        linger_ms=LINGER_MS,
        certificates=certificates if tls else None,
    )
    sample: dict[str, Any] = {"peer": peer, "cell": cell, "rtt_ms": rtt_ms}
    sample |= {"records": count, "batch": run.batch}
    sample |= {"congestion": options.congestion, "link": options.link, "brokers": options.brokers}
    sample |= {"commit": options.commit, "date": runs.now(), "load": runs.load()}
    command = [
        *prefix,
        *(["nice", "-n", str(options.nice)] if options.nice else []),
        *peers.PEERS[peer](run),
    ]
    wire.ask(start=1)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=runs.ROOT, timeout=240
        )
    except subprocess.TimeoutExpired:
        return sample | {"error": "not done in four minutes"}
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
    if not tls and not count * 1000 < seen_on_wire["bytes"] < count * 1100 + 200_000:
        return sample | {"error": f"{seen_on_wire['bytes']} bytes passed, of {count} records"}
    return sample | {
        "seconds": answer["seconds"],
        "own_in_flight": answer["in_flight"],
        "wire": seen_on_wire,
    }


def measure(
    options: argparse.Namespace, samples: list[dict[str, Any]], keep: Path
) -> dict[str, str]:
    """Add to the samples, which are kept after each run; return the unavailable peers and why."""
    missing = peers.build(options.peers)
    asked = [peer for peer in options.peers if peer not in missing]
    with tempfile.TemporaryDirectory(prefix="pipelining-") as folder:
        certificates = Path(folder)
        with path(options, certificates) as (prefix, wire, addresses):
            wire.ask(rtt=1)
            for peer in asked if not options.quick else []:  # warms up brokers and topics
                send(options, prefix, wire, addresses, peer, "one", 1.0, certificates)
            for number in range(options.rounds):
                for cell, rtt_ms, peer in wanted(options, asked):
                    wire.ask(rtt=rtt_ms)
                    one = send(options, prefix, wire, addresses, peer, cell, rtt_ms, certificates)
                    samples.append(one)
                    keep.write_text(json.dumps(samples, indent=1) + "\n")
                    runs.tell(f"  {number + 1}: {rtt_ms:g} ms {cell} {peer}: {summary(one)}")
    return missing


def summary(sample: dict[str, Any]) -> str:
    if "error" in sample:
        return str(sample["error"])
    wire = sample["wire"]
    return (
        f"{figures.rate(sample):,.0f} records/s, steady {figures.steady(sample) or 0:,.0f}, "
        f"{wire['requests']} requests, in flight {wire['in_flight']} ({wire['in_flight_total']} in all, "
        f"own count {sample['own_in_flight']})"
    )


def main(argv: list[str] | None = None) -> int:
    options = arguments(argv)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    samples = kept(options)
    head, load = runs.head(), runs.load()
    options.commit = head["machine"]["commit"]
    missing = {} if options.report_only else measure(options, samples, samples_file(options))
    result = {
        **head,
        "date": max((one["date"] for one in samples), default=head["date"]),
        "settings": {"missing": missing, "load": [load, runs.load()], "heap": options.heap},
        "versions": {
            "Kafka": "4.4.0",
            "Java": "4.3.1",
            "franz-go": peers.FRANZ,
            "librdkafka": peers.librdkafka_version(),
        },
        "rows": figures.rows(samples),
        "samples": samples,
    }
    result["figures"] = figures.rated(result["rows"])
    text = figures.markdown(result)
    runs.finish(options, "pipelining-table", result, text)
    return int(any("error" in one for one in samples))


if __name__ == "__main__":
    sys.exit(main())

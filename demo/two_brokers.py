"""``make demo-broker``: the same load on a stock Kafka broker and on one with the agent.

Two brokers run at the same time, each in a JVM of its own. Both receive the same recorded Produce
requests, in turns: one batch of 64 kB each, with claims in a tag. The stock broker decompresses
every batch. The other reads the claims and verifies a sample. What is printed was measured here:
CPU time of each broker's process, and the counters of the agent.

    python -m demo.two_brokers [--codecs gzip,zstd] [--rounds 4] [--seconds 3] [--mb 20]
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.system.interop.kafka_broker import KAFKA_VERSION, KafkaBroker, find_java, java_version
from tests.system.interop.kafka_java import ToolMissing

ROOT = Path(__file__).resolve().parents[1]
CODECS = ("gzip", "snappy", "lz4", "zstd")
TOPIC = "demo-broker"
POLICY = "audit:0.01"
#: clients of the listener PLAINTEXT have no principal, so a rule has to name the listener
OPTIONS = f"rule.1={POLICY},listener=PLAINTEXT"
STOCK, AGENT = "stock broker", "with the agent"
COUNTERS = (
    "Trusted",
    "Verified",
    "Honest",
    "Lying",
    "Unjudged",
    "NoClaims",
    "NotSettled",
    "Demotions",
)
WARM_UP_S = 6.0
START_TIMEOUT_S = 300.0  # a busy machine takes minutes


def bench_module(name: str) -> Any:
    """Return a module of bench/claims."""
    return importlib.import_module(f"bench.claims.{name}")


class Demo:
    """Both brokers, up, and the load for each codec."""

    def __init__(self, out: Console, mb: float) -> None:
        self.out, self.mb = out, mb
        self.load, self.rig = bench_module("produce_load"), bench_module("broker_rig")
        self.agents = self.rig.jvm_agents
        self.brokers: dict[str, KafkaBroker] = {}

    def start(self, open_: contextlib.ExitStack) -> None:
        """Build the agent, start the brokers, and make a topic in each."""
        self.out.print("Building the agent (the first time: Maven downloads, which takes minutes)")
        agent = self.agents.broker_agent()
        self.out.print(f"Starting two brokers of Kafka {KAFKA_VERSION}, the second one with")
        self.out.print(f"  -javaagent:{agent.name}={OPTIONS}")
        jvm = {STOCK: [], AGENT: [f"-javaagent:{agent}={OPTIONS}"]}
        for name, more in jvm.items():
            settings, flags = self.rig.SETTINGS, [*self.rig.JVM, *more]
            broker = KafkaBroker(
                config=settings, heap=self.rig.HEAP, jvm=flags, timeout=START_TIMEOUT_S
            )
            self.brokers[name] = open_.enter_context(broker)
            self.rig.make_topic(broker.bootstrap, TOPIC)

    def run(self, name: str, requests: Any, seconds: float) -> dict[str, Any]:
        """Send the load to one broker; returns its CPU."""
        broker = self.brokers[name]
        assert broker.process is not None
        processes = {"broker": broker.process.pid}
        found: dict[str, Any] = self.rig.sample(
            processes, lambda: requests.send(broker.port, self.mb * 1e6, seconds), self.mb
        )
        return found

    def measure(self, codec: str, rounds: int, seconds: float) -> dict[str, list[dict[str, Any]]]:
        """Return the samples of both brokers, which take turns."""
        requests = self.load.Requests.make(TOPIC, codec, 64, 1, "tag")
        self.out.print(f"{codec}: warming up, {requests.records} records of 1 kB in each batch")
        for name in self.brokers:
            self.run(name, requests, WARM_UP_S)
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in self.brokers}
        for number in range(rounds):
            for name in list(self.brokers)[:: -1 if number % 2 else 1]:
                found[name].append(self.run(name, requests, seconds))
            text = ", ".join(
                f"{name} {found[name][-1]['us']['broker']:,.0f} µs a batch" for name in found
            )
            self.out.print(f"  round {number + 1} of {rounds}: {text}")
        return found

    def counters(self) -> dict[str, int | str]:
        """Return the counters of the agent. Raises RuntimeError if it is not active."""
        process = self.brokers[AGENT].process
        assert process is not None
        found: dict[str, int | str] = self.agents.counters(process.pid)
        if not str(found["Status"]).startswith("active"):
            raise RuntimeError(f"the agent is {found['Status']}")
        return found


def table_of(samples: dict[str, dict[str, list[dict[str, Any]]]], mb: float) -> Table:
    """Return CPU of both brokers by codec, for a batch and for ``mb`` MB a second.

    The second is made of the first: where the machine is busy and less is sent in a round, a
    broker's share of a core in that round says less.
    """
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    made.add_column("CPU of the broker, all threads")
    for heading in (STOCK, AGENT, "ratio"):
        made.add_column(heading, justify="right")
    for codec, found in samples.items():
        cpu = {name: [one["us"]["broker"] for one in runs] for name, runs in found.items()}
        sent = [one for runs in found.values() for one in runs]
        rate = mb * 1e6 * sum(one["batches"] for one in sent) / sum(one["bytes"] for one in sent)
        ratio = statistics.median(a / b for a, b in zip(cpu[AGENT], cpu[STOCK], strict=True))
        words = [f"{statistics.median(cpu[name]):,.0f} µs" for name in (STOCK, AGENT)]
        made.add_row(f"{codec}, a batch", *words, f"{ratio:.2f}")
        words = [f"{statistics.median(cpu[name]) * rate / 1e6:.0%}" for name in (STOCK, AGENT)]
        made.add_row(f"{codec}, of one core at {mb:g} MB/s", *words, "")
    return made


def counters_of(counters: dict[str, int | str]) -> Table:
    """Return the agent's counters."""
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    made.add_column("JMX, batchval:type=claims")
    made.add_column("batches", justify="right")
    for name in COUNTERS:
        made.add_row(name, f"{counters[name]:,}")
    return made


def meaning(
    counters: dict[str, int | str], samples: dict[str, dict[str, list[dict[str, Any]]]]
) -> list[str]:
    """Return what the figures mean, in sentences."""
    measured = sum(one["batches"] for found in samples.values() for one in found[AGENT])
    trusted, verified = (int(counters[name]) for name in ("Trusted", "Verified"))
    lines = [
        f"The agent saw {trusted + verified:,} batches with claims, {measured:,} after warming up.",
        f"{trusted:,} were accepted by header, CRC and claims: nothing of them was decompressed.",
        f"{verified:,} were decompressed and compared with their claims: the first 100 of a",
        f"sender, then a sample ({POLICY}). A lie ends the trust in its sender for an hour.",
    ]
    fed = min(one["fed"] for found in samples.values() for runs in found.values() for one in runs)
    if fed < 0.95:
        lines.append(
            f"This machine was busy: in a round only {fed:.0%} of the load was sent. CPU a batch\n"
            "is what was measured; the share of a core is that of the whole load."
        )
    return lines


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """Parse the options."""
    parser = argparse.ArgumentParser(
        prog="python -m demo.two_brokers", description="Claims in a broker."
    )
    parser.add_argument(
        "--codecs", default="gzip,zstd", help="Codecs, with commas (default: gzip,zstd)."
    )
    parser.add_argument("--rounds", type=int, default=4, help="Rounds of each codec (default: 4).")
    parser.add_argument(
        "--seconds", type=float, default=3.0, help="Seconds of a round (default: 3)."
    )
    parser.add_argument(
        "--mb", type=float, default=20.0, help="MB a second on the wire (default: 20)."
    )
    options = parser.parse_args(argv)
    options.codecs = [codec for codec in options.codecs.split(",") if codec]
    for codec in options.codecs:
        if codec not in CODECS:
            parser.error(f"invalid codec {codec!r}: expected {', '.join(CODECS)}")
    for name in ("rounds", "seconds", "mb"):
        if getattr(options, name) <= 0:
            parser.error(f"invalid --{name} {getattr(options, name):g}: expected more than 0")
    return options


def main(argv: list[str] | None = None) -> int:
    """Run the demo. Returns the exit code."""
    options = arguments(argv)
    out, began = Console(highlight=False), time.monotonic()
    try:
        java = find_java()
        out.print(f"[bold]Claims in a Kafka broker[/], Java {java_version(java)}")
        demo = Demo(out, options.mb)
        with contextlib.ExitStack() as open_:
            demo.start(open_)
            samples = {
                codec: demo.measure(codec, options.rounds, options.seconds)
                for codec in options.codecs
            }
            counters = demo.counters()
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        needs = "\nIt needs a JDK 17 or newer, and Maven." if isinstance(error, ToolMissing) else ""
        out.print(f"[red bold]The demo ends:[/] {escape(str(error))}{needs}", soft_wrap=True)
        return 1
    out.print()
    out.print(table_of(samples, options.mb))
    out.print()
    out.print(counters_of(counters))
    out.print()
    out.print("\n".join(meaning(counters, samples)))
    out.print(
        f"\n{time.monotonic() - began:.0f} s. More: docs/benchmarks/broker.md, broker/README.md"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

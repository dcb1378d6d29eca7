"""The broker and the turns of the benches of ``perf produce`` and ``perf consume``.

A bench names its commands (one client each), and says how a client's output is read; every run has
the client's rate and what a million records cost the client and the broker in CPU time.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import runs
from bench.validation import native
from tests.system.interop.kafka_broker import (
    KAFKA_VERSION,
    TOOLS_VERSION,
    KafkaBroker,
    classpath,
    find_java,
)

HERE = Path(__file__).resolve().parent

#: as Kafka's scripts start a broker, not as the tests do
BROKER_JVM = ("-XX:-UseSerialGC", "-XX:+UseG1GC", "-XX:TieredStopAtLevel=4")
MEMORY = Path(
    "/dev/shm"
)  # memory for the log, if it has the space: writeback to a disk is not measured
MEMORY_WANTED = 8 << 30
#: by default a log may grow for five minutes before anybody looks at retention.bytes
BROKER_CONFIG = {"log.retention.check.interval.ms": 500, "log.segment.delete.delay.ms": 500}
WARM_UPS = 3  # runs of the C loop, for the broker's compiler
Run = dict[str, float]
Command = tuple[list[str], int]  # and how many records it moves in all


@dataclass(frozen=True)
class Bench:
    """One of the two: its result in bench/results, its clients by name, its records."""

    section: str
    clients: Mapping[str, str]
    records: int
    quick_records: int
    doc: str | None

    def arguments(self, argv: list[str] | None) -> argparse.Namespace:
        """Parse the options."""
        parser = runs.parser(self.doc, rounds=3)
        add, names = parser.add_argument, sorted(self.clients)
        records = f"Records of a run (default: {self.records:,})."
        add("--records", type=runs.positive, default=self.records, help=records)
        only = f"Clients: {', '.join(names)} (default: all)."
        every = list(self.clients)
        add("--only", nargs="+", choices=names, default=every, metavar="CLIENT", help=only)
        options = runs.parse(parser, argv, self.needs, ("records",))
        if options.quick:
            options.rounds, options.records = 1, self.quick_records
        return options

    def needs(self, options: argparse.Namespace) -> str:
        """Return what a run lacks that is to be saved."""
        whole = options.rounds >= 3 and set(options.only) == set(self.clients)
        return "" if whole else "three rounds at least, of all clients"

    def measure(
        self,
        options: argparse.Namespace,
        prepare: Callable[[str, int], None],
        commands: Callable[[str, int], dict[str, Command]],
        rate_of: Callable[[str, int], float | None],
    ) -> dict[str, Any]:
        """Run all rounds in turns against one broker; ``prepare`` creates the topic."""
        compileall.compile_dir(runs.ROOT / "batchval", quiet=1)  # as an installation is
        with (
            log_folder() as folder,
            KafkaBroker(
                folder, config=BROKER_CONFIG, heap="1g", jvm=BROKER_JVM, timeout=180
            ) as broker,
        ):
            assert broker.process is not None
            prepare(broker.bootstrap, options.records)
            every = commands(broker.bootstrap, options.records)
            for _ in range(WARM_UPS if not options.quick else 1):
                run_once("loop", every["loop"], rate_of, broker.process.pid)
            pid = broker.process.pid

            def way(name: str) -> Callable[[], Run]:
                return lambda: run_once(name, every[name], rate_of, pid)

            found = runs.in_turns(
                {name: way(name) for name in every if name in options.only},
                options.rounds,
                seen=lambda _, run: f"{run['rate']:,.0f} records/s",
            )
        return {
            **runs.head(),
            "versions": {"Kafka": KAFKA_VERSION, "Kafka's tools": TOOLS_VERSION},
            "records": options.records,
            "rounds": options.rounds,
            "load": os.getloadavg(),
            "log": "memory" if folder.parent == MEMORY else "disk",
            "runs": found,
        }


@contextlib.contextmanager
def log_folder() -> Iterator[Path]:
    """Provide the folder of the broker's log."""
    try:
        spacious = shutil.disk_usage(MEMORY).free >= MEMORY_WANTED
    except OSError:
        spacious = False
    with tempfile.TemporaryDirectory(
        prefix="batchval-bench-", dir=MEMORY if spacious else None
    ) as folder:
        yield Path(folder)


# the clients


def own(verb: str, bootstrap: str, topic: str) -> list[str]:
    """Return the command of perf produce or perf consume."""
    command = [sys.executable, "-m", "batchval", "perf", verb, "--bootstrap-server", bootstrap]
    return [*command, "--topic", topic]


def java(tool: str, bootstrap: str, topic: str) -> list[str]:
    """Return the command that runs the tool as Kafka's scripts do: server JIT and G1."""
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    command = [find_java(), "-Xmx1g", "-server", "-XX:+UseG1GC", quiet, "-cp", classpath("tools")]
    command += [f"org.apache.kafka.tools.{tool}", "--bootstrap-server", bootstrap]
    return [*command, "--topic", topic]


def c_loop(name: str, bootstrap: str, topic: str) -> list[str]:
    """Return the command of this C program, which uses librdkafka."""
    return [built(name), str(native.library()), bootstrap, topic]


def built(name: str) -> str:
    """Build the C program of this name and return its path."""
    return str(native.rdkafka_program(HERE / f"{name}.c"))


def run_once(
    name: str, command: Command, rate_of: Callable[[str, int], float | None], broker: int
) -> Run:
    """Run once; return records a second, and CPU seconds of client and broker per million
    records.
    """
    words, records = command
    before, broker_before = resource.getrusage(resource.RUSAGE_CHILDREN), runs.cpu_s(broker)
    done = subprocess.run(
        words, capture_output=True, text=True, cwd=runs.ROOT, timeout=600, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{name}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    rate = rate_of(done.stdout, records)
    if name.startswith("loop") and done.stdout.startswith("{"):  # produce_loop.c
        found = json.loads(done.stdout)
        rate = found["records"] / found["seconds"]
    elif name.startswith("loop"):  # RECORDS SECONDS …
        count, seconds = done.stdout.split()[:2]
        rate = int(count) / float(seconds)
    if rate is None:
        raise SystemExit(
            f"{name}: no line of totals, or fewer records than asked for\n{done.stdout}{done.stderr}"
        )
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    time.sleep(2)  # what the topic no longer keeps goes
    return {
        "rate": rate,
        "cpu": cpu / records * 1e6,
        "broker_cpu": (runs.cpu_s(broker) - broker_before) / records * 1e6,
    }

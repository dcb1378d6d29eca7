"""The clients of the table: to build each, to call it, and to read its output.

Every one sends a fixed number of records of 1,000 bytes and waits for all their acknowledgements.
sarama.go is built once for each release; librdkafka's is produce_loop.c, Java's is Kafka's own
ProducerPerformance.
"""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.perf_tools import perf_bench
from bench.validation.native import Missing
from tests.system.interop import kafka_broker

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILT = ROOT / "build" / "peers"

BUFFER = 256 << 20
SARAMA = {  # the last before pipelining, the first with it, the last that kept it, today's
    "1.30.1": "github.com/Shopify/sarama",
    "1.31.0": "github.com/Shopify/sarama",
    "1.47.0": "github.com/IBM/sarama",
    "1.61.1": "github.com/IBM/sarama",
}


TODAY = "sarama 1.61.1"


@dataclass(frozen=True, slots=True)
class Run:
    """What one client is to do."""

    brokers: str
    topic: str
    records: int
    partitions: int  # 1: all to partition 0; else round robin
    acks: int
    cap: int
    batch: int  # bytes
    linger_ms: int = 100


def tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise Missing(f"{name} is not on PATH")
    return path


# how each is called


def batchval(run: Run) -> list[str]:
    """Return the command of perf produce."""
    command = perf_bench.own("produce", run.brokers, run.topic)
    command += [*_size(run), "--acks", str(run.acks), "--max-in-flight", str(run.cap)]
    command += ["--partition", "0"] if run.partitions == 1 else ["--partitioner", "round_robin"]
    properties = (word for each in _kafka_properties(run) for word in ("--command-property", each))
    return [*command, *properties, "--output", "/dev/stdout"]


def java(run: Run) -> list[str]:
    """Return the command of Kafka's own tool."""
    try:
        command = perf_bench.java("ProducerPerformance", run.brokers, run.topic)
    except kafka_broker.BrokerError as error:
        raise Missing(str(error)) from None
    settings = [f"acks={run.acks}", f"max.in.flight.requests.per.connection={run.cap}"]
    settings.append("send.buffer.bytes=-1")
    if run.partitions > 1:
        settings.append("partitioner.class=org.apache.kafka.clients.producer.RoundRobinPartitioner")
    return [*command, *_size(run), "--command-property", *settings, *_kafka_properties(run)]


def _size(run: Run) -> list[str]:
    records = str(run.records)
    return ["--num-records", records, "--record-size", "1000", "--throughput", "-1"]


def _kafka_properties(run: Run) -> list[str]:
    settings = [f"batch.size={run.batch}", f"linger.ms={run.linger_ms}"]
    settings += [] if run.acks else ["enable.idempotence=false"]
    if (
        run.partitions > 1
    ):  # a batch for each of 128 partitions is twice the default; Java then sends crumbs
        settings.append(f"buffer.memory={BUFFER}")
    return settings


def librdkafka(run: Run, idempotent: bool = False) -> list[str]:
    """Return librdkafka's command; with idempotence, 2.16 has one request in flight a partition."""
    to = "0" if run.partitions == 1 else "-1"
    command = perf_bench.c_loop("produce_loop", run.brokers, run.topic)
    command += [str(run.records), to, str(run.partitions), f"acks={run.acks}"]
    command += ["enable.idempotence=true"] if idempotent and run.acks else []
    command += [f"max.in.flight={run.cap}", f"batch.size={run.batch}", f"linger.ms={run.linger_ms}"]
    # its own default is less than a batch of 1,000,000 bytes and its head
    return [*command, "message.max.bytes=1048576"]


def sarama(version: str) -> Callable[[Run], list[str]]:
    """Return the command of a release of sarama."""
    return lambda run: [str(built_go(SARAMA[version], f"v{version}")), *_go(run)]


def _go(run: Run) -> list[str]:
    settings = {"brokers": run.brokers, "topic": run.topic, "records": run.records}
    settings |= {"acks": run.acks, "cap": run.cap, "batch": run.batch}
    settings |= {"linger": f"{run.linger_ms}ms", "partition": 0 if run.partitions == 1 else -1}
    return [f"-{name}={value}" for name, value in settings.items()]


# how they are built


def built_go(module: str, version: str) -> Path:
    """Build peers/sarama.go with this release of sarama, and return the program."""
    source, program = HERE / "sarama.go", BUILT / f"sarama-{version.removeprefix('v')}"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        go = tool("go")
        folder = BUILT / f"{program.name}-source"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "main.go").write_text(source.read_text().replace("github.com/IBM/sarama", module))
        (folder / "go.mod").write_text(f"module peer\n\ngo 1.21\n\nrequire {module} {version}\n")
        _built([go, "mod", "tidy"], folder)
        _built([go, "build", "-o", str(program), "."], folder)
    return program


def _built(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Missing(
            f"{Path(command[0]).name} failed in {folder.name}: {done.stderr.strip()[-400:]}"
        )


# what they say


def read_result(peer: str, stdout: str) -> dict[str, Any]:
    """Return records, failed, seconds and in_flight (the client's own count, or None)."""
    if peer == "Java":
        lines = re.findall(
            r"^(\d+) records sent, ([\d.]+) records/sec.*99\.9th\.$", stdout, re.MULTILINE
        )
        if not lines:
            raise ValueError("no line of totals")
        records, rate = int(lines[-1][0]), float(lines[-1][1])
        return {"records": records, "failed": 0, "seconds": records / rate, "in_flight": None}
    answer: dict[str, Any] = json.JSONDecoder().raw_decode(stdout, stdout.index("{"))[0]
    if peer != "batchval":
        return answer
    totals = answer["totals"]
    return {
        "records": totals["records"],
        "failed": totals["failed"],
        "why": totals["errors"],
        "seconds": totals["elapsed_ns"] / 1e9,
        "in_flight": max(totals["highest_in_flight"].values(), default=None),
        "in_flight_total": totals["highest_in_flight_total"],
    }


PEERS: dict[str, Callable[[Run], list[str]]] = {
    "batchval": batchval,
    "Java": java,
    "librdkafka": librdkafka,
    "librdkafka idempotent": functools.partial(librdkafka, idempotent=True),
    **{f"sarama {version}": sarama(version) for version in SARAMA},
}


def librdkafka_version() -> str:
    try:
        import confluent_kafka
    except ImportError:
        return "not installed"
    return str(confluent_kafka.libversion()[0])


def build(names: Sequence[str]) -> dict[str, str]:
    """Build the named peers; return those that are unavailable, with the reason."""
    run = Run("127.0.0.1:1", "topic", 1, 1, -1, 1, 1)
    missing = {}
    for name in names:
        try:
            PEERS[name](run)
        except Missing as error:
            missing[name] = str(error)
    return missing

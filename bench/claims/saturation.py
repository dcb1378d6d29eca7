"""A broker that is bound by its CPU: throughput and CPU with and without claims.

    full        each codec by stock, trust, audit:0.01, verify, and a broker that believes the header;
                then stock and trust at 95 % of the stock broker's throughput: their CPU
    small       stock and trust with batches of 16 kB
    partitions  with requests of a batch for each of 100 partitions
    tls         over TLS
    replicas    with three replicas
    jdk         under the newest JDK

The broker has one core, and a client in C with recorded requests, on another core, keeps it busy:
connections with five requests in flight each, until so many requests are answered. The broker's
data is in memory, so that no disk is the bound. Followers are on the client's core, and acks is 1:
what bounds is the leader.

All ways take turns in one JVM, round after round; their topics have different policies. A ratio is
that of one round. Needs two cores, a JDK and Maven; OpenSSL's headers for TLS. --write replaces the
parts that were measured in the saved result, and leaves the others.

    python -m bench saturation [--only full,tls] [--codecs zstd] [--quick] [--write]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench import pages, runs
from bench.claims.broker_rig import HEAP, JVM, SETTINGS, Effort, Sample, merged
from bench.claims.produce_load import Carrier, How, Requests
from bench.pages import saturation as page
from bench.pages.saturation import FULL, PACED, PARTS, STOCK, TRUST
from bench.proxy import ends
from tests.support import jvm_agents
from tests.support.ports import free_port
from tests.support.topics import PATIENCE, log_end
from tests.system.interop.kafka_broker import (
    KAFKA_VERSION,
    KafkaBroker,
    brokers,
    find_java,
    java_version,
)

Row = dict[str, Any]

#: a way's topic has its policy; what the requests carry
WAYS: dict[str, Carrier] = {
    STOCK: "tag",
    TRUST: "tag",
    "audit:0.01": "tag",
    "verify": "tag",
    "header": "none",
}
CODECS = ("gzip", "zstd", "snappy", "lz4", "none")
PARTITIONS = 100
CONNECTIONS = 4
#: of the stock broker's throughput
PACE = 0.95
#: what is sent at once goes at this pace
AT_ONCE = 1e12
BROKER_CORE, CLIENT_CORE = 0, 1
IN_MEMORY, NEEDED = Path("/dev/shm"), 4 << 30  # bytes
#: Data is in memory: segments are soon deleted, and the more partitions there are the smaller.
SEGMENT_BYTES = {1: 64 << 20, PARTITIONS: 4 << 20}
STORE = {
    "log.retention.check.interval.ms": 1000,
    "ssl.keystore.type": "PEM",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
}


class Load(NamedTuple):
    """What is sent to which broker; the first variant is what the others differ from."""

    codec: str
    kilobytes: int = 64
    partitions: int = 1
    tls: bool = False
    replicas: int = 1
    jdk: str = "first"


#: what a part differs in from ``full``
VARIANTS: dict[str, dict[str, Any]] = {
    "small": {"kilobytes": 16},
    "partitions": {"partitions": PARTITIONS},
    "tls": {"tls": True},
    "replicas": {"replicas": 3},
    "jdk": {"jdk": "newest"},
}


EFFORTS = {
    FULL: Effort(6, 3.0, 6.0),
    PACED: Effort(6, 3.0, 2.0),
    **dict.fromkeys(VARIANTS, Effort(6, 2.5, 5.0)),
}
QUICK = dict.fromkeys(EFFORTS, Effort(2, 0.5, 1.0))


# ---- brokers -------------------------------------------------------------------------------------


def newest_java() -> str:
    """Return the newest installed java."""
    found = [find_java(), *map(str, Path("/usr/lib/jvm").glob("*/bin/java"))]
    return max(found, key=java_version)


def rules() -> str:
    """Return the options of the broker's agent: a rule for each topic and listener."""
    named = [
        f"{way},topic={topic_of(way, '*')},listener={listener}"
        for way in WAYS
        if way not in (STOCK, "header")
        for listener in ("PLAINTEXT", "SSL")
    ]
    numbered = [f"rule.{number}={rule}" for number, rule in enumerate(named, 1)]
    return ";".join(["policy=ignore", *numbered, f"measure.header={topic_of('header', '*')}"])


def topic_of(way: str, partitions: int | str) -> str:
    """Return the topic with so many partitions whose policy is that of a way."""
    return f"load-{way.partition(':')[0]}-{partitions}"


def pin(pid: int, core: int) -> None:
    """Let all threads of a process, and those that they will start, run on one core."""
    for _ in range(2):  # a thread may have started another one meanwhile
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread.name), {core})


def folder() -> Path:
    """Return where the brokers' data is: in memory, or among temporary files without enough."""
    if IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free >= NEEDED:
        return IN_MEMORY
    runs.tell(f"less than {NEEDED >> 30} GiB are free in {IN_MEMORY}: the disk may be the bound")
    return Path(tempfile.gettempdir())


class Cluster:
    """One broker with the agent on a core of its own, with followers on the client's core."""

    def __init__(self, nodes: list[KafkaBroker], tls_port: int) -> None:
        self.leader, self.tls_port = nodes[0], tls_port
        for node in nodes:
            assert node.process is not None
            pin(node.process.pid, BROKER_CORE if node is self.leader else CLIENT_CORE)
        for way in WAYS:
            for partitions in SEGMENT_BYTES:
                self._make_topic(way, partitions, [node.config.get("node.id", 1) for node in nodes])
        self._rates: dict[tuple[Load, str], float] = {}
        self._requests: dict[tuple[Any, ...], Requests] = {}

    def _make_topic(self, way: str, partitions: int, nodes: list[Any]) -> None:
        """Create a topic all of whose partitions have the first node as their leader."""
        admin = AdminClient({"bootstrap.servers": self.leader.bootstrap})
        topic, replicas = topic_of(way, partitions), [[int(node) for node in nodes]] * partitions
        size = str(SEGMENT_BYTES[partitions])
        made = NewTopic(
            topic,
            partitions,
            replica_assignment=replicas,
            config={"segment.bytes": size, "retention.bytes": size},
        )
        admin.create_topics([made])[topic].result(PATIENCE)
        last = TopicPartition(topic, partitions - 1)  # a broker learns of all at once
        log_end(self.leader.bootstrap, last, time.monotonic() + PATIENCE)

    @property
    def pid(self) -> int:
        """Return the process id of the leader."""
        assert self.leader.process is not None
        return self.leader.process.pid

    def counters(self) -> dict[str, Any]:
        """Return the counters of the leader's agent."""
        return jvm_agents.counters(self.pid)

    def send(self, of: Load, way: str, seconds: float, bytes_per_second: float = 0) -> Sample:
        """Send for about that long, at a pace or as fast as the broker answers."""
        key = (topic_of(way, of.partitions), of.codec, of.kilobytes, of.partitions, WAYS[way])
        if of.codec == "none":
            key = (*key[:-1], "none")
        if key not in self._requests:
            self._requests[key] = Requests.make(*key)
        requests = self._requests[key]
        rate = bytes_per_second or self._rates.get((of, way), 20e6)
        began = runs.cpu_s(self.pid)
        found = requests.send(
            self.tls_port if of.tls else self.leader.port,
            bytes_per_second or AT_ONCE,
            seconds,
            how=How(CONNECTIONS, of.tls, ends.Place((CLIENT_CORE,))),
            number=requests.count(rate, seconds),
        )
        used = runs.cpu_s(self.pid) - began
        if not bytes_per_second:
            self._rates[of, way] = found["bytes"] / found["seconds"]
        return {
            "batches": found["batches"],
            "mb_s": round(found["bytes"] / found["seconds"] / 1e6, 3),
            "cpu": round(used / found["seconds"], 4),
            "us": round(used / found["batches"] * 1e6, 2),
        }


@contextlib.contextmanager
def cluster(replicas: int, java: str) -> Iterator[Cluster]:
    """Start brokers under this java."""
    certificate = ends.certificate()
    tls_port = free_port()
    agent = f"-javaagent:{jvm_agents.broker_agent()}={rules()}"
    jvm = [*JVM, "-XX:ActiveProcessorCount=1", agent]
    with tempfile.TemporaryDirectory(prefix="batchval-saturation-", dir=folder()) as place:
        store = Path(place) / "keystore.pem"
        store.write_bytes(certificate.key.read_bytes() + certificate.certificate.read_bytes())
        config: dict[str, Any] = SETTINGS | STORE | {"ssl.keystore.location": store}
        before = os.environ.get("JAVA_HOME"), tempfile.tempdir
        os.environ["JAVA_HOME"] = str(Path(java).resolve().parents[1])
        tempfile.tempdir = place
        try:
            with contextlib.ExitStack() as running:
                if replicas > 1:
                    nodes = running.enter_context(
                        brokers(replicas, config=config, heap=HEAP, jvm=jvm)
                    )
                else:
                    one = KafkaBroker(config=config, heap=HEAP, jvm=jvm)
                    ours = f"PLAINTEXT://{one.bootstrap},SSL://{one.host}:{tls_port}"
                    one.config["advertised.listeners"] = ours
                    controller = f"CONTROLLER://{one.host}:{one.controller_port}"
                    one.config["listeners"] = f"{ours},{controller}"
                    nodes = [running.enter_context(one)]
                yield Cluster(nodes, tls_port)
        finally:
            tempfile.tempdir = before[1]
            if before[0] is None:
                del os.environ["JAVA_HOME"]
            else:
                os.environ["JAVA_HOME"] = before[0]


# ---- parts ---------------------------------------------------------------------------------------


def in_turns(
    cluster_of: Cluster,
    every: Mapping[tuple[Load, str], Callable[[float], Sample]],
    effort: Effort,
    part: str,
) -> list[Row]:
    """Measure every load and way in turns; a row has its samples, one for each round.

    Raises:
        RuntimeError: the agent trusted fewer batches than were to be trusted, or found a lie.
    """
    for once in every.values():
        until = time.monotonic() + effort.warm_up
        while time.monotonic() < until:
            once(min(1.0, effort.warm_up))
    before = cluster_of.counters()
    texts = {f"{part}: {' '.join(map(str, of))}: {way}": (of, way) for of, way in every}

    def sampled(key: tuple[Load, str]) -> Callable[[], Sample]:
        return lambda: every[key](effort.seconds)

    found = runs.in_turns(
        {text: sampled(key) for text, key in texts.items()},
        effort.rounds,
        seen=lambda _, one: f"{one['mb_s']:.0f} MB/s, CPU {one['cpu']:.0%}",
    )
    rows = [
        {"part": part, "way": way, **of._asdict(), "samples": found[text]}
        for text, (of, way) in texts.items()
    ]
    check(rows, before, cluster_of.counters())
    return rows


def check(rows: list[Row], before: dict[str, Any], after: dict[str, Any]) -> None:
    """Raise RuntimeError if claims were not trusted where they were to be, or were called lies."""
    trusting = [row for row in rows if row["way"] in (TRUST, "header") and row["codec"] != "none"]
    sent = sum(one["batches"] for row in trusting for one in row["samples"])
    trusted = after["Trusted"] - before["Trusted"]
    if trusted < sent or after["Lying"] > before["Lying"]:
        raise RuntimeError(f"{trusted} of {sent} batches were trusted: {before}, then {after}")


def at_once(of: Cluster, load: Load, way: str) -> Callable[[float], Sample]:
    return lambda seconds: of.send(load, way, seconds)


def paced(of: Cluster, load: Load, way: str, bytes_per_second: float) -> Callable[[float], Sample]:
    return lambda seconds: of.send(load, way, seconds, bytes_per_second)


def whole(of: Cluster, codecs: Sequence[str], effort: Effort) -> list[Row]:
    """Measure all policies. Uncompressed batches are validated by Kafka in any case."""
    every = {
        (Load(codec), way): at_once(of, Load(codec), way)
        for codec in codecs
        for way in WAYS
        if codec != "none" or way in (STOCK, TRUST)
    }
    return in_turns(of, every, effort, FULL)


def at_pace(of: Cluster, rows: list[Row], effort: Effort) -> list[Row]:
    """Measure stock and trust at a share of the throughput that the former had in these rows."""
    every = {}
    for row in rows:
        if row["way"] == STOCK:
            load = Load(row["codec"])
            rate = PACE * statistics.median(one["mb_s"] for one in row["samples"]) * 1e6
            for way in (STOCK, TRUST):
                every[load, way] = paced(of, load, way, rate)
    return in_turns(of, every, effort, PACED)


def variant(of: Cluster, name: str, codecs: Sequence[str], effort: Effort) -> list[Row]:
    """Measure stock and trust in one variant."""
    every = {}
    for codec in codecs:
        if codec != "none":
            load = Load(codec, **VARIANTS[name])
            for way in (STOCK, TRUST):
                every[load, way] = at_once(of, load, way)
    return in_turns(of, every, effort, name)


# ---- results -------------------------------------------------------------------------------------


def summary(rows: list[Row]) -> list[Row]:
    """Return the rows with medians, and ratios over stock in the same rounds, for samples."""
    stock = {(row["part"], row["codec"]): row["samples"] for row in rows if row["way"] == STOCK}
    found = []
    for row in rows:
        base, samples = stock[row["part"], row["codec"]], row["samples"]
        made = {name: row[name] for name in ("part", "way", "codec")}
        made |= {
            name: round(statistics.median(one[name] for one in samples), 4)
            for name in ("mb_s", "cpu", "us")
        }
        for name in ("mb_s", "us", "cpu"):
            ratios = runs.ratios([one[name] for one in samples], [one[name] for one in base])
            low, high = runs.interval(ratios)
            made[f"{name}_over_stock"] = [
                round(value, 3) for value in (statistics.median(ratios), low, high)
            ]
        found.append(made)
    return found


def measured(options: argparse.Namespace) -> tuple[dict[str, Any], list[Row]]:
    """Measure the parts that were asked for; return them, and their samples."""
    efforts = QUICK if options.quick else EFFORTS
    first, parts, samples = find_java(), {}, []
    for replicas, java, own in (
        (1, first, (FULL, "small", "partitions", "tls")),
        (3, first, ("replicas",)),
        (1, newest_java(), ("jdk",)),
    ):
        asked = [part for part in own if part in options.only]
        if not asked:
            continue
        with cluster(replicas, java) as running:
            for part in asked:
                began = runs.load()
                if part == FULL:
                    rows = whole(running, options.codecs, efforts[FULL])
                    rows += at_pace(running, rows, efforts[PACED])
                else:
                    rows = variant(running, part, options.codecs, efforts[part])
                settings = {
                    "kafka": KAFKA_VERSION,
                    "java": java_version(java),
                    "load": [began, runs.load()],
                    "pace": PACE,
                    **asdict(efforts[part]),
                }
                parts[part] = {**runs.head(), "settings": settings, "rows": summary(rows)}
                samples += rows
                runs.tell(pages.compact(parts[part]))  # a later part may fail
    return parts, samples


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    parser = runs.parser(__doc__, quick="short rounds: a look, no result", out="saturation/result")
    parser.add_argument("--only", type=runs.names(PARTS, "part"), default=PARTS, help="Parts.")
    runs.add_codecs(parser, CODECS)
    options = runs.parse(
        parser,
        argv,
        lambda options: "" if set(options.codecs) == set(CODECS) else "all codecs",
    )
    if len(os.sched_getaffinity(0)) < 2:
        parser.error("this needs two cores: one for the broker, one for its client")
    ends.BUILD.mkdir(parents=True, exist_ok=True)
    parts, rows = measured(options)
    saved = {}
    if options.write and (pages.RESULTS / "saturation.json").exists():
        saved = pages.read("saturation")
    found = merged(parts, saved, PARTS)
    runs.finish(options, "saturation", found, page.render({"saturation": found}), {"samples": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())

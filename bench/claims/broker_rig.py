"""One broker with the agent, and what is before it: gate, Kafka's producer, recorded requests.

Which policy holds is a matter of the topic, so that all ways take turns in one JVM:

    load-stock    ignore: Kafka's own path
    load-trust    trust
    load-audit    audit:0.01
    load-verify   verify
"""

from __future__ import annotations

import contextlib
import json
import struct
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bench import runs
from bench.claims.produce_load import Carrier, Requests
from bench.proxy import ends, load
from tests.support import jvm_agents
from tests.support.gate_process import GateProcess
from tests.support.topics import make_topic
from tests.system.interop.kafka_broker import (
    KAFKA_VERSION,
    KafkaBroker,
    classpath,
    find_java,
    java_version,
)

PARTITIONS = 12
RULES = {"trust": "trust", "audit": "audit:0.01", "verify": "verify"}
TOPICS = {name: f"load-{name}" for name in ("stock", *RULES)}
CODEC_NAMES = ("gzip", "snappy", "lz4", "zstd")
HEAP, PRODUCER_HEAP = "1g", "512m"
#: As a broker that is to live for long is run; the tests' own is short-lived by its flags.
JVM = ("-XX:-UseSerialGC", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:TieredStopAtLevel=4")
JVM += (f"-Xms{HEAP}",)
SETTINGS = {
    "num.partitions": PARTITIONS,
    "log.retention.ms": -1,  # the records' timestamps are old
    "log.segment.delete.delay.ms": 1000,
    # a segment that is full costs a flush and new index files, which a large one makes rare
    "log.segment.bytes": 256 << 20,
    "log.retention.bytes": 256 << 20,
    "log.retention.check.interval.ms": 5000,
    # Kafka's defaults: a broker without load takes as much CPU as it does in production
    "broker.session.timeout.ms": 9000,
    "broker.heartbeat.interval.ms": 2000,
    "auto.create.topics.enable": "false",
}
#: the Java producer's batch.size, at which a frame is as long as a recorded one
BATCH_SIZES = {16: 16 << 10, 64: 64 << 10}
#: a pace by which the bytes of a record on the wire become known
FIRST_RECORDS_PER_SECOND = 8000.0
_HEAD = struct.Struct(">qi")  # of a batch: base offset, length of what follows

Sample = dict[str, Any]


@dataclass(frozen=True)
class Effort:
    """How much of a part is measured. ``warm_up`` is seconds of each way before the first round."""

    rounds: int
    seconds: float
    warm_up: float


class Load(NamedTuple):
    """What is sent: codec, size of a frame in kB, partitions, MB per second on the wire."""

    codec: str
    kilobytes: int = 64
    partitions: int = 1
    mb: float = 20.0


def settings() -> dict[str, Any]:
    """Return the versions of Kafka and Java."""
    return {"kafka": KAFKA_VERSION, "java": java_version(find_java())}


def merged(parts: Sample, saved: Sample, order: Sequence[str]) -> Sample:
    """Return a result: these parts, and the saved ones that were not measured again, in order."""
    every = saved.get("parts", {}) | parts
    newest = max(parts.values(), key=lambda one: one["date"])
    in_order = {name: every[name] for name in order if name in every}
    return {"date": newest["date"], "machine": newest["machine"], "parts": in_order}


def agent_options() -> str:
    """Return the options of the broker's agent: a rule for each topic."""
    rules = [
        f"rule.{number}={policy},topic={TOPICS[name]},listener=PLAINTEXT"
        for number, (name, policy) in enumerate(RULES.items(), 1)
    ]
    return ";".join(["policy=ignore", *rules])


class StoredBatches:
    """The batches of one topic. ``since_last`` counts those that came since the call before."""

    def __init__(self, data: Path, topic: str) -> None:
        self._data, self._topic = data, topic
        self._read: dict[Path, int] = {}  # segment -> the position up to which it was counted
        self.since_last()

    def since_last(self) -> int:
        """Return the number of new batches, whatever their partition."""
        count = 0
        segments = sorted(self._data.glob(f"{self._topic}-[0-9]*/*.log"))
        for path in segments:
            try:
                new, self._read[path] = _walk(path, self._read.get(path, 0))
            except FileNotFoundError:  # retention was faster
                continue
            count += new
        return count


def _walk(path: Path, position: int) -> tuple[int, int]:
    """Return the number of whole batches after a position, and where they end."""
    count = 0
    with path.open("rb", buffering=0) as segment:
        size = segment.seek(0, 2)
        while position + _HEAD.size <= size:
            segment.seek(position)
            _, length = _HEAD.unpack(segment.read(_HEAD.size))
            if length <= 0 or position + _HEAD.size + length > size:
                break
            position += _HEAD.size + length
            count += 1
    return count, position


class JavaProducer:
    """One JVM, until the ``with`` block ends. Each run is a line of its input."""

    def __init__(self, agent: Path | None = None) -> None:
        place = ends.BUILD.parent / "broker"
        place.mkdir(parents=True, exist_ok=True)
        text = place / "text"
        text.write_bytes(load.text())
        options = [f"-javaagent:{agent}=carrier=tag"] if agent else []
        jvm = [f"-Xms{PRODUCER_HEAP}", f"-Xmx{PRODUCER_HEAP}", "-XX:+UseG1GC"]
        jvm += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", *options, "-cp", classpath()]
        #: bytes on the wire of a record, by codec and batch size
        self.record_bytes: dict[tuple[str, int], float] = {}
        self._log = (place / "producers.log").open("ab")
        self._process = subprocess.Popen(
            [
                find_java(),
                *jvm,
                str(Path(__file__).with_name("PacedProducer.java")),
                str(text),
                "1000",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self.pid = self._process.pid
        if self._line() != "ready":
            self.stop()
            raise RuntimeError(f"the Java producer did not start: see {self._log.name}")

    def __enter__(self) -> JavaProducer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def run(
        self,
        bootstrap: str,
        topic: str,
        codec: str,
        partitions: int,
        batch_size: int,
        bytes_per_second: float,
        seconds: float,
    ) -> dict[str, Any]:
        """Send at that pace on the wire; returns records, bytes and seconds.

        The first run of a codec and batch size finds out how many bytes a record has.
        """
        key = (codec, batch_size)
        known = self.record_bytes.get(key)
        pace = bytes_per_second / known if known else FIRST_RECORDS_PER_SECOND
        words = [bootstrap, topic, codec, partitions, batch_size, pace, seconds]
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._line() or '{"error": "the JVM ended"}')
        if "error" in found:
            raise RuntimeError(f"the Java producer: {found['error']} (see {self._log.name})")
        self.record_bytes[key] = found["bytes"] / found["records"]
        return found

    def stop(self) -> None:
        """End the JVM."""
        with contextlib.suppress(OSError):
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


class Rig(contextlib.ExitStack):
    """Everything that is up at once. ``gates`` and ``producers`` start when they are needed."""

    def __init__(self) -> None:
        super().__init__()
        agent = f"-javaagent:{jvm_agents.broker_agent()}={agent_options()}"
        self.broker = KafkaBroker(config=SETTINGS, heap=HEAP, jvm=[*JVM, agent])
        self._gates: dict[str, GateProcess] = {}
        self._relay: ends.Process | None = None
        self._producers: dict[bool, JavaProducer] = {}
        self._requests: dict[tuple[Any, ...], Requests] = {}
        self._stored: dict[str, StoredBatches] = {}

    def __enter__(self) -> Rig:
        super().__enter__()
        try:
            self.enter_context(self.broker)
            for topic in TOPICS.values():
                make_topic(self.broker.bootstrap, topic, PARTITIONS)
            self._stored = {
                name: StoredBatches(self.broker.data, topic) for name, topic in TOPICS.items()
            }
        except BaseException:
            self.close()
            raise
        return self

    @property
    def pid(self) -> int:
        """Return the process id of the broker."""
        assert self.broker.process is not None
        return self.broker.process.pid

    def gate(self, carrier: Carrier) -> GateProcess:
        """Return the gate that makes claims of that carrier."""
        if carrier not in self._gates:
            gate = GateProcess(self.broker.bootstrap, claims_out=carrier)
            self._gates[carrier] = self.enter_context(gate)
        return self._gates[carrier]

    @property
    def relay(self) -> ends.Process:
        """Start a C program that only passes bytes on, and return its process."""
        if self._relay is None:
            self._relay = ends.pump(self.broker.port, ends.Place())
            self.callback(self._relay.stop)
        return self._relay

    def producer(self, *, with_agent: bool) -> JavaProducer:
        """Return Kafka's producer, stock or with its agent."""
        if with_agent not in self._producers:
            agent = jvm_agents.producer_agent() if with_agent else None
            self._producers[with_agent] = self.enter_context(JavaProducer(agent))
        return self._producers[with_agent]

    def idle_cores(self, seconds: float) -> float:
        """Return the share of a core that the broker takes without load."""
        began = runs.cpu_s(self.pid)
        time.sleep(seconds)
        return (runs.cpu_s(self.pid) - began) / seconds

    def counters(self) -> dict[str, Any]:
        """Return the counters of the broker's agent."""
        return jvm_agents.counters(self.pid)

    def recorded(
        self,
        of: Load,
        seconds: float,
        *,
        policy: str,
        carrier: Carrier = "none",
        gate: Carrier | None = None,
        relay: bool = False,
    ) -> Sample:
        """Send recorded requests to the topic of a policy, through a gate or a relay if asked."""
        key = (of.codec, of.kilobytes, of.partitions, policy, carrier)
        if key not in self._requests:
            self._requests[key] = Requests.make(TOPICS[policy], *key[:3], carrier)
        requests = self._requests[key]
        processes, port = {"broker": self.pid}, self.broker.port
        if gate is not None:
            found = self.gate(gate)
            assert found.process is not None
            processes["gate"], port = found.process.pid, found.port
        elif relay:
            processes["relay"], port = self.relay.process.pid, self.relay.port
        return sample(processes, lambda: requests.send(port, of.mb * 1e6, seconds), of.mb)

    def produced(
        self,
        of: Load,
        seconds: float,
        *,
        policy: str,
        with_agent: bool = False,
        gate: Carrier | None = None,
    ) -> Sample:
        """Let Kafka's producer send to the topic of a policy, through a gate if there is one."""
        producer = self.producer(with_agent=with_agent)
        processes, bootstrap = {"producer": producer.pid, "broker": self.pid}, self.broker.bootstrap
        if gate is not None:
            found = self.gate(gate)
            assert found.process is not None
            processes["gate"], bootstrap = found.process.pid, found.bootstrap
        stored = self._stored[policy]
        stored.since_last()

        def send() -> Sample:
            size = BATCH_SIZES[of.kilobytes]
            words = (bootstrap, TOPICS[policy], of.codec, of.partitions, size, of.mb * 1e6, seconds)
            return producer.run(*words) | {"batches": stored.since_last()}

        return sample(processes, send, of.mb)


def sample(processes: Mapping[str, int], send: Callable[[], Sample], mb: float) -> Sample:
    """Return what was sent and the CPU of each process for a batch, in microseconds.

    ``fed`` is the share of the pace that was kept.
    """
    before = {name: runs.cpu_s(pid) for name, pid in processes.items()}
    found = send()
    after = {name: runs.cpu_s(pid) for name, pid in processes.items()}
    batches, seconds = found["batches"], found["seconds"]
    return {
        "batches": batches,
        "bytes": found["bytes"],
        "seconds": seconds,
        "fed": round(found["bytes"] / seconds / mb / 1e6, 4),
        "us": {name: round((after[name] - before[name]) / batches * 1e6, 2) for name in processes},
        "cores": {name: round((after[name] - before[name]) / seconds, 5) for name in processes},
    }

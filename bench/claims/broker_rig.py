"""One broker with the agent, and what is before it: gate, Kafka's producer, recorded requests.

Which policy holds is a matter of the topic, so that all ways take turns in one JVM:

    load-stock    ignore: Kafka's own path
    load-trust    trust
    load-audit    audit:0.01
    load-verify   verify
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from bench import runs
from bench.claims.java_producer import JavaProducer
from bench.claims.produce_load import Carrier, Requests
from bench.claims.stored_batches import StoredBatches
from bench.proxy import ends, ingress
from tests.interop.kafka_broker import KafkaBroker
from tests.support import jvm_agents
from tests.support.gate_process import GateProcess
from tests.support.topics import make_topic

PARTITIONS = 12
RULES = {"trust": "trust", "audit": "audit:0.01", "verify": "verify"}
TOPICS = {name: f"load-{name}" for name in ("stock", *RULES)}
CODEC_NAMES = ("gzip", "snappy", "lz4", "zstd")
HEAP, JVM = ingress.HEAP, ingress.JVM
SETTINGS = ingress.SETTINGS | {
    "num.partitions": PARTITIONS,
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

Sample = dict[str, Any]


class Load(NamedTuple):
    """What is sent: codec, size of a frame in kB, partitions, MB per second on the wire."""

    codec: str
    kilobytes: int = 64
    partitions: int = 1
    mb: float = 20.0


def agent_options() -> str:
    """Return the options of the broker's agent: a rule for each topic."""
    rules = [
        f"rule.{number}={policy},topic={TOPICS[name]},listener=PLAINTEXT"
        for number, (name, policy) in enumerate(RULES.items(), 1)
    ]
    return ";".join(["policy=ignore", *rules])


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

"""Producers write through a gate while gate and brokers are killed; then the logs are checked.

    python -m tests.system.chain.kills --records 10000000 --kills 400 [--brokers 2]
    python -m tests.system.chain.kills --records 1000000 --kills 50 --old-client
        [0.8.2 0.9.0 0.10.0]
    python -m tests.system.chain.kills --records 1000000 --operate

Idempotent producers (librdkafka, one with the Java client) write to topic "kills", transactional
ones to topic "kills-transactions", each through the same gate. Every kill is ``kill -9``: of the
gate, of a broker, or of both at once; some are a stop of the gate for a second instead. Afterwards
every record must be there that was acknowledged, once, in order and at the acknowledged offset, and
nothing of an aborted transaction. Exits with 1 on any finding, 2 where a producer had an error.

With --hand-overs nothing is killed: a new gate takes over so many times.

With --old-client only old Java producers write, with acks=-1, retries and one request in flight,
through a gate with ``bridge: producers``. Their protocol has no sequence numbers: a request whose
answer was lost is written again. So a batch may be there more than once, the same records each
time, if it is the last copy that was acknowledged. All else holds as above.

Producers send their part for each kill, and then a little, so that each has requests to hit.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaException

from tests.support.gate_command import GateCommand
from tests.support.gate_process import GateProcess
from tests.support.record_checker import (
    Acked,
    Findings,
    Stored,
    Transaction,
    check,
    check_transactions,
    unpacked,
)
from tests.support.resent_batches import Resent, last_offsets, without_copies
from tests.support.topics import make_topic
from tests.system.chain.senders import (
    IDEMPOTENT,
    TRANSACTIONAL,
    JavaSender,
    Sender,
    TransactionalSender,
    read,
)
from tests.system.interop.kafka_broker import KafkaBroker, two_brokers

PARTITIONS = 4
TOPIC = "kills"
CODECS = ("none", "zstd", "lz4", "snappy", "gzip")
#: releases of the Java producer -> codec; they send Produce 0, 1 and 2
OLD_CLIENTS = {"0.8.2": "lz4", "0.9.0": "none", "0.10.0": "gzip"}
#: Before KIP-91 a batch that could not be sent for this long fails: longer than a broker's restart.
OLD_TIMEOUT_MS = 120_000
#: g: the gate, b: a broker, x: both at once, s: the gate stops for a second
PATTERN = "gggbggxgsg"
#: r: the settings are reloaded, w: a worker is killed, h: a new gate takes over
OPERATIONS = "rwrwhrwrw" * 5
FINISH_S = 240.0
EACH = 50  # records at a time
KILL_S = 2.0  # a kill with its pause and restart, about: Java's producer paces itself by it


@dataclass
class Plan:
    """The plan of a run. ``kills``: one letter of `PATTERN` for each."""

    records: int
    kills: str
    idempotent: int = 3
    transactional: int = 2
    java: int = 1
    old_clients: tuple[str, ...] = ()
    pause_s: tuple[float, float] = (0.2, 0.6)
    seed: int = 1
    topic: str = TOPIC

    @property
    def producers(self) -> int:
        """Return how many producers write."""
        return self.idempotent + self.transactional + self.java + len(self.old_clients)

    @property
    def bridge(self) -> tuple[str, ...]:
        """Return what the gate needs for them."""
        return ("producers",) if self.old_clients else ()


def of_old_clients(records: int, kills: str, releases: Sequence[str] = (), **more: Any) -> Plan:
    """Return a plan in which only old clients write: these, or all of `OLD_CLIENTS`."""
    return Plan(records, kills, 0, 0, 0, tuple(releases or OLD_CLIENTS), **more)


@dataclass
class Run:
    """The result of a run."""

    acked: list[Acked] = field(default_factory=list)
    committed: list[Acked] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    sent: dict[int, int] = field(default_factory=dict)
    resent: Resent = field(default_factory=Resent)
    errors: list[str] = field(default_factory=list)
    gate_kills: int = 0
    broker_kills: int = 0
    stops: int = 0
    operations: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    @property
    def kills(self) -> int:
        return self.gate_kills + self.broker_kills

    def outcomes(self) -> dict[str, int]:
        """Return how many transactions ended how."""
        ends = [one.outcome for one in self.transactions]
        return {outcome: ends.count(outcome) for outcome in sorted(set(ends))}


def pattern(kills: int) -> str:
    """Return letters for so many kills. A stop is none, and ``x`` is two."""
    letters, count = "", 0
    while count < kills:
        letter = PATTERN[len(letters) % len(PATTERN)]
        if letter == "x" and count + 2 > kills:
            letter = "g"
        letters += letter
        count += {"s": 0, "x": 2}.get(letter, 1)
    return letters


class _Producers:
    """All producers of a run, each in a thread."""

    def __init__(self, plan: Plan, bootstrap: str, expected_s: float) -> None:
        name = f"{plan.topic}-transactions"
        for topic in (plan.topic, name):
            make_topic(bootstrap, topic, PARTITIONS)
        self.over = threading.Event()
        self.progress = 0.0  # the share of kills up to the next one
        self.share = -(-plan.records // plan.producers)
        self.idempotent = [
            Sender(n, bootstrap, plan.topic, PARTITIONS, _tuned(IDEMPOTENT, n))
            for n in range(plan.idempotent)
        ]
        # A broker that was killed knows of each producer its last batch alone (Kafka 4.4.0). One
        # before it that comes again is out of order to it; Java's client then raises its epoch and
        # sends all again, what was stored too.
        in_flight = 1 if set(plan.kills) & set("bx") else 5
        first = plan.idempotent
        self.java = [
            JavaSender(
                first + n,
                bootstrap,
                plan.topic,
                PARTITIONS,
                self.share,
                expected_s,
                CODECS[n + 1],
                in_flight,
            )
            for n in range(plan.java)
        ]
        first += plan.java
        self.java += [
            JavaSender(
                first + n,
                bootstrap,
                plan.topic,
                PARTITIONS,
                self.share,
                expected_s,
                OLD_CLIENTS[release],
                1,
                profile=f"clients-{release}",
                timeout_ms=OLD_TIMEOUT_MS,
            )
            for n, release in enumerate(plan.old_clients)
        ]
        first += len(plan.old_clients)
        for java in self.java:
            java.await_first()
        self.transactional = [
            TransactionalSender(first + n, bootstrap, name, PARTITIONS, _tuned(TRANSACTIONAL, n))
            for n in range(plan.transactional)
        ]
        self.threads = [
            threading.Thread(target=self._send, args=(one,), daemon=True) for one in self.idempotent
        ]
        self.threads += [
            threading.Thread(target=self._transact, args=(one,), daemon=True)
            for one in self.transactional
        ]

    def _pace(self, sent: int) -> None:
        """Wait a little; longer where this producer has sent its part for the next kill."""
        if not self.over.is_set():
            time.sleep(0.1 if sent >= self.share * self.progress else 0.001)

    def _send(self, sender: Sender) -> None:
        try:
            while not (self.over.is_set() and sender.sent >= self.share):
                for _ in range(EACH):
                    sender.send()
                self._pace(sender.sent)
            sender.finish(FINISH_S)
        except KafkaException as error:  # a fatal error, raised by the call that finds it
            sender.errors.append(str(error))

    def _transact(self, sender: TransactionalSender) -> None:
        while not (self.over.is_set() and sender.sent >= self.share):
            sender.transact()
            self._pace(sender.sent)

    def acked(self) -> int:
        noted = sum(len(one.acked) for one in (*self.idempotent, *self.transactional))
        return noted + sum(one.acknowledged() for one in self.java)

    def finish(self, run: Run) -> None:
        """Let each send its share, and collect what it has noted."""
        self.over.set()
        until = time.monotonic() + 2 * FINISH_S
        for thread in self.threads:
            thread.join(max(0.0, until - time.monotonic()))
            if thread.is_alive():
                run.errors.append("a producer did not end")
        for java in self.java:
            java.finish(FINISH_S)
        for one in (*self.idempotent, *self.java):
            run.acked += one.acked
        for sender in self.transactional:
            run.committed += sender.acked
            run.transactions += sender.transactions
        for one in (*self.idempotent, *self.java, *self.transactional):
            run.sent[one.number] = one.sent
            run.errors += one.errors


def _tuned(config: dict[str, object], number: int) -> dict[str, object]:
    return {**config, "linger.ms": 2, "compression.type": CODECS[number % len(CODECS)]}


def kill_and_write(
    brokers: Sequence[KafkaBroker],
    gate: GateProcess | GateCommand,
    plan: Plan,
    say: Callable[[str], None] = lambda _: None,
) -> Run:
    """Write all records and kill as planned; return when every record has its answer."""
    rng = random.Random(plan.seed)
    run, started = Run(), time.monotonic()
    producers = _Producers(plan, gate.bootstrap, len(plan.kills) * KILL_S)
    for thread in producers.threads:
        thread.start()
    for number, kill in enumerate(plan.kills, 1):
        producers.progress = number / len(plan.kills)
        time.sleep(rng.uniform(*plan.pause_s))
        _kill(kill, rng.choice(brokers), gate, run)
        before = producers.acked()
        until = time.monotonic() + 60
        while producers.acked() == before and time.monotonic() < until:
            time.sleep(0.02)  # the next one hits a run that goes on
        say(f"{kill}: {before} acknowledged after {time.monotonic() - started:.1f} s")
    producers.finish(run)
    run.seconds = time.monotonic() - started
    return run


def _kill(kill: str, broker: KafkaBroker, gate: GateProcess | GateCommand, run: Run) -> None:
    if isinstance(gate, GateCommand):
        {"r": lambda: _reload(gate), "w": gate.kill_worker, "h": gate.hand_over}[kill]()
        run.operations[kill] += 1
        return
    if kill in "gx":
        gate.kill()
        run.gate_kills += 1
    if kill in "bx":
        broker.kill()
        broker.start()
        run.broker_kills += 1
    if kill in "gx":
        gate.start()
    elif kill == "s":
        gate.signal(signal.SIGSTOP)
        time.sleep(1.0)
        gate.signal(signal.SIGCONT)
        run.stops += 1


def _reload(gate: GateCommand) -> None:
    """Change limits and policies."""
    limits = gate.settings.get("limits", {})
    most = limits.get("max_requests_waiting", 1000) + 1
    policies = [{"match": f"other-{most}-*", "max.message.bytes": 1000}]
    gate.reload(limits=limits | {"max_requests_waiting": most}, topics={"policies": policies})


def checked(run: Run, brokers: Sequence[KafkaBroker], plan: Plan) -> Findings:
    """Read both logs and compare."""
    bootstrap, topic = brokers[0].bootstrap, plan.topic
    stored = read(bootstrap, topic, PARTITIONS)
    if plan.old_clients:
        ends = {
            partition: [
                end
                for broker in brokers
                for end in last_offsets(broker.data / f"{topic}-{partition}")
            ]
            for partition in range(PARTITIONS)
        }
        stored = without_copies(stored, ends, run.resent)
    found = check(run.acked, stored, run.sent)
    if run.transactions:
        seen: set[tuple[int, int]] = set()

        def noted(records: Iterator[Stored]) -> Iterator[Stored]:
            for record in records:
                who = unpacked(record.value)
                if who is not None:
                    seen.add(who[:2])
                yield record

        log = noted(read(bootstrap, f"{topic}-transactions", PARTITIONS, committed=True))
        for part in (
            check(run.committed, log, run.sent),
            check_transactions(run.transactions, seen),
        ):
            for kind, count in part.counts.items():
                found.counts[kind] = found.counts.get(kind, 0) + count
                found.named.setdefault(kind, []).extend(part.named[kind])
    return found


def summary(run: Run, found: Findings) -> str:
    """Return a line for a person."""
    wrong = sum(
        count
        for kind, count in found.counts.items()
        if kind not in ("lost", "doubled", "reordered")
    )
    counts = [f"{found.counts.get(kind, 0)} {kind}" for kind in ("lost", "doubled", "reordered")]
    written = len(run.acked) + len(run.committed)
    kills = f"{run.gate_kills} kills of the gate, {run.broker_kills} of brokers, {run.stops} stops"
    if operated := run.operations:
        kills = (
            f"{operated['r']} reloads, {operated['w']} kills of workers, {operated['h']} hand-overs"
        )
    parts = (
        f"{written:,} records acknowledged of {sum(run.sent.values()):,} sent",
        f"transactions {run.outcomes()}",
        f"{run.resent.batches:,} batches of {run.resent.records:,} records written again",
        f"{kills}, {run.seconds:.0f} s: {', '.join(counts)}",
        f"{wrong + len(run.errors)} answered wrongly",
    )
    return ", ".join(parts)


@contextlib.contextmanager
def cluster(brokers: int) -> Iterator[Sequence[KafkaBroker]]:
    """Start one or two brokers, with memory for so many kills' recovery."""
    options = {"config": {"num.partitions": PARTITIONS}, "heap": "512m"}
    with contextlib.ExitStack() as running:
        if brokers == 1:
            yield (running.enter_context(KafkaBroker(**options)),)
        else:
            yield running.enter_context(two_brokers(**options))


def _gate(upstream: str, plan: Plan) -> GateProcess | GateCommand:
    if set(plan.kills) & set(OPERATIONS):
        return GateCommand(upstream, bridge=list(plan.bridge) or "none", workers=2)
    return GateProcess(upstream, poison=True, bridge=plan.bridge)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument(
        "--operate",
        action="store_true",
        help="reload, kill workers and hand over, in place of kills",
    )
    parser.add_argument("--brokers", type=int, choices=(1, 2), default=1)
    parser.add_argument("--java", type=int, default=1, help="producers with the Java client")
    parser.add_argument(
        "--old-client", nargs="*", choices=OLD_CLIENTS, help="releases of the only producers: all"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quiet", action="store_true", help="the last line alone")
    options = parser.parse_args(argv)
    kills = OPERATIONS if options.operate else pattern(options.kills)
    if options.old_client is None:
        plan = Plan(options.records, kills, java=options.java, seed=options.seed)
    else:
        plan = of_old_clients(options.records, kills, options.old_client, seed=options.seed)
    say: Callable[[str], None] = (
        (lambda _: None) if options.quiet else (lambda line: print(line, flush=True))
    )
    with (
        cluster(options.brokers) as brokers,
        _gate(",".join(one.bootstrap for one in brokers), plan) as gate,
    ):
        run = kill_and_write(brokers, gate, plan, say)
        found = checked(run, brokers, plan)
    print(summary(run, found))
    for line in (*run.errors[:20], *([str(found)] if found else [])):
        print(line)
    return 1 if found else 2 if run.errors else 0


if __name__ == "__main__":
    sys.exit(main())

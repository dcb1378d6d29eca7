"""Idempotent producers write while gates hand over and brokers are killed; their fatal errors are
counted, with and without a gate.

    python -m tests.system.chain.fatal_errors run FILE [--cells gate/kills ...] [--runs 4]
    python -m tests.system.chain.fatal_errors show FILE

A run is one broker, one topic and ``--producers`` librdkafka producers with ``enable.idempotence``,
in one process, for ``--seconds``. A cell names the way ("gate", "direct" or "relay", a plain TCP
relay in place of the gate) and what happens meanwhile:

    none        nothing
    hand-overs  a new gate takes over; a relay ends each connection with a reset
    kills       ``kill -9`` of the broker, which starts again at once with the same data
    both        each by its own plan, so that a hand-over may meet a broker that starts

Times are drawn at random from the seed. Afterwards the log is read: what was acknowledged has to be
there once, in order and at its offset. ``run`` appends each run to FILE, one JSON object a line;
``show`` prints a table with the limits of Clopper and Pearson (95 %). A producer that has a fatal
error counts once: it writes no more. Exits with 1 where an acknowledged record is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import random
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, libversion

from batchval.segment.trust import highest_share
from bench.runs import head, now
from tests.support.gate_command import GateCommand
from tests.support.ports import free_port
from tests.support.record_checker import check
from tests.support.topics import make_topic
from tests.system.chain.relay import RelayProcess
from tests.system.chain.senders import Sender, read
from tests.system.interop.kafka_broker import KAFKA_VERSION, KafkaBroker

PARTITIONS = 2
TOPIC = "fatal-errors"
#: the cells of the question: what is the gate's share?
CELLS = (
    "gate/hand-overs",
    "gate/both",
    "direct/kills",
    "gate/kills",
    "relay/both",
    "relay/hand-overs",
    "gate/none",
    "direct/none",
)
#: Small batches: after an outage each partition has several in flight, up to the five that
#: librdkafka and the broker allow. Retries do not end.
PRODUCER = {
    "enable.idempotence": True,
    "message.timeout.ms": 0,
    "batch.num.messages": 2,
    "linger.ms": 0,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 500,
    "queue.buffering.max.messages": 20_000,
}
TICK_S = 0.1
MAX_BURST = 8
FINISH_S = 90.0
CONFIDENCE = 0.95


class CountedSender(Sender):
    """A producer whose fatal error is noted with its time; it sends nothing afterwards.

    The client raises a fatal error from the call that finds it, or hands it to its callback.
    """

    def __init__(
        self,
        number: int,
        bootstrap: str,
        partitions: int = PARTITIONS,
        config: Mapping[str, Any] = PRODUCER,
    ) -> None:
        self.fatal: dict[str, Any] | None = None
        self.failed = 0
        super().__init__(number, bootstrap, TOPIC, partitions, config)

    def _error(self, error: KafkaError) -> None:
        if error.fatal() and self.fatal is None:
            self.fatal = {"producer": self.number, "at": time.monotonic()}
            self.fatal |= {"code": error.name(), "error": error.str()}

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            super()._delivered(error, message)
        else:
            self.failed += 1

    def burst(self, records: int) -> None:
        """Send some records, unless the producer is at its end."""
        with self._noting():
            self.producer.poll(0)
            for _ in range(0 if self.fatal else records):
                self.send()

    def left(self, seconds: float) -> int:
        """Wait until each record has an answer; return how many have none."""
        with self._noting():
            return self.producer.flush(seconds)
        return self.producer.flush(seconds)  # a fatal error is raised once

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            if not error.args[0].fatal():
                raise
            self._error(error.args[0])


class _Events:
    """Calls ``act`` at random times of a run, in a thread; notes when, in seconds of the run."""

    def __init__(
        self, act: Callable[[], object], count: int, seconds: float, rng: random.Random
    ) -> None:
        self.times = sorted(rng.uniform(0.08, 0.92) * seconds for _ in range(count))
        self.began: list[float] = []
        self.ended: list[float] = []
        self.errors: list[str] = []
        self._act, self._thread = act, threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self.first = time.monotonic()
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        for at in self.times:
            time.sleep(max(0.0, self.first + at - time.monotonic()))
            self.began.append(time.monotonic())
            try:
                self._act()
            except Exception as error:  # a run without its events must not look like a good one
                self.errors.append(f"{type(error).__name__}: {error}")
            self.ended.append(time.monotonic())


@contextlib.contextmanager
def _way(name: str, broker: KafkaBroker) -> Iterator[tuple[str, Callable[[], object], Any]]:
    """Yield the address for the producers, what hands over, and the gate if there is one."""
    if name == "gate":
        with GateCommand(broker.bootstrap, workers=1) as gate:
            yield gate.bootstrap, gate.hand_over, gate
    elif name == "relay":
        port = int(broker.config["advertised.listeners"].rpartition(":")[2])
        with contextlib.closing(RelayProcess(port, broker.port)) as relay:
            yield f"{broker.host}:{port}", relay.reset, None
    else:
        yield broker.bootstrap, lambda: None, None


def _kill(broker: KafkaBroker) -> None:
    broker.kill()
    broker.start()


def out_of_order(broker: KafkaBroker) -> int:
    """Return how many batches a broker has refused as out of order, by its log."""
    return len(re.findall("OutOfOrderSequenceException", broker.log.read_text(errors="replace")))


def run_cell(cell: str, seed: int, producers: int, seconds: float, events: int) -> dict[str, Any]:
    """Do one run of a cell; return what happened."""
    way, _, what = cell.partition("/")
    rng = random.Random(f"{cell} {seed}")
    config: dict[str, object] = {"num.partitions": PARTITIONS}
    if way == "relay":
        config["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{free_port()}"
    with (
        KafkaBroker(config=config, heap="512m") as broker,
        _way(way, broker) as (bootstrap, hand_over, gate),
    ):
        make_topic(bootstrap, TOPIC, PARTITIONS)
        senders = [CountedSender(number, bootstrap) for number in range(producers)]
        hand_overs = _Events(
            hand_over, events if what in ("hand-overs", "both") else 0, seconds, rng
        )
        kills = _Events(
            lambda: _kill(broker), events if what in ("kills", "both") else 0, seconds, rng
        )
        started = time.monotonic()
        for part in (hand_overs, kills):
            part.start()
        while time.monotonic() < started + seconds:
            before = time.monotonic()
            for sender in senders:
                sender.burst(rng.randint(0, MAX_BURST))
            time.sleep(max(0.0, TICK_S - (time.monotonic() - before)))
        for part in (hand_overs, kills):
            part.join()
        left = _finish(senders)
        took = time.monotonic() - started
        acked = [one for sender in senders for one in sender.acked]
        stored = read(bootstrap, TOPIC, PARTITIONS)
        found = check(acked, stored, {sender.number: sender.sent for sender in senders})
        codes = gate.codes if gate is not None else []
        refused = out_of_order(broker)
        logs = {"broker": broker.log.read_text(errors="replace")}
        if gate is not None:
            logs["gate"] = gate.err + gate.log()
    times = {"hand_overs": hand_overs, "kills": kills}
    fatal = [
        _described(sender.fatal, started, times) for sender in senders if sender.fatal is not None
    ]
    return {
        "cell": cell,
        "seed": seed,
        "producers": producers,
        "seconds": round(took, 1),
        "events": {
            name: [
                [round(a - started, 2), round(b - started, 2)]
                for a, b in zip(one.began, one.ended, strict=True)
            ]
            for name, one in times.items()
        },
        "errors": [*hand_overs.errors, *kills.errors, *(f"exit {code}" for code in codes if code)],
        "fatal": fatal,
        "sent": sum(sender.sent for sender in senders),
        "acknowledged": len(acked),
        "failed": sum(sender.failed for sender in senders),
        "left": left,
        "out_of_order": refused,
        "logs": logs,
        "findings": found.counts,
        "versions": {"kafka": KAFKA_VERSION, "librdkafka": libversion()[0]},
    }


def _finish(senders: Sequence[CountedSender]) -> int:
    """Wait until each record has an answer; return how many have none."""
    until = time.monotonic() + FINISH_S
    return sum(sender.left(max(1.0, until - time.monotonic())) for sender in senders)


def _described(fatal: dict[str, Any], started: float, events: dict[str, _Events]) -> dict[str, Any]:
    """Return a fatal error with its time, and the time since the last event of each kind began."""
    noted = fatal | {"at": round(fatal["at"] - started, 2)}
    for name, one in events.items():
        before = [at for at in one.began if at <= fatal["at"]]
        noted[f"since_{name}"] = round(fatal["at"] - before[-1], 2) if before else None
    return noted


# ---- The table -----------------------------------------------------------------------------------


def limits(count: int, of: int) -> tuple[float, float]:
    """Return the two-sided limits of Clopper and Pearson of a share."""
    one_sided = (1 + CONFIDENCE) / 2
    return 1 - highest_share(of - count, of, one_sided), highest_share(count, of, one_sided)


def difference(first: tuple[int, int], second: tuple[int, int]) -> tuple[float, float, float]:
    """Return the first share less the second, and its limits (from both pairs of `limits`; Donner
    and Zou 2012).
    """
    shares = [count / of for count, of in (first, second)]
    (low, high), (other_low, other_high) = limits(*first), limits(*second)
    found = shares[0] - shares[1]
    return (
        found,
        found - math.hypot(shares[0] - low, other_high - shares[1]),
        found + math.hypot(high - shares[0], shares[1] - other_low),
    )


def table(runs: Iterable[dict[str, Any]]) -> str:
    """Return the table of cells, and the difference that a gate makes."""
    cells: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        cells.setdefault(run["cell"], []).append(run)
    lines = [
        "| way | events | producers | hand-overs | kills | acknowledged | lost or wrong | "
        "fatal errors | share, 95 % |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    counts: dict[str, tuple[int, int]] = {}
    for cell in sorted(cells):
        found = cells[cell]
        fatal = sum(len(run["fatal"]) for run in found)
        producers = sum(run["producers"] for run in found)
        counts[cell] = fatal, producers
        low, high = limits(fatal, producers)
        events = [
            sum(len(run["events"][name]) for run in found) for name in ("hand_overs", "kills")
        ]
        wrong = sum(sum(run["findings"].values()) for run in found)
        way, _, what = cell.partition("/")
        lines.append(
            f"| {way} | {what} | {producers} | {events[0]} | {events[1]} | "
            f"{sum(run['acknowledged'] for run in found):,} | {wrong} | {fatal} | "
            f"{fatal / producers:.1%} ({low:.1%} to {high:.1%}) |"
        )
    for first, second in (
        ("gate/none", "direct/none"),
        ("gate/hand-overs", "direct/none"),
        ("gate/hand-overs", "relay/hand-overs"),
        ("gate/kills", "direct/kills"),
        ("gate/both", "direct/kills"),
        ("gate/both", "relay/both"),
    ):
        if first in counts and second in counts:
            found_, low, high = difference(counts[first], counts[second])
            lines.append(f"{first} less {second}: {found_:+.1%} ({low:+.1%} to {high:+.1%})")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("run", "show"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=CELLS)
    parser.add_argument("--runs", type=int, default=4, help="of each cell")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--producers", type=int, default=50, help="in each run")
    parser.add_argument("--seconds", type=float, default=80.0, help="of each run")
    parser.add_argument("--events", type=int, default=4, help="of each kind in each run")
    options = parser.parse_args(argv)
    if options.action == "run":
        measured = head()
        for seed in range(options.first_seed, options.first_seed + options.runs):
            for cell in options.cells:
                run = run_cell(cell, seed, options.producers, options.seconds, options.events)
                logs = run.pop("logs")
                if run["fatal"] or run["findings"] or run["left"]:
                    for kind, text in logs.items():
                        name = f"{cell.replace('/', '-')}-{seed}-{kind}.log"
                        options.file.with_name(name).write_text(text)
                with options.file.open("a") as file:
                    file.write(json.dumps(measured | {"date": now()} | run) + "\n")
                print(f"{cell} {seed}: {len(run['fatal'])} fatal, {run['errors']}", flush=True)
    runs = [json.loads(line) for line in options.file.read_text().splitlines()]
    print(table(runs))
    return 1 if any(run["findings"] or run["left"] for run in runs) else 0


if __name__ == "__main__":
    sys.exit(main())

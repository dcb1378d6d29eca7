"""Count the batches that a lying sender sends until a broker finds it, next to the formula.

    python -m tests.system.broker_agent.found [--trials N] [--rates 0.01 0.1]
        [--shares 0.001 0.01 0.1]
        [--kinds lie bomb] [--write FILE]

`docs/concepts/claims.md`, "What a lie costs": after the first batches of a sender, which are all
verified, P(found within n batches) = 1 - (1 - rate * share)^n: on average 1 / (rate * share). Each
trial is another user of SASL PLAIN. It sends its first batches honestly; of those that follow, a
share lies at random. The agent's log says when the sender is demoted. That is known by request,
which has at most a fortieth of the expected number of batches; the place within it counts as its
middle.

A ``lie`` hides that the keys are null. A ``bomb`` decompresses to more than
``max.decompressed.bytes`` and claims not to.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from batchval.core.claims import BatchClaims, to_tag
from tests.support.batches import LZ4, NOW, ZSTD, batch, record
from tests.support.claims import block
from tests.support.jvm_agents import broker_agent
from tests.support.topics import make_topic
from tests.system.broker_agent.lies import crc_of, honest
from tests.system.broker_agent.pump import Pump
from tests.system.broker_agent.raw import Connection, listen_for_users
from tests.system.interop.kafka_broker import KafkaBroker

RATES = (0.01, 0.1)
SHARES = (0.001, 0.01, 0.1)
KINDS = ("lie", "bomb")
FIRST = 100  # batches of a sender that are all verified, the agent's default
LIMIT = 1 << 20
MAX_PER_REQUEST = 50
#: A trial fails after so many times the expected number of batches: the chance is below 10^-13.
TOO_MANY = 30


class Cell(NamedTuple):
    """Trials at one rate with one share of lies. ``counts``: batches until found, of each trial."""

    kind: str
    rate: float
    share: float
    counts: list[float]

    @property
    def expected(self) -> float:
        return 1 / (self.rate * self.share)

    @property
    def mean(self) -> float:
        return statistics.mean(self.counts)

    @property
    def ratio(self) -> float:
        """Return the mean in relation to the formula's."""
        return self.mean / self.expected

    @property
    def median_ratio(self) -> float:
        """Return the median in relation to the formula's."""
        return statistics.median(self.counts) * -math.log1p(-1 / self.expected) / math.log(2)

    def as_json(self) -> dict[str, object]:
        return {
            "kind": self.kind,
            "rate": self.rate,
            "share": self.share,
            "trials": len(self.counts),
            "batches": round(sum(self.counts)),
            "expected": self.expected,
            "mean": round(self.mean, 1),
            "mean_over_expected": round(self.ratio, 3),
            "median_over_expected": round(self.median_ratio, 3),
        }


def batches_of(kind: str) -> tuple[bytes, bytes]:
    """Return the parts of an honest batch and of a lying one."""
    if kind == "lie":
        good = batch([record(0, key=b"k", value=b"value")], codec=LZ4)
        hidden = batch([record(0, value=b"value")], codec=LZ4)
        return Pump.part(*honest(good, "block")), Pump.part(
            hidden, block((NOW, 1, 2), hidden) + hidden[17:21]
        )
    good = batch([record(0, value=b"value")], codec=ZSTD)
    bomb = batch([record(0, value=bytes(2 * LIMIT))], codec=ZSTD)
    claims = BatchClaims(NOW, 1, 1, 5000, 4900)
    return Pump.part(*honest(good, "block")), Pump.part(bomb, to_tag(claims, crc_of(bomb)))


class Log:
    """The broker's log; `names` reads what has been added since the last call."""

    def __init__(self, path: Path) -> None:
        self.path, self.seen, self.text = path, 0, ""

    def size(self) -> int:
        return os.stat(self.path).st_size

    def names(self, user: str) -> bool:
        """Return whether a line names the sender as one that lies."""
        with self.path.open("rb") as file:
            file.seek(self.seen)
            added = file.read()
        self.seen += len(added)
        self.text += added.decode(errors="replace")
        return f"claims of User:{user} lie" in self.text


def trial(
    broker: KafkaBroker,
    address: tuple[str, int],
    user: str,
    kind: str,
    rate: float,
    share: float,
    seed: str,
) -> float:
    """Return how many batches a new sender sends, after its first, until it is demoted."""
    rng = random.Random(seed)
    good, lie = batches_of(kind)
    expected = 1 / (rate * share)
    each = max(1, min(MAX_PER_REQUEST, int(expected / 40)))
    log = Log(broker.log)
    log.seen = log.size()
    with Connection(address, user) as connection:
        pump = Pump(connection, topic_of(rate), each, good)
        for _ in range(-(-FIRST // each)):
            pump.send()
            pump.receive()
        assert not log.names(user), "an honest sender was demoted"
        size, left = log.seen, skip(rng, share)
        for request in range(1, math.ceil(TOO_MANY * expected / each)):
            others = {}
            while left < each:
                others[left] = lie
                left += 1 + skip(rng, share)
            left -= each
            pump.send(others)
            pump.receive()
            if others and log.size() > size:
                if log.names(user):
                    return request * each - (each - 1) / 2
                size = log.seen
    raise AssertionError(f"{user} was not found within {TOO_MANY * expected:.0f} batches")


def skip(rng: random.Random, share: float) -> int:
    """Return how many honest batches come before the next lie."""
    return int(math.log(1.0 - rng.random()) / math.log1p(-share)) if share < 1 else 0


def topic_of(rate: float) -> str:
    return f"audit-{rate:g}"


@contextmanager
def running(
    users: Sequence[str], rates: Sequence[float], secret: bytes
) -> Iterator[tuple[KafkaBroker, tuple[str, int]]]:
    """Run a broker with the agent, a topic for each rate, and these users."""
    rules = [f"rule.{n}=audit:{rate:g},topic={topic_of(rate)}" for n, rate in enumerate(rates)]
    options = ";".join([*rules, f"secret={secret.hex()}", f"max.decompressed.bytes={LIMIT}"])
    broker = KafkaBroker(jvm=[f"-javaagent:{broker_agent()}={options}"], heap="512m")
    address = listen_for_users(broker, users)
    broker.config |= {"log.retention.check.interval.ms": 2000, "file.delete.delay.ms": 1000}
    config = {"retention.bytes": str(4 << 20), "segment.bytes": str(2 << 20)}
    with broker:
        for rate in rates:
            make_topic(
                broker.bootstrap,
                topic_of(rate),
                MAX_PER_REQUEST,
                **{"retention.ms": "-1"},
                **config,
            )
            with Connection((broker.host, broker.port)) as connection:
                Pump(connection, topic_of(rate), MAX_PER_REQUEST, batches_of("lie")[0]).prepare()
        yield broker, address


def measure(
    kinds: Sequence[str],
    rates: Sequence[float],
    shares: Sequence[float],
    trials: int,
    seed: int = 1,
    jobs: int = 2,
) -> Iterator[Cell]:
    """Yield the cells, those that end early first. The same seed gives the same counts."""
    cells = sorted(
        ((kind, rate, share) for kind in kinds for rate in rates for share in shares),
        key=lambda c: -c[1] * c[2],
    )
    users = [[f"u{number}_{n}" for n in range(trials)] for number in range(len(cells))]
    secret = hashlib.sha256(str(seed).encode()).digest()
    with running([user for some in users for user in some], rates, secret) as (broker, address):
        for (kind, rate, share), some in zip(cells, users, strict=True):
            with ThreadPoolExecutor(jobs) as pool:
                work = [
                    pool.submit(trial, broker, address, u, kind, rate, share, f"{seed} {u}")
                    for u in some
                ]
                yield Cell(kind, rate, share, [one.result() for one in work])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--trials", type=int, default=100, help="Senders for each cell; default 100."
    )
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument(
        "--rates", nargs="+", type=float, default=list(RATES), help="Rates of audit."
    )
    parser.add_argument(
        "--shares", nargs="+", type=float, default=list(SHARES), help="Shares of lies."
    )
    parser.add_argument("--seed", type=int, default=1, help="Random seed.")
    parser.add_argument("--write", type=Path, help="Write the cells as JSON to this file.")
    options = parser.parse_args()
    print(" kind   rate  share  trials    batches  expected       mean  ratio median")
    found = []
    started = time.monotonic()
    for cell in measure(options.kinds, options.rates, options.shares, options.trials, options.seed):
        found.append(cell.as_json())
        print(
            f"{cell.kind:5} {cell.rate:6g} {cell.share:6g} {len(cell.counts):7} "
            f"{sum(cell.counts):10.0f} "
            f"{cell.expected:9.0f} {cell.mean:10.1f} {cell.ratio:6.3f} {cell.median_ratio:6.3f}"
            f"   {time.monotonic() - started:.0f} s",
            flush=True,
        )
        if options.write:
            options.write.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

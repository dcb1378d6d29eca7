"""Measure a broker with the agent, part by part. Each part is a list of rows.

    whole      recorded requests with tags, Kafka's own path and trust: 20 MB/s, 64 kB, 1 partition
    policies   the same for every policy and carrier
    gate       recorded requests without claims: straight to Kafka's own path, through a relay that
               only passes bytes, and through a gate that makes claims to a topic that trusts them
    grid       Kafka's producer: stock; with its agent to a topic that trusts; stock through a gate

A row is a load, a way and its samples, one for each round. All ways of a load take turns; every
second round has them in reverse order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bench import runs
from bench.claims.broker_rig import Load, Rig, Sample
from bench.claims.produce_load import Carrier

Row = dict[str, Any]
Way = Callable[[Rig, Load, float], Sample]
PARTS = ("whole", "policies", "gate", "grid")
STOCK, AGENTS, RELAY = "stock", "agents", "relay"
#: codecs whose payload carries claims
WITH_PAYLOAD = ("gzip", "zstd")
UNTRUSTED = (STOCK, RELAY, "audit:0.01", "verify")
LEAST_TRUSTED = 0.95
GRID_MB, GRID_PARTITIONS, GRID_KB = (8.0, 20.0), (1, 12), (16, 64)


@dataclass(frozen=True)
class Effort:
    """How much of a part is measured. ``warm_up`` is seconds of each way before the first round."""

    rounds: int
    seconds: float
    warm_up: float


EFFORTS = {
    "whole": Effort(20, 2.5, 10.0),
    "policies": Effort(8, 2.0, 4.0),
    "gate": Effort(12, 2.5, 4.0),
    "grid": Effort(4, 2.0, 2.0),
}
QUICK = {
    "whole": Effort(2, 0.3, 0.2),
    "policies": Effort(1, 0.3, 0.2),
    "gate": Effort(1, 0.3, 0.2),
    "grid": Effort(1, 0.3, 0.3),
}


def recorded(
    policy: str, carrier: Carrier = "none", gate: Carrier | None = None, *, relay: bool = False
) -> Way:
    """Return the way of recorded requests."""
    how = {"policy": policy, "carrier": carrier, "gate": gate, "relay": relay}
    return lambda rig, of, seconds: rig.recorded(of, seconds, **how)  # type: ignore[arg-type]


def produced(policy: str, *, with_agent: bool = False, gate: Carrier | None = None) -> Way:
    """Return the way of Kafka's producer."""
    return lambda rig, of, seconds: rig.produced(
        of, seconds, policy=policy, with_agent=with_agent, gate=gate
    )


def ways(part: str, codec: str) -> dict[str, Way]:
    """Return the ways of a part by name; the first is what the others are compared with."""
    has_payload = codec in WITH_PAYLOAD
    if part == "whole":
        return {STOCK: recorded("stock", "tag"), AGENTS: recorded("trust", "tag")}
    if part == "policies":
        found = {
            STOCK: recorded("stock", "tag"),
            "trust": recorded("trust", "tag"),
            "trust, payload": recorded("trust", "payload"),
            "audit:0.01": recorded("audit", "tag"),
            "verify": recorded("verify", "tag"),
        }
        return (
            found
            if has_payload
            else {name: way for name, way in found.items() if "payload" not in name}
        )
    if part == "gate":
        found = {STOCK: recorded("stock"), RELAY: recorded("stock", relay=True)}
        found["gate, tag"] = recorded("trust", gate="tag")
        return found | ({"gate, payload": recorded("trust", gate="payload")} if has_payload else {})
    return {
        STOCK: produced("stock"),
        AGENTS: produced("trust", with_agent=True),
        "gate": produced("trust", gate="tag"),
    }


def loads(part: str, codecs: Sequence[str]) -> list[Load]:
    """Return the loads of a part."""
    if part != "grid":
        return [Load(codec) for codec in codecs]
    return [
        Load(codec, kilobytes, partitions, mb)
        for codec in codecs
        for kilobytes in GRID_KB
        for partitions in GRID_PARTITIONS
        for mb in GRID_MB
    ]


def measure(rig: Rig, part: str, codecs: Sequence[str], effort: Effort) -> list[Row]:
    """Measure a part, and return its rows.

    Raises:
        RuntimeError: the agent did not trust the claims of the batches that it was to trust.
    """
    all_loads = loads(part, codecs)
    rows = {
        (of, name): {"part": part, "way": name, **of._asdict(), "samples": []}
        for of in all_loads
        for name in ways(part, of.codec)
    }
    warmed = set()
    for of in all_loads:  # the JVMs compile; the Java producer learns how many bytes a record has
        if (of.codec, of.kilobytes) not in warmed:
            warmed.add((of.codec, of.kilobytes))
            for way in ways(part, of.codec).values():
                way(rig, of, effort.warm_up)
    before = rig.counters()
    for number in range(effort.rounds):
        for of in all_loads:
            found = ways(part, of.codec)
            for name in list(found)[:: -1 if number % 2 else 1]:
                one = found[name](rig, of, effort.seconds)
                rows[of, name]["samples"].append(one)
                runs.tell(
                    f"{part}, round {number + 1} of {effort.rounds}: {text_of(of)}: {name}: {text_of_sample(one)}"
                )
    check(list(rows.values()), before, rig.counters())
    return list(rows.values())


def check(rows: list[Row], before: dict[str, Any], after: dict[str, Any]) -> None:
    """Raise RuntimeError if fewer batches were trusted than the ways with trust have sent."""
    trusted = after["Trusted"] - before["Trusted"]
    sent = sum(
        one["batches"] for row in rows if row["way"] not in UNTRUSTED for one in row["samples"]
    )
    if trusted < LEAST_TRUSTED * sent:
        raise RuntimeError(
            f"{trusted} of {sent} batches were trusted: counters {before}, then {after}"
        )
    if after["Lying"] > before["Lying"]:
        raise RuntimeError(f"honest claims were found to be lies: counters {before}, then {after}")


def text_of(of: Load) -> str:
    """Return a load as a line of progress has it."""
    return f"{of.codec}, {of.kilobytes} kB, {of.partitions} partitions, {of.mb:g} MB/s"


def text_of_sample(one: Sample) -> str:
    """Return a sample as a line of progress has it."""
    cpu = ", ".join(f"{name} {us:,.0f} µs a batch" for name, us in one["us"].items())
    return f"{cpu}; {one['fed']:.0%} of the pace"

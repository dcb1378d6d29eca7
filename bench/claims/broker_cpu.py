"""CPU that claims save end to end: Kafka's broker with the agent, its producer, and the gate.

    whole      recorded requests with tags, Kafka's own path and trust: 20 MB/s, 64 kB, 1 partition
    policies   the same for every policy and carrier of claims
    gate       recorded requests without claims: straight to Kafka's own path, through a relay that
               only passes bytes, and through a gate that makes claims to a topic that trusts them
    grid       Kafka's producer: stock; with its agent to a topic that trusts; stock through a gate

All ways are up at once, in one broker with the agent, whose policy depends on the topic. They take
turns, round after round. CPU is user and system time of each process, all threads. A ratio is that
of one round: CPU for a batch of a way over that of the stock broker. Needs a JDK and Maven. The
time of each part: docs/benchmarks/method.md.

--write replaces the parts that were measured in the saved result, and leaves the others.

    python -m bench broker [--only whole,grid] [--codecs zstd] [--quick] [--write]
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

from bench import pages, runs
from bench.claims.broker_rig import CODEC_NAMES, Effort, Load, Rig, Sample, merged, settings
from bench.claims.produce_load import Carrier
from bench.pages import broker_claims as page
from bench.pages.broker_claims import AGENTS, STOCK
from bench.proxy import ends

Row = dict[str, Any]
Way = Callable[[Rig, Load, float], Sample]
PARTS = ("whole", "policies", "gate", "grid")
RELAY = "relay"
#: codecs whose payload carries claims
WITH_PAYLOAD = ("gzip", "zstd")
UNTRUSTED = (STOCK, RELAY, "audit:0.01", "verify")
MIN_TRUSTED = 0.95
GRID_MB, GRID_PARTITIONS, GRID_KB = (8.0, 20.0), (1, 12), (16, 64)
#: what is compared: processes whose CPU is added up
SERVERS = ("broker", "gate", "relay")


EFFORTS = {
    "whole": Effort(20, 2.5, 10.0),
    "policies": Effort(8, 2.0, 4.0),
    "gate": Effort(12, 2.5, 4.0),
    "grid": Effort(4, 2.0, 2.0),
}
QUICK = {part: Effort(1, 0.3, 0.3) for part in PARTS}


# ---- ways and loads ------------------------------------------------------------------------------


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
    if part == "grid":
        agents = produced("trust", with_agent=True)
        return {STOCK: produced("stock"), AGENTS: agents, "gate": produced("trust", gate="tag")}
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
    else:
        found = {
            STOCK: recorded("stock"),
            RELAY: recorded("stock", relay=True),
            "gate, tag": recorded("trust", gate="tag"),
            "gate, payload": recorded("trust", gate="payload"),
        }
    has_payload = codec in WITH_PAYLOAD
    return {name: way for name, way in found.items() if has_payload or "payload" not in name}


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


# ---- a part --------------------------------------------------------------------------------------


def measure(rig: Rig, part: str, codecs: Sequence[str], effort: Effort) -> list[Row]:
    """Measure a part: a row is a load, a way and its samples, one for each round.

    Raises:
        RuntimeError: the agent did not trust the claims of the batches that it was to trust.
    """
    every = {
        (of, name): way for of in loads(part, codecs) for name, way in ways(part, of.codec).items()
    }
    warmed = set()
    for (of, name), way in every.items():  # the JVMs compile; the producer learns the records' size
        if (of.codec, of.kilobytes, name) not in warmed:
            warmed.add((of.codec, of.kilobytes, name))
            way(rig, of, effort.warm_up)
    before = rig.counters()
    texts = {f"{part}: {text_of(of)}: {name}": (of, name) for of, name in every}

    def once(of: Load, name: str) -> Callable[[], Sample]:
        return lambda: every[of, name](rig, of, effort.seconds)

    samples = runs.in_turns(
        {text: once(*key) for text, key in texts.items()},
        effort.rounds,
        seen=lambda _, one: text_of_sample(one),
    )
    rows = [
        {"part": part, "way": name, **of._asdict(), "samples": samples[text]}
        for text, (of, name) in texts.items()
    ]
    check(rows, before, rig.counters())
    return rows


def check(rows: list[Row], before: dict[str, Any], after: dict[str, Any]) -> None:
    """Raise RuntimeError if fewer batches were trusted than the ways with trust have sent."""
    trusted = after["Trusted"] - before["Trusted"]
    trusting = [row for row in rows if row["way"] not in UNTRUSTED]
    sent = sum(one["batches"] for row in trusting for one in row["samples"])
    counters = f"counters {before}, then {after}"
    if trusted < MIN_TRUSTED * sent:
        raise RuntimeError(f"{trusted} of {sent} batches were trusted: {counters}")
    if after["Lying"] > before["Lying"]:
        raise RuntimeError(f"honest claims were found to be lies: {counters}")


def text_of(of: Load) -> str:
    """Return a load as a line of progress has it."""
    return f"{of.codec}, {of.kilobytes} kB, {of.partitions} partitions, {of.mb:g} MB/s"


def text_of_sample(one: Sample) -> str:
    """Return a sample as a line of progress has it."""
    cpu = ", ".join(f"{name} {us:,.0f} µs a batch" for name, us in one["us"].items())
    return f"{cpu}; {one['fed']:.0%} of the pace"


# ---- medians and ratios --------------------------------------------------------------------------


def load_of(row: Row) -> tuple[Any, ...]:
    """Return what identifies the load of a row within its part."""
    return tuple(row[name] for name in ("codec", "kilobytes", "partitions", "mb"))


def summary(rows: list[Row]) -> list[dict[str, Any]]:
    """Return the rows with medians and ratios in place of samples."""
    stock = {load_of(row): row["samples"] for row in rows if row["way"] == STOCK}
    return [summarised(row, stock[load_of(row)]) for row in rows]


def summarised(row: Row, stock: list[Sample]) -> dict[str, Any]:
    """Return one row with medians and, if it is not the stock broker's, ratios."""
    samples, names = row["samples"], row["samples"][0]["us"]

    def medians(what: str) -> dict[str, float]:
        return {name: statistics.median(one[what][name] for one in samples) for name in names}

    found = {name: row[name] for name in ("way", "codec", "kilobytes", "partitions", "mb")}
    found["fed"] = statistics.median(one["fed"] for one in samples)
    found |= {"us": medians("us"), "cores": medians("cores")}
    if row["way"] == STOCK:
        return found
    summed = {"servers": SERVERS}
    if "producer" in names:
        summed |= {"all": (*SERVERS, "producer"), "producer": ("producer",)}
    found["ratios"] = {name: over(samples, stock, among) for name, among in summed.items()}
    return found


def over(samples: list[Sample], stock: list[Sample], among: Sequence[str]) -> dict[str, float]:
    """Return the ratio of the CPU of these processes, and its 95 % interval."""
    sums, others = (
        [sum(us for name, us in one["us"].items() if name in among) for one in several]
        for several in (samples, stock)
    )
    ratios = runs.ratios(sums, others)
    low, high = runs.interval(ratios)
    return {"median": statistics.median(ratios), "low": low, "high": high}


# ---- the run -------------------------------------------------------------------------------------


def measured(options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """Measure the parts that were asked for; return them, and their samples and counters."""
    efforts = dict(QUICK if options.quick else EFFORTS)
    if options.rounds:
        efforts = {part: replace(effort, rounds=options.rounds) for part, effort in efforts.items()}
    parts, samples = {}, {}
    with Rig() as rig:
        for part in options.only:
            began = runs.load()
            rows = measure(rig, part, options.codecs, efforts[part])
            idle_cores = rig.idle_cores(2 * efforts[part].seconds)
            parts[part] = {
                **runs.head(),
                "settings": settings() | asdict(efforts[part]) | {"load": [began, runs.load()]},
                "idle_cores": idle_cores,
                "summaries": summary(rows),
            }
            samples[part] = {"counters": rig.counters(), "samples": rows}
    return parts, samples


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """Parse the options."""
    parser = runs.parser(__doc__, quick="short rounds: a look, no result", out="broker/result")
    add = parser.add_argument
    add("--only", type=runs.names(PARTS, "part"), default=PARTS, help="Parts, with commas.")
    runs.add_codecs(parser, CODEC_NAMES)
    add("--rounds", type=runs.positive, help="Rounds of each part, in place of its own number.")
    return runs.parse(parser, argv, needs)


def needs(options: argparse.Namespace) -> str:
    """Return what a run lacks that is to be saved."""
    own = max(EFFORTS[part].rounds for part in options.only)
    if set(options.codecs) == set(CODEC_NAMES) and (options.rounds or own) >= own:
        return ""
    return f"whole parts: all codecs, and at least {own} rounds"


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    options = arguments(argv)
    ends.BUILD.mkdir(parents=True, exist_ok=True)
    parts, samples = measured(options)
    result = merged(parts, {}, PARTS)
    text = page.render({"broker": result})
    if options.write and (pages.RESULTS / "broker.json").exists():
        result = merged(parts, pages.read("broker"), PARTS)
    runs.finish(options, "broker", result, text, {"samples": samples})
    return 0


if __name__ == "__main__":
    sys.exit(main())

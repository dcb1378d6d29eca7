"""CPU that claims save end to end: Kafka's broker with the agent, its producer, and the gate.

    whole      the whole broker at 20 MB/s on the wire, 64 kB, 1 partition: trust over Kafka's own
               path
    policies   the same for every policy and carrier of claims
    gate       gate and broker together over the broker alone
    grid       Kafka's producer, stock and with its agent; codecs x 8 and 20 MB/s x 1 and 12
               partitions x 16 and 64 kB; CPU of producer, gate and broker apart

All ways are up at once, in one broker with the agent, whose policy depends on the topic. They take
turns, round after round. CPU is user and system time of each process, all threads. Needs a JDK and
Maven. The time of each part: docs/benchmarks/method.md.

--write replaces the parts that were measured in the saved result, and leaves the others.

    python -m bench broker [--only whole,grid] [--codecs zstd] [--quick] [--write]
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, replace
from typing import Any

from bench import pages, runs
from bench.claims import broker_parts, broker_ratios, java_producer
from bench.claims.broker_rig import CODEC_NAMES, Rig
from bench.pages import broker_claims as page
from bench.proxy import ends, ingress
from tests.interop.kafka_broker import KAFKA_VERSION, find_java, java_version


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the parts that were asked for; returns each with what it was measured on."""
    efforts = dict(broker_parts.QUICK if options.quick else broker_parts.EFFORTS)
    if options.rounds:
        efforts = {part: replace(effort, rounds=options.rounds) for part, effort in efforts.items()}
    found = {}
    with Rig() as rig:
        for part in options.only:
            began = runs.load()
            rows = broker_parts.measure(rig, part, options.codecs, efforts[part])
            idle_cores = rig.idle_cores(2 * efforts[part].seconds)
            summaries = broker_ratios.summary(rows)
            found[part] = {
                **runs.head(),
                "settings": settings() | asdict(efforts[part]) | {"load": [began, runs.load()]},
                "idle_cores": idle_cores,
                "summaries": summaries,
                "goals": broker_ratios.goals(summaries),
                "counters": rig.counters(),
                "samples": rows,
            }
    return found


def settings() -> dict[str, Any]:
    """Return the versions and the JVMs' options."""
    return {
        "kafka": KAFKA_VERSION,
        "java": java_version(find_java()),
        "jvm": f"G1, heap {ingress.HEAP}",
        "producer jvm": f"G1, heap {java_producer.HEAP}",
    }


def merged(parts: dict[str, Any], saved: dict[str, Any]) -> dict[str, Any]:
    """Return a result: these parts, and the saved ones that were not measured again."""
    all_parts = saved.get("parts", {}) | parts
    newest = max(parts.values(), key=lambda one: one["date"])
    in_order = {name: all_parts[name] for name in broker_parts.PARTS if name in all_parts}
    return {"date": newest["date"], "machine": newest["machine"], "parts": in_order}


def text_of_goals(result: dict[str, Any]) -> str:
    """Return the internal goals as a table."""
    rows = [
        (
            row["figure"],
            f"≤ {row['target']:g}",
            f"{row['median']:.3f} ({row['low']:.3f} to {row['high']:.3f})",
            row["verdict"],
        )
        for part in result["parts"].values()
        for row in part["goals"]
    ]
    return runs.goals(("", "goal", "measured", ""), rows)


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """Parse the options."""
    parser = runs.parser(__doc__, quick="short rounds: a look, no result", out="broker/result")
    add = parser.add_argument
    parts = runs.names(broker_parts.PARTS, "part")
    add("--only", type=parts, default=broker_parts.PARTS, help="Parts, with commas.")
    runs.add_codecs(parser, CODEC_NAMES)
    add("--rounds", type=runs.positive, help="Rounds of each part, in place of its own number.")
    return runs.parse(parser, argv, needs)


def needs(options: argparse.Namespace) -> str:
    """Return what a run lacks that is to be saved."""
    own = max(broker_parts.EFFORTS[part].rounds for part in options.only)
    if set(options.codecs) == set(CODEC_NAMES) and (options.rounds or own) >= own:
        return ""
    return f"whole parts: all codecs, and at least {own} rounds"


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    options = arguments(argv)
    ends.BUILD.mkdir(parents=True, exist_ok=True)
    result = merged(measure(options), {})
    text = page.render({"broker": result})
    runs.write(options.out, result, text)
    print(text)
    print(text_of_goals(result))
    if options.write:
        saved = pages.read("broker") if (pages.RESULTS / "broker.json").exists() else {}
        pages.save("broker", merged(result["parts"], saved))
    return 0


if __name__ == "__main__":
    sys.exit(main())

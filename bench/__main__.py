"""Run a bench.

    python -m bench                     list the benches
    python -m bench NAME --help         show the options of one
    python -m bench NAME --quick        a short run, where the bench has it; nothing is saved
    python -m bench NAME --write        save the result, where the bench has it, and render pages

What each needs, and how long it takes: docs/benchmarks/method.md.
"""

from __future__ import annotations

import importlib
import sys

from bench import runs

#: name: folder and module of the bench, and what it measures
BENCHES = {
    "validation": ("validation", "run", "batchval, Kafka and other libraries on the same batches"),
    "claims": ("validation", "run_claims", "the claims path and what it saves"),
    "broker": ("claims", "broker_cpu", "CPU of a Kafka broker with the agent, end to end"),
    "saturation": ("claims", "saturation", "a broker with claims that is bound by its CPU"),
    "at-rest": ("claims", "at_rest", "an audit by the claims in payloads"),
    "proxy": ("proxy", "proxies", "the gate and other proxies"),
    "workers": ("proxy", "workers", "a gate with several workers"),
    "pipelining": ("pipelining", "table", "producers over a long path"),
    "perf-produce": ("perf_tools", "perf_produce", "perf produce, Kafka's tool and librdkafka"),
    "perf-consume": ("perf_tools", "consume", "perf consume, Kafka's tool and librdkafka"),
    "spark": ("spark", "spark_run", "kafka-segments and plain processes"),
    "dump-log": ("spark", "dump_log", "an audit and kafka-dump-log"),
    "audit-engines": ("spark", "engines", "CPU of an audit's task and of a GB"),
    "instructions": ("validation", "instructions", "instructions of a call"),
    "compare": ("validation", "compare", "validation again, and the saved baseline"),
}


def names() -> str:
    """Return the benches as lines of text."""
    width = max(map(len, BENCHES))
    return "\n".join(f"  {name:{width}}  {what}" for name, (_, _, what) in BENCHES.items())


def main(argv: list[str] | None = None) -> int:
    """Run the bench that the first word names with the other words."""
    words = sys.argv[1:] if argv is None else argv
    if not words or words[0] in ("-h", "--help"):
        print(f"usage: python -m bench NAME [options]\n\n{names()}")
        return 0
    name, *options = words
    if name not in BENCHES:
        runs.tell(f"unknown bench {name!r}: expected one of\n{names()}")
        return 2
    folder, module, _ = BENCHES[name]
    sys.argv = [f"python -m bench {name}", *options]
    return importlib.import_module(f"bench.{folder}.{module}").main() or 0


if __name__ == "__main__":
    sys.exit(main())

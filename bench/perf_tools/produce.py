"""``batchval perf produce`` beside Kafka's own tool and a loop of C over librdkafka: same broker, same topic, in turns.

    python bench/perf_tools/produce.py [--rounds 3] [--records 1000000] [--quick] [--write-readme]

A broker of its own (Java, Maven), one partition, values of 1,000 bytes, acks=all, idempotent, uncompressed, batches of
500,000 bytes and 5 ms linger for everybody; the C loop once more with librdkafka's own defaults. All latencies are on.
Java's figure is its steady state after a warm-up of a third of its records. What measuring costs is what stamping and
recording a latency take by themselves, as a share of the time of a record.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import time
from array import array
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(HERE)]

from consume import cpu_of, librdkafka, processor  # noqa: E402

from batchval.perf.histogram import Histogram, now_ns, stamp_many  # noqa: E402
from tests.interop.kafka_broker import KAFKA_VERSION, TOOLS_VERSION, KafkaBroker, classpath, find_java  # noqa: E402

README = ROOT / "README.md"
RESULTS = ROOT / "bench" / "results" / "perf-produce"
MARKS = re.compile(r"(<!-- perf-produce:start -->\n).*?(<!-- perf-produce:end -->)", re.DOTALL)
TOPIC, SIZE = "perf-produce", 1000
SAME = ["batch.size=500000", "linger.ms=5"]
NAMES = {
    "java": f"Kafka's ProducerPerformance {TOOLS_VERSION}, steady state",
    "loop": "librdkafka, a loop of C",
    "loop defaults": "librdkafka, a loop of C, its own defaults",
    "librdkafka": "perf produce --client librdkafka",
    "own": "perf produce",
}
#: who, over whom, what, at least or at most
TARGETS = [
    ("own", "java", "rate", 2.0),
    ("own", "loop", "rate", 0.9),
    ("own", "loop", "cpu", 1.3),
    ("own", "loop defaults", "rate", None),
]
RATE = re.compile(r"^\d+(?P<steady> steady state)? records sent, ([\d.]+) records/sec .* 99\.9th\.$", re.MULTILINE)


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--only", nargs="+", choices=sorted(NAMES), default=list(NAMES))
    parser.add_argument("--quick", action="store_true", help="one short round: a look, no result")
    parser.add_argument("--write-readme", action="store_true", help="and bench/results/perf-produce.*")
    options = parser.parse_args(argv)
    if options.write_readme and (options.quick or options.rounds < 3 or set(options.only) != set(NAMES)):
        parser.error("the README's section is of three whole rounds at least")
    if options.quick:
        options.rounds, options.records = 1, 100_000
    return options


def build_loop() -> Path:
    program = ROOT / "build" / "bench" / "produce_loop"
    program.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([os.environ.get("CC", "cc"), "-O2", "-o", program, HERE / "produce_loop.c", "-ldl"], check=True)
    return program


def commands(bootstrap: str, records: int) -> dict[str, tuple[list[str], int]]:
    """Each with how many records it sends in all."""
    where = ["--bootstrap-server", bootstrap, "--topic", TOPIC, "--record-size", str(SIZE), "--throughput", "-1"]
    own = [sys.executable, "-m", "batchval", "perf", "produce", *where, "--num-records", str(records)]
    own += ["--command-property", *SAME]
    loop = [
        str(build_loop()),
        librdkafka(),
        bootstrap,
        TOPIC,
        str(records),
        str(SIZE),
        "queue.buffering.max.kbytes=32768",
    ]
    loop += ["enable.idempotence=true"]
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    java = [find_java(), "-Xmx1g", "-server", "-XX:+UseG1GC", quiet, "-cp", classpath("tools")]
    java += ["org.apache.kafka.tools.ProducerPerformance", *where, "--num-records", str(records * 3 // 2)]
    java += ["--warmup-records", str(records // 2), "--command-property", *SAME, "acks=all"]
    return {
        "java": (java, records * 3 // 2),
        "loop": ([*loop, *SAME], records),
        "loop defaults": ([*loop[:6], "acks=all"], records),
        "librdkafka": ([*own, "--client", "librdkafka"], records),
        "own": ([*own, "--client", "batchval"], records),
    }


def measure(name: str, command: list[str], records: int, broker: int) -> dict[str, float]:
    """One run: records a second, CPU seconds of the client and of the broker per million records."""
    before, broker_before, began = resource.getrusage(resource.RUSAGE_CHILDREN), cpu_of(broker), time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=600, check=False)
    took = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{name}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    if name.startswith("loop"):
        count, seconds = done.stdout.split()[:2]
        rate = int(count) / float(seconds)
    else:
        found = [float(match[2]) for match in RATE.finditer(done.stdout)]
        if not found:
            raise SystemExit(f"{name}: no line\n{done.stdout}{done.stderr}")
        rate = found[-1]
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "rate": rate,
        "cpu": cpu / records * 1e6,
        "broker_cpu": (cpu_of(broker) - broker_before) / records * 1e6,
        "seconds": took,
    }


def nanoseconds() -> dict[str, float]:
    """Of a latency, stamped and recorded in batches of 500: the best of many, ns."""
    stamps, histogram, best = array("q", bytes(8 * 500)), Histogram(), {"stamp": 1e9, "record": 1e9}
    for _ in range(300):
        begin = time.perf_counter_ns()
        for _ in range(20):
            stamp_many(stamps)
        middle = time.perf_counter_ns()
        for _ in range(20):
            histogram.record_since(stamps, now_ns())
        end = time.perf_counter_ns()
        best["stamp"] = min(best["stamp"], (middle - begin) / 10_000)
        best["record"] = min(best["record"], (end - middle) / 10_000)
    return best


def judge(found: dict[str, list[dict[str, float]]]) -> list[dict[str, Any]]:
    """Ratios round by round."""
    verdicts: list[dict[str, Any]] = []
    for who, whom, what, target in TARGETS:
        if who not in found or whom not in found:
            continue
        ratios = [a[what] / b[what] for a, b in zip(found[who], found[whom], strict=True)]
        middle = statistics.median(ratios)
        spread = (max(ratios) - min(ratios)) / 2 / middle
        verdict = "reported"
        if target is not None:
            good = middle <= target if what == "cpu" else middle >= target
            near = middle * (1 - spread) <= target if what == "cpu" else middle * (1 + spread) >= target
            verdict = "met" if good else "noise" if near else "missed"
        row = {"who": who, "whom": whom, "what": what, "target": target}
        verdicts.append(row | {"ratio": middle, "spread": spread, "verdict": verdict})
    return verdicts


def tables(result: dict[str, Any]) -> str:
    lines = [
        f"{result['date'][:10]}, {result['machine']}; Kafka {KAFKA_VERSION} on one node, one partition, "
        f"{result['records']:,} records of {SIZE:,} bytes, acks=all, batches of 500,000 bytes; median of "
        f"{result['rounds']}.",
        "",
        "| sender | records/s | MB/s | from – to | client CPU s / M | broker CPU s / M |",
        "|---|---|---|---|---|---|",
    ]
    for name, runs in result["runs"].items():
        rates = [run["rate"] for run in runs]
        middle = statistics.median(rates)
        cpu, broker = (statistics.median(run[key] for run in runs) for key in ("cpu", "broker_cpu"))
        lines.append(
            f"| {NAMES[name]} | {middle:,.0f} | {middle * SIZE / 2**20:,.0f} | {min(rates):,.0f} – {max(rates):,.0f} | "
            f"{cpu:.2f} | {broker:.2f} |"
        )
    lines += ["", "| | target | measured | spread | |", "|---|---|---|---|---|"]
    for one in result["verdicts"]:
        target = "" if one["target"] is None else f"{'≤' if one['what'] == 'cpu' else '≥'} {one['target']:g}"
        what = "CPU a record, " if one["what"] == "cpu" else ""
        lines.append(
            f"| {what}{NAMES[one['who']]} over {NAMES[one['whom']]} | {target} | {one['ratio']:.2f} | "
            f"{one['spread']:.0%} | {one['verdict']} |"
        )
    ns = result["nanoseconds"]
    verdict = "met" if ns["stamp"] + ns["record"] <= 25 else "missed"
    lines.append(f"| ns a latency, stamped and recorded | ≤ 25 | {ns['stamp'] + ns['record']:.1f} | | {verdict} |")
    if "own" in result["runs"]:
        rate = statistics.median(run["rate"] for run in result["runs"]["own"])
        share = (ns["stamp"] + ns["record"]) * rate / 1e9
        verdict = "met" if share <= 0.03 else "missed"
        lines.append(f"| that, of the time of a record | ≤ 3 % | {share:.2%} | | {verdict} |")
    return "\n".join(lines) + "\n"


def main(argv: list[str] | None = None) -> int:
    options = arguments(argv)
    if options.write_readme and not MARKS.search(README.read_text()):
        raise SystemExit("README.md has no <!-- perf-produce:start --> … <!-- perf-produce:end -->")
    with KafkaBroker(heap="1g", timeout=180) as broker:
        from confluent_kafka.admin import AdminClient, NewTopic

        assert broker.process is not None
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        # what was sent is not kept for long: a disk is not what is measured
        settings = {"retention.bytes": "1000000000", "segment.bytes": "200000000"}
        admin.create_topics([NewTopic(TOPIC, 1, 1, config=settings)])[TOPIC].result(60)
        every = {name: one for name, one in commands(broker.bootstrap, options.records).items() if name in options.only}
        measure("loop", *commands(broker.bootstrap, options.records)["loop"], broker.process.pid)  # warm
        found: dict[str, list[dict[str, float]]] = {name: [] for name in every}
        for number in range(options.rounds):
            for name, (command, records) in every.items():
                run = measure(name, command, records, broker.process.pid)
                found[name].append(run)
                print(f"round {number + 1}  {name:<14} {run['rate']:>12,.0f} records/s", file=sys.stderr, flush=True)
    result = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{os.cpu_count()} cores of {processor()}, Linux {platform.release()}, "
        f"Python {platform.python_version()}",
        "records": options.records,
        "rounds": options.rounds,
        "load": os.getloadavg(),
        "runs": found,
        "nanoseconds": nanoseconds(),
        "verdicts": judge(found),
    }
    text = tables(result)
    print(text)
    if options.write_readme:
        RESULTS.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
        RESULTS.with_suffix(".md").write_text("# Producing\n\n" + text)
        README.write_text(MARKS.sub(lambda marks: marks[1] + text + marks[2], README.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())

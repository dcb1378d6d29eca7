"""``batchval perf consume`` beside Kafka's own tool and a loop of C over librdkafka: same broker, same topic, in turns.

    python bench/perf_tools/consume.py [--rounds 3] [--records 2000000] [--quick] [--write-readme]

A broker of its own (Java, Maven), 12 partitions, values of 1,000 bytes, uncompressed, in the page cache. Everybody's
clock starts after the joining: Java's is fetch.nMsg.sec, the C loop's starts with its first records. Java runs as
Kafka's scripts run it (server JIT, G1), not as the tests do. The C loop runs twice, with librdkafka's defaults and
without the sleep of a full queue; held against is the faster.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from tests.interop.kafka_broker import KAFKA_VERSION, TOOLS_VERSION, KafkaBroker, classpath, find_java  # noqa: E402

README = ROOT / "README.md"
RESULTS = ROOT / "bench" / "results" / "perf-consume"
MARKS = re.compile(r"(<!-- perf-consume:start -->\n).*?(<!-- perf-consume:end -->)", re.DOTALL)
TOPIC, PARTITIONS, SIZE = "perf-consume", 12, 1000
FETCHED = re.compile(r"^(?:[^,]+, ){4}(\d+), (?:[^,]+, ){4}([\d.]+)$", re.MULTILINE)

NAMES = {
    "java": f"Kafka's ConsumerPerformance {TOOLS_VERSION}",
    "loop": "librdkafka, a loop of C, defaults",
    "loop tuned": "librdkafka, a loop of C, fetch.queue.backoff.ms=2",
    "librdkafka 1": "perf consume --client librdkafka --threads 1",
    "headers 1": "perf consume --decode headers --threads 1",
    "headers 4": "perf consume --decode headers --threads 4",
    "records 1": "perf consume --decode records --threads 1",
    "records 4": "perf consume --decode records --threads 4",
}
#: who, over whom, at least
TARGETS = [
    ("headers 1", "java", 5.0),
    ("headers 4", "headers 1", 2.5),
    ("records 1", "best loop", 1.3),
]


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--only", nargs="+", choices=sorted(NAMES), default=list(NAMES))
    parser.add_argument("--quick", action="store_true", help="one short round: a look, no result")
    parser.add_argument("--write-readme", action="store_true", help="and bench/results/perf-consume.*")
    options = parser.parse_args(argv)
    if options.write_readme and (options.quick or options.rounds < 3 or set(options.only) != set(NAMES)):
        parser.error("the README's section is of three whole rounds at least")
    if options.quick:
        options.rounds, options.records = 1, 200_000
    return options


def librdkafka() -> str:
    import confluent_kafka

    package = Path(confluent_kafka.__file__).parent
    (found,) = glob.glob(str(package.parent / "confluent_kafka.libs" / "librdkafka*.so*"))
    return found


def build_loop() -> Path:
    program = ROOT / "build" / "bench" / "consume_loop"
    program.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([os.environ.get("CC", "cc"), "-O2", "-o", program, HERE / "consume_loop.c", "-ldl"], check=True)
    return program


def fill(bootstrap: str, records: int) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(60)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "batch.size": 500_000,
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    value = bytes(65 + i * 7 % 26 for i in range(SIZE))
    for i in range(records):
        while True:
            try:
                producer.produce(TOPIC, value, partition=i % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(120):
        raise SystemExit("the topic could not be filled")


def commands(bootstrap: str, records: int) -> dict[str, list[str]]:
    own = [sys.executable, "-m", "batchval", "perf", "consume", "--bootstrap-server", bootstrap, "--topic", TOPIC]
    own += ["--num-records", str(records)]
    loop = [str(build_loop()), librdkafka(), bootstrap, TOPIC, str(records)]
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    java = [find_java(), "-Xmx1g", "-server", "-XX:+UseG1GC", quiet, "-cp", classpath("tools")]
    java += ["org.apache.kafka.tools.ConsumerPerformance", "--bootstrap-server", bootstrap, "--topic", TOPIC]
    found = {
        "java": [*java, "--num-records", str(records)],
        "loop": loop,
        "loop tuned": [*loop, "fetch.queue.backoff.ms=2"],
        "librdkafka 1": [*own, "--client", "librdkafka", "--threads", "1"],
    }
    for decode in ("headers", "records"):
        for threads in ("1", "4"):
            found[f"{decode} {threads}"] = [*own, "--decode", decode, "--threads", threads]
    return found


def cpu_of(pid: int) -> float:
    """CPU seconds of a process until now."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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
        match = FETCHED.search(done.stdout)
        if match is None or int(match[1]) < records:
            raise SystemExit(f"{name}: no row, or fewer records than asked for\n{done.stdout}{done.stderr}")
        rate = float(match[2])
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "rate": rate,
        "cpu": cpu / records * 1e6,
        "broker_cpu": (cpu_of(broker) - broker_before) / records * 1e6,
        "seconds": took,
    }


def judge(found: dict[str, list[dict[str, float]]]) -> list[dict[str, Any]]:
    """Ratios round by round; the loop is the faster of its two in that round."""
    rates = {name: [run["rate"] for run in runs] for name, runs in found.items()}
    if "loop" in rates and "loop tuned" in rates:
        rates["best loop"] = [max(pair) for pair in zip(rates["loop"], rates["loop tuned"], strict=True)]
    verdicts = []
    for who, whom, target in TARGETS:
        if who in rates and whom in rates:
            ratios = [a / b for a, b in zip(rates[who], rates[whom], strict=True)]
            middle = statistics.median(ratios)
            spread = (max(ratios) - min(ratios)) / 2 / middle
            verdict = "met" if middle >= target else "noise" if middle * (1 + spread) >= target else "missed"
            verdicts.append(
                {"who": who, "whom": whom, "target": target, "ratio": middle, "spread": spread, "verdict": verdict}
            )
    return verdicts


def tables(result: dict[str, Any]) -> str:
    lines = [
        f"{result['date'][:10]}, {result['machine']}; Kafka {KAFKA_VERSION} on one node, {PARTITIONS} partitions, "
        f"{result['records']:,} records of {SIZE:,} bytes, uncompressed; median of {result['rounds']}. "
        f"Load average of the machine at the end: {result['load'][0]:.1f}.",
        "",
        "| reader | records/s | MB/s | from – to | client CPU s / M | broker CPU s / M |",
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
    words = NAMES | {"best loop": "librdkafka, a loop of C, the faster"}
    for one in result["verdicts"]:
        lines.append(
            f"| {words[one['who']]} over {words[one['whom']]} | ≥ {one['target']:g} | {one['ratio']:.2f} | "
            f"{one['spread']:.0%} | {one['verdict']} |"
        )
    return "\n".join(lines) + "\n"


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def main(argv: list[str] | None = None) -> int:
    options = arguments(argv)
    if options.write_readme and not MARKS.search(README.read_text()):
        raise SystemExit("README.md has no <!-- perf-consume:start --> … <!-- perf-consume:end -->")
    with KafkaBroker(heap="1g", timeout=180) as broker:
        assert broker.process is not None
        fill(broker.bootstrap, options.records)
        every = {
            name: command
            for name, command in commands(broker.bootstrap, options.records).items()
            if name in options.only
        }
        found: dict[str, list[dict[str, float]]] = {name: [] for name in every}
        measure(
            "loop", commands(broker.bootstrap, options.records)["loop"], options.records, broker.process.pid
        )  # warm
        for number in range(options.rounds):
            for name, command in every.items():
                run = measure(name, command, options.records, broker.process.pid)
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
        "verdicts": judge(found),
    }
    text = tables(result)
    print(text)
    if options.write_readme:
        RESULTS.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
        RESULTS.with_suffix(".md").write_text("# Consuming\n\n" + text)
        README.write_text(MARKS.sub(lambda marks: marks[1] + text + marks[2], README.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())

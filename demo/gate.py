"""``python -m demo.gate``: a cluster, the gate before it, and producers of good and bad batches.

The cluster is librdkafka's mock broker. Good batches come from librdkafka producers, in which only
``bootstrap.servers`` is changed. Bad batches, and those with claims, are made here. The demo ends
by itself, and fails if a verdict differs from the expected one.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import threading
import time
from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import Any

import confluent_kafka
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from batchval.core.batches.columns import scan_batches
from batchval.core.claims import compute, to_tag
from batchval.policy import TopicPolicy
from batchval.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from batchval.protocol.walkers.produce import CLAIMS_TAG
from batchval.proxy.life.gate import Gate
from batchval.proxy.settings.loading import settings_from
from batchval.proxy.settings.options import Refusal
from demo.attempts import Attempt, attempts
from demo.damage import LOG

SEGMENTS = Path(__file__).parents[1] / "fixtures" / "segments"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SECONDS = 8.0
ATTEMPT_S = 0.05


def topic_of(policy: TopicPolicy) -> str:
    """Return the topic for the bad batches of a policy."""
    changed = [f.name for f in fields(policy) if getattr(policy, f.name) != f.default]
    return "demo-" + ("-".join(changed) or "plain").replace("_", "-")


def rules(all_attempts: list[Attempt]) -> list[dict[str, Any]]:
    """Return the proxy's settings for these topics."""
    policies = {topic_of(attempt.policy): attempt.policy for attempt in all_attempts}
    return [
        {"match": topic}
        | {
            f.name.replace("_", "."): v
            for f in fields(policy)
            if (v := getattr(policy, f.name)) != f.default
        }
        for topic, policy in policies.items()
    ]


class Running:
    """The gate on a loop of its own, as ``batchval proxy`` would run it; ``rules`` counts refusals
    by rule.
    """

    def __init__(self, upstream: str, all_attempts: list[Attempt]) -> None:
        self.rules: Counter[str] = Counter()
        settings = settings_from(
            {
                "mode": "enforce",
                "listeners": [{"address": "127.0.0.1:0", "trusted": True}],
                "upstream": {"bootstrap": upstream},
                "claims_in": "audit:0.01",
                "validation": {"extras": {f"S{n}": "refuse" for n in range(1, 11)}},
                "topics": {"policies": rules(all_attempts)},
                "metrics": {"address": None},
            }
        )
        self.loop = asyncio.new_event_loop()
        self._made = threading.Event()
        self._settings = settings
        self.gate: Gate
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.gate = Gate(self._settings)
        for proxy in self.gate.proxies.values():
            proxy.gate.on_refusal = self._refused
        self._made.set()
        self.loop.run_forever()

    def _refused(self, refusal: Refusal) -> None:
        self.rules[refusal.rule] += 1

    def __enter__(self) -> Running:
        self._thread.start()
        self._made.wait()
        asyncio.run_coroutine_threadsafe(self.gate.start(), self.loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self.gate.stop(1), self.loop).result(20)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()

    @property
    def address(self) -> tuple[str, int]:
        return self.gate.addresses["default"]


async def send(
    address: tuple[str, int], topic: str, records: bytes, tag: bytes | None = None
) -> int:
    """Send one batch on a new connection; return the error code of the response."""
    tags = () if tag is None else ((CLAIMS_TAG, tag),)
    part = PartitionProduceData(index=0, records=records, unknown_tagged_fields=tags)
    data = [TopicProduceData(name=topic, partition_data=[part])]
    request = ProduceRequest(api_version=9, acks=1, timeout_ms=5_000, topic_data=data)
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.writelines(bytes(chunk) for chunk in request.encode(1, "demo"))
        answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    finally:
        writer.close()
    return ProduceResponse.decode(answer, 9).responses[0].partition_responses[0].error_code


def good_producers(
    bootstrap: str, until: float, failures: list[str], sent: Counter[str]
) -> list[threading.Thread]:
    """Start a librdkafka producer for each codec, each in a thread."""

    def run(codec: str) -> None:
        def on_delivery(error: Any, _: Any) -> None:
            if error is not None:
                failures.append(f"{codec}: {error}")
            else:
                sent[codec] += 1

        config = {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "linger.ms": 20,
            "log_level": 0,
        }
        producer = confluent_kafka.Producer(config)
        n = 0
        while time.monotonic() < until:
            for _ in range(200):
                producer.produce(
                    f"good-{codec}", f"order {n} " * 20, key=str(n), on_delivery=on_delivery
                )
                n += 1
            producer.poll(0.05)
        if producer.flush(10):
            failures.append(f"{codec}: not all was delivered")

    threads = [threading.Thread(target=run, args=(codec,)) for codec in CODECS]
    for thread in threads:
        thread.start()
    return threads


def with_claims() -> list[tuple[bytes, bytes]]:
    """Return compressed batches of a broker as a client would send them, each with its claims."""
    found = []
    for codec in CODECS[1:]:
        segment = (SEGMENTS / f"codec-{codec}-0" / LOG).read_bytes()
        columns = scan_batches(segment)
        for start, size in zip(
            columns["position"].tolist(), columns["size_in_bytes"].tolist(), strict=True
        ):
            data = bytearray(segment[start : start + size])
            data[0:8], data[12:16] = (
                bytes(8),
                b"\xff" * 4,
            )  # base offset and leader epoch are the broker's to give
            claims = compute(data)
            if (
                claims is not None and data[43:51] == b"\xff" * 8
            ):  # no producer id, whose sequence would not fit
                found.append((bytes(data), to_tag(claims, int.from_bytes(data[17:21], "big"))))
    return found


def view(running: Running, sent: Counter[str], began: float) -> Group:
    """Render the rejected batches by rule, the accepted ones by path, and their rates."""
    elapsed = max(time.monotonic() - began, 0.001)
    counters = running.gate.counters
    refused = Table("refused by rule", "batches", "a second", box=None)
    for rule, count in sorted(running.rules.items(), key=lambda one: (-one[1], one[0])):
        refused.add_row(rule, f"{count:,}", f"{count / elapsed:.1f}")
    accepted = Table("accepted by path", "batches", "a second", box=None)
    for path, count in sorted(counters.batches_by_path.items()):
        accepted.add_row(path, f"{count:,}", f"{count / elapsed:.1f}")
    records = Table("records delivered", "codec", box=None)
    for codec in CODECS:
        records.add_row(f"{sent[codec]:,}", codec)
    return Group(
        f"[bold]{elapsed:4.0f} s[/]  {counters.request_bytes_total / 1e6:.1f} MB",
        refused,
        accepted,
        records,
    )


async def the_others(
    address: tuple[str, int], all_attempts: list[Attempt], until: float
) -> tuple[int, list[str]]:
    """Send bad batches and those with claims in turn; return how many were bad, and the errors."""
    wrong: list[str] = []
    bad = turn = 0
    claimed = with_claims()
    while time.monotonic() < until or turn < len(all_attempts):
        attempt = all_attempts[turn % len(all_attempts)]
        if attempt.rule is not None:
            bad += 1
            if not await send(address, topic_of(attempt.policy), attempt.records):
                wrong.append(f"{attempt.what}: let in")
        for _ in range(5):
            records, tag = claimed[turn % len(claimed)]
            if code := await send(address, "claimed", records, tag):
                wrong.append(f"with claims: error {code}")
            await asyncio.sleep(ATTEMPT_S / 5)
        turn += 1
    return bad, wrong


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m demo.gate",
        description="Run a gate before a cluster, with good and bad producers.",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=SECONDS,
        help=f"Duration in seconds (default: {SECONDS:g}).",
    )
    chosen = parser.parse_args(arguments)
    logging.getLogger("batchval").addHandler(logging.NullHandler())
    out = Console(highlight=False)
    cluster = confluent_kafka.Producer({"test.mock.num.brokers": 1, "log_level": 0})
    (broker,) = cluster.list_topics(timeout=10).brokers.values()
    cluster.list_topics("claimed", timeout=10)  # the request creates the topic
    all_attempts = attempts(SEGMENTS)[0]
    failures: list[str] = []
    sent: Counter[str] = Counter()
    with Running(f"{broker.host}:{broker.port}", all_attempts) as running:
        host, port = running.address
        out.print(f"[bold]A proxy on {host}:{port}[/] for a cluster on {broker.host}:{broker.port}")
        began = time.monotonic()
        until = began + chosen.seconds
        threads = good_producers(f"{host}:{port}", until, failures, sent)
        with Live(view(running, sent, began), console=out, refresh_per_second=4) as live:

            async def work() -> tuple[int, list[str]]:
                others = asyncio.ensure_future(the_others(running.address, all_attempts, until))
                while not others.done():
                    live.update(view(running, sent, began))
                    await asyncio.wait((others,), timeout=0.25)
                return others.result()

            bad, wrong = asyncio.run(work())
            for thread in threads:
                thread.join(20)
            live.update(view(running, sent, began))
        if not out.is_terminal:
            out.print()  # the view ends its last line on a terminal alone
        refused = sum(running.rules.values())
        by_rule = len(running.rules)
        believed = running.gate.counters.batches_by_path.get("claims", 0)
    problems = failures + wrong
    if refused != bad:
        problems.append(f"{bad} bad batches, {refused} refused")
    if not all(sent[codec] for codec in CODECS):
        problems.append("a codec delivered nothing")
    if problems:
        out.print(f"[red bold]The demo failed:[/] {problems[0]} ({len(problems)} in all)")
        return 1
    out.print(
        f"{refused:,} bad batches refused by {by_rule} rules, {sum(sent.values()):,} good records delivered, "
        f"{believed:,} batches accepted by trusted claims, without decompression."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""``batchval perf``: what measures a cluster. Each command has its module, loaded when it is
called.
"""

from __future__ import annotations

from typing import ClassVar

import click

from batchval.cli.commands import Commands


class _Perf(Commands):
    COMMANDS: ClassVar = {
        "produce": ("perf_produce", "Measure producers."),
        "compare": ("perf_compare", "Compare results, with the spread of their printed digits."),
        "consume": ("perf_consume", "Measure consumers."),
        "merge": ("perf_merge", "Add results of runs side by side."),
        "mock": ("perf_mock", "Run a command with a cluster in memory, without Kafka."),
        "roundtrip": ("perf_roundtrip", "Measure end-to-end latency: produce and consume at once."),
    }


@click.group(
    "perf",
    cls=_Perf,
    examples=(
        "batchval perf produce --bootstrap-server b:9092 --topic t --num-records 9 --record-size 9",
        "batchval perf compare before.json after.json",
    ),
)
def command() -> None:
    """Measure a cluster with the flags and lines of Kafka's own tools, in microseconds."""

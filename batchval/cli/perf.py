"""``batchval perf``: what measures a cluster. Each command has its module, loaded when it is called."""

from __future__ import annotations

from typing import ClassVar

import click

from batchval.cli import Commands


class _Perf(Commands):
    MODULES: ClassVar = {
        "produce": "perf_produce",
        "compare": "perf_compare",
        "consume": "perf_consume",
        "merge": "perf_merge",
    }


@click.group("perf", cls=_Perf, short_help="Measure producing and consuming, in microseconds.")
def command() -> None:
    """Measures a cluster with the flags and lines of Kafka's own tools, in microseconds."""

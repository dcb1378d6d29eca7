"""``batchval perf mock``: librdkafka's mock cluster, for the perf commands without a broker."""

from __future__ import annotations

import os
import subprocess
import threading

import click

from batchval.cli.commands import Command
from batchval.cli.termination import Terminated

MOST_BROKERS = 100


@click.command(
    "mock",
    cls=Command,
    context_settings={"allow_interspersed_args": False},
    examples=(
        "batchval perf mock",
        "batchval perf mock --brokers 3 sh -c 'kcat -b $BOOTSTRAP -L'",
    ),
)
@click.option("--brokers", type=click.IntRange(1, MOST_BROKERS), default=1, show_default=True, help="How many brokers.")
@click.argument("command_line", nargs=-1, metavar="[COMMAND [ARGUMENT]…]")
def command(brokers: int, command_line: tuple[str, ...]) -> int:
    """Starts a cluster without Kafka and Java: librdkafka's mock brokers, in memory, on 127.0.0.1.

    Runs COMMAND with their addresses in $BOOTSTRAP, ends with it, and has its exit code. Without
    COMMAND: prints the addresses and runs until it is interrupted. Topics are made when they are
    named, with four partitions.
    """
    from batchval.perf.clients.rdkafka_mock import MockCluster

    cluster = MockCluster(brokers)
    if command_line:
        return _run(command_line, cluster.bootstrap)
    click.echo(cluster.bootstrap)
    threading.Event().wait()
    return 0


def _run(command_line: tuple[str, ...], bootstrap: str) -> int:
    try:
        child = subprocess.Popen(command_line, env={**os.environ, "BOOTSTRAP": bootstrap})
    except OSError as error:
        raise click.UsageError(f"cannot run {command_line[0]!r}: {error.strerror}") from None
    try:
        code = child.wait()
    except KeyboardInterrupt as reason:  # a terminal's Ctrl-C has reached the command too
        if isinstance(reason, Terminated):
            child.terminate()
        child.wait()
        raise
    return code if code >= 0 else 128 - code

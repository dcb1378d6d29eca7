"""``batchval perf mock``: librdkafka's mock cluster, for the perf commands without a broker."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time

import click

from batchval.cli.commands import Command
from batchval.cli.exit import Terminated, signals_wait

MAX_BROKERS = 100
#: A signal that arrives just before a wait is seen when it ends.
_LOOK_S = 0.5


@click.command(
    "mock",
    cls=Command,
    context_settings={"allow_interspersed_args": False},
    examples=(
        "batchval perf mock",
        "batchval perf mock --brokers 3 sh -c 'kcat -b $BOOTSTRAP -L'",
    ),
)
@click.option(
    "--brokers",
    type=click.IntRange(1, MAX_BROKERS),
    default=1,
    show_default=True,
    help="Number of brokers.",
)
@click.argument("command_line", nargs=-1, metavar="[COMMAND [ARGUMENT]…]")
def command(brokers: int, command_line: tuple[str, ...]) -> int:
    """Start a cluster without Kafka and Java: librdkafka's mock brokers, in memory, on 127.0.0.1.

    Runs COMMAND with their addresses in $BOOTSTRAP, ends with it, and has its exit code. Without
    COMMAND: prints the addresses and runs until it is interrupted. Topics are made when they are
    named, with four partitions.
    """
    from batchval.perf.clients.rdkafka import MockCluster

    cluster = MockCluster(brokers)
    if command_line:
        return _run(command_line, cluster.bootstrap)
    click.echo(cluster.bootstrap)
    while True:
        time.sleep(_LOOK_S)


def _run(command_line: tuple[str, ...], bootstrap: str) -> int:
    child: subprocess.Popen[bytes] | None = None
    try:
        with signals_wait():  # within Popen, a command would go on that nobody can stop
            child = subprocess.Popen(command_line, env={**os.environ, "BOOTSTRAP": bootstrap})
        while (code := child.poll()) is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_LOOK_S)
    except OSError as error:
        raise click.UsageError(f"cannot run {command_line[0]!r}: {error.strerror}") from None
    except KeyboardInterrupt as reason:  # a terminal's Ctrl-C has reached the command too
        if child is not None:
            if isinstance(reason, Terminated):
                child.terminate()
            child.wait()
        raise
    return code if code >= 0 else 128 - code

"""The command line: ``batchval audit | check | claims | conformance | dump | perf | proxy | rule``.

Exit codes of every command: batchval.cli.exit. Errors are one line on stderr. If the reader
of the output closes it (``| head``), the process ends by SIGPIPE, as ``cat`` does.

This module imports click and no command: ``--help`` and shell completion need no more.
"""

from __future__ import annotations

import sys
from typing import ClassVar

import click

from batchval.cli.commands import Commands
from batchval.cli.exit import ends_by_sigterm, exit_code_of, open_closed_streams

__all__ = ["cli", "main"]


class _Batchval(Commands):
    COMMANDS: ClassVar = {
        "audit": ("audit", "Check whole folders of segments, with Spark or many processes."),
        "check": ("check", "Check segments, folders of them, or files of batches."),
        "claims": ("claims", "Show, attach, strip and verify claims about batches."),
        "conformance": ("conformance", "Compare batchval's answers with Apache Kafka's own."),
        "dump": ("dump", "Show every batch of a segment, and its records."),
        "perf": ("perf", "Measure producing and consuming, in microseconds."),
        "proxy": ("proxy", "Run a proxy that refuses bad batches before the brokers."),
        "rule": ("rule", "Explain a rule: what it requires, why, and what to do."),
    }


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    import platform

    import batchval
    from batchval import compression
    from batchval.core.format import crc32c

    click.echo(f"batchval {batchval.__version__}")
    click.echo(f"Python {platform.python_version()}, {platform.machine()}")
    click.echo(f"CRC-32C kernel: {crc32c.kernel()} (usable: {', '.join(crc32c.usable_kernels())})")
    click.echo(f"codec provider: {compression.provider()}")
    for codec, origin in compression.describe().items():
        click.echo(f"  {codec:<7} {origin}")
    ctx.exit()


@click.group(
    cls=_Batchval,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    examples=(
        "batchval check /var/lib/kafka/data/orders-0",
        "batchval dump --records 00000000000000000000.log",
        "batchval rule 14",
    ),
)
@click.option(
    "-V",
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Versions, codecs and CRC kernel.",
)
def cli() -> None:
    """Check whether Kafka record batches may be appended to a log, by Apache Kafka's own rules and
    stricter ones.
    """


def main() -> None:
    """Run the command line and exit with a documented code. No user sees a stack trace."""
    open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a file name must not break the output
    try:
        with ends_by_sigterm():
            code = cli.main(prog_name="batchval", standalone_mode=False)
            sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:
        code = exit_code_of(error)
    sys.exit(code if isinstance(code, int) else 0)

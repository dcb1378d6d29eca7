"""The command line: ``batchval audit | check | claims | conformance | dump | perf | proxy``.

Exit codes of every command: 0 clean, 1 findings or disagreements, 2 wrong usage, 3 something could not be read, 4 an
error of batchval itself, 130 interrupted. Where several apply: 130, 4, 2, 3, 1, in this order. Errors are one line on
stderr.
An output that nobody reads to its end (``| head``) counts as 3: the answer was not delivered.
"""

from __future__ import annotations

import os
import sys
from typing import ClassVar

import click

from batchval.errors import BatchvalError

__all__ = ["cli", "main"]

INTERRUPTED = 130
INTERNAL = 4
USAGE = 2
UNREADABLE = 3
FINDINGS = 1


class _ReaderGone(Exception):
    """Whoever read our output has closed it. (click would make 1 of a BrokenPipeError, which means findings.)"""


class Commands(click.Group):
    """Loads a command's module when the command is called, so that none pays for another's imports."""

    MODULES: ClassVar[dict[str, str]] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self.MODULES)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.MODULES:
            return None
        from importlib import import_module

        command: click.Command = import_module(f"batchval.cli.{self.MODULES[name]}").command
        return command

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise _ReaderGone from None


class _Batchval(Commands):
    MODULES: ClassVar = {
        "audit": "audit",
        "check": "check",
        "claims": "claims",
        "conformance": "conformance",
        "dump": "dump",
        "perf": "perf",
        "proxy": "proxy",
    }


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    import platform

    import batchval
    from batchval import compression
    from batchval.core import crc32c

    click.echo(f"batchval {batchval.__version__}")
    click.echo(f"Python {platform.python_version()}, {platform.machine()}")
    click.echo(f"CRC-32C kernel: {crc32c.kernel()} (usable: {', '.join(crc32c.usable_kernels())})")
    click.echo(f"codec provider: {compression.provider()}")
    for codec, origin in compression.describe().items():
        click.echo(f"  {codec:<7} {origin}")
    ctx.exit()


@click.group(cls=_Batchval, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Versions, codecs and CRC kernel.",
)
def cli() -> None:
    """Decides whether Kafka record batches may enter a log: Apache Kafka's own verdict, and stricter ones."""


def main() -> None:
    """The console script: every end is a documented exit code, and no user sees a stack trace."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a file name or a value must not break the output
    try:
        code = cli.main(prog_name="batchval", standalone_mode=False)
        sys.stdout.flush()
        sys.exit(code if isinstance(code, int) else 0)
    except (click.exceptions.Abort, KeyboardInterrupt):
        _last_words("batchval: interrupted")
        sys.exit(INTERRUPTED)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        sys.exit(USAGE)
    except click.ClickException as error:
        command = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "batchval"
        _last_words(f"{command}: {error.format_message()}")
        sys.exit(USAGE)
    except BatchvalError as error:
        _last_words(f"batchval: {error}")
        sys.exit(USAGE)
    except (_ReaderGone, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter would complain at its end
        sys.exit(UNREADABLE)
    except OSError as error:
        _last_words(
            f"batchval: {error.filename}: {error.strerror}"
            if error.filename
            else f"batchval: {error.strerror or error}"
        )
        sys.exit(UNREADABLE)
    except Exception as error:
        if os.environ.get("BATCHVAL_TRACEBACK"):
            raise
        _last_words(f"batchval: internal error: {type(error).__name__}: {error} (BATCHVAL_TRACEBACK=1 shows where)")
        sys.exit(INTERNAL)


def _last_words(line: str) -> None:
    """One line on stderr, whatever is in it."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    click.echo(" ".join(line.split()), err=True)

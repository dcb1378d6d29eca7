"""End a run of the command line: one line on stderr, and an exit code."""

from __future__ import annotations

import os
import sys

import click

from batchval.cli.commands import ReaderGone, command_of, nearest
from batchval.cli.exit_codes import INTERNAL, INTERRUPTED, TERMINATED, UNREADABLE, USAGE
from batchval.cli.output import discard_output
from batchval.cli.termination import Terminated

__all__ = ["exit_code_of"]


def exit_code_of(error: BaseException) -> int:
    """Print one line about what ended the run and return its exit code.

    Raises the error itself if it is SystemExit, or with BATCHVAL_TRACEBACK if it is not expected.
    """
    if isinstance(error, ReaderGone | BrokenPipeError):
        return _end_by_sigpipe()
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message(), err=True)
        return USAGE
    line, code = _line_and_code(error)
    _print(line)
    return code


def _line_and_code(error: BaseException) -> tuple[str, int]:
    command = command_of(error)
    text, code = _text_and_code(error)
    if isinstance(error, click.UsageError):
        text = f"{text} (see {command} --help)"
    return f"{command}: {text}", code


def _text_and_code(error: BaseException) -> tuple[str, int]:
    from batchval.errors import BatchvalError

    if isinstance(error, Terminated) or isinstance(error.__cause__, Terminated):
        return "terminated", TERMINATED
    if isinstance(error, click.exceptions.Abort | KeyboardInterrupt):
        return "interrupted", INTERRUPTED
    if isinstance(error, click.UsageError):
        return _usage(error), USAGE
    if isinstance(error, click.ClickException):
        return error.format_message(), USAGE
    if isinstance(error, BatchvalError):
        return str(error), UNREADABLE if isinstance(error, OSError) else USAGE
    if isinstance(error, OSError):
        why = str(error.strerror or error)
        return f"{error.filename}: {why}" if error.filename else why, UNREADABLE
    if not isinstance(error, Exception) or os.environ.get("BATCHVAL_TRACEBACK"):
        raise error
    what = f"{type(error).__name__}: {error}"
    return f"internal error: {what} (BATCHVAL_TRACEBACK=1 shows where)", INTERNAL


def _usage(error: click.UsageError) -> str:
    """Return what is wrong, with the most similar option where one is unknown."""
    if isinstance(error, click.NoSuchOption):
        return f"unknown option {error.option_name!r}{nearest(error.option_name, error.possibilities or ())}"
    return error.format_message()


def _end_by_sigpipe() -> int:
    """End as ``cat`` does when the reader of its output is gone: by SIGPIPE, which Python
    ignores.
    """
    import signal

    discard_output()
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGPIPE)
    return 0


def _print(line: str) -> None:
    """Print one line on stderr, whatever it holds."""
    try:
        sys.stdout.flush()
    except OSError:
        discard_output()
    from batchval.segment.uris import without_secrets

    click.echo(without_secrets(" ".join(line.split())), err=True)

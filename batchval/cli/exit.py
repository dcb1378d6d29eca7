"""Start and end the process of a command: standard streams, signals, exit codes.

exit codes   of every command. Where several apply: 130, 143, 4, 2, 3, 1, in this order
the error    that ended a command is one line on stderr
SIGTERM      ends a command as Ctrl-C does: temporary files and worker processes go first
SIGPIPE      ends it where the reader of its output is gone
streams      that were closed when the process began (``>&-``, some init scripts) are opened
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import click

from batchval.cli.commands import ReaderGone, command_of, nearest

__all__ = [
    "FINDINGS",
    "INTERNAL",
    "INTERRUPTED",
    "TERMINATED",
    "UNREADABLE",
    "USAGE",
    "Terminated",
    "discard_output",
    "ends_by_sigterm",
    "exit_code_of",
    "open_closed_streams",
    "signals_wait",
]

FINDINGS = 1
USAGE = 2
UNREADABLE = 3
INTERNAL = 4
INTERRUPTED = 130
TERMINATED = 143


class Terminated(KeyboardInterrupt):
    """A SIGTERM."""


def _terminate(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)  # a second one ends the process at once
    raise Terminated


@contextmanager
def ends_by_sigterm() -> Iterator[None]:
    """Raise Terminated in the main thread on SIGTERM, unless it has a handler or is ignored."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def signals_wait() -> Iterator[None]:
    """Let SIGINT and SIGTERM take effect at the end of a block, not within it. Main thread only."""
    arrived: list[int] = []
    before = {name: signal.getsignal(name) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        for name, handler in before.items():
            if handler != signal.SIG_IGN:  # which a new process inherits
                signal.signal(name, lambda number, _: arrived.append(number))
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler or signal.SIG_DFL)
        for number in arrived:
            signal.raise_signal(number)


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


def discard_output() -> None:
    """Open the null device as standard output, so that the interpreter's last flush cannot fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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


_ERROR = 2  # the number of standard error, the last of them


def open_closed_streams() -> None:
    """Open /dev/null in place of each that is closed.

    Else the next file or socket gets its number: what is printed goes there, and libuv ends a
    process that closes a socket of such a number. ``sys.stdin`` stays None where it is.
    """
    for number in range(_ERROR + 1):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            os.set_inheritable(opened, True)  # workers of a gate have them, too
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(_ERROR, "w", closefd=False)

"""Commands and groups of commands: loaded when called, with examples and suggestions.

A group lists its commands from a table of names, modules and short helps. Listing and completing
them imports no command.
"""

from __future__ import annotations

from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

import click

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from click.shell_completion import CompletionItem

__all__ = ["Command", "Commands", "Group", "ReaderGone", "command_of", "nearest"]


class ReaderGone(Exception):
    """The reader of standard output has closed it, as ``head`` does."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ``, did you mean check?`` for the most similar known word, or nothing."""
    from difflib import get_close_matches

    found = get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f", did you mean {found[0]}?" if found else ""


@contextmanager
def _ended_by(ctx: click.Context) -> Iterator[None]:
    """Note which command an error ends, in the error: click has no context when it is printed."""
    try:
        yield
    except BaseException as error:
        if not hasattr(error, "command_path"):
            error.command_path = ctx.command_path  # type: ignore[attr-defined]
        raise


def command_of(error: BaseException) -> str:
    """Return the words of the command that an error has ended: ``batchval check``."""
    for one in (error, error.__cause__):  # click raises Abort from KeyboardInterrupt
        if (path := getattr(one, "command_path", None)) is not None:
            return str(path)
    return "batchval"


class _Explained(click.Command):
    """A command whose help ends with examples. An error names it."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **more: Any) -> None:
        super().__init__(*args, **more)
        self.examples = tuple(examples)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with _ended_by(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        with _ended_by(ctx):
            return super().invoke(ctx)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{example}\n")


class Command(_Explained):
    """One command of batchval."""


class Group(_Explained, click.Group):
    """A group whose commands are all defined in its own module."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        known = self.list_commands(ctx)
        if name in known or ctx.resilient_parsing or name.startswith("-"):
            return super().resolve_command(ctx, args)
        option = f"--{name}"
        found = (
            f", did you mean {option}?"
            if any(option in one.opts for one in self.get_params(ctx))
            else nearest(name, known) or "."
        )
        message = f"unknown command {name!r}{found} Commands: {', '.join(known)}"
        raise click.UsageError(message, ctx)


class Commands(Group):
    """A group that imports a command's module when the command is called or explained."""

    #: name -> (module in batchval.cli, what the list of commands says)
    COMMANDS: ClassVar[dict[str, tuple[str, str]]] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self.COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.COMMANDS:
            return None
        command: click.Command = import_module(f"batchval.cli.{self.COMMANDS[name][0]}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.COMMANDS[name][1]) for name in self.list_commands(ctx)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        items = [CompletionItem(name, help=self.COMMANDS[name][1]) for name in names]
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> Any:
        """Run the called command. Raises ReaderGone where click would exit with 1."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            if _output_is_closed():
                raise ReaderGone from None
            raise


def _output_is_closed() -> bool:
    """Return whether the reader of standard output is gone. A broken connection raises the same
    error.
    """
    import select
    import sys

    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), select.POLLOUT)
        events = poll.poll(0)
    except (AttributeError, OSError, ValueError):  # no poll on this system, or no file at all
        return True
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in events)

"""Options, arguments and columns that several commands share.

Nothing here imports the engine: the help of a command and shell completion need its options only.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from batchval.errors import BatchvalError
from batchval.kafka_versions import DEFAULT_KAFKA_VERSION, RELEASES, Release, find_release
from batchval.types import MAX_SEED

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from batchval.policy import TopicPolicy
    from batchval.segment.findings import Finding
    from batchval.segment.options import Replica
    from batchval.segment.topic_rules import TopicRules

__all__ = [
    "DASH",
    "DURATION",
    "FILE",
    "SIZE",
    "accept_claims_option",
    "cleanup_policy_option",
    "explained_by",
    "finding_columns",
    "json_option",
    "kafka_version_option",
    "mode_option",
    "optional_paths_argument",
    "parse_extras",
    "paths_argument",
    "policy_from",
    "producer_expiration_option",
    "record_rules_from",
    "record_rules_option",
    "replicas_from",
    "replicas_option",
    "spooled",
    "transactions_option",
    "trust_claims_options",
    "trusted_rate",
]

F = TypeVar("F", bound=Callable[..., Any])

#: a file or a folder. Where it cannot be read, the read itself fails, with exit code 3
FILE = click.Path(path_type=Path, readable=False)

#: as a Path holds it
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_SIZE = re.compile(r"(?i)\s*(\d{1,15})\s*([kmgt]?)(i?b)?\s*")


class _Size(click.ParamType[int]):
    """``256m``: bytes, in powers of 1024."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = _SIZE.fullmatch(value)
        if match is None or int(match[1]) == 0:
            self.fail(
                f"invalid size {value!r}: expected bytes, or a number and a unit: 64k, 256m, 1g",
                param,
                ctx,
            )
        return int(match[1]) << 10 * " kmgt".index(match[2].lower() or " ")


SIZE = _Size()


_DURATION = re.compile(r"\s*(\d{1,9})\s*([smhdw])\s*")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


class _Duration(click.ParamType[int]):
    """``30d``: milliseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = _DURATION.fullmatch(value)
        if match is None or int(match[1]) == 0:
            expected = "a number above 0 and a unit: 90s, 30m, 12h, 30d, 4w"
            self.fail(f"invalid duration {value!r}: expected {expected}", param, ctx)
        return int(match[1]) * _SECONDS[match[2]] * 1000


DURATION = _Duration()


class _KafkaRelease(click.ParamType[Release]):
    """``4.2.1``, or ``4.2`` for its newest patch release, which standard error then names."""

    name = "release"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Release:
        if isinstance(value, Release):
            return value
        try:
            release = find_release(value)
        except BatchvalError as error:
            self.fail(str(error).removeprefix("kafka_version "), param, ctx)
        command = ctx.command_path if ctx is not None else "batchval"
        if release.warning:
            click.echo(f"{command}: warning: {release.warning}", err=True)
        elif release.name != value.strip():
            click.echo(
                f"{command}: --kafka-version {value.strip()} means {release.name}, its newest "
                "patch release",
                err=True,
            )
        return release

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        names = [
            name for a in RELEASES if a.is_published for name in dict.fromkeys((a.first, a.last))
        ]
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def paths_argument(command: F) -> F:
    return _paths(required=True)(command)


def optional_paths_argument(command: F) -> F:
    return _paths(required=False)(command)


def _paths(*, required: bool) -> Callable[[F], F]:
    return click.argument(
        "paths",
        nargs=-1,
        required=required,
        metavar="PATH…" if required else "[PATH…]",
        type=FILE,
        callback=_local,
    )


def _local(
    context: click.Context, parameter: click.Parameter, paths: tuple[Path, ...]
) -> tuple[Path, ...]:
    """Refuse URIs, which may hold credentials, without showing them."""
    for path in paths:
        if _URI.match(str(path)) and not path.exists():
            raise click.UsageError(
                "a PATH is a URI: expected a file or folder (batchval audit reads URIs)"
            )
    return paths


def json_option(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")(
        command
    )


def transactions_option(command: F) -> F:
    return click.option(
        "--transactions",
        is_flag=True,
        help="Table of open transactions, last stable offsets and markers without data.",
    )(command)


def accept_claims_option(command: F) -> F:
    return click.option(
        "--accept-claims-header",
        is_flag=True,
        help=(
            "Support for batches of magic 3, which carry claims in their header (not in "
            "Apache Kafka)."
        ),
    )(command)


def trust_claims_options(command: F) -> F:
    command = click.option(
        "--seed",
        type=click.IntRange(0, MAX_SEED),
        metavar="N",
        help=(
            "Random seed of --trust-claims: repeats the choice of batches of an earlier "
            "run. Default: random."
        ),
    )(command)
    return click.option(
        "--trust-claims",
        metavar="RATE",
        help=(
            "Share of zstd and gzip batches with claims to verify (0.01); the claims of "
            "the others are trusted."
        ),
    )(command)


def mode_option(command: F) -> F:
    return click.option(
        "--mode",
        type=click.Choice(["strict", "kafka"]),
        default="strict",
        show_default=True,
        help="Rules: Kafka's and the extras (strict), or Kafka's alone (kafka).",
    )(command)


def kafka_version_option(
    help: str, *, default: str | None = DEFAULT_KAFKA_VERSION
) -> Callable[[F], F]:
    return click.option(
        "--kafka-version",
        type=_KafkaRelease(),
        metavar="RELEASE",
        default=default,
        show_default=default is not None,
        help=help,
    )


def cleanup_policy_option(help: str) -> Callable[[F], F]:
    return click.option(
        "--cleanup-policy",
        type=click.Choice(["auto", "delete", "compact"]),
        default="auto",
        show_default=True,
        help=help,
    )


def producer_expiration_option(command: F) -> F:
    return click.option(
        "--producer-id-expiration-ms",
        type=click.IntRange(0),
        default=86_400_000,
        show_default=True,
        metavar="MS",
        help=(
            "Setting producer.id.expiration.ms of the brokers: any sequence may follow "
            "after it (L5)."
        ),
    )(command)


def record_rules_option(command: F) -> F:
    return click.option(
        "--record-rules",
        "record_rules",
        metavar="FILE|JSON",
        help='Record rules of topics: {"orders-*": {"max_key_bytes": 100}} as a JSON file or text.',
    )(command)


def record_rules_from(value: str | None) -> TopicRules:
    """Return the rules of --record-rules: a JSON object, or the name of a file that holds one."""
    from batchval.errors import BatchvalError
    from batchval.segment.topic_rules import read_topic_rules

    if value is None:
        return ()
    try:
        return read_topic_rules(value)
    except BatchvalError as error:
        raise click.UsageError(f"--record-rules: {error}") from None


def replicas_option(command: F) -> F:
    return click.option(
        "--replicas",
        is_flag=True,
        help=(
            "Comparison of replicas. Each PATH is NAME=PATH: a broker's log folder or a "
            "partition's folder."
        ),
    )(command)


def replicas_from(words: Sequence[str]) -> tuple[Replica, ...]:
    """Return the replicas that ``b1=/data/b1`` words name. Raises UsageError."""
    from batchval.segment.options import Replica

    found: list[Replica] = []
    for word in words:
        name, equals, path = word.partition("=")
        if not (name and equals and path) or "/" in name:
            raise click.UsageError(
                f"invalid PATH {word!r} with --replicas: expected NAME=PATH, such as b1=/data/b1"
            )
        found.append(Replica(name, path))
    if len(found) < 2:
        raise click.UsageError(f"--replicas needs two NAME=PATH or more: there is {len(found)}")
    for what in Replica._fields:
        values = [getattr(one, what) for one in found]
        for value in values:
            if values.count(value) > 1:
                raise click.UsageError(
                    f"--replicas: the {what} {value!r} is there twice: expected different ones"
                )
    return tuple(found)


def parse_extras(values: tuple[str, ...]) -> dict[str, str]:
    """Return the extras of ``S1=report`` values. Raises UsageError."""
    extras = {}
    for value in values:
        name, equals, setting = value.partition("=")
        if not equals:
            raise click.UsageError(f"invalid --extra {value!r}: expected S1=report or S1=refuse")
        extras[name.strip().upper()] = setting.strip()
    return extras


def policy_from(
    values: tuple[str, ...], *, kafka_version: str | Release = DEFAULT_KAFKA_VERSION, **more: object
) -> TopicPolicy:
    """Return the policy of ``max.message.bytes=2097152`` values, as topic configurations are
    written.

    What they leave out has the default of ``kafka_version``.
    """
    from batchval.policy import TopicPolicy

    config: dict[str, object] = {key: value for key, value in more.items() if value is not None}
    for value in values:
        key, equals, setting = value.partition("=")
        if not equals:
            raise click.UsageError(f"invalid --config {value!r}: expected KEY=VALUE")
        config[key] = setting
    try:
        return TopicPolicy.from_kafka_config(config, kafka_version=kafka_version)
    except BatchvalError as error:
        raise click.UsageError(f"--config: {error}") from None


def finding_columns(finding: Finding) -> dict[str, Any]:
    """Return what --json prints of a finding after its file."""
    rule = finding.rule
    return {
        "position": finding.position,
        "offset": finding.offset,
        "rule": rule.id,
        "slug": rule.slug,
        "error_code": rule.error_code.name if rule.error_code else None,
        "reason": finding.reason,
        "follows": finding.follows,
        "broker": finding.broker,
    }


def explained_by(findings: Sequence[Any]) -> str:
    """Return the line that names the command which explains the first finding. Ends a line."""
    return f"batchval rule {findings[0].rule.id} explains the first finding\n" if findings else ""


def trusted_rate(word: str | None, seed: int | None, mode: str) -> float | None:
    """Return the rate of --trust-claims; None without it. Raises UsageError."""
    from batchval.errors import BatchvalError
    from batchval.segment.trust import checked_rate

    if word is None:
        if seed is not None:
            raise click.UsageError(
                "--seed needs --trust-claims RATE: it draws the batches to verify"
            )
        return None
    if mode == "kafka":
        raise click.UsageError("--trust-claims needs --mode strict: Kafka does not read claims")
    try:
        return checked_rate(word)
    except BatchvalError as error:
        raise click.UsageError(f"--trust-claims: {error}") from None


#: Standard input as a PATH. A segment is read at any position and more than once, so a pipe is
#: copied to a temporary file first.
DASH = Path("-")
_ALIASES = (DASH, Path("/dev/stdin"), Path("/dev/fd/0"), Path("/proc/self/fd/0"))


@contextmanager
def spooled(paths: tuple[Path, ...]) -> Iterator[tuple[list[Path], Path | None]]:
    """Yield the paths with standard input replaced by a temporary file, and that file or None.

    The file's name ends in .log: standard input is judged as a segment unless --as says otherwise.
    It is removed at the end. Raises UsageError for a terminal, OSError if the disk is full.
    """
    if not any(path in _ALIASES for path in paths):
        yield list(paths), None
        return
    if sys.stdin is None or sys.stdin.isatty():
        what = "closed" if sys.stdin is None else "a terminal"
        raise click.UsageError(
            f"standard input is {what}: expected a pipe or a file, as in `cat FILE | … -`"
        )
    import shutil
    import tempfile

    with tempfile.NamedTemporaryFile(prefix="batchval-stdin-", suffix=".log") as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy, 1 << 20)
        copy.flush()
        file = Path(copy.name)
        replaced = [file if path in _ALIASES else path for path in paths]
        yield list(dict.fromkeys(replaced)), file

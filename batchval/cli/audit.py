"""``batchval audit``: checks whole folders of segments, and compares and plans audits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import click

from batchval.cli.commands import Command
from batchval.cli.options import (
    DURATION,
    FILE,
    SIZE,
    accept_claims_option,
    cleanup_policy_option,
    json_option,
    kafka_version_option,
    mode_option,
    producer_expiration_option,
    record_rules_from,
    record_rules_option,
    replicas_from,
    replicas_option,
    transactions_option,
    trust_claims_options,
    trusted_rate,
)
from batchval.rules import Rule


@click.command(
    "audit",
    cls=Command,
    examples=(
        "batchval audit --engine local --out monday /var/lib/kafka/data",
        "batchval audit --since monday --out tuesday --report tuesday.html /var/lib/kafka/data",
        "batchval audit --compare source mirror",
        "batchval audit --plan 10PB/day --assume cores=32",
    ),
)
@click.argument("paths", nargs=-1, metavar="PATH…")
@click.option(
    "--out",
    metavar="DIR",
    help="Output folder or URI for the tables batches/ errors/ summary/ segments/, in Parquet.",
)
@click.option(
    "--engine",
    type=click.Choice(["spark", "local"]),
    default="spark",
    show_default=True,
    help="Engine: Spark, or processes of this machine (also used if Spark finds no Java).",
)
@click.option(
    "--master",
    metavar="URL",
    help="URL of Spark's master: local[4], yarn, sc://host. Default: all cores.",
)
@click.option(
    "--conf",
    "conf",
    multiple=True,
    metavar="KEY=VALUE",
    help="Spark setting. Can be repeated.",
)
@click.option(
    "--processes",
    type=click.IntRange(1),
    metavar="N",
    help="Number of processes of --engine local. Default: one per core.",
)
@click.option(
    "--rows",
    type=click.Choice(["all", "bad", "none"]),
    default="all",
    show_default=True,
    help="Batches that have a row in batches/.",
)
@click.option(
    "--columns",
    default="default",
    show_default=True,
    metavar="default|all|NAME,…",
    help="Columns of the rows of batches/.",
)
@click.option(
    "--deep", is_flag=True, help="Full validation: decompress batches and check every record."
)
@mode_option
@kafka_version_option("Version of the brokers, whose answers apply.")
@click.option(
    "--split-bytes",
    type=SIZE,
    default="256m",
    show_default=True,
    help="Approximate size of one task: this much of a segment.",
)
@click.option(
    "--topics",
    multiple=True,
    metavar="NAME,…",
    help="Topics to read. Patterns such as orders-* are allowed.",
)
@record_rules_option
@cleanup_policy_option("Cleanup policy of the topics: compact allows gaps.")
@producer_expiration_option
@transactions_option
@accept_claims_option
@trust_claims_options
@replicas_option
@click.option(
    "--since",
    metavar="DIR",
    help="Folder of an earlier audit: only new bytes are read, its findings are kept.",
)
@click.option(
    "--reread",
    "reread_ms",
    type=DURATION,
    metavar="TIME",
    help=(
        "Time in which --since also reads all unchanged segments again, for example 30d "
        "(s, m, h, d, w)."
    ),
)
@click.option(
    "--now",
    "now_ms",
    type=click.IntRange(0, (1 << 63) - 1),
    metavar="MS",
    help="Time of the run, in milliseconds since 1970. Default: the clock.",
)
@click.option(
    "--fail-on",
    multiple=True,
    metavar="RULE",
    help=(
        "Rules that make the exit code 1: an id or a slug (14, crc-mismatch), any "
        "(default), or none."
    ),
)
@click.option(
    "--report",
    type=FILE,
    metavar="FILE",
    help="HTML report, in one file.",
)
@click.option(
    "--compare",
    nargs=2,
    metavar="A B",
    help="Folders of two audits to compare: loss, duplicates, lag.",
)
@click.option(
    "--plan",
    "rate",
    metavar="RATE",
    help="Rate of a log, 10GB/s or 1PB/day, for an estimate of machines and time.",
)
@click.option(
    "--assume",
    multiple=True,
    metavar="KEY=VALUE",
    help="Assumption of --plan: cores=32, network_gbit=100, …",
)
@json_option
def command(
    paths: tuple[str, ...],
    out: str | None,
    engine: str,
    master: str | None,
    conf: tuple[str, ...],
    processes: int | None,
    columns: str,
    deep: bool,
    mode: Literal["strict", "kafka"],
    topics: tuple[str, ...],
    record_rules: str | None,
    transactions: bool,
    trust_claims: str | None,
    seed: int | None,
    replicas: bool,
    since: str | None,
    reread_ms: int | None,
    fail_on: tuple[str, ...],
    report: Path | None,
    compare: tuple[str, str] | None,
    rate: str | None,
    assume: tuple[str, ...],
    as_json: bool,
    **same_options: Any,
) -> int:
    """Audit the log segments below PATH…: folders or URIs (s3://, hdfs://) with one folder per
    topic-partition.

    Exit code 1 if something was found that --fail-on names, 3 if something could not be read, 0 if
    all is clean.
    """
    if sum((bool(paths), compare is not None, rate is not None)) != 1:
        raise click.UsageError("expected one of PATH…, --compare A B and --plan RATE")
    if "" in (*paths, *(compare or ()), out, since, rate):
        raise click.UsageError(
            "a PATH is empty: expected a folder or URI (check for an unset variable)"
        )
    if not paths and (out, since, report, replicas) != (None, None, None, False):
        raise click.UsageError("--out, --since, --report and --replicas need PATH")
    if reread_ms is not None and since is None:
        raise click.UsageError(
            "--reread needs --since DIR: the earlier audit knows what was read when"
        )
    if assume and rate is None:
        raise click.UsageError("--assume needs --plan RATE")
    trust_rate = trusted_rate(trust_claims, seed, mode)
    if trust_rate is not None and not paths:
        raise click.UsageError("--trust-claims needs PATH")
    if record_rules is not None and not (paths and deep):
        raise click.UsageError(
            "--record-rules needs PATH… and --deep: they are asked of each record"
        )
    names = tuple(name for word in topics for name in word.split(",") if name)
    if topics and not names:
        raise click.UsageError(
            f"invalid --topics {','.join(topics)!r}: expected names or patterns (orders-*)"
        )
    settings = _pairs(conf, "--conf")
    if engine == "local" and (master is not None or conf):
        raise click.UsageError(f"{'--conf' if master is None else '--master'} needs --engine spark")
    if engine == "spark" and processes is not None:
        raise click.UsageError("--processes needs --engine local")
    failing = _failing(fail_on)

    from batchval.audit.arrow_rows import column_names
    from batchval.cli import auditing
    from batchval.segment.options import Options

    if compare is not None:
        return auditing.compare_folders(compare, as_json, bool(failing))
    named = replicas_from(paths) if replicas else ()
    paths = tuple(one.path for one in named) or paths
    options = Options(
        columns=column_names([name.strip() for name in columns.split(",") if name.strip()]),
        deep=deep,
        mode=mode,
        topics=names or None,
        replicas=named,
        trust_claims=trust_rate,
        record_rules=record_rules_from(record_rules),
        seed=seed,
        **same_options,
    )
    if rate is not None:
        return auditing.print_plan(rate, engine, options, _pairs(assume, "--assume"), as_json)
    if since is not None and out is not None and auditing.is_inside(since, out):
        raise click.UsageError(
            "--since is in --out, which a run empties: give another folder to write to"
        )
    return auditing.audit(
        paths,
        options,
        (engine, master, settings, processes),
        (since, reread_ms),
        out,
        report,
        failing,
        as_json,
        transactions,
    )


def _failing(words: Sequence[str]) -> frozenset[Rule]:
    """Return the rules whose findings make the exit code 1."""
    found: set[Rule] = set()
    for word in [name for text in words or ("any",) for name in text.split(",")]:
        if word == "none":
            if len(words) > 1 or "," in words[0]:
                raise click.UsageError("--fail-on none cannot be combined with other values")
            return frozenset()
        named = [
            rule for rule in Rule if word == "any" or word.lower() in (rule.id.lower(), rule.slug)
        ]
        if not named:
            raise click.UsageError(
                f"invalid --fail-on {word!r}: expected any, none or a rule (14, crc-mismatch)"
            )
        found.update(named)
    return frozenset(found)


def _pairs(words: Iterable[str], option: str) -> dict[str, str]:
    pairs = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise click.UsageError(f"invalid {option} {word!r}: expected KEY=VALUE")
        pairs[key.strip()] = value.strip()
    return pairs

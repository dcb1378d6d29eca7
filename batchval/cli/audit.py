"""``batchval audit``: checks whole folders of segments, and compares and plans audits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from batchval.cli.commands import Command
from batchval.cli.exit import FINDINGS, INTERNAL, UNREADABLE
from batchval.cli.options import (
    DURATION,
    FILE,
    SIZE,
    accept_claims_option,
    cleanup_policy_option,
    explained_by,
    finding_columns,
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
from batchval.cli.output import print_json, progress
from batchval.report.units import plural, printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from batchval.audit.audit_run import Engine, Work
    from batchval.audit.manifest import Manifest
    from batchval.audit.reduce import Audit
    from batchval.rules import Rule
    from batchval.segment.options import Options
    from batchval.segment.ranges import Range

__all__ = ["audit", "compare_folders", "is_inside", "print_plan"]

_SHOWN = 200  # findings in the table, files that could not be read; --json and errors/ have all


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
@kafka_version_option("Release of the brokers, whose answers apply.")
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
    from batchval.segment.options import Options

    if compare is not None:
        return compare_folders(compare, as_json, bool(failing))
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
        return print_plan(rate, engine, options, _pairs(assume, "--assume"), as_json)
    if since is not None and out is not None and is_inside(since, out):
        raise click.UsageError(
            "--since is in --out, which a run empties: give another folder to write to"
        )
    return audit(
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
    from batchval.rules import Rule

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


def audit(
    paths: tuple[str, ...],
    options: Options,
    how: tuple[str, str | None, dict[str, str], int | None],
    earlier: tuple[str | None, int | None],
    out: str | None,
    report: Path | None,
    failing: frozenset[Rule],
    as_json: bool,
    transactions: bool,
) -> int:
    """Audit the paths, print what was found and return the exit code.

    ``how``: engine, master, Spark's settings, processes. ``earlier``: --since and --reread.
    ``failing``: rules whose findings make the exit code 1.
    """
    from batchval import __version__
    from batchval.audit import audit_run
    from batchval.audit.local import WorkersLost
    from batchval.named_files import check_outputs, write_text

    since, reread_ms = earlier
    check_outputs(report)
    manifest = _manifest(since, options) if since is not None else None
    todo = audit_run.list_work(paths, options, manifest, reread_ms)

    def ends(found: Audit) -> int:
        if found.unreadable:
            return UNREADABLE
        return FINDINGS if {rule.id for rule in failing} & found.rules().keys() else 0

    try:
        with progress("audit", as_json, lambda: options.readings * todo.bytes) as advance:
            used, engine = _engine(*how, todo.ranges, advance, options.deep)
            found = audit_run.audit(
                todo,
                options,
                engine,
                out,
                run=audit_run.Run(used, since, ends, __version__, advance),
            )
    except WorkersLost as error:
        _say(str(error))
        return INTERNAL
    from batchval.audit.totals import of_tables

    facts = of_tables(found.tables, _SHOWN)
    if transactions:
        _show_transactions(found, as_json)
    if as_json:
        for line in _json_lines(found, options, used, out):
            print_json(line)
    else:
        _show(found, facts, todo, options)
    for lost in (found.unreadable + found.unsettled)[:_SHOWN]:
        _say(f"{lost.uri}: {lost.reason}")
    if len(found.unreadable) > _SHOWN:
        _say(
            f"… and {len(found.unreadable) - _SHOWN:,} more could not be read (--json and errors/ have all)"
        )
    if report is not None:
        from batchval.audit.audit_report import page

        try:
            write_text(report, page(facts))
        except OSError as error:
            _say(f"--report {report}: {error.strerror or error}")
            return UNREADABLE
    return ends(found)


def _manifest(since: str, options: Options) -> Manifest:
    # here, since it makes an array of pyarrow, which imports pandas before batchval.audit.without_pandas
    from batchval.audit.manifest import Manifest

    return Manifest.read(since, options)


def _say(line: str) -> None:
    click.echo(f"batchval audit: {printable(line)}", err=True)


def _engine(
    name: str,
    master: str | None,
    conf: dict[str, str],
    processes: int | None,
    ranges: Sequence[Range],
    advance: Callable[[int], None],
    deep: bool,
) -> tuple[str, Engine]:
    """Return the requested engine, or local processes where Spark cannot start. Print one line
    about the change.
    """
    if name == "spark":
        why = _no_spark(master)
        if why is None:
            from batchval.spark.engine import run_spark

            return "spark", lambda todo, options, out: run_spark(
                todo, options, out, master=master, conf=conf, progress=advance
            )
        if master is not None:
            raise click.UsageError(f"--master {master}: {why}")
        _say(f"{why}; using --engine local")
    from batchval.audit.local import run_local, start_early

    start_early(ranges, processes, deep=deep)
    import batchval.audit.without_pandas  # noqa: F401

    return "local", lambda todo, options, out: run_local(
        todo, options, out, processes, advance, _say
    )


def _no_spark(master: str | None) -> str | None:
    """Return why Spark cannot start here, or None where it can."""
    from importlib.util import find_spec

    from batchval.errors import BatchvalError

    if find_spec("pyspark") is None:
        return "pyspark is not installed (pip install batchval[spark])"
    try:
        import batchval.spark.engine  # noqa: F401
        from batchval.spark.start import java_home
    except ImportError as error:
        return f"Spark cannot be imported: {error}"
    if master is None or not master.startswith("sc://"):
        try:
            java_home()
        except BatchvalError as error:
            return str(error)
    return None


def _show_transactions(found: Audit, as_json: bool) -> None:
    from batchval.segment.transaction_rows import table_of

    if as_json:
        for row in found.transactions:
            print_json(row)
    else:
        click.echo(table_of(found.transactions), nl=False)


def _show(found: Audit, facts: Any, work: Work, options: Options) -> None:
    from batchval.audit.terminal import terminal_summary
    from batchval.report.tables import findings_table

    shown = [*found.findings, *found.gone, *found.notes]
    if shown:
        click.echo(findings_table(shown[:_SHOWN]), nl=False)
    if len(shown) > _SHOWN:
        click.echo(f"… and {len(shown) - _SHOWN:,} more (--json and errors/ have all)")
    click.echo(explained_by(shown), nl=False)
    click.echo(terminal_summary(facts), nl=False)
    if options.trust_claims is not None:
        click.echo(found.trust.words(options.seed))
    if found.moved:
        click.echo(f"{plural(found.moved, 'segment')} deleted or replaced by the broker meanwhile")
    if work.since is not None:
        states = found.states()
        click.echo(f"findings: {', '.join(f'{states[name]:,} {name}' for name in states)}")
    if work.reread:
        click.echo(
            f"{plural(len(work.reread), 'segment')} read again, for the time since they were read"
        )
    if found.skipped:
        click.echo(
            f"{found.skipped:,} of {found.segments:,} segments were not read: nothing was written to them since"
        )


def _json_lines(
    found: Audit, options: Options, engine: str, out: str | None
) -> Iterable[dict[str, Any]]:
    from batchval.segment.store import shown

    for finding in (*found.findings, *found.gone, *found.notes):
        whose = {name: getattr(finding, name) for name in ("topic", "partition", "segment", "file")}
        state = {"state": finding.state.value, "first_seen": finding.first_seen}
        yield {"type": finding.level.value, **whose, **finding_columns(finding), **state}
    yield {
        "type": "summary",
        "kafka_version": options.release.name,
        "engine": engine,
        "out": shown(out) if out is not None else None,
        "segments": found.segments,
        "skipped": found.skipped,
        "grown": found.grown,
        "reread": found.reread,
        "batches": found.batches,
        "records": found.records,
        "bytes": found.bytes,
        "findings": len(found.findings),
        **found.states(),
        "notes": len(found.notes),
        "moved": found.moved,
        "rules": dict(found.rules()),
        "unsettled": [f"{lost.uri}: {lost.reason}" for lost in found.unsettled],
        "unreadable": [f"{lost.uri}: {lost.reason}" for lost in found.unreadable],
        **(
            found.trust.row(options.trust_claims, options.seed)
            if options.trust_claims is not None
            else {}
        ),
    }


def compare_folders(folders: tuple[str, str], as_json: bool, fails: bool) -> int:
    import pyarrow.compute as pc

    from batchval.audit.compare_audits import compare
    from batchval.audit.outputs import ended
    from batchval.audit.stored_audit import read
    from batchval.segment.store import shown

    for folder in folders:
        ended(folder)
    first, second = (read(folder, "summary") for folder in folders)
    for folder, summary in zip(folders, (first, second), strict=True):
        known = pc.sum(read(folder, "segments", ["batches"])["batches"]).as_py() or 0
        if known != (pc.sum(summary["batches"]).as_py() or 0):
            _say(
                f"{shown(folder)}: this audit was made with --since: it counts only the segments "
                "that were new then, so the others appear lost"
            )
    answer = compare(first, second)
    if as_json:
        for row in answer.rows():
            print_json(row)
    else:
        click.echo(answer.table(), nl=False)
    return FINDINGS if answer.differs and fails else 0


def print_plan(
    rate: str, engine: str, options: Options, assumed: dict[str, str], as_json: bool
) -> int:
    import dataclasses

    from batchval.audit.plan import Assumptions, parse_rate, plan

    kinds = {one.name: str(one.type) for one in dataclasses.fields(Assumptions)}
    known: dict[str, Any] = {"engine": engine} | {
        name: getattr(options, name) for name in ("rows", "deep", "split_bytes")
    }
    settable = sorted(set(kinds) - set(known))
    numbers: dict[str, Any] = {}
    for key, value in assumed.items():
        if key not in settable:
            raise click.UsageError(
                f"invalid --assume {key!r}: expected one of {', '.join(settable)}"
            )
        try:
            numbers[key] = int(value) if kinds[key] == "int" else float(value)
        except ValueError:
            raise click.UsageError(f"invalid --assume {key}={value}: expected a number") from None
    answer = plan(parse_rate(rate), Assumptions(**known, **numbers))
    if as_json:
        print_json({"type": "plan", **answer.json()})
    else:
        click.echo(answer.text(), nl=False)
    return 0


def is_inside(since: str, out: str) -> bool:
    """Return whether this run would remove the manifest."""
    from batchval.audit.outputs import place_of

    (a, inner), (b, outer) = place_of(since), place_of(out)
    if "://" not in since and "://" not in out:
        inner, outer = str(Path(inner).resolve()), str(Path(outer).resolve())
    return bool(a == b) and f"{inner}/".startswith(f"{outer}/")

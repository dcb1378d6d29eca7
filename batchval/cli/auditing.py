"""Run ``batchval audit``: read the segments on Spark or local processes, and print the answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchval.cli.exit_codes import FINDINGS, INTERNAL, UNREADABLE
from batchval.cli.options import explained_by, finding_columns
from batchval.cli.output import print_json
from batchval.cli.progress import progress
from batchval.errors import BatchvalError
from batchval.named_files import check_outputs, write_text
from batchval.report.units import plural, printable
from batchval.rules import Rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from batchval.audit.audit_run import Engine, Work
    from batchval.audit.manifest import Manifest
    from batchval.audit.reduce import Audit
    from batchval.segment.options import Options
    from batchval.segment.ranges import Range

__all__ = ["audit", "compare_folders", "is_inside", "print_plan"]

_SHOWN = 200  # findings in the table, files that could not be read; --json and errors/ have all


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
    from batchval.audit.facts import of_tables

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
    # here, since it makes an array of pyarrow, which imports pandas before batchval.audit.lean
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
    import batchval.audit.lean  # noqa: F401

    return "local", lambda todo, options, out: run_local(
        todo, options, out, processes, advance, _say
    )


def _no_spark(master: str | None) -> str | None:
    """Return why Spark cannot start here, or None where it can."""
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

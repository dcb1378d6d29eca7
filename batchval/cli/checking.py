"""Run ``batchval check``: check files, print findings and totals."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from batchval.cli.exit_codes import FINDINGS, UNREADABLE
from batchval.cli.options import explained_by, finding_columns
from batchval.cli.output import note_empty_files, print_json
from batchval.cli.progress import progress
from batchval.cli.standard_input import DASH, spooled
from batchval.core.columns import BatchColumns, scan_batches
from batchval.core.result import CLAIMS
from batchval.core.validator import LogValidator
from batchval.errors import BatchvalError
from batchval.ledger import ClaimsLedger
from batchval.policy import ClaimsPolicy, TopicPolicy
from batchval.report.units import human_bytes, plural, printable
from batchval.segment.check import Summary, check_paths, find_files
from batchval.segment.findings import Finding
from batchval.segment.options import ClaimsJudge, Options
from batchval.segment.salvage import Lost, Salvage, Salvaged
from batchval.segment.transaction_rows import table_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["checker_of", "run"]

_SHOWN = 200  # findings in the table; --json has all


def run(
    paths: tuple[Path, ...],
    options: Options,
    as_json: bool,
    salvage_to: Path | None = None,
    *,
    transactions: bool = False,
) -> int:
    """Check the files of all paths, print the findings and return the exit code."""
    summary = Summary()
    salvage = None
    if salvage_to is not None:
        salvage = Salvage(salvage_to, options)
        salvage.prepare([path for path in paths if path != DASH])
    shown: list[Finding] = []
    with (
        spooled(paths) as (files, copy),
        progress("check", as_json, lambda: options.readings * _total(files)) as advance,
    ):
        for finding in _named(check_paths(files, options, summary, advance, salvage), copy):
            if as_json:
                print_json(_row(finding))
            elif len(shown) < _SHOWN:
                shown.append(finding)
        if copy is not None:
            summary.unreadable = [line.replace(str(copy), str(DASH)) for line in summary.unreadable]
    if salvage is not None:
        salvage.finish()
    for row in summary.transactions if transactions and as_json else ():
        print_json(row)
    if as_json:
        for lost in salvage.done.lost if salvage is not None else ():
            print_json(lost.row())
        trust = (
            {}
            if options.trust_claims is None
            else summary.trust.row(options.trust_claims, options.seed)
        )
        print_json(
            _sums(summary) | trust | (_salvaged(salvage.done) if salvage is not None else {})
        )
    elif summary.files or not summary.unreadable:
        if transactions:
            click.echo(table_of(summary.transactions), nl=False)
        _print_text(summary, shown)
        if options.trust_claims is not None:
            click.echo(summary.trust.words(options.seed))
        if salvage is not None:
            click.echo(_salvage_lines(salvage), nl=False)
    note_empty_files("check", paths)
    for line in (*summary.unreadable, *summary.unsettled):
        click.echo(f"batchval check: {printable(line)}", err=True)
    return UNREADABLE if summary.unreadable else FINDINGS if summary.findings else 0


def _named(findings: Iterator[Finding], copy: Path | None) -> Iterator[Finding]:
    """Yield the findings with ``-`` in place of the copy of standard input."""
    for finding in findings:
        yield finding._replace(file=str(DASH)) if finding.file == str(copy) else finding


def _row(finding: Finding) -> dict[str, Any]:
    return {"type": finding.level.value, "file": finding.file, **finding_columns(finding)}


def _sums(summary: Summary) -> dict[str, Any]:
    return {
        "type": "summary",
        "files": summary.files,
        "batches": summary.batches,
        "records": summary.records,
        "bytes": summary.bytes,
        "paths": dict(summary.paths),
        "claims": dict(summary.claims),
        "findings": summary.findings,
        "reports": summary.reports,
        "notes": summary.notes,
        "moved": summary.moved,
        "unsettled": summary.unsettled,
        "unreadable": summary.unreadable,
    }


def _salvaged(done: Salvaged) -> dict[str, Any]:
    return {
        "salvaged_partitions": done.partitions,
        "salvaged_segments": done.segments,
        "salvaged_batches": done.batches,
        "salvaged_bytes": done.bytes,
        "lost_ranges": len(done.lost),
        "lost_offsets": done.lost_offsets,
    }


def _salvage_lines(salvage: Salvage) -> str:
    """Return a line for each lost range, and one for what was written. Ends a line."""
    done = salvage.done
    lines = [_lost_line(lost) for lost in done.lost[:_SHOWN]]
    if len(done.lost) > _SHOWN:
        more = plural(len(done.lost) - _SHOWN, "more range")
        lines.append(f"… and {more} (lost.jsonl has all)")
    written = f"{plural(done.batches, 'batch')}, {human_bytes(done.bytes)}"
    lines.append(
        f"salvaged {plural(done.partitions, 'partition')}, {written}, to "
        f"{printable(str(salvage.out))}; {plural(done.lost_offsets, 'offset')} lost"
    )
    return "".join(f"{line}\n" for line in lines)


def _lost_line(lost: Lost) -> str:
    offsets = f"offsets {lost.first_offset} to {lost.last_offset} ({plural(lost.offsets, 'offset')}"
    name = f"{lost.topic}-{lost.partition}" if lost.partition >= 0 else lost.topic
    place = f"at position {lost.position} of {Path(lost.file).name}"
    return f"lost: {printable(name)}: {printable(f'{offsets}, {place})')}"


def _print_text(summary: Summary, shown: Sequence[Finding]) -> None:
    if shown:
        from batchval.report.tables import findings_table

        click.echo(findings_table(shown), nl=False)
    hidden = summary.findings + summary.reports + summary.notes - len(shown)
    if hidden > 0:
        click.echo(f"… and {hidden:,} more (--json shows all)")
    click.echo(explained_by(shown), nl=False)
    click.echo(_summary_line(summary))


def _summary_line(summary: Summary) -> str:
    paths = ", ".join(f"{count:,} {path}" for path, count in sorted(summary.paths.items()) if path)
    line = f"{plural(summary.files, 'file')}, {plural(summary.batches, 'batch')}, {plural(summary.records, 'record')}"
    line += f", {human_bytes(summary.bytes)}" + (f" ({paths})" if paths else "")
    if summary.claims:
        line += f", claims: {', '.join(f'{count:,} {answer}' for answer, count in sorted(summary.claims.items()))}"
    line += f": {plural(summary.findings, 'finding')}"
    line += f", {plural(summary.reports, 'report')}" if summary.reports else ""
    line += f", {plural(summary.notes, 'note')}" if summary.notes else ""
    return line + (
        f"; {plural(summary.moved, 'segment')} deleted or replaced meanwhile"
        if summary.moved
        else ""
    )


def checker_of(claims: str, policy: TopicPolicy, mode: str) -> ClaimsJudge | None:
    """Return the function that checks claims in produce batches; None where --claims ignores them.

    All files of one call count as one sender: a file does not prove its writer.
    """
    try:
        wanted = ClaimsPolicy.parse(claims)
    except BatchvalError as error:
        raise click.UsageError(f"--claims: {error}") from None
    if wanted.word == "ignore":
        return None
    if mode == "kafka":
        raise click.UsageError(f"--claims {claims} needs --mode strict: Kafka does not read claims")
    ledger = ClaimsLedger(wanted)

    def judge(validator: LogValidator, data: memoryview, now_ms: int) -> BatchColumns:
        if wanted.word == "audit":
            scanned = scan_batches(data, accept_claims_header=policy.accept_claims_header)
            ranges = list(
                zip(scanned["position"].tolist(), scanned["size_in_bytes"].tolist(), strict=True)
            )
            return ledger.check_ranges(validator, data, ranges, sender="file", now_ms=now_ms)
        decision: Literal["verify", "trust"] = "trust"
        if wanted.word == "verify" or ledger.is_demoted("file", now_ms):
            decision = "verify"
        columns = validator.check_ranges(data, now_ms=now_ms, claims=(None, decision))
        for answer in columns["claims"].tolist():
            if answer:
                ledger.note("file", CLAIMS[answer], now_ms)
        return columns

    return judge


def _total(paths: list[Path]) -> int:
    total = 0
    for file, error in find_files(paths):
        if error is None:
            try:
                total += file.stat().st_size
            except OSError:
                continue
    return total

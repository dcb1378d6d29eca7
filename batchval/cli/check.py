"""``batchval check``: checks segments, folders of segments, and files of batches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from batchval.cli.commands import Command
from batchval.cli.exit import FINDINGS, UNREADABLE
from batchval.cli.options import (
    DASH,
    FILE,
    accept_claims_option,
    cleanup_policy_option,
    explained_by,
    finding_columns,
    json_option,
    kafka_version_option,
    mode_option,
    parse_extras,
    paths_argument,
    policy_from,
    producer_expiration_option,
    record_rules_from,
    record_rules_option,
    replicas_from,
    replicas_option,
    spooled,
    transactions_option,
    trust_claims_options,
    trusted_rate,
)
from batchval.cli.output import note_empty_files, print_json, progress
from batchval.report.units import human_bytes, plural, printable
from batchval.types import DEFAULT_MAX_DECOMPRESSED_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from batchval.core.batches.columns import BatchColumns
    from batchval.core.batches.validator import LogValidator
    from batchval.kafka_versions import Release
    from batchval.policy import TopicPolicy
    from batchval.segment.check import Summary
    from batchval.segment.findings import Finding
    from batchval.segment.options import ClaimsJudge, Options
    from batchval.segment.salvage import Lost, Salvage, Salvaged

__all__ = ["checker_of", "run"]

_SHOWN = 200  # findings in the table; --json has all


@click.command(
    "check",
    cls=Command,
    examples=(
        "batchval check /var/lib/kafka/data/orders-0",
        "batchval check --salvage /tmp/sound /var/lib/kafka/data/orders-0",
        "batchval check --replicas b1=/mnt/b1/data/orders-0 b2=/mnt/b2/data/orders-0",
        "kubectl exec kafka-0 -- cat 00000000000000000000.log | batchval check -",
    ),
)
@paths_argument
@click.option(
    "--as",
    "profile",
    type=click.Choice(["log", "produce"]),
    help=(
        "Profile of all files. Default: log for .log files and standard input, produce for others."
    ),
)
@mode_option
@kafka_version_option("Release of the brokers, whose answers and topic defaults apply.")
@click.option(
    "--extra",
    "extras",
    multiple=True,
    metavar="S1=report",
    help="Extra of strict mode that is reported without a refusal. Can be repeated.",
)
@click.option(
    "--config",
    "config",
    multiple=True,
    metavar="KEY=VALUE",
    help="Topic configuration, such as max.message.bytes=2097152. Can be repeated.",
)
@record_rules_option
@cleanup_policy_option("Cleanup policy of the topic of a segment: compact allows gaps.")
@producer_expiration_option
@transactions_option
@click.option(
    "--max-decompressed-bytes",
    type=int,
    metavar="BYTES",
    default=DEFAULT_MAX_DECOMPRESSED_BYTES,
    show_default=True,
    help="Largest decompressed size of a batch, in strict mode.",
)
@click.option(
    "--now",
    "now_ms",
    type=int,
    metavar="MS",
    help="Time that timestamps are compared with, in the produce profile. Default: the clock.",
)
@accept_claims_option
@trust_claims_options
@replicas_option
@click.option(
    "--claims",
    "claims",
    default="ignore",
    show_default=True,
    metavar="ignore|verify|audit:RATE|trust",
    help="Policy for claims in payloads and headers, in the produce profile.",
)
@click.option(
    "--salvage",
    "salvage",
    type=FILE,
    metavar="OUT",
    help="New folder for the valid batches of each partition and a list of the lost offsets.",
)
@json_option
def command(
    paths: tuple[Path, ...],
    profile: Literal["produce", "log"] | None,
    mode: Literal["strict", "kafka"],
    kafka_version: Release,
    extras: tuple[str, ...],
    config: tuple[str, ...],
    record_rules: str | None,
    cleanup_policy: str,
    producer_id_expiration_ms: int,
    transactions: bool,
    max_decompressed_bytes: int,
    now_ms: int | None,
    accept_claims_header: bool,
    trust_claims: str | None,
    seed: int | None,
    replicas: bool,
    claims: str,
    salvage: Path | None,
    as_json: bool,
) -> int:
    """Check every batch of PATH…: segments (.log), folders of segments, files of batches in a row.

    PATH may be - for standard input. Prints each finding with file, position, offset, rule and
    reason; `batchval rule` explains a rule. Exit code 1 if there is a finding, 3 if something could
    not be read, 0 if all is clean.
    """
    from batchval.segment.options import Options, validator_of

    settings: dict[str, object] = (
        {} if cleanup_policy == "auto" else {"cleanup.policy": cleanup_policy}
    )
    if accept_claims_header:
        settings["accept.claims.header"] = True
    policy = policy_from(config, kafka_version=kafka_version, **settings)
    if cleanup_policy == "auto" and any(word.startswith("cleanup.policy=") for word in config):
        cleanup_policy = policy.cleanup_policy
    if replicas and salvage is not None:
        raise click.UsageError(
            "--salvage cannot be combined with --replicas: name one folder to salvage"
        )
    rate = trusted_rate(trust_claims, seed, mode)
    if rate is not None and salvage is not None:
        raise click.UsageError(
            "--salvage cannot be combined with --trust-claims: it writes only batches "
            "that were read in full"
        )
    if rate is not None and profile == "produce":
        raise click.UsageError(
            "--trust-claims cannot be combined with --as produce: use --claims audit:RATE"
        )
    named = replicas_from([str(path) for path in paths]) if replicas else ()
    paths = tuple(Path(one.path) for one in named) or paths
    options = Options(
        mode=mode,
        kafka_version=kafka_version,
        profile=profile,
        policy=policy,
        cleanup_policy=cleanup_policy,
        producer_id_expiration_ms=producer_id_expiration_ms,
        extras=parse_extras(extras),
        max_decompressed_bytes=max_decompressed_bytes,
        now_ms=now_ms,
        judge_claims=checker_of(claims, policy, mode),
        replicas=named,
        trust_claims=rate,
        record_rules=record_rules_from(record_rules),
        seed=seed,
    )
    if now_ms is not None and not -(1 << 63) <= now_ms < 1 << 63:
        raise click.UsageError(
            f"invalid --now {now_ms}: expected milliseconds since 1970 that fit in 64 bits"
        )
    validator_of(options, "produce")  # report wrong settings before the first file is read
    return run(paths, options, as_json, salvage, transactions=transactions)


def run(
    paths: tuple[Path, ...],
    options: Options,
    as_json: bool,
    salvage_to: Path | None = None,
    *,
    transactions: bool = False,
) -> int:
    """Check the files of all paths, print the findings and return the exit code."""
    from batchval.segment.check import Summary, check_paths
    from batchval.segment.salvage import Salvage
    from batchval.segment.transaction_rows import table_of

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
            _sums(summary, options.release)
            | trust
            | (_salvaged(salvage.done) if salvage is not None else {})
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


def _sums(summary: Summary, kafka_version: Release) -> dict[str, Any]:
    return {
        "type": "summary",
        "kafka_version": kafka_version.name,
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
    from batchval.core.batches.columns import scan_batches
    from batchval.core.batches.result import CLAIMS
    from batchval.errors import BatchvalError
    from batchval.ledger import ClaimsLedger
    from batchval.policy import ClaimsPolicy

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
    from batchval.segment.check import find_files

    total = 0
    for file, error in find_files(paths):
        if error is None:
            try:
                total += file.stat().st_size
            except OSError:
                continue
    return total

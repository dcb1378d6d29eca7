"""``batchval check``: judges segments, folders of them, and raw dumps of batches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import click

from batchval.cli.options import (
    accept_claims_option,
    cleanup_policy_option,
    finding_columns,
    json_option,
    kafka_version_option,
    mode_option,
    parse_extras,
    paths_argument,
    policy_from,
)
from batchval.cli.progress import progress
from batchval.core.columns import BatchColumns, scan_batches
from batchval.core.result import CLAIMS
from batchval.core.validator import LogValidator
from batchval.errors import BatchvalError
from batchval.kafka_versions import KafkaVersionName
from batchval.ledger import ClaimsLedger
from batchval.policy import ClaimsPolicy, TopicPolicy
from batchval.report.tables import findings_table
from batchval.report.words import human_bytes, plural, printable
from batchval.segment.check import ClaimsJudge, FileFinding, Options, Summary, check_paths, find_files
from batchval.types import DEFAULT_MAX_DECOMPRESSED_BYTES

_SHOWN = 200  # findings in the table; --json has all


def _as_json(finding: FileFinding) -> str:
    kind = "report" if finding.reported else "finding"
    return json.dumps({"type": kind, "file": str(finding.file), **finding_columns(finding)})


def _summary_line(summary: Summary) -> str:
    paths = ", ".join(f"{count:,} {path}" for path, count in sorted(summary.paths.items()) if path)
    line = f"{plural(summary.files, 'file')}, {plural(summary.batches, 'batch')}, {plural(summary.records, 'record')}"
    line += f", {human_bytes(summary.bytes)}" + (f" ({paths})" if paths else "")
    if summary.claims:
        line += f", claims: {', '.join(f'{count:,} {answer}' for answer, count in sorted(summary.claims.items()))}"
    return f"{line}: {plural(summary.findings, 'finding')}" + (
        f", {plural(summary.reports, 'report')}" if summary.reports else ""
    )


def _judge_of(claims: str, policy: TopicPolicy, mode: str) -> ClaimsJudge | None:
    """All files of one call are one sender: nothing in them proves who wrote which."""
    try:
        wanted = ClaimsPolicy.parse(claims)
    except BatchvalError as error:
        raise click.UsageError(f"--claims: {error}") from None
    if wanted.word == "ignore":
        return None
    if mode == "kafka":
        raise click.UsageError(f"--claims {claims} needs --mode strict: Kafka's own answer knows no claims")
    ledger = ClaimsLedger(wanted)

    def judge(validator: LogValidator, data: memoryview, now_ms: int) -> BatchColumns:
        if wanted.word == "audit":
            scanned = scan_batches(data, accept_claims_header=policy.accept_claims_header)
            ranges = list(zip(scanned["position"].tolist(), scanned["size_in_bytes"].tolist(), strict=True))
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


def _total(paths: tuple[Path, ...]) -> int:
    total = 0
    for file, error in find_files(list(paths)):
        if error is None:
            try:
                total += file.stat().st_size
            except OSError:
                continue
    return total


@click.command("check", short_help="Judge segments, folders of them, or files of batches.")
@paths_argument
@click.option(
    "--as",
    "profile",
    type=click.Choice(["log", "produce"]),
    help="Profile for all files. Default: log for .log files, produce for others.",
)
@mode_option
@kafka_version_option("Version of the brokers: their answers, and the defaults of a topic.")
@click.option(
    "--extra",
    "extras",
    multiple=True,
    metavar="S1=report",
    help="Only report an extra of strict mode (again for each).",
)
@click.option(
    "--config",
    "config",
    multiple=True,
    metavar="KEY=VALUE",
    help="A topic configuration, such as max.message.bytes=2097152 (again for each).",
)
@cleanup_policy_option("For segments: which gaps are legal.")
@click.option(
    "--max-decompressed-bytes",
    type=int,
    metavar="BYTES",
    default=DEFAULT_MAX_DECOMPRESSED_BYTES,
    show_default=True,
    help="Limit a batch, in strict mode.",
)
@click.option(
    "--now",
    "now_ms",
    type=int,
    metavar="MS",
    help="The time to judge timestamps by, with the produce profile. Default: the clock.",
)
@accept_claims_option
@click.option(
    "--claims",
    "claims",
    default="ignore",
    show_default=True,
    metavar="ignore|verify|audit:RATE|trust",
    help="What to make of claims in headers, with the produce profile. At rest they are always verified.",
)
@json_option
def command(
    paths: tuple[Path, ...],
    profile: Literal["produce", "log"] | None,
    mode: Literal["strict", "kafka"],
    kafka_version: KafkaVersionName,
    extras: tuple[str, ...],
    config: tuple[str, ...],
    cleanup_policy: str,
    max_decompressed_bytes: int,
    now_ms: int | None,
    accept_claims_header: bool,
    claims: str,
    as_json: bool,
) -> int:
    """Judges every batch of PATH…: segments (.log), folders of segments, files of batches back to back.

    Prints each finding with file, position, offset, rule and reason. Exit code 1 if there is one, 3 if something could
    not be read, 0 if all is clean.
    """
    settings: dict[str, object] = {} if cleanup_policy == "auto" else {"cleanup.policy": cleanup_policy}
    if accept_claims_header:
        settings["accept.claims.header"] = True
    policy = policy_from(config, kafka_version=kafka_version, **settings)
    if cleanup_policy == "auto" and any(word.startswith("cleanup.policy=") for word in config):
        cleanup_policy = policy.cleanup_policy
    options = Options(
        mode=mode,
        kafka_version=kafka_version,
        profile=profile,
        policy=policy,
        cleanup_policy=cleanup_policy,
        extras=parse_extras(extras),
        max_decompressed_bytes=max_decompressed_bytes,
        now_ms=now_ms,
        judge_claims=_judge_of(claims, policy, mode),
    )
    if now_ms is not None and not -(1 << 63) <= now_ms < 1 << 63:
        raise click.UsageError(f"--now takes milliseconds, not {now_ms}")
    options.validator("produce")  # wrong settings are refused before the first file
    summary = Summary()
    findings: list[FileFinding] = []
    with progress("check", as_json, lambda: _total(paths)) as advance:
        for finding in check_paths(list(paths), options, summary, advance):
            if as_json:
                click.echo(_as_json(finding))
            elif len(findings) < _SHOWN:
                findings.append(finding)
    if as_json:
        click.echo(
            json.dumps(
                {
                    "type": "summary",
                    "files": summary.files,
                    "batches": summary.batches,
                    "records": summary.records,
                    "bytes": summary.bytes,
                    "paths": dict(summary.paths),
                    "claims": dict(summary.claims),
                    "findings": summary.findings,
                    "reports": summary.reports,
                    "unreadable": summary.unreadable,
                }
            )
        )
    else:
        if findings:
            click.echo(findings_table(findings), nl=False)
        hidden = summary.findings + summary.reports - len(findings)
        if hidden > 0:
            click.echo(f"… and {hidden:,} more (--json shows all)")
        click.echo(_summary_line(summary))
    for line in summary.unreadable:
        click.echo(f"batchval check: {printable(line)}", err=True)
    return 3 if summary.unreadable else 1 if summary.findings else 0

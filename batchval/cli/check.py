"""``batchval check``: checks segments, folders of segments, and files of batches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from batchval.cli.commands import Command
from batchval.cli.options import (
    FILE,
    accept_claims_option,
    cleanup_policy_option,
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
    transactions_option,
    trust_claims_options,
    trusted_rate,
)
from batchval.types import DEFAULT_MAX_DECOMPRESSED_BYTES

if TYPE_CHECKING:
    from batchval.kafka_versions import KafkaVersionName


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
@kafka_version_option("Version of the brokers, whose answers and topic defaults apply.")
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
    kafka_version: KafkaVersionName,
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
    from batchval.cli.checking import checker_of, run
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

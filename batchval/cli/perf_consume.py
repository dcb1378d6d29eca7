"""``batchval perf consume``: Kafka's consumer performance tool, with the threads of KIP-628."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from batchval.cli import perf_options
from batchval.cli.commands import Command
from batchval.cli.exit import FINDINGS, INTERRUPTED, UNREADABLE
from batchval.cli.options import FILE
from batchval.cli.perf_options import INT, LONG
from batchval.errors import ArgumentValueError
from batchval.named_files import check_outputs

if TYPE_CHECKING:
    from batchval.perf.consume import Outcome, Sample

_say = partial(perf_options.say, "consume")


def _date_format(ctx: click.Context, param: click.Parameter, value: str) -> str:
    from batchval.perf.consumer_lines import check_date_format

    try:
        check_date_format(value)
    except ArgumentValueError as error:
        raise click.BadParameter(f"{error}.", ctx, param) from None
    return value


@click.command(
    "consume",
    cls=Command,
    examples=(
        "batchval perf consume --bootstrap-server b:9092 --topic t --num-records 100000",
        "batchval perf consume --bootstrap-server b:9092 --include 't.*' --num-records 9 "
        "--threads 2",
    ),
)
@perf_options.bootstrap_option
@click.option("--topic", metavar="TOPIC", help="Topic to read (required, or --include).")
@click.option(
    "--include", metavar="REGEX", help="Regular expression for the names of the topics to read."
)
@click.option(
    "--num-records",
    type=click.IntRange(1, LONG),
    help="Number of records over all threads (required).",
)
@click.option(
    "--threads",
    type=click.IntRange(1, INT),
    default=10,
    show_default=True,
    help="Number of threads, each with its own consumer.",
)
@perf_options.client_option("reads")
@click.option(
    "--decode",
    type=click.Choice(["records", "headers"]),
    default="records",
    show_default=True,
    help="Decoding: every record, or only batch headers (MB are then wire bytes).",
)
@click.option("--group", metavar="ID", help="Consumer group. Default: perf-consumer-<random>.")
@click.option(
    "--from-latest", is_flag=True, help="Start at the end where the group has no committed offset."
)
@click.option(
    "--fetch-size",
    type=click.IntRange(1, INT),
    default=1_048_576,
    show_default=True,
    help="Bytes per partition in a fetch.",
)
@click.option(
    "--socket-buffer-size",
    type=click.IntRange(1, INT),
    help="Receive buffer of sockets (SO_RCVBUF). Default: the kernel's autotuning.",
)
@click.option("--check-crcs", is_flag=True, help="CRC check of each batch.")
@click.option(
    "--timeout",
    type=click.IntRange(0, LONG // 10**6),
    is_flag=False,
    flag_value=10_000,
    default=10_000,
    show_default=True,
    help="Longest time between records of a thread, in milliseconds; 10000 without a value, too.",
)
@click.option(
    "--show-detailed-stats", is_flag=True, help="One row per thread each --reporting-interval."
)
@click.option(
    "--reporting-interval",
    type=int,
    default=5_000,
    show_default=True,
    help="Milliseconds between rows.",
)
@click.option("--hide-header", is_flag=True, help="Output without the header row.")
@click.option(
    "--date-format",
    metavar="PATTERN",
    callback=_date_format,
    default="yyyy-MM-dd HH:mm:ss:SSS",
    show_default=True,
    help="Format of times: a pattern of Java's SimpleDateFormat, or iso (ISO 8601).",
)
@perf_options.print_metrics_option
@perf_options.properties_options(
    "the consumers", "Consumer property. Can be repeated.", metavar="KEY=VALUE", files=False
)
@perf_options.result_options
@perf_options.broker_list_option
@perf_options.deprecated_option("--messages", "--num-records", type=click.IntRange(1, LONG))
@click.option("--num-fetch-threads", type=int, help="Deprecated, without effect: use --threads.")
@perf_options.deprecated_option("--consumer.config", "--command-config", type=FILE)
def command(**arguments: Any) -> int:
    """Read records with several consumers of one group and print rates in the rows of Kafka's own
    tool.

    The clock starts before the consumers are made; fetch.time.ms when every partition is assigned.
    Exit codes: 0 all records came, 1 fewer (timeout), 2 wrong usage, 3 no broker, no topic or no
    permission, 130 interrupted (the row is printed first).
    """
    from batchval.perf import consumer_lines
    from batchval.perf.consume import ConsumeError
    from batchval.perf.properties import check_servers

    arguments = perf_options.renamed("consume", arguments)
    if arguments["num_fetch_threads"] is not None:
        _say("--num-fetch-threads is deprecated and has no effect, use --threads instead")
    bootstrap, topic, include = (
        arguments["bootstrap_server"],
        arguments["topic"],
        arguments["include"],
    )
    if not bootstrap:
        raise click.UsageError("Missing option '--bootstrap-server'.")
    if not topic and not include:
        raise click.UsageError("Missing option '--topic' or '--include'.")
    if topic and include:
        raise click.UsageError("--topic cannot be combined with --include: use one of them")
    if arguments["num_records"] is None:
        raise click.UsageError("Missing option '--num-records'.")
    if arguments["reporting_interval"] <= 0:
        raise click.UsageError(consumer_lines.INTERVAL_MESSAGE)
    if arguments["decode"] == "headers" and arguments["client"] != "batchval":
        raise click.UsageError(
            "--decode headers needs --client batchval: librdkafka takes every record apart."
        )
    if include:
        try:
            re.compile(include)
        except re.error as error:
            raise click.UsageError(f"--include {include!r}: {error}") from None
    check_servers(bootstrap)
    check_outputs(arguments["output"], arguments["report"])
    arguments["group"] = arguments["group"] or f"perf-consumer-{random.randrange(100_000)}"
    try:
        return _run(arguments)
    except ConsumeError as error:
        _say(str(error))
        return UNREADABLE


def _run(arguments: Mapping[str, Any]) -> int:
    from batchval.cli.output import ProgressLine, how_far
    from batchval.perf import consumer_lines
    from batchval.perf.clients import consumers
    from batchval.perf.consume import ConsumeRun, RunOptions

    properties = _properties(arguments)
    say = partial(click.echo, err=arguments["as_json"])
    if not arguments["hide_header"]:
        say(
            consumer_lines.DETAILED_HEADER
            if arguments["show_detailed_stats"]
            else consumer_lines.SUMMARY_HEADER
        )
    if arguments["decode"] == "headers":
        _say("only batch headers are decoded: MB are wire bytes")
    client = consumers.open_client(arguments, properties, _say)
    partitions = client.partitions
    threads = arguments["threads"]
    if threads > len(partitions):
        say(consumer_lines.threads_warning(threads, len(partitions)))
        threads = len(partitions)
    line = ProgressLine()

    def interval(part: Any) -> None:
        line.echo(
            consumer_lines.detailed_row(part, arguments["date_format"]), err=arguments["as_json"]
        )

    run = ConsumeRun(
        RunOptions(
            arguments["num_records"], threads, arguments["timeout"], arguments["reporting_interval"]
        ),
        client.make,
        partitions,
        on_interval=interval if arguments["show_detailed_stats"] else None,
    )

    def far(sample: Sample) -> None:
        line.show(how_far(sample.records, arguments["num_records"], sample.t_ms / 1000))

    try:
        outcome = run.run(far if line.watched else None)
    finally:
        line.clear()
    if outcome.error is not None and outcome.summary is None:
        raise outcome.error
    if outcome.timed_out and outcome.short:
        say(consumer_lines.timeout_warning(arguments["timeout"]))
    if outcome.summary is not None and not arguments["show_detailed_stats"]:
        say(consumer_lines.summary_row(outcome.summary, arguments["date_format"]))
    if arguments["print_metrics"]:
        for thread, metrics in enumerate(outcome.metrics):
            perf_options.print_metrics(thread, metrics, err=arguments["as_json"])
    if outcome.summary is not None and _kept(arguments):
        _keep(arguments, threads, client.version, outcome)
    if outcome.interrupted:
        _say("interrupted")
        return INTERRUPTED
    if outcome.error is not None:
        raise outcome.error
    if outcome.short and (why := client.last_error()):
        _say(f"the client's last error: {why}")
    return FINDINGS if outcome.short else 0


#: What a result says of its run. Not the properties: passwords are among them.
_SETTINGS = (
    "topic", "include", "num_records", "decode", "group", "from_latest", "fetch_size", "socket_buffer_size",
    "check_crcs", "timeout",
)  # fmt: skip


def _keep(arguments: Mapping[str, Any], threads: int, version: str, outcome: Outcome) -> None:
    """Write the result to a file, for perf merge and compare, and as a page."""
    from batchval.perf.results import Result

    summary = outcome.summary
    assert summary is not None
    intervals = []
    at = (0.0, 0, 0)
    for sample in outcome.samples:
        if sample.t_ms > at[0]:
            intervals.append(
                {
                    "t_ms": round(sample.t_ms, 3),
                    "records": sample.records - at[1],
                    "bytes": sample.bytes - at[2],
                }
            )
            at = (sample.t_ms, sample.records, sample.bytes)
    result = Result(
        kind="consume",
        client=arguments["client"],
        settings={name: arguments[name] for name in _SETTINGS} | {"threads": threads},
        totals={
            "records": summary.records,
            "bytes": summary.bytes,
            "elapsed_ns": outcome.elapsed_ns,
            "rebalance_ms": summary.rebalance_ms,
            "fetch_ms": summary.fetch_ms,
            "start_ms": summary.start_ms,
            "assigned_ms": outcome.assigned_ms,
            "end_ms": summary.end_ms,
        },
        intervals=intervals,
        histogram=None,
    )
    result.versions["client"] = version
    _kept(arguments).keep(result)


def _kept(arguments: Mapping[str, Any]) -> perf_options.Kept:
    return perf_options.Kept(arguments["output"], arguments["as_json"], arguments["report"])


def _properties(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the file's properties, replaced by those of the command line."""
    from batchval.perf.properties import gathered

    files = [arguments["command_config"]] if arguments["command_config"] is not None else []
    return gathered(files, arguments["command_property"])

"""``batchval perf roundtrip``: produce and consume in one run, and the latency from intent to
consumer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from batchval.cli import perf_options
from batchval.cli.commands import Command
from batchval.cli.exit import FINDINGS, INTERRUPTED, UNREADABLE, USAGE
from batchval.cli.options import FILE
from batchval.cli.perf_options import INT
from batchval.named_files import check_outputs

if TYPE_CHECKING:
    from batchval.perf.producer_lines import Window
    from batchval.perf.roundtrip import Figures, OpenClients, RoundtripRun
    from batchval.perf.workload import Workload

_say = partial(perf_options.say, "roundtrip")


@click.command(
    "roundtrip",
    cls=Command,
    examples=(
        "batchval perf roundtrip --bootstrap-server b:9092 --workload workload.yaml",
        "batchval perf roundtrip --bootstrap-server b:9092 --workload workload.yaml --json",
    ),
)
@perf_options.bootstrap_option
@click.option(
    "--workload", type=FILE, metavar="FILE", required=True, help="Topics, rates and sizes, in YAML."
)
@perf_options.client_option("sends and reads")
@perf_options.properties_options("all clients", "Property of all clients. Can be repeated.")
@click.option(
    "--timeout", type=click.IntRange(0, INT), default=10_000, show_default=True, metavar="MS",
    help="Longest time that a consumer waits for missing records.",
)  # fmt: skip
@perf_options.reporting_interval_option("Time between lines on stderr, in milliseconds.")
@perf_options.result_options
def command(**options: Any) -> int:
    """Produce and consume the topics of a workload, and print two latencies for each: from the time
    at which the schedule intended a record to its acknowledgement, and to the time at which a
    consumer received it.

    Producers and consumers are threads of one process, so that one monotonic clock serves both. The
    schedule begins when all consumers have their partitions.

    Exit codes: 0 all records were acknowledged and read, 1 some failed, or were lost, doubled or
    reordered where that must not be, 2 wrong usage or workload, 3 no broker, no topic or no
    permission, 130 interrupted (what was sent is waited for up to 10 s, and the totals are printed;
    a second time: not waited for).
    """
    from batchval.perf import properties
    from batchval.perf.consume import ConsumeError
    from batchval.perf.produce import ProduceError
    from batchval.perf.roundtrip import open_clients
    from batchval.perf.workload import load
    from batchval.yaml_settings.yaml_values import ConfigError

    common = properties.gathered(options["command_config"], options["command_property"])
    if options["bootstrap_server"] is not None:
        common["bootstrap.servers"] = options["bootstrap_server"]
    if not common.get("bootstrap.servers"):
        raise click.UsageError("Missing option '--bootstrap-server'.")
    properties.check_servers(common["bootstrap.servers"])
    try:
        workload = load(options["workload"], common, own_client=options["client"] == "batchval")
    except ConfigError as error:
        for problem in error.problems:
            _say(problem)
        return USAGE
    check_outputs(options["output"], options["report"])
    try:
        return _run(options, workload, open_clients(options["client"], workload, common, _say))
    except (ConsumeError, ProduceError) as error:
        _say(str(error))
        return UNREADABLE


def _run(options: Mapping[str, Any], workload: Workload, opened: OpenClients) -> int:
    from batchval.perf.producer_lines import interval_line
    from batchval.perf.roundtrip import RoundtripRun, partitions_of

    def report(window: Window) -> None:
        click.echo(_read(interval_line(window)), err=True)

    partitions = partitions_of(opened.setup, workload.topics)
    run = RoundtripRun(
        workload,
        partitions,
        opened.clients,
        many_values=opened.producer.get("compression.type", "none") != "none",
        timeout_ms=options["timeout"],
        reporting_interval_ms=options["reporting_interval"],
        on_interval=report,
    )
    error = None
    try:
        run.run()
    except Exception as raised:
        if not run.begin_ns:
            raise
        error = raised  # the totals of what was sent and read are printed before it
    for line in _lines(run):
        click.echo(line, err=options["as_json"])
    _keep(options, opened, workload, run)
    return _verdict(run, opened.producer, error)


def _read(line: str) -> str:
    """Return a line of records sent as one of records read."""
    return line.replace(" records sent, ", " records read, ", 1)


def _lines(run: RoundtripRun) -> Iterator[str]:
    """Yield two lines for each topic, and two for all."""
    named = [(topic.topic.name, topic.published(), topic.read()) for topic in run.topics]
    for name, published, read in [*named, ("total", run.published(), run.read())]:
        yield f"{name} published: {_line(published)}"
        yield f"{name} end to end: {_read(_line(read))}"


def _line(figures: Figures) -> str:
    from batchval.perf.producer_lines import total_line

    return total_line(figures.histogram, figures.value_bytes, figures.elapsed_ns)


def _keep(
    options: Mapping[str, Any], opened: OpenClients, workload: Workload, run: RoundtripRun
) -> None:
    from batchval.perf.properties import shown
    from batchval.perf.results import Result

    read, published = run.read(), run.published()
    totals = _totals(read) | {
        "published": _totals(published),
        "interrupted": run.interrupted,
        "topics": {
            topic.topic.name: _totals(topic.read())
            | {
                "published": _totals(topic.published()),
                "errors": dict(topic.producing.total().errors),
            }
            | topic.findings()
            for topic in run.topics
        },
    }
    settings = workload.model_dump(mode="json", exclude={"producer", "consumer"})
    settings |= {"producer": shown(opened.producer), "consumer": shown(opened.consumer)}
    result = Result(
        "roundtrip", options["client"], settings, totals, run.intervals, None, read.histogram
    )
    result.versions["client"] = opened.version
    _kept(options).keep(result)


def _kept(options: Mapping[str, Any]) -> perf_options.Kept:
    return perf_options.Kept(options["output"], options["as_json"], options["report"])


def _totals(figures: Figures) -> dict[str, Any]:
    return {
        "records": figures.histogram.count,
        "bytes": figures.value_bytes,
        "elapsed_ns": figures.elapsed_ns,
        "histogram": figures.histogram.to_json(),
    }


def _verdict(run: RoundtripRun, producer: Any, error: Exception | None) -> int:
    """Say what went wrong, and return the exit code."""
    ordered = producer.get("enable.idempotence", "").lower() == "true"
    promised = {"failed": True, "unanswered": True, "lost": producer.get("acks") != "0"}
    promised |= {"doubled": ordered, "reordered": ordered, "foreign": False}
    words = {
        "failed": "records failed",
        "unanswered": "records were sent and not answered before the end",
        "lost": "acknowledged records were not read",
        "doubled": "records were read twice",
        "reordered": "records were read after later ones of their partition",
        "foreign": "records of other producers were read and not counted",
    }
    broken = False
    for topic in run.topics:
        for name, count in topic.findings().items():
            if count:
                why = f": {_errors(topic.producing.total().errors)}" if name == "failed" else ""
                _say(f"{topic.topic.name}: {count} {words[name]}{why}")
                broken |= promised[name]
        if text := topic.last_error():
            _say(f"{topic.topic.name}: the last error of a consumer: {text}")
    if run.interrupted:
        _say("interrupted")
        return INTERRUPTED
    if error is not None:
        raise error
    return FINDINGS if broken else 0


def _errors(errors: Any) -> str:
    return ", ".join(f"{name} {count}" for name, count in errors.most_common())

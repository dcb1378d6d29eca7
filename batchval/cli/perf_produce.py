"""``batchval perf produce``: Kafka's producer performance tool, in microseconds and with
threads.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from batchval.cli import perf_options
from batchval.cli.commands import Command
from batchval.cli.exit import FINDINGS, INTERRUPTED, UNREADABLE
from batchval.cli.options import FILE
from batchval.cli.perf_options import INT, LONG
from batchval.named_files import check_outputs, write_text

if TYPE_CHECKING:
    from pathlib import Path

    from batchval.perf.calibrate import Calibration
    from batchval.perf.clients.producers import ClientChoice
    from batchval.perf.produce import ProduceRun
    from batchval.perf.producer_lines import Window
    from batchval.perf.tally import Tally

_say = partial(perf_options.say, "produce")


class _WithProps(Command):
    """Kafka's tools take several NAME=VALUE after one --producer-props or --command-property."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        found: list[str] = []
        taking = ""
        for arg in args:
            if arg in {"--producer-props", "--command-property"}:
                taking = arg
            elif taking and not arg.startswith("-") and found[-1] != taking:
                found.append(taking)
            elif arg.startswith("-"):
                taking = ""
            found.append(arg)
        return super().parse_args(ctx, found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """The options of the command, without the deprecated ones."""

    topic: str
    bootstrap_server: str | None
    num_records: int | None
    duration: float | None
    record_size: int | None
    payload_file: Path | None
    payload_delimiter: str
    payload_monotonic: bool
    seed: int
    throughput: float
    threads: int
    warmup_records: int
    partition: int | None
    partitioner: str
    acks: str | None
    max_in_flight: int | None
    compression_type: str | None
    idempotence: bool | None
    transactional_id: str | None
    transaction_duration_ms: int | None
    claims: str
    client: str
    command_config: tuple[Path, ...]
    command_property: tuple[str, ...]
    reporting_interval: int
    latency_unit: str
    calibrate: bool
    print_metrics: bool
    output: Path | None
    as_json: bool
    report: Path | None
    histogram_file: Path | None

    @property
    def client_choice(self) -> ClientChoice:
        """Return what the producers are opened with."""
        from batchval.perf.clients.producers import ClientChoice

        return ClientChoice(
            self.client,
            self.topic,
            threads=self.threads,
            partition=self.partition,
            partitioner=self.partitioner,
            claims=self.claims,
            transactional_id=self.transactional_id,
        )


#: What a result says of its run. Not the properties as they are: passwords are among them.
_SETTINGS = (
    "topic", "num_records", "duration", "record_size", "payload_monotonic", "throughput", "threads",
    "warmup_records", "partition", "partitioner", "claims", "transaction_duration_ms", "seed",
)  # fmt: skip


@click.command(
    "produce",
    cls=_WithProps,
    examples=(
        "batchval perf produce --bootstrap-server b:9092 --topic t --num-records 9 --record-size 9",
        "batchval perf produce --bootstrap-server b:9092 --topic t --duration 60 --record-size 9",
    ),
)
@perf_options.bootstrap_option
@click.option("--topic", metavar="TOPIC", required=True, help="Topic to write to.")
@click.option(
    "--num-records",
    type=click.IntRange(1, LONG),
    help="Number of records over all threads (required, or --duration).",
)
@click.option(
    "--duration",
    type=click.FloatRange(0, 1e9, min_open=True),
    metavar="S",
    help="Seconds to send.",
)
@click.option(
    "--record-size", type=click.IntRange(0, INT), metavar="BYTES", help="Size of each value."
)
@click.option(
    "--payload-file",
    type=FILE,
    metavar="FILE",
    help="File of values: each record gets a random one.",
)
@click.option(
    "--payload-delimiter",
    default="\\n",
    show_default=True,
    help="Separator of the values in the file: a regular expression.",
)
@click.option("--payload-monotonic", is_flag=True, help="Values 0, 1, 2, … as text.")
@click.option("--seed", type=int, default=0, show_default=True, help="Random seed.")
@click.option(
    "--throughput",
    type=click.FloatRange(-1, 1e9),
    default=-1,
    show_default=True,
    help="Records per second over all threads. -1: no limit.",
)
@click.option(
    "--threads",
    type=click.IntRange(1, 1024),
    default=1,
    show_default=True,
    help="Number of threads, each with its own producer.",
)
@click.option(
    "--warmup-records",
    type=click.IntRange(0, LONG),
    default=0,
    help="Number of first records that the second line of totals leaves out.",
)
@click.option("--partition", type=click.IntRange(0, INT), help="Partition of all records.")
@click.option(
    "--partitioner",
    type=click.Choice(["default", "round_robin", "murmur2"]),
    default="default",
    show_default=True,
    help="Partitioner. default: one partition until its batch is full.",
)
@click.option(
    "--acks",
    type=click.Choice(["all", "-1", "1", "0"]),
    help="Acknowledgements to wait for. Default: all.",
)
@click.option(
    "--max-in-flight",
    type=click.IntRange(1, 1_000_000),
    help="Requests in flight per connection. Default: 5.",
)
@click.option(
    "--compression-type",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    help="Compression codec. Default: none.",
)
@click.option(
    "--idempotence/--no-idempotence",
    default=None,
    help="Idempotence. Default: on if --acks and --max-in-flight allow it.",
)
@click.option(
    "--transactional-id", metavar="ID", help="Transactional id; records are sent in transactions."
)
@click.option(
    "--transaction-duration-ms",
    type=click.IntRange(1, INT),
    help="Duration of each transaction. Default: 3000.",
)
@click.option(
    "--claims",
    type=click.Choice(["tag", "payload", "none"]),
    default="none",
    show_default=True,
    help="Claims to attach to batches.",
)
@perf_options.client_option("sends")
@perf_options.properties_options("the producers", "Producer properties, one or more.")
@perf_options.reporting_interval_option("Time between lines, in milliseconds.")
@perf_options.latency_unit_option
@click.option(
    "--calibrate",
    is_flag=True,
    help=(
        "Measurement of the tool itself afterwards, at a built-in broker of known delay, "
        "for at most 5 s."
    ),
)
@perf_options.print_metrics_option
@perf_options.result_options
@click.option(
    "--histogram",
    "histogram_file",
    type=FILE,
    metavar="FILE",
    help="File for the latencies as an HdrHistogram log.",
)
@perf_options.broker_list_option
@perf_options.deprecated_option(
    "--producer-props", "--command-property", multiple=True, metavar="NAME=VALUE"
)
@perf_options.deprecated_option("--producer.config", "--command-config", type=FILE, multiple=True)
def command(**arguments: Any) -> int:
    """Send records and print rates and latencies in the lines of Kafka's own tool, in microseconds.

    Exit codes: 0 all were acknowledged, 1 some failed, 2 wrong usage, 3 no broker, no topic or no
    permission, 130 interrupted (what was sent is waited for up to 10 s, and the totals are printed;
    a second time: not waited for).
    """
    from batchval.perf import properties
    from batchval.perf.produce import ProduceError

    options = _Options(**perf_options.renamed("produce", arguments))
    _check(options)
    found = properties.gathered(options.command_config, options.command_property)
    options, found = _settled(options, found)
    if not found.get("bootstrap.servers"):
        raise click.UsageError("Missing option '--bootstrap-server'.")
    properties.check_servers(found["bootstrap.servers"])
    check_outputs(options.output, options.histogram_file, options.report)
    try:
        return _run(options, found)
    except ProduceError as error:
        _say(str(error))
        return UNREADABLE


def _check(options: _Options) -> None:
    """Check the options against each other. Raises UsageError."""
    if options.num_records is None and options.duration is None:
        raise click.UsageError("Missing option '--num-records' or '--duration'.")
    payloads = [
        options.record_size is not None,
        options.payload_file is not None,
        options.payload_monotonic,
    ]
    if sum(payloads) != 1:
        raise click.UsageError(
            "Give one of '--record-size', '--payload-file' and '--payload-monotonic'."
        )
    if options.duration is not None and not options.duration > 0:
        raise click.UsageError(f"invalid --duration {options.duration}: expected seconds above 0")
    if not (options.throughput == -1 or options.throughput > 0):
        raise click.UsageError(
            f"invalid --throughput {options.throughput}: expected a number above 0, or -1"
        )
    if options.num_records is not None and options.warmup_records >= options.num_records:
        raise click.UsageError("--warmup-records must be less than --num-records.")
    if options.claims != "none" and options.client != "batchval":
        raise click.UsageError(f"--claims {options.claims} needs --client batchval.")
    if options.partition is not None and options.partitioner != "default":
        raise click.UsageError("--partition cannot be combined with --partitioner: use one of them")


def _settled(options: _Options, properties: Mapping[str, str]) -> tuple[_Options, dict[str, str]]:
    """Return the properties with the options, which replace them, and the options with what follows
    from both. Raises UsageError.
    """
    named = options.transactional_id
    if options.transaction_duration_ms is not None and named is None:
        named = f"perf-producer-{time.time_ns():x}"
    flags = {
        "bootstrap.servers": options.bootstrap_server,
        "acks": options.acks,
        "max.in.flight.requests.per.connection": options.max_in_flight,
        "compression.type": options.compression_type,
        "transactional.id": named,
    }
    found = {**properties, **{name: str(flag) for name, flag in flags.items() if flag is not None}}
    if options.idempotence is not None:
        found["enable.idempotence"] = str(options.idempotence).lower()
    transactional = "transactional.id" in found
    duration_ms = options.transaction_duration_ms
    if transactional and duration_ms is None:
        duration_ms = 3000
    cap = found.setdefault("max.in.flight.requests.per.connection", "5")
    possible = found.setdefault("acks", "all") in {"all", "-1"} and cap.isdigit() and int(cap) <= 5
    wanted = found.setdefault("enable.idempotence", str(possible).lower()).lower() == "true"
    if (wanted or transactional) and not possible:
        what = "transactions need" if transactional else "idempotence needs"
        raise click.UsageError(f"{what} --acks all and --max-in-flight of at most 5.")
    settled = replace(
        options,
        transactional_id=found.get("transactional.id"),
        transaction_duration_ms=duration_ms,
    )
    return settled, found


def _payloads(options: _Options, found: Mapping[str, str]) -> Any:
    """Return a factory of one thread's values. Validates the options of all threads first."""
    from batchval.perf.payloads import FilePayloads, Letters, Monotonic, Payloads, parts_of

    for name, usual in (("max.request.size", "1048576"), ("buffer.memory", "33554432")):
        limit = found.get(name, usual)
        if options.record_size is not None and limit.isdigit() and options.record_size > int(limit):
            raise click.UsageError(
                f"--record-size {options.record_size} is above {name}, which is {limit}."
            )
    compressed = found.get("compression.type", "none").lower() != "none"
    parts = (
        []
        if options.payload_file is None
        else parts_of(options.payload_file, options.payload_delimiter)
    )

    def make(thread: int) -> Payloads:
        seed = options.seed * 1024 + thread
        if parts:
            return FilePayloads(parts, seed=seed)
        if options.payload_monotonic:
            return Monotonic(thread, options.threads)
        assert options.record_size is not None  # _check
        return Letters(options.record_size, many=compressed, seed=seed)

    return make


def _run(options: _Options, found: Mapping[str, str]) -> int:
    from batchval.cli.output import ProgressLine, how_far
    from batchval.perf.clients import producers
    from batchval.perf.produce import ProduceRun, ProduceSettings
    from batchval.perf.producer_lines import interval_line

    unit = options.latency_unit
    client = producers.open_client(options.client_choice, found, _say)
    settings = ProduceSettings(
        num_records=options.num_records,
        duration_s=options.duration,
        throughput=options.throughput,
        warmup_records=options.warmup_records,
        threads=options.threads,
        reporting_interval_ms=options.reporting_interval,
        transaction_duration_ms=options.transaction_duration_ms,
    )

    line = ProgressLine()

    def interval(window: Window, _: Mapping[str, Any]) -> None:
        line.echo(interval_line(window, unit), err=options.as_json)

    def far(acked: int, seconds: float) -> None:
        line.show(how_far(acked, options.num_records, seconds, options.duration))

    make_payloads = _payloads(options, found)
    run = ProduceRun(settings, client.make, make_payloads, interval, client.new_loop)
    run.on_progress = far if line.watched else None
    begin = time.time()
    error = None
    try:
        run.run()
    except Exception as raised:
        if not run.begin_ns:
            raise
        error = raised  # the totals of what was sent are printed before it
    finally:
        line.clear()
    total = run.total()
    if unit == "us":
        for text in _details(run, total):
            click.echo(text, err=True)
    calibration = None
    if options.calibrate and error is None and not run.interrupted:
        calibration = _calibrated(options, found, run, make_payloads)
    for text in _lines(run, total, unit):
        click.echo(text, err=options.as_json)
    if options.print_metrics:
        for worker in run.workers:
            perf_options.print_metrics(worker.number, worker.client.metrics(), err=options.as_json)
    _files(options, found, client.version, run, total, begin, calibration)
    return _verdict(run, total, error)


def _details(run: ProduceRun, total: Tally) -> Iterator[str]:
    """Yield the other figures of a run; after a warm-up, those of the steady state.

    They are printed before the totals, so that a total is the last line after ``2>&1`` too.
    """
    from batchval.perf.producer_lines import fixed, in_flight_line, latency_line, second_line

    seen = run.steady() or total
    each, over_all, sampled = run.in_flight()
    yield second_line(seen.headline, seen.value_bytes, seen.wire_bytes, seen.elapsed_ns)
    if seen.scheduled and seen.latencies.count:
        yield latency_line("latency from the send", seen.latencies)
    if seen.wire.count:
        yield f"{latency_line('on the wire', seen.wire)}, {seen.wire.count} requests"
    if (counted := run.round_trips()) is not None:
        mean = fixed(counted.sum_us / counted.count / 1000, 3)
        yield f"on the wire: average {mean} (ms), {counted.count} requests as librdkafka counts"
    if seen.scheduled and (rate := seen.sent_per_second) is not None:
        yield f"first to last send: {fixed(rate, 3)} records/s"
    yield in_flight_line(each, over_all, sampled=sampled)


def _calibration_lines(found: Calibration) -> Iterator[str]:
    """Yield what the tool measures where the broker's part is known; it is subtracted nowhere."""
    from batchval.perf.producer_lines import latency_line

    yield latency_line(f"calibration, a broker of {found.delay_us} us", found.tally.headline)
    if found.tally.wire.count:
        yield latency_line("calibration on the wire", found.tally.wire)


def _calibrated(
    options: _Options, found: Mapping[str, str], run: ProduceRun, make_payloads: Any
) -> dict[str, Any] | None:
    """Run once more at a broker of known delay, print what that shows, and return it for the
    result.
    """
    from batchval.errors import BatchvalError
    from batchval.perf import calibrate
    from batchval.perf.clients import producers

    def open_at(bootstrap: str) -> Any:
        return producers.open_client(
            options.client_choice, calibrate.plain(found, bootstrap), lambda _: None
        )

    try:
        measured = calibrate.calibrate(run, open_at, make_payloads, calibrate.delay_like(run))
    except (BatchvalError, OSError) as raised:  # the run's own result must not be lost
        _say(f"no calibration: {raised}")
        return None
    for text in _calibration_lines(measured):
        click.echo(text, err=True)
    return measured.as_json()


def _lines(run: ProduceRun, total: Tally, unit: str) -> Iterator[str]:
    """Yield Kafka's lines at the end of a run: readers take the last, which may be steady."""
    from batchval.perf.producer_lines import total_line

    steady = run.steady()
    yield total_line(total.headline, total.value_bytes, total.elapsed_ns, unit)
    if steady is not None:
        yield total_line(
            steady.headline, steady.value_bytes, steady.elapsed_ns, unit, steady_state=True
        )


def _files(
    options: _Options,
    found: Mapping[str, str],
    version: str,
    run: ProduceRun,
    total: Tally,
    begin: float,
    calibration: dict[str, Any] | None,
) -> None:
    from batchval.perf.properties import shown
    from batchval.perf.results import Result, hdr_log

    steady = run.steady()
    if options.histogram_file is not None:
        seen = total if steady is None else steady
        length = seen.elapsed_ns / 1e9
        start = (seen.begin_ns - total.begin_ns) / 1e9
        parts: list[tuple[str | None, float, float, Any]] = [(None, start, length, seen.headline)]
        parts += [
            (tag, start, length, histogram)
            for tag, histogram in (
                ("send", seen.latencies if seen.scheduled else None),
                ("wire", seen.wire),
            )
            if histogram is not None and histogram.count
        ]
        write_text(options.histogram_file, hdr_log(parts, begin))
    kept = perf_options.Kept(options.output, options.as_json, options.report)
    if not kept:
        return
    each, over_all, sampled = run.in_flight()
    totals = {
        **total.as_json(),
        "highest_in_flight": {str(node): highest for node, highest in each.items()},
        "highest_in_flight_total": over_all,
        "highest_in_flight_sampled": sampled,
        "unanswered": run.unanswered,
        "interrupted": run.interrupted,
        "client_round_trips": None if (counted := run.round_trips()) is None else counted.as_json(),
        "steady_state": None
        if steady is None
        else steady.as_json() | {"histogram": steady.headline.to_json()},
    }
    settings = {name: getattr(options, name) for name in _SETTINGS} | {"properties": shown(found)}
    result = Result(
        "produce",
        options.client,
        settings,
        totals,
        run.intervals,
        total.latencies,
        histogram_intended=total.intended if total.scheduled else None,
        histogram_wire=total.wire if total.wire.count else None,
        calibration=calibration,
    )
    result.versions["client"] = version
    kept.keep(result)


def _verdict(run: ProduceRun, total: Tally, error: BaseException | None) -> int:
    if total.failed:
        names = ", ".join(f"{name} {count}" for name, count in total.errors.most_common())
        _say(f"{total.failed} records failed: {names}")
    if run.unanswered:
        _say(f"{run.unanswered} records were sent and not answered before the end")
    if run.interrupted:
        _say("interrupted")
        return INTERRUPTED
    if error is not None:
        raise error
    return FINDINGS if total.failed or run.unanswered else 0

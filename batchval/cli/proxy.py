"""``batchval proxy``: the gate in front of a cluster."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchval.cli.commands import Command
from batchval.cli.exit import INTERRUPTED, USAGE, discard_output
from batchval.cli.options import FILE, json_option
from batchval.cli.output import print_json

if TYPE_CHECKING:
    import asyncio
    import logging

    from batchval.proxy.life.handover import TakeOver
    from batchval.proxy.life.lifecycle import Life
    from batchval.proxy.life.settings_file import SettingsFile
    from batchval.proxy.settings import loading
    from batchval.proxy.settings.config import Settings

__all__ = [
    "EarlyReload",
    "check_certificates",
    "check_files",
    "check_upstreams",
    "draft_of",
    "file_of",
    "metrics_address_of",
    "run",
    "state_folder_of",
]


class EarlyReload:
    """Notes SIGHUP from now on: the signal would end the process until the event loop takes it. For
    the main thread.

    Settings and certificates that were replaced just before the signal may have been read before
    that, so the loop reloads at once where one was noted.
    """

    def __init__(self) -> None:
        self._is_asked = False
        signal.signal(signal.SIGHUP, self._note)

    def _note(self, *_: object) -> None:
        self._is_asked = True

    def resume(self, reload: Callable[[], object]) -> None:
        """Ask for a reload where SIGHUP came. Another handler must have taken its place before."""
        if self._is_asked:
            self._is_asked = False
            reload()


#: Stands for --clients without an address; no argument of a process can hold it.
_OF_CONFIG = "\0"


@click.command(
    "proxy",
    cls=Command,
    examples=(
        "batchval proxy --listen :9092 --upstream kafka-1:9092",
        "batchval proxy --config gate.yaml --check-config",
        "batchval proxy --config gate.yaml --report",
        "batchval proxy --clients http://127.0.0.1:9464 --slowest",
    ),
)
@click.option(
    "--listen", metavar="HOST:PORT", help="Address for clients. Brokers get the ports above it."
)
@click.option("--upstream", metavar="HOST:PORT[,HOST:PORT...]", help="Brokers of the cluster.")
@click.option(
    "--config",
    type=FILE,
    metavar="FILE",
    help="Settings file (YAML). Command-line options win.",
)
@click.option(
    "--check-config",
    is_flag=True,
    help="Check of settings, files, upstreams and certificates, without a start.",
)
@click.option(
    "--print-config", is_flag=True, help="All settings as YAML, secrets hidden, without a start."
)
@click.option(
    "--take-over",
    is_flag=True,
    help="Takeover of the running gate's ports; the old gate drains and ends.",
)
@click.option(
    "--report",
    "as_report",
    is_flag=True,
    help="Report of refused or observed batches and their clients, without a start.",
)
@click.option(
    "--clients",
    metavar="HOST:PORT",
    is_flag=False,
    flag_value=_OF_CONFIG,
    help="Metrics address of a running gate, to list its clients. Default: that of --config.",
)
@click.option(
    "--slowest", is_flag=True, help="Order of --clients by mean latency, the longest first."
)
@click.option(
    "--state-directory",
    type=FILE,
    metavar="DIR",
    help="Folder for the counts of --report. Default: $STATE_DIRECTORY.",
)
@click.option(
    "--mode", metavar="MODE", help="Mode: observe (default; forward, count and log), or enforce."
)
@click.option(
    "--claims-in",
    metavar="POLICY",
    help="Policy for clients' claims: ignore (default), verify, audit:RATE or trust.",
)
@click.option(
    "--claims-out",
    metavar="WHAT",
    help="Claims for brokers: none (default), tag or payload.",
)
@click.option("--log-format", metavar="FORMAT", help="Log format: text (default) or json.")
@click.option(
    "--workers",
    metavar="N",
    help="Number of processes that serve clients: 1 (default) to 64, or auto.",
)
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    help="Address of /metrics, /clients, /readyz. Default: 127.0.0.1:9464.",
)
@json_option
def command(
    listen: str | None,
    upstream: str | None,
    config: Path | None,
    check_config: bool,
    print_config: bool,
    take_over: bool,
    as_report: bool,
    clients: str | None,
    slowest: bool,
    state_directory: Path | None,
    mode: str | None,
    claims_in: str | None,
    claims_out: str | None,
    log_format: str | None,
    workers: str | None,
    metrics: str | None,
    as_json: bool,
) -> int:
    """Run a proxy between clients and brokers, which need no change, and refuse bad batches as a
    broker would.

    Runs until SIGTERM or SIGINT, then delivers what is under way. Settings and certificates are
    read again on SIGHUP, settings also when their file has changed (reload.watch). With --take-over
    a new gate replaces one that runs, on the same ports.
    """
    if as_json and not as_report and clients is None:
        raise click.UsageError(
            "--json needs --report or --clients (the log is JSON with --log-format json)"
        )
    if slowest and clients is None:
        raise click.UsageError("--slowest needs --clients")
    _refuse_two(
        {
            "--report": as_report,
            "--clients": clients is not None,
            "--check-config or --print-config": check_config or print_config,
            "--take-over": take_over,
        }
    )
    options = {
        "mode": mode,
        "claims_in": claims_in,
        "claims_out": claims_out,
        "log.format": log_format,
        "workers": int(workers)
        if workers is not None and re.fullmatch("[0-9]{1,9}", workers)
        else workers,
        "metrics.address": metrics,
        "upstream.bootstrap": upstream,
        "state_directory": state_directory,
    }
    overrides: dict[str, Any] = {key: value for key, value in options.items() if value is not None}
    is_question = as_report or clients is not None or check_config or print_config
    early = None if is_question else EarlyReload()
    try:
        from batchval.proxy.settings import loading
    except ModuleNotFoundError as error:
        from batchval.optional import EXTRAS

        needed = (*EXTRAS["batchval.proxy"][1], "pydantic_core")  # which pydantic imports
        if error.name is None or error.name.partition(".")[0] not in needed:
            raise
        click.echo(
            f"batchval proxy: {error.name} is not installed: pip install 'batchval[proxy]'",
            err=True,
        )
        return USAGE
    from batchval.cli.proxy_report import DEFAULT_ADDRESS, report, show_clients

    try:
        if clients is not None:
            if clients == _OF_CONFIG:
                clients = metrics or DEFAULT_ADDRESS
                if config is not None:
                    clients = metrics_address_of(draft_of(config, listen, overrides))
            return show_clients(clients, as_json, slowest)
        if as_report:
            if state_directory is None and config is not None:
                state_directory = state_folder_of(draft_of(config, listen, overrides))
            return report(state_directory, as_json)
        draft = draft_of(config, listen, overrides)
        if print_config:
            settings, warnings = draft.readable()
            click.echo(loading.shown(settings), nl=False)
            if not check_config:
                for line in warnings:
                    click.echo(f"batchval proxy: warning: {line}", err=True)
                return 0
        found = check_files(draft, config)
        if check_config:
            warnings = found + draft.warning_lines()
            warnings += check_upstreams(draft) + check_certificates(draft)
            for line in warnings:
                click.echo(f"batchval proxy: warning: {line}", err=True)
        settings = draft.finished()
        if check_config:
            click.echo("the settings are valid", err=print_config)
        return (
            0
            if early is None
            else run(
                settings,
                early,
                file_of(config, overrides, draft),
                take_over=take_over,
                warnings=draft.warning_lines(),
            )
        )
    except loading.ConfigError as error:
        for line in error.problems:
            click.echo(f"batchval proxy: {line}", err=True)
        return USAGE


def _refuse_two(modes: dict[str, bool]) -> None:
    """Raise UsageError where two options ask for different things to be done."""
    chosen = [option for option, is_set in modes.items() if is_set]
    if len(chosen) > 1:
        raise click.UsageError(f"{chosen[0]} cannot be combined with {chosen[1]}")


#: Hosts that stand for all addresses of this machine, and the one to connect to.
_LOOPBACKS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


def _log() -> logging.Logger:
    import logging

    return logging.getLogger("batchval.proxy")


def draft_of(config: Path | None, listen: str | None, overrides: dict[str, Any]) -> loading.Draft:
    """Return the settings of a file and of options, and all faults in them."""
    from batchval.proxy.settings import loading

    if config is not None:
        if listen is not None:
            overrides["listeners"] = [{"address": listen}]
        return loading.drafted_file(config, overrides)
    missing = [
        option
        for option, value in (
            ("--listen", listen),
            ("--upstream", overrides.get("upstream.bootstrap")),
        )
        if value is None
    ]
    if missing:
        raise click.UsageError(f"{' and '.join(missing)} (HOST:PORT) or --config FILE is required")
    return loading.drafted(loading.overridden({"listeners": [{"address": listen}]}, overrides))


def file_of(
    config: Path | None, overrides: dict[str, Any], draft: loading.Draft
) -> SettingsFile | None:
    """Return the file that may be read again, with the options that ``draft_of`` has set."""
    from batchval.proxy.life.settings_file import SettingsFile

    return None if config is None else SettingsFile(config, overrides, draft.digest)


def state_folder_of(draft: loading.Draft) -> Path | None:
    """Return the state directory, whatever is wrong with other keys: options may have set them
    where the gate was started. Raises ConfigError with all faults where there is none.
    """
    if draft.settings is None or draft.is_wrong(("state_directory",)):
        return draft.finished().state_folder
    return draft.settings.state_folder or draft.finished().state_folder


def metrics_address_of(draft: loading.Draft) -> str:
    """Return where the gate of these settings answers, whatever is wrong with other keys. Raises
    ConfigError.
    """
    from batchval.proxy.settings import loading

    loc = ("metrics", "address")
    settings = draft.settings
    if settings is None or draft.is_wrong(loc):
        settings = draft.finished()
    address = settings.metrics.address
    if address is None:
        raise loading.ConfigError(["metrics.address: is null: this gate does not list its clients"])
    if not address.port:
        text = "port 0 is any free port: use --clients HOST:PORT with the one that the gate printed"
        raise loading.ConfigError([f"metrics.address: {text}"])
    return str(address._replace(host=_LOOPBACKS.get(address.host, address.host)))


def check_files(draft: loading.Draft, config: Path | None) -> list[str]:
    """Add what is wrong with the files that the settings name, and return the warnings."""
    from batchval.proxy.life.file_checks import file_faults, file_warnings
    from batchval.yaml_settings.faults import lines_of

    if draft.settings is None:
        return []
    draft.add(file_faults(draft.settings, config))
    found = file_warnings(draft.settings)
    return lines_of((one for one in found if not any(map(draft.is_wrong, one.reads))), draft.source)


def check_upstreams(draft: loading.Draft) -> list[str]:
    """Add what is wrong with the upstreams, and return the warnings, a line each."""
    from batchval.proxy.life.file_checks import upstream_faults
    from batchval.yaml_settings.faults import lines_of

    if (
        draft.settings is None
        or draft.is_wrong(("upstream", "bootstrap"))
        or draft.is_wrong(("upstream", "tls"))
    ):
        return []
    # a login with a value that is wrong, or that would show the password, is not tried
    logs_in = not any(fault.loc[:2] == ("upstream", "admin") for fault in draft.faults)
    faults, warnings = upstream_faults(draft.settings, logs_in=logs_in)
    draft.add(faults)
    return lines_of(warnings, draft.source)


def check_certificates(draft: loading.Draft) -> list[str]:
    """Return a line for each host that clients could not verify."""
    from batchval.proxy.tls.tls import certificate_warnings
    from batchval.yaml_settings.faults import lines_of

    if draft.settings is None:
        return []
    found = certificate_warnings(draft.settings)
    return lines_of((one for one in found if not any(map(draft.is_wrong, one.reads))), draft.source)


def run(
    settings: Settings,
    early: EarlyReload,
    file: SettingsFile | None = None,
    *,
    take_over: bool = False,
    warnings: Iterable[str] = (),
) -> int:
    """Run a gate until its end, and return the exit code.

    ``early``      has noted SIGHUP since before these settings were read
    ``file``       where settings are read again
    ``take_over``  in place of a gate that runs
    ``warnings``   about these settings, for the log
    """
    import asyncio

    from batchval.network.loops import loop_factory
    from batchval.proxy.life.lifecycle import switch_soon
    from batchval.proxy.watch.audit_log import write_in_thread

    log_handler = write_in_thread(settings.log)
    for line in warnings:
        _log().warning("settings: %s", line)
    predecessor = None
    try:
        predecessor = _predecessor(settings) if take_over else None
        switch_soon()
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(_serve(settings, early, file, predecessor))
    except BaseException as error:
        if predecessor is not None:
            why = (
                (isinstance(error, OSError) and error.strerror)
                or str(error)
                or type(error).__name__
            )
            predecessor.fail(why)
        raise
    finally:
        log_handler.flush()


def _predecessor(settings: Settings) -> TakeOver | None:
    """Return the gate that is to be taken over; None: none runs."""
    from batchval.proxy.life.handover import TakeOver

    if settings.control_path is None:
        raise click.UsageError("--take-over needs control or state_directory in the settings")
    predecessor = TakeOver.begin(settings.control_path)
    if predecessor is None:
        _log().info("no gate runs at %s: there is nothing to take over", settings.control_path)
    return predecessor


async def _serve(
    settings: Settings, early: EarlyReload, file: SettingsFile | None, predecessor: TakeOver | None
) -> int:
    import asyncio

    from batchval import __version__
    from batchval.proxy.life.control import Control
    from batchval.proxy.life.handover import taken_over
    from batchval.proxy.life.lifecycle import Life, LifecycleEvent, calm_collector, notify
    from batchval.proxy.life.reloading import Reloader
    from batchval.proxy.life.settings_file import digests_of
    from batchval.proxy.workers.parent import gate_of

    def handed(pid: int) -> None:
        gate.succession.hand_over()
        notify(f"MAINPID={pid}")
        life.events.put_nowait(LifecycleEvent.HANDED)

    files = digests_of(settings)  # before the gate reads them
    gate = gate_of(settings, version=__version__, predecessor=predecessor)
    path = settings.control_path
    control = (
        None
        if path is None
        else Control(path, gate.succession.offer, handed, gate.succession.go_on)
    )
    stop_control = control.stop if control is not None else lambda: None
    reloader = Reloader(gate, file, files)
    gate.metrics.add(reloader.families)

    def reload() -> None:
        gate.reopen_files()
        reloader.ask()

    reloading: asyncio.Task[None] | None = None

    def stop_reloading() -> None:
        if reloading is not None:
            reloading.cancel()

    def stop_delay_s() -> float:
        return gate.settings.limits.stop_delay_ms / 1000

    life = Life(gate, stop_delay_s, reload, stop_control, stop_reloading)
    try:
        if predecessor is None:
            _take_signals(life, early)
            if control is not None:
                control.open()
            await gate.start()
        else:
            await taken_over(predecessor, gate)
            _take_signals(life, early)
            if control is not None:
                control.open(predecessor.control)
        calm_collector()
        _announce(gate, settings)
        if control is not None:
            control.start()
        notify("READY=1")
        reloading = asyncio.create_task(reloader.run())
        return INTERRUPTED if await life.run() else 0
    finally:
        stop_reloading()
        if control is not None:
            control.stop()
            control.ended()


def _take_signals(life: Life, early: EarlyReload) -> None:
    import asyncio

    from batchval.proxy.life.lifecycle import SIGNALS, LifecycleEvent

    for number, event in SIGNALS.items():
        asyncio.get_running_loop().add_signal_handler(number, life.events.put_nowait, event)
    early.resume(lambda: life.events.put_nowait(LifecycleEvent.RELOAD))


def _announce(gate: Any, settings: Settings) -> None:
    """Print the addresses on standard output. A gate serves on where nobody reads them."""
    try:
        _print_addresses(gate, settings)
        sys.stdout.flush()
    except OSError as error:
        _log().warning("standard output cannot be written: %s; the gate goes on", error.strerror)
        discard_output()


def _print_addresses(gate: Any, settings: Settings) -> None:
    """Print where clients connect: with port 0 only the system knows it."""
    upstream = ",".join(map(str, settings.upstream.bootstrap))
    if settings.log.format == "json":
        facts: dict[str, Any] = {"type": "listening", "upstream": upstream, "mode": settings.mode}
        facts |= {"listeners": {name: str(address) for name, address in gate.addresses.items()}}
        facts |= {"metrics": None if gate.metrics_at is None else str(gate.metrics_at)}
        print_json(facts)
    else:
        for name, address in gate.addresses.items():
            click.echo(f"listening on {address} ({name}) for {upstream}, mode {settings.mode}")
        if gate.metrics_at is not None:
            click.echo(f"metrics on http://{gate.metrics_at}/metrics")

"""``batchval proxy``: the gate in front of a cluster."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from batchval.cli.commands import Command
from batchval.cli.early_reload import EarlyReload
from batchval.cli.exit import USAGE
from batchval.cli.options import FILE, json_option

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
    from batchval.cli.proxy_clients import DEFAULT_ADDRESS, show_clients
    from batchval.cli.proxy_report import report
    from batchval.cli.proxying import (
        check_certificates,
        check_files,
        check_upstreams,
        draft_of,
        file_of,
        metrics_address_of,
        run,
        state_folder_of,
    )

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

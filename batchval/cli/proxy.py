"""``batchval proxy``: the gate in front of a cluster."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchval.cli import INTERRUPTED

if TYPE_CHECKING:
    from batchval.proxy.config import Settings

_EXTRA = ("pydantic", "pydantic_core", "yaml", "prometheus_client")


@click.command("proxy", short_help="Stand in front of a cluster and let no bad batch through.")
@click.option("--listen", metavar="HOST:PORT", help="Where clients connect. Brokers get the ports above it.")
@click.option("--upstream", metavar="HOST:PORT", help="A broker of the cluster behind.")
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="Settings (YAML). Options here win.")
@click.option("--check-config", is_flag=True, help="Only say whether the settings and their files are sound.")
@click.option("--print-config", is_flag=True, help="Only print all settings as YAML, secrets hidden.")
@click.option("--mode", metavar="MODE", help="enforce (default), or observe: forward, count and log.")
@click.option("--claims-in", metavar="POLICY", help="ignore (default), verify, audit:RATE or trust.")
@click.option("--claims-out", metavar="WHAT", help="none (default), or tag: add claims to compressed batches.")
@click.option("--log-format", metavar="FORMAT", help="text (default) or json.")
@click.option("--metrics", metavar="HOST:PORT", help="Where /metrics, /livez and /readyz are. Default: 127.0.0.1:9464.")
def command(
    listen: str | None,
    upstream: str | None,
    config: Path | None,
    check_config: bool,
    print_config: bool,
    mode: str | None,
    claims_in: str | None,
    claims_out: str | None,
    log_format: str | None,
    metrics: str | None,
) -> int:
    """Stands between clients and brokers, which change nothing, and refuses bad batches as a broker would.

    Runs until SIGTERM or SIGINT, then delivers what is under way. SIGHUP reads certificates again.
    """
    given = {
        "mode": mode,
        "claims_in": claims_in,
        "claims_out": claims_out,
        "log.format": log_format,
        "metrics.address": metrics,
        "upstream.bootstrap": upstream,
    }
    overrides: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    try:
        from batchval.proxy import loading
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _EXTRA:
            raise
        raise click.UsageError(f"{error.name} is not installed: pip install 'batchval[proxy]'") from None
    try:
        settings = _settings(config, listen, overrides)
        if print_config:
            click.echo(loading.shown(settings), nl=False)
        if check_config:
            from batchval.proxy.assemble import check_files

            check_files(settings)
            click.echo("the settings are sound", err=print_config)
        if check_config or print_config:
            return 0
        return _run(settings)
    except loading.ConfigError as error:
        *others, last = error.problems
        for line in others:
            click.echo(f"batchval proxy: {line}", err=True)
        raise click.UsageError(last) from None


def _settings(config: Path | None, listen: str | None, overrides: dict[str, Any]) -> Settings:
    from batchval.proxy import loading

    if config is not None:
        if listen is not None:
            overrides["listeners"] = [{"address": listen}]
        return loading.load(config, overrides)
    missing = [
        option
        for option, value in (("--listen", listen), ("--upstream", overrides.get("upstream.bootstrap")))
        if value is None
    ]
    if missing:
        raise click.UsageError(f"{' and '.join(missing)} (HOST:PORT) or --config FILE needed")
    values = loading.overridden({"listeners": [{"address": listen}]}, overrides)
    return loading.settings_from(values)


def _run(settings: Settings) -> int:
    from batchval.network.loops import loop_factory
    from batchval.proxy.refusals import set_up

    set_up(settings.log)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_serve(settings))


async def _serve(settings: Settings) -> int:
    from batchval import __version__
    from batchval.proxy.assemble import RunningGate

    loop = asyncio.get_running_loop()
    gate = RunningGate(settings, version=__version__)
    told: asyncio.Queue[signal.Signals] = asyncio.Queue()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, told.put_nowait, number)
    await gate.start()
    _announce(gate, settings)
    while (number := await told.get()) is signal.SIGHUP:
        gate.reload()
    code = INTERRUPTED if number is signal.SIGINT else 0
    draining = asyncio.ensure_future(gate.stop())
    while not draining.done():
        again = asyncio.ensure_future(told.get())
        await asyncio.wait((draining, again), return_when=asyncio.FIRST_COMPLETED)
        if again.done() and again.result() is not signal.SIGHUP:
            draining.cancel()  # asked twice: at once, then
            await asyncio.wait((draining,))
            await gate.stop(0)
            return INTERRUPTED
        again.cancel()
    draining.result()
    return code


def _announce(gate: Any, settings: Settings) -> None:
    """On standard output, so that whoever has started it with port 0 knows."""
    upstream = settings.upstream.bootstrap
    if settings.log.format == "json":
        facts: dict[str, Any] = {"event": "listening", "upstream": str(upstream), "mode": settings.mode}
        facts |= {"listeners": {name: str(address) for name, address in gate.addresses.items()}}
        facts |= {"metrics": None if gate.metrics_at is None else str(gate.metrics_at)}
        click.echo(json.dumps(facts))
    else:
        for name, address in gate.addresses.items():
            click.echo(f"listening on {address} ({name}) for {upstream}, mode {settings.mode}")
        if gate.metrics_at is not None:
            click.echo(f"metrics on http://{gate.metrics_at}/metrics")
    sys.stdout.flush()

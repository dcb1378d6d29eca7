"""Run ``batchval proxy``: settings from options and a file, signals, and the addresses it listens
on.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchval.cli.exit_codes import INTERRUPTED
from batchval.cli.output import print_json
from batchval.proxy import loading

if TYPE_CHECKING:
    from batchval.proxy.config import Settings

__all__ = ["check_certificates", "check_files", "check_upstreams", "draft_of", "run"]


#: Thresholds of the cycle collector (gc.set_threshold): objects, and how often each generation is
#: collected before the next one is.
COLLECT = (500, 10, 1_000)
#: Seconds that a judging thread may keep the interpreter's lock while the event loop waits for it.
#: Python's 5 ms, several times in one exchange, would be what other clients feel.
SWITCH_S = 0.0005


def draft_of(config: Path | None, listen: str | None, overrides: dict[str, Any]) -> loading.Draft:
    """Return the settings of a file and of options, and all faults in them."""
    if config is not None:
        if listen is not None:
            overrides["listeners"] = [{"address": listen}]
        return loading.drafted_file(config, overrides)
    missing = [
        option
        for option, value in (("--listen", listen), ("--upstream", overrides.get("upstream.bootstrap")))
        if value is None
    ]
    if missing:
        raise click.UsageError(f"{' and '.join(missing)} (HOST:PORT) or --config FILE needed")
    return loading.drafted(loading.overridden({"listeners": [{"address": listen}]}, overrides))


def check_files(draft: loading.Draft, config: Path | None) -> None:
    """Add what is wrong with the files that the settings name."""
    from batchval.proxy.file_checks import file_faults

    if draft.settings is not None:
        draft.add(file_faults(draft.settings, config))


def check_upstreams(draft: loading.Draft) -> list[str]:
    """Add what is wrong with the upstreams, and return the warnings, a line each."""
    from batchval.proxy.faults import lines_of
    from batchval.proxy.upstream_checks import upstream_faults

    if draft.settings is None or draft.is_wrong(("upstream", "bootstrap")) or draft.is_wrong(("upstream", "tls")):
        return []
    faults, warnings = upstream_faults(draft.settings)
    draft.add(faults)
    return lines_of(warnings, draft.source)


def check_certificates(draft: loading.Draft) -> list[str]:
    """Return a line for each host that clients could not verify."""
    from batchval.proxy.certificate_names import certificate_warnings
    from batchval.proxy.faults import lines_of

    if draft.settings is None:
        return []
    found = certificate_warnings(draft.settings)
    return lines_of((one for one in found if not any(map(draft.is_wrong, one.reads))), draft.source)


def run(settings: Settings) -> int:
    from batchval.network.loops import loop_factory
    from batchval.proxy.audit_log import set_up

    set_up(settings.log)
    sys.setswitchinterval(SWITCH_S)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_serve(settings))


async def _serve(settings: Settings) -> int:
    from batchval import __version__
    from batchval.proxy.assemble import RunningGate

    loop = asyncio.get_running_loop()
    gate = RunningGate(settings, version=__version__)
    received: asyncio.Queue[signal.Signals] = asyncio.Queue()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, received.put_nowait, number)
    await gate.start()
    _calm_collector()
    _announce(gate, settings)
    while (number := await received.get()) is signal.SIGHUP:
        gate.reload()
    code = INTERRUPTED if number is signal.SIGINT else 0
    draining = asyncio.ensure_future(gate.stop())
    while not draining.done():
        again = asyncio.ensure_future(received.get())
        await asyncio.wait((draining, again), return_when=asyncio.FIRST_COMPLETED)
        if again.done() and again.result() is not signal.SIGHUP:
            draining.cancel()  # asked twice: at once, then
            await asyncio.wait((draining,))
            await gate.stop(0)
            return INTERRUPTED
        again.cancel()
    draining.result()
    return code


def _calm_collector() -> None:
    """Keep the cycle collector from stopping the event loop for tens of milliseconds.

    What exists at the start is never looked at again; of the rest, a full collection is rare.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT)


def _announce(gate: Any, settings: Settings) -> None:
    """Print the addresses on standard output: with port 0 only the system knows them."""
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
    sys.stdout.flush()

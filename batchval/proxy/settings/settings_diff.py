"""The differences between two settings, and which of them a running gate cannot take.

Each key has an effect, its own or that of the nearest key around it:

    AT_ONCE   the next request, also of clients that are connected
    NEW       the next connection
    RESTART   another process: ports and folders belong to the running one
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from batchval.policy import ClaimsPolicy
from batchval.proxy.settings.config import Settings
from batchval.proxy.settings.loading import keys_of
from batchval.proxy.settings.secret import Secret
from batchval.proxy.settings.values import Address
from batchval.yaml_settings.faults import Fault, Loc, path_of

__all__ = [
    "EFFECTS",
    "Effect",
    "changes",
    "changes_only_mode",
    "effect_of",
    "restart_faults",
]


class Effect(enum.Enum):
    """The time at which a change of a setting takes effect."""

    AT_ONCE = "at once"
    NEW = "new connections"
    RESTART = "restart"


#: By key, without positions in lists. A key at the top that is missing needs a restart.
EFFECTS: Final[Mapping[str, Effect]] = {
    "mode": Effect.AT_ONCE,
    "observe": Effect.AT_ONCE,
    "deny": Effect.AT_ONCE,
    "listeners": Effect.RESTART,
    "listeners.advertised_host": Effect.AT_ONCE,
    "listeners.advertised_port": Effect.AT_ONCE,
    "listeners.advertised_first_port": Effect.AT_ONCE,
    "listeners.max_connections": Effect.NEW,
    "listeners.trusted": Effect.AT_ONCE,
    "listeners.inter_broker": Effect.AT_ONCE,
    "listeners.tls": Effect.NEW,
    "upstream": Effect.NEW,
    "upstream.admin": Effect.AT_ONCE,
    "validation": Effect.AT_ONCE,
    "topics": Effect.AT_ONCE,
    "schema_registries": Effect.AT_ONCE,
    "custom_rules": Effect.AT_ONCE,
    "claims_in": Effect.AT_ONCE,
    "claims_out": Effect.AT_ONCE,
    "bridge": Effect.NEW,
    "bridge_isolation_level": Effect.AT_ONCE,
    "limits": Effect.AT_ONCE,
    "limits.max_connection_age_ms": Effect.NEW,
    "metrics.address": Effect.RESTART,
    "metrics.otlp": Effect.RESTART,
    "metrics.remote": Effect.AT_ONCE,
    "metrics.allowed_hosts": Effect.AT_ONCE,
    "metrics.topics": Effect.AT_ONCE,
    "metrics.nodes": Effect.AT_ONCE,
    "log": Effect.AT_ONCE,
    "log.audit_file": Effect.RESTART,
    "reload": Effect.AT_ONCE,
    "quarantine": Effect.RESTART,
    "state_directory": Effect.RESTART,
    "control": Effect.RESTART,
    "workers": Effect.RESTART,
}

_HOW: Final = "needs a restart (or a hand-over: --take-over)"


def effect_of(loc: Loc) -> Effect:
    """Return when a change of this key is felt."""
    keys = [part for part in loc if isinstance(part, str)]
    found = (EFFECTS.get(".".join(keys[:i])) for i in range(len(keys), 0, -1))
    return next((one for one in found if one is not None), Effect.RESTART)


def restart_faults(running: Settings, wanted: Settings) -> Iterator[Fault]:
    """Find the keys that differ and that a running gate cannot take."""
    yield from _listeners(running, wanted)
    for loc, before, after in _differences((), running, wanted):
        if loc[0] != "listeners" and effect_of(loc) is Effect.RESTART:
            yield _fault(loc, before, after)


def _fault(loc: Loc, before: Any, after: Any) -> Fault:
    return Fault.of(
        loc, f"is {_text(before)} in the running gate, and {_text(after)} here: a change {_HOW}"
    )


def _listeners(running: Settings, wanted: Settings) -> Iterator[Fault]:
    """Compare listeners by name: their order means nothing."""
    before = {one.name: one for one in running.listeners}
    after = {one.name: one for one in wanted.listeners}
    names = tuple(("listeners", i, "name") for i in range(len(wanted.listeners)))
    for name in [name for name in before if name not in after]:
        text = f"{name} ({before[name].address}) is missing: to end a listener {_HOW}"
        yield Fault(("listeners",), text, names)
    for i, listener in enumerate(wanted.listeners):
        if listener.name not in before:
            text = f"{listener.name} ({listener.address}) is new: another listener {_HOW}"
            yield Fault(("listeners", i), text, names)
            continue
        for loc, old, new in _differences(("listeners", i), before[listener.name], listener):
            if effect_of(loc) is Effect.RESTART:
                yield _fault(loc, old, new)


def changes_only_mode(running: Settings, wanted: Settings) -> bool:
    """Return whether the mode differs and nothing else."""
    return [loc for loc, _, _ in _differences((), running, wanted)] == [("mode",)]


# ---- a line about what has changed ---------------------------------------------------------------


def changes(before: Settings, after: Settings) -> list[str]:
    """Return each key that differs, with both values where they are short. Secrets are hidden."""
    found = [
        _change(loc, *both)
        for loc, *both in _differences((), before, after)
        if loc[0] != "listeners"
    ]
    known = {one.name: one for one in before.listeners}
    for listener in after.listeners:
        if listener.name in known:
            differences = _differences(
                (f"listeners[{listener.name}]",), known[listener.name], listener
            )
            found += [_change(loc, *both) for loc, *both in differences]
    return found


def _change(loc: Loc, before: Any, after: Any) -> str:
    if _is_short(before) and _is_short(after):
        return f"{path_of(loc)} {_text(before)} -> {_text(after)}"
    return f"{path_of(loc)} changed"


def _is_short(value: Any) -> bool:
    return value is None or isinstance(
        value, bool | int | float | str | Path | Address | ClaimsPolicy
    )


def _text(value: Any) -> str:
    """Return a value as a file of settings has it; a secret's source alone."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, Secret):
        return str(value.shown())
    if not _is_short(value):  # a part of the settings, or a list
        return "set" if value else "not set"
    return str(value)


def _differences(at: Loc, before: Any, after: Any) -> Iterator[tuple[Loc, Any, Any]]:
    """Yield (key, value before, value after) of what differs: single values, and whole lists."""
    if before == after:
        return
    if isinstance(before, BaseModel) and type(before) is type(after):
        for name, key in keys_of(type(before)).items():
            yield from _differences((*at, key), getattr(before, name), getattr(after, name))
    else:
        yield at, before, after

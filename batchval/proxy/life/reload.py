"""The two steps in which a running gate takes other settings, and what differs between them.

    gate.Prepared   builds all that can fail, in a thread; the gate goes on as it was
    apply           takes it, on the event loop; cannot fail

Several workers prepare first, and apply when all of them have prepared. New connections use the new
settings at once, open sessions within the next turns of the loop. A request that is being validated
is validated to its end by the gate that it was taken with.

``changes`` lists the differences between two settings, and ``restart_faults`` those that a running
gate cannot take. Each key has an effect, its own or that of the nearest key around it
(``config.Effect``).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol

from pydantic import BaseModel

from batchval.policy import ClaimsPolicy
from batchval.proxy.settings.config import Effect, Settings
from batchval.proxy.settings.loading import ConfigError, keys_of
from batchval.proxy.settings.setting_types import Address, Secret
from batchval.yaml_settings.faults import Fault, Loc, path_of
from batchval.yaml_settings.wording import field_name, model_at

__all__ = [
    "NotPrepared",
    "Step",
    "changes",
    "changes_only_mode",
    "effect_of",
    "restart_faults",
]


_HOW: Final = "needs a restart (or a hand-over: --take-over)"


def effect_of(loc: Loc) -> Effect:
    """Return when a change of this key is felt."""
    keys = [part for part in loc if isinstance(part, str)]
    found = Effect.RESTART
    for i, key in enumerate(keys):
        model = model_at(Settings, [*keys[:i]])
        field = model.model_fields.get(field_name(model, key))
        metadata = () if field is None else field.metadata
        found = next((one for one in metadata if isinstance(one, Effect)), found)
    return found


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


class NotPrepared(ConfigError):
    """An error: a process did not prepare settings. They may be valid: try them again."""


class Step(Protocol):
    """Settings that a gate has prepared. ``max_connections`` that it can serve with them."""

    max_connections: int

    def apply(self) -> None:
        """Take them. It cannot fail."""

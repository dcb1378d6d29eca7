"""Compare the settings of denied APIs and of the quarantine with the others."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from batchval.proxy.kit.globs import name_for
from batchval.proxy.settings.config import Settings
from batchval.yaml_settings.faults import Fault, Loc

__all__ = ["deny_faults", "quarantine_faults"]

_PRINCIPALS = "they look like User:alice or User:CN=edge,O=Example"


def deny_faults(settings: Settings) -> Iterator[Fault]:
    """Find rules of ``deny`` that deny nothing to anybody."""
    names = [listener.name for listener in settings.listeners]
    reads: list[Loc] = [("listeners", i, "name") for i in range(len(names))]
    for i, rule in enumerate(settings.deny):
        at: Loc = ("deny", i)
        if not any(fnmatchcase(name, rule.listeners) for name in names):
            loc: Loc = (*at, "listeners")
            text = f"'{rule.listeners}' matches no listener: they are {', '.join(dict.fromkeys(names))}"
            yield Fault.of(loc, text, *reads)
        yield from _principals(at, rule.principals, rule.except_principals)


def _principals(at: Loc, principals: str, exceptions: tuple[str, ...]) -> Iterator[Fault]:
    loc, other = (*at, "principals"), (*at, "except_principals")
    if name_for(principals, (), principals=True) is None:
        yield Fault.of(loc, f"'{principals}' matches no principal: {_PRINCIPALS}")
        return
    for glob in exceptions:
        if name_for(glob, (), principals=True) is None:
            yield Fault.of(other, f"'{glob}' matches no principal: {_PRINCIPALS}")
    if exceptions and name_for(principals, exceptions, principals=True) is None:
        text = f"leaves no principal of '{principals}': the rule denies nothing"
        yield Fault.of(other, text, loc)


def quarantine_faults(settings: Settings) -> Iterator[Fault]:
    """Find a quarantine that never gets a batch in this mode, or less than it was set up for."""
    found = settings.quarantine
    if found is None:
        return
    loc: Loc = ("quarantine", "observed")
    observes: tuple[Loc, ...] = (("mode",), ("observe",))
    if settings.mode == "observe" and not found.observed:
        text = "is false, and mode observe refuses nothing: set quarantine.observed: true"
        yield Fault.of(loc, text, *observes).as_warning()
    elif found.observed and settings.mode == "enforce" and not settings.observe:
        text = "has no effect: no batch is observed in mode enforce without observe"
        yield Fault.of(loc, text, *observes).as_warning()

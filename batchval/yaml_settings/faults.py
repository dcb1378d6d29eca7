"""One fault in the settings: the key, and what is wrong with its value; and the line that reports
it.

gate.yaml:12: listeners[1].tls.key: /etc/gate.key: mode 0644 lets other users read it: chmod o-rw
/etc/gate.key
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

__all__ = ["MAX_LINES", "Fault", "Loc", "Source", "lines_of", "name_faults", "path_of"]

#: Where a value stands: keys and positions in lists, from the outermost.
Loc = tuple[str | int, ...]

MAX_LINES: Final = 50


class Fault(NamedTuple):
    """A fault of the settings. ``reads`` are the keys that were compared; with a wrong value in one
    of them the fault may not be one.

    ``is_warning``  whether the settings are valid all the same
    """

    loc: Loc
    text: str
    reads: tuple[Loc, ...] = ()
    line: int | None = None  # None: that of the key
    is_warning: bool = False

    @classmethod
    def of(cls, loc: Loc, text: str, *reads: Loc) -> Fault:
        """Return a fault that was found by comparing the value of its own key, with others."""
        return cls(loc, text, (loc, *reads))

    def as_warning(self) -> Fault:
        """Return the same fault as a warning."""
        return self._replace(is_warning=True)


@dataclass(frozen=True)
class Source:
    """The source of settings: a file with a line (from 1) for each key, and options of the command
    line.
    """

    name: str = ""
    lines: Mapping[Loc, int] = field(default_factory=dict)
    options: frozenset[Loc] = frozenset()

    def is_option(self, loc: Loc) -> bool:
        """Return whether an option of the command line has set this value."""
        return any(loc[: len(option)] == option for option in self.options)

    def line(self, fault: Fault) -> int | None:
        """Return the line of the key, or of the nearest key around it."""
        if fault.line is not None or self.is_option(fault.loc):
            return fault.line
        found = (self.lines.get(fault.loc[:i]) for i in range(len(fault.loc), 0, -1))
        return next((line for line in found if line is not None), None)

    def text(self, fault: Fault) -> str:
        """Return the fault as one line."""
        line = self.line(fault)
        place = (
            ""
            if self.is_option(fault.loc)
            else f"{self.name}:{line}"
            if self.name and line
            else self.name
        )
        return " ".join(
            ": ".join(part for part in (place, path_of(fault.loc), fault.text) if part).split()
        )


def name_faults(section: str, names: Iterable[str]) -> Iterator[Fault]:
    """Find elements of a list that have the name of an earlier one."""
    first: dict[str, int] = {}
    for i, name in enumerate(names):
        if (earlier := first.setdefault(name, i)) != i:
            text = f"{section} {earlier} and {i} have the same name, {name}: give each a name"
            yield Fault.of((section, i, "name"), text, (section, earlier, "name"))


def path_of(loc: Loc) -> str:
    """Return ``listeners[0].tls.key``."""
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return " ".join(text.split())


def lines_of(faults: Iterable[Fault], source: Source) -> list[str]:
    """Return a line for each fault, in the order of the file, and at most MAX_LINES."""
    in_order = sorted(faults, key=lambda fault: source.line(fault) or 0)
    lines = list(dict.fromkeys(map(source.text, in_order)))
    if len(lines) > MAX_LINES:
        more = f"and {len(lines) - MAX_LINES + 1} more"
        lines[MAX_LINES - 1 :] = [f"{source.name}: {more}" if source.name else more]
    return lines

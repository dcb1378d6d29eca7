"""Custom rules: Python functions that check the records of a batch.

A rule takes ``RecordColumns`` and returns what is wrong:

    None, or nothing             every record may enter
    an iterable of (row, text)   these records may not, and why; rows count from 0
    a numpy mask of bool         True for each record that may not; one entry a record

A rule is named ``module:function``, or by an entry point of the group ``batchval.record_rules``.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import entry_points
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

from batchval.core.batches.record_columns import RecordColumns, record_columns
from batchval.errors import ArgumentValueError, BatchvalError, shown_value
from batchval.types import DEFAULT_MAX_DECOMPRESSED_BYTES

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Buffer

__all__ = ["GROUP", "CustomRule", "CustomRuleError", "RecordFinding", "RuleFunction"]

RuleFunction: TypeAlias = (
    "Callable[[RecordColumns], Iterable[tuple[int, str]] | NDArray[np.bool_] | None]"
)

#: The group of entry points.
GROUP: Final = "batchval.record_rules"
#: Findings of one call that are kept, as many as Kafka keeps record errors.
MAX_FINDINGS: Final = 1_000
#: The longest text of a finding, in characters.
MAX_TEXT_LENGTH: Final = 200


class CustomRuleError(BatchvalError):
    """A rule has raised an exception, or has returned a value of another kind."""


class RecordFinding(NamedTuple):
    """A record that is refused: its row in the columns, and why."""

    row: int
    text: str


@dataclass(frozen=True, slots=True)
class CustomRule:
    """One rule: a function, and the name that it was loaded by.

    ``function(columns)`` may be called from several threads at once.
    """

    name: str
    function: RuleFunction

    @classmethod
    def load(cls, name: str) -> CustomRule:
        """Return the rule of a name. Importing its module runs the module's code.

        Raises ArgumentValueError where the name does not exist, its module cannot be imported, or
        it cannot be called with one argument.
        """
        found = _from_module(name) if ":" in name else _from_entry_point(name)
        if inspect.isclass(found) or not callable(found):
            raise _wrong(name, f"must be a function of the records, not {_kind(found)}")
        if inspect.iscoroutinefunction(found):
            raise _wrong(name, "must be a plain function, not a coroutine function")
        try:
            inspect.signature(found).bind(None)
        except TypeError as error:
            raise _wrong(name, f"must take one argument, the records: {error}") from None
        except ValueError:  # a builtin without a signature
            pass
        return cls(name, found)

    def check(self, columns: RecordColumns) -> list[RecordFinding]:
        """Return the records that are refused; empty where all are accepted.

        At most 1,000 are returned, each row once, with a text of at most 200 characters, in which
        characters that cannot be printed are escaped. Raises CustomRuleError.
        """
        try:
            returned = self.function(columns)
            return _findings(self.name, returned, len(columns))
        except (CustomRuleError, KeyboardInterrupt):
            raise
        except BaseException as error:  # SystemExit, asyncio.CancelledError and their like
            raise CustomRuleError(f"custom rule {self.name} failed: {_words(error)}") from error

    def check_batches(
        self, buffer: Buffer, *, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
    ) -> list[RecordFinding]:
        """Return the same for the records of a buffer: record batches, one after the other.

        Raises CustomRuleError, and what ``record_columns`` raises.
        """
        return self.check(record_columns(buffer, max_decompressed_bytes=max_decompressed_bytes))


def _from_module(name: str) -> Any:
    module, _, path = name.partition(":")
    parts = [*module.split("."), *path.split(".")]
    if not all(part.isidentifier() for part in parts):
        raise _wrong(name, "expected module:function, for example shop.rules:amounts")
    found: Any = _imported(name, lambda: importlib.import_module(module))
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise _wrong(name, f"module {module} has no {path}") from None
    return found


def _from_entry_point(name: str) -> Any:
    found = [point for point in entry_points(group=GROUP) if point.name == name]
    if not found:
        known = (
            ", ".join(sorted({point.name for point in entry_points(group=GROUP)}))
            or "there are none"
        )
        raise _wrong(
            name, f"expected module:function, or an entry point of the group {GROUP} ({known})"
        )
    return _imported(name, found[0].load)


def _imported(name: str, load: Callable[[], Any]) -> Any:
    """Run a module's code, which may do anything."""
    try:
        return load()
    except (Exception, SystemExit) as error:
        raise _wrong(name, f"cannot be imported: {_words(error)}") from None


def _findings(name: str, returned: Any, rows: int) -> list[RecordFinding]:
    """Return what a rule has returned as findings. Raises CustomRuleError."""
    if returned is None:
        return []
    if isinstance(returned, np.ndarray):
        if returned.dtype != np.bool_ or returned.shape != (rows,):
            what = f"an array of {returned.dtype} with shape {returned.shape}"
            raise CustomRuleError(f"custom rule {name} returned {what}: expected {rows} of bool")
        text = f"custom rule {name} refuses this record"
        return [RecordFinding(int(row), text) for row in np.flatnonzero(returned)[:MAX_FINDINGS]]
    if isinstance(returned, str | bytes) or not isinstance(returned, Iterable):
        raise CustomRuleError(
            f"custom rule {name} returned {_printable(shown_value(returned))}: "
            "expected None, (row, text) pairs or a mask of bool"
        )
    found: dict[int, RecordFinding] = {}
    for one in islice(returned, MAX_FINDINGS):
        row, why = one if isinstance(one, tuple) and len(one) == 2 else (None, None)
        if (
            isinstance(row, bool)
            or not isinstance(row, int | np.integer)
            or not isinstance(why, str)
        ):
            shown = _printable(shown_value(one))
            raise CustomRuleError(
                f"custom rule {name} returned {shown}: expected (row, text) pairs"
            )
        if not 0 <= row < rows:
            raise CustomRuleError(
                f"custom rule {name} returned row {row}: there are rows 0 to {rows - 1}"
            )
        found.setdefault(
            int(row), RecordFinding(int(row), _printable(why) or f"custom rule {name}")
        )
    return list(found.values())


def _words(error: BaseException) -> str:
    """Return the error's class and text, for one line."""
    try:
        text = " ".join(str(error).split())
    except (Exception, SystemExit):  # __str__ is the rule's own code, too
        text = ""
    return _printable(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def _printable(text: str) -> str:
    """Return the text on one line, shortened, with unprintable characters escaped."""
    plain = "".join(
        one if one.isprintable() else ascii(one)[1:-1] for one in text[: MAX_TEXT_LENGTH + 1]
    )
    return plain if len(plain) <= MAX_TEXT_LENGTH else f"{plain[: MAX_TEXT_LENGTH - 3]}..."


def _kind(found: object) -> str:
    return f"the class {found.__name__}" if inspect.isclass(found) else f"{type(found).__name__}"


def _wrong(name: str, what: str) -> ArgumentValueError:
    return ArgumentValueError(f"custom rule {_printable(shown_value(name))}: {what}")

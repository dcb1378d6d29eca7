"""The steps of a rehearsal: each prints one line, and the first that fails ends the run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

Step = tuple[str, Callable[[], str]]


class StepFailed(Exception):
    """What a step expected did not hold. The message has both sides."""


def carry_out(steps: Iterable[Step], begin: Callable[[str], None]) -> Iterator[str]:
    """Carry out steps in their order, and yield a line for each that is OK.

    ``begin`` is called with the name of a step before its action. Raises what a step raises; its
    name and its seconds are a note of the exception.
    """
    for name, action in steps:
        began = time.monotonic()
        begin(name)
        try:
            detail = action()
        except Exception as error:
            error.add_note(f"step {name}, after {time.monotonic() - began:.0f} s")
            raise
        yield f"OK {time.monotonic() - began:>6.1f} s  {name:<14}  {detail}"


def expect(condition: object, reason: str) -> None:
    """Raise StepFailed with a reason unless a condition holds."""
    if not condition:
        raise StepFailed(reason)


def expect_equal(what: str, found: object, wanted: object) -> None:
    """Raise StepFailed with both values unless they are equal."""
    expect(found == wanted, f"{what} {found}, expected {wanted}")

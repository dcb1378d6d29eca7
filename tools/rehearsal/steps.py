"""The steps of a rehearsal: each has one line, and is carried out if what it needs is OK."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

Status = Literal["OK", "FAILED", "SKIPPED"]


class StepFailed(Exception):
    """What a step expected did not hold. The message has both sides."""


@dataclass(frozen=True)
class Step:
    """An action with a name. ``needs`` names earlier steps, without which it is skipped."""

    name: str
    action: Callable[[], str]
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What became of a step. ``detail`` is its result, or why it failed or was skipped."""

    name: str
    status: Status
    seconds: float
    detail: str

    def __str__(self) -> str:
        return f"{self.status:<7} {self.seconds:>6.1f} s  {self.name:<14}  {self.detail}"


def carry_out(
    steps: Iterable[Step],
    *,
    begin: Callable[[str], None] = lambda name: None,
    show: Callable[[Outcome], None] = print,
    clock: Callable[[], float] = time.monotonic,
) -> list[Outcome]:
    """Carry out steps in their order and return the outcome of each.

    ``begin`` is called with the name of a step before its action, ``show`` with each outcome. Any
    exception fails a step; only an interrupt ends the run. ValueError for a need that is not the
    name of an earlier step.
    """
    outcomes: dict[str, Outcome] = {}
    for step in steps:
        if unknown := [need for need in step.needs if need not in outcomes]:
            raise ValueError(f"step {step.name} needs {', '.join(unknown)}: not an earlier step")
        lacking = [need for need in step.needs if outcomes[need].status != "OK"]
        if lacking:
            outcome = Outcome(step.name, "SKIPPED", 0.0, f"needs {', '.join(lacking)}")
        else:
            begin(step.name)
            outcome = _attempt(step, clock)
        outcomes[step.name] = outcome
        show(outcome)
    return list(outcomes.values())


def _attempt(step: Step, clock: Callable[[], float]) -> Outcome:
    began = clock()
    try:
        status, detail = "OK", step.action()
    except StepFailed as error:
        status, detail = "FAILED", str(error)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        status, detail = (
            "FAILED",
            f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})",
        )
    return Outcome(step.name, status, clock() - began, detail)  # type: ignore[arg-type]


def exit_code(outcomes: Iterable[Outcome]) -> int:
    """Return 0 if all steps are OK, else 1."""
    return int(any(outcome.status != "OK" for outcome in outcomes))


def expect(condition: object, reason: str) -> None:
    """Raise StepFailed with a reason unless a condition holds."""
    if not condition:
        raise StepFailed(reason)

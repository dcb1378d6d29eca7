"""Custom rules that are measured, and suspended where they cost too much.

    asked ── ``overruns`` calls over the budget within ``suspend_s`` ──▶ suspended
    suspended ── ``suspend_s`` later ──▶ asked

A call overruns by its CPU time, or by SLOW_S of waiting, which holds a thread. A call that has run
for STUCK_S suspends its rule for all other threads until it returns: Python cannot end it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from batchval.core.record_columns import RecordColumns
from batchval.custom_rules import CustomRule, CustomRuleError, RecordFinding

__all__ = ["Answer", "BudgetedRule", "RuleBudget"]

#: Seconds after which a call counts as one that may never return.
STUCK_S: Final = 5.0
#: Seconds of a call, with all its waits, that count as an overrun. Threads that wait for the
#: interpreter in a busy gate need less.
SLOW_S: Final = 1.0
#: Seconds between log lines about one rule's errors: their texts may hold what clients send.
LOG_S: Final = 10.0
_MIB: Final = 1 << 20

log = logging.getLogger("batchval.proxy")


@dataclass(frozen=True, slots=True)
class RuleBudget:
    """The budget of a rule, and the decision on batches that it does not check.

    ``budget_s``  CPU time of one call for each MiB of records, and for less than one
    """

    budget_s: float = 0.005
    overruns: int = 10
    suspend_s: float = 60.0
    pass_suspended: bool = False
    pass_errors: bool = False


class Answer(NamedTuple):
    """The answer of a rule; ``reason`` is None where the batch may go on."""

    kind: Literal["answered", "error", "suspended"]
    findings: list[RecordFinding]
    reason: str | None


class BudgetedRule:
    """A custom rule with its counts. ``ask`` may be called from several threads at once."""

    def __init__(
        self, rule: CustomRule, budget: RuleBudget, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.rule = rule
        self.name = rule.name
        self.budget = budget
        self._clock = clock
        self._lock = threading.Lock()
        self._overruns: deque[float] = deque(maxlen=budget.overruns)
        self._running: dict[int, float] = {}
        self._suspended_until: float | None = None
        self._last_error = ""
        self._logged_s = -LOG_S
        self._unlogged = 0  # new errors since then
        self.calls_total = 0
        self.seconds_total = 0.0
        self.refusals_total = 0
        self.overruns_total = 0
        self.errors_total = 0
        self.unasked_total = 0

    def follow(self, budget: RuleBudget) -> None:
        """Use this budget from now on. Counts stay, and a suspension ends when it would have."""
        with self._lock:
            if budget != self.budget:
                self.budget = budget
                self._overruns = deque(self._overruns, maxlen=budget.overruns)

    @property
    def is_suspended(self) -> bool:
        """Return whether the rule is suspended: batches pass, or are refused, without a call."""
        now = self._clock()
        until = self._suspended_until
        if until is not None and now < until:
            return True
        return any(now - began > STUCK_S for began in list(self._running.values()))

    def ask(self, columns: RecordColumns) -> Answer:
        """Return what the rule says of the records of one batch."""
        if self.is_suspended:
            with self._lock:
                self.unasked_total += 1
            text = (
                None
                if self.budget.pass_suspended
                else f"custom rule {self.name} is suspended: retry later"
            )
            return Answer("suspended", [], text)
        self._resume()
        thread = threading.get_ident()
        self._running[thread] = started = self._clock()
        began = time.thread_time()
        failure = None
        findings: list[RecordFinding] = []
        try:
            findings = self.rule.check(columns)
        except CustomRuleError as error:
            failure = str(error)
        except KeyboardInterrupt:  # the rule's own: signals come to the main thread
            failure = f"custom rule {self.name} failed: KeyboardInterrupt"
        finally:
            used_s = time.thread_time() - began
            del self._running[thread]
        self._count(used_s, self._clock() - started, columns.data.nbytes, bool(findings), failure)
        if failure is not None:
            return Answer(
                "error", [], None if self.budget.pass_errors else f"custom rule {self.name} failed"
            )
        if findings:
            first = findings[0]
            return Answer(
                "answered", findings, f"record {first.row}: {first.text} (custom rule {self.name})"
            )
        return Answer("answered", [], None)

    def _resume(self) -> None:
        with self._lock:
            if self._suspended_until is None:
                return
            self._suspended_until = None
            self._overruns.clear()
        log.info("custom rule %s is called again", self.name)

    def _count(
        self, used_s: float, elapsed_s: float, size: int, refused: bool, failure: str | None
    ) -> None:
        budget_s = self.budget.budget_s * max(1.0, size / _MIB)
        suspended = False
        unlogged = 0
        with self._lock:
            self.calls_total += 1
            self.seconds_total += used_s
            self.refusals_total += refused
            if failure is not None:
                self.errors_total += 1
                unlogged = self._unlogged_errors(failure)
            if used_s > budget_s or elapsed_s > SLOW_S + budget_s:
                now = self._clock()
                self.overruns_total += 1
                self._overruns.append(now)
                is_full = len(self._overruns) == self.budget.overruns
                if (
                    is_full
                    and now - self._overruns[0] <= self.budget.suspend_s
                    and self._suspended_until is None
                ):
                    self._suspended_until = now + self.budget.suspend_s
                    suspended = True
        if unlogged:
            log.warning(
                "%s%s", failure, "" if unlogged == 1 else f" (and {unlogged - 1} others before it)"
            )
        if suspended:
            log.warning(
                "custom rule %s is suspended for %g s: %d calls took longer than the budget, "
                "the last one %.1f ms of %.1f ms, and %.1f ms with its waits",
                *(self.name, self.budget.suspend_s, self.budget.overruns),
                *(used_s * 1e3, budget_s * 1e3, elapsed_s * 1e3),
            )

    def _unlogged_errors(self, failure: str) -> int:
        """Return how many errors a log line is due for, this one with them; 0: none is due."""
        if failure == self._last_error:
            return 0
        self._last_error = failure
        self._unlogged += 1
        now = self._clock()
        if now - self._logged_s < LOG_S:
            return 0
        self._logged_s = now
        unlogged, self._unlogged = self._unlogged, 0
        return unlogged

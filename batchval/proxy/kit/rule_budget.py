"""Custom rules that are measured, and suspended where they cost too much.

    of each sender   asked ── ``overruns`` calls over the budget within ``suspend_s`` ──▶ refused
                     refused ── ``suspend_s`` later ──▶ asked
    of all           asked ── MIN_SENDERS, and half of those that were asked, are refused ──▶ suspended
                     suspended ── ``suspend_s`` later ──▶ asked

A call overruns by its CPU time, or by SLOW_S of waiting, which holds a thread. A sender one of whose
calls has run for STUCK_S is refused until it returns: Python cannot end it. What overruns is in the
sender's batches, so it is the sender that pays for it: whatever ``pass_suspended`` says, its own
batches are refused. A rule that costs too much for several senders is at fault itself.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from batchval.core.batches.record_columns import RecordColumns
from batchval.custom_rules import CustomRule, CustomRuleError, RecordFinding

__all__ = ["MAX_SENDER_LENGTH", "STUCK_S", "BudgetedRule", "RuleAnswer", "RuleBudget"]

#: Seconds after which a call counts as one that may never return.
STUCK_S: Final = 5.0
#: Seconds of a call, with all its waits, that count as an overrun. Threads that wait for the
#: interpreter in a busy gate need less.
SLOW_S: Final = 1.0
#: Seconds between log lines about one rule's errors: their texts may hold what clients send.
LOG_S: Final = 10.0
#: Senders that are refused before a rule is suspended for all.
MIN_SENDERS: Final = 3
#: Senders of which a rule knows what they have cost; those asked longest ago are forgotten.
MAX_SENDERS: Final = 1_000
#: Characters of a sender's name in a log line.
MAX_SENDER_LENGTH: Final = 249
_MIB: Final = 1 << 20
#: Records that take as much of a budget as a MiB: a loop in Python needs about 1 us for each.
RECORDS_PER_MIB: Final = 2_000

log = logging.getLogger("batchval.proxy")


@dataclass(frozen=True, slots=True)
class RuleBudget:
    """The budget of a rule, and the decision on batches that it does not check.

    ``budget_s``        CPU time of one call for each MiB of records or RECORDS_PER_MIB of them,
                        whichever is more, and for less than one
    ``overruns``        calls of one sender over the budget within ``suspend_s``, after which its
                        batches are refused for ``suspend_s``
    ``pass_suspended``  whether batches pass while the rule is suspended for all
    """

    budget_s: float
    overruns: int
    suspend_s: float
    pass_suspended: bool
    pass_errors: bool


class RuleAnswer(NamedTuple):
    """The answer of a rule; ``reason`` is None where the batch may go on.

    ``used_s``  CPU seconds of the call
    """

    kind: Literal["answered", "error", "suspended"]
    findings: list[RecordFinding]
    reason: str | None
    used_s: float = 0.0


@dataclass(slots=True)
class _Asking:
    """The calls for one sender: when it was asked for last, and the overruns."""

    asked_s: float
    overruns: deque[float] = field(default_factory=deque)
    refused_until: float | None = None


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
        self._senders: OrderedDict[str, _Asking] = OrderedDict()  # asked last is last
        self._running: dict[int, tuple[str, float]] = {}  # by thread: of whom, since when
        self._suspended_until: float | None = None
        self._last_error = ""
        self._logged_s = self._refusal_logged_s = -LOG_S
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
            self.budget = budget

    @property
    def is_suspended(self) -> bool:
        """Return whether the rule is suspended for all: batches pass, or are refused, without a
        call.
        """
        until = self._suspended_until
        return until is not None and self._clock() < until

    @property
    def refused_senders(self) -> int:
        """Return how many senders' batches are refused, because their calls took too long."""
        now = self._clock()
        with self._lock:
            return self._refused(now)

    def _refused(self, now: float) -> int:
        stuck = {key for key, began in self._running.values() if now - began > STUCK_S}
        late = {
            key
            for key, one in self._senders.items()
            if one.refused_until is not None and now < one.refused_until
        }
        return len(stuck | late)

    def _is_refused(self, sender: str, now: float) -> bool:
        """Return whether a sender's own calls have taken too long."""
        one = self._senders.get(sender)
        if one is not None and one.refused_until is not None:
            if now < one.refused_until:
                return True
            one.refused_until = None
            one.overruns.clear()
        return any(key == sender and now - began > STUCK_S for key, began in self._running.values())

    def ask(self, columns: RecordColumns, sender: str = "") -> RuleAnswer:
        """Return what the rule says of the records of one batch of a sender."""
        now = self._clock()
        with self._lock:
            is_refused = self._is_refused(sender, now)
            is_suspended = self.is_suspended
            if is_refused or is_suspended:
                self.unasked_total += 1
        if is_refused:
            text = f"custom rule {self.name} took too long for batches of this client: retry later"
            return RuleAnswer("suspended", [], text)
        if is_suspended:
            passes = self.budget.pass_suspended
            text = f"custom rule {self.name} is suspended: retry later"
            return RuleAnswer("suspended", [], None if passes else text)
        self._resume()
        thread = threading.get_ident()
        started = self._clock()
        with self._lock:
            self._running[thread] = sender, started
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
            with self._lock:
                del self._running[thread]
        budget_s = self._budget_of(columns)
        elapsed_s = self._clock() - started
        self._count(sender, used_s, elapsed_s, budget_s, bool(findings), failure)
        if failure is not None:
            return RuleAnswer(
                "error",
                [],
                None if self.budget.pass_errors else f"custom rule {self.name} failed",
                used_s,
            )
        if findings:
            first = findings[0]
            text = f"record {first.row}: {first.text} (custom rule {self.name})"
            return RuleAnswer("answered", findings, text, used_s)
        return RuleAnswer("answered", [], None, used_s)

    def _resume(self) -> None:
        with self._lock:
            if self._suspended_until is None:
                return
            self._suspended_until = None
            self._senders.clear()
        log.info("custom rule %s is called again", self.name)

    def _budget_of(self, columns: RecordColumns) -> float:
        """Return the CPU seconds that a call for these records may take."""
        units = max(columns.data.nbytes / _MIB, len(columns) / RECORDS_PER_MIB)
        return self.budget.budget_s * max(1.0, units)

    def _count(
        self,
        sender: str,
        used_s: float,
        elapsed_s: float,
        budget_s: float,
        refused: bool,
        failure: str | None,
    ) -> None:
        is_late = used_s > budget_s or elapsed_s > SLOW_S + budget_s
        is_refused = suspended = False
        unlogged = 0
        with self._lock:
            self.calls_total += 1
            self.seconds_total += used_s
            self.refusals_total += refused
            if failure is not None:
                self.errors_total += 1
                unlogged = self._unlogged_errors(failure)
            now = self._clock()
            asking = self._asking(sender, now)
            if is_late:
                self.overruns_total += 1
                is_refused = self._overran(asking, now)
                suspended = is_refused and self._suspends(now)
        if unlogged:
            log.warning(
                "%s%s", failure, "" if unlogged == 1 else f" (and {unlogged - 1} others before it)"
            )
        if suspended or (is_refused and self._may_log()):
            log.warning(
                "custom rule %s is suspended for %s for %g s: %d calls took longer than the "
                "budget, the last one %.1f ms of %.1f ms, and %.1f ms with its waits",
                *(
                    self.name,
                    "all clients" if suspended else sender[:MAX_SENDER_LENGTH] or "a client",
                ),
                *(self.budget.suspend_s, self.budget.overruns),
                *(used_s * 1e3, budget_s * 1e3, elapsed_s * 1e3),
            )

    def _asking(self, sender: str, now: float) -> _Asking:
        """Return the calls of a sender, which was just asked for."""
        found = self._senders.pop(sender, None)
        if found is None:
            if len(self._senders) >= MAX_SENDERS:
                self._senders.popitem(last=False)
            found = _Asking(now)
        found.asked_s = now
        self._senders[sender] = found
        return found

    def _overran(self, asking: _Asking, now: float) -> bool:
        """Note an overrun of a sender; return whether its batches are refused from now on."""
        overruns = asking.overruns
        overruns.append(now)
        while len(overruns) > self.budget.overruns or now - overruns[0] > self.budget.suspend_s:
            overruns.popleft()
        if len(overruns) < self.budget.overruns or asking.refused_until is not None:
            return False
        asking.refused_until = now + self.budget.suspend_s
        return True

    def _suspends(self, now: float) -> bool:
        """Suspend the rule for all where it costs too much for several senders, and for half."""
        if self._suspended_until is not None:
            return False
        asked = sum(now - one.asked_s <= self.budget.suspend_s for one in self._senders.values())
        refused = self._refused(now)
        if refused < MIN_SENDERS or 2 * refused < asked:
            return False
        self._suspended_until = now + self.budget.suspend_s
        return True

    def _may_log(self) -> bool:
        """Return whether a line about one sender is due: they may be many."""
        now = self._clock()
        if now - self._refusal_logged_s < LOG_S:
            return False
        self._refusal_logged_s = now
        return True

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

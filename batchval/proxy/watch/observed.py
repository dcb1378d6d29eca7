"""Batches that rules refuse, or would refuse: which of them are forwarded, and their counts.

    ObserveRules    topic and principal -> whether a batch that breaks a rule is forwarded
    ObservedCounts  (topic, principal, rule, outcome) -> number of batches, first, last, a sample

The second is written to the state directory by ``observed_file`` and printed by
``batchval proxy --report``. It never has a byte of a record.
"""

from __future__ import annotations

import fnmatch
import re
import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from batchval.proxy.kit.topics import is_topic_name
from batchval.proxy.settings.options import ObserveGlobs, Refusal

__all__ = ["INVALID", "OTHER", "ObserveRules", "Observed", "ObservedCounts", "Row", "RowKey"]

#: Topic of all names that Kafka does not allow, and topic and principal of what has no row.
INVALID: Final = "(invalid)"
OTHER: Final = "(other)"

#: Characters of a principal that globs are compared with; a longer one is matched by ``*`` alone.
LONGEST_MATCHED: Final = 2_000
#: Characters that are kept in a row.
LONGEST_PRINCIPAL: Final = 249
LONGEST_CLIENT_ID: Final = 100
LONGEST_REASON: Final = 300
LONGEST_ADDRESS: Final = 100


class ObserveRules:
    """The decision whether a batch that breaks a rule is forwarded. The number of remembered names
    is bounded.

    ``everything``: whether all are; ``rules``: else which are, none where the list is empty.
    A name that Kafka does not allow, or none (a topic id without a name), is matched by ``*``
    alone.
    """

    MOST_KNOWN = 10_000
    MOST_PRINCIPALS = 1_000

    def __init__(self, mode: str, rules: Iterable[ObserveGlobs] = ()) -> None:
        self.rules = list(rules)
        self.everything = mode == "observe" or ObserveGlobs("*", "*") in self.rules
        self._known: dict[tuple[str | None, str], bool] = {}
        self._topics_by_principal: dict[str, Callable[[str], object] | None] = {}

    def observes(self, topic: str | None, principal: str) -> bool:
        """Return whether a refusal of this topic and principal is counted only."""
        if self.everything:
            return True
        if not self.rules:
            return False
        known = self._known.get((topic, principal))
        return self._decide(topic, principal) if known is None else known

    def _decide(self, topic: str | None, principal: str) -> bool:
        name = topic if topic is not None and is_topic_name(topic) else ""
        whose = principal if len(principal) <= LONGEST_MATCHED else ""
        matches = self._topics_of(whose)
        observed = matches is not None and matches(name) is not None
        if len(principal) <= LONGEST_PRINCIPAL and name == topic:  # others may be long
            if len(self._known) >= self.MOST_KNOWN:
                self._known.clear()
            self._known[topic, principal] = observed
        return observed

    def _topics_of(self, principal: str) -> Callable[[str], object] | None:
        """Return what matches the topics that are observed for a principal: one pattern."""
        try:
            return self._topics_by_principal[principal]
        except KeyError:
            globs = {
                rule.topics
                for rule in self.rules
                if fnmatch.fnmatchcase(principal, rule.principals)
            }
            pattern = "|".join(fnmatch.translate(glob) for glob in sorted(globs))
            matches = re.compile(pattern).match if globs else None
            if len(self._topics_by_principal) >= self.MOST_PRINCIPALS:
                self._topics_by_principal.clear()
            self._topics_by_principal[principal] = matches
            return matches


class RowKey(NamedTuple):
    """The key of counts. ``enforced``: refused; else observed, that is forwarded."""

    topic: str
    principal: str
    rule: str
    enforced: bool


class Row(NamedTuple):
    """Batches of one RowKey, and the newest as a sample. Times are milliseconds since 1970, UTC."""

    batches: int
    first_ms: int
    last_ms: int
    client: str
    client_id: str | None
    partition: int
    error: str
    reason: str


class Observed(NamedTuple):
    """All counts at one moment. ``judged``: batches validated since ``since_ms``."""

    mode: str
    since_ms: int
    until_ms: int
    judged: int
    rows: list[tuple[RowKey, Row]]


class ObservedCounts:
    """Batches that broke a rule, by topic, principal, rule and outcome: at most ``most`` rows.

    ``is_known``  whether a topic exists; topics of which nothing is known have a tenth of the rows,
                  so that invented names cannot take those of real topics
    ``judged``    batches validated in all, by this process
    ``clock_ns``  time since 1970

    Beyond the rows, topics share ``(other)``: a row for each principal, at most a tenth of ``most``
    more, and after those one for each rule.
    """

    MOST = 10_000

    def __init__(
        self,
        mode: str,
        *,
        most: int = MOST,
        is_known: Callable[[str], bool] = lambda _: True,
        judged: Callable[[], int] = lambda: 0,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.mode = mode
        self.most = most
        self.changes = 0  # rises with each refusal
        self._is_known = is_known
        self._judged = judged
        self._clock_ns = clock_ns
        self._since_ms = self._now_ms()
        self._judged_before = 0
        self._rows: dict[RowKey, Row] = {}
        self._unknown = 0  # rows of topics that were not known
        self._others = 0  # rows of (other)

    def __call__(self, refusal: Refusal) -> None:
        """Count a refusal. Reports of extras alone are none."""
        if not refusal.rule:
            return
        key = self._key_of(refusal)
        row = self._rows.get(key)
        now_ms = self._now_ms()
        self.changes += 1
        self._rows[key] = Row(
            refusal.batches + (0 if row is None else row.batches),
            now_ms if row is None else row.first_ms,
            now_ms,
            refusal.client[:LONGEST_ADDRESS],
            None if refusal.client_id is None else refusal.client_id[:LONGEST_CLIENT_ID],
            refusal.partition,
            refusal.error,
            refusal.reason[:LONGEST_REASON],
        )

    def snapshot(self) -> Observed:
        """Return the counts as they are now; later refusals do not change them."""
        judged = self._judged_before + self._judged()
        return Observed(self.mode, self._since_ms, self._now_ms(), judged, list(self._rows.items()))

    def take(self, most: int) -> list[tuple[RowKey, Row, bool]]:
        """Remove and return rows, at most ``most``, and whether the topic of each is known."""
        taken: list[tuple[RowKey, Row, bool]] = []
        while self._rows and len(taken) < most:
            key, row = self._rows.popitem()
            is_known = key.topic not in (INVALID, OTHER) and self._is_known(key.topic)
            self._others -= key.topic == OTHER
            self._unknown = max(
                0, self._unknown - (key.topic not in (INVALID, OTHER) and not is_known)
            )
            taken.append((key, row, is_known))
        return taken

    def merge(self, key: RowKey, row: Row) -> None:
        """Add a row that another process has counted."""
        key = self._row_of(key)
        before = self._rows.get(key)
        self.changes += 1
        if before is not None:
            batches, first_ms = before.batches + row.batches, min(before.first_ms, row.first_ms)
            newest = row if row.last_ms >= before.last_ms else before
            row = newest._replace(batches=batches, first_ms=first_ms)
        self._rows[key] = row

    def follow(self, earlier: Observed) -> None:
        """Add the batches that an earlier process has validated, but no row."""
        self._since_ms = min(earlier.since_ms, self._since_ms)
        self._judged_before += earlier.judged

    def restore(self, earlier: Observed) -> None:
        """Go on from the counts of an earlier process. Call it before the first refusal."""
        self.follow(earlier)
        for key, row in earlier.rows[: 2 * self.most]:
            self._others += key.topic == OTHER
            self._unknown += key.topic not in (INVALID, OTHER) and not self._is_known(key.topic)
            self._rows[key] = row

    def _now_ms(self) -> int:
        return self._clock_ns() // 1_000_000

    def _key_of(self, refusal: Refusal) -> RowKey:
        """Return the row to count in: its own where it has one or may have one."""
        topic = (
            OTHER
            if refusal.topic is None
            else refusal.topic
            if is_topic_name(refusal.topic)
            else INVALID
        )
        return self._row_of(
            RowKey(topic, refusal.principal[:LONGEST_PRINCIPAL], refusal.rule, refusal.enforced)
        )

    def _row_of(self, key: RowKey) -> RowKey:
        topic, principal, rule, enforced = key
        if key in self._rows:
            return key
        if topic != OTHER and len(self._rows) - self._others < self.most:
            if topic == INVALID or self._is_known(topic):
                return key
            if self._unknown < self.most // 10:
                self._unknown += 1
                return key
        key = RowKey(OTHER, principal, rule, enforced)
        if key in self._rows:
            return key
        if self._others < self.most // 10:
            self._others += 1
            return key
        return RowKey(OTHER, OTHER, rule, enforced)

"""Checks of a request's records in Python, after the native verdicts on its partitions.

    schema id refused ── an id that no registry was asked for ──▶ ask ──▶ validate again, or refuse
    accepted ── the topic has custom rules ──▶ call them ──▶ leave accepted, or refuse

All of it is done in validating threads, which never wait: ``step`` returns "waiting" with the
questions that have to be answered first.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import numpy as np

from batchval.core.batches.record_columns import RecordColumns, record_columns
from batchval.core.format.layout import MAGIC, RECORDS, RECORDS_COUNT
from batchval.errors import BatchvalError, ErrorCode
from batchval.proxy.produce.verdicts import Verdicts
from batchval.proxy.settings.glob_policies import RegistryIds, TopicRules
from batchval.proxy.watch.senders import RULE_S, Sender, Share
from batchval.record_rules import SchemaIds
from batchval.rules import Rule
from batchval.schema_registry import Asker, RegistryBusyError

if TYPE_CHECKING:
    from batchval.core.batches.validator import LogValidator
    from batchval.protocol.walkers.produce import ProduceRequestView
    from batchval.proxy.settings.options import TopicPolicies

__all__ = [
    "CUSTOM_RULE",
    "CUSTOM_RULE_SUSPENDED",
    "REGISTRY_UNAVAILABLE",
    "RecordStage",
    "Validators",
]

#: The rule's name of a batch whose records carry an id that is not allowed.
SCHEMA_ID: Final = Rule.R1.slug
#: The rules' names of partitions that are refused here.
CUSTOM_RULE: Final = "custom-rule"
CUSTOM_RULE_SUSPENDED: Final = "custom-rule-suspended"
REGISTRY_UNAVAILABLE: Final = "schema-registry-unavailable"
#: Ids of one batch that a registry is asked for. A batch with more of them is refused.
MAX_ASKED_IDS: Final = 16
#: Questions in a second, and at once after a pause: of one connection, and of one sender. Senders
#: that are new are one. A registry is asked 100 in a second for all.
QUESTIONS: Final = "registry_questions"
SESSION_QUESTIONS_PER_S: Final = 10.0
MAX_SESSION_QUESTIONS: Final = 1_000.0
SENDER_QUESTIONS_PER_S: Final = 20.0
MAX_SENDER_QUESTIONS: Final = 2_000.0
#: Records of one batch whose headers are read for ids that are not known.
MAX_HEADER_ROWS: Final = 50_000
#: Records whose ids numpy reads in one call, in which it keeps the interpreter to itself.
ROWS_AT_ONCE: Final = 2_048
#: Bytes of memory that a record takes as a row of columns.
ROW_BYTES: Final = 48
#: Seconds after a question's own time: then it has failed, and the registry counts as down.
GRACE_S: Final = 0.25
_ID_BYTES: Final = 5  # int8 magic 0, int32 id
_NUMBERS: Final = range(2**31)


class _Question(NamedTuple):
    registry: RegistryIds
    subject: str
    schema_id: int
    answer: Future[frozenset[str]]


class _Asked(NamedTuple):
    """A partition whose verdict depends on answers."""

    partition: int
    topic: str
    rules: TopicRules
    questions: list[_Question]


class Validators(NamedTuple):
    """The validators of topics, and what is asked of their records.

    ``whole``     of topics without a policy of their own
    ``of``        the fast path's (None with custom rules) and the full one, of a topic
    ``topic_of``  the name of the topic of a request's n-th partition; None for an unknown id
    """

    topics: TopicPolicies
    whole: LogValidator
    of: Callable[[str | None], tuple[LogValidator | None, LogValidator]]
    topic_of: Callable[[ProduceRequestView, int], str | None]


class RecordStage:
    """The partitions of one request whose topics have registries or custom rules."""

    def __init__(
        self,
        validators: Validators,
        request: ProduceRequestView,
        verdicts: Verdicts,
        account: Sender,
        share: Share,
    ) -> None:
        self._validators = validators
        self._account = account
        self._asker_share = share
        self._asker = Asker(account.key if account.is_known else "", share, self._may_ask_more)
        self._request = request
        self._verdicts = verdicts
        self._rows: list[tuple[int, str, TopicRules]] = []
        for i in range(len(verdicts)):
            topic = validators.topic_of(request, i)
            rules = validators.topics.rules_of(topic)
            if rules is not None and topic is not None and (rules.registries or rules.custom_rules):
                self._rows.append((i, topic, rules))
        self._asked: list[_Asked] = []
        self._is_reopened = False
        # rows that were looked at
        self._next_asked = 0
        self._next = 0

    @property
    def is_needed(self) -> bool:
        """Return whether any partition is left to check."""
        return any(
            self._may_ask(i, rules) or self._has_custom(i, rules) for i, _, rules in self._rows
        )

    @property
    def calls_rules(self) -> bool:
        """Return whether any custom rule is left to call: nobody knows how long that takes."""
        return any(self._has_custom(i, rules) for i, _, rules in self._rows[self._next :])

    def _may_ask(self, i: int, rules: TopicRules) -> bool:
        return bool(rules.registries) and self._verdicts.rule(i) == SCHEMA_ID

    def _has_custom(self, i: int, rules: TopicRules) -> bool:
        return bool(rules.custom_rules) and self._verdicts.ok(i)

    def step(self, end: float) -> Literal["done", "more", "waiting", "validate"]:
        """Go on until the thread's time ``end``.

        Returns "waiting" where ``questions`` have to be answered, "validate" where partitions were
        reopened, "more" where time is up.
        """
        while self._next_asked < len(self._rows):
            if time.thread_time() >= end:
                return "more"
            i, topic, rules = self._rows[self._next_asked]
            self._next_asked += 1
            if self._may_ask(i, rules) and self._ask(i, topic, rules):
                self._is_reopened = True
            if self._next_asked == len(self._rows) and self._asked:
                return "waiting"
        asked, self._asked = self._asked, []
        for one in asked:
            if self._decide(one):
                self._is_reopened = True
        if self._is_reopened:
            self._is_reopened = False
            return "validate"
        while self._next < len(self._rows):
            if time.thread_time() >= end:
                return "more"
            i, _, rules = self._rows[self._next]
            self._next += 1
            if self._has_custom(i, rules):
                self._call(i, rules)
        return "done"

    @property
    def questions(self) -> list[Future[frozenset[str]]]:
        """Return the questions that must be answered before the next step."""
        return [question.answer for asked in self._asked for question in asked.questions]

    @property
    def wait_s(self) -> float:
        """Return how long to wait for them at most, in seconds."""
        questions = [question for asked in self._asked for question in asked.questions]
        return GRACE_S + max(
            (one.registry.subjects.client.timeout_s for one in questions), default=0.0
        )

    # ---- registries ------------------------------------------------------------------------------

    def _may_ask_more(self) -> bool:
        """Return whether the rates of the connection and of its sender allow a question more."""
        clock = time.monotonic
        return self._asker_share.may(
            QUESTIONS, SESSION_QUESTIONS_PER_S, MAX_SESSION_QUESTIONS, clock
        ) and self._account.place.may(
            QUESTIONS, SENDER_QUESTIONS_PER_S, MAX_SENDER_QUESTIONS, clock
        )

    def _ask(self, i: int, topic: str, rules: TopicRules) -> bool:
        """Ask for a partition's unknown ids; return whether it is reopened: all are known now."""
        columns = self._columns(i)
        if isinstance(columns, str):
            return False
        questions: list[_Question] = []
        for registry in rules.registries:
            subject = registry.subject_of(topic)
            found = _unknown_ids(
                columns, rules.schema_ids[registry.entry], registry.subjects.ids(subject)
            )
            is_answered = any(
                registry.subjects.is_absent(subject, one, self._asker) for one in found
            )
            if (
                len(found) > MAX_ASKED_IDS
                or is_answered
                or not all(one in _NUMBERS for one in found)
            ):
                return False
            questions += [
                _Question(registry, subject, one, registry.subjects.ask(subject, one, self._asker))
                for one in found
            ]
        if not questions:
            self._reopen(i, topic, rules)
            return True
        self._asked.append(_Asked(i, topic, rules, questions))
        return False

    def _decide(self, asked: _Asked) -> bool:
        """Decide about a partition by the answers. Return whether it is reopened."""
        passed: dict[int, frozenset[int]] = {}
        failed: _Question | None = None
        for question in asked.questions:
            answer = question.answer
            error = answer.exception() if answer.done() else TimeoutError("no answer in time")
            if error is None:
                if question.subject not in answer.result():
                    return False
                continue
            # too many questions at once must not let batches pass
            is_down = question.registry.subjects.is_down and not isinstance(
                error, RegistryBusyError
            )
            if question.registry.pass_on_error and is_down:
                entry = question.registry.entry
                passed[entry] = passed.get(entry, frozenset()) | {question.schema_id}
            else:
                failed = question
        if failed is not None:
            text = (
                f"the schema registry does not answer for schema id {failed.schema_id}: retry later"
            )
            failed.registry.subjects.count_unanswered(passed=False)
            self._verdicts.refuse(
                asked.partition, REGISTRY_UNAVAILABLE, ErrorCode.REQUEST_TIMED_OUT, [], text
            )
            return False
        if passed:
            asked.questions[0].registry.subjects.count_unanswered(passed=True)
        self._reopen(asked.partition, asked.topic, asked.rules, passed)
        return True

    def _reopen(
        self, i: int, topic: str, rules: TopicRules, more: dict[int, frozenset[int]] | None = None
    ) -> None:
        if more:
            policy = rules.policy_with(topic, self._validators.topics.configuration_of(topic), more)
            validator = self._validators.whole.with_policy(policy)
        else:
            validator = self._validators.of(topic)[1]
        self._verdicts.reopen(i, validator)

    # ---- custom rules ----------------------------------------------------------------------------

    def _call(self, i: int, rules: TopicRules) -> None:
        """Call the custom rules of a partition that was accepted, up to the first that refuses."""
        columns = self._columns(i)
        if isinstance(columns, str):
            self._verdicts.refuse(i, CUSTOM_RULE, ErrorCode.INVALID_RECORD, [], columns)
            return
        for rule in rules.custom_rules:
            answer = rule.ask(columns, self._account.key)
            self._account.use(RULE_S, answer.used_s, time.monotonic())
            if answer.reason is None:
                continue
            errors = [(finding.row, finding.text) for finding in answer.findings]
            if answer.kind == "suspended":
                name, code = CUSTOM_RULE_SUSPENDED, ErrorCode.REQUEST_TIMED_OUT
            else:
                name, code = CUSTOM_RULE, ErrorCode.INVALID_RECORD
            self._verdicts.refuse(i, name, code, errors, answer.reason)
            return

    def _columns(self, i: int) -> RecordColumns | str:
        """Return the records of a partition, or why they cannot be passed to custom rules."""
        records = self._request.records(i)
        limit = self._validators.whole.max_decompressed_bytes
        assert limit is not None  # ProduceValidator requires it
        if records is None:
            return "the records cannot be read for custom rules: they are null"
        if len(records) >= RECORDS and records[MAGIC] == 2:
            count = int.from_bytes(records[RECORDS_COUNT:RECORDS], "big", signed=True)
            if count * ROW_BYTES > limit:
                return (
                    f"{count} records need {count * ROW_BYTES} bytes for custom rules, "
                    f"but max_decompressed_bytes is {limit}"
                )
        try:
            return record_columns(records, check_crcs=False, max_decompressed_bytes=limit)
        except BatchvalError as error:
            return f"the records cannot be read for custom rules: {error}"


def _unknown_ids(columns: RecordColumns, schema: SchemaIds, known: frozenset[int]) -> set[int]:
    """Return unknown ids at one place; where they exceed MAX_ASKED_IDS, not all of them."""
    if schema.place == "header":
        return _unknown_in_headers(columns, schema, known)
    lengths, places = columns[f"{schema.place}_length"], columns[f"{schema.place}_position"]
    data = np.frombuffer(columns.data, np.uint8)
    unknown: set[int] = set()
    for start in range(0, len(lengths), ROWS_AT_ONCE):
        end = start + ROWS_AT_ONCE
        positions = places[start:end][lengths[start:end] >= _ID_BYTES]
        positions = positions[data[positions] == 0]
        parts = [
            data[positions + n].astype(np.int64) << (8 * (_ID_BYTES - 1 - n))
            for n in range(1, _ID_BYTES)
        ]
        found = np.unique(sum(parts, np.zeros(len(positions), np.int64)))
        unknown.update(
            one if one < 2**31 else one - 2**32 for one in found.tolist() if one not in known
        )
        if len(unknown) > MAX_ASKED_IDS:
            break
    return unknown


def _unknown_in_headers(
    columns: RecordColumns, schema: SchemaIds, known: frozenset[int]
) -> set[int]:
    unknown: set[int] = set()
    for row in np.flatnonzero(columns["headers_count"] > 0)[:MAX_HEADER_ROWS].tolist():
        number = None
        value = columns.last_header(row, schema.header)
        if value is not None and len(value) in (4, 8):
            number = int.from_bytes(value, "big", signed=True)
        elif value is not None and len(value) == _ID_BYTES and value[0] == 0:
            number = int.from_bytes(value[1:], "big", signed=True)
        if number is not None and number not in known:
            unknown.add(number)
        if len(unknown) > MAX_ASKED_IDS:
            break
    return unknown

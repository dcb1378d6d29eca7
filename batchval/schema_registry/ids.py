"""The schema ids of many subjects, kept in memory.

    ids(subject)         what is known now; never blocks
    ask(subject, id)     a Future for an id that is not known: one question at a time for each id;
                         those that ask take turns, and leave a thread to others
    one thread           reads the versions of all subjects anew, every ``refresh_s``

Ids that are known stay known while the registry is down. An id that the registry does not have for
the subject is not asked for again for ``absent_s``, so that a schema which is registered after that
is found. Subjects without ids are read once: their names may be those of strangers, and a question
about an id finds what is registered for them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from batchval.schema_registry.registry_client import (
    RegistryAnswerError,
    RegistryClient,
    RegistryError,
)
from batchval.token_bucket import TokenBucket

__all__ = ["Asker", "RegistryBusyError", "SubjectIds"]

#: Subjects that are remembered; one more, and the oldest without ids is forgotten. Up to a tenth
#: more where many have ids.
MAX_SUBJECTS: Final = 10_000
#: Subjects with ids that one call passes over in search of one without.
MAX_PASSED_SUBJECTS: Final = 100
#: Ids of one subject.
MAX_IDS: Final = 100_000
#: Ids of a subject that are known not to be there.
MAX_ABSENT_IDS: Final = 10_000
#: Questions that wait for an answer: of all, and of one connection, which are those of two batches.
MAX_QUESTIONS: Final = 256
MAX_OWN_QUESTIONS: Final = 32
#: Questions in a second, and new subjects that are read: in the long run, and at once after a time
#: without any, as at the start of a gate. Clients choose ids and topics.
QUESTIONS_PER_S: Final = 100.0
MAX_AT_ONCE: Final = 10_000.0
#: Seconds between readings of new subjects where these are too many.
PAUSE_S: Final = 0.1
#: Seconds between log lines about answers that cannot be used.
LOG_S: Final = 60.0
#: Threads that ask: others need not wait for one slow answer. One sender may have all but one.
THREADS: Final = 3

log = logging.getLogger("batchval.schema_registry")


class RegistryBusyError(RegistryError):
    """An error: too many requests wait for an answer already, or were sent a moment ago."""


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Asker:
    """The one for whom a question is asked.

    ``sender``   its name: one sender leaves a thread to others
    ``session``  its connection: those take turns
    ``may``      returns whether one more question is within its rate
    """

    sender: str = ""
    session: Hashable = None
    may: Callable[[], bool] = _always


#: The one for whom questions of no connection are asked.
ANYBODY: Final = Asker()


@dataclass(slots=True)
class _Question:
    """A question that waits or is asked; ``subjects`` by the senders that want to know."""

    asker: Asker
    schema_id: int
    answer: Future[frozenset[str]]
    subjects: set[tuple[str, str]]


@dataclass(slots=True)
class _Subject:
    """The known ids of one subject."""

    ids: frozenset[int] = frozenset()
    versions: dict[int, int] = field(default_factory=dict)
    # by questions since the versions were read: id -> when
    found: dict[int, float] = field(default_factory=dict)


class SubjectIds:
    """The ids of subjects in one registry. ``start`` it for the reading in the background, and
    ``close`` it.

    ``refresh_s``  between two readings of all subjects
    ``absent_s``   how long an id that is absent is not asked for again
    ``retry_s``    after a failure, no question is asked for so long
    ``is_down``    whether the last request has failed
    """

    def __init__(
        self,
        client: RegistryClient,
        *,
        refresh_s: float = 60.0,
        absent_s: float = 1.0,
        retry_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.client = client
        self._refresh_s = refresh_s
        self._absent_s = absent_s
        self._retry_s = retry_s
        self._clock = clock
        self._lock = threading.Lock()
        self._subjects: OrderedDict[str, _Subject] = OrderedDict()
        # (sender, subject, id) -> until when: another sender may know of a schema that is newer
        self._absent: OrderedDict[tuple[str, str, int], float] = OrderedDict()
        self._unusable: OrderedDict[int, float] = OrderedDict()
        # for questions, and for new subjects that are read
        self._rate = TokenBucket(QUESTIONS_PER_S, MAX_AT_ONCE, clock)
        self._reading_rate = TokenBucket(QUESTIONS_PER_S, MAX_AT_ONCE, clock)
        self._logged_until = 0.0
        self._asked: dict[int, _Question] = {}
        self._lines: OrderedDict[Hashable, deque[_Question]] = OrderedDict()  # by connection
        self._own: Counter[Hashable] = Counter()  # that wait or are asked, by connection
        self._serving: Counter[str] = Counter()  # that are asked, by sender
        self._new: set[str] = set()
        self._down_until = 0.0
        self.is_down = False
        self._wake = threading.Event()
        self._end = threading.Event()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="batchval-registry")
        self._reader: threading.Thread | None = None
        self.questions_total = 0
        self.failures_total = 0
        self.passed_total = 0
        self.unanswered_total = 0

    # ---- what is known ---------------------------------------------------------------------------

    def ids(self, subject: str) -> frozenset[int]:
        """Return the ids that are known. A subject that is new here is read soon."""
        found = self._subjects.get(subject)
        if found is not None:
            return found.ids
        with self._lock:
            found = self._subjects.setdefault(subject, _Subject())
            self._forget_some()
            if len(self._new) < MAX_SUBJECTS:
                self._new.add(subject)
        self._wake.set()
        return found.ids

    def _forget_some(self) -> None:
        """Forget the oldest subjects without ids: strangers' names must not push real ones out."""
        for _ in range(MAX_PASSED_SUBJECTS):
            if len(self._subjects) <= MAX_SUBJECTS:
                return
            name, oldest = self._subjects.popitem(last=False)
            if oldest.ids:
                self._subjects[name] = oldest
        while len(self._subjects) > MAX_SUBJECTS + MAX_SUBJECTS // 10:
            self._subjects.popitem(last=False)

    def is_absent(self, subject: str, schema_id: int, asker: Asker = ANYBODY) -> bool:
        """Return whether the registry did not have the id a moment ago, as this sender knows."""
        until = self._absent.get((asker.sender, subject, schema_id))
        return until is not None and self._clock() < until

    def __len__(self) -> int:
        return len(self._subjects)

    def count_unanswered(self, *, passed: bool) -> None:
        """Count a batch that has passed or was refused, because its id got no answer."""
        with self._lock:
            self.passed_total += passed
            self.unanswered_total += not passed

    # ---- what is asked ---------------------------------------------------------------------------

    def ask(self, subject: str, schema_id: int, asker: Asker = ANYBODY) -> Future[frozenset[str]]:
        """Return a Future of the subjects that have the id; ``ids`` has it then, too.

        It fails with RegistryError where the registry is down, RegistryAnswerError where its answer
        about this id cannot be used, RegistryBusyError where too much is asked. Nobody may cancel
        it: others may wait for the same answer.
        """
        with self._lock:
            asked = self._asked.get(schema_id)
            if asked is not None:
                asked.subjects.add((asker.sender, subject))
                return asked.answer
            answer: Future[frozenset[str]] = Future()
            if self._end.is_set() or self._clock() < self._down_until:
                answer.set_exception(
                    RegistryError(f"{self.client.url}: did not answer a moment ago")
                )
                return answer
            if self._clock() < self._unusable.get(schema_id, 0.0):
                text = f"{self.client.url}: had no answer for schema id {schema_id} a moment ago"
                answer.set_exception(RegistryAnswerError(text))
                return answer
            if len(self._asked) >= MAX_QUESTIONS:
                answer.set_exception(
                    RegistryBusyError(
                        f"{self.client.url}: {MAX_QUESTIONS} requests wait for an answer"
                    )
                )
                return answer
            if self._own[asker.session] >= MAX_OWN_QUESTIONS or not asker.may():
                text = f"{self.client.url}: too many questions for records of one client"
                answer.set_exception(RegistryBusyError(text))
                return answer
            if not self._rate.take():
                text = f"{self.client.url}: at most {QUESTIONS_PER_S:g} requests a second are sent"
                answer.set_exception(RegistryBusyError(text))
                return answer
            question = _Question(asker, schema_id, answer, {(asker.sender, subject)})
            self._asked[schema_id] = question
            self._lines.setdefault(asker.session, deque()).append(question)
            self._own[asker.session] += 1
            self.questions_total += 1
        try:
            self._pool.submit(self._answer_some)
        except RuntimeError:  # closed meanwhile
            self._fail_all()
        return answer

    def _fail_all(self) -> None:
        """Fail what waits: the threads have ended."""
        with self._lock:
            questions = [one for line in self._lines.values() for one in line]
            self._lines.clear()
            for one in questions:
                self._asked.pop(one.schema_id, None)
                self._leave(one)
        for one in questions:
            one.answer.set_exception(RegistryError(f"{self.client.url}: the client is closed"))

    def _answer_some(self) -> None:
        """Ask what waits, in a thread of the pool."""
        while (question := self._next()) is not None:
            try:
                self._answer(question)
            finally:
                with self._lock:
                    self._serving[question.asker.sender] -= 1
                    if not self._serving[question.asker.sender]:
                        del self._serving[question.asker.sender]

    def _next(self) -> _Question | None:
        """Return the first question of the connection whose turn it is.

        One whose sender has all threads that it may have waits for these: they look here again.
        """
        with self._lock:
            for session in list(self._lines):
                line = self._lines.pop(session)
                question = line[0]
                is_served = self._serving[question.asker.sender] < max(1, THREADS - 1)
                if is_served:
                    line.popleft()
                if line:
                    self._lines[session] = line
                if is_served:
                    self._serving[question.asker.sender] += 1
                    return question
            return None

    def _leave(self, question: _Question) -> None:
        """Forget that a connection has a question."""
        session = question.asker.session
        self._own[session] -= 1
        if not self._own[session]:
            del self._own[session]

    def _answer(self, question: _Question) -> None:
        """Ask for one id."""
        schema_id, answer = question.schema_id, question.answer
        found: frozenset[str] = frozenset()
        failure: Exception | None = None
        if self._clock() < self._down_until:
            failure = RegistryError(f"{self.client.url}: did not answer a moment ago")
        else:
            try:
                found = self.client.subjects_of(schema_id)
            except RegistryAnswerError as error:
                failure = error
                self._answered()
                self._cannot_use(error)
            except Exception as error:
                failure = error
                self._failed(error)
            else:
                self._answered()
        with self._lock:
            del self._asked[schema_id]
            self._leave(question)
            if failure is None:
                self._note(schema_id, found, question.subjects)
            elif isinstance(failure, RegistryAnswerError):
                self._unusable[schema_id] = self._clock() + self._retry_s
                self._unusable.move_to_end(schema_id)
                if len(self._unusable) > MAX_ABSENT_IDS:
                    self._unusable.popitem(last=False)
        if failure is None:
            answer.set_result(found)
        else:
            answer.set_exception(failure)

    def _note(self, schema_id: int, found: frozenset[str], asking: set[tuple[str, str]]) -> None:
        now = self._clock()
        for name in found & self._subjects.keys():
            subject = self._subjects[name]
            if schema_id not in subject.ids and len(subject.ids) < MAX_IDS:
                subject.found[schema_id] = now
                subject.ids |= {schema_id}
        for sender, name in asking:
            if name not in found:
                self._absent[sender, name, schema_id] = now + self._absent_s
        while len(self._absent) > MAX_ABSENT_IDS:
            self._absent.popitem(last=False)

    # ---- what is read in the background ----------------------------------------------------------

    def start(self) -> None:
        """Begin to read subjects in a thread."""
        if self._reader is None:
            self._reader = threading.Thread(
                target=self._read_on, name="batchval-registry-reader", daemon=True
            )
            self._reader.start()

    def close(self) -> None:
        """End the threads; questions that wait fail. An answer that is under way is not awaited."""
        self._end.set()
        self._down_until = float("inf")
        self._wake.set()
        self._pool.shutdown(wait=False)

    def _read_on(self) -> None:
        next_s = self._clock() + self._refresh_s
        missed: set[str] = set()
        while not self._end.is_set():
            self._wake.wait(max(0.0, next_s - self._clock()))
            self._wake.clear()
            with self._lock:
                wanted = missed & self._subjects.keys()
                while self._new and self._reading_rate.take():
                    wanted.add(self._new.pop())
                if self._clock() >= next_s:
                    next_s = self._clock() + self._refresh_s
                    wanted |= {name for name, known in self._subjects.items() if known.ids}
            missed = self._read_all(wanted)
            if missed or self._new:
                self._end.wait(self._retry_s if missed else PAUSE_S)
                self._wake.set()

    def _read_all(self, wanted: set[str]) -> set[str]:
        """Read subjects; return those that a failure has left."""
        left = set(wanted)
        for subject in wanted:
            if self._end.is_set():
                break
            try:
                self.read(subject)
            except RegistryAnswerError as error:  # what is known of the others is read all the same
                self._cannot_use(error)
            except Exception as error:
                self._failed(error)
                return left
            self._answered()
            left.discard(subject)
        return set()

    def read(self, subject: str) -> None:
        """Read the ids of all versions of a subject. RegistryError."""
        known = self._subjects.get(subject)
        if known is None:
            return
        began = self._clock()
        versions: dict[int, int] = {}
        for version in (self.client.versions(subject) or [])[-MAX_IDS:]:
            if self._end.is_set():
                return
            schema_id = known.versions.get(version)
            if schema_id is None:
                schema_id = self.client.id_of(subject, version)
            if schema_id is not None:
                versions[version] = schema_id
        with self._lock:
            known.versions = versions
            known.found = {one: when for one, when in known.found.items() if when >= began}
            ids = frozenset((*versions.values(), *known.found))
            if ids != known.ids:
                known.ids = ids

    # ---- whether it answers ----------------------------------------------------------------------

    def _failed(self, error: Exception) -> None:
        with self._lock:
            self.failures_total += 1
            self._down_until = max(self._down_until, self._clock() + self._retry_s)
            was_down, self.is_down = self.is_down, True
        if not was_down:
            log.warning(
                "the schema registry does not answer: %s", str(error) or type(error).__name__
            )

    def _cannot_use(self, error: RegistryAnswerError) -> None:
        """Count an answer that is of no use for one question, and log some of them."""
        with self._lock:
            self.failures_total += 1
            now = self._clock()
            is_logged = now >= self._logged_until
            if is_logged:
                self._logged_until = now + LOG_S
        if is_logged:
            log.warning("an answer of the schema registry cannot be used: %s", error)

    def _answered(self) -> None:
        was_down, self.is_down = self.is_down, False
        if was_down:
            log.info("the schema registry %s answers again", self.client.url)

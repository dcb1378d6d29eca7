"""Batches that rules refuse, or would refuse: which of them are forwarded, and their counts.

    ObserveRules    topic and principal -> whether a batch that breaks a rule is forwarded
    ObservedCounts  (topic, principal, rule, outcome) -> number of batches, first, last, a sample

The second is written to the state directory by ``ObservedFile`` and printed by
``batchval proxy --report``. It never has a byte of a record.

``ObservedFile`` keeps them over restarts, in observed.json of the state directory:

    {"version": 1, "mode": "observe", "since_ms": 1769850000000, "until_ms": 1769850600000,
     "judged": 1204330, "rows": [
    ["orders", "User:alice", "crc-mismatch", false, 3, 1769850000000, 1769850600000,
     "10.0.0.7:51324", "client-1", 3, "CORRUPT_MESSAGE",
     "Record is corrupt (stored crc = 1, computed crc = 2)"]
    ]}

One row a line: the fields of RowKey, then those of Row.
"""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
import json
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from batchval.errors import BatchvalError
from batchval.proxy.cluster.state_file import replace_file, set_aside
from batchval.proxy.kit.topics import is_topic_name
from batchval.proxy.settings.config import ObserveRule
from batchval.proxy.settings.options import Refusal

__all__ = [
    "INVALID",
    "NAME",
    "OTHER",
    "ObserveRules",
    "Observed",
    "ObservedCounts",
    "ObservedFile",
    "ObservedRow",
    "RowKey",
    "read_observed",
]

#: Topic of all names that Kafka does not allow, and topic and principal of what has no row.
INVALID: Final = "(invalid)"

OTHER: Final = "(other)"

#: Characters of a principal that globs are compared with; a longer one is matched by ``*`` alone.
MAX_MATCHED_LENGTH: Final = 2_000

#: Characters that are kept in a row.
MAX_PRINCIPAL_LENGTH: Final = 249

MAX_CLIENT_ID_LENGTH: Final = 100

MAX_REASON_LENGTH: Final = 300

MAX_ADDRESS_LENGTH: Final = 100


class ObserveRules:
    """The decision whether a batch that breaks a rule is forwarded. The number of remembered names
    is bounded.

    ``everything``: whether all are; ``rules``: else which are, none where the list is empty.
    A name that Kafka does not allow, or none (a topic id without a name), is matched by ``*``
    alone.
    """

    MAX_KNOWN_TOPICS = 10_000
    MAX_PRINCIPALS = 1_000

    def __init__(self, mode: str, rules: Iterable[ObserveRule] = ()) -> None:
        self.rules = list(rules)
        self.everything = mode == "observe" or ObserveRule() in self.rules
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
        whose = principal if len(principal) <= MAX_MATCHED_LENGTH else ""
        matches = self._topics_of(whose)
        observed = matches is not None and matches(name) is not None
        if len(principal) <= MAX_PRINCIPAL_LENGTH and name == topic:  # others may be long
            if len(self._known) >= self.MAX_KNOWN_TOPICS:
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
            if len(self._topics_by_principal) >= self.MAX_PRINCIPALS:
                self._topics_by_principal.clear()
            self._topics_by_principal[principal] = matches
            return matches


class RowKey(NamedTuple):
    """The key of counts. ``enforced``: refused; else observed, that is forwarded."""

    topic: str
    principal: str
    rule: str
    enforced: bool


class ObservedRow(NamedTuple):
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
    rows: list[tuple[RowKey, ObservedRow]]


class ObservedCounts:
    """Batches that broke a rule, by topic, principal, rule and outcome: at most ``most`` rows.

    ``is_known``  whether a topic exists; topics of which nothing is known have a tenth of the rows,
                  so that invented names cannot take those of real topics
    ``judged``    batches validated in all, by this process
    ``clock_ns``  time since 1970

    Beyond the rows, topics share ``(other)``: a row for each principal, at most a tenth of ``most``
    more, and after those one for each rule.
    """

    MAX_ROWS = 10_000

    def __init__(
        self,
        mode: str,
        *,
        most: int = MAX_ROWS,
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
        self._rows: dict[RowKey, ObservedRow] = {}
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
        self._rows[key] = ObservedRow(
            refusal.batches + (0 if row is None else row.batches),
            now_ms if row is None else row.first_ms,
            now_ms,
            refusal.client[:MAX_ADDRESS_LENGTH],
            None if refusal.client_id is None else refusal.client_id[:MAX_CLIENT_ID_LENGTH],
            refusal.partition,
            refusal.error,
            refusal.reason[:MAX_REASON_LENGTH],
        )

    def snapshot(self) -> Observed:
        """Return the counts as they are now; later refusals do not change them."""
        judged = self._judged_before + self._judged()
        return Observed(self.mode, self._since_ms, self._now_ms(), judged, list(self._rows.items()))

    def take(self, most: int) -> list[tuple[RowKey, ObservedRow, bool]]:
        """Remove and return rows, at most ``most``, and whether the topic of each is known."""
        taken: list[tuple[RowKey, ObservedRow, bool]] = []
        while self._rows and len(taken) < most:
            key, row = self._rows.popitem()
            is_known = key.topic not in (INVALID, OTHER) and self._is_known(key.topic)
            self._others -= key.topic == OTHER
            self._unknown = max(
                0, self._unknown - (key.topic not in (INVALID, OTHER) and not is_known)
            )
            taken.append((key, row, is_known))
        return taken

    def merge(self, key: RowKey, row: ObservedRow) -> None:
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
            RowKey(topic, refusal.principal[:MAX_PRINCIPAL_LENGTH], refusal.rule, refusal.enforced)
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


NAME: Final = "observed.json"

_VERSION: Final = 1

#: Of a file that is read. The longest rows that ``ObservedCounts`` keeps make 100 MB.
_MAX_FILE_BYTES: Final = 128 << 20

_MAX_ROWS: Final = 20_000

_ROWS_A_PIECE: Final = 50

#: Seconds between two writes: after a refusal, and where only validated batches have risen.
_CHANGED_S: Final = 10.0

_UNCHANGED_S: Final = 60.0

#: Types of a row's fields, in the order of the file.
_TYPES: Final[tuple[type | tuple[type, ...], ...]] = (
    *(str, str, str, bool),
    *(int, int, int, str, (str, type(None)), int, str, str),
)

log = logging.getLogger("batchval.proxy")


def read_observed(path: Path) -> Observed:
    """Read a file. Raises OSError, and BatchvalError where the gate has not written it."""
    with open(path, "rb") as file:
        data = file.read(_MAX_FILE_BYTES + 1)
    if len(data) > _MAX_FILE_BYTES:
        raise BatchvalError(f"{path} is longer than {_MAX_FILE_BYTES} bytes")
    try:
        return _observed(json.loads(data))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        why = str(error) or type(error).__name__
        raise BatchvalError(
            f"{path} was not written by this version of batchval proxy: {why}"
        ) from None


def _read_by_rows(path: Path) -> Observed:
    """Read a file that a gate of this version has written: no row keeps the GIL for long."""
    with open(path, "rb") as file:
        head = json.loads(file.readline() + b"]}")
        rows: list[Any] = []
        for line in file:
            if len(rows) % _ROWS_A_PIECE == 0:
                time.sleep(0)  # the event loop goes first
            if (text := line.strip().rstrip(b",")) not in (b"", b"]}"):
                rows.append(json.loads(text))
    return _observed(head | {"rows": rows})


def _observed(values: Any) -> Observed:
    if not isinstance(values, dict) or values.get("version") != _VERSION:
        raise ValueError(f"expected an object with version {_VERSION}")
    mode, rows = values["mode"], values["rows"]
    since_ms, until_ms, judged = (values[name] for name in ("since_ms", "until_ms", "judged"))
    if not isinstance(rows, list) or len(rows) > _MAX_ROWS:
        raise ValueError(f"rows must be an array of at most {_MAX_ROWS}")
    if not isinstance(mode, str) or not all(map(_is_count, (since_ms, until_ms, judged))):
        raise ValueError("mode must be text, since_ms, until_ms and judged must be numbers")
    return Observed(mode, since_ms, until_ms, judged, [_row(row) for row in rows])


def _row(values: Any) -> tuple[RowKey, ObservedRow]:
    if not isinstance(values, list) or len(values) != len(_TYPES):
        raise ValueError(f"a row must have {len(_TYPES)} fields")
    for value, expected in zip(values, _TYPES, strict=True):
        if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
            raise ValueError(f"a row has a {type(value).__name__} in the wrong place")
    key, row = RowKey(*values[:4]), ObservedRow(*values[4:])
    if not all(map(_is_count, (row.batches, row.first_ms, row.last_ms))):
        raise ValueError("a number of a row is out of range")
    return key, row


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _pieces(observed: Observed) -> Iterator[bytes]:
    """Yield the file in pieces. Each is encoded in well under 1 ms: the encoder keeps the GIL."""
    head = {"version": _VERSION, **observed._asdict()}
    del head["rows"]
    yield json.dumps(head)[:-1].encode() + b', "rows": ['
    for start in range(0, len(observed.rows), _ROWS_A_PIECE):
        rows = observed.rows[start : start + _ROWS_A_PIECE]
        lines = ",".join(f"\n{json.dumps([*key, *row])}" for key, row in rows)
        yield (("," if start else "") + lines).encode()
        time.sleep(0)  # the event loop goes first
    yield b"\n]}\n"


class ObservedFile:
    """The counts in the state directory: read at the start, written now and then and at the end.

    Files are written in a thread. A file that cannot be read is set aside, with one warning; one
    that cannot be written is tried again, with one warning until it could be written.
    """

    def __init__(
        self,
        folder: Path,
        counts: ObservedCounts,
        *,
        changed_s: float = _CHANGED_S,
        unchanged_s: float = _UNCHANGED_S,
    ) -> None:
        self.path = folder / NAME
        self.counts = counts
        self.failures_total = 0
        self._changed_s = changed_s
        self._unchanged_s = unchanged_s
        self._written = -1  # changes of the counts that the file has
        self._failing = False
        self._ending = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def load(self) -> None:
        """Go on from the file of an earlier process, if there is one. Call it before a refusal."""
        try:
            self.counts.restore(read_observed(self.path))
        except FileNotFoundError:
            return
        except (OSError, BatchvalError) as error:
            self._set_aside(error)

    async def follow(self) -> None:
        """Add the counts of the gate that this one has replaced, which has ended. Then write."""
        try:
            earlier = await asyncio.to_thread(_read_by_rows, self.path)
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            self._set_aside(error)
        else:
            self.counts.follow(earlier)
            for n, (key, row) in enumerate(earlier.rows):
                self.counts.merge(key, row)
                if n % _ROWS_A_PIECE == _ROWS_A_PIECE - 1:
                    await asyncio.sleep(0)
        self.start()

    def _set_aside(self, error: Exception) -> None:
        why = error.strerror if isinstance(error, OSError) else error
        try:
            what = f"it is now {set_aside(self.path)}"
        except OSError as second:
            what = f"and it cannot be renamed: {second.strerror}"
        log.warning(
            "the counts of earlier refusals cannot be read: %s: %s; %s", self.path, why, what
        )

    def start(self) -> None:
        """Write from now on. Needs a running loop."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Write the counts for the last time."""
        self._ending.set()
        if self._task is not None:
            # unlike await, this does not cancel the last write where the caller is cancelled
            await asyncio.wait((self._task,))
            self._task.result()

    async def _run(self) -> None:
        while not self._ending.is_set():
            await self._write()
            await self._until_due()
        await self._write()

    async def _until_due(self) -> None:
        left_s = self._unchanged_s
        while left_s > 0 and not self._ending.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), min(self._changed_s, left_s))
            if self.counts.changes != self._written:
                return
            left_s -= self._changed_s

    async def _write(self) -> None:
        changes, observed = self.counts.changes, self.counts.snapshot()
        try:
            await asyncio.to_thread(replace_file, self.path, _pieces(observed))
        except (OSError, RuntimeError) as error:  # RuntimeError: no more threads
            self.failures_total += 1
            if not self._failing:
                why = (isinstance(error, OSError) and error.strerror) or error
                log.warning("the counts of refusals cannot be written to %s: %s", self.path, why)
            self._failing = True
        else:
            self._written, self._failing = changes, False

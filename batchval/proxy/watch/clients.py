"""The clients of the gate, and which of them need what Kafka 4 has dropped (KIP-896).

    FastPath    counts requests by API and version, for each session
    SeenClient  one session's client: collects these counts now and then, and at the end
    ClientTable ClientKey -> Client, for the whole gate

A row is what clients say of themselves: nothing of it is verified, except address and principal.

``page_of`` makes the page /clients, as JSON or as a table for people:

    GET /clients?old=true&order=slowest&limit=100&format=text

Rows are immutable, so a thread makes the text. It lets others have the interpreter between rows:
nothing here sorts or encodes all of them in one call.
"""

from __future__ import annotations

import heapq
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import parse_qsl

from batchval.protocol.apis import APIS
from batchval.protocol.errors import ProtocolError
from batchval.protocol.messages.api_versions import ApiVersionsRequest
from batchval.protocol.old_versions import Raised
from batchval.proxy.settings.options import Facts
from batchval.proxy.watch.observed_batches import (
    MAX_ADDRESS_LENGTH,
    MAX_CLIENT_ID_LENGTH,
    MAX_PRINCIPAL_LENGTH,
    OTHER,
)
from batchval.proxy.watch.senders import sender_key
from batchval.report.units import plural, printable

__all__ = [
    "MAX_CLIENTS",
    "NOTHING_SERVED",
    "ORDERS",
    "WINDOW_MS",
    "Asked",
    "Client",
    "ClientKey",
    "ClientTable",
    "Latency",
    "SeenClient",
    "Served",
    "Software",
    "api_name",
    "asked_for",
    "is_raised",
    "is_turned_away",
    "lines_of",
    "page_of",
    "pair_of",
    "software_of",
    "turned_away_by_software",
]

#: Rows of the table.
MAX_CLIENTS: Final = 10_000

#: Pairs of API and version in a row, besides those that Kafka 4 does not serve: these are about 40.
MAX_USES_PER_CLIENT: Final = 32

#: Seconds between collections from a session that goes on.
COLLECT_S: Final = 5.0

#: A client counts as one of today for so long after its last request.
RECENT_MS: Final = 24 * 3_600_000

#: Latencies of a row are those of the last one or two windows.
WINDOW_MS: Final = 300_000

#: Label values of the metric by software name.
MAX_SOFTWARE_NAMES: Final = 20

UNKNOWN: Final = "(unknown)"

MAX_SOFTWARE_LENGTH: Final = 60

#: Bytes of an ApiVersions request that is read: those of clients have about 70.
MAX_API_VERSIONS_BYTES: Final = 2 << 10

_INTRODUCES_FROM: Final = 3  # version of ApiVersions (KIP-511)

#: What Kafka allows for name and version (ApiVersionsRequest.SOFTWARE_NAME_VERSION_PATTERN).
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class Software(NamedTuple):
    """The software that a client reports in ApiVersions 3 and later; "" where it reports none."""

    name: str = ""
    version: str = ""


class ClientKey(NamedTuple):
    """The key of a client. ``address`` is without the port, ``principal`` in Kafka's form."""

    client_id: str | None
    software: Software
    address: str
    principal: str
    listener: str


class Served(NamedTuple):
    """The counts of a client since they were last collected.

    ``answers``  that were measured: ``total_ns`` is their duration, ``most_ns`` the longest
    ``stalls``   how often the client did not take its answers
    """

    request_bytes: int = 0
    answer_bytes: int = 0
    answers: int = 0
    total_ns: int = 0
    most_ns: int = 0
    stalls: int = 0

    def plus(self, other: Served) -> Served:
        """Return both together."""
        first, second = self._replace(most_ns=0), other._replace(most_ns=0)
        summed = Served(*(a + b for a, b in zip(first, second, strict=True)))
        return summed._replace(most_ns=max(self.most_ns, other.most_ns))


NOTHING_SERVED: Final = Served()


class Latency(NamedTuple):
    """The durations of requests in the window that began at ``since_ms``."""

    since_ms: int = 0
    answers: int = 0
    total_ns: int = 0
    most_ns: int = 0

    def plus(self, other: Latency | Served) -> Latency:
        """Return both together."""
        total_ns = self.total_ns + other.total_ns
        return Latency(
            self.since_ms, self.answers + other.answers, total_ns, max(self.most_ns, other.most_ns)
        )


class Client(NamedTuple):
    """The counts of one client. Times are milliseconds since 1970, UTC.

    ``uses``     API key << 16 | version -> requests; replaced with the Client, never changed
    ``others``   requests in versions for which ``uses`` has no place
    ``is_old``   whether Kafka 4 turns any of them away
    ``stalls``   how often it did not take its answers, so that it was not read
    ``window``   latencies of the last window, and ``earlier`` of the one before it
    """

    first_ms: int
    last_ms: int
    uses: Mapping[int, int]
    others: int
    is_old: bool
    request_bytes: int = 0
    answer_bytes: int = 0
    stalls: int = 0
    window: Latency = Latency()
    earlier: Latency = Latency()

    @property
    def requests(self) -> int:
        """Return the number of all requests."""
        return sum(self.uses.values()) + self.others

    def latency(self, now_ms: int) -> Latency:
        """Return the latencies of the last one or two windows."""
        return (
            self.window.plus(self.earlier)
            if now_ms - self.window.since_ms < 2 * WINDOW_MS
            else Latency()
        )

    def windows(self, now_ms: int, served: Served) -> tuple[Latency, Latency]:
        """Return the last two windows with what was measured just now."""
        age_ms = now_ms - self.window.since_ms
        if age_ms < WINDOW_MS:
            return self.window.plus(served), self.earlier
        earlier = self.window if age_ms < 2 * WINDOW_MS else Latency()
        return Latency(now_ms).plus(served), earlier


def pair_of(pair: int) -> tuple[int, int]:
    """Return (API key, version)."""
    return pair >> 16, pair & 0xFFFF


def api_name(key: int) -> str:
    """Return the name of an API, the number of an unknown one."""
    return APIS[key].name if key in APIS else str(key)


def is_turned_away(key: int, version: int) -> bool:
    """Return whether Kafka 4 has dropped this version of an API; Kafka 3.9 serves it."""
    api = APIS.get(key)
    return api is not None and 0 <= version < api.min_version


def is_raised(key: int, version: int, raised: Mapping[int, Raised]) -> bool:
    """Return whether the gate raises this version of an API to a newer one (``bridge``)."""
    bridge = raised.get(key)
    return bridge is not None and bridge.oldest <= version < bridge.first_kept


class _RowsBySender:
    """The rows of each sender, and the senders by how many they have."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[ClientKey, None]] = {}  # the one seen last is the last
        self._by_count: dict[int, dict[str, None]] = {}
        self._most = 0

    def put(self, key: ClientKey) -> None:
        """Note a row that is new, or seen again."""
        sender = sender_key(key.principal, key.address)
        rows = self._rows.setdefault(sender, {})
        if key in rows:
            del rows[key]
        else:
            self._move(sender, len(rows), len(rows) + 1)
        rows[key] = None

    def remove(self, key: ClientKey) -> None:
        """Forget a row."""
        sender = sender_key(key.principal, key.address)
        rows = self._rows[sender]
        del rows[key]
        self._move(sender, len(rows) + 1, len(rows))
        if not rows:
            del self._rows[sender]

    def _move(self, sender: str, before: int, after: int) -> None:
        if before:
            senders = self._by_count[before]
            del senders[sender]
            if not senders:
                del self._by_count[before]
        if after:
            self._by_count.setdefault(after, {})[sender] = None
        if after > self._most or self._most not in self._by_count:
            self._most = after  # one more, or one less, than the most that there was

    def oldest_of_most(self) -> ClientKey | None:
        """Return the row seen longest ago of a sender with the most; None: none has two."""
        if self._most <= 1:
            return None
        return next(iter(self._rows[next(iter(self._by_count[self._most]))]))


class ClientCounts(Protocol):
    """What takes the counts of sessions: the table of the gate, or a worker's report to it."""

    def add(self, key: ClientKey, uses: Mapping[int, int], served: Served = ...) -> None: ...


class ClientTable:
    """The clients that were seen last: at most ``most``, each with a bounded number of versions.

    One more displaces the oldest of the sender (principal, else address) that has the most: nobody
    pushes others out by names that it invents.

    ``evicted_total`` counts the clients that were displaced.
    """

    def __init__(self, most: int = MAX_CLIENTS, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self.most = most
        self.evicted_total = 0
        self._clock_ns = clock_ns
        self.since_ms = self.now_ms()
        self._rows: dict[ClientKey, Client] = {}  # the one seen last is the last
        self._by_sender = _RowsBySender()

    def __len__(self) -> int:
        return len(self._rows)

    def now_ms(self) -> int:
        """Return the time as the rows have it."""
        return self._clock_ns() // 1_000_000

    def add(self, key: ClientKey, uses: Mapping[int, int], served: Served = NOTHING_SERVED) -> None:
        """Add requests of a client, by API key << 16 | version, and what it got."""
        now_ms = self.now_ms()
        before = self._rows.pop(key, None)
        if before is None:
            if not uses:
                return  # others have displaced it
            if len(self._rows) >= self.most:
                displaced = self._by_sender.oldest_of_most() or next(iter(self._rows))
                del self._rows[displaced]
                self._by_sender.remove(displaced)
                self.evicted_total += 1
            before = Client(now_ms, now_ms, {}, 0, False)
        merged, others, is_old = dict(before.uses), before.others, before.is_old
        for pair, requests in uses.items():
            away = is_turned_away(*pair_of(pair))
            is_old = is_old or away
            if pair in merged:
                merged[pair] += requests
            elif away or len(merged) < MAX_USES_PER_CLIENT:
                merged[pair] = requests
            else:
                others += requests
        self._by_sender.put(key)
        self._rows[key] = Client(
            *(before.first_ms, now_ms, merged, others, is_old),
            before.request_bytes + served.request_bytes,
            before.answer_bytes + served.answer_bytes,
            before.stalls + served.stalls,
            *before.windows(now_ms, served),
        )

    def rows(self) -> Collection[tuple[ClientKey, Client]]:
        """Return the rows as they are now; later requests do not change them.

        A copy of 10,000 takes 0.1 ms; a list of pairs took ten times as long, on the event loop.
        """
        return self._rows.copy().items()

    def recent_old(self) -> Iterable[tuple[tuple[str], int]]:
        """Return ((software name,), old clients of the last 24 hours), counted in any thread."""
        return turned_away_by_software(self.rows(), self.now_ms() - RECENT_MS)


def turned_away_by_software(
    rows: Iterable[tuple[ClientKey, Client]], since_ms: int
) -> Iterable[tuple[tuple[str], int]]:
    """Yield the number of old clients by software name: the most frequent names, and the rest."""
    names = Counter(
        key.software.name or UNKNOWN for key, row in rows if row.is_old and row.last_ms >= since_ms
    )
    first = names.most_common(MAX_SOFTWARE_NAMES)
    yield from (((name,), count) for name, count in first)
    rest = names.total() - sum(count for _, count in first)
    if rest or not first:
        yield (OTHER,), rest


def software_of(frame: memoryview, version: int) -> Software | None:
    """Return what an ApiVersions request (with its length) says of its sender's software, if
    anything.

    What a broker would refuse, names of odd characters and long ones, is not taken.
    """
    if version < _INTRODUCES_FROM or len(frame) > MAX_API_VERSIONS_BYTES:
        return None
    try:
        _, request = ApiVersionsRequest.parse(frame[4:])
    except ProtocolError:
        return None
    found = Software(request.client_software_name, request.client_software_version)
    are_sound = all(
        len(word) <= MAX_SOFTWARE_LENGTH and _SOFTWARE.fullmatch(word) for word in found
    )
    return found if are_sound else None


class Described(Protocol):
    """The facts of a session's client: ``identity.Identity``."""

    address: str
    facts: Facts
    software: Software


class UseCounter(Protocol):
    """A counter of one session's requests by API and version; ``fast_path.FastPath`` is one."""

    def watch(self, client_changed: Callable[[bytes | None], None]) -> None: ...
    def take_uses(self) -> dict[int, int]: ...
    def take_served(self) -> tuple[int, int, int, int, int]: ...


class SeenClient:
    """The client of one session. What it asks for goes into the table with ``collect``.

    ``client_id``  of the last request, None for null
    ``stalls``     how often it did not take its answers, since the last collection
    ``requests``   that were collected
    ``named``      called with each client id, before its first request is counted
    """

    def __init__(
        self,
        client: Described,
        uses: UseCounter,
        table: ClientCounts,
        now: float,
        named: Callable[[str | None], None] = lambda _: None,
    ) -> None:
        self.client_id: str | None = None
        self.stalls = 0
        self.requests = 0
        self._named = named
        self._client = client
        self._uses = uses
        self._table = table
        self._collected = now
        self._old: set[int] = set()  # dropped versions that were used before the last collection
        uses.watch(self._change)

    def _change(self, client_id: bytes | None) -> None:
        """Note the client id of the requests that come next."""
        self.collect()
        if client_id is not None:
            # 32 KiB of malformed UTF-8 take 0.3 ms
            client_id = client_id[: 4 * MAX_CLIENT_ID_LENGTH]
        self.client_id = (
            None if client_id is None else client_id.decode(errors="replace")[:MAX_CLIENT_ID_LENGTH]
        )
        self._named(self.client_id)

    def check(self, now: float) -> None:
        """Collect from time to time."""
        if now - self._collected >= COLLECT_S:
            self._collected = now
            self.collect()

    def collect(self) -> dict[int, int]:
        """Enter what came and went since the last call into the table; return the requests."""
        uses = self._uses.take_uses()
        served = Served(*self._uses.take_served(), self.stalls)
        self.stalls = 0
        if uses or any(served):
            self.requests += sum(uses.values())
            client = self._client
            address, principal = (
                client.address[:MAX_ADDRESS_LENGTH],
                client.facts.principal[:MAX_PRINCIPAL_LENGTH],
            )
            self._table.add(
                ClientKey(
                    self.client_id, client.software, address, principal, client.facts.listener
                ),
                uses,
                served,
            )
            self._old.update(pair for pair in uses if is_turned_away(*pair_of(pair)))
        return uses

    def rejected(
        self, first: tuple[int, int], waiting: int, raised: Mapping[int, Raised]
    ) -> tuple[int, int] | None:
        """Return the (API key, version) for which the broker has ended the connection, if it may
        have done so because of the version; else None.

        ``first``    of the requests without an answer, key -1 where it is not known
        ``waiting``  number of these requests
        ``raised``   old versions that the broker never sees

        A broker ends the connection at the first request of a version that it does not know. Where
        one of the same version was answered before, it had another reason.
        """
        known = set(self._old)
        uses = self.collect()
        pairs = [
            pair for pair, requests in uses.items() if requests <= waiting and pair not in known
        ]
        away = [pair_of(pair) for pair in pairs if is_turned_away(*pair_of(pair))]
        found = [(key, version) for key, version in away if not is_raised(key, version, raised)]
        if first[0] >= 0:
            return first if first in found else None
        return found[0] if found else None


JSON: Final = "application/json"

TEXT: Final = "text/plain; charset=utf-8"

ORDERS: Final = ("name", "slowest")

#: Rows of an answer, unless the request says otherwise.
SHOWN: Final = 1_000

_SORTED_AT_ONCE: Final = 250  # rows

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_WORDS = ("kafka 4", "client id", "software", "address", "principal", "listener", "last seen (UTC)")

_NUMBERS = ("requests", "bytes in", "bytes out", "mean ms", "max ms", "stalls")

ClientRow = tuple[ClientKey, Client]

Document = dict[str, Any]


class Asked(NamedTuple):
    """The query of a request of /clients.

    ``old``    only clients that Kafka 4 turns away
    ``text``   a table, else JSON
    ``limit``  of rows
    ``order``  name: old clients first, then by name; slowest: by mean latency
    """

    old: bool = False
    text: bool = False
    limit: int = SHOWN
    order: str = "name"


def asked_for(query: str, accept: str = "") -> Asked:
    """Return what the query of a URL and an Accept header ask for. Raises ValueError."""
    text = "text/plain" in accept and JSON not in accept
    old, limit, order = False, SHOWN, "name"
    for name, value in parse_qsl(query, keep_blank_values=True, max_num_fields=10):
        if name == "old" and value in ("true", "false"):
            old = value == "true"
        elif name == "format" and value in ("json", "text"):
            text = value == "text"
        elif name == "order" and value in ORDERS:
            order = value
        elif (
            name == "limit"
            and value.isascii()
            and value.isdigit()
            and 1 <= int(value[:9]) <= MAX_CLIENTS
        ):
            limit = int(value[:9])
        else:
            allowed = f"old=true|false, format=json|text, order={'|'.join(ORDERS)}, limit=1..{MAX_CLIENTS}"
            raise ValueError(
                f"{_word(name)[:40]}={_word(value)[:40]} is not known: expected {allowed}"
            )
    return Asked(old, text, limit, order)


def page_of(
    table: ClientTable, raised: Mapping[int, Raised], asked: Asked
) -> Callable[[], tuple[str, bytes]]:
    """Take the rows; return a function for any thread that makes (content type, text)."""
    taken = table.rows()
    now_ms = table.now_ms()
    summary = {"since_ms": table.since_ms, "now_ms": now_ms, "evicted": table.evicted_total}

    def made() -> tuple[str, bytes]:
        rows = list(taken)
        olds = [row for row in rows if row[1].is_old]
        found = {**summary, "known": len(rows), "old": len(olds)}
        order = partial(_slowest, now_ms) if asked.order == "slowest" else _order
        first = _first(olds if asked.old else rows, asked.limit, order)
        shown = (_document(row, raised, now_ms) for row in first)
        if asked.text:
            return TEXT, b"".join(f"{line}\n".encode() for line in lines_of(found, shown))
        return JSON, b"".join(_json(found, shown))

    return made


def _json(summary: Document, rows: Iterable[Document]) -> Iterator[bytes]:
    yield json.dumps(summary)[:-1].encode() + b', "clients": ['
    for i, row in enumerate(rows):
        yield (b",\n" if i else b"\n") + json.dumps(row).encode()
    yield b"\n]}\n"


def _first(
    rows: list[ClientRow], limit: int, order: Callable[[ClientRow], tuple[Any, ...]]
) -> Iterator[ClientRow]:
    """Yield the first rows in order."""
    parts = (
        sorted(rows[at : at + _SORTED_AT_ONCE], key=order)
        for at in range(0, len(rows), _SORTED_AT_ONCE)
    )
    for i, row in enumerate(heapq.merge(*parts, key=order)):
        if i == limit:
            return
        yield row


def _order(row: ClientRow) -> tuple[Any, ...]:
    key, client = row
    return not client.is_old, key.client_id or "", key.client_id is not None, *key[1:]


def _slowest(now_ms: int, row: ClientRow) -> tuple[Any, ...]:
    latency = row[1].latency(now_ms)
    return -(latency.total_ns / max(1, latency.answers)), *_order(row)


def _document(row: ClientRow, raised: Mapping[int, Raised], now_ms: int) -> Document:
    key, client = row
    latency = client.latency(now_ms)
    mean_ns = latency.total_ns / latency.answers if latency.answers else None
    return {
        "client_id": key.client_id,
        "software_name": key.software.name or None,
        "software_version": key.software.version or None,
        "address": key.address,
        "principal": key.principal,
        "listener": key.listener,
        "first_seen_ms": client.first_ms,
        "last_seen_ms": client.last_ms,
        "requests": client.requests,
        "request_bytes": client.request_bytes,
        "answer_bytes": client.answer_bytes,
        "mean_ms": _ms(mean_ns),
        "max_ms": _ms(latency.most_ns if latency.answers else None),
        "stalls": client.stalls,
        "old": client.is_old,
        "uses": [_use(pair, client.uses[pair], raised) for pair in sorted(client.uses)],
        "other_requests": client.others,
    }


def _ms(ns: float | None) -> float | None:
    return None if ns is None else round(ns / 1e6, 3)


def _use(pair: int, requests: int, raised: Mapping[int, Raised]) -> Document:
    key, version = pair_of(pair)
    return {
        "api": api_name(key),
        "version": version,
        "requests": requests,
        "old": is_turned_away(key, version),
        "bridged": is_raised(key, version, raised),
    }


# ---- the table -----------------------------------------------------------------------------------


def lines_of(summary: Document, rows: Iterable[Document]) -> Iterator[str]:
    """Yield the table of documents of /clients. Raises KeyError or TypeError for others."""
    cells = [_cells(row) for row in rows]
    since = _time(summary["since_ms"])
    known = plural(summary["known"], "client")
    yield f"{known} since {since} UTC, of which Kafka 4 turns away {summary['old']:,}"
    if summary["evicted"]:
        yield f"left out: {plural(summary['evicted'], 'client')}, seen longest ago"
    if not cells:
        return
    yield ""
    header = *_WORDS, *_NUMBERS
    widths = [
        max(map(len, column)) for column in zip(header, *(row[:-1] for row in cells), strict=True)
    ]
    for row in ((*header, "old versions"), *cells):
        columns = list(zip(row, widths, strict=False))
        words = [word.ljust(width) for word, width in columns[: len(_WORDS)]]
        numbers = [number.rjust(width) for number, width in columns[len(_WORDS) :]]
        yield "  ".join([*words, *numbers, row[-1]]).rstrip()


def _cells(row: Document) -> tuple[str, ...]:
    olds = [use for use in row["uses"] if use["old"]]
    word = (
        "served"
        if not row["old"]
        else "bridged"
        if all(use["bridged"] for use in olds)
        else "turned away"
    )
    software = f"{row['software_name'] or '-'} {row['software_version'] or ''}"
    client_id = "-" if row["client_id"] is None else row["client_id"]
    names = (client_id, software, row["address"], row["principal"], row["listener"])
    numbers = [
        _number(row.get(name))
        for name in ("request_bytes", "answer_bytes", "mean_ms", "max_ms", "stalls")
    ]
    seen = _time(row["last_seen_ms"])
    return word, *map(_word, names), seen, f"{row['requests']:,}", *numbers, _versions(olds)


def _number(value: Any) -> str:
    """Return a number; "-" where there was nothing to measure, or the gate is an older one."""
    if value is None:
        return "-"
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,d}"


def _versions(uses: Iterable[Document]) -> str:
    """Return ``Produce 0 2, Fetch 1``."""
    by_api: dict[str, list[str]] = {}
    for use in uses:
        by_api.setdefault(_word(use["api"]), []).append(f"{use['version']:d}")
    return ", ".join(f"{api} {' '.join(versions)}" for api, versions in by_api.items())


def _word(text: str) -> str:
    """Escape what could move the cursor, begin a line, or not be encoded."""
    return printable(text.encode("utf-8", "backslashreplace").decode()).strip()


def _time(milliseconds: int) -> str:
    try:
        return (_EPOCH + timedelta(milliseconds=milliseconds)).strftime("%Y-%m-%d %H:%M:%S")
    except OverflowError:
        return f"{milliseconds}"

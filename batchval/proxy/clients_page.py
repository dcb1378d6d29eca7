"""What /clients answers: the clients of the gate as JSON, or as a table for people.

    GET /clients?old=true&limit=100&format=text

Rows are immutable, so a thread makes the text. It lets others have the interpreter between rows:
nothing here sorts or encodes all of them in one call.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

from batchval.protocol.apis import APIS
from batchval.protocol.old_versions import Raised
from batchval.proxy.clients import MOST_CLIENTS, Client, ClientKey, ClientTable, is_raised, is_turned_away, pair_of
from batchval.report.words import plural, printable

__all__ = ["Asked", "asked_for", "lines_of", "page_of"]

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
#: Rows of an answer, unless the request says otherwise.
SHOWN: Final = 1_000
_SORTED_AT_ONCE: Final = 250  # rows
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HEADER = ("kafka 4", "client id", "software", "address", "principal", "listener", "last seen (UTC)", "requests")

Row = tuple[ClientKey, Client]
Document = dict[str, Any]


class Asked(NamedTuple):
    """What a request of /clients asks for.

    ``old``    only clients that Kafka 4 turns away
    ``text``   a table, else JSON
    ``limit``  of rows
    """

    old: bool = False
    text: bool = False
    limit: int = SHOWN


def asked_for(query: str, accept: str = "") -> Asked:
    """Return what the query of a URL and an Accept header ask for. ValueError."""
    text = "text/plain" in accept and JSON not in accept
    old, limit = False, SHOWN
    for name, value in parse_qsl(query, keep_blank_values=True, max_num_fields=10):
        if name == "old" and value in ("true", "false"):
            old = value == "true"
        elif name == "format" and value in ("json", "text"):
            text = value == "text"
        elif name == "limit" and value.isascii() and value.isdigit() and 1 <= int(value[:9]) <= MOST_CLIENTS:
            limit = int(value[:9])
        else:
            allowed = f"old=true|false, format=json|text, limit=1..{MOST_CLIENTS}"
            raise ValueError(f"{_word(name)[:40]}={_word(value)[:40]} is not known: expected {allowed}")
    return Asked(old, text, limit)


def page_of(table: ClientTable, raised: Mapping[int, Raised], asked: Asked) -> Callable[[], tuple[str, bytes]]:
    """Take the rows. What is returned makes (content type, text), in any thread."""
    taken = table.rows()
    summary = {"since_ms": table.since_ms, "now_ms": table.now_ms(), "evicted": table.evicted_total}

    def made() -> tuple[str, bytes]:
        rows = list(taken)
        olds = [row for row in rows if row[1].is_old]
        found = {**summary, "known": len(rows), "old": len(olds)}
        shown = (_document(row, raised) for row in _first(olds if asked.old else rows, asked.limit))
        if asked.text:
            return TEXT, b"".join(f"{line}\n".encode() for line in lines_of(found, shown))
        return JSON, b"".join(_json(found, shown))

    return made


def _json(summary: Document, rows: Iterable[Document]) -> Iterator[bytes]:
    yield json.dumps(summary)[:-1].encode() + b', "clients": ['
    for i, row in enumerate(rows):
        yield (b",\n" if i else b"\n") + json.dumps(row).encode()
    yield b"\n]}\n"


def _first(rows: list[Row], limit: int) -> Iterator[Row]:
    """Yield the first rows in order: old clients, then by name."""
    parts = (sorted(rows[at : at + _SORTED_AT_ONCE], key=_order) for at in range(0, len(rows), _SORTED_AT_ONCE))
    for i, row in enumerate(heapq.merge(*parts, key=_order)):
        if i == limit:
            return
        yield row


def _order(row: Row) -> tuple[Any, ...]:
    key, client = row
    return not client.is_old, key.client_id or "", key.client_id is not None, *key[1:]


def _document(row: Row, raised: Mapping[int, Raised]) -> Document:
    key, client = row
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
        "old": client.is_old,
        "uses": [_use(pair, client.uses[pair], raised) for pair in sorted(client.uses)],
        "other_requests": client.others,
    }


def _use(pair: int, requests: int, raised: Mapping[int, Raised]) -> Document:
    key, version = pair_of(pair)
    return {
        "api": APIS[key].name if key in APIS else str(key),
        "version": version,
        "requests": requests,
        "old": is_turned_away(key, version),
        "bridged": is_raised(key, version, raised),
    }


# ---- the table -----------------------------------------------------------------------------------


def lines_of(summary: Document, rows: Iterable[Document]) -> Iterator[str]:
    """Yield the table of documents as /clients has them. KeyError, TypeError: they are others."""
    cells = [_cells(row) for row in rows]
    since = _time(summary["since_ms"])
    known = plural(summary["known"], "client")
    yield f"{known} since {since} UTC, of which Kafka 4 turns away {summary['old']:,}"
    if summary["evicted"]:
        yield f"left out: {plural(summary['evicted'], 'client')}, seen longest ago"
    if not cells:
        return
    yield ""
    widths = [max(map(len, column)) for column in zip(_HEADER, *(row[:-1] for row in cells), strict=True)]
    for row in ((*_HEADER, "old versions"), *cells):
        *words, requests, versions = row
        padded = [word.ljust(width) for word, width in zip(words, widths, strict=False)]
        yield "  ".join([*padded, requests.rjust(widths[-1]), versions]).rstrip()


def _cells(row: Document) -> tuple[str, ...]:
    olds = [use for use in row["uses"] if use["old"]]
    word = "served" if not row["old"] else "bridged" if all(use["bridged"] for use in olds) else "turned away"
    software = f"{row['software_name'] or '-'} {row['software_version'] or ''}"
    client_id = "-" if row["client_id"] is None else row["client_id"]
    names = (client_id, software, row["address"], row["principal"], row["listener"])
    return word, *map(_word, names), _time(row["last_seen_ms"]), f"{row['requests']:,}", _versions(olds)


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

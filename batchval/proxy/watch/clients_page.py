"""The page /clients: the clients of the gate as JSON, or as a table for people.

    GET /clients?old=true&order=slowest&limit=100&format=text

Rows are immutable, so a thread makes the text. It lets others have the interpreter between rows:
nothing here sorts or encodes all of them in one call.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

from batchval.protocol.old_versions import Raised
from batchval.proxy.watch.clients import (
    MOST_CLIENTS,
    Client,
    ClientKey,
    ClientTable,
    api_name,
    is_raised,
    is_turned_away,
    pair_of,
)
from batchval.report.units import plural, printable

__all__ = ["ORDERS", "Asked", "asked_for", "lines_of", "page_of"]

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
ORDERS: Final = ("name", "slowest")
#: Rows of an answer, unless the request says otherwise.
SHOWN: Final = 1_000
_SORTED_AT_ONCE: Final = 250  # rows
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WORDS = ("kafka 4", "client id", "software", "address", "principal", "listener", "last seen (UTC)")
_NUMBERS = ("requests", "bytes in", "bytes out", "mean ms", "max ms", "stalls")

Row = tuple[ClientKey, Client]
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
            and 1 <= int(value[:9]) <= MOST_CLIENTS
        ):
            limit = int(value[:9])
        else:
            allowed = f"old=true|false, format=json|text, order={'|'.join(ORDERS)}, limit=1..{MOST_CLIENTS}"
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


def _first(rows: list[Row], limit: int, order: Callable[[Row], tuple[Any, ...]]) -> Iterator[Row]:
    """Yield the first rows in order."""
    parts = (
        sorted(rows[at : at + _SORTED_AT_ONCE], key=order)
        for at in range(0, len(rows), _SORTED_AT_ONCE)
    )
    for i, row in enumerate(heapq.merge(*parts, key=order)):
        if i == limit:
            return
        yield row


def _order(row: Row) -> tuple[Any, ...]:
    key, client = row
    return not client.is_old, key.client_id or "", key.client_id is not None, *key[1:]


def _slowest(now_ms: int, row: Row) -> tuple[Any, ...]:
    latency = row[1].latency(now_ms)
    return -(latency.total_ns / max(1, latency.answers)), *_order(row)


def _document(row: Row, raised: Mapping[int, Raised], now_ms: int) -> Document:
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

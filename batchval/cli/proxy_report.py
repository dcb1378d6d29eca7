"""What a gate has seen. ``batchval proxy --report``: what it refused, or would have refused, from
its state directory.

mode observe, 2026-11-16 10:00:00 to 2026-11-23 16:12:44 UTC, written 4 s ago
1,204,330 batches judged: 3 observed (forwarded), 0 refused

batches  outcome   topic   principal   rule          first (UTC)          last (UTC)
      3  observed  orders  User:alice  crc-mismatch  2026-11-17 09:12:00  2026-11-22 20:00:11
         partition 3 from 10.0.0.7:51324, client_id c-1: CORRUPT_MESSAGE: Record is
         corrupt (stored crc = 1, computed crc = 2)

crc-mismatch (14): the checksum is wrong, or the batch is smaller than its own header

``batchval proxy --clients URL``: who uses a gate that runs, from its metrics address.

3 clients since 2026-11-25 10:00:00 UTC, of which Kafka 4 turns away 1

kafka 4      client id  software      address   principal       …  old versions
turned away  agent      -             10.0.0.7  User:ANONYMOUS  …  Produce 0
served       c-1        franz 1.22.2  10.0.0.8  User:alice      …
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from batchval.cli.exit import FINDINGS, UNREADABLE
from batchval.cli.output import print_json

if TYPE_CHECKING:
    from batchval.proxy.watch.observed_batches import Observed, ObservedRow, RowKey

__all__ = ["DEFAULT_ADDRESS", "report", "show_clients"]

_SHOWN = 100  # rows; --json has all
_OLD_S = 180  # a gate that runs writes at least every minute
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HEADER = ("batches", "outcome", "topic", "principal", "rule", "first (UTC)", "last (UTC)")
_INDENT = " " * 9


def report(folder: Path | None, as_json: bool) -> int:
    """Print the report of a state directory (None: $STATE_DIRECTORY) and return the exit code."""
    from batchval.errors import BatchvalError
    from batchval.proxy.watch.observed_batches import NAME, read_observed

    folder = folder or _default_folder()
    if folder is None:
        raise click.UsageError(
            "--report needs --state-directory DIR, or --config FILE with a state_directory"
        )
    path = folder / NAME
    try:
        observed = read_observed(path)
    except FileNotFoundError:
        return _unreadable(f"{path} does not exist: no gate with this state_directory has run yet")
    except OSError as error:
        return _unreadable(f"{path}: {error.strerror}")
    except BatchvalError as error:
        return _unreadable(str(error))
    observed.rows.sort(key=_most_first)
    if as_json:
        for row in _documents(observed):
            print_json(row)
    else:
        for line in _lines(observed, time.time()):
            click.echo(line)
    return FINDINGS if observed.rows else 0


def _default_folder() -> Path | None:
    """Return $STATE_DIRECTORY: the first of the list that systemd sets."""
    first = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    return Path(first) if first else None


def _unreadable(why: str) -> int:
    click.echo(f"batchval proxy: {_printable(why)}", err=True)
    return UNREADABLE


def _most_first(item: tuple[RowKey, ObservedRow]) -> tuple[Any, ...]:
    key, row = item
    return (-row.batches, *key)


# ---- JSON ----------------------------------------------------------------------------------------


def _documents(observed: Observed) -> Iterator[dict[str, Any]]:
    ids = {slug: rule.id for slug, rule in _rules().items()}
    for key, row in observed.rows:
        yield {
            "type": "refusal",
            "topic": key.topic,
            "principal": key.principal,
            "rule": ids.get(key.rule),
            "slug": key.rule,
            "outcome": _outcome(key),
            "batches": row.batches,
            "first_ms": row.first_ms,
            "last_ms": row.last_ms,
            "client": row.client,
            "client_id": row.client_id,
            "partition": row.partition,
            "error_code": row.error,
            "reason": row.reason,
        }
    refused, forwarded = _totals(observed)
    yield {
        "type": "summary",
        "mode": observed.mode,
        "since_ms": observed.since_ms,
        "until_ms": observed.until_ms,
        "judged": observed.judged,
        "observed": forwarded,
        "refused": refused,
    }


# ---- text ----------------------------------------------------------------------------------------


def _lines(observed: Observed, now_s: float) -> Iterator[str]:
    age_s = max(0, round(now_s - observed.until_ms / 1000))
    late = " (the gate does not run, or cannot write this file)" if age_s > _OLD_S else ""
    since, until = _time(observed.since_ms), _time(observed.until_ms)
    yield f"mode {_printable(observed.mode)}, {since} to {until} UTC, written {_age(age_s)} ago{late}"
    judged = f"{observed.judged:,} {'batch' if observed.judged == 1 else 'batches'} judged"
    if not observed.rows:
        yield f"{judged}: nothing was refused, or would have been, since {since} UTC"
        return
    refused, forwarded = _totals(observed)
    yield f"{judged}: {forwarded:,} observed (forwarded), {refused:,} refused"
    yield ""
    yield from _table(observed.rows[:_SHOWN])
    if len(observed.rows) > _SHOWN:
        yield f"… and {len(observed.rows) - _SHOWN:,} more rows (--json has all)"
    yield ""
    yield from _meanings(observed)


def _table(rows: list[tuple[RowKey, ObservedRow]]) -> Iterator[str]:
    cells = [_HEADER, *(_cells(key, row) for key, row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    samples = ["", *(f"{_INDENT}{_sample(row)}" for _, row in rows)]
    for words, sample in zip(cells, samples, strict=True):
        first, *others = zip(words, widths, strict=True)
        line = "  ".join([first[0].rjust(first[1]), *(word.ljust(width) for word, width in others)])
        yield line.rstrip()
        if sample:
            yield sample


def _cells(key: RowKey, row: ObservedRow) -> tuple[str, ...]:
    names = map(_printable, (key.topic, key.principal, key.rule))
    return f"{row.batches:,}", _outcome(key), *names, _time(row.first_ms), _time(row.last_ms)


def _sample(row: ObservedRow) -> str:
    whose = "" if row.client_id is None else f", client_id {row.client_id}"
    return _printable(
        f"partition {row.partition} from {row.client}{whose}: {row.error}: {row.reason}"
    )


def _meanings(observed: Observed) -> Iterator[str]:
    """Yield one line for each rule, in the order of the table."""
    rules = _rules()
    for slug in dict.fromkeys(key.rule for key, _ in observed.rows):
        if slug in rules:
            yield f"{slug} ({rules[slug].id}): {rules[slug].summary}"
    yield "batchval rule NAME explains a rule"


# ---- words ---------------------------------------------------------------------------------------


def _rules() -> dict[str, Any]:
    from batchval.rules import Rule

    return {rule.slug: rule for rule in Rule}


def _outcome(key: RowKey) -> str:
    return "refused" if key.enforced else "observed"


def _totals(observed: Observed) -> tuple[int, int]:
    """Return the numbers of batches that were refused, and observed."""
    refused = sum(row.batches for key, row in observed.rows if key.enforced)
    return refused, sum(row.batches for _, row in observed.rows) - refused


def _time(milliseconds: int) -> str:
    try:
        return (_EPOCH + timedelta(milliseconds=milliseconds)).strftime("%Y-%m-%d %H:%M:%S")
    except OverflowError:
        return f"{milliseconds}"


def _age(seconds: int) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size:,} {unit}"
    return f"{seconds} s"


def _printable(text: str) -> str:
    """Escape what could move the cursor or begin a line: clients chose some of it."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


# ---- --clients -----------------------------------------------------------------------------------

_DEFAULT_PORT = 9464
#: The address of metrics by default.
DEFAULT_ADDRESS = f"127.0.0.1:{_DEFAULT_PORT}"
_TIMEOUT_S = 15.0
_MAX_ANSWER_BYTES = 64 << 20  # bytes of an answer: 10,000 rows have less
_OK = 200
_FORBIDDEN = 403


def show_clients(url: str, as_json: bool, slowest: bool = False) -> int:
    """Print the clients of the gate whose metrics are at this address, those with the longest mean
    latency first where ``slowest`` is set; return the exit code.
    """
    from batchval.proxy.watch.clients import MAX_CLIENTS, lines_of

    host, port = _address(url)
    place = f"http://{host}:{port}/clients"
    try:
        body = _answer(host, port, f"/clients?limit={MAX_CLIENTS}{'&order=slowest' * slowest}")
        summary = json.loads(body)
        clients = summary.pop("clients")
        lines = list(lines_of(summary, clients))
        old = bool(summary["old"])
    except (OSError, http.client.HTTPException) as error:
        why = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
        return _no_answer(f"{place}: {why}")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return _no_answer(f"{place}: the answer is not that of a gate")
    if as_json:
        for client in clients:
            print_json({"type": "client", **client})
        print_json({"type": "summary", **summary})
    else:
        for line in lines:
            click.echo(line)
    sys.stdout.flush()
    return FINDINGS if old else 0


def _address(url: str) -> tuple[str, int]:
    """Return host and port of http://HOST:PORT or HOST:PORT."""
    whole = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(whole)
        host, port = parts.hostname, parts.port or _DEFAULT_PORT
    except ValueError:
        host = None
    if host is None or parts.scheme != "http":
        raise click.UsageError(
            f"--clients {url!r}: expected the address of the gate's metrics, HOST:PORT"
        )
    return host, port


def _answer(host: str, port: int, path: str) -> Any:
    """Return the body of an answer. OSError, HTTPException."""
    connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
    try:
        connection.connect()
        answer = _asked(connection, path)
        if answer.status == _FORBIDDEN:
            # the name is not in metrics.allowed_hosts, which is for browsers
            answer.read(_MAX_ANSWER_BYTES)
            connection.connect()
            peer = str(connection.sock.getpeername()[0])
            answer = _asked(connection, path, f"[{peer}]" if ":" in peer else peer)
        if answer.status != _OK:
            raise OSError(
                f"the answer has status {answer.status}: it is not a gate that knows its clients"
            )
        body = answer.read(_MAX_ANSWER_BYTES + 1)
        if len(body) > _MAX_ANSWER_BYTES:
            raise OSError(f"the answer has more than {_MAX_ANSWER_BYTES} bytes")
        return body
    finally:
        connection.close()


def _asked(
    connection: http.client.HTTPConnection, path: str, host: str | None = None
) -> http.client.HTTPResponse:
    """Send a request and return the answer; ``host`` instead of the name in Host."""
    headers = {"Accept": "application/json"} | ({} if host is None else {"Host": host})
    connection.request("GET", path, headers=headers)
    return connection.getresponse()


def _no_answer(why: str) -> int:
    from batchval.report.units import printable

    click.echo(f"batchval proxy: {printable(why)}", err=True)
    return UNREADABLE

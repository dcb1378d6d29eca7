"""``batchval proxy --clients URL``: who uses a gate that runs, from its metrics address.

3 clients since 2026-11-25 10:00:00 UTC, of which Kafka 4 turns away 1

kafka 4      client id  software      address   principal       …  old versions
turned away  agent      -             10.0.0.7  User:ANONYMOUS  …  Produce 0
served       c-1        franz 1.22.2  10.0.0.8  User:alice      …
"""

from __future__ import annotations

import http.client
import json
import sys
from typing import Any
from urllib.parse import urlsplit

import click

from batchval.cli.exit import FINDINGS, UNREADABLE
from batchval.cli.output import print_json

__all__ = ["DEFAULT_ADDRESS", "show_clients"]

_DEFAULT_PORT = 9464
#: The address of metrics by default.
DEFAULT_ADDRESS = f"127.0.0.1:{_DEFAULT_PORT}"
_TIMEOUT_S = 15.0
_LARGEST = 64 << 20  # bytes of an answer: 10,000 rows have less
_OK = 200
_FORBIDDEN = 403


def show_clients(url: str, as_json: bool, slowest: bool = False) -> int:
    """Print the clients of the gate whose metrics are at this address, those with the longest mean
    latency first where ``slowest`` is set; return the exit code.
    """
    from batchval.proxy.watch.clients import MOST_CLIENTS, lines_of

    host, port = _address(url)
    place = f"http://{host}:{port}/clients"
    try:
        body = _answer(host, port, f"/clients?limit={MOST_CLIENTS}{'&order=slowest' * slowest}")
        summary = json.loads(body)
        clients = summary.pop("clients")
        lines = list(lines_of(summary, clients))
        old = bool(summary["old"])
    except (OSError, http.client.HTTPException) as error:
        why = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
        return _unreadable(f"{place}: {why}")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return _unreadable(f"{place}: the answer is not that of a gate")
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
            answer.read(_LARGEST)
            connection.connect()
            peer = str(connection.sock.getpeername()[0])
            answer = _asked(connection, path, f"[{peer}]" if ":" in peer else peer)
        if answer.status != _OK:
            raise OSError(
                f"the answer has status {answer.status}: it is not a gate that knows its clients"
            )
        body = answer.read(_LARGEST + 1)
        if len(body) > _LARGEST:
            raise OSError(f"the answer has more than {_LARGEST} bytes")
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


def _unreadable(why: str) -> int:
    from batchval.report.units import printable

    click.echo(f"batchval proxy: {printable(why)}", err=True)
    return UNREADABLE

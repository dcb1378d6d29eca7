"""One request to the port of /metrics: its target, and the hosts that it names.

    GET /clients?old=true HTTP/1.1
    Host: gate-1.example.com:9464
    Origin: http://gate-1.example.com:9464

A page of another site can make a browser ask a gate, where the name of that site leads to the
gate's address (DNS rebinding). The request then names that site in Host. So pages that show clients
are answered only where Host is localhost, an address, or a name of ``metrics.allowed_hosts``: no
site can take an address for its name. A request without Host is answered, too: every browser sends
it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterator
from http import HTTPStatus
from typing import Final, NamedTuple

from batchval.report.units import printable

__all__ = ["LOCALHOST", "Request", "host_of", "is_allowed", "refusal_of"]

LOCALHOST: Final = "localhost"

_AUTHORITY = re.compile(r"(?:\[([^\[\]]+)\]|([A-Za-z0-9._-]{1,254}))(?::([0-9]{0,5}))?")
_ABSOLUTE = re.compile(r"https?://([^/?#]*)([^#]*)", re.IGNORECASE)
_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)")
_HEADERS: Final = ("accept", "host", "origin")
_MAX_PORT: Final = 65_535
#: Characters of a host that an answer shows.
_SHOWN: Final = 100


class Request(NamedTuple):
    """A request. ``hosts`` and ``origins`` are as they came, in any form.

    ``authority``  host and port of a target in the absolute form, which proxies get; else None
    """

    method: str
    path: str
    query: str
    version: str
    accept: str = ""
    authority: str | None = None
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()

    @classmethod
    def parse(cls, head: bytes) -> Request:
        """Read the lines of a request, up to its empty line. Raises ValueError."""
        first, *lines = (line.decode("latin-1") for line in head.splitlines())
        method, target, version = first.split(" ")
        if not version.startswith("HTTP/1."):
            raise ValueError(f"{version} is not HTTP/1.0 or HTTP/1.1")
        authority = None
        if (absolute := _ABSOLUTE.fullmatch(target)) is not None:
            authority, target = absolute[1], absolute[2]
        path, _, query = target.partition("?")
        accept, hosts, origins = (tuple(_values(lines, name)) for name in _HEADERS)
        return cls(method, path or "/", query, version, ",".join(accept), authority, hosts, origins)


def _values(lines: list[str], name: str) -> Iterator[str]:
    for line in lines:
        key, _, value = line.partition(":")
        if key.lower() == name:
            yield value.strip(" \t")


def host_of(authority: str) -> str | None:
    """Return the host of ``HOST:PORT`` in lower case, without brackets and the final dot of DNS.

    None where it is not a host and a port (RFC 3986, section 3.2).
    """
    found = _AUTHORITY.fullmatch(authority)
    if found is None or int(found[3] or 0) > _MAX_PORT:
        return None
    if found[1] is None:
        return found[2].lower().removesuffix(".") or None
    try:
        return str(ipaddress.IPv6Address(found[1].replace("%25", "%", 1)))
    except ValueError:
        return None


def is_allowed(host: str, allowed: Collection[str]) -> bool:
    """Return whether a host may be asked for: as ``host_of`` returns it.

    ``allowed``  names in lower case; ``*.example.com`` stands for all names that end like that, and
                 ``*`` for any
    """
    if host == LOCALHOST or host in allowed or "*" in allowed:
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return any(one.startswith("*.") and host.endswith(one[1:]) for one in allowed)
    return True


def refusal_of(request: Request, allowed: Collection[str], at: str) -> tuple[int, str] | None:
    """Return the status and the text for a request of another site; None where it is served.

    ``at``  the address of the gate that the connection is for, as HOST:PORT
    """
    path = _shown(request.path)
    named = [*request.hosts, *([] if request.authority is None else [request.authority])]
    if len(request.hosts) > 1:
        return HTTPStatus.BAD_REQUEST, "the request has several Host headers, expected one"
    hosts = set()
    for one in named:
        if (host := host_of(one)) is None:
            return HTTPStatus.BAD_REQUEST, f"Host '{_shown(one)}' is not HOST or HOST:PORT"
        if not is_allowed(host, allowed):
            text = (
                f"Host '{_shown(one)}' is not allowed for {path}, which shows clients. Add "
                f"{_shown(host)} to metrics.allowed_hosts, or ask http://{at}{path}"
            )
            return HTTPStatus.FORBIDDEN, text
        hosts.add(host)
    for origin in request.origins:
        found = _ORIGIN.fullmatch(origin)
        if found is None or host_of(found[1]) not in hosts:
            text = f"Origin '{_shown(origin)}' is another site: {path} shows clients"
            return HTTPStatus.FORBIDDEN, text
    return None


def _shown(text: str) -> str:
    return printable(text[:_SHOWN])

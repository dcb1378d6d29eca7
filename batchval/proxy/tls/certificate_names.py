"""Warn where a listener's certificate does not cover the hosts that its clients connect to.

Clients verify the host by default (Java's ssl.endpoint.identification.algorithm, librdkafka's
enable.ssl.certificate.verification). ``ssl`` shows the names of a certificate only where it was
verified, so the listener's own is verified here, as its own authority, in a handshake in memory.
"""

from __future__ import annotations

import contextlib
import ipaddress
import ssl
from collections.abc import Iterator
from typing import Any, Final

from batchval.proxy.settings.config import Listener, ListenerTls, Settings
from batchval.proxy.settings.host_patterns import NODE, HostPattern
from batchval.proxy.settings.loading import ConfigError
from batchval.proxy.tls.tls import server_certificate
from batchval.yaml_settings.faults import Fault, Loc

__all__ = ["certificate_warnings"]

_NO_CHECK_TIME: Final = 0x200000  # X509_V_FLAG_NO_CHECK_TIME: an expired certificate has names, too
_STEPS: Final = 10  # TLS 1.3 takes 2 of them


def certificate_warnings(settings: Settings) -> Iterator[Fault]:
    """Yield a warning for each advertised host that a listener's certificate does not cover."""
    for i, listener in enumerate(settings.listeners):
        hosts = _hosts(("listeners", i), listener)
        if listener.tls is None or not hosts:
            continue
        names = _names(listener.tls)
        if names is None:
            continue  # reported with the files
        for loc, host in hosts.items():
            if not any(_covers(kind, value, host) for kind, value in names):
                text = f"the certificate {listener.tls.certificate} does not cover '{host}'"
                yield Fault.of(loc, f"{text}: it has {_listed(names)}", ("listeners", i, "tls"))


def _hosts(at: Loc, listener: Listener) -> dict[Loc, str]:
    if listener.sni is not None:
        return {
            (*at, "sni", "bootstrap"): listener.sni.bootstrap,
            (*at, "sni", "broker"): listener.sni.broker,
        }
    return (
        {}
        if listener.advertised_host is None
        else {(*at, "advertised_host"): listener.advertised_host}
    )


def _names(tls: ListenerTls) -> list[tuple[str, str]] | None:
    """Return (DNS or IP Address, value) of a certificate; None where it cannot be read."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags = ssl.VerifyFlags(
        client.verify_flags | ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME
    )
    try:
        server_certificate(server, tls)
        client.load_verify_locations(tls.certificate)
        shown = _shown(server, client)
    except (ConfigError, OSError):  # SSLError is an OSError
        return None
    names = [
        (kind, value)
        for kind, value in shown.get("subjectAltName", ())
        if kind in ("DNS", "IP Address")
    ]
    if names:
        return names
    parts = [part for several in shown.get("subject", ()) for part in several]
    return [("DNS", value) for name, value in parts if name == "commonName"]


def _shown(server: ssl.SSLContext, client: ssl.SSLContext) -> dict[str, Any]:
    """Return what a client sees of the server's certificate. Raises SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    for _ in range(_STEPS):
        for end in ends:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    return ends[0].getpeercert() or {}


def _covers(kind: str, value: str, host: str) -> bool:
    """Return whether a name of a certificate covers a host, or some broker's (RFC 6125, 6.4)."""
    if kind == "IP Address":
        with contextlib.suppress(ValueError):
            return ipaddress.ip_address(value) == ipaddress.ip_address(host)
        return False
    value, host = value.lower(), host.lower()
    if value.startswith("*."):  # does not match a NODE after the first label
        return value[2:] == host.partition(".")[2]
    if NODE in host:  # which brokers there are is not known here
        return HostPattern.parse(host).node_of(value) is not None
    return value == host


def _listed(names: list[tuple[str, str]]) -> str:
    values = [value for _, value in names]
    more = f" and {len(values) - 5} more" if len(values) > 5 else ""
    return (", ".join(values[:5]) + more) or "no names"

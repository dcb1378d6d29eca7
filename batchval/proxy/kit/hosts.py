"""Hosts and IP addresses: what a name stands for, and which addresses are this machine's."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
from typing import Final

__all__ = ["addresses_of", "is_local", "listens", "wildcard"]

RESOLVE_S: Final = 3.0

Ip = ipaddress.IPv4Address | ipaddress.IPv6Address


def wildcard(host: str) -> int | None:
    """Return the IP version of which ``host`` stands for every address, None if it does not."""
    if not host:
        return 4
    address = _literal(host)
    return address.version if address is not None and address.is_unspecified else None


def listens(host: str, address: Ip) -> bool:
    """Return whether a listener on every address takes this one: ``::`` takes IPv4 too on Linux."""
    return wildcard(host) in (6, address.version)


def _literal(host: str) -> Ip | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def addresses_of(host: str) -> frozenset[Ip]:
    """Return the addresses of a host; none where its name cannot be resolved in RESOLVE_S."""
    literal = _literal(host)
    if literal is not None:
        return frozenset((literal,))
    found: set[Ip] = set()

    def resolve() -> None:
        with contextlib.suppress(OSError, UnicodeError):
            for *_, address in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM):
                one = _literal(str(address[0]))
                if one is not None:
                    found.add(one)

    # getaddrinfo has no timeout of its own
    thread = threading.Thread(target=resolve, daemon=True)
    thread.start()
    thread.join(RESOLVE_S)
    return frozenset(found)


def is_local(address: Ip) -> bool:
    """Return whether an interface of this machine has the address, so that it can be bound."""
    if address.is_loopback:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.bind((str(address), 0))
    except OSError:
        return False
    return True

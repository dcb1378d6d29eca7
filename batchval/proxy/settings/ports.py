"""The ports of a gate: which of them collide, and whether an upstream address is one of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from batchval.proxy.kit.hosts import addresses_of, is_local, listens, wildcard
from batchval.proxy.settings.config import Settings
from batchval.yaml_settings.faults import Fault, Loc

__all__ = ["port_faults"]

_LAST_PORT: Final = 65535


class _Ports(NamedTuple):
    """Ports that one part of the gate listens on."""

    loc: Loc
    part: str
    host: str
    ports: range
    reads: tuple[Loc, ...]

    @property
    def text(self) -> str:
        """Return ``port 9092``, or ``ports 9093 to 9192``."""
        first, last = self.ports[0], self.ports[-1]
        return f"port {first}" if first == last else f"ports {first} to {last}"


def port_faults(settings: Settings) -> Iterator[Fault]:
    """Find ports that collide or do not exist, and upstream addresses that are the gate's own."""
    own = list(_own(settings))
    for ports in own:
        if ports.ports[-1] > _LAST_PORT:
            text = f"the {ports.text} of {ports.part} end above {_LAST_PORT}: choose lower ones, or fewer broker_ports"
            yield Fault(ports.loc, text, ports.reads)
    reported: set[str | int] = set()
    for i, ports in enumerate(own):
        for other in own[:i]:
            whose = ports.loc[:2]
            if _collide(ports, other) and str(whose) not in reported:
                reported.add(str(whose))  # the next collision has the same cause
                yield Fault(ports.loc, _collision(ports, other), ports.reads + other.reads)
    yield from _upstream_faults(settings, own)


def _own(settings: Settings) -> Iterator[_Ports]:
    """Yield the ports of every part of the gate; those that the system chooses are left out."""
    if settings.metrics.address is not None and settings.metrics.address.port:
        loc: Loc = ("metrics", "address")
        host, port = settings.metrics.address
        yield _Ports(loc, "metrics", host, range(port, port + 1), (loc,))
    for i, listener in enumerate(settings.listeners):
        loc = ("listeners", i, "address")
        host, port = listener.address
        if port:
            yield _Ports(loc, f"listener {listener.name}", host, range(port, port + 1), (loc,))
        if listener.broker_range:
            first: Loc = ("listeners", i, "first_broker_port")
            key = loc if listener.first_broker_port is None else first
            reads = (loc, first, ("listeners", i, "broker_ports"))
            yield _Ports(
                key, f"the brokers of listener {listener.name}", host, listener.broker_range, reads
            )


def _collide(one: _Ports, other: _Ports) -> bool:
    if not range(max(one.ports[0], other.ports[0]), min(one.ports[-1], other.ports[-1]) + 1):
        return False
    if one.host == other.host:
        return True
    for host, by in ((one.host, other.host), (other.host, one.host)):
        if wildcard(host) is not None:
            addresses = addresses_of(by)  # none: a name that cannot be resolved may be any of them
            return (
                wildcard(by) is not None
                or not addresses
                or any(listens(host, one) for one in addresses)
            )
    return not addresses_of(one.host).isdisjoint(addresses_of(other.host))


def _collision(ports: _Ports, other: _Ports) -> str:
    text = f"{ports.text} of {ports.part}"
    if len(ports.ports) == len(other.ports) == 1:
        return f"{text} is taken by {other.part}"
    verb = (
        "is among" if len(ports.ports) == 1 else "include" if len(other.ports) == 1 else "overlap"
    )
    return f"{text} {verb} the {other.text} of {other.part}: set another address, first_broker_port or broker_ports"


def _upstream_faults(settings: Settings, own: list[_Ports]) -> Iterator[Fault]:
    loc: Loc = ("upstream", "bootstrap")
    for address in dict.fromkeys(settings.upstream.bootstrap):
        for ports in own:
            if address.port in ports.ports and _reaches(address.host, ports.host):
                among = "has" if len(ports.ports) == 1 else "has one of"
                text = f"{address} is the gate itself: it {among} the {ports.text} of {ports.part}"
                yield Fault.of(loc, text, *ports.reads)
                break


def _reaches(host: str, listening: str) -> bool:
    """Return whether a connection to ``host`` reaches a listener on ``listening`` here."""
    addresses = addresses_of(host)
    if wildcard(listening) is not None:
        return any(listens(listening, address) and is_local(address) for address in addresses)
    return host == listening or not addresses.isdisjoint(addresses_of(listening))

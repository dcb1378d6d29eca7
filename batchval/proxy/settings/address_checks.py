"""Check the addresses that one listener sends to its clients against each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from batchval.proxy.settings.config import Listener, Sni
from batchval.proxy.settings.host_patterns import NODE, ServerNames
from batchval.yaml_settings.faults import Fault, Loc

__all__ = ["address_faults"]

_LAST_PORT: Final = 65535
_BROKER_PORTS: Final = Listener.model_fields["broker_ports"].default


def address_faults(at: Loc, listener: Listener) -> Iterator[Fault]:
    """Find what is wrong with ``sni`` and the advertised keys of the listener at ``at``."""
    if listener.sni is not None:
        yield from _sni(at, listener, listener.sni)
        return
    host, port, first = ((*at, f"advertised_{key}") for key in ("host", "port", "first_port"))
    if listener.advertised_port is not None and NODE not in (listener.advertised_host or ""):
        text = f"all brokers would have one address: set advertised_host with {NODE}, or sni"
        yield Fault.of(port, text, host, (*at, "sni"))
    if listener.advertised_port is not None and listener.advertised_first_port is not None:
        yield Fault.of(first, "cannot be combined with advertised_port", port)
    yield from _mapped(at, listener)


def _sni(at: Loc, listener: Listener, sni: Sni) -> Iterator[Fault]:
    loc: Loc = (*at, "sni")
    if listener.tls is None:
        yield Fault.of(
            loc, "needs tls: the server name is a part of the TLS handshake", (*at, "tls")
        )
    bootstrap, broker = (*loc, "bootstrap"), (*loc, "broker")
    names = ServerNames(*sni.names)
    if (node_id := names.broker.node_of(names.bootstrap)) is not None:
        text = f"'{sni.bootstrap}' is also the name of broker {node_id} ('{sni.broker}'): choose another"
        yield Fault.of(bootstrap, text, broker)
    others = {
        "advertised_host": "clients are sent the names of sni",
        "advertised_first_port": "all brokers are at one port: set advertised_port",
        "first_broker_port": "with sni all brokers are at the port of address",
    }
    for key, why in others.items():
        if getattr(listener, key) is not None:
            yield Fault.of((*at, key), f"has no effect: {why}", loc)
    if listener.broker_ports != _BROKER_PORTS:
        ports: Loc = (*at, "broker_ports")
        yield Fault.of(ports, f"has no effect: {others['first_broker_port']}", loc)


def _mapped(at: Loc, listener: Listener) -> Iterator[Fault]:
    """Find ports that nothing between clients and gate could be configured to map."""
    ports = (*at, "first_broker_port"), (*at, "broker_ports"), (*at, "address")
    for name in ("advertised_port", "advertised_first_port"):
        if getattr(listener, name) is not None and not listener.broker_range:
            text = (
                "needs fixed ports of brokers, and theirs are any free ones: set first_broker_port"
            )
            yield Fault.of((*at, name), text, *ports)
    first = listener.advertised_first_port
    if first is not None and (last := first + listener.broker_ports - 1) > _LAST_PORT:
        loc = (*at, "advertised_first_port")
        text = f"the advertised ports {first} to {last} end above {_LAST_PORT}: choose a lower one, or fewer"
        yield Fault.of(loc, f"{text} broker_ports", ports[1])

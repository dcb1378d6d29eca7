"""Ask the upstream brokers what they speak, and log in where there are credentials, before the gate
starts.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

from batchval.network.errors import AuthenticationError, NetworkError
from batchval.protocol.errors import ProtocolError
from batchval.proxy.cluster.endpoints import problem_of
from batchval.proxy.cluster.probe import Kind, Probe, probe
from batchval.proxy.kit.hosts import addresses_of
from batchval.proxy.produce.policies import log_in
from batchval.proxy.settings.config import Settings, Upstream
from batchval.proxy.settings.loading import ConfigError
from batchval.proxy.settings.values import STAND_IN, Address
from batchval.proxy.tls.tls import upstream_context
from batchval.yaml_settings.faults import Fault, Loc

__all__ = ["upstream_faults"]

PROBE_S: Final = 3.0

_BOOTSTRAP: Final[Loc] = ("upstream", "bootstrap")
_TLS: Final[Loc] = ("upstream", "tls")
_ADMIN: Final[Loc] = ("upstream", "admin")

#: What is wrong with an upstream of each kind. The others are reported as warnings: the cluster may
#: be down.
_WRONG: Final[dict[Kind, str]] = {
    "http": "{} speaks HTTP, not Kafka: set the address of a broker",
    "tls": "{} speaks TLS: set upstream.tls (with ca, or {{}} for the authorities of the system)",
    "plaintext": "{} speaks Kafka without TLS, and upstream.tls is set: set the broker's port with TLS",
    "untrusted": "the TLS handshake with {} fails: {}",
    "other": "{} does not speak Kafka: it answered {}",
}
_WARNING: Final[dict[Kind, str]] = {
    "unreachable": "{} cannot be reached: {}",
    "silent": "{} does not answer: {}",
}


def upstream_faults(settings: Settings, *, logs_in: bool = True) -> tuple[list[Fault], list[Fault]]:
    """Return what is wrong with the upstreams, and warnings. Takes at most three times PROBE_S.

    With ``logs_in`` each broker is asked whether it accepts ``upstream.admin``, too. A login that
    is refused is wrong: a gate with it knows no limits of topics. One that could not be tried is a
    warning.
    """
    try:
        tls = None if settings.upstream.tls is None else upstream_context(settings.upstream.tls)
    except ConfigError:
        return [], []  # reported with the files
    wrong: list[Fault] = []
    warnings: list[Fault] = []
    speakers: list[Address] = []
    addresses = [
        address for address in dict.fromkeys(settings.upstream.bootstrap) if address != STAND_IN
    ]
    for address, found in zip(addresses, asyncio.run(_probed(addresses, tls)), strict=True):
        for sentences, faults in ((_WRONG, wrong), (_WARNING, warnings)):
            if found.kind in sentences:
                loc, text = _TLS if found.kind == "untrusted" else _BOOTSTRAP, sentences[found.kind]
                reads = (_BOOTSTRAP, _TLS)
                faults.append(Fault(loc, text.format(address, found.reason), reads))
        if found.kind == "kafka":
            speakers.append(address)
    admin = settings.upstream.admin
    if logs_in and admin is not None and admin.username is not None:
        for found_wrong, fault in asyncio.run(_logins(settings.upstream, tls, speakers)):
            (wrong if found_wrong else warnings).append(fault)
    return wrong, warnings


async def _logins(
    upstream: Upstream, tls: ssl.SSLContext | None, addresses: list[Address]
) -> list[tuple[bool, Fault]]:
    """Return (whether it is wrong, fault) of each login that did not succeed."""
    found = await asyncio.gather(*(_login(upstream, tls, address) for address in addresses))
    return [one for one in found if one is not None]


async def _login(
    upstream: Upstream, tls: ssl.SSLContext | None, address: Address
) -> tuple[bool, Fault] | None:
    admin = upstream.admin
    assert admin is not None
    whose = f"of {admin.username} with {admin.mechanism}"
    try:
        async with asyncio.timeout(PROBE_S):
            await log_in(upstream, tls, address)
    except AuthenticationError as error:
        text = f"{address} refuses the login {whose}: {error}"
        return True, Fault(_ADMIN, text, (_BOOTSTRAP, _TLS, _ADMIN))
    except ConfigError:
        return None  # reported with the files
    except (NetworkError, OSError, ProtocolError) as error:
        text = f"the login {whose} at {address} could not be tried: {problem_of(error)}"
        return False, Fault(_ADMIN, text, (_BOOTSTRAP, _TLS, _ADMIN))
    return None


async def _probed(addresses: list[Address], tls: ssl.SSLContext | None) -> list[Probe]:
    return await asyncio.gather(*(_probe(address, tls) for address in addresses))


async def _probe(address: Address, tls: ssl.SSLContext | None) -> Probe:
    # a look-up in a thread of the loop's could not be left when it takes too long
    if not await asyncio.to_thread(addresses_of, address.host):
        return Probe("unreachable", "its name cannot be resolved")
    return await probe(address, tls, PROBE_S)

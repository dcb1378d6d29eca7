"""Count the clients that a gate may have by its settings and by its process's open files."""

from __future__ import annotations

import logging

from batchval.proxy.kit.open_files import connections_allowed, raise_limit, reserve_for, too_few
from batchval.proxy.life.health import MAX_CONNECTIONS
from batchval.proxy.settings.config import Settings

__all__ = ["connections_of", "log_fewer", "most_ports", "reserve_of"]

log = logging.getLogger("batchval.proxy")


def reserve_of(settings: Settings, threads: int) -> int:
    """Return how many open files are not for clients, with the ports that the settings ask for."""
    listening = sum(
        1 + (listener.broker_ports if listener.sni is None else 0)
        for listener in settings.listeners
    )
    health = 0 if settings.metrics.address is None else MAX_CONNECTIONS
    return reserve_for(listening, threads, health)


def most_ports(settings: Settings) -> int:
    """Return how many ports brokers may have: those of the settings, or a quarter of all files."""
    asked = sum(one.broker_ports for one in settings.listeners if one.sni is None)
    return max(asked, raise_limit() // 4)


def connections_of(settings: Settings) -> int:
    """Raise the limit of open files; return the clients it suffices for. Raises OSError."""
    limit, wanted = raise_limit(), settings.limits.max_connections
    reserve = reserve_of(settings, settings.limits.threads)
    allowed = connections_allowed(limit, wanted, reserve)
    if allowed < 1:
        whose = f"the gate keeps {reserve} for itself"
        raise too_few(limit, whose, ", or lower listeners[].broker_ports")
    if allowed < wanted:
        why = f"at most {limit} open files are allowed, the gate keeps {reserve} for itself, and each client takes 2"
        log_fewer(settings, allowed, f"{why}: raise it (ulimit -n, LimitNOFILE=)")
    return allowed


def log_fewer(settings: Settings, allowed: int, why: str) -> None:
    """Log that there may be fewer clients than in the settings."""
    # the default is only information: nobody has chosen it
    level = (
        logging.WARNING if "max_connections" in settings.limits.model_fields_set else logging.INFO
    )
    wanted = settings.limits.max_connections
    log.log(
        level,
        "limits.max_connections is %d here, not %d: %s, or lower limits.max_connections",
        allowed,
        wanted,
        why,
    )

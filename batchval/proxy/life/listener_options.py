"""Make the options of one listener's data path from settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from batchval.proxy.life.parts import Parts
from batchval.proxy.produce.quarantine import Quarantine
from batchval.proxy.settings.config import Listener, Settings
from batchval.proxy.settings.host_patterns import ServerNames
from batchval.proxy.settings.options import (
    Denied,
    DenyRule,
    Limits,
    ObserveGlobs,
    ProxyOptions,
    Refusal,
)
from batchval.proxy.settings.refusal_settings import inter_broker_rules
from batchval.proxy.tls.tls import identity_of, subject_of

__all__ = ["options_for"]


def options_for(
    listener: Listener,
    parts: Parts,
    *,
    on_refusal: Callable[[Refusal], None],
    on_denied: Callable[[Denied], None],
    quarantine: Quarantine | None,
) -> ProxyOptions:
    """Return the options of one listener."""
    settings = parts.settings
    return ProxyOptions(
        listen=(listener.address.host or "0.0.0.0", listener.address.port),
        upstream=settings.upstream.bootstrap,
        advertised_host=listener.advertised_host,
        advertised_port=listener.advertised_port,
        advertised_first_port=listener.advertised_first_port,
        sni=None if listener.sni is None else ServerNames(*listener.sni.names),
        first_broker_port=listener.first_broker_port,
        broker_ports=listener.broker_ports,
        mode=settings.mode,
        observe=tuple(ObserveGlobs(rule.topics, rule.principals) for rule in settings.observe),
        deny=_deny(settings, listener),
        topics=parts.topics,
        validator={
            "mode": settings.validation.rules,
            "kafka_version": settings.validation.kafka_version,
            "extras": settings.validation.all_extras,
            "max_decompressed_bytes": settings.validation.max_decompressed_bytes,
        },
        claims_in=settings.claims_in_of(listener),
        claims_out=settings.claims_out,
        bridge=frozenset(settings.bridge),
        bridge_isolation_level=settings.bridge_isolation_level,
        listener_name=listener.name,
        listen_tls=parts.listener_tls.get(listener.name),
        upstream_tls=parts.upstream_tls,
        sender=identity_of,
        principal=_principal,
        limits=_limits(settings, listener),
        threads=settings.limits.threads,
        on_refusal=on_refusal,
        on_denied=on_denied,
        quarantine=quarantine,
    )


def _deny(settings: Settings, listener: Listener) -> tuple[DenyRule, ...]:
    rules = tuple(one.rule for one in settings.deny)
    if listener.inter_broker == "allow":
        return rules
    return rules + inter_broker_rules(settings.deny, listener.name)


def _limits(settings: Settings, listener: Listener) -> Limits:
    limits = settings.limits
    return Limits(
        max_frame_bytes=limits.max_frame_bytes,
        max_connections=limits.max_connections,
        max_listener_connections=listener.max_connections or limits.max_connections,
        max_bytes_held=limits.max_bytes_held,
        write_buffer=limits.write_buffer_bytes,
        max_waiting=limits.max_requests_waiting,
        handshake_s=limits.handshake_timeout_ms / 1000,
        idle_s=limits.idle_timeout_ms / 1000,
        connect_s=settings.upstream.connect_timeout_ms / 1000,
        linger_s=max(limits.drain_timeout_ms / 1000, 0.1),
        peer_timeout_s=limits.peer_timeout_ms / 1000,
        max_partitions=limits.max_partitions_per_request,
        max_address_connections=limits.max_connections_per_address,
        max_unauthenticated_frame_bytes=limits.max_unauthenticated_frame_bytes,
        frame_s=limits.frame_timeout_ms / 1000,
        max_age_s=None
        if limits.max_connection_age_ms is None
        else limits.max_connection_age_ms / 1000,
    )


def _principal(certificate: Mapping[str, Any] | None) -> str | None:
    """Return Kafka's principal of a verified certificate."""
    subject = subject_of(certificate)
    return None if subject is None else f"User:{subject}"

"""Settings compared with each other: values that contradict each other, and settings without
effect.

A value that equals the default may have no effect: ``--print-config`` writes all defaults. What
only ``mode`` makes idle is a warning: in an emergency the mode is changed alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from batchval.proxy.kit.globs import name_for
from batchval.proxy.settings.address_checks import address_faults
from batchval.proxy.settings.config import Admin, Limits, Listener, Metrics, Settings
from batchval.proxy.settings.ports import port_faults
from batchval.proxy.settings.record_checks import record_faults
from batchval.proxy.settings.refusal_checks import deny_faults, quarantine_faults
from batchval.proxy.settings.shares import workers_of
from batchval.proxy.settings.values import STAND_IN
from batchval.rules import EXTRAS
from batchval.yaml_settings.faults import Fault, Loc, name_faults

__all__ = ["faults_of", "share_faults"]

#: The least bytes of a partition in a Produce request: its index, its records' length and its tags.
_LEAST_PARTITION: Final = 6


def faults_of(settings: Settings) -> Iterator[Fault]:
    """Find what is wrong with settings whose values are each of the right kind."""
    for i, listener in enumerate(settings.listeners):
        yield from _listener(settings, i, listener)
    yield from name_faults("listeners", (one.name for one in settings.listeners))
    yield from port_faults(settings)
    yield from _upstream_tls(settings)
    yield from _plaintext(settings)
    yield from _admin(settings)
    yield from _validation(settings)
    yield from _claims(settings)
    yield from _bridge(settings)
    yield from _policies(settings)
    yield from record_faults(settings)
    yield from _observe(settings)
    yield from deny_faults(settings)
    yield from quarantine_faults(settings)
    yield from _limits(settings.limits)
    yield from _workers(settings)
    yield from _metrics(settings.metrics)
    yield from _log(settings)


# ---- listeners -----------------------------------------------------------------------------------


def _listener(settings: Settings, i: int, listener: Listener) -> Iterator[Fault]:
    at: Loc = ("listeners", i)
    total = settings.limits.max_connections
    if listener.max_connections is not None and listener.max_connections > total:
        text = f"{listener.max_connections} has no effect: limits.max_connections is {total}"
        yield Fault.of((*at, "max_connections"), text, ("limits", "max_connections"))
    yield from address_faults(at, listener)
    is_default = listener.broker_ports == Listener.model_fields["broker_ports"].default
    if not is_default and not listener.broker_range and listener.sni is None:
        text = (
            "has no effect: brokers get any free ports (first_broker_port 0, or port 0 in address)"
        )
        yield Fault.of((*at, "broker_ports"), text, (*at, "address"), (*at, "first_broker_port"))
    yield from _listener_tls(at, listener)
    if listener.trusted:
        yield from _trusted(settings, at, listener)


def _listener_tls(at: Loc, listener: Listener) -> Iterator[Fault]:
    tls = listener.tls
    if tls is None:
        return
    ca, auth = (*at, "tls", "client_ca"), (*at, "tls", "client_auth")
    if tls.client_auth in ("optional", "required") and tls.client_ca is None:
        yield Fault.of(auth, f"{tls.client_auth} needs client_ca", ca)
    if tls.client_auth == "none" and tls.client_ca is not None:
        yield Fault.of(ca, "has no effect: client_auth is none", auth)
    if tls.client_crl is not None and (tls.client_ca is None or tls.client_auth == "none"):
        why = (
            "client_auth is none"
            if tls.client_auth == "none"
            else "without client_ca no certificate is asked for"
        )
        yield Fault.of((*at, "tls", "client_crl"), f"has no effect: {why}", ca, auth)


def _trusted(settings: Settings, at: Loc, listener: Listener) -> Iterator[Fault]:
    loc, word = (*at, "trusted"), settings.claims_in.word
    if word not in ("audit", "trust"):
        yield Fault.of(
            loc,
            f"has no effect: claims_in is {word}, and only audit and trust believe senders",
            ("claims_in",),
        )
    elif listener.tls is not None and listener.tls.client_certificates == "required":
        text = (
            "has no effect: clients show certificates, and each certificate is a sender of its own"
        )
        yield Fault.of(loc, text, *((*at, "tls", key) for key in ("client_ca", "client_auth")))


# ---- upstream ------------------------------------------------------------------------------------


def _upstream_tls(settings: Settings) -> Iterator[Fault]:
    tls, at = settings.upstream.tls, ("upstream", "tls")
    bootstrap: Loc = ("upstream", "bootstrap")
    addresses = settings.upstream.bootstrap
    for address in sorted({one for one in addresses if addresses.count(one) > 1} - {STAND_IN}):
        yield Fault.of(bootstrap, f"{address} is listed twice")
    if tls is None:
        return
    for key, other in (("certificate", "key"), ("key", "certificate")):
        if getattr(tls, key) is not None and getattr(tls, other) is None:
            yield Fault.of((*at, key), f"needs {other}", (*at, other))
    if tls.key_password is not None and tls.key is None:
        yield Fault.of((*at, "key_password"), "has no effect without key", (*at, "key"))


def _plaintext(settings: Settings) -> Iterator[Fault]:
    """Find secrets that would leave this machine without TLS unless ``allow_plaintext`` is set."""
    upstream = settings.upstream
    allow, tls, bootstrap = (("upstream", key) for key in ("allow_plaintext", "tls", "bootstrap"))
    secure = next((listener for listener in settings.listeners if listener.tls is not None), None)
    shown = upstream.admin is not None and upstream.admin.mechanism == "PLAIN"
    if upstream.allow_plaintext:
        if upstream.tls is not None:
            yield Fault.of(allow, "has no effect: upstream.tls is set", tls)
        return
    remote = next((address for address in upstream.bootstrap if not address.is_loopback), None)
    if upstream.tls is not None or remote is None:
        return
    reads = (allow, tls, bootstrap)
    if secure is not None:
        i = settings.listeners.index(secure)
        text = (
            f"listener {secure.name} has TLS and the connection to {remote} has none: "
            "set upstream.tls, or upstream.allow_plaintext: true to allow it"
        )
        yield Fault(
            ("upstream",), text, (*reads, ("listeners", i, "tls"), ("listeners", i, "name"))
        )
    if shown:
        text = (
            f"PLAIN sends the password to {remote} without TLS: "
            "set upstream.tls, or upstream.allow_plaintext: true to allow it"
        )
        yield Fault.of(("upstream", "admin", "mechanism"), text, *reads)


def _admin(settings: Settings) -> Iterator[Fault]:
    admin, at = settings.upstream.admin, ("upstream", "admin")
    mechanism, cluster = (*at, "mechanism"), ("topics", "from_cluster")
    if admin is None:
        if settings.topics.from_cluster:
            text = (
                "needs upstream.admin (mechanism: NONE where the cluster asks for no credentials)"
            )
            yield Fault.of(cluster, text, at)
        return
    keys = ("username", "password")
    if admin.mechanism == "NONE":
        for key in keys:
            if getattr(admin, key) is not None:
                yield Fault.of((*at, key), "has no effect with mechanism NONE", mechanism)
    elif any(getattr(admin, key) is None for key in keys):
        yield Fault.of(
            at,
            f"{admin.mechanism} needs username and password",
            mechanism,
            *((*at, key) for key in keys),
        )
    if (
        admin.refresh_ms != Admin.model_fields["refresh_ms"].default
        and not settings.reads_topic_configs
    ):
        yield Fault.of((*at, "refresh_ms"), "has no effect: topics.from_cluster is false", cluster)


# ---- batches and topics --------------------------------------------------------------------------


def _validation(settings: Settings) -> Iterator[Fault]:
    validation, at = settings.validation, ("validation", "extras")
    known = [rule.id for rule in EXTRAS]
    for extra, action in validation.extras.items():
        if extra not in known:
            yield Fault.of((*at, extra), f"is not an extra: they are {', '.join(known)}")
        elif extra == "S8" and action == "report":
            yield Fault.of((*at, extra), "S8 is always refused")
    if validation.extras and validation.rules == "kafka":
        yield Fault.of(
            at, "has no effect: extras belong to the rules strict", ("validation", "rules")
        )


def _claims(settings: Settings) -> Iterator[Fault]:
    word = settings.claims_in.word
    if settings.claims_out != "none" and word not in ("ignore", "verify"):
        text = (
            f"{settings.claims_out} goes with claims_in ignore or verify, not {word}: "
            "only claims that were computed here go on"
        )
        yield Fault.of(("claims_out",), text, ("claims_in",))
    if word in ("audit", "trust") and not any(
        listener.gives_senders for listener in settings.listeners
    ):
        whose = "a listener that requires client certificates (tls.client_ca)"
        text = f"{word} needs a sender: {whose}, or is trusted: true"
        keys = (("trusted",), ("tls",), ("tls", "client_ca"), ("tls", "client_auth"))
        reads = [("listeners", i, *key) for i in range(len(settings.listeners)) for key in keys]
        yield Fault.of(("claims_in",), text, *reads)


def _bridge(settings: Settings) -> Iterator[Fault]:
    default = Settings.model_fields["bridge_isolation_level"].default
    if settings.bridge_isolation_level != default and "consumers" not in settings.bridge:
        text = "has no effect: bridge has no consumers"
        yield Fault.of(("bridge_isolation_level",), text, ("bridge",))


def _policies(settings: Settings) -> Iterator[Fault]:
    at: Loc = ("topics", "policies")
    globs = [rule.match for rule in settings.topics.policies]
    for i, glob in enumerate(globs):
        others: list[Loc] = [(*at, j, "match") for j in range(i)]
        if name_for(glob, ()) is None:
            yield Fault.of((*at, i, "match"), f"'{glob}' matches no topic name ({_TOPIC_NAMES})")
        elif name_for(glob, globs[:i]) is None:
            by = next((one for one in globs[:i] if name_for(glob, [one]) is None), None)
            earlier = f"'{by}' above matches" if by is not None else "earlier globs match"
            yield Fault.of(
                (*at, i, "match"),
                f"'{glob}' never decides: {earlier} every topic that it matches",
                *others,
            )


_TOPIC_NAMES: Final = "1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-'"


def _observe(settings: Settings) -> Iterator[Fault]:
    rules = settings.observe
    if rules and settings.mode == "observe":
        text = "has no effect: mode observe observes all topics and principals"
        yield Fault.of(("observe",), text, ("mode",)).as_warning()
    for i, rule in enumerate(rules):
        at: Loc = ("observe", i)
        if name_for(rule.topics, ()) is None:
            yield Fault.of(
                (*at, "topics"), f"'{rule.topics}' matches no topic name ({_TOPIC_NAMES})"
            )
        elif name_for(rule.principals, (), principals=True) is None:
            text = f"'{rule.principals}' matches no principal: they look like User:alice or User:CN=edge,O=Example"
            yield Fault.of((*at, "principals"), text)
        else:
            for j, earlier in enumerate(rules[:i]):
                topics = name_for(rule.topics, [earlier.topics])
                if (
                    topics is None
                    and name_for(rule.principals, [earlier.principals], principals=True) is None
                ):
                    keys = ("topics", "principals")
                    reads = [("observe", n, key) for n in (j, i) for key in keys]
                    yield Fault.of(at, f"has no effect: observe[{j}] covers it", *reads)
                    break


# ---- limits, metrics, log ------------------------------------------------------------------------


def _limits(limits: Limits) -> Iterator[Fault]:
    """Find limits that another limit keeps from being reached."""
    if limits.max_bytes_held < limits.max_frame_bytes:
        largest = f"max_frame_bytes ({limits.max_frame_bytes})"
        text = f"{limits.max_bytes_held} is below {largest}: such a frame could never pass"
        yield Fault.of(("limits", "max_bytes_held"), text, ("limits", "max_frame_bytes"))
    partitions = limits.max_frame_bytes // _LEAST_PARTITION
    for key, bound, why in (
        ("max_unauthenticated_frame_bytes", limits.max_frame_bytes, "max_frame_bytes is {}"),
        ("max_connections_per_address", limits.max_connections, "max_connections is {}"),
        ("write_buffer_bytes", limits.max_bytes_held, "max_bytes_held is {}"),
        (
            "max_partitions_per_request",
            partitions,
            "a request of max_frame_bytes has at most {} partitions",
        ),
        (
            "idle_timeout_ms",
            limits.max_connection_age_ms or limits.idle_timeout_ms,
            "max_connection_age_ms is {}",
        ),
    ):
        value = getattr(limits, key)
        if value is not None and value > bound and value != Limits.model_fields[key].default:
            other = next((word for word in why.split() if word.startswith("max_")), "")
            yield Fault.of(
                ("limits", key), f"{value} has no effect: {why.format(bound)}", ("limits", other)
            )


def _workers(settings: Settings) -> Iterator[Fault]:
    """Find a number of workers for which one limit is too small to be divided."""
    yield from share_faults(settings.limits, workers_of(settings))


def share_faults(limits: Limits, workers: int) -> Iterator[Fault]:
    """Find that the largest request does not fit into the part of each of so many workers."""
    share = limits.max_bytes_held // workers
    if workers > 1 and share < limits.max_frame_bytes:
        least = workers * limits.max_frame_bytes
        text = (
            f"each of {workers} has {share} bytes of limits.max_bytes_held, which is below "
            f"limits.max_frame_bytes ({limits.max_frame_bytes}): set fewer workers, or "
            f"max_bytes_held to {least} or more"
        )
        yield Fault.of(
            ("workers",), text, ("limits", "max_bytes_held"), ("limits", "max_frame_bytes")
        )


def _metrics(metrics: Metrics) -> Iterator[Fault]:
    address: Loc = ("metrics", "address")
    if metrics.address is None:
        for key in ("remote", "allowed_hosts", "topics", "nodes"):
            if metrics.otlp is not None and key in ("topics", "nodes"):
                continue
            if getattr(metrics, key) != Metrics.model_fields[key].default:
                yield Fault.of(("metrics", key), "has no effect: metrics.address is null", address)
    elif metrics.address.is_loopback and metrics.remote:
        text = f"has no effect: {metrics.address} can be reached from this machine alone"
        yield Fault.of(("metrics", "remote"), text, address)
    elif not metrics.address.is_loopback and not metrics.remote:
        text = (
            f"{metrics.address} can be reached from other machines: "
            "set metrics.remote: true to allow it"
        )
        yield Fault.of(address, text, ("metrics", "remote"))


def _log(settings: Settings) -> Iterator[Fault]:
    """Find limits without effect: of lines that level error leaves out, of no audit file."""
    log = settings.log
    for key, what in (
        ("refusals_per_second", "refused batches"),
        ("connections_per_second", "ended connections"),
    ):
        if getattr(log, key) != type(log).model_fields[key].default and log.level == "error":
            yield Fault.of(
                ("log", key),
                f"has no effect: level error leaves out the lines about {what}",
                ("log", "level"),
            )
    for key in ("audit_max_bytes", "audit_max_files"):
        if getattr(log, key) == type(log).model_fields[key].default:
            continue
        if log.audit_file is None:
            text = "has no effect: log.audit_file is not set"
            yield Fault.of(("log", key), text, ("log", "audit_file"))
        elif log.audit_max_bytes is None and key == "audit_max_files":
            text = "has no effect: log.audit_max_bytes is null, so no file is renamed"
            yield Fault.of(("log", key), text, ("log", "audit_max_bytes"))

"""Settings compared with each other: values that contradict each other, and settings without
effect.

A value that equals the default may have no effect: ``--print-config`` writes all defaults. What
only ``mode`` makes idle is a warning: in an emergency the mode is changed alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from pydantic import BaseModel

from batchval.errors import BatchvalError
from batchval.proxy.kit.globs import name_for
from batchval.proxy.kit.sockets import addresses_of, is_local, listens, wildcard
from batchval.proxy.settings.config import Limits, Listener, Metrics, Settings, Sni
from batchval.proxy.settings.host_patterns import NODE, ServerNames
from batchval.proxy.settings.record_settings import (
    MAX_SUBJECT_BYTES,
    TOPIC,
    CustomRules,
    RecordRulesRule,
    SchemaIdRule,
)
from batchval.proxy.settings.setting_types import MAX_PORT, STAND_IN, Address
from batchval.proxy.settings.worker_limits import workers_of
from batchval.record_rules import RecordRules
from batchval.rules import EXTRAS
from batchval.yaml_settings.faults import Fault, Loc, name_faults

__all__ = [
    "address_faults",
    "deny_faults",
    "faults_of",
    "port_faults",
    "quarantine_faults",
    "record_faults",
    "share_faults",
]


def _is_set(model: BaseModel, key: str) -> bool:
    """Return whether a key has another value than its default."""
    return bool(getattr(model, key) != type(model).model_fields[key].default)


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
        if ports.ports[-1] > MAX_PORT:
            text = f"the {ports.text} of {ports.part} end above {MAX_PORT}: choose lower ones, or fewer broker_ports"
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


_PRINCIPALS = "they look like User:alice or User:CN=edge,O=Example"


def deny_faults(settings: Settings) -> Iterator[Fault]:
    """Find rules of ``deny`` that deny nothing to anybody."""
    names = [listener.name for listener in settings.listeners]
    reads: list[Loc] = [("listeners", i, "name") for i in range(len(names))]
    for i, rule in enumerate(settings.deny):
        at: Loc = ("deny", i)
        if not any(fnmatchcase(name, rule.listeners) for name in names):
            loc: Loc = (*at, "listeners")
            text = f"'{rule.listeners}' matches no listener: they are {', '.join(dict.fromkeys(names))}"
            yield Fault.of(loc, text, *reads)
        yield from _principals(at, rule.principals, rule.except_principals)


def _principals(at: Loc, principals: str, exceptions: tuple[str, ...]) -> Iterator[Fault]:
    loc, other = (*at, "principals"), (*at, "except_principals")
    if name_for(principals, (), principals=True) is None:
        yield Fault.of(loc, f"'{principals}' matches no principal: {_PRINCIPALS}")
        return
    for glob in exceptions:
        if name_for(glob, (), principals=True) is None:
            yield Fault.of(other, f"'{glob}' matches no principal: {_PRINCIPALS}")
    if exceptions and name_for(principals, exceptions, principals=True) is None:
        text = f"leaves no principal of '{principals}': the rule denies nothing"
        yield Fault.of(other, text, loc)


def quarantine_faults(settings: Settings) -> Iterator[Fault]:
    """Find a quarantine that never gets a batch in this mode, or less than it was set up for."""
    found = settings.quarantine
    if found is None:
        return
    loc: Loc = ("quarantine", "observed")
    observes: tuple[Loc, ...] = (("mode",), ("observe",))
    if settings.mode == "observe" and not found.observed:
        text = "is false, and mode observe refuses nothing: set quarantine.observed: true"
        yield Fault.of(loc, text, *observes).as_warning()
    elif found.observed and settings.mode == "enforce" and not settings.observe:
        text = "has no effect: no batch is observed in mode enforce without observe"
        yield Fault.of(loc, text, *observes).as_warning()


def record_faults(settings: Settings) -> Iterator[Fault]:
    """Find record rules, registries and custom rules that do not go together."""
    yield from _registries(settings)
    yield from _custom_rules(settings)
    names = {one.name for one in settings.schema_registries}
    reads: list[Loc] = [
        ("schema_registries", i, key) for i in range(len(names)) for key in ("name", "url")
    ]
    for i, policy in enumerate(settings.topics.policies):
        at: Loc = ("topics", "policies", i, "record_rules")
        rules = policy.record_rules
        if rules is None:
            continue
        for j, one in enumerate(rules.schema_id):
            place: Loc = (*at, "schema_id") if len(rules.schema_id) == 1 else (*at, "schema_id", j)
            yield from _schema_id(place, one, names, reads)
        yield from _together(at, rules)


def _together(at: Loc, rules: RecordRulesRule) -> Iterator[Fault]:
    """Find what the engine says of all keys together, where each alone is right."""
    try:
        for one in rules.schema_id:
            one.schema_ids()
    except BatchvalError:
        return  # a fault of that entry
    reads = tuple((*at, key) for key in RecordRulesRule.model_fields)
    try:
        found = rules.record_rules()
    except BatchvalError as error:
        yield Fault(at, str(error), reads)
        return
    if found == RecordRules():
        yield Fault(at, "has no effect: it requires nothing", reads)


def _schema_id(
    at: Loc, one: SchemaIdRule, names: set[str], registries: list[Loc]
) -> Iterator[Fault]:
    keys = [(*at, key) for key in SchemaIdRule.model_fields]
    try:
        one.schema_ids()
    except BatchvalError as error:
        yield Fault(at, str(error), tuple(keys))
    if one.registry is None:
        if one.subject is not None:
            yield Fault.of((*at, "subject"), "has no effect without registry", (*at, "registry"))
        return
    for key in ("ids", "guids"):
        if getattr(one, key) is not None:
            text = "cannot be combined with registry, which knows the ids"
            yield Fault.of((*at, key), text, (*at, "registry"))
    if one.registry not in names:
        known = ", ".join(sorted(names)) or "which is empty"
        text = f"{one.registry!r} is not in schema_registries ({known})"
        yield Fault.of((*at, "registry"), text, ("schema_registries",), *registries)
    subject = one.subject_of_topics
    rest = subject.replace(TOPIC, "")
    if "{" in rest or "}" in rest or not subject.isprintable() or len(subject) > MAX_SUBJECT_BYTES:
        text = (
            f"must be a subject of at most {MAX_SUBJECT_BYTES} characters, in which {TOPIC} stands "
            "for the topic"
        )
        yield Fault((*at, "subject"), text)


def _registries(settings: Settings) -> Iterator[Fault]:
    used = {
        one.registry
        for policy in settings.topics.policies
        if policy.record_rules is not None
        for one in policy.record_rules.schema_id
    }
    names = [one.name for one in settings.schema_registries]
    yield from name_faults("schema_registries", names)
    for i, registry in enumerate(settings.schema_registries):
        at: Loc = ("schema_registries", i)
        if registry.name not in used and names.index(registry.name) == i:
            text = f"has no effect: no record rule names the registry {registry.name}"
            yield Fault.of(at, text, (*at, "name"), (*at, "url"), ("topics", "policies"))
        for key, other in (("username", "password"), ("password", "username")):
            if getattr(registry, key) is not None and getattr(registry, other) is None:
                yield Fault.of((*at, key), f"needs {other}", (*at, other))
        if registry.username is not None and ":" in registry.username:
            yield Fault((*at, "username"), "must not contain ':' (RFC 7617)")
        parts = urlsplit(registry.url)
        if registry.ca is not None and parts.scheme == "http":
            yield Fault.of((*at, "ca"), "has no effect: the URL is not https", (*at, "url"))
        if (
            registry.password is not None
            and parts.scheme == "http"
            and not Address(parts.hostname or "", 0).is_loopback
        ):
            text = f"the password would be sent to {parts.hostname} without TLS: use https"
            yield Fault.of((*at, "url"), text, (*at, "password"))


def _custom_rules(settings: Settings) -> Iterator[Fault]:
    rules = [policy.custom_rules for policy in settings.topics.policies]
    for i, names in enumerate(rules):
        for j, name in enumerate(names):
            if name in names[:j]:
                at: Loc = ("topics", "policies", i, "custom_rules", j)
                yield Fault(at, f"{name!r} is listed twice")
    if not any(rules):
        for key in CustomRules.model_fields:
            if _is_set(settings.custom_rules, key):
                loc: Loc = ("custom_rules", key)
                yield Fault.of(loc, "has no effect: no topic has custom rules", ("topics",))


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
    if _is_set(listener, "broker_ports"):
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
    if first is not None and (last := first + listener.broker_ports - 1) > MAX_PORT:
        loc = (*at, "advertised_first_port")
        text = f"the advertised ports {first} to {last} end above {MAX_PORT}: choose a lower one, or fewer"
        yield Fault.of(loc, f"{text} broker_ports", ports[1])


#: The least bytes of a partition in a Produce request: its index, its records' length and its tags.
_MIN_PARTITION_BYTES: Final = 6


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
    are_set = _is_set(listener, "broker_ports")
    if are_set and not listener.broker_range and listener.sni is None:
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
    reads = settings.reads_topic_configs or settings.validation.release is None
    if _is_set(admin, "refresh_ms") and not reads:
        yield Fault.of((*at, "refresh_ms"), "has no effect: topics.from_cluster is false", cluster)


# ---- batches and topics --------------------------------------------------------------------------


def _validation(settings: Settings) -> Iterator[Fault]:
    validation, at = settings.validation, ("validation", "extras")
    release = validation.release
    if release is not None and (warning := release.warning):
        yield Fault.of(("validation", "kafka_version"), warning).as_warning()
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
    if _is_set(settings, "bridge_isolation_level") and "consumers" not in settings.bridge:
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
    partitions = limits.max_frame_bytes // _MIN_PARTITION_BYTES
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
        if value is not None and value > bound and _is_set(limits, key):
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
            if _is_set(metrics, key):
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
        if _is_set(log, key) and log.level == "error":
            yield Fault.of(
                ("log", key),
                f"has no effect: level error leaves out the lines about {what}",
                ("log", "level"),
            )
    for key in ("audit_max_bytes", "audit_max_files"):
        if not _is_set(log, key):
            continue
        if log.audit_file is None:
            text = "has no effect: log.audit_file is not set"
            yield Fault.of(("log", key), text, ("log", "audit_file"))
        elif log.audit_max_bytes is None and key == "audit_max_files":
            text = "has no effect: log.audit_max_bytes is null, so no file is renamed"
            yield Fault.of(("log", key), text, ("log", "audit_max_bytes"))

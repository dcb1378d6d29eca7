"""Settings of record rules, registries and custom rules compared with each other."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from batchval.errors import BatchvalError
from batchval.proxy.settings.config import Settings
from batchval.proxy.settings.record_settings import (
    MOST_SUBJECT,
    TOPIC,
    CustomRules,
    RecordRulesRule,
    SchemaIdRule,
)
from batchval.proxy.settings.values import Address
from batchval.record_rules import RecordRules
from batchval.yaml_settings.faults import Fault, Loc, name_faults

__all__ = ["record_faults"]


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
    if "{" in rest or "}" in rest or not subject.isprintable() or len(subject) > MOST_SUBJECT:
        text = f"must be a subject of at most {MOST_SUBJECT} characters, in which {TOPIC} stands for the topic"
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
        for key, field in CustomRules.model_fields.items():
            if getattr(settings.custom_rules, key) != field.default:
                loc: Loc = ("custom_rules", key)
                yield Fault.of(loc, "has no effect: no topic has custom rules", ("topics",))

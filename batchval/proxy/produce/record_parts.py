"""Make registries with their ids, custom rules and the rules of each topic from settings."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from operator import attrgetter
from typing import Any, Final, Literal

from batchval.custom_rules import CustomRule
from batchval.errors import BatchvalError
from batchval.named_files import opened
from batchval.proxy.kit.rule_budget import BudgetedRule
from batchval.proxy.settings.config import Settings, TopicRule
from batchval.proxy.settings.glob_policies import RegistryIds, TopicRules
from batchval.proxy.settings.loading import ConfigError
from batchval.proxy.settings.record_settings import SchemaRegistry
from batchval.proxy.watch.metrics import Across, Family
from batchval.schema_registry import RegistryClient, SubjectIds

__all__ = ["RecordParts"]


class RecordParts:
    """The registries and custom rules of a gate. ``start`` it and ``close`` it. Raises ConfigError
    for a custom rule that cannot be loaded, and for authorities that cannot be read.

    ``before``       of the running gate: a registry whose settings are the same keeps its ids, and
                     a custom rule its counts
    ``topic_rules``  by glob, in the order of ``topics.policies``
    """

    def __init__(self, settings: Settings, before: RecordParts | None = None) -> None:
        self._settings = {one.name: one for one in settings.schema_registries}
        self._before = before
        self._authorities: dict[str, _Authorities] = {}
        #: of registries that stay: what their files hold now, for ``start``
        self._contexts: dict[str, ssl.SSLContext] = {}
        self.registries = {one.name: self._registry(one) for one in settings.schema_registries}
        self._passes = {one.name: one.on_error == "pass" for one in settings.schema_registries}
        self._budget = settings.custom_rules.budget
        names = dict.fromkeys(
            name for rule in settings.topics.policies for name in rule.custom_rules
        )
        self.custom_rules = {name: self._custom_rule(name) for name in names}
        self.topic_rules: dict[str, TopicRules] = {}
        for rule in settings.topics.policies:
            self.topic_rules.setdefault(rule.match, self._rules(rule))
        if not any(rule.record_rules or rule.custom_rules for rule in settings.topics.policies):
            self.topic_rules = {}
        self._before = None

    def _custom_rule(self, name: str) -> BudgetedRule:
        rule = _loaded(name)
        before = None if self._before is None else self._before.custom_rules.get(name)
        return BudgetedRule(rule, self._budget) if before is None or before.rule != rule else before

    def _registry(self, settings: SchemaRegistry) -> SubjectIds:
        before = self._before
        if before is not None and before._settings.get(settings.name) == settings:
            if (authorities := before._authorities.get(settings.name)) is not None:
                self._authorities[settings.name] = authorities
                self._contexts[settings.name] = _context(settings)
            return before.registries[settings.name]
        context: Callable[[], ssl.SSLContext] | None = None
        if settings.url.startswith("https"):
            authorities = self._authorities[settings.name] = _Authorities(settings)
            context = partial(getattr, authorities, "context")
        client = RegistryClient(
            settings.url,
            credentials=None if settings.password is None else partial(_credentials, settings),
            context=context,
            timeout_s=settings.timeout_ms / 1000,
        )
        return SubjectIds(
            client, refresh_s=settings.refresh_ms / 1000, absent_s=settings.absent_ms / 1000
        )

    def _rules(self, rule: TopicRule) -> TopicRules:
        record_rules = None if rule.record_rules is None else rule.record_rules.record_rules()
        entries = [] if rule.record_rules is None else rule.record_rules.schema_id
        registries = [
            RegistryIds(
                i, self.registries[one.registry], one.subject_of_topics, self._passes[one.registry]
            )
            for i, one in enumerate(entries)
            if one.registry is not None
        ]
        return TopicRules(
            record_rules, registries, [self.custom_rules[name] for name in rule.custom_rules]
        )

    def start(self) -> None:
        """Begin to read the registries, and let what stays of before follow these settings."""
        for name, context in self._contexts.items():
            self._authorities[name].context = context
        for rule in self.custom_rules.values():
            rule.follow(self._budget)
        for registry in self.registries.values():
            registry.start()

    def close(self, *used: RecordParts) -> None:
        """End what runs in the background, but for what others that are ``used`` go on with."""
        kept = [registry for one in used for registry in one.registries.values()]
        for registry in self.registries.values():
            if registry not in kept:
                registry.close()

    def families(self) -> Iterator[Family]:
        """Yield the metrics of registries and custom rules."""
        if self.registries:
            labelled = partial(_labelled, "schema_registry", "registry", self.registries)
            for name, text in _REGISTRY_COUNTS.items():
                yield labelled("counter", name, text, attrgetter(f"{name}_total"))
            yield labelled("gauge", "subjects", "Subjects whose schema ids are kept.", len, "max")
            text = "1 where a schema registry answered the last request."
            yield labelled("gauge", "up", text, lambda one: float(not one.is_down), "min")
        if self.custom_rules:
            labelled = partial(_labelled, "custom_rule", "rule", self.custom_rules)
            for name, text in _RULE_COUNTS.items():
                counted = attrgetter(f"{_COUNTED_AS.get(name, name)}_total")
                yield labelled("counter", name, text, counted)
            text = "Clients whose batches a custom rule takes too long for, and which are refused."
            yield labelled("gauge", "refused_senders", text, attrgetter("refused_senders"))
            text = "1 while a custom rule is suspended for all."
            yield labelled("gauge", "suspended", text, lambda one: float(one.is_suspended), "max")


class _Authorities:
    """The TLS context of one registry, which a reload replaces."""

    def __init__(self, settings: SchemaRegistry) -> None:
        self.context = _context(settings)


def _context(settings: SchemaRegistry) -> ssl.SSLContext:
    """Return a context of what the file of authorities holds now. Raises ConfigError."""
    name, ca = settings.name, settings.ca
    try:
        if ca is not None:
            opened(ca).close()  # before OpenSSL opens it, which would wait for a pipe
        context = ssl.create_default_context(cafile=None if ca is None else str(ca))
    except (OSError, ValueError) as error:  # SSLError is an OSError
        raise ConfigError([f"schema registry {name}: {ca}: {error}"]) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _credentials(settings: SchemaRegistry) -> tuple[str, str]:
    """Return user name and password, read anew. Raises ValueError."""
    assert settings.password is not None
    return settings.username or "", settings.password.reveal()


def _loaded(name: str) -> CustomRule:
    try:
        return CustomRule.load(name)
    except BatchvalError as error:
        raise ConfigError([f"topics.policies: {error}"]) from None


_REGISTRY_COUNTS: Final = {
    "questions": "Requests for an id to a schema registry.",
    "failures": "Requests that a schema registry did not answer.",
    "passed": "Batches passed: no answer about their schema ids.",
    "unanswered": "Batches refused, or observed: no answer about their ids.",
}
_RULE_COUNTS: Final = {
    "calls": "Batches that a custom rule checked.",
    "seconds": "CPU time of a custom rule.",
    "findings": "Batches that a custom rule found fault with: refused, or observed.",
    "overruns": "Calls of a custom rule that took longer than its budget.",
    "errors": "Calls of a custom rule that failed.",
    "unasked": "Batches that came while a custom rule was suspended.",
}
#: A rule does not know whether what it refuses is observed.
_COUNTED_AS: Final = {"findings": "refusals"}


def _labelled(
    prefix: str,
    label: str,
    parts: Mapping[str, Any],
    kind: Literal["counter", "gauge"],
    name: str,
    text: str,
    of: Callable[[Any], float],
    across: Across = "sum",
) -> Family:
    samples = [((key,), of(one)) for key, one in parts.items()]
    return Family(kind, f"{prefix}_{name}", text, (label,), samples, across)

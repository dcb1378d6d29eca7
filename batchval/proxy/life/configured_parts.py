"""Make objects of settings and of the files that they name, before anything changes in a gate.

ConfiguredParts(settings)          at the start
ConfiguredParts(settings, before)  for other settings: what is known in the running gate stays in
                                   use, such as topic configurations, the ids of registries and the
                                   counts of custom rules
parts.for_release(release)         for another release of the brokers: no file is read again
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from batchval.kafka_versions import Release, least_refusing, releases_from
from batchval.policy import TopicPolicy
from batchval.proxy.produce.policies import UNBOUNDED, ClusterTopics, Read, TopicLookup
from batchval.proxy.produce.quarantine import QuarantineWriter
from batchval.proxy.produce.record_parts import RecordParts
from batchval.proxy.settings.config import DenyRule, Listener, Settings, inter_broker_rules
from batchval.proxy.settings.host_patterns import ServerNames
from batchval.proxy.settings.loading import ConfigError
from batchval.proxy.settings.options import (
    Denied,
    ProxyOptions,
    Refusal,
    TopicPolicies,
)
from batchval.proxy.tls.tls import identity_of, listener_context, subject_of, upstream_context

__all__ = ["ConfiguredParts", "named", "options_for"]


class ConfiguredParts:
    """The TLS contexts, topic policies and record rules of a gate. Any thread may make them. Raises
    ConfigError.

    ``read``            reads topic configurations from the cluster
    ``release``         of Kafka, whose answers are given: that of the settings, else ``detected``
    ``listener_tls``    by the listener's name
    ``cluster_topics``  None where no topic configurations are read
    ``named_topics``    that policies name without a wildcard
    """

    def __init__(
        self,
        settings: Settings,
        read: Read,
        before: ConfiguredParts | None = None,
        *,
        detected: Release | None = None,
    ) -> None:
        self.settings = settings
        self.release = settings.validation.release or detected or least_refusing(releases_from())
        self.record_parts: RecordParts = RecordParts(
            settings, None if before is None else before.record_parts
        )
        self.upstream_tls = (
            None if settings.upstream.tls is None else upstream_context(settings.upstream.tls)
        )
        self.listener_tls = {
            one.name: listener_context(one.tls) for one in settings.listeners if one.tls is not None
        }
        self.cluster_topics = self._cluster_topics(read, before)
        self._lookup: TopicLookup | None = None
        self.topics = self._topics()
        self.named_topics = {
            rule.match for rule in settings.topics.policies if not set(rule.match) & set("*?[")
        }

    def _cluster_topics(self, read: Read, before: ConfiguredParts | None) -> ClusterTopics | None:
        admin = self.settings.upstream.admin
        if not self.settings.reads_topic_configs or admin is None:
            return None
        if admin.password is not None:
            with named("upstream.admin.password"):
                admin.password.reveal()
        if before is not None and before.cluster_topics is not None:
            return before.cluster_topics
        return ClusterTopics(read, self.refresh_s)

    def for_mode_of(self, settings: Settings) -> ConfiguredParts:
        """Return the same parts for settings of which only the mode is another."""
        parts = copy.copy(self)
        parts.settings = settings
        return parts

    def for_release(self, release: Release) -> ConfiguredParts:
        """Return the same parts for another release of the brokers."""
        parts = copy.copy(self)
        parts.release = release
        parts.topics = parts._topics()
        return parts

    @property
    def refresh_s(self) -> float:
        """Return the seconds between readings of topic configurations."""
        admin = self.settings.upstream.admin
        return 0.0 if admin is None else admin.refresh_ms / 1000

    def _topics(self) -> TopicPolicies:
        rules, release = self.settings.topics.policies, self.release
        if self.cluster_topics is None:
            globs: dict[str, TopicPolicy] = {}
            for rule in rules:  # the first that matches
                policy = UNBOUNDED if rule.leaves_configuration else rule.policy(release)
                globs.setdefault(rule.match, policy)
            return TopicPolicies(UNBOUNDED, globs, self.record_parts.topic_rules)
        topics = TopicPolicies(UNBOUNDED, rules=self.record_parts.topic_rules)
        topics.known = self._lookup = TopicLookup(rules, self.cluster_topics, kafka_version=release)
        return topics

    def asked_topics(self) -> list[str]:
        """Return the topics whose policies clients have used."""
        looked_up = [] if self._lookup is None else self._lookup.names()
        return list(dict.fromkeys((*looked_up, *self.topics.names())))


@contextlib.contextmanager
def named(key: str) -> Iterator[None]:
    """Raise a ValueError as a ConfigError of this key."""
    try:
        yield
    except ValueError as error:
        raise ConfigError([f"{key}: {error}"]) from None


def options_for(
    listener: Listener,
    parts: ConfiguredParts,
    *,
    on_refusal: Callable[[Refusal], None],
    on_denied: Callable[[Denied], None],
    quarantine: QuarantineWriter | None,
) -> ProxyOptions:
    """Return the options of one listener."""
    settings = parts.settings
    return ProxyOptions(
        settings,
        listener,
        release=parts.release,
        topics=parts.topics,
        deny=_deny(settings, listener),
        claims_in=settings.claims_in_of(listener),
        sni=None if listener.sni is None else ServerNames(*listener.sni.names),
        listen_tls=parts.listener_tls.get(listener.name),
        upstream_tls=parts.upstream_tls,
        sender=identity_of,
        principal=_principal,
        on_refusal=on_refusal,
        on_denied=on_denied,
        quarantine=quarantine,
    )


def _deny(settings: Settings, listener: Listener) -> tuple[DenyRule, ...]:
    rules = tuple(one.rule for one in settings.deny)
    if listener.inter_broker == "allow":
        return rules
    return rules + inter_broker_rules(settings.deny, listener.name)


def _principal(certificate: Mapping[str, Any] | None) -> str | None:
    """Return Kafka's principal of a verified certificate."""
    subject = subject_of(certificate)
    return None if subject is None else f"User:{subject}"

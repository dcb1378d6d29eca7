"""Objects that a gate makes of its settings and the files that they name, before anything changes.

Parts(settings)          at the start
Parts(settings, before)  for other settings: what is known in the running gate stays in use, such as
                         topic configurations, the ids of registries and the counts of custom rules
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator

from batchval.policy import TopicPolicy
from batchval.proxy.produce.policies import UNBOUNDED, ClusterTopics, Read, TopicLookup
from batchval.proxy.produce.record_parts import RecordParts
from batchval.proxy.settings.config import Settings
from batchval.proxy.settings.loading import ConfigError
from batchval.proxy.settings.options import TopicPolicies
from batchval.proxy.tls.tls import listener_context, upstream_context

__all__ = ["Parts", "named"]


class Parts:
    """The TLS contexts, topic policies and record rules of a gate. Any thread may make them. Raises
    ConfigError.

    ``read``            reads topic configurations from the cluster
    ``listener_tls``    by the listener's name
    ``cluster_topics``  None where no topic configurations are read
    ``named_topics``    that policies name without a wildcard
    """

    def __init__(self, settings: Settings, read: Read, before: Parts | None = None) -> None:
        self.settings = settings
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

    def _cluster_topics(self, read: Read, before: Parts | None) -> ClusterTopics | None:
        admin = self.settings.upstream.admin
        if not self.settings.reads_topic_configs or admin is None:
            return None
        if admin.password is not None:
            with named("upstream.admin.password"):
                admin.password.reveal()
        if before is not None and before.cluster_topics is not None:
            return before.cluster_topics
        return ClusterTopics(read, self.refresh_s)

    def for_mode_of(self, settings: Settings) -> Parts:
        """Return the same parts for settings of which only the mode is another."""
        parts = copy.copy(self)
        parts.settings = settings
        return parts

    @property
    def refresh_s(self) -> float:
        """Return the seconds between readings of topic configurations."""
        admin = self.settings.upstream.admin
        return 0.0 if admin is None else admin.refresh_ms / 1000

    def _topics(self) -> TopicPolicies:
        rules, kafka_version = self.settings.topics.policies, self.settings.validation.kafka_version
        if self.cluster_topics is None:
            globs: dict[str, TopicPolicy] = {}
            for rule in rules:  # the first that matches
                policy = UNBOUNDED if rule.leaves_configuration else rule.policy(kafka_version)
                globs.setdefault(rule.match, policy)
            return TopicPolicies(UNBOUNDED, globs, self.record_parts.topic_rules)
        topics = TopicPolicies(UNBOUNDED, rules=self.record_parts.topic_rules)
        topics.known = self._lookup = TopicLookup(
            rules, self.cluster_topics, kafka_version=kafka_version
        )
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

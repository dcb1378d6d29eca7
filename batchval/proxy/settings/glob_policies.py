"""The record rules of the topics that one glob matches, and the policies that follow.

record rules ── + ids that a registry has for the topic's subject ──▶ TopicPolicy.record_rules
custom rules ── are called by record_stage
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from batchval.policy import TopicPolicy
from batchval.proxy.kit.rule_budget import BudgetedRule
from batchval.proxy.settings.record_settings import TOPIC
from batchval.record_rules import RecordRules, SchemaIds
from batchval.schema_registry import SubjectIds

__all__ = ["RegistryIds", "TopicRules"]

#: Topics whose policies are remembered.
MAX_KNOWN_TOPICS: Final = 10_000


@dataclass(frozen=True, slots=True)
class RegistryIds:
    """An entry of ``RecordRules.schema_id`` whose ids a registry has.

    ``subject``  in which ``{topic}`` stands for the topic's name
    """

    entry: int
    subjects: SubjectIds
    subject: str
    pass_on_error: bool = False

    def subject_of(self, topic: str) -> str:
        """Return the subject of a topic."""
        return self.subject.replace(TOPIC, topic)

    def ids(self, topic: str) -> frozenset[int]:
        """Return the ids that are known for a topic."""
        return self.subjects.ids(self.subject_of(topic))


class TopicRules:
    """The record rules of some topics."""

    def __init__(
        self,
        record_rules: RecordRules | None = None,
        registries: Sequence[RegistryIds] = (),
        custom_rules: Sequence[BudgetedRule] = (),
    ) -> None:
        self.record_rules = record_rules
        self.registries = tuple(registries)
        self.custom_rules = tuple(custom_rules)
        self._known: dict[str, tuple[TopicPolicy, list[frozenset[int]], TopicPolicy]] = {}

    @property
    def schema_ids(self) -> tuple[SchemaIds, ...]:
        """Return the entries of ``schema_id``."""
        return () if self.record_rules is None else self.record_rules.schema_ids

    def policy(self, topic: str, base: TopicPolicy) -> TopicPolicy:
        """Return the policy of a topic whose configuration is ``base``."""
        if self.record_rules is None:
            return base
        ids = [one.ids(topic) for one in self.registries]
        known = self._known.get(topic)
        if known is not None and known[0] is base and known[1] == ids:
            return known[2]
        policy = self._composed(
            base, {one.entry: found for one, found in zip(self.registries, ids, strict=True)}
        )
        if len(self._known) >= MAX_KNOWN_TOPICS:  # names come from clients
            self._known.clear()
        self._known[topic] = base, ids, policy
        return policy

    def policy_with(
        self, topic: str, base: TopicPolicy, more: Mapping[int, frozenset[int]]
    ) -> TopicPolicy:
        """Return the policy that allows ``more`` ids, by entry, for one batch."""
        return self._composed(
            base,
            {
                one.entry: one.ids(topic) | more.get(one.entry, frozenset())
                for one in self.registries
            },
        )

    def _composed(self, base: TopicPolicy, ids: Mapping[int, frozenset[int]]) -> TopicPolicy:
        rules = self.record_rules
        assert rules is not None
        if ids:
            entries = [
                replace(one, ids=ids[i]) if i in ids else one
                for i, one in enumerate(rules.schema_ids)
            ]
            rules = replace(rules, schema_id=tuple(entries))
        return replace(base, record_rules=rules)

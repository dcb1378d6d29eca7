"""Topics that brokers have confirmed: their names, and the ids that newer requests carry."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

__all__ = ["KnownTopics", "is_topic_name"]

#: Topics that are remembered.
MOST_TOPICS: Final = 100_000

#: Characters of a topic's name.
LONGEST_NAME: Final = 249

_NAME = re.compile(rf"[A-Za-z0-9._-]{{1,{LONGEST_NAME}}}")


def is_topic_name(name: str) -> bool:
    """Return whether Kafka allows the name (org.apache.kafka.common.internals.Topic)."""
    return _NAME.fullmatch(name) is not None and name not in (".", "..")


class KnownTopics:
    """Names and ids of topics, from the brokers' Metadata answers."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self.by_id: dict[bytes, str] = {}

    def learn(self, topics: Iterable[tuple[bytes, str]]) -> None:
        """Remember (topic id, name) of topics without an error; an id of b"" or zeros is none."""
        for topic_id, name in topics:
            if name not in self._names:
                if not is_topic_name(name):
                    continue
                if len(self._names) >= MOST_TOPICS:
                    self._names.clear()
                self._names.add(name)
            if any(topic_id) and self.by_id.get(topic_id) != name:
                if len(self.by_id) >= MOST_TOPICS:
                    self.by_id.clear()
                self.by_id[bytes(topic_id)] = name

    def is_known(self, name: str) -> bool:
        """Return whether a broker has confirmed the name."""
        return name in self._names

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic id, None where it is not known."""
        return self.by_id.get(topic_id)

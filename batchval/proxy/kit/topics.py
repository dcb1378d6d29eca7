"""Topics that brokers have confirmed: their names, and the ids that newer requests carry."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final, TypeVar

__all__ = ["MAX_TOPIC_LENGTH", "FirstMatch", "KnownTopics", "is_topic_name"]

T = TypeVar("T")

#: Topics that are remembered.
MAX_TOPICS: Final = 100_000

#: Characters of a topic's name.
MAX_TOPIC_LENGTH: Final = 249

_NAME = re.compile(rf"[A-Za-z0-9._-]{{1,{MAX_TOPIC_LENGTH}}}")


def is_topic_name(name: str) -> bool:
    """Return whether Kafka allows the name (org.apache.kafka.common.internals.Topic)."""
    return _NAME.fullmatch(name) is not None and name not in (".", "..")


class FirstMatch(dict[str, T]):
    """The value of the first glob that matches a topic's name, else ``default``.

    At most ``most`` names are remembered, since they come from clients. A name that Kafka does not
    allow has the default and is not remembered: it may have 32 KiB.
    """

    def __init__(self, globs: Iterable[tuple[str, T]], default: T, most: int) -> None:
        super().__init__()
        self._globs = list(globs)
        self._default = default
        self._most = most

    def __missing__(self, topic: str) -> T:
        if not is_topic_name(topic):
            return self._default
        matching = (value for glob, value in self._globs if fnmatchcase(topic, glob))
        found = next(matching, self._default)
        if len(self) >= self._most:
            self.clear()
        self[topic] = found
        return found


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
                if len(self._names) >= MAX_TOPICS:
                    self._names.clear()
                self._names.add(name)
            if any(topic_id) and self.by_id.get(topic_id) != name:
                if len(self.by_id) >= MAX_TOPICS:
                    self.by_id.clear()
                self.by_id[bytes(topic_id)] = name

    def is_known(self, name: str) -> bool:
        """Return whether a broker has confirmed the name."""
        return name in self._names

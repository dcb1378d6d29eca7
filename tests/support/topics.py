"""Topics on a real broker."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient, NewTopic


def make_topic(bootstrap: str, name: str, partitions: int = 1, **config: str) -> str:
    """Returns when it is made: its name."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(60)
    return name

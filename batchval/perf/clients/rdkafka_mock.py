"""librdkafka's mock cluster: brokers in the memory of this process, in one thread of librdkafka."""

from __future__ import annotations

from batchval.perf.clients import rdkafka_package

__all__ = ["MockCluster"]

_START_S = 10.0


class MockCluster:
    """Runs as long as the object lives.

    ``bootstrap``  the brokers' addresses, as ``--bootstrap-server`` takes them
    """

    def __init__(self, brokers: int = 1) -> None:
        self._owner = rdkafka_package.Producer({"test.mock.num.brokers": brokers, "log_level": 0})
        found = self._owner.list_topics(timeout=_START_S).brokers.values()
        self.bootstrap = ",".join(sorted(f"{broker.host}:{broker.port}" for broker in found))

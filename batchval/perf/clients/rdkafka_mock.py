"""librdkafka's mock cluster: brokers in the memory of this process, in one thread of librdkafka."""

from __future__ import annotations

import signal

from batchval.perf.clients import rdkafka_package

__all__ = ["MockCluster"]

_START_S = 10.0


class MockCluster:
    """A mock cluster that runs as long as the object lives.

    ``bootstrap``  the brokers' addresses, as ``--bootstrap-server`` takes them
    """

    def __init__(self, brokers: int = 1) -> None:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:  # its threads have this mask: signals are the main thread's
            self._owner = rdkafka_package.Producer(
                {"test.mock.num.brokers": brokers, "log_level": 0}
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        found = self._owner.list_topics(timeout=_START_S).brokers.values()
        self.bootstrap = ",".join(sorted(f"{broker.host}:{broker.port}" for broker in found))

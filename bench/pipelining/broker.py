"""Run Apache Kafka on this address, from the tests' own broker; prints "listening HOST PORT", runs
until it is ended.
"""

from __future__ import annotations

import argparse
import signal
import sys

from tests.interop.kafka_broker import KafkaBroker


class Elsewhere(KafkaBroker):
    """Not on the loopback."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    options = parser.parse_args()
    Elsewhere.host = options.host
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    settings = {
        "log.retention.bytes": 64 << 20,
        "log.segment.bytes": 32 << 20,
        "log.retention.check.interval.ms": 1000,
    }
    with Elsewhere(config=settings) as broker:
        print(f"listening {broker.host} {broker.port}", flush=True)
        signal.pause()


if __name__ == "__main__":
    main()

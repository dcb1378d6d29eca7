"""The counters of a broker's agent, by JMX."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Self

from tests.support.java_classes import compiled
from tests.system.interop.kafka_broker import KafkaBroker
from tests.system.interop.kafka_java import TARGET, find_java

__all__ = ["COUNTERS", "Counters"]

PROGRAM = Path(__file__).resolve().parent / "java" / "Counters.java"
MBEAN = "batchval:type=claims"
#: Counts of batches; the MBean also has ``Inactive`` (0 or 1) and the text ``Status``.
COUNTERS = (
    *("Trusted", "Verified", "Honest", "Lying", "Unjudged", "Unbound", "NoClaims", "NotSettled"),
    *("Demotions", "AnonymousIgnored", "Errors"),
)


class Counters:
    """Reads the MBean of a running broker: ``with Counters(broker) as counters: counters.read()``.

    One process of the JVM reads as often as it is asked to.
    """

    def __init__(self, broker: KafkaBroker) -> None:
        assert broker.process is not None
        self.pid = broker.process.pid

    def __enter__(self) -> Self:
        flags = [
            "-Xmx64m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "--add-modules=jdk.attach",
        ]
        classes = compiled([PROGRAM], "", find_java(), TARGET)
        command = [find_java(), *flags, "-cp", str(classes), PROGRAM.stem, str(self.pid)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate()

    def attributes(self) -> dict[str, str]:
        """Return all attributes; none where the MBean is not registered."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(MBEAN + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the program that reads the MBean ended"
        return dict(pair.split("=", 1) for pair in line.rstrip("\n").split("\t") if pair)

    def read(self) -> dict[str, int]:
        """Return the numbers by the MBean's names."""
        attributes = self.attributes()
        return {name: int(attributes[name]) for name in COUNTERS}

    def status(self) -> str:
        return self.attributes()["Status"]

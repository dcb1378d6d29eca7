"""Read the attributes of an MBean of a JVM on this machine."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.interop.kafka_broker import find_java

__all__ = ["CLAIMS", "attributes", "claims_counters"]

#: the MBean of the broker's agent
CLAIMS = "batchval:type=claims"
SOURCE = Path(__file__).with_name("Attributes.java")


def attributes(pid: int, mbean: str) -> dict[str, str]:
    """Return them by name. The JVM needs no option; this takes about a second.

    Raises:
        RuntimeError: no such process, or no such MBean in it.
    """
    done = subprocess.run(
        [find_java(), "-XX:TieredStopAtLevel=1", str(SOURCE), str(pid), mbean],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise RuntimeError(f"{mbean} of process {pid}: {lines[0]}")
    return dict(line.split("\t", 1) for line in done.stdout.splitlines())


def claims_counters(pid: int) -> dict[str, int]:
    """Return the counters of the agent in a broker.

    Raises:
        RuntimeError: the agent is not active; the message has its status.
    """
    found = attributes(pid, CLAIMS)
    status = found.pop("Status")
    if not status.startswith("active"):
        raise RuntimeError(f"the agent of process {pid} is not active: {status}")
    return {name: int(value) for name, value in found.items()}

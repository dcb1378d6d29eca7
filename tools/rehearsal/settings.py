"""Settings of a gate, and whether a newer version reads what an earlier one has accepted."""

from __future__ import annotations

from typing import Any

#: The address of the broker stands for BROKER. Ports are chosen by the kernel.
GATE = """\
mode: enforce
listeners:
  - name: edge
    address: 127.0.0.1:0
    first_broker_port: 0
    max_connections: 1500
    trusted: true
upstream:
  bootstrap: BROKER
  connect_timeout_ms: 5000
  admin:
    mechanism: NONE
    refresh_ms: 60000
validation:
  kafka_version: "4.4"
  rules: strict
  extras: {S1: refuse}
  max_decompressed_bytes: 33554432
topics:
  from_cluster: true
  policies:
    - match: "orders.*"
      max.message.bytes: 20000
      message.timestamp.after.max.ms: 3600000
claims_in: trust
limits:
  max_frame_bytes: 52428800
  idle_timeout_ms: 300000
  drain_timeout_ms: 10000
  threads: 2
metrics:
  address: 127.0.0.1:0
  topics: 50
log:
  format: json
  level: debug
  refusals_per_second: 10
"""


def lost_values(old: Any, new: Any, key: str = "") -> list[str]:
    """Return one line for each value of ``old`` that ``new`` lacks or has with another value.

    Both are JSON, such as what ``--print-config`` prints. What only ``new`` has is ignored.
    """
    lines: list[str] = []
    if isinstance(old, dict) and isinstance(new, dict):
        for name, value in old.items():
            inner = f"{key}.{name}".lstrip(".")
            lines += lost_values(value, new[name], inner) if name in new else [f"{inner} is gone"]
        return lines
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for at, pair in enumerate(zip(old, new, strict=True)):
            lines += lost_values(*pair, f"{key}[{at}]")
        return lines
    return [] if old == new else [f"{key} was {old!r}, is {new!r}"]

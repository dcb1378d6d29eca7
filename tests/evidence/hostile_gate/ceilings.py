"""The ceilings of a gate's cost under attack, compared with the figures of one attack.

    cpu       CPU of the gate's process by byte that it receives or decompresses: at most 100 times
              that of an ordinary byte, measured in the same run (120 kB of zstd that is passed on).
              By request, where an attack is many small whole ones: at most 0.2 ms, which is what
              three small Produce requests take. By connection, where it sends almost nothing: at
              most 3 ms. Always beyond the first 20 ms.
    memory    peak RSS over idle: at most max_bytes_held + 64 MiB, or what the attack states
    latency   p99 of an innocent client beyond its p99 before the attack: at most 50 ms
    callback  CPU of the loop's thread in its longest callback: at most 5 ms
    collector CPU of the cycle collector's longest run: at most 20 ms
    answer    a response that the gate makes itself: at most 1 MiB, or twice its request
    metrics   the text of /metrics afterwards: at most 1 MB
    files     log.audit_file and its renamed files: at most their bound
    alive     the gate runs, no request has reached the broker that must not, the innocent client
              has had the broker's answers only, and /clients is refused to a page of another site

CPU is a count of CPU time and holds on a busy machine. Its milliseconds are those of the reference
machine (tests/support/calibration.py): they are longer where a fixed piece of work takes longer,
measured during the attack, and never shorter. So are those of an ordinary byte, measured before the
attack, when the machine may be faster. Latency is wall time: it is the best of some tries,
since other work on the machine only makes a try worse.
"""

from __future__ import annotations

from typing import Any

MIB = 1 << 20
CPU_RATIO, REQUEST_S, CONNECTION_S = 100.0, 0.0002, 0.003
MEMORY_SLACK = 64 * MIB
LATENCY_S, CALLBACK_S, COLLECTOR_S = 0.050, 0.005, 0.020
ANSWER_BYTES, METRICS_BYTES = MIB, 1_000_000
HELD_SHARE = 0.10
#: CPU that counts as none: the innocent client's share is subtracted, and is not quite steady
CPU_NOISE_S = 0.02


def p99(latencies: list[float]) -> float:
    """Return the 99th percentile; 0 where there are none."""
    ordered = sorted(latencies)
    return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] if ordered else 0.0


def slowness_of(found: dict[str, Any]) -> float:
    """Return how much longer a millisecond of CPU is than on the reference machine."""
    return max(1.0, float(found.get("slowness", 1.0)))


def cpu_of(found: dict[str, Any]) -> float:
    """Return the gate's CPU in seconds of the reference machine."""
    return float(found["cpu_s"]) / slowness_of(found)


def units_of(found: dict[str, Any]) -> int:
    """Return how many requests, connections or bytes an attack had, at least 1: its own unit."""
    sent, unit = found["sent"], found["unit"]
    if unit == "request":
        count = sent["requests"]
    elif unit == "connection":
        count = sent["connections"] + sent["closed"]
    else:
        count = sent["sent"] + (sent["answered"] if unit == "answer" else sent["plain"])
    return max(1, int(count))


def cpu_share(found: dict[str, Any]) -> float:
    """Return CPU over its ceiling, in the attack's own unit."""
    limits = {"request": REQUEST_S, "connection": CONNECTION_S}
    limit = limits.get(found["unit"]) or found["ordinary_byte_s"] * CPU_RATIO
    return max(0.0, cpu_of(found) - CPU_NOISE_S) / units_of(found) / limit


def shares(found: dict[str, Any]) -> dict[str, float]:
    """Return each figure over its ceiling: above 1 it is broken."""
    allowed = found.get("memory_allowed") or found["max_bytes_held"] + MEMORY_SLACK
    result = {
        "cpu": cpu_share(found),
        "memory": found["memory_bytes"] / allowed,
        "latency": max(0.0, found["p99_s"] - found["quiet_p99_s"]) / LATENCY_S,
        "callback": found["callback_s"] / (CALLBACK_S * slowness_of(found)),
        "metrics": found["metrics_bytes"] / METRICS_BYTES,
        "alive": 2.0 if found["wrong"] else 0.0,
    }
    if "collector_longest_s" in found:
        result["collector"] = found["collector_longest_s"] / COLLECTOR_S
    if found["unit"] == "byte":  # else answers are the broker's, or those of TLS
        sent = found["sent"]
        most = max(ANSWER_BYTES, 2 * sent["sent"] // max(1, sent["requests"]))
        result["answer"] = sent["largest_answer"] / most
    if found.get("max_audit_bytes"):
        result["files"] = found["audit_bytes"] / found["max_audit_bytes"]
    if "held_share" in found:
        result["held"] = abs(found["held_share"] - 1) / HELD_SHARE
        result["healthy"] = 2.0 if found["unserved"] else 0.0
    return result


def broken(found: dict[str, Any]) -> dict[str, float]:
    """Return the figures that are above their ceilings, as multiples of them."""
    return {name: share for name, share in shares(found).items() if share > 1}

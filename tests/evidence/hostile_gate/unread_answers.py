"""Consumers with unread answers of 50 MB, and healthy ones at the same time.

The default limit of `fetch.max.bytes` is 50 MB, so each consumer that stops reading may leave that
much at the gate. 40 of them must not take more memory than max_bytes_held, ``bytes_held`` must be
right, and 20 consumers that do read must all be served.
"""

from __future__ import annotations

import time
from pathlib import Path

from tests.evidence.hostile_gate import requests as kafka
from tests.evidence.hostile_gate.crowd import Crowd, Plan
from tests.evidence.hostile_gate.gate_under_test import ROOT
from tests.evidence.hostile_gate.measure import (
    Found,
    gate_for,
    limits_and_times,
    ordinary_byte_s,
    probing,
    quiet,
)
from tests.support.calibration import Watch

NAME = "answers: 40 unread of 50 MB, 20 healthy consumers"
SETTINGS = {"limits": {"max_bytes_held": 512 << 20}}
STALLED, HEALTHY = 40, 20
FILL_S, SERVE_S = 5.0, 15.0


def measured(checkout: Path = ROOT) -> Found:
    """Run it against a gate of its own, whose memory holds nothing of earlier connections."""
    with gate_for(SETTINGS, checkout) as gate, probing(gate) as prober:
        calm = quiet(gate, prober)
        start, cpu_start = time.monotonic(), gate.cpu_s()
        idle = gate.resident_bytes()
        gate.forget()
        stalled, healthy = Crowd(gate.address), Crowd(gate.address)
        stalled.open([Plan(kafka.fetch(b"big-1"), 1, 1, reads=False) for _ in range(STALLED)])
        stalled.drive(0.5)
        held, resident = _settled(gate.bytes_held, gate.resident_bytes)
        healthy.open([Plan(kafka.fetch(b"big-2"), 1, 1) for _ in range(HEALTHY)])
        with Watch() as watch:
            healthy.drive(SERVE_S)
        end = time.monotonic()
        sent, served = stalled.sent(), healthy.sent()
        harmed = prober.ask(f"{start} {end}")
        times = limits_and_times(gate, calm, harmed, watch)  # before the clients leave
        peak = gate.peak_bytes()
        stalled.close()
        healthy.close()
        sent.answered, sent.requests = served.answered, sent.requests + served.requests
        sent.connections += served.connections
        found = {
            "attack": NAME,
            "unit": "answer",
            "sent": vars(sent),
            "cpu_s": gate.cpu_s() - cpu_start - calm.cpu_share * (end - start),
            "memory_bytes": peak - idle,
            "idle_bytes": idle,
            **times,
            "metrics_bytes": len(gate.metrics()),
            "seconds": end - start,
            "is_settled": True,
            "wrong": harmed["wrong"],
            "bytes_held": held,
            "held_share": held / max(1, resident - idle),
            "unserved": HEALTHY - served.answers,
        }
        return found | {"ordinary_byte_s": ordinary_byte_s(gate)}


def _settled(held, resident) -> tuple[int, int]:  # type: ignore[no-untyped-def]
    """Wait until the gate's memory grows no more; return bytes_held and resident memory."""
    until = time.monotonic() + FILL_S
    before = resident()
    while time.monotonic() < until:
        time.sleep(0.5)
        now = resident()
        if now - before < 4 << 20:
            break
        before = now
    return held(), resident()

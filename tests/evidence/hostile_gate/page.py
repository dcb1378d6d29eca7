"""The page of tests/evidence/hostile_gate: what hostile clients cost the gate."""

from __future__ import annotations

from typing import Any

from bench.pages.text import measured, page, paragraph, table
from tests.evidence.hostile_gate import ceilings

TITLE = "Hostile clients"
ABOUT = "CPU, memory and other clients' latency while strangers attack the gate"
COMMAND = "python -m tests.evidence.hostile_gate --write"
SOURCES = ("hostile",)
HEADINGS = (
    "attack",
    "sent",
    "decompressed",
    "gate CPU",
    "CPU, × ordinary",
    "memory",
    "p99 of others",
    "callback",
)
#: what the page reads of an attack, and of what it sent
KEPT = ("attack", "error", "unit", "cpu_s", "memory_bytes", "quiet_p99_s", "p99_s", "callback_s")
KEPT += ("ordinary_byte_s", "slowness", "broken")
SENT = ("connections", "sent", "requests", "plain", "answered", "closed")
#: figure of ceilings.shares -> its column
COLUMNS = {"cpu": 4, "memory": 5, "latency": 6, "callback": 7}


def kept(found: dict[str, Any]) -> dict[str, Any]:
    """Return what is saved of an attack."""
    attack = {name: found[name] for name in KEPT if name in found}
    if "sent" in found:
        attack["sent"] = {name: found["sent"][name] for name in SENT}
    return attack


def size(count: float) -> str:
    """Return bytes as people write them."""
    return (
        f"{count / 1e6:,.1f} MB"
        if count >= 1e5
        else f"{count / 1e3:,.1f} kB"
        if count >= 1e3
        else f"{count:.0f} B"
    )


def unit_cost(found: dict[str, Any]) -> str:
    """Return CPU in the attack's own unit."""
    each, unit = ceilings.cpu_of(found) / ceilings.units_of(found), found["unit"]
    if unit == "connection":
        return f"{each * 1e6:,.0f} µs a connection"
    if unit == "request":
        return f"{each * 1e6:,.1f} µs a request"
    return f"{each / found['ordinary_byte_s']:,.1f}"


def row(found: dict[str, Any]) -> list[str]:
    """Return a row; what is above its ceiling is bold."""
    if "error" in found:
        return [found["attack"], f"**{found['error'][:60]}**", *[""] * (len(HEADINGS) - 2)]
    sent, broken = found["sent"], found["broken"]
    added = max(0.0, found["p99_s"] - found["quiet_p99_s"])
    cells = [
        found["attack"],
        size(sent["sent"]),
        size(sent["plain"]) if sent["plain"] else "",
        f"{found['cpu_s']:.2f} s",
        unit_cost(found),
        f"+{found['memory_bytes'] / (1 << 20):,.0f} MiB",
        f"+{added * 1e3:,.0f} ms",
        f"{found['callback_s'] * 1e3:,.1f} ms",
    ]
    for name, at in COLUMNS.items():
        if name in broken:
            cells[at] = f"**{cells[at]}**"
    others = [name for name in broken if name not in COLUMNS]
    if others:
        cells[0] += f" (**{', '.join(others)}**)"
    return cells


def table_of(attacks: list[dict[str, Any]]) -> str:
    """Return the table of attacks."""
    return table(HEADINGS, [row(found) for found in attacks])


def render(results: dict[str, dict[str, Any]]) -> str:
    """Return the page."""
    result = results["hostile"]
    opening = paragraph(
        "Each row is an attack by clients that nobody has authenticated, against a gate of its",
        "own.",
        measured(result, ""),
    )
    scope = paragraph(
        "CPU is the gate's process, by byte that it receives or decompresses, as a multiple of an",
        "ordinary byte (120 kB of zstd that is passed on); floods of small requests are counted by",
        "request, attacks that send almost nothing by connection. Memory is the peak over the",
        "idle process, p99 that of an innocent client beyond its p99 before the attack. The",
        "callback is the longest of the event loop, in CPU time.",
    )
    limits = paragraph(
        "A figure above its ceiling is bold.",
        f"CPU: {ceilings.CPU_RATIO:g} × an ordinary byte, {ceilings.REQUEST_S * 1e3:g} ms a request",
        f"or {ceilings.CONNECTION_S * 1e3:g} ms a connection; the first",
        f"{ceilings.CPU_NOISE_S * 1e3:g} ms do not count.",
        f"Memory: max_bytes_held + {ceilings.MEMORY_SLACK >> 20} MiB.",
        f"p99: {ceilings.LATENCY_S * 1e3:g} ms. Callback: {ceilings.CALLBACK_S * 1e3:g} ms.",
    )
    return page(opening, scope, limits, table_of(result["attacks"]))

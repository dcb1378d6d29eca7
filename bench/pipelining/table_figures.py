"""Rows and verdicts of the pipelining table, from its samples."""

from __future__ import annotations

import statistics
from typing import Any

from bench import runs
from bench.pages import pipelining as page

SHARE = 0.85
TIMES_SARAMA = 5
CAPS = {"one-1": 1}
#: sarama's batches grow beyond what is asked
SAME_BATCH = ("Java", "librdkafka", "librdkafka idempotent", "franz-go")
#: what the samples of a row have in common
KEY = ("cell", "rtt_ms", "congestion", "peer", "link", "batch")
OURS = "batchval"
TODAY = "sarama 1.61.1"


def rate(sample: dict[str, Any]) -> float:
    """Return records a second of a run by the client's clock, to the last sent byte without
    acks.
    """
    seconds = sample["wire"]["sending_s"] if sample["cell"] == "acks0" else sample["seconds"]
    return float(sample["records"] / seconds)


def steady(sample: dict[str, Any]) -> float | None:
    """Return records a second on the wire between the middle answer and the last but one."""
    wire = sample["wire"]
    if not wire.get("steady_bytes_per_s") or sample["cell"] in ("acks0", "many", "tls"):
        return None
    return float(wire["steady_bytes_per_s"] * sample["records"] / wire["bytes"])


def rows(samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row over all rounds for each value of KEY."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for one in samples:
        groups.setdefault(tuple(one[name] for name in KEY), []).append(one)
    order = list(page.FLAGS)
    return [
        row(dict(zip(KEY, key, strict=True)), several)
        for key, several in sorted(
            groups.items(), key=lambda item: (order.index(item[0][0]), *item[0][1:3])
        )
    ]


def row(found: dict[str, Any], several: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the row of these samples, which have the values of ``found`` in common."""
    cell, rtt_ms = found["cell"], found["rtt_ms"]
    good = [one for one in several if "error" not in one]
    if not good:
        return found | {"error": several[-1]["error"]}
    cap = CAPS.get(cell, 5)
    rates = [rate(one) for one in good]
    found |= {
        "rounds": len(good),
        "failed_rounds": len(several) - len(good),
        "cap": cap,
        "brokers": good[0]["brokers"],
        "records": max(one["records"] for one in good),
        "max_records_per_s": max(rates),
        "median_records_per_s": statistics.median(rates),
        "spread": spread(rates),
        "max_mib_per_s": max(rates) * 1000 / 2**20,
    }
    even = [value for one in good if (value := steady(one)) is not None]
    if even:
        middle = statistics.median(even)
        found["steady_records_per_s"] = middle
        found["steady_spread"] = spread(even)
        found["steady_requests"] = min(one["wire"]["steady_requests"] for one in good)
        found["bound_records_per_s"] = cap * good[0]["batch"] / 1000 / (rtt_ms / 1000)
        found["request_bytes"] = statistics.median(
            one["wire"]["bytes"] / one["wire"]["requests"] for one in good
        )
    if cell == "tls":
        own = [one["own_in_flight"] for one in good if one["own_in_flight"] is not None]
        found["in_flight"] = max(own, default=None)
    elif cell != "acks0":
        found["in_flight"] = max(one["wire"]["in_flight"] for one in good)
        found["in_flight_total"] = max(one["wire"]["in_flight_total"] for one in good)
        found["cap_kept"] = found["in_flight"] <= cap
    return found


def spread(values: list[float]) -> float | None:
    """Return the spread of rounds; None of one."""
    return runs.spread(values) if len(values) > 1 else None


def rated(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Compare the measured figures (cubic) with their targets."""
    at = {
        (one["cell"], one["rtt_ms"], one["peer"]): one
        for one in rows
        if one["congestion"] == "cubic" and "error" not in one
    }
    found = []
    for cell in ("one", "large"):
        own = at.get((cell, 140.0, OURS))
        if own and "steady_records_per_s" in own:
            share = own["steady_records_per_s"] / own["bound_records_per_s"]
            name = f"140 ms, partition 0, {own['batch']:,} bytes: of 5 × batch / RTT, steady"
            found.append(
                figure(name, share, SHARE, None, f"{own['steady_records_per_s']:,.0f} records/s")
            )
    for cell in ("one", "large"):
        for rtt_ms in sorted({one["rtt_ms"] for one in rows}):
            own = at.get((cell, rtt_ms, OURS))
            others = [one for peer in SAME_BATCH if (one := at.get((cell, rtt_ms, peer)))]
            others = [
                one for one in others if one.get("cap_kept") and "steady_records_per_s" in one
            ]
            if own and "steady_records_per_s" in own and others:
                best = max(others, key=lambda one: float(one["steady_records_per_s"]))
                spreads = [one["steady_spread"] or 0.0 for one in (own, best)]
                ratio = own["steady_records_per_s"] / best["steady_records_per_s"]
                name = f"{rtt_ms:g} ms, partition 0, {own['batch']:,} bytes: of the best that keeps its cap"
                name += f", {best['peer']}"
                found.append(
                    figure(
                        name,
                        ratio,
                        1.0,
                        max(spreads) or None,
                        f"{best['steady_records_per_s']:,.0f} records/s",
                    )
                )
    for cell, length in (("large", ""), ("long", ", 1,000 requests")):
        own, today = at.get((cell, 140.0, OURS)), at.get((cell, 140.0, TODAY))
        if own and today:
            ratio = own["median_records_per_s"] / today["median_records_per_s"]
            name = f"140 ms, whole run, 1,000,000 bytes{length}: of {TODAY}"
            found.append(
                figure(
                    name,
                    ratio,
                    TIMES_SARAMA,
                    None,
                    f"{today['median_records_per_s']:,.0f} records/s",
                )
            )
    mine = [one for one in rows if one["peer"] == OURS and "cap_kept" in one]
    if mine:
        over = max(one["in_flight"] - one["cap"] for one in mine)
        verdict = "met" if over <= 0 else "missed"
        found.append({"figure": "requests above the cap on the wire, every cell", "value": max(over, 0), "target": 0,
                      "spread": None, "verdict": verdict, "remark": f"{len(mine)} cells"})  # fmt: skip
    return found


def figure(
    name: str, value: float, target: float, spread: float | None, remark: str
) -> dict[str, Any]:
    """Return a figure and its verdict."""
    verdict = runs.verdict(value, target, "higher", spread or 0.0)
    found = {"figure": name, "value": value, "target": target, "spread": spread}
    return found | {"verdict": verdict, "remark": remark}


def markdown(result: dict[str, Any]) -> str:
    """Return what the terminal shows: the page's part, and the internal goals."""
    rows = [
        (
            one["figure"],
            f"{one['value']:.2f}",
            f"{one['target']:g}",
            "" if one["spread"] is None else f"{one['spread']:.0%}",
            one["verdict"],
            one["remark"],
        )
        for one in result["figures"]
    ]
    headings = ("figure", "reached", "goal", "spread", "verdict", "")
    return f"{page.producers(result)}\n{runs.goals(headings, rows)}"

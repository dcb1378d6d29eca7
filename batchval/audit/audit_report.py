"""HTML page of an audit's outputs, self-contained. Nothing is fetched.

The page is audit_report.html.j2. Topic names are folder names and may be hostile: all words are
escaped, and the page's own policy lets no script run but the one that sorts the tables, by its
hash.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from batchval.audit import costs
from batchval.audit.hours import CODECS
from batchval.audit.stored_audit import facts_of
from batchval.audit.totals import Codec, Facts, Totals, hour_words, saved
from batchval.errors import BatchvalError
from batchval.report.charts import COLOURS, Chart, stacked
from batchval.report.pages import render
from batchval.report.units import human_bytes, human_seconds, plural, printable
from batchval.rule_texts import RULE_TEXTS
from batchval.rules import Rule

__all__ = ["ReportError", "page", "write"]

_TEMPLATE = Path(__file__).with_name("audit_report.html.j2")
#: more would make a page that no browser opens gladly; the outputs have all
TOPICS, TOPICS_BY_HOUR, HOURS, FINDINGS, UNREADABLE = 1_000, 40, 168, 200, 200
_COLUMNS = 200  # of a chart
_WIDTH = 1132
_MIN_SPAN_MS = 60_000
_CPU_UNITS = ((1_000_000, "CPU microseconds"), (1_000, "CPU milliseconds"), (1, "CPU seconds"))
_NO_TIME = "no time"
_RULE_COLOURS = (6, 1, 3, 4, 7, 2, 0, 5)

#: a click on a head sorts by the cells' data-v as numbers, where they have one, else by their
#: words; again: downwards
_SCRIPT = """
for (const head of document.querySelectorAll("table.sortable th button")) head.onclick = () => {
  const th = head.parentNode, body = th.closest("table").tBodies[0], at = th.cellIndex;
  const down = th.getAttribute("aria-sort") === "ascending" ? -1 : 1;
  const of = row => row.cells[at].dataset.v ?? row.cells[at].textContent;
  const order = (a, b) => a !== "" && b !== "" && !isNaN(a) && !isNaN(b) ? a - b : a < b ? -1 : a > b ? 1 : 0;
  for (const other of th.parentNode.cells) other.removeAttribute("aria-sort");
  th.setAttribute("aria-sort", down > 0 ? "ascending" : "descending");
  body.append(...[...body.rows].sort((a, b) => down * order(of(a), of(b))));
};
"""


class ReportError(BatchvalError):
    """The page cannot be made."""


def page(facts: Facts, title: str = "batchval audit") -> str:
    """Return the page. Raises ReportError where jinja2 is missing."""
    topics = sorted(
        facts.topics.items(), key=lambda item: (-item[1].findings, -item[1].bytes, item[0])
    )
    shown = topics[:TOPICS]
    digest = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    try:
        return render(
            _TEMPLATE,
            title=title,
            subtitle=_subtitle(facts),
            page_width=_WIDTH + 48,
            script=_SCRIPT,
            script_hash=f"sha256-{digest}",
            codecs=CODECS,
            colours=COLOURS,
            cards=list(_cards(facts)),
            charts=[chart for chart in _charts(facts) if chart is not None],
            rules=list(_rules(facts)),
            places=[
                _places("Findings", facts.findings, facts.findings_count),
                _places("Notes", facts.notes, facts.notes_count),
            ],
            unreadable=[
                (printable(file), printable(why)) for file, why in facts.unreadable[:UNREADABLE]
            ],
            unreadable_left=max(0, len(facts.unreadable) - UNREADABLE),
            topics=[_row(printable(name), totals) for name, totals in shown],
            topics_left=len(topics) - len(shown),
            by_hour=[_hours_of(facts, name, totals) for name, totals in topics[:TOPICS_BY_HOUR]],
            by_hour_left=_left_by_hour(len(topics)),
            ratio_words=_ratio_words(facts.whole),
            cpu_today=human_seconds(facts.whole.cpu_kafka),
            cpu_saved=human_seconds(facts.whole.cpu_saved),
            cpu_rates=_cpu_rates(facts),
            cpu_share=_percent(
                facts.whole.cpu_saved / facts.whole.cpu_kafka if facts.whole.cpu_kafka else None
            ),
            measured_on=costs.measured_on(),
            cpu_chart=_cpu_chart(facts.whole),
            cpu=[_cpu_row(name, codec) for name, codec in facts.whole.codecs.items()],
        )
    except ModuleNotFoundError as error:
        raise ReportError(f"a report needs {error.name}: pip install batchval[audit]") from None


def write(out: str, path: Path | str) -> None:
    """Write the page of an audit's outputs into a file. Raises ReportError, OutputError and
    OSError.
    """
    Path(path).write_text(page(facts_of(out, FINDINGS)), "utf-8")


def _subtitle(facts: Facts) -> str:
    hours = [hour for hour in facts.hours if hour is not None]
    spans = f", {hour_words(min(hours))} to {hour_words(max(hours))} UTC" if hours else ""
    return (
        f"{plural(len(facts.topics), 'topic')}, {plural(facts.whole.partitions, 'partition')}, "
        f"{plural(facts.segments, 'segment')}, {human_bytes(facts.segment_bytes)}{spans}"
    )


def _cards(facts: Facts) -> Iterator[tuple[str, str, str]]:
    whole = facts.whole
    yield f"{whole.batches:,}", "batches", ""
    yield f"{whole.records:,}", "records", ""
    yield human_bytes(whole.bytes), "in batches", ""
    found = facts.findings_count
    yield f"{found:,}", "findings" if found != 1 else "finding", "worse" if found else "better"
    if facts.notes_count:
        yield f"{facts.notes_count:,}", "notes" if facts.notes_count != 1 else "note", ""
    if facts.unreadable:
        yield f"{len(facts.unreadable):,}", "not read", "worse"
    if whole.damaged_bytes:
        yield human_bytes(whole.damaged_bytes), "in no batch", "worse"
    yield _percent(whole.claims_share), "of the bytes would pass by their claims", ""
    if whole.trust.claimed or whole.trust.verified:
        yield (
            f"{whole.trust.claimed:,}",
            whole.trust.words(None),
            "worse" if whole.trust.lying else "",
        )
    rates = _rates(facts, whole.cpu_saved)
    each = f": {rates[0]} a day, {rates[1]}" if rates else ""
    yield (
        human_seconds(whole.cpu_saved),
        f"CPU saved by a broker or gate that honours claims{each}",
        "",
    )


def _charts(facts: Facts) -> Iterator[Chart | None]:
    unit, columns = _columns(facts.hours)
    label = {"h": "hour (UTC)", "D": "day (UTC)", "M": "month (UTC)", "Y": "year (UTC)"}[unit]
    sizes = [
        (words, [sum(t.codecs[c].bytes for t in of if c in t.codecs) for c in CODECS])
        for words, of in columns
    ]
    yield _chart("Bytes by codec", "codec", label, "bytes", sizes, list(enumerate(CODECS)), 280)
    rules = [rule for rule, _ in facts.whole.rules.most_common()]
    apart, rest = (rules, []) if len(rules) <= 8 else (rules[:7], rules[7:])
    parts = [(_RULE_COLOURS[i], _rule_words(rule)) for i, rule in enumerate(apart)]
    counted = [
        (
            words,
            [
                *(sum(t.rules[r] for t in of) for r in apart),
                *([sum(t.rules[r] for t in of for r in rest)] if rest else []),
            ],
        )
        for words, of in columns
    ]
    if rest:
        parts.append((_RULE_COLOURS[7], "others"))
    yield _chart("Findings by rule", "rule", label, "findings", counted, parts, 220)


def _chart(
    title: str,
    part: str,
    label: str,
    unit: str,
    columns: list[tuple[str, list[int]]],
    parts: list[tuple[int, str]],
    height: int,
) -> Chart | None:
    """Return columns of parts; where one hour has all, a column for each part that it has."""
    filled = [column for column in columns if any(column[1])]
    if len(filled) == 1:
        words, amounts = filled[0]
        label = f"{part}, {words}{' UTC' if words != _NO_TIME else ''}"
        columns = [
            (name, [amount if n == at else 0 for n in range(len(parts))])
            for at, ((_, name), amount) in enumerate(zip(parts, amounts, strict=True))
            if amount
        ]
    return stacked(title, label, unit, columns, parts, width=_WIDTH, height=height)


def _columns(hours: dict[int | None, Totals]) -> tuple[str, list[tuple[str, list[Totals]]]]:
    """Return the hours in columns of the smallest unit (hour, day, month, year) that needs at most
    this number of them. Empty columns in between are included.

    Where a damaged timestamp lies so far from the others that these would be too many: only those
    that hold something.
    """
    known = sorted(hour for hour in hours if hour is not None)
    unit, names = "h", [""]
    for unit in "hDMY":
        names = list(dict.fromkeys(hour_words(hour, unit) for hour in known))
        if len(names) <= _COLUMNS:
            break
    seconds = {"h": 3600, "D": 86_400}.get(unit)
    if known and seconds and (known[-1] - known[0]) // seconds < _COLUMNS:
        names = [
            hour_words(hour, unit)
            for hour in range(known[0] // seconds * seconds, known[-1] + 1, seconds)
        ]
    columns: dict[str, list[Totals]] = {name: [] for name in names}
    for hour, totals in hours.items():
        columns.setdefault(_NO_TIME if hour is None else hour_words(hour, unit), []).append(totals)
    return unit, list(columns.items())


def _rule(name: str) -> Rule | None:
    return next((rule for rule in Rule if rule.id == name), None)


def _rule_words(name: str) -> str:
    rule = _rule(name)
    return f"{rule.id} {rule.slug}" if rule else printable(name)


def _rules(facts: Facts) -> Iterator[dict[str, Any]]:
    for name, count in facts.whole.rules.most_common():
        rule = _rule(name)
        yield {
            "id": printable(name),
            "order": rule.number if rule else 0,
            "slug": rule.slug if rule else "",
            "summary": rule.value.summary if rule else "",
            "advice": RULE_TEXTS[rule.id].advice if rule else "",
            "count": count,
            "topics": sum(1 for totals in facts.topics.values() if totals.rules[name]),
        }


def _places(title: str, first: pa.Table, count: int) -> dict[str, Any]:
    """Return a table of findings or notes: the first, and how many there are."""
    rows = [_finding(row) for row in first.slice(0, FINDINGS).to_pylist()]
    brokers = any(row["broker"] for row in rows)
    return {
        "title": title,
        "rows": rows,
        "count": count,
        "left": count - len(rows),
        "brokers": brokers,
    }


def _finding(row: dict[str, Any]) -> dict[str, Any]:
    follows = f" (and {plural(row['follows'], 'place')} after it)" if row["follows"] else ""
    return {
        "topic": printable(row["topic"] or ""),
        "broker": printable(row["broker"] or ""),
        "file": printable(row["file"] or ""),
        "partition": row["partition"],
        "position": row["position"],
        "offset": row["offset"],
        "rule": _rule_words(row["rule"] or "") + (" (open)" if row["state"] == "open" else ""),
        "reason": printable(row["reason"] or "") + follows,
    }


def _row(name: str, totals: Totals) -> dict[str, Any]:
    size = sum(codec.bytes for codec in totals.codecs.values()) or 1
    mix = [
        (CODECS.index(codec), 100 * found.bytes / size) for codec, found in totals.codecs.items()
    ]
    row: dict[str, Any] = asdict(totals)
    return row | {
        "name": name,
        "offsets": totals.offset_anomalies,
        "sequence_anomalies": totals.sequence_anomalies,
        "size": human_bytes(totals.bytes),
        "mix": [(number, f"{percent:.1f}") for number, percent in mix],
        "mix_words": ", ".join(f"{CODECS[number]} {percent:.1f} %" for number, percent in mix),
        "mix_order": f"{max(mix, key=lambda part: part[1])[0] if mix else -1}",
        "ratio": _ratio(totals.ratio),
        "ratio_order": totals.ratio or 0,
        "share": _percent(totals.claims_share),
        "share_order": totals.claims_share or 0,
        "saved": human_seconds(totals.cpu_saved),
        "saved_order": totals.cpu_saved,
    }


def _hours_of(facts: Facts, name: str, totals: Totals) -> dict[str, Any]:
    hours = list(facts.topic_hours(name).items())
    shown = hours[-HOURS:]
    words = f"{plural(len(hours), 'hour')}, {human_bytes(totals.bytes)}, {plural(totals.findings, 'finding')}"
    if len(shown) < len(hours):
        words += f"; the last {len(shown)} hours"
    rows = [
        _row(hour_words(hour), found) | {"order": 2**63 if hour is None else hour}
        for hour, found in shown
    ]
    return {"name": printable(name), "words": words, "hours": rows}


def _left_by_hour(topics: int) -> str:
    if topics <= TOPICS_BY_HOUR:
        return ""
    return f"{plural(topics - TOPICS_BY_HOUR, 'more topic')} by the hour: summary/ has all of them."


def _cpu_chart(whole: Totals) -> Chart | None:
    factor, unit = next(
        pair for pair in _CPU_UNITS if whole.cpu_kafka * pair[0] < 1000 or pair[0] == 1
    )
    columns = []
    for name, codec in whole.codecs.items():
        less = saved(name, codec)
        today = costs.cpu_seconds("kafka", name, codec.batches, codec.records, codec.bytes)
        columns.append((name, [(today - less) * factor, less * factor]))
    parts = [(5, "stays"), (2, "saved by a broker or gate that honours claims")]
    return stacked(
        "CPU of validation by codec", "codec", unit, columns, parts, width=_WIDTH, height=220
    )


def _rates(facts: Facts, seconds: float) -> tuple[str, str] | None:
    """Return CPU seconds a day and cores; None where the data covers less than a minute."""
    first, last = facts.span or (0, 0)
    if last - first < _MIN_SPAN_MS:
        return None
    cores = seconds * 1000 / (last - first)
    words = f"{float(f'{cores:.2g}'):,.12g}" if cores >= 0.001 else "less than 0.001"
    return human_seconds(cores * 86_400), f"{words} cores"


def _cpu_rates(facts: Facts) -> str:
    """Return the arithmetic of CPU by day and in cores."""
    saved, today = _rates(facts, facts.whole.cpu_saved), _rates(facts, facts.whole.cpu_kafka)
    if facts.span is None or saved is None or today is None:
        return "The data covers less than a minute, which is too little for rates by day."
    first, last = (
        str(np.datetime64(stamp, "ms").astype("datetime64[s]")).replace("T", " ")
        for stamp in facts.span
    )
    seconds = (facts.span[1] - facts.span[0]) / 1000
    return (
        f"The batches have timestamps from {first} to {last} UTC: {seconds:,.0f} s. "
        f"Today: {human_seconds(facts.whole.cpu_kafka)} / {seconds:,.0f} s = "
        f"{today[1]}, {today[0]} a day. "
        f"Saved: {human_seconds(facts.whole.cpu_saved)} / {seconds:,.0f} s = "
        f"{saved[1]}, {saved[0]} a day. "
        "One batch with a wrong timestamp makes the time longer, and these rates smaller."
    )


def _cpu_row(name: str, codec: Codec) -> dict[str, Any]:
    today = costs.cpu_seconds("kafka", name, codec.batches, codec.records, codec.bytes)
    less = saved(name, codec)
    share = codec.claims_bytes / codec.bytes if codec.bytes else 0.0
    kafka, claims = costs.measured("kafka", name), costs.measured("claims", name)
    return {
        "codec": name,
        "batches": codec.batches,
        "bytes": codec.bytes,
        "size": human_bytes(codec.bytes),
        "share": _percent(share),
        "share_order": share,
        "today": human_seconds(today),
        "today_order": today,
        "saved": human_seconds(less),
        "saved_order": less,
        "kafka": f"{kafka[0]:.3g}" if kafka else "–",
        "claims": f"{claims[0]:.3g}" if claims else "–",
        "within": f"{kafka[1]:.2f}×" if kafka else "–",
    }


def _ratio_words(whole: Totals) -> str:
    if whole.ratio is None and any(name != "none" for name in whole.codecs):
        return "Ratio: unknown, because payloads were not decompressed (--deep decompresses them)."
    return "Ratio: uncompressed bytes of compressed batches over their bytes as stored."


def _ratio(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.2f}"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"

"""Summary of an audit for a terminal: topics, rules, totals."""

from __future__ import annotations

from rich.text import Text

from batchval.audit.totals import Facts, Totals
from batchval.report.tables import plain_table, render
from batchval.report.units import human_bytes, human_seconds, plural, printable
from batchval.rules import Rule

__all__ = ["terminal_summary"]

TOPICS = 20
_HEADS = (
    "partitions",
    "batches",
    "records",
    "bytes",
    "ratio",
    "findings",
    "by claims",
    "CPU saved",
)


def terminal_summary(facts: Facts) -> str:
    """Return the topics with findings and the largest ones, the broken rules, and the totals. Ends
    a line.
    """
    parts = []
    topics = sorted(
        facts.topics.items(), key=lambda item: (-item[1].findings, -item[1].bytes, item[0])
    )
    if topics:
        table = plain_table()
        table.add_column("topic", overflow="fold")
        for head in _HEADS:
            table.add_column(head, justify="right", no_wrap=True)
        for name, totals in topics[:TOPICS]:
            table.add_row(
                *map(Text, (printable(name), *_cells(totals))),
                style="yellow" if totals.findings else None,
            )
        parts.append(render(table))
        if len(topics) > TOPICS:
            parts.append(f"and {plural(len(topics) - TOPICS, 'more topic')}\n")
    names = {rule.id: str(rule) for rule in Rule}
    parts += [
        f"{names.get(rule, printable(rule))}: {plural(count, 'finding')}\n"
        for rule, count in facts.whole.rules.most_common()
    ]
    parts.append(_sums(facts) + "\n")
    return "".join(parts)


def _cells(totals: Totals) -> tuple[str, ...]:
    share = totals.claims_share
    return (
        f"{totals.partitions:,}",
        f"{totals.batches:,}",
        f"{totals.records:,}",
        human_bytes(totals.bytes),
        "" if totals.ratio is None else f"{totals.ratio:.2f}",
        f"{totals.findings:,}",
        "" if share is None else f"{100 * share:.0f} %",
        human_seconds(totals.cpu_saved),
    )


def _sums(facts: Facts) -> str:
    whole = facts.whole
    words = (
        f"{plural(facts.segments, 'segment')}, {plural(whole.batches, 'batch')}, {plural(whole.records, 'record')}, "
        f"{human_bytes(whole.bytes)}: {plural(facts.findings_count, 'finding')}"
    )
    if facts.unreadable:
        words += f", {len(facts.unreadable):,} not read"
    if whole.cpu_saved:
        words += f"; {human_seconds(whole.cpu_saved)} of CPU would be saved by a broker or gate that honours claims"
    return words

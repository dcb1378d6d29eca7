"""Transactions of a partition as its log shows them, as plain rows for people and tables.

A partition without transactional batches and markers has none. A row is ``is_certain`` if the log
shows no damage and no gap since its start: else a marker may be missing, and the cleaner may have
removed the data of one that is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from batchval.segment.transactions import (
    LATE_TRANSACTION_BUFFER_MS,
    TRANSACTION_MAX_TIMEOUT_MS,
    Transactions,
)

__all__ = ["rows_of", "table_of"]


def rows_of(
    transactions: Transactions, topic: str, partition: int, folder: str
) -> list[dict[str, Any]]:
    """Return a row of the partition, and one of each open transaction, the oldest first."""
    opened = transactions.open
    counts = (
        transactions.committed_count,
        transactions.aborted_count,
        transactions.markers_without_data,
    )
    if transactions.last_offset is None or not (opened or any(counts)):
        return []
    which = {"topic": topic, "partition": partition, "folder": folder}
    hanging = {one.transaction for one in transactions.hanging()}
    whole = {
        "type": "partition_transactions",
        **which,
        "last_stable_offset": transactions.last_stable_offset,
        "log_end_offset": transactions.last_offset + 1,
        "open": len(opened),
        "hanging": len(hanging),
        "committed": counts[0],
        "aborted": counts[1],
        "markers_without_data": counts[2],
        "is_certain": transactions.certain_from < 0 and not transactions.after_damage,
    }
    limit = TRANSACTION_MAX_TIMEOUT_MS + LATE_TRANSACTION_BUFFER_MS
    return [
        whole,
        *(
            {
                "type": "transaction",
                **which,
                "producer_id": one.producer_id,
                "producer_epoch": one.producer_epoch,
                "first_offset": one.first_offset,
                "last_offset": one.last_offset,
                "first_timestamp": one.first_timestamp,
                "last_timestamp": one.last_timestamp,
                "age_ms": _age(transactions, one.first_timestamp),
                "limit_ms": limit,
                "is_hanging": one in hanging,
                "is_certain": one.is_certain,
            }
            for one in opened
        ),
    ]


def _age(transactions: Transactions, first_timestamp: int) -> int | None:
    """Return milliseconds from the first batch to the newest timestamp of the log."""
    return transactions.newest_timestamp - first_timestamp if first_timestamp >= 0 else None


def table_of(rows: Sequence[dict[str, Any]]) -> str:
    """Return the rows as text, a table for each partition. Ends a line."""
    from batchval.report.tables import plain_table, render
    from batchval.report.units import plural, printable

    text = []
    for whole in (row for row in rows if row["type"] == "partition_transactions"):
        markers = plural(whole["markers_without_data"], "marker") + " without data"
        text.append(
            f"{printable(whole['folder'])}: last stable offset {whole['last_stable_offset']}, "
            f"log end {whole['log_end_offset']}, {whole['committed']} committed, "
            f"{whole['aborted']} aborted, {markers}"
            + ("" if whole["is_certain"] else " (uncertain: the log has gaps)")
            + "\n"
        )
        opened = [
            row for row in rows if row["type"] == "transaction" and row["folder"] == whole["folder"]
        ]
        if opened:
            table = plain_table()
            for name in ("producer id", "epoch", "first offset", "first timestamp", "age (ms)"):
                table.add_column(name, justify="right")
            table.add_column("state")
            for row in opened:
                names = (
                    "producer_id",
                    "producer_epoch",
                    "first_offset",
                    "first_timestamp",
                    "age_ms",
                )
                table.add_row(
                    *(str(row[name]) for name in names), "hanging" if row["is_hanging"] else "open"
                )
            text.append(render(table))
    return "".join(text)

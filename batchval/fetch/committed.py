"""Isolation level read_committed: a Fetch answer without the batches of aborted transactions.

    aborted_transactions: (producer_id, first_offset) …, those that reach into the answer's records
    records: batches; the control batch "abort" of a producer ends its aborted transaction

The broker sends nothing after the last stable offset, so that every transaction in the answer has
been decided.
"""

from __future__ import annotations

from collections.abc import Iterable

from batchval.core.batches.batch import RecordBatch, batches

__all__ = ["committed_parts"]

_ABORT = b"\x00\x00"  # of a control record's key: version (int16), type (int16)


def committed_parts(
    records: memoryview, aborted: Iterable[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Return where in ``records`` (whole batches) lies what is left: (begin, end) of each run of
    batches.

    As Kafka's consumer has it: a transaction counts as aborted from its first offset to its
    producer's abort marker. Raises NotABatch for a control batch that cannot be read.
    """
    waiting = sorted(((first, producer_id) for producer_id, first in aborted), reverse=True)
    open_now: set[int] = set()
    parts: list[tuple[int, int]] = []
    begin = at = 0
    for batch in batches(records):
        if batch.producer_id >= 0:
            while waiting and waiting[-1][0] <= batch.last_offset:
                open_now.add(waiting.pop()[1])
            if batch.is_control_batch:
                if batch.producer_id in open_now and _is_abort(batch):
                    open_now.discard(batch.producer_id)
            elif batch.is_transactional and batch.producer_id in open_now:
                if at > begin:
                    parts.append((begin, at))
                begin = at + batch.size_in_bytes
        at += batch.size_in_bytes
    if at > begin:
        parts.append((begin, at))
    return parts


def _is_abort(batch: RecordBatch) -> bool:
    key = next((record.key for record in batch.records()), None)
    return key is not None and key[2:4] == _ABORT

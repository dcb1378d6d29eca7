"""runs/: a row for each run of a chain of audits that go on from each other with --since."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa

from batchval.audit.outputs import RUNS, with_numbers
from batchval.segment.store import shown, text_of

if TYPE_CHECKING:
    from batchval.audit.audit_run import Run
    from batchval.audit.reduce import Audit
    from batchval.segment.options import Options
    from batchval.segment.segment_run import Work

__all__ = ["last_reread", "to_table"]


def to_table(run: Run, work: Work, options: Options, found: Audit) -> pa.Table:
    """Return the earlier runs and this one."""
    row: dict[str, Any] = {
        "run_id": uuid4().hex,
        "started_at": work.now_ms,
        "ended_at": work.now_ms if options.now_ms is not None else int(time.time() * 1000),
        "version": run.version,
        "engine": run.engine,
        "paths": [text_of(shown(path)) for path in work.paths],
        "options": _options(options),
        "since": run.since and text_of(shown(run.since)),
        "findings": len(found.findings),
        **found.states(),
        "notes": len(found.notes),
        "unreadable": len(found.unreadable),
        "exit_code": run.exit_code(found),
    }
    for name in ("segments", "skipped", "reread", "grown", "batches", "bytes", "moved"):
        row[name] = getattr(found, name)
    table = pa.Table.from_pylist([row], RUNS)
    return table if work.since is None else pa.concat_tables([work.since.runs.cast(RUNS), table])


def _options(options: Options) -> str:
    others = dataclasses.replace(
        options, policy=None, judge_claims=None, extras={}, record_rules=()
    )
    plain = dataclasses.asdict(others)
    plain["record_rules"] = [
        [pattern, rules.to_mapping()] for pattern, rules in options.record_rules
    ] or None
    return json.dumps(
        {name: value for name, value in plain.items() if value is not None}, sort_keys=True
    )


def last_reread(runs: pa.Table) -> int:
    """Return when the last run began that read segments because of their age, or else the first
    one. Milliseconds."""
    rows: Sequence[dict[str, Any]] = with_numbers(runs).to_pylist()
    again = [row["started_at"] for row in rows if row["reread"]]
    return int(again[-1] if again else rows[0]["started_at"] if rows else 0)

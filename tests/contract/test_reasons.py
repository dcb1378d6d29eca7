"""The core's sources use every reason that core/format/reasons.py has a sentence for."""

from __future__ import annotations

import re

from batchval.core.format.reasons import REASONS
from tests.contract.sources import PACKAGE


def test_every_reason_is_used() -> None:
    core = PACKAGE / "core"
    sources = "".join(
        p.read_text()
        for p in [
            *core.rglob("*.pyx"),
            *core.rglob("*.pxd"),
            core / "batches" / "continuity.py",
        ]
    )
    assert [n for n in REASONS if not re.search(rf"reasons\.{n}\b|\"{n}\"", sources)] == []

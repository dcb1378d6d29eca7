"""The core's sources use every reason that core/format/reasons.py has a sentence for, and every
record rule has one.
"""

from __future__ import annotations

import re

from batchval.core.format.reasons import BROKEN_RULES, REASONS
from batchval.rules import Rule
from tests.support.sources import PACKAGE


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
    names = list(REASONS)[: list(REASONS).index("RECORD_KEY_SIZE") + 1]
    assert [n for n in names if not re.search(rf"reasons\.{n}\b|\"{n}\"", sources)] == []


def test_sentences_of_record_rules_stand_in_the_order_of_the_rules() -> None:
    """verdict.pyx counts from R2: R1 has two sentences before it."""
    names = list(REASONS)
    rules = [rule for rule in Rule if rule.id[0] == "R"]
    assert names.index("RECORD_KEY_SIZE") == len(names) - len(rules) + 1
    assert names[-len(rules) - 1] == "RECORD_SCHEMA_ID"
    assert list(BROKEN_RULES) == [rule.id for rule in rules if rule is not Rule.R1]
